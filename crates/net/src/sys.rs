//! The few system calls this room needs, with their raw structures kept inside.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Bytes somewhere in this process, as an address and a length. They may be unmapped: only the kernel
/// ever looks at them, and it answers `EFAULT`. Same layout as `struct iovec` (readv(2)).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSlice {
    /// Address of the first byte.
    pub address: usize,
    /// Bytes.
    pub length: usize,
}

const _: () = assert!(
    mem::size_of::<RawSlice>() == mem::size_of::<libc::iovec>()
        && mem::align_of::<RawSlice>() == mem::align_of::<libc::iovec>()
        && mem::offset_of!(RawSlice, address) == mem::offset_of!(libc::iovec, iov_base)
        && mem::offset_of!(RawSlice, length) == mem::offset_of!(libc::iovec, iov_len)
);

impl From<&[u8]> for RawSlice {
    fn from(bytes: &[u8]) -> RawSlice {
        RawSlice { address: bytes.as_ptr() as usize, length: bytes.len() }
    }
}

/// `errno` of the call that has just failed.
pub(crate) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(returned)
    }
}

/// A socket address in the kernel's layout.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

pub(crate) const RAW_ADDRESS_BYTES: libc::socklen_t = mem::size_of::<RawAddress>() as libc::socklen_t;

impl RawAddress {
    pub(crate) const fn empty() -> RawAddress {
        // SAFETY: all-zero bytes are a valid value of every field: plain integers.
        unsafe { mem::zeroed() }
    }

    /// The address and its length.
    pub(crate) fn new(address: SocketAddr) -> (RawAddress, libc::socklen_t) {
        let mut raw = RawAddress::empty();
        match address {
            SocketAddr::V4(v4) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (raw, mem::size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(v6) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                (raw, mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// The address as the standard library has it; `None` for another family.
    pub(crate) fn get(&self) -> Option<SocketAddr> {
        // SAFETY: every field starts with the family, and all bytes were initialised by `empty`.
        let family = libc::c_int::from(unsafe { self.family });
        match family {
            libc::AF_INET => {
                // SAFETY: plain integers, initialised by `empty` or the kernel.
                let v4 = unsafe { self.v4 };
                let ip = v4.sin_addr.s_addr.to_ne_bytes().into();
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: plain integers, initialised by `empty` or the kernel.
                let v6 = unsafe { self.v6 };
                let ip = v6.sin6_addr.s6_addr.into();
                Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// A non-blocking UDP socket that children do not inherit across exec.
pub(crate) fn udp_socket(local: IpAddr) -> io::Result<OwnedFd> {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn bind(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let (raw, length) = RawAddress::new(address);
    // SAFETY: `raw` holds at least `length` initialised bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), length) }).map(drop)
}

pub(crate) fn connect(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let (raw, length) = RawAddress::new(address);
    // SAFETY: `raw` holds at least `length` initialised bytes.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), length) }).map(drop)
}

pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::empty();
    let mut length = RAW_ADDRESS_BYTES;
    // SAFETY: `raw` has room for `length` bytes, and both outlive the call.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut raw).cast(), &mut length) })?;
    raw.get().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let bytes = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is `bytes` long and outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), bytes) })
        .map(drop)
}

pub(crate) fn option(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut bytes = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is `bytes` long and outlives the call.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &mut bytes) })?;
    Ok(value)
}

/// Memory of a socket, from `SO_MEMINFO` (include/uapi/linux/sock_diag.h, `SK_MEMINFO_*`).
pub(crate) struct MemInfo {
    /// Bytes that queued packets take, the kernel's own overhead included.
    pub(crate) receive_used: u32,
    /// Their limit.
    pub(crate) receive_limit: u32,
    /// Packets dropped for lack of room; wraps.
    pub(crate) drops: u32,
}

pub(crate) fn mem_info(fd: BorrowedFd<'_>) -> io::Result<MemInfo> {
    let mut values = [0u32; 9];
    let mut bytes = mem::size_of_val(&values) as libc::socklen_t;
    let at = values.as_mut_ptr().cast();
    // SAFETY: `values` is `bytes` long and outlives the call.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, at, &mut bytes) })?;
    Ok(MemInfo { receive_used: values[0], receive_limit: values[1], drops: values[8] })
}

/// Makes the socket drop everything that arrives at it (classic BPF, `ret 0`; socket(7)).
pub(crate) fn drop_arrivals(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut refuse = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: refuse.as_mut_ptr() };
    let bytes = mem::size_of_val(&program) as libc::socklen_t;
    let at = (&raw const program).cast();
    // SAFETY: the program has one instruction, and it and its header outlive the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, bytes) })
        .map(drop)
}

