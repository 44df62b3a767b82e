//! Opcodes, all from the manufacturer range 0xC0–0xFF (IBTA volume 1, table 38).
//!
//! 0xC_ is control, 0xD_ data of the request space, 0xE_ data of the response space.

pub(super) const HELLO: u8 = 0xc0;
pub(super) const ECHO: u8 = 0xc1;
pub(super) const CLOSE: u8 = 0xc2;
pub(super) const ACK: u8 = 0xc3;
pub(super) const NAK: u8 = 0xc4;

pub(super) const WRITE: u8 = 0xd0;
pub(super) const WRITE_IMM: u8 = 0xd1;
pub(super) const SEND: u8 = 0xd2;
pub(super) const SEND_IMM: u8 = 0xd3;
pub(super) const READ_REQUEST: u8 = 0xd4;
pub(super) const COMPARE_SWAP: u8 = 0xd5;
pub(super) const FETCH_ADD: u8 = 0xd6;

pub(super) const READ_RESPONSE: u8 = 0xe0;
pub(super) const ATOMIC_RESPONSE: u8 = 0xe1;
