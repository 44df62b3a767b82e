//! Why calls are refused, with the errno that a C caller gets.

use srdma_doors::inproc::StartError;
use srdma_doors::socket::DialError;
use srdma_doors::DoorError;

/// Why no device is to be had.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct OpenError {
    /// Positive errno for the C caller.
    pub errno: i32,
    /// Which call failed, on what, and what to do.
    pub text: String,
}

impl From<StartError> for OpenError {
    fn from(error: StartError) -> OpenError {
        OpenError { errno: error.errno(), text: error.to_string() }
    }
}

impl From<DialError> for OpenError {
    fn from(error: DialError) -> OpenError {
        OpenError { errno: error.errno(), text: error.to_string() }
    }
}

/// Why a control call was refused, with its errno.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct ControlError {
    /// Positive errno for the C caller.
    pub errno: i32,
    /// What is wrong, naming the limit or object.
    pub text: String,
    /// The device itself could not start: every slot taken, a file of the options not to be written. Nothing the
    /// program did, so it deserves a line even where nobody asked for reasons.
    pub cannot_start: bool,
}

impl ControlError {
    pub(crate) fn invalid(text: impl Into<String>) -> ControlError {
        ControlError { errno: libc::EINVAL, text: text.into(), cannot_start: false }
    }
}

impl From<DoorError> for ControlError {
    fn from(error: DoorError) -> ControlError {
        ControlError { errno: error.errno(), text: error.to_string(), cannot_start: error.cannot_start() }
    }
}

/// Why a work request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full (ENOMEM).
    #[error("The queue is full")]
    Full,
    /// Too many elements for this queue (EINVAL).
    #[error("{given} elements given, {max} allowed")]
    Elements {
        /// Given.
        given: u32,
        /// Allowed.
        max: u32,
    },
    /// More inline data than this queue was made for (EINVAL).
    #[error("{given} inline bytes given, {max} allowed")]
    Inline {
        /// Given.
        given: u64,
        /// Allowed.
        max: u32,
    },
    /// The queue pair's state does not allow posting here (EINVAL).
    #[error("The queue pair's state does not allow posting")]
    State,
    /// The device is gone (EIO).
    #[error("The device is gone")]
    Gone,
}
