//! The values that packets carry.

use srdma_seams::{ConnectionId, PathId, Qpn, TransmitId};

/// Protocol version spoken here. A peer with another one is refused in the handshake.
pub const VERSION: u8 = 1;
/// Most SACK blocks in one ACK.
pub const ACK_BLOCKS_MAX: usize = 32;
/// Most received-unit reports in one ACK.
pub const ACK_UNITS_MAX: usize = 64;

/// Which of the two numberings of a direction a packet belongs to.
///
/// Requests and responses are numbered, acknowledged and recovered apart, so that a request that
/// waits (receiver not ready) never holds back a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Space {
    /// SEND, WRITE, READ requests and atomic requests.
    Request = 0,
    /// READ data and atomic results.
    Response = 1,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // values live on the stack of one function
pub enum Packet {
    /// Handshake.
    Hello(Hello),
    /// A fragment of a message; its payload follows the header.
    Data(Data),
    /// Acknowledgement of one space.
    Ack(Ack),
    /// Refusal of one message.
    Nak(Nak),
    /// The sender's queue pair is gone.
    Close(Close),
    /// Probe of reachability and paths; needs no queue pair.
    Echo(Echo),
}

/// Handshake packet. Both sides send it, padded so that a reply is never longer than what it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Receiver's queue pair.
    pub dest_qpn: Qpn,
    /// Sender's queue pair.
    pub src_qpn: Qpn,
    /// Protocol version of the sender.
    pub version: u8,
    /// Connection id that the sender wants to see in packets to it.
    pub connection: ConnectionId,
    /// Connection id of the receiver as the sender knows it; 0 when it does not yet.
    pub echo: ConnectionId,
    /// The sender is not yet sure of the receiver and wants an answer.
    pub reply_wanted: bool,
    /// Part of a search for the packet size after the handshake: with `reply_wanted` a probe; without, its
    /// answer, whose `proven_bytes` is the largest probe that came since the last answer.
    pub measuring: bool,
    /// Address that the sender believes it has (IPv4 as IPv4-mapped), to detect NAT.
    pub claimed_address: [u8; 16],
    /// Address and port that the sender saw the receiver's last HELLO come from; zeros if none.
    pub observed_address: [u8; 16],
    /// See `observed_address`.
    pub observed_port: u16,
    /// Bytes of the UDP payload of this packet, padding included: the size it proves.
    pub probe_bytes: u16,
    /// `probe_bytes` of the largest HELLO received from the receiver; 0 if none.
    pub proven_bytes: u16,
    /// Paths that the sender will spray over (1–256).
    pub paths: u16,
    /// Packets that the sender's receive window holds, per space.
    pub window_packets: u32,
    /// Free bytes of the sender's receive socket buffer.
    pub free_bytes: u32,
    /// Feature bits offered; unknown ones are ignored, both must have one for it to be on.
    pub features: u32,
    /// First PSN the sender will use in the request space (QP attribute `sq_psn`).
    pub first_psn: u32,
}

/// Feature bit: every packet carries a keyed tag (format fixed, not yet in use).
pub const FEATURE_TAG: u32 = 1;
/// Feature bit: data packets carry a CRC-32C of their payload.
pub const FEATURE_PAYLOAD_CRC: u32 = 2;
/// Feature bit: the packet size may be searched for again, and packets that have become too large come in
/// parts.
pub const FEATURE_PARTS: u32 = 4;
/// Most parts of a packet.
pub const PARTS_MAX: u8 = 64;

/// Which part of its packet's payload a datagram carries. Parts of one packet share its number; all but the last
/// are of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Position, less than `count`.
    pub index: u8,
    /// Parts of the packet, 2–64.
    pub count: u8,
}

/// Which transmission a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitTag {
    /// Number of the transmission.
    pub transmit: TransmitId,
    /// Path it was sent on.
    pub path: PathId,
    /// Position of this packet in the unit.
    pub index: u8,
    /// Packets in the unit (1–64).
    pub packets: u8,
}

/// Which bytes of which message a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Message number within its space, counted from 0 for each connection; low 32 bits.
    pub msn: u32,
    /// Bytes of the whole message as transported: 0 for READ requests, atomic requests and atomic
    /// results, which carry no payload.
    pub length: u32,
    /// Offset of this packet's payload.
    pub offset: u32,
}

/// A data packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Receiver's queue pair.
    pub dest_qpn: Qpn,
    /// Receiver's connection id.
    pub connection: ConnectionId,
    /// Packet number within its space, low 32 bits; a retransmission has the same one.
    pub psn: u32,
    /// The transmission it is part of.
    pub unit: UnitTag,
    /// The message it is part of. Its offset is that of the bytes in this datagram.
    pub message: Message,
    /// Which part of the packet this is, if it does not travel whole.
    pub part: Option<Part>,
    /// Raise a solicited event when the message completes.
    pub solicited: bool,
    /// CRC-32C of the payload, if that feature is on.
    pub payload_crc: Option<u32>,
    /// Keyed tag, if that feature is on. Reserved: the format is fixed, its computation is not yet.
    pub tag: Option<[u8; 16]>,
    /// What the message is.
    pub op: Op,
}

