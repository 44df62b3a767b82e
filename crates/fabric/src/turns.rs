//! Whose turn it is: a window of time, node by node.
//!
//! Nothing that a node does reaches another sooner than the shortest link takes. So within a window of that length nodes
//! do not depend on each other, and all that happens to one can be simulated before the next one's turn: its state is
//! fetched into the cache once for many events. Each node sees its own events in order of time, hence the same run as
//! if all were taken in order; where a window begins and ends makes no difference.

use alloc::vec;
use alloc::vec::Vec;

use crate::queue::{Entry, EventQueue};
use crate::time::Time;

/// No node.
const NOBODY: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Length of a window.
    lookahead: Time,
    /// Events of the window as they come from the queue, with their nodes, and then by node.
    drawn: Vec<(u32, Entry)>,
    sorted: Vec<(u32, Entry)>,
    /// Where the events of each node begin; reset after use.
    starts: Vec<u32>,
    /// Nodes that have events.
    present: Vec<u32>,
    next: usize,
    /// Events that the node at turn has caused itself within the window, latest first.
    own: Vec<Entry>,
    node: u32,
    /// Last moment of the window.
    end: Time,
}

impl Turns {
    /// For `nodes` nodes of which none reaches another within `lookahead`.
    pub fn new(nodes: usize, lookahead: Time) -> Turns {
        Turns {
            lookahead: lookahead.max(Time(1)),
            drawn: Vec::new(),
            sorted: Vec::new(),
            starts: vec![0; nodes],
            present: Vec::new(),
            next: 0,
            own: Vec::new(),
            node: NOBODY,
            end: Time(0),
        }
    }

    /// The next event and its node.
    pub fn take(&mut self) -> Option<(u32, Entry)> {
        let drawn = self.sorted.get(self.next).copied();
        let own = self.own.last().copied();
        match (drawn, own) {
            (Some((node, entry)), Some(first)) if node == self.node && entry < first => {
                self.next += 1;
                Some((node, entry))
            }
            (_, Some(first)) => {
                self.own.pop();
                Some((self.node, first))
            }
            (Some((node, entry)), None) => {
                self.next += 1;
                self.node = node;
                Some((node, entry))
            }
            (None, None) => {
                self.node = NOBODY;
                None
            }
        }
    }

    /// Keeps `entry` if it happens to `node` while that has its turn; it belongs in the queue otherwise.
    pub fn keep(&mut self, node: u32, entry: Entry) -> bool {
        if node != self.node || entry.at > self.end {
            return false;
        }
        let place = self.own.partition_point(|other| *other > entry);
        self.own.insert(place, entry);
        true
    }

    /// Whether `node` may be acted upon at this moment: it has its turn, or nobody has.
    pub fn allows(&self, node: u32) -> bool {
        self.node == node || self.node == NOBODY
    }

    /// The moment after the window.
    pub fn after(&self) -> Time {
        self.end.after(Time(1))
    }

    /// Draws the next window from the queue, up to `limit`; false if nothing happens until then.
    pub fn draw(&mut self, queue: &mut EventQueue, limit: Time, node_of: impl Fn(Entry) -> u32) -> bool {
        let Some(first) = queue.next_at().filter(|&at| at <= limit) else { return false };
        self.end = limit.min(Time(first.after(self.lookahead).0 - 1));
        self.drawn.clear();
        while let Some(entry) = queue.pop_until(self.end) {
            let node = node_of(entry);
            let count = &mut self.starts[node as usize];
            if *count == 0 {
                self.present.push(node);
            }
            *count += 1;
            self.drawn.push((node, entry));
        }
        self.spread();
        true
    }

    /// Sorts what was drawn by node. Within a node it stays in order.
    fn spread(&mut self) {
        let mut start = 0;
        for &node in &self.present {
            let count = core::mem::replace(&mut self.starts[node as usize], start);
            start += count;
        }
        self.sorted.clear();
        self.sorted.extend_from_slice(&self.drawn);
        for &(node, entry) in &self.drawn {
            let place = &mut self.starts[node as usize];
            self.sorted[*place as usize] = (node, entry);
            *place += 1;
        }
        for node in self.present.drain(..) {
            self.starts[node as usize] = 0;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use srdma_seams::Rng;

    /// What each node sees, when every event causes one at a random node, no sooner than the lookahead unless its own.
    fn seen(limits: u64, lookahead: u64, reference: bool) -> BTreeMap<u32, Vec<Entry>> {
        let (nodes, shortest) = (7, 500);
        let mut queue = EventQueue::new(Time(16));
        let mut turns = Turns::new(nodes as usize, Time(lookahead));
        let mut seen: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
        (0..20).for_each(|item| queue.push(Entry { at: Time(u64::from(item) * 90), rank: item % 7, item }));
        let mut limit = limits;
        while limit < 60_000 {
            let taken = match reference {
                true => queue.pop_until(Time(limit)).map(|entry| (entry.rank, entry)),
                false => turns.take(),
            };
            let Some((node, entry)) = taken else {
                if reference || !turns.draw(&mut queue, Time(limit), |entry| entry.rank) {
                    limit += limits;
                }
                continue;
            };
            seen.entry(node).or_default().push(entry);
            let mut rng = Rng::stream(entry.at.0, "next", entry.item.into());
            let (to, far) = (rng.below(nodes) as u32, rng.below(900));
            let at = entry.at.0 + if to == node { 1 + far } else { shortest + far };
            let next = Entry { at: Time(at), rank: to, item: entry.item };
            if reference || !turns.keep(to, next) {
                queue.push(next);
            }
        }
        seen
    }

    #[test]
    fn every_node_sees_what_it_would_see_in_order_of_time() {
        let wanted = seen(60_000 - 1, 1, true);
        for (limits, lookahead) in [(59_999, 500), (59_999, 100), (333, 500), (10, 500), (59_999, 1)] {
            let found = seen(limits, lookahead, false);
            for (node, events) in &wanted {
                let until = found[node].len().min(events.len());
                assert!(until > 50 && events.len() - until < 10, "{limits} {lookahead}: {until}");
                assert_eq!(found[node][..until], events[..until], "limits {limits}, lookahead {lookahead}");
            }
        }
    }
}
