//! A link in one direction: a first-in-first-out queue and a wire.

use alloc::boxed::Box;
use alloc::vec::Vec;

use srdma_seams::Rng;

use crate::loss::{Fate, Flaws};
use crate::time::{Rate, Time};

/// Position of a link in [`crate::Fabric::links`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// What a queue holds and when it marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Bytes that wait at most; a packet that would exceed them is dropped.
    pub bytes: u64,
    /// Below this many bytes nothing is marked, …
    pub ecn_min_bytes: u64,
    /// … from this many on everything, and between in proportion (RED, Floyd and Jacobson 1993, on the queue at hand).
    pub ecn_max_bytes: u64,
}

impl QueueLimits {
    /// Neither drops nor marks: a host's own queue.
    pub const UNLIMITED: QueueLimits =
        QueueLimits { bytes: u64::MAX, ecn_min_bytes: u64::MAX, ecn_max_bytes: u64::MAX };
}

/// What a link has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Packets and bytes put on the wire, whether or not they came through.
    pub packets: u64,
    /// See `packets`.
    pub bytes: u64,
    /// Packets that got a congestion mark here.
    pub marked: u64,
    /// Packets that there was no room for in the queue or the switch.
    pub overflowed: u64,
    /// Packets that there was room for after their payload was cut off.
    pub trimmed: u64,
    /// Packets lost on the wire by chance.
    pub lost: u64,
    /// Packets spoilt on the wire and thrown away behind it.
    pub corrupted: u64,
    /// Packets that met a link that was down, or were cut off by its going down.
    pub cut: u64,
    /// Most bytes that waited, the packet on the wire included.
    pub queue_max_bytes: u64,
    /// Sum over packets of bytes × picoseconds in the queue, as foreseen when they join: over a span, its mean length
    /// (Little's law).
    pub byte_ps: u128,
}

/// Why a packet ended here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Overflow,
    Down,
}

/// A packet was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub departs: Time,
    pub arrives: Time,
    pub marked: bool,
    pub fate: Fate,
    pub epoch: u16,
}

/// The link was cut at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut(pub Time);

/// See the module.
#[derive(Debug)]
pub struct Link {
    rate: Rate,
    /// Of the cable, and what is added to it.
    delay: Time,
    extra_delay: Time,
    limits: QueueLimits,
    /// The limits as time at this rate.
    limit: Time,
    ecn_min: Time,
    ecn_max: Time,
    busy_until: Time,
    /// The longest time that a packet has taken to leave at this rate.
    longest: Time,
    is_up: bool,
    cuts: Vec<Cut>,
    loss_ppm: u32,
    pub(crate) flaws: Option<Box<Flaws>>,
    pub(crate) rng: Rng,
    counts: LinkCounts,
}

impl Link {
    pub(crate) fn new(rate: Rate, delay: Time, limits: QueueLimits, rng: Rng) -> Link {
        let mut link = Link {
            rate,
            delay,
            extra_delay: Time(0),
            limits,
            limit: Time::MAX,
            ecn_min: Time::MAX,
            ecn_max: Time::MAX,
            busy_until: Time(0),
            longest: Time(0),
            is_up: true,
            cuts: Vec::new(),
            loss_ppm: 0,
            flaws: None,
            rng,
            counts: LinkCounts::default(),
        };
        link.set_rate(rate);
        link
    }

    /// Bits per second.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Time on the wire.
    pub fn delay(&self) -> Time {
        self.delay.after(self.extra_delay)
    }

    /// Whether packets pass.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// What it has done.
    pub fn counts(&self) -> &LinkCounts {
        &self.counts
    }

    /// Bytes that wait at `now`, what is left of the packet on the wire included.
    pub fn queue_bytes(&self, now: Time) -> u64 {
        self.rate.bytes_in(self.busy_until.since(now))
    }

    /// The moment from which it has nothing to send.
    pub(crate) fn busy_until(&self) -> Time {
        self.busy_until
    }

    pub(crate) fn set_busy_until(&mut self, at: Time) {
        self.busy_until = at;
    }

    /// From now on the wire takes so much longer than the cable. If that is less than before, nothing leaves until it can
    /// no longer overtake what did.
    pub(crate) fn set_extra_delay(&mut self, now: Time, extra: Time) {
        let less = self.extra_delay.since(extra);
        if less > Time(0) {
            self.busy_until = self.busy_until.max(now).after(less);
        }
        self.extra_delay = extra;
    }

