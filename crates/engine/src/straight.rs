//! Bulk traffic goes from the socket straight into the program's memory.
//!
//! Once datagrams are large, the next one is looked at before it is taken (`net::scatter`); `rnic` says where its payloads
//! will go (`rnic::foresight`), and the kernel puts them there. Then every header is read, and what is not the packet that
//! the first one let expect (a network may lose one out of the middle of a burst) is brought back to the receive buffer,
//! where a payload lies otherwise. From there on the packets take the way that all packets take; a copy to
//! where the bytes lie already is no copy.
//!
//! A batch is such that nothing in it can be in another's way: no two datagrams of it touch the same bytes, and one with
//! packets that were not foreseen ends it, for what they bring belongs after everything before.

use std::io;

use srdma_net::{Cut, Glance, RawSlice};
use srdma_rnic::world::PayloadRef;
use srdma_rnic::{Run, Waiting};
use srdma_seams::{Duration, Now};
use srdma_wire::{Data, Follower, Packet};

use crate::worker::{sort, Worker};

/// Datagrams of at least this mean length make looking at each worth a system call.
const BULK_BYTES: u32 = 16 << 10;
/// Looks for nothing, one after the other, before packets are taken unseen again.
const MISSES_MAX: u32 = 16;
/// Datagrams of one batch.
const BATCH_DATAGRAMS: usize = 32;
/// After memory turned out not to be there, packets are looked at first for this long: so the right one is refused.
const CAUTION: Duration = Duration::from_millis(200);

/// A datagram whose first payloads were put elsewhere.
#[derive(Clone, Copy, Debug)]
struct Away {
    cut: Cut,
    /// Where the first of them lies; the others follow.
    address: u64,
    /// How many.
    packets: u32,
}

impl Away {
    fn payload_bytes(&self) -> u32 {
        self.cut.segment_bytes - self.cut.header_bytes
    }

    /// The packets from the first one on that continue it, if there are several.
    fn run(&self, burst: &[u8], follower: &mut Follower) -> Option<Run> {
        let stride = self.cut.segment_bytes;
        let packets = follower.continues(burst, stride as usize, self.packets);
        (packets > 1).then_some(Run { packets, stride, address: self.address })
    }

    fn end(&self) -> u64 {
        self.address + u64::from(self.packets) * u64::from(self.payload_bytes())
    }
}

/// Where payloads of the batch are that are not in its buffers: entry *n* for buffer *n*.
#[derive(Debug, Default)]
pub(crate) struct Straight {
    away: Vec<Away>,
    bulk: bool,
    /// The programs' memory is not ours: nothing can go there.
    pub(crate) is_impossible: bool,
    /// Datagrams in a row that were looked at for nothing.
    misses: u32,
    cautious_until: Option<Now>,
    /// Payloads that went straight where they belong.
    pub(crate) placed: u64,
    /// Payloads that had to be brought back.
    pub(crate) brought_back: u64,
}

impl Straight {
    /// A batch was filled the usual way: all its payloads are in its buffers.
    pub(crate) fn none(&mut self, mean_datagram_bytes: u32) {
        self.away.clear();
        if mean_datagram_bytes >= BULK_BYTES && !self.is_impossible {
            (self.bulk, self.misses) = (true, 0);
        }
    }

    /// Whether the next datagram is worth a look.
    pub(crate) fn is_on(&self) -> bool {
        self.bulk
    }

    /// A look was for nothing.
    fn missed(&mut self) {
        self.misses += 1;
        self.bulk = self.misses < MISSES_MAX;
    }

    /// Where a payload, or part of one, lies if not in its buffer.
    pub(crate) fn address_of(&self, payload: PayloadRef) -> Option<u64> {
        let away = self.away.get(payload.buffer as usize)?;
        let index = payload.offset / away.cut.segment_bytes;
        let within = (payload.offset % away.cut.segment_bytes).checked_sub(away.cut.header_bytes)?;
        (index < away.packets)
            .then(|| away.address + u64::from(index) * u64::from(away.payload_bytes()) + u64::from(within))
    }

    fn touches(&self, start: u64, end: u64) -> bool {
        self.away.iter().any(|away| start < away.end() && away.address < end)
    }
}

/// What an attempt to fill a batch brought.
pub(crate) enum Filled {
    /// Packets are in `received`; the socket may hold more.
    Some,
    /// Packets may be in `received`, and the socket is empty.
    Drained,
    /// The next packets must be looked at first.
    NotForeseen,
}

