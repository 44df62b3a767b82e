//! Links, switches and events: a packet from hop to hop.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use srdma_rnic::Batch;
use srdma_wire::Packet;

use crate::acks::Acks;
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
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A packet reaches the end of a link.
    Arrive { link: u32, place: u32, hop: Hop },
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
    fn entry(self, at: Time) -> Entry<Hop> {
        let (kind, index, item, load) = match self {
            Event::Arrive { link, place, hop } => (0, link, place, hop),
            Event::Egress(host) => (1, host, 0, Hop::NONE),
            Event::Timer(host) => (2, host, 0, Hop::NONE),
            Event::Doorbell(host) => (3, host, 0, Hop::NONE),
        };
        Entry { at, rank: kind << INDEX_BITS | index, item, load }
    }

    fn of(entry: &Entry<Hop>) -> Event {
        let index = entry.rank & INDEX;
        match entry.rank >> INDEX_BITS {
            0 => Event::Arrive { link: index, place: entry.item, hop: entry.load },
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
    /// What a host has received, while it takes it; and room for an ACK.
    pub batch: Batch,
    pub ack: Box<Packet>,
    /// Packets that no way was left for.
    pub unroutable: u64,
    pub events_done: u64,
    pub planted: Option<Planted>,
    /// Of switches that have one for all their queues.
    pub buffers: Buffers,
    /// Switches cut the payload off what they have no room for.
    pub trims: bool,
    events: EventQueue<Hop>,
    turns: Turns<Hop>,
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
            batch: Batch::new(),
            ack: Box::new(Packet::Ack(Acks::blank())),
            unroutable: 0,
            events_done: 0,
            planted,
            buffers: Buffers::default(),
            trims: false,
            events: EventQueue::new(lookahead),
            turns: Turns::new(nodes),
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
            // Those that are no arrivals say whose they are.
            let node_of = |entry: &Entry<Hop>| match entry.rank >> INDEX_BITS {
                0 => heads[entry.rank as usize],
                _ => entry.rank & INDEX,
            };
            if !self.turns.draw(&mut self.events, limit, node_of) {
                return None;
            }
        };
        self.now = entry.at;
        self.events_done += 1;
        let trace = &mut self.traces[node as usize];
        *trace = mixed(*trace, entry.at.0, entry.rank.into());
        Some(Event::of(&entry))
    }

    /// Equal for equal runs: what every node has seen, in its order.
    pub fn trace_hash(&self) -> u64 {
        self.traces.iter().fold(0, |all, &trace| mixed(all, trace, 1))
    }

    /// A host sends a packet on `link`.
    pub fn inject(&mut self, link: u32, hop: Hop, cargo: Cargo) {
        add(&mut self.totals.injected, hop.bytes);
        let is_swallowed = self.planted.is_some_and(|planted| swallows(planted, self.now, &cargo));
        let place = self.packets.insert(hop.bytes, cargo);
        match is_swallowed {
            true => self.drop_packet(place, hop.bytes),
            false => self.transmit(link, place, hop),
        }
    }

    fn transmit(&mut self, link: u32, place: u32, hop: Hop) {
        let at = &mut self.links[link as usize];
        let shared = !self.buffers.is_none();
        let taken = match shared && !self.buffers.admits(link, self.now, at.queue_bytes(self.now), hop.bytes)
        {
            true => Err(at.overflow()),
            false => at.offer(self.now, hop.bytes, hop.ce),
        };
        match taken {
            Ok(taken) => self.send_off(link, place, hop, taken),
            Err(Refusal::Overflow) if self.trims => self.send_header(link, place, hop),
            Err(_) => self.drop_packet(place, hop.bytes),
        }
    }

    fn send_off(&mut self, link: u32, place: u32, mut hop: Hop, taken: Accepted) {
        hop.epoch = taken.epoch;
        hop.fate = taken.fate;
        hop.ce = (hop.ce | taken.marked) & (taken.fate != Fate::Bleached);
        self.buffers.take(link, taken.departs, hop.bytes);
        self.events.push(Event::Arrive { link, place, hop }.entry(taken.arrives));
    }

    /// There is no room for the whole packet.
    #[cold]
    fn send_header(&mut self, link: u32, place: u32, mut hop: Hop) {
        let Some(gone) = self.packets.trim(place) else { return self.drop_packet(place, hop.bytes) };
        self.totals.dropped.1 += u64::from(gone);
        hop.bytes -= gone;
        if !self.buffers.has_room(link, hop.bytes) {
            return self.drop_packet(place, hop.bytes);
        }
        match self.links[link as usize].offer_header(self.now, hop.bytes, hop.ce) {
            Ok(taken) => self.send_off(link, place, hop, taken),
            Err(_) => self.drop_packet(place, hop.bytes),
        }
    }

    fn drop_packet(&mut self, place: u32, bytes: u32) {
        if self.planted != Some(Planted::ForgetDrops) {
            add(&mut self.totals.dropped, bytes);
        }
        self.packets.drop(place);
    }

    /// A packet reaches the end of `link`. The host that it is for, if that is where it is.
    pub fn arrive(&mut self, link: u32, place: u32, hop: Hop) -> Option<u32> {
        let Hop { to, tuple, bytes, epoch, fate, .. } = hop;
        let trace = &mut self.traces[self.heads[link as usize] as usize];
        *trace = mixed(*trace, tuple, bytes.into());
        if !self.links[link as usize].delivers(self.now, epoch, fate) {
            self.drop_packet(place, bytes);
            return None;
        }
        match self.hops[link as usize].1 {
            End::Host(host) => {
                add(&mut self.totals.delivered, bytes);
                return Some(host);
            }
            End::Switch(switch) => match self.next_link(switch, to, tuple) {
                Some(next) => self.transmit(next, place, hop),
                None => {
                    self.unroutable += 1;
                    self.drop_packet(place, bytes);
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
        self.events.rearrange(|entry| {
            if let Event::Arrive { link, .. } = Event::of(entry) {
                entry.at = changed(link, entry.at);
            }
        });
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
