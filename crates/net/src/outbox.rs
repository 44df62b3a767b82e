//! Packets on their way into the kernel: gathered without copying, grouped for segmentation offload.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use srdma_wire::{emit, emit_run, Data, Packet, DATA_HEADER_BYTES_MAX};

use crate::counters::Counters;
use crate::error::{PushError, SendError};
use crate::probe::Probe;
use crate::sys::{RawSlice, SendMessages};

/// Most packets of one burst, which is also what one GSO message may be cut into (UDP_MAX_SEGMENTS was 64
/// until Linux 6.9).
pub const BURST_PACKETS_MAX: usize = 64;
/// Most bytes of UDP payload in one message over IPv4 and IPv6: 65,535 less the longer of the headers.
pub const DATAGRAM_BYTES_MAX: usize = 65_535 - 48;
/// Most slices in one message (UIO_MAXIOV, sendmsg(2)).
const SLICES_MAX: usize = 1024;
/// Times that an error of *earlier* packets, reported at this one, is cleared before giving up.
const STALE_ERRORS_MAX: u32 = 8;

/// One packet of the burst being built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// Its place in the burst as the caller pushed it.
    pub(crate) index: u16,
    pub(crate) first_slice: u32,
    pub(crate) slice_count: u32,
    /// Header and payload.
    pub(crate) bytes: u32,
}

impl Pending {
    pub(crate) fn slices<'a>(&self, all: &'a [RawSlice]) -> &'a [RawSlice] {
        &all[self.first_slice as usize..(self.first_slice + self.slice_count) as usize]
    }
}

/// Slices of which one part after the other is taken.
struct Cuts<'a> {
    current: RawSlice,
    rest: core::slice::Iter<'a, RawSlice>,
}

impl<'a> Cuts<'a> {
    fn new(slices: &'a [RawSlice]) -> Cuts<'a> {
        Cuts { current: RawSlice { address: 0, length: 0 }, rest: slices.iter() }
    }

    /// Appends the next `bytes` bytes to `to`, or what is left; how many that were.
    fn take(&mut self, bytes: usize, to: &mut Vec<RawSlice>) -> usize {
        let mut left = bytes;
        while left > 0 {
            if self.current.length == 0 {
                match self.rest.next() {
                    Some(next) => self.current = *next,
                    None => break,
                }
                continue;
            }
            let length = left.min(self.current.length);
            to.push(self.cut(length));
            left -= length;
        }
        bytes - left
    }

    /// The next `bytes` bytes, if they lie in one slice: as nearly always.
    #[inline(always)]
    fn take_whole(&mut self, bytes: usize) -> Option<RawSlice> {
        (bytes <= self.current.length).then(|| self.cut(bytes))
    }

    /// The first `length` bytes of the current slice, which has as many.
    #[inline(always)]
    fn cut(&mut self, length: usize) -> RawSlice {
        let cut = RawSlice { address: self.current.address, length };
        self.current.address = self.current.address.wrapping_add(length);
        self.current.length -= length;
        cut
    }
}

/// How the kernel took a burst.
pub(crate) enum Outcome {
    Sent,
    /// See [`SendError`].
    Refused(SendError),
    /// Not sent, and this `errno` is why.
    Errno(i32),
}

/// The burst being built, and the buffers it reuses.
pub(crate) struct Outbox {
    /// Headers, one after the other. Never reallocated: slices point into it.
    arena: Box<[u8]>,
    arena_used: usize,
    pub(crate) slices: Vec<RawSlice>,
    pub(crate) packets: Vec<Pending>,
    messages: SendMessages,
    /// Of each message, the position in `packets` of its first packet, and its bytes.
    starts: Vec<(usize, usize)>,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            arena: vec![0; BURST_PACKETS_MAX * DATA_HEADER_BYTES_MAX].into_boxed_slice(),
            arena_used: 0,
            slices: Vec::with_capacity(3 * BURST_PACKETS_MAX),
            packets: Vec::with_capacity(BURST_PACKETS_MAX),
            messages: SendMessages::new(),
            starts: Vec::with_capacity(BURST_PACKETS_MAX),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.arena_used = 0;
        self.slices.clear();
        self.packets.clear();
    }

    /// Adds a packet: its header is encoded here, its payload stays where it is.
    pub(crate) fn push(&mut self, packet: &Packet, payload: &[RawSlice]) -> Result<(), PushError> {
        if self.packets.len() == BURST_PACKETS_MAX {
            return Err(PushError::Full);
        }
        let room = &mut self.arena[self.arena_used..];
        let header_bytes = emit(packet, room).map_err(|_| PushError::Header)?;
        self.append(header_bytes, payload)
    }

