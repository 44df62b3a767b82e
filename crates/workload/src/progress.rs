//! A plan under way: what may be posted next.

use alloc::vec;
use alloc::vec::Vec;

use crate::plan::Plan;

/// See the module. Told what has been received and what has been sent, it names what has become ready, in the order of
/// the plan.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Dependencies that each message still waits for.
    waits: Vec<u32>,
    /// Who waits for a message: start of each list, and all lists.
    starts: Vec<u32>,
    waiters: Vec<u32>,
    received: u32,
}

impl Progress {
    /// Nothing has been sent.
    pub fn new(plan: &Plan) -> Progress {
        let count = plan.messages().len();
        let mut starts = vec![0; count + 1];
        for message in plan.messages() {
            for &after in plan.after(message) {
                starts[after as usize + 1] += 1;
            }
        }
        for index in 0..count {
            starts[index + 1] += starts[index];
        }
        let mut fill = starts.clone();
        let mut waiters = vec![0; starts[count] as usize];
        for (number, message) in plan.messages().iter().enumerate() {
            for &after in plan.after(message) {
                let place = &mut fill[after as usize];
                waiters[*place as usize] = number as u32;
                *place += 1;
            }
        }
        let waits = plan.messages().iter().map(|message| plan.after(message).len() as u32).collect();
        Progress { waits, starts, waiters, received: 0 }
    }

    /// Messages that wait for nothing, at the beginning.
    pub fn first(&self) -> impl Iterator<Item = u32> + '_ {
        self.waits.iter().enumerate().filter(|(_, &waits)| waits == 0).map(|(number, _)| number as u32)
    }

    /// The receiver has `message`: adds to `ready` what its program may post now.
    pub fn received(&mut self, plan: &Plan, message: u32, ready: &mut Vec<u32>) {
        self.received += 1;
        self.release(plan, message, ready, true);
    }

    /// The sender knows that `message` has landed: adds to `ready` what its program may post now.
    pub fn sent(&mut self, plan: &Plan, message: u32, ready: &mut Vec<u32>) {
        self.release(plan, message, ready, false);
    }

    fn release(&mut self, plan: &Plan, message: u32, ready: &mut Vec<u32>, at_receiver: bool) {
        let Some(known) = plan.messages().get(message as usize) else { return };
        let host = if at_receiver { known.to } else { known.from };
        let range = self.starts[message as usize] as usize..self.starts[message as usize + 1] as usize;
        for &waiter in &self.waiters[range] {
            if plan.messages()[waiter as usize].from != host {
                continue;
            }
            let waits = &mut self.waits[waiter as usize];
            *waits = waits.saturating_sub(1);
            if *waits == 0 {
                ready.push(waiter);
            }
        }
    }

    /// Messages received.
    pub fn received_count(&self) -> u32 {
        self.received
    }

    /// Whether everything has been received.
    pub fn is_done(&self) -> bool {
        self.received as usize >= self.waits.len()
    }
}
