//! When is a packet lost? By time and by order *on the sending path*, never by a packet count.
//!
//! Sprayed packets overtake one another all the time, so a gap says nothing. Two things do:
//!
//! - **Path order.** A unit sent later on the same path was answered. One path keeps its order, up to
//!   the reordering time (RACK, RFC 8985, per path instead of per connection).
//! - **Age.** Units sent later on other paths were answered, and this one is older than the slowest
//!   path of late would need.
//!
//! A silent tail is probed before the retransmission time-out (RFC 8985 section 7). A loss that turns
//! out to be none widens the reordering time.

pub(crate) mod rtt;

use srdma_seams::{Duration, Now};

use crate::config::Config;
use crate::units::UnitRecord;
use rtt::{ConnectionRtt, PathRtt};

/// Longest reordering time, unless round trips are longer, in grains (see [`Config::grain`], which is the least).
const REORDER_MAX_GRAINS: u64 = 200;
/// Most doublings of the reordering time by spurious losses.
const WIDEN_MAX: u8 = 6;
/// Losses that were none of the detector's mistakes after which it narrows by one step.
const NARROW_AFTER: u16 = 64;
/// Least time of silence before a tail is probed, in grains.
const PROBE_MIN_GRAINS: u64 = 5;
/// Round-trip time assumed before the first sample.
const RTT_INITIAL: Duration = Duration::from_millis(5);

/// Adapts the times that decide about loss.
#[derive(Debug)]
pub(crate) struct Detector {
    grain: Duration,
    widened: u8,
    since_undo: u16,
}

impl Detector {
    /// For end points with this [`Config::grain`].
    pub(crate) fn new(grain: Duration) -> Detector {
        Detector { grain, widened: 0, since_undo: 0 }
    }

    /// How late a packet may be without being lost.
    pub(crate) fn reorder(&self, rtt: &ConnectionRtt) -> Duration {
        let quarter = Duration(rtt.smoothed().0 / 4).max(self.grain);
        (quarter * (1 << self.widened)).min(rtt.smoothed().max(self.grain * REORDER_MAX_GRAINS))
    }

    /// When `unit` is lost if a later one of its path was answered. Acknowledgements are sprayed too,
    /// so the answer may have to come by the slowest path of all.
    pub(crate) fn path_order_deadline(&self, unit: &UnitRecord, path: &PathRtt, rtt: &ConnectionRtt) -> Now {
        let expected = path.latest.unwrap_or(Duration::ZERO).max(rtt.max());
        unit.sent + expected + self.reorder(rtt)
    }

    /// When `unit` is lost if a later one of any path was answered.
    pub(crate) fn age_deadline(
        &self,
        unit: &UnitRecord,
        path: &PathRtt,
        rtt: &ConnectionRtt,
        config: &Config,
    ) -> Now {
        let slowest = rtt.max().max(path.latest.unwrap_or(Duration::ZERO));
        let slack = Duration(slowest.0 / 4).max(rtt.variation() * 2);
        let known = slowest + slack + self.reorder(rtt);
        let age = match path.latest {
            Some(_) => known,
            // It may never have worked. A fabric's paths are alike, up to a factor of two.
            None if rtt.knows_most(config.paths) => known + slowest,
            // Nobody knows how long it is.
            None => known.max(slowest * 8).max(config.rto_min),
        };
        unit.sent + age
    }

    /// Silence after which the tail is probed.
    pub(crate) fn probe_timeout(&self, rtt: &ConnectionRtt) -> Duration {
        if !rtt.is_measured() {
            return RTT_INITIAL * 2;
        }
        let slowest = rtt.max();
        let twice = (rtt.smoothed() * 2).max(rtt.smoothed() + rtt.variation() * 4);
        twice.max(slowest + Duration(slowest.0 / 4)).max(self.grain * PROBE_MIN_GRAINS)
    }

    /// Retransmission time-out, before back-off.
    pub(crate) fn rto(&self, rtt: &ConnectionRtt, config: &Config) -> Duration {
        let base = if rtt.is_measured() { rtt.smoothed() } else { RTT_INITIAL };
        (base + rtt.variation() * 4).max(config.rto_min)
    }

    /// A unit was held lost.
    pub(crate) fn lost(&mut self) {
        self.since_undo += 1;
        if self.since_undo >= NARROW_AFTER {
            self.since_undo = 0;
            self.widened = self.widened.saturating_sub(1);
        }
    }

    /// A unit held lost had arrived.
    pub(crate) fn undone(&mut self) {
        self.since_undo = 0;
        self.widened = (self.widened + 1).min(WIDEN_MAX);
    }
}
