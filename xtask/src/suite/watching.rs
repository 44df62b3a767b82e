//! `srdma stats` beside programs that run: what it shows while they do is what they report in the end.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use serde_json::Value;

use super::{Setting, Step};
use crate::fabric::{Fabric, Spec};
use crate::programs::stats::{self, Stats};
use crate::programs::{Launcher, Pair};

/// All of them.
pub fn steps() -> Vec<Step> {
    vec![Step::new("watch/stats-beside-a-program", beside_a_program)]
}

/// Looks until `enough`.
fn look_until(launcher: &Launcher, pid: i32, enough: impl Fn(&Stats) -> bool) -> Result<(Value, Stats)> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(device) = stats::live(launcher, pid)? {
            let stats = Stats::from_json(device.clone())?;
            if enough(&stats) {
                return Ok((device, stats));
            }
        }
        ensure!(Instant::now() < deadline, "srdma stats has not seen process {pid} move within 30 s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Counters move, name the peer, agree with each other, and end in what `--stats` writes.
fn beside_a_program(setting: &Setting<'_>) -> Result<String> {
    let launcher = setting.launcher()?;
    let fabric = Fabric::build(Spec::pair())?;
    // The last run ends by itself; as long as we look, it goes on.
    let mut seen = Vec::new();
    let mut pids = [0; 2];
    let done = Pair::new("ib_write_bw -F -D 6")
        .limit(60)
        .run_while_both(launcher, &fabric, |client, server| {
            pids = [client.pid, server.pid];
            let (first, one) = look_until(launcher, client.pid, |stats| stats.bytes_sent() > 0)?;
            let (second, two) =
                look_until(launcher, client.pid, |stats| stats.bytes_sent() > one.bytes_sent())?;
            let (there, received) = look_until(launcher, server.pid, |stats| stats.payload_received() > 0)?;
            let (ours, theirs) = (&first["qps"][0], &there["qps"][0]);
            let address = format!("{}:{}", fabric.h2.address, there["device"]["port"]);
            ensure!(ours["peer"] == address.as_str(), "the peer is {}, not {address}", ours["peer"]);
            ensure!(ours["peer_qpn"] == theirs["qpn"], "QP {} there is {}", ours["peer_qpn"], theirs["qpn"]);
            ensure!(ours["state"] == "rts", "the client's queue pair is in {}", ours["state"]);
            let rate = second["rates"]["sent_bytes_per_s"].as_f64().unwrap_or(0.0);
            ensure!(rate > 0.0, "the client sends at no rate: {}", second["rates"]);
            seen.extend([one, two, received]);
            Ok(())
        })?
        .success()?;
    for stats in &seen {
        ensure!(stats.path_bytes_sent() == stats.bytes_sent(), "paths sum up to another number of bytes");
    }
    let (client, server) = (done.client_stats()?, done.server_stats()?);
    let steps = [seen[0].bytes_sent(), seen[1].bytes_sent(), client.bytes_sent()];
    ensure!(steps[0] < steps[1] && steps[1] <= steps[2], "bytes sent went {steps:?}");
    let steps = [seen[2].payload_received(), server.payload_received()];
    ensure!(steps[0] <= steps[1], "bytes received went {steps:?}");
    for pid in pids {
        ensure!(stats::live(launcher, pid)?.is_none(), "process {pid} has ended and is still shown");
        ensure!(!Path::new("/proc").join(pid.to_string()).exists(), "process {pid} has not ended");
    }
    Ok(format!(
        "seen at {} and {} of {} bytes",
        seen[0].bytes_sent(),
        seen[1].bytes_sent(),
        client.bytes_sent()
    ))
}
