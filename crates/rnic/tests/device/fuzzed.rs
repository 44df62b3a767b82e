//! A whole connection fed mutants of its own packets. `SRDMA_FUZZ_SEED` and `SRDMA_FUZZ_RUNS` change the seed and the
//! number of mutants; `fuzz/` has the same with a fuzzer that looks for new paths.

use srdma_seams::event::DropCause;
use srdma_seams::Rng;

use crate::mutants::{Arena, Attacker, Choices};

/// Mutants between two rounds of honest work.
const PER_ROUND: u64 = 20;
/// Mutants of one pair of devices.
const PER_ARENA: u64 = 5_000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Runs mutants; what was dropped by cause, how many were packets, and restarts.
fn run(attacker: Attacker, runs: u64) -> ([u64; 16], u64, u64) {
    let seed = setting("SRDMA_FUZZ_SEED", 1);
    println!("SRDMA_FUZZ_SEED={seed} SRDMA_FUZZ_RUNS={runs} {attacker:?}");
    let (mut drops, mut delivered, mut restarts) = ([0; 16], 0, 0);
    for round in 0..runs.div_ceil(PER_ARENA) {
        let mut arena = Arena::new(seed + round, attacker);
        let mut choices = Choices::Seeded(Rng::stream(seed, "mutants", round));
        for mutant in 0..PER_ARENA.min(runs - round * PER_ARENA) {
            arena.attack(&mut choices);
            if mutant % PER_ROUND == 0 {
                arena.work();
            }
        }
        arena.work();
        drops.iter_mut().zip(arena.drops).for_each(|(sum, more)| *sum += more);
        delivered += arena.delivered;
        restarts += arena.restarts;
        arena.finish();
    }
    (drops, delivered, restarts)
}

#[test]
fn a_connection_whose_packets_are_changed_on_their_way_harms_nobody_else() {
    let runs = setting("SRDMA_FUZZ_RUNS", 40_000);
    let (drops, delivered, restarts) = run(Attacker::OnPath, runs);
    assert!(delivered > runs / 5 && restarts > runs / 1000, "{delivered} {restarts} {drops:?}: too tame");
    let wanted = [
        DropCause::UnknownQp,
        DropCause::ForeignConnection,
        DropCause::Duplicate,
        DropCause::BeyondWindow,
        DropCause::BogusAck,
        DropCause::Inconsistent,
    ];
    for cause in wanted {
        assert!(drops[cause as usize] > 0, "{cause:?} was never counted: {drops:?}");
    }
}

#[test]
fn a_connection_does_not_notice_who_does_not_know_its_ids() {
    let runs = setting("SRDMA_FUZZ_RUNS", 40_000);
    let (drops, delivered, _) = run(Attacker::OffPath, runs);
    assert!(delivered > runs / 5, "{delivered}: too tame");
    // Every one of them is counted.
    let foreign = drops[DropCause::ForeignConnection as usize] + drops[DropCause::UnknownQp as usize];
    assert!(foreign > delivered * 9 / 10, "{foreign} of {delivered} counted: {drops:?}");
}
