//! Hostile input at length: mutated packets, handshakes and whole connections, and the fuzz targets that go on where
//! these stop; and the rooms with `unsafe` under AddressSanitizer.
//!
//! What counts as an execution is one mutant judged: a datagram parsed, a HELLO answered or not, a packet flown into a
//! live connection. The mutator is our own, seeded and in the process, so that a run needs nothing but
//! cargo and can be replayed; `fuzz/` has the same properties under libFuzzer, which looks for new paths.

use std::time::Duration;

use anyhow::Result;

use super::{checks, target_directory, workspace, Setting, Step};
use crate::process::Program;

/// Name, package, test, filter, and executions in the gate and in soak (together 10⁷ there).
const RUNS: [(&str, &str, &str, &str, u64, u64); 4] = [
    ("parse", "srdma-wire", "fuzz_smoke", "mutated_packets", 300_000, 5_000_000),
    ("handshake", "srdma-transport", "it", "handshakes", 100_000, 3_000_000),
    ("connection-on-path", "srdma-rnic", "device", "fuzzed::a_connection_whose_packets", 40_000, 1_000_000),
    ("connection-off-path", "srdma-rnic", "device", "fuzzed::a_connection_does_not", 40_000, 1_000_000),
];

/// All of them.
pub fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = RUNS
        .into_iter()
        .map(|(name, package, test, filter, gate, soak)| {
            Step::new(format!("fuzz/{name}"), move |setting: &Setting<'_>| {
                let runs = if setting.soak { soak } else { gate };
                mutate(package, test, filter, runs)
            })
        })
        .collect();
    steps.push(Step::new("fuzz/targets-build", |_| targets_build()));
    steps.push(Step::new("memory/address-sanitizer", |_| address_sanitizer()));
    steps
}

/// Seeds differ from run to run only in soak: the gate must not fail for what nobody changed.
fn mutate(package: &str, test: &str, filter: &str, runs: u64) -> Result<String> {
    let out = Program::new("cargo")
        .args(["test", "--quiet", "-p", package, "--test", test, "--", filter])
        .env("CARGO_TERM_COLOR", "never")
        .env("SRDMA_FUZZ_RUNS", runs.to_string())
        .in_directory(&workspace())
        .limit(Duration::from_secs(3 * 3600))
        .success()?;
    anyhow::ensure!(checks::count_of_tests(&out.stdout) == "1 tests", "{filter} is no test: {}", out.stdout);
    Ok(format!("{runs} executions"))
}

/// The targets for libFuzzer still compile and link.
fn targets_build() -> Result<String> {
    Program::new("cargo")
        .args(["build", "--quiet", "--bins"])
        .env("CARGO_TERM_COLOR", "never")
        .env("CARGO_TARGET_DIR", target_directory().join("fuzz"))
        .in_directory(&workspace().join("fuzz"))
        .limit(Duration::from_secs(1800))
        .success()?;
    Ok(String::new())
}

/// What runs under AddressSanitizer, as arguments of `cargo test`: the rooms with `unsafe`, devices over real sockets, and
/// the verbs called as no program should.
const SANITIZED: [&[&str]; 3] = [
    &["-p", "srdma-ring", "-p", "srdma-net", "-p", "srdma-dma", "-p", "srdma-doors", "-p", "srdma-engine"],
    &["-p", "srdma-client", "--test", "behaviour"],
    &["-p", "srdma-verbs", "--lib", "--test", "abuse"],
];

/// A stable compiler knows the sanitizer, too, if it is told that it may.
fn address_sanitizer() -> Result<String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut tests = 0;
    for what in SANITIZED {
        let out = Program::new("cargo")
            .args(["test", "--quiet", "--target", &target])
            .args(what)
            .env("CARGO_TERM_COLOR", "never")
            .env("CARGO_TARGET_DIR", target_directory().join("asan"))
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            // Absurd sizes are asked for on purpose; what lives as long as the process is no leak.
            .env("ASAN_OPTIONS", "allocator_may_return_null=1:detect_leaks=0")
            .in_directory(&workspace())
            .limit(Duration::from_secs(1800))
            .success()?;
        let said = checks::count_of_tests(&out.stdout);
        tests += said.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
    }
    anyhow::ensure!(tests > 100, "only {tests} tests ran");
    Ok(format!("{tests} tests"))
}
