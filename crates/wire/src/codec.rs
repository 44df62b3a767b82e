//! The bytes of packets: [`parse`] and [`emit`].
//!
//! Every byte that arrives is hostile. The parser reads through cursors that cannot run past the end,
//! checks every field that another room would use as an index or a length, and allocates nothing.
//!
//! Read `prefix` first (what all packets share), then `data`, `run` and `follow`, `ack`, `handshake`, `refusal`.

mod ack;
mod bytes;
mod data;
mod error;
mod follow;
mod handshake;
mod opcode;
mod prefix;
mod refusal;
mod run;

pub use data::{data_header_bytes, DATA_HEADER_BYTES, DATA_HEADER_BYTES_MAX};
pub use error::{EmitError, ParseError};
pub use follow::Follower;
pub use handshake::{ECHO_BYTES, HELLO_BYTES};
pub use run::emit_run;

use srdma_seams::fault::Class;
use srdma_seams::PathId;

use crate::packet::{Data, Packet};
use prefix::PREFIX_BYTES;

/// Longest header of any packet, a full ACK; the padding of HELLO and ECHO is not counted.
pub const HEADER_BYTES_MAX: usize = ack::ACK_BYTES_MAX;

/// A full ACK goes unfragmented over any path that IPv6 allows (1,280 bytes of MTU, RFC 8200 §5).
const _: () = assert!(HEADER_BYTES_MAX <= 1200 && DATA_HEADER_BYTES_MAX <= HEADER_BYTES_MAX);

/// Parses the UDP payload `datagram`. Returns the packet and where its payload begins; only data
/// packets have payload, and it reaches to the end of the datagram.
#[inline]
pub fn parse(datagram: &[u8]) -> Result<(Packet, usize), ParseError> {
    let first = open(datagram)?;
    match first[0] {
        code if is_data(code) => {
            data::parse(datagram, first).map(|(data, offset)| (Packet::Data(data), offset))
        }
        opcode::ACK => ack::parse(datagram, first).map(|(ack, offset)| (Packet::Ack(ack), offset)),
        opcode::NAK => refusal::parse_nak(datagram).map(|(nak, offset)| (Packet::Nak(nak), offset)),
        opcode::CLOSE => refusal::parse_close(datagram).map(|(close, offset)| (Packet::Close(close), offset)),
        opcode::HELLO => {
            handshake::parse_hello(datagram).map(|(hello, offset)| (Packet::Hello(hello), offset))
        }
        opcode::ECHO => handshake::parse_echo(datagram).map(|(echo, offset)| (Packet::Echo(echo), offset)),
        other => Err(ParseError::Opcode(other)),
    }
}

/// What every packet begins with, if this may be one of ours.
#[inline]
fn open(datagram: &[u8]) -> Result<&[u8; PREFIX_BYTES], ParseError> {
    let first = datagram.first_chunk::<PREFIX_BYTES>().ok_or(ParseError::Truncated)?;
    let code = first[0];
    if code < opcode::HELLO {
        return Err(ParseError::Opcode(code));
    }
    let layout = prefix::layout(first);
    match layout == prefix::layout_of(code) {
        true => Ok(first),
        false => Err(ParseError::Version(layout)),
    }
}

const fn is_data(code: u8) -> bool {
    matches!(code, opcode::WRITE..=opcode::FETCH_ADD | opcode::READ_RESPONSE | opcode::ATOMIC_RESPONSE)
}

/// Writes the header of `packet` to the front of `out`; returns its length in bytes. The payload of
/// a data packet and the padding of HELLO and ECHO are the sender's to append.
#[inline]
pub fn emit(packet: &Packet, out: &mut [u8]) -> Result<usize, EmitError> {
    match packet {
        Packet::Data(data) => data::emit(data, out),
        Packet::Ack(ack) => ack::emit(ack, out),
        Packet::Nak(nak) => refusal::emit_nak(nak, out),
        Packet::Close(close) => refusal::emit_close(close, out),
        Packet::Hello(hello) => handshake::emit_hello(hello, out),
        Packet::Echo(echo) => handshake::emit_echo(echo, out),
    }
}

/// As [`emit`], for the packets that there are most of.
#[inline]
pub fn emit_data(data: &Data, out: &mut [u8]) -> Result<usize, EmitError> {
    data::emit(data, out)
}

/// What kind of packet `header` begins, and on which path it says it travels: enough for those who only sort packets
/// (a plan of faults). A HELLO does not say, so it gets a path that no connection has. Checks nothing; `None` if there are
/// fewer than 32 bytes or it is no packet of ours.
pub fn peek(header: &[u8]) -> Option<(Class, PathId)> {
    let first = header.first_chunk::<PREFIX_BYTES>()?;
    let class = match first[0] {
        opcode::ACK => Class::Ack,
        opcode::HELLO..=opcode::NAK => Class::Control,
        opcode::WRITE..=opcode::FETCH_ADD | opcode::READ_RESPONSE | opcode::ATOMIC_RESPONSE => Class::Data,
        _ => return None,
    };
    let path = if first[0] == opcode::HELLO { PathId(u16::MAX) } else { prefix::path(first) };
    Some((class, path))
}

/// Whether the header check of `header` (a whole header, no payload or padding) matches.
pub fn verify_header(header: &[u8]) -> bool {
    prefix::check_matches(header)
}
