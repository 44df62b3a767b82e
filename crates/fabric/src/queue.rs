//! Events in order of time; those of one moment by rank, whatever the order in which they were added.
//!
//! A calendar queue (Brown, CACM 1988) with an overflow heap: days of 2ⁿ picoseconds in a ring, each an unsorted list. A
//! day is sorted when it begins, so adding costs a list insertion and taking a share of a small sort. What lies beyond
//! the ring (timers, mostly) waits in a heap until the ring reaches it. Nodes are used again: a steady run allocates
//! nothing.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::time::Time;

/// Days in the ring. 2¹⁴ heads are 64 KiB.
const DAYS: u64 = 1 << 14;
const NONE: u32 = u32::MAX;

/// Something that happens: compared by time, then rank, then item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// When.
    pub at: Time,
    /// Before or after what else happens at that moment.
    pub rank: u32,
    /// The caller's.
    pub item: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    entry: Entry,
    next: u32,
}

/// See the module.
#[derive(Debug)]
pub struct EventQueue {
    /// A day is `1 << shift` picoseconds.
    shift: u32,
    /// The day being taken, counted from time zero, and its events, latest first.
    today: u64,
    current: Vec<Entry>,
    heads: Vec<u32>,
    /// Which days of the ring have events.
    occupied: Vec<u64>,
    nodes: Vec<Node>,
    free: u32,
    later: BinaryHeap<Reverse<Entry>>,
    len: usize,
}

impl EventQueue {
    /// Nothing will happen. A day should hold a handful of events: about `spacing` between two, as far as known.
    pub fn new(spacing: Time) -> EventQueue {
        let shift = (spacing.0.max(1) * 8).next_power_of_two().trailing_zeros().clamp(6, 40);
        EventQueue {
            shift,
            today: 0,
            current: Vec::new(),
            heads: vec![NONE; DAYS as usize],
            occupied: vec![0; DAYS as usize / 64],
            nodes: Vec::new(),
            free: NONE,
            later: BinaryHeap::new(),
            len: 0,
        }
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing will happen.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event. One in the past comes next.
    pub fn push(&mut self, entry: Entry) {
        self.len += 1;
        let day = entry.at.0 >> self.shift;
        if day <= self.today {
            // Latest first: behind it lie those that come before.
            let place = self.current.partition_point(|other| *other > entry);
            self.current.insert(place, entry);
        } else if day - self.today < DAYS {
            self.enlist(day, entry);
        } else {
            self.later.push(Reverse(entry));
        }
    }

    /// When the next event happens.
    pub fn next_at(&mut self) -> Option<Time> {
        while self.current.is_empty() {
            if self.len == 0 {
                return None;
            }
            self.next_day();
        }
        self.current.last().map(|entry| entry.at)
    }

    /// Takes the next event if it happens before or at `limit`.
    pub fn pop_until(&mut self, limit: Time) -> Option<Entry> {
        if self.next_at()? > limit {
            return None;
        }
        self.len -= 1;
        self.current.pop()
    }

    fn enlist(&mut self, day: u64, entry: Entry) {
        let slot = (day % DAYS) as usize;
        let node = Node { entry, next: self.heads[slot] };
        let place = match self.free {
            NONE => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
            place => {
                self.free = self.nodes[place as usize].next;
                self.nodes[place as usize] = node;
                place
            }
        };
        self.heads[slot] = place;
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    /// Begins the next day that has events.
    fn next_day(&mut self) {
        let far = self.later.peek().map(|Reverse(entry)| entry.at.0 >> self.shift);
        let Some(day) = self.next_occupied().or(far) else { return };
        self.today = day;
        let slot = (day % DAYS) as usize;
        let mut place = core::mem::replace(&mut self.heads[slot], NONE);
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        while place != NONE {
            let node = self.nodes[place as usize];
            self.current.push(node.entry);
            self.nodes[place as usize].next = self.free;
            self.free = place;
            place = node.next;
        }
        while let Some(Reverse(entry)) = self.later.peek().copied() {
            let due = entry.at.0 >> self.shift;
            if due - day >= DAYS {
                break;
            }
            self.later.pop();
            match due == day {
                true => self.current.push(entry),
                false => self.enlist(due, entry),
            }
        }
        self.current.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The first day after today that the ring holds events of.
    fn next_occupied(&self) -> Option<u64> {
        let words = self.occupied.len();
        let start = ((self.today + 1) % DAYS) as usize;
        for step in 0..=words {
            let word = (start / 64 + step) % words;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            }
            if bits != 0 {
                let slot = (word * 64) as u64 + u64::from(bits.trailing_zeros());
                return Some(self.today + 1 + (slot + DAYS - start as u64) % DAYS);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_seams::Rng;

    /// Against a list, over spacings that make it use the ring, the heap and the day at hand.
    #[test]
    fn events_come_by_time_and_then_by_rank() {
        for seed in 0..60 {
            let mut rng = Rng::stream(seed, "queue", 0);
            let mut queue = EventQueue::new(Time(1 << rng.below(12)));
            let mut model: Vec<Entry> = Vec::new();
            let (mut now, mut item) = (0, 0);
            for _ in 0..4_000 {
                if rng.below(5) < 3 {
                    let reach = 1 << rng.below(40);
                    let at = Time(now + rng.below(reach) / 4 * 4);
                    let entry = Entry { at, rank: rng.below(3) as u32, item };
                    queue.push(entry);
                    model.push(entry);
                    item += 1;
                } else {
                    let limit = Time(now + (1 << rng.below(40)));
                    let wanted = model.iter().copied().min().filter(|entry| entry.at <= limit);
                    assert_eq!(queue.pop_until(limit), wanted, "seed {seed}");
                    if let Some(entry) = wanted {
                        model.retain(|&other| other != entry);
                        now = entry.at.0;
                    }
                }
                assert_eq!(queue.len(), model.len());
                assert_eq!(queue.next_at(), model.iter().map(|entry| entry.at).min(), "seed {seed}");
            }
        }
    }
}
