//! The options that `run` and `env` share, and the environment variable that each one sets.
//!
//! | option            | variable         | value                                                      |
//! |-------------------|------------------|------------------------------------------------------------|
//! | `--paths N`       | `SRDMA_PATHS`    | 1–256                                                      |
//! | `--selector S`    | `SRDMA_SELECTOR` | `single`, `rr` or `oblivious`                              |
//! | `--loss PERCENT`  | `SRDMA_LOSS_PPM` | parts per million of our own packets that are not sent     |
//! | `--seed N`        | `SRDMA_SEED`     | decimal, 64 bits                                           |
//! | `--order O`       | `SRDMA_ORDER`    | `strict`, `default` or `relaxed`                           |
//! | `--stats FILE`    | `SRDMA_STATS`    | absolute path; `%p` stands for the process id              |
//! | `--trace FILE`    | `SRDMA_TRACE`    | absolute path; `%p` stands for the process id              |
//! | `--addr IP`       | `SRDMA_ADDR`     | address of this host, numeric                              |
//! | `--no-gso`        | `SRDMA_NO_GSO`   | `1`                                                        |
//!
//! An option that is not given sets nothing, so a variable that is already in the environment stays.

use clap::{Args, ValueEnum};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};

/// Options of the software RNIC.
#[derive(Args, Clone, Debug, Default)]
pub struct NicOptions {
    /// Paths that each connection is sprayed over, 1 to 256 [default: 128] [env: SRDMA_PATHS]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub paths: Option<u16>,

    /// How the next path is chosen [default: oblivious] [env: SRDMA_SELECTOR]
    #[arg(long, value_enum)]
    pub selector: Option<Selector>,

    /// Lose this many percent of the packets we send, to test: 1, 1% and 0.5 are understood [env: SRDMA_LOSS_PPM]
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
}

/// How the next path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Selector {
    /// One path for everything, as a plain RNIC does
    Single,
    /// Each path in turn
    Rr,
    /// Pseudo-random and blind to load
    Oblivious,
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
        put("SRDMA_SELECTOR", self.selector.map(word));
        put("SRDMA_LOSS_PPM", self.loss.map(|ppm| ppm.to_string()));
        put("SRDMA_SEED", self.seed.map(|seed| seed.to_string()));
        put("SRDMA_ORDER", self.order.map(word));
        put("SRDMA_STATS", self.stats.as_deref().map(|file| output_file("stats", file)).transpose()?);
        put("SRDMA_TRACE", self.trace.as_deref().map(|file| output_file("trace", file)).transpose()?);
        put("SRDMA_ADDR", self.addr.map(own_address).transpose()?);
        put("SRDMA_NO_GSO", self.no_gso.then(|| "1".to_owned()));
        Ok(set)
    }
}

/// The word that stands for an enum value, on the command line as in the environment.
fn word<T: ValueEnum>(value: T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Percent, with or without the sign, to parts per million.
fn parse_loss_ppm(text: &str) -> Result<u32, String> {
    const EXAMPLES: &str = "a percentage such as 1, 0.5 or 1%";
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let percent: f64 = number.parse().map_err(|_| format!("must be {EXAMPLES}"))?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(format!("must be {EXAMPLES}, from 0 to 100"));
    }
    let ppm = (percent * 10_000.0).round() as u32;
    if ppm == 0 && percent > 0.0 {
        return Err("is too small; the least is 0.0001 (one packet in a million)".to_owned());
    }
    Ok(ppm)
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "must be a whole number of at most 64 bits, decimal or 0x…".to_owned())
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
            ("--loss 1", &[("SRDMA_LOSS_PPM", "10000".into())]),
            ("--loss 1%", &[("SRDMA_LOSS_PPM", "10000".into())]),
            ("--loss 0.5", &[("SRDMA_LOSS_PPM", "5000".into())]),
            ("--loss 0", &[("SRDMA_LOSS_PPM", "0".into())]),
            ("--loss 0.0001", &[("SRDMA_LOSS_PPM", "1".into())]),
            ("--loss 100%", &[("SRDMA_LOSS_PPM", "1000000".into())]),
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
            ("--selector random", "single, rr, oblivious"),
            ("--loss 101", "from 0 to 100"),
            ("--loss -1", "unexpected argument"),
            ("--loss=-1", "from 0 to 100"),
            ("--loss NaN", "from 0 to 100"),
            ("--loss lots", "a percentage such as"),
            ("--loss 0.00001", "too small"),
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
        ] {
            let text = variables(line).expect_err(line);
            assert!(text.contains(said), "{line}: {text}");
        }
    }
}
