//! What can go wrong, per operation, in words that say what to do.

use std::io;
use std::net::IpAddr;

/// Why an endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds every slot of the range.
    #[error(
        "every slot of {address} is taken: tried {tried} UDP ports from {first_port} to {last_port}. \
         Each RDMA process holds one; stop one, or see who holds them with: ss -ulpn"
    )]
    AllSlotsTaken {
        /// Local address.
        address: IpAddr,
        /// Slots tried.
        tried: usize,
        /// Port of the first.
        first_port: u16,
        /// Port of the last.
        last_port: u16,
    },
    /// No interface of this network namespace has the address.
    #[error("{address} is not an address of this machine (or of this network namespace); see: ip address")]
    AddressUnavailable {
        /// Local address.
        address: IpAddr,
    },
    /// A security policy forbids it.
    #[error(
        "binding UDP port {port} of {address} is forbidden (EACCES): check the sandbox or security policy"
    )]
    Forbidden {
        /// Local address.
        address: IpAddr,
        /// Port.
        port: u16,
    },
    /// The process may open no more files.
    #[error("no more file descriptors: raise the limit with: ulimit -n 4096")]
    TooManyFiles,
    /// The options contradict themselves.
    #[error("{0}")]
    Options(&'static str),
    /// Anything else.
    #[error("{what} for {address}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// Local address.
        address: IpAddr,
        /// Why it failed.
        source: io::Error,
    },
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The socket or the queue behind it is full now (EAGAIN, ENOBUFS).
    #[error("the socket is full")]
    Busy,
    /// A payload slice of this packet is not mapped (EFAULT).
    #[error("payload of packet {packet} is not mapped")]
    Fault {
        /// Position in the burst.
        packet: usize,
    },
    /// No route or no permission; `Endpoint::last_refusal` has the text.
    #[error("the destination cannot be reached")]
    Unreachable,
    /// A packet exceeds the MTU (EMSGSIZE).
    #[error("packet exceeds the MTU")]
    TooBig,
}

/// Why a packet was not taken into a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The burst has its 64 packets, or its headers fill their room.
    #[error("the burst is full")]
    Full,
    /// The header has no encoding.
    #[error("the header cannot be encoded")]
    Header,
    /// Header and payload exceed the 65,487 bytes that any UDP datagram can have over IPv4 and IPv6.
    #[error("the packet is too long for UDP")]
    TooLong,
}
