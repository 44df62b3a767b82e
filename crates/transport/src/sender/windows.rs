//! Where every path has a window of its own: which path may send, and what its window hears. An ablation; otherwise the
//! trunk's window is the only one, and nothing here does anything.

use srdma_seams::{Duration, Now, PathId};

use super::Sender;
use crate::config::Config;
use crate::congestion::{PathWindows, Sample};
use crate::units::UnitRecord;

impl Sender {
    /// Full packets cost `packet_bytes` of a window.
    pub(super) fn open_path_windows(&mut self, config: &Config, packet_bytes: u64) {
        if config.path_windows {
            self.path_windows = Some(PathWindows::new(config, packet_bytes));
            self.units.count_by_path(config.paths);
        }
    }

    /// The next path, and whether it is a probe; where paths have windows, one whose has room.
    pub(super) fn next_path(
        &mut self,
        now: Now,
        avoid: Option<PathId>,
        charge: u64,
        config: &Config,
    ) -> Option<(PathId, bool)> {
        let Some(windows) = &self.path_windows else { return Some(self.paths.next(now, avoid)) };
        for _ in 0..config.paths {
            let (path, probing) = self.paths.next(now, avoid);
            if probing || windows.fits(path, self.units.inflight_on(path), charge) {
                return Some((path, probing));
            }
        }
        self.waits = true;
        None
    }

    /// `packets` of a unit, `ce` of them marked, were answered after `trip`, of which `delay` in queues.
    pub(super) fn hear_path(
        &mut self,
        now: Now,
        unit: &UnitRecord,
        (packets, ce): (u8, u8),
        trip: Duration,
        delay: Duration,
    ) {
        let Some(windows) = &mut self.path_windows else { return };
        let acked_bytes = u64::from(packets) * u64::from(unit.charge_each);
        let inflight = self.units.inflight_on(unit.path) + acked_bytes;
        let (packets, ce) = (packets.into(), ce.into());
        let sample = Sample { acked_bytes, delay, packets, ce, ..Sample::default() };
        windows.on_report(now, unit.path, trip, inflight, sample);
    }
}
