//! Faults on purpose: one plan for sockets, the fabric and the RNIC.
//!
//! [`Faults`] is what somebody asks for, plain values; [`FaultPlan`] carries it out with seeded chance.
//! Whoever moves packets asks it about each ([`FaultPlan::decide_burst`], [`FaultPlan::decide`]), whoever drives a device
//! asks whether it stands still ([`FaultPlan::frozen_until`]), and the RNIC which completions fail ([`Failure`]).
//! Shown as text, a clause reads as it is written in a fault script.

mod plan;
mod text;

use alloc::vec::Vec;

use crate::{Duration, PathId};

pub use plan::{FaultPlan, Subject, Verdict};

/// Certain, in parts per million.
pub const ALWAYS_PPM: u32 = 1_000_000;
/// Paths that a connection can have.
const PATHS: u16 = 256;
/// No packet is held back longer.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Clauses of each kind: a plan is looked through for each packet.
const CLAUSES_MAX: usize = 64;

/// What a fault does to the packets it meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The packet vanishes.
    Drop,
    /// The packet comes twice.
    Duplicate,
    /// One bit of the packet's first 32 bytes is flipped, which the header check notices.
    Corrupt,
    /// One bit anywhere is flipped, as broken memory would. In the payload nothing on the wire notices it.
    Damage,
    /// The packet comes later by this much, so later ones overtake it.
    Delay(Duration),
}

/// Which way packets go, as seen from the device that has the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Packets that it sends.
    Send,
    /// Packets that it receives.
    Receive,
}

/// What kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Requests and responses.
    Data,
    /// Acknowledgements.
    Ack,
    /// Handshakes, refusals, farewells, echoes.
    Control,
}

/// Paths `first`, `first + step`, … up to `last`: one, a range, or a residue class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The first.
    pub first: u16,
    /// None beyond this one.
    pub last: u16,
    /// Distance from one to the next, at least 1.
    pub step: u16,
}

impl Paths {
    /// Whether `path` is one of them.
    pub fn contains(&self, path: PathId) -> bool {
        (self.first..=self.last).contains(&path.0) && (path.0 - self.first).checked_rem(self.step) == Some(0)
    }
}

/// When a fault acts, counted from the start of the plan: from `from` until `until`, and if `every` is not zero only
/// the first `lasts` of each `every` of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Not before.
    pub from: Duration,
    /// Not at or after.
    pub until: Duration,
    /// How long it acts in each period.
    pub lasts: Duration,
    /// The period; zero for one that never pauses.
    pub every: Duration,
}

impl Window {
    /// Always.
    pub const ALWAYS: Window =
        Window { from: Duration::ZERO, until: Duration::MAX, lasts: Duration::ZERO, every: Duration::ZERO };

    /// Once, `from` until `until`.
    pub const fn once(from: Duration, until: Duration) -> Window {
        Window { from, until, ..Window::ALWAYS }
    }

    /// If it acts at `at`, when that ends.
    pub fn acts_until(&self, at: Duration) -> Option<Duration> {
        if at < self.from || at >= self.until {
            return None;
        }
        if self.every == Duration::ZERO {
            return Some(self.until);
        }
        let into = (at - self.from).0 % self.every.0;
        let end = Duration(at.0 - into) + self.lasts;
        (into < self.lasts.0).then_some(end.min(self.until))
    }

    fn validate(&self) -> Result<(), FaultError> {
        if self.from >= self.until {
            return Err(FaultError::Window);
        }
        let whole = self.every == Duration::ZERO && self.lasts == Duration::ZERO;
        let part = self.lasts > Duration::ZERO && self.lasts <= self.every;
        if whole || part {
            Ok(())
        } else {
            Err(FaultError::Period)
        }
    }
}

