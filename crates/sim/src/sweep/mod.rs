//! Many runs: every combination of some values of a scenario's keys, for each of its variants and some seeds.
//!
//! A sweep is read from a file; its points are independent of each other, so that they can run on any thread or machine in any
//! order. A [`Point`] has a key that names everything that it depends on: by it, results are found again. [`Row`] is what a
//! point comes to, as a line of JSON or of a table. [`across`] has the threads; files and clocks are the caller's.

mod across;
mod read;
mod row;

pub use across::across;
pub use read::{parse_sweep, SweepFile};
pub use row::{csv, Row};

use crate::file::parse_with;
use crate::reader::FileError;
use crate::run::{run, RunError, Sink, Status};
use crate::scenario::Scenario;

/// Points of a sweep, at most.
const POINTS_MAX: usize = 1_000_000;

/// Everything that a sweep depends on.
#[derive(Clone, Debug)]
pub struct Sweep {
    file: SweepFile,
    /// Name and text of the scenario.
    scenario: (String, String),
    points: Vec<Point>,
}

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Keys of the scenario and their values, as in the file.
    pub settings: Vec<(String, String)>,
    /// The scenario's variant.
    pub variant: String,
    /// The seed.
    pub seed: u64,
    key: String,
}

impl Point {
    /// Names everything that its result depends on but the program. One line.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// A sweep that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// The scenario cannot be read once these values are in it.
    #[error("With {with}: {error}")]
    Scenario {
        /// Keys and values.
        with: String,
        /// What is wrong then.
        error: FileError,
    },
    /// Too many.
    #[error("{0} points are more than the {POINTS_MAX} that a sweep may have")]
    Points(usize),
}

impl Sweep {
    /// The sweep of `file` over the scenario `text`, which errors call `name`. Every combination is read once, so that
    /// what is wrong is found before anything runs.
    pub fn new(file: SweepFile, name: &str, text: &str) -> Result<Sweep, SweepError> {
        let digest = fnv(text);
        let mut points = Vec::new();
        for settings in file.combinations()? {
            let scenario = read(name, text, &settings, file.seeds[0])?;
            for variant in &scenario.variants {
                for &seed in &file.seeds {
                    let key = key(digest, &settings, &variant.name, seed);
                    points.push(Point {
                        settings: settings.clone(),
                        variant: variant.name.clone(),
                        seed,
                        key,
                    });
                }
            }
            if points.len() > POINTS_MAX {
                return Err(SweepError::Points(points.len()));
            }
        }
        Ok(Sweep { file, scenario: (name.to_owned(), text.to_owned()), points })
    }

    /// Its points, in the order of the table: the last key of the file varies fastest, within it variants, then seeds.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Keys that it varies, in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.file.axes.iter().map(|axis| axis.key.as_str())
    }

    /// Carries out one point.
    pub fn carry_out(&self, point: &Point) -> Row {
        let (name, text) = &self.scenario;
        let outcome =
            read(name, text, &point.settings, point.seed).map_err(|error| error.to_string()).and_then(
                |scenario| match scenario.variants.iter().find(|variant| variant.name == point.variant) {
                    None => Err(format!("no variant {}", point.variant)),
                    Some(variant) => {
                        run(&scenario, variant, &mut Nowhere).map_err(|error: RunError| error.to_string())
                    }
                },
            );
        Row::new(point, outcome.map(|(report, _)| report))
    }
}

fn read(name: &str, text: &str, settings: &[(String, String)], seed: u64) -> Result<Scenario, SweepError> {
    let mut all = settings.to_vec();
    all.push(("seed".to_owned(), seed.to_string()));
    parse_with(name, text, None, None, &all).map_err(|error| {
        let with: Vec<String> = settings.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        SweepError::Scenario { with: with.join(", "), error }
    })
}

fn key(digest: u64, settings: &[(String, String)], variant: &str, seed: u64) -> String {
    let settings: Vec<String> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{digest:016x} {} variant={variant} seed={seed}", settings.join(" "))
}

/// FNV-1a (Fowler, Noll and Vo): whether a scenario is the one that results are of.
fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Of a point, only the report is kept.
struct Nowhere;

impl Sink for Nowhere {
    fn record(&mut self, _record: &serde_json::Value) -> Result<(), std::io::Error> {
        Ok(())
    }

    fn progress(&mut self, _status: &Status) {}
}
