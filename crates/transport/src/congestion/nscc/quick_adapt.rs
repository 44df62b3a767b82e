//! When far too little gets through in a round trip, the window becomes what got through.

use srdma_seams::{Duration, Now};

use crate::congestion::Sample;

/// Share of what the network holds that is far too little: an eighth.
const GATE: u64 = 8;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QuickAdapt {
    round_ends: Now,
    achieved: u64,
    /// Bytes that were under way when the window was last set so: their marks are about the window before.
    deaf_bytes: u64,
    has_lost: bool,
}

impl QuickAdapt {
    /// An acknowledgement came to a window of `window` bytes; the network holds `capacity`. The window from now on, if no
    /// other rule applies: that of before, if what is said is about the past.
    pub(super) fn on_ack(
        &mut self,
        now: Now,
        sample: &Sample,
        target: Duration,
        (window, capacity): (u64, u64),
    ) -> Option<u64> {
        let is_deaf = self.deaf_bytes > 0 && sample.ce > 0;
        self.deaf_bytes = self.deaf_bytes.saturating_sub(sample.acked_bytes);
        self.achieved += sample.acked_bytes;
        if is_deaf {
            return Some(window);
        }
        if now <= self.round_ends {
            return None;
        }
        let is_first = self.round_ends == Now(0);
        self.round_ends = now + (sample.rtt - sample.delay) + target;
        let achieved = core::mem::take(&mut self.achieved);
        let is_bad = self.has_lost || sample.newest_delay > target * 4;
        if is_first || !is_bad || !sample.limited || achieved >= capacity / GATE {
            return None;
        }
        self.deaf_bytes = window;
        self.has_lost = false;
        Some(achieved.min(window))
    }

    /// Packets are held lost, or not any longer.
    pub(super) fn lost(&mut self, has_lost: bool) {
        self.has_lost = has_lost;
    }
}
