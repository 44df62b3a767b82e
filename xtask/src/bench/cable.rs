//! One unlimited cable: our bandwidth beside one TCP stream, UCX over TCP, and what bare UDP gives on the same ground.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{json, Value};

use super::cores::Rounds;
use super::{udp, Judged, Options};
use crate::fabric::{Fabric, Spec};
use crate::programs::{iperf3, perftest, ucx, Launcher, Pair};
use crate::report::{self, median, Table};

const MESSAGES: u64 = 3000;
const MESSAGE_BYTES: u64 = 1 << 20;
/// A blast of one packet size.
const BLAST: Duration = Duration::from_millis(500);

/// Everything measured of one contender, one value per round.
#[derive(Default)]
struct Series {
    mb_per_s: Vec<f64>,
    cpu_s_per_gb: Vec<f64>,
}

impl Series {
    fn row(&self, name: &str) -> Vec<String> {
        let speed = median(&self.mb_per_s);
        let cpu = match self.cpu_s_per_gb[..] {
            [] => String::new(),
            _ => format!("{:.2}", median(&self.cpu_s_per_gb)),
        };
        vec![name.into(), format!("{speed:.0}"), format!("{:.1}", speed * 8.0 / 1000.0), cpu]
    }

    /// Median of the ratios round by round.
    fn over(&self, other: &Series) -> f64 {
        let ratios: Vec<f64> = self.mb_per_s.iter().zip(&other.mb_per_s).map(|(a, b)| a / b).collect();
        median(&ratios)
    }

    fn json(&self) -> Value {
        json!({"mb_per_s": self.mb_per_s, "cpu_s_per_gb": self.cpu_s_per_gb})
    }
}

/// Speed, and processor time for each gigabyte if it is known.
#[derive(Clone, Copy)]
struct Speed {
    mb_per_s: f64,
    cpu_s_per_gb: Option<f64>,
}

/// Runs perftest once.
fn ours(launcher: &Launcher, fabric: &Fabric, program: &str) -> Result<Speed> {
    let pair = Pair::new(&format!("{program} -F -s {MESSAGE_BYTES} -n {MESSAGES}")).limit(120);
    let done = pair.run(launcher, fabric)?.success()?;
    let row = perftest::bandwidths(&done.client.stdout).pop().context("perftest printed no table")?;
    let gigabytes = (MESSAGES * MESSAGE_BYTES) as f64 / 1e9;
    let cpu_s_per_gb = Some((done.client.cpu + done.server.cpu).as_secs_f64() / gigabytes);
    Ok(Speed { mb_per_s: row.mb_per_s, cpu_s_per_gb })
}

fn tcp(fabric: &Fabric, control: &str) -> Result<Speed> {
    let stream = iperf3::run_bytes(fabric, control, MESSAGES * MESSAGE_BYTES)?;
    let cpu_s_per_gb = Some(stream.cpu_s / (stream.bytes as f64 / 1e9));
    Ok(Speed { mb_per_s: stream.mb_per_s, cpu_s_per_gb })
}

/// Every contender once: WRITE, TCP, TCP with another control, bare UDP, READ, SEND, UCX; and bare UDP's best packet size.
fn round(launcher: &Launcher, fabric: &Fabric, controls: [&str; 2]) -> Result<([Speed; 7], usize)> {
    let write = ours(launcher, fabric, "ib_write_bw")?;
    let [default, other] = controls;
    let (default, other) = (tcp(fabric, default)?, tcp(fabric, other)?);
    let blast = udp::ceiling(fabric, 1500, BLAST)?;
    let bare = Speed { mb_per_s: blast.mb_per_s, cpu_s_per_gb: Some(blast.cpu_s_per_gb) };
    let read = ours(launcher, fabric, "ib_read_bw")?;
    let send = ours(launcher, fabric, "ib_send_bw")?;
    let put = ucx::put(fabric, MESSAGE_BYTES, MESSAGES)?;
    let ucx = Speed { mb_per_s: put.mb_per_s, cpu_s_per_gb: None };
    Ok(([write, default, other, bare, read, send, ucx], blast.segment_bytes))
}

/// Bandwidth of 1 MiB messages, rounds of every contender in turn.
pub(super) fn section(launcher: &Launcher, options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    let fabric = Fabric::build(Spec::pair())?;
    let bytes = MESSAGES * MESSAGE_BYTES;
    report::say(&format!(
        "1 MiB messages over a cable, {} rounds of {}",
        options.pairs,
        report::bytes(bytes)
    ));
    // How fast TCP is also depends on this, and systems differ in what they choose.
    let control = iperf3::default_control(&fabric)?;
    let is_other = |name: &String| *name != control && (name == "cubic" || name == "bbr");
    let other = iperf3::congestion_controls()?.into_iter().find(is_other).unwrap_or_else(|| "reno".into());
    let mut all: [Series; 7] = Default::default();
    let mut rounds = Rounds::default();
    for number in 1..=options.pairs {
        let (speeds, segment_bytes) = rounds.take(|| round(launcher, &fabric, [&control, &other]))?;
        for (series, speed) in all.iter_mut().zip(speeds) {
            series.mb_per_s.push(speed.mb_per_s);
            series.cpu_s_per_gb.extend(speed.cpu_s_per_gb);
        }
        let [write, tcp, other_tcp, bare, read, send, ucx] = speeds.map(|speed| speed.mb_per_s);
        report::say(&format!(
            "  {number}: WRITE {write:.0}, READ {read:.0}, SEND {send:.0}, TCP {tcp:.0} ({other} {other_tcp:.0}), \
             UCX over TCP {ucx:.0}, bare UDP {bare:.0} MB/s (packets of {segment_bytes}); {}",
            rounds.last()
        ));
    }
    let [write, tcp, other_tcp, bare, read, send, ucx] = &all;
    let mut table = Table::new(&["1 MiB over a cable", "MB/s", "Gbit/s", "CPU s per GB"]);
    let [tcp_name, other_name] = [&control, &other].map(|name| format!("iperf3, one TCP stream, {name}"));
    let rows = [
        ("ib_write_bw, ours", write),
        ("ib_read_bw, ours", read),
        ("ib_send_bw, ours", send),
        (&tcp_name, tcp),
        (&other_name, other_tcp),
        ("ucx_perftest over TCP", ucx),
        ("bare UDP, nothing acknowledged", bare),
    ];
    rows.iter().for_each(|(name, series)| table.row(&series.row(name)));
    table.print();
    for (what, value, least) in [
        ("WRITE / one TCP stream (median of rounds)", write.over(tcp), 2.0),
        ("WRITE / UCX put over TCP", write.over(ucx), 2.0),
        ("READ / WRITE", read.over(write), 0.85),
        ("SEND / WRITE", send.over(write), 0.85),
    ] {
        judged.push(Judged::at_least(what, value, least));
    }
    let what = format!("the same beside {other}");
    judged.push(Judged::at_least(what, write.over(other_tcp), 2.0).goal());
    judged.push(Judged::at_least("WRITE / bare UDP", write.over(bare), 0.6).goal());
    Ok(json!({
        "write": write.json(), "read": read.json(), "send": send.json(),
        "tcp": tcp.json(), "tcp_control": control, "other_tcp": other_tcp.json(), "other_tcp_control": other,
        "ucx": ucx.json(), "udp": bare.json(), "rounds": rounds.json(),
    }))
}
