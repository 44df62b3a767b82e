//! NSCC, the network-signal congestion control of Ultra Ethernet (UE specification 1.0, section 3.6.13; constants and what
//! the text leaves open as in its reference simulator, uet-htsim).
//!
//! A packet's mark and its queueing delay choose one of four: unmarked and fast, grow in proportion to the distance from
//! the target; unmarked and slow, grow by a constant, for the queue is going; marked and fast, nothing, for the path selector
//! moves away; marked and slow, shrink with the mean delay. What is lost is taken off; `quick_adapt` does the rest.

mod growth;
mod quick_adapt;

use srdma_seams::{Duration, Now};

use super::window::Window;
use super::{Congestion, Sample};
use growth::Growth;
use quick_adapt::QuickAdapt;

/// What the constants were chosen for: 100 Gbit/s × 12 µs.
const REFERENCE_BYTES: u128 = 150_000;
const REFERENCE_RTT: Duration = Duration::from_micros(12);
/// Below this delay the way is empty.
const EMPTY: Duration = Duration::from_micros(1);

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Nscc {
    window: Window,
    /// What the network holds, as far as anybody has said: the window at the start. Bytes.
    capacity: u64,
    target: Duration,
    growth: Growth,
    decreased_at: Now,
    /// Bytes acknowledged in a row on empty ways.
    calm_bytes: u64,
    quick: QuickAdapt,
}

impl Nscc {
    /// Starts at `initial` bytes and stays below `max`; a full packet costs `packet` of them.
    pub fn new(initial: u64, packet: u64, max: u64, target: Duration) -> Nscc {
        let window = Window::new(initial, packet, max);
        let target = target.max(Duration::from_micros(1));
        Nscc { window, capacity: window.bytes(), target, ..Nscc::default() }
    }

    /// `bytes` that are meant for the reference network.
    fn scaled(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.capacity) / REFERENCE_BYTES) as u64
    }

    fn grow(&mut self, acked: u64, delay: Duration) {
        self.calm_bytes = if delay < EMPTY { self.calm_bytes + acked } else { 0 };
        if self.calm_bytes > self.window.bytes() {
            return self.window.set(self.window.bytes() + self.scaled(acked / 4));
        }
        let each = if delay < self.target {
            let room = u128::from((self.target - delay).0);
            (u128::from(self.scaled(self.window.packet() * 4)) * room / u128::from(REFERENCE_RTT.0)) as u64
        } else {
            self.scaled(self.window.packet() * 5)
        };
        self.growth.add(each, acked);
    }

    fn shrink(&mut self, now: Now, sample: &Sample) {
        self.calm_bytes = 0;
        if sample.delay > self.target && now.since(self.decreased_at) > sample.rtt - sample.delay {
            let excess = u128::from((sample.delay - self.target).0) * 4 / 5;
            let window = self.window.bytes();
            let cut = u128::from(window) * excess / u128::from(sample.delay.0);
            self.window.set(window - (cut as u64).min(window / 2));
            self.decreased_at = now;
        }
    }
}

impl Congestion for Nscc {
    fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }

    fn set_packet(&mut self, bytes: u64) {
        self.window.set_packet(bytes);
    }

    fn on_ack(&mut self, now: Now, sample: &Sample) {
        let (window, packet) = (self.window.bytes(), self.window.packet());
        if let Some(bytes) = self.quick.on_ack(now, sample, self.target, (window, self.capacity)) {
            self.window.set(bytes);
            return self.growth.forget();
        }
        match sample.ce * 2 > sample.packets {
            false if sample.limited => self.grow(sample.acked_bytes, sample.newest_delay),
            true if sample.newest_delay >= self.target => self.shrink(now, sample),
            _ => {}
        }
        let rtt = sample.rtt - sample.delay;
        let (given, is_time) = self.growth.give(now, sample.acked_bytes, rtt, window, packet);
        let fair = if is_time { self.scaled(packet * 3 / 20) } else { 0 }; // η
        self.window.set(self.window.bytes() + given + fair);
    }

    fn on_loss(&mut self, _now: Now, packets: u32) {
        self.window.remember();
        self.window.set(self.window.bytes().saturating_sub(u64::from(packets) * self.window.packet()));
        self.quick.lost(true);
    }

    fn on_timeout(&mut self, now: Now) {
        self.on_loss(now, u32::MAX);
    }

    fn undo(&mut self, _now: Now) {
        self.window.restore();
        self.quick.lost(false);
    }
}

#[cfg(test)]
mod tests;
