//! Rings in memory that two sides share and neither trusts: work queues, completion rings, doorbells.
//!
//! One format serves every door. In one process the memory is our own heap; between processes, or
//! between a virtual machine and its host, it is a mapping that the other side can write at any moment.
//! So each half keeps its own cursors in private memory, treats every index and length it reads as
//! hostile, copies an entry out before looking at it, and reads shared bytes only through atomics, so
//! that a writer racing with us is a wrong value and never undefined behaviour. A lie is answered once
//! and for all: the half turns bad and stays so; nothing panics, nothing is read or written outside.
//!
//! This room must not know what an entry means (that is `rnic`), who waits how (`engine`, `client`),
//! or where mappings come from (`doors`). It is the only sans-IO room with `unsafe`, all of it in
//! [`memory`] and in the copy from a program's buffers in [`work`]. No operation after construction
//! allocates or locks; several threads on one side take turns by a lock of the caller's.
//!
//! Read [`memory`] (layout), [`work`] (posting), [`completion`] (polling and arming), [`doorbell`], [`sleep`].
//! Each says which memory ordering it uses and why. `RUSTFLAGS="--cfg loom" cargo test --release -p
//! srdma-ring` has loom enumerate the interleavings.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(any(test, loom))]
extern crate std;

pub mod completion;
pub mod doorbell;
pub mod memory;
pub mod sleep;
mod sync;
pub mod work;

pub use completion::{CompletionConsumer, CompletionProducer, Full};
pub use doorbell::DoorbellPage;
pub use memory::{Layout, MemoryError, RingMemory};
pub use sleep::SleepUntil;
pub use work::{units_for, BadRing, Next, Reserved, WorkConsumer, WorkProducer, ENTRY_BYTES_MAX};

#[cfg(all(test, loom))]
mod interleavings;
#[cfg(all(test, not(loom)))]
mod testing;
