//! Crowds of queue pairs between two processes: whether each gets its share, and what all get together.

use anyhow::{Context, Result};
use serde_json::{json, Value};

use super::{Judged, Options};
use crate::fabric::{Fabric, Spec};
use crate::programs::{Launcher, Pair};
use crate::report::{self, median, Table};

/// Queue pairs and the messages of each. The first three move the same, so that their speeds compare.
const CROWDS: [(u64, u64); 4] = [(1, 6_400), (10, 640), (100, 64), (2_000, 64)];
const MESSAGE_BYTES: u64 = 64 << 10;
/// Jain's index aimed at.
const JAIN_MIN: f64 = 0.95;
/// What a run may take.
const SECONDS_MAX: u64 = 240;

/// What was measured of one size, one value per round.
#[derive(Default)]
struct Series {
    mb_per_s: Vec<f64>,
    cpu_s_per_gb: Vec<f64>,
    packets_per_unit: Vec<f64>,
    jain: Vec<f64>,
    jain_at_half_time: Vec<f64>,
    /// Why a run did not end well; there is no further one then.
    failure: Option<String>,
}

impl Series {
    fn add(&mut self, launcher: &Launcher, fabric: &Fabric, (count, messages): (u64, u64)) -> Result<()> {
        let mut pair = Pair::new("").limit(SECONDS_MAX);
        pair.argv = vec![launcher.c_program("crowd")?.display().to_string()];
        let numbers = [("--queue-pairs", count), ("--messages", messages), ("--bytes", MESSAGE_BYTES)];
        pair.argv.extend(numbers.iter().flat_map(|(name, number)| [name.to_string(), number.to_string()]));
        let done = pair.run(launcher, fabric)?;
        if let Some(side) = [&done.client, &done.server].into_iter().find(|side| side.code != Some(0)) {
            self.failure = Some(side.stderr.lines().last().map_or_else(|| side.end(), str::to_owned));
            return Ok(());
        }
        let said: Value = serde_json::from_str(&done.client.stdout).context("crowd printed no JSON")?;
        let number = |name: &str| said[name].as_f64().with_context(|| format!("no {name}: {said}"));
        let stats = done.client_stats()?;
        self.mb_per_s.push(number("mb_per_s")?);
        self.jain.push(number("jain")?);
        self.jain_at_half_time.push(number("jain_at_half_time")?);
        self.packets_per_unit.push(stats.packets_sent() as f64 / stats.units_sent().max(1) as f64);
        let gigabytes = (count * messages * MESSAGE_BYTES) as f64 / 1e9;
        self.cpu_s_per_gb.push((done.client.cpu + done.server.cpu).as_secs_f64() / gigabytes);
        Ok(())
    }

    fn row(&self, count: u64) -> Vec<String> {
        let cell = |values: &[f64], digits: usize| format!("{:.digits$}", median(values));
        match &self.failure {
            Some(_) => vec![count.to_string(), "failed".into()],
            None => vec![
                count.to_string(),
                cell(&self.mb_per_s, 0),
                cell(&self.cpu_s_per_gb, 2),
                cell(&self.packets_per_unit, 1),
                cell(&self.jain, 3),
                cell(&self.jain_at_half_time, 3),
            ],
        }
    }

    /// The middle of `values`; nothing is fair about a run that failed.
    fn judged(&self, values: &[f64]) -> f64 {
        if self.failure.is_some() {
            0.0
        } else {
            median(values)
        }
    }

    fn json(&self) -> Value {
        json!({
            "mb_per_s": self.mb_per_s, "cpu_s_per_gb": self.cpu_s_per_gb, "packets_per_unit": self.packets_per_unit,
            "jain": self.jain, "jain_at_half_time": self.jain_at_half_time, "failure": self.failure,
        })
    }
}

/// 64 KiB WRITEs of crowds of every size in turn, all posted at once.
pub(super) fn section(launcher: &Launcher, options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    let fabric = Fabric::build(Spec::pair())?;
    report::say(&format!("crowds of queue pairs with 64 KiB WRITEs, {} rounds", options.pairs));
    let mut all: [Series; CROWDS.len()] = std::array::from_fn(|_| Series::default());
    for round in 1..=options.pairs {
        for (series, crowd) in all.iter_mut().zip(CROWDS) {
            if series.failure.is_none() {
                series.add(launcher, &fabric, crowd)?;
                let last = |values: &[f64]| values.last().copied().unwrap_or(0.0);
                let said = match &series.failure {
                    Some(failure) => failure.clone(),
                    None => format!("{:.0} MB/s, Jain {:.3}", last(&series.mb_per_s), last(&series.jain)),
                };
                report::say(&format!("  {round}: {} queue pairs: {said}", crowd.0));
            }
        }
    }
    let head = ["queue pairs", "MB/s", "CPU s per GB", "packets per unit", "Jain", "at half time"];
    let mut table = Table::new(&head);
    all.iter().zip(CROWDS).for_each(|(series, (count, _))| table.row(&series.row(count)));
    table.print();
    if let [.., (series, (count, _))] = &all.iter().zip(CROWDS).collect::<Vec<_>>()[..] {
        for (what, values) in [("", &series.jain), (" at half time", &series.jain_at_half_time)] {
            let what = format!("Jain's index of {count} queue pairs{what}");
            judged.push(Judged::at_least(what, series.judged(values), JAIN_MIN));
        }
    }
    Ok(all.iter().zip(CROWDS).map(|(series, (count, _))| (count.to_string(), series.json())).collect())
}
