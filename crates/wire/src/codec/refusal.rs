//! NAK and CLOSE.
//!
//! ```text
//!      0               8              16              24           31
//! 24  |layout | flags |   reserved    |     code      |   RNR timer   |
//! 28  |             path              |           reserved            |
//! 32  |  NAK only:           message number                           |
//! 36  |  NAK only:              reserved                              |
//! ```

use super::bytes::{Reader, Writer};
use super::error::{EmitError, ParseError};
use super::opcode;
use super::prefix::{self, Prefix, PREFIX_BYTES};
use crate::packet::{Close, Nak, NakCode};

const NAK_BYTES: usize = 40;
const CLOSE_BYTES: usize = PREFIX_BYTES;
/// RNR timer codes have five bits (IBTA volume 1, table 45).
const RNR_TIMER_MAX: u8 = 31;

/// Checks length, header check and flags of a packet of `bytes` bytes.
fn open(datagram: &[u8], bytes: usize) -> Result<(Prefix, Reader<'_>), ParseError> {
    let header = datagram.get(..bytes).ok_or(ParseError::Truncated)?;
    if datagram.len() != bytes {
        return Err(ParseError::Length { announced: bytes, actual: datagram.len() });
    }
    if !prefix::check_matches(header) {
        return Err(ParseError::HeaderCheck);
    }
    let mut r = Reader::new(header);
    let p = Prefix::read(&mut r)?;
    match p.flags {
        0 => Ok((p, r)),
        flags => Err(ParseError::Flags(flags)),
    }
}

pub(super) fn parse_nak(datagram: &[u8]) -> Result<(Nak, usize), ParseError> {
    let (p, mut r) = open(datagram, NAK_BYTES)?;
    let code = match p.a {
        0 if p.b <= RNR_TIMER_MAX => NakCode::Rnr { timer: p.b },
        1 => NakCode::Key,
        2 => NakCode::Bounds,
        3 => NakCode::Access,
        4 => NakCode::Invalid,
        5 => NakCode::Fault,
        6 => NakCode::ReceiveTooSmall,
        7 => NakCode::TooManyReads,
        8 => NakCode::Failed,
        _ => return Err(ParseError::Field("NAK code")),
    };
    let nak = Nak { dest_qpn: p.qpn, connection: p.connection, path: p.path, msn: r.u32()?, code };
    Ok((nak, NAK_BYTES))
}

pub(super) fn emit_nak(nak: &Nak, out: &mut [u8]) -> Result<usize, EmitError> {
    let (code, timer) = match nak.code {
        NakCode::Rnr { timer } if timer > RNR_TIMER_MAX => return Err(EmitError::Field("RNR timer")),
        NakCode::Rnr { timer } => (0, timer),
        NakCode::Key => (1, 0),
        NakCode::Bounds => (2, 0),
        NakCode::Access => (3, 0),
        NakCode::Invalid => (4, 0),
        NakCode::Fault => (5, 0),
        NakCode::ReceiveTooSmall => (6, 0),
        NakCode::TooManyReads => (7, 0),
        NakCode::Failed => (8, 0),
    };
    let header = out.get_mut(..NAK_BYTES).ok_or(EmitError::NoRoom)?;
    let w = &mut Writer::new(header);
    let prefix = Prefix {
        a: code,
        b: timer,
        path: nak.path,
        ..Prefix::new(opcode::NAK, nak.dest_qpn, nak.connection)
    };
    prefix.write(w)?;
    w.u32(nak.msn)?;
    w.zeros::<4>()?;
    prefix::seal(header)?;
    Ok(NAK_BYTES)
}

pub(super) fn parse_close(datagram: &[u8]) -> Result<(Close, usize), ParseError> {
    let (p, _) = open(datagram, CLOSE_BYTES)?;
    Ok((Close { dest_qpn: p.qpn, connection: p.connection }, CLOSE_BYTES))
}

pub(super) fn emit_close(close: &Close, out: &mut [u8]) -> Result<usize, EmitError> {
    let header = out.get_mut(..CLOSE_BYTES).ok_or(EmitError::NoRoom)?;
    Prefix::new(opcode::CLOSE, close.dest_qpn, close.connection).write(&mut Writer::new(header))?;
    prefix::seal(header)?;
    Ok(CLOSE_BYTES)
}
