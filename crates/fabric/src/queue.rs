//! Events, kept by windows of time: a window's are taken together and put in order by whoever takes them.
//!
//! A ladder of one rung: a ring of windows, each a list that is appended to, so adding an event touches the end of one
//! list and nothing else. Whoever takes a window sorts it node by node (`turns`), in pieces that fit a cache; here nothing is
//! compared. What lies beyond the ring (timers, mostly) waits in a heap until the ring reaches it. Lists are chains of
//! chunks that are used again: a steady run allocates nothing, and memory is that of the events.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

use crate::time::Time;

/// Windows in the ring.
const WINDOWS: u64 = 1 << 10;
/// Events of a chunk.
const CHUNK: u32 = 32;
const NONE: u32 = u32::MAX;

/// Something that happens: in order of time, then rank, then item.
#[derive(Clone, Copy, Debug)]
pub struct Entry<L> {
    /// When.
    pub at: Time,
    /// Before or after what else happens at that moment.
    pub rank: u32,
    /// The caller's.
    pub item: u32,
    /// What else the caller wants to find with it.
    pub load: L,
}

impl<L> Entry<L> {
    fn key(&self) -> (Time, u32, u32) {
        (self.at, self.rank, self.item)
    }
}

impl<L> PartialEq for Entry<L> {
    fn eq(&self, other: &Entry<L>) -> bool {
        self.key() == other.key()
    }
}

impl<L> Eq for Entry<L> {}

