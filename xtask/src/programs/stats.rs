//! The statistics that a program on our library leaves (`srdma run --stats FILE`). The only place that knows
//! where in the JSON a number is.

use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use serde_json::Value;

use super::Launcher;

/// The one device of process `pid` as it is now; `None` before it has one and after its end.
pub fn live(launcher: &Launcher, pid: i32) -> Result<Option<Value>> {
    let out = launcher.srdma().args(["stats", "--json", &pid.to_string()]).run()?;
    match out.code {
        Some(0) => {
            let report: Value = serde_json::from_str(&out.stdout).context("srdma stats printed no JSON")?;
            Ok(report["devices"].get(0).cloned())
        }
        Some(1) => Ok(None),
        _ => bail!("{}", out.story()),
    }
}

/// One process's statistics.
#[derive(Clone, Debug)]
pub struct Stats {
    faults: Value,
    queue_pairs: Vec<Value>,
    socket: Value,
    memory: Value,
}

impl Stats {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Stats> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("no statistics in {}", file.display()))?;
        let json = serde_json::from_str(&text).context("statistics are not JSON")?;
        Stats::from_json(json)
    }

    /// Of the object that `--stats` writes, or of a device of `srdma stats --json`.
    pub fn from_json(json: Value) -> Result<Stats> {
        ensure!(json["version"] == 1, "statistics of version {}, this reads 1", json["version"]);
        let mut queue_pairs = json["qps"].as_array().context("statistics have no qps")?.clone();
        // The sum of those that are no longer listed.
        queue_pairs.extend(json.get("unlisted").filter(|sum| sum.is_object()).cloned());
        let part = |name: &str| json[name].clone();
        Ok(Stats { faults: part("faults"), queue_pairs, socket: part("socket"), memory: part("memory") })
    }

    fn sum(&self, name: &str) -> u64 {
        self.queue_pairs.iter().filter_map(|qp| qp[name].as_u64()).sum()
    }

    /// What a plan of faults has done, all kinds together.
    pub fn faults(&self) -> u64 {
        const KINDS: [&str; 6] = ["drops", "duplicates", "corruptions", "delays", "freezes", "failures"];
        KINDS.iter().filter_map(|kind| self.faults[*kind].as_u64()).sum()
    }

    /// System calls that sent something.
    pub fn send_calls(&self) -> u64 {
        self.socket["send_calls"].as_u64().unwrap_or(0)
    }

    /// System calls that received something or found nothing.
    pub fn receive_calls(&self) -> u64 {
        self.socket["receive_calls"].as_u64().unwrap_or(0)
    }

    /// Those of them that found nothing.
    pub fn receive_empty(&self) -> u64 {
        self.socket["receive_empty"].as_u64().unwrap_or(0)
    }

    /// System calls that moved received bytes to their place; what the socket put there itself took none.
    pub fn placement_calls(&self) -> u64 {
        self.memory["placement_calls"].as_u64().unwrap_or(0)
    }

    /// Packets whose payload the socket put in its place.
    pub fn placed_straight(&self) -> u64 {
        self.memory["placed_straight"].as_u64().unwrap_or(0)
    }

    /// Datagrams that the kernel had no room for.
    pub fn kernel_drops(&self) -> u64 {
        self.socket["kernel_drops"].as_u64().unwrap_or(0)
    }

    /// Bytes sent, headers included.
    pub fn bytes_sent(&self) -> u64 {
        self.sum("bytes_sent")
    }

    /// The same, added up over paths.
    pub fn path_bytes_sent(&self) -> u64 {
        let paths = self.queue_pairs.iter().filter_map(|qp| qp["paths"].as_array()).flatten();
        paths.filter_map(|path| path["bytes"].as_u64()).sum()
    }

    /// Packets sent, first and again.
    pub fn packets_sent(&self) -> u64 {
        self.sum("packets_sent")
    }

    /// Packets accepted.
    pub fn packets_received(&self) -> u64 {
        self.sum("packets_received")
    }

    /// Payload bytes received.
    pub fn payload_received(&self) -> u64 {
        self.sum("bytes_received")
    }

    /// Acknowledgements sent by themselves.
    pub fn acks_sent(&self) -> u64 {
        self.sum("acks_sent")
    }

    /// Spray units sent.
    pub fn units_sent(&self) -> u64 {
        self.sum("units_sent")
    }

    /// Packets sent again, whatever the cause.
    pub fn retransmitted(&self) -> u64 {
        let causes = self.queue_pairs.iter().filter_map(|qp| qp["retransmitted"].as_object());
        causes.flat_map(|causes| causes.values()).filter_map(Value::as_u64).sum()
    }

    /// Codes of the error table by which queue pairs failed (`srdma explain CODE`).
    pub fn failures(&self) -> Vec<u64> {
        self.queue_pairs.iter().filter_map(|qp| qp["failure"].as_u64()).filter(|&code| code != 0).collect()
    }

    /// Paths that at least one unit was sent on: of the queue pair that used most.
    pub fn paths_used(&self) -> usize {
        let paths = self.queue_pairs.iter().filter_map(|qp| qp["paths"].as_array());
        let used = |path: &&Value| path["units"].as_u64().unwrap_or(0) > 0;
        paths.map(|paths| paths.iter().filter(used).count()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_summed_over_queue_pairs() {
        let qp = json!({
            "units_sent": 3, "bytes_sent": 100, "bytes_received": 20, "retransmitted": {"rto": 1, "age": 2},
            "paths": [{"path": 0, "units": 2}, {"path": 1, "units": 0}, {"path": 7, "units": 1}],
        });
        let stats =
            Stats::from_json(json!({"version": 1, "socket": {"bytes_sent": 999}, "qps": [qp, qp]})).unwrap();
        assert_eq!((stats.units_sent(), stats.bytes_sent(), stats.payload_received()), (6, 200, 40));
        assert_eq!((stats.retransmitted(), stats.paths_used()), (6, 2));
    }

    #[test]
    fn another_version_is_refused() {
        assert!(Stats::from_json(json!({"version": 2, "qps": []})).is_err());
    }
}