/// Which open file a descriptor number names. Numbers are the program's to reuse: it may close every descriptor that
/// it does not know (closefrom(3)) and open other files under the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// What the number names now; `None` if it is not open. Files of the same anonymous kind (eventfd, timerfd) are
    /// not told apart. Async-signal-safe: fstat(2).
    pub fn of(fd: RawFd) -> Option<Identity> {
        // SAFETY: zero is a valid value of this struct of integers.
        let mut found: libc::stat = unsafe { mem::zeroed() };
        // SAFETY: `found` is writable and outlives the call; a number that is not open is an error.
        let rc = unsafe { libc::fstat(fd, &mut found) };
        (rc == 0).then_some(Identity { device: found.st_dev, inode: found.st_ino })
    }
}

/// Replaces the file behind each descriptor that still is ours by an event counter that nobody uses.
pub(crate) fn give_up(descriptors: impl Iterator<Item = (RawFd, Identity)>) {
    // SAFETY: no pointers.
    let harmless = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if harmless < 0 {
        return;
    }
    for (fd, file) in descriptors {
        if Identity::of(fd) == Some(file) {
            // SAFETY: no pointers; the descriptor stays open, so that whoever owns it can still close it.
            unsafe { libc::dup3(harmless, fd, libc::O_CLOEXEC) };
        }
    }
    // SAFETY: made above and known to nobody.
    unsafe { libc::close(harmless) };
}

/// Room for one control message with a small payload, aligned as `cmsghdr` wants it (cmsg(3)).
type Control = [u64; 3];

/// Messages for one `sendmsg` or `sendmmsg`, all to one address. Reused, never shrunk.
pub(crate) struct SendMessages {
    headers: Vec<libc::mmsghdr>,
    controls: Vec<Control>,
    spans: Vec<Span>,
    name: RawAddress,
    name_bytes: libc::socklen_t,
}

/// Which slices a message gathers.
#[derive(Clone, Copy)]
struct Span {
    first: usize,
    count: usize,
    segment_bytes: u16,
}

// SAFETY: the pointers inside `headers` are written by `send` right before the kernel reads them and never
// looked at otherwise; moving the struct to another thread between calls is harmless.
unsafe impl Send for SendMessages {}

impl SendMessages {
    pub(crate) fn new() -> SendMessages {
        SendMessages {
            headers: Vec::new(),
            controls: Vec::new(),
            spans: Vec::new(),
            name: RawAddress::empty(),
            name_bytes: 0,
        }
    }

    pub(crate) fn begin(&mut self, to: SocketAddr) {
        (self.name, self.name_bytes) = RawAddress::new(to);
        self.spans.clear();
    }

    /// Adds the message made of `count` slices from `first` on; if `segment_bytes` is not 0 the kernel cuts
    /// it into packets of that size (UDP_SEGMENT, udp(7)).
    pub(crate) fn push(&mut self, first: usize, count: usize, segment_bytes: u16) {
        self.spans.push(Span { first, count, segment_bytes });
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Sends the messages from number `from` on; answers how many were sent (at least one), or `errno`.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        slices: &[RawSlice],
        from: usize,
    ) -> Result<usize, i32> {
        self.headers.clear();
        // SAFETY: zero is a valid value of `mmsghdr`: null pointers and integers.
        self.headers.resize(self.spans.len(), unsafe { mem::zeroed() });
        self.controls.resize(self.spans.len().max(self.controls.len()), [0; 3]);
        for ((header, span), control) in self.headers.iter_mut().zip(&self.spans).zip(&mut self.controls) {
            let gathered = &slices[span.first..span.first + span.count];
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut self.name).cast();
            header.msg_namelen = self.name_bytes;
            header.msg_iov = gathered.as_ptr().cast::<libc::iovec>().cast_mut();
            header.msg_iovlen = gathered.len() as _;
            if span.segment_bytes != 0 {
                write_segment_size(header, control, span.segment_bytes);
            }
        }
        let rest = &mut self.headers[from..];
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        loop {
            let sent = if let [single] = rest {
                // SAFETY: the header points to a name, slices and a control buffer that outlive the call;
                // what the slices describe is checked by the kernel.
                let bytes = unsafe { libc::sendmsg(fd.as_raw_fd(), &single.msg_hdr, flags) };
                if bytes < 0 {
                    -1
                } else {
                    1
                }
            } else {
                // SAFETY: as above, for each of the headers.
                unsafe {
                    libc::sendmmsg(fd.as_raw_fd(), rest.as_mut_ptr(), rest.len() as libc::c_uint, flags as _)
                }
            };
            match sent {
                1.. => return Ok(sent as usize),
                _ => match last_errno() {
                    libc::EINTR => {}
                    errno => return Err(errno),
                },
            }
        }
    }
}

fn write_segment_size(header: &mut libc::msghdr, control: &mut Control, segment_bytes: u16) {
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: pure arithmetic.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(2) } as _;
    // SAFETY: `control` is 24 bytes, which is CMSG_SPACE(2), and aligned for `cmsghdr`; CMSG_FIRSTHDR of a
    // buffer that long is its start.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(2) as _;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(segment_bytes);
    }
}
