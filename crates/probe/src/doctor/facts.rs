//! What can be known of this host by anybody: files of /proc and /sys, limits of the process, and two questions
//! that every user may put to a network driver.

use crate::address;
use srdma_seams::Slot;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Everything that is judged. `None` is what could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Network interfaces with a usable address, best first.
    pub nics: Vec<Nic>,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Bytes that may be locked; `None` is no limit.
    pub memlock_bytes: Option<u64>,
    /// Open files: as it is, and how far a user may raise it.
    pub open_files: (u64, u64),
    /// What files say.
    pub files: Files,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Name, such as `eth0`.
    pub name: String,
    /// Its addresses that a device can stand on.
    pub addresses: Vec<IpAddr>,
    /// Longest IP packet, bytes; 0 if unknown.
    pub mtu_bytes: u32,
    /// Mbit/s, if the driver says.
    pub speed_mbps: Option<u32>,
    /// Generic receive offload: whether bursts are put together again before they reach a socket.
    pub gro: Option<bool>,
    /// Generic segmentation offload: whether bursts stay together down to the driver.
    pub gso: Option<bool>,
}

/// What files under a root say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Processors' worth of time that the control group grants, in hundredths; `None` is no limit.
    pub quota_percent: Option<u64>,
    /// How the clock of processor 0 is chosen.
    pub governor: Option<String>,
    /// `net.core.rmem_max`: most receive buffer that an unprivileged socket gets.
    pub rmem_max_bytes: Option<u64>,
    /// `net.core.wmem_max`.
    pub wmem_max_bytes: Option<u64>,
    /// `net.ipv4.ip_local_port_range`.
    pub ephemeral_ports: Option<(u16, u16)>,
    /// `net.ipv4.ip_local_reserved_ports`: those left out of that range.
    pub reserved_ports: Vec<(u16, u16)>,
    /// Datagrams that came, and that found a full socket buffer, since the host started.
    pub udp: Option<(u64, u64)>,
    /// Slots whose UDP port somebody on this host has.
    pub slots_taken: usize,
    /// Connections tracked, and most that can be.
    pub conntrack: Option<(u64, u64)>,
    /// Firewalls that seem to be at work.
    pub firewalls: Vec<Firewall>,
}

/// A firewall, by what can be seen of it without being root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firewall {
    /// ufw is switched on.
    Ufw,
    /// firewalld runs.
    Firewalld,
    /// The kernel has a packet filter loaded; with which rules only root can see.
    Rules,
}

impl Facts {
    /// Of this host, now.
    ///
    /// # Errors
    /// If the addresses of this host cannot be listed.
    pub fn gather() -> io::Result<Facts> {
        let mut nics: Vec<Nic> = Vec::new();
        for own in address::usable()? {
            let name = own.interface.name;
            if let Some(known) = nics.iter_mut().find(|nic| nic.name == name) {
                known.addresses.push(own.ip);
                continue;
            }
            let (gro, gso) = (offload(&name, ETHTOOL_GGRO), offload(&name, ETHTOOL_GGSO));
            let (mtu_bytes, speed_mbps) = (own.interface.mtu_bytes, own.interface.speed_mbps);
            nics.push(Nic { name, addresses: vec![own.ip], mtu_bytes, speed_mbps, gro, gso });
        }
        let (locked, _) = limit(libc::RLIMIT_MEMLOCK);
        Ok(Facts {
            nics,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memlock_bytes: (locked != libc::RLIM_INFINITY).then_some(locked),
            open_files: limit(libc::RLIMIT_NOFILE),
            files: Files::under(Path::new("/")),
        })
    }
}

