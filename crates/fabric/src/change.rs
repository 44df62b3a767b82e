//! What changes in a network while it runs.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use srdma_seams::Rng;

use crate::link::{Link, LinkId};
use crate::loss::Flaws;
use crate::network::Network;
use crate::time::{Rate, Time};

/// What changes on the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Links go down: what waits is lost, what comes is dropped.
    Down,
    /// Links come up.
    Up,
    /// Packets are lost on the wire with this chance, in parts per million. A million is a black hole that routing does
    /// not notice.
    Loss(u32),
    /// The same, but several in a row (Gilbert 1960).
    Bursts {
        /// Share of packets that are lost in the long run, parts per million.
        loss_ppm: u32,
        /// Mean length of a burst, in packets.
        packets: u32,
    },
    /// Packets are spoilt on the wire with this chance, in parts per million: whoever gets one throws it away.
    Corrupt(u32),
    /// Congestion marks are washed out on the wire, or no longer.
    Bleach(bool),
    /// The wire takes so much longer than its cable.
    Delay(Time),
    /// Links have this rate from now on, for what waits as well.
    Rate(Rate),
    /// Routing notices which links are up: ways over others are found, if there are any.
    Reroute,
}

impl Change {
    /// What makes `link` as it is now, when this has befallen it.
    pub fn undone(self, link: &Link) -> Change {
        match self {
            Change::Down | Change::Up | Change::Reroute => Change::Up,
            Change::Loss(_) => Change::Loss(0),
            Change::Bursts { .. } => Change::Bursts { loss_ppm: 0, packets: 1 },
            Change::Corrupt(_) => Change::Corrupt(0),
            Change::Bleach(_) => Change::Bleach(false),
            Change::Delay(_) => Change::Delay(Time(0)),
            Change::Rate(_) => Change::Rate(link.rate()),
        }
    }
}

impl Network {
    /// `change` befalls links, now.
    pub fn change(&mut self, links: &[LinkId], change: Change) {
        let now = self.now;
        if let Change::Rate(rate) = change {
            return self.set_rates(links, rate);
        }
        for &LinkId(number) in links {
            let Some(link) = self.links.get_mut(number as usize) else { continue };
            match change {
                Change::Down => {
                    link.take_down(now);
                    self.buffers.cut(number);
                }
                Change::Up => link.bring_up(),
                Change::Loss(ppm) => link.set_loss(ppm),
                Change::Bursts { loss_ppm, packets } => {
                    link.flaw(|flaws| flaws.set_bursts(loss_ppm, packets))
                }
                Change::Corrupt(ppm) => link.flaw(|flaws| flaws.set_corruption(ppm)),
                Change::Bleach(bleaches) => link.flaw(|flaws| flaws.bleaches = bleaches),
                Change::Delay(extra) => link.set_extra_delay(now, extra),
                Change::Rate(_) | Change::Reroute => {}
            }
        }
    }

    /// What waits leaves at the new rate. When it arrives is planned already, hence all events are gone through, once for
    /// all links: rates change rarely.
    fn set_rates(&mut self, links: &[LinkId], rate: Rate) {
        let now = self.now;
        let mut waiting: BTreeMap<u32, Retimed> = BTreeMap::new();
        for &LinkId(number) in links {
            let Some(link) = self.links.get_mut(number as usize) else { continue };
            let retimed = Retimed { now, rate, old: link.rate(), delay: link.delay() };
            link.set_rate(rate);
            if link.busy_until() > now && retimed.old != rate {
                link.set_busy_until(retimed.departure(link.busy_until()));
                self.buffers.retime(number, |at| retimed.departure(at));
                waiting.insert(number, retimed);
            }
        }
        if !waiting.is_empty() {
            self.retime_arrivals(|link, at| waiting.get(&link).map_or(at, |retimed| retimed.arrival(at)));
        }
    }
}

/// How the times of a link's queue change with its rate.
#[derive(Clone, Copy)]
struct Retimed {
    now: Time,
    rate: Rate,
    old: Rate,
    delay: Time,
}

impl Retimed {
    fn departure(&self, at: Time) -> Time {
        match at > self.now {
            true => self.now.after(self.rate.instead_of(self.old, at.since(self.now))),
            false => at,
        }
    }

    /// Of a packet; one that has left already is on its way.
    fn arrival(&self, at: Time) -> Time {
        match at > self.now.after(self.delay) {
            true => self.departure(Time(at.0 - self.delay.0)).after(self.delay),
            false => at,
        }
    }
}

impl Link {
    /// Changes what its wire does besides carrying packets.
    fn flaw(&mut self, change: impl FnOnce(&mut Flaws)) {
        // A stream of its own, which leaves that of the link as it is.
        let rng = || Rng::new(self.rng.clone().next_u64());
        let mut flaws = self.flaws.take().unwrap_or_else(|| Box::new(Flaws::new(rng())));
        change(&mut flaws);
        self.flaws = (!flaws.is_none()).then_some(flaws);
    }
}
