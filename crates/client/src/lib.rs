//! A device behind any door: what the C ABI library (and any Rust program) calls.
//!
//! This room turns calls into entries of rings, doorbells and control calls, and completions back. It must not
//! know libibverbs' structs (that is `verbs`), nor what the device does with an entry (that is `rnic`).
//!
//! Read [`Device`] for the control calls, [`Qp`] for posting, [`Cq`] for completions, [`watching`] for
//! looking at a process from outside. A device lives in the program's own process, or in a daemon: then [`DeviceInfo::socket`]
//! says where.

mod cq;
mod device;
mod error;
mod qp;
pub mod watching;

pub use cq::Cq;
pub use device::{devices, virtual_device, Device, DeviceInfo};
pub use error::{ControlError, OpenError, PostError};
pub use qp::{Qp, RecvPosts, SendPosts};
pub use srdma_abi as abi;
pub use srdma_doors::inproc::{
    for_this_process, ppm_of_percent, seed, BadValue, CqEvents, Faults, Options, Order, OtherEnd,
    SelectorKind, VARIABLES,
};
