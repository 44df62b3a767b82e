//! What the kernel's routing says, asked through a throw-away socket that sends nothing: connecting a
//! UDP socket only looks the route up (udp(7)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use crate::outbox::DATAGRAM_BYTES_MAX;
use crate::sys;

/// IP and UDP headers.
const IPV4_OVERHEAD_BYTES: usize = 20 + 8;
const IPV6_OVERHEAD_BYTES: usize = 40 + 8;
/// Any port: nothing is sent to it.
const DISCARD_PORT: u16 = 9;

/// Most bytes of UDP payload that leave `local` for `remote` unfragmented, by the route's MTU.
pub fn payload_bytes_max(local: IpAddr, remote: IpAddr) -> io::Result<u16> {
    let fd = sys::udp_socket(remote)?;
    sys::bind(fd.as_fd(), SocketAddr::new(local, 0))?;
    sys::connect(fd.as_fd(), SocketAddr::new(remote, DISCARD_PORT))?;
    let (mtu_bytes, overhead_bytes) = if remote.is_ipv4() {
        (sys::option(fd.as_fd(), libc::IPPROTO_IP, libc::IP_MTU)?, IPV4_OVERHEAD_BYTES)
    } else {
        (sys::option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU)?, IPV6_OVERHEAD_BYTES)
    };
    let room = usize::try_from(mtu_bytes).unwrap_or(0).saturating_sub(overhead_bytes);
    Ok(room.min(DATAGRAM_BYTES_MAX) as u16)
}

/// Local address that packets to `remote` would carry.
pub fn source_for(remote: IpAddr) -> io::Result<IpAddr> {
    let fd = sys::udp_socket(remote)?;
    sys::connect(fd.as_fd(), SocketAddr::new(remote, DISCARD_PORT))?;
    Ok(sys::local_address(fd.as_fd())?.ip())
}

/// Local address of the default route, if there is one. The addresses asked about are reserved for
/// documentation (RFC 5737, RFC 3849): no other route leads to them.
pub fn source_for_default_route(ipv6: bool) -> Option<IpAddr> {
    let anywhere: IpAddr = match ipv6 {
        false => Ipv4Addr::new(203, 0, 113, 1).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    source_for(anywhere).ok()
}
