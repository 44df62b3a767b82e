//! One numbering of the receiving side: which packets came, and how to say so.

use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::collections::VecDeque;

use srdma_seams::{ids, Now};
use srdma_wire::{Ack, AckBlock, AckUnit, Data, Part, ACK_BLOCKS_MAX, ACK_UNITS_MAX};

use crate::bitmap::SeqBits;
use crate::Arrival;

/// Units awaiting their report; older ones go unreported (their packets are in the blocks anyway).
const PENDING_MAX: usize = 512;
/// Blocks of an ACK that are left to repeat older news when there is much new.
/// Entries of it that there is always room for.
const PENDING_MIN: usize = 64;
const ROTATING_BLOCKS: usize = 8;
/// A message number further than this from the newest is not believed to be the newest.
const MSN_STEP_MAX: u64 = 1 << 20;

/// Packets of which some parts, but not all, may be here at once.
const PARTIAL_MAX: usize = 8192;

/// The parts of a packet that have come.
#[derive(Clone, Copy, Debug)]
struct Parts {
    count: u8,
    mask: u64,
}

impl Parts {
    fn is_whole(&self) -> bool {
        self.mask.count_ones() >= u32::from(self.count)
    }
}

/// A unit, or part of one, that arrived since the last ACK.
#[derive(Clone, Copy, Debug)]
struct Pending {
    unit: srdma_wire::UnitTag,
    /// Number of the unit's first packet.
    first: u64,
    /// Positions that arrived.
    mask: u64,
    ce: u8,
    arrived: Now,
}

/// What became of a packet or part.
enum Taken {
    New,
    Known,
    /// As if it never came.
    Unfit,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Receiver {
    received: SeqBits,
    /// Every packet before this one was received.
    base: u64,
    /// One past the highest packet received.
    end: u64,
    /// Packets that come in parts, until an ACK vouches for them.
    partial: BTreeMap<u64, Parts>,
    window_packets: u32,
    landed: u64,
    newest_msn: u64,
    pending: VecDeque<Pending>,
    ack_due: bool,
    /// Where the rotation through the blocks goes on.
    rotation: u64,
    anything: bool,
}

impl Receiver {
    pub(crate) fn new(first_psn: u64, first_msn: u64, window_packets: u32) -> Receiver {
        Receiver {
            received: SeqBits::new(),
            base: first_psn,
            end: first_psn,
            partial: BTreeMap::new(),
            window_packets,
            landed: first_msn,
            newest_msn: first_msn,
            pending: VecDeque::with_capacity(PENDING_MIN),
            ack_due: false,
            rotation: first_psn,
            anything: false,
        }
    }

    /// Starts at `first_psn`, unless packets were received already.
    pub(crate) fn set_first(&mut self, first_psn: u64) {
        if !self.anything {
            self.base = first_psn;
            self.end = first_psn;
            self.rotation = first_psn;
        }
    }

    /// Classifies a packet and marks it received.
    pub(crate) fn arrival(&mut self, now: Now, data: &Data, ce: bool) -> Arrival {
        let seq = ids::extend(self.base, data.psn);
        let behind = self.base.wrapping_sub(seq);
        let arrival = if behind > 0 && behind < 1 << 31 {
            if behind <= u64::from(self.window_packets) {
                Arrival::Duplicate
            } else {
                Arrival::Stale
            }
        } else if seq - self.base >= u64::from(self.window_packets) {
            return Arrival::Beyond;
        } else {
            self.received.ensure(self.base, self.end, seq + 1);
            match self.take(seq, data.part) {
                Taken::New => Arrival::New { seq, msn: self.extend_msn(data.message.msn) },
                Taken::Known => Arrival::Duplicate,
                Taken::Unfit => return Arrival::Beyond,
            }
        };
        self.ack_due = true;
        self.note(now, data, seq, 1, ce);
        arrival
    }

    /// The header of a packet came alone: its unit is reported with nothing in it.
    pub(crate) fn trimmed(&mut self, now: Now, data: &Data) {
        let seq = ids::extend(self.base, data.psn);
        if seq.wrapping_sub(self.base) < u64::from(self.window_packets) {
            self.ack_due = true;
            self.note(now, data, seq, 0, false);
        }
    }

