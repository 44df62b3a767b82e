//! Watching packets: dumpcap on a host's interface, questions to tshark afterwards.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use crate::fabric::Host;
use crate::process::{Program, Running};

/// A capture that runs.
pub struct Capture {
    dumpcap: Running,
    file: PathBuf,
}

/// The UDP ports that Stellar packets arrive on (slot 0, and slots 1–255).
pub const FILTER: &str = "udp and (dst port 4791 or dst portrange 61001-61255)";

impl Capture {
    /// Starts on `host`'s interface; `snap_bytes` of each packet are kept, at most `packets` in all.
    pub fn start(host: &Host, file: &Path, snap_bytes: u32, packets: u32) -> Result<Capture> {
        let port = if host.namespace.is_some() { "eth0" } else { "any" };
        let mut dumpcap = Program::new("dumpcap")
            .args([
                "-q",
                "-i",
                port,
                "-f",
                FILTER,
                "-s",
                &snap_bytes.to_string(),
                "-c",
                &packets.to_string(),
                "-w",
            ])
            .args([file])
            .on(host)
            .limit(Duration::from_secs(120))
            .start()?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !file.exists() {
            ensure!(!dumpcap.has_ended() && Instant::now() < deadline, "dumpcap does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Capture { dumpcap, file: file.to_owned() })
    }

    /// Ends it and gives the file.
    pub fn stop(self) -> Result<PathBuf> {
        let outcome = self.dumpcap.stop(Duration::from_secs(5))?;
        ensure!(!outcome.timed_out, "{}", outcome.story());
        Ok(self.file)
    }
}

/// Runs tshark over a capture.
pub fn tshark(file: &Path, args: &[&str]) -> Result<String> {
    let out =
        Program::new("tshark").args(["-n", "-r"]).args([file]).args(args).limit(Duration::from_secs(120));
    Ok(out.success()?.stdout)
}

/// Distinct UDP source ports of packets from `host`.
pub fn source_ports(file: &Path, host: &Host) -> Result<BTreeSet<u16>> {
    let from = format!("ip.src == {}", host.address);
    let out = tshark(file, &["-Y", &from, "-T", "fields", "-e", "udp.srcport"])?;
    Ok(out.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}
