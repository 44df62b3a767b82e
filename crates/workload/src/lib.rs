//! What programs send to each other: messages, and what each waits for.
//!
//! A workload is described by a plain struct ([`Permutation`], [`AllReduceRing`]) whose `plan` writes it out as a
//! [`Plan`]: WRITEs and dependencies between them, nothing else. [`Progress`] follows a plan while it is carried out and
//! says what may be posted next. The room must not know how messages travel, nor when.
//!
//! Read `plan`, then `progress`, then one file for each workload. A new one is a struct, a `plan`, and its file.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod permutation;
mod plan;
mod progress;
mod ring;

pub use permutation::Permutation;
pub use plan::{After, Message, Plan, PlanError};
pub use progress::Progress;
pub use ring::AllReduceRing;
