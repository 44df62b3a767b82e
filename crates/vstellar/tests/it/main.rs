//! The interpreter against a host that keeps its own books and panics when it is asked for what it should not be.
#![allow(clippy::unwrap_used, clippy::result_large_err)]

mod commands;
mod hostile;
mod model;
