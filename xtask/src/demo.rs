//! `cargo xtask demo`: the main job on real programs, in three minutes, with something to look at.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{json, Value};

use crate::fabric::{difference, Fabric, Spec, SpineCount};
use crate::ground::{self, Ground};
use crate::programs::{iperf3, perftest, verify, Done, Launcher, Pair};
use crate::report::{bar, bytes, faint, plain, say, strong, Table};
use crate::{packages, report, suite};

const RATE_MBIT: u32 = 200;
const SPINES: usize = 4;

/// What one program showed in one network.
struct Shown {
    name: String,
    /// MB/s, or microseconds for a latency.
    value: f64,
    p99: f64,
    retransmitted: u64,
    spines: Vec<SpineCount>,
}

/// Runs it with the tree at `dist`, or builds one; writes everything to `json` if given.
pub fn run(json: Option<PathBuf>, dist: Option<PathBuf>) -> Result<bool> {
    say(&strong("Stellar: unmodified RDMA programs over 128 sprayed paths"));
    packages::ensure(&[packages::BUILD, packages::FABRIC, packages::PROGRAMS])?;
    if dist.is_none() {
        say("building (release)");
    }
    let dist = suite::built_tree(dist)?;
    let launcher = Launcher::new(&dist)?;
    let spec = match ground::stand() {
        Ground::Loopback(_) => Spec::pair(),
        Ground::Root | Ground::UserNamespace => Spec::spines(Some(RATE_MBIT)),
    };
    let clean = scene(&launcher, &spec)?;
    let lossy = match spec.spines {
        0 => None,
        _ => Some(scene(&launcher, &spec.clone().loss(&[10], false))?),
    };
    plain("");
    let mut all = vec![summary("Without loss", &clean)];
    if let Some(lossy) = &lossy {
        all.push(summary("1 % of packets lost on spine 1", lossy));
    }
    spread(&clean);
    plain(&faint("  Try it yourself:  target/dist/bin/srdma run -- ib_write_bw     (and on the other host: … ib_write_bw HOST)"));
    if let Some(file) = json {
        std::fs::write(&file, serde_json::to_string_pretty(&Value::Array(all))?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        say(&format!("written to {}", file.display()));
    }
    Ok(clean.verified.is_ok() && lossy.is_none_or(|scene| scene.verified.is_ok()))
}

struct Scene {
    shown: Vec<Shown>,
    /// Why not, if it was not.
    verified: Result<(), String>,
}

fn scene(launcher: &Launcher, spec: &Spec) -> Result<Scene> {
    let fabric = Fabric::build(spec.clone())?;
    let lossy = spec.loss_per_mille.iter().any(|&loss| loss > 0);
    match (fabric.is_real(), lossy) {
        (false, _) => say(&strong("Both sides on this machine")),
        (_, false) => say(&strong(&format!(
            "Two hosts (network namespaces), {SPINES} spines of {RATE_MBIT} Mbit/s between them"
        ))),
        (_, true) => say(&strong("The same with 1 % of all packets lost on spine 1")),
    }
    let mut shown = Vec::new();
    let watch = |work: &mut dyn FnMut() -> Result<(f64, f64, u64)>, name: &str| -> Result<Shown> {
        say(&format!("{name} …"));
        let before = fabric.counts()?;
        let (value, p99, retransmitted) = with_ticker(&fabric, work)?;
        let spines = difference(&before, &fabric.counts()?);
        Ok(Shown { name: name.into(), value, p99, retransmitted, spines })
    };
    shown.push(watch(
        &mut || {
            let tcp = iperf3::run(&fabric, 4, 1)?;
            Ok((tcp.mb_per_s, 0.0, tcp.retransmits))
        },
        "TCP, one stream (iperf3)",
    )?);
    let bandwidth = |line: &str, options: &str, name: &str| -> Result<Shown> {
        let pair = Pair::new(line).options(options).limit(60);
        watch(
            &mut || {
                let done = pair.run(launcher, &fabric)?.success()?;
                let row = perftest::bandwidths(&done.client.stdout).pop().context("no line in its table")?;
                Ok((row.mb_per_s, 0.0, retransmitted(&done)))
            },
            name,
        )
    };
    if fabric.is_real() {
        shown.push(bandwidth("ib_write_bw -F -n 1500", "--selector single", "ib_write_bw, 1 path")?);
    }
    shown.push(bandwidth("ib_write_bw -F -n 5000", "", "ib_write_bw, 128 paths")?);
    shown.push(bandwidth("ib_read_bw -F -n 3000", "", "ib_read_bw, 128 paths")?);
    shown.push(watch(
        &mut || {
            let (round_trip_us, p99_us) = iperf3::ping_pong(&fabric, 3000)?;
            Ok((round_trip_us / 2.0, p99_us / 2.0, 0))
        },
        "TCP, 1 byte",
    )?);
    let lat = Pair::new("ib_send_lat -F -n 3000").limit(60);
    shown.push(watch(
        &mut || {
            let done = lat.run(launcher, &fabric)?.success()?;
            let row = perftest::latencies(&done.client.stdout).pop().context("no line in its table")?;
            Ok((row.typical_us, row.p99_us, retransmitted(&done)))
        },
        "ib_send_lat, 2 bytes, 128 paths",
    )?);
    say("srdma verify: patterns sent, every byte checked …");
    let verified = match verify::run(launcher, &fabric, 6, &[]) {
        Ok(said) => {
            say(&format!("    {said}"));
            Ok(())
        }
        Err(error) => {
            report::note(&format!("{error:#}"));
            Err(why_not(&error))
        }
    };
    Ok(Scene { shown, verified })
}

/// In a line, why data was not verified; never nothing.
fn why_not(error: &anyhow::Error) -> String {
    match error.downcast_ref::<verify::NotVerified>() {
        Some(failed) => failed.reason(),
        None => format!("the check could not start; {}", format!("{error:#}").replace('\n', " ")),
    }
}

/// Says once a second, while `work` goes on, how fast bytes cross each spine.
fn with_ticker<T>(fabric: &Fabric, work: &mut dyn FnMut() -> Result<T>) -> Result<T> {
    if !fabric.is_real() {
        return work();
    }
    std::thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        scope.spawn(move || {
            let mut before = fabric.counts();
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(Duration::from_secs(1)) {
                let now = fabric.counts();
                if let (Ok(before), Ok(now)) = (&before, &now) {
                    say(&speeds(&difference(before, now)));
                }
                before = now;
            }
        });
        let result = work();
        drop(stop);
        result
    })
}

