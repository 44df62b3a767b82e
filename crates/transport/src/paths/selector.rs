//! The policy seam: which path next.

use alloc::vec::Vec;

use srdma_seams::{PathId, Rng};

use crate::config::SelectorKind;

/// What became of a unit on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// It arrived.
    Good,
    /// It arrived with congestion marks.
    Ecn,
    /// It is held lost.
    Lost,
    /// The retransmission time-out found it unanswered.
    Timeout,
}

/// Chooses paths. Health (skipping dead paths) is not its business.
pub trait PathSelector {
    /// The next path.
    fn next(&mut self, rng: &mut Rng) -> PathId;
    /// What became of a unit on `path`. Oblivious policies ignore it.
    fn feedback(&mut self, _path: PathId, _feedback: Feedback) {}
}

/// One path for everything.
#[derive(Debug)]
pub struct Single(pub PathId);

impl PathSelector for Single {
    fn next(&mut self, _rng: &mut Rng) -> PathId {
        self.0
    }
}

/// Each path in turn.
#[derive(Debug)]
pub struct RoundRobin {
    paths: u16,
    at: u16,
}

impl PathSelector for RoundRobin {
    fn next(&mut self, _rng: &mut Rng) -> PathId {
        self.at = (self.at + 1) % self.paths;
        PathId(self.at)
    }
}

/// Every path once per cycle, in an order drawn anew for each cycle: as even as round-robin, but
/// connections do not march in step.
#[derive(Debug)]
pub struct Oblivious {
    order: Vec<u16>,
    at: usize,
}

impl PathSelector for Oblivious {
    fn next(&mut self, rng: &mut Rng) -> PathId {
        // Fisher and Yates, one step per draw: what is drawn moves to the front and stays there.
        let left = (self.order.len() - self.at) as u64;
        let pick = self.at + rng.below(left) as usize;
        self.order.swap(self.at, pick);
        let path = PathId(self.order[self.at]);
        self.at = (self.at + 1) % self.order.len();
        path
    }
}

/// Any of the policies.
#[derive(Debug)]
pub enum Selector {
    /// See [`Single`].
    Single(Single),
    /// See [`RoundRobin`].
    RoundRobin(RoundRobin),
    /// See [`Oblivious`].
    Oblivious(Oblivious),
}

impl Selector {
    /// The policy `kind` over `paths` paths.
    pub fn new(kind: SelectorKind, paths: u16, rng: &mut Rng) -> Selector {
        match kind {
            SelectorKind::Single => Selector::Single(Single(PathId(0))),
            SelectorKind::RoundRobin => {
                let at = rng.below(u64::from(paths)) as u16;
                Selector::RoundRobin(RoundRobin { paths, at })
            }
            SelectorKind::Oblivious => Selector::Oblivious(Oblivious { order: (0..paths).collect(), at: 0 }),
        }
    }
}

impl PathSelector for Selector {
    fn next(&mut self, rng: &mut Rng) -> PathId {
        match self {
            Selector::Single(policy) => policy.next(rng),
            Selector::RoundRobin(policy) => policy.next(rng),
            Selector::Oblivious(policy) => policy.next(rng),
        }
    }

    fn feedback(&mut self, path: PathId, feedback: Feedback) {
        match self {
            Selector::Single(policy) => policy.feedback(path, feedback),
            Selector::RoundRobin(policy) => policy.feedback(path, feedback),
            Selector::Oblivious(policy) => policy.feedback(path, feedback),
        }
    }
}
