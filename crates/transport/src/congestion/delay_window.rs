//! A window steered by queueing delay and congestion marks.
//!
//! After Swift (Kumar et al., SIGCOMM 2020): aim at a queueing delay, decrease multiplicatively by how
//! far the delay exceeds it, at most once per round trip. Marks act as in DCTCP (Alizadeh et al.,
//! SIGCOMM 2010): by half their smoothed fraction, once per round trip. Below the target the window
//! grows in proportion to the distance from it, as in the quadrants of Ultra Ethernet's NSCC, so that
//! fast links are filled within a few round trips.
//!
//! Loss alone is no signal while it is rare: a sprayed connection meets random loss and dead paths
//! that have nothing to do with load. Above a twentieth it stops growth and decreases the window by
//! half the lost fraction: shallow buffers somewhere overflow.

use srdma_seams::{Duration, Now};

use super::{Congestion, Sample};

/// Lost packets per packet (as 1 in this many) above which loss counts as congestion.
const HEAVY_LOSS: u64 = 20;
/// Packets in a round below which its loss fraction says nothing.
const LOSS_SAMPLE_MIN: u64 = 64;
/// Swift's β in 1/16: how strongly excess delay decreases the window.
const DELAY_GAIN_16: u64 = 13;
/// Shortest round; a software end point's round-trip time can be shorter than its wake-ups.
const ROUND_MIN: Duration = Duration::from_micros(50);

/// See the module.
#[derive(Debug)]
pub struct DelayWindow {
    window: u64,
    min: u64,
    max: u64,
    target: Duration,
    slow_start: bool,
    /// DCTCP's α in 1/1024. It starts at one, so that early marks act at once (RFC 8257 section 3.3).
    marked_1024: u64,
    round_end: Now,
    packets: u64,
    ce: u64,
    lost: u64,
    heavy: bool,
    /// Window before losses reduced it, while that can still be undone.
    before_loss: Option<u64>,
}

impl DelayWindow {
    /// Starts at `initial` bytes and stays between `min` and `max`.
    pub fn new(initial: u64, min: u64, max: u64, target: Duration) -> DelayWindow {
        let max = max.max(min);
        DelayWindow {
            window: initial.clamp(min, max),
            min,
            max,
            target: target.max(Duration::from_micros(1)),
            slow_start: true,
            marked_1024: 1024,
            round_end: Now(0),
            packets: 0,
            ce: 0,
            lost: 0,
            heavy: false,
            before_loss: None,
        }
    }

    fn grow(&mut self, sample: &Sample) {
        let headroom = (self.target - sample.delay).0;
        if self.slow_start && headroom <= self.target.0 / 2 {
            self.slow_start = false;
        }
        if !sample.limited || self.heavy || headroom == 0 {
            return;
        }
        // Additive: one minimal packet per round trip, for fairness. Multiplicative: up to double
        // per round trip at the start, up to a quarter more later.
        let additive = (self.min / 4).max(1) * sample.acked_bytes / self.window.max(1);
        let share = if self.slow_start { sample.acked_bytes } else { sample.acked_bytes / 4 };
        let multiplicative = (u128::from(share) * u128::from(headroom) / u128::from(self.target.0)) as u64;
        self.set(self.window + additive + multiplicative);
    }

    fn end_round(&mut self, now: Now, sample: &Sample) {
        let fraction = self.ce * 1024 / self.packets.max(1);
        self.marked_1024 = (self.marked_1024 * 15 + fraction) / 16;
        let total = self.packets + self.lost;
        self.heavy = total >= LOSS_SAMPLE_MIN && self.lost * HEAVY_LOSS > total;
        let mut window = self.window;
        if self.ce > 0 {
            window -= window * self.marked_1024 / 2048;
            self.slow_start = false;
        }
        if sample.delay > self.target {
            let excess = (sample.delay - self.target).0 * DELAY_GAIN_16 / 16;
            let cut = u128::from(self.window) * u128::from(excess) / u128::from(sample.delay.0.max(1));
            window = window.min(self.window - (cut as u64).min(self.window / 2));
            self.slow_start = false;
        }
        if self.heavy {
            self.before_loss = self.before_loss.max(Some(self.window));
            window = window.min(self.window - self.window * self.lost / total / 2);
        } else {
            self.before_loss = None;
        }
        self.set(window);
        (self.packets, self.ce, self.lost) = (0, 0, 0);
        self.round_end = now + sample.rtt.max(ROUND_MIN);
    }

