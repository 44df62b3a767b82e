//! How the leaves' hash spreads flows over spines: asking it, evening it out, and blasting datagrams at it.

use std::fmt::Write as _;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure, Result};

use super::{inside, Fabric, Host};
use crate::process::Program;

/// Slot ports are where packets arrive; what else a host has bound are path sockets.
fn is_slot_port(port: u16) -> bool {
    port == 4791 || (61_001..=61_255).contains(&port)
}

/// Seeds tried by [`Fabric::even_out`]; one in some twenty spreads 128 ports within a tenth.
const SEEDS_TRIED: u32 = 400;

impl Fabric {
    /// Which spine (from 0) a leaf picks for each of these UDP source ports of `from` towards `port` of the
    /// other host.
    pub fn spine_of_ports(&self, from: &Host, sources: &[u16], port: u16) -> Result<Vec<usize>> {
        let is_h1 = from.name == self.h1.name;
        let to = if is_h1 { &self.h2 } else { &self.h1 };
        let Some(leaf) = self.leaves.get(usize::from(!is_h1)) else { bail!("no leaves") };
        let mut script = String::new();
        for source in sources {
            let _ = writeln!(
                script,
                "route get {} from {} iif host ipproto udp sport {source} dport {port}",
                to.address, from.address
            );
        }
        let out = Program::new("ip").args(["-o", "-batch", "-"]).stdin(script).on(leaf).success()?;
        let spine_in = |line: &str| {
            let name = line.split(" dev ").nth(1)?.split_whitespace().next()?;
            self.spines.iter().position(|spine| spine.name == name)
        };
        let picked: Vec<usize> = out.stdout.lines().filter_map(spine_in).collect();
        ensure!(picked.len() == sources.len(), "{} answers to {} questions", picked.len(), sources.len());
        Ok(picked)
    }

    /// Path sockets of `from` on each spine, as they are now; none while the other host has no slot.
    pub fn ports_on_spines(&self, from: &Host) -> Result<Vec<usize>> {
        let to = if from.name == self.h1.name { &self.h2 } else { &self.h1 };
        let sources: Vec<u16> = from.udp_ports()?.into_iter().filter(|&port| !is_slot_port(port)).collect();
        let mut counts = vec![0; self.spines.len()];
        let Some(target) = to.udp_ports()?.into_iter().find(|&port| is_slot_port(port)) else {
            return Ok(counts);
        };
        for spine in self.spine_of_ports(from, &sources, target)? {
            counts[spine] += 1;
        }
        Ok(counts)
    }

    /// Picks a seed of the leaves' hash under which the path sockets of the running programs spread evenly.
    ///
    /// 128 random ports over 4 spines differ by ±15 % by chance alone (binomial, one standard deviation), so a
    /// test of *our* evenness must take the luck of the hash out. Returns false where the kernel has no such
    /// seed (before 6.11); [`Fabric::ports_on_spines`] then says what to expect.
    pub fn even_out(&self) -> Result<bool> {
        for (from, leaf) in [&self.h1, &self.h2].into_iter().zip(&self.leaves) {
            let (mut best_seed, mut best) = (0, f64::INFINITY);
            for seed in 1..=SEEDS_TRIED {
                let set = |seed: u32| leaf.sysctl(&[("net/ipv4/fib_multipath_hash_seed", &seed.to_string())]);
                if set(seed).is_err() {
                    return Ok(false);
                }
                let counts = self.ports_on_spines(from)?;
                let total: usize = counts.iter().sum();
                let mean = total as f64 / counts.len() as f64;
                if total < 16 {
                    break;
                }
                let worst = counts.iter().map(|&n| (n as f64 - mean).abs() / mean).fold(0.0, f64::max);
                if worst < best {
                    (best_seed, best) = (seed, worst);
                }
                if best <= 0.07 || seed == SEEDS_TRIED {
                    set(best_seed)?;
                    break;
                }
            }
        }
        Ok(true)
    }
}

/// What a blast did, in datagrams.
#[derive(Clone, Debug, Default)]
pub struct Blast {
    /// Sent by h1.
    pub sent: u64,
    /// Arrived at h2.
    pub received: u64,
    /// Sent from ports that the leaf hashes to each spine.
    pub sent_on_spine: Vec<u64>,
}

/// Sends `rounds` bursts of `burst` datagrams of `bytes` each from each of `ports` source ports of h1 to h2;
/// with `even`, after evening out the leaves' hash for these ports.
pub fn blast(
    fabric: &Fabric,
    ports: usize,
    rounds: usize,
    burst: usize,
    bytes: usize,
    even: bool,
) -> Result<Blast> {
    const PORT: u16 = 4791;
    let target = (fabric.h2.address, PORT);
    let receiver = inside(fabric.h2.namespace.as_deref(), || Ok(UdpSocket::bind(target)?))?;
    set_option(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20)
        .or_else(|_| set_option(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUF, 64 << 20))?;
    receiver.set_read_timeout(Some(Duration::from_millis(100)))?;
    let senders = inside(fabric.h1.namespace.as_deref(), || {
        let open = |_| -> Result<UdpSocket> {
            let socket = UdpSocket::bind((fabric.h1.address, 0))?;
            set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes as i32)?;
            Ok(socket)
        };
        (0..ports).map(open).collect::<Result<Vec<_>>>()
    })?;
    let sources: Vec<u16> = senders.iter().filter_map(|s| s.local_addr().ok()).map(|a| a.port()).collect();
    if even {
        ensure!(fabric.even_out()?, "this kernel has no seed of the multipath hash");
    }
    let picked = fabric.spine_of_ports(&fabric.h1, &sources, PORT)?;
    let mut blast = Blast { sent_on_spine: vec![0; fabric.spines.len()], ..Blast::default() };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let counting = scope.spawn(|| {
            let mut received = 0;
            let mut buffer = [0u8; 2048];
            loop {
                let over = done.load(Ordering::Acquire);
                match receiver.recv(&mut buffer) {
                    Ok(_) => received += 1,
                    Err(_) if over => break received,
                    Err(_) => {}
                }
            }
        });
        let payload = vec![0x5au8; bytes * burst];
        let sending = (0..rounds).try_for_each(|_| {
            for (socket, &spine) in senders.iter().zip(&picked) {
                // Not connected: the kernel would hash a connected socket's random txhash instead of its ports.
                socket.send_to(&payload, target)?;
                blast.sent += burst as u64;
                blast.sent_on_spine[spine] += burst as u64;
            }
            // Leaves the receiver some time, so that only the fabric loses.
            std::thread::sleep(Duration::from_millis(2));
            Ok(())
        });
        done.store(true, Ordering::Release);
        blast.received = counting.join().unwrap_or(0);
        sending
    })?;
    Ok(blast)
}

fn set_option(socket: &UdpSocket, level: i32, name: i32, value: i32) -> std::io::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is an int and lives over the call; the descriptor is open.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
