//! Devices against one another over a link that loses, delays, duplicates and reorders.
#![allow(clippy::unwrap_used)]

mod attack;
mod basics;
mod causes;
mod conversation;
mod crowd;
mod endings;
mod fuzzed;
mod host;
mod hostile;
mod mutants;
mod narrow;
mod net;
mod order;
mod refusals;
mod soup;

#[path = "../../../wire/tests/property/mod.rs"]
mod property;
