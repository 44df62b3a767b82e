//! A plan being carried out.

use alloc::vec::Vec;

use super::{Class, Direction, Fault, FaultKind, Faults};
use crate::{Duration, Now, PathId, Rng};

/// Bits of a packet's first 32 bytes.
const HEADER_BITS: u64 = 32 * 8;

/// A packet, or the first of a burst, as a plan looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Which way it goes.
    pub direction: Direction,
    /// On which path.
    pub path: PathId,
    /// What it is. May be anything if [`FaultPlan::asks_for_class`] is false.
    pub class: Class,
}

impl Subject {
    /// A data packet that is sent on `path`.
    pub fn sent(path: PathId) -> Subject {
        Subject { direction: Direction::Send, path, class: Class::Data }
    }
}

/// What the plan decided for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing happens to it.
    Pass,
    /// See [`FaultKind::Drop`].
    Drop,
    /// See [`FaultKind::Duplicate`].
    Duplicate,
    /// Flip this bit, counted from the first bit of the packet, modulo its length.
    Corrupt(u32),
    /// See [`FaultKind::Delay`].
    Delay(Duration),
}

/// Seeded faults. The same seed and the same sequence of packets give the same verdicts; each clause has chance of
/// its own, so that one clause more does not change what the others strike.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    faults: Faults,
    chances: Vec<Rng>,
    seed: u64,
    start: Now,
}

impl FaultPlan {
    /// The plan `faults`, drawing from `seed`. Its times count from `Now(0)`.
    pub fn new(seed: u64, faults: Faults) -> FaultPlan {
        let chances =
            (0..faults.packets.len() as u64).map(|clause| Rng::stream(seed, "fault", clause)).collect();
        FaultPlan { faults, chances, seed, start: Now(0) }
    }

    /// The same plan with its times counted from `start`.
    pub fn starting(self, start: Now) -> FaultPlan {
        FaultPlan { start, ..self }
    }

    /// Every packet sent is lost with `chance_ppm` parts per million.
    pub fn loss(seed: u64, chance_ppm: u32) -> FaultPlan {
        FaultPlan::new(seed, Faults::loss(chance_ppm))
    }

    /// What it was made of.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What it draws from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether any clause is about packets that go this way.
    pub fn concerns(&self, direction: Direction) -> bool {
        self.faults.packets.iter().any(|fault| fault.direction == direction)
    }

    /// Whether any clause is about one kind of packet only.
    pub fn asks_for_class(&self) -> bool {
        self.faults.packets.iter().any(|fault| fault.class.is_some())
    }

    /// Decides, by the whole-burst clauses alone, for a burst that begins with `subject`. Anything but `Pass` is the
    /// fate of each of its packets; on `Pass`, [`FaultPlan::decide`] is asked about each.
    pub fn decide_burst(&mut self, now: Now, subject: Subject) -> Verdict {
        self.draw(now, subject, true)
    }

    /// Decides, by the other clauses, for one packet.
    pub fn decide(&mut self, now: Now, subject: Subject) -> Verdict {
        self.draw(now, subject, false)
    }

    /// If the device stands still at `now`, until when.
    pub fn frozen_until(&self, now: Now) -> Option<Now> {
        let at = now.since(self.start);
        let end = self.faults.freezes.iter().filter_map(|window| window.acts_until(at)).max()?;
        Some(self.start + end)
    }

    fn draw(&mut self, now: Now, subject: Subject, whole_burst: bool) -> Verdict {
        let at = now.since(self.start);
        for (fault, chance) in self.faults.packets.iter().zip(&mut self.chances) {
            if fault.whole_burst != whole_burst || !fault.meets(at, subject) {
                continue;
            }
            if chance.chance_ppm(fault.chance_ppm) {
                return match fault.kind {
                    FaultKind::Drop => Verdict::Drop,
                    FaultKind::Duplicate => Verdict::Duplicate,
                    FaultKind::Corrupt => Verdict::Corrupt(chance.below(HEADER_BITS) as u32),
                    FaultKind::Damage => Verdict::Corrupt(chance.next_u32()),
                    FaultKind::Delay(span) => Verdict::Delay(span),
                };
            }
        }
        Verdict::Pass
    }
}

