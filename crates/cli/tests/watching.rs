//! `srdma stats` beside running processes: they are found, their counters move, and what they leave is removed.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{stderr, stdout, Scratch, SRDMA};

/// Whatever has not happened by then will not happen. No measure of speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two sides of `srdma verify` that go on for long; killed at the end.
struct Busy {
    target: Child,
    client: Child,
}

impl Busy {
    fn start(socket: &str) -> Busy {
        let verify = |arguments: &[&str]| {
            let mut command = Command::new(SRDMA);
            command.env_clear().env("SRDMA_STATS_SOCKET", socket).arg("verify").args(arguments);
            command.stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut target = verify(&["--listen", "--json", "--port", "0"]);
        let mut line = String::new();
        BufReader::new(target.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let port = told["listening"]["port"].to_string();
        let client = verify(&["127.0.0.1", "--port", &port, "--seconds", "300", "--qps", "2"]);
        Busy { target, client }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.target] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn stats(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(SRDMA);
    command.env_clear().env("SRDMA_STATS_SOCKET", directory).arg("stats").args(arguments);
    command.output().unwrap()
}

/// The one device of process `pid`, once it has sent something.
fn device(directory: &Path, pid: u32) -> Value {
    let begun = Instant::now();
    loop {
        let output = stats(directory, &["--json", &pid.to_string()]);
        if output.status.success() {
            let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
            let device = &report["devices"][0];
            if device["qps"].as_array().is_some_and(|qps| qps.iter().all(|qp| qp["bytes_sent"] != 0)) {
                return device.clone();
            }
        }
        assert!(begun.elapsed() < PATIENCE, "{output:?}");
    }
}

#[test]
fn running_processes_are_found_and_their_counters_move() {
    let scratch = Scratch::new("srdma-stats");
    let directory = scratch.0.join("sockets");
    // Others may run on this host; this process has no device.
    let nobody = stats(&directory, &[&std::process::id().to_string()]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("srdma run"), "{nobody:?}");

    let busy = Busy::start(directory.to_str().unwrap());
    let (client, target) = (busy.client.id(), busy.target.id());
    let (one, other) = (device(&directory, client), device(&directory, target));
    assert_eq!((&one["pid"], &one["device"]["address"]), (&client.into(), &"127.0.0.1".into()));
    assert_eq!(one["qps"].as_array().unwrap().len(), 2);
    for qp in one["qps"].as_array().unwrap() {
        assert_eq!((&qp["state"], &qp["live"]), (&"rts".into(), &true.into()));
        let there = other["qps"].as_array().unwrap().iter().find(|there| there["qpn"] == qp["peer_qpn"]);
        assert_eq!(there.unwrap()["peer_qpn"], qp["qpn"]);
        assert_eq!(qp["peer"], format!("127.0.0.1:{}", other["device"]["port"]));
        assert!(!qp["paths"].as_array().unwrap().is_empty());
    }
    let later = device(&directory, client);
    assert!(later["socket"]["sent_bytes"].as_u64() > one["socket"]["sent_bytes"].as_u64());
    assert!(later["rates"]["seconds"].as_f64().unwrap() > 0.0, "{later}");

    let text = stats(&directory, &[]);
    let text = stdout(&text);
    for part in
        [format!("srdma, process {client}"), format!("srdma, process {target}"), "RTS".into(), "█".into()]
    {
        assert!(text.contains(&part), "{part} is not in:\n{text}");
    }
    let watched = stats(&directory, &["--watch", "0.1", "--count", "3", "--json"]);
    let lines = stdout(&watched);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{lines}");

    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
    drop(busy);
    assert_eq!(stats(&directory, &[&client.to_string()]).status.code(), Some(1));
    stats(&directory, &[]);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "sockets of killed processes");
}

#[test]
fn a_process_that_is_stopped_is_said_to_be() {
    let scratch = Scratch::new("srdma-stopped");
    let directory = scratch.0.join("sockets");
    let busy = Busy::start(directory.to_str().unwrap());
    device(&directory, busy.client.id());
    // SAFETY: a child of ours that was not waited for.
    unsafe { libc::kill(busy.client.id() as libc::pid_t, libc::SIGSTOP) };
    let text = stdout(&stats(&directory, &[&busy.client.id().to_string()]));
    assert!(text.contains("is it stopped?"), "{text}");
}

#[test]
fn a_process_that_does_not_want_it_is_not_found() {
    let scratch = Scratch::new("srdma-off");
    let seen = Scratch::new("srdma-seen");
    let (busy, witness) = (Busy::start("off"), Busy::start(seen.0.join("s").to_str().unwrap()));
    // By the time that the witness moves bytes, the other one would have a socket, too.
    device(&seen.0.join("s"), witness.client.id());
    let output = stats(&scratch.0, &[&busy.client.id().to_string()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn top_without_a_terminal_says_what_to_use() {
    let output = Command::new(SRDMA).env_clear().arg("top").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("srdma stats --watch"), "{output:?}");
}
