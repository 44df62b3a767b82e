//! A window steered by queueing delay and congestion marks.
//!
//! After Swift (Kumar et al., SIGCOMM 2020): aim at a queueing delay, decrease multiplicatively by how
//! far the delay exceeds it, at most once per round trip. Marks act as in DCTCP (Alizadeh et al.,
//! SIGCOMM 2010): by half their smoothed fraction. Below the target the window grows in proportion to
//! the distance from it, as in the quadrants of Ultra Ethernet's NSCC.
//!
//! Loss alone is no signal while it is rare: a sprayed connection meets random loss and dead paths
//! that have nothing to do with load. Heavy loss (`round`) stops growth and cuts the window by half the
//! lost fraction: shallow buffers overflow.

use srdma_seams::{Duration, Now};

use super::round::Round;
use super::{Congestion, Sample};

/// Packets that the window holds at least.
const PACKETS_MIN: u64 = 4;
/// Swift's β in 1/16: how strongly excess delay decreases the window.
const DELAY_GAIN_16: u64 = 13;

/// See the module.
#[derive(Clone, Debug)]
pub struct DelayWindow {
    window: u64,
    packet: u64,
    max: u64,
    target: Duration,
    slow_start: bool,
    /// DCTCP's α in 1/1024. It starts at one, so that early marks act at once (RFC 8257 section 3.3).
    marked_1024: u64,
    round: Round,
    heavy: bool,
    /// Window before losses reduced it, while that can still be undone.
    before_loss: Option<u64>,
}

impl DelayWindow {
    /// Starts at `initial` bytes and stays below `max`; a full packet costs `packet` of them.
    pub fn new(initial: u64, packet: u64, max: u64, target: Duration) -> DelayWindow {
        let (packet, target) = (packet.max(1), target.max(Duration::from_micros(1)));
        let max = max.max(packet * PACKETS_MIN);
        let window = initial.clamp(packet * PACKETS_MIN, max);
        let (round, heavy, before_loss) = (Round::default(), false, None);
        DelayWindow {
            window,
            packet,
            max,
            target,
            slow_start: true,
            marked_1024: 1024,
            round,
            heavy,
            before_loss,
        }
    }

    fn grow(&mut self, sample: &Sample) {
        let headroom = (self.target - sample.delay).0;
        self.slow_start &= headroom > self.target.0 / 2;
        if !sample.limited || self.heavy || headroom == 0 {
            return;
        }
        // Per round trip a packet, for fairness, and up to double at the start, a quarter more later.
        let additive = self.packet * sample.acked_bytes / self.window;
        let share = if self.slow_start { sample.acked_bytes } else { sample.acked_bytes / 4 };
        let multiplicative = (u128::from(share) * u128::from(headroom) / u128::from(self.target.0)) as u64;
        self.set(self.window + additive + multiplicative);
    }

    fn end_round(&mut self, now: Now, sample: &Sample) {
        let heavy = self.round.lost_heavily_1024();
        self.heavy = heavy.is_some();
        let marked = self.round.marked_1024();
        self.marked_1024 = (self.marked_1024 * 15 + marked) / 16;
        let mut cut = if marked > 0 { self.window * self.marked_1024 / 2048 } else { 0 };
        if sample.delay > self.target {
            let excess = (sample.delay - self.target).0 * DELAY_GAIN_16 / 16;
            let share = u128::from(self.window) * u128::from(excess) / u128::from(sample.delay.0);
            cut = cut.max((share as u64).min(self.window / 2));
        }
        self.slow_start &= cut == 0;
        self.before_loss = match heavy {
            Some(lost_1024) => {
                cut = cut.max(self.window * lost_1024 / 2048);
                self.before_loss.max(Some(self.window))
            }
            None => None,
        };
        self.set(self.window - cut);
        self.round = Round::begin(now, sample.rtt, self.target);
    }

    fn set(&mut self, window: u64) {
        self.window = window.clamp(self.packet * PACKETS_MIN, self.max);
    }
}

impl Congestion for DelayWindow {
    fn window_bytes(&self) -> u64 {
        self.window
    }

    fn set_packet(&mut self, bytes: u64) {
        self.packet = bytes.max(1);
        self.max = self.max.max(self.packet * PACKETS_MIN);
        self.set(self.window);
    }

    fn on_ack(&mut self, now: Now, sample: &Sample) {
        self.round.acked(sample);
        self.grow(sample);
        if self.round.is_over(now) {
            self.end_round(now, sample);
        }
    }

    fn on_loss(&mut self, _now: Now, packets: u32) {
        self.round.lost(packets);
    }

    fn on_timeout(&mut self, now: Now) {
        self.before_loss = self.before_loss.max(Some(self.window));
        self.set(self.window / 8);
        self.slow_start = true;
        self.round = Round::begin(now, Duration::ZERO, self.target);
    }

    fn undo(&mut self, _now: Now) {
        if let Some(before) = self.before_loss.take() {
            self.set(self.window.max(before));
        }
        self.heavy = false;
        self.round.forgive();
    }
}

#[cfg(test)]
mod tests;
