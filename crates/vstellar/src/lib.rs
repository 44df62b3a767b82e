//! Virtual devices: who may have what of a host's RNIC. Sans-IO.
//!
//! An [`Interpreter`] takes control commands as bytes (`srdma_abi::command`) from whoever speaks at a door, decides, has a
//! [`Host`] carry them out, and answers with bytes. It knows devices and tenants, their limits and what they use
//! of them ([`registry`]), and what each attached program has made ([`session`]): a handle names only what the same
//! program made, and all of it goes when the program goes.
//!
//! It must not know what carries the bytes (that is `doors`), what a queue pair does, or who may touch which memory on the data
//! path: `rnic::authz` decides that, by the tenant that is given to it here with each protection domain.
//!
//! Nothing that anybody sends panics, and nothing refused leaves a trace but a count ([`Denials`]). Memory follows what
//! exists: a device is one entry of a map, an attached program what it has made.
//!
//! Read [`interpreter`] (what each command takes and does), then [`registry`], [`session`], and [`host`] for the other side.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod host;
pub mod interpreter;
mod program;
pub mod quota;
pub mod refusal;
pub mod registry;
pub mod session;

pub use host::{Host, Port};
pub use interpreter::{Interpreter, Who};
pub use refusal::{Denials, Refusal};
pub use registry::{Definition, DeviceId, DEVICES_MAX};
pub use session::SessionId;
