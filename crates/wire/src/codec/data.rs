//! Data packets: prefix, transmission, message, operation, and the extensions that flags announce.
//!
//! ```text
//!      0               8              16              24           31
//! 24  |layout | flags | number, upper |  unit index   | unit packets  |
//! 28  |             path              | flag 4: part  | flag 4: parts |
//! 32  |                      transmit number                          |
//! 36  |                      message number                           |
//! 40  |                      message length                           |
//! 44  |                 offset (atomics: remote key)                  |
//! 48  |                     operation: 24 bytes                       |
//! 72  |  flag 1: CRC-32C of the payload, 4 zero bytes                 |
//!  +  |  flag 2: keyed tag, 16 bytes                                  |
//! ```
//! All of a connection's data packets have the same header length, whatever they do, so that the
//! segments of a burst are equal even where it spans messages of different kinds. Atomics have no
//! offset, and their operands fill the operation: their key takes the offset's place.

use srdma_seams::TransmitId;

use super::bytes::{Reader, Writer};
use super::error::{EmitError, ParseError};
use super::opcode;
use super::prefix::{self, Prefix, PREFIX_BYTES};
use crate::packet::{Data, Message, Op, Part, UnitTag, PARTS_MAX};

/// Header of a data packet, without extensions.
pub const DATA_HEADER_BYTES: usize = 72;
const FLAG_PAYLOAD_CRC: u8 = 1;
const FLAG_TAG: u8 = 2;
const FLAG_PART: u8 = 4;
const PAYLOAD_CRC_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// Header of a data packet with all extensions.
pub const DATA_HEADER_BYTES_MAX: usize = DATA_HEADER_BYTES + PAYLOAD_CRC_BYTES + TAG_BYTES;
/// Packets of a unit.
const UNIT_PACKETS_MAX: u8 = 64;

/// Header length of data packets once `features` are agreed on: what is left of a datagram is payload.
#[allow(clippy::arithmetic_side_effects)] // 96 at most
pub const fn data_header_bytes(features: u32) -> usize {
    let crc = if features & crate::packet::FEATURE_PAYLOAD_CRC != 0 { PAYLOAD_CRC_BYTES } else { 0 };
    let tag = if features & crate::packet::FEATURE_TAG != 0 { TAG_BYTES } else { 0 };
    DATA_HEADER_BYTES + crc + tag
}

#[inline(always)]
#[allow(clippy::arithmetic_side_effects)] // 96 at most
fn header_bytes(flags: u8) -> usize {
    let crc = if flags & FLAG_PAYLOAD_CRC != 0 { PAYLOAD_CRC_BYTES } else { 0 };
    let tag = if flags & FLAG_TAG != 0 { TAG_BYTES } else { 0 };
    DATA_HEADER_BYTES + crc + tag
}

const fn has_payload(op: &Op) -> bool {
    matches!(op, Op::Write { .. } | Op::WriteImm { .. } | Op::Send { .. } | Op::ReadResponse { .. })
}

#[inline]
pub(super) fn parse(datagram: &[u8], first: &[u8; PREFIX_BYTES]) -> Result<(Data, usize), ParseError> {
    let (code, flags) = (first[0], first[24] & 0x0f);
    if flags & !(FLAG_PAYLOAD_CRC | FLAG_TAG | FLAG_PART) != 0 {
        return Err(ParseError::Flags(flags));
    }
    let (header, payload) = datagram.split_at_checked(header_bytes(flags)).ok_or(ParseError::Truncated)?;
    if !prefix::check_matches(header) {
        return Err(ParseError::HeaderCheck);
    }
    let mut r = Reader::new(header);
    let p = Prefix::read(&mut r)?;
    let unit = UnitTag { transmit: TransmitId(r.u32()?), path: p.path, index: p.a, packets: p.b };
    let (msn, length, word) = (r.u32()?, r.u32()?, r.u32()?);
    let op = read_op(&mut r, code, word)?;
    let offset = if is_atomic(&op) { 0 } else { word };
    let message = Message { msn, length, offset };
    let payload_crc = if flags & FLAG_PAYLOAD_CRC != 0 {
        let crc = r.u32()?;
        r.skip::<4>()?;
        Some(crc)
    } else {
        None
    };
    let tag = if flags & FLAG_TAG != 0 { Some(r.take()?) } else { None };
    let [index, count] = p.word.to_be_bytes();
    let part = (flags & FLAG_PART != 0).then_some(Part { index, count });
    let data = Data {
        dest_qpn: p.qpn,
        connection: p.connection,
        psn: p.number,
        unit,
        message,
        part,
        solicited: p.solicited,
        payload_crc,
        tag,
        op,
    };
    validate_received(&data, payload.len(), header.len())?;
    Ok((data, header.len()))
}

