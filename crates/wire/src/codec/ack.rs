//! Acknowledgements.
//!
//! ```text
//!      0               8              16              24           31
//! 24  |layout | flags |number, upper  | block count   |  unit count   |
//! 28  |             path              |     space     |   reserved    |
//! 32  |                          landed                               |
//! 36  |                        free bytes                             |
//! 40  |     block: first, end (8 bytes each)                          |
//!  +  |     unit: transmit, path, packets, ce, delay (10 bytes each)  |
//! ```
//! The number is the cumulative one.

use srdma_seams::{PathId, TransmitId};

use super::bytes::{Reader, Writer};
use super::error::{EmitError, ParseError};
use super::opcode;
use super::prefix::{self, Prefix, PREFIX_BYTES};
use crate::packet::{Ack, AckBlock, AckUnit, Space, ACK_BLOCKS_MAX, ACK_UNITS_MAX};

const FIXED_BYTES: usize = 40;
const BLOCK_BYTES: usize = 8;
const UNIT_BYTES: usize = 10;
/// Longest ACK.
pub(super) const ACK_BYTES_MAX: usize =
    FIXED_BYTES + ACK_BLOCKS_MAX * BLOCK_BYTES + ACK_UNITS_MAX * UNIT_BYTES;
/// The largest receive window, and so the longest run of numbers within it.
const WINDOW_PACKETS_MAX: u32 = 1 << 17;

#[allow(clippy::arithmetic_side_effects)] // counts are checked: 936 at most
fn ack_bytes(blocks: u8, units: u8) -> Result<usize, &'static str> {
    let (blocks, units) = (usize::from(blocks), usize::from(units));
    if blocks > ACK_BLOCKS_MAX {
        return Err("block count");
    }
    if units > ACK_UNITS_MAX {
        return Err("unit count");
    }
    Ok(FIXED_BYTES + blocks * BLOCK_BYTES + units * UNIT_BYTES)
}

fn validate_block(block: &AckBlock) -> Result<(), &'static str> {
    match block.end.wrapping_sub(block.first) {
        1..=WINDOW_PACKETS_MAX => Ok(()),
        _ => Err("block"),
    }
}

fn validate_unit(unit: &AckUnit) -> Result<(), &'static str> {
    match (1..=64).contains(&unit.packets) && unit.ce <= unit.packets && unit.path.0 < 256 {
        true => Ok(()),
        false => Err("unit report"),
    }
}

pub(super) fn parse(datagram: &[u8], first: &[u8; PREFIX_BYTES]) -> Result<(Ack, usize), ParseError> {
    let bytes = ack_bytes(first[26], first[27]).map_err(ParseError::Field)?;
    let header = datagram.get(..bytes).ok_or(ParseError::Truncated)?;
    if datagram.len() != bytes {
        return Err(ParseError::Length { announced: bytes, actual: datagram.len() });
    }
    if !prefix::check_matches(header) {
        return Err(ParseError::HeaderCheck);
    }
    let mut r = Reader::new(header);
    let p = Prefix::read(&mut r)?;
    if p.flags != 0 {
        return Err(ParseError::Flags(p.flags));
    }
    let space = match p.word >> 8 {
        0 => Space::Request,
        1 => Space::Response,
        _ => return Err(ParseError::Field("space")),
    };
    let mut ack = Ack {
        dest_qpn: p.qpn,
        connection: p.connection,
        path: p.path,
        space,
        cumulative: p.number,
        landed: r.u32()?,
        free_bytes: r.u32()?,
        block_count: p.a,
        blocks: [AckBlock::default(); ACK_BLOCKS_MAX],
        unit_count: p.b,
        units: [AckUnit::default(); ACK_UNITS_MAX],
    };
    for block in ack.blocks.iter_mut().take(usize::from(p.a)) {
        *block = AckBlock { first: r.u32()?, end: r.u32()? };
        validate_block(block).map_err(ParseError::Field)?;
    }
    for unit in ack.units.iter_mut().take(usize::from(p.b)) {
        *unit = AckUnit {
            transmit: TransmitId(r.u32()?),
            path: PathId(r.u16()?),
            packets: r.u8()?,
            ce: r.u8()?,
            delay_us: r.u16()?,
        };
        validate_unit(unit).map_err(ParseError::Field)?;
    }
    Ok((ack, bytes))
}

pub(super) fn emit(ack: &Ack, out: &mut [u8]) -> Result<usize, EmitError> {
    let bytes = ack_bytes(ack.block_count, ack.unit_count).map_err(EmitError::Field)?;
    let header = out.get_mut(..bytes).ok_or(EmitError::NoRoom)?;
    let w = &mut Writer::new(header);
    let prefix = Prefix {
        number: ack.cumulative,
        a: ack.block_count,
        b: ack.unit_count,
        path: ack.path,
        word: (ack.space as u16) << 8,
        ..Prefix::new(opcode::ACK, ack.dest_qpn, ack.connection)
    };
    prefix.write(w)?;
    w.u32(ack.landed)?;
    w.u32(ack.free_bytes)?;
    for block in ack.blocks() {
        validate_block(block).map_err(EmitError::Field)?;
        w.u32(block.first)?;
        w.u32(block.end)?;
    }
    for unit in ack.units() {
        validate_unit(unit).map_err(EmitError::Field)?;
        w.u32(unit.transmit.0)?;
        w.u16(unit.path.0)?;
        w.u8(unit.packets)?;
        w.u8(unit.ce)?;
        w.u16(unit.delay_us)?;
    }
    prefix::seal(header)?;
    Ok(bytes)
}
