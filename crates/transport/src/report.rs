//! What a connection shows of itself to statistics.

use srdma_seams::Duration;

/// State of a connection at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Bytes in flight, headers and receiver's overhead included.
    pub inflight_bytes: u64,
    /// Congestion window.
    pub window_bytes: u64,
    /// Free bytes of the receive socket buffer that the peer last told.
    pub peer_free_bytes: u32,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Smallest round-trip time of late.
    pub rtt_min: Duration,
    /// Queueing delay, smoothed over all paths.
    pub queueing_delay: Duration,
    /// Retransmission time-out, before back-off.
    pub rto: Duration,
    /// Paths held dead.
    pub paths_suspected: u16,
    /// Messages handed in and not finished, both numberings.
    pub messages_waiting: u64,
    /// Packet numbers between the first one missing here and the highest received, the larger of both numberings.
    pub ahead_packets: u64,
}
