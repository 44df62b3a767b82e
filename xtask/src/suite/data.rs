//! Whether bytes arrive as they were sent: our own pattern program, which checks every one of them, flags after
//! data and overlapping WRITEs.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Setting, Step};
use crate::fabric::{Fabric, Spec};
use crate::programs::{Launcher, Pair};

/// All of them.
pub fn steps() -> Vec<Step> {
    let networks: [(&str, Spec); 4] = [
        ("cable", Spec::pair()),
        ("1%-of-packets", Spec::spines(Some(200)).loss(&[10; 4], false)),
        ("3%-one-spine", Spec::spines(Some(200)).loss(&[30], false)),
        ("1%-of-bursts", Spec::spines(Some(200)).loss(&[10; 4], true)),
    ];
    let step = |(name, spec): (&str, Spec)| {
        Step::new(format!("data/{name}"), move |setting: &Setting<'_>| {
            let fabric = Fabric::build(spec.clone())?;
            let seconds = if setting.soak { 600 } else { 15 };
            run(setting.launcher()?, &fabric, seconds)?.context("the tree has no srdma-pattern")
        })
    };
    networks.map(step).into()
}

/// Runs it for a few seconds between the two hosts. `None`: the tree has no such program.
pub fn verify_data(launcher: &Launcher, fabric: &Fabric) -> Result<Option<bool>> {
    match run(launcher, fabric, 5) {
        Ok(said) => Ok(said.map(|_| true)),
        Err(error) => {
            crate::report::note(&format!("{error:#}"));
            Ok(Some(false))
        }
    }
}

fn run(launcher: &Launcher, fabric: &Fabric, seconds: u64) -> Result<Option<String>> {
    let Some(program) = launcher.pattern_program() else { return Ok(None) };
    let mut pair = Pair::new(&format!("{} --seconds {seconds}", program.display()));
    pair.limit = Duration::from_secs(seconds + 60);
    let done = pair.run(launcher, fabric)?.success()?;
    Ok(Some(done.client.stdout.lines().last().unwrap_or("").to_owned()))
}
