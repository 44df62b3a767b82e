//! The side that listens: prepares, watches, compares.

use super::channel::Channel;
use super::client::{farewell, Outcome};
use super::failure::Failure;
use super::ground::Ground;
use super::kinds::Kind;
use super::message::{End, Message};
use super::nic::Nic;
use super::plan::Round;
use super::settings;
use super::side::Side;
use super::tally::Tally;
use super::VerifyCommand;
use srdma_client::{Options, Order};
use srdma_seams::Rng;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::Instant;

/// Opens the port of the side channel: on the address asked for, or on all.
pub fn listen(command: &VerifyCommand) -> Result<TcpListener, Failure> {
    let port = command.port;
    let addresses: Vec<IpAddr> = match settings::address(&command.nic, &crate::environment::inherited)? {
        Some(address) => vec![address],
        None => vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
    };
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in addresses {
        result = TcpListener::bind((address, port));
        if result.is_ok() {
            break;
        }
    }
    result.map_err(|error| {
        Failure::Setting(format!("cannot listen on port {port}: {error}; try another --port"))
    })
}

/// Serves one client.
pub fn serve(command: &VerifyCommand, options: &Options, stream: TcpStream) -> Outcome {
    let started = Instant::now();
    let mut tally = Tally::new(0, 0, &[]);
    let result = connect(command, options, stream).and_then(|mut side| {
        tally = Tally::new(side.round.seed, side.qps(), &Kind::ALL);
        let result = rounds(command, &mut side, &mut tally);
        if result.is_err() {
            farewell(&mut side, &result);
        }
        result
    });
    if let Err(failure) = &result {
        tally.ended(failure);
    }
    Outcome { tally, elapsed: started.elapsed(), failure: result.err() }
}

fn connect(command: &VerifyCommand, options: &Options, stream: TcpStream) -> Result<Side, Failure> {
    let mut channel = Channel::new(stream)?;
    let result = connect_over(command, options, &mut channel);
    match result {
        Ok((nic, key, ground, theirs)) => {
            let round =
                Round { kind: Kind::Write, number: 0, seed: theirs.seed, part_bytes: theirs.part_bytes };
            Ok(Side::new(nic, key, ground, channel, theirs, round))
        }
        Err(failure) => {
            // If it has gone, it needs no farewell.
            let _ = channel.say(&Message::Failed { text: failure.to_string(), finding: None });
            Err(failure)
        }
    }
}

fn connect_over(
    command: &VerifyCommand,
    options: &Options,
    channel: &mut Channel,
) -> Result<(Nic, u32, Ground, End), Failure> {
    let theirs = channel.expect(|message| match message {
        Message::Hello(end) => Some(end.clone()),
        _ => None,
    })?;
    let address = match settings::address(&command.nic, &crate::environment::inherited)? {
        Some(address) => address,
        None => channel.local()?,
    };
    let qps = theirs.qps.len();
    let ground = Ground::new(theirs.part_bytes * qps as u64, !theirs.seed)?;
    let mut nic = Nic::open(&settings::device_at(address)?, options, qps)?;
    let rkey = nic.register(&ground)?;
    let mut rng = Rng::stream(theirs.seed, "target psn", 0);
    let ours = End {
        address,
        qps: nic.qpns().map(|qpn| (qpn, rng.next_u32() >> 8)).collect(),
        rkey,
        base: ground.region().address(),
        relaxed: options.order == Order::Relaxed,
        ..theirs
    };
    nic.connect(&ours, &theirs)?;
    channel.say(&Message::Hello(ours))?;
    Ok((nic, rkey, ground, theirs))
}

fn rounds(command: &VerifyCommand, side: &mut Side, tally: &mut Tally) -> Result<(), Failure> {
    let mut planted = false;
    loop {
        let round = side.channel.expect(|message| match *message {
            Message::Round { kind, number } => Some(Some((kind, number))),
            Message::Bye => Some(None),
            _ => None,
        })?;
        let Some((kind, number)) = round else { return Ok(()) };
        side.begin(Round { kind, number, ..side.round });
        side.ground.planted = command.plant == Some(kind) && !std::mem::replace(&mut planted, true);
        kind.prepare(side)?;
        side.channel.say(&Message::Ready)?;
        kind.watch(side)?;
        let bytes = side.channel.expect(|message| match *message {
            Message::Done(bytes) => Some(bytes),
            _ => None,
        })?;
        kind.settle(side)?;
        side.check_region()?;
        side.channel.say(&Message::Right)?;
        tally.right(kind, bytes);
    }
}