/// One clause about packets: what happens, how often, to which of them, when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happens.
    pub kind: FaultKind,
    /// How often, in parts per million of packets (or of whole bursts).
    pub chance_ppm: u32,
    /// Whether one draw decides over a whole burst that travels together.
    pub whole_burst: bool,
    /// Which way.
    pub direction: Direction,
    /// Only this kind of packet.
    pub class: Option<Class>,
    /// Only on these paths; none given means all.
    pub paths: Vec<Paths>,
    /// When.
    pub when: Window,
}

impl Fault {
    /// Every packet sent meets `kind`, always.
    pub const fn always(kind: FaultKind) -> Fault {
        Fault {
            kind,
            chance_ppm: ALWAYS_PPM,
            whole_burst: false,
            direction: Direction::Send,
            class: None,
            paths: Vec::new(),
            when: Window::ALWAYS,
        }
    }

    /// Whether every value is in its range.
    pub fn validate(&self) -> Result<(), FaultError> {
        if self.chance_ppm > ALWAYS_PPM {
            return Err(FaultError::Chance);
        }
        if self.paths.iter().any(|p| p.step == 0 || p.first > p.last || p.last >= PATHS) {
            return Err(FaultError::Paths);
        }
        if matches!(self.kind, FaultKind::Delay(span) if span > DELAY_MAX || span == Duration::ZERO) {
            return Err(FaultError::Delay);
        }
        self.when.validate()
    }
}

/// A work request that fails on purpose: in place of its good completion comes a bad one, and its queue pair enters
/// the error state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// [`Direction::Send`] counts work requests of the send queue, signalled or not, `Receive` those of the receive
    /// queue.
    pub queue: Direction,
    /// Which one of its queue, from 1.
    pub number: u64,
    /// Only of the device's so-manieth queue pair, from 1; `None` means of each.
    pub qp: Option<u32>,
    /// Code of the error table that it fails with.
    pub cause: u16,
}

impl Failure {
    /// Whether every value is in its range.
    pub fn validate(&self) -> Result<(), FaultError> {
        match self.number > 0 && self.qp != Some(0) && self.cause > 0 {
            true => Ok(()),
            false => Err(FaultError::Failure),
        }
    }
}

/// Everything that is to go wrong. [`Faults::default`] is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// What happens to packets. The first clause that strikes a packet decides.
    pub packets: Vec<Fault>,
    /// When the device makes no progress.
    pub freezes: Vec<Window>,
    /// Which work requests fail.
    pub failures: Vec<Failure>,
}

impl Faults {
    /// Every packet sent is lost with `chance_ppm` parts per million.
    pub fn loss(chance_ppm: u32) -> Faults {
        let fault = Fault { chance_ppm, ..Fault::always(FaultKind::Drop) };
        Faults { packets: alloc::vec![fault], ..Faults::default() }
    }

    /// Whether nothing is to go wrong.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.freezes.is_empty() && self.failures.is_empty()
    }

    /// Whether every value is in its range.
    pub fn validate(&self) -> Result<(), FaultError> {
        let most = self.packets.len().max(self.freezes.len()).max(self.failures.len());
        if most > CLAUSES_MAX {
            return Err(FaultError::TooMany);
        }
        self.packets.iter().try_for_each(Fault::validate)?;
        self.freezes.iter().try_for_each(Window::validate)?;
        self.failures.iter().try_for_each(Failure::validate)
    }

    /// The failure that comes first on `queue` of the device's queue pair number `qp`, counted from 1.
    pub fn failure(&self, qp: u32, queue: Direction) -> Option<&Failure> {
        let concerns =
            |failure: &&Failure| failure.queue == queue && failure.qp.is_none_or(|only| only == qp);
        self.failures.iter().filter(concerns).min_by_key(|failure| failure.number)
    }
}

