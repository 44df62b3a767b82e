//! The side that leads: decides the rounds, acts, and reports.

use super::channel::Channel;
use super::failure::Failure;
use super::ground::Ground;
use super::kinds::Kind;
use super::message::{End, Message, PART_BYTES_MAX, PART_BYTES_MIN};
use super::nic::Nic;
use super::plan::Round;
use super::settings;
use super::side::Side;
use super::tally::{readable, Tally};
use super::VerifyCommand;
use crate::print::{complain, shell_quoted};
use srdma_client::{Options, Order};
use srdma_seams::Rng;
use std::io::{self, IsTerminal, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Bytes of all queue pairs' parts together, unless that leaves one too little or gives it too much: all of
/// them are compared after each round.
const REGION_BYTES: u64 = 128 << 20;
/// How long the other side may take to accept a connection: the kernel alone would try for two minutes.
const REACH_MAX: Duration = Duration::from_secs(10);
/// Between two progress lines.
const PROGRESS: Duration = Duration::from_secs(1);

/// How a run went.
pub struct Outcome {
    /// What was done.
    pub tally: Tally,
    /// How long.
    pub elapsed: Duration,
    /// Why it ended early.
    pub failure: Option<Failure>,
}

/// Runs against `host`.
pub fn run(command: &VerifyCommand, host: &str, options: &Options, seed: u64) -> Outcome {
    let mut started = Instant::now();
    let mut kinds = chosen(command);
    let mut tally = Tally::new(seed, command.qps, &kinds);
    let result = connect(command, host, options, seed);
    if result.is_ok() {
        started = Instant::now();
    }
    if let Ok((_, relaxed)) = &result {
        if *relaxed && kinds.iter().any(|kind| kind.polls_memory()) {
            complain(&"the other side runs with --order relaxed: kinds that poll memory are left out");
            kinds.retain(|kind| !kind.polls_memory());
            tally = Tally::new(seed, command.qps, &kinds);
        }
    }
    let result = result.and_then(|(mut side, _)| {
        let result = rounds(command, &mut side, &kinds, &mut tally, started);
        farewell(&mut side, &result);
        result
    });
    if let Err(failure) = &result {
        tally.ended(failure);
    }
    Outcome { tally, elapsed: started.elapsed(), failure: result.err() }
}

fn chosen(command: &VerifyCommand) -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| command.only.is_empty() || command.only.contains(kind)).collect()
}

/// Connects the side channel and the queue pairs. Also tells whether the target's order is relaxed.
pub fn connect(
    command: &VerifyCommand,
    host: &str,
    options: &Options,
    seed: u64,
) -> Result<(Side, bool), Failure> {
    let port = command.port;
    let stream = reach(host, port, REACH_MAX).map_err(|error| {
        Failure::Setting(format!(
            "{host} port {port}: {error}; does `srdma verify --listen` or `srdma bench net` run there?"
        ))
    })?;
    let mut channel = Channel::new(stream)?;
    let address = match settings::address(&command.nic, &crate::environment::inherited)? {
        Some(address) => address,
        None => channel.local()?,
    };
    let part_bytes = (REGION_BYTES / command.qps as u64).clamp(PART_BYTES_MIN, PART_BYTES_MAX) & !4095;
    let ground = Ground::new(part_bytes * command.qps as u64, seed)?;
    let mut nic = Nic::open(&settings::device_at(address)?, options, command.qps)?;
    let rkey = nic.register(&ground)?;
    let mut rng = Rng::stream(seed, "client psn", 0);
    let ours = End {
        address,
        qps: nic.qpns().map(|qpn| (qpn, rng.next_u32() >> 8)).collect(),
        rkey,
        base: ground.region().address(),
        part_bytes,
        seed,
        relaxed: options.order == Order::Relaxed,
    };
    channel.say(&Message::Hello(ours.clone()))?;
    let theirs = channel.expect(|message| match message {
        Message::Hello(end) => Some(end.clone()),
        _ => None,
    })?;
    if theirs.qps.len() != ours.qps.len() || theirs.part_bytes != part_bytes {
        return Err(Failure::Protocol("the other side has another number of queue pairs or bytes".into()));
    }
    nic.connect(&ours, &theirs)?;
    let relaxed = theirs.relaxed;
    let round = Round { kind: Kind::Write, number: 0, seed, part_bytes };
    Ok((Side::new(nic, rkey, ground, channel, theirs, round), relaxed))
}

