//! The device in another process: a daemon that owns the RNIC of the host. Control commands (`srdma_abi::command`) travel over a
//! Unix socket that keeps messages apart (SOCK_SEQPACKET, unix(7)), one question and one answer at a time; rings and the
//! doorbell page are memory that the daemon makes, seals and passes over; bytes of the program's regions are moved by the
//! daemon (`dma::process`).
//!
//! The program's side is [`client`], the daemon's is [`server`] (who comes, and the loop) with `rnic` (what carries commands out).
//! `message` sends and receives, `memory` makes and maps what is shared, `peer` says who is at the other end.
//!
//! # Who wakes whom
//!
//! A program that posts while the daemon sleeps adds to an event counter (eventfd(2)) that the daemon waits for: the
//! doorbell page tells it that it must (`srdma_ring::doorbell`). Events of completion queues, and asynchronous ones, are records in pipes
//! whose reading ends the program gets. When the daemon ends, for whatever reason, these pipes end, and so a program
//! learns of it where it waits anyway.

pub mod client;
mod memory;
mod message;
mod peer;
mod rnic;
pub mod server;

pub use client::{Device, DialError};
pub use server::{Server, ServerError};
