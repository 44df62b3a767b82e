//! UDP sockets as the paths of a fabric: bursts out with segmentation offload, coalesced bursts in.
//!
//! An [`Endpoint`] is one local address. It claims a *slot* by binding that slot's UDP port, receives
//! there, and sends from *path sockets*, whose ephemeral source ports are what the fabric's hash spreads.
//! Payload leaves straight from the program's memory; memory that is not there ends as an error.
//!
//! This room knows packets only as bytes with an encoder for headers. It must not know what a queue
//! pair, a window or an acknowledgement is, and it never decides when to send.
//!
//! Read [`endpoint`] first, then [`outbox`] (how a burst becomes system calls) and [`receive`] (how a
//! system call becomes packets). [`faulty`] and [`capture`] stand between an endpoint and its sockets
//! when asked for and cost nothing otherwise. [`interfaces`] and [`route`] answer which addresses this
//! machine has and how large a packet may be on the way to another.

pub mod capture;
pub mod counters;
pub mod endpoint;
pub mod error;
mod faulty;
pub mod interfaces;
mod notice;
pub mod outbox;
mod probe;
pub mod receive;
pub mod route;
pub mod scatter;
mod sockets;
mod sys;

pub use capture::Capture;
pub use counters::Counters;
pub use endpoint::{Burst, Endpoint, Options, SlotHandle};
pub use error::{OpenError, PushError, SendError};
pub use outbox::{BURST_PACKETS_MAX, DATAGRAM_BYTES_MAX};
pub use receive::{ReceiveBatch, Segment, Segments};
pub use scatter::{Cut, Glance};
pub use sockets::PATHS_MAX;
pub use sys::{Identity, RawSlice};
