//! Every path once per cycle, in an order drawn anew for each cycle: as even as round-robin, but connections do not march
//! in step.

use alloc::vec::Vec;

use srdma_seams::{PathId, Rng};

use super::PathSelector;
use crate::config::Config;

/// See the module.
#[derive(Debug)]
pub struct Oblivious {
    order: Vec<u16>,
    at: usize,
}

impl PathSelector for Oblivious {
    fn new(config: &Config, _rng: &mut Rng) -> Oblivious {
        Oblivious { order: (0..config.paths).collect(), at: 0 }
    }

    fn next(&mut self, rng: &mut Rng) -> PathId {
        // Fisher and Yates, one step per draw: what is drawn moves to the front and stays there.
        let left = (self.order.len() - self.at) as u64;
        let pick = self.at + rng.below(left) as usize;
        self.order.swap(self.at, pick);
        let path = PathId(self.order[self.at]);
        self.at = (self.at + 1) % self.order.len();
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cycle_is_a_fresh_permutation() {
        for paths in [1u16, 3, 128, 256] {
            let mut rng = Rng::new(u64::from(paths));
            let mut policy = Oblivious::new(&Config { paths, ..Config::default() }, &mut rng);
            let mut cycle = || (0..paths).map(|_| policy.next(&mut rng).0).collect::<Vec<_>>();
            let (first, second) = (cycle(), cycle());
            for order in [&first, &second] {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..paths).collect::<Vec<_>>());
            }
            assert!(paths < 10 || first != second);
        }
    }
}