    /// As `push`, for `packets` data packets that carry `payload` between them, one part after the other: each
    /// has `payload_each` bytes of it, the last what is left.
    pub(crate) fn push_run(
        &mut self,
        first: &Data,
        packets: u8,
        payload_each: u32,
        payload: &[RawSlice],
    ) -> Result<(), PushError> {
        if self.packets.len() + usize::from(packets) > BURST_PACKETS_MAX {
            return Err(PushError::Full);
        }
        let each = payload_each as usize;
        let payload_bytes = payload.iter().fold(0usize, |sum, slice| sum.saturating_add(slice.length));
        if payload_bytes > each * usize::from(packets) || payload.len() >= SLICES_MAX {
            return Err(PushError::TooLong);
        }
        let room = &mut self.arena[self.arena_used..];
        let header_bytes = emit_run(first, packets, payload_each, room).map_err(|_| PushError::Header)?;
        if header_bytes + each > DATAGRAM_BYTES_MAX {
            return Err(PushError::TooLong);
        }
        let headers = &self.arena[self.arena_used..self.arena_used + header_bytes * usize::from(packets)];
        self.arena_used += headers.len();
        let mut payload = Cuts::new(payload);
        for header in headers.chunks_exact(header_bytes) {
            let first_slice = self.slices.len() as u32;
            let payload_bytes = match payload.take_whole(each) {
                Some(whole) if each > 0 => {
                    self.slices.extend([RawSlice::from(header), whole]);
                    each
                }
                _ => {
                    self.slices.push(RawSlice::from(header));
                    payload.take(each, &mut self.slices)
                }
            };
            self.packets.push(Pending {
                index: self.packets.len() as u16,
                first_slice,
                slice_count: self.slices.len() as u32 - first_slice,
                bytes: (header_bytes + payload_bytes) as u32,
            });
        }
        Ok(())
    }

    /// As `push`, with a header that is already encoded.
    pub(crate) fn push_encoded(&mut self, header: &[u8], payload: &[RawSlice]) -> Result<(), PushError> {
        if self.packets.len() == BURST_PACKETS_MAX || self.arena.len() - self.arena_used < header.len() {
            return Err(PushError::Full);
        }
        self.arena[self.arena_used..self.arena_used + header.len()].copy_from_slice(header);
        self.append(header.len(), payload)
    }

    fn append(&mut self, header_bytes: usize, payload: &[RawSlice]) -> Result<(), PushError> {
        let payload_bytes = payload.iter().fold(0usize, |sum, slice| sum.saturating_add(slice.length));
        let bytes = header_bytes.saturating_add(payload_bytes);
        if bytes > DATAGRAM_BYTES_MAX || payload.len() >= SLICES_MAX {
            return Err(PushError::TooLong);
        }
        let header = RawSlice::from(&self.arena[self.arena_used..self.arena_used + header_bytes]);
        self.arena_used += header_bytes;
        let first_slice = self.slices.len() as u32;
        self.slices.push(header);
        self.slices.extend(payload.iter().filter(|slice| slice.length != 0));
        self.packets.push(Pending {
            index: self.packets.len() as u16,
            first_slice,
            slice_count: self.slices.len() as u32 - first_slice,
            bytes: bytes as u32,
        });
        Ok(())
    }

    /// Groups the packets from number `from` on into messages: with `gso`, packets of equal size (the last
    /// of a group may be shorter) share a message.
    fn group(&mut self, to: SocketAddr, from: usize, gso: bool) {
        self.messages.begin(to);
        self.starts.clear();
        let mut at = from;
        while at < self.packets.len() {
            let first = self.packets[at];
            let (mut bytes, mut slices, mut end) = (first.bytes as usize, first.slice_count as usize, at + 1);
            while gso && end < self.packets.len() {
                let next = self.packets[end];
                let fits = next.bytes <= first.bytes
                    && next.bytes > 0
                    && bytes + next.bytes as usize <= DATAGRAM_BYTES_MAX
                    && slices + next.slice_count as usize <= SLICES_MAX;
                if !fits {
                    break;
                }
                bytes += next.bytes as usize;
                slices += next.slice_count as usize;
                end += 1;
                if next.bytes < first.bytes {
                    break;
                }
            }
            let segment_bytes = if end - at > 1 { first.bytes as u16 } else { 0 };
            self.messages.push(first.first_slice as usize, slices, segment_bytes);
            self.starts.push((at, bytes));
            at = end;
        }
    }

    /// Packets of message number `message`.
    fn packets_of(&self, message: usize) -> core::ops::Range<usize> {
        let end = self.starts.get(message + 1).map_or(self.packets.len(), |&(start, _)| start);
        self.starts[message].0..end
    }

