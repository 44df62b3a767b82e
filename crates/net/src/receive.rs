//! Buffers that the kernel fills, many datagrams per call, each of them many packets (GRO).

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::scatter::{Call, Cut, Glance, Said};
use crate::sys::{last_errno, RawAddress, RawSlice, RAW_ADDRESS_BYTES};

/// Bytes of one buffer: a GRO datagram of the greatest length.
pub const BUFFER_BYTES: usize = 1 << 16;
/// Datagrams asked for at first; grows to the batch's size when they come thick.
const FIRST_ASK: usize = 4;
/// Congestion experienced: both ECN bits (RFC 3168, section 5).
const ECN_MASK: u8 = 3;

/// Room for the control messages of one datagram: TOS, TTL, segment size, drop counter.
pub(crate) type Control = [u64; 16];

/// One packet of a received batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Buffer it lies in.
    pub buffer: u32,
    /// Its first byte within the buffer.
    pub offset: u32,
    /// Bytes of UDP payload.
    pub length: u32,
    /// Sender.
    pub from: SocketAddr,
    /// It carries a congestion mark.
    pub ce: bool,
    /// Time to live (hop limit) as it arrived; 0 if the kernel did not say.
    pub ttl: u8,
    /// Traffic class byte as it arrived, ECN bits included.
    pub traffic_class: u8,
}

/// One datagram as the socket delivered it, or a part of it that a plan of faults has left.
#[derive(Clone, Copy)]
struct Datagram {
    /// Its first byte within the buffer.
    start: u32,
    length: u32,
    segment_bytes: u32,
    from: SocketAddr,
    class: u8,
    ttl: u8,
    buffer: u32,
}

/// What one call brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) datagrams: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) ce: u64,
    pub(crate) unusable: u64,
    /// The kernel's count of drops, if it said.
    pub(crate) drops: Option<u32>,
}

/// Memory of the buffers: reserved at once, taken by the kernel's first write to each page.
struct Pages {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a private anonymous mapping with one owner.
unsafe impl Send for Pages {}
// SAFETY: shared references only read.
unsafe impl Sync for Pages {}

impl Pages {
    fn reserve(bytes: usize) -> io::Result<Pages> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(at.cast()).map(|at| Pages { at, bytes }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `reserve`; nobody borrows from it any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Kernel structures of one `recvmmsg`; the pointers in them are set before each call.
struct Structures {
    headers: Box<[libc::mmsghdr]>,
    slices: Box<[libc::iovec]>,
    names: Box<[RawAddress]>,
    controls: Box<[Control]>,
}

// SAFETY: the pointers are written by `ReceiveBatch::arm` right before each call and point into boxes and
// pages owned by the same batch.
unsafe impl Send for Structures {}
// SAFETY: shared references never follow the pointers.
unsafe impl Sync for Structures {}

/// A batch of receive buffers of 64 KiB each, and what the last call put in them.
pub struct ReceiveBatch {
    pages: Pages,
    structures: Structures,
    datagrams: Vec<Datagram>,
    /// Bytes that the last call put into each buffer.
    filled: Vec<u32>,
    /// Buffers to offer next time.
    ask: usize,
    /// Buffers offered last time.
    asked: usize,
    call: Call,
}

impl ReceiveBatch {
    /// A batch of `buffers` (1–1024) buffers. No page of them is touched before it is needed.
    pub fn new(buffers: usize) -> io::Result<ReceiveBatch> {
        let buffers = buffers.clamp(1, 1024);
        // SAFETY: zero is a valid value of `mmsghdr`: null pointers and integers.
        let header: libc::mmsghdr = unsafe { mem::zeroed() };
        let slice = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Ok(ReceiveBatch {
            pages: Pages::reserve(buffers * BUFFER_BYTES)?,
            structures: Structures {
                headers: vec![header; buffers].into_boxed_slice(),
                slices: vec![slice; buffers].into_boxed_slice(),
                names: vec![RawAddress::empty(); buffers].into_boxed_slice(),
                controls: vec![[0; 16]; buffers].into_boxed_slice(),
            },
            datagrams: Vec::with_capacity(buffers),
            filled: Vec::with_capacity(buffers),
            ask: FIRST_ASK.min(buffers),
            asked: 0,
            call: Call::new(),
        })
    }

    /// Buffers in the batch.
    pub fn buffers(&self) -> usize {
        self.structures.headers.len()
    }

    /// Bytes `offset..offset + length` of a buffer; empty if they are not what the last call brought.
    pub fn bytes(&self, buffer: u32, offset: u32, length: u32) -> &[u8] {
        let filled = self.filled.get(buffer as usize).copied().unwrap_or(0);
        match offset.checked_add(length) {
            Some(end) if end <= filled => {
                let start = buffer as usize * BUFFER_BYTES + offset as usize;
                // SAFETY: `buffer` is one of the batch and `end` is within what the kernel wrote to it; the
                // next write needs `&mut self`.
                unsafe { std::slice::from_raw_parts(self.pages.at.as_ptr().add(start), length as usize) }
            }
            _ => &[],
        }
    }

    /// Bytes of a packet.
    pub fn packet(&self, segment: &Segment) -> &[u8] {
        self.bytes(segment.buffer, segment.offset, segment.length)
    }

    /// The packets that the last call brought, in order of arrival.
    pub fn segments(&self) -> Segments<'_> {
        Segments { datagrams: &self.datagrams, offset: 0 }
    }

    /// The next call takes one datagram only.
    pub fn ask_for_one(&mut self) {
        self.ask = 1;
    }

    /// Whether the last call found every buffer it offered filled, so that more may wait.
    pub fn is_full(&self) -> bool {
        !self.filled.is_empty() && self.filled.len() >= self.asked
    }

    /// Forgets what the last calls brought.
    pub fn clear(&mut self) {
        self.datagrams.clear();
        self.filled.clear();
    }

    /// Datagrams that the last call brought.
    pub(crate) fn datagram_count(&self) -> usize {
        self.datagrams.len()
    }

    /// Packets of one of them.
    pub(crate) fn segments_of(&self, datagram: usize) -> Segments<'_> {
        Segments { datagrams: self.datagrams.get(datagram..=datagram).unwrap_or_default(), offset: 0 }
    }

