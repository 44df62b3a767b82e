//! Movers of bytes that never fault.
//!
//! A peer may write to memory that the program has meanwhile unmapped or protected. A plain copy would
//! then kill the program with a signal, and a signal handler is not ours to install: we live in
//! somebody's process. So the kernel copies, and answers `EFAULT` ([`own`]), or moves them between processes ([`process`]). Payloads that must wait for
//! earlier ones are kept in a bounded store ([`holds`]).
//!
//! This room must not know keys, queue pairs or packets: it is handed addresses that somebody else has
//! checked. Read [`own`] first.

mod fork;
pub mod holds;
pub mod own;
mod pipe;
pub mod process;
mod staging;
mod transfer;

pub use holds::Holds;
pub use own::OwnMemory;
pub use process::ProcessMemory;
pub use transfer::{Fault, Transfer};
