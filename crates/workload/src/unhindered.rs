//! How long a program would take on a network that takes no time.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::course::{Course, Repeat, Told, Wish};
use crate::execution::Execution;
use crate::program::{Program, What};

/// Picoseconds of a round of `program`, which must be valid: computing, and waiting for others that compute. What a round
/// takes longer is communication that nothing hides.
pub fn unhindered_ps(program: &Program) -> u64 {
    if program.ops().iter().all(|op| matches!(op.what, What::Exchange(_))) {
        return 0;
    }
    let mut course = Execution::new(program.clone(), Repeat::ONCE);
    let (mut sleepers, mut messages) = (BinaryHeap::new(), VecDeque::new());
    let (mut wishes, mut now_ps) = (Vec::new(), 0);
    course.begin(&mut wishes);
    loop {
        for wish in wishes.drain(..) {
            match wish {
                Wish::Wake { token, at_ps } => sleepers.push(Reverse((at_ps, token))),
                Wish::Send { token, .. } => messages.push_back(token),
            }
        }
        if let Some(token) = messages.pop_front() {
            course.told(now_ps, Told::Received(token), &mut wishes);
            course.told(now_ps, Told::Sent(token), &mut wishes);
        } else if let Some(Reverse((at_ps, token))) = sleepers.pop() {
            now_ps = at_ps;
            course.told(now_ps, Told::Woken(token), &mut wishes);
        } else {
            return now_ps;
        }
    }
}
