//! What a watcher costs: the same run with and without `srdma stats --watch` beside it.

use anyhow::{ensure, Context, Result};
use serde_json::{json, Value};

use super::cores::Rounds;
use super::{Judged, Options};
use crate::fabric::{Fabric, Spec};
use crate::programs::{perftest, Launcher, Pair};
use crate::report::{self, median, Table};

/// Pairs at least: fewer say nothing about a few percent.
const PAIRS_MIN: usize = 20;
/// Between two looks of the watcher, seconds: a run of about one second is looked at several times.
const INTERVAL: &str = "0.2";
/// What may be lost, with 95 % confidence.
const RATIO_MIN: f64 = 0.97;

/// One run: megabytes per second, and CPU seconds of both sides.
fn once(launcher: &Launcher, fabric: &Fabric, pair: &Pair, watched: bool) -> Result<(f64, f64)> {
    let mut reports = 0;
    let done = pair.run_while_both(launcher, fabric, |client, server| {
        if watched {
            let pids = [client.pid, server.pid].map(|pid| pid.to_string());
            let arguments = ["stats", "--json", "--watch", INTERVAL, "--count", "1000"];
            let watcher = launcher.srdma().args(arguments).args(pids).start()?;
            // It ends with the processes that it watches.
            let out = watcher.wait()?;
            reports = out.stdout.lines().count();
        }
        Ok(())
    })?;
    let done = done.success()?;
    ensure!(!watched || reports > 0, "the watcher has seen nothing");
    let row = perftest::bandwidths(&done.client.stdout).pop().context("ib_write_bw printed no table")?;
    Ok((row.mb_per_s, (done.client.cpu + done.server.cpu).as_secs_f64()))
}

/// 64 KiB WRITEs, watched and not, in turn.
pub fn watched(launcher: &Launcher, options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    let pairs = options.pairs.max(PAIRS_MIN);
    let pair = Pair::new("ib_write_bw -F -s 65536 -D 1").limit(60);
    let fabric = Fabric::build(Spec::pair())?;
    report::say(&format!(
        "64 KiB WRITEs with and without `srdma stats --watch {INTERVAL}`, {pairs} pairs of one second each"
    ));
    let (mut speeds, mut cpus) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut rounds = Rounds::default();
    for number in 0..pairs {
        // Each comes first as often as the other, so that neither profits of a machine that warms up.
        let order = [number % 2 == 0, number % 2 != 0];
        let runs = rounds.take(|| {
            let mut runs = [(0.0, 0.0); 2];
            for watched in order {
                runs[usize::from(watched)] = once(launcher, &fabric, &pair, watched)?;
            }
            Ok(runs)
        })?;
        for (which, (speed, cpu)) in runs.into_iter().enumerate() {
            speeds[which].push(speed);
            cpus[which].push(cpu);
        }
    }
    let [plain, seen] = &speeds;
    let ratios: Vec<f64> = seen.iter().zip(plain).map(|(seen, plain)| seen / plain).collect();
    let (mean, half) = mean_of_ratios(&ratios);
    let mut table = Table::new(&["64 KiB WRITEs", "MB/s", "CPU s"]);
    for (name, which) in [("alone", 0), ("watched", 1)] {
        let cells = [format!("{:.0}", median(&speeds[which])), format!("{:.2}", median(&cpus[which]))];
        table.row(&[vec![name.to_owned()], cells.to_vec()].concat());
    }
    table.print();
    report::say(&format!(
        "watched / alone: {mean:.3}, with 95 % confidence {:.3} to {:.3}",
        mean / half,
        mean * half
    ));
    judged.push(Judged::at_least("watched / alone (lower 95 % bound)", mean / half, RATIO_MIN).goal());
    Ok(json!({
        "alone_mb_per_s": plain, "watched_mb_per_s": seen, "ratio": ratios,
        "ratio_mean": mean, "ratio_low": mean / half, "ratio_high": mean * half,
        "alone_cpu_s": cpus[0], "watched_cpu_s": cpus[1], "rounds": rounds.json(),
    }))
}

/// Geometric mean, and the factor that its 95 % confidence interval reaches to either side (Student's t).
fn mean_of_ratios(ratios: &[f64]) -> (f64, f64) {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // 2.093 for 19 degrees of freedom; for more it is less, so this is on the safe side.
    let half = 2.093 * (variance / n).sqrt();
    (mean.exp(), half.exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_mean_and_grows_with_the_spread() {
        let (mean, half) = mean_of_ratios(&[1.0; 20]);
        assert_eq!((mean, half), (1.0, 1.0));
        let spread: Vec<f64> = (0..20).map(|i| if i % 2 == 0 { 0.9 } else { 1.0 / 0.9 }).collect();
        let (mean, half) = mean_of_ratios(&spread);
        assert!((mean - 1.0).abs() < 1e-9 && (half - 1.0519).abs() < 1e-3, "{mean} {half}");
    }
}
