//! Links, switches and events: a packet from hop to hop.

use alloc::vec::Vec;

use crate::fabric::Planted;
use crate::link::Link;
use crate::packet::{Flying, Packets};
use crate::queue::EventQueue;
use crate::routes::{hash_at, Routes};
use crate::time::Time;
use crate::topology::End;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A packet reaches the end of its link.
    Arrive(u32),
    /// A host's link may have become idle.
    Egress(u32),
    /// A host's RNIC asked to be woken.
    Timer(u32),
    /// A change of the timeline.
    Change(u32),
}

const INDEX_BITS: u32 = 30;

impl Event {
    fn pack(self) -> u32 {
        let (kind, index) = match self {
            Event::Arrive(index) => (0, index),
            Event::Egress(index) => (1, index),
            Event::Timer(index) => (2, index),
            Event::Change(index) => (3, index),
        };
        kind << INDEX_BITS | index
    }

    fn unpack(packed: u32) -> Event {
        let index = packed & ((1 << INDEX_BITS) - 1);
        match packed >> INDEX_BITS {
            0 => Event::Arrive(index),
            1 => Event::Egress(index),
            2 => Event::Timer(index),
            _ => Event::Change(index),
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
    /// Overflowed, lost, cut off, or without a way.
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
    pub now: Time,
    pub events: EventQueue,
    pub packets: Packets,
    pub links: Vec<Link>,
    pub hops: Vec<(End, End)>,
    pub routes: Routes,
    pub switch_seeds: Vec<u64>,
    /// Packets that no way was left for.
    pub unroutable: u64,
    pub events_done: u64,
    pub trace_hash: u64,
    pub planted: Option<Planted>,
    totals: Audit,
}

impl Network {
    pub fn new(
        events: EventQueue,
        links: Vec<Link>,
        hops: Vec<(End, End)>,
        routes: Routes,
        switch_seeds: Vec<u64>,
        planted: Option<Planted>,
    ) -> Network {
        Network {
            now: Time(0),
            events,
            packets: Packets::default(),
            links,
            hops,
            routes,
            switch_seeds,
            unroutable: 0,
            events_done: 0,
            trace_hash: 0xcbf2_9ce4_8422_2325,
            planted,
            totals: Audit::default(),
        }
    }

    pub fn schedule(&mut self, at: Time, event: Event) {
        self.events.push(at.max(self.now), event.pack());
    }

    /// The next event until `limit`; time moves to it.
    pub fn next_event(&mut self, limit: Time) -> Option<Event> {
        let (at, packed) = self.events.pop_until(limit)?;
        self.now = at;
        self.events_done += 1;
        self.trace(at.0, u64::from(packed));
        Some(Event::unpack(packed))
    }

    /// Makes `a` and `b` part of what equal runs have in common.
    fn trace(&mut self, a: u64, b: u64) {
        let mixed = (self.trace_hash ^ a).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.trace_hash = (mixed.rotate_left(29) ^ b).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// A host sends `packet` on `link`.
    pub fn inject(&mut self, link: u32, packet: Flying) {
        add(&mut self.totals.injected, packet.bytes);
        let place = self.packets.insert(packet);
        self.transmit(link, place);
    }

    fn transmit(&mut self, link: u32, place: u32) {
        let packet = self.packets.get_mut(place);
        match self.links[link as usize].offer(self.now, packet.bytes, packet.ce) {
            Ok(taken) => {
                packet.link = link;
                packet.epoch = taken.epoch;
                packet.lost = taken.lost;
                packet.ce |= taken.marked;
                self.events.push(taken.arrives, Event::Arrive(place).pack());
            }
            Err(_) => self.drop_packet(place),
        }
    }

    fn drop_packet(&mut self, place: u32) {
        let bytes = self.packets.get_mut(place).bytes;
        if self.planted != Some(Planted::ForgetDrops) {
            add(&mut self.totals.dropped, bytes);
        }
        self.packets.remove(place);
    }

    /// A packet reaches the end of its link. The host that it is for, if that is where it is.
    pub fn arrive(&mut self, place: u32) -> Option<u32> {
        let packet = self.packets.get_mut(place);
        let (link, to, bytes) = (packet.link, packet.to, packet.bytes);
        let (epoch, lost, tuple, source) = (packet.epoch, packet.lost, packet.tuple, packet.from);
        self.trace(u64::from(source) << 32 | u64::from(link), u64::from(bytes) ^ tuple);
        if !self.links[link as usize].delivers(self.now, epoch, lost) {
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

    /// Where all packets are.
    pub fn audit(&self) -> Audit {
        Audit { flying: self.packets.count(), ..self.totals }
    }
}
