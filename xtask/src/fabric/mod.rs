//! A real multi-path network out of namespaces: h1 – leaf l1 – N spines – leaf l2 – h2, or h1 – h2 alone.
//!
//! Leaves spread flows over all spines by the hash of the 5-tuple, as data-centre switches do. Speed is
//! limited on the leaves' uplinks (`tc tbf`), loss happens in the spines (`nft`). Everything disappears when
//! the value is dropped, when the process is interrupted, or with `cargo xtask fabric clean`.

mod namespace;
mod spread;

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{ensure, Context, Result};

use crate::ground::{self, Ground};
use crate::interrupt;
use crate::process::Program;
pub use namespace::{inside, Host, LinkCount};
pub use spread::blast;

/// Every namespace of ours starts with this, then the process id.
const PREFIX: &str = "srx-";

/// What to build.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Spines between the leaves; 0 joins the two hosts directly.
    pub spines: usize,
    /// Speed of each spine's links, both directions, Mbit/s; a shorter list goes on with its last. Empty: as fast as the
    /// machine.
    pub rates_mbit: Vec<u32>,
    /// Loss in each spine to begin with, per thousand; shorter lists are padded with 0.
    pub loss_per_mille: Vec<u32>,
    /// Whether bursts cross the fabric as one buffer, so that loss takes whole bursts. Otherwise the hosts'
    /// segmentation offload is off and loss takes single packets.
    pub bursts: bool,
    /// Of every link, bytes.
    pub mtu_bytes: u32,
}

impl Spec {
    /// Two hosts on one cable.
    pub fn pair() -> Spec {
        Spec { spines: 0, rates_mbit: Vec::new(), loss_per_mille: Vec::new(), bursts: true, mtu_bytes: 1500 }
    }

    /// Four spines, each limited to `rate_mbit`.
    pub fn spines(rate_mbit: Option<u32>) -> Spec {
        Spec { spines: 4, rates_mbit: rate_mbit.into_iter().collect(), ..Spec::pair() }
    }

    /// A spine of each of these speeds.
    pub fn unequal(rates_mbit: &[u32]) -> Spec {
        Spec { spines: rates_mbit.len(), rates_mbit: rates_mbit.to_vec(), ..Spec::pair() }
    }

    /// With loss.
    pub fn loss(mut self, per_mille: &[u32], bursts: bool) -> Spec {
        self.loss_per_mille = per_mille.to_vec();
        self.bursts = bursts;
        self
    }
}

/// Bytes that crossed one spine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpineCount {
    /// From h1 towards h2, as the spine received it.
    pub forward_bytes: u64,
    /// From h2 towards h1.
    pub backward_bytes: u64,
    /// Buffers (packets or whole bursts) that the loss rule dropped since it was last set.
    pub dropped: u64,
}

/// A network that stands.
pub struct Fabric {
    /// Where clients run.
    pub h1: Host,
    /// Where servers run.
    pub h2: Host,
    leaves: Vec<Host>,
    spines: Vec<Host>,
    spec: Spec,
}

impl Fabric {
    /// Builds it.
    pub fn build(spec: Spec) -> Result<Fabric> {
        if let Ground::Loopback(why) = ground::stand() {
            ensure!(spec.spines == 0, "a fabric needs network namespaces: {why}");
            let address = outward_address();
            let host = |name: &str| Host { name: name.into(), namespace: None, address };
            return Ok(Fabric {
                h1: host("h1"),
                h2: host("h2"),
                leaves: Vec::new(),
                spines: Vec::new(),
                spec,
            });
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            clean(false)?;
        }
        let host = |role: String, address: IpAddr| {
            let namespace = format!("{PREFIX}{}-{number}-{role}", std::process::id());
            interrupt::add_namespace(&namespace);
            Host { name: role, namespace: Some(namespace), address }
        };
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let (first, second) = match spec.spines {
            0 => ([10, 77, 0, 1], [10, 77, 0, 2]),
            _ => ([10, 77, 1, 2], [10, 77, 2, 2]),
        };
        let leaves = if spec.spines > 0 { 2 } else { 0 };
        let fabric = Fabric {
            h1: host("h1".into(), IpAddr::from(first)),
            h2: host("h2".into(), IpAddr::from(second)),
            leaves: (1..=leaves).map(|n| host(format!("l{n}"), nowhere)).collect(),
            spines: (1..=spec.spines).map(|n| host(format!("s{n}"), nowhere)).collect(),
            spec,
        };
        fabric.wire().context("cannot build the network")?;
        Ok(fabric)
    }

    fn all(&self) -> impl Iterator<Item = &Host> {
        [&self.h1, &self.h2].into_iter().chain(&self.leaves).chain(&self.spines)
    }

