//! What the acknowledgements of one round trip say together.

use srdma_seams::{Duration, Now};

use super::Sample;

/// Lost packets per packet (as 1 in this many) above which loss counts as congestion.
const HEAVY_LOSS: u64 = 20;
/// Packets in a round below which its loss fraction says nothing.
const LOSS_SAMPLE_MIN: u64 = 64;
/// Shortest round, unless a quarter of the delay that is aimed at is shorter: a software end point's round-trip time can
/// be shorter than its wake-ups.
const ROUND_MIN: Duration = Duration::from_micros(50);

/// One round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    ends: Now,
    packets: u64,
    ce: u64,
    lost: u64,
}

impl Round {
    /// A round that takes `rtt` from `now` on; `target` is the delay that is aimed at.
    pub(super) fn begin(now: Now, rtt: Duration, target: Duration) -> Round {
        let least = ROUND_MIN.min(Duration(target.0 / 4));
        Round { ends: now + rtt.max(least), ..Round::default() }
    }

    pub(super) fn acked(&mut self, sample: &Sample) {
        self.packets += u64::from(sample.packets);
        self.ce += u64::from(sample.ce);
    }

    pub(super) fn lost(&mut self, packets: u32) {
        self.lost += u64::from(packets);
    }

    /// Its losses were none.
    pub(super) fn forgive(&mut self) {
        self.lost = 0;
    }

    pub(super) fn is_over(&self, now: Now) -> bool {
        now >= self.ends
    }

    /// Marked packets, in 1/1024 of all.
    pub(super) fn marked_1024(&self) -> u64 {
        self.ce * 1024 / self.packets.max(1)
    }

    /// Lost packets, in 1/1024 of all, if that is more than chance explains.
    pub(super) fn lost_heavily_1024(&self) -> Option<u64> {
        let total = self.packets + self.lost;
        let heavy = total >= LOSS_SAMPLE_MIN && self.lost * HEAVY_LOSS > total;
        heavy.then(|| self.lost * 1024 / total)
    }
}
