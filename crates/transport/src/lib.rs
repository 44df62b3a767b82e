//! Multi-path reliable transport: numbering, acknowledgement, paths, loss, congestion. Sans-IO.
//!
//! One [`Connection`] is both directions between two queue pairs. It decides which packet goes when and
//! on which path, what has arrived, what is lost, and how much may be in flight. It must not know what
//! a message means, where its bytes lie, which keys guard them, or what a socket is: a message is a
//! length and the submitter's token, a packet is a [`Fragment`] that the submitter turns into bytes
//! again for every retransmission.
//!
//! # Contract with the driver
//!
//! The connection does nothing by itself. Its methods are handed the time, `now`, which never goes
//! backwards, and what happened; what it wants done is polled. After any call, and in this order:
//!
//! 1. Hand over everything that has arrived ([`Connection::on_hello`], [`Connection::on_ack`],
//!    [`Connection::arrival`]), **before** time-outs: a time-out must not overtake the
//!    acknowledgement that waits in a socket.
//! 2. [`Connection::on_timeout`], if [`Connection::next_timeout`] has passed. Calling it too often is
//!    harmless.
//! 3. [`Connection::poll_hello`], [`Connection::poll_ack`] and [`Connection::poll_unit`], each until it
//!    returns `None` (or the driver's budget ends). [`Connection::holds_ack`] says whether an ACK had better wait for
//!    a unit to travel with.
//! 4. [`Connection::next_timeout`], and sleep until then or until something arrives.
//!
//! A packet that [`Connection::arrival`] calls new is acknowledged by the next ACK unless the responder
//! takes it back with [`Connection::unreceive`] first: only its outcome makes an acknowledgement true.
//!
//! # How to read it
//!
//! [`config`], then `sendspace` (messages → packets and their state) and `units` (what is in flight),
//! `receiver` (what has arrived), `dialogue` (when that is told), `loss`, the two policy seams [`paths::selector`] and [`congestion`],
//! `sender` which ties the sending half together, and `connection`, the whole.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bitmap;
pub mod config;
pub mod congestion;
mod connection;
mod dialogue;
mod handshake;
mod loss;
mod path_mtu;
pub mod paths;
mod receiver;
mod report;
mod sender;
mod sendspace;
mod trunk;
mod units;

pub use config::{Config, ConfigError, CongestionKind, Identity, SelectorKind};
pub use connection::Connection;
pub use dialogue::ANSWER_WAIT;
pub use report::Snapshot;
pub use trunk::Trunk;

use srdma_seams::{PathId, TransmitId};
use srdma_wire::Space;

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

/// What consecutive packet numbers stand for that belong to one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first. Each has as many bytes, but the message's last may have less.
    pub first: Fragment,
    /// Packets, at least 1.
    pub packets: u8,
    /// Bytes of all.
    pub bytes: u32,
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
    /// Full packets no longer reach the peer, and what is in flight cannot be cut to the size that does.
    PathMtu,
}

/// An acknowledgement that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Acknowledgement of packets never sent")]
pub struct BogusAck;