impl<L> PartialOrd for Entry<L> {
    fn partial_cmp(&self, other: &Entry<L>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<L> Ord for Entry<L> {
    fn cmp(&self, other: &Entry<L>) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// The list of a window: its newest chunk, and how many events are in that.
#[derive(Clone, Copy, Debug)]
struct List {
    chunk: u32,
    filled: u32,
}

const EMPTY: List = List { chunk: NONE, filled: CHUNK };

/// See the module.
#[derive(Debug)]
pub struct EventQueue<L> {
    /// Length of a window in picoseconds.
    span: u64,
    /// The window being taken, counted from time zero. What is added for an earlier one belongs to it.
    current: u64,
    ring: Vec<List>,
    /// Which windows of the ring have events.
    occupied: Vec<u64>,
    /// Events of all chunks, and of each chunk the one that was filled before it.
    events: Vec<Entry<L>>,
    before: Vec<u32>,
    free: Vec<u32>,
    later: BinaryHeap<Reverse<Entry<L>>>,
}

impl<L: Copy> EventQueue<L> {
    /// Nothing will happen. Windows are `span` long.
    pub fn new(span: Time) -> EventQueue<L> {
        EventQueue {
            span: span.0.max(1),
            current: 0,
            ring: vec![EMPTY; WINDOWS as usize],
            occupied: vec![0; WINDOWS as usize / 64],
            events: Vec::new(),
            before: Vec::new(),
            free: Vec::new(),
            later: BinaryHeap::new(),
        }
    }

    /// Adds an event. One in the past comes with the next.
    pub fn push(&mut self, entry: Entry<L>) {
        let window = (entry.at.0 / self.span).max(self.current);
        if window - self.current < WINDOWS {
            self.append(window, entry);
        } else {
            self.later.push(Reverse(entry));
        }
    }

    fn append(&mut self, window: u64, entry: Entry<L>) {
        let slot = (window % WINDOWS) as usize;
        let mut list = self.ring[slot];
        if list.filled == CHUNK {
            list = List { chunk: self.chunk_after(list.chunk, entry), filled: 0 };
            self.occupied[slot / 64] |= 1 << (slot % 64);
        }
        self.events[(list.chunk * CHUNK + list.filled) as usize] = entry;
        self.ring[slot] = List { filled: list.filled + 1, ..list };
    }

    /// A chunk that continues `before`; `filler` fills it for the time being.
    fn chunk_after(&mut self, before: u32, filler: Entry<L>) -> u32 {
        let chunk = self.free.pop().unwrap_or_else(|| {
            self.before.push(NONE);
            self.events.resize(self.before.len() * CHUNK as usize, filler);
            self.before.len() as u32 - 1
        });
        self.before[chunk as usize] = before;
        chunk
    }

    /// Takes the events of the first window that has any, as far as they happen before or at `limit`, in no order: they
    /// become `into`, whose old content is lost. The last moment that is thereby covered; `None` if nothing happens until
    /// `limit`.
    pub fn take(&mut self, limit: Time, into: &mut Vec<Entry<L>>) -> Option<Time> {
        into.clear();
        let far = self.later.peek().map(|Reverse(entry)| entry.at.0 / self.span);
        let window = self.next_occupied().or(far)?;
        let begin = window.saturating_mul(self.span);
        if begin > limit.0 {
            return None;
        }
        self.current = window;
        self.fetch();
        self.empty((window % WINDOWS) as usize, into);
        let end = Time(begin.saturating_add(self.span - 1));
        if end <= limit {
            return Some(end);
        }
        into.iter().filter(|entry| entry.at > limit).for_each(|&entry| self.append(window, entry));
        into.retain(|entry| entry.at <= limit);
        (!into.is_empty()).then_some(limit)
    }

    /// Moves the events of the window at `slot` to the end of `into`.
    fn empty(&mut self, slot: usize, into: &mut Vec<Entry<L>>) {
        let List { mut chunk, mut filled } = core::mem::replace(&mut self.ring[slot], EMPTY);
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        while chunk != NONE {
            let start = (chunk * CHUNK) as usize;
            into.extend_from_slice(&self.events[start..start + filled as usize]);
            self.free.push(chunk);
            (chunk, filled) = (self.before[chunk as usize], CHUNK);
        }
    }

    /// Changes when events happen.
    pub fn rearrange(&mut self, change: impl Fn(&mut Entry<L>)) {
        let mut all: Vec<Entry<L>> = self.later.drain().map(|Reverse(entry)| entry).collect();
        (0..WINDOWS as usize).for_each(|slot| self.empty(slot, &mut all));
        for mut entry in all {
            change(&mut entry);
            self.push(entry);
        }
    }

    /// Moves what the ring has reached into it.
    fn fetch(&mut self) {
        while let Some(Reverse(entry)) = self.later.peek().copied() {
            let window = (entry.at.0 / self.span).max(self.current);
            if window - self.current >= WINDOWS {
                break;
            }
            self.later.pop();
            self.append(window, entry);
        }
    }

    /// The first window from the current one on that the ring holds events of.
    fn next_occupied(&self) -> Option<u64> {
        let words = self.occupied.len();
        let start = (self.current % WINDOWS) as usize;
        for step in 0..=words {
            let word = (start / 64 + step) % words;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let slot = (word * 64) as u64 + u64::from(bits.trailing_zeros());
                return Some(self.current + (slot + WINDOWS - start as u64) % WINDOWS);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_seams::Rng;

    /// Against a list, over spans that make it use the ring, the heap and the window at hand.
    #[test]
    fn windows_hold_what_happens_in_them() {
        for seed in 0..60 {
            let mut rng = Rng::stream(seed, "queue", 0);
            let mut queue = EventQueue::new(Time(1 << rng.below(12)));
            let mut model: Vec<Entry<u64>> = Vec::new();
            let (mut now, mut item, mut taken) = (0, 0, Vec::new());
            for _ in 0..4_000 {
                if rng.below(5) < 3 {
                    let reach = 1 << rng.below(40);
                    let at = Time(now + rng.below(reach) / 4 * 4);
                    let entry = Entry { at, rank: rng.below(3) as u32, item, load: at.0 };
                    queue.push(entry);
                    model.push(entry);
                    item += 1;
                    continue;
                }
                let limit = Time(now + (1 << rng.below(40)));
                let end = queue.take(limit, &mut taken);
                let first = model.iter().copied().min().filter(|entry| entry.at <= limit);
                assert_eq!(end.is_some(), first.is_some(), "seed {seed}");
                let (Some(end), Some(first)) = (end, first) else { continue };
                assert!(first.at <= end && end <= limit, "seed {seed}");
                let mut wanted: Vec<_> = model.iter().copied().filter(|entry| entry.at <= end).collect();
                wanted.sort();
                taken.sort();
                assert_eq!(taken, wanted, "seed {seed}");
                assert!(taken.iter().all(|entry| entry.load == entry.at.0));
                model.retain(|entry| entry.at > end);
                now = end.0;
            }
            while queue.take(Time::MAX, &mut taken).is_some() {
                model.retain(|entry| !taken.contains(entry));
            }
            assert_eq!(model, [], "seed {seed}: nothing is left behind");
        }
    }
}
