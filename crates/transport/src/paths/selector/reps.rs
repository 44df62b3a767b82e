//! After REPS (Bonato et al., arXiv 2407.21625): a path whose unit arrived unmarked is kept in a cache of eight and used
//! once more; where the cache has none left, any path is drawn. After a loss nothing new is drawn for a while: only what
//! the cache holds, used again and again. At first, and after that, a round of units explores.

use srdma_seams::{PathId, Rng};

use super::{Feedback, PathSelector};
use crate::config::Config;

/// Paths in the cache.
const CACHE: usize = 8;
/// Units for which a loss freezes the cache. The paper counts time; a window's worth of units is about a round trip.
const FREEZE_UNITS: u16 = 256;

/// See the module.
#[derive(Debug)]
pub struct Reps {
    paths: u16,
    cache: [PathId; CACHE],
    /// Where the next good path goes, and how many were ever kept, up to all.
    head: u8,
    kept: u8,
    /// The newest so many were not used yet.
    fresh: u8,
    explore: u16,
    frozen: u16,
}

impl Reps {
    /// The path kept `age` paths ago, 1 for the newest.
    fn kept(&self, age: u8) -> PathId {
        self.cache[(usize::from(self.head) + CACHE - usize::from(age)) % CACHE]
    }
}

impl PathSelector for Reps {
    fn new(config: &Config, _rng: &mut Rng) -> Reps {
        let cache = [PathId(0); CACHE];
        Reps { paths: config.paths, cache, head: 0, kept: 0, fresh: 0, explore: config.paths, frozen: 0 }
    }

    fn next(&mut self, rng: &mut Rng) -> PathId {
        if self.frozen > 0 {
            self.frozen -= 1;
            self.explore = if self.frozen == 0 { self.paths } else { 0 };
        }
        if self.explore > 0 {
            self.explore -= 1;
        } else if self.fresh > 0 {
            let oldest = self.kept(self.fresh);
            self.fresh -= 1;
            return oldest;
        } else if self.frozen > 0 && self.kept > 0 {
            return self.kept(1 + rng.below(self.kept.into()) as u8);
        }
        PathId(rng.below(u64::from(self.paths)) as u16)
    }

    fn feedback(&mut self, path: PathId, feedback: Feedback) {
        match feedback {
            Feedback::Good => {
                self.cache[usize::from(self.head)] = path;
                self.head = (self.head + 1) % CACHE as u8;
                self.kept = (self.kept + 1).min(CACHE as u8);
                self.fresh = (self.fresh + 1).min(CACHE as u8);
            }
            Feedback::Ecn => {}
            Feedback::Lost | Feedback::Timeout if self.frozen == 0 && self.explore == 0 => {
                self.frozen = FREEZE_UNITS
            }
            Feedback::Lost | Feedback::Timeout => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy that has explored, and then had answers on `good` paths.
    fn explored(good: &[u16], rng: &mut Rng) -> Reps {
        let mut policy = Reps::new(&Config { paths: 128, ..Config::default() }, rng);
        policy.explore = 0;
        good.iter().for_each(|&path| policy.feedback(PathId(path), Feedback::Good));
        policy
    }

    #[test]
    fn good_paths_are_used_once_more_in_order_and_marked_ones_are_not() {
        let mut rng = Rng::new(1);
        let mut policy = explored(&[7, 9], &mut rng);
        policy.feedback(PathId(8), Feedback::Ecn);
        policy.feedback(PathId(11), Feedback::Good);
        assert_eq!([7, 9, 11].map(|_| policy.next(&mut rng).0), [7, 9, 11]);
        let drawn: alloc::collections::BTreeSet<u16> = (0..500).map(|_| policy.next(&mut rng).0).collect();
        assert!(drawn.len() > 100, "and then any: {}", drawn.len());
    }

    #[test]
    fn the_newest_eight_are_kept() {
        let mut rng = Rng::new(1);
        let mut policy = explored(&(0..20).collect::<alloc::vec::Vec<u16>>(), &mut rng);
        (12..20).for_each(|path| assert_eq!(policy.next(&mut rng), PathId(path)));
    }

    #[test]
    fn after_a_loss_only_known_paths_are_used_for_a_while() {
        let mut rng = Rng::new(1);
        let mut policy = explored(&[3, 4, 5], &mut rng);
        policy.feedback(PathId(77), Feedback::Lost);
        for unit in 1..FREEZE_UNITS {
            let path = policy.next(&mut rng);
            assert!((3..=5).contains(&path.0), "unit {unit}: {path:?}");
        }
        assert!((0..100).any(|_| policy.next(&mut rng).0 > 5));
    }
}
