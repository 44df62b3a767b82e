//! Links, switches and events: a packet from hop to hop.

use alloc::vec;
use alloc::vec::Vec;

use crate::buffer::Buffers;
use crate::fabric::Planted;
use crate::link::{Accepted, Link, Refusal};
use crate::loss::Fate;
use crate::packet::{Cargo, Hop, Packets};
use crate::queue::{Entry, EventQueue};
use crate::routes::{hash_at, Routes};
use crate::time::Time;
use crate::topology::End;
use crate::turns::Turns;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A packet reaches the end of a link.
    Arrive { link: u32, place: u32 },
    /// A host's link may have become idle.
    Egress(u32),
    /// A host's RNIC asked to be woken.
    Timer(u32),
    /// A host's program posts what was meant for it.
    Doorbell(u32),
}

const INDEX_BITS: u32 = 30;
const INDEX: u32 = (1 << INDEX_BITS) - 1;

impl Event {
    /// At one moment a link delivers one packet, and a host's own events come after arrivals: no two events of a node
    /// have one rank, so their order does not depend on who was simulated first.
    fn entry(self, at: Time) -> Entry {
        let (kind, index, item) = match self {
            Event::Arrive { link, place } => (0, link, place),
            Event::Egress(host) => (1, host, 0),
            Event::Timer(host) => (2, host, 0),
            Event::Doorbell(host) => (3, host, 0),
        };
        Entry { at, rank: kind << INDEX_BITS | index, item }
    }

    fn of(entry: Entry) -> Event {
        let index = entry.rank & INDEX;
        match entry.rank >> INDEX_BITS {
            0 => Event::Arrive { link: index, place: entry.item },
            1 => Event::Egress(index),
            2 => Event::Timer(index),
            _ => Event::Doorbell(index),
        }
    }
}

/// Where all packets are. In packets and bytes, framing included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Sent by hosts.
    pub injected: (u64, u64),
    /// Handed to a host's RNIC.
    pub delivered: (u64, u64),
    /// Overflowed, lost, spoilt, cut off, or without a way; bytes include payloads that were cut off.
    pub dropped: (u64, u64),
    /// On their way.
    pub flying: (u64, u64),
}

/// Packets or bytes have appeared or vanished: an error of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Injected (packets, bytes) {:?} is not delivered {:?} + dropped {:?} + flying {:?}", .0.injected, .0.delivered, .0.dropped, .0.flying)]
pub struct Imbalance(pub Audit);

impl Audit {
    pub(crate) fn check(self) -> Result<Audit, Imbalance> {
        let sum = |part: fn(&(u64, u64)) -> u64| {
            part(&self.delivered) + part(&self.dropped) + part(&self.flying) == part(&self.injected)
        };
        if sum(|pair| pair.0) && sum(|pair| pair.1) {
            Ok(self)
        } else {
            Err(Imbalance(self))
        }
    }
}

fn add(pair: &mut (u64, u64), bytes: u32) {
    pair.0 += 1;
    pair.1 += u64::from(bytes);
}

/// See the module.
pub(crate) struct Network {
    /// Of the node at turn.
    pub now: Time,
    pub packets: Packets,
    pub links: Vec<Link>,
    pub hops: Vec<(End, End)>,
    pub routes: Routes,
    /// Packets that no way was left for.
    pub unroutable: u64,
    pub events_done: u64,
    pub planted: Option<Planted>,
    /// Of switches that have one for all their queues.
    pub buffers: Buffers,
    /// Switches cut the payload off what they have no room for.
    pub trims: bool,
    spacing: Time,
    events: EventQueue,
    turns: Turns,
    /// Node that each link leads to: hosts by number, then switches.
    heads: Vec<u32>,
    switch_seeds: Vec<u64>,
    /// What each node has seen.
    traces: Vec<u64>,
    totals: Audit,
}

impl Network {
    pub fn new(
        links: Vec<Link>,
        hops: Vec<(End, End)>,
        routes: Routes,
        switch_seeds: Vec<u64>,
        hosts: u32,
        planted: Option<Planted>,
    ) -> Network {
        // About as many events per packet time as there are links that may be busy.
        let fastest = links.iter().map(|link| link.rate().serialisation(1_000).0).min().unwrap_or(1);
        let spacing = Time(fastest * 4 / (links.len() as u64).max(1));
        let lookahead = links.iter().map(Link::delay).min().unwrap_or_default();
        let nodes = hosts as usize + switch_seeds.len();
        let node_of = |end: &End| match *end {
            End::Host(host) => host,
            End::Switch(switch) => hosts + switch,
        };
        Network {
            now: Time(0),
            packets: Packets::default(),
            heads: hops.iter().map(|(_, to)| node_of(to)).collect(),
            links,
            hops,
            routes,
            unroutable: 0,
            events_done: 0,
            planted,
            buffers: Buffers::default(),
            trims: false,
            spacing,
            events: EventQueue::new(spacing),
            turns: Turns::new(nodes, lookahead),
            switch_seeds,
            traces: vec![0xcbf2_9ce4_8422_2325; nodes],
            totals: Audit::default(),
        }
    }

    /// An event of a host.
    pub fn schedule(&mut self, at: Time, host: u32, event: Event) {
        let entry = event.entry(at.max(self.now));
        if !self.turns.keep(host, entry) {
            self.events.push(entry);
        }
    }

    /// Whether `host` may act now; if not, from when on it may.
    pub fn may_act(&self, host: u32) -> Result<(), Time> {
        match self.turns.allows(host) {
            true => Ok(()),
            false => Err(self.turns.after()),
        }
    }

