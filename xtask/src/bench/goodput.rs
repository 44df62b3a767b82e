//! What one connection brings to a program per second, looked at from beside it while it runs.
//!
//! Conditions may change under one and the same connection, so that what they cost is not mixed up with the luck of its
//! ports.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};

use crate::fabric::Fabric;
use crate::programs::stats::{self, Stats};
use crate::programs::{Launcher, Pair};
use crate::suite;

/// Between a change and the look at what it brings.
const SETTLING: Duration = Duration::from_millis(500);

/// A program that has no processor to itself may take its time to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A client that WRITEs 64 KiB after 64 KiB, and its server.
pub struct Writers<'a> {
    launcher: &'a Launcher,
    pids: [i32; 2],
}

/// What came in a span.
#[derive(Clone, Copy, Debug)]
pub struct Goodput {
    /// Megabytes (10⁶) of payload per second; what came twice counts once.
    pub mb_per_s: f64,
    /// CPU seconds of both sides per gigabyte.
    pub cpu_s_per_gb: f64,
}

/// Lets two hosts write over paths that the leaves spread evenly, while `look` measures, then ends them.
pub fn while_writing(
    launcher: &Launcher,
    fabric: &Fabric,
    options: &str,
    look: impl FnOnce(&Writers<'_>) -> Result<()>,
) -> Result<()> {
    let pair = Pair::new("ib_write_bw -F -n 1000000").options(options).limit(300);
    pair.run_while_both(launcher, fabric, |client, server| {
        suite::wait_for_bytes(fabric, 10_000_000, || client.has_ended())?;
        fabric.even_out()?;
        look(&Writers { launcher, pids: [client.pid, server.pid] })?;
        client.signal(libc::SIGKILL);
        Ok(())
    })?;
    Ok(())
}

impl Writers<'_> {
    /// Over `span`, once things have settled.
    pub fn goodput(&self, span: Duration) -> Result<Goodput> {
        std::thread::sleep(SETTLING);
        let (start, before) = self.look()?;
        std::thread::sleep(span);
        let (end, after) = self.look()?;
        let bytes = (after.bytes - before.bytes) as f64;
        Ok(Goodput {
            mb_per_s: bytes / 1e6 / (end - start).as_secs_f64(),
            cpu_s_per_gb: (after.cpu_s - before.cpu_s) / (bytes / 1e9),
        })
    }

    fn look(&self) -> Result<(Instant, Sight)> {
        let server = self.pids[1];
        let deadline = Instant::now() + ANSWER_WITHIN;
        let device = loop {
            match stats::live(self.launcher, server)? {
                Some(device) => break device,
                None => ensure!(Instant::now() < deadline, "process {server} does not say what it received"),
            }
        };
        let now = Instant::now();
        let cpu_s = self.pids.iter().map(|&pid| cpu_s(pid)).sum::<Result<f64>>()?;
        Ok((now, Sight { bytes: Stats::from_json(device)?.payload_received(), cpu_s }))
    }
}

struct Sight {
    bytes: u64,
    cpu_s: f64,
}

/// CPU seconds of process `pid` so far (`utime` and `stime` of proc_pid_stat(5)).
fn cpu_s(pid: i32) -> Result<f64> {
    let file = Path::new("/proc").join(pid.to_string()).join("stat");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    // SAFETY: no memory effects.
    let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    Ok(ticks_of(&text).context("a process's line is too short")? as f64 / ticks_per_s)
}

/// The 14th and 15th field, counted after the name, which may hold anything.
fn ticks_of(line: &str) -> Option<u64> {
    let mut fields = line.rsplit_once(") ")?.1.split(' ').skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        for (line, ticks) in [
            ("7 (ib_write_bw) R 1 7 7 0 -1 4194304 1 0 0 0 30 12 5 6 20 0", Some(42)),
            ("7 (a ) b (c) S 1 7 7 0 -1 4194304 1 0 0 0 1 2 5 6 20 0", Some(3)),
            ("7 (short) S 1 7", None),
            ("", None),
        ] {
            assert_eq!(ticks_of(line), ticks, "{line}");
        }
    }
}
