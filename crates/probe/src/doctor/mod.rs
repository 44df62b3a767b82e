//! What of this host helps or hinders the software RNIC: facts, read without root, and what they mean.
//!
//! [`facts`] reads and does not judge; [`judge`] judges and reads nothing, so that its tests need no host of any
//! kind. Every finding that is not good says what to type.

pub mod facts;
pub mod judge;

pub use facts::Facts;
pub use judge::{judge, Finding, Level, Wants};
