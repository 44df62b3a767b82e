//! Whose turn it is: a window of time, node by node.
//!
//! Nothing that a node does reaches another sooner than the shortest link takes. So within a window of that length nodes
//! do not depend on each other, and all that happens to one can be simulated before the next one's turn: its state is
//! fetched into the cache once for many events. Each node sees its own events in order of time, hence the same run as
//! if all were taken in order; where a window begins and ends makes no difference. At one moment a node has no two events
//! of one rank.

use alloc::vec;
use alloc::vec::Vec;

use crate::queue::{Entry, EventQueue};
use crate::time::Time;

/// No node.
const NOBODY: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Turns<L> {
    /// Events of the window as they come from the queue, with the node of each, and then node by node.
    drawn: Vec<Entry<L>>,
    nodes: Vec<u32>,
    sorted: Vec<Entry<L>>,
    /// Where the events of each node begin; reset after use.
    starts: Vec<u32>,
    /// Nodes that have events, in order of their numbers, and how many of them have had their turn.
    present: Vec<u32>,
    turns: usize,
    /// Of the node at turn: where its events begin, and their order: time, rank and position in one number each.
    begin: usize,
    order: Vec<u128>,
    next: usize,
    /// Where the events of the node that is next begin.
    rest: usize,
    /// Events that the node at turn has caused itself within the window, latest first.
    own: Vec<Entry<L>>,
    node: u32,
    /// Last moment of the window.
    end: Time,
}

impl<L: Copy> Turns<L> {
    /// For `nodes` nodes.
    pub fn new(nodes: usize) -> Turns<L> {
        Turns {
            drawn: Vec::new(),
            nodes: Vec::new(),
            sorted: Vec::new(),
            starts: vec![0; nodes],
            present: Vec::new(),
            turns: 0,
            begin: 0,
            order: Vec::new(),
            next: 0,
            rest: 0,
            own: Vec::new(),
            node: NOBODY,
            end: Time(0),
        }
    }

    /// The next event and its node.
    pub fn take(&mut self) -> Option<(u32, Entry<L>)> {
        loop {
            let Some(&key) = self.order.get(self.next) else {
                if let Some(own) = self.own.pop() {
                    return Some((self.node, own));
                }
                if self.begin_turn() {
                    continue;
                }
                return None;
            };
            let entry = self.sorted[self.begin + (key as u32) as usize];
            if self.own.last().is_some_and(|own| *own < entry) {
                return Some((self.node, self.own.pop()?));
            }
            self.next += 1;
            return Some((self.node, entry));
        }
    }

    /// It is the next node's turn; false if all have had theirs.
    fn begin_turn(&mut self) -> bool {
        self.order.clear();
        self.next = 0;
        let Some(&node) = self.present.get(self.turns) else {
            self.node = NOBODY;
            return false;
        };
        self.turns += 1;
        self.node = node;
        self.begin = self.rest;
        self.rest = self.starts[node as usize] as usize;
        let events = self.sorted[self.begin..self.rest].iter().enumerate();
        self.order.extend(events.map(|(position, entry)| {
            u128::from(entry.at.0) << 64 | u128::from(entry.rank) << 32 | position as u128
        }));
        self.order.sort_unstable();
        true
    }

    /// Keeps `entry` if it happens to `node` while that has its turn; it belongs in the queue otherwise.
    pub fn keep(&mut self, node: u32, entry: Entry<L>) -> bool {
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
    pub fn draw(
        &mut self,
        queue: &mut EventQueue<L>,
        limit: Time,
        node_of: impl Fn(&Entry<L>) -> u32,
    ) -> bool {
        let Some(end) = queue.take(limit, &mut self.drawn) else { return false };
        self.end = end;
        self.present.drain(..).for_each(|node| self.starts[node as usize] = 0);
        self.nodes.clear();
        self.nodes.extend(self.drawn.iter().map(node_of));
        for &node in &self.nodes {
            let count = &mut self.starts[node as usize];
            if *count == 0 {
                self.present.push(node);
            }
            *count += 1;
        }
        self.present.sort_unstable();
        self.spread();
        true
    }

    /// Puts what was drawn where its node's events are. Afterwards `starts` says where those of each node end.
    fn spread(&mut self) {
        let mut start = 0;
        for &node in &self.present {
            let count = core::mem::replace(&mut self.starts[node as usize], start);
            start += count;
        }
        if let (true, Some(&filler)) = (self.sorted.len() < self.drawn.len(), self.drawn.first()) {
            self.sorted.resize(self.drawn.len(), filler);
        }
        for (&node, &entry) in self.nodes.iter().zip(&self.drawn) {
            let place = &mut self.starts[node as usize];
            self.sorted[*place as usize] = entry;
            *place += 1;
        }
        (self.turns, self.begin, self.rest) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use srdma_seams::Rng;

    /// The load of an event is its node.
    type Seen = BTreeMap<u32, Vec<Entry<u32>>>;

    /// What comes of an event: one at a random node, no sooner than the shortest link takes unless its own.
    fn effect(entry: Entry<u32>) -> Entry<u32> {
        let (nodes, shortest) = (7, 500);
        let mut rng = Rng::stream(entry.at.0, "next", entry.item.into());
        let (to, far) = (rng.below(nodes) as u32, rng.below(900));
        let at = entry.at.0 + if to == entry.load { 1 + far } else { shortest + far };
        Entry { at: Time(at), load: to, ..entry }
    }

    fn first(item: u32) -> Entry<u32> {
        Entry { at: Time(u64::from(item) * 90), rank: item, item, load: item % 7 }
    }

    /// What each node sees if all is taken in order of time.
    fn in_order(until: u64) -> Seen {
        let mut waiting: Vec<Entry<u32>> = (0..20).map(first).collect();
        let mut seen = Seen::new();
        while let Some((index, &entry)) = waiting.iter().enumerate().min_by_key(|(_, entry)| **entry) {
            if entry.at.0 > until {
                break;
            }
            waiting.swap_remove(index);
            seen.entry(entry.load).or_default().push(entry);
            waiting.push(effect(entry));
        }
        seen
    }

    /// And if it is taken by turns, in windows of `span`, stopping every `limits`.
    fn by_turns(limits: u64, span: u64, until: u64) -> Seen {
        let mut queue = EventQueue::new(Time(span));
        let mut turns = Turns::new(7);
        let mut seen = Seen::new();
        (0..20).for_each(|item| queue.push(first(item)));
        let mut limit = limits;
        while limit <= until {
            let Some((node, entry)) = turns.take() else {
                if !turns.draw(&mut queue, Time(limit), |entry| entry.load) {
                    limit += limits;
                }
                continue;
            };
            seen.entry(node).or_default().push(entry);
            let next = effect(entry);
            if !turns.keep(next.load, next) {
                queue.push(next);
            }
        }
        seen
    }

    #[test]
    fn every_node_sees_what_it_would_see_in_order_of_time() {
        for (limits, span) in [(60_000, 500), (60_000, 100), (300, 500), (10, 500), (60_000, 1)] {
            let (wanted, found) = (in_order(60_000), by_turns(limits, span, 60_000));
            assert!(wanted.values().all(|events| events.len() > 50));
            assert_eq!(found, wanted, "limits {limits}, windows of {span}");
        }
    }
}
