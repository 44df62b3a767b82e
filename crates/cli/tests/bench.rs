//! `srdma bench net` between two processes over loopback: everything is measured, and every byte is read back.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use support::{stderr, stdout, SRDMA};

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(SRDMA);
    command.env_clear().env("SRDMA_STATS_SOCKET", "off").args(["bench", "net"]).args(arguments);
    command
}

/// The side without HOST, killed at the end.
struct Target(Child, String);

impl Target {
    fn start() -> Target {
        let mut child = bench(&["--port", "0", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        Target(child, told["listening"]["port"].to_string())
    }

    fn measure(&self, arguments: &[&str]) -> Output {
        bench(&["127.0.0.1", "--port", &self.1, "--seconds", "0.2"]).args(arguments).output().unwrap()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn bandwidth_rate_and_latency_are_measured_and_every_byte_is_read_back() {
    let target = Target::start();
    let output = target.measure(&["--json", "--qps", "2", "--loss", "1%", "--seed", "7"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    for (name, bytes) in [("write_bandwidth", 1 << 20), ("read_bandwidth", 1 << 20), ("write_rate", 64)] {
        let result = &report["results"][name];
        assert_eq!(result["message_bytes"], bytes, "{report:#}");
        assert!(
            result["messages"].as_u64() > Some(0) && result["bytes_per_s"].as_f64() > Some(0.0),
            "{result}"
        );
    }
    for name in ["write_latency", "read_latency"] {
        let result = &report["results"][name];
        let of = |key: &str| result[key].as_u64().unwrap();
        assert!(of("least_ns") > 0 && of("messages") > 0, "{result}");
        assert!(of("least_ns") <= of("p50_ns") && of("p50_ns") <= of("p99_ns"), "{result}");
        assert!(of("p99_ns") <= of("p999_ns") && of("p999_ns") <= of("most_ns"), "{result}");
    }
    assert_eq!((&report["qps"], &report["verified_bytes"]), (&2.into(), &(4 * (8u64 << 20)).into()));
    // The same listener serves the next one.
    let text = stdout(&target.measure(&[]));
    for part in ["write bandwidth, 1.05 MB", "bit/s", "s/GB", "99.9 %", "every byte right"] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn a_wrong_byte_is_noticed_and_nobody_there_is_said() {
    let target = Target::start();
    let output = target.measure(&["--plant"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("read back"), "{output:?}");
    let output = bench(&["127.0.0.1", "--port", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("srdma bench net"), "{output:?}");
}
