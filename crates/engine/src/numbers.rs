//! Queue-pair numbers of one slot: handed out once, then kept in quarantine.

use std::collections::VecDeque;

use srdma_seams::{Duration, Now, Qpn, Slot};

/// A freed number is not used again for this long: longer than any packet of its last owner lives.
const QUARANTINE: Duration = Duration::from_secs(2);

/// All numbers of the slot are in use or in quarantine.
#[derive(Debug, PartialEq, Eq)]
pub struct Exhausted;

/// Hands out the queue-pair numbers of one slot.
#[derive(Debug)]
pub struct Numbers {
    slot: Slot,
    next: u16,
    used: Box<[bool]>,
    quarantine: VecDeque<(Now, u16)>,
}

impl Numbers {
    /// Numbers that a slot has at least: 0 and 1, or 0xffffff, are never used.
    pub const MAX: u32 = (1 << 16) - 2;

    /// Numbers of `slot`, starting at `start`: a random place, so that a restarted process does not
    /// begin with the numbers that its predecessor had.
    pub fn new(slot: Slot, start: u16) -> Numbers {
        Numbers { slot, next: start, used: vec![false; 1 << 16].into(), quarantine: VecDeque::new() }
    }

    /// The slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// A number that nobody has had for a while.
    pub fn take(&mut self, now: Now) -> Result<Qpn, Exhausted> {
        while let Some(&(freed, index)) = self.quarantine.front() {
            if now.since(freed) < QUARANTINE {
                break;
            }
            self.used[usize::from(index)] = false;
            self.quarantine.pop_front();
        }
        for _ in 0..=u16::MAX {
            let index = self.next;
            self.next = self.next.wrapping_add(1);
            let qpn = Qpn::new(self.slot, index);
            if qpn.is_usable() && !self.used[usize::from(index)] {
                self.used[usize::from(index)] = true;
                return Ok(qpn);
            }
        }
        Err(Exhausted)
    }

    /// The number's owner is gone.
    pub fn give_back(&mut self, now: Now, qpn: Qpn) {
        self.quarantine.push_back((now, qpn.index()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_numbers_are_never_handed_out() {
        for (slot, start) in [(Slot(0), 0u16), (Slot(255), 0xffff)] {
            let mut numbers = Numbers::new(slot, start);
            let mut count = 0u32;
            while let Ok(qpn) = numbers.take(Now(0)) {
                assert!(qpn.is_usable(), "{qpn}");
                count += 1;
            }
            assert_eq!(count, if slot.0 == 0 { 65_534 } else { 65_535 });
            assert!(count >= Numbers::MAX && Numbers::MAX > srdma_abi::control::LIMITS.max_qp);
        }
    }

    #[test]
    fn a_freed_number_waits_out_its_quarantine_even_when_all_others_are_taken() {
        let mut numbers = Numbers::new(Slot(1), 7);
        let first = numbers.take(Now(0)).expect("a number");
        while numbers.take(Now(0)).is_ok() {}
        numbers.give_back(Now(1_000), first);
        assert_eq!(numbers.take(Now(1_000_001_000)), Err(Exhausted));
        assert_eq!(numbers.take(Now(2_000_001_000)), Ok(first));
    }
}
