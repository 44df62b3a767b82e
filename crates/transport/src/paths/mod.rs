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

/// Most turns of a path that are skipped, in 1/1024.
const SKIP_MAX_1024: i64 = 896;

/// A path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) rtt: PathRtt,
    /// Newest transmission on it of which something was acknowledged.
    pub(crate) newest_acked: Option<u64>,
    /// Its transmissions that may be live, oldest first, chained through the unit records.
    pub(crate) head: u64,
    pub(crate) tail: u64,
    /// Smoothed queueing delay, for steering.
    delay_ns: u64,
    /// Smoothed share of marked packets, in 1/1024.
    marked: u32,
    /// Share of turns skipped for good, in 1/1024: what proportional steering alone leaves uneven.
    thinned: u32,
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
    ack_selector: Oblivious,
    steer: bool,
    grain: Duration,
    suspected: u16,
    /// Paths of which something was acknowledged since [`PathSet::take_touched`].
    touched: Vec<PathId>,
    /// Smoothed delay over all paths.
    delay_ns: u64,
    rng: Rng,
}

impl PathSet {
    pub(crate) fn new(config: &Config, mut rng: Rng) -> PathSet {
        let path = Path {
            rtt: PathRtt::default(),
            newest_acked: None,
            head: NONE,
            tail: NONE,
            delay_ns: 0,
            marked: 0,
            thinned: 0,
            lost_in_row: 0,
            is_touched: false,
            probe_at: None,
            probe_gap: config.grain * REPROBE_MIN_GRAINS,
        };
        // Who wants one path must not be led to another, whatever becomes of it.
        let is_single = config.selector == SelectorKind::Single;
        let count = if is_single { 1 } else { usize::from(config.paths) };
        let selector = Selector::new(config.selector, config.paths, &mut rng);
        let ack_selector = Oblivious::new(count as u16, &mut rng);
        PathSet {
            paths: vec![path; count],
            selector,
            ack_selector,
            steer: config.steer && !is_single,
            grain: config.grain,
            suspected: 0,
            touched: Vec::with_capacity(count),
            delay_ns: 0,
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
        let mut fallback = None;
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
            fallback = fallback.or(Some(candidate));
            let skip = if self.steer { path.skip_1024(self.delay_ns, self.grain) } else { 0 };
            if skip > 0 && self.rng.below(1024) < skip {
                continue;
            }
            return (candidate, false);
        }
        // Everything but the path to avoid was skipped: a healthy one if any, else that one.
        let healthy = |paths: &[Path]| paths.iter().position(|path| path.probe_at.is_none());
        let last = fallback.or(healthy(&self.paths).map(|index| PathId(index as u16)));
        (last.or(avoid).unwrap_or(PathId(0)), false)
    }

    /// A unit on `path` was answered: `packets`, `ce` of them marked, queueing delay `delay`.
    pub(crate) fn delivered(&mut self, path: PathId, packets: u8, ce: u8, delay: Duration) -> Health {
        self.delay_ns = (self.delay_ns * 15 + delay.0) / 16;
        let Some(state) = self.paths.get_mut(usize::from(path.0)) else { return Health::Same };
        if let Some(rtt) = state.rtt.latest {
            self.selector.measured(path, rtt);
        }
        self.selector.feedback(path, if ce > 0 { Feedback::Ecn } else { Feedback::Good });
        state.delay_ns = (state.delay_ns + delay.0) / 2;
        let share = u32::from(ce) * 1024 / u32::from(packets.max(1));
        state.marked = (state.marked * 3 + share) / 4;
        state.adapt(self.delay_ns, self.grain);
        self.answered(path)
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
        self.selector.feedback(path, if timeout { Feedback::Timeout } else { Feedback::Lost });
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

/// Static hashing puts unequal numbers of paths on equal links; skipping turns of the paths with the
/// longer queues evens that out. A proportional part reacts, a slow integral part that forgets removes
/// most of what the proportional part alone would leave.
impl Path {
    /// Delay beyond the average, in 1/1024 of it; a grain of either sign is noise, and an average below two and a half
    /// is taken for as much.
    fn excess_1024(&self, average_ns: u64, grain: Duration) -> i64 {
        let excess = self.delay_ns as i64 - average_ns as i64;
        if excess.unsigned_abs() < grain.0 {
            return 0;
        }
        (excess * 1024 / average_ns.max(grain.0 * 5 / 2).max(1) as i64).clamp(-4096, 4096)
    }

    fn adapt(&mut self, average_ns: u64, grain: Duration) {
        let thinned = i64::from(self.thinned);
        let next = thinned + self.excess_1024(average_ns, grain) / 32 - thinned / 128;
        self.thinned = next.clamp(0, SKIP_MAX_1024) as u32;
    }

    /// Chance in 1/1024 that its turn is skipped.
    fn skip_1024(&self, average_ns: u64, grain: Duration) -> u64 {
        let proportional = self.excess_1024(average_ns, grain).max(0) / 4;
        let skip = proportional + i64::from(self.thinned) + i64::from(self.marked / 2);
        skip.min(SKIP_MAX_1024) as u64
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