    /// The next event until `limit`; time moves to it.
    pub fn next_event(&mut self, limit: Time) -> Option<Event> {
        let (node, entry) = loop {
            if let Some(taken) = self.turns.take() {
                break taken;
            }
            let heads = &self.heads;
            let node_of = |entry: Entry| match Event::of(entry) {
                Event::Arrive { link, .. } => heads[link as usize],
                Event::Egress(host) | Event::Timer(host) | Event::Doorbell(host) => host,
            };
            if !self.turns.draw(&mut self.events, limit, node_of) {
                return None;
            }
        };
        self.now = entry.at;
        self.events_done += 1;
        let trace = &mut self.traces[node as usize];
        *trace = mixed(*trace, entry.at.0, entry.rank.into());
        Some(Event::of(entry))
    }

    /// Equal for equal runs: what every node has seen, in its order.
    pub fn trace_hash(&self) -> u64 {
        self.traces.iter().fold(0, |all, &trace| mixed(all, trace, 1))
    }

    /// A host sends a packet on `link`.
    pub fn inject(&mut self, link: u32, hop: Hop, cargo: Cargo) {
        add(&mut self.totals.injected, hop.bytes);
        let is_swallowed = self.planted.is_some_and(|planted| swallows(planted, self.now, &cargo));
        let place = self.packets.insert(hop, cargo);
        match is_swallowed {
            true => self.drop_packet(place),
            false => self.transmit(link, place),
        }
    }

    fn transmit(&mut self, link: u32, place: u32) {
        let Hop { bytes, ce, .. } = *self.packets.hop_mut(place);
        let at = &mut self.links[link as usize];
        let shared = !self.buffers.is_none();
        let taken = match shared && !self.buffers.admits(link, self.now, at.queue_bytes(self.now), bytes) {
            true => Err(at.overflow()),
            false => at.offer(self.now, bytes, ce),
        };
        match taken {
            Ok(taken) => self.send_off(link, place, taken),
            Err(Refusal::Overflow) if self.trims => self.send_header(link, place),
            Err(_) => self.drop_packet(place),
        }
    }

    fn send_off(&mut self, link: u32, place: u32, taken: Accepted) {
        let packet = self.packets.hop_mut(place);
        packet.epoch = taken.epoch;
        packet.fate = taken.fate;
        packet.ce = (packet.ce | taken.marked) & (taken.fate != Fate::Bleached);
        self.buffers.take(link, taken.departs, packet.bytes);
        self.events.push(Event::Arrive { link, place }.entry(taken.arrives));
    }

    /// There is no room for the whole packet.
    #[cold]
    fn send_header(&mut self, link: u32, place: u32) {
        let Some(gone) = self.packets.trim(place) else { return self.drop_packet(place) };
        self.totals.dropped.1 += u64::from(gone);
        let Hop { bytes, ce, .. } = *self.packets.hop_mut(place);
        if !self.buffers.has_room(link, bytes) {
            return self.drop_packet(place);
        }
        match self.links[link as usize].offer_header(self.now, bytes, ce) {
            Ok(taken) => self.send_off(link, place, taken),
            Err(_) => self.drop_packet(place),
        }
    }

    fn drop_packet(&mut self, place: u32) {
        let bytes = self.packets.hop_mut(place).bytes;
        if self.planted != Some(Planted::ForgetDrops) {
            add(&mut self.totals.dropped, bytes);
        }
        self.packets.remove(place);
    }

    /// A packet reaches the end of `link`. The host that it is for, if that is where it is.
    pub fn arrive(&mut self, link: u32, place: u32) -> Option<u32> {
        let Hop { to, tuple, bytes, epoch, fate, .. } = *self.packets.hop_mut(place);
        let trace = &mut self.traces[self.heads[link as usize] as usize];
        *trace = mixed(*trace, tuple, bytes.into());
        if !self.links[link as usize].delivers(self.now, epoch, fate) {
            self.drop_packet(place);
            return None;
        }
        match self.hops[link as usize].1 {
            End::Host(host) => {
                add(&mut self.totals.delivered, bytes);
                return Some(host);
            }
            End::Switch(switch) => match self.next_link(switch, to, tuple) {
                Some(next) => self.transmit(next, place),
                None => {
                    self.unroutable += 1;
                    self.drop_packet(place);
                }
            },
        }
        None
    }

    /// The link on which `switch` sends a packet for host `to`.
    pub fn next_link(&self, switch: u32, to: u32, tuple: u64) -> Option<u32> {
        self.routes.next(switch, to, hash_at(tuple, self.switch_seeds[switch as usize]))
    }

    /// Changes when packets reach the ends of links: `changed` says for each link and time. No node may be at turn.
    pub fn retime_arrivals(&mut self, changed: impl Fn(u32, Time) -> Time) {
        let mut events = EventQueue::new(self.spacing);
        while let Some(mut entry) = self.events.pop_until(Time::MAX) {
            if let Event::Arrive { link, .. } = Event::of(entry) {
                entry.at = changed(link, entry.at);
            }
            events.push(entry);
        }
        self.events = events;
    }

    /// Where all packets are.
    pub fn audit(&self) -> Audit {
        Audit { flying: self.packets.count(), ..self.totals }
    }
}

fn swallows(planted: Planted, now: Time, cargo: &Cargo) -> bool {
    let Planted::Swallow { first, end, until } = planted else { return false };
    let bytes = cargo.address..cargo.address + u64::from(cargo.payload_bytes);
    now < until && bytes.start < end && first < bytes.end
}

/// Makes `a` and `b` part of what equal runs have in common.
fn mixed(hash: u64, a: u64, b: u64) -> u64 {
    let first = (hash ^ a).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (first.rotate_left(29) ^ b).wrapping_mul(0x0000_0100_0000_01b3)
}
