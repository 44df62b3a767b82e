//! A non-blocking UDP socket that can limit the life of what it sends and hear of its death.
//!
//! The kernel queues ICMP errors about a socket's packets on the socket itself (`IP_RECVERR` of ip(7),
//! `IPV6_RECVERR` of ipv6(7)), so no privilege is needed to learn who dropped a probe and why.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// What an ICMP error says, in the terms of both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmp {
    /// The packet's life ended at this router.
    TimeExceeded,
    /// The host is there but nobody has the port.
    PortUnreachable,
    /// A filter says that it refuses.
    Prohibited,
    /// The packet is larger than the next link takes, which is this many bytes (0 if not said).
    TooBig(u32),
    /// No route, or the host does not answer on its link.
    Unreachable,
    /// Anything else: type and code.
    Other(u8, u8),
}

/// An ICMP error about one of our packets.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Who says so; `None` when this host itself does.
    pub by: Option<IpAddr>,
    /// What.
    pub icmp: Icmp,
    /// As much of our UDP payload as it quoted; may be empty.
    pub quoted: Vec<u8>,
}

/// A datagram as received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Bytes in the buffer.
    pub bytes: usize,
    /// Where it came from.
    pub from: SocketAddr,
    /// Time-to-live or hop limit left.
    pub ttl: Option<u8>,
}

/// The socket.
#[derive(Debug)]
pub struct ProbeSocket {
    socket: UdpSocket,
    peer: Option<SocketAddr>,
    v6: bool,
}

impl ProbeSocket {
    /// Bound to a free port of `source`, sending to `peer`.
    ///
    /// Not connected to it: a slot's owner may answer from any of its ports.
    pub fn towards(source: IpAddr, peer: SocketAddr) -> io::Result<ProbeSocket> {
        let socket = ProbeSocket { peer: Some(peer), ..ProbeSocket::bound(SocketAddr::new(source, 0))? };
        socket.queue_errors()?;
        Ok(socket)
    }

    /// Bound to `local`, open to all.
    pub fn bound(local: SocketAddr) -> io::Result<ProbeSocket> {
        let socket = UdpSocket::bind(local)?;
        socket.set_nonblocking(true)?;
        let socket = ProbeSocket { socket, peer: None, v6: local.is_ipv6() };
        socket.refuse_fragments()?;
        let (level, name) = match socket.v6 {
            false => (libc::IPPROTO_IP, libc::IP_RECVTTL),
            true => (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
        };
        socket.set(level, name, 1)?;
        Ok(socket)
    }

    /// Our address and port.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Packets sent from now on die at the `ttl`-th router.
    pub fn set_ttl(&self, ttl: u8) -> io::Result<()> {
        let (level, name) = match self.v6 {
            false => (libc::IPPROTO_IP, libc::IP_TTL),
            true => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        };
        self.set(level, name, i32::from(ttl))
    }

    /// Packets are never fragmented, here or on the way, and what the kernel believes about the path
    /// does not stop them: it is what we are about to find out.
    fn refuse_fragments(&self) -> io::Result<()> {
        match self.v6 {
            false => self.set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            true => {
                self.set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
                self.set(libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)
            }
        }
    }

    fn queue_errors(&self) -> io::Result<()> {
        match self.v6 {
            false => self.set(libc::IPPROTO_IP, libc::IP_RECVERR, 1),
            true => self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
        }
    }

    fn set(&self, level: i32, name: i32, value: i32) -> io::Result<()> {
        let size = mem::size_of::<i32>() as libc::socklen_t;
        let at = (&raw const value).cast();
        // SAFETY: `at` points to `size` bytes that live through the call; the descriptor is ours.
        match unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, name, at, size) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends to the peer. An earlier packet's error may be reported here instead of where it belongs; it
    /// stays in the error queue, so this one is sent all the same.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let peer = self.peer.ok_or(io::ErrorKind::NotConnected)?;
        match self.send_to(bytes, peer) {
            Err(error) if of_a_packet(&error) => self.send_to(bytes, peer),
            other => other,
        }
    }

