//! The software RNIC: queue-pair machines, ordering, completions, and who may do what. Sans-IO.
//!
//! A [`Nic`] is a device. Control calls make its objects; the worker hands it doorbells, packets and
//! the time, and lets it send. Everything that touches the outside goes through the three traits of
//! [`world`]: work queues and completion rings, memory, packets. It must not know what a socket, a
//! thread or a page is, which door a program came through, or how transport numbers and recovers.
//!
//! # Contract with the driver
//!
//! `now` never goes backwards. After any call: [`Nic::pump`] until it returns false (or the driver's
//! budget ends), then sleep until [`Nic::next_timeout`], a doorbell or a packet. Packets that wait in
//! a socket go to [`Nic::receive`] before [`Nic::on_time`]. A refusal of [`world::Link::send_burst`]
//! as busy makes `pump` return false; the queue pair tries again within 200 µs.
//!
//! # How to read it
//!
//! `nic` (dispatch, turns, timers; `nic/control` for control calls), then `qp` (one queue pair) with its
//! halves `requester` and `responder` (`receives` and `answers` belong to the latter); `ordering` and
//! `overlap` say what "as if in order" means; `emit` makes packets; `authz` is the one place that says
//! who may touch which memory; `flush` is the way into the error state, `place` the batch of copies;
//! `foresight` says where packets that wait will go, and `run` takes those that went there together; `scatter` and
//! `rnr` are small parts; `doom` fails work requests on purpose.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod answers;
mod authz;
mod batch;
mod cx;
mod doom;
mod emit;
mod flush;
mod foresight;
mod nic;
mod ordering;
mod overlap;
mod place;
mod qp;
mod receives;
mod requester;
mod responder;
mod rnr;
mod run;
mod scatter;
pub mod world;

pub use batch::{Batch, Run};
pub use foresight::{follows, Waiting};
pub use nic::Nic;

use core::net::IpAddr;

use srdma_seams::Faults;
use srdma_transport::Config;

/// How much reordering a program may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// No byte of a message is placed before all earlier messages have landed, nor out of order.
    Strict,
    /// Bytes are placed where they belong at once, but the last packet of a WRITE only after all before it.
    #[default]
    Default,
    /// As if every region were registered with RELAXED_ORDERING.
    Relaxed,
}

/// Settings of a device.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// Our address.
    pub address: IpAddr,
    /// UDP payload bytes that the interface can send in one packet.
    pub datagram_bytes_max: u16,
    /// Settings of each connection; time-outs are replaced by the QP's attributes.
    pub transport: Config,
    /// See [`Order`].
    pub order: Order,
    /// Seed of spraying and other harmless chance.
    pub seed: u64,
    /// What is to fail on purpose: of a plan of faults, the failures of work requests. The rest is for whoever moves
    /// the packets and drives the device.
    pub faults: Faults,
}

/// Why a control call was refused. The verbs door turns these into errno.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No such object (EINVAL).
    #[error("No such {0}")]
    Unknown(&'static str),
    /// Still in use (EBUSY).
    #[error("{0} is still in use")]
    Busy(&'static str),
    /// A limit is reached (ENOMEM).
    #[error("Limit of {limit} {what} reached")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How many are allowed.
        limit: u64,
    },
    /// An argument is out of range (EINVAL).
    #[error("{0}")]
    Invalid(&'static str),
    /// The transition does not exist, or its mask lacks or exceeds what it takes (EINVAL).
    #[error("Cannot go from {from:?} to {to:?}: {why}")]
    Transition {
        /// State now.
        from: srdma_abi::QpState,
        /// State asked for.
        to: srdma_abi::QpState,
        /// What is wrong.
        why: &'static str,
    },
}
