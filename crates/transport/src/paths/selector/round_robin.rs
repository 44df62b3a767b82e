//! In turn, from a random path on.

use srdma_seams::{PathId, Rng};

use super::PathSelector;

/// Each path in turn.
#[derive(Debug)]
pub struct RoundRobin {
    paths: u16,
    at: u16,
}

impl PathSelector for RoundRobin {
    fn new(paths: u16, rng: &mut Rng) -> RoundRobin {
        RoundRobin { paths, at: rng.below(u64::from(paths)) as u16 }
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
        let mut policy = RoundRobin::new(5, &mut rng);
        let first = policy.next(&mut rng).0;
        for step in 1..20 {
            assert_eq!(policy.next(&mut rng).0, (first + step) % 5);
        }
    }
}