/// Speed of the last second over each spine, as small bars against its limit.
fn speeds(crossed_in_a_second: &[SpineCount]) -> String {
    let limit = f64::from(RATE_MBIT) * 1e6 / 8.0;
    let bars = crossed_in_a_second.iter().map(|spine| {
        let busier = spine.forward_bytes.max(spine.backward_bytes) as f64;
        format!("{} {:5.1}", bar(busier / limit, 8), busier / 1e6)
    });
    format!("    {} MB/s by spine", bars.collect::<Vec<_>>().join("  "))
}

fn retransmitted(done: &Done) -> u64 {
    [&done.client_stats, &done.server_stats].into_iter().flatten().map(|stats| stats.retransmitted()).sum()
}

fn summary(title: &str, scene: &Scene) -> Value {
    plain(&strong(&format!("  {title}")));
    let (latencies, speeds): (Vec<&Shown>, Vec<&Shown>) =
        scene.shown.iter().partition(|shown| shown.p99 > 0.0);
    let mut table = Table::new(&["how fast data moves", "MB/s", "went over", "packets sent again"]);
    for shown in speeds {
        let again = shown.retransmitted.to_string();
        table.row(&[shown.name.clone(), format!("{:.1}", shown.value), went_over(&shown.spines), again]);
    }
    table.print();
    plain("");
    let mut table =
        Table::new(&["how long a small message takes, one way", "typical", "99 % take less than"]);
    for shown in latencies {
        let us = |value: f64| format!("{value:.0} µs");
        table.row(&[shown.name.clone(), us(shown.value), us(shown.p99)]);
    }
    table.print();
    plain("");
    let verified = match &scene.verified {
        Ok(()) => report::good("yes"),
        Err(why) => report::bad(&format!("NO: {why}")),
    };
    plain(&format!("  data verified: {verified}\n"));
    let rows: Vec<Value> = scene
        .shown
        .iter()
        .map(|shown| {
            let spines: Vec<u64> = shown.spines.iter().map(crossed).collect();
            json!({
                "name": shown.name, "value": shown.value, "p99_us": shown.p99,
                "retransmitted": shown.retransmitted, "bytes_by_spine": spines,
            })
        })
        .collect();
    json!({"title": title, "rows": rows, "data_verified": scene.verified.is_ok(), "data_not_verified": scene.verified.as_ref().err()})
}

/// The spines that carried more than a stray share, which acknowledgements on their way back are.
fn went_over(spines: &[SpineCount]) -> String {
    let total: u64 = spines.iter().map(crossed).sum();
    let busy: Vec<usize> = (0..spines.len())
        .filter(|&index| crossed(&spines[index]) * 10 > total)
        .map(|index| index + 1)
        .collect();
    match &busy[..] {
        [] => String::new(),
        [one] => format!("spine {one}"),
        all if all.len() == spines.len() => format!("all {} spines", all.len()),
        some => format!("spines {}", some.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")),
    }
}

fn crossed(spine: &SpineCount) -> u64 {
    spine.forward_bytes + spine.backward_bytes
}

/// A bar per spine for one path and for all, by the kernel's counters.
fn spread(scene: &Scene) {
    let wanted = |shown: &&Shown| shown.name.starts_with("ib_write_bw") && !shown.spines.is_empty();
    for shown in scene.shown.iter().filter(wanted) {
        let total: u64 = shown.spines.iter().map(crossed).sum();
        plain(&strong(&format!("  {}: bytes over each spine (kernel counters)", shown.name)));
        for (index, spine) in shown.spines.iter().enumerate() {
            let share = crossed(spine) as f64 / total.max(1) as f64;
            let line = format!(
                "  spine {} {} {:5.1} %  {}",
                index + 1,
                bar(share, 40),
                share * 100.0,
                bytes(crossed(spine))
            );
            plain(&line);
        }
        plain("");
    }
}
