//! Faults by plan: what a bad network would do, done before the kernel sees a packet that we send, and before anybody
//! here sees one that arrived.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use srdma_seams::fault::{Class, Direction, Subject};
use srdma_seams::{FaultPlan, Now, PathId, Verdict};

use crate::counters::Counters;
use crate::endpoint::Route;
use crate::error::SendError;
use crate::outbox::{Outbox, Pending};
use crate::probe::Probe;
use crate::receive::{ReceiveBatch, Segment};
use crate::sys::RawSlice;

/// Bytes of delayed packets kept at most; beyond, a packet is not delayed.
const DELAYED_BYTES_MAX: usize = 16 << 20;

/// A packet that waits for its time, as a private copy: the program may reuse its memory meanwhile. `W` says where it
/// goes, or where it came from.
pub(crate) struct Delayed<W> {
    due: Now,
    /// Keeps equal times in order.
    sequence: u64,
    pub(crate) way: W,
    pub(crate) bytes: Vec<u8>,
}

impl<W> PartialEq for Delayed<W> {
    fn eq(&self, other: &Delayed<W>) -> bool {
        (self.due, self.sequence) == (other.due, other.sequence)
    }
}
impl<W> Eq for Delayed<W> {}
impl<W> PartialOrd for Delayed<W> {
    fn partial_cmp(&self, other: &Delayed<W>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<W> Ord for Delayed<W> {
    fn cmp(&self, other: &Delayed<W>) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

/// Packets held back, soonest first.
struct Queue<W> {
    packets: BinaryHeap<Reverse<Delayed<W>>>,
    bytes: usize,
    sequence: u64,
}

impl<W> Queue<W> {
    fn new() -> Queue<W> {
        Queue { packets: BinaryHeap::new(), bytes: 0, sequence: 0 }
    }

    fn is_full(&self) -> bool {
        self.bytes >= DELAYED_BYTES_MAX
    }

    fn push(&mut self, due: Now, way: W, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        self.sequence += 1;
        self.packets.push(Reverse(Delayed { due, sequence: self.sequence, way, bytes }));
    }

    fn next_due(&self) -> Option<Now> {
        self.packets.peek().map(|Reverse(delayed)| delayed.due)
    }

    fn take_due(&mut self, now: Now) -> Option<Delayed<W>> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(delayed) = self.packets.pop()?;
        self.bytes -= delayed.bytes.len();
        Some(delayed)
    }
}

/// A plan of faults and the packets it holds back.
pub(crate) struct Faulty {
    plan: FaultPlan,
    sends: bool,
    receives: bool,
    asks_for_class: bool,
    outgoing: Queue<Route>,
    incoming: Queue<Segment>,
    /// Packets of the present batch that are left.
    left: Vec<Segment>,
    /// Private copies of the packets of the present burst that were changed.
    changed: Vec<Vec<u8>>,
    slices: Vec<RawSlice>,
    packets: Vec<Pending>,
    /// The device stands still until then.
    frozen_until: Option<Now>,
}

impl Faulty {
    pub(crate) fn new(plan: FaultPlan) -> Faulty {
        Faulty {
            sends: plan.concerns(Direction::Send),
            receives: plan.concerns(Direction::Receive),
            asks_for_class: plan.asks_for_class(),
            plan,
            outgoing: Queue::new(),
            incoming: Queue::new(),
            left: Vec::new(),
            changed: Vec::new(),
            slices: Vec::new(),
            packets: Vec::new(),
            frozen_until: None,
        }
    }

    /// Whether the device stands still now, and until when.
    pub(crate) fn stand_still(&mut self, now: Now) -> Option<Now> {
        self.frozen_until = self.plan.frozen_until(now);
        self.frozen_until
    }

    pub(crate) fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Takes the next delayed packet of ours whose time has come.
    pub(crate) fn take_due(&mut self, now: Now) -> Option<Delayed<Route>> {
        self.outgoing.take_due(now)
    }

    /// When the next delayed packet, either way, is due.
    pub(crate) fn next_due(&self) -> Option<Now> {
        self.outgoing.next_due().into_iter().chain(self.incoming.next_due()).min()
    }

    /// Fills `batch` with delayed arrivals whose time has come; how many there were.
    pub(crate) fn release(&mut self, now: Now, batch: &mut ReceiveBatch) -> usize {
        let mut due = Vec::new();
        while due.len() < batch.buffers() {
            let Some(delayed) = self.incoming.take_due(now) else { break };
            due.push(delayed);
        }
        if !due.is_empty() {
            batch.refill(due.iter().map(|delayed| (delayed.way, &delayed.bytes[..])));
        }
        due.len()
    }

    /// Whether anything may befall what arrives.
    pub(crate) fn strikes_received(&self) -> bool {
        self.receives
    }

    /// Changes what arrived as the plan says; how many packets are left.
    pub(crate) fn strike_received(
        &mut self,
        now: Now,
        batch: &mut ReceiveBatch,
        counters: &mut Counters,
    ) -> Option<usize> {
        if !self.receives {
            return None;
        }
        let mut left = std::mem::take(&mut self.left);
        left.clear();
        for datagram in 0..batch.datagram_count() {
            let mut whole = None;
            for segment in batch.segments_of(datagram).collect::<Vec<_>>() {
                let (class, path) =
                    srdma_wire::peek(batch.packet(&segment)).unwrap_or((Class::Control, PathId(u16::MAX)));
                let subject = Subject { direction: Direction::Receive, path, class };
                let whole = *whole.get_or_insert_with(|| self.plan.decide_burst(now, subject));
                let verdict = match whole {
                    Verdict::Pass => self.plan.decide(now, subject),
                    verdict => verdict,
                };
                self.befall(now, verdict, segment, batch, &mut left, counters);
            }
        }
        batch.keep(&left);
        self.left = left;
        Some(self.left.len())
    }

    fn befall(
        &mut self,
        now: Now,
        verdict: Verdict,
        segment: Segment,
        batch: &mut ReceiveBatch,
        left: &mut Vec<Segment>,
        counters: &mut Counters,
    ) {
        match verdict {
            Verdict::Pass => left.push(segment),
            Verdict::Drop => counters.fault_drops += 1,
            Verdict::Duplicate => {
                counters.fault_duplicates += 1;
                left.extend([segment, segment]);
            }
            Verdict::Corrupt(bit) => {
                counters.fault_corruptions += 1;
                batch.flip(&segment, bit);
                left.push(segment);
            }
            Verdict::Delay(_) if self.incoming.is_full() => {
                counters.fault_undelayed += 1;
                left.push(segment);
            }
            Verdict::Delay(span) => {
                counters.fault_delays += 1;
                self.incoming.push(now + span, segment, batch.packet(&segment).to_vec());
            }
        }
    }

    fn class(&self, packet: Pending, slices: &[RawSlice]) -> Class {
        let mut first = Vec::new();
        let header = slices.iter().find(|slice| slice.length > 0);
        let readable = self.asks_for_class
            && header.is_some_and(|slice| {
                let length = slice.length.min(packet.bytes as usize);
                Probe::gather(&[RawSlice { address: slice.address, length }], &mut first)
            });
        match readable {
            true => srdma_wire::peek(&first).map_or(Class::Control, |(class, _)| class),
            false => Class::Data,
        }
    }

    /// Changes the burst as the plan says: what remains in `outbox` is to be sent.
    pub(crate) fn strike(
        &mut self,
        now: Now,
        route: Route,
        outbox: &mut Outbox,
        counters: &mut Counters,
    ) -> Result<(), SendError> {
        if let Some(until) = self.frozen_until {
            return self.hold_back(until, route, outbox, counters);
        }
        if !self.sends {
            return Ok(());
        }
        self.changed.clear();
        self.slices.clear();
        self.packets.clear();
        let mut whole = None;
        for at in 0..outbox.packets.len() {
            let packet = outbox.packets[at];
            let slices = packet.slices(&outbox.slices);
            let class = self.class(packet, slices);
            let subject = Subject { direction: Direction::Send, path: route.path, class };
            let whole = *whole.get_or_insert_with(|| self.plan.decide_burst(now, subject));
            let verdict = match whole {
                Verdict::Pass => self.plan.decide(now, subject),
                verdict => verdict,
            };
            match verdict {
                Verdict::Pass => self.keep(packet, slices),
                Verdict::Drop => counters.fault_drops += 1,
                Verdict::Duplicate => {
                    counters.fault_duplicates += 1;
                    self.keep(packet, slices);
                    self.keep(packet, slices);
                }
                Verdict::Corrupt(bit) => {
                    counters.fault_corruptions += 1;
                    self.corrupt(packet, slices, bit)?;
                }
                Verdict::Delay(_) if self.outgoing.is_full() => {
                    counters.fault_undelayed += 1;
                    self.keep(packet, slices);
                }
                Verdict::Delay(span) => {
                    counters.fault_delays += 1;
                    self.outgoing.push(now + span, route, copy(packet, slices)?);
                }
            }
        }
        std::mem::swap(&mut outbox.slices, &mut self.slices);
        std::mem::swap(&mut outbox.packets, &mut self.packets);
        Ok(())
    }

    /// Keeps the whole burst until the device moves again: control calls go on while it stands still, and what they
    /// have it say must not leave. What there is no room for is lost.
    fn hold_back(
        &mut self,
        until: Now,
        route: Route,
        outbox: &mut Outbox,
        counters: &mut Counters,
    ) -> Result<(), SendError> {
        for packet in &outbox.packets {
            if self.outgoing.is_full() {
                counters.fault_drops += 1;
                continue;
            }
            counters.fault_delays += 1;
            self.outgoing.push(until, route, copy(*packet, packet.slices(&outbox.slices))?);
        }
        outbox.slices.clear();
        outbox.packets.clear();
        Ok(())
    }

    fn keep(&mut self, packet: Pending, slices: &[RawSlice]) {
        let first_slice = self.slices.len() as u32;
        self.slices.extend_from_slice(slices);
        self.packets.push(Pending { first_slice, slice_count: slices.len() as u32, ..packet });
    }

    fn corrupt(&mut self, packet: Pending, slices: &[RawSlice], bit: u32) -> Result<(), SendError> {
        let mut bytes = copy(packet, slices)?;
        if !bytes.is_empty() {
            let bit = bit as usize % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let slice = RawSlice::from(&bytes[..]);
        self.changed.push(bytes);
        self.keep(packet, &[slice]);
        Ok(())
    }
}

fn copy(packet: Pending, slices: &[RawSlice]) -> Result<Vec<u8>, SendError> {
    let mut bytes = Vec::with_capacity(packet.bytes as usize);
    match Probe::gather(slices, &mut bytes) {
        true => Ok(bytes),
        false => Err(SendError::Fault { packet: packet.index.into() }),
    }
}
