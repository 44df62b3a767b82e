//! The sockets of an endpoint: the slot's, whose binding is the claim, and one per path.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use srdma_seams::{PathId, Slot};

use crate::endpoint::Options;
use crate::error::OpenError;
use crate::notice;
use crate::sys::{self, Identity};

/// IP_PMTUDISC_PROBE of ip(7): DF set, the kernel's cached path MTU ignored. The same for IPv6.
const PMTUDISC_PROBE: libc::c_int = 3;
/// Below this, a burst of one window is likely to overflow the receive buffer.
const RECEIVE_BUFFER_BYTES_WANTED_MIN: i32 = 1 << 20;
/// Paths of one endpoint at most: a path id is 0–255.
pub const PATHS_MAX: usize = 256;
/// Attempts to get an ephemeral port that is no slot's.
const EPHEMERAL_TRIES: usize = 16;
/// Descriptors that paths give back when they have met the limit.
const LEFT_TO_THE_PROGRAM: usize = 16;

/// Claims the first free slot of the range by binding its port.
pub(crate) fn claim_slot(local: IpAddr, options: &Options) -> Result<(Slot, OwnedFd), OpenError> {
    let fail = |what, source| io_error(what, local, source);
    let mut tried = 0;
    for number in options.slots.clone() {
        let slot = Slot(number);
        tried += 1;
        // A fresh socket for each try: one that failed to bind may keep half of the attempt's state.
        let fd = sys::udp_socket(local).map_err(|e| fail("opening a UDP socket", e))?;
        match sys::bind(fd.as_fd(), SocketAddr::new(local, slot.port())) {
            Ok(()) => {
                prepare_receiving(fd.as_fd(), local, options)
                    .map_err(|e| fail("setting options of the slot socket", e))?;
                return Ok((slot, fd));
            }
            Err(e) => match e.raw_os_error() {
                Some(libc::EADDRINUSE) => {}
                Some(libc::EADDRNOTAVAIL) => return Err(OpenError::AddressUnavailable { address: local }),
                Some(libc::EACCES | libc::EPERM) => {
                    return Err(OpenError::Forbidden { address: local, port: slot.port() })
                }
                _ => return Err(fail("binding the slot's port", e)),
            },
        }
    }
    Err(OpenError::AllSlotsTaken {
        address: local,
        tried,
        first_port: Slot(*options.slots.start()).port(),
        last_port: Slot(*options.slots.end()).port(),
    })
}

fn io_error(what: &'static str, address: IpAddr, source: io::Error) -> OpenError {
    match source.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => OpenError::TooManyFiles,
        _ => OpenError::Io { what, address, source },
    }
}

fn prepare_receiving(fd: BorrowedFd<'_>, local: IpAddr, options: &Options) -> io::Result<()> {
    if local.is_ipv4() {
        sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, 1)?;
    } else {
        sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
    }
    if options.gro {
        // Kernels before 5.0 do not have it; packets then come one by one.
        let _ = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    }
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    size_receive_buffer(fd, options.receive_buffer_bytes)
}

/// Asks for `wanted` bytes; what the kernel gives less than 1 MiB of is named once.
fn size_receive_buffer(fd: BorrowedFd<'_>, wanted: u32) -> io::Result<()> {
    static NAMED: AtomicBool = AtomicBool::new(false);
    let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
    // The privileged form ignores the sysctl limit.
    if sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted).is_err() {
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, wanted)?;
    }
    // The kernel doubles what it was asked for, to pay for its own overhead (socket(7)).
    let effective = sys::option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)? / 2;
    if effective < wanted.min(RECEIVE_BUFFER_BYTES_WANTED_MIN) && !NAMED.swap(true, Ordering::Relaxed) {
        notice::tell(&format!(
            "the UDP receive buffer is only {effective} bytes, bursts will be lost; \
             raise its limit with: sysctl -w net.core.rmem_max={wanted}"
        ));
    }
    Ok(())
}

/// A socket that only sends; its source port is what the fabric's hash sees of the path.
struct PathSocket {
    fd: OwnedFd,
    file: Identity,
    port: u16,
    /// Traffic class byte that the socket is set to; `None` before the first packet.
    class: Option<u8>,
}

/// Path sockets, opened when first used and shared by all queue pairs of the endpoint.
pub(crate) struct PathSockets {
    local: IpAddr,
    send_buffer_bytes: u32,
    sockets: Vec<PathSocket>,
    /// Which socket a path uses; `u16::MAX` until it has one.
    by_path: Box<[u16; PATHS_MAX]>,
    /// No further socket can be opened.
    full: bool,
    /// The next socket to look at, see [`PathSockets::next_is_intact`].
    look_at: usize,
    /// Paths that share another's socket.
    pub(crate) shared: u64,
}

