//! The policy seam: how much may be in flight. One window per connection, shared by all paths.

pub mod delay_window;
mod round;

use srdma_seams::{Duration, Now};

/// What an acknowledgement says about the network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Window bytes newly delivered.
    pub acked_bytes: u64,
    /// Queueing delay, smoothed over all paths.
    pub delay: Duration,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Packets reported, and how many of them carried a congestion mark.
    pub packets: u32,
    /// See `packets`.
    pub ce: u32,
    /// The window, not the program or the receiver, limited what was in flight.
    pub limited: bool,
}

/// Decides the congestion window.
pub trait Congestion {
    /// Bytes that may be in flight, headers and overhead included.
    fn window_bytes(&self) -> u64;
    /// An acknowledgement came.
    fn on_ack(&mut self, now: Now, sample: &Sample);
    /// Packets are held lost.
    fn on_loss(&mut self, now: Now, packets: u32);
    /// The retransmission time-out fired.
    fn on_timeout(&mut self, now: Now);
    /// A loss or time-out turned out to be none: what it did to the window is undone.
    fn undo(&mut self, now: Now);
}
