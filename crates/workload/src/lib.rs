//! What programs send to each other: messages, and what each waits for.
//!
//! A workload is described by a plain struct. It becomes either a [`Plan`], all messages written out with their
//! dependencies ([`Permutation`], connection matrices), or a [`Program`], operations such as *compute* and *AllReduce* that
//! members carry out, written out only while it runs ([`Collective`], [`Training`], [`Layered`], [`ExpertLayers`],
//! [`KvTransfer`]). [`Written`] and [`Execution`] follow the one
//! and the other while it is carried out, as a [`Course`]: they wish for messages and times, and are told what has happened.
//! Members become hosts by a [`Placement`]. The room must not know how messages travel, nor how long that takes.
//!
//! Read `course`, then `plan` and `progress`, then `pattern`, `program` and `execution`, then one file for each workload. A
//! new collective is a [`Pattern`]; a new workload is a struct, a `program`, and its file.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod collective;
mod course;
mod execution;
mod experts;
mod inference;
mod layered;
mod models;
mod pattern;
mod permutation;
mod placement;
mod plan;
mod program;
mod progress;
mod team;
mod training;
mod unhindered;

pub use collective::Collective;
pub use course::{Course, Repeat, Span, Told, Wish};
pub use execution::Execution;
pub use experts::ExpertLayers;
pub use inference::KvTransfer;
pub use layered::{Among, Layer, Layered, Phase};
pub use models::{Model, Preset, PRESETS};
pub use pattern::{Exchange, Pattern};
pub use permutation::Permutation;
pub use placement::{Order, Placement, PlacementError};
pub use plan::{After, Message, Plan, PlanError};
pub use program::{GroupsId, OpId, Program, Traffic, What};
pub use progress::{Progress, Written};
pub use team::{Servers, Together};
pub use training::Training;
pub use unhindered::unhindered_ps;