    /// Leaves only these packets of what the last call brought.
    pub(crate) fn keep(&mut self, packets: &[Segment]) {
        self.datagrams.clear();
        self.datagrams.extend(packets.iter().map(|packet| Datagram {
            start: packet.offset,
            length: packet.length,
            segment_bytes: packet.length,
            from: packet.from,
            class: packet.traffic_class,
            ttl: packet.ttl,
            buffer: packet.buffer,
        }));
    }

    /// Flips a bit of a packet, counted from its first and modulo its length.
    pub(crate) fn flip(&mut self, packet: &Segment, bit: u32) {
        let filled = self.filled.get(packet.buffer as usize).copied().unwrap_or(0);
        if packet.length == 0 || packet.offset + packet.length > filled {
            return;
        }
        let bit = bit % (packet.length * 8);
        let at = packet.buffer as usize * BUFFER_BYTES + (packet.offset + bit / 8) as usize;
        // SAFETY: within what the kernel wrote to a buffer of the batch; `&mut self` keeps everybody else out.
        unsafe { *self.pages.at.as_ptr().add(at) ^= 1 << (bit % 8) };
    }

    /// Fills the batch with packets that came earlier, one to a buffer, as if they came now. Takes no more than
    /// there are buffers.
    pub(crate) fn refill<'a>(&mut self, packets: impl Iterator<Item = (Segment, &'a [u8])>) {
        self.clear();
        self.asked = 0;
        let buffers = self.buffers();
        for (index, (segment, bytes)) in packets.take(buffers).enumerate() {
            let length = bytes.len().min(BUFFER_BYTES);
            // SAFETY: `index` is one of the batch's buffers, `length` at most its size; the bytes come from elsewhere.
            unsafe {
                let to = self.pages.at.as_ptr().add(index * BUFFER_BYTES);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, length);
            }
            self.filled.push(length as u32);
            self.datagrams.push(Datagram {
                start: 0,
                length: length as u32,
                segment_bytes: length as u32,
                from: segment.from,
                class: segment.traffic_class,
                ttl: segment.ttl,
                buffer: index as u32,
            });
        }
    }

    /// Datagrams brought by the last call to fill the batch, or since it was cleared.
    pub fn datagrams(&self) -> usize {
        self.datagrams.len()
    }

    /// Mean bytes of a datagram of the batch; 0 if it is empty.
    pub fn mean_datagram_bytes(&self) -> u32 {
        let bytes: u64 = self.datagrams.iter().map(|datagram| u64::from(datagram.length)).sum();
        bytes.checked_div(self.datagrams.len() as u64).unwrap_or(0) as u32
    }

    /// The packets of the datagram that was taken last.
    pub fn last_segments(&self) -> Segments<'_> {
        let last = self.datagrams.len().saturating_sub(1);
        Segments { datagrams: &self.datagrams[last..], offset: 0 }
    }

    /// As [`ReceiveBatch::bytes`], to bring a payload back that was put elsewhere.
    pub fn bytes_mut(&mut self, buffer: u32, offset: u32, length: u32) -> &mut [u8] {
        let length = self.bytes(buffer, offset, length).len();
        let start = buffer as usize * BUFFER_BYTES + offset as usize;
        if length == 0 {
            return &mut [];
        }
        // SAFETY: `bytes` has checked the range, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.pages.at.as_ptr().add(start), length) }
    }

    /// Looks at the next datagram that waits at `fd`.
    pub(crate) fn glance(&mut self, fd: BorrowedFd<'_>) -> io::Result<Option<Glance>> {
        self.call.glance(fd)
    }

    /// Takes the next datagram, which `glance` showed, adding it to the batch: payloads of the first packets go to
    /// `places`. What the kernel cannot use (not the datagram shown, memory that is not there) is lost, as on the way.
    ///
    /// # Safety
    /// What lies at `places`, if anything, may be overwritten.
    pub(crate) unsafe fn take_apart(
        &mut self,
        fd: BorrowedFd<'_>,
        glance: &Glance,
        cut: Cut,
        places: RawSlice,
    ) -> io::Result<Tally> {
        let buffer = self.datagrams.len();
        if buffer == self.buffers() {
            return Ok(Tally::default());
        }
        // SAFETY: `buffer` is one of the batch; nobody borrows from it while `self` is borrowed uniquely.
        let at = unsafe { self.pages.at.as_ptr().add(buffer * BUFFER_BYTES) };
        // SAFETY: a whole buffer; the places are the caller's promise.
        let Some(Said { length, from, notes }) = (unsafe { self.call.take_apart(fd, at, cut, places) })?
        else {
            return Ok(Tally::default());
        };
        let segment_bytes = if notes.segment_bytes == 0 { length } else { notes.segment_bytes };
        let drops = notes.drops;
        if from != Some(glance.from) || length != glance.length || segment_bytes != glance.segment_bytes {
            return Ok(Tally { unusable: 1, drops, ..Tally::default() });
        }
        let Notes { class, ttl, .. } = notes;
        let buffer = buffer as u32;
        self.filled.push(length);
        self.datagrams.push(Datagram {
            length,
            segment_bytes,
            from: glance.from,
            class,
            ttl,
            buffer,
            start: 0,
        });
        let packets = u64::from(length.div_ceil(segment_bytes.max(1)));
        let ce = if class & ECN_MASK == ECN_MASK { packets } else { 0 };
        Ok(Tally { datagrams: 1, packets, bytes: length.into(), ce, unusable: 0, drops })
    }

    fn arm(&mut self, count: usize) {
        let Structures { headers, slices, names, controls } = &mut self.structures;
        for index in 0..count {
            slices[index] = libc::iovec {
                // SAFETY: `index` is one of the batch's buffers, so the result is within the mapping.
                iov_base: unsafe { self.pages.at.as_ptr().add(index * BUFFER_BYTES) }.cast(),
                iov_len: BUFFER_BYTES,
            };
            let header = &mut headers[index].msg_hdr;
            header.msg_name = (&raw mut names[index]).cast();
            header.msg_namelen = RAW_ADDRESS_BYTES;
            header.msg_iov = &raw mut slices[index];
            header.msg_iovlen = 1;
            header.msg_control = controls[index].as_mut_ptr().cast();
            header.msg_controllen = mem::size_of::<Control>() as _;
            header.msg_flags = 0;
        }
    }

    /// Takes what waits at `fd`, without blocking; an empty socket is no error.
    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>) -> io::Result<Tally> {
        self.clear();
        let asked = self.ask;
        self.asked = asked;
        self.arm(asked);
        let received = loop {
            let headers = self.structures.headers.as_mut_ptr();
            // SAFETY: the first `asked` headers were armed just now: each points to a name, a buffer and a
            // control buffer of the stated lengths, all owned by `self`.
            let received = unsafe {
                libc::recvmmsg(
                    fd.as_raw_fd(),
                    headers,
                    asked as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            if received >= 0 {
                break received as usize;
            }
            match last_errno() {
                libc::EINTR => {}
                // An ICMP error of something sent earlier: reading it clears it.
                libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH => {}
                libc::EAGAIN => break 0,
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        };
        self.adapt(received);
        Ok(self.take(received))
    }

    /// Asks for more next time if all was filled, for less if little was.
    fn adapt(&mut self, received: usize) {
        if received == self.ask {
            self.ask = (self.ask * 2).min(self.buffers());
        } else if received < self.ask / 4 {
            self.ask = (self.ask / 2).max(FIRST_ASK).min(self.buffers());
        }
    }

    fn take(&mut self, received: usize) -> Tally {
        let mut tally = Tally::default();
        for index in 0..received {
            let header = &self.structures.headers[index];
            let notes = read_notes(&header.msg_hdr);
            let whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            let from = self.structures.names[index].get().filter(|_| whole);
            tally.drops = notes.drops.or(tally.drops);
            let length = if from.is_some() { header.msg_len } else { 0 };
            let segment_bytes = if notes.segment_bytes == 0 { length } else { notes.segment_bytes };
            self.filled.push(length);
            self.datagrams.push(Datagram {
                start: 0,
                length,
                segment_bytes,
                from: from.unwrap_or(SocketAddr::from(([0; 4], 0))),
                class: notes.class,
                ttl: notes.ttl,
                buffer: index as u32,
            });
            if from.is_none() || length == 0 {
                tally.unusable += 1;
                continue;
            }
            let packets = u64::from(length.div_ceil(segment_bytes));
            tally.datagrams += 1;
            tally.packets += packets;
            tally.bytes += u64::from(length);
            tally.ce += if notes.class & ECN_MASK == ECN_MASK { packets } else { 0 };
        }
        tally
    }
}

/// What the kernel says about a datagram beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notes {
    pub(crate) class: u8,
    pub(crate) ttl: u8,
    pub(crate) segment_bytes: u32,
    pub(crate) drops: Option<u32>,
}

pub(crate) fn read_notes(header: &libc::msghdr) -> Notes {
    let mut notes = Notes::default();
    // SAFETY: the kernel filled the control buffer and its length; the macros stay within both.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: not null, so a whole header lies there, aligned as the buffer is.
        let (level, kind) = unsafe { ((*message).cmsg_level, (*message).cmsg_type) };
        // SAFETY: as above; what follows the header is its data.
        let data = unsafe { libc::CMSG_DATA(message) };
        // SAFETY: the kernel writes one byte for IP_TOS and four for each of the others (ip(7), ipv6(7),
        // udp(7), socket(7)).
        unsafe {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) => notes.class = data.read(),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    notes.class = data.cast::<i32>().read_unaligned() as u8
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    notes.ttl = data.cast::<i32>().read_unaligned() as u8
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    notes.segment_bytes = data.cast::<i32>().read_unaligned().max(0) as u32
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    notes.drops = Some(data.cast::<u32>().read_unaligned())
                }
                _ => {}
            }
        }
        // SAFETY: `message` is within the control buffer of `header`.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    notes
}

/// Iterator over the packets of a batch.
#[derive(Clone)]
pub struct Segments<'a> {
    datagrams: &'a [Datagram],
    offset: u32,
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        loop {
            let (datagram, rest) = self.datagrams.split_first()?;
            if self.offset >= datagram.length {
                self.datagrams = rest;
                self.offset = 0;
                continue;
            }
            let length = datagram.segment_bytes.min(datagram.length - self.offset);
            let segment = Segment {
                buffer: datagram.buffer,
                offset: datagram.start + self.offset,
                length,
                from: datagram.from,
                ce: datagram.class & ECN_MASK == ECN_MASK,
                ttl: datagram.ttl,
                traffic_class: datagram.class,
            };
            self.offset += length;
            return Some(segment);
        }
    }
}