impl Worker {
    /// Fills the batch with datagrams whose payloads go straight to their places.
    pub(crate) fn receive_straight(&mut self, now: Now) -> io::Result<Filled> {
        let straight = &mut self.world.straight;
        straight.away.clear();
        self.received.clear();
        let cautious = straight.cautious_until.is_some_and(|until| now < until);
        let (Some(endpoint), Some(batch)) = (&self.world.endpoint, &mut self.world.batch) else {
            return Ok(Filled::Drained);
        };
        straight.bulk &= !cautious && endpoint.may_take_apart();
        if !straight.bulk {
            return Ok(Filled::NotForeseen);
        }
        batch.clear();
        loop {
            let (Some(endpoint), Some(batch)) = (&mut self.world.endpoint, &mut self.world.batch) else {
                return Ok(Filled::Drained);
            };
            let Some(glance) = endpoint.glance(batch)? else { return Ok(Filled::Drained) };
            let begun = batch.datagrams() > 0;
            let stop = if begun { Filled::Some } else { Filled::NotForeseen };
            let Some((first, away)) = self.foresee(now, &glance, begun) else {
                self.world.straight.missed();
                return Ok(stop);
            };
            self.world.straight.misses = 0;
            if begun && self.world.straight.touches(away.address, away.end()) {
                return Ok(stop);
            }
            match self.take_apart(now, &glance, &first, away)? {
                Taken::Whole if self.world.straight.away.len() < BATCH_DATAGRAMS => {}
                _ => return Ok(Filled::Some),
            }
        }
    }

    /// The first header of the datagram that waits, and where its first payloads belong.
    fn foresee(&mut self, now: Now, glance: &Glance, behind_others: bool) -> Option<(Data, Away)> {
        let head = glance.head.get(..(glance.segment_bytes as usize).min(glance.head.len()))?;
        let (Packet::Data(first), header_bytes) = srdma_wire::parse(head).ok()? else { return None };
        let header_bytes = header_bytes as u32;
        let cut = Cut { segment_bytes: glance.segment_bytes, header_bytes };
        let waiting = Waiting {
            from: glance.from,
            first: &first,
            payload_bytes: glance.segment_bytes.checked_sub(header_bytes)?,
            packets: glance.length / glance.segment_bytes.max(1),
            behind_others,
        };
        let Worker { nic, world, counters, .. } = self;
        let (address, bytes) = nic.foresee(now, &waiting, world, counters)?;
        Some((first, Away { cut, address, packets: bytes / waiting.payload_bytes }))
    }

    fn take_apart(&mut self, now: Now, glance: &Glance, first: &Data, away: Away) -> io::Result<Taken> {
        let (Some(endpoint), Some(batch)) = (&mut self.world.endpoint, &mut self.world.batch) else {
            return Ok(Taken::Ends);
        };
        let places =
            RawSlice { address: away.address as usize, length: (away.end() - away.address) as usize };
        // SAFETY: `rnic` has resolved the addresses through a live key: memory that the program registered for just
        // this; the kernel checks whether it is there.
        let taken = unsafe { endpoint.take_apart(batch, glance, away.cut, places) };
        match taken {
            Ok(0) => return Ok(Taken::Ends),
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                // The datagram is lost. When it comes again, it will be refused as it should.
                self.world.straight.cautious_until = Some(now + CAUTION);
                return Ok(Taken::Ends);
            }
            Err(error) => return Err(error),
        }
        self.world.straight.away.push(away);
        self.world.straight.placed += u64::from(away.packets);
        let as_expected = self.read_headers(first, away);
        let whole = as_expected == away.packets && as_expected * away.cut.segment_bytes >= glance.length;
        Ok(if whole { Taken::Whole } else { Taken::Ends })
    }

    /// Reads the headers of the datagram taken last, and brings payloads back from the first unexpected packet on.
    /// Returns how many packets are as expected.
    fn read_headers(&mut self, first: &Data, away: Away) -> u32 {
        let Worker { world, received, questions, counters, follower, .. } = self;
        let Some(batch) = &world.batch else { return 0 };
        let buffer = world.straight.away.len() as u32 - 1;
        let (begun, payload_bytes) = (received.len(), away.payload_bytes());
        let (mut expected, mut still, mut entries) = (0, true, 0);
        for (index, segment) in batch.last_segments().enumerate() {
            // Those that were taken with the first.
            if (index as u32) < expected {
                continue;
            }
            let read = follower.parse(batch.packet(&segment));
            still &= expected < away.packets
                && matches!(&read, Ok((Packet::Data(data), header_bytes))
                    if *header_bytes as u32 == away.cut.header_bytes
                        && srdma_rnic::follows(first, data, expected, payload_bytes));
            let run = match index {
                0 if still => {
                    away.run(batch.bytes(buffer, 0, away.packets * away.cut.segment_bytes), follower)
                }
                _ => None,
            };
            match (run, &read) {
                (Some(run), Ok((Packet::Data(data), _))) => {
                    let offset = away.cut.header_bytes;
                    let payload = PayloadRef { buffer, offset, length: payload_bytes };
                    received.push_run(segment.from, data, run, payload, segment.ce);
                    expected = run.packets;
                    entries = 1;
                }
                _ => {
                    sort(received, questions, counters, &segment, &read);
                    expected += u32::from(still);
                    entries += usize::from(still);
                }
            }
        }
        let unexpected = (expected..away.packets).map(|index| PayloadRef {
            buffer,
            offset: index * away.cut.segment_bytes + away.cut.header_bytes,
            length: payload_bytes,
        });
        if !world.bring_back(unexpected) {
            // Gone within microseconds: as if these had been lost on the way.
            received.truncate(begun + entries);
        }
        if let Some(away) = world.straight.away.last_mut() {
            away.packets = expected;
        }
        expected
    }
}

/// Whether a datagram was just what was foreseen.
enum Taken {
    Whole,
    Ends,
}