    /// Sends everything on `fd`. `gso` is switched off when the device turns out not to do it; then the
    /// same burst leaves without.
    pub(crate) fn transmit(
        &mut self,
        fd: BorrowedFd<'_>,
        to: SocketAddr,
        gso: &mut bool,
        refuse_gso_errno: Option<i32>,
        counters: &mut Counters,
    ) -> Outcome {
        if self.packets.is_empty() {
            return Outcome::Sent;
        }
        self.group(to, 0, *gso);
        match self.send_messages(fd, refuse_gso_errno, counters) {
            Ok(()) => Outcome::Sent,
            Err((errno, from)) if *gso && self.messages.len() < self.packets.len() - self.starts[0].0 => {
                if !matches!(errno, libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::EMSGSIZE) {
                    return self.judge(errno, from, counters);
                }
                self.group(to, from, false);
                match self.send_messages(fd, None, counters) {
                    Ok(()) => {
                        *gso = false;
                        Outcome::Sent
                    }
                    Err((errno, from)) => self.judge(errno, from, counters),
                }
            }
            Err((errno, from)) => self.judge(errno, from, counters),
        }
    }

    /// Sends the grouped messages; on failure says why, and which packet is the first that did not leave.
    fn send_messages(
        &mut self,
        fd: BorrowedFd<'_>,
        refuse_gso_errno: Option<i32>,
        counters: &mut Counters,
    ) -> Result<(), (i32, usize)> {
        let mut done = 0;
        let mut stale_errors = 0;
        while done < self.messages.len() {
            let grouped = self.packets_of(done).len() > 1;
            let result = match refuse_gso_errno {
                Some(errno) if grouped => Err(errno),
                _ => self.messages.send(fd, &self.slices, done),
            };
            match result {
                Ok(sent) => {
                    counters.send_calls += 1;
                    counters.sent_messages += sent as u64;
                    for message in done..done + sent {
                        let packets = self.packets_of(message);
                        counters.gso_messages += u64::from(packets.len() > 1);
                        counters.sent_packets += packets.len() as u64;
                        counters.sent_bytes += self.starts[message].1 as u64;
                    }
                    done += sent;
                }
                // An ICMP error that earlier packets met; reading it clears it (udp(7)).
                Err(libc::ECONNREFUSED) if stale_errors < STALE_ERRORS_MAX => stale_errors += 1,
                Err(errno) => return Err((errno, self.starts[done].0)),
            }
        }
        Ok(())
    }

    /// What `errno` means to the caller when the packets from `from` on did not leave.
    fn judge(&mut self, errno: i32, from: usize, counters: &mut Counters) -> Outcome {
        match errno {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM if from > 0 => {
                counters.sent_lost += (self.packets.len() - from) as u64;
                Outcome::Sent
            }
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => Outcome::Refused(SendError::Busy),
            libc::EFAULT => {
                let unreadable = self.packets[from..]
                    .iter()
                    .find(|packet| !Probe::readable(packet.slices(&self.slices)))
                    .map_or(self.packets[from].index, |packet| packet.index);
                Outcome::Refused(SendError::Fault { packet: usize::from(unreadable) })
            }
            libc::EMSGSIZE => Outcome::Refused(SendError::TooBig),
            errno => Outcome::Errno(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_cut_between_packets_wherever_slices_end() {
        type Case<'a> = (&'a [(usize, usize)], usize, &'a [&'a [(usize, usize)]]);
        let cases: &[Case<'_>] = &[
            (&[(100, 30)], 10, &[&[(100, 10)], &[(110, 10)], &[(120, 10)]]),
            (&[(100, 25)], 10, &[&[(100, 10)], &[(110, 10)], &[(120, 5)]]),
            (&[(100, 4), (0, 0), (200, 12)], 10, &[&[(100, 4), (200, 6)], &[(206, 6)]]),
            (&[(100, 10), (200, 10)], 10, &[&[(100, 10)], &[(200, 10)]]),
            (&[(usize::MAX, 2)], 1, &[&[(usize::MAX, 1)], &[(0, 1)]]),
            (&[], 10, &[&[]]),
        ];
        let slice = |&(address, length): &(usize, usize)| RawSlice { address, length };
        for (slices, each, wanted) in cases {
            let slices: Vec<RawSlice> = slices.iter().map(slice).collect();
            let mut cuts = Cuts::new(&slices);
            for packet in *wanted {
                let (mut got, packet) = (Vec::new(), packet.iter().map(slice).collect::<Vec<_>>());
                let bytes = cuts.take(*each, &mut got);
                assert_eq!(got, packet, "{slices:?}");
                assert_eq!(bytes, packet.iter().map(|slice| slice.length).sum::<usize>());
            }
            assert_eq!(cuts.take(*each, &mut Vec::new()), 0, "{slices:?}");
        }
    }
}
