//! Datagrams that are looked at before they are taken, so that payloads go straight where they belong.
//!
//! A receiver that must read a header to know where a payload goes copies every byte twice: out of the socket, and
//! on to its place. Asking the kernel for the header alone first (MSG_PEEK, recv(2)) costs a system call per
//! datagram, and a datagram is up to 64 KiB of packets that were sent together: one look tells where all of them go.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::receive::{read_notes, Control, Notes, BUFFER_BYTES};
use crate::sys::{last_errno, RawAddress, RawSlice, RAW_ADDRESS_BYTES};

/// Bytes of a datagram that a look shows.
pub const GLANCE_BYTES: usize = 128;

/// The datagram that waits next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Sender.
    pub from: SocketAddr,
    /// Bytes of the whole datagram.
    pub length: u32,
    /// Bytes of each packet in it; the last may be shorter.
    pub segment_bytes: u32,
    /// Its first bytes; zeros after its end.
    pub head: [u8; GLANCE_BYTES],
}

/// One `recvmsg` with its structures.
pub(crate) struct Call {
    name: RawAddress,
    control: Control,
    slices: Vec<libc::iovec>,
}

// SAFETY: the pointers in `slices` are written right before each call and not followed otherwise.
unsafe impl Send for Call {}
// SAFETY: a shared reference gives no access to them.
unsafe impl Sync for Call {}

/// What one `recvmsg` said.
pub(crate) struct Said {
    pub(crate) length: u32,
    pub(crate) from: Option<SocketAddr>,
    pub(crate) notes: Notes,
}

impl Call {
    pub(crate) fn new() -> Call {
        Call { name: RawAddress::empty(), control: [0; 16], slices: Vec::new() }
    }

    /// Looks at the next datagram; `None` if there is none.
    pub(crate) fn glance(&mut self, fd: BorrowedFd<'_>) -> io::Result<Option<Glance>> {
        let mut head = [0; GLANCE_BYTES];
        self.slices.clear();
        self.slices.push(libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: GLANCE_BYTES });
        // SAFETY: the one slice is `head`, which lives through the call.
        let said = unsafe { self.receive(fd, libc::MSG_PEEK | libc::MSG_TRUNC) }?;
        Ok(said.and_then(|said| {
            let segment_bytes =
                if said.notes.segment_bytes == 0 { said.length } else { said.notes.segment_bytes };
            Some(Glance { from: said.from?, length: said.length, segment_bytes, head })
        }))
    }

    /// Takes the next datagram apart: of each of the first `packets` packets, the header goes to `buffer`, where it would
    /// be if the whole datagram went there, and the payload to `places`, one after the other; the rest goes to `buffer`.
    ///
    /// # Safety
    /// `buffer` has [`BUFFER_BYTES`] that nobody borrows; what lies at `places`, if anything, may be overwritten.
    pub(crate) unsafe fn take_apart(
        &mut self,
        fd: BorrowedFd<'_>,
        buffer: *mut u8,
        cut: Cut,
        places: RawSlice,
    ) -> io::Result<Option<Said>> {
        let (segment, header) = (cut.segment_bytes as usize, cut.header_bytes as usize);
        let payload = segment.saturating_sub(header);
        let packets = (places.length / payload.max(1)).min(BUFFER_BYTES / segment.max(1));
        self.slices.clear();
        for index in 0..packets {
            // SAFETY: `packets` whole segments fit the buffer.
            let at = unsafe { buffer.add(index * segment) };
            self.slices.push(libc::iovec { iov_base: at.cast(), iov_len: header });
            let place = places.address.wrapping_add(index * payload) as *mut libc::c_void;
            self.slices.push(libc::iovec { iov_base: place, iov_len: payload });
        }
        // SAFETY: as above.
        let rest = unsafe { buffer.add(packets * segment) };
        self.slices.push(libc::iovec { iov_base: rest.cast(), iov_len: BUFFER_BYTES - packets * segment });
        // SAFETY: headers and rest go to the buffer; that the places may be overwritten is the caller's promise, and
        // whether they are there is checked by the kernel.
        unsafe { self.receive(fd, 0) }
    }

    /// # Safety
    /// The kernel may write to the slices.
    unsafe fn receive(&mut self, fd: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<Option<Said>> {
        // SAFETY: zero is a valid `msghdr`: null pointers and integers.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = self.slices.as_mut_ptr();
        header.msg_iovlen = self.slices.len() as _;
        header.msg_name = (&raw mut self.name).cast();
        header.msg_control = self.control.as_mut_ptr().cast();
        loop {
            header.msg_namelen = RAW_ADDRESS_BYTES;
            header.msg_controllen = std::mem::size_of::<Control>() as _;
            // SAFETY: name and control are ours and as long as stated; the slices are the caller's promise.
            let length = unsafe { libc::recvmsg(fd.as_raw_fd(), &mut header, flags | libc::MSG_DONTWAIT) };
            if length >= 0 {
                let whole = header.msg_flags & libc::MSG_TRUNC == 0 || flags & libc::MSG_TRUNC != 0;
                let from = self.name.get().filter(|_| whole);
                return Ok(Some(Said { length: length as u32, from, notes: read_notes(&header) }));
            }
            match last_errno() {
                libc::EINTR => {}
                // An ICMP error of something sent earlier: reading it clears it.
                libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH => {}
                libc::EAGAIN => return Ok(None),
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

/// How a datagram is cut into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of each packet; the last may be shorter.
    pub segment_bytes: u32,
    /// Bytes of each header.
    pub header_bytes: u32,
}
