//! `srdma verify` between two processes: data moves right over lossy loopback, through our counters, and
//! damage is noticed.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use support::{Scratch, SRDMA};

const KINDS: [&str; 10] =
    ["write", "read", "send", "write-imm", "atomic", "flag", "last-byte", "overlap", "notice", "changing"];

/// How one side ended.
struct Ended {
    code: i32,
    summary: Value,
}

fn verify() -> Command {
    let mut command = Command::new(SRDMA);
    command.env_clear().arg("verify").stdout(Stdio::piped());
    command
}

/// A running target.
struct Target {
    child: Child,
    stdout: BufReader<ChildStdout>,
    port: u64,
}

impl Target {
    fn start(arguments: &[&str]) -> Target {
        let mut command = verify();
        command.args(["--listen", "--once", "--json", "--port", "0"]).args(arguments);
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        Target { child, stdout, port: told["listening"]["port"].as_u64().unwrap() }
    }

    fn end(mut self) -> Ended {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        let code = self.child.wait().unwrap().code().unwrap();
        Ended { code, summary: serde_json::from_str(&text).unwrap() }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Target {
    /// Runs a client against it.
    fn client(&self, host: &str, arguments: &[&str]) -> Ended {
        let mut command = verify();
        command.args([host, "--json", "--port", &self.port.to_string()]).args(arguments);
        let output = command.output().unwrap();
        let summary = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        Ended { code: output.status.code().unwrap(), summary }
    }
}

/// Both sides.
fn run(addresses: [&str; 2], target_arguments: &[&str], client_arguments: &[&str]) -> (Ended, Ended) {
    let target = Target::start(&[&["--addr", addresses[0]], target_arguments].concat());
    let client = target.client(addresses[0], &[&["--addr", addresses[1]], client_arguments].concat());
    (client, target.end())
}

fn bytes_of(summary: &Value, kind: &str) -> u64 {
    let kinds = summary["kinds"].as_array().unwrap();
    kinds.iter().find(|one| one["kind"] == kind).unwrap()["bytes"].as_u64().unwrap()
}

fn all_right(side: &Ended) {
    let summary = &side.summary;
    assert_eq!(side.code, 0, "{summary:#}");
    assert_eq!(summary["mismatches"], 0, "{summary:#}");
    for kind in KINDS {
        assert!(bytes_of(summary, kind) > 0, "{kind}: {summary:#}");
    }
}

fn received(stats: &Value) -> u64 {
    stats["qps"].as_array().unwrap().iter().map(|qp| qp["bytes_received"].as_u64().unwrap()).sum()
}

#[test]
fn every_kind_is_right_over_lossy_paths_and_through_our_counters() {
    for addresses in [["127.0.0.1", "127.0.0.2"], ["::1", "::1"]] {
        let scratch = Scratch::new("verify");
        let [target_stats, client_stats] = ["target", "client"].map(|side| scratch.0.join(side));
        let lossy = |stats: &Path| ["--loss", "2", "--stats", stats.to_str().unwrap()].map(str::to_owned);
        let [target_lossy, client_lossy] = [lossy(&target_stats), lossy(&client_stats)];
        let target_lossy: Vec<&str> = target_lossy.iter().map(String::as_str).collect();
        let mut client_lossy: Vec<&str> = client_lossy.iter().map(String::as_str).collect();
        client_lossy.extend(["--seconds", "3", "--seed", "20"]);
        let (client, target) = run(addresses, &target_lossy, &client_lossy);
        all_right(&client);
        all_right(&target);
        assert_eq!(client.summary["bytes"], target.summary["bytes"]);

        let read = |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
        let [target_stats, client_stats] = [read(&target_stats), read(&client_stats)];
        // Operands and results of atomics lie in headers.
        let moved = client.summary["bytes"].as_u64().unwrap() - bytes_of(&client.summary, "atomic");
        let counted = received(&target_stats) + received(&client_stats);
        // A little more: words that guard and notify.
        let plausible = moved..=moved + moved / 100;
        assert!(plausible.contains(&counted), "{counted} bytes were received, {moved} were verified");
        for stats in [&target_stats, &client_stats] {
            let socket = &stats["socket"];
            assert!(socket["fault_drops"].as_u64().unwrap() > 0, "nothing was lost: {socket:#}");
        }
    }
}

#[test]
fn damage_is_noticed_by_every_kind_and_told_to_both_sides() {
    for kind in KINDS {
        let arguments = ["--only", kind, "--seconds", "0", "--qps", "1", "--seed", "7"];
        let (client, target) = run(["127.0.0.1", "127.0.0.2"], &["--plant", kind], &arguments);
        for side in [client, target] {
            assert_eq!(side.code, 1, "{kind}: {:#}", side.summary);
            assert_eq!(side.summary["finding"]["kind"], kind);
            assert_eq!(side.summary["mismatches"], 1);
        }
    }
}

#[test]
fn damage_at_the_reading_side_is_noticed() {
    for kind in ["read", "atomic", "notice", "changing"] {
        let arguments = ["--only", kind, "--seconds", "0", "--qps", "1", "--seed", "1", "--plant", kind];
        let (client, target) = run(["127.0.0.1", "127.0.0.2"], &[], &arguments);
        for side in [client, target] {
            assert_eq!(side.code, 1, "{kind}: {:#}", side.summary);
        }
    }
}

#[test]
fn a_run_that_cannot_be_carried_out_says_why() {
    // Nobody listens on tcpmux; a port just given back may be another test's by now.
    let output = verify().args(["127.0.0.1", "--port", "1"]).output().unwrap();
    let said = support::stderr(&output);
    assert!(output.status.code() == Some(2) && said.contains("verify --listen"), "{said}");
    assert_eq!((support::stdout(&output).as_str(), said.lines().count()), ("", 1), "{said}");
    let output = verify().args(["127.0.0.1", "--port", "1", "--json"]).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = told["error"].as_str().unwrap();
    assert!(output.status.code() == Some(2) && error.contains("verify --listen"), "{told}");
    assert_eq!(told.as_object().unwrap().len(), 1, "{told}");

    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = stranger.local_addr().unwrap().port().to_string();
    let served = std::thread::spawn(move || {
        let mut stream = stranger.accept().unwrap().0;
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let output = verify().args(["127.0.0.1", "--port", &port]).output().unwrap();
    let said = support::stderr(&output);
    assert!(output.status.code() == Some(2) && said.contains("not JSON"), "{said}");
    served.join().unwrap();
}

#[test]
fn a_target_that_is_killed_ends_the_client() {
    let mut target = Target::start(&["--addr", "127.0.0.1"]);
    let port = target.port.to_string();
    let mut command = verify();
    command.args(["127.0.0.1", "--addr", "127.0.0.2", "--port", &port, "--seconds", "600", "--progress"]);
    let mut client = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(client.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("rounds"), "{line}");
    target.child.kill().unwrap();
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    assert_eq!(client.wait().unwrap().code(), Some(2), "{rest}");
    assert!(rest.contains("gone") || rest.contains("IBV_WC_RETRY_EXC_ERR"), "{rest}");
}
