//! Stellar packets: bytes to values and back.
//!
//! Every packet starts with the Base Transport Header of the IBTA (so that switches and QoS rules
//! that know RoCEv2 know it too), with an opcode from the manufacturer range 0xC0–0xFF. Every data
//! packet is self-describing: it can be placed with no earlier packet seen. `PROTOCOL.md` at the root
//! of the repository is the specification of the bytes; this crate is its implementation.
//!
//! It must not know what a connection, a queue pair or a memory region does with the values.
//! Read [`packet`] for the values, then [`codec`] for the bytes.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic))]

pub mod codec;
pub mod crc;
pub mod packet;

pub use codec::{
    data_header_bytes, emit, emit_data, emit_run, parse, peek, verify_header, EmitError, Follower,
    ParseError, DATA_HEADER_BYTES, DATA_HEADER_BYTES_MAX, ECHO_BYTES, HEADER_BYTES_MAX, HELLO_BYTES,
};
pub use crc::crc32c;
pub use packet::{
    Ack, AckBlock, AckUnit, Close, Data, Echo, Hello, Message, Nak, NakCode, Op, Packet, Part, Space,
    UnitTag, ACK_BLOCKS_MAX, ACK_UNITS_MAX, FEATURE_PARTS, PARTS_MAX, VERSION,
};
