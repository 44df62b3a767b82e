//! An ablation: a window for each path instead of one for all (`Config::path_windows`).
//!
//! What it costs is why nobody does it in earnest: a controller for each of 128 paths of each connection, of which each
//! learns from a 128th of the acknowledgements, and windows of a packet at the least whose sum cannot become smaller than
//! 128 packets, however many senders meet.

use alloc::vec::Vec;

use srdma_seams::{Duration, Now, PathId};

use super::{Congestion, Controller, Sample};
use crate::config::Config;

/// See the module.
#[derive(Debug)]
pub(crate) struct PathWindows {
    windows: Vec<Controller>,
}

impl PathWindows {
    /// The window at the start is shared out; each may grow to the largest.
    pub(crate) fn new(config: &Config, packet_bytes: u64) -> PathWindows {
        let paths = config.paths.max(1);
        let initial = config.window_initial_bytes / u64::from(paths);
        let (max, target) = (config.window_max_bytes, config.target_delay);
        let window = Controller::new(config.congestion, initial, packet_bytes, max, target);
        PathWindows { windows: alloc::vec![window; paths.into()] }
    }

    /// Whether a unit that costs `bytes` fits the window of `path`, of which `inflight` are in flight. One always does.
    pub(crate) fn fits(&self, path: PathId, inflight: u64, bytes: u64) -> bool {
        inflight == 0 || inflight + bytes <= self.of(path)
    }

    fn of(&self, path: PathId) -> u64 {
        self.windows.get(usize::from(path.0)).map_or(0, Congestion::window_bytes)
    }

    /// All windows together.
    pub(crate) fn sum(&self) -> u64 {
        self.windows.iter().map(Congestion::window_bytes).sum()
    }

    /// A unit on `path` was answered after `trip`, of which `sample.delay` in queues; `inflight` bytes were in flight.
    pub(crate) fn on_report(
        &mut self,
        now: Now,
        path: PathId,
        trip: Duration,
        inflight: u64,
        sample: Sample,
    ) {
        let limited = inflight * 2 >= self.of(path);
        if let Some(window) = self.windows.get_mut(usize::from(path.0)) {
            window.on_ack(now, &Sample { newest_delay: sample.delay, rtt: trip, limited, ..sample });
        }
    }

    pub(crate) fn on_loss(&mut self, now: Now, path: PathId, packets: u32) {
        if let Some(window) = self.windows.get_mut(usize::from(path.0)) {
            window.on_loss(now, packets);
        }
    }

    pub(crate) fn undo(&mut self, now: Now, path: PathId) {
        if let Some(window) = self.windows.get_mut(usize::from(path.0)) {
            window.undo(now);
        }
    }

    pub(crate) fn on_timeout(&mut self, now: Now) {
        self.windows.iter_mut().for_each(|window| window.on_timeout(now));
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.windows.len() * size_of::<Controller>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of docs/simulation.md.
    #[test]
    fn windows_per_path_cost_a_controller_and_a_packet_each() {
        let config = Config { path_windows: true, ..Config::default() };
        let mut windows = PathWindows::new(&config, 4_096);
        assert!(windows.bytes() <= 18_000, "{} bytes of memory", windows.bytes());
        windows.on_timeout(Now(1));
        assert!(windows.sum() >= 128 * 4_096, "{} bytes in flight at the least", windows.sum());
        for path in (0..128).map(PathId) {
            assert!(windows.fits(path, 0, 4_096) && !windows.fits(path, 1 << 20, 4_096));
        }
    }
}
