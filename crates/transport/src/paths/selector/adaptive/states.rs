//! What is known of each path, in two bits.

use alloc::boxed::Box;
use alloc::vec;

/// How much a path is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In every cycle.
    Full,
    /// In every second.
    Half,
    /// In every eighth.
    Eighth,
    /// By copies now and then.
    Dead,
}

const ALL: [State; 4] = [State::Full, State::Half, State::Eighth, State::Dead];
/// The upper bits of all states in a word.
const UPPER: u64 = 0xaaaa_aaaa_aaaa_aaaa;

impl State {
    /// One step less, unless it is dead.
    pub fn less(self) -> State {
        match self {
            State::Full => State::Half,
            State::Half | State::Eighth => State::Eighth,
            State::Dead => State::Dead,
        }
    }

    /// One step more, unless it is dead.
    pub fn more(self) -> State {
        match self {
            State::Full | State::Half => State::Full,
            State::Eighth => State::Half,
            State::Dead => State::Dead,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct States(Box<[u64]>);

impl States {
    /// All of them full.
    pub fn new(paths: u16) -> States {
        States(vec![0; usize::from(paths.div_ceil(32))].into())
    }

    pub fn get(&self, path: u8) -> State {
        ALL[(self.0[usize::from(path / 32)] >> (path % 32 * 2) & 3) as usize]
    }

    pub fn set(&mut self, path: u8, state: State) {
        let (word, shift) = (&mut self.0[usize::from(path / 32)], path % 32 * 2);
        *word = *word & !(3 << shift) | (state as u64) << shift;
    }

    /// Dead paths.
    pub fn dead(&self) -> u16 {
        self.0.iter().map(|word| (word & word << 1 & UPPER).count_ones() as u16).sum()
    }

    /// A dead path: of `count` paths, the first from `from` on.
    pub fn next_dead(&self, from: u8, count: u16) -> Option<u8> {
        let mut paths = (0..count).map(|step| ((u16::from(from) + step) % count) as u8);
        paths.find(|&path| self.get(path) == State::Dead)
    }

    /// Bytes of memory beyond its own.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}
