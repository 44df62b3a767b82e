//! A completion queue as its program holds it: the consuming end of a ring.

use std::sync::{Arc, Mutex, PoisonError};

use srdma_abi::Completion;
use srdma_doors::inproc::CqEvents;
use srdma_doors::Door;
use srdma_ring::CompletionConsumer;
use srdma_seams::Cqn;

use crate::ControlError;

/// A completion queue. Methods may be called from any thread.
pub struct Cq {
    door: Door,
    number: Cqn,
    capacity: u32,
    events: Option<CqEvents>,
    ring: Arc<Mutex<CompletionConsumer>>,
}

impl Cq {
    pub(crate) fn new(
        door: Door,
        number: Cqn,
        capacity: u32,
        events: Option<CqEvents>,
        ring: Arc<Mutex<CompletionConsumer>>,
    ) -> Cq {
        Cq { door, number, capacity, events, ring }
    }

    /// Number, as used in `QpInit`.
    pub fn number(&self) -> u32 {
        self.number.0
    }

    /// Completions it holds.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Takes up to `out.len()` completions; makes progress on the device if there are none. `None` when
    /// the device is gone.
    pub fn poll(&self, out: &mut [Completion]) -> Option<usize> {
        // First: in a child after fork a thread that does not exist may hold the ring's lock.
        if self.door.is_gone() {
            return None;
        }
        let ready = self.pop(out);
        if ready > 0 || out.is_empty() {
            return Some(ready);
        }
        self.door.poll();
        Some(self.pop(out))
    }

    /// Asks for one event at the next completion (or the next solicited one). If a completion is
    /// already there, the event comes at once: kinder than the verbs ask for, and harmless.
    pub fn arm(&self, solicited_only: bool) {
        if self.door.is_gone() {
            return;
        }
        let signal_now = self.ring.lock().unwrap_or_else(PoisonError::into_inner).arm(solicited_only);
        if let (true, Some(events)) = (signal_now, self.events) {
            self.door.signal(self.number, events);
        }
    }

    /// Removes it (EBUSY while queue pairs use it).
    pub fn destroy(&self) -> Result<(), ControlError> {
        Ok(self.door.destroy_cq(self.number)?)
    }

    fn pop(&self, out: &mut [Completion]) -> usize {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).pop(out)
    }
}