    /// Changes its speed, for what comes from now on.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        self.longest = Time(0);
        self.limit = rate.serialisation(self.limits.bytes);
        self.ecn_min = rate.serialisation(self.limits.ecn_min_bytes);
        self.ecn_max = rate.serialisation(self.limits.ecn_max_bytes);
    }

    pub(crate) fn set_loss(&mut self, loss_ppm: u32) {
        self.loss_ppm = loss_ppm;
    }

    /// Takes the link down: what waits is lost, what is on the wire comes through.
    pub(crate) fn take_down(&mut self, now: Time) {
        if self.is_up {
            self.is_up = false;
            self.cuts.push(Cut(now));
            self.busy_until = now;
        }
    }

    pub(crate) fn bring_up(&mut self) {
        self.is_up = true;
    }

    /// A packet found no room in the switch.
    pub(crate) fn overflow(&mut self) -> Refusal {
        if !self.is_up {
            self.counts.cut += 1;
            return Refusal::Down;
        }
        self.counts.overflowed += 1;
        Refusal::Overflow
    }

    /// A packet joins the queue.
    pub(crate) fn offer(&mut self, now: Time, bytes: u32, is_marked: bool) -> Result<Accepted, Refusal> {
        if !self.is_up {
            self.counts.cut += 1;
            return Err(Refusal::Down);
        }
        let wait = self.busy_until.since(now);
        let backlog = wait.after(self.rate.serialisation(bytes.into()));
        if backlog > self.limit {
            self.counts.overflowed += 1;
            return Err(Refusal::Overflow);
        }
        Ok(self.take(now, bytes, (wait, backlog), is_marked))
    }

    /// A packet that was refused joins the queue without its payload. Headers have as much room again as there is for
    /// packets.
    pub(crate) fn offer_header(
        &mut self,
        now: Time,
        bytes: u32,
        is_marked: bool,
    ) -> Result<Accepted, Refusal> {
        let wait = self.busy_until.since(now);
        let backlog = wait.after(self.rate.serialisation(bytes.into()));
        if backlog.0 / 2 > self.limit.0 {
            return Err(Refusal::Overflow);
        }
        self.counts.overflowed -= 1;
        self.counts.trimmed += 1;
        Ok(self.take(now, bytes, (wait, backlog), is_marked))
    }

    fn take(&mut self, now: Time, bytes: u32, (wait, backlog): (Time, Time), is_marked: bool) -> Accepted {
        let departs = now.after(backlog);
        self.busy_until = departs;
        let marked = !is_marked && self.marks(backlog);
        let counts = &mut self.counts;
        counts.packets += 1;
        counts.bytes += u64::from(bytes);
        counts.marked += u64::from(marked);
        counts.byte_ps += u128::from(bytes) * u128::from(backlog.0);
        if backlog > self.longest && wait.0 > 0 {
            self.longest = backlog;
            counts.queue_max_bytes = counts.queue_max_bytes.max(self.rate.bytes_in(backlog));
        }
        let fate = match (self.rng.chance_ppm(self.loss_ppm), &mut self.flaws) {
            (true, _) => Fate::Lost,
            (false, None) => Fate::Comes,
            (false, Some(flaws)) => flaws.judge(),
        };
        let arrives = departs.after(self.delay());
        Accepted { departs, arrives, marked, fate, epoch: self.cuts.len() as u16 }
    }

    fn marks(&mut self, backlog: Time) -> bool {
        if backlog < self.ecn_min {
            return false;
        }
        let span = self.ecn_max.since(self.ecn_min).0;
        backlog >= self.ecn_max || self.rng.below(span) < backlog.since(self.ecn_min).0
    }

    /// Whether a packet taken in `epoch` that arrives now came through; if not, it is counted as lost here.
    pub(crate) fn delivers(&mut self, now: Time, epoch: u16, fate: Fate) -> bool {
        match fate {
            Fate::Comes | Fate::Bleached => {}
            Fate::Lost => {
                self.counts.lost += 1;
                return false;
            }
            Fate::Corrupt => {
                self.counts.corrupted += 1;
                return false;
            }
        }
        let cut = self.cuts.get(usize::from(epoch)).is_some_and(|cut| now.since(self.delay()) > cut.0);
        self.counts.cut += u64::from(cut);
        !cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(limits: QueueLimits) -> Link {
        let rate = Rate::from_bits_per_second(8_000_000_000).expect("1 byte per ns");
        Link::new(rate, Time::from_nanos(500), limits, Rng::new(1))
    }

    #[test]
    fn packets_leave_one_after_the_other() {
        let mut link = link(QueueLimits::UNLIMITED);
        for (at, arrives) in [(0, 1_500), (0, 2_500), (100, 3_500), (9_000, 10_500)] {
            let taken = link.offer(Time::from_nanos(at), 1_000, false).expect("unlimited");
            assert_eq!(taken.arrives, Time::from_nanos(arrives));
        }
        assert_eq!(link.queue_bytes(Time::from_nanos(9_600)), 400);
        assert_eq!((link.counts().packets, link.counts().queue_max_bytes), (4, 2_900));
        assert_eq!(link.counts().byte_ps, 1_000 * (1_000 + 2_000 + 2_900 + 1_000) * 1_000);
    }

    #[test]
    fn a_full_queue_drops_and_a_long_one_marks() {
        let mut link = link(QueueLimits { bytes: 5_000, ecn_min_bytes: 2_000, ecn_max_bytes: 4_000 });
        let marks: Vec<Option<bool>> =
            (0..6).map(|_| link.offer(Time(0), 1_000, false).ok().map(|taken| taken.marked)).collect();
        assert_eq!((marks[0], marks[3], marks[4], marks[5]), (Some(false), Some(true), Some(true), None));
        let marked = (0..2_000).filter(|_| {
            link.busy_until = Time::from_nanos(2_000);
            link.offer(Time(0), 1_000, false).expect("room").marked
        });
        let marked = marked.count();
        assert!((900..1_100).contains(&marked), "half way between the thresholds: {marked} of 2000");
        assert_eq!(link.counts().overflowed, 1);
    }

    #[test]
    fn going_down_cuts_off_what_has_not_left() {
        let mut link = link(QueueLimits::UNLIMITED);
        let first = link.offer(Time(0), 1_000, false).expect("up");
        let second = link.offer(Time(0), 1_000, false).expect("up");
        link.take_down(Time::from_nanos(1_200));
        assert!(link.offer(Time::from_nanos(1_300), 1_000, false).is_err());
        link.bring_up();
        let third = link.offer(Time::from_nanos(1_400), 1_000, false).expect("up");
        for (taken, comes) in [(first, true), (second, false), (third, true)] {
            assert_eq!(link.delivers(taken.arrives, taken.epoch, Fate::Comes), comes, "{taken:?}");
        }
        assert_eq!(link.counts().cut, 2);
    }
}
