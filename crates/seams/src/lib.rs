//! What every sans-IO room is handed from outside: time, chance, identity, an observer and a plan of faults.
//!
//! The rooms `wire`, `transport`, `memory` and `rnic` never ask the machine for anything. Whoever
//! drives them (a socket engine, a fabric simulator, a test) passes these types in. This room knows
//! nothing of packets, queue pairs or memory; it is the vocabulary in which the others are spoken to.
//!
//! Read [`time`] and [`ids`] first, then [`event`], which is also the list of everything that can
//! happen to a packet.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod event;
pub mod fault;
pub mod ids;
pub mod rng;
pub mod time;

pub use event::{Event, Observer};
pub use fault::{FaultPlan, Faults, Verdict};
pub use ids::{ConnectionId, Cqn, MrKey, Msn, PathId, PdId, Psn, Qpn, Slot, TenantId, TransmitId};
pub use rng::Rng;
pub use time::{Duration, Now};
