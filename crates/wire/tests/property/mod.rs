//! What holds for any bytes whatever; shared by the smoke test here and the target in `fuzz/`.
#![allow(clippy::unwrap_used, dead_code)]

use srdma_wire::{crc32c, emit, parse, verify_header, Packet, HEADER_BYTES_MAX};

/// Parses `datagram`; what is accepted must come back from `emit` as a packet that parses equal.
pub fn check(datagram: &[u8]) -> Option<Packet> {
    let (packet, offset) = match parse(datagram) {
        Ok(accepted) => accepted,
        Err(error) => {
            let _ = (error.cause(), error.to_string());
            return None;
        }
    };
    let (header, rest) = datagram.split_at(offset);
    assert!(verify_header(header));
    let mut again = vec![0xee; HEADER_BYTES_MAX];
    let length = emit(&packet, &mut again).unwrap_or_else(|error| panic!("{packet:?}: {error}"));
    assert_eq!(length, offset, "{packet:?}");
    again.truncate(length);
    again.extend_from_slice(rest);
    assert_eq!(parse(&again), Ok((packet, offset)));
    Some(packet)
}

/// Length of the header that `datagram` claims to have, told from the specification alone.
pub fn claimed_header_bytes(datagram: &[u8]) -> usize {
    let at = |index: usize| usize::from(datagram.get(index).copied().unwrap_or(0));
    match at(0) {
        0xc0 => 96,
        0xc1 => 56,
        0xc2 => 32,
        0xc3 => 40 + at(26) * 8 + at(27) * 10,
        0xc4 => 40,
        _ => 72 + (at(24) & 1) * 8 + (at(24) >> 1 & 1) * 16,
    }
}

/// Makes the header check right, so that mutations get past it.
pub fn reseal(datagram: &mut [u8]) {
    let length = claimed_header_bytes(datagram);
    if let Some(header) = datagram.get_mut(..length) {
        header[20..24].fill(0);
        let mut masked = header.to_vec();
        masked[4] &= 0x3f;
        header[20..24].copy_from_slice(&crc32c(&masked).to_be_bytes());
    }
}