/// Operation part of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Place the payload at `address` (already advanced by the offset).
    Write {
        /// Final address of this packet's first byte.
        address: u64,
        /// Remote key.
        rkey: u32,
    },
    /// The same, and consume receive number `receive`.
    WriteImm {
        /// Final address of this packet's first byte.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Immediate as the program gave it.
        imm: u32,
        /// Which receive, counted from 0 for each connection.
        receive: u32,
        /// As [`Ack::landed`] of the request space, so that a message that a program sends because one of the
        /// receiver's came never overtakes the news that it came. Low 32 bits.
        landed: u32,
    },
    /// Place the payload in receive number `receive`.
    Send {
        /// Which receive, counted from 0 for each connection.
        receive: u32,
        /// Immediate, if the operation has one.
        imm: Option<u32>,
        /// As in `WriteImm`.
        landed: u32,
    },
    /// Send back `length` bytes at `address`.
    ReadRequest {
        /// First byte.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Bytes wanted.
        length: u32,
    },
    /// Part of the answer to the READ request with message number `request`.
    ReadResponse {
        /// Request-space message number of the request, low 32 bits.
        request: u32,
    },
    /// Compare and swap the 8 bytes at `address`.
    CompareSwap {
        /// First byte, 8-byte aligned.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Swapped in only if equal to this.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Add to the 8 bytes at `address`.
    FetchAdd {
        /// First byte, 8-byte aligned.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Addend.
        add: u64,
    },
    /// Result of the atomic with message number `request`.
    AtomicResponse {
        /// Request-space message number of the request, low 32 bits.
        request: u32,
        /// Value before the operation.
        value: u64,
    },
}

impl Op {
    /// What the sender says has landed of the receiver's requests, if the operation says.
    pub const fn landed(&self) -> Option<u32> {
        match *self {
            Op::Send { landed, .. } | Op::WriteImm { landed, .. } => Some(landed),
            _ => None,
        }
    }

    /// The numbering that packets of this operation belong to.
    pub const fn space(&self) -> Space {
        match self {
            Op::ReadResponse { .. } | Op::AtomicResponse { .. } => Space::Response,
            _ => Space::Request,
        }
    }
}

/// A run of received packet numbers beyond the cumulative one: `[first, end)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckBlock {
    /// First number of the run.
    pub first: u32,
    /// One past its last.
    pub end: u32,
}

/// Report of a unit, or part of one, as received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckUnit {
    /// The transmission.
    pub transmit: TransmitId,
    /// The path it was sent on, as its packets said.
    pub path: PathId,
    /// Packets of it received since the last report (1–64).
    pub packets: u8,
    /// How many of those carried a congestion mark.
    pub ce: u8,
    /// Microseconds from the unit's arrival to this ACK; saturates.
    pub delay_us: u16,
}

/// Acknowledgement of one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Receiver's queue pair.
    pub dest_qpn: Qpn,
    /// Receiver's connection id.
    pub connection: ConnectionId,
    /// Path this ACK is sent on (entropy only).
    pub path: PathId,
    /// Which numbering.
    pub space: Space,
    /// Every packet before this one has been received.
    pub cumulative: u32,
    /// Request space: every message before this one has *landed* in order (IBTA's MSN of an AETH,
    /// sharpened): its bytes are placed and visible. Response space: as `cumulative`, in messages.
    pub landed: u32,
    /// Free bytes of the receive socket buffer.
    pub free_bytes: u32,
    /// Blocks in use.
    pub block_count: u8,
    /// Newest first, then rotating through the others.
    pub blocks: [AckBlock; ACK_BLOCKS_MAX],
    /// Units in use.
    pub unit_count: u8,
    /// Units received since the last ACK.
    pub units: [AckUnit; ACK_UNITS_MAX],
}

impl Ack {
    /// The blocks in use.
    pub fn blocks(&self) -> &[AckBlock] {
        self.blocks.get(..usize::from(self.block_count)).unwrap_or(&self.blocks)
    }

    /// The units in use.
    pub fn units(&self) -> &[AckUnit] {
        self.units.get(..usize::from(self.unit_count)).unwrap_or(&self.units)
    }
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// No receive is posted; try again after the timer of this code (IBTA table 45).
    Rnr {
        /// RNR timer code, 0–31.
        timer: u8,
    } = 0,
    /// Unknown, stale or foreign remote key.
    Key = 1,
    /// Range outside the region.
    Bounds = 2,
    /// Region or queue pair lacks the access.
    Access = 3,
    /// Malformed or unsupported request.
    Invalid = 4,
    /// The memory is no longer mapped, or protected.
    Fault = 5,
    /// The posted receive is too small.
    ReceiveTooSmall = 6,
    /// More READs and atomics than agreed.
    TooManyReads = 7,
    /// The responder failed otherwise.
    Failed = 8,
}

/// Refusal of one message of the request space. All earlier messages have landed unless it is RNR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nak {
    /// Receiver's queue pair.
    pub dest_qpn: Qpn,
    /// Receiver's connection id.
    pub connection: ConnectionId,
    /// Path this NAK is sent on.
    pub path: PathId,
    /// The message refused, low 32 bits.
    pub msn: u32,
    /// Why.
    pub code: NakCode,
}

/// The sender's queue pair is gone: do not wait for time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// Receiver's queue pair.
    pub dest_qpn: Qpn,
    /// Receiver's connection id.
    pub connection: ConnectionId,
}

/// Probe of a slot's port, answered by whoever owns it with the same bytes and `reply` set. Never
/// answered with more bytes than it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Random number of the prober.
    pub nonce: u64,
    /// Number of the probe.
    pub sequence: u32,
    /// Path (source port index) it was sent on.
    pub path: PathId,
    /// This is the answer.
    pub reply: bool,
    /// Protocol version of the sender.
    pub version: u8,
    /// IP time-to-live, as the replier saw it arrive; 0 in a probe.
    pub observed_ttl: u8,
    /// Address that the replier saw the probe come from; zeros in a probe.
    pub observed_address: [u8; 16],
    /// Port that the replier saw the probe come from; 0 in a probe.
    pub observed_port: u16,
    /// Bytes of the UDP payload, padding included.
    pub probe_bytes: u16,
}