    fn wire(&self) -> Result<()> {
        let mut names = String::new();
        for host in self.all() {
            let _ = writeln!(names, "netns add {}", host.namespace.as_deref().unwrap_or(""));
        }
        let mut cable = |a: &Host, a_port: &str, b: &Host, b_port: &str| {
            let ns = |host: &Host| host.namespace.clone().unwrap_or_default();
            let mtu = self.spec.mtu_bytes;
            let _ = writeln!(
                names,
                "link add name {a_port} mtu {mtu} netns {} type veth peer name {b_port} mtu {mtu} netns {}",
                ns(a),
                ns(b)
            );
        };
        match &self.leaves[..] {
            [l1, l2] => {
                cable(&self.h1, "eth0", l1, "host");
                cable(&self.h2, "eth0", l2, "host");
                for spine in &self.spines {
                    cable(l1, &spine.name, spine, "l1");
                    cable(l2, &spine.name, spine, "l2");
                }
            }
            _ => cable(&self.h1, "eth0", &self.h2, "eth0"),
        }
        Program::new("ip").args(["-batch", "-"]).stdin(names).success()?;
        std::thread::scope(|scope| {
            let threads: Vec<_> = self.all().map(|host| scope.spawn(move || self.configure(host))).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    fn configure(&self, host: &Host) -> Result<()> {
        let mut ip = "link set lo up\n".to_owned();
        let up = |ip: &mut String, port: &str, address: &str| {
            let _ = writeln!(ip, "link set {port} addrgenmode none up\naddress add {address} dev {port}");
        };
        let is_host = host.name.starts_with('h');
        let side = if host.name.ends_with('1') { 1 } else { 2 };
        if is_host && self.spines.is_empty() {
            up(&mut ip, "eth0", &format!("{}/24", host.address));
            let other = if side == 1 { self.h2.address } else { self.h1.address };
            let _ = writeln!(ip, "route add default via {other}");
        } else if is_host {
            up(&mut ip, "eth0", &format!("{}/24", host.address));
            let _ = writeln!(ip, "route add default via 10.77.{side}.1");
        } else if host.name.starts_with('l') {
            host.sysctl(&[("net/ipv4/ip_forward", "1"), ("net/ipv4/fib_multipath_hash_policy", "1")])?;
            up(&mut ip, "host", &format!("10.77.{side}.1/24"));
            let mut route = format!("route add 10.77.{}.0/24", 3 - side);
            for (index, spine) in self.spines.iter().enumerate() {
                let net = index * 4;
                up(&mut ip, &spine.name, &format!("10.78.{side}.{}/30", net + 1));
                let _ = write!(route, " nexthop via 10.78.{side}.{} dev {} weight 1", net + 2, spine.name);
            }
            ip.push_str(&route);
        } else {
            host.sysctl(&[("net/ipv4/ip_forward", "1")])?;
            let net = (self.spine_number(host) - 1) * 4;
            for side in [1, 2] {
                up(&mut ip, &format!("l{side}"), &format!("10.78.{side}.{}/30", net + 2));
                let _ = writeln!(ip, "route add 10.77.{side}.0/24 via 10.78.{side}.{}", net + 1);
            }
        }
        host.ip(&ip)?;
        if is_host && !self.spec.bursts {
            let off = ["-K", "eth0", "tso", "off", "gso", "off", "tx-udp-segmentation", "off"];
            Program::new("ethtool").args(off).on(host).success()?;
        }
        if host.name.starts_with('l') {
            host.tc(&self.speed_limits())?;
        }
        if host.name.starts_with('s') {
            let loss = self.spec.loss_per_mille.get(self.spine_number(host) - 1).copied().unwrap_or(0);
            host.nft(&format!(
                "table ip fabric {{\nchain loss {{\ntype filter hook forward priority 0; {}\n}}\n}}",
                loss_rule(loss)
            ))?;
        }
        Ok(())
    }

    /// For a leaf's links to the spines, as `tc` reads it.
    fn speed_limits(&self) -> String {
        let rates = &self.spec.rates_mbit;
        let mut script = String::new();
        for (index, spine) in self.spines.iter().enumerate() {
            let Some(&rate_mbit) = rates.get(index).or(rates.last()) else { break };
            // Room for two full bursts, and a queue of 20 ms.
            let queue_bytes = (u64::from(rate_mbit) * 1_000_000 / 8 / 50).max(262_144);
            let port = &spine.name;
            let _ = writeln!(
                script,
                "qdisc add dev {port} root tbf rate {rate_mbit}mbit burst 128kb limit {queue_bytes}"
            );
        }
        script
    }

    fn spine_number(&self, host: &Host) -> usize {
        self.spines.iter().position(|spine| spine.name == host.name).map_or(0, |index| index + 1)
    }

    /// Whether the two hosts are really apart.
    pub fn is_real(&self) -> bool {
        self.h1.namespace.is_some()
    }

    /// From now on spine `index` (from 0) loses this many per thousand; 1000 swallows everything silently.
    pub fn set_loss(&self, index: usize, per_mille: u32) -> Result<()> {
        let spine = self.spines.get(index).context("no such spine")?;
        spine.nft(&format!("flush chain ip fabric loss\nadd rule ip fabric loss {}", loss_rule(per_mille)))
    }

    /// Takes spine `index`'s links down, or up again, on both leaves.
    pub fn set_spine_up(&self, index: usize, up: bool) -> Result<()> {
        let spine = self.spines.get(index).context("no such spine")?;
        let word = if up { "up" } else { "down" };
        self.leaves.iter().try_for_each(|leaf| leaf.ip(&format!("link set {} {word}", spine.name)))
    }

    /// From now on the spines pass only packets of up to `mtu_bytes`, and drop larger ones without telling anybody.
    pub fn narrow_spines(&self, mtu_bytes: u32) -> Result<()> {
        for spine in &self.spines {
            spine.nft(&format!(
                "insert rule ip fabric loss meta length > {mtu_bytes} ip protocol udp counter drop"
            ))?;
        }
        Ok(())
    }

    /// What crossed each spine so far, by the kernel's counters.
    pub fn counts(&self) -> Result<Vec<SpineCount>> {
        self.spines
            .iter()
            .map(|spine| {
                let links = spine.links()?;
                let received = |port: &str| links.get(port).map_or(0, |link: &LinkCount| link.rx_bytes);
                let dropped = dropped(spine)?;
                Ok(SpineCount { forward_bytes: received("l1"), backward_bytes: received("l2"), dropped })
            })
            .collect()
    }

    /// The links of both directions in all: counters of h1's interface.
    pub fn host_count(&self) -> Result<LinkCount> {
        let links = self.h1.links()?;
        links.get(if self.is_real() { "eth0" } else { "lo" }).copied().context("h1 has no interface")
    }
}

/// What went over each spine between two readings.
pub fn difference(before: &[SpineCount], after: &[SpineCount]) -> Vec<SpineCount> {
    let pairs = before.iter().zip(after);
    pairs
        .map(|(before, after)| SpineCount {
            forward_bytes: after.forward_bytes - before.forward_bytes,
            backward_bytes: after.backward_bytes - before.backward_bytes,
            dropped: after.dropped.saturating_sub(before.dropped),
        })
        .collect()
}

fn loss_rule(per_mille: u32) -> String {
    match per_mille {
        0 => "counter accept".into(),
        1000.. => "counter drop".into(),
        _ => format!("numgen random mod 1000 < {per_mille} counter drop"),
    }
}

fn dropped(spine: &Host) -> Result<u64> {
    let out =
        Program::new("nft").args(["-j", "list", "chain", "ip", "fabric", "loss"]).on(spine).success()?;
    let json: serde_json::Value = serde_json::from_str(&out.stdout)?;
    let items = json["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut sum = 0;
    for expressions in items.iter().filter_map(|item| item["rule"]["expr"].as_array()) {
        if expressions.iter().any(|expression| expression.get("drop").is_some()) {
            sum += expressions.iter().filter_map(|e| e["counter"]["packets"].as_u64()).sum::<u64>();
        }
    }
    Ok(sum)
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let names: Vec<String> = self.all().filter_map(|host| host.namespace.clone()).collect();
        delete(&names);
    }
}

fn delete(names: &[String]) {
    if names.is_empty() {
        return;
    }
    let script: String = names.iter().map(|name| format!("netns del {name}\n")).collect();
    let _ = Program::new("ip").args(["-force", "-batch", "-"]).stdin(script).run();
    names.iter().for_each(|name| interrupt::remove_namespace(name));
}

/// Deletes namespaces that earlier runs left behind; with `all`, those of runs still alive, too. Returns
/// their names.
pub fn clean(all: bool) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir("/run/netns") {
        Ok(entries) => entries,
        Err(_) => return Ok(Vec::new()),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(owner) = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()) else { continue };
        let alive = std::path::Path::new("/proc").join(owner).exists();
        if all || !alive {
            names.push(name);
        }
    }
    delete(&names);
    Ok(names)
}

/// The address that this machine would use towards the world; no packet is sent to find out.
fn outward_address() -> IpAddr {
    let ask = || -> std::io::Result<IpAddr> {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip())
    };
    ask().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}
