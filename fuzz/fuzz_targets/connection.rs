//! A whole connection that is fed its own packets, changed as the fuzzer likes. The first byte says whether the
//! attacker is on the path; what must hold is said in `mutants`.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run connection`
#![no_main]

#[path = "../../crates/rnic/tests/device/host.rs"]
#[allow(dead_code)]
mod host;
#[path = "../../crates/rnic/tests/device/mutants.rs"]
mod mutants;
#[path = "../../crates/rnic/tests/device/net.rs"]
#[allow(dead_code)]
mod net;
#[path = "../../crates/wire/tests/property/mod.rs"]
mod property;

use libfuzzer_sys::fuzz_target;
use mutants::{Arena, Attacker, Choices};

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let attacker = if first % 2 == 0 { Attacker::OnPath } else { Attacker::OffPath };
    let mut arena = Arena::new(u64::from(*first), attacker);
    let mut choices = Choices::Bytes(rest);
    let mut mutants = 0;
    while !choices.are_spent() {
        arena.attack(&mut choices);
        mutants += 1;
        if mutants % 8 == 0 {
            arena.work();
        }
    }
    arena.finish();
});
