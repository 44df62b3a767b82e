//! What a program and its device say to each other, as `repr(C)` values: work-queue entries,
//! completions, the doorbell page, control commands, and the table of error causes.
//!
//! One format for every door (in-process, socket, virtio). Nothing here knows how the values travel
//! (that is `ring` and `doors`), what a queue pair does with them (`rnic`), or the C structs of
//! libibverbs (`verbs`). All integers are little-endian on the machines we run on; a big-endian port
//! would convert at this border.
//!
//! Read [`entry`] (what is posted), [`completion`] (what comes back), [`cause`] (why it failed), then
//! [`control`], and [`command`] for how control travels to a device in another process.
#![no_std]
#![forbid(unsafe_code)]

pub mod cause;
pub mod command;
pub mod completion;
pub mod control;
pub mod entry;

pub use cause::{Cause, WcStatus};
pub use completion::{Completion, WcFlags, WcOpcode};
pub use control::{
    Access, AsyncEvent, AsyncKind, DeviceLimits, OutOfRange, PortInfo, QpAttributes, QpInit, QpMask, QpState,
};
pub use entry::{Opcode, RecvEntry, SendEntry, SendFlags, Sge, UNITS_MAX, UNIT_BYTES};
