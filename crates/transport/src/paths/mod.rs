//! The paths of a connection: their health, their round-trip times, and the choice of the next one.

pub mod selector;

use alloc::vec;
use alloc::vec::Vec;

use srdma_seams::{Duration, Now, PathId, Rng};

use crate::config::Config;
use crate::loss::rtt::PathRtt;
use crate::units::{Units, NONE};
use selector::oblivious::Oblivious;
use selector::{Feedback, PathSelector, Selector, SelectorKind};

/// Units lost in a row after which a path is held dead.
const SUSPECT_AFTER: u8 = 3;
/// Time after which a dead path is probed for the first time, in grains (see [`Config::grain`]); doubles up to
/// [`REPROBE_MAX_GRAINS`].
const REPROBE_MIN_GRAINS: u64 = 200;
/// See [`REPROBE_MIN_GRAINS`]. In software, capacity that is there again is used within a second.
const REPROBE_MAX_GRAINS: u64 = 5_000;

/// A path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) rtt: PathRtt,
    /// Newest transmission on it of which something was acknowledged.
    pub(crate) newest_acked: Option<u64>,
    /// Its transmissions that may be live, oldest first, chained through the unit records.
    pub(crate) head: u64,
    pub(crate) tail: u64,
    lost_in_row: u8,
    is_touched: bool,
    /// When it is probed next, if held dead, and the time between probes.
    probe_at: Option<Now>,
    probe_gap: Duration,
}

/// Whether a path's state has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Same,
    Suspected,
    Restored,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PathSet {
    paths: Vec<Path>,
    selector: Selector,
    /// The selector avoids dead paths by itself.
    judges: bool,
    ack_selector: Oblivious,
    grain: Duration,
    suspected: u16,
    /// Paths of which something was acknowledged since [`PathSet::take_touched`].
    touched: Vec<PathId>,
    rng: Rng,
}

impl PathSet {
    pub(crate) fn new(config: &Config, mut rng: Rng) -> PathSet {
        let path = Path {
            rtt: PathRtt::default(),
            newest_acked: None,
            head: NONE,
            tail: NONE,
            lost_in_row: 0,
            is_touched: false,
            probe_at: None,
            probe_gap: config.grain * REPROBE_MIN_GRAINS,
        };
        // Who wants one path must not be led to another, whatever becomes of it.
        let is_single = config.selector == SelectorKind::Single;
        let count = if is_single { 1 } else { usize::from(config.paths) };
        let selector = Selector::new(config, &mut rng);
        let ack_selector = Oblivious::new(&Config { paths: count as u16, ..config.clone() }, &mut rng);
        PathSet {
            paths: vec![path; count],
            judges: selector.judges(),
            selector,
            ack_selector,
            grain: config.grain,
            suspected: 0,
            touched: Vec::with_capacity(count),
            rng,
        }
    }

    pub(crate) fn get(&self, path: PathId) -> Option<&Path> {
        self.paths.get(usize::from(path.0))
    }

    pub(crate) fn get_mut(&mut self, path: PathId) -> Option<&mut Path> {
        self.paths.get_mut(usize::from(path.0))
    }

    pub(crate) fn suspected(&self) -> u16 {
        self.suspected
    }

    /// Path for an acknowledgement: entropy only, every path in turn so that none is fatal.
    pub(crate) fn next_for_ack(&mut self) -> PathId {
        self.ack_selector.next(&mut self.rng)
    }

    /// Path for the next unit, not `avoid` if there is a choice, and whether it is a probe of a path
    /// held dead (send little on it).
    pub(crate) fn next(&mut self, now: Now, avoid: Option<PathId>) -> (PathId, bool) {
        if self.judges {
            return self.next_judged(avoid);
        }
        for _ in 0..2 * self.paths.len() {
            let candidate = self.selector.next(&mut self.rng);
            let path = &mut self.paths[usize::from(candidate.0)];
            if Some(candidate) == avoid {
                continue;
            }
            match path.probe_at {
                Some(at) if at > now => continue,
                Some(_) => {
                    path.probe_gap = (path.probe_gap * 2).min(self.grain * REPROBE_MAX_GRAINS);
                    path.probe_at = Some(now + path.probe_gap);
                    return (candidate, true);
                }
                None => {}
            }
            return (candidate, false);
        }
        // Everything but the path to avoid was skipped: a healthy one if any, else that one.
        let healthy = self.paths.iter().position(|path| path.probe_at.is_none());
        (healthy.map(|index| PathId(index as u16)).or(avoid).unwrap_or(PathId(0)), false)
    }

