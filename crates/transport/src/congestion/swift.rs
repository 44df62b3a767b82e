//! Swift (Kumar et al., SIGCOMM 2020, section 3; constants as in its published simulation).
//!
//! Below a target delay the window grows by a packet per round trip; above it, it shrinks in proportion to the excess, at
//! most once per round trip and at most by half. The target is larger for small windows, so that many flows agree on one
//! queue ("flow-based scaling"). Every loss shrinks the window by half, every time-out too, the fifth in a row to the
//! least. Not here: the scaling by hops, because what is measured is queueing alone, and windows below one packet, which
//! want a pacer.

use srdma_seams::{Duration, Now};

use super::window::Window;
use super::{Congestion, Sample};

/// β in 1/1024: how strongly excess delay decreases the window.
const DECREASE_1024: u64 = 819;
/// Largest flow-based share of the target, in targets.
const SCALING_MAX: u64 = 5;
/// Time-outs in a row from which on the window is the least.
const TIMEOUTS_MAX: u32 = 5;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Swift {
    window: Window,
    target: Duration,
    rtt: Duration,
    decreased_at: Now,
    timeouts: u32,
    /// Growth too small for a byte so far, in bytes × window bytes.
    growth: u64,
}

impl Swift {
    /// Starts at `initial` bytes and stays below `max`; a full packet costs `packet` of them.
    pub fn new(initial: u64, packet: u64, max: u64, target: Duration) -> Swift {
        let target = target.max(Duration::from_micros(1));
        Swift { window: Window::new(initial, packet, max), target, ..Swift::default() }
    }

    /// The target for the window as it is: α/√w + β on top, with the constants that make it [`SCALING_MAX`] targets at a
    /// tenth of a packet and nothing from a hundred packets on.
    fn aim(&self) -> Duration {
        let square = (u128::from(self.window.bytes()) << 20) / u128::from(self.window.packet());
        let root_1024 = (square.min(u64::MAX.into()) as u64).isqrt().max(1);
        // α is 5 targets / (√10 − 1/10) = 1.633 targets.
        let alpha = self.target.0.saturating_mul(1_633) / 1_000;
        let scaling = (alpha.saturating_mul(1_024) / root_1024).saturating_sub(alpha / 10);
        self.target + Duration(scaling.min(self.target.0 * SCALING_MAX))
    }

    /// Shrinks the window by `cut_1024`, unless that happened within this round trip.
    fn shrink(&mut self, now: Now, cut_1024: u64) {
        if now.since(self.decreased_at) >= self.rtt {
            self.decreased_at = now;
            self.window.remember();
            let window = u128::from(self.window.bytes());
            self.window.set((window - window * u128::from(cut_1024) / 1024) as u64);
        }
    }
}

impl Congestion for Swift {
    fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }

    fn set_packet(&mut self, bytes: u64) {
        self.window.set_packet(bytes);
    }

    fn on_ack(&mut self, now: Now, sample: &Sample) {
        (self.timeouts, self.rtt) = (0, sample.rtt);
        let (delay, aim) = (sample.newest_delay, self.aim());
        if delay >= aim {
            let excess = u128::from((delay - aim).0) * u128::from(DECREASE_1024);
            self.shrink(now, ((excess / u128::from(delay.0)) as u64).min(512));
        } else if sample.limited {
            self.growth = self.growth.saturating_add(self.window.packet().saturating_mul(sample.acked_bytes));
            let grown = self.growth / self.window.bytes();
            self.growth -= grown * self.window.bytes();
            self.window.set(self.window.bytes() + grown);
        }
    }

    fn on_loss(&mut self, now: Now, _packets: u32) {
        self.shrink(now, 512);
    }

    fn on_timeout(&mut self, now: Now) {
        self.timeouts += 1;
        self.shrink(now, if self.timeouts >= TIMEOUTS_MAX { 1024 } else { 512 });
    }

    fn undo(&mut self, _now: Now) {
        self.window.restore();
    }
}

#[cfg(test)]
mod tests;