impl Files {
    /// What the files under `root` say.
    pub fn under(root: &Path) -> Files {
        let files = Reader { root: root.to_owned() };
        let sysctl = |name: &str| files.numbers(&format!("proc/sys/{name}")).first().copied();
        let pair = |numbers: &[u64]| match *numbers {
            [a, b, ..] => Some((u16::try_from(a).ok()?, u16::try_from(b).ok()?)),
            _ => None,
        };
        let tracked =
            sysctl("net/netfilter/nf_conntrack_count").zip(sysctl("net/netfilter/nf_conntrack_max"));
        Files {
            quota_percent: files.quota_percent(),
            governor: files.line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            rmem_max_bytes: sysctl("net/core/rmem_max"),
            wmem_max_bytes: sysctl("net/core/wmem_max"),
            ephemeral_ports: pair(&files.numbers("proc/sys/net/ipv4/ip_local_port_range")),
            reserved_ports: port_list(&files.text("proc/sys/net/ipv4/ip_local_reserved_ports")),
            udp: udp_counts(&files.text("proc/net/snmp")),
            slots_taken: files.slots_taken(),
            conntrack: tracked,
            firewalls: files.firewalls(),
        }
    }
}

struct Reader {
    root: PathBuf,
}

impl Reader {
    /// A file's text; nothing if it cannot be read.
    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    fn line(&self, path: &str) -> Option<String> {
        self.text(path).lines().next().map(|line| line.trim().to_owned())
    }

    fn numbers(&self, path: &str) -> Vec<u64> {
        self.text(path).split_whitespace().map_while(|word| word.parse().ok()).collect()
    }

    fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Of control groups version 2: `max 100000`, or `150000 100000` for one and a half processors.
    fn quota_percent(&self) -> Option<u64> {
        match self.numbers("sys/fs/cgroup/cpu.max")[..] {
            [quota, period, ..] if period > 0 => Some(quota.saturating_mul(100) / period),
            _ => None,
        }
    }

    fn slots_taken(&self) -> usize {
        let mut ports = std::collections::BTreeSet::new();
        for file in ["proc/net/udp", "proc/net/udp6"] {
            // "  sl  local_address …", then "  12: 0100007F:12B7 …", numbers in hexadecimal.
            let text = self.text(file);
            let local = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
            let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
            ports.extend(local.filter_map(port));
        }
        (0..=u8::MAX).filter(|slot| ports.contains(&Slot(*slot).port())).count()
    }

    fn firewalls(&self) -> Vec<Firewall> {
        let mut found = Vec::new();
        let ufw = self.text("etc/ufw/ufw.conf");
        if ufw.lines().any(|line| line.trim().eq_ignore_ascii_case("ENABLED=yes")) {
            found.push(Firewall::Ufw);
        }
        if self.has("run/firewalld") {
            found.push(Firewall::Firewalld);
        }
        // Tables are listed for root alone, but whether chains of the old filter or tracking are in use can be seen.
        let loaded = ["iptable_filter", "ip6table_filter", "nft_reject", "nft_ct", "xt_conntrack"];
        if found.is_empty() && loaded.iter().any(|module| self.has(&format!("sys/module/{module}"))) {
            found.push(Firewall::Rules);
        }
        found
    }
}

/// `8080,9148-9150`
fn port_list(text: &str) -> Vec<(u16, u16)> {
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
    };
    text.trim().split(',').filter_map(range).collect()
}

/// InDatagrams and RcvbufErrors of /proc/net/snmp: a line of names, then one of numbers.
fn udp_counts(text: &str) -> Option<(u64, u64)> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |wanted: &str| {
        let at = names.split_whitespace().position(|name| name == wanted)?;
        values.split_whitespace().nth(at)?.parse().ok()
    };
    Some((value("InDatagrams")?, value("RcvbufErrors")?))
}

/// A resource limit: the present one and the highest that may be asked for.
fn limit(which: libc::__rlimit_resource_t) -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local of the type that is asked for.
    match unsafe { libc::getrlimit(which, &raw mut limit) } {
        0 => (limit.rlim_cur, limit.rlim_max),
        _ => (libc::RLIM_INFINITY, libc::RLIM_INFINITY),
    }
}