    /// The same where the policy knows dead paths by itself.
    fn next_judged(&mut self, avoid: Option<PathId>) -> (PathId, bool) {
        let mut path = self.selector.next(&mut self.rng);
        // A path can follow itself once, where a cycle ends.
        for _ in 0..3 {
            if self.is_dead(path) {
                return (path, true);
            }
            if Some(path) != avoid {
                break;
            }
            path = self.selector.next(&mut self.rng);
        }
        (path, self.is_dead(path))
    }

    /// The same, but never a path that is held dead.
    pub(crate) fn next_alive(&mut self, now: Now, avoid: Option<PathId>) -> PathId {
        let tries = (0..4).map(|_| self.next(now, avoid));
        tries.into_iter().find(|(_, probing)| !probing).map_or(PathId(0), |(path, _)| path)
    }

    /// A unit on `path` was answered: `ce` packets of it marked, queueing delay `delay`.
    pub(crate) fn delivered(&mut self, path: PathId, ce: u8, delay: Duration) -> Health {
        let Some(state) = self.paths.get(usize::from(path.0)) else { return Health::Same };
        self.selector.measured(path, state.rtt.latest.unwrap_or(delay), delay);
        let feedback = if ce > 0 { Feedback::Ecn } else { Feedback::Good };
        if self.judges {
            return self.tell(path, feedback);
        }
        self.selector.feedback(path, feedback);
        self.answered(path)
    }

    /// Whether a policy that judges holds `path` dead.
    fn is_dead(&self, path: PathId) -> bool {
        self.suspected > 0 && self.selector.is_dead(path)
    }

    /// Tells a policy that judges, and sees whether it has changed its mind.
    fn tell(&mut self, path: PathId, feedback: Feedback) -> Health {
        let was_dead = self.is_dead(path);
        self.selector.feedback(path, feedback);
        if !was_dead && feedback != Feedback::Lost {
            return Health::Same;
        }
        match (was_dead, self.selector.is_dead(path)) {
            (false, true) => {
                self.suspected += 1;
                Health::Suspected
            }
            (true, false) => {
                self.suspected -= 1;
                Health::Restored
            }
            _ => Health::Same,
        }
    }

    /// A packet of `transmit` is acknowledged.
    pub(crate) fn note_acked(&mut self, units: &Units, transmit: u64) {
        let Some(record) = units.get(transmit) else { return };
        let Some(path) = self.paths.get_mut(usize::from(record.path.0)) else { return };
        path.newest_acked = path.newest_acked.max(Some(transmit));
        path.lost_in_row = 0;
        if !core::mem::replace(&mut path.is_touched, true) {
            self.touched.push(record.path);
        }
    }

    /// One of the paths of which something was acknowledged, each once.
    pub(crate) fn take_touched(&mut self) -> Option<PathId> {
        let id = self.touched.pop()?;
        if let Some(path) = self.get_mut(id) {
            path.is_touched = false;
        }
        Some(id)
    }

    /// Appends `transmit` to the chain of its path.
    pub(crate) fn chain(&mut self, units: &mut Units, path: PathId, transmit: u64) {
        let Some(state) = self.paths.get_mut(usize::from(path.0)) else { return };
        if state.head == NONE {
            state.head = transmit;
        } else if let Some(tail) = units.get_mut(state.tail) {
            tail.path_next = transmit;
        }
        state.tail = transmit;
    }

    /// The record of `transmit` is about to be forgotten.
    pub(crate) fn unchain(&mut self, path: PathId, transmit: u64, next: u64) {
        if let Some(state) = self.get_mut(path) {
            if state.head == transmit {
                state.head = next;
            }
        }
    }

