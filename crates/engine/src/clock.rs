//! The clock of this process: monotonic, and only the time that the process lived.
//!
//! A virtual machine that was paused, or a program that a debugger held, finds that half an hour has passed in which
//! nobody could have answered it, and every time-out has expired. So the thread that keeps the timers says by when it will
//! look again ([`expect_within`]); if nobody has looked at the clock for long after that, the process did not live
//! meanwhile, and that time does not count. It is only ever left out, so that the clock never goes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use srdma_seams::{Duration, Now};

/// Later than expected by more than this: the process was held, or as good as.
const LATE: Duration = Duration::from_secs(1);

static LIVED: Lived = Lived::new();

/// Nanoseconds of CLOCK_MONOTONIC that the process lived. A clock that stands still is harmless; it never goes back.
pub fn now() -> Now {
    LIVED.at(monotonic_ns)
}

/// The thread that keeps the timers sleeps, and will look at the clock within `span`; `None`: it waits for no time. Of
/// several devices' threads the one that said so last counts.
pub fn expect_within(span: Option<Duration>) {
    LIVED.expect(span.map(|span| monotonic_ns().saturating_add(span.0)));
}

/// It is awake again: to be called before the time it slept may be taken for granted.
pub fn awake() -> Now {
    let now = now();
    expect_within(Some(Duration(0)));
    now
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; CLOCK_MONOTONIC always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What of the real time was lived. All times are real nanoseconds but those that [`Lived::at`] returns.
struct Lived {
    /// Time that does not count, in all.
    away_ns: AtomicU64,
    /// When somebody will have looked at the clock; [`u64::MAX`] if nobody needs to.
    due_ns: AtomicU64,
    /// For who finds that it was not looked at.
    coming_back: Mutex<()>,
}

impl Lived {
    const fn new() -> Lived {
        Lived { away_ns: AtomicU64::new(0), due_ns: AtomicU64::new(u64::MAX), coming_back: Mutex::new(()) }
    }

    fn expect(&self, due_ns: Option<u64>) {
        self.due_ns.store(due_ns.unwrap_or(u64::MAX), Ordering::Release);
    }

    fn at(&self, real_ns: impl Fn() -> u64) -> Now {
        loop {
            let away_ns = self.away_ns.load(Ordering::Acquire);
            let real = real_ns();
            if real > self.limit_ns() {
                return self.come_back(real_ns);
            }
            // Else a time from before the gap would be taken for one after it.
            if self.away_ns.load(Ordering::Acquire) == away_ns {
                return Now(real.saturating_sub(away_ns));
            }
        }
    }

    /// Until then all is well.
    fn limit_ns(&self) -> u64 {
        self.due_ns.load(Ordering::Acquire).saturating_add(LATE.0)
    }

    /// What is beyond the limit is left out: nobody has been told a later time yet.
    #[cold]
    fn come_back(&self, real_ns: impl Fn() -> u64) -> Now {
        let _one_at_a_time = self.coming_back.lock().unwrap_or_else(PoisonError::into_inner);
        let real = real_ns();
        let gone_ns = real.saturating_sub(self.limit_ns());
        let away_ns = self.away_ns.fetch_add(gone_ns, Ordering::AcqRel) + gone_ns;
        if gone_ns > 0 {
            self.due_ns.store(real, Ordering::Release);
        }
        Now(real.saturating_sub(away_ns))
    }
}

/// Random bytes from the operating system, for connection ids that an attacker must not guess.
pub fn entropy() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is 8 bytes long and lives across the call.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    // getrandom cannot fail for 8 bytes once the pool is initialised; before that (early boot) the
    // address of a stack variable and the clock are what there is.
    let here = std::ptr::from_ref(&bytes) as u64;
    now().0.rotate_left(32) ^ here.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn time_that_the_process_did_not_live_does_not_count() {
        let lived = Lived::new();
        assert_eq!(lived.at(|| 100 * S), Now(100 * S), "nobody waits for any time");
        assert_eq!(lived.at(|| 5_000 * S), Now(5_000 * S), "as long as it likes");
        lived.expect(Some(5_010 * S));
        assert_eq!(lived.at(|| 5_010 * S), Now(5_010 * S));
        assert_eq!(lived.at(|| 5_011 * S), Now(5_011 * S), "a little late is late");
        assert_eq!(lived.at(|| 8_611 * S), Now(5_011 * S), "an hour is not");
        assert_eq!(lived.at(|| 8_611 * S + 5), Now(5_011 * S + 5));
        lived.expect(Some(8_612 * S));
        assert_eq!(lived.at(|| 9_613 * S), Now(5_013 * S), "and again");
        lived.expect(None);
        assert_eq!(lived.at(|| 9_999 * S), Now(5_399 * S));
    }

    #[test]
    fn the_clock_never_goes_back_whoever_looks_at_it() {
        let (lived, real) = (Lived::new(), AtomicU64::new(S));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut last = Now(0);
                    while real.load(Ordering::Acquire) < 100_000 * S {
                        let now = lived.at(|| real.load(Ordering::Acquire));
                        assert!(now >= last, "{now:?} after {last:?}");
                        last = now;
                    }
                });
            }
            for step in 0..100_000u64 {
                let at = real.fetch_add(S / 2, Ordering::AcqRel) + S / 2;
                lived.expect(Some(at));
                if step % 100 == 0 {
                    real.fetch_add(60 * S, Ordering::AcqRel);
                    lived.at(|| real.load(Ordering::Acquire));
                }
            }
            real.store(200_000 * S, Ordering::Release);
        });
        assert!(lived.away_ns.load(Ordering::Relaxed) >= 1_000 * 50 * S);
    }
}