impl Fault {
    fn meets(&self, at: Duration, subject: Subject) -> bool {
        self.direction == subject.direction
            && self.class.is_none_or(|class| class == subject.class)
            && (self.paths.is_empty() || self.paths.iter().any(|paths| paths.contains(subject.path)))
            && self.when.acts_until(at).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Paths, Window};

    fn plan(seed: u64, packets: Vec<Fault>) -> FaultPlan {
        FaultPlan::new(seed, Faults { packets, ..Faults::default() })
    }

    const SENT: Subject = Subject { direction: Direction::Send, path: PathId(0), class: Class::Data };

    #[test]
    fn one_percent_is_one_percent_and_repeats() {
        let run = |seed| {
            let mut plan = FaultPlan::loss(seed, 10_000);
            (0..100_000).filter(|_| plan.decide(Now(0), SENT) == Verdict::Drop).count()
        };
        assert!((850..1150).contains(&run(7)), "{}", run(7));
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn a_clause_more_does_not_move_what_the_others_strike() {
        let corrupt = Fault { chance_ppm: 100_000, ..Fault::always(FaultKind::Corrupt) };
        let lost = |packets: Vec<Fault>| -> Vec<usize> {
            let mut plan = plan(3, packets);
            (0..1000).filter(|_| plan.decide(Now(0), SENT) == Verdict::Drop).collect()
        };
        let some = Fault { chance_ppm: 50_000, ..Fault::always(FaultKind::Drop) };
        assert_eq!(lost(alloc::vec![some.clone()]), lost(alloc::vec![some, corrupt]));
    }

    #[test]
    fn a_clause_keeps_to_its_paths_time_direction_and_class() {
        let fault = Fault {
            class: Some(Class::Ack),
            paths: alloc::vec![Paths { first: 3, last: 3, step: 1 }],
            when: Window::once(Duration(10), Duration(20)),
            ..Fault::always(FaultKind::Drop)
        };
        let mut plan = plan(1, alloc::vec![fault]).starting(Now(1000));
        let met = Subject { path: PathId(3), class: Class::Ack, ..SENT };
        for (now, subject, verdict) in [
            (1009, met, Verdict::Pass),
            (1010, met, Verdict::Drop),
            (1019, met, Verdict::Drop),
            (1020, met, Verdict::Pass),
            (1015, Subject { path: PathId(4), ..met }, Verdict::Pass),
            (1015, Subject { class: Class::Data, ..met }, Verdict::Pass),
            (1015, Subject { direction: Direction::Receive, ..met }, Verdict::Pass),
            (10, met, Verdict::Pass),
        ] {
            assert_eq!(plan.decide(Now(now), subject), verdict, "{now} {subject:?}");
        }
    }

    #[test]
    fn bursts_and_packets_are_decided_apart() {
        let whole = Fault { whole_burst: true, ..Fault::always(FaultKind::Drop) };
        let mut plan = plan(1, alloc::vec![whole, Fault::always(FaultKind::Duplicate)]);
        assert_eq!(plan.decide_burst(Now(0), SENT), Verdict::Drop);
        assert_eq!(plan.decide(Now(0), SENT), Verdict::Duplicate);
        let mut packets_only = FaultPlan::loss(1, super::super::ALWAYS_PPM);
        assert_eq!(packets_only.decide_burst(Now(0), SENT), Verdict::Pass);
    }

    #[test]
    fn a_header_bit_is_within_the_first_32_bytes() {
        let mut plan = plan(5, alloc::vec![Fault::always(FaultKind::Corrupt)]);
        for _ in 0..1000 {
            let verdict = plan.decide(Now(0), SENT);
            assert!(matches!(verdict, Verdict::Corrupt(bit) if bit < 256), "{verdict:?}");
        }
    }

    #[test]
    fn the_longest_of_overlapping_freezes_counts() {
        let window = |from, until| Window::once(Duration(from), Duration(until));
        let faults = Faults { freezes: alloc::vec![window(10, 20), window(15, 30)], ..Faults::default() };
        let plan = FaultPlan::new(1, faults).starting(Now(100));
        for (now, until) in [(100, None), (110, Some(120)), (115, Some(130)), (130, None)] {
            assert_eq!(plan.frozen_until(Now(now)), until.map(Now), "{now}");
        }
    }
}
