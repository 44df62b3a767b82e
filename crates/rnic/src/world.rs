//! What a device needs from the world around it: queues to read, bytes to move, packets to send.
//!
//! Each world implements these three: a socket engine in a program's process, a daemon, a simulator
//! with no data at all, a test with pattern-checking memory.

use core::net::SocketAddr;

use srdma_abi::entry::EntryError;
use srdma_abi::{AsyncEvent, Completion, RecvEntry, SendEntry};
use srdma_memory::Segment;
use srdma_seams::{Cqn, PathId, Qpn};
use srdma_wire::{Data, Packet};

/// What lies next in a work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nothing.
    Empty,
    /// An entry, now in the caller's buffer. It stays in the ring until retired.
    Entry {
        /// Byte offset of the entry from the ring's first unit: inline data is at
        /// `offset + SEND_BODY_OFFSET` of `AddressSpace::SendRing`, contiguous modulo nothing (a ring
        /// never wraps within an entry).
        offset: u32,
        /// Units it takes, padding before it included; given back with `retire_*`.
        units: u32,
    },
    /// Bytes that are no entry. The queue is unusable from here on.
    Bad(EntryError),
}

/// The completion ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqFull;

/// Work queues and completion rings.
pub trait Queues {
    /// Takes the next entry of the send ring.
    fn take_send(&mut self, qpn: Qpn, entry: &mut SendEntry) -> Taken;
    /// The oldest `units` units of the send ring may be overwritten.
    fn retire_send(&mut self, qpn: Qpn, units: u32);
    /// Takes the next entry of the receive ring.
    fn take_recv(&mut self, qpn: Qpn, entry: &mut RecvEntry) -> Taken;
    /// The oldest `units` units of the receive ring may be overwritten.
    fn retire_recv(&mut self, qpn: Qpn, units: u32);
    /// Appends a completion; `solicited` decides whether a solicited-only arm is triggered (errors
    /// always are).
    fn complete(&mut self, cq: Cqn, completion: &Completion, solicited: bool) -> Result<(), CqFull>;
    /// Something happened outside any queue.
    fn raise(&mut self, event: AsyncEvent);
}

/// Payload of a received packet, valid until `Nic::receive` returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadRef {
    /// Receive buffer (the world's numbering).
    pub buffer: u32,
    /// First byte within it.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}

/// A payload kept by the world beyond the call that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldSlot(pub u32);

/// Where copied bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A received packet's payload, from `offset` within `PayloadRef::offset`.
    Payload(PayloadRef),
    /// A held payload, from this byte of it on.
    Held(HoldSlot, u32),
    /// These eight bytes: the result of an atomic.
    Bytes([u8; 8]),
}

/// One copy into memory: `to.length` bytes from `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Destination.
    pub to: Segment,
    /// Source.
    pub source: Source,
}

/// Memory that should be there is not mapped, or protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFault {
    /// Which copy of the batch; those before it were done, it and those after it were not (or in part).
    pub index: usize,
}

/// A 64-bit atomic on memory; native byte order (`IBV_ATOMIC_HCA`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Swap in `swap` if the value is `compare`.
    CompareSwap {
        /// Expected.
        compare: u64,
        /// New.
        swap: u64,
    },
    /// Add, wrapping.
    FetchAdd {
        /// Addend.
        add: u64,
    },
}

/// Moves bytes and never faults.
pub trait Mover {
    /// Does the copies in order; stops at the first that faults.
    fn copy(&mut self, batch: &[Copy]) -> Result<(), CopyFault>;
    /// Does an atomic on 8 bytes; returns the value before.
    fn atomic(&mut self, at: Segment, op: AtomicOp) -> Result<u64, CopyFault>;
    /// Keeps a payload; `None` when the bounded store is full.
    fn hold(&mut self, payload: PayloadRef) -> Option<HoldSlot>;
    /// Gives a held payload back.
    fn release(&mut self, slot: HoldSlot);
    /// CRC-32C of a payload, for the optional payload check.
    fn payload_crc(&mut self, payload: PayloadRef) -> u32;
}

/// Packets that leave together on one path.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// Peer's address and slot port.
    pub peer: SocketAddr,
    /// Path, i.e. source port.
    pub path: PathId,
    /// Traffic class byte (DSCP; the ECN bits are the world's).
    pub traffic_class: u8,
    /// The packets, data only.
    pub runs: &'a [Outgoing],
    /// Payload segments of all packets, in order.
    pub segments: &'a [Segment],
}

/// Packets of a burst that carry one part of a message after the other: a thousand packets cost little
/// more than one until their headers are written.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Header of the first; the others continue it ([`srdma_wire::emit_run`]).
    pub header: Data,
    /// Packets, at least 1.
    pub packets: u8,
    /// Payload bytes of each packet but the last, which has the rest.
    pub payload_each: u32,
    /// Payload bytes in all.
    pub payload_bytes: u32,
    /// How many of the burst's segments are the payload. Their cuts need not be those between packets.
    pub segment_count: u16,
}

impl Outgoing {
    /// Each packet's header and payload bytes, in order.
    pub fn packets(&self) -> impl Iterator<Item = (Data, u32)> + '_ {
        (0..self.packets).map_while(|step| {
            let before = self.payload_each * u32::from(step);
            let bytes = (self.payload_bytes - before).min(self.payload_each);
            Some((self.header.continued(step, self.payload_each)?, bytes))
        })
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendRefusal {
    /// The socket is full now.
    Busy,
    /// A payload segment of this packet is not mapped.
    Fault {
        /// Its position in the burst, counted over all runs.
        packet: usize,
    },
    /// The kernel refuses the destination (no route, no permission); the text is in the world's log.
    Unreachable,
    /// The packet is too big for the way there.
    TooBig,
}

/// Sends packets.
pub trait Link {
    /// Sends a burst, all or nothing.
    fn send_burst(&mut self, burst: &Burst<'_>) -> Result<(), SendRefusal>;
    /// Sends one packet without payload, zero-padded to at least `pad_bytes`.
    fn send_control(
        &mut self,
        peer: SocketAddr,
        path: PathId,
        packet: &Packet,
        pad_bytes: u16,
    ) -> Result<(), SendRefusal>;
    /// Sends a burst of one packet and an ACK to the same peer, which may share a datagram; refused together.
    fn send_burst_with_ack(&mut self, burst: &Burst<'_>, ack: &Packet) -> Result<(), SendRefusal> {
        self.send_burst(burst)?;
        self.send_control(burst.peer, burst.path, ack, 0)
    }
    /// Whether ACKs may wait up to [`ANSWER_WAIT`](srdma_transport::ANSWER_WAIT) for what the program sends in answer:
    /// only where somebody calls [`Nic::on_time`](crate::Nic::on_time) then, and waking him costs nothing.
    fn acks_may_wait(&self) -> bool {
        false
    }
    /// Free bytes of the receive socket buffer, to tell peers.
    fn free_bytes(&self) -> u32;
}

/// Everything.
pub trait World: Queues + Mover + Link {}
impl<T: Queues + Mover + Link> World for T {}
