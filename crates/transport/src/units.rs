//! Records of units in flight: what was sent when, on which path, and what of it is still awaited.

use alloc::vec;
use alloc::vec::Vec;

use srdma_seams::{ids, Now, PathId};
use srdma_wire::Space;

/// Most transmissions between the oldest one remembered and the newest.
pub(crate) const UNITS_MAX: u64 = 1 << 18;
/// Records that there is always room for.
const RING_MIN: usize = 64;

/// One transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitRecord {
    pub(crate) space: Space,
    pub(crate) path: PathId,
    pub(crate) first: u64,
    pub(crate) packets: u8,
    /// It is one packet in several datagrams, each as small as they get.
    pub(crate) in_parts: bool,
    pub(crate) sent: Now,
    /// Packets, by position, that are in flight as part of this unit.
    pub(crate) remaining: u64,
    /// Packets that a tail probe has taken over. They no longer count as in flight here, but an
    /// answer is still awaited: it decides about the health of the path.
    pub(crate) probed: u64,
    /// When packets of it were held lost; the record stays a while so that a late report is
    /// recognised as proof of a spurious loss.
    pub(crate) lost_at: Option<Now>,
    /// A report of it came.
    pub(crate) reported: bool,
    /// Window bytes of each packet but the last, and of the last.
    pub(crate) charge_each: u32,
    pub(crate) charge_last: u32,
    /// Next transmission on the same path.
    pub(crate) path_next: u64,
}

/// No transmission.
pub(crate) const NONE: u64 = u64::MAX;

impl UnitRecord {
    /// Whether anything of it is still awaited.
    pub(crate) fn is_live(&self) -> bool {
        self.remaining | self.probed != 0
    }

    fn charge(&self, position: u64) -> u64 {
        let last = position + 1 == u64::from(self.packets);
        u64::from(if last { self.charge_last } else { self.charge_each })
    }

    fn charge_of(&self, mask: u64) -> u64 {
        let last_bit = 1u64 << (self.packets - 1);
        let others = u64::from((mask & !last_bit).count_ones()) * u64::from(self.charge_each);
        others + if mask & last_bit != 0 { u64::from(self.charge_last) } else { 0 }
    }
}

/// Ring of records, addressed by 64-bit transmit ids (the wire carries the low 32).
#[derive(Debug)]
pub(crate) struct Units {
    ring: Vec<UnitRecord>,
    base: u64,
    next: u64,
    live_head: u64,
    inflight_bytes: u64,
    /// Of `inflight_bytes`, those on each path; empty unless somebody wants to know.
    inflight_on: Vec<u64>,
}

const EMPTY: UnitRecord = UnitRecord {
    space: Space::Request,
    path: PathId(0),
    first: 0,
    packets: 1,
    in_parts: false,
    sent: Now(0),
    remaining: 0,
    probed: 0,
    lost_at: None,
    reported: false,
    charge_each: 0,
    charge_last: 0,
    path_next: NONE,
};

impl Units {
    /// No records; the first transmission will be `first`.
    pub(crate) fn new(first: u64) -> Units {
        Units {
            ring: vec![EMPTY; RING_MIN],
            base: first,
            next: first,
            live_head: first,
            inflight_bytes: 0,
            inflight_on: Vec::new(),
        }
    }

    /// Counts bytes in flight by path from now on.
    pub(crate) fn count_by_path(&mut self, paths: u16) {
        self.inflight_on.resize(paths.into(), 0);
    }

    /// Window bytes in flight on `path`; 0 if they are not counted.
    pub(crate) fn inflight_on(&self, path: PathId) -> u64 {
        self.inflight_on.get(usize::from(path.0)).copied().unwrap_or(0)
    }

    fn land(&mut self, path: PathId, bytes: u64) {
        self.inflight_bytes -= bytes;
        if let Some(on_path) = self.inflight_on.get_mut(usize::from(path.0)) {
            *on_path = on_path.saturating_sub(bytes);
        }
    }

    /// Number of the next transmission.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Window bytes of everything in flight.
    pub(crate) fn inflight_bytes(&self) -> u64 {
        self.inflight_bytes
    }

    /// Whether another record fits.
    pub(crate) fn has_room(&self) -> bool {
        self.next - self.base < UNITS_MAX
    }

    /// Moves the records to a ring of another size, a power of two that they fit into.
    fn resize(&mut self, capacity: usize) {
        let mut ring = vec![EMPTY; capacity];
        for transmit in self.base..self.next {
            ring[transmit as usize & (capacity - 1)] = self.ring[self.slot(transmit)];
        }
        self.ring = ring;
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.ring.len() * size_of::<UnitRecord>()
    }

    /// Gives memory back that the records do not need.
    pub(crate) fn fit(&mut self) {
        let needed = ((self.next - self.base) as usize).next_power_of_two().max(RING_MIN);
        if needed < self.ring.len() {
            self.resize(needed);
        }
    }

    fn slot(&self, transmit: u64) -> usize {
        transmit as usize & (self.ring.len() - 1)
    }

    pub(crate) fn get(&self, transmit: u64) -> Option<&UnitRecord> {
        (self.base..self.next).contains(&transmit).then(|| &self.ring[self.slot(transmit)])
    }

    pub(crate) fn get_mut(&mut self, transmit: u64) -> Option<&mut UnitRecord> {
        let slot = self.slot(transmit);
        (self.base..self.next).contains(&transmit).then(|| &mut self.ring[slot])
    }

