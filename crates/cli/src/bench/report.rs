//! What was measured, for people and as JSON.

use super::measure::{Flow, Latency};
use crate::stats::amount::{amount, bits, bytes, time};
use serde_json::{json, Map, Value};
use std::fmt::Write;

/// Everything.
#[derive(Debug, Default)]
pub struct Report {
    /// The other side.
    pub host: String,
    /// Paths of each connection.
    pub paths: u16,
    /// Queue pairs.
    pub qps: usize,
    /// Loads by name.
    pub flows: Vec<(&'static str, Flow)>,
    /// Latencies by name.
    pub latencies: Vec<(&'static str, Latency)>,
    /// Bytes that were read back and right.
    pub verified_bytes: u64,
}

impl Flow {
    fn per_second(&self) -> f64 {
        self.messages as f64 / self.seconds.max(1e-9)
    }

    fn total_bytes(&self) -> f64 {
        self.messages as f64 * f64::from(self.bytes)
    }
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("to {}: {} queue pairs, {} paths each\n\n", self.host, self.qps, self.paths);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<24} {:>12} {:>14} {:>14}", "load", "bandwidth", "messages/s", "CPU here");
        for (name, flow) in &self.flows {
            let bandwidth = bits(flow.total_bytes() / flow.seconds.max(1e-9));
            let cpu = format!("{:.2} s/GB", flow.cpu_seconds / (flow.total_bytes() / 1e9).max(1e-9));
            let rate = amount(flow.per_second(), "");
            let label = format!("{}, {}", name.replace('_', " "), bytes(flow.bytes.into()));
            let _ = writeln!(text, "{label:<24} {bandwidth:>12} {rate:>14} {cpu:>14}");
        }
        let _ = writeln!(
            text,
            "\n{:<24} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "posted to completed", "least", "median", "99 %", "99.9 %", "most"
        );
        for (name, l) in &self.latencies {
            let label = format!("{}, {}", name.replace('_', " "), bytes(l.bytes.into()));
            let [least, p50, p99, p999, most] =
                [l.least_ns, l.p50_ns, l.p99_ns, l.p999_ns, l.most_ns].map(time);
            let _ = writeln!(text, "{label:<24} {least:>10} {p50:>10} {p99:>10} {p999:>10} {most:>10}");
        }
        let _ = writeln!(text, "\n{} read back, every byte right", bytes(self.verified_bytes));
        text
    }

    /// As JSON.
    pub fn object(&self) -> Value {
        let mut results = Map::new();
        for (name, flow) in &self.flows {
            let value = json!({
                "message_bytes": flow.bytes,
                "messages": flow.messages,
                "seconds": flow.seconds,
                "bytes_per_s": (flow.total_bytes() / flow.seconds.max(1e-9)).round(),
                "messages_per_s": flow.per_second().round(),
                "cpu_seconds": flow.cpu_seconds,
            });
            results.insert((*name).into(), value);
        }
        for (name, l) in &self.latencies {
            let value = json!({
                "message_bytes": l.bytes, "messages": l.messages, "least_ns": l.least_ns, "p50_ns": l.p50_ns,
                "p99_ns": l.p99_ns, "p999_ns": l.p999_ns, "most_ns": l.most_ns,
            });
            results.insert((*name).into(), value);
        }
        json!({
            "version": 1, "host": self.host, "paths": self.paths, "qps": self.qps, "results": results,
            "verified_bytes": self.verified_bytes,
        })
    }
}
