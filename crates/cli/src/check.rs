//! `srdma check`: the way to a host, and (`--listen`) something at its other end that answers.

use crate::check_text::{human, object};
use crate::print::{complain, out};
use crate::USAGE;
use clap::Args;
use serde_json::json;
use srdma_probe::address;
use srdma_probe::check::{check as ask, slot_of, CheckError, Plan, Report};
use srdma_probe::listen::{ListenError, Listener};
use srdma_seams::Slot;
use std::io;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Slots asked when none is named: the first few, which fill up first.
const SLOTS_ASKED: u8 = 8;
/// Exit code when the host does not answer.
const UNREACHABLE: u8 = 1;

/// `srdma check`: its options.
#[derive(Args)]
#[command(
    override_usage = "srdma check HOST [OPTIONS]\n       srdma check --listen [--addr IP] [--slot N] [--for SECONDS]",
    after_help = "Something on HOST must answer: a program started with `srdma run` that has a queue pair,\n\
                  or `srdma check --listen`.\n\n\
                  Exit code: 0 it answers, 1 it does not, 2 wrong arguments."
)]
pub struct CheckCommand {
    /// Name or address of the host
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    host: Option<String>,

    /// Ask this UDP port only
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), conflicts_with_all = ["slot", "listen"])]
    port: Option<u16>,

    /// Ask (or, with --listen, claim) this slot only
    #[arg(long, value_name = "N")]
    slot: Option<u8>,

    /// Source ports to find distinct paths with; 0 skips that
    #[arg(long, value_name = "N", default_value = "128", value_parser = clap::value_parser!(u16).range(0..=256))]
    paths: u16,

    /// Round trips to measure
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,

    /// Farthest router to look for
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u8).range(1..=64))]
    hops: u8,

    /// Our own address to send from or to listen on
    #[arg(long, value_name = "IP")]
    addr: Option<IpAddr>,

    /// Print as JSON
    #[arg(long)]
    json: bool,

    /// Answer checks from other hosts
    #[arg(long)]
    listen: bool,

    /// Stop listening after this long [default: never]
    #[arg(long = "for", value_name = "SECONDS", requires = "listen", conflicts_with = "host", value_parser = parse_seconds)]
    seconds: Option<Duration>,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    // A year is as good as for ever.
    if !(0.0..=31_536_000.0).contains(&seconds) {
        return Err("must be from 0 to 31536000 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Why nothing was asked or answered.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("cannot find the address of {0} ({1}); check the name, or give an address")]
    Name(String, io::Error),
    #[error("{host} has no IPv{wanted} address, which --addr {source_address} would need")]
    Family { host: String, wanted: u8, source_address: IpAddr },
    #[error("{0} is link-local; give a routable address")]
    LinkLocal(IpAddr),
    #[error("no usable address to listen on; bring an interface up, or give --addr 127.0.0.1")]
    NoAddress,
    #[error("cannot list the addresses of this host ({0}); give one with --addr")]
    Interfaces(io::Error),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("listening failed: {0}")]
    Serve(io::Error),
}

impl CommandError {
    fn exit_code(&self) -> u8 {
        match self {
            CommandError::Name(..) | CommandError::Family { .. } | CommandError::LinkLocal(_) => USAGE,
            _ => UNREACHABLE,
        }
    }
}

/// The address to ask: of the family of our own address if that is given, otherwise the first one.
fn resolve(host: &str, source: Option<IpAddr>) -> Result<IpAddr, CommandError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let found = (bare, 0).to_socket_addrs().map_err(|error| CommandError::Name(host.to_owned(), error))?;
    let suits = |address: &IpAddr| source.is_none_or(|source| source.is_ipv4() == address.is_ipv4());
    let mut addresses: Vec<IpAddr> = found.map(|found| found.ip().to_canonical()).collect();
    addresses.retain(suits);
    match (addresses.first(), source) {
        (Some(IpAddr::V6(v6)), _) if v6.is_unicast_link_local() => Err(CommandError::LinkLocal((*v6).into())),
        (Some(address), _) => Ok(*address),
        (None, source) => {
            let source_address = source.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
            let wanted = if source_address.is_ipv4() { 4 } else { 6 };
            Err(CommandError::Family { host: host.to_owned(), wanted, source_address })
        }
    }
}

fn plan(command: &CheckCommand, host: &str) -> Result<Plan, CommandError> {
    let ports = match (command.port, command.slot) {
        (Some(port), _) => vec![port],
        (None, Some(slot)) => vec![Slot(slot).port()],
        (None, None) => (0..SLOTS_ASKED).map(|slot| Slot(slot).port()).collect(),
    };
    Ok(Plan {
        peer: resolve(host, command.addr)?,
        source: command.addr,
        ports,
        paths: command.paths,
        count: command.count,
        hops_max: command.hops,
    })
}

fn look(command: &CheckCommand, host: &str) -> Result<Report, CommandError> {
    let report = ask(&plan(command, host)?)?;
    out(&match command.json {
        true => format!("{:#}\n", object(host, &report)),
        false => human(host, &report),
    });
    Ok(report)
}

fn listen(command: &CheckCommand) -> Result<(), CommandError> {
    let address = match command.addr {
        Some(address) => address,
        None => {
            let usable = address::usable().map_err(CommandError::Interfaces)?;
            usable.first().ok_or(CommandError::NoAddress)?.ip
        }
    };
    let mut listener = Listener::claim(address, command.slot.map(Slot))?;
    let (port, slot) = (listener.local().port(), listener.slot());
    debug_assert_eq!(slot_of(port), Some(slot));
    out(&match command.json {
        true => format!("{}\n", json!({ "address": address.to_string(), "port": port, "slot": slot.0 })),
        false => format!(
            "Answering on {address} port {port} (slot {slot}); elsewhere: srdma check {address}\n{}",
            if command.seconds.is_none() { "Stop with Ctrl-C.\n" } else { "" }
        ),
    });
    let end = command.seconds.map(|span| Instant::now() + span);
    loop {
        let left = end.map_or(Duration::from_secs(3600), |end| end.saturating_duration_since(Instant::now()));
        listener.serve(left).map_err(CommandError::Serve)?;
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    let (answered, limited) = (listener.answered, listener.limited);
    out(&match command.json {
        true => format!("{}\n", json!({ "answered": answered, "rate_limited": limited })),
        false => format!("{answered} probes answered, {limited} left out because they came too fast\n"),
    });
    Ok(())
}

/// Carries out `srdma check`.
pub fn check(command: &CheckCommand) -> ExitCode {
    let outcome = match &command.host {
        Some(host) => look(command, host).map(|report| report.answering().is_some()),
        None => listen(command).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(UNREACHABLE),
        Err(error) => {
            if command.json {
                out(&format!("{:#}\n", json!({ "reachable": false, "error": error.to_string() })));
            }
            complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hosts_resolve_to_the_family_of_our_own_address() {
        let v4: IpAddr = "192.0.2.1".parse().unwrap();
        for (host, source, found) in [
            ("127.0.0.1", None, Some("127.0.0.1")),
            ("::1", None, Some("::1")),
            ("[::1]", None, Some("::1")),
            ("::ffff:127.0.0.1", None, Some("127.0.0.1")),
            ("::1", Some(v4), None),
            ("fe80::1", None, None),
            ("", None, None),
        ] {
            let address = resolve(host, source).ok().map(|address| address.to_string());
            assert_eq!(address.as_deref(), found, "{host}");
        }
    }
}
