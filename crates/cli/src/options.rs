//! The options that `run` and `env` share, and the environment variable that each one sets.
//!
//! | option                  | variable              | value                                                      |
//! |-------------------------|-----------------------|------------------------------------------------------------|
//! | `--paths N`             | `SRDMA_PATHS`         | 1–256                                                      |
//! | `--selector S`          | `SRDMA_SELECTOR`      | a name of `SelectorKind::ALL`                            |
//! | `--fault SCRIPT`        | `SRDMA_FAULT`         | a fault script (see the crate `srdma-script`), or its file |
//! | `--loss PERCENT`        | `SRDMA_LOSS`          | percent of our own packets that are not sent               |
//! | `--seed N`              | `SRDMA_SEED`          | decimal, 64 bits                                           |
//! | `--order O`             | `SRDMA_ORDER`         | `strict`, `default` or `relaxed`                           |
//! | `--stats FILE`          | `SRDMA_STATS`         | absolute path; `%p` stands for the process id              |
//! | `--trace FILE`          | `SRDMA_TRACE`         | absolute path; `%p` stands for the process id              |
//! | `--addr IP`             | `SRDMA_ADDR`          | address of this host, numeric                              |
//! | `--no-gso`              | `SRDMA_NO_GSO`        | `1`                                                        |
//! | `--socket-buffer BYTES` | `SRDMA_SOCKET_BUFFER` | 65536–1073741824                                           |
//!
//! An option that is not given sets nothing, so a variable that is already in the environment stays; one that holds
//! what it must not is refused before a program starts ([`NicOptions::settings`]).

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use srdma_client::{BadValue, Options, SelectorKind};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};

/// Options of the software RNIC.
#[derive(Args, Clone, Debug, Default)]
pub struct NicOptions {
    /// Paths that each connection is sprayed over, 1 to 256 [default: 128] [env: SRDMA_PATHS]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub paths: Option<u16>,

    /// How the next path is chosen [default: adaptive] [env: SRDMA_SELECTOR]
    #[arg(long, value_name = "SELECTOR", value_parser = selectors())]
    pub selector: Option<SelectorKind>,

    /// Let things go wrong on purpose, to test: clauses such as "drop 1%; freeze for 300ms from 2s", or the file they are in
    /// [env: SRDMA_FAULT]
    ///
    /// Clauses are separated by ; or new lines, # begins a comment. drop, duplicate, corrupt (a header bit), damage (any
    /// bit), and delay SPAN strike packets, restricted by a chance (1%), burst, data, ack or control, receive (instead of
    /// what we send), on PATHS (5, 0-31, 1mod4). `freeze` lets the device send and take nothing. from, to, and for SPAN every
    /// SPAN say when, counted from the first queue pair. `fail send 1000 with NoAnswer` and `fail receive 10 of qp 2 with
    /// 5` fail work requests with an error of `srdma explain list`.
    #[arg(long, value_name = "FILE|TEXT", value_parser = parse_fault)]
    pub fault: Option<String>,

    /// Lose this many percent of the packets we send: short for --fault "drop PERCENT%" [env: SRDMA_LOSS]
    #[arg(long, value_name = "PERCENT", value_parser = parse_loss_ppm)]
    pub loss: Option<u32>,

    /// Seed of everything random that a test should repeat, decimal or 0x… [env: SRDMA_SEED]
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    pub seed: Option<u64>,

    /// How far placement may run ahead of order [default: default] [env: SRDMA_ORDER]
    #[arg(long, value_enum)]
    pub order: Option<Order>,

    /// Write counters to FILE as JSON when the program exits; %p is its process id [env: SRDMA_STATS]
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Record our packets in FILE (pcapng, for Wireshark); %p is the process id [env: SRDMA_TRACE]
    #[arg(long, value_name = "FILE.pcapng")]
    pub trace: Option<PathBuf>,

    /// Use only this address of this host; loopback is allowed [env: SRDMA_ADDR]
    #[arg(long, value_name = "IP")]
    pub addr: Option<IpAddr>,

    /// Send packets one by one instead of in bursts (UDP GSO) [env: SRDMA_NO_GSO]
    #[arg(long)]
    pub no_gso: bool,

    /// Hold sockets to this many bytes of buffer, as net.core.rmem_max and wmem_max do where we are not root
    /// [env: SRDMA_SOCKET_BUFFER]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1 << 16..=1 << 30))]
    pub socket_buffer: Option<u32>,
}

/// How far placement may run ahead of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Every byte is placed in order
    Strict,
    /// Out of order, except the last packet of each WRITE and everything that a program can rely on
    Default,
    /// As if every memory region were registered with IBV_ACCESS_RELAXED_ORDERING
    Relaxed,
}

