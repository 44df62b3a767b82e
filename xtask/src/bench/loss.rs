//! What loss costs: goodput over four spines, lossless and with loss, beside TCP.

use std::time::Duration;

use anyhow::Result;
use serde_json::{json, Value};

use super::goodput::{while_writing, Goodput};
use super::{Judged, Options};
use crate::fabric::{Fabric, Spec};
use crate::programs::{iperf3, Launcher};
use crate::report::{self, median, Table};

/// Of each spine.
const RATE_MBIT: u32 = 200;
/// Of each look.
const SECONDS: u32 = 3;
/// One TCP stream takes one spine only; as many as these take all.
const STREAMS: u32 = 16;

/// Loss of every spine per thousand, and what must be left of the goodput without.
const CASES: [(&str, [u32; 4], f64); 4] = [
    ("no loss", [0, 0, 0, 0], 1.0),
    ("1 % on one spine", [10, 0, 0, 0], 0.97),
    ("3 % on one spine", [30, 0, 0, 0], 0.95),
    ("1 % on all spines", [10, 10, 10, 10], 0.85),
];

/// One contender: a value per round for every case.
struct Series {
    name: String,
    /// Whether the limits are for it.
    ours: bool,
    mb_per_s: [Vec<f64>; CASES.len()],
    /// Of ours only.
    cpu_s_per_gb: [Vec<f64>; CASES.len()],
}

impl Series {
    fn new(name: String, ours: bool) -> Series {
        Series { name, ours, mb_per_s: Default::default(), cpu_s_per_gb: Default::default() }
    }

    fn add(&mut self, case: usize, goodput: Goodput) {
        self.mb_per_s[case].push(goodput.mb_per_s);
        self.cpu_s_per_gb[case].push(goodput.cpu_s_per_gb);
    }

    /// Median over the rounds of what was left in `case`.
    fn left(&self, case: usize) -> f64 {
        let pairs = self.mb_per_s[case].iter().zip(&self.mb_per_s[0]);
        median(&pairs.map(|(lossy, lossless)| lossy / lossless).collect::<Vec<_>>())
    }

    fn last(&self) -> String {
        let last = |values: &Vec<f64>| format!("{:.1}", values.last().copied().unwrap_or(0.0));
        let values: Vec<String> = self.mb_per_s.iter().map(last).collect();
        format!("{} {}", self.name, values.join(" "))
    }

    fn rows(&self, table: &mut Table) {
        for (case, (name, ..)) in CASES.iter().enumerate() {
            table.row(&[
                format!("{}, {name}", self.name),
                format!("{:.1}", median(&self.mb_per_s[case])),
                format!("{:.3}", self.left(case)),
                format!("{:.2}", median(&self.cpu_s_per_gb[case])),
            ]);
        }
    }
}

fn set(fabric: &Fabric, loss_per_mille: &[u32]) -> Result<()> {
    loss_per_mille.iter().enumerate().try_for_each(|(spine, &loss)| fabric.set_loss(spine, loss))
}

/// All cases under one connection of ours.
fn ours(launcher: &Launcher, fabric: &Fabric, into: &mut Series) -> Result<()> {
    while_writing(launcher, fabric, "", |writers| {
        for (case, (_, loss, _)) in CASES.iter().enumerate() {
            set(fabric, loss)?;
            into.add(case, writers.goodput(Duration::from_secs(SECONDS.into()))?);
        }
        Ok(())
    })?;
    set(fabric, &[0; 4])
}

fn tcp(fabric: &Fabric, control: &str, into: &mut Series) -> Result<()> {
    for (case, (_, loss, _)) in CASES.iter().enumerate() {
        set(fabric, loss)?;
        let run = iperf3::run_under(fabric, control, SECONDS, STREAMS)?;
        let cpu_s_per_gb = run.cpu_s / (run.bytes as f64 / 1e9);
        into.add(case, Goodput { mb_per_s: run.mb_per_s, cpu_s_per_gb });
    }
    set(fabric, &[0; 4])
}

/// Goodput with and without loss, of packets and of whole bursts.
pub(super) fn section(launcher: &Launcher, options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    report::say(&format!("loss over 4 spines of {RATE_MBIT} Mbit/s, {} rounds", options.pairs));
    let spec = Spec::spines(Some(RATE_MBIT));
    let (packets, bursts) =
        (Fabric::build(spec.clone().loss(&[], false))?, Fabric::build(spec.loss(&[], true))?);
    let controls: Vec<String> = iperf3::congestion_controls()?;
    let controls: Vec<&str> =
        ["cubic", "bbr"].into_iter().filter(|&name| controls.iter().any(|known| known == name)).collect();
    let mut ours_all =
        [Series::new("ours, packets lost".into(), true), Series::new("ours, bursts lost".into(), true)];
    let mut theirs: Vec<Series> = controls
        .iter()
        .map(|name| Series::new(format!("{STREAMS} TCP streams, {name}, packets lost"), false))
        .collect();
    for round in 1..=options.pairs {
        ours(launcher, &packets, &mut ours_all[0])?;
        for (series, control) in theirs.iter_mut().zip(&controls) {
            tcp(&packets, control, series)?;
        }
        ours(launcher, &bursts, &mut ours_all[1])?;
        let all: Vec<String> = ours_all.iter().chain(&theirs).map(Series::last).collect();
        report::say(&format!("  {round}: {} MB/s", all.join("; ")));
    }
    let all: Vec<Series> = ours_all.into_iter().chain(theirs).collect();
    let mut table = Table::new(&["goodput over 4 spines", "MB/s", "of lossless", "CPU s per GB"]);
    all.iter().for_each(|series| series.rows(&mut table));
    table.print();
    for series in all.iter().filter(|series| series.ours) {
        for (case, (name, _, least)) in CASES.iter().enumerate().skip(1) {
            let what = format!("{}: {name} / lossless", series.name);
            judged.push(Judged::at_least(what, series.left(case), *least));
        }
    }
    let json = |series: &Series| {
        let cases = CASES.iter().enumerate().map(|(case, (name, ..))| {
            let value = json!({
                "mb_per_s": series.mb_per_s[case], "cpu_s_per_gb": series.cpu_s_per_gb[case], "left": series.left(case),
            });
            ((*name).to_owned(), value)
        });
        (series.name.clone(), Value::Object(cases.collect()))
    };
    Ok(Value::Object(all.iter().map(json).collect()))
}
