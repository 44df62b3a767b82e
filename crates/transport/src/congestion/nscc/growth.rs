//! Growth is collected and given to the window now and then, not packet by packet.

use srdma_seams::{Duration, Now};

/// Packets acknowledged after which it is given.
const PACKETS: u64 = 8;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    /// In bytes × window bytes.
    sum: u64,
    acked: u64,
    given_at: Now,
}

impl Growth {
    /// For each acknowledged window the window shall grow by `each` bytes; `acked` bytes of it are.
    pub(super) fn add(&mut self, each: u64, acked: u64) {
        self.sum = self.sum.saturating_add(each.saturating_mul(acked));
    }

    /// Bytes that a window of `window` bytes grows by now that `acked` more are acknowledged; and whether a round trip
    /// has passed since it was last asked.
    pub(super) fn give(
        &mut self,
        now: Now,
        acked: u64,
        rtt: Duration,
        window: u64,
        packet: u64,
    ) -> (u64, bool) {
        self.acked += acked;
        let is_time = now.since(self.given_at) > rtt;
        if self.acked <= PACKETS * packet && !is_time {
            return (0, false);
        }
        let given_at = if is_time { now } else { self.given_at };
        let given = self.sum / window.max(1);
        *self = Growth { given_at, ..Growth::default() };
        (given, is_time)
    }

    /// Nothing is given for what was acknowledged so far.
    pub(super) fn forget(&mut self) {
        (self.sum, self.acked) = (0, 0);
    }
}