    /// Sends to `to`.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.socket.send_to(bytes, to).map(|_| ())
    }

    /// The next datagram, if one is there.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        loop {
            let mut control = Control::new();
            match self.message(buffer, &mut control, 0) {
                Ok((bytes, from)) => {
                    let from = from.ok_or(io::ErrorKind::InvalidData)?;
                    return Ok(Some(Received { bytes, from, ttl: control.ttl() }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The error of an earlier packet, reported once; the error queue has the details.
                Err(error) if of_a_packet(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next queued ICMP error, if one is there.
    pub fn refusal(&self) -> Option<Refusal> {
        let mut quoted = vec![0u8; 2048];
        let mut control = Control::new();
        let (bytes, _) = self.message(&mut quoted, &mut control, libc::MSG_ERRQUEUE).ok()?;
        quoted.truncate(bytes);
        let (by, icmp) = control.error()?;
        Some(Refusal { by, icmp, quoted })
    }

    fn message(
        &self,
        buffer: &mut [u8],
        control: &mut Control,
        flags: i32,
    ) -> io::Result<(usize, Option<SocketAddr>)> {
        // SAFETY: all-zero bytes are valid for both plain C structures.
        let (mut name, mut header): (libc::sockaddr_storage, libc::msghdr) = unsafe { mem::zeroed() };
        let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = &raw mut piece;
        header.msg_iovlen = 1;
        header.msg_control = control.space.as_mut_ptr().cast();
        header.msg_controllen = mem::size_of_val(&control.space) as _;
        // SAFETY: every pointer in `header` is to memory of the stated size that outlives the call.
        let got = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &mut header, flags) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        #[allow(clippy::unnecessary_cast)] // musl has 32 bits here
        let used = header.msg_controllen as usize;
        control.used = used;
        // SAFETY: `name` is initialised and as large as any address family needs.
        Ok((got as usize, unsafe { socket_address(&name) }))
    }
}

/// Whether a call reported what ICMP said of an earlier packet (icmp_err_convert in net/ipv4/icmp.c and
/// icmpv6_err_convert in net/ipv6/icmp.c), not a failure of its own.
fn of_a_packet(error: &io::Error) -> bool {
    use libc::{
        EACCES, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, EMSGSIZE, ENETUNREACH, ENONET, ENOPROTOOPT,
        EOPNOTSUPP, EPROTO,
    };
    const REPORTED: [i32; 10] = [
        EACCES,
        ECONNREFUSED,
        EHOSTDOWN,
        EHOSTUNREACH,
        EMSGSIZE,
        ENETUNREACH,
        ENONET,
        ENOPROTOOPT,
        EOPNOTSUPP,
        EPROTO,
    ];
    error.raw_os_error().is_some_and(|errno| REPORTED.contains(&errno))
}

impl AsRawFd for ProbeSocket {
    fn as_raw_fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }
}

/// Waits until one of `sockets` has something to read or an error, or the time is up.
pub fn wait<'a>(sockets: impl Iterator<Item = &'a ProbeSocket>, at_most: Duration) {
    let entry =
        |socket: &ProbeSocket| libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut list: Vec<libc::pollfd> = sockets.map(entry).collect();
    // Rounded up, or the last fraction of a millisecond would be spun away.
    let timeout_ms = i32::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: `list` is an array of as many pollfds as stated. A failure (EINTR) is an early return.
    unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout_ms) };
}

/// Ancillary data of one message; `u64` for the alignment of cmsghdr.
struct Control {
    space: [u64; 64],
    used: usize,
}

/// Bytes of a `cmsghdr` up to its data, on 64-bit Linux: length (8), level (4), type (4).
const HEAD_BYTES: usize = mem::size_of::<libc::cmsghdr>();

impl Control {
    fn new() -> Control {
        Control { space: [0; 64], used: 0 }
    }

    /// The data of the first entry of that kind. Parsed by hand from bytes, as cmsg(3) lays it out.
    fn find(&self, level: i32, kind: i32) -> Option<Vec<u8>> {
        let bytes: Vec<u8> = self.space.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut rest = bytes.get(..self.used)?;
        while let Some((head, _)) = rest.split_at_checked(HEAD_BYTES) {
            let length = usize::from_ne_bytes(head.get(..8)?.try_into().ok()?);
            let at = |from: usize| Some(i32::from_ne_bytes(head.get(from..from + 4)?.try_into().ok()?));
            let data = rest.get(HEAD_BYTES..length)?;
            if (at(8)?, at(12)?) == (level, kind) {
                return Some(data.to_vec());
            }
            rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
        }
        None
    }

    fn ttl(&self) -> Option<u8> {
        let data = self
            .find(libc::IPPROTO_IP, libc::IP_TTL)
            .or_else(|| self.find(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT))?;
        u8::try_from(i32::from_ne_bytes(data.get(..4)?.try_into().ok()?)).ok()
    }

    /// `struct sock_extended_err` and the offender's address behind it (linux/errqueue.h).
    fn error(&self) -> Option<(Option<IpAddr>, Icmp)> {
        let data = self
            .find(libc::IPPROTO_IP, libc::IP_RECVERR)
            .or_else(|| self.find(libc::IPPROTO_IPV6, libc::IPV6_RECVERR))?;
        let (origin, kind, code) = (*data.get(4)?, *data.get(5)?, *data.get(6)?);
        let info = u32::from_ne_bytes(data.get(8..12)?.try_into().ok()?);
        let offender = data.get(16..)?;
        let by = match i32::from(u16::from_ne_bytes(offender.get(..2)?.try_into().ok()?)) {
            libc::AF_INET => offender.get(4..8).and_then(|a| <[u8; 4]>::try_from(a).ok()).map(IpAddr::from),
            libc::AF_INET6 => {
                offender.get(8..24).and_then(|a| <[u8; 16]>::try_from(a).ok()).map(IpAddr::from)
            }
            _ => None,
        };
        Some((by, meaning(origin, kind, code, info)))
    }
}

