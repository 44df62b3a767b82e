//! No choice.

use srdma_seams::{PathId, Rng};

use super::PathSelector;
use crate::config::Config;

/// One path for everything.
#[derive(Debug)]
pub struct Single;

impl PathSelector for Single {
    fn new(_config: &Config, _rng: &mut Rng) -> Single {
        Single
    }

    fn next(&mut self, _rng: &mut Rng) -> PathId {
        PathId(0)
    }
}
