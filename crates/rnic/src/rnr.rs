//! Receiver-not-ready timers.

use srdma_seams::Duration;

/// Hundredths of a millisecond per timer code (IBTA table 45).
const TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// `rnr_retry` value that means: never give up.
pub(crate) const RETRY_FOREVER: u8 = 7;

/// How long the sender waits after a refusal with this timer code. Only the low five bits count.
pub(crate) fn wait(code: u8) -> Duration {
    Duration::from_micros(u64::from(TIMERS[usize::from(code & 31)]) * 10)
}

/// Count of refusals of one message, kept by the requester.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    msn: u64,
    count: u32,
    paused_until: srdma_seams::Now,
}

/// What a refusal leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The same refusal told twice; the pause already runs.
    Known,
    /// Wait, then send again.
    Wait(Duration),
    /// More refusals than `rnr_retry` allows.
    GiveUp,
}

impl Refusals {
    /// Message `msn` was refused with timer `code`. Another message than last time starts from
    /// nothing: its predecessors have landed, which is progress.
    pub fn refused(&mut self, now: srdma_seams::Now, msn: u64, code: u8, rnr_retry: u8) -> Verdict {
        if self.count > 0 && self.msn == msn {
            if now < self.paused_until {
                return Verdict::Known;
            }
        } else {
            *self = Refusals { msn, ..Refusals::default() };
        }
        self.count = self.count.saturating_add(1);
        if rnr_retry != RETRY_FOREVER && self.count > u32::from(rnr_retry) {
            return Verdict::GiveUp;
        }
        let wait = wait(code);
        self.paused_until = now + wait;
        Verdict::Wait(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_seams::Now;

    #[test]
    fn timer_codes_mean_what_table_45_says() {
        for (code, us) in
            [(0, 655_360), (1, 10), (5, 60), (12, 640), (14, 1_280), (20, 10_240), (31, 491_520)]
        {
            assert_eq!(wait(code), Duration::from_micros(us), "code {code}");
        }
        assert_eq!(wait(32), wait(0), "only five bits count");
    }

    #[test]
    fn n_retries_allow_n_plus_one_attempts_and_seven_any_number() {
        for rnr_retry in 0..7u8 {
            let mut refusals = Refusals::default();
            let mut now = Now(0);
            for _ in 0..rnr_retry {
                assert_eq!(refusals.refused(now, 5, 1, rnr_retry), Verdict::Wait(wait(1)));
                assert_eq!(refusals.refused(now, 5, 1, rnr_retry), Verdict::Known);
                now += wait(1);
            }
            assert_eq!(refusals.refused(now, 5, 1, rnr_retry), Verdict::GiveUp, "{rnr_retry}");
        }
        let mut refusals = Refusals::default();
        for i in 0..1000u64 {
            assert_ne!(refusals.refused(Now(i * 1_000_000), 5, 1, 7), Verdict::GiveUp);
        }
    }

    #[test]
    fn another_message_starts_from_nothing() {
        let mut refusals = Refusals::default();
        for msn in 0..100 {
            assert!(matches!(refusals.refused(Now(msn), msn, 1, 1), Verdict::Wait(_)));
        }
    }
}
