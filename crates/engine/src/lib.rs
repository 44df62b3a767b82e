//! A device that runs: one worker behind a lock, the clock, the wake-ups, and the slot it has claimed.
//!
//! The engine joins the sans-IO rooms to sockets and memory. Whoever calls it makes the progress
//! ([`Device::poll`], [`Device::ring_send`]); a background thread, blocked in the kernel, does when nobody calls. It must
//! not know what a work request means (`rnic`), how packets are numbered (`transport`), or who the client is
//! (`doors`). It reads no environment and no files; [`Options`] are plain values.
//!
//! A [`Device`] is in its program's own process and shared by its threads; [`hosted`] serves programs in other processes,
//! with the same worker.
//!
//! Read [`device`] for the calls and the locking rule, then `worker` (one turn of work), `control` (control calls), `world` (what the
//! RNIC is given), `background` (how the thread decides to sleep), `wake`,
//! `watch` (how it shows its counters while it runs).

mod announce;
mod background;
mod bells;
pub mod claims;
mod clock;
mod control;
pub mod counters;
pub mod device;
pub mod hosted;
mod numbers;
mod options;
mod owed;
mod patience;
mod programs;
mod queues;
mod stats;
mod straight;
mod variables;
mod wake;
mod watch;
mod worker;
mod world;

pub use device::{Device, DeviceError, StartError};
pub use hosted::{Hosted, QpBells};
pub use options::{for_this_process, Options};
pub use queues::CqEvents;
pub use srdma_rnic::Order;
pub use srdma_seams::Faults;
pub use srdma_transport::SelectorKind;
pub use variables::{ppm_of_percent, seed, BadValue, Variable, VARIABLES};
pub use watch::OtherEnd;
