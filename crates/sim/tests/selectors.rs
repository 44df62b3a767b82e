//! What the default selector promises where blind spraying is weak, and that it costs nothing where all is well. Every
//! comparison is between runs that differ in one setting; `docs/simulation.md` has the same at full size.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use srdma_sim::{run, RunReport, Sink, Status};

/// A ring AllReduce. Of four hosts at a leaf three send to the other leaf, so three quarters of the uplinks are needed.
const RING: &str = r#"
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 4
spines = 8
host_gbps = 100
spine_gbps = 50
[workload]
kind = "allreduce-ring"
kib = 16384
stride = 5
slices = 4
"#;
const SEEDS: [u64; 2] = [1, 2];

struct Nowhere;

impl Sink for Nowhere {
    fn record(&mut self, _record: &Value) -> Result<(), std::io::Error> {
        Ok(())
    }

    fn progress(&mut self, _status: &Status) {}
}

fn report(text: &str, fault: &str, selector: &str) -> RunReport {
    let text = format!("{text}\n{fault}\n[[variant]]\nname = \"{selector}\"\nselector = \"{selector}\"\n");
    let scenario = srdma_sim::parse("selectors.toml", &text, None, None).unwrap();
    let report = run(&scenario, &scenario.variants[0], &mut Nowhere).unwrap().0;
    assert!(report.finished, "{selector}, {fault}: {report:?}");
    report
}

fn fault(on: &str, what: &str) -> String {
    format!("[[fault]]\non = \"{on}\"\n{what}\n")
}

fn ring(seed: u64, fault: &str, selector: &str) -> RunReport {
    report(&format!("seed = {seed}\n{RING}"), fault, selector)
}

/// Time without a fault as a share of the time with it.
fn kept(seed: u64, fault: &str) -> f64 {
    let (clean, broken) = (ring(seed, "", "adaptive"), ring(seed, fault, "adaptive"));
    assert_eq!(broken.timeouts, 0, "seed {seed}, {fault}: nobody waits for a time-out");
    clean.took_us / broken.took_us
}

#[test]
fn a_black_uplink_costs_little_from_the_first_message_on_and_in_mid_run() {
    for seed in SEEDS {
        for at_us in [0, 500] {
            let black = fault("leaf0-spine2", &format!("what = \"loss\"\npercent = 100\nat_us = {at_us}"));
            let kept = kept(seed, &black);
            assert!(kept >= 0.97, "seed {seed}, from {at_us} us on: {kept:.3}");
        }
    }
}

#[test]
fn a_slow_uplink_is_avoided_as_far_as_it_is_slow() {
    for seed in SEEDS {
        let slow = fault("leaf0-spine2", "what = \"rate\"\ngbps = 25");
        // The other uplinks can carry the rest.
        let kept = kept(seed, &slow);
        assert!(kept >= 0.95, "seed {seed}: {kept:.3}");
        let blind = ring(seed, "", "oblivious").took_us / ring(seed, &slow, "oblivious").took_us;
        assert!(blind < 0.75, "seed {seed}: it would matter: {blind:.3}");
    }
}

#[test]
fn losses_cost_about_what_is_lost() {
    let everywhere = ["leaf0", "leaf1"].map(|leaf| fault(leaf, "what = \"loss\"\npercent = 0.1")).concat();
    for (fault, wanted) in [
        (fault("leaf0-spine2", "what = \"loss\"\npercent = 1"), 0.99),
        (fault("spine2", "what = \"loss\"\npercent = 3"), 0.97),
        (everywhere, 0.98),
    ] {
        for seed in SEEDS {
            let kept = kept(seed, &fault);
            assert!(kept >= wanted, "seed {seed}, {fault}: {kept:.4}");
        }
    }
}

/// Every uplink is needed in full: neighbours sit at different leaves.
#[test]
fn links_are_loaded_evenly_where_all_are_needed() {
    for seed in SEEDS {
        let full = RING.replace("leaves = 2", "leaves = 4").replace("kib = 16384", "kib = 8192");
        let report = |selector| report(&format!("seed = {seed}\n{full}"), "", selector);
        let (adaptive, blind) = (report("adaptive"), report("oblivious"));
        let (even, uneven) = (adaptive.imbalance(), blind.imbalance());
        assert!(even < uneven / 2.0, "seed {seed}: {even:.3} and {uneven:.3}");
        assert!(
            adaptive.took_us < blind.took_us,
            "seed {seed}: {} and {} us",
            adaptive.took_us,
            blind.took_us
        );
    }
}

#[test]
fn where_all_is_well_it_costs_nothing() {
    let permutation = RING.replace("allreduce-ring", "permutation").replace("stride = 5\nslices = 4\n", "");
    for seed in SEEDS {
        for workload in [RING, &permutation.replace("kib = 16384", "kib = 8192")] {
            let took = |selector| report(&format!("seed = {seed}\n{workload}"), "", selector).took_us;
            let (adaptive, blind) = (took("adaptive"), took("oblivious"));
            assert!(adaptive <= 1.01 * blind, "seed {seed}: {adaptive} and {blind} us");
        }
    }
}
