//! Any bytes: the parser never panics, and what it accepts comes back equal from `emit`.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run parse` (cargo-fuzz asks for flags that stable keeps locked).
#![no_main]

#[path = "../../crates/wire/tests/property/mod.rs"]
mod property;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    property::check(bytes);
    // The header check would stop nearly every input; with it made right, the fields behind are reached.
    let mut sealed = bytes.to_vec();
    property::reseal(&mut sealed);
    property::check(&sealed);
});
