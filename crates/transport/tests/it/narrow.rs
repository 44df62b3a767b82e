//! The path becomes narrower while a connection uses it: large packets vanish, small ones pass.

use srdma_seams::Duration;
use srdma_transport::{Config, Failure};
use srdma_wire::Space;

use crate::behaviour::MS;
use crate::link::{Link, Span};
use crate::sim::Sim;

/// A flow of messages from end 0, and answers from end 1, over a path that passes 9000 bytes.
fn flowing(seed: u64, config: &Config) -> Sim {
    let mut sim = Sim::new(seed, config, 8972, Link::new(seed, vec![300_000; 16]));
    sim.response_ppm = 300_000;
    sim.start_both();
    for length in [300_000, 0, 8_900, 20_000, 1_000_000] {
        sim.submit(0, Space::Request, length);
        sim.submit(1, Space::Request, length);
    }
    sim.run_until(sim.now + 800_000).unwrap();
    assert!(!sim.is_done(), "packets are in flight");
    sim
}

fn paths16() -> Config {
    Config { paths: 16, ..Config::default() }
}

/// Both directions, or one: it is found and named, and the connection goes on with smaller packets.
/// Packets in flight, which keep their numbers, go on in parts.
#[test]
fn a_narrowed_path_is_found_and_the_connection_goes_on_with_smaller_packets() {
    for seed in 0..20 {
        for (mtu, found) in [(1472, 1472), (1400, 1252), (600, 512)] {
            for side in 0..3 {
                let mut sim = flowing(seed, &paths16());
                let from = sim.now;
                sim.link.narrow = (Span(from, u64::MAX), mtu, side);
                sim.link.loss_ppm = if seed % 2 == 0 { 0 } else { 30_000 };
                sim.submit(0, Space::Request, 500_000);
                sim.run_until_done(from + 5_000 * MS).unwrap();
                let failed = sim.ends.each_ref().map(|end| end.failed);
                assert!(sim.is_done(), "seed {seed}, {mtu}, side {side}: {failed:?}");
                for end in 0..2 {
                    let hit = side == 2 || side == end;
                    let wanted = if hit { vec![found] } else { vec![] };
                    assert_eq!(sim.ends[end].counts.narrowed, wanted, "seed {seed}, {mtu}, {side}");
                }
                // What is sent from now on is cut to size: nothing is lost.
                let lost: u64 = sim.ends.iter().map(|end| end.counts.lost.iter().sum::<u64>()).sum();
                sim.link.loss_ppm = 0;
                sim.submit(0, Space::Request, 1_000_000);
                sim.run_until_done(sim.now + 5_000 * MS).unwrap();
                let now_lost: u64 = sim.ends.iter().map(|end| end.counts.lost.iter().sum::<u64>()).sum();
                assert!(sim.is_done() && now_lost == lost, "seed {seed}, {mtu}, {side}: {now_lost} {lost}");
            }
        }
    }
}

/// Twice narrower: what is in flight in parts cannot be cut again, unless it is through by then.
#[test]
fn a_path_that_narrows_twice_is_followed_or_named() {
    let mut sim = flowing(1, &paths16());
    sim.link.narrow = (Span(sim.now, u64::MAX), 1472, 2);
    sim.run_until_done(sim.now + 5_000 * MS).unwrap();
    assert!(sim.is_done());
    sim.link.narrow.1 = 1252;
    sim.submit(0, Space::Request, 1_000_000);
    sim.run_until_done(sim.now + 5_000 * MS).unwrap();
    assert!(sim.is_done());
    assert_eq!(sim.ends[0].counts.narrowed, [1472, 1252]);

    let mut sim = flowing(2, &Config { window_max_bytes: 1 << 20, ..paths16() });
    sim.submit(0, Space::Request, 100_000_000);
    sim.run_until(sim.now + MS).unwrap();
    sim.link.narrow = (Span(sim.now, u64::MAX), 1472, 2);
    while sim.ends[0].counts.narrowed.is_empty() {
        sim.run_until(sim.now + MS).unwrap();
    }
    sim.run_until(sim.now + 5 * MS).unwrap();
    sim.link.narrow.1 = 1252;
    sim.run_until_done(sim.now + 5_000 * MS).unwrap();
    let failed = sim.ends.iter().find_map(|end| end.failed).map(|(failure, _)| failure);
    assert_eq!(failed, Some(Failure::PathMtu));
}

/// Below the smallest packets that are worth it there is nothing to go on with.
#[test]
fn a_path_too_narrow_for_any_packet_is_named() {
    let mut sim = flowing(3, &paths16());
    let from = sim.now;
    sim.link.narrow = (Span(sim.now, u64::MAX), 400, 2);
    sim.run_until_done(from + 5_000 * MS).unwrap();
    for end in &sim.ends {
        if let Some((failure, at)) = end.failed {
            assert_eq!(failure, Failure::PathMtu);
            assert!((536 * MS..2_200 * MS).contains(&(at - from)), "{at}");
        }
    }
    assert!(sim.ends.iter().any(|end| end.failed.is_some()));
}

/// Whatever else goes wrong is no narrow path: silence, heavy loss, dead paths, data that vanishes
/// whatever its size, a narrow path among wide ones.
#[test]
fn other_troubles_are_not_taken_for_a_narrow_path() {
    for seed in 0..10 {
        for trouble in ["outage", "loss", "black", "mute", "deaf"] {
            let config = Config { ack_timeout: Duration::from_secs(1), ..paths16() };
            let mut sim = flowing(seed, &config);
            let span = Span(sim.now, sim.now + 1_500 * MS);
            match trouble {
                "outage" => sim.link.outage = span,
                "loss" => (sim.link.loss_ppm, sim.link.hello_loss_ppm) = (400_000, 400_000),
                "black" => (sim.link.black, sim.link.black_span) = ((0..12).collect(), span),
                "mute" => sim.link.data_outage = span,
                _ => sim.link.ack_loss_ppm = 900_000,
            }
            sim.run_until(span.1).unwrap();
            (sim.link.loss_ppm, sim.link.hello_loss_ppm, sim.link.ack_loss_ppm) = (0, 0, 0);
            sim.run_until_done(sim.now + 20_000 * MS).unwrap();
            assert!(sim.is_done(), "seed {seed}, {trouble}");
            let narrowed = sim.ends.each_ref().map(|end| end.counts.narrowed.clone());
            assert_eq!(narrowed, [vec![], vec![]], "seed {seed}, {trouble}");
        }
    }
}
