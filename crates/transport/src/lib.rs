//! Multi-path reliable transport: numbering, acknowledgement, paths, loss, congestion. Sans-IO.
//!
//! placeholder for the head documentation
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod config;

pub use config::{Config, ConfigError, Identity, SelectorKind};

use core::net::SocketAddr;

use srdma_seams::{Now, Observer, PathId, Rng, TransmitId};
use srdma_wire::{Ack, Data, Hello, Space};

/// One transmission: consecutive packets of one space that leave together on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Numbering that the packets belong to.
    pub space: Space,
    /// Number of the transmission.
    pub transmit: TransmitId,
    /// Path to send it on.
    pub path: PathId,
    /// First packet number (64-bit).
    pub first: u64,
    /// Packets, 1–64.
    pub packets: u8,
    /// Whether any packet of it was sent before.
    pub retransmission: bool,
}

/// What one packet number stands for. The same number always stands for the same fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Packet number (64-bit; the wire carries the low 32).
    pub seq: u64,
    /// Message number (64-bit; the wire carries the low 32).
    pub msn: u64,
    /// What the submitter called the message.
    pub token: u64,
    /// Bytes of the whole message.
    pub message_length: u32,
    /// Offset of this fragment.
    pub offset: u32,
    /// Bytes of this fragment.
    pub length: u32,
}

/// What an arriving data packet is to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Not seen before. It is marked received; if the responder cannot use it, it says so with
    /// [`Connection::unreceive`] before the next [`Connection::poll_ack`].
    New {
        /// Packet number (64-bit).
        seq: u64,
        /// Message number (64-bit).
        msn: u64,
    },
    /// Seen before; an ACK is due, nothing else.
    Duplicate,
    /// So old that the receiver no longer knows, but before the window, so received; as Duplicate.
    Stale,
    /// Beyond the receive window: as if it never came.
    Beyond,
}

/// What a HELLO led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloOutcome {
    /// Nothing new.
    Known,
    /// The handshake is now complete in our sending direction.
    Connected,
    /// The peer speaks another version.
    VersionMismatch(u8),
    /// It names a connection that is not this one (restarted peer, replay): dropped.
    Foreign,
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// `retry_count` time-outs without any progress after the handshake.
    NoAnswer,
    /// The same, before the handshake was complete.
    NoHandshake,
}

/// An acknowledgement that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Acknowledgement of packets never sent")]
pub struct BogusAck;

/// Both directions of one connection.
pub struct Connection {}

#[allow(unused_variables)]
impl Connection {
    /// A connection that has said nothing yet. `rng` decides the spraying.
    pub fn new(config: Config, identity: Identity, rng: Rng, now: Now) -> Result<Connection, ConfigError> {
        todo!()
    }

    // --- handshake ---------------------------------------------------------------------------

    /// Starts the handshake: a HELLO is due. It is repeated only while something waits to be sent.
    pub fn start(&mut self, now: Now) {
        todo!()
    }
    /// The next HELLO to send, if one is due. Send it padded to `probe_bytes`.
    pub fn poll_hello(&mut self, now: Now, free_bytes: u32, obs: &mut impl Observer) -> Option<Hello> {
        todo!()
    }
    /// A HELLO for this queue pair came from `from`.
    pub fn on_hello(
        &mut self,
        now: Now,
        hello: &Hello,
        from: SocketAddr,
        obs: &mut impl Observer,
    ) -> HelloOutcome {
        todo!()
    }
    /// Whether data may be sent.
    pub fn is_connected(&self) -> bool {
        todo!()
    }
    /// Connection id that packets to the peer carry (0 before the handshake).
    pub fn remote_connection(&self) -> srdma_seams::ConnectionId {
        todo!()
    }
    /// Payload bytes of a full packet, once connected.
    pub fn payload_bytes(&self) -> u32 {
        todo!()
    }

    // --- sending -----------------------------------------------------------------------------

    /// Appends a message of `length` bytes; returns its message number (64-bit, counted from
    /// `first_msn`). Allowed before the handshake is complete.
    pub fn submit(&mut self, now: Now, space: Space, length: u32, token: u64) -> u64 {
        todo!()
    }
    /// The next unit to send now, if window and state allow one. Counted as sent.
    pub fn poll_unit(&mut self, now: Now, obs: &mut impl Observer) -> Option<Unit> {
        todo!()
    }
    /// What packet number `seq` of `space` stands for, while its message is not finished.
    pub fn fragment(&self, space: Space, seq: u64) -> Option<Fragment> {
        todo!()
    }
    /// The unit could not be sent (socket full): take it back; it is offered again later.
    pub fn unit_refused(&mut self, now: Now, unit: &Unit, obs: &mut impl Observer) {
        todo!()
    }
    /// An ACK for this connection (its connection id already checked).
    pub fn on_ack(&mut self, now: Now, ack: &Ack, obs: &mut impl Observer) -> Result<(), BogusAck> {
        todo!()
    }
    /// Message number (64-bit) before which the peer says that every message of `space` has landed.
    pub fn peer_landed(&self, space: Space) -> u64 {
        todo!()
    }
    /// The peer refused request `msn` (low 32 bits) as not ready: pause requests from it on for
    /// `wait`, then send them again. Responses go on. False if the message is not outstanding.
    pub fn pause(&mut self, now: Now, msn: u32, wait: srdma_seams::Duration) -> bool {
        todo!()
    }

    // --- receiving ---------------------------------------------------------------------------

    /// A data packet for this connection (its connection id already checked).
    pub fn arrival(&mut self, now: Now, data: &Data, ce: bool) -> Arrival {
        todo!()
    }
    /// The responder could not use packet `seq` after all: forget that it came.
    pub fn unreceive(&mut self, space: Space, seq: u64) {
        todo!()
    }
    /// The responder says: every message of `space` before `msn` (64-bit) has landed.
    pub fn set_landed(&mut self, space: Space, msn: u64) {
        todo!()
    }
    /// The next ACK to send, if one is due now. Called after each batch of arrivals and on time-outs.
    pub fn poll_ack(&mut self, now: Now, free_bytes: u32, obs: &mut impl Observer) -> Option<Ack> {
        todo!()
    }

    // --- time --------------------------------------------------------------------------------

    /// When [`Connection::on_timeout`] wants to be called next.
    pub fn next_timeout(&self) -> Option<Now> {
        todo!()
    }
    /// Time has passed.
    pub fn on_timeout(&mut self, now: Now, obs: &mut impl Observer) -> Result<(), Failure> {
        todo!()
    }
}
