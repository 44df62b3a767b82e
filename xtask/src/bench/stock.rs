//! What an ordinary user gets where the system grants sockets little: 1 MiB WRITEs with small socket buffers.
//!
//! `net.core.rmem_max` and `wmem_max` belong to the whole machine, not to a network namespace, so the device is told to
//! ask for no more than they would grant. TCP is not held by them: it grows within `tcp_rmem` and `tcp_wmem`.

use anyhow::{Context, Result};
use serde_json::{json, Value};

use super::{Judged, Options};
use crate::fabric::{Fabric, Spec};
use crate::programs::{iperf3, perftest, Launcher, Pair};
use crate::report::{self, median, Table};

const MESSAGES: u64 = 2_000;
const MESSAGE_BYTES: u64 = 1 << 20;
/// What some distributions and what Linux by itself grant, bytes, and whether that is promised to suffice; the first is as
/// much as the device likes.
const LIMITS: [(&str, Option<u32>, bool); 3] =
    [("as asked for", None, true), ("4 MiB", Some(4 << 20), true), ("212,992 bytes", Some(212_992), false)];

/// Everything measured with one size of buffers, one value per round.
#[derive(Default)]
struct Series {
    mb_per_s: Vec<f64>,
    cpu_s_per_gb: Vec<f64>,
    /// Packets that the receiver's kernel had no room for.
    kernel_drops: Vec<f64>,
    /// Packets sent again, per thousand.
    again_per_mille: Vec<f64>,
}

impl Series {
    fn add(&mut self, launcher: &Launcher, fabric: &Fabric, bytes_max: Option<u32>) -> Result<()> {
        let options = bytes_max.map_or(String::new(), |bytes| format!("--socket-buffer {bytes}"));
        let pair = Pair::new(&format!("ib_write_bw -F -s {MESSAGE_BYTES} -n {MESSAGES}"));
        let done = pair.options(&options).limit(120).run(launcher, fabric)?.success()?;
        let row = perftest::bandwidths(&done.client.stdout).pop().context("perftest printed no table")?;
        let gigabytes = (MESSAGES * MESSAGE_BYTES) as f64 / 1e9;
        let (sent, received) = (done.client_stats()?, done.server_stats()?);
        self.mb_per_s.push(row.mb_per_s);
        self.cpu_s_per_gb.push((done.client.cpu + done.server.cpu).as_secs_f64() / gigabytes);
        self.kernel_drops.push(received.kernel_drops() as f64);
        self.again_per_mille.push(1e3 * sent.retransmitted() as f64 / sent.packets_sent().max(1) as f64);
        Ok(())
    }

    fn row(&self, name: &str) -> Vec<String> {
        vec![
            format!("WRITE, buffers {name}"),
            format!("{:.0}", median(&self.mb_per_s)),
            format!("{:.2}", median(&self.cpu_s_per_gb)),
            format!("{:.0}", median(&self.kernel_drops)),
            format!("{:.2}", median(&self.again_per_mille)),
        ]
    }

    /// Median of the ratios round by round.
    fn over(&self, other: &[f64]) -> f64 {
        median(&self.mb_per_s.iter().zip(other).map(|(a, b)| a / b).collect::<Vec<_>>())
    }

    fn json(&self) -> Value {
        json!({
            "mb_per_s": self.mb_per_s, "cpu_s_per_gb": self.cpu_s_per_gb, "kernel_drops": self.kernel_drops,
            "again_per_mille": self.again_per_mille,
        })
    }
}

/// 1 MiB WRITEs with buffers of every size in turn, beside one TCP stream.
pub(super) fn section(launcher: &Launcher, options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    let fabric = Fabric::build(Spec::pair())?;
    let control = iperf3::default_control(&fabric)?;
    report::say(&format!("1 MiB WRITEs with small socket buffers, {} rounds", options.pairs));
    let mut all: [Series; LIMITS.len()] = std::array::from_fn(|_| Series::default());
    let (mut tcp, mut tcp_cpu) = (Vec::new(), Vec::new());
    for round in 1..=options.pairs {
        for (series, (_, bytes_max, _)) in all.iter_mut().zip(LIMITS) {
            series.add(launcher, &fabric, bytes_max)?;
        }
        let stream = iperf3::run_bytes(&fabric, &control, MESSAGES * MESSAGE_BYTES)?;
        tcp.push(stream.mb_per_s);
        tcp_cpu.push(stream.cpu_s / (stream.bytes as f64 / 1e9));
        let said = all.iter().zip(LIMITS).map(|(series, (name, ..))| {
            format!("{name} {:.0}", series.mb_per_s.last().copied().unwrap_or(0.0))
        });
        let said = said.collect::<Vec<_>>().join(", ");
        report::say(&format!("  {round}: {said}, TCP {:.0} MB/s", stream.mb_per_s));
    }
    let head = ["1 MiB over a cable", "MB/s", "CPU s per GB", "dropped by the kernel", "sent again, ‰"];
    let mut table = Table::new(&head);
    all.iter().zip(LIMITS).for_each(|(series, (name, ..))| table.row(&series.row(name)));
    let cells = [format!("{:.0}", median(&tcp)), format!("{:.2}", median(&tcp_cpu))];
    table.row(&[vec![format!("iperf3, one TCP stream, {control}")], cells.to_vec()].concat());
    table.print();
    for (series, (name, _, promised)) in all.iter().zip(LIMITS).skip(1) {
        let of_large = series.over(&all[0].mb_per_s);
        report::say(&format!("  buffers of {name}: {of_large:.2} of what large ones give"));
        let line = Judged::at_least(format!("WRITE / TCP, buffers of {name}"), series.over(&tcp), 1.0);
        judged.push(if promised { line } else { line.goal() });
    }
    let mut json: serde_json::Map<String, Value> =
        all.iter().zip(LIMITS).map(|(series, (name, ..))| (name.to_owned(), series.json())).collect();
    json.insert("tcp".into(), json!({"mb_per_s": tcp, "cpu_s_per_gb": tcp_cpu}));
    Ok(json.into())
}
