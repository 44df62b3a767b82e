//! Small messages: how long one takes, and how many go through.

use anyhow::{Context, Result};
use serde_json::{json, Value};

use super::cores::Rounds;
use super::{udp, Judged, Options};
use crate::fabric::{Fabric, Spec};
use crate::programs::{perftest, ucx, Launcher, Pair};
use crate::report::{self, median, Table};

const BYTES: u64 = 64;
const ROUND_TRIPS: usize = 5_000;
const MESSAGES: u64 = 500_000;
/// Messages that perftest asks one completion for.
const PER_COMPLETION: u64 = 100;

/// Times of one contender, µs: one (typical, 99th percentile) per round.
#[derive(Default)]
struct Times(Vec<(f64, f64)>);

impl Times {
    fn median(&self) -> (f64, f64) {
        let of = |pick: fn(&(f64, f64)) -> f64| median(&self.0.iter().map(pick).collect::<Vec<_>>());
        (of(|times| times.0), of(|times| times.1))
    }
}

/// Half a round trip of 64 bytes, beside bare UDP waiting in the same way.
pub(super) fn latency(launcher: &Launcher, options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    let fabric = Fabric::build(Spec::pair())?;
    report::say(&format!("{BYTES} bytes there and back, half of it, {} rounds", options.pairs));
    let [mut send, mut write, mut polled, mut blocked] = std::array::from_fn(|_| Times::default());
    let mut rounds = Rounds::default();
    for number in 1..=options.pairs {
        let times = rounds.take(|| {
            let bytes = BYTES as usize;
            Ok([
                ours(launcher, &fabric, "ib_send_lat")?,
                ours(launcher, &fabric, "ib_write_lat")?,
                udp::ping_pong(&fabric, bytes, ROUND_TRIPS, udp::Wait::Polling)?,
                udp::ping_pong(&fabric, bytes, ROUND_TRIPS, udp::Wait::Blocking)?,
            ])
        })?;
        let series = [&mut send, &mut write, &mut polled, &mut blocked];
        series.into_iter().zip(times).for_each(|(series, times)| series.0.push(times));
        let [send, write, polled, blocked] = times.map(|(typical_us, _)| typical_us);
        report::say(&format!(
            "  {number}: ib_send_lat {send:.1}, UDP polled {polled:.1}; ib_write_lat {write:.1}, UDP blocking \
             {blocked:.1} µs; {}",
            rounds.last()
        ));
    }
    let mut table = Table::new(&["64 bytes, half a round trip", "typical µs", "99 % µs"]);
    for (name, times) in [
        ("ib_send_lat, ours", &send),
        ("bare UDP, both sides polling", &polled),
        ("ib_write_lat, ours", &write),
        ("bare UDP, both sides blocking", &blocked),
    ] {
        let (typical_us, p99_us) = times.median();
        table.row(&[name.into(), format!("{typical_us:.1}"), format!("{p99_us:.1}")]);
    }
    table.print();
    let ratio = |a: &Times, b: &Times| a.median().0 / b.median().0;
    let spread = |times: &Times| times.median().1 / times.median().0;
    for (what, value, most, promised) in [
        ("ib_send_lat / bare UDP, polling", ratio(&send, &polled), 1.5, false),
        ("ib_write_lat / bare UDP, blocking", ratio(&write, &blocked), 1.5, true),
        ("ib_send_lat, 99 % / typical", spread(&send), 4.0, false),
        ("ib_write_lat, 99 % / typical", spread(&write), 4.0, false),
    ] {
        let line = Judged::at_most(what, value, most);
        judged.push(if promised { line } else { line.goal() });
    }
    Ok(json!({
        "send_us": send.0, "write_us": write.0, "udp_polled_us": polled.0, "udp_blocked_us": blocked.0,
        "rounds": rounds.json(),
    }))
}

/// Half a round trip as the program tells it: (typical, 99th percentile), µs.
fn ours(launcher: &Launcher, fabric: &Fabric, program: &str) -> Result<(f64, f64)> {
    let pair = Pair::new(&format!("{program} -F -s {BYTES} -n {ROUND_TRIPS}"));
    let done = pair.run(launcher, fabric)?.success()?;
    let row = perftest::latencies(&done.client.stdout).pop().context("perftest printed no table")?;
    Ok((row.typical_us, row.p99_us))
}

/// Messages of 64 bytes per second, one queue pair and sixteen, beside UCX over TCP.
pub(super) fn rate(launcher: &Launcher, options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    let fabric = Fabric::build(Spec::pair())?;
    report::say(&format!("{BYTES}-byte WRITEs per second, {} rounds", options.pairs));
    let (mut ours, mut calls) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut theirs = Vec::new();
    for round in 1..=options.pairs {
        for (at, queue_pairs) in [1u64, 16].into_iter().enumerate() {
            // perftest itself hangs if several queue pairs do not send a multiple of what one completion stands for.
            let each = MESSAGES / queue_pairs / PER_COMPLETION * PER_COMPLETION;
            let pair = Pair::new(&format!("ib_write_bw -F -s {BYTES} -n {each} -q {queue_pairs}")).limit(120);
            let done = pair.run(launcher, &fabric)?.success()?;
            let row = perftest::bandwidths(&done.client.stdout).pop().context("perftest printed no table")?;
            ours[at].push(row.mb_per_s * 1e6 / BYTES as f64);
            let sent = done.client_stats()?.send_calls().max(1) as f64;
            calls[at].push((each * queue_pairs) as f64 / sent);
        }
        theirs.push(ucx::put(&fabric, BYTES, MESSAGES)?.messages_per_s);
        let last = |values: &[f64]| values.last().copied().unwrap_or(0.0);
        report::say(&format!(
            "  {round}: ours {:.0} and with 16 queue pairs {:.0}, UCX over TCP {:.0} per second",
            last(&ours[0]),
            last(&ours[1]),
            last(&theirs)
        ));
    }
    let mut table = Table::new(&["64-byte messages", "per second", "per sending system call"]);
    for (at, name) in ["ib_write_bw, ours", "ib_write_bw -q 16, ours"].into_iter().enumerate() {
        table.row(&[name.into(), format!("{:.0}", median(&ours[at])), format!("{:.1}", median(&calls[at]))]);
    }
    table.row(&["ucx_perftest over TCP".into(), format!("{:.0}", median(&theirs)), String::new()]);
    table.print();
    for (what, ours) in
        [("messages per second / UCX over TCP", &ours[0]), ("the same with 16 queue pairs", &ours[1])]
    {
        judged.push(Judged::at_least(what, median(ours) / median(&theirs), 2.0));
    }
    Ok(json!({
        "ours_per_s": ours[0], "ours_16_per_s": ours[1], "ucx_per_s": theirs,
        "messages_per_call": calls[0], "messages_per_call_16": calls[1],
    }))
}