/// What is wrong with a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// More than certain.
    Chance,
    /// Paths that no connection has, or none at all.
    Paths,
    /// A delay of nothing, or of more than 60 s.
    Delay,
    /// It ends before it begins.
    Window,
    /// It lasts no time, or longer than its period.
    Period,
    /// Numbers and codes start from 1.
    Failure,
    /// More than 64 clauses of one kind.
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_or_a_range_or_a_residue_class() {
        for (paths, inside, outside) in [
            (Paths { first: 3, last: 3, step: 1 }, &[3][..], &[2, 4, 255][..]),
            (Paths { first: 8, last: 15, step: 1 }, &[8, 11, 15], &[7, 16]),
            (Paths { first: 1, last: 255, step: 4 }, &[1, 5, 253], &[0, 2, 4, 255]),
        ] {
            for path in inside {
                assert!(paths.contains(PathId(*path)), "{paths:?} {path}");
            }
            for path in outside {
                assert!(!paths.contains(PathId(*path)), "{paths:?} {path}");
            }
        }
    }

    #[test]
    fn a_window_says_until_when_it_acts() {
        let pulses =
            Window { from: Duration(100), until: Duration(240), lasts: Duration(10), every: Duration(50) };
        let once = Window::once(Duration(100), Duration(200));
        for (window, at, end) in [
            (pulses, 99, None),
            (pulses, 100, Some(110)),
            (pulses, 109, Some(110)),
            (pulses, 110, None),
            (pulses, 150, Some(160)),
            (pulses, 205, Some(210)),
            (pulses, 240, None),
            (once, 99, None),
            (once, 199, Some(200)),
            (once, 200, None),
            (Window::ALWAYS, 0, Some(u64::MAX)),
        ] {
            assert_eq!(window.acts_until(Duration(at)), end.map(Duration), "{window:?} at {at}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let fault = Fault::always(FaultKind::Drop);
        let paths =
            |first, last, step| Fault { paths: alloc::vec![Paths { first, last, step }], ..fault.clone() };
        let when = |from, until, lasts, every| Fault {
            when: Window {
                from: Duration(from),
                until: Duration(until),
                lasts: Duration(lasts),
                every: Duration(every),
            },
            ..fault.clone()
        };
        for (wrong, error) in [
            (Fault { chance_ppm: 1_000_001, ..fault.clone() }, FaultError::Chance),
            (paths(0, 256, 1), FaultError::Paths),
            (paths(5, 4, 1), FaultError::Paths),
            (paths(0, 4, 0), FaultError::Paths),
            (Fault::always(FaultKind::Delay(Duration::from_secs(61))), FaultError::Delay),
            (Fault::always(FaultKind::Delay(Duration::ZERO)), FaultError::Delay),
            (when(5, 5, 0, 0), FaultError::Window),
            (when(0, 5, 3, 2), FaultError::Period),
            (when(0, 5, 0, 2), FaultError::Period),
            (when(0, 5, 3, 0), FaultError::Period),
        ] {
            assert_eq!(wrong.validate(), Err(error), "{wrong:?}");
        }
        assert_eq!(when(0, 5, 2, 2).validate(), Ok(()));
        let failure = Failure { queue: Direction::Send, number: 1, qp: Some(1), cause: 1 };
        assert_eq!(failure.validate(), Ok(()));
        for wrong in [
            Failure { number: 0, ..failure },
            Failure { qp: Some(0), ..failure },
            Failure { cause: 0, ..failure },
        ] {
            assert_eq!(wrong.validate(), Err(FaultError::Failure));
        }
        let many = Faults { packets: alloc::vec![fault; 65], ..Faults::default() };
        assert_eq!(many.validate(), Err(FaultError::TooMany));
    }

    #[test]
    fn the_earliest_failure_of_a_queue_counts() {
        let failure = |queue, number, qp| Failure { queue, number, qp, cause: 1 };
        let faults = Faults {
            failures: alloc::vec![
                failure(Direction::Send, 9, None),
                failure(Direction::Send, 4, Some(2)),
                failure(Direction::Receive, 1, None),
            ],
            ..Faults::default()
        };
        let number = |qp| faults.failure(qp, Direction::Send).map(|failure| failure.number);
        assert_eq!((number(1), number(2)), (Some(9), Some(4)));
        assert_eq!(Faults::loss(5).failure(1, Direction::Send), None);
    }
}
