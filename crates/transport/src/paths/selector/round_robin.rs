//! In turn, from a random path on.

use srdma_seams::{PathId, Rng};

use super::PathSelector;
use crate::config::Config;

/// Each path in turn.
#[derive(Debug)]
pub struct RoundRobin {
    paths: u16,
    at: u16,
}

impl PathSelector for RoundRobin {
    fn new(config: &Config, rng: &mut Rng) -> RoundRobin {
        RoundRobin { paths: config.paths, at: rng.below(config.paths.into()) as u16 }
    }

    fn next(&mut self, _rng: &mut Rng) -> PathId {
        self.at = (self.at + 1) % self.paths;
        PathId(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_turn() {
        let mut rng = Rng::new(1);
        let mut policy = RoundRobin::new(&Config { paths: 5, ..Config::default() }, &mut rng);
        let first = policy.next(&mut rng).0;
        for step in 1..20 {
            assert_eq!(policy.next(&mut rng).0, (first + step) % 5);
        }
    }
}
