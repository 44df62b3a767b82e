//! The network between the two ends: what happens to each packet.

use srdma_seams::fault::{Class, Direction, Subject};
use srdma_seams::{FaultPlan, Now, PathId, Rng, Verdict};

/// From when until when something holds, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Span(pub u64, pub u64);

impl Span {
    pub const ALWAYS: Span = Span(0, u64::MAX);
    pub fn holds(&self, now: u64) -> bool {
        (self.0..self.1).contains(&now)
    }
}

/// Rate-limited queues between the ends, in the data's direction.
#[derive(Clone, Debug)]
pub struct Queues {
    pub bytes_per_s: u64,
    /// Queue of each path.
    pub of_path: Vec<usize>,
    pub limit_bytes: u64,
    /// Queue length from which packets are marked.
    pub mark_bytes: u64,
    pub free_at: Vec<u64>,
    pub busy_bytes: Vec<u64>,
}

/// What the network does. Everything is off in the default.
#[derive(Clone, Debug)]
pub struct Link {
    /// One-way delay of each path.
    pub delay_ns: Vec<u64>,
    /// Random addition that keeps the order of a path.
    pub jitter_ns: u64,
    pub loss_ppm: u32,
    /// Whole units vanish.
    pub burst_loss_ppm: u32,
    pub ack_loss_ppm: u32,
    pub hello_loss_ppm: u32,
    pub duplicate_ppm: u32,
    /// Packets delayed by up to `reorder_ns` without regard to order.
    pub reorder_ppm: u32,
    pub reorder_ns: u64,
    pub corrupt_ppm: u32,
    pub mark_ppm: u32,
    /// Only this path is marked, if set.
    pub mark_path: Option<u16>,
    /// When the losses above happen.
    pub loss_span: Span,
    /// Paths that swallow everything, and when.
    pub black: Vec<u16>,
    pub black_span: Span,
    /// Nothing passes.
    pub outage: Span,
    /// No data passes; ACKs and HELLOs do.
    pub data_outage: Span,
    /// All delays are multiplied by `slow_by`.
    pub slow: Span,
    pub slow_by: u64,
    /// Datagrams above this size vanish.
    pub mtu_bytes: u16,
    /// The same, for a time, in one direction (0, 1) or both (2).
    pub narrow: (Span, u16, usize),
    pub queues: Option<Queues>,
    /// What end 0 does to its own packets, going and coming.
    pub faults: Option<FaultPlan>,
    last_arrival: Vec<[u64; 2]>,
    rng: Rng,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hello,
    Data,
    Ack,
}

/// Up to two arrivals, and whether marked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fate {
    pub arrivals: [Option<u64>; 2],
    pub ce: bool,
}

/// A packet as end 0's plan of faults looks at it.
fn subject(side: usize, path: u16, kind: Kind) -> Subject {
    let direction = if side == 0 { Direction::Send } else { Direction::Receive };
    let class = match kind {
        Kind::Hello => Class::Control,
        Kind::Data => Class::Data,
        Kind::Ack => Class::Ack,
    };
    Subject { direction, path: PathId(path), class }
}

impl Link {
    pub fn new(seed: u64, delay_ns: Vec<u64>) -> Link {
        Link {
            last_arrival: vec![[0; 2]; delay_ns.len()],
            delay_ns,
            jitter_ns: 0,
            loss_ppm: 0,
            burst_loss_ppm: 0,
            ack_loss_ppm: 0,
            hello_loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            reorder_ns: 0,
            corrupt_ppm: 0,
            mark_ppm: 0,
            mark_path: None,
            loss_span: Span::ALWAYS,
            black: Vec::new(),
            black_span: Span::ALWAYS,
            outage: Span(0, 0),
            data_outage: Span(0, 0),
            slow: Span(0, 0),
            slow_by: 1,
            mtu_bytes: u16::MAX,
            narrow: (Span(0, 0), u16::MAX, 2),
            queues: None,
            faults: None,
            rng: Rng::stream(seed, "link", 0),
        }
    }

