//! The path with the shortest smoothed round-trip time, as multipath TCP's scheduler has it (Paasch et al., CSWS 2014).
//! Samples come a round trip late and every sender sees the same short queue, so all run there together; it is here to be
//! compared with.

use alloc::vec;
use alloc::vec::Vec;

use srdma_seams::{Duration, PathId, Rng};

use super::{Feedback, PathSelector};
use crate::config::Config;

/// One unit in so many takes the next path in turn, or a path that once was slow would be so for ever.
const EXPLORE: u8 = 16;

/// See the module.
#[derive(Debug)]
pub struct BestRtt {
    /// Smoothed round-trip times in nanoseconds; zero before the first sample, so that each path is tried.
    rtts_ns: Vec<u32>,
    at: usize,
    explore_at: usize,
    units: u8,
}

impl PathSelector for BestRtt {
    fn new(config: &Config, rng: &mut Rng) -> BestRtt {
        let at = rng.below(config.paths.into()) as usize;
        BestRtt { rtts_ns: vec![0; usize::from(config.paths)], at, explore_at: at, units: 0 }
    }

    fn next(&mut self, _rng: &mut Rng) -> PathId {
        let count = self.rtts_ns.len();
        self.units = (self.units + 1) % EXPLORE;
        if self.units == 0 {
            self.explore_at = (self.explore_at + 1) % count;
            return PathId(self.explore_at as u16);
        }
        // Among equals, such as those never measured, the next in turn.
        let best = (1..=count).map(|step| (self.at + step) % count).min_by_key(|&path| self.rtts_ns[path]);
        self.at = best.unwrap_or(0);
        PathId(self.at as u16)
    }

    fn feedback(&mut self, path: PathId, feedback: Feedback) {
        let Some(rtt_ns) = self.rtts_ns.get_mut(usize::from(path.0)) else { return };
        if matches!(feedback, Feedback::Lost | Feedback::Timeout) {
            *rtt_ns = (*rtt_ns).max(1 << 10).saturating_mul(2);
        }
    }

    fn measured(&mut self, path: PathId, rtt: Duration, _delay: Duration) {
        let Some(rtt_ns) = self.rtts_ns.get_mut(usize::from(path.0)) else { return };
        let sample = rtt.0.clamp(1, u32::MAX.into());
        *rtt_ns = if *rtt_ns == 0 { sample } else { (u64::from(*rtt_ns) * 7 + sample) / 8 } as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(policy: &mut BestRtt, rng: &mut Rng, path: u16) -> usize {
        (0..320).filter(|_| policy.next(rng) == PathId(path)).count()
    }

    #[test]
    fn each_path_is_tried_then_the_fastest_is_taken_and_the_others_now_and_then() {
        let mut rng = Rng::new(1);
        let mut policy = BestRtt::new(&Config { paths: 4, ..Config::default() }, &mut rng);
        let mut tried: Vec<u16> = (0..4).map(|_| policy.next(&mut rng).0).collect();
        tried.sort_unstable();
        assert_eq!(tried, [0, 1, 2, 3]);
        for (path, micros) in [(0, 30), (1, 20), (2, 25), (3, 90)] {
            policy.measured(PathId(path), Duration::from_micros(micros), Duration::ZERO);
        }
        assert_eq!((share(&mut policy, &mut rng, 1), share(&mut policy, &mut rng, 3)), (305, 5));
        // Its queue grows, another is shorter by now.
        (0..20).for_each(|_| policy.measured(PathId(1), Duration::from_micros(60), Duration::ZERO));
        assert_eq!(share(&mut policy, &mut rng, 2), 305);
    }

    #[test]
    fn a_path_that_loses_is_not_the_best() {
        let mut rng = Rng::new(1);
        let mut policy = BestRtt::new(&Config { paths: 2, ..Config::default() }, &mut rng);
        policy.measured(PathId(0), Duration::from_micros(10), Duration::ZERO);
        policy.measured(PathId(1), Duration::from_micros(15), Duration::ZERO);
        policy.feedback(PathId(0), Feedback::Lost);
        assert!(share(&mut policy, &mut rng, 1) > 300);
    }
}
