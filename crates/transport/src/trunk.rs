//! What all connections between two devices share: one congestion window, one receive socket at the far end, and
//! what the answers to any of them say about whether the peer is at work.
//!
//! Their packets take the same paths and end in the same socket, so a thousand connections are one flow to the
//! network (compare RFC 3124): with a window each, of four packets at the least, they would overrun any queue, and
//! each would be too small for units worth a system call. Whose turn it is within the window is for the owner of the
//! trunk to say.

use srdma_seams::{Duration, Now};

use crate::config::Config;
use crate::congestion::{Congestion, Controller};
use crate::loss::rtt::Floor;

/// See the module. Passed to each call of a [`Connection`](crate::Connection) that sends or learns something.
#[derive(Debug)]
pub struct Trunk {
    pub(crate) congestion: Controller,
    /// Window bytes of all connections in flight.
    pub(crate) inflight_bytes: u64,
    /// Free bytes of the peer's socket, as it last said.
    pub(crate) free_bytes: u32,
    /// Smallest round-trip time of late, of any connection.
    pub(crate) rtt_floor: Floor,
    /// Smoothed queueing delay.
    delay_ns: u64,
    /// When anything was last answered.
    pub(crate) progress_at: Now,
    /// When the newest unit was sent of which something has been answered.
    pub(crate) answered_sent: Now,
    /// When a connection last took silence for loss.
    pub(crate) timed_out_at: Now,
    is_connected: bool,
    members: u32,
}

impl Trunk {
    /// A trunk without connections.
    pub fn new(config: &Config) -> Trunk {
        let (kind, initial, target) = (config.congestion, config.window_initial_bytes, config.target_delay);
        Trunk {
            congestion: Controller::new(kind, initial, 1, u64::MAX, target),
            inflight_bytes: 0,
            free_bytes: 0,
            rtt_floor: Floor::default(),
            delay_ns: 0,
            progress_at: Now(0),
            answered_sent: Now(0),
            timed_out_at: Now(0),
            is_connected: false,
            members: 0,
        }
    }

    /// A connection will use it. To be followed by [`Connection::leave`](crate::Connection::leave) at its end.
    pub fn join(&mut self) {
        self.members += 1;
    }

    pub(crate) fn leave(&mut self) {
        self.members = self.members.saturating_sub(1);
    }

    /// Connections that use it.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// A connection's handshake is complete: its full packets cost `packet_bytes`, and the peer's socket has
    /// `free_bytes`.
    pub(crate) fn connected(&mut self, config: &Config, packet_bytes: u64, free_bytes: u32) {
        self.free_bytes = free_bytes;
        if self.is_connected {
            return self.congestion.set_packet(packet_bytes);
        }
        self.is_connected = true;
        let (initial, max) = (config.window_initial_bytes, config.window_max_bytes);
        self.congestion = Controller::new(config.congestion, initial, packet_bytes, max, config.target_delay);
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.members > 1
    }

    /// Bytes that may be in flight.
    pub(crate) fn window(&self) -> u64 {
        self.congestion.window_bytes().min(u64::from(self.free_bytes))
    }

    /// Whether a unit that costs `bytes` fits the window. One always does.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.inflight_bytes == 0 || self.inflight_bytes + bytes <= self.window()
    }

    /// A unit has met so much queueing.
    pub(crate) fn delayed(&mut self, delay: Duration) {
        self.delay_ns = (self.delay_ns * 15 + delay.0) / 16;
    }

    /// Queueing delay, smoothed over all units.
    pub(crate) fn delay(&self) -> Duration {
        Duration(self.delay_ns)
    }
}
