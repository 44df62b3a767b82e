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

/// Twice narrower, also while what was in flight the first time is still being sent again in parts.
#[test]
fn a_path_that_narrows_twice_is_followed() {
    let mut sim = flowing(1, &paths16());
    sim.link.narrow = (Span(sim.now, u64::MAX), 1472, 2);
    sim.run_until_done(sim.now + 5_000 * MS).unwrap();
    assert!(sim.is_done());
    sim.link.narrow.1 = 1252;
    sim.submit(0, Space::Request, 1_000_000);
    sim.run_until_done(sim.now + 5_000 * MS).unwrap();
    assert!(sim.is_done());
    assert_eq!(sim.ends[0].counts.narrowed, [1472, 1252]);

    for seed in 0..20 {
        for again in [1252, 512] {
            let mut sim = flowing(seed, &Config { window_max_bytes: 1 << 20, ..paths16() });
            sim.link.loss_ppm = if seed % 2 == 0 { 0 } else { 10_000 };
            sim.submit(0, Space::Request, 8_000_000);
            sim.run_until(sim.now + MS / 4).unwrap();
            sim.link.narrow = (Span(sim.now, u64::MAX), 1472, 2);
            while sim.ends[0].counts.narrowed.is_empty() {
                sim.run_until(sim.now + MS).unwrap();
            }
            sim.run_until(sim.now + seed * MS / 4).unwrap();
            sim.link.narrow.1 = again;
            sim.run_until_done(sim.now + 60_000 * MS).unwrap();
            let failed = sim.ends.each_ref().map(|end| end.failed);
            assert!(sim.is_done(), "seed {seed}, {again}: {failed:?}");
            // What was begun went on in parts, which are as small as can be; what follows shows what is left.
            sim.submit(0, Space::Request, 1_000_000);
            sim.run_until_done(sim.now + 5_000 * MS).unwrap();
            assert!(sim.is_done(), "seed {seed}, {again}");
            assert_eq!(sim.ends[0].counts.narrowed, [1472, again], "seed {seed}");
        }
    }
}

/// Packets of end 0 are as large as they are said to be: a message of so many bytes takes so many packets.
fn packets_for(sim: &mut Sim, length: u32) -> u64 {
    let before = sim.ends[0].counts.packets;
    let again = sim.ends[0].counts.packets_again();
    sim.submit(0, Space::Request, length);
    sim.run_until_done(sim.now + 5_000 * MS).unwrap();
    assert!(sim.is_done());
    sim.ends[0].counts.packets - before - (sim.ends[0].counts.packets_again() - again)
}

const SECOND: u64 = 1_000 * MS;

/// Whether it was narrow when it connected or became so: ten minutes later, with the next traffic, larger packets are
/// tried again, and used if they get through. Neither direction waits for the other.
#[test]
fn a_path_that_widens_is_used_in_full_again() {
    for seed in 0..20 {
        for from_start in [false, true] {
            let mut sim = match from_start {
                false => flowing(seed, &paths16()),
                true => Sim::new(seed, &paths16(), 8972, Link::new(seed, vec![300_000; 16])),
            };
            sim.response_ppm = 0;
            sim.link.narrow = (Span(sim.now, u64::MAX), 1472, 2);
            if from_start {
                sim.start_both();
            }
            sim.submit(0, Space::Request, 500_000);
            sim.run_until_done(sim.now + 5 * SECOND).unwrap();
            assert!(sim.is_done(), "seed {seed}");
            let found_at = sim.now;
            assert_eq!(packets_for(&mut sim, 140_000), 100, "seed {seed}");
            sim.link.narrow.1 = u16::MAX;
            sim.link.loss_ppm = if seed % 2 == 0 { 0 } else { 10_000 };
            sim.run_until(found_at + 590 * SECOND).unwrap();
            assert_eq!(packets_for(&mut sim, 140_000), 100, "seed {seed}: too soon");
            sim.run_until(found_at + 610 * SECOND).unwrap();
            let hellos = sim.ends[0].counts.hellos;
            packets_for(&mut sim, 8);
            sim.run_until(sim.now + SECOND).unwrap();
            assert!((8..=11).contains(&(sim.ends[0].counts.hellos - hellos)), "seed {seed}");
            assert_eq!(sim.ends[0].counts.widened, [8972], "seed {seed}");
            assert_eq!(sim.ends[1].counts.widened, [0; 0], "it has sent nothing since");
            assert_eq!(packets_for(&mut sim, 889_600), 100, "seed {seed}");
            let armed = sim.ends.each_ref().map(|end| end.conn.next_timeout());
            assert_eq!(armed, [None, None], "who rests wakes nobody");
        }
    }
}

/// Probes that are lost are no sign of congestion, and no packet is lost for trying.
#[test]
fn a_path_that_stays_narrow_is_tried_without_harm() {
    let mut sim = flowing(5, &paths16());
    sim.response_ppm = 0;
    sim.link.narrow = (Span(sim.now, u64::MAX), 1252, 2);
    sim.run_until_done(sim.now + 5 * SECOND).unwrap();
    sim.run_until(sim.now + 1_000 * SECOND).unwrap();
    let before = sim.ends[0].counts.hellos;
    packets_for(&mut sim, 1_000_000);
    let window = sim.ends[0].snapshot().window_bytes;
    let lost = sim.ends[0].counts.lost;
    for _ in 0..20 {
        packets_for(&mut sim, 1_000);
        sim.run_until(sim.now + 20 * MS).unwrap();
    }
    let end = &sim.ends[0];
    assert_eq!(end.counts.hellos - before, 6, "three of the full size, three of 1472 bytes");
    assert_eq!((end.counts.narrowed.clone(), end.counts.widened.clone()), (vec![1252], vec![]));
    assert_eq!(end.counts.lost, lost);
    assert!(end.snapshot().window_bytes >= window);
    assert_eq!(sim.ends[0].conn.next_timeout(), None);
    // And narrower still once it is wide again: what was learned then is no hindrance.
    sim.link.narrow.1 = 1472;
    sim.run_until(sim.now + 601 * SECOND).unwrap();
    packets_for(&mut sim, 8);
    sim.run_until(sim.now + SECOND).unwrap();
    assert_eq!(sim.ends[0].counts.widened, [1472]);
    sim.link.narrow.1 = 1252;
    packets_for(&mut sim, 1_000_000);
    assert_eq!(sim.ends[0].counts.narrowed, [1252, 1252]);
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