/// Whether the numbers of a packet that came with so many bytes of payload can be true.
#[inline]
pub(super) fn validate_received(data: &Data, payload: usize, header: usize) -> Result<(), ParseError> {
    validate_unit(&data.unit).map_err(ParseError::Field)?;
    validate_part(data.part, &data.op).map_err(ParseError::Field)?;
    validate_extent(&data.op, &data.message, payload, header)
}

const fn is_atomic(op: &Op) -> bool {
    matches!(op, Op::CompareSwap { .. } | Op::FetchAdd { .. })
}

fn validate_unit(unit: &UnitTag) -> Result<(), &'static str> {
    match unit.index < unit.packets && unit.packets <= UNIT_PACKETS_MAX {
        true => Ok(()),
        false => Err("unit"),
    }
}

fn validate_part(part: Option<Part>, op: &Op) -> Result<(), &'static str> {
    match part {
        Some(Part { index, count })
            if index >= count || !(2..=PARTS_MAX).contains(&count) || !has_payload(op) =>
        {
            Err("part")
        }
        _ => Ok(()),
    }
}

/// A message without payload has length and offset 0; a fragment is empty only where its message is.
fn validate_message(op: &Op, message: &Message) -> Result<(), &'static str> {
    let within = match has_payload(op) {
        true => message.offset < message.length || (message.length == 0 && message.offset == 0),
        false => message.offset == 0 && message.length == 0,
    };
    match within {
        true => Ok(()),
        false => Err("offset or length"),
    }
}

fn validate_extent(op: &Op, message: &Message, payload: usize, header: usize) -> Result<(), ParseError> {
    validate_message(op, message).map_err(|_| ParseError::BeyondMessage)?;
    if !has_payload(op) {
        return match payload {
            0 => Ok(()),
            more => Err(ParseError::Length { announced: header, actual: header.saturating_add(more) }),
        };
    }
    let end = u64::from(message.offset).saturating_add(payload as u64);
    match end <= u64::from(message.length) && (payload > 0 || message.length == 0) {
        true => Ok(()),
        false => Err(ParseError::BeyondMessage),
    }
}

#[inline(always)]
fn read_op(r: &mut Reader<'_>, code: u8, word: u32) -> Result<Op, ParseError> {
    let op = match code {
        opcode::WRITE => {
            let op = Op::Write { address: r.u64()?, rkey: r.u32()? };
            r.skip::<12>()?;
            op
        }
        opcode::WRITE_IMM => {
            let (address, rkey) = (r.u64()?, r.u32()?);
            let imm = u32::from_le_bytes(r.take()?);
            Op::WriteImm { address, rkey, imm, receive: r.u32()?, landed: r.u32()? }
        }
        opcode::SEND | opcode::SEND_IMM => {
            let receive = r.u32()?;
            let imm = u32::from_le_bytes(r.take()?);
            r.skip::<12>()?;
            Op::Send { receive, imm: (code == opcode::SEND_IMM).then_some(imm), landed: r.u32()? }
        }
        opcode::READ_REQUEST => {
            let op = Op::ReadRequest { address: r.u64()?, rkey: r.u32()?, length: r.u32()? };
            r.skip::<8>()?;
            op
        }
        opcode::COMPARE_SWAP => {
            Op::CompareSwap { address: r.u64()?, rkey: word, compare: r.u64()?, swap: r.u64()? }
        }
        opcode::FETCH_ADD => {
            let op = Op::FetchAdd { address: r.u64()?, rkey: word, add: r.u64()? };
            r.skip::<8>()?;
            op
        }
        opcode::READ_RESPONSE => {
            let op = Op::ReadResponse { request: r.u32()? };
            r.skip::<20>()?;
            op
        }
        opcode::ATOMIC_RESPONSE => {
            let request = r.u32()?;
            r.skip::<4>()?;
            let op = Op::AtomicResponse { request, value: r.u64()? };
            r.skip::<8>()?;
            op
        }
        other => return Err(ParseError::Opcode(other)),
    };
    Ok(op)
}

