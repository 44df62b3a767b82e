//! After MP-RDMA (Lu et al., NSDI 2018): acknowledgements clock packets path by path. A unit that arrived unmarked lets the
//! next one take its path; of those that arrived marked every second does; one that arrived much later than others lets
//! none (the paper prunes slow paths by sequence numbers, here the round-trip time says so). Without such credit, and once
//! in a hundred units, any path is drawn. The window is the connection's own, not the paper's.

use alloc::collections::VecDeque;

use srdma_seams::{Duration, PathId, Rng};

use super::{Feedback, PathSelector};
use crate::config::Config;

/// Credits kept at most; the oldest goes.
const CREDITS_MAX: usize = 1024;
/// One unit in so many explores, as the paper's 1 %.
const EXPLORE: u64 = 100;

/// See the module.
#[derive(Debug)]
pub struct MpRdma {
    paths: u16,
    credits: VecDeque<PathId>,
    /// The last marked unit gave no credit.
    owes: bool,
    /// Smoothed round-trip time of all paths, and whether the last sample was more than twice that.
    rtt_ns: u64,
    is_late: bool,
}

impl PathSelector for MpRdma {
    fn new(config: &Config, _rng: &mut Rng) -> MpRdma {
        MpRdma { paths: config.paths, credits: VecDeque::new(), owes: false, rtt_ns: 0, is_late: false }
    }

    fn next(&mut self, rng: &mut Rng) -> PathId {
        let credit = if rng.below(EXPLORE) == 0 { None } else { self.credits.pop_front() };
        credit.unwrap_or_else(|| PathId(rng.below(u64::from(self.paths)) as u16))
    }

    fn feedback(&mut self, path: PathId, feedback: Feedback) {
        let earns = match feedback {
            Feedback::Good => !self.is_late,
            Feedback::Ecn => {
                self.owes = !self.owes;
                !self.owes && !self.is_late
            }
            Feedback::Lost | Feedback::Timeout => {
                self.credits.retain(|&credit| credit != path);
                false
            }
        };
        if earns {
            if self.credits.len() == CREDITS_MAX {
                self.credits.pop_front();
            }
            self.credits.push_back(path);
        }
    }

    fn measured(&mut self, _path: PathId, rtt: Duration, _delay: Duration) {
        let sample = rtt.0.min(u32::MAX.into());
        self.is_late = self.rtt_ns > 0 && sample > self.rtt_ns * 2;
        self.rtt_ns = if self.rtt_ns == 0 { sample } else { (self.rtt_ns * 15 + sample) / 16 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 400 units, each answered by `feedback` on the two paths that all of `answered` came from, how many took each.
    fn taken(answered: &[(u16, Feedback, u64)]) -> [usize; 3] {
        let mut rng = Rng::new(1);
        let mut policy = MpRdma::new(&Config { paths: 3, ..Config::default() }, &mut rng);
        policy.measured(PathId(0), Duration::from_micros(10), Duration::ZERO);
        let mut counts = [0; 3];
        for &(path, feedback, micros) in answered.iter().cycle().take(400) {
            policy.measured(PathId(path), Duration::from_micros(micros), Duration::ZERO);
            policy.feedback(PathId(path), feedback);
            counts[usize::from(policy.next(&mut rng).0)] += 1;
        }
        counts
    }

    #[test]
    fn packets_follow_acknowledgements_and_half_of_the_marked_ones() {
        let good = |path| (path, Feedback::Good, 10);
        let counts = taken(&[good(0), good(1)]);
        assert!(counts[2] < 10 && counts[0].abs_diff(counts[1]) < 10, "{counts:?}");
        // 300 credits for path 0, 50 for path 1, and draws for what is left.
        let counts = taken(&[good(0), good(0), good(0), (1, Feedback::Ecn, 10)]);
        assert!(counts[0] > 300 && (50..85).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn what_comes_late_or_not_at_all_clocks_nothing() {
        for bad in [(1, Feedback::Good, 100), (1, Feedback::Lost, 10), (1, Feedback::Timeout, 10)] {
            let counts = taken(&[(0, Feedback::Good, 10), (0, Feedback::Good, 10), bad]);
            assert!(counts[0] > 300 && counts[1] < 65, "{bad:?}: {counts:?}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut policy = MpRdma::new(&Config { paths: 3, ..Config::default() }, &mut Rng::new(1));
        (0..10_000).for_each(|_| policy.feedback(PathId(1), Feedback::Good));
        assert_eq!(policy.credits.len(), CREDITS_MAX);
    }
}
