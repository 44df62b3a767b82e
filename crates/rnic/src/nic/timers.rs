//! When queue pairs want to be woken: a heap whose outdated entries are dropped when they surface.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use srdma_seams::Now;

/// Entries are (moment, position of the queue pair, its serial number).
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Now, u32, u32)>>,
}

/// A queue pair as the timers name it: positions are used again, serial numbers are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleeper {
    /// Position in the table.
    pub index: u32,
    /// Serial number.
    pub serial: u32,
}

impl Timers {
    /// Adds an entry.
    pub fn push(&mut self, at: Now, sleeper: Sleeper) {
        self.heap.push(Reverse((at, sleeper.index, sleeper.serial)));
    }

    /// The earliest entry.
    pub fn peek(&self) -> Option<(Now, Sleeper)> {
        self.heap.peek().map(|&Reverse((at, index, serial))| (at, Sleeper { index, serial }))
    }

    /// Removes it.
    pub fn pop(&mut self) {
        self.heap.pop();
    }
}
