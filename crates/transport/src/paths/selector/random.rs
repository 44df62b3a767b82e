//! Independent draws: oblivious spraying as the Stellar paper (SIGCOMM 2025, section 7) has it. Of 128 draws over 128 paths
//! about 47 paths are not drawn and 34 more than once, which is what a draw without replacement avoids.

use srdma_seams::{PathId, Rng};

use super::PathSelector;
use crate::config::Config;

/// Any path, whatever was drawn before.
#[derive(Debug)]
pub struct Random {
    paths: u16,
}

impl PathSelector for Random {
    fn new(config: &Config, _rng: &mut Rng) -> Random {
        Random { paths: config.paths }
    }

    fn next(&mut self, rng: &mut Rng) -> PathId {
        PathId(rng.below(u64::from(self.paths)) as u16)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn draws_are_even_in_the_long_run_and_independent_in_the_short() {
        let (paths, draws) = (128, 128_000);
        let mut rng = Rng::new(1);
        let mut policy = Random::new(&Config { paths, ..Config::default() }, &mut rng);
        let mut counts = vec![0u32; usize::from(paths)];
        let (mut last, mut repeats) = (None, 0);
        for _ in 0..draws {
            let path = policy.next(&mut rng);
            repeats += u32::from(last.replace(path) == Some(path));
            counts[usize::from(path.0)] += 1;
        }
        // A thousand each; five standard deviations are 158.
        assert!(counts.iter().all(|count| (842..1158).contains(count)), "{counts:?}");
        assert!((842..1158).contains(&repeats), "a path follows itself once in 128 times: {repeats}");
    }
}
