//! Whether bytes arrive as they were sent, by two checks of our own that share no code: `srdma verify` over our
//! Rust library, and a C program (`xtask/pattern`) over the verbs that any program uses.

use std::time::Duration;

use anyhow::{bail, ensure, Result};

use super::{Setting, Step};
use crate::fabric::{Fabric, Spec};
use crate::programs::{verify, Launcher, Pair};

/// All of them.
pub fn steps() -> Vec<Step> {
    let networks: [(&str, Spec); 7] = [
        ("cable", Spec::pair()),
        ("1%-one-spine", Spec::spines(Some(200)).loss(&[10], false)),
        ("3%-one-spine", Spec::spines(Some(200)).loss(&[30], false)),
        ("1%-of-bursts-one-spine", Spec::spines(Some(200)).loss(&[10], true)),
        ("3%-of-bursts-one-spine", Spec::spines(Some(200)).loss(&[30], true)),
        ("1%-of-packets", Spec::spines(Some(200)).loss(&[10; 4], false)),
        ("1%-of-bursts", Spec::spines(Some(200)).loss(&[10; 4], true)),
    ];
    let mut steps = vec![
        Step::new("data/a-wrong-bit-is-noticed", |setting| notices(setting.launcher()?)),
        Step::new("data/idle-is-idle", |setting| is_idle(setting.launcher()?)),
        Step::new("data/objects-come-and-go", |setting: &Setting<'_>| {
            come_and_go(setting.launcher()?, if setting.soak { 100_000 } else { 10_000 })
        }),
        Step::new("data/objects-take-little", |setting| take_little(setting.launcher()?)),
    ];
    for (name, spec) in networks {
        let other = spec.clone();
        steps.push(Step::new(format!("data/verify-{name}"), move |setting: &Setting<'_>| {
            let seconds = if setting.soak { 600 } else { 12 };
            verify::run(setting.launcher()?, &Fabric::build(spec.clone())?, seconds, &[])
        }));
        steps.push(Step::new(format!("data/pattern-{name}"), move |setting: &Setting<'_>| {
            let seconds = if setting.soak { 300 } else { 4 };
            run(setting.launcher()?, &Fabric::build(other.clone())?, seconds)
        }));
    }
    steps
}

/// The check itself works: one planted bit fails the server, by name.
fn notices(launcher: &Launcher) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let mut pair = pair(launcher, 2)?;
    pair.client_args.push("--plant".into());
    // The client waits for an answer that a dead server never gives.
    pair.limit = Duration::from_secs(5);
    let done = pair.run(launcher, &fabric)?;
    let said = done.server.stderr.lines().last().unwrap_or("").to_owned();
    ensure!(
        done.server.code == Some(1) && said.contains("1 of 1048576 bytes are wrong"),
        "{}",
        done.server.story()
    );
    Ok(String::new())
}

/// A connected pair that rests uses no processor time, on either side.
fn is_idle(launcher: &Launcher) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let mut pair = pair(launcher, 0)?;
    pair.client_args.extend(["--idle".into(), "3".into()]);
    let done = pair.run(launcher, &fabric)?.success()?;
    let said = |text: &str| text.lines().next().unwrap_or("").to_owned();
    Ok(format!("client {}, server {}", said(&done.client.stdout), said(&done.server.stdout)))
}

/// Connected queue pairs, with all that belongs to them, leave nothing behind when they are destroyed.
fn come_and_go(launcher: &Launcher, cycles: u32) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let argv = [launcher.c_program("objects")?.display().to_string(), "churn".into(), cycles.to_string()];
    let program = launcher.program(&[], &launcher.file(".json"), &argv).on(&fabric.h1);
    let out = program.limit(Duration::from_secs(60 + u64::from(cycles) / 50)).success()?;
    Ok(out.stdout.trim().to_owned())
}

/// A process with one queue pair, and each further one, at rest.
fn take_little(launcher: &Launcher) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let argv = [launcher.c_program("objects")?.display().to_string(), "footprint".into(), "1000".into()];
    let out = launcher.program(&[], &launcher.file(".json"), &argv).on(&fabric.h1).success()?;
    let bytes: Vec<u64> = out.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [one, further] = bytes[..] else { bail!("not two numbers: {}", out.story()) };
    Ok(format!("{one} bytes with one queue pair, {further} for each further one"))
}

/// The pattern program on both sides, the client working for `seconds`.
pub fn pair(launcher: &Launcher, seconds: u64) -> Result<Pair> {
    let mut pair = Pair::new("");
    pair.argv = vec![launcher.c_program("pattern")?.display().to_string()];
    pair.client_args = ["--seconds".into(), seconds.to_string()].into();
    pair.limit = Duration::from_secs(seconds + 60);
    Ok(pair)
}

fn run(launcher: &Launcher, fabric: &Fabric, seconds: u64) -> Result<String> {
    let done = pair(launcher, seconds)?.run(launcher, fabric)?.success()?;
    Ok(done.client.stdout.trim().to_owned())
}
