//! Waiting for what the peer owes: how long, and what counts as a sign that it still comes.

use srdma_seams::Duration;
use srdma_transport::{Config, Failure};
use srdma_wire::Space;

use crate::behaviour::MS;
use crate::link::{Link, Span};
use crate::sim::Sim;

/// End 0 has had a request acknowledged and waits for the answer from end 1.
fn owed(seed: u64, config: &Config) -> Sim {
    let mut sim = Sim::new(seed, config, 1472, Link::new(seed, vec![100_000; 128]));
    sim.start_both();
    sim.submit(0, Space::Request, 0);
    sim.run_until_done(100 * MS).unwrap();
    assert!(sim.is_done());
    sim.expect_answer(0);
    sim
}

/// The peer dies, or it lives and asks and acknowledges as ever but its answers vanish, or it forgets
/// to answer: each ends within the documented time, at both ends if both wait.
#[test]
fn answers_that_do_not_come_are_given_up_in_the_documented_time() {
    for (seed, timeout, retries) in [(1, 14, 7), (2, 14, 0), (3, 16, 3)] {
        let ack_timeout = Duration(4_096 << timeout);
        let config = Config { ack_timeout, retry_count: retries, ..Config::default() };
        for what in ["dead", "mute", "forgetful"] {
            let mut sim = owed(seed, &config);
            let from = sim.now;
            match what {
                "dead" => sim.link.outage = Span(sim.now, u64::MAX),
                "mute" => sim.link.data_outage = Span(sim.now, u64::MAX),
                _ => {}
            }
            if what != "forgetful" {
                sim.submit(1, Space::Response, 50_000);
            }
            sim.run_until(from + 60_000 * MS).unwrap();
            let formula = ack_timeout.0 * (u64::from(retries) + 1);
            for side in if what == "forgetful" { 0..1 } else { 0..2 } {
                let (failure, at) = sim.ends[side].failed.expect(what);
                assert_eq!(failure, Failure::NoAnswer, "{what}");
                let took = at - from;
                assert!(
                    (formula..=formula * 4).contains(&took),
                    "seed {seed}, {what}, end {side}: {took} of {formula}"
                );
            }
            if what == "mute" {
                assert!(sim.ends[0].counts.hellos > 2, "it asks");
            }
        }
    }
}

/// A packet now and then is progress, and so is a peer that comes back after a second.
#[test]
fn answers_that_come_slowly_are_waited_for() {
    let config = Config::default();
    let mut sim = owed(4, &config);
    for _ in 0..20 {
        sim.submit(1, Space::Response, 100);
        sim.run_until(sim.now + 1_300 * MS).unwrap();
    }
    assert!(sim.ends.iter().all(|end| end.failed.is_none()));

    for kind in 0..2 {
        let mut sim = owed(5, &config);
        sim.submit(1, Space::Response, 5_000_000);
        sim.run_until(sim.now + MS).unwrap();
        let pause = Span(sim.now, sim.now + 1_000 * MS);
        match kind {
            0 => sim.link.outage = pause,
            _ => sim.link.data_outage = pause,
        }
        sim.run_until_done(sim.now + 10_000 * MS).unwrap();
        assert!(sim.is_done(), "{:?}", sim.ends[0].failed);
    }
}

/// Without a time-out the wait has no end, and the peer is asked all the time.
#[test]
fn an_ack_timeout_of_zero_waits_for_answers_for_ever() {
    let config = Config { ack_timeout: Duration::ZERO, ..Config::default() };
    let mut sim = owed(6, &config);
    sim.run_until(sim.now + 100_000 * MS).unwrap();
    assert_eq!(sim.ends[0].failed, None);
    assert!(sim.ends[0].counts.hellos > 50);
}