    /// Whether a whole unit vanishes.
    pub fn loses_burst(&mut self, now: u64, side: usize, path: u16) -> bool {
        let lost = self.loss_span.holds(now) && self.rng.chance_ppm(self.burst_loss_ppm);
        let subject = subject(side, path, Kind::Data);
        lost || self.faults.as_mut().is_some_and(|plan| plan.decide_burst(Now(now), subject) == Verdict::Drop)
    }

    /// If end 0 stands still, until when.
    pub fn frozen_until(&self, now: u64) -> Option<u64> {
        self.faults.as_ref()?.frozen_until(Now(now)).map(|until| until.0)
    }

    pub fn pass(&mut self, now: u64, side: usize, path: u16, kind: Kind, bytes: u64) -> Fate {
        let mut fate = Fate::default();
        let verdict = match &mut self.faults {
            Some(plan) => plan.decide(Now(now), subject(side, path, kind)),
            None => Verdict::Pass,
        };
        let (late, twice) = match verdict {
            Verdict::Pass => (0, false),
            // The header check notices.
            Verdict::Drop | Verdict::Corrupt(_) => return fate,
            Verdict::Duplicate => (0, true),
            Verdict::Delay(span) => (span.0, false),
        };
        let black = self.black_span.holds(now) && self.black.contains(&path);
        let muted = kind == Kind::Data && self.data_outage.holds(now);
        let (span, narrow_bytes, narrow_side) = self.narrow;
        let hit = narrow_side == 2 || narrow_side == side;
        if hit && span.holds(now) && bytes > u64::from(narrow_bytes) {
            return fate;
        }
        if black || muted || self.outage.holds(now) || bytes > u64::from(self.mtu_bytes) {
            return fate;
        }
        let loss_ppm = match kind {
            Kind::Hello => self.hello_loss_ppm,
            Kind::Data => self.loss_ppm,
            Kind::Ack => self.ack_loss_ppm,
        };
        let lost = self.rng.chance_ppm(loss_ppm) || self.rng.chance_ppm(self.corrupt_ppm);
        if lost && self.loss_span.holds(now) {
            return fate;
        }
        let marked = self.mark_path.is_none_or(|only| only == path);
        fate.ce = kind == Kind::Data && marked && self.rng.chance_ppm(self.mark_ppm);
        let mut leaves = now;
        if let Some(queues) = self.queues.as_mut().filter(|_| kind == Kind::Data && side == 0) {
            let queue = queues.of_path[usize::from(path)];
            let free_at = queues.free_at[queue].max(now);
            let waiting = (free_at - now) as u128 * u128::from(queues.bytes_per_s) / 1_000_000_000;
            if waiting > u128::from(queues.limit_bytes) {
                return fate;
            }
            fate.ce |= waiting > u128::from(queues.mark_bytes);
            leaves = free_at + bytes * 1_000_000_000 / queues.bytes_per_s;
            queues.free_at[queue] = leaves;
            queues.busy_bytes[queue] += bytes;
        }
        let slow = if self.slow.holds(now) { self.slow_by } else { 1 };
        let mut arrival =
            leaves + self.delay_ns[usize::from(path)] * slow + self.rng.below(self.jitter_ns + 1);
        if late > 0 {
            arrival += late;
        } else if self.rng.chance_ppm(self.reorder_ppm) {
            arrival += self.rng.below(self.reorder_ns + 1);
        } else {
            let last = &mut self.last_arrival[usize::from(path)][side];
            arrival = arrival.max(*last);
            *last = arrival;
        }
        fate.arrivals[0] = Some(arrival);
        if self.rng.chance_ppm(self.duplicate_ppm) || twice {
            fate.arrivals[1] = Some(arrival + self.rng.below(1_000_000));
        }
        fate
    }
}
