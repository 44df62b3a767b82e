//! Scenarios: a network, a workload, settings and faults in one file, carried out and reported.
//!
//! The room reads scenario files, drives a [`srdma_fabric::Fabric`] through the [`srdma_workload::Course`]s of its jobs, and turns
//! what happened into records, a report and a picture. It must not know a clock, a terminal or where results are kept: whoever
//! runs a scenario brings a [`Sink`].
//!
//! Read `scenario` and `job` (plain values), `file` (a text becomes a scenario) with `network` and `cables` (its topology), `work` (its
//! jobs), `fault` and `target` (what breaks), `capacity` (windows that are too large) and `reader` (tables that know their
//! lines), `htsim` and `simai` (input files of those simulators),
//! `run` (one variant from begin to end), `duty` (its jobs), `report` (what came of it) with `ways`, `why` (where its time went),
//! `sweep` (many runs), [`figures`] (the paper's), `totals` and `tally` (means and percentiles), `plot`.
#![forbid(unsafe_code)]

mod cables;
mod capacity;
mod duty;
mod fault;
pub mod figures;
mod file;
mod htsim;
mod job;
mod network;
mod plot;
mod reader;
mod report;
mod run;
mod scenario;
mod simai;
mod sweep;
mod tally;
mod target;
mod totals;
mod ways;
mod why;
mod work;

pub use fault::Fault;
pub use file::parse;
pub use htsim::{read_matrix, read_topology};
pub use job::{Job, Workload};
pub use network::DEFAULT_QUEUE;
pub use plot::{svg, PlotError};
pub use reader::FileError;
pub use report::{table, FlowReport, JobReport, QueueReport, RunReport};
pub use run::{run, Moment, RunError, Sink, Status};
pub use scenario::{Scenario, ScenarioError, Settings, Variant};
pub use simai::read_simai;
pub use srdma_fabric::Time;
pub use sweep::{across, csv, parse_sweep, Point, Row, Sweep, SweepError, SweepFile};
pub use ways::Ways;
pub use why::{explain, Explanation, RecordError};
