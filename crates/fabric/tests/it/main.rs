//! A network of hosts with production RNICs, from outside: times that can be computed by hand, what spraying does,
//! faults, and the invariants that hold meanwhile.
#![allow(clippy::unwrap_used)]

mod analytic;
mod faults;
mod invariants;
mod net;
mod planes;
mod reordering;
mod spraying;
mod wires;