/// Types and codes: RFC 792, RFC 1812 §5.2.7.1 and the IANA registries for both versions.
fn meaning(origin: u8, kind: u8, code: u8, info: u32) -> Icmp {
    const LOCAL: u8 = 1; // SO_EE_ORIGIN_LOCAL
    const ICMP: u8 = 2; // SO_EE_ORIGIN_ICMP
    const ICMP6: u8 = 3; // SO_EE_ORIGIN_ICMP6
    match (origin, kind, code) {
        (LOCAL, ..) if info > 0 => Icmp::TooBig(info),
        (ICMP, 11, _) | (ICMP6, 3, _) => Icmp::TimeExceeded,
        (ICMP, 3, 3) | (ICMP6, 1, 4) => Icmp::PortUnreachable,
        (ICMP, 3, 9 | 10 | 13) | (ICMP6, 1, 1 | 5 | 6) => Icmp::Prohibited,
        (ICMP, 3, 4) | (ICMP6, 2, _) => Icmp::TooBig(info),
        (ICMP, 3, _) | (ICMP6, 1, _) => Icmp::Unreachable,
        _ => Icmp::Other(kind, code),
    }
}

/// # Safety
/// `name` is initialised; its family says which fields are meaningful.
unsafe fn socket_address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let at: *const libc::sockaddr_storage = name;
    // SAFETY: sockaddr_storage is at least as large and as aligned as each family's structure.
    unsafe {
        match i32::from(name.ss_family) {
            libc::AF_INET => {
                let v4 = &*at.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = &*at.cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)))
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
    fn icmp_of_both_versions_has_one_meaning() {
        for (origin, kind, code, info, icmp) in [
            (2, 11, 0, 0, Icmp::TimeExceeded),
            (3, 3, 0, 0, Icmp::TimeExceeded),
            (2, 3, 3, 0, Icmp::PortUnreachable),
            (3, 1, 4, 0, Icmp::PortUnreachable),
            (2, 3, 13, 0, Icmp::Prohibited),
            (3, 1, 1, 0, Icmp::Prohibited),
            (2, 3, 4, 1400, Icmp::TooBig(1400)),
            (3, 2, 0, 1280, Icmp::TooBig(1280)),
            (1, 0, 0, 1500, Icmp::TooBig(1500)),
            (2, 3, 1, 0, Icmp::Unreachable),
            (3, 1, 3, 0, Icmp::Unreachable),
            (2, 12, 1, 0, Icmp::Other(12, 1)),
        ] {
            assert_eq!(meaning(origin, kind, code, info), icmp, "{origin} {kind} {code}");
        }
    }

    #[test]
    fn a_closed_port_is_heard_of_with_the_quoted_payload() {
        for local in ["127.0.0.1", "::1"] {
            let local: IpAddr = local.parse().unwrap();
            // A port that was free a moment ago.
            let port = UdpSocket::bind((local, 0)).unwrap().local_addr().unwrap().port();
            let socket = ProbeSocket::towards(local, SocketAddr::new(local, port)).unwrap();
            socket.send(b"are you there").unwrap();
            wait([&socket].into_iter(), Duration::from_secs(5));
            let refusal = socket.refusal().expect("an ICMP error");
            assert_eq!((refusal.by, refusal.icmp), (Some(local), Icmp::PortUnreachable));
            assert_eq!(refusal.quoted, b"are you there");
            assert!(socket.refusal().is_none());
            assert!(socket.receive(&mut [0; 64]).unwrap().is_none());
        }
    }

    #[test]
    fn the_time_to_live_arrives() {
        for local in ["127.0.0.1", "::1"] {
            let local: IpAddr = local.parse().unwrap();
            let receiver = ProbeSocket::bound(SocketAddr::new(local, 0)).unwrap();
            let sender = ProbeSocket::towards(local, receiver.local().unwrap()).unwrap();
            sender.set_ttl(7).unwrap();
            sender.send(b"x").unwrap();
            wait([&receiver].into_iter(), Duration::from_secs(5));
            let got = receiver.receive(&mut [0; 64]).unwrap().expect("a datagram");
            assert_eq!((got.bytes, got.from, got.ttl), (1, sender.local().unwrap(), Some(7)));
        }
    }
}
