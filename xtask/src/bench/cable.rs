//! One unlimited cable: our bandwidth beside one TCP stream, UCX over TCP, and what bare UDP gives on the same ground.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{json, Value};

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

/// Runs perftest once.
fn ours(launcher: &Launcher, fabric: &Fabric, program: &str, into: &mut Series) -> Result<()> {
    let pair = Pair::new(&format!("{program} -F -s {MESSAGE_BYTES} -n {MESSAGES}")).limit(120);
    let done = pair.run(launcher, fabric)?.success()?;
    let row = perftest::bandwidths(&done.client.stdout).pop().context("perftest printed no table")?;
    let gigabytes = (MESSAGES * MESSAGE_BYTES) as f64 / 1e9;
    into.mb_per_s.push(row.mb_per_s);
    into.cpu_s_per_gb.push((done.client.cpu + done.server.cpu).as_secs_f64() / gigabytes);
    Ok(())
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
    let [mut write, mut read, mut send, mut tcp, mut other_tcp, mut ucx, mut bare] =
        std::array::from_fn(|_| Series::default());
    for round in 1..=options.pairs {
        ours(launcher, &fabric, "ib_write_bw", &mut write)?;
        for (control, series) in [(&control, &mut tcp), (&other, &mut other_tcp)] {
            let stream = iperf3::run_bytes(&fabric, control, bytes)?;
            series.mb_per_s.push(stream.mb_per_s);
            series.cpu_s_per_gb.push(stream.cpu_s / (stream.bytes as f64 / 1e9));
        }
        let blast = udp::ceiling(&fabric, 1500, BLAST)?;
        bare.mb_per_s.push(blast.mb_per_s);
        bare.cpu_s_per_gb.push(blast.cpu_s_per_gb);
        ours(launcher, &fabric, "ib_read_bw", &mut read)?;
        ours(launcher, &fabric, "ib_send_bw", &mut send)?;
        ucx.mb_per_s.push(ucx::put(&fabric, MESSAGE_BYTES, MESSAGES)?.mb_per_s);
        let last = |series: &Series| series.mb_per_s.last().copied().unwrap_or(0.0);
        report::say(&format!(
            "  {round}: WRITE {:.0}, READ {:.0}, SEND {:.0}, TCP {:.0} ({other} {:.0}), UCX over TCP {:.0}, \
             bare UDP {:.0} MB/s (packets of {})",
            last(&write),
            last(&read),
            last(&send),
            last(&tcp),
            last(&other_tcp),
            last(&ucx),
            blast.mb_per_s,
            blast.segment_bytes
        ));
    }
    let mut table = Table::new(&["1 MiB over a cable", "MB/s", "Gbit/s", "CPU s per GB"]);
    let [tcp_name, other_name] = [&control, &other].map(|name| format!("iperf3, one TCP stream, {name}"));
    let rows = [
        ("ib_write_bw, ours", &write),
        ("ib_read_bw, ours", &read),
        ("ib_send_bw, ours", &send),
        (&tcp_name, &tcp),
        (&other_name, &other_tcp),
        ("ucx_perftest over TCP", &ucx),
        ("bare UDP, nothing acknowledged", &bare),
    ];
    rows.iter().for_each(|(name, series)| table.row(&series.row(name)));
    table.print();
    for (what, value, least) in [
        ("WRITE / one TCP stream (median of rounds)", write.over(&tcp), 2.0),
        ("WRITE / UCX put over TCP", write.over(&ucx), 2.0),
        ("READ / WRITE", read.over(&write), 0.85),
        ("SEND / WRITE", send.over(&write), 0.85),
    ] {
        judged.push(Judged::at_least(what, value, least));
    }
    let what = format!("the same beside {other}");
    judged.push(Judged::at_least(what, write.over(&other_tcp), 2.0).goal());
    judged.push(Judged::at_least("WRITE / bare UDP", write.over(&bare), 0.6).goal());
    Ok(json!({
        "write": write.json(), "read": read.json(), "send": send.json(),
        "tcp": tcp.json(), "tcp_control": control, "other_tcp": other_tcp.json(), "other_tcp_control": other,
        "ucx": ucx.json(), "udp": bare.json(),
    }))
}
