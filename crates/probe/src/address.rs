//! The addresses of this host that a peer can reach, and which of them faces a given peer.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// Name of the interface.
    pub interface: String,
}

/// The usable addresses of this host: on an interface that is up, not loopback, not link-local and
/// not temporary (RFC 8981). The source of the default route comes first.
pub fn usable() -> io::Result<Vec<Address>> {
    let unstable = unstable_ipv6(&std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default());
    let mut list: Vec<Address> = interfaces()?
        .into_iter()
        .filter(|own| routable(own.address) && !unstable.contains(&own.address))
        .collect();
    // Documentation addresses (RFC 5737, RFC 3849): nothing is sent, only the route is looked up.
    let far = [IpAddr::from([192, 0, 2, 254]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe])];
    let defaults: Vec<IpAddr> = far.iter().filter_map(|far| source_for(*far).ok()).collect();
    list.sort_by_key(|own| {
        defaults.iter().position(|default| *default == own.address).unwrap_or(defaults.len())
    });
    Ok(list)
}

/// The address that this host sends from to reach `peer`; an error is the kernel's word that it has no
/// route. Nothing is sent.
pub fn source_for(peer: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(SocketAddr::new(peer, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// MTU in bytes of the interface that has `address`; `None` if none has it.
pub fn mtu_of(address: IpAddr) -> Option<u32> {
    let own = interfaces_with_loopback().ok()?.into_iter().find(|own| own.address == address)?;
    std::fs::read_to_string(format!("/sys/class/net/{}/mtu", own.interface)).ok()?.trim().parse().ok()
}

fn routable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !(v4.is_loopback() || v4.is_link_local() || v4.is_unspecified()),
        IpAddr::V6(v6) => !(v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified()),
    }
}

/// Addresses that may vanish or do not work yet, from the text of `/proc/net/if_inet6`: address,
/// index, prefix length, scope, flags, name.
fn unstable_ipv6(text: &str) -> Vec<IpAddr> {
    // linux/if_addr.h: temporary, DAD failed, deprecated, tentative.
    const UNSTABLE: u8 = 0x01 | 0x08 | 0x20 | 0x40;
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        let flags = u8::from_str_radix(words.nth(3)?, 16).ok()?;
        (flags & UNSTABLE != 0).then(|| IpAddr::from(address.to_be_bytes()))
    };
    text.lines().filter_map(line).collect()
}

fn interfaces() -> io::Result<Vec<Address>> {
    listed(libc::IFF_UP as u32, libc::IFF_LOOPBACK as u32)
}

fn interfaces_with_loopback() -> io::Result<Vec<Address>> {
    listed(libc::IFF_UP as u32, 0)
}

/// Addresses of interfaces that have all flags of `with` and none of `without`, by getifaddrs(3).
fn listed(with: u32, without: u32) -> io::Result<Vec<Address>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `head` is a valid place for the list's head.
    if unsafe { libc::getifaddrs(&mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut list = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: getifaddrs made a list of valid nodes that ends in null; it is freed below.
        let node = unsafe { &*next };
        next = node.ifa_next;
        if node.ifa_flags & with != with || node.ifa_flags & without != 0 || node.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: `ifa_addr` is non-null and points to a sockaddr of its family's size.
        let address = unsafe { address_at(node.ifa_addr) };
        // SAFETY: `ifa_name` is a NUL-terminated string for as long as the list lives.
        let name = unsafe { CStr::from_ptr(node.ifa_name) };
        list.extend(
            address.map(|address| Address { address, interface: name.to_string_lossy().into_owned() }),
        );
    }
    // SAFETY: `head` came from getifaddrs and is freed once; nothing borrowed from it is left.
    unsafe { libc::freeifaddrs(head) };
    Ok(list)
}

/// # Safety
/// `at` points to a sockaddr that is as large as its family says.
unsafe fn address_at(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the family field is common to all sockaddrs; the casts follow it.
    unsafe {
        match i32::from((*at).sa_family) {
            libc::AF_INET => {
                let v4 = std::ptr::read_unaligned(at.cast::<libc::sockaddr_in>());
                Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                let v6 = std::ptr::read_unaligned(at.cast::<libc::sockaddr_in6>());
                Some(IpAddr::from(v6.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn temporary_deprecated_and_tentative_addresses_are_unstable() {
        let line = |last: u8, flags: u8| {
            format!("fd0000000000000000000000000000{last:02x} 02 40 00 {flags:02x}     eth0\n")
        };
        let text: String = [(1, 0x80), (2, 0x01), (3, 0x20), (4, 0x40), (5, 0x00), (6, 0x08)]
            .map(|(l, f)| line(l, f))
            .concat();
        let unstable = unstable_ipv6(&(text + "garbage\n"));
        let expected: Vec<IpAddr> =
            ["fd00::2", "fd00::3", "fd00::4", "fd00::6"].map(|a| a.parse().unwrap()).into();
        assert_eq!(unstable, expected);
    }

    #[test]
    fn loopback_is_its_own_source_and_never_usable() {
        for loopback in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            assert_eq!(source_for(loopback).unwrap(), loopback);
            assert!(usable().unwrap().iter().all(|own| own.address != loopback));
            assert!(mtu_of(loopback).unwrap() >= 1280);
        }
        assert_eq!(mtu_of("203.0.113.9".parse().unwrap()), None);
    }
}
