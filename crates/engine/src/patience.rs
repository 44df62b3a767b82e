//! When a caller that polls should stop spinning for a moment.
//!
//! Spinning gives the best latency while there is a core to spare. When there is none, a spinner spends its
//! time slice finding nothing while the thread, or the peer's process, that would give it something waits for a
//! core. A caller cannot see that directly, but it can see the gap: it polled, and before it polled again
//! it was off its core for longer than any program takes between two polls in a loop. Time lost in such gaps is a debt
//! that wears off slowly; while it is not negligible, an empty poll waits at the socket instead.

use std::sync::atomic::{AtomicU64, Ordering};

use srdma_seams::{Duration, Now};

/// Off the core for this long between two polls: somebody else had it. A time slice is 3 ms.
const GAP: Duration = Duration::from_millis(1);
/// A gap longer than this is a program that does not poll in a loop.
const GAP_MAX: Duration = Duration::from_millis(200);
/// One part in so many of the time may be lost before waiting is better than spinning.
const TOLERATED: u64 = 32;
/// So much lost time does not count yet.
const NEGLIGIBLE: Duration = Duration::from_millis(2);
/// Lost time is held against spinning up to this much: so it is tried again after 160 ms at the latest.
const DEBT_MAX: Duration = Duration::from_millis(7);

/// What is known of the machine's cores, from the gaps between polls. Shared by all callers; a lost update
/// costs a little time and nothing else.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    last_poll_ns: AtomicU64,
    polls: AtomicU64,
    wait_until_ns: AtomicU64,
    /// Time lost and not yet made up for, as of `debt_at_ns`.
    debt_ns: AtomicU64,
    debt_at_ns: AtomicU64,
}

impl Patience {
    /// A poll happens. Returns whether it should wait if it finds nothing.
    pub(crate) fn poll(&self, now: Now) -> bool {
        let before = Now(self.last_poll_ns.swap(now.0, Ordering::Relaxed));
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let gap = now.since(before);
        if gap > GAP && gap < GAP_MAX {
            self.lost(now, gap);
        }
        now.0 < self.wait_until_ns.load(Ordering::Relaxed)
    }

    #[cold]
    fn lost(&self, now: Now, gap: Duration) {
        let since = now.since(Now(self.debt_at_ns.swap(now.0, Ordering::Relaxed)));
        let left = self.debt_ns.load(Ordering::Relaxed).saturating_sub(since.0 / TOLERATED);
        let debt = (left + gap.0).min(DEBT_MAX.0);
        self.debt_ns.store(debt, Ordering::Relaxed);
        let wait_ns = debt.saturating_sub(NEGLIGIBLE.0) * TOLERATED;
        self.wait_until_ns.store(now.0 + wait_ns, Ordering::Relaxed);
    }

    /// The caller has waited: the time it was away says nothing about cores.
    pub(crate) fn waited(&self, now: Now) {
        self.last_poll_ns.store(now.0, Ordering::Relaxed);
    }

    /// Polls so far, nearly: of two at the same moment one may not be counted.
    pub(crate) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
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

    /// Polls in a loop from `now` on for `span_ms`, waiting where it should, and loses the core for 3 ms after every
    /// `spin_ms` of spinning. The share of the time that is spun, waited and lost, in percent.
    fn live(spin_ms: u64, span_ms: u64) -> [u64; 3] {
        let patience = Patience::default();
        let (mut now, mut spun, mut shares) = (1_000 * MS, 0, [0; 3]);
        patience.poll(Now(now));
        while now < (1_000 + span_ms) * MS {
            if patience.poll(Now(now)) {
                now += MS / 10;
                shares[1] += MS / 10;
                patience.waited(Now(now));
            } else if spun < spin_ms * MS {
                (now, spun, shares[0]) = (now + MS / 100, spun + MS / 100, shares[0] + MS / 100);
            } else {
                (now, spun, shares[2]) = (now + 3 * MS, 0, shares[2] + 3 * MS);
            }
        }
        shares.map(|share| share / MS * 100 / span_ms)
    }

    #[test]
    fn the_more_of_its_time_a_caller_loses_the_less_it_spins() {
        // Half of the time: another spinner on the same core. It is tried again every 160 ms.
        let [spun, waited, lost] = live(3, 10_000);
        assert!(waited > 90 && lost <= 3 && spun >= 1, "{spun} {waited} {lost}");
        // Some of it: builds at a low priority.
        let [spun, waited, lost] = live(80, 10_000);
        assert!(spun > 50 && lost <= 4, "{spun} {waited} {lost}");
        // Hardly any.
        let [spun, waited, lost] = live(1_000, 10_000);
        assert!(spun > 95 && waited <= 4, "{spun} {waited} {lost}");
    }

    #[test]
    fn a_short_loss_alone_does_not_make_it_wait() {
        let patience = Patience::default();
        patience.poll(Now(1_000 * MS));
        assert!(!patience.poll(Now(1_000 * MS + 19 * MS / 10)));
        assert!(patience.poll(Now(1_000 * MS + 38 * MS / 10)), "but two do");
    }

    #[test]
    fn a_program_that_polls_now_and_then_is_not_taken_for_one_that_lost_its_core() {
        let patience = Patience::default();
        for second in 1..5 {
            assert!(!patience.poll(Now(second * 1_000 * MS)));
        }
    }
}
