//! One host, leaf or spine: a named network namespace and what the kernel counts in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process::Program;

/// A place to run programs. Without a namespace it is this machine itself.
#[derive(Clone, Debug)]
pub struct Host {
    /// What messages call it.
    pub name: String,
    /// Its network namespace under /run/netns.
    pub namespace: Option<String>,
    /// The address that other hosts reach it by.
    pub address: IpAddr,
}

/// What the kernel counted on one interface.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkCount {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
}

/// Runs `work` on a thread of its own that has joined namespace `name`.
pub fn inside<T: Send>(name: Option<&str>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let Some(name) = name else { return work() };
    let path = Path::new("/run/netns").join(name);
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: changes the network namespace of this short-lived thread only.
            if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                return Err(std::io::Error::last_os_error()).context("cannot join the namespace");
            }
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Host {
    /// Reads a file under /proc/net as this host sees it.
    pub fn proc_net(&self, file: &str) -> Result<String> {
        let path = format!("/proc/thread-self/net/{file}");
        inside(self.namespace.as_deref(), || std::fs::read_to_string(&path).with_context(|| path.clone()))
    }

    /// Whether something listens on TCP `port`.
    pub fn listens(&self, port: u16) -> Result<bool> {
        let wanted = format!(":{port:04X}");
        for file in ["tcp", "tcp6"] {
            let table = self.proc_net(file).unwrap_or_default();
            let found = table.lines().skip(1).any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let local = words.next().unwrap_or("");
                local.ends_with(&wanted) && words.nth(1) == Some("0A")
            });
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// UDP ports that are bound here, each as often as it is bound.
    pub fn udp_ports(&self) -> Result<Vec<u16>> {
        let mut ports = Vec::new();
        for file in ["udp", "udp6"] {
            let table = self.proc_net(file).unwrap_or_default();
            for line in table.lines().skip(1) {
                let local = line.split_whitespace().nth(1).unwrap_or("");
                if let Some(port) = local.rsplit(':').next().and_then(|hex| u16::from_str_radix(hex, 16).ok())
                {
                    ports.push(port);
                }
            }
        }
        ports.sort_unstable();
        Ok(ports)
    }

    /// Counters of all interfaces.
    pub fn links(&self) -> Result<BTreeMap<String, LinkCount>> {
        Ok(parse_links(&self.proc_net("dev")?))
    }

    /// Sets kernel parameters (`net/ipv4/ip_forward`, value).
    pub fn sysctl(&self, settings: &[(&str, &str)]) -> Result<()> {
        inside(self.namespace.as_deref(), || {
            for (name, value) in settings {
                let path = format!("/proc/sys/{name}");
                std::fs::write(&path, value).with_context(|| format!("cannot write {value} to {path}"))?;
            }
            Ok(())
        })
    }

    /// Feeds `script` to `ip -batch`.
    pub fn ip(&self, script: &str) -> Result<()> {
        Program::new("ip").args(["-batch", "-"]).stdin(script).on(self).success()?;
        Ok(())
    }

    /// Feeds `script` to `tc -batch`.
    pub fn tc(&self, script: &str) -> Result<()> {
        Program::new("tc").args(["-batch", "-"]).stdin(script).on(self).success()?;
        Ok(())
    }

    /// Feeds `script` to `nft -f`.
    pub fn nft(&self, script: &str) -> Result<()> {
        Program::new("nft").args(["-f", "-"]).stdin(script).on(self).success()?;
        Ok(())
    }
}

fn parse_links(table: &str) -> BTreeMap<String, LinkCount> {
    let mut links = BTreeMap::new();
    for line in table.lines().skip(2) {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let numbers: Vec<u64> = rest.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if let [rx_bytes, _, _, _, _, _, _, _, tx_bytes, ..] = numbers[..] {
            let count = LinkCount { rx_bytes, tx_bytes };
            links.insert(name.trim().to_owned(), count);
        }
    }
    links
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_kernels_table_of_interfaces_is_understood() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
                lo: 10 2 0 0 0 0 0 0 30 4 0 0 0 0 0 0\n  up:5 6 0 0 0 0 0 0 7 8 0 0 0 0 0 0\n";
        let links = parse_links(table);
        let up = links.get("up").unwrap();
        assert_eq!((up.rx_bytes, up.tx_bytes), (5, 7));
        assert_eq!(links.get("lo").unwrap().tx_bytes, 30);
    }
}
