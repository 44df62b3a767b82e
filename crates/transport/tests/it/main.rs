//! Two connections joined by a model of a network, with invariants checked while it runs.
//!
//! `SRDMA_SEED=n` replays one seed of the random test, `SRDMA_SEEDS=n` runs that many.
#![allow(clippy::unwrap_used)]

mod answers;
mod behaviour;
mod capacity;
mod chaos;
mod counts;
mod handshakes;
mod link;
mod narrow;
mod planted;
mod responder;
mod seeds;
mod sim;
