//! Settings of a connection, as plain values.

use srdma_seams::{ConnectionId, Duration, Qpn};

pub use crate::congestion::CongestionKind;
pub use crate::paths::selector::SelectorKind;

/// Settings of one connection. [`Config::validate`] names what is out of range.
#[derive(Clone, Debug)]
pub struct Config {
    /// Paths to spray over, 1–256.
    pub paths: u16,
    /// How the next path is chosen.
    pub selector: SelectorKind,
    /// Packets that travel together on one path, 1–64. Hardware and simulator use 1.
    pub unit_packets_max: u8,
    /// Bytes that travel together on one path, headers included.
    pub unit_bytes_max: u32,
    /// Receive window per space in packets, a power of two up to 2¹⁷.
    pub window_packets: u32,
    /// Congestion window at start, bytes.
    pub window_initial_bytes: u64,
    /// Congestion window at most, bytes.
    pub window_max_bytes: u64,
    /// What decides the window.
    pub congestion: CongestionKind,
    /// A window for each path instead of one for all: an ablation for simulations, see `congestion::per_path`.
    pub path_windows: bool,
    /// Queueing delay that the window aims at.
    pub target_delay: Duration,
    /// Times that end points need at their best: nothing shorter is taken for a delay of the network, a reordering or a
    /// loss. A software end point's scheduler makes it 100 µs; hardware and simulator have a microsecond or so.
    pub grain: Duration,
    /// Shortest retransmission time-out. The paper's hardware uses 250 µs; a software receiver can
    /// lose its core for several milliseconds.
    pub rto_min: Duration,
    /// Longest retransmission time-out, however often it has backed off: a path that is there again is noticed as soon.
    pub rto_max: Duration,
    /// Local ACK timeout (4.096 µs × 2^timeout of the QP); zero means never give up.
    pub ack_timeout: Duration,
    /// Time-outs without any progress that are allowed before the connection fails.
    pub retry_count: u8,
    /// Bytes that a packet costs the receiver's socket beyond its own.
    pub packet_overhead_bytes: u32,
    /// First packet number in the request space (tests start near the wraps).
    pub first_psn: u64,
    /// First message number in both spaces (tests start near the wraps; both sides must agree).
    pub first_msn: u64,
    /// A bug to commit on purpose, so that tests can show that they would notice it.
    #[doc(hidden)]
    pub planted: Option<Planted>,
}

/// Bugs that can be planted.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The first SACK block of each ACK is ignored.
    IgnoreBlock,
    /// Congestion marks are credited to the path that the ACK came on.
    EcnToAckPath,
    /// The retransmission time-out's back-off is never reset.
    KeepBackoff,
    /// The head is refused when much has arrived out of order.
    RefuseHead,
    /// A duplicate counts as new.
    DuplicateIsNew,
    /// A spurious loss is not undone.
    NoUndo,
    /// A refused unit still counts as in flight.
    LeakRefused,
    /// Message numbers are compared as the wire's 32 bits.
    NarrowMsn,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            paths: 128,
            selector: SelectorKind::default(),
            unit_packets_max: 64,
            unit_bytes_max: 64_000,
            window_packets: 1 << 17,
            window_initial_bytes: 256 << 10,
            window_max_bytes: 64 << 20,
            congestion: CongestionKind::Delay,
            path_windows: false,
            target_delay: Duration::from_millis(2),
            grain: Duration::from_micros(100),
            rto_min: Duration::from_millis(10),
            rto_max: Duration::from_millis(250),
            ack_timeout: Duration::from_millis(67),
            retry_count: 7,
            packet_overhead_bytes: 256,
            first_psn: 0,
            first_msn: 0,
            planted: None,
        }
    }
}

/// Who the two ends are.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Our queue pair.
    pub local_qpn: Qpn,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// Random id that we want to see in packets to us. From the operating system's entropy.
    pub connection: ConnectionId,
    /// Our address (IPv4 as IPv4-mapped).
    pub address: [u8; 16],
    /// UDP payload bytes that our interface can send in one packet.
    pub datagram_bytes_max: u16,
    /// Feature bits that we offer, see `srdma_wire::packet`.
    pub features: u32,
}

/// A setting that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// See [`Config::paths`].
    #[error("Paths must be 1 to 256, not {0}")]
    Paths(u16),
    /// See [`Config::unit_packets_max`].
    #[error("A unit must have 1 to 64 packets, not {0}")]
    UnitPackets(u8),
    /// See [`Config::window_packets`].
    #[error("The receive window must be a power of two up to 131072 packets, not {0}")]
    Window(u32),
}

/// IBTA 9.9.2.1.1 lets a device take one to four times the local ACK timeout for each try. A peer in software is
/// silent while its process is stopped.
const TIMEOUTS_PER_TRY: u64 = 3;

impl Config {
    /// Silence after which a connection fails; `None` for never.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let tries = u64::from(self.retry_count) + 1;
        let each = self.ack_timeout.max(self.rto_min) * TIMEOUTS_PER_TRY;
        (self.ack_timeout > Duration::ZERO).then(|| each * tries)
    }

    /// Checks every range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(1..=256).contains(&self.paths) {
            return Err(ConfigError::Paths(self.paths));
        }
        if !(1..=64).contains(&self.unit_packets_max) {
            return Err(ConfigError::UnitPackets(self.unit_packets_max));
        }
        if !self.window_packets.is_power_of_two() || self.window_packets > 1 << 17 {
            return Err(ConfigError::Window(self.window_packets));
        }
        Ok(())
    }
}
