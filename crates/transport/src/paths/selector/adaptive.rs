//! Ours: every path once per cycle while all is well. A path whose units meet more queueing than others, or marks when
//! others do not, is used in every second cycle, then in every eighth, by chance in proportion to the difference, until its
//! queue is no longer. A path that loses a unit is used in every second cycle, too; if it loses another before that is
//! over, it gets nothing but copies, one dead path after the other and ever more rarely, until something comes back from
//! it: nobody waits for what it was given.
//!
//! States are coarse and change often; over many paths and connections any share comes about. All of it fits into a cache
//! line at 128 paths, so that a device can keep it for each of its connections.

mod balance;
mod probes;
mod states;
mod turns;

use srdma_seams::{Duration, PathId, Rng};

use super::{Feedback, PathSelector};
use crate::config::Config;
use balance::Balance;
use probes::Probes;
use states::{State, States};
use turns::Turns;

/// See the module.
#[derive(Debug)]
pub struct Adaptive {
    states: States,
    balance: Balance,
    probes: Probes,
    turns: Turns,
}

impl PathSelector for Adaptive {
    fn new(config: &Config, rng: &mut Rng) -> Adaptive {
        Adaptive {
            states: States::new(config.paths),
            balance: Balance::new(config.grain, rng),
            probes: Probes::default(),
            turns: Turns::new(config.paths),
        }
    }

    fn next(&mut self, rng: &mut Rng) -> PathId {
        if self.probes.are_due() {
            let from = rng.below(self.turns.count().into()) as u8;
            if let Some(path) = self.states.next_dead(from, self.turns.count()) {
                return PathId(path.into());
            }
        }
        loop {
            let path = self.turns.next(rng);
            let turn = self.turns.cycle.wrapping_add(path);
            let is_used = match self.states.get(path) {
                State::Full => true,
                State::Half => turn & 1 == 0,
                State::Eighth => turn & 7 == 0,
                State::Dead => false,
            };
            if is_used {
                return PathId(path.into());
            }
        }
    }

    fn feedback(&mut self, path: PathId, feedback: Feedback) {
        let path = path.0 as u8;
        let state = self.states.get(path);
        match feedback {
            Feedback::Good | Feedback::Ecn if state == State::Dead => {
                self.states.set(path, State::Full);
                self.probes.news(true, self.states.dead());
            }
            Feedback::Good => self.balance.unmarked(),
            Feedback::Ecn => {
                let state = self.balance.marked(state);
                self.states.set(path, state);
            }
            // One may be chance, and a link that loses little carries much.
            Feedback::Lost if state == State::Full => self.states.set(path, State::Half),
            Feedback::Lost => {
                // Some must stay, and if three quarters have died, it is not the paths.
                let count = self.turns.count();
                if state != State::Dead && self.states.dead() < (count - 1).min(count * 3 / 4) {
                    self.states.set(path, State::Dead);
                    self.probes.news(false, self.states.dead());
                }
            }
            // Silence of everything says nothing about one path.
            Feedback::Timeout => {}
        }
    }

    fn measured(&mut self, path: PathId, _rtt: Duration, delay: Duration) {
        let path = path.0 as u8;
        let state = self.states.get(path);
        let next = self.balance.measured(state, delay);
        if next != state {
            self.states.set(path, next);
        }
    }

    fn is_dead(&self, path: PathId) -> bool {
        self.states.get(path.0 as u8) == State::Dead
    }

    fn judges() -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
