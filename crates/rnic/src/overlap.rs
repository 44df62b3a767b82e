//! Where WRITEs of one queue pair overlap, the later one's bytes remain, whatever order they came in.
//!
//! Bytes of messages that came too early are remembered as ranges until everything before them has
//! landed; an earlier message that arrives later leaves those bytes alone. While nothing is out of
//! order the map is empty and costs nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use srdma_memory::AddressSpace;

/// A byte position: address space (as an ordered number) and address.
type Key = (u32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    end: u64,
    msn: u64,
}

/// Ranges written by messages ahead of the oldest open one. Disjoint.
#[derive(Debug, Default)]
pub(crate) struct Overlaps {
    ranges: BTreeMap<Key, Range>,
    newest: u64,
    purge_at: usize,
    touched: Vec<(u64, Range)>,
}

const PURGE_FLOOR: usize = 64;

fn space_number(space: AddressSpace) -> u32 {
    match space {
        AddressSpace::Host => 0,
        AddressSpace::Gpu(index) => 1 + u32::from(index),
        AddressSpace::SendRing(qpn) => (1 << 24) + qpn.0,
        // One half of the numbers: there are fewer programs.
        AddressSpace::Program(number) => (1 << 31) | number,
    }
}

impl Overlaps {
    /// The parts of `[start, end)` that message `msn` may write, appended to `visible`. If `ahead`
    /// (messages before it are still open), they are remembered.
    pub fn place(
        &mut self,
        space: AddressSpace,
        (start, end): (u64, u64),
        msn: u64,
        ahead: bool,
        visible: &mut Vec<(u64, u64)>,
    ) {
        if start >= end {
            return;
        }
        if self.ranges.is_empty() && !ahead {
            visible.push((start, end));
            return;
        }
        let space = space_number(space);
        self.collect_touched(space, start, end);
        let first = visible.len();
        let mut at = start;
        for &(from, range) in self.touched.iter().rev().filter(|(_, range)| range.msn > msn) {
            if from > at {
                visible.push((at, from));
            }
            at = at.max(range.end);
        }
        if at < end {
            visible.push((at, end));
        }
        if ahead {
            self.newest = self.newest.max(msn);
            for &(from, to) in &visible[first..] {
                self.record(space, from, to, msn);
            }
        }
    }

    /// Whether nothing remembered touches `[start, end)`.
    pub fn is_untouched(&self, space: AddressSpace, (start, end): (u64, u64)) -> bool {
        if self.ranges.is_empty() {
            return true;
        }
        let space = space_number(space);
        let before = self.ranges.range(..(space, end)).next_back();
        before.is_none_or(|(&(its_space, _), range)| its_space != space || range.end <= start)
    }

