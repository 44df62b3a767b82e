//! When a caller that polls should stop spinning for a moment.
//!
//! Spinning gives the best latency while there is a core to spare. When there is none, a spinner spends its
//! time slice finding nothing while the thread, or the peer's process, that would give it something waits for a
//! core. A caller cannot see that directly, but it can see the gap: it polled, and before it polled again
//! it was off its core for longer than any program takes between two polls in a loop. For a while after such a
//! gap an empty poll waits at the socket instead.

use std::sync::atomic::{AtomicU64, Ordering};

use srdma_seams::{Duration, Now};

/// Off the core for this long between two polls: somebody else had it. A time slice is 3 ms.
const GAP: Duration = Duration::from_millis(1);
/// A gap longer than this is a program that does not poll in a loop.
const GAP_MAX: Duration = Duration::from_millis(200);
/// How long a first gap makes polls wait; doubles with each further one.
const FIRST: Duration = Duration::from_millis(5);
/// How long at most.
const LONGEST: Duration = Duration::from_millis(160);
/// Without a gap for this long, the next one is a first one again.
const FORGET: Duration = Duration::from_secs(1);

/// What is known of the machine's cores, from the gaps between polls. Shared by all callers; a lost update
/// costs a little time and nothing else.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    last_poll_ns: AtomicU64,
    wait_until_ns: AtomicU64,
    last_gap_ns: AtomicU64,
    span_ns: AtomicU64,
}

impl Patience {
    /// A poll happens. Returns whether it should wait if it finds nothing.
    pub(crate) fn poll(&self, now: Now) -> bool {
        let before = Now(self.last_poll_ns.swap(now.0, Ordering::Relaxed));
        let gap = now.since(before);
        if gap > GAP && gap < GAP_MAX {
            let recent = now.since(Now(self.last_gap_ns.swap(now.0, Ordering::Relaxed))) < FORGET;
            let span = Duration(self.span_ns.load(Ordering::Relaxed)) * 2;
            let span = if recent { span.clamp(FIRST, LONGEST) } else { FIRST };
            self.span_ns.store(span.0, Ordering::Relaxed);
            self.wait_until_ns.store((now + span).0, Ordering::Relaxed);
        }
        now.0 < self.wait_until_ns.load(Ordering::Relaxed)
    }

    /// The caller has waited: the time it was away says nothing about cores.
    pub(crate) fn waited(&self, now: Now) {
        self.last_poll_ns.store(now.0, Ordering::Relaxed);
    }

    /// When the last poll was.
    pub(crate) fn last_poll(&self) -> Now {
        Now(self.last_poll_ns.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_caller_that_keeps_its_core_spins() {
        let patience = Patience::default();
        assert!(!patience.poll(Now(1_000 * MS)), "the first poll has no gap before it");
        for i in 0..10_000 {
            assert!(!patience.poll(Now(1_000 * MS + i * 2_000)));
        }
    }

    #[test]
    fn each_loss_of_the_core_makes_the_caller_wait_twice_as_long() {
        let patience = Patience::default();
        let mut now = 1_000 * MS;
        patience.poll(Now(now));
        for span in [5, 10, 20, 40, 80, 160, 160] {
            now += 3 * MS;
            assert!(patience.poll(Now(now)));
            patience.waited(Now(now + (span - 1) * MS));
            assert!(patience.poll(Now(now + (span - 1) * MS)));
            patience.waited(Now(now + span * MS));
            assert!(!patience.poll(Now(now + span * MS)), "{span}");
            now += span * MS;
        }
    }

    #[test]
    fn a_program_that_polls_now_and_then_is_not_taken_for_one_that_lost_its_core() {
        let patience = Patience::default();
        for second in 1..5 {
            assert!(!patience.poll(Now(second * 1_000 * MS)));
        }
    }
}
