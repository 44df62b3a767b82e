//! HELLO and ECHO. Their layout is the same in every version of the protocol: they are how two
//! versions find out about each other.
//!
//! ```text
//! HELLO                                        ECHO
//! 12  the receiver's connection id, or 0       nonce
//! 24  layout | flags, number upper             layout | flags, sequence upper
//! 26  version spoken, bit 0: reply wanted,     version spoken, bit 0: reply
//!     bit 1: measuring
//! 28  paths (1–256)                            path
//! 30  probe bytes                              probe bytes
//! 32  the sender's connection id (8)           observed TTL (1), reserved (1), observed port (2)
//! 36                                           reserved (4)
//! 40  reserved (1), sender's queue pair (3)    observed address (16)
//! 44  proven bytes (2), observed port (2)
//! 48  claimed address (16)
//! 64  observed address (16)
//! 80  window packets (4), free bytes (4)
//! 88  features (4), reserved (4)
//! ```
//! Zero padding follows, up to `probe_bytes`; the header check does not cover it and a receiver does
//! not look at it.

use srdma_seams::{ConnectionId, PathId, Qpn};

use super::bytes::{Reader, Writer};
use super::error::{EmitError, ParseError};
use super::opcode;
use super::prefix::{self, Prefix};
use crate::packet::{Echo, Hello};

/// A HELLO without padding.
pub const HELLO_BYTES: usize = 96;
/// An ECHO without padding.
pub const ECHO_BYTES: usize = 56;
const QPN_MAX: u32 = 0xff_ffff;
const WINDOW_PACKETS_MAX: u32 = 1 << 17;
/// Reply wanted (HELLO), reply (ECHO).
const BIT_0: u8 = 1;
/// Measuring (HELLO).
const BIT_1: u8 = 2;

/// Checks the header check of the first `bytes` bytes, and that the datagram is as long as it says.
fn open(datagram: &[u8], bytes: usize) -> Result<(Prefix, Reader<'_>), ParseError> {
    let header = datagram.get(..bytes).ok_or(ParseError::Truncated)?;
    if !prefix::check_matches(header) {
        return Err(ParseError::HeaderCheck);
    }
    let mut r = Reader::new(header);
    let p = Prefix::read(&mut r)?;
    let announced = usize::from(p.word).max(bytes);
    match datagram.len() == announced {
        true => Ok((p, r)),
        false => Err(ParseError::Length { announced, actual: datagram.len() }),
    }
}

pub(super) fn parse_hello(datagram: &[u8]) -> Result<(Hello, usize), ParseError> {
    let (p, mut r) = open(datagram, HELLO_BYTES)?;
    let connection = ConnectionId(r.u64()?);
    let src_qpn = Qpn(r.u32()? & QPN_MAX);
    let (proven_bytes, observed_port) = (r.u16()?, r.u16()?);
    let (claimed_address, observed_address) = (r.take()?, r.take()?);
    let (window_packets, free_bytes, features) = (r.u32()?, r.u32()?, r.u32()?);
    let hello = Hello {
        dest_qpn: p.qpn,
        src_qpn,
        version: p.a,
        connection,
        echo: p.connection,
        reply_wanted: p.b & BIT_0 != 0,
        measuring: p.b & BIT_1 != 0,
        claimed_address,
        observed_address,
        observed_port,
        probe_bytes: p.word,
        proven_bytes,
        paths: p.path.0,
        window_packets,
        free_bytes,
        features,
        first_psn: p.number,
    };
    validate_hello(&hello).map_err(ParseError::Field)?;
    Ok((hello, HELLO_BYTES))
}

fn validate_hello(hello: &Hello) -> Result<(), &'static str> {
    if hello.connection == ConnectionId(0) {
        return Err("connection");
    }
    if !(1..=256).contains(&hello.paths) {
        return Err("paths");
    }
    if !(1..=WINDOW_PACKETS_MAX).contains(&hello.window_packets) {
        return Err("window_packets");
    }
    match hello.src_qpn.0 <= QPN_MAX {
        true => Ok(()),
        false => Err("src_qpn"),
    }
}

pub(super) fn emit_hello(hello: &Hello, out: &mut [u8]) -> Result<usize, EmitError> {
    validate_hello(hello).map_err(EmitError::Field)?;
    let header = out.get_mut(..HELLO_BYTES).ok_or(EmitError::NoRoom)?;
    let w = &mut Writer::new(header);
    let prefix = Prefix {
        number: hello.first_psn,
        a: hello.version,
        b: if hello.reply_wanted { BIT_0 } else { 0 } | if hello.measuring { BIT_1 } else { 0 },
        path: PathId(hello.paths),
        word: hello.probe_bytes,
        ..Prefix::new(opcode::HELLO, hello.dest_qpn, hello.echo)
    };
    prefix.write(w)?;
    w.u64(hello.connection.0)?;
    w.u32(hello.src_qpn.0)?;
    w.u16(hello.proven_bytes)?;
    w.u16(hello.observed_port)?;
    w.put(hello.claimed_address)?;
    w.put(hello.observed_address)?;
    w.u32(hello.window_packets)?;
    w.u32(hello.free_bytes)?;
    w.u32(hello.features)?;
    w.zeros::<4>()?;
    prefix::seal(header)?;
    Ok(HELLO_BYTES)
}

pub(super) fn parse_echo(datagram: &[u8]) -> Result<(Echo, usize), ParseError> {
    let (p, mut r) = open(datagram, ECHO_BYTES)?;
    let observed_ttl = r.u8()?;
    r.skip::<1>()?;
    let observed_port = r.u16()?;
    r.skip::<4>()?;
    let echo = Echo {
        nonce: p.connection.0,
        sequence: p.number,
        path: p.path,
        reply: p.b & BIT_0 != 0,
        version: p.a,
        observed_ttl,
        observed_address: r.take()?,
        observed_port,
        probe_bytes: p.word,
    };
    Ok((echo, ECHO_BYTES))
}

pub(super) fn emit_echo(echo: &Echo, out: &mut [u8]) -> Result<usize, EmitError> {
    let header = out.get_mut(..ECHO_BYTES).ok_or(EmitError::NoRoom)?;
    let w = &mut Writer::new(header);
    let prefix = Prefix {
        number: echo.sequence,
        a: echo.version,
        b: if echo.reply { BIT_0 } else { 0 },
        path: echo.path,
        word: echo.probe_bytes,
        ..Prefix::new(opcode::ECHO, Qpn(0), ConnectionId(echo.nonce))
    };
    prefix.write(w)?;
    w.u8(echo.observed_ttl)?;
    w.zeros::<1>()?;
    w.u16(echo.observed_port)?;
    w.zeros::<4>()?;
    w.put(echo.observed_address)?;
    prefix::seal(header)?;
    Ok(ECHO_BYTES)
}
