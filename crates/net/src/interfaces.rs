//! Addresses of this machine that a device can stand on: which, on what interface, and in what order.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use crate::route::source_for_default_route;
use crate::sys::{self, RawAddress};

/// Flags of an IPv6 address that make it unfit to be known by (include/uapi/linux/if_addr.h): temporary
/// (RFC 8981), failed in duplicate detection, deprecated, tentative.
const UNFIT_FLAGS: u32 = 0x01 | 0x08 | 0x20 | 0x40;

/// See netdevice(7).
const IFF_LOWER_UP: u32 = 1 << 16;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// Kernel's number for it.
    pub index: u32,
    /// `IFF_*` flags (netdevice(7)).
    pub flags: u32,
    /// Longest IP packet, bytes; 0 if unknown.
    pub mtu_bytes: u32,
    /// Hardware address, all zeros if it has none.
    pub mac: [u8; 6],
    /// Link speed in Mbit/s, if the driver says.
    pub speed_mbps: Option<u32>,
}

impl Interface {
    /// Whether it is switched on.
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Whether a carrier is there. `IFF_RUNNING` follows the carrier of a new link by up to a second;
    /// `IFF_LOWER_UP` is the carrier itself.
    pub fn is_running(&self) -> bool {
        self.flags & (libc::IFF_RUNNING as u32 | IFF_LOWER_UP) != 0
    }

    /// Whether it leads nowhere else.
    pub fn is_loopback(&self) -> bool {
        self.flags & libc::IFF_LOOPBACK as u32 != 0
    }
}

/// An address and the interface it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// Address.
    pub ip: IpAddr,
    /// Its interface.
    pub interface: Interface,
    /// It is the source address of the default route of its family.
    pub default_route: bool,
}

/// Addresses that a device can stand on: those of the default routes first (IPv4, then IPv6), then by
/// interface number, IPv4 before IPv6. Left out are interfaces that are down, loopback unless asked for,
/// link-local addresses, and IPv6 addresses that will not last (temporary, deprecated) or are not yet
/// sure.
pub fn usable_addresses(with_loopback: bool) -> io::Result<Vec<LocalAddress>> {
    let unfit = read_unfit_ipv6();
    let defaults = [source_for_default_route(false), source_for_default_route(true)];
    let mut found = list()?;
    found.retain(|address| {
        address.interface.is_up()
            && (with_loopback || !(address.interface.is_loopback() || address.ip.is_loopback()))
            && !is_link_local(address.ip)
            && !unfit.contains(&address.ip)
    });
    for address in &mut found {
        address.default_route = defaults.contains(&Some(address.ip));
    }
    found.sort_by_key(|address| (!address.default_route, rank(address)));
    Ok(found)
}

/// Order among addresses that are equally close to the default route.
fn rank(address: &LocalAddress) -> (bool, u32, bool) {
    let first_family = address.default_route && address.ip.is_ipv6();
    (first_family, address.interface.index, address.ip.is_ipv6())
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// IPv6 addresses with flags that make them unfit, from `/proc/net/if_inet6`; none if it cannot be read.
fn read_unfit_ipv6() -> Vec<IpAddr> {
    fs::read_to_string("/proc/net/if_inet6").map_or(Vec::new(), |text| parse_unfit(&text))
}

/// Lines are: address, interface number, prefix length, scope, flags (all hexadecimal), name.
fn parse_unfit(text: &str) -> Vec<IpAddr> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let address = u128::from_str_radix(fields.next()?, 16).ok()?;
            let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
            (flags & UNFIT_FLAGS != 0).then(|| Ipv6Addr::from(address).into())
        })
        .collect()
}

/// The list that getifaddrs(3) gives, freed on drop.
struct RawList(*mut libc::ifaddrs);

