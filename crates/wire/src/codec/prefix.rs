//! The first 32 bytes, the same for every packet: Base Transport Header, connection id, header check.
//!
//! ```text
//!      0               8              16              24           31
//!  0  |    opcode     |S|M|pad| TVer  |        P_Key = 0xFFFF         |
//!  4  |F|B| reserved  |       destination queue pair (24 bits)        |
//!  8  |A|  reserved   |          number, lower 24 bits                |
//! 12  |                   connection id of the                        |
//! 16  |                      receiver                                 |
//! 20  |                    header check (CRC-32C)                     |
//! 24  |layout | flags | number, upper |       a       |       b       |
//! 28  |             path              |             word              |
//! ```
//! Bytes 0–11 are the BTH of the IBTA, volume 1, section 9.2. What the number and the fields `a`, `b`
//! and `word` mean depends on the opcode.

use srdma_seams::{ConnectionId, PathId, Qpn};

use super::bytes::{Reader, Writer};
use super::error::{EmitError, ParseError};
use super::opcode;
use crate::crc::Crc32c;
use crate::packet::VERSION;

pub(super) const PREFIX_BYTES: usize = 32;
/// Default partition key (IBTA 10.9.1.2); tenants are told apart by other means.
const PARTITION: u16 = 0xffff;
const HANDSHAKE_LAYOUT: u8 = 1;
/// Solicited event, in byte 1.
const SOLICITED: u8 = 0x80;
/// Pad count and transport version, in byte 1: both always zero.
const PAD_AND_TVER: u8 = 0x3f;
/// FECN and BECN, in byte 4: a switch may set them, so the header check leaves them out.
const CONGESTION_BITS: u8 = 0xc0;
/// Paths that a path field may name.
const PATHS: u16 = 256;
/// Numbers of queue pairs have 24 bits.
const QPN_MAX: u32 = 0xff_ffff;

/// The fields.
pub(super) struct Prefix {
    pub(super) opcode: u8,
    pub(super) solicited: bool,
    pub(super) qpn: Qpn,
    pub(super) number: u32,
    pub(super) connection: ConnectionId,
    pub(super) flags: u8,
    pub(super) a: u8,
    pub(super) b: u8,
    pub(super) path: PathId,
    pub(super) word: u16,
}

impl Prefix {
    /// A prefix with nothing but these set.
    pub(super) fn new(opcode: u8, qpn: Qpn, connection: ConnectionId) -> Prefix {
        Prefix {
            opcode,
            solicited: false,
            qpn,
            number: 0,
            connection,
            flags: 0,
            a: 0,
            b: 0,
            path: PathId(0),
            word: 0,
        }
    }

    #[inline(always)]
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Prefix, ParseError> {
        let opcode = r.u8()?;
        let bits = r.u8()?;
        r.skip::<3>()?;
        let [q0, q1, q2] = r.take()?;
        r.skip::<1>()?;
        let [n0, n1, n2] = r.take()?;
        let connection = ConnectionId(r.u64()?);
        r.skip::<4>()?;
        let version_flags = r.u8()?;
        let number = u32::from_be_bytes([r.u8()?, n0, n1, n2]);
        let (a, b) = (r.u8()?, r.u8()?);
        let (path, word) = (r.u16()?, r.u16()?);
        if bits & PAD_AND_TVER != 0 {
            return Err(ParseError::Field("PadCnt or TVer"));
        }
        if path >= PATHS && opcode != opcode::HELLO {
            return Err(ParseError::Field("path"));
        }
        Ok(Prefix {
            opcode,
            solicited: bits & SOLICITED != 0,
            qpn: Qpn(u32::from_be_bytes([0, q0, q1, q2])),
            number,
            connection,
            flags: version_flags & 0x0f,
            a,
            b,
            path: PathId(path),
            word,
        })
    }

    /// Writes the prefix, header check zero.
    #[inline(always)]
    pub(super) fn write(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        if self.qpn.0 > QPN_MAX {
            return Err(EmitError::Field("dest_qpn"));
        }
        if self.path.0 >= PATHS && self.opcode != opcode::HELLO {
            return Err(EmitError::Field("path"));
        }
        let [number_upper, n0, n1, n2] = self.number.to_be_bytes();
        let [_, q0, q1, q2] = self.qpn.0.to_be_bytes();
        w.u8(self.opcode)?;
        w.u8(if self.solicited { SOLICITED } else { 0 })?;
        w.u16(PARTITION)?;
        w.put([0, q0, q1, q2])?;
        w.put([0, n0, n1, n2])?;
        w.u64(self.connection.0)?;
        w.zeros::<4>()?;
        w.put([(layout_of(self.opcode) << 4) | (self.flags & 0x0f), number_upper, self.a, self.b])?;
        w.u16(self.path.0)?;
        w.u16(self.word)
    }
}

/// Layout version of a packet.
#[inline(always)]
pub(super) fn layout(prefix: &[u8; PREFIX_BYTES]) -> u8 {
    prefix[24] >> 4
}

/// The path field.
pub(super) fn path(prefix: &[u8; PREFIX_BYTES]) -> PathId {
    PathId(u16::from_be_bytes([prefix[28], prefix[29]]))
}

/// Layout version that packets with this opcode must have. That of HELLO and ECHO never changes, so
/// that two versions can find out about each other.
#[inline(always)]
pub(super) const fn layout_of(code: u8) -> u8 {
    match code {
        opcode::HELLO | opcode::ECHO => HANDSHAKE_LAYOUT,
        _ => VERSION,
    }
}

/// CRC-32C of a whole header, computed with its own field and the congestion bits as zeros. `None`
/// if there is less than a check field.
#[inline]
pub(super) fn check(header: &[u8]) -> Option<u32> {
    let (front, rest) = header.split_first_chunk::<PREFIX_BYTES>()?;
    let mut front = *front;
    front[4] &= !CONGESTION_BITS;
    (front[20], front[21], front[22], front[23]) = (0, 0, 0, 0);
    Some(Crc32c::default().update(&front).update(rest).finish())
}

/// Whether the header check of `header` matches.
#[inline]
pub(super) fn check_matches(header: &[u8]) -> bool {
    let stored = header.get(20..).and_then(|tail| tail.first_chunk::<4>());
    match (stored, check(header)) {
        (Some(stored), Some(computed)) => u32::from_be_bytes(*stored) == computed,
        _ => false,
    }
}

/// Computes the header check of `header` and writes it into its place.
#[inline]
pub(super) fn seal(header: &mut [u8]) -> Result<(), EmitError> {
    let value = check(header).ok_or(EmitError::NoRoom)?;
    let place = header.get_mut(20..).and_then(|tail| tail.first_chunk_mut::<4>());
    *place.ok_or(EmitError::NoRoom)? = value.to_be_bytes();
    Ok(())
}
