//! Small scenarios, each a file in this folder: equal seeds give equal runs, whoever runs beside them, and what comes of
//! each is what `table.txt` says. A change that is meant to move a number moves it in that file too:
//!
//! ```sh
//! SRDMA_BLESS=1 cargo test -p srdma-sim --test regression
//! ```
//!
//! writes the table anew; its difference is part of the change and is to be looked at. A scenario is added by adding a
//! file `NAME.toml`, with `NAME.topo` and `NAME.cm` beside it if it takes its network or messages from htsim's files.
#![allow(clippy::unwrap_used)]

mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use serde_json::Value;
use srdma_sim::{run, RunReport, Scenario, Sink, Status, Variant, Workload, DEFAULT_QUEUE};

/// Threads that simulate side by side.
const THREADS: usize = 4;
/// What the child of [`another_process_sees_the_same_events`] begins its lines with.
const MARK: &str = "trace of ";

struct Nowhere;

impl Sink for Nowhere {
    fn record(&mut self, _record: &Value) -> Result<(), std::io::Error> {
        Ok(())
    }

    fn progress(&mut self, _status: &Status) {}
}

/// One variant of a scenario.
struct Job {
    name: String,
    scenario: Scenario,
    variant: Variant,
}

impl Job {
    fn run(&self) -> RunReport {
        run(&self.scenario, &self.variant, &mut Nowhere)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
            .0
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regression")
}

fn read(path: &Path) -> Scenario {
    let text = |extension| std::fs::read_to_string(path.with_extension(extension)).ok();
    let graph = text("topo").map(|text| srdma_sim::read_topology("topo", &text, DEFAULT_QUEUE).unwrap());
    let matrix = text("cm").map(|text| Workload::Matrix(srdma_sim::read_matrix("cm", &text).unwrap()));
    let name = path.display().to_string();
    srdma_sim::parse(&name, &text("toml").unwrap(), graph, matrix).unwrap_or_else(|error| panic!("{error}"))
}

/// Every variant of every scenario, in order of names.
fn jobs() -> Vec<Job> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    let of = |path: &PathBuf| {
        let (scenario, stem) = (read(path), path.file_stem().unwrap().to_str().unwrap().to_owned());
        let variants = scenario.variants.clone().into_iter();
        let job = move |variant: Variant| Job {
            name: format!("{stem}: {}", variant.name),
            scenario: scenario.clone(),
            variant,
        };
        variants.map(job).collect::<Vec<Job>>()
    };
    paths.iter().flat_map(of).collect()
}

/// What came of all jobs, one after the other on one thread.
fn reports() -> &'static [(Job, RunReport)] {
    static REPORTS: OnceLock<Vec<(Job, RunReport)>> = OnceLock::new();
    let run = |job: Job| {
        let report = job.run();
        (job, report)
    };
    REPORTS.get_or_init(|| jobs().into_iter().map(run).collect())
}

#[test]
fn what_comes_of_each_scenario_is_what_the_table_says() {
    let rows: Vec<table::Row> =
        reports().iter().map(|(job, report)| table::Row::of(&job.name, report)).collect();
    assert!(rows.len() >= 10 && reports().iter().all(|(_, report)| report.finished));
    let path = folder().join("table.txt");
    if std::env::var_os("SRDMA_BLESS").is_some() {
        return std::fs::write(&path, table::text(&rows)).unwrap();
    }
    let known = table::read(&std::fs::read_to_string(&path).unwrap());
    let drift = table::drift(&known, &rows);
    assert!(
        drift.is_empty(),
        "Simulations no longer end as {} says:\n\n{drift}\nIf that is what the change is for:\n\n    SRDMA_BLESS=1 cargo \
         test -p srdma-sim --test regression\n\nand look at the difference of that file.\n",
        path.display()
    );
}

/// Several at a time in one process, in another order: nothing is shared, and no address or thread decides anything.
#[test]
fn runs_side_by_side_are_those_that_run_alone() {
    let alone = reports();
    let (next, differing) = (AtomicUsize::new(alone.len()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| loop {
                let index = next.fetch_sub(1, Ordering::Relaxed);
                if index == 0 || index > alone.len() {
                    break;
                }
                let (job, report) = &alone[index - 1];
                if job.run() != *report {
                    differing.lock().unwrap().push(&job.name);
                }
            });
        }
    });
    let differing = differing.into_inner().unwrap();
    assert!(differing.is_empty(), "differ when others run beside them: {differing:?}");
}

/// Nothing that differs between processes (addresses, random keys of tables) decides anything either.
#[test]
fn another_process_sees_the_same_events() {
    let lines =
        || reports().iter().map(|(job, report)| format!("{MARK}{}: {:x}", job.name, report.trace_hash));
    if std::env::var_os("SRDMA_REGRESSION_CHILD").is_some() {
        return lines().for_each(|line| println!("{line}"));
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "another_process_sees_the_same_events", "--nocapture"])
        .env("SRDMA_REGRESSION_CHILD", "1")
        .output()
        .unwrap();
    let said = String::from_utf8(child.stdout).unwrap();
    let theirs: Vec<&str> = said.lines().filter_map(|line| line.find(MARK).map(|at| &line[at..])).collect();
    assert_eq!(theirs, lines().collect::<Vec<_>>());
}