    /// 64-bit number of the transmission whose low 32 bits are `low`.
    pub(crate) fn extend(&self, low: u32) -> u64 {
        ids::extend(self.next, low)
    }

    /// Appends a record; returns its number.
    pub(crate) fn push(&mut self, record: UnitRecord) -> u64 {
        if self.next - self.base >= self.ring.len() as u64 {
            self.resize(self.ring.len() * 2);
        }
        let transmit = self.next;
        let slot = self.slot(transmit);
        let charge = record.charge_of(record.remaining);
        self.inflight_bytes += charge;
        if let Some(on_path) = self.inflight_on.get_mut(usize::from(record.path.0)) {
            *on_path += charge;
        }
        self.ring[slot] = record;
        self.next += 1;
        transmit
    }

    /// Packet `seq` is no longer in flight as part of `transmit`. Returns the window bytes freed.
    pub(crate) fn settle(&mut self, transmit: u64, seq: u64) -> u64 {
        let Some(record) = self.get_mut(transmit) else { return 0 };
        let position = seq.wrapping_sub(record.first);
        if position >= u64::from(record.packets) || record.remaining >> position & 1 == 0 {
            return 0;
        }
        record.remaining &= !(1 << position);
        let (path, freed) = (record.path, record.charge(position));
        self.land(path, freed);
        freed
    }

    /// The packets from `seq` on, at most `count`, are no longer in flight as part of `transmit`, as far as they
    /// were without a gap. Returns how many, and the window bytes freed. What is in flight as part of one unit
    /// is so of no other, and not held lost.
    pub(crate) fn settle_run(&mut self, transmit: u64, seq: u64, count: u64) -> (u64, u64) {
        let Some(record) = self.get_mut(transmit) else { return (0, 0) };
        let position = seq.wrapping_sub(record.first);
        if position >= u64::from(record.packets) {
            return (0, 0);
        }
        let ones = u64::from((record.remaining >> position).trailing_ones()).min(count);
        if ones == 0 {
            return (0, 0);
        }
        let mask = (u64::MAX >> (64 - ones)) << position;
        record.remaining &= !mask;
        let (path, freed) = (record.path, record.charge_of(mask));
        self.land(path, freed);
        (ones, freed)
    }

    /// Nothing of `transmit` is in flight any more. Returns which packets were, and their bytes.
    pub(crate) fn settle_all(&mut self, transmit: u64) -> (u64, u64) {
        let Some(record) = self.get_mut(transmit) else { return (0, 0) };
        let (mask, freed) = (record.remaining, record.charge_of(record.remaining));
        record.remaining = 0;
        record.probed = 0;
        let path = record.path;
        self.land(path, freed);
        (mask, freed)
    }

    /// Oldest live record, if any.
    pub(crate) fn oldest_live(&mut self) -> Option<u64> {
        self.next_live(0)
    }

    /// Oldest live record not before `from`, if any.
    pub(crate) fn next_live(&mut self, from: u64) -> Option<u64> {
        while self.live_head < self.next && !self.ring[self.slot(self.live_head)].is_live() {
            self.live_head += 1;
        }
        (from.max(self.live_head)..self.next).find(|&transmit| self.ring[self.slot(transmit)].is_live())
    }

    /// Oldest record if it may be forgotten: nothing awaited, no report to come, and no loss that may
    /// still turn out to be none. What happened before `long_ago` is over in any case.
    pub(crate) fn oldest_forgettable(&self, long_ago: Now) -> Option<(u64, UnitRecord)> {
        let record = self.get(self.base)?;
        let crowded = self.next - self.base > UNITS_MAX / 2;
        let settled = match record.lost_at {
            Some(at) => at < long_ago,
            None => record.reported || record.sent < long_ago,
        };
        (!record.is_live() && (settled || crowded)).then_some((self.base, *record))
    }

    /// Forgets the oldest record.
    pub(crate) fn forget_oldest(&mut self) {
        self.base += 1;
        self.live_head = self.live_head.max(self.base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_seams::Rng;

    #[test]
    fn settling_a_run_is_settling_its_packets() {
        for seed in 0..2_000 {
            let mut rng = Rng::stream(seed, "settle", 0);
            let packets = 1 + rng.below(64) as u8;
            let all = u64::MAX >> (64 - u32::from(packets));
            let (first, remaining) = (rng.next_u64() >> 8, (rng.next_u64() | rng.next_u64()) & all);
            let mut units = Units::new(7);
            let record =
                UnitRecord { first, packets, remaining, charge_each: 1_000, charge_last: 10, ..EMPTY };
            units.push(record);
            let mut slow = Units::new(7);
            slow.push(record);
            let (seq, count) = (first + rng.below(70), 1 + rng.below(64));
            let (settled, freed) = units.settle_run(7, seq, count);
            let freed_slowly: u64 = (seq..seq + settled).map(|seq| slow.settle(7, seq)).sum();
            assert_eq!(freed, freed_slowly, "seed {seed}");
            assert_eq!(units.inflight_bytes(), slow.inflight_bytes(), "seed {seed}");
            assert_eq!(units.get(7).map(|u| u.remaining), slow.get(7).map(|u| u.remaining), "seed {seed}");
            assert!(settled == count || slow.settle(7, seq + settled) == 0, "seed {seed}: cut short");
        }
    }
}
