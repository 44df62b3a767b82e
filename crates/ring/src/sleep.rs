//! Until when somebody sleeps: whoever makes work knows whether the sleeper needs waking.
//!
//! The sleeper publishes the time at which it will wake anyway, **fences SeqCst**, and looks for work one last time.
//! A maker of work publishes the work, **fences SeqCst**, and reads that time. The fences have one order: either the
//! sleeper's last look sees the work, or the maker sees the time. One maker at most is told to wake it.

use crate::sync::{fence, AtomicU64, Ordering};

/// Published while it is awake: work is seen without waking anybody.
const AWAKE: u64 = 0;

/// Until when the one sleeper sleeps, in nanoseconds of the monotonic clock.
#[derive(Debug)]
pub struct SleepUntil(AtomicU64);

impl Default for SleepUntil {
    fn default() -> SleepUntil {
        SleepUntil(AtomicU64::new(AWAKE))
    }
}

impl SleepUntil {
    /// The sleeper will sleep until then; `None` is for ever. It looks for work once more after this.
    pub fn lie_down(&self, until_ns: Option<u64>) {
        let until_ns = until_ns.map_or(u64::MAX, |at| at.max(AWAKE + 1));
        self.0.store(until_ns, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The sleeper is up again.
    pub fn get_up(&self) {
        self.0.store(AWAKE, Ordering::SeqCst);
    }

    /// Whether the sleeper is awake, or will be by `deadline_ns`, unless it lies down again after this. For work that is
    /// published before the sleeper can lie down again (under a lock that it takes for that).
    pub fn is_up_by(&self, deadline_ns: u64) -> bool {
        let until_ns = self.0.load(Ordering::SeqCst);
        until_ns == AWAKE || until_ns <= deadline_ns
    }

    /// There is work, published before this, that must be begun by `deadline_ns`. Whether the caller has to wake the
    /// sleeper; it counts as awake from then on.
    pub fn must_wake(&self, deadline_ns: u64) -> bool {
        fence(Ordering::SeqCst);
        let until_ns = self.0.load(Ordering::SeqCst);
        if until_ns == AWAKE || until_ns <= deadline_ns {
            return false;
        }
        // Of several makers of work one is enough.
        self.0.compare_exchange(until_ns, AWAKE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}
