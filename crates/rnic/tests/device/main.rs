//! Devices against one another over a link that loses, delays, duplicates and reorders.
#![allow(clippy::unwrap_used)]

mod basics;
mod host;
mod net;
mod refusals;
mod soup;
