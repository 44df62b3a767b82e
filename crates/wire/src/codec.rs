//! placeholder
use crate::packet::Packet;
/// Longest header
pub const DATA_HEADER_BYTES_MAX: usize = 128;
/// Longest
pub const HEADER_BYTES_MAX: usize = 1400;
/// x
#[derive(Debug, thiserror::Error)]
pub enum ParseError {}
/// x
#[derive(Debug, thiserror::Error)]
pub enum EmitError {}
/// x
pub fn parse(_datagram: &[u8]) -> Result<(Packet, usize), ParseError> {
    todo!()
}
/// x
pub fn emit(_packet: &Packet, _out: &mut [u8]) -> Result<usize, EmitError> {
    todo!()
}
