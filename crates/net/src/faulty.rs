//! Faults on our own sends, by plan: what a bad network would do, done before the kernel sees the packet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use srdma_seams::{FaultPlan, Now, Verdict};

use crate::counters::Counters;
use crate::endpoint::Route;
use crate::error::SendError;
use crate::outbox::{Outbox, Pending};
use crate::probe::Probe;
use crate::sys::RawSlice;

/// Bytes of delayed packets kept at most; beyond, a packet is not delayed.
const DELAYED_BYTES_MAX: usize = 16 << 20;

/// A packet that waits for its time, as a private copy: the program may reuse its memory meanwhile.
pub(crate) struct Delayed {
    due: Now,
    /// Keeps equal times in order.
    sequence: u64,
    pub(crate) route: Route,
    pub(crate) bytes: Vec<u8>,
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Delayed) -> bool {
        (self.due, self.sequence) == (other.due, other.sequence)
    }
}
impl Eq for Delayed {}
impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Delayed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Delayed {
    fn cmp(&self, other: &Delayed) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

/// A plan of faults and the packets it holds back.
pub(crate) struct Faulty {
    plan: FaultPlan,
    delayed: BinaryHeap<Reverse<Delayed>>,
    delayed_bytes: usize,
    sequence: u64,
    /// Private copies of the packets of the present burst that were changed.
    changed: Vec<Vec<u8>>,
    slices: Vec<RawSlice>,
    packets: Vec<Pending>,
}

impl Faulty {
    pub(crate) fn new(plan: FaultPlan) -> Faulty {
        Faulty {
            plan,
            delayed: BinaryHeap::new(),
            delayed_bytes: 0,
            sequence: 0,
            changed: Vec::new(),
            slices: Vec::new(),
            packets: Vec::new(),
        }
    }

    /// Takes the next delayed packet whose time has come.
    pub(crate) fn take_due(&mut self, now: Now) -> Option<Delayed> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(delayed) = self.delayed.pop()?;
        self.delayed_bytes -= delayed.bytes.len();
        Some(delayed)
    }

    pub(crate) fn next_due(&self) -> Option<Now> {
        self.delayed.peek().map(|Reverse(delayed)| delayed.due)
    }

    /// Changes the burst as the plan says: what remains in `outbox` is to be sent.
    pub(crate) fn strike(
        &mut self,
        now: Now,
        route: Route,
        outbox: &mut Outbox,
        counters: &mut Counters,
    ) -> Result<(), SendError> {
        self.changed.clear();
        self.slices.clear();
        self.packets.clear();
        let whole = self.plan.decide_burst(now, route.path);
        for at in 0..outbox.packets.len() {
            let packet = outbox.packets[at];
            let verdict = match whole {
                Verdict::Pass => self.plan.decide(now, route.path, false),
                verdict => verdict,
            };
            let slices = packet.slices(&outbox.slices);
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
                Verdict::Delay(_) if self.delayed_bytes >= DELAYED_BYTES_MAX => {
                    counters.fault_undelayed += 1;
                    self.keep(packet, slices);
                }
                Verdict::Delay(span) => {
                    counters.fault_delays += 1;
                    let bytes = copy(packet, slices)?;
                    self.delayed_bytes += bytes.len();
                    self.sequence += 1;
                    let due = now + span;
                    self.delayed.push(Reverse(Delayed { due, sequence: self.sequence, route, bytes }));
                }
            }
        }
        std::mem::swap(&mut outbox.slices, &mut self.slices);
        std::mem::swap(&mut outbox.packets, &mut self.packets);
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
