//! What facts mean for the software RNIC, and what to type. No I/O.

use super::facts::{Facts, Firewall, Nic};

/// What the software RNIC would like to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Receive buffer of a socket, bytes.
    pub receive_buffer_bytes: u64,
    /// Send buffer of a path's socket, bytes.
    pub send_buffer_bytes: u64,
    /// Paths of a connection, each with a socket.
    pub paths: u64,
}

impl Wants {
    /// What a device asks for that is told nothing else.
    pub fn of_a_device(receive_buffer_bytes: u32, paths: u16) -> Wants {
        let sockets = srdma_net::endpoint::Options::default();
        Wants {
            receive_buffer_bytes: receive_buffer_bytes.into(),
            send_buffer_bytes: sockets.send_buffer_bytes.into(),
            paths: paths.into(),
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Good,
    /// Works, but not as fast or as safely as it could.
    Costs,
    /// Does not work, or may not.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which part of the host.
    pub area: &'static str,
    /// How bad.
    pub level: Level,
    /// What is so.
    pub what: String,
    /// What to type, if something is to be done.
    pub remedy: Option<String>,
}

/// The ports that slots 1 to 255 have; slot 0 has 4791.
const SLOT_PORTS: (u16, u16) = (61_001, 61_255);
/// Least MTU of a path that IPv6 may have (RFC 8200 section 5).
const MTU_BYTES_MIN: u32 = 1280;
/// From here on a processor feels each packet's price.
const FAST_MBPS: u32 = 10_000;
/// Of all datagrams, so many per million lost to full buffers are worth a word.
const DROPS_PPM: u64 = 100;
/// Open files that a program may need besides.
const OTHER_FILES: u64 = 128;

fn good(area: &'static str, what: impl Into<String>) -> Finding {
    Finding { area, level: Level::Good, what: what.into(), remedy: None }
}

fn flaw(area: &'static str, level: Level, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { area, level, what: what.into(), remedy: Some(remedy.into()) }
}

/// Judges everything, part by part, in the order in which a person should read it.
pub fn judge(facts: &Facts, wants: Wants) -> Vec<Finding> {
    let mut findings = Vec::new();
    if facts.nics.is_empty() {
        findings.push(flaw(
            "network",
            Level::Bad,
            "no interface that is up has a routable address: programs find no device",
            "ip -br address   # then bring one up; for this host alone: srdma run --addr 127.0.0.1",
        ));
    }
    facts.nics.iter().for_each(|nic| findings.extend(network(nic)));
    findings.extend(buffers(facts, wants));
    findings.extend(processors(facts));
    findings.extend(limits(facts, wants));
    findings.extend(ports(facts));
    findings.extend(firewalls(facts, wants));
    findings
}

fn network(nic: &Nic) -> Vec<Finding> {
    let Nic { name, mtu_bytes, speed_mbps, .. } = nic;
    let addresses = nic.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let speed = speed_mbps.map_or(String::new(), |mbps| format!(", {mbps} Mbit/s"));
    let has = format!("{name} ({addresses}): MTU {mtu_bytes}{speed}");
    let jumbo = format!("sudo ip link set {name} mtu 9000   # only if every switch on the way passes it");
    let mut findings = vec![match (*mtu_bytes, *speed_mbps) {
        (0, _) => good("network", format!("{name} ({addresses}): MTU unknown{speed}")),
        (mtu, _) if mtu < MTU_BYTES_MIN => flaw(
            "network",
            Level::Bad,
            format!(
                "{has}; less than {MTU_BYTES_MIN} is not enough for IPv6 and leaves little room for data"
            ),
            format!("sudo ip link set {name} mtu 1500"),
        ),
        (mtu, Some(FAST_MBPS..)) if mtu < 4000 => flaw(
            "network",
            Level::Costs,
            format!("{has}; larger packets cost less processor time per byte"),
            jumbo,
        ),
        _ => good("network", has),
    }];
    for (is_on, short, what) in [
        (nic.gro, "gro", "bursts reach us packet by packet (generic receive offload is off)"),
        (nic.gso, "gso", "bursts leave us packet by packet (generic segmentation offload is off)"),
    ] {
        match is_on {
            Some(true) => findings.push(good("network", format!("{name}: {short} is on"))),
            Some(false) => findings.push(flaw(
                "network",
                Level::Costs,
                format!("{name}: {what}"),
                format!("sudo ethtool -K {name} {short} on"),
            )),
            None => {}
        }
    }
    findings
}

fn buffers(facts: &Facts, wants: Wants) -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = &facts.files;
    for (name, bytes, wanted, what) in [
        (
            "rmem_max",
            files.rmem_max_bytes,
            wants.receive_buffer_bytes,
            "bursts that come while the program computes are dropped",
        ),
        (
            "wmem_max",
            files.wmem_max_bytes,
            wants.send_buffer_bytes,
            "bursts to a slow link are sent in smaller parts",
        ),
    ] {
        match bytes {
            Some(bytes) if bytes < wanted => findings.push(flaw(
                "buffers",
                Level::Costs,
                format!("net.core.{name} is {bytes}, {wanted} are asked for; unless run as root, {what}"),
                format!("sudo sysctl -w net.core.{name}={wanted}   # to stay: a file in /etc/sysctl.d"),
            )),
            Some(bytes) => findings.push(good("buffers", format!("net.core.{name} is {bytes}"))),
            None => {}
        }
    }
    if let Some((datagrams, dropped)) = facts.files.udp {
        let ppm = dropped.saturating_mul(1_000_000) / datagrams.max(1);
        let what =
            format!("{dropped} of {datagrams} UDP datagrams found a full socket buffer since the start");
        findings.push(match ppm >= DROPS_PPM {
            true => {
                flaw("buffers", Level::Costs, what, "srdma run --stats FILE -- PROGRAM   # shows if ours do")
            }
            false => good("buffers", what),
        });
    }
    findings
}

fn processors(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let cpus = facts.cpus;
    findings.push(match facts.files.quota_percent {
        Some(percent) if percent < 200 => flaw(
            "processors",
            Level::Costs,
            format!(
                "{cpus} usable, but the control group grants {}.{:02} of them",
                percent / 100,
                percent % 100
            ),
            "cat /sys/fs/cgroup/cpu.max   # docker run --cpus, or the CPU limit of the pod",
        ),
        _ if cpus < 2 => flaw(
            "processors",
            Level::Costs,
            "1 usable: the program and the device's thread take turns on it",
            "nproc; taskset -p $$   # give it a second one",
        ),
        _ => good("processors", format!("{cpus} usable")),
    });
    match facts.files.governor.as_deref() {
        Some("powersave" | "conservative") => findings.push(flaw(
            "processors",
            Level::Costs,
            "the clock is slow to rise (governor powersave or conservative): small messages take longer",
            "sudo cpupower frequency-set -g performance",
        )),
        Some(name) => findings.push(good("processors", format!("clock governor {name}"))),
        None => {}
    }
    findings
}

fn limits(facts: &Facts, wants: Wants) -> Vec<Finding> {
    let locked = facts.memlock_bytes.map_or("no limit".to_owned(), |bytes| format!("{} kB", bytes / 1024));
    let mut findings =
        vec![good("limits", format!("locked memory: {locked}; of no account, nothing is pinned"))];
    let (files, most) = facts.open_files;
    let needed = wants.paths + OTHER_FILES;
    findings.push(match files < needed {
        true => flaw(
            "limits",
            Level::Costs,
            format!(
                "{files} open files: each of {} paths has a socket, so connections get fewer paths",
                wants.paths
            ),
            format!("ulimit -n {}", needed.max(most.min(65_536))),
        ),
        false => good("limits", format!("{files} open files")),
    });
    findings
}

fn ports(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let taken = facts.files.slots_taken;
    findings.push(match taken {
        0..=254 => good("ports", format!("{taken} of 256 slots (UDP ports 4791, 61001-61255) are in use")),
        _ => flaw(
            "ports",
            Level::Bad,
            format!("{taken} of 256 slots are in use"),
            "ss -ulnp   # shows by whom",
        ),
    });
    if let Some((low, high)) = facts.files.ephemeral_ports {
        let (first, last) = SLOT_PORTS;
        let reserved = facts.files.reserved_ports.iter().any(|&(from, to)| from <= first && to >= last);
        if low <= last && high >= first && !reserved {
            findings.push(flaw(
                "ports",
                Level::Costs,
                format!("the range of ephemeral ports, {low}-{high}, includes ports of slots: others may take them"),
                "sudo sysctl -w net.ipv4.ip_local_reserved_ports=61001-61255",
            ));
        }
    }
    findings
}

fn firewalls(facts: &Facts, wants: Wants) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.files.firewalls.iter().map(firewall).collect();
    if findings.is_empty() {
        findings
            .push(good("firewall", "none seen on this host; `srdma check HOST` tests the way to another"));
    }
    if let Some((tracked, most)) = facts.files.conntrack {
        // Each path is a connection of its own to whoever tracks them.
        let room = most.saturating_sub(tracked);
        let what = format!("connection tracking: {tracked} of {most}, each path of a connection is one");
        findings.push(match room < wants.paths * 16 {
            true => flaw(
                "firewall",
                Level::Costs,
                what,
                format!("sudo sysctl -w net.netfilter.nf_conntrack_max={}", most.saturating_mul(4)),
            ),
            false => good("firewall", what),
        });
    }
    findings
}

