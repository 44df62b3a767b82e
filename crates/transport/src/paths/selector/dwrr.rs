//! Deficit weighted round-robin (Shreedhar and Varghese, SIGCOMM 1995): each visit of a path adds its weight to its credit,
//! and a unit costs a whole one. A path's weight is the shortest round-trip time of all over its own.

use alloc::vec;
use alloc::vec::Vec;

use srdma_seams::{Duration, PathId, Rng};

use super::{Feedback, PathSelector};
use crate::config::Config;

/// What a unit costs. A path with the shortest round-trip time earns that much at each visit.
const COST: u16 = 256;
/// Least weight: one unit in 16 visits, so that a path is measured again.
const WEIGHT_MIN: u64 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    credit: u16,
    /// Smoothed round-trip time; zero before the first sample, which counts as the shortest.
    rtt_ns: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Dwrr {
    accounts: Vec<Account>,
    at: usize,
    /// Shortest smoothed round-trip time, looked up once per cycle.
    shortest_ns: u32,
}

impl Dwrr {
    fn weight(&self, rtt_ns: u32) -> u16 {
        let weight = u64::from(COST) * u64::from(self.shortest_ns) / u64::from(rtt_ns.max(1));
        if rtt_ns == 0 {
            COST
        } else {
            weight.clamp(WEIGHT_MIN, COST.into()) as u16
        }
    }
}

impl PathSelector for Dwrr {
    fn new(config: &Config, rng: &mut Rng) -> Dwrr {
        let at = rng.below(config.paths.into()) as usize;
        Dwrr { accounts: vec![Account::default(); usize::from(config.paths)], at, shortest_ns: 0 }
    }

    fn next(&mut self, _rng: &mut Rng) -> PathId {
        loop {
            self.at = (self.at + 1) % self.accounts.len();
            if self.at == 0 {
                let measured =
                    self.accounts.iter().map(|account| account.rtt_ns).filter(|&rtt_ns| rtt_ns > 0);
                self.shortest_ns = measured.min().unwrap_or(0);
            }
            let earned = self.weight(self.accounts[self.at].rtt_ns);
            let credit = &mut self.accounts[self.at].credit;
            *credit += earned;
            if *credit >= COST {
                *credit -= COST;
                return PathId(self.at as u16);
            }
        }
    }

    fn feedback(&mut self, path: PathId, feedback: Feedback) {
        let Some(account) = self.accounts.get_mut(usize::from(path.0)) else { return };
        if feedback == Feedback::Lost {
            account.rtt_ns = account.rtt_ns.saturating_mul(2);
        }
    }

    fn measured(&mut self, path: PathId, rtt: Duration, _delay: Duration) {
        let Some(account) = self.accounts.get_mut(usize::from(path.0)) else { return };
        let sample = rtt.0.clamp(1, u32::MAX.into());
        let smoothed =
            if account.rtt_ns == 0 { sample } else { (u64::from(account.rtt_ns) * 7 + sample) / 8 };
        account.rtt_ns = smoothed as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_used_in_inverse_proportion_to_their_round_trip_times() {
        let mut rng = Rng::new(1);
        let mut policy = Dwrr::new(&Config { paths: 4, ..Config::default() }, &mut rng);
        let rtts = [10, 20, 40, 1_000];
        (0..4).for_each(|path| {
            policy.measured(PathId(path), Duration::from_micros(rtts[usize::from(path)]), Duration::ZERO)
        });
        let mut counts = [0; 4];
        (0..100).for_each(|_| counts[usize::from(policy.next(&mut rng).0)] = 0);
        (0..2_900).for_each(|_| counts[usize::from(policy.next(&mut rng).0)] += 1);
        // 1 : 1/2 : 1/4 : 1/16, the least.
        for (count, wanted) in counts.into_iter().zip([1_600, 800, 400, 100]) {
            assert!((wanted - 15..wanted + 15).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn a_loss_halves_a_paths_share_until_it_is_measured_again() {
        let mut rng = Rng::new(1);
        let mut policy = Dwrr::new(&Config { paths: 2, ..Config::default() }, &mut rng);
        (0..2).for_each(|path| policy.measured(PathId(path), Duration::from_micros(10), Duration::ZERO));
        let share =
            |policy: &mut Dwrr, rng: &mut Rng| (0..300).filter(|_| policy.next(rng) == PathId(1)).count();
        assert_eq!(share(&mut policy, &mut rng), 150);
        policy.feedback(PathId(1), Feedback::Lost);
        assert!((95..=105).contains(&share(&mut policy, &mut rng)));
        (0..40).for_each(|_| policy.measured(PathId(1), Duration::from_micros(10), Duration::ZERO));
        assert!((145..=155).contains(&share(&mut policy, &mut rng)));
    }
}