/// include/uapi/linux/ethtool.h: commands that ask for one flag, and may be put by anybody.
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GGRO: u32 = 0x2b;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Whether an interface has an offload switched on; `None` if it does not say.
fn offload(interface: &str, command: u32) -> Option<bool> {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).ok()?;
    let mut value = EthtoolValue { command, data: 0 };
    // SAFETY: zeros are valid for this plain struct.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(room)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names a value of the struct that this command fills, and both outlive the call.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    (answer == 0).then_some(value.data != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct FakeRoot(PathBuf);

    impl FakeRoot {
        fn new(name: &str, files: &[(&str, &str)]) -> FakeRoot {
            let root = std::env::temp_dir().join(format!("srdma-doctor-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            std::fs::create_dir_all(&root).unwrap();
            FakeRoot(root)
        }
    }

    impl Drop for FakeRoot {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_are_read_as_the_kernel_writes_them() {
        let root = FakeRoot::new(
            "full",
            &[
                ("proc/sys/net/core/rmem_max", "212992\n"),
                ("proc/sys/net/core/wmem_max", "4194304\n"),
                ("proc/sys/net/ipv4/ip_local_port_range", "1024\t65535\n"),
                ("proc/sys/net/ipv4/ip_local_reserved_ports", "8080,61001-61255\n"),
                ("proc/sys/net/netfilter/nf_conntrack_count", "250\n"),
                ("proc/sys/net/netfilter/nf_conntrack_max", "262144\n"),
                ("proc/net/snmp", "Ip: A B\nIp: 1 2\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 1000 5 17\n"),
                (
                    "proc/net/udp",
                    "  sl  local_address rem_address\n 1: 0100007F:12B7 00000000:0000 07\n 2: 0:EE49 0:0\n 3: 0:0035 0:0\n",
                ),
                ("proc/net/udp6", "  sl  local_address\n 1: 00000000000000000000000001000000:12B7 0\n"),
                ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
                ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
                ("etc/ufw/ufw.conf", "# ufw\nENABLED=yes\nLOGLEVEL=low\n"),
                ("sys/module/nft_ct/refcnt", "1\n"),
            ],
        );
        let expected = Files {
            quota_percent: Some(150),
            governor: Some("powersave".into()),
            rmem_max_bytes: Some(212_992),
            wmem_max_bytes: Some(4_194_304),
            ephemeral_ports: Some((1024, 65_535)),
            reserved_ports: vec![(8080, 8080), (61_001, 61_255)],
            udp: Some((1000, 17)),
            slots_taken: 2,
            conntrack: Some((250, 262_144)),
            firewalls: vec![Firewall::Ufw],
        };
        assert_eq!(Files::under(&root.0), expected);
    }

    #[test]
    fn what_is_not_there_or_is_nonsense_is_unknown() {
        let nonsense = [
            ("proc/sys/net/core/rmem_max", "many"),
            ("proc/sys/net/ipv4/ip_local_port_range", "1 99999"),
            ("proc/net/snmp", "Udp: InDatagrams\n"),
            ("proc/net/udp", "x\ny\n\n"),
            ("sys/fs/cgroup/cpu.max", "max 100000"),
            ("etc/ufw/ufw.conf", "ENABLED=no"),
        ];
        for (name, files) in [("empty", &[][..]), ("nonsense", &nonsense)] {
            assert_eq!(Files::under(&FakeRoot::new(name, files).0), Files::default(), "{name}");
        }
    }

    #[test]
    fn this_host_can_be_asked() {
        let facts = Facts::gather().unwrap();
        assert!(
            facts.cpus >= 1 && facts.open_files.0 > 0 && facts.files.rmem_max_bytes.is_some(),
            "{facts:?}"
        );
        // Loopback has software offloads on every Linux; what does not exist says nothing.
        assert!(offload("lo", ETHTOOL_GGSO).is_some());
        assert_eq!(offload("no-such-nic", ETHTOOL_GGRO), None);
    }
}
