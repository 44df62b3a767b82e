//! Steps that only need cargo: form, lints, house rules, unit tests, interleavings, the tree.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{target_directory, workspace, Step};
use crate::process::Program;
use crate::{dist, tidy};

/// Name of the step that builds the tree.
pub const DIST: &str = "build/dist";

/// All of them.
pub fn steps(soak: bool) -> Vec<Step> {
    let seeds = if soak { 200_000 } else { 2_000 };
    let mut steps = vec![
        cargo("form/fmt", &["fmt", "--all", "--check", "--", "--color", "never"], &[]),
        cargo("form/clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
        Step::new("form/tidy", |_| {
            let findings = tidy::check()?;
            anyhow::ensure!(findings.is_empty(), "{}", findings.join("\n  "));
            Ok(String::new())
        }),
        cargo("unit/workspace", &["test", "--workspace", "--quiet"], &[("SRDMA_SEEDS", seeds.to_string())]),
    ];
    if soak {
        let crowd = ["test", "--quiet", "-p", "srdma-client", "--test", "behaviour", "crowd"];
        steps.push(cargo(
            "unit/2000-queue-pairs-are-served-alike",
            &crowd,
            &[("SRDMA_CROWD", "2000".into())],
        ));
    }
    if let Some(features) = loom_of_ring() {
        steps.push(features);
    }
    steps.push(Step::new(DIST, |_| {
        let tree = dist_tree(false)?;
        Ok(tree.display().to_string())
    }));
    steps
}

fn cargo(name: &str, args: &[&str], env: &[(&'static str, String)]) -> Step {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let env = env.to_vec();
    Step::new(name, move |_| {
        let program = Program::new("cargo").args(&args).in_directory(&workspace());
        let mut program = program.env("CARGO_TERM_COLOR", "never");
        for (name, value) in &env {
            program = program.env(name, value);
        }
        let out = program.limit(Duration::from_secs(3 * 3600)).success()?;
        Ok(count_of_tests(&out.stdout))
    })
}

/// `12 tests` if the output of `cargo test` says so.
pub fn count_of_tests(output: &str) -> String {
    let passed: u64 = output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|line| line.split(' ').next()?.parse::<u64>().ok())
        .sum();
    if passed == 0 {
        String::new()
    } else {
        format!("{passed} tests")
    }
}

/// The interleaving tests of the rings under loom, once that room offers them.
fn loom_of_ring() -> Option<Step> {
    let manifest = std::fs::read_to_string(workspace().join("crates/ring/Cargo.toml")).ok()?;
    if !manifest.contains("loom") {
        return None;
    }
    Some(Step::new("unit/loom", |_| {
        let out = Program::new("cargo")
            .args(["test", "--release", "--quiet", "-p", "srdma-ring", "--lib"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("LOOM_MAX_PREEMPTIONS", "3")
            .env("CARGO_TARGET_DIR", target_directory().join("loom"))
            .in_directory(&workspace())
            .limit(Duration::from_secs(1800))
            .success()?;
        Ok(count_of_tests(&out.stdout))
    }))
}

/// Builds the tree, unless a step has just done it, and says where it is.
pub fn dist_tree(just_built: bool) -> Result<PathBuf> {
    if !just_built {
        dist::run(&[]).map_err(|error| anyhow::anyhow!("{error}")).context("cargo xtask dist")?;
    }
    Ok(workspace().join("target/dist"))
}