fn firewall(firewall: &Firewall) -> Finding {
    let (what, remedy) = match firewall {
        Firewall::Ufw => (
            "ufw is on: it drops what other hosts send first",
            "sudo ufw allow 4791/udp; sudo ufw allow 61001:61255/udp",
        ),
        Firewall::Firewalld => (
            "firewalld runs: it refuses what other hosts send first",
            "sudo firewall-cmd --permanent --add-port=4791/udp --add-port=61001-61255/udp; sudo firewall-cmd --reload",
        ),
        Firewall::Rules => (
            "a packet filter is loaded; its rules are shown to root only",
            "sudo nft list ruleset   # UDP 4791 and 61001-61255 must pass",
        ),
    };
    flaw("firewall", Level::Costs, what, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::Files;
    use std::net::IpAddr;

    const WANTS: Wants = Wants { receive_buffer_bytes: 8 << 20, send_buffer_bytes: 1 << 20, paths: 128 };

    fn healthy() -> Facts {
        Facts {
            nics: vec![Nic {
                name: "eth0".into(),
                addresses: vec![IpAddr::from([192, 0, 2, 7])],
                mtu_bytes: 9000,
                speed_mbps: Some(25_000),
                gro: Some(true),
                gso: Some(true),
            }],
            cpus: 8,
            memlock_bytes: Some(65_536),
            open_files: (1024, 4096),
            files: Files {
                quota_percent: None,
                governor: Some("performance".into()),
                rmem_max_bytes: Some(16 << 20),
                wmem_max_bytes: Some(16 << 20),
                ephemeral_ports: Some((32_768, 60_999)),
                reserved_ports: Vec::new(),
                udp: Some((10_000_000, 3)),
                slots_taken: 2,
                conntrack: Some((100, 262_144)),
                firewalls: Vec::new(),
            },
        }
    }

    #[test]
    fn a_healthy_host_has_nothing_to_type() {
        for finding in judge(&healthy(), WANTS) {
            assert!(finding.level == Level::Good && finding.remedy.is_none(), "{finding:?}");
        }
    }

    #[test]
    fn what_is_unknown_is_not_judged() {
        let unknown = Facts { files: Files::default(), ..healthy() };
        assert!(judge(&unknown, WANTS).iter().all(|finding| finding.level == Level::Good));
    }

    /// One flaw: how a healthy host gets it, how bad it is, and what must be typed.
    type Flaw = (fn(&mut Facts), Level, &'static str);

    #[test]
    fn each_flaw_is_found_alone_with_what_to_type() {
        let table: &[Flaw] = &[
            (|facts| facts.nics.clear(), Level::Bad, "ip -br address"),
            (|facts| facts.nics[0].mtu_bytes = 1500, Level::Costs, "ip link set eth0 mtu 9000"),
            (|facts| facts.nics[0].mtu_bytes = 576, Level::Bad, "ip link set eth0 mtu 1500"),
            (|facts| facts.nics[0].gro = Some(false), Level::Costs, "ethtool -K eth0 gro on"),
            (|facts| facts.nics[0].gso = Some(false), Level::Costs, "ethtool -K eth0 gso on"),
            (|facts| facts.files.rmem_max_bytes = Some(212_992), Level::Costs, "net.core.rmem_max=8388608"),
            (|facts| facts.files.wmem_max_bytes = Some(212_992), Level::Costs, "net.core.wmem_max=1048576"),
            (|facts| facts.files.udp = Some((1_000_000, 5_000)), Level::Costs, "--stats"),
            (|facts| facts.cpus = 1, Level::Costs, "nproc"),
            (|facts| facts.files.quota_percent = Some(50), Level::Costs, "cpu.max"),
            (|facts| facts.files.governor = Some("powersave".into()), Level::Costs, "cpupower"),
            (|facts| facts.open_files = (64, 4096), Level::Costs, "ulimit -n 4096"),
            (|facts| facts.files.slots_taken = 256, Level::Bad, "ss -ulnp"),
            (
                |facts| facts.files.ephemeral_ports = Some((1024, 65_535)),
                Level::Costs,
                "reserved_ports=61001-61255",
            ),
            (
                |facts| facts.files.conntrack = Some((262_000, 262_144)),
                Level::Costs,
                "nf_conntrack_max=1048576",
            ),
            (|facts| facts.files.firewalls = vec![Firewall::Ufw], Level::Costs, "ufw allow 61001:61255/udp"),
            (|facts| facts.files.firewalls = vec![Firewall::Firewalld], Level::Costs, "firewall-cmd"),
            (|facts| facts.files.firewalls = vec![Firewall::Rules], Level::Costs, "nft list ruleset"),
        ];
        for (harm, level, typed) in table {
            let mut facts = healthy();
            harm(&mut facts);
            let found = judge(&facts, WANTS);
            let flaws: Vec<&Finding> = found.iter().filter(|finding| finding.level != Level::Good).collect();
            let [flaw] = flaws[..] else { panic!("{typed}: {flaws:?}") };
            let remedy = flaw.remedy.as_deref().unwrap_or("");
            assert!(flaw.level == *level && remedy.contains(typed), "{flaw:?}");
        }
    }

    #[test]
    fn reserved_ports_are_safe_from_others() {
        let mut facts = healthy();
        facts.files.ephemeral_ports = Some((1024, 65_535));
        facts.files.reserved_ports = vec![(61_000, 61_300)];
        assert!(judge(&facts, WANTS).iter().all(|finding| finding.level == Level::Good));
    }
}
