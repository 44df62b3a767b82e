//! UCX over TCP beside us in the same network, by its own benchmark.

use std::time::Duration;

use anyhow::{Context, Result};

use super::wait_until_it_listens;
use crate::fabric::{Fabric, Host};
use crate::process::Program;

/// What one run measured.
#[derive(Clone, Copy, Debug)]
pub struct Put {
    /// Megabytes (10⁶) of payload per second.
    pub mb_per_s: f64,
    /// Messages per second.
    pub messages_per_s: f64,
}

/// Puts `count` messages of `bytes` from h1 to h2 (`ucp_put_bw`).
pub fn put(fabric: &Fabric, bytes: u64, count: u64) -> Result<Put> {
    const PORT: u16 = 13_337;
    let limit = Duration::from_secs(120);
    let program = |host: &Host| {
        let program = Program::new("ucx_perftest").args(["-p", &PORT.to_string()]).on(host).limit(limit);
        program.env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", "eth0")
    };
    let mut server = program(&fabric.h2).start()?;
    wait_until_it_listens(&fabric.h2, PORT, &mut server)?;
    let client = program(&fabric.h1)
        .args([&fabric.h2.address.to_string(), "-t", "ucp_put_bw", "-f", "-v"])
        .args(["-s", &bytes.to_string(), "-n", &count.to_string(), "-w", "1000"])
        .success()?;
    server.wait()?;
    read(&client.stdout).with_context(|| format!("ucx_perftest printed no table: {}", client.story()))
}

/// The last line of its CSV: iterations, three latencies, two bandwidths (MiB/s), two message rates.
fn read(output: &str) -> Option<Put> {
    let line = output.lines().rfind(|line| line.starts_with(|first: char| first.is_ascii_digit()))?;
    let numbers: Vec<f64> = line.split(',').filter_map(|word| word.trim().parse().ok()).collect();
    match numbers[..] {
        [_, _, _, _, _, mib_per_s, _, messages_per_s] => {
            Some(Put { mb_per_s: mib_per_s * 1.048_576, messages_per_s })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_overall_figures_are_read() {
        let table =
            "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                     1000000,0.581,39.644,29.630,1.54,2.00,25225,33750\n";
        let put = read(table).unwrap();
        assert_eq!((put.mb_per_s, put.messages_per_s), (2.097152, 33750.0));
        assert!(read("nothing").is_none());
    }
}
