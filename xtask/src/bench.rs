//! `cargo xtask bench`: speed beside TCP in the same network, interleaved, medians, absolute values.
//!
//! Real time is judged only here and only with `--check`; the tests never look at a clock.

mod watched;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};

mod cable;
mod callgrind;
mod cores;
mod crowd;
mod goodput;
mod loss;
mod profile;
mod sim;
mod small;
mod stock;
mod udp;
mod unequal;

use crate::fabric::{Fabric, Spec};
use crate::programs::{Launcher, Pair};
use crate::report::Table;
use crate::{ground, packages, report, suite};

/// What to measure and whether to judge it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Writes everything measured here.
    pub json: Option<PathBuf>,
    /// Fails if something is slower than it must be.
    pub check: bool,
    /// Interleaved pairs of (ours, TCP).
    pub pairs: usize,
    /// The tree to measure; `None` builds it.
    pub dist: Option<PathBuf>,
    /// Only sections whose name contains this.
    pub only: Option<String>,
    /// Program of uet-htsim to compare the simulator with.
    pub htsim: Option<PathBuf>,
}

/// A measured value and the limit that it must keep.
struct Judged {
    what: String,
    value: f64,
    limit: Limit,
    /// Not promised yet: shown, but no reason for `--check` to fail.
    goal: bool,
}

#[derive(Clone, Copy)]
enum Limit {
    AtLeast(f64),
    LessThan(f64),
}

impl Judged {
    fn at_least(what: impl Into<String>, value: f64, least: f64) -> Judged {
        Judged { what: what.into(), value, limit: Limit::AtLeast(least), goal: false }
    }

    fn at_most(what: impl Into<String>, value: f64, most: f64) -> Judged {
        Judged { what: what.into(), value, limit: Limit::LessThan(most), goal: false }
    }

    /// What is aimed at, not yet what is promised.
    fn goal(self) -> Judged {
        Judged { goal: true, ..self }
    }

    fn verdict(&self) -> String {
        match (self.holds(), self.goal) {
            (true, _) => report::good("holds"),
            (false, false) => report::bad("too slow"),
            (false, true) => report::faint("a goal, not reached yet"),
        }
    }

    fn holds(&self) -> bool {
        match self.limit {
            Limit::AtLeast(least) => self.value >= least,
            Limit::LessThan(most) => self.value < most,
        }
    }

    fn limit_text(&self) -> String {
        match self.limit {
            Limit::AtLeast(least) => format!("≥ {least:.2}"),
            Limit::LessThan(most) => format!("< {most:.2}"),
        }
    }
}

/// One part: what it is called, and what measures it.
type Section = fn(&Launcher, &Options, &mut Vec<Judged>) -> Result<Value>;
const SECTIONS: &[(&str, Section)] = &[
    ("registration", registration),
    ("cable", cable::section),
    ("stock", stock::section),
    ("latency", small::latency),
    ("rate", small::rate),
    ("crowd", crowd::section),
    ("spines", spines),
    ("equal", unequal::equal),
    ("unequal", unequal::unequal),
    ("loss", loss::section),
    ("faults", faults),
    ("watched", watched::watched),
    ("profile", profile::section),
    ("sim", sim::section),
    ("sim-large", sim::large),
];

/// The parts that `--only` chooses: those with the word in their name, or named so after an equals sign.
fn chosen(options: &Options) -> Result<Vec<&'static (&'static str, Section)>> {
    let Some(word) = options.only.as_deref() else { return Ok(SECTIONS.iter().collect()) };
    let is_wanted = |name: &str| word.strip_prefix('=').map_or(name.contains(word), |exact| name == exact);
    let chosen: Vec<_> = SECTIONS.iter().filter(|(name, _)| is_wanted(name)).collect();
    let names: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
    ensure!(!chosen.is_empty(), "no part of the bench is called {word}; there are {}", names.join(", "));
    Ok(chosen)
}