    /// Marks `packets` packets as received that continue one another and are all new ([`Receiver::new_run`]): number
    /// and message number of the first. `None` if they cannot be of one unit.
    pub(crate) fn arrival_run(
        &mut self,
        now: Now,
        first: &Data,
        packets: u32,
        ce: bool,
    ) -> Option<(u64, u64)> {
        if packets == 0 || u32::from(first.unit.index) + packets > 64 || first.part.is_some() {
            return None;
        }
        let seq = ids::extend(self.base, first.psn);
        let end = seq + u64::from(packets);
        self.received.ensure(self.base, self.end, end);
        self.received.set_range(seq, end);
        self.anything = true;
        self.end = self.end.max(end);
        self.ack_due = true;
        self.note(now, first, seq, u64::MAX >> (64 - packets), ce);
        Some((seq, self.extend_msn(first.message.msn)))
    }

    /// Marks a packet, or a part of it, as received.
    fn take(&mut self, seq: u64, part: Option<Part>) -> Taken {
        if seq < self.end && self.received.get(seq) {
            return Taken::Known;
        }
        let whole = match part {
            // Whole, after parts of it: bytes that are here must not be taken twice. It will come in parts.
            None if self.partial.contains_key(&seq) => return Taken::Unfit,
            None => true,
            Some(part) => {
                let room = self.partial.len() < PARTIAL_MAX || seq == self.base;
                let parts = match self.partial.entry(seq) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) if room => entry.insert(Parts { count: part.count, mask: 0 }),
                    Entry::Vacant(_) => return Taken::Unfit,
                };
                let bit = 1u64 << (part.index & 63);
                if parts.count != part.count {
                    return Taken::Unfit;
                }
                if parts.mask & bit != 0 {
                    return Taken::Known;
                }
                parts.mask |= bit;
                parts.is_whole()
            }
        };
        self.anything = true;
        self.end = self.end.max(seq + 1);
        if whole {
            self.received.set(seq);
        }
        Taken::New
    }

    /// How many of `count` packets from `psn` on would be new.
    pub(crate) fn new_run(&self, psn: u32, count: u32) -> u32 {
        let seq = ids::extend(self.base, psn);
        let end = seq.saturating_add(count.into()).min(self.base.saturating_add(self.window_packets.into()));
        if seq < self.base || seq >= end || !self.partial.is_empty() {
            return 0;
        }
        let received = self.received.next_set(seq, self.end.min(end)).unwrap_or(end);
        received.min(end).saturating_sub(seq) as u32
    }

    /// The whole message number that `low` is taken for.
    pub(crate) fn msn_of(&self, low: u32) -> u64 {
        ids::extend(self.newest_msn, low)
    }

    fn extend_msn(&mut self, low: u32) -> u64 {
        let msn = self.msn_of(low);
        if msn > self.newest_msn && msn - self.newest_msn <= MSN_STEP_MAX {
            self.newest_msn = msn;
        }
        msn
    }

    /// Notes packets of a unit for its report: those in `run`, counted from `seq`, the number of `data`.
    fn note(&mut self, now: Now, data: &Data, seq: u64, run: u64, ce: bool) {
        let index = data.unit.index & 63;
        let mask = run << index;
        let same = |p: &&mut Pending| p.unit.transmit == data.unit.transmit && p.unit.path == data.unit.path;
        if let Some(pending) = self.pending.iter_mut().rev().take(16).find(same) {
            if ce {
                pending.ce += (mask & !pending.mask).count_ones() as u8;
            }
            pending.mask |= mask;
            pending.arrived = now;
            return;
        }
        if self.pending.len() >= PENDING_MAX {
            self.pending.pop_front();
        }
        let first = seq.wrapping_sub(u64::from(index));
        let ce = if ce { mask.count_ones() as u8 } else { 0 };
        self.pending.push_back(Pending { unit: data.unit, first, mask, ce, arrived: now });
    }

    /// Forgets that `seq`, or `part` of it, came. Numbers that an ACK has already vouched for stay received.
    pub(crate) fn unreceive(&mut self, seq: u64, part: Option<Part>) {
        if seq < self.base || seq >= self.end {
            return;
        }
        let left = match (part, self.partial.get_mut(&seq)) {
            (Some(part), Some(parts)) => {
                parts.mask &= !(1 << (part.index & 63));
                parts.mask
            }
            _ => 0,
        };
        if left == 0 {
            self.partial.remove(&seq);
        }
        if !self.received.clear(seq) && part.is_none() {
            return;
        }
        for pending in &mut self.pending {
            let position = seq.wrapping_sub(pending.first);
            if position < 64 && pending.mask >> position & 1 == 1 {
                pending.mask &= !(1 << position);
                pending.ce = pending.ce.min(pending.mask.count_ones() as u8);
            }
        }
        self.pending.retain(|pending| pending.mask != 0);
    }

    /// Messages before `msn` have landed. The peer is told.
    pub(crate) fn set_landed(&mut self, msn: u64) {
        if msn > self.landed {
            self.landed = msn;
            self.ack_due = true;
        }
    }

    /// Every message before this one has landed.
    pub(crate) fn landed(&self) -> u64 {
        self.landed
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.received.bytes() + self.pending.capacity() * size_of::<Pending>()
    }

    /// Gives memory back that what was received ahead does not need.
    pub(crate) fn fit(&mut self) {
        self.received.fit(self.base, self.end.max(self.base));
        self.pending.shrink_to(PENDING_MIN);
    }

    /// Every packet before this one was received.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Packet numbers between the first one missing and the highest received.
    pub(crate) fn ahead(&self) -> u64 {
        self.end - self.base
    }

    pub(crate) fn newest_msn(&self) -> u64 {
        self.newest_msn
    }

    pub(crate) fn is_ack_due(&self) -> bool {
        self.ack_due
    }

    /// Whether all there is to say is that the next packet came, whole and unmarked.
    pub(crate) fn has_lone_news(&self) -> bool {
        let one = |pending: &Pending| pending.mask.count_ones() == 1 && pending.ce == 0;
        self.pending.len() == 1
            && self.pending.iter().all(one)
            && self.ahead() == 1
            && self.partial.is_empty()
            && self.received.get(self.base)
    }

    /// The ACK that was just made did not leave.
    pub(crate) fn ack_again(&mut self) {
        self.ack_due = true;
    }

    /// Fills in what this numbering has to say, with at most `units_max` unit reports; the rest of `ack` is
    /// the caller's. More may be due afterwards.
    pub(crate) fn fill(&mut self, now: Now, units_max: usize, ack: &mut Ack) {
        self.advance();
        ack.cumulative = self.base as u32;
        ack.landed = self.landed as u32;
        let mut fresh_end = 0;
        while let Some(pending) = self.pending.back().copied() {
            let unit_full = usize::from(ack.unit_count) >= units_max.min(ACK_UNITS_MAX);
            if unit_full || !self.add_runs_of(ack, &pending) {
                break;
            }
            fresh_end = ack.block_count;
            ack.units[usize::from(ack.unit_count)] = AckUnit {
                transmit: pending.unit.transmit,
                path: pending.unit.path,
                packets: pending.mask.count_ones() as u8,
                ce: pending.ce,
                delay_us: now.since(pending.arrived).as_micros().min(u64::from(u16::MAX)) as u16,
            };
            ack.unit_count += 1;
            self.pending.pop_back();
        }
        self.ack_due = !self.pending.is_empty();
        self.rotate(ack, usize::from(fresh_end));
    }

    /// Moves the cumulative number over what has come. Only here, so that `unreceive` works until
    /// an ACK has said otherwise.
    fn advance(&mut self) {
        let base = self.received.next_clear(self.base, self.end.max(self.base));
        self.received.clear_range(self.base, base);
        self.base = base;
        if !self.partial.is_empty() {
            self.partial.retain(|_, parts| !parts.is_whole());
        }
    }

    /// Adds the runs that the packets of `pending` lie in; false if there is no room for them.
    fn add_runs_of(&self, ack: &mut Ack, pending: &Pending) -> bool {
        // One unit has at most 32 runs, so the first always fits and every call makes progress.
        let limit = if ack.unit_count == 0 { ACK_BLOCKS_MAX } else { ACK_BLOCKS_MAX - ROTATING_BLOCKS };
        let mut mask = pending.mask;
        while mask != 0 {
            let seq = pending.first.wrapping_add(u64::from(mask.trailing_zeros()));
            if seq < self.base || seq >= self.end || !self.received.get(seq) {
                mask &= mask - 1;
                continue;
            }
            let (first, end) = self.run_at(seq);
            if !push_block(ack, first, end, limit) {
                return false;
            }
            let covered = end.wrapping_sub(pending.first).min(64);
            mask &= if covered == 64 { 0 } else { u64::MAX << covered };
        }
        true
    }

    fn run_at(&self, seq: u64) -> (u64, u64) {
        (self.received.run_start(seq, self.base), self.received.next_clear(seq, self.end))
    }

    /// Repeats older runs in turn, as far as there is room.
    fn rotate(&mut self, ack: &mut Ack, fresh: usize) {
        let start = self.rotation.clamp(self.base, self.end);
        let (mut at, mut wrapped) = (start, false);
        let room = ACK_BLOCKS_MAX - fresh.min(ACK_BLOCKS_MAX);
        for _ in 0..room {
            let Some(first) = self.received.next_set(at, self.end) else {
                if wrapped {
                    break;
                }
                (at, wrapped) = (self.base, true);
                continue;
            };
            if wrapped && first >= start {
                break;
            }
            let (first, end) = self.run_at(first);
            if !push_block(ack, first, end, ACK_BLOCKS_MAX) {
                break;
            }
            at = end;
        }
        self.rotation = at;
    }
}