    fn set(&mut self, window: u64) {
        self.window = window.clamp(self.min, self.max);
    }
}

impl Congestion for DelayWindow {
    fn window_bytes(&self) -> u64 {
        self.window
    }

    fn on_ack(&mut self, now: Now, sample: &Sample) {
        self.packets += u64::from(sample.packets);
        self.ce += u64::from(sample.ce);
        self.grow(sample);
        if now >= self.round_end {
            self.end_round(now, sample);
        }
    }

    fn on_loss(&mut self, _now: Now, packets: u32) {
        self.lost += u64::from(packets);
    }

    fn on_timeout(&mut self, now: Now) {
        self.before_loss = self.before_loss.max(Some(self.window));
        self.set(self.window / 8);
        self.slow_start = true;
        (self.packets, self.ce, self.lost) = (0, 0, 0);
        self.round_end = now + ROUND_MIN;
    }

    fn undo(&mut self, _now: Now) {
        if let Some(before) = self.before_loss.take() {
            self.set(self.window.max(before));
        }
        self.heavy = false;
        self.lost = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_micros(200);
    const TARGET: Duration = Duration::from_millis(2);

    /// One round trip in which a whole window is acknowledged.
    fn round(window: &mut DelayWindow, now: &mut Now, delay: Duration, ce: u32, lost: u32) {
        *now += RTT;
        window.on_loss(*now, lost);
        let acked_bytes = window.window_bytes();
        window.on_ack(*now, &Sample { acked_bytes, delay, rtt: RTT, packets: 100, ce, limited: true });
    }

    #[test]
    fn each_signal_moves_the_window_as_documented() {
        let table = [
            ("no queue: it doubles", Duration::ZERO, 0, 0, 1.9..2.1),
            ("half the target: slow start ends", TARGET, 0, 0, 0.9..1.01),
            ("twice the target: it shrinks by up to half", TARGET * 2, 0, 0, 0.49..0.7),
            ("rare loss is no signal", Duration::ZERO, 0, 5, 1.9..2.1),
            ("every packet marked at the start: half", TARGET, 100, 0, 0.45..0.55),
        ];
        for (what, delay, ce, lost, wanted) in table {
            let mut window = DelayWindow::new(1 << 20, 1 << 14, 64 << 20, TARGET);
            let mut now = Now(0);
            round(&mut window, &mut now, delay, ce, lost);
            let factor = window.window_bytes() as f64 / f64::from(1 << 20);
            assert!(wanted.contains(&factor), "{what}: {factor}");
        }
    }

    #[test]
    fn heavy_loss_shrinks_it_and_undo_restores_it() {
        let mut window = DelayWindow::new(1 << 20, 1 << 14, 64 << 20, TARGET);
        let mut now = Now(0);
        round(&mut window, &mut now, Duration::ZERO, 0, 0);
        let before = window.window_bytes();
        for _ in 0..4 {
            round(&mut window, &mut now, TARGET, 0, 60);
        }
        assert!(window.window_bytes() < before / 2 + before / 8, "{}", window.window_bytes());
        window.undo(now);
        assert!(window.window_bytes() >= before);
    }

    #[test]
    fn it_keeps_between_its_limits() {
        let mut window = DelayWindow::new(1 << 20, 1 << 14, 4 << 20, TARGET);
        let mut now = Now(0);
        for _ in 0..20 {
            round(&mut window, &mut now, Duration::ZERO, 0, 0);
        }
        assert_eq!(window.window_bytes(), 4 << 20);
        for _ in 0..20 {
            window.on_timeout(now);
        }
        assert_eq!(window.window_bytes(), 1 << 14);
    }
}
