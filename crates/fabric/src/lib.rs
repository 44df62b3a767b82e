//! A packet network and its hosts, simulated. Every host has the production RNIC: [`srdma_rnic::Nic`] with the
//! transport inside, fed with values instead of bytes.
//!
//! The room decides when a packet is where: serialisation, propagation, queues, marks, drops, hashing, faults. It must
//! not know how a window is chosen, what is retransmitted or which path is next (transport does), what the messages are
//! for (the caller posts them), nor what a file or a clock is. It holds no copy of any protocol logic.
//!
//! # Properties
//!
//! - *Deterministic.* One seed, one run: no hash table with random keys, no clock, no thread, no global state. Equal runs
//!   have equal [`Fabric::trace_hash`]. Any number of fabrics live in one process.
//! - *Descriptors, no payload.* A packet is its header and where its bytes came from. [`Ground`] is the memory of a
//!   host: [`Nothing`] for speed, [`Pattern`] to check every byte.
//! - *Checked while it runs.* Every [`FabricConfig::audit_every`] events the bytes injected must be those delivered,
//!   dropped, and in flight ([`Fabric::audit`]).
//! - *One event per hop.* Queues are first in, first out, and rates constant, so a queue is the moment until which its link
//!   is busy: a packet's departure is known when it joins, and nothing is scheduled for it.
//! - *Node by node.* Within the time that the shortest link takes, nodes do not depend on each other; each is simulated that
//!   far in one go, while its state is in the cache.
//!
//! # How to read it
//!
//! `time`, `queue` (events by windows of time), `link` (a queue and a wire), `loss` (what a wire does besides), `buffer` (of a whole switch), `topology`, `fat_tree` and `hpn` (plain descriptions), `routes` (who
//! may carry a packet on), `packet` and `acks` (what flies), `turns` (node by node), `network` (links and events: a packet from hop to hop), `host` (an RNIC and
//! the world it sees) with `ports`, `ground` (its memory), `watch` (what it reports), `change` (what breaks), `fabric` (the whole).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod acks;
mod buffer;
mod change;
mod fabric;
mod fat_tree;
mod ground;
mod host;
mod hpn;
mod link;
mod loss;
mod network;
mod packet;
mod ports;
pub mod queue;
mod routes;
mod time;
mod topology;
mod turns;
mod watch;

pub use crate::network::{Audit, Imbalance};
pub use buffer::SharedBuffer;
pub use change::Change;
pub use fabric::{Fabric, FabricConfig, FabricError, Flow, FlowId, Notice, Planted, Post, Stop};
pub use fat_tree::{FatTree, Tier};
pub use ground::{Ground, Nothing, Origin, Pattern};
pub use hpn::Hpn;
pub use link::{Cut, Link, LinkCounts, LinkId, QueueLimits};
pub use ports::PORTS_MAX;
pub use time::{Rate, Time};
pub use topology::{Cable, End, Graph, Group, LeafSpine, Switch, TopologyError};
pub use watch::{FlowCounts, RETRANSMIT_CAUSES};