const fn opcode_of(op: &Op) -> u8 {
    match op {
        Op::Write { .. } => opcode::WRITE,
        Op::WriteImm { .. } => opcode::WRITE_IMM,
        Op::Send { imm: None, .. } => opcode::SEND,
        Op::Send { imm: Some(_), .. } => opcode::SEND_IMM,
        Op::ReadRequest { .. } => opcode::READ_REQUEST,
        Op::CompareSwap { .. } => opcode::COMPARE_SWAP,
        Op::FetchAdd { .. } => opcode::FETCH_ADD,
        Op::ReadResponse { .. } => opcode::READ_RESPONSE,
        Op::AtomicResponse { .. } => opcode::ATOMIC_RESPONSE,
    }
}

/// Whether a receiver would take the numbers.
pub(super) fn validate(data: &Data) -> Result<(), EmitError> {
    validate_unit(&data.unit).map_err(EmitError::Field)?;
    validate_part(data.part, &data.op).map_err(EmitError::Field)?;
    validate_message(&data.op, &data.message).map_err(EmitError::Field)
}

#[inline]
pub(super) fn emit(data: &Data, out: &mut [u8]) -> Result<usize, EmitError> {
    validate(data)?;
    let code = opcode_of(&data.op);
    let crc_flag = if data.payload_crc.is_some() { FLAG_PAYLOAD_CRC } else { 0 };
    let tag_flag = if data.tag.is_some() { FLAG_TAG } else { 0 };
    let part_flag = if data.part.is_some() { FLAG_PART } else { 0 };
    let flags = crc_flag | tag_flag | part_flag;
    let bytes = header_bytes(flags);
    let header = out.get_mut(..bytes).ok_or(EmitError::NoRoom)?;
    let w = &mut Writer::new(header);
    let prefix = Prefix {
        solicited: data.solicited,
        number: data.psn,
        flags,
        a: data.unit.index,
        b: data.unit.packets,
        path: data.unit.path,
        word: data.part.map_or(0, |part| u16::from_be_bytes([part.index, part.count])),
        ..Prefix::new(code, data.dest_qpn, data.connection)
    };
    prefix.write(w)?;
    w.u32(data.unit.transmit.0)?;
    w.u32(data.message.msn)?;
    w.u32(data.message.length)?;
    w.u32(match data.op {
        Op::CompareSwap { rkey, .. } | Op::FetchAdd { rkey, .. } => rkey,
        _ => data.message.offset,
    })?;
    write_op(w, &data.op)?;
    if let Some(crc) = data.payload_crc {
        w.u32(crc)?;
        w.zeros::<4>()?;
    }
    if let Some(tag) = data.tag {
        w.put(tag)?;
    }
    prefix::seal(header)?;
    Ok(bytes)
}

#[inline(always)]
fn write_op(w: &mut Writer<'_>, op: &Op) -> Result<(), EmitError> {
    match *op {
        Op::Write { address, rkey } => {
            w.u64(address)?;
            w.u32(rkey)?;
            w.zeros::<12>()
        }
        Op::WriteImm { address, rkey, imm, receive, landed } => {
            w.u64(address)?;
            w.u32(rkey)?;
            w.put(imm.to_le_bytes())?;
            w.u32(receive)?;
            w.u32(landed)
        }
        Op::Send { receive, imm, landed } => {
            w.u32(receive)?;
            w.put(imm.unwrap_or(0).to_le_bytes())?;
            w.zeros::<12>()?;
            w.u32(landed)
        }
        Op::ReadRequest { address, rkey, length } => {
            w.u64(address)?;
            w.u32(rkey)?;
            w.u32(length)?;
            w.zeros::<8>()
        }
        Op::CompareSwap { address, compare, swap, .. } => {
            w.u64(address)?;
            w.u64(compare)?;
            w.u64(swap)
        }
        Op::FetchAdd { address, add, .. } => {
            w.u64(address)?;
            w.u64(add)?;
            w.zeros::<8>()
        }
        Op::ReadResponse { request } => {
            w.u32(request)?;
            w.zeros::<20>()
        }
        Op::AtomicResponse { request, value } => {
            w.u32(request)?;
            w.zeros::<4>()?;
            w.u64(value)?;
            w.zeros::<8>()
        }
    }
}
