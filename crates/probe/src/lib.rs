//! What the way to a host is like: does it answer, how fast, how large a packet, and over how many
//! distinct paths.
//!
//! It sends Echo packets (`srdma_wire::Echo`) from many UDP source ports, since the source port is
//! what routers spread flows by, and reads what comes back: replies, and the ICMP errors that the
//! kernel queues on an unprivileged socket (`IP_RECVERR`, ip(7)). It must not know queue pairs or
//! connections, nor how results are printed. Everything it sends is bounded in number and in time.
//!
//! Read [`address`] (what this host can send from), [`socket`] (the one place with system calls),
//! [`check`] (the questions, in order), [`hops`] (probes of limited life) and [`paths`] (what their
//! answers prove; no I/O). [`listen`] is the other side: something that answers. [`doctor`] looks at
//! this host alone and sends nothing.

pub mod address;
pub mod check;
pub mod doctor;
pub mod hops;
pub mod listen;
pub mod paths;
pub mod prober;
pub mod socket;

pub use check::{check, Plan, Report};
