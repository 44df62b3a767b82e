//! Bugs planted on purpose: each is noticed, so the tests would notice a real one of its kind.

use srdma_transport::config::Planted;
use srdma_transport::Config;

use crate::behaviour::*;
use crate::seeds::{run_seed, Coverage};

type Check = fn(&Config) -> Result<(), String>;

/// Seeds of the random test within which a planted bug must show.
const SEEDS: u64 = 100;

fn by_check(planted: Planted, check: Check) -> Result<(), String> {
    check(&Config { planted: Some(planted), ..Config::default() })
}

fn by_seed(planted: Planted) -> Result<(), String> {
    (0..SEEDS).try_for_each(|seed| run_seed(seed, Some(planted), &mut Coverage::default()))
}

#[test]
fn planted_bugs_are_noticed_by_the_named_behaviours() {
    let table: [(Planted, Check); 7] = [
        (Planted::EcnToAckPath, marks_count_for_the_path_that_carried_the_data),
        (Planted::KeepBackoff, backoff_is_reset_by_progress),
        (Planted::RefuseHead, the_head_is_taken_when_much_is_ahead),
        (Planted::RefuseHead, a_packet_is_late_by_100_000),
        (Planted::NoUndo, a_spurious_loss_is_undone),
        (Planted::LeakRefused, refused_units_are_offered_again),
        (Planted::NarrowMsn, numbers_wrap),
    ];
    for (planted, check) in table {
        let noticed = by_check(planted, check);
        println!("{planted:?}: {noticed:?}");
        assert!(noticed.is_err(), "{planted:?} was not noticed");
    }
}

#[test]
fn planted_bugs_are_noticed_by_the_random_networks() {
    for planted in [Planted::IgnoreBlock, Planted::DuplicateIsNew, Planted::RefuseHead, Planted::NarrowMsn] {
        let noticed = by_seed(planted);
        println!("{planted:?}: {noticed:?}");
        assert!(noticed.is_err(), "{planted:?} was not noticed");
    }
}
