//! Why bytes are no packet, or a value cannot become bytes.

use srdma_seams::event::DropCause;

/// Why a datagram is not a packet. It is dropped and counted; nothing is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Shorter than its header.
    #[error("The datagram ends within its header")]
    Truncated,
    /// Not one of our opcodes; RoCEv2 traffic of another kind lands here.
    #[error("Opcode {0:#04x} is not Stellar's")]
    Opcode(u8),
    /// Another version of the packet layout, or of the transport header.
    #[error("Packet layout version {0} is not spoken here")]
    Version(u8),
    /// The header check does not match: the header was changed on its way, or never was one.
    #[error("The header check does not match")]
    HeaderCheck,
    /// A flag that announces bytes of unknown length.
    #[error("Flag bits {0:#03x} are not known")]
    Flags(u8),
    /// More bytes than the header announces, or fewer.
    #[error("The datagram has {actual} bytes but its header announces {announced}")]
    Length {
        /// Bytes that there should be.
        announced: usize,
        /// Bytes that there are.
        actual: usize,
    },
    /// A field is outside its range.
    #[error("Field {0} is out of range")]
    Field(&'static str),
    /// The payload does not lie within the message.
    #[error("The payload does not lie within its message")]
    BeyondMessage,
}

impl ParseError {
    /// Under which cause the dropped packet is counted.
    pub const fn cause(&self) -> DropCause {
        match self {
            ParseError::HeaderCheck => DropCause::HeaderCheck,
            ParseError::BeyondMessage => DropCause::Inconsistent,
            _ => DropCause::Malformed,
        }
    }
}

/// Why a value cannot become bytes: a fault of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The buffer is shorter than the header. [`HEADER_BYTES_MAX`](super::HEADER_BYTES_MAX) is always enough.
    #[error("The buffer is shorter than the header")]
    NoRoom,
    /// A field is outside its range; a receiver would refuse the packet.
    #[error("Field {0} is out of range")]
    Field(&'static str),
}