/// Measures; true unless `--check` finds something too slow.
pub fn run(options: &Options) -> Result<bool> {
    let chosen = chosen(options)?;
    packages::ensure(&[
        packages::BUILD,
        packages::FABRIC,
        packages::PROGRAMS,
        packages::HEADERS,
        packages::PEERS,
        packages::PROFILERS,
    ])?;
    let dist = suite::built_tree(options.dist.clone())?;
    let launcher = Launcher::new(&dist)?;
    ground::stand();
    let mut judged = Vec::new();
    let mut results = serde_json::Map::new();
    for (name, section) in chosen {
        results.insert((*name).into(), section(&launcher, options, &mut judged)?);
        report::plain("");
    }
    let mut table = Table::new(&["", "measured", "limit", ""]);
    for line in &judged {
        table.row(&[line.what.clone(), format!("{:.2}", line.value), line.limit_text(), line.verdict()]);
    }
    table.print();
    if let Some(file) = &options.json {
        let lines: Vec<Value> = judged
            .iter()
            .map(|line| json!({"what": line.what, "value": line.value, "limit": line.limit_text(), "holds": line.holds(), "goal": line.goal}))
            .collect();
        results.insert("judged".into(), lines.into());
        std::fs::write(file, serde_json::to_string_pretty(&results)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        report::say(&format!("written to {}", file.display()));
    }
    let holds = judged.iter().all(|line| line.holds() || line.goal);
    Ok(holds || !options.check)
}

/// Registering memory costs no page work, so its size is of no account.
fn registration(launcher: &Launcher, _options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    report::say("ibv_reg_mr of 1 TiB of reserved address space");
    let fabric = Fabric::build(Spec::pair())?;
    let argv = [launcher.c_program("objects")?.display().to_string(), "register".into()];
    let out = launcher.program(&[], &launcher.file(".json"), &argv).on(&fabric.h1).success()?;
    let us: Vec<f64> = out.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [median_us, max_us] = us[..] else { bail!("not two numbers: {}", out.story()) };
    report::say(&format!("  median {median_us:.1} µs, longest of 101 {max_us:.1} µs"));
    judged.push(Judged::at_most("ibv_reg_mr of 1 TiB, ms (median of 101)", median_us / 1e3, 1.0));
    Ok(json!({"median_us": median_us, "max_us": max_us}))
}

/// Four spines of 200 Mbit/s: all paths reach the sum, one path a quarter.
fn spines(launcher: &Launcher, _options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    const SUM_MB_PER_S: f64 = 4.0 * 200.0 / 8.0;
    report::say("4 spines of 200 Mbit/s: 128 paths, then one");
    let mut shares = Vec::new();
    for options in ["", "--selector single"] {
        let fabric = Fabric::build(Spec::spines(Some(200)))?;
        let seconds = 6.0;
        let pair = Pair::new("ib_write_bw -F -n 20000").options(options).limit(200);
        let mut rate = 0.0;
        pair.run_while(launcher, &fabric, |client| {
            suite::wait_for_bytes(&fabric, 10_000_000, || client.has_ended())?;
            fabric.even_out()?;
            std::thread::sleep(Duration::from_millis(500));
            rate = crossing_mb_per_s(&fabric, Duration::from_secs_f64(seconds))?;
            client.signal(libc::SIGKILL);
            Ok(())
        })?;
        shares.push(rate / SUM_MB_PER_S);
        let name = if options.is_empty() { "128 paths" } else { "one path" };
        report::say(&format!(
            "  {name}: {rate:.1} MB/s of {SUM_MB_PER_S:.0} on the wire ({:.0} %)",
            100.0 * rate / SUM_MB_PER_S
        ));
    }
    judged.push(Judged::at_least("128 paths / sum of four spines", shares[0], 0.9));
    judged.push(Judged::at_least("one path / sum of four spines", shares[1], 0.15));
    Ok(json!({"oblivious_share": shares[0], "single_share": shares[1]}))
}

/// A spine fails under way: what is left within a second.
fn faults(launcher: &Launcher, _options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    report::say("one of four spines fails under way");
    let mut shares = Vec::new();
    for (name, least) in [("links down on both leaves", 0.65), ("packets swallowed silently", 0.30)] {
        let fabric = Fabric::build(Spec::spines(Some(200)))?;
        let pair = Pair::new("ib_write_bw -F -n 20000").limit(200);
        let (mut before, mut after) = (0.0, 0.0);
        pair.run_while(launcher, &fabric, |client| {
            suite::wait_for_bytes(&fabric, 10_000_000, || client.has_ended())?;
            fabric.even_out()?;
            std::thread::sleep(Duration::from_millis(500));
            before = crossing_mb_per_s(&fabric, Duration::from_secs(2))?;
            if least > 0.5 {
                fabric.set_spine_up(0, false)?;
            } else {
                fabric.set_loss(0, 1000)?;
            }
            std::thread::sleep(Duration::from_secs(1));
            after = crossing_mb_per_s(&fabric, Duration::from_secs(3))?;
            ensure!(!client.has_ended(), "the client ended when the spine failed");
            client.signal(libc::SIGKILL);
            Ok(())
        })?;
        shares.push(after / before);
        report::say(&format!("  {name}: {before:.1} MB/s before, {after:.1} MB/s from the next second on"));
        judged.push(Judged::at_least(format!("after / before: {name}"), after / before, least));
    }
    Ok(json!({"links_down_share": shares[0], "swallowed_share": shares[1]}))
}

/// Bytes that reach h2's interface, headers included, per second over `span`.
fn crossing_mb_per_s(fabric: &Fabric, span: Duration) -> Result<f64> {
    let received = || -> Result<u64> { Ok(fabric.h2.links()?.get("eth0").map_or(0, |link| link.rx_bytes)) };
    let (start, before) = (Instant::now(), received()?);
    std::thread::sleep(span);
    Ok((received()? - before) as f64 / start.elapsed().as_secs_f64() / 1e6)
}