/// Adds a block unless it is there already; false if there is no room.
fn push_block(ack: &mut Ack, first: u64, end: u64, limit: usize) -> bool {
    let block = AckBlock { first: first as u32, end: end as u32 };
    if ack.blocks().contains(&block) {
        return true;
    }
    let count = usize::from(ack.block_count);
    if count >= limit {
        return false;
    }
    ack.blocks[count] = block;
    ack.block_count += 1;
    true
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use alloc::collections::BTreeSet;
    use srdma_seams::{ConnectionId, PathId, Qpn, Rng, TransmitId};
    use srdma_wire::{Message, Op, Space, UnitTag};

    fn data(psn: u32, transmit: u32, index: u8, packets: u8) -> Data {
        Data {
            dest_qpn: Qpn(2),
            connection: ConnectionId(1),
            psn,
            unit: UnitTag { transmit: TransmitId(transmit), path: PathId(3), index, packets },
            message: Message { msn: 0, length: 0, offset: 0 },
            solicited: false,
            part: None,
            payload_crc: None,
            tag: None,
            op: Op::Write { address: 0, rkey: 0 },
        }
    }

    fn ack(receiver: &mut Receiver, now: Now) -> Ack {
        let mut ack = Ack {
            dest_qpn: Qpn(1),
            connection: ConnectionId(1),
            path: PathId(0),
            space: Space::Request,
            cumulative: 0,
            landed: 0,
            free_bytes: 0,
            block_count: 0,
            blocks: [AckBlock::default(); ACK_BLOCKS_MAX],
            unit_count: 0,
            units: [AckUnit::default(); ACK_UNITS_MAX],
        };
        receiver.fill(now, ACK_UNITS_MAX, &mut ack);
        ack
    }

    /// Far more runs than an ACK has blocks: the newest comes first, and the rotation reaches all.
    #[test]
    fn every_run_is_told_in_turn_and_the_newest_at_once() {
        let mut receiver = Receiver::new(0, 0, 1 << 17);
        let runs = 500u32;
        for run in 0..runs {
            receiver.arrival(Now(run.into()), &data(run * 3 + 1, run, 0, 1), false);
            let newest = ack(&mut receiver, Now(run.into()));
            assert_eq!(newest.blocks()[0], AckBlock { first: run * 3 + 1, end: run * 3 + 2 });
            assert_eq!(newest.units()[0].transmit, TransmitId(run));
        }
        let mut told = BTreeSet::new();
        for repeat in 0..runs / (ACK_BLOCKS_MAX as u32 - 1) + 2 {
            receiver.arrival(Now(1_000_000), &data(1, runs + repeat, 0, 1), false);
            let ack = ack(&mut receiver, Now(1_000_000));
            assert_eq!(ack.cumulative, 0);
            told.extend(ack.blocks().iter().map(|block| block.first));
        }
        assert_eq!(told.len(), runs as usize);
    }

    #[test]
    fn what_is_taken_back_is_neither_acknowledged_nor_reported() {
        let mut receiver = Receiver::new(0, 0, 64);
        for index in 0..3 {
            receiver.arrival(Now(5), &data(u32::from(index), 9, index, 3), true);
        }
        receiver.unreceive(1, None);
        let first = ack(&mut receiver, Now(2_005_000));
        assert_eq!((first.cumulative, first.blocks()), (1, &[AckBlock { first: 2, end: 3 }][..]));
        let unit = first.units()[0];
        assert_eq!((unit.packets, unit.ce, unit.delay_us), (2, 2, 2_004));
        let again = receiver.arrival(Now(6), &data(1, 10, 0, 1), false);
        assert_eq!(again, Arrival::New { seq: 1, msn: 0 });
        assert_eq!(ack(&mut receiver, Now(6)).cumulative, 3);
    }

    #[test]
    fn the_edges_of_the_window_are_told_apart() {
        let first = (1u64 << 32) - 3;
        let mut receiver = Receiver::new(first, 0, 64);
        for (offset, wanted) in [
            (64u32, Arrival::Beyond),
            (63, Arrival::New { seq: first + 63, msn: 0 }),
            (63, Arrival::Duplicate),
            (0u32.wrapping_sub(1), Arrival::Duplicate),
            (0u32.wrapping_sub(65), Arrival::Stale),
        ] {
            let psn = (first as u32).wrapping_add(offset);
            assert_eq!(receiver.arrival(Now(0), &data(psn, 0, 0, 1), false), wanted, "{offset}");
        }
    }

    /// Units that come in pieces, in any order, with gaps, marked or not: taken as runs where they are whole, they are
    /// acknowledged just as packet by packet.
    #[test]
    fn a_run_is_acknowledged_as_its_packets_would_be() {
        let mut taken = 0;
        for seed in 0..300 {
            let mut rng = Rng::stream(seed, "runs", 0);
            let first = [0, (1 << 32) - 40][rng.below(2) as usize];
            let (mut whole, mut single) =
                (Receiver::new(first, 0, 1 << 12), Receiver::new(first, 0, 1 << 12));
            let units: Vec<(u32, u32, u8)> = (0..20u32)
                .scan(first as u32, |psn, transmit| {
                    let packets = 1 + rng.below(64) as u8;
                    let at = *psn;
                    *psn = psn.wrapping_add(packets.into());
                    Some((transmit, at, packets))
                })
                .collect();
            for _ in 0..60 {
                let (transmit, psn, packets) = units[rng.below(units.len() as u64) as usize];
                let from = rng.below(packets.into()) as u8;
                let count = 1 + rng.below(u64::from(packets - from)) as u32;
                let (ce, now) = (rng.below(4) == 0, Now(rng.below(1_000_000)));
                let at = |index: u32| {
                    data(
                        psn.wrapping_add(from.into()).wrapping_add(index),
                        transmit,
                        from + index as u8,
                        packets,
                    )
                };
                if whole.new_run(at(0).psn, count) == count {
                    taken += 1;
                    assert!(whole.arrival_run(now, &at(0), count, ce).is_some());
                } else {
                    for index in 0..count {
                        whole.arrival(now, &at(index), ce);
                    }
                }
                for index in 0..count {
                    single.arrival(now, &at(index), ce);
                }
                if rng.below(4) == 0 {
                    assert_eq!(ack(&mut whole, now), ack(&mut single, now), "seed {seed}");
                }
            }
        }
        assert!(taken > 1_000, "{taken}");
    }

    #[test]
    fn a_run_past_the_end_of_its_unit_is_none() {
        let mut receiver = Receiver::new(0, 0, 1 << 12);
        assert_eq!(receiver.arrival_run(Now(0), &data(0, 0, 60, 64), 5, false), None);
        assert_eq!(receiver.arrival_run(Now(0), &data(0, 0, 60, 64), 4, false), Some((0, 0)));
        assert_eq!(receiver.arrival_run(Now(0), &data(9, 1, 0, 64), 0, false), None);
    }

    /// Whatever a peer sends, every ACK is well formed and the ACKs end.
    #[test]
    fn nonsense_does_no_harm() {
        for seed in 0..200 {
            let mut rng = Rng::stream(seed, "nonsense", 0);
            let first = [0, 3, (1 << 32) - 2][rng.below(3) as usize];
            let mut receiver = Receiver::new(first, 0, 256);
            for step in 0..200 {
                let psn = if rng.below(4) == 0 {
                    rng.next_u32()
                } else {
                    (first as u32).wrapping_add(rng.below(300) as u32)
                };
                let unit = (rng.below(5) as u32, rng.next_u32() as u8, rng.next_u32() as u8);
                let arrival =
                    receiver.arrival(Now(step), &data(psn, unit.0, unit.1, unit.2), rng.below(2) == 0);
                if let (Arrival::New { seq, .. }, 0) = (arrival, rng.below(5)) {
                    receiver.unreceive(seq, None);
                }
                let mut acks = 0;
                while rng.below(3) == 0 && receiver.is_ack_due() {
                    let ack = ack(&mut receiver, Now(step));
                    assert!(
                        ack.blocks().iter().all(|b| b.end.wrapping_sub(b.first) as i32 > 0),
                        "seed {seed}"
                    );
                    assert!(ack.units().iter().all(|u| (1..=64).contains(&u.packets) && u.ce <= u.packets));
                    acks += 1;
                    assert!(acks < 1_000, "seed {seed}: acknowledgements without end");
                }
            }
        }
    }
}