    /// Something sent on `path` is known to have arrived.
    pub(crate) fn answered(&mut self, path: PathId) -> Health {
        if self.judges {
            return self.tell(path, Feedback::Good);
        }
        let Some(state) = self.paths.get_mut(usize::from(path.0)) else { return Health::Same };
        state.lost_in_row = 0;
        if state.probe_at.take().is_none() {
            return Health::Same;
        }
        state.probe_gap = self.grain * REPROBE_MIN_GRAINS;
        self.suspected -= 1;
        Health::Restored
    }

    /// A whole unit on `path` was lost while other paths delivered (`timeout` false), or at a
    /// time-out, which says nothing about one path.
    pub(crate) fn lost(&mut self, now: Now, path: PathId, timeout: bool) -> Health {
        let suspected_max = (self.paths.len() as u16).saturating_sub(1).min(self.paths.len() as u16 * 3 / 4);
        let Some(state) = self.paths.get_mut(usize::from(path.0)) else { return Health::Same };
        let feedback = if timeout { Feedback::Timeout } else { Feedback::Lost };
        if self.judges {
            return self.tell(path, feedback);
        }
        self.selector.feedback(path, feedback);
        if timeout {
            return Health::Same;
        }
        state.lost_in_row = state.lost_in_row.saturating_add(1);
        if state.lost_in_row < SUSPECT_AFTER || state.probe_at.is_some() || self.suspected >= suspected_max {
            return Health::Same;
        }
        state.probe_at = Some(now + state.probe_gap);
        self.suspected += 1;
        Health::Suspected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: u16, selector: SelectorKind) -> PathSet {
        PathSet::new(&Config { paths, selector, ..Config::default() }, Rng::new(1))
    }

    #[test]
    fn a_path_is_suspected_after_losses_in_a_row_and_probed_ever_less_often() {
        let mut paths = set(4, SelectorKind::RoundRobin);
        let dead = PathId(2);
        let mut now = Now(0);
        for loss in 1..=3 {
            let wanted = if loss == 3 { Health::Suspected } else { Health::Same };
            assert_eq!(paths.lost(now, dead, false), wanted);
        }
        let mut probes = alloc::vec![];
        while now < Now(1_000_000_000) {
            let (path, probing) = paths.next(now, None);
            assert_eq!(probing, path == dead);
            if probing {
                probes.push(now.0 / 1_000_000);
            }
            now += Duration::from_millis(1);
        }
        assert!((4..=6).contains(&probes.len()), "{probes:?}");
        assert!(probes.windows(3).all(|p| p[2] - p[1] > p[1] - p[0]), "{probes:?}");
        assert_eq!(paths.answered(dead), Health::Restored);
        assert!((0..4).any(|_| paths.next(now, None) == (dead, false)));
    }

    #[test]
    fn never_are_all_paths_suspected() {
        for count in [1, 2, 3, 128] {
            let mut paths = set(count, SelectorKind::Oblivious);
            for path in (0..count).cycle().take(usize::from(count) * 10) {
                paths.lost(Now(0), PathId(path), false);
            }
            assert!(paths.suspected() < count.max(1), "{} of {count}", paths.suspected());
            let (path, probing) = paths.next(Now(1), None);
            assert!(path.0 < count && !probing);
        }
    }

    #[test]
    fn a_path_is_avoided_when_there_is_another() {
        for (count, selector) in [(2, SelectorKind::RoundRobin), (2, SelectorKind::Oblivious)] {
            let mut paths = set(count, selector);
            for _ in 0..100 {
                assert_ne!(paths.next(Now(0), Some(PathId(1))).0, PathId(1));
            }
        }
        assert_eq!(set(1, SelectorKind::Oblivious).next(Now(0), Some(PathId(0))).0, PathId(0));
    }

    #[test]
    fn single_stays_single_even_when_it_loses_everything() {
        let mut paths = set(8, SelectorKind::Single);
        for at in 0..100 {
            for avoid in [None, Some(PathId(0))] {
                assert_eq!(paths.next(Now(at), avoid), (PathId(0), false));
            }
            assert_eq!(paths.lost(Now(at), PathId(0), false), Health::Same);
        }
    }

    #[test]
    fn silence_of_everything_suspects_nobody() {
        let mut paths = set(4, SelectorKind::Oblivious);
        for _ in 0..100 {
            assert_eq!(paths.lost(Now(0), PathId(1), true), Health::Same);
        }
    }
}
