//! The handshake under HELLOs that anybody may have sent: no panic, no more bytes out than in, and nothing that a
//! stranger says is believed. `SRDMA_FUZZ_SEED` and `SRDMA_FUZZ_RUNS` change the seed and the number of HELLOs.

use core::net::SocketAddr;

use srdma_seams::{ConnectionId, Duration, Now, Qpn, Rng};
use srdma_transport::{Config, Connection, HelloOutcome, Trunk};
use srdma_wire::{Hello, VERSION};

use crate::sim::identity;

const HERE: u32 = 17;
const THERE: u32 = 18;
const DATAGRAM_BYTES_MAX: u16 = 1472;
/// Every HELLO has as many.
const HELLO_BYTES: u64 = 96;
/// Larger sizes tried towards a peer that has proven to be there.
const SETTLE_TRIES: u64 = 3;

fn bytes(hello: &Hello) -> u64 {
    u64::from(hello.probe_bytes).max(HELLO_BYTES)
}

/// A HELLO as a stranger, who may know the peer's address and both numbers, would make it.
fn any_hello(rng: &mut Rng, ours: ConnectionId) -> Hello {
    let knows = rng.below(50) == 0;
    Hello {
        dest_qpn: Qpn(HERE),
        src_qpn: Qpn(if rng.below(8) == 0 { rng.next_u32() & 0xff_ffff } else { THERE }),
        version: if rng.below(8) == 0 { rng.next_u32() as u8 } else { VERSION },
        connection: match rng.below(4) {
            0 => ours,
            n => ConnectionId(n),
        },
        echo: match (knows, rng.below(3)) {
            (true, _) => ours,
            (_, 0) => ConnectionId(rng.next_u64() | 1),
            _ => ConnectionId(0),
        },
        reply_wanted: rng.below(2) == 0,
        measuring: rng.below(8) == 0,
        claimed_address: [0; 16],
        observed_address: [rng.next_u32() as u8; 16],
        observed_port: rng.next_u32() as u16,
        probe_bytes: [0, 96, 511, 512, 1252, 1472, 9000, u16::MAX][rng.below(8) as usize],
        proven_bytes: [0, 511, 512, 1252, 1472, u16::MAX][rng.below(6) as usize],
        paths: 1 + rng.below(256) as u16,
        window_packets: 1 + rng.below(1 << 17) as u32,
        free_bytes: rng.next_u32(),
        features: rng.next_u32(),
        first_psn: rng.next_u32(),
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// One connection and what it says to a burst of HELLOs; whether it was confirmed.
fn one(rng: &mut Rng, hellos: u64) -> bool {
    let local = identity(HERE, THERE, DATAGRAM_BYTES_MAX);
    let ours = local.connection;
    let mut now = Now(1_000_000);
    let mut conn = Connection::new(Config::default(), local, Rng::new(1), now).unwrap();
    let mut trunk = Trunk::new(&Config::default());
    conn.start(now);
    let first = conn.poll_hello(now, 1 << 20, &mut ()).expect("an opening");
    assert_eq!((first.echo, conn.poll_hello(now, 1 << 20, &mut ())), (ConnectionId(0), None));
    let from: SocketAddr = "10.0.0.2:4791".parse().unwrap();
    let (mut heard, mut said, mut confirmed) = (0, 0, false);
    for _ in 0..hellos {
        now += Duration::from_micros(rng.below(50_000));
        let hello = any_hello(rng, ours);
        let outcome = conn.on_hello(now, &hello, from, &mut trunk, &mut ());
        confirmed |= hello.echo == ours && matches!(outcome, HelloOutcome::Known | HelloOutcome::Connected);
        assert!(confirmed || outcome != HelloOutcome::Connected, "connected to a stranger: {hello:?}");
        if hello.connection == ours {
            assert!(!matches!(outcome, HelloOutcome::Known | HelloOutcome::Connected), "its own echo");
        }
        let mut burst = 0;
        while let Some(answer) = conn.poll_hello(now, 1 << 20, &mut ()) {
            burst += 1;
            said += bytes(&answer);
            assert!(burst <= 2, "a HELLO makes another, and another");
            let tried = u64::from(confirmed) * SETTLE_TRIES * u64::from(DATAGRAM_BYTES_MAX);
            assert!(said <= heard + bytes(&hello) + tried, "{said} bytes for {heard}");
            assert!(answer.probe_bytes <= DATAGRAM_BYTES_MAX);
        }
        heard += bytes(&hello);
        assert!(confirmed || !conn.is_connected());
        assert!(conn.next_timeout().is_none_or(|at| at > now) || confirmed, "wakes for a stranger");
    }
    confirmed
}

#[test]
fn no_hello_is_answered_with_more_bytes_and_no_stranger_is_believed() {
    let (seed, runs) = (setting("SRDMA_FUZZ_SEED", 1), setting("SRDMA_FUZZ_RUNS", 100_000));
    println!("SRDMA_FUZZ_SEED={seed} SRDMA_FUZZ_RUNS={runs}");
    let per_connection = 25;
    let mut confirmed = 0;
    let connections = runs / per_connection;
    for connection in 0..connections {
        let mut rng = Rng::stream(seed, "hellos", connection);
        confirmed += u64::from(one(&mut rng, per_connection));
    }
    assert!(
        confirmed > connections / 20 && confirmed < connections * 19 / 20,
        "{confirmed} of {connections}"
    );
}
