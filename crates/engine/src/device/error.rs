//! Why a device cannot start, and why it refuses a control call.

use std::net::IpAddr;
use std::path::PathBuf;

use srdma_abi::control::LIMITS;
use srdma_rnic::ControlError;

use crate::numbers::Numbers;

/// Why a device cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Called in a child after fork.
    #[error(
        "This process is a child after fork: its RDMA objects belong to the parent; exec a program instead"
    )]
    Forked,
    /// The address cannot be used.
    #[error(transparent)]
    Open(#[from] srdma_net::OpenError),
    /// A file of the options cannot be written.
    #[error("Cannot write {path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system refuses something else.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A setting is out of range.
    #[error("{0}")]
    Setting(String),
}

impl StartError {
    /// Positive errno for the C caller.
    pub fn errno(&self) -> i32 {
        match self {
            StartError::Forked => libc::EIO,
            StartError::Open(srdma_net::OpenError::TooManyFiles) => libc::EMFILE,
            StartError::Open(srdma_net::OpenError::AllSlotsTaken { .. }) => libc::EADDRINUSE,
            StartError::Open(_) => libc::EADDRNOTAVAIL,
            StartError::File { source, .. } | StartError::System { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
            StartError::Setting(_) => libc::EINVAL,
        }
    }
}

/// Why a control call was refused.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The device could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The RNIC refused.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// No queue-pair number is free.
    #[error(
        "All {} queue-pair numbers of this device's slot are in use or were freed less than two seconds ago; at most \
         {} queue pairs can exist at once", Numbers::MAX, LIMITS.max_qp
    )]
    Numbers,
    /// The kernel's routing knows no way to the peer.
    #[error("No route from {local} to {peer}: {source}")]
    NoRoute {
        /// Our address.
        local: IpAddr,
        /// The peer's.
        peer: IpAddr,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// The device is gone (after fork, or at exit).
    #[error("The device is gone")]
    Gone,
}

impl DeviceError {
    /// Positive errno for the C caller.
    pub fn errno(&self) -> i32 {
        match self {
            DeviceError::Start(start) => start.errno(),
            DeviceError::Control(ControlError::Busy(_)) => libc::EBUSY,
            DeviceError::Control(ControlError::Limit { .. }) | DeviceError::Numbers => libc::ENOMEM,
            DeviceError::Control(_) => libc::EINVAL,
            DeviceError::NoRoute { source, .. } => source.raw_os_error().unwrap_or(libc::ENETUNREACH),
            DeviceError::Gone => libc::EIO,
        }
    }
}
