//! The software RNIC: queue-pair machines, ordering, completions, and who may do what. Sans-IO.
//!
//! placeholder for the head documentation
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod world;

use core::net::{IpAddr, SocketAddr};

use srdma_abi::{QpAttributes, QpInit, QpMask};
use srdma_memory::Rights;
use srdma_seams::{ConnectionId, Cqn, MrKey, Now, Observer, PdId, Qpn};
use srdma_transport::Config;
use srdma_wire::Packet;
use world::{PayloadRef, World};

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
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Where from.
    pub from: SocketAddr,
    /// Parsed header.
    pub packet: Packet,
    /// Its payload.
    pub payload: PayloadRef,
    /// Whether it carried a congestion mark.
    pub ce: bool,
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

/// A device: all its queue pairs, regions and completion queues.
pub struct Nic {}

#[allow(unused_variables)]
impl Nic {
    /// A device with nothing in it.
    pub fn new(config: NicConfig) -> Nic {
        todo!()
    }

    // --- control: called by the door, between data-path calls ----------------------------------

    /// Makes a protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId, ControlError> {
        todo!()
    }
    /// Removes it; busy while regions or queue pairs use it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), ControlError> {
        todo!()
    }
    /// Registers `length` bytes at virtual address `base`, named `iova` by users of the key.
    pub fn register(
        &mut self,
        pd: PdId,
        base: u64,
        length: u64,
        iova: u64,
        rights: Rights,
    ) -> Result<MrKey, ControlError> {
        todo!()
    }
    /// After this returns no access through the key can follow.
    pub fn deregister(&mut self, key: MrKey) -> Result<(), ControlError> {
        todo!()
    }
    /// Makes a completion queue; its ring is the world's.
    pub fn create_cq(&mut self) -> Result<Cqn, ControlError> {
        todo!()
    }
    /// Removes it; busy while queue pairs use it.
    pub fn destroy_cq(&mut self, cq: Cqn) -> Result<(), ControlError> {
        todo!()
    }
    /// Makes an RC queue pair with the number `qpn`, which the engine chose and keeps in quarantine
    /// after use; `connection` is 64 random bits from the operating system.
    pub fn create_qp(
        &mut self,
        qpn: Qpn,
        init: &QpInit,
        connection: ConnectionId,
    ) -> Result<(), ControlError> {
        todo!()
    }
    /// Changes attributes and state, as ibv_modify_qp(3). On the way to RTR the peer's address and
    /// slot port are resolved and the handshake starts; to ERR, everything is flushed. `connection`
    /// is a fresh random id, used if the transition starts a new connection (RESET → … → RTR).
    pub fn modify_qp(
        &mut self,
        now: Now,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: QpMask,
        connection: ConnectionId,
        world: &mut impl World,
        obs: &mut impl Observer,
    ) -> Result<(), ControlError> {
        todo!()
    }
    /// Shows attributes and how it was made.
    pub fn query_qp(&self, qpn: Qpn) -> Result<(QpAttributes, QpInit), ControlError> {
        todo!()
    }
    /// Removes it: tells the peer (CLOSE), delivers no completion afterwards, releases held payloads.
    pub fn destroy_qp(
        &mut self,
        now: Now,
        qpn: Qpn,
        world: &mut impl World,
        obs: &mut impl Observer,
    ) -> Result<(), ControlError> {
        todo!()
    }

    // --- data: called by the worker ---------------------------------------------------------

    /// The program has posted to the send ring of `qpn`.
    pub fn doorbell_send(&mut self, now: Now, qpn: Qpn, world: &mut impl World, obs: &mut impl Observer) {
        todo!()
    }
    /// The program has posted to the receive ring of `qpn`. Needed only in the error state, where
    /// receives are flushed at once; otherwise receives are taken when messages come.
    pub fn doorbell_recv(&mut self, now: Now, qpn: Qpn, world: &mut impl World, obs: &mut impl Observer) {
        todo!()
    }
    /// A batch of packets arrived. Bytes are placed, completions delivered, ACKs and NAKs sent.
    pub fn receive(&mut self, now: Now, batch: &[Received], world: &mut impl World, obs: &mut impl Observer) {
        todo!()
    }
    /// Sends what windows allow, at most `bursts` bursts, round-robin over queue pairs with work.
    /// Returns whether more could be sent at once.
    pub fn pump(&mut self, now: Now, bursts: usize, world: &mut impl World, obs: &mut impl Observer) -> bool {
        todo!()
    }
    /// When [`Nic::on_time`] wants to be called next.
    pub fn next_timeout(&mut self) -> Option<Now> {
        todo!()
    }
    /// Time has passed.
    pub fn on_time(&mut self, now: Now, world: &mut impl World, obs: &mut impl Observer) {
        todo!()
    }
}