/// Connects to the first address of `host` that lets us, trying each for `patience`.
fn reach(host: &str, port: u16, patience: Duration) -> io::Result<TcpStream> {
    let mut why = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let words = format!("no answer within {patience:?} (a firewall, or no such host)");
                why = io::Error::new(io::ErrorKind::TimedOut, words);
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Runs rounds until the time is over, but each kind at least once.
fn rounds(
    command: &VerifyCommand,
    side: &mut Side,
    kinds: &[Kind],
    tally: &mut Tally,
    started: Instant,
) -> Result<(), Failure> {
    let end = started + Duration::from_secs(command.seconds);
    let progress = command.progress || std::io::stderr().is_terminal();
    let mut shown = (Instant::now(), 0);
    for number in command.round.. {
        for &kind in kinds {
            if number > command.round && Instant::now() >= end {
                // What was sent from must not have changed either.
                return side.check_region();
            }
            side.ground.planted = command.plant == Some(kind) && number == command.round;
            let bytes = round(side, Round { kind, number, ..side.round })?;
            tally.right(kind, bytes);
            if progress && shown.0.elapsed() >= PROGRESS {
                show(tally, kind, started.elapsed(), shown);
                shown = (Instant::now(), tally.bytes());
            }
        }
    }
    Ok(())
}

fn show(tally: &Tally, kind: Kind, elapsed: Duration, before: (Instant, u64)) {
    let speed = (tally.bytes() - before.1) as f64 / before.0.elapsed().as_secs_f64();
    // Nobody need read it.
    let _ = writeln!(
        std::io::stderr(),
        "{:>5.0} s  {:>7} rounds  {:>9} right  {:>9}/s  {}",
        elapsed.as_secs_f64(),
        tally.rounds(),
        readable(tally.bytes()),
        readable(speed as u64),
        kind.name()
    );
}

/// One round; returns the bytes moved.
fn round(side: &mut Side, round: Round) -> Result<u64, Failure> {
    side.begin(round);
    side.channel.say(&Message::Round { kind: round.kind, number: round.number })?;
    side.channel.expect(|message| matches!(message, Message::Ready).then_some(()))?;
    let bytes = round.kind.act(side)?;
    side.channel.say(&Message::Done(bytes))?;
    side.channel.expect(|message| matches!(message, Message::Right).then_some(()))?;
    Ok(bytes)
}

/// Tells the other side how it ended.
pub fn farewell<T>(side: &mut Side, result: &Result<T, Failure>) {
    let message = match result {
        Ok(_) => Message::Bye,
        // It knows.
        Err(Failure::BrokenThere(_) | Failure::There(_)) => return,
        Err(failure) => Message::Failed {
            text: failure.to_string(),
            finding: failure.finding().map(|finding| Box::new(finding.clone())),
        },
    };
    // If it has gone, it needs no farewell.
    let _ = side.channel.say(&message);
}

/// The command that repeats what failed, if it was a round.
pub fn replay(command: &VerifyCommand, host: &str, failure: &Failure) -> Option<String> {
    let finding = failure.finding()?;
    let mut line = format!(
        "srdma verify {} --port {} --seed {} --qps {} --only {} --round {} --seconds 10",
        shell_quoted(host),
        command.port,
        finding.seed,
        command.qps,
        finding.kind.name(),
        finding.round
    );
    for (name, value) in command.nic.variables().unwrap_or_default() {
        let option = match name {
            "SRDMA_PATHS" => format!(" --paths {value}"),
            "SRDMA_SELECTOR" => format!(" --selector {value}"),
            "SRDMA_ORDER" => format!(" --order {value}"),
            "SRDMA_ADDR" => format!(" --addr {value}"),
            "SRDMA_NO_GSO" => " --no-gso".into(),
            "SRDMA_SOCKET_BUFFER" => format!(" --socket-buffer {value}"),
            "SRDMA_LOSS" => format!(" --loss {value}"),
            _ => String::new(),
        };
        line.push_str(&option);
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    /// One that accepts nobody swallows what comes, as a firewall does.
    #[test]
    fn who_does_not_answer_is_given_up_in_words_and_who_refuses_at_once() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        // SAFETY: no pointers; the descriptor is the listener's. Room for one that waits to be accepted.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let port = listener.local_addr().unwrap().port();
        let mut waiting = Vec::new();
        let error = loop {
            match reach("127.0.0.1", port, Duration::from_millis(100)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 10, "somebody accepts");
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("no answer within 100ms"), "{error}");
        drop((waiting, listener));
        let error = reach("127.0.0.1", port, REACH_MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
