//! Many paths beside one: equal ones must cost nothing, slow ones among them must not pull the rest down.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{json, Value};

use super::cores::Rounds;
use super::goodput::{while_writing, Goodput};
use super::{Judged, Options};
use crate::fabric::{Fabric, Spec};
use crate::programs::{perftest, Launcher, Pair};
use crate::report::{self, median, Table};

/// Paths that share one cable, which one of them could fill.
const EQUAL: [u32; 6] = [1, 2, 8, 32, 128, 256];
/// What many equal paths must reach of one.
const EQUAL_MIN: f64 = 0.95;
const MESSAGES: u64 = 2_000;
const MESSAGE_BYTES: u64 = 1 << 20;

/// Speeds of spines, Mbit/s, the best first, and whether it is promised that all together are as fast as that one.
const UNEQUAL: [(&[u32], bool); 4] = [
    (&[200, 200, 200, 200], true),
    (&[200, 200, 200, 50], true),
    (&[200, 50, 50, 50], true),
    (&[200, 20, 20, 20], false),
];
const SPAN: Duration = Duration::from_secs(3);

/// Over a cable: 1 MiB WRITEs by so many paths in turn.
pub(super) fn equal(launcher: &Launcher, options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    let fabric = Fabric::build(Spec::pair())?;
    report::say(&format!("1 MiB WRITEs over a cable by {EQUAL:?} paths, {} rounds", options.pairs));
    let mut all: [Vec<Goodput>; EQUAL.len()] = Default::default();
    let mut rounds = Rounds::default();
    for number in 1..=options.pairs {
        let runs = rounds.take(|| {
            EQUAL.iter().map(|&paths| over_cable(launcher, &fabric, paths)).collect::<Result<Vec<_>>>()
        })?;
        let said: Vec<String> = runs.iter().map(|run| format!("{:.0}", run.mb_per_s)).collect();
        report::say(&format!("  {number}: {} MB/s; {}", said.join(" "), rounds.last()));
        all.iter_mut().zip(runs).for_each(|(series, run)| series.push(run));
    }
    let mut table = Table::new(&["paths over one cable", "MB/s", "of one path", "CPU s per GB"]);
    let mut least = f64::INFINITY;
    for (series, paths) in all.iter().zip(EQUAL) {
        let ratio = over(series, &all[0]);
        least = least.min(ratio);
        table.row(&row(&paths.to_string(), series, ratio));
    }
    table.print();
    judged.push(Judged::at_least("N equal paths / one path, the worst N", least, EQUAL_MIN).goal());
    let mut json: serde_json::Map<String, Value> =
        all.iter().zip(EQUAL).map(|(series, paths)| (paths.to_string(), values(series))).collect();
    json.insert("rounds".into(), rounds.json());
    Ok(json.into())
}

fn over_cable(launcher: &Launcher, fabric: &Fabric, paths: u32) -> Result<Goodput> {
    let pair = Pair::new(&format!("ib_write_bw -F -s {MESSAGE_BYTES} -n {MESSAGES}"));
    let done = pair.options(&format!("--paths {paths}")).limit(120).run(launcher, fabric)?.success()?;
    let row = perftest::bandwidths(&done.client.stdout).pop().context("perftest printed no table")?;
    let gigabytes = (MESSAGES * MESSAGE_BYTES) as f64 / 1e9;
    let cpu_s_per_gb = (done.client.cpu + done.server.cpu).as_secs_f64() / gigabytes;
    Ok(Goodput { mb_per_s: row.mb_per_s, cpu_s_per_gb })
}

/// Over spines: all of them beside the best alone.
pub(super) fn unequal(launcher: &Launcher, options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    report::say(&format!("spines of unequal speed, {} rounds", options.pairs));
    let best = Fabric::build(Spec::unequal(&UNEQUAL[0].0[..1]))?;
    let fabrics: Vec<Fabric> =
        UNEQUAL.iter().map(|(rates, _)| Fabric::build(Spec::unequal(rates))).collect::<Result<_>>()?;
    let (mut alone, mut all) = (Vec::new(), vec![Vec::new(); UNEQUAL.len()]);
    let look = |fabric: &Fabric, into: &mut Vec<Goodput>| {
        while_writing(launcher, fabric, "", |writers| {
            into.push(writers.goodput(SPAN)?);
            Ok(())
        })
    };
    for round in 1..=options.pairs {
        look(&best, &mut alone)?;
        fabrics.iter().zip(&mut all).try_for_each(|(fabric, series)| look(fabric, series))?;
        let said = all.iter().map(|series| format!("{:.1}", series.last().map_or(0.0, |run| run.mb_per_s)));
        let last = alone.last().map_or(0.0, |run| run.mb_per_s);
        report::say(&format!(
            "  {round}: the best alone {last:.1}; {} MB/s",
            said.collect::<Vec<_>>().join(", ")
        ));
    }
    let mut table =
        Table::new(&["goodput over spines of Mbit/s", "MB/s", "of the best alone", "CPU s per GB"]);
    table.row(&row(&UNEQUAL[0].0[0].to_string(), &alone, 1.0));
    for (series, (rates, promised)) in all.iter().zip(UNEQUAL) {
        let ratio = over(series, &alone);
        table.row(&row(&format!("{rates:?}"), series, ratio));
        let line = Judged::at_least(format!("spines of {rates:?} Mbit/s / the best alone"), ratio, 1.0);
        judged.push(if promised { line } else { line.goal() });
    }
    table.print();
    let mut json: serde_json::Map<String, Value> =
        all.iter().zip(UNEQUAL).map(|(series, (rates, _))| (format!("{rates:?}"), values(series))).collect();
    json.insert("best_alone".into(), values(&alone));
    Ok(json.into())
}

/// Median of the ratios round by round.
fn over(series: &[Goodput], other: &[Goodput]) -> f64 {
    median(&series.iter().zip(other).map(|(a, b)| a.mb_per_s / b.mb_per_s).collect::<Vec<_>>())
}

fn row(name: &str, series: &[Goodput], ratio: f64) -> Vec<String> {
    let of = |pick: fn(&Goodput) -> f64| median(&series.iter().map(pick).collect::<Vec<_>>());
    let (speed, cpu) = (of(|run| run.mb_per_s), of(|run| run.cpu_s_per_gb));
    vec![name.into(), format!("{speed:.1}"), format!("{ratio:.2}"), format!("{cpu:.2}")]
}

fn values(series: &[Goodput]) -> Value {
    let of = |pick: fn(&Goodput) -> f64| series.iter().map(pick).collect::<Vec<_>>();
    json!({"mb_per_s": of(|run| run.mb_per_s), "cpu_s_per_gb": of(|run| run.cpu_s_per_gb)})
}
