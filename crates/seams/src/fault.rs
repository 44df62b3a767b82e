//! A seeded plan of faults, one type for sockets, the fabric and the RNIC.

use alloc::vec::Vec;

use crate::{Duration, Now, PathId, Rng};

/// What a fault does to the packets it meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The packet vanishes.
    Drop,
    /// The packet is sent twice.
    Duplicate,
    /// One bit of the packet is flipped.
    Corrupt,
    /// The packet leaves later by this much, so later ones overtake it.
    Delay(Duration),
}

/// One line of the plan: what happens, how often, where and when.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What happens.
    pub kind: FaultKind,
    /// How often, in parts per million of packets (or of whole bursts).
    pub chance_ppm: u32,
    /// Whether one draw decides over a whole burst that travels together.
    pub whole_burst: bool,
    /// Only on these paths; `None` means all.
    pub paths: Option<Vec<PathId>>,
    /// From this moment on.
    pub from: Now,
    /// Until this moment.
    pub until: Now,
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

/// A seeded list of faults. The same seed and the same sequence of packets give the same faults.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    faults: Vec<Fault>,
    rng: Rng,
}

impl FaultPlan {
    /// The plan `faults`, drawing from `seed`.
    pub fn new(seed: u64, faults: Vec<Fault>) -> FaultPlan {
        FaultPlan { faults, rng: Rng::stream(seed, "fault", 0) }
    }

    /// Every packet is lost with `chance_ppm` parts per million.
    pub fn loss(seed: u64, chance_ppm: u32) -> FaultPlan {
        let fault = Fault {
            kind: FaultKind::Drop,
            chance_ppm,
            whole_burst: false,
            paths: None,
            from: Now(0),
            until: Now(u64::MAX),
        };
        FaultPlan::new(seed, alloc::vec![fault])
    }

    /// Whether the plan can do anything at all.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Decides, by the whole-burst faults alone, for the next burst on `path`. Anything but `Pass` is the
    /// fate of each of its packets; on `Pass`, `decide(.., false)` is asked for each.
    pub fn decide_burst(&mut self, now: Now, path: PathId) -> Verdict {
        self.draw(now, path, |fault| fault.whole_burst)
    }

    /// Decides for the next packet on `path`. `first_of_burst` marks the packets at which whole-burst
    /// faults draw; their verdict for the rest of the burst is the caller's to repeat.
    pub fn decide(&mut self, now: Now, path: PathId, first_of_burst: bool) -> Verdict {
        self.draw(now, path, |fault| first_of_burst || !fault.whole_burst)
    }

    fn draw(&mut self, now: Now, path: PathId, concerns: impl Fn(&Fault) -> bool) -> Verdict {
        for fault in &self.faults {
            let here = fault.paths.as_ref().is_none_or(|paths| paths.contains(&path));
            if !here || now < fault.from || now >= fault.until || !concerns(fault) {
                continue;
            }
            if self.rng.chance_ppm(fault.chance_ppm) {
                return match fault.kind {
                    FaultKind::Drop => Verdict::Drop,
                    FaultKind::Duplicate => Verdict::Duplicate,
                    FaultKind::Corrupt => Verdict::Corrupt(self.rng.next_u32()),
                    FaultKind::Delay(span) => Verdict::Delay(span),
                };
            }
        }
        Verdict::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_percent_is_one_percent_and_repeats() {
        let run = |seed| {
            let mut plan = FaultPlan::loss(seed, 10_000);
            (0..100_000).filter(|_| plan.decide(Now(0), PathId(0), true) == Verdict::Drop).count()
        };
        assert!((850..1150).contains(&run(7)), "{}", run(7));
        assert_eq!(run(7), run(7));
    }

    #[test]
    fn a_fault_keeps_to_its_paths_and_its_time() {
        let fault = Fault {
            kind: FaultKind::Drop,
            chance_ppm: 1_000_000,
            whole_burst: false,
            paths: Some(alloc::vec![PathId(3)]),
            from: Now(10),
            until: Now(20),
        };
        let mut plan = FaultPlan::new(1, alloc::vec![fault]);
        for (now, path, verdict) in [
            (9, 3, Verdict::Pass),
            (10, 3, Verdict::Drop),
            (19, 3, Verdict::Drop),
            (20, 3, Verdict::Pass),
            (15, 4, Verdict::Pass),
        ] {
            assert_eq!(plan.decide(Now(now), PathId(path), true), verdict, "{now} {path}");
        }
    }

    #[test]
    fn bursts_and_packets_are_decided_apart() {
        let fault = |kind, whole_burst| Fault {
            kind,
            chance_ppm: 1_000_000,
            whole_burst,
            paths: None,
            from: Now(0),
            until: Now(u64::MAX),
        };
        let mut plan =
            FaultPlan::new(1, alloc::vec![fault(FaultKind::Drop, true), fault(FaultKind::Duplicate, false)]);
        assert_eq!(plan.decide_burst(Now(0), PathId(0)), Verdict::Drop);
        assert_eq!(plan.decide(Now(0), PathId(0), false), Verdict::Duplicate);
        assert_eq!(plan.decide(Now(0), PathId(0), true), Verdict::Drop);
        let mut packets_only = FaultPlan::loss(1, 1_000_000);
        assert_eq!(packets_only.decide_burst(Now(0), PathId(0)), Verdict::Pass);
    }
}
