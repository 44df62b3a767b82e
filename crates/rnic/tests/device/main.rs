//! Devices against one another over a link that loses, delays, duplicates and reorders.
#![allow(clippy::unwrap_used)]

mod basics;
mod endings;
mod host;
mod hostile;
mod net;
mod order;
mod refusals;
mod soup;