impl PathSockets {
    pub(crate) fn new(local: IpAddr, send_buffer_bytes: u32) -> PathSockets {
        PathSockets {
            local,
            send_buffer_bytes,
            sockets: Vec::new(),
            by_path: Box::new([u16::MAX; PATHS_MAX]),
            full: false,
            look_at: 0,
            shared: 0,
        }
    }

    /// Every open socket.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = (RawFd, Identity)> + '_ {
        self.sockets.iter().map(|socket| (socket.fd.as_raw_fd(), socket.file))
    }

    /// Whether one of the sockets, another each time, still is what was opened.
    pub(crate) fn next_is_intact(&mut self) -> bool {
        self.look_at += 1;
        let count = self.sockets.len().max(1);
        let socket = self.sockets.get(self.look_at % count);
        socket.is_none_or(|socket| Identity::of(socket.fd.as_raw_fd()) == Some(socket.file))
    }

    pub(crate) fn open_count(&self) -> usize {
        self.sockets.len()
    }

    /// Source port of `path`; `None` before its first use.
    pub(crate) fn port(&self, path: PathId) -> Option<u16> {
        let index = self.by_path[usize::from(path.0) % PATHS_MAX];
        self.sockets.get(usize::from(index)).map(|socket| socket.port)
    }

    /// The socket of `path`, set to send with `class` (DSCP and ECN bits).
    pub(crate) fn get(&mut self, path: PathId, class: u8) -> io::Result<BorrowedFd<'_>> {
        let place = usize::from(path.0) % PATHS_MAX;
        let mut index = self.by_path[place];
        if index == u16::MAX {
            index = self.open(place)?;
            self.by_path[place] = index;
        }
        let local = self.local;
        let socket = &mut self.sockets[usize::from(index)];
        if socket.class != Some(class) {
            let fd = socket.fd.as_fd();
            if local.is_ipv4() {
                sys::set_option(fd, libc::IPPROTO_IP, libc::IP_TOS, class.into())?;
            } else {
                sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class.into())?;
            }
            socket.class = Some(class);
        }
        Ok(socket.fd.as_fd())
    }

    /// Opens a socket for path number `place`, or picks one that is open when no more can be.
    fn open(&mut self, place: usize) -> io::Result<u16> {
        if !self.full {
            match self.open_socket() {
                Ok(socket) => {
                    self.sockets.push(socket);
                    return Ok((self.sockets.len() - 1) as u16);
                }
                Err(e) if self.sockets.is_empty() => return Err(e),
                Err(e) => {
                    self.full = true;
                    self.leave_some();
                    self.name_the_limit(&e);
                }
            }
        }
        self.shared += 1;
        Ok((place % self.sockets.len()) as u16)
    }

    /// Gives descriptors back, or the program's own next `open` or `socket` would fail because of our paths.
    fn leave_some(&mut self) {
        let keep = self.sockets.len() - (self.sockets.len() / 2).min(LEFT_TO_THE_PROGRAM);
        self.sockets.truncate(keep);
        for (place, index) in self.by_path.iter_mut().enumerate() {
            if *index != u16::MAX && usize::from(*index) >= keep {
                *index = (place % keep) as u16;
                self.shared += 1;
            }
        }
    }

    fn name_the_limit(&self, error: &io::Error) {
        static NAMED: AtomicBool = AtomicBool::new(false);
        if !NAMED.swap(true, Ordering::Relaxed) {
            let advice = match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => "; raise the limit of open files with: ulimit -n 4096",
                _ => "",
            };
            let open = self.sockets.len();
            notice::tell(&format!(
                "only {open} path sockets can be open, the other paths share them: {error}{advice}"
            ));
        }
    }

    fn open_socket(&self) -> io::Result<PathSocket> {
        for _ in 0..EPHEMERAL_TRIES {
            let fd = sys::udp_socket(self.local)?;
            sys::bind(fd.as_fd(), SocketAddr::new(self.local, 0))?;
            let port = sys::local_address(fd.as_fd())?.port();
            let is_a_slots = port == Slot::FIRST_PORT || (Slot(1).port()..=Slot(255).port()).contains(&port);
            if is_a_slots {
                continue;
            }
            self.prepare_sending(fd.as_fd())?;
            let file = Identity::of(fd.as_raw_fd()).ok_or(io::Error::from_raw_os_error(libc::EBADF))?;
            return Ok(PathSocket { fd, file, port, class: None });
        }
        Err(io::Error::from_raw_os_error(libc::EADDRINUSE))
    }

    fn prepare_sending(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.local.is_ipv4() {
            sys::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, PMTUDISC_PROBE)?;
        } else {
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, PMTUDISC_PROBE)?;
        }
        let wanted = i32::try_from(self.send_buffer_bytes).unwrap_or(i32::MAX);
        if sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, wanted).is_err() {
            sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, wanted)?;
        }
        // Nobody reads here: whatever arrives must not take memory. The buffer alone would hold a packet.
        let _ = sys::drop_arrivals(fd);
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)
    }
}