    /// Everything before `head` has landed: ranges of messages up to it have nobody left to fear.
    pub fn landed(&mut self, head: u64) {
        if self.ranges.is_empty() {
            return;
        }
        if self.newest <= head {
            self.ranges.clear();
            self.purge_at = 0;
        } else if self.ranges.len() > self.purge_at.max(PURGE_FLOOR) {
            self.ranges.retain(|_, range| range.msn > head);
            self.purge_at = self.ranges.len() * 2;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.newest = 0;
        self.purge_at = 0;
    }

    /// Ranges that touch `[start, end)`, last first.
    fn collect_touched(&mut self, space: u32, start: u64, end: u64) {
        self.touched.clear();
        for (&(its_space, from), &range) in self.ranges.range(..(space, end)).rev() {
            if its_space != space || range.end <= start {
                break;
            }
            self.touched.push((from, range));
        }
    }

    fn record(&mut self, space: u32, from: u64, to: u64, msn: u64) {
        for &(old_from, old) in &self.touched {
            if old.msn > msn || old.end <= from || old_from >= to {
                continue;
            }
            // Pieces are apart because a newer range lies between them, so an old one meets only one.
            let key = (space, old_from);
            let Some(old) = self.ranges.remove(&key) else { continue };
            if old_from < from {
                self.ranges.insert(key, Range { end: from, msn: old.msn });
            }
            if old.end > to {
                self.ranges.insert((space, to), Range { end: old.end, msn: old.msn });
            }
        }
        let mut start = from;
        let mut end = to;
        if let Some((&key, &before)) = self.ranges.range(..(space, from)).next_back() {
            if key.0 == space && before.end == from && before.msn == msn {
                self.ranges.remove(&key);
                start = key.1;
            }
        }
        if let Some(&after) = self.ranges.get(&(space, to)) {
            if after.msn == msn {
                self.ranges.remove(&(space, to));
                end = after.end;
            }
        }
        self.ranges.insert((space, start), Range { end, msn });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use srdma_seams::Rng;

    #[test]
    fn in_order_traffic_leaves_no_trace() {
        let mut overlaps = Overlaps::default();
        let mut visible = Vec::new();
        overlaps.place(AddressSpace::Host, (10, 20), 3, false, &mut visible);
        assert_eq!(visible, [(10, 20)]);
        assert!(overlaps.ranges.is_empty());
    }

    #[test]
    fn contiguous_packets_of_a_message_are_one_range() {
        let mut overlaps = Overlaps::default();
        for packet in [0u64, 2, 1, 3] {
            overlaps.place(AddressSpace::Host, (packet * 8, packet * 8 + 8), 1, true, &mut Vec::new());
        }
        assert_eq!(overlaps.ranges.len(), 1);
        overlaps.landed(1);
        assert!(overlaps.ranges.is_empty());
    }

    #[test]
    fn spaces_do_not_overlap() {
        let mut overlaps = Overlaps::default();
        overlaps.place(AddressSpace::Gpu(0), (0, 100), 9, true, &mut Vec::new());
        let mut visible = Vec::new();
        overlaps.place(AddressSpace::Host, (0, 100), 1, false, &mut visible);
        assert_eq!(visible, [(0, 100)]);
    }

    /// Any arrival order of packets of overlapping messages ends as if they had come in order.
    #[test]
    fn the_latest_message_wins_in_any_arrival_order() {
        const BYTES: usize = 96;
        for seed in 0..400u64 {
            let mut rng = Rng::stream(seed, "overlap", 0);
            let messages: Vec<(u64, u64)> = (0..12)
                .map(|_| {
                    let start = rng.below(BYTES as u64 - 1);
                    (start, start + 1 + rng.below((BYTES as u64 - start).min(40)))
                })
                .collect();
            let mut packets = vec![];
            let mut want = [0u64; BYTES];
            for (i, &(start, end)) in messages.iter().enumerate() {
                want[start as usize..end as usize].fill(i as u64 + 1);
                let mut at = start;
                while at < end {
                    let to = (at + 1 + rng.below(16)).min(end);
                    packets.push((i as u64 + 1, at, to));
                    at = to;
                }
            }
            for i in (1..packets.len()).rev() {
                packets.swap(i, rng.below(i as u64 + 1) as usize);
            }
            let mut missing = vec![0usize; messages.len() + 2];
            packets.iter().for_each(|packet| missing[packet.0 as usize] += 1);
            let mut head = 1u64;
            let mut memory = [0u64; BYTES];
            let mut overlaps = Overlaps::default();
            for (msn, start, end) in packets {
                let mut visible = vec![];
                overlaps.place(AddressSpace::Host, (start, end), msn, msn > head, &mut visible);
                for (from, to) in visible {
                    memory[from as usize..to as usize].fill(msn);
                }
                missing[msn as usize] -= 1;
                while head <= messages.len() as u64 && missing[head as usize] == 0 {
                    head += 1;
                }
                overlaps.landed(head);
            }
            assert_eq!(memory, want, "seed {seed}");
            assert!(overlaps.ranges.is_empty(), "seed {seed}");
        }
    }
}