/// A value that clap cannot judge alone.
#[derive(Debug, thiserror::Error)]
pub enum OptionError {
    /// The directory of an output file does not exist.
    #[error("--{option} {file}: there is no directory {directory}; create it first")]
    NoDirectory { option: &'static str, file: String, directory: String },
    /// An output file is a directory.
    #[error("--{option} {file} is a directory; give a file name in it")]
    IsDirectory { option: &'static str, file: String },
    /// The file name cannot be passed on.
    #[error("--{option} {file}: the name is not valid UTF-8; choose another")]
    NotText { option: &'static str, file: String },
    /// The address is not one of this host.
    #[error("--addr {0} is no address of this host; `ip -br address` lists those it has")]
    ForeignAddress(IpAddr),
    /// A variable of the environment that no option replaces.
    #[error(transparent)]
    Environment(#[from] BadValue),
    /// Link-local addresses are not enough to reach a peer.
    #[error("--addr {0} is link-local; give a routable address or a loopback one")]
    LinkLocal(IpAddr),
}

impl NicOptions {
    /// The variables these options set, in a fixed order.
    pub fn variables(&self) -> Result<Vec<(&'static str, String)>, OptionError> {
        let mut set = Vec::new();
        let mut put = |name, value: Option<String>| set.extend(value.map(|value| (name, value)));
        put("SRDMA_PATHS", self.paths.map(|n| n.to_string()));
        put("SRDMA_SELECTOR", self.selector.map(|kind| kind.name().to_owned()));
        put("SRDMA_FAULT", self.fault.clone());
        put("SRDMA_LOSS", self.loss.map(|ppm| (f64::from(ppm) / 10_000.0).to_string()));
        put("SRDMA_SEED", self.seed.map(|seed| seed.to_string()));
        put("SRDMA_ORDER", self.order.map(word));
        put("SRDMA_STATS", self.stats.as_deref().map(|file| output_file("stats", file)).transpose()?);
        put("SRDMA_TRACE", self.trace.as_deref().map(|file| output_file("trace", file)).transpose()?);
        put("SRDMA_ADDR", self.addr.map(own_address).transpose()?);
        put("SRDMA_NO_GSO", self.no_gso.then(|| "1".to_owned()));
        put("SRDMA_SOCKET_BUFFER", self.socket_buffer.map(|bytes| bytes.to_string()));
        Ok(set)
    }

    /// The settings of a device: these options, and where one is not given, its variable. `inherited` gives the
    /// present value of a variable.
    pub fn settings(&self, inherited: &dyn Fn(&str) -> Option<String>) -> Result<Options, OptionError> {
        let given = self.variables()?;
        Ok(Options::from_variables(&|name| {
            let option = given.iter().find(|(given, _)| *given == name).map(|(_, value)| value.clone());
            option.or_else(|| inherited(name))
        })?)
    }
}

/// The word that stands for an enum value, on the command line as in the environment.
fn word<T: ValueEnum>(value: T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The names of all selectors, each with what it does.
fn selectors() -> impl TypedValueParser<Value = SelectorKind> {
    let values = SelectorKind::ALL.iter().map(|(name, kind)| PossibleValue::new(*name).help(kind.summary()));
    PossibleValuesParser::new(values).map(|name| SelectorKind::named(&name).unwrap_or_default())
}

/// The script as one line: the program that it is for need not find the file.
fn parse_fault(text: &str) -> Result<String, String> {
    match srdma_script::load(text) {
        Ok(faults) if faults.is_empty() => Err("holds no clause; try \"drop 1%\"".to_owned()),
        Ok(faults) => Ok(faults.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Percent to parts per million, by the rule that the variable has, too.
fn parse_loss_ppm(text: &str) -> Result<u32, String> {
    srdma_client::ppm_of_percent(text).ok_or_else(|| must_be("SRDMA_LOSS"))
}

fn parse_seed(text: &str) -> Result<u64, String> {
    srdma_client::seed(text).ok_or_else(|| must_be("SRDMA_SEED"))
}

/// What the value of an option must be, in the words that its variable has for it.
fn must_be(variable: &str) -> String {
    let known = srdma_client::VARIABLES.iter().find(|known| known.name == variable);
    format!("must be {}", known.map_or("another", |known| known.allowed))
}

/// The absolute form of an output file, after checking what can be checked without creating it.
/// Absolute, because the program may change its working directory before it exits.
fn output_file(option: &'static str, file: &Path) -> Result<String, OptionError> {
    let shown = file.display().to_string();
    // Only an empty path, or a lost working directory, has no absolute form.
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    if absolute.is_dir() || absolute.file_name().is_none() {
        return Err(OptionError::IsDirectory { option, file: shown });
    }
    if let Some(directory) = absolute.parent().filter(|directory| !directory.is_dir()) {
        let directory = directory.display().to_string();
        return Err(OptionError::NoDirectory { option, file: shown, directory });
    }
    absolute.into_os_string().into_string().map_err(|_| OptionError::NotText { option, file: shown })
}

/// The address as text if this host has it: only then can a socket be bound to it.
fn own_address(address: IpAddr) -> Result<String, OptionError> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if link_local {
        return Err(OptionError::LinkLocal(address));
    }
    let usable = !address.is_unspecified() && !address.is_multicast();
    if !usable || UdpSocket::bind((address, 0)).is_err() {
        return Err(OptionError::ForeignAddress(address));
    }
    Ok(address.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        nic: NicOptions,
    }

    fn variables(line: &str) -> Result<Vec<(&'static str, String)>, String> {
        let words = std::iter::once("srdma").chain(line.split_whitespace());
        let parsed = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        parsed.nic.variables().map_err(|error| error.to_string())
    }

    #[test]
    fn each_option_sets_its_variable() {
        let cwd = std::env::current_dir().unwrap();
        let absolute = |name: &str| cwd.join(name).display().to_string();
        let table: &[(&str, &[(&str, String)])] = &[
            ("", &[]),
            ("--paths 1", &[("SRDMA_PATHS", "1".into())]),
            ("--paths 256", &[("SRDMA_PATHS", "256".into())]),
            ("--selector single", &[("SRDMA_SELECTOR", "single".into())]),
            ("--selector rr", &[("SRDMA_SELECTOR", "rr".into())]),
            ("--selector oblivious", &[("SRDMA_SELECTOR", "oblivious".into())]),
            ("--fault drop", &[("SRDMA_FAULT", "drop".into())]),
            ("--loss 1", &[("SRDMA_LOSS", "1".into())]),
            ("--loss 1%", &[("SRDMA_LOSS", "1".into())]),
            ("--loss 0.5", &[("SRDMA_LOSS", "0.5".into())]),
            ("--loss 0", &[("SRDMA_LOSS", "0".into())]),
            ("--loss 0.0001", &[("SRDMA_LOSS", "0.0001".into())]),
            ("--loss 100%", &[("SRDMA_LOSS", "100".into())]),
            ("--seed 7", &[("SRDMA_SEED", "7".into())]),
            ("--seed 0xff", &[("SRDMA_SEED", "255".into())]),
            ("--seed 18446744073709551615", &[("SRDMA_SEED", u64::MAX.to_string())]),
            ("--order strict", &[("SRDMA_ORDER", "strict".into())]),
            ("--order default", &[("SRDMA_ORDER", "default".into())]),
            ("--order relaxed", &[("SRDMA_ORDER", "relaxed".into())]),
            ("--stats s-%p.json", &[("SRDMA_STATS", absolute("s-%p.json"))]),
            ("--trace /tmp/t.pcapng", &[("SRDMA_TRACE", "/tmp/t.pcapng".into())]),
            ("--addr 127.0.0.1", &[("SRDMA_ADDR", "127.0.0.1".into())]),
            ("--no-gso", &[("SRDMA_NO_GSO", "1".into())]),
            ("--socket-buffer 212992", &[("SRDMA_SOCKET_BUFFER", "212992".into())]),
            ("--paths 4 --no-gso", &[("SRDMA_PATHS", "4".into()), ("SRDMA_NO_GSO", "1".into())]),
        ];
        for (line, expected) in table {
            assert_eq!(&variables(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn wrong_values_are_named_with_what_is_right() {
        for (line, said) in [
            ("--paths 0", "1..=256"),
            ("--paths 257", "1..=256"),
            ("--paths many", "invalid"),
            ("--selector best", "single, rr, oblivious, "),
            ("--fault drp", "line 1, \"drp\": \"drp\" is not understood; a clause begins with drop"),
            ("--fault /no/such", "cannot read the fault script /no/such"),
            ("--fault #", "holds no clause"),
            ("--loss 101", "from 0 to 100"),
            ("--loss -1", "unexpected argument"),
            ("--loss=-1", "from 0 to 100"),
            ("--loss NaN", "from 0 to 100"),
            ("--loss lots", "a percentage from 0 to 100"),
            ("--loss 0.00001", "0.0001"),
            ("--seed -", "whole number"),
            ("--seed 0xg", "whole number"),
            ("--order loose", "strict, default, relaxed"),
            ("--stats /no/such/dir/s.json", "there is no directory /no/such/dir"),
            ("--stats /tmp", "is a directory"),
            ("--trace /", "is a directory"),
            ("--addr nonsense", "invalid IP address"),
            ("--addr 203.0.113.77", "no address of this host"),
            ("--addr 0.0.0.0", "no address of this host"),
            ("--addr 169.254.1.1", "link-local"),
            ("--addr fe80::1", "link-local"),
            ("--socket-buffer 65535", "65536..=1073741824"),
            ("--socket-buffer 4M", "invalid"),
        ] {
            let text = variables(line).expect_err(line);
            assert!(text.contains(said), "{line}: {text}");
        }
    }
}