impl Drop for RawList {
    fn drop(&mut self) {
        // SAFETY: the list made by `getifaddrs`, freed once.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

/// One entry: an interface with one address of any family.
struct RawEntry {
    name: String,
    flags: u32,
    ip: Option<IpAddr>,
    link: Option<libc::sockaddr_ll>,
}

/// Every IPv4 and IPv6 address of every interface, in the kernel's order.
fn list() -> io::Result<Vec<LocalAddress>> {
    let entries = raw_entries()?;
    let mut interfaces: HashMap<String, Interface> = HashMap::new();
    for entry in &entries {
        let interface =
            interfaces.entry(entry.name.clone()).or_insert_with(|| describe(&entry.name, entry.flags));
        if let Some(link) = entry.link {
            interface.index = u32::try_from(link.sll_ifindex).unwrap_or(0);
            interface.mac.copy_from_slice(&link.sll_addr[..6]);
        }
    }
    let address = |entry: &RawEntry| {
        let interface = interfaces.get(&entry.name)?.clone();
        Some(LocalAddress { ip: entry.ip?, interface, default_route: false })
    };
    Ok(entries.iter().filter_map(address).collect())
}

fn raw_entries() -> io::Result<Vec<RawEntry>> {
    let mut head = std::ptr::null_mut();
    // SAFETY: the result goes to `head`.
    if unsafe { libc::getifaddrs(&mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let list = RawList(head);
    let mut entries = Vec::new();
    let mut at = list.0;
    while !at.is_null() {
        // SAFETY: a node of the list, which lives until `list` is dropped.
        let node = unsafe { &*at };
        // SAFETY: the name of a node is a string that lives as long.
        let label = unsafe { CStr::from_ptr(node.ifa_name) }.to_string_lossy();
        // SAFETY: the address of a node is null or as long as its family says.
        let (ip, link) = unsafe { (read_ip(node.ifa_addr), read_link(node.ifa_addr)) };
        // An IPv4 alias has a label such as eth0:1.
        let name = label.split(':').next().unwrap_or_default().to_owned();
        entries.push(RawEntry { name, flags: node.ifa_flags, ip, link });
        at = node.ifa_next;
    }
    Ok(entries)
}

/// # Safety
/// `address` is null or points to a socket address as long as its family says.
unsafe fn read_ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: not null, so at least the family is there.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    let bytes = match family {
        libc::AF_INET => mem::size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => mem::size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let mut raw = RawAddress::empty();
    // SAFETY: the caller's promise for the source; `raw` has room for either family.
    unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut raw).cast::<u8>(), bytes) };
    raw.get().map(|address| address.ip())
}

/// # Safety
/// As for `read_ip`.
unsafe fn read_link(address: *const libc::sockaddr) -> Option<libc::sockaddr_ll> {
    // SAFETY: not null, so at least the family is there.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    // SAFETY: a packet address is a whole `sockaddr_ll`.
    (family == libc::AF_PACKET).then(|| unsafe { address.cast::<libc::sockaddr_ll>().read_unaligned() })
}

fn describe(name: &str, flags: u32) -> Interface {
    let speed = fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok();
    Interface {
        name: name.to_owned(),
        index: 0,
        flags,
        mtu_bytes: read_mtu(name).unwrap_or(0),
        mac: [0; 6],
        speed_mbps: speed.and_then(|text| text.trim().parse().ok()).filter(|&mbps| mbps > 0),
    }
}

fn read_mtu(name: &str) -> Option<u32> {
    let fd = sys::udp_socket(Ipv4Addr::UNSPECIFIED.into()).ok()?;
    // SAFETY: zero is a valid value of `ifreq`: a name and a union of plain values.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    // SAFETY: the request holds a terminated name, and outlives the call.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request) } != 0 {
        return None;
    }
    // SAFETY: SIOCGIFMTU fills in the MTU.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_that_will_not_last_are_unfit() {
        let text = "fd000000000000000000000000000002 04 40 00 80     eth0\n\
                    fd000000000000000000000000000003 04 40 00 01     eth0\n\
                    fd000000000000000000000000000004 04 40 00 a0     eth0\n\
                    fd000000000000000000000000000005 04 40 00 c0     eth0\n\
                    nonsense\n\
                    00000000000000000000000000000001 01 80 10 80       lo\n";
        let unfit: Vec<String> = parse_unfit(text).iter().map(|ip| ip.to_string()).collect();
        assert_eq!(unfit, ["fd00::3", "fd00::4", "fd00::5"]);
    }

    #[test]
    fn link_local_addresses_are_recognised() {
        for (ip, expected) in [
            ("169.254.3.4", true),
            ("169.253.3.4", false),
            ("fe80::1", true),
            ("febf::1", true),
            ("fec0::1", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(is_link_local(ip.parse().unwrap()), expected, "{ip}");
        }
    }

    #[test]
    fn the_default_route_comes_first_then_interfaces_then_families() {
        let address = |ip: &str, index, default_route| LocalAddress {
            ip: ip.parse().unwrap(),
            interface: Interface {
                name: String::new(),
                index,
                flags: 0,
                mtu_bytes: 0,
                mac: [0; 6],
                speed_mbps: None,
            },
            default_route,
        };
        let mut all = [
            address("fd00::9", 2, false),
            address("10.0.0.9", 3, false),
            address("fd00::1", 1, true),
            address("10.0.0.2", 2, false),
            address("10.0.0.1", 5, true),
        ];
        all.sort_by_key(|address| (!address.default_route, rank(address)));
        let order: Vec<String> = all.iter().map(|address| address.ip.to_string()).collect();
        assert_eq!(order, ["10.0.0.1", "fd00::1", "10.0.0.2", "fd00::9", "10.0.0.9"]);
    }

    #[test]
    fn loopback_is_listed_only_when_asked_for() {
        let with = usable_addresses(true).unwrap();
        let lo = with.iter().find(|address| address.ip.is_loopback()).unwrap();
        assert!(lo.interface.is_loopback() && lo.interface.is_up() && lo.interface.index > 0);
        assert!(lo.interface.mtu_bytes >= 1280, "{lo:?}");
        assert!(usable_addresses(false).unwrap().iter().all(|address| !address.ip.is_loopback()));
    }
}
