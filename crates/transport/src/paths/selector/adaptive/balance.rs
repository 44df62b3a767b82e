//! Whether a path should be used less, or more again: by its queueing and its marks, compared with all.

use srdma_seams::{Duration, Rng};

use super::states::State;

/// Chance, in 1/256 for each unit, of a step when a path's queueing differs from the average by as much as that is.
const GAIN: i32 = 128;
/// Where that comes to four times the average, one step is not enough.
const FAR: i32 = 4 * GAIN;
/// From half to an eighth the chance is its square over this: few links are that slow, and a path on an eighth is measured
/// rarely.
const RELUCTANCE: i32 = 2048;
/// Chance of a step back when it does not differ.
const CALM: i32 = 64;
/// A grain, in which delays are counted: a difference of less is none.
const GRAIN: i32 = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Balance {
    /// Smoothed queueing delay of all paths, in 1/64 grains.
    average: u16,
    dice: u16,
    /// Smoothed share of marked units, in 1/256.
    marked: u8,
    /// The grain as a power of two of nanoseconds.
    grain_log2: u8,
}

impl Balance {
    /// Nothing measured. See [`crate::Config::grain`].
    pub fn new(grain: Duration, rng: &mut Rng) -> Balance {
        let grain_log2 = grain.0.clamp(1, 1 << 30).ilog2() as u8;
        Balance { average: 0, dice: rng.next_u32() as u16 | 1, marked: 0, grain_log2 }
    }

    /// True with a chance of `chance` / 256.
    fn hits(&mut self, chance: i32) -> bool {
        // Xorshift with 16 bits (Marsaglia 2003): good enough, and two bytes.
        self.dice ^= self.dice << 7;
        self.dice ^= self.dice >> 9;
        self.dice ^= self.dice << 8;
        i32::from(self.dice >> 8) < chance
    }

    /// What a path in `state` is to be after a unit waited for `delay` in queues.
    pub fn measured(&mut self, state: State, delay: Duration) -> State {
        let sample = (delay.0.min(1 << 40) << 6 >> self.grain_log2).min(u16::MAX.into()) as i32;
        let average = i32::from(self.average);
        self.average = (average + (sample - average) / 16) as u16;
        let (longer, scale) = (sample - average, average.max(GRAIN * 5 / 2));
        match state {
            State::Full | State::Half if longer > GRAIN => {
                let times = longer * GAIN / scale;
                if times >= FAR {
                    return State::Eighth;
                }
                if self.hits(if state == State::Full { times } else { times * times / RELUCTANCE }) {
                    return state.less();
                }
            }
            State::Half | State::Eighth if longer < GRAIN => {
                let back = CALM + (-longer - GRAIN).max(0) * GAIN / scale;
                return if self.hits(back) { state.more() } else { state };
            }
            _ => {}
        }
        state
    }

    /// What a path in `state` is to be after a unit came marked. Where all are marked, it is not the path.
    pub fn marked(&mut self, state: State) -> State {
        let others = 255 - self.marked;
        self.marked += others.div_ceil(16);
        if self.hits(i32::from(others) / 4) {
            state.less()
        } else {
            state
        }
    }

    /// A unit came, not marked.
    pub fn unmarked(&mut self) {
        self.marked -= self.marked.div_ceil(16);
    }
}
