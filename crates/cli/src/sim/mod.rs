//! `srdma sim`: what the RNIC and its transport would do on a network that is not there.
//!
//! `srdma_sim` reads and carries out scenarios; here are the arguments, the clock, and where results go. Read [`sink`]
//! for the latter; the other commands have a file each.

mod figures;
mod merge;
mod progress;
mod sink;
mod sweep;
mod why;

use crate::print::{complain, out};
use clap::{Args, Subcommand};
use serde_json::json;
use sink::Files;
use srdma_sim::{FileError, Moment, RunReport, Scenario, Workload, DEFAULT_QUEUE};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Exit code when something was not received, or results could not be kept.
const FAILED: u8 = 1;
/// Exit code of a scenario that is not as it should be.
const USAGE: u8 = 2;

/// `srdma sim`: what to do.
#[derive(Args)]
pub struct SimCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Simulate a scenario: a network, a workload, settings and faults in one file
    Run(RunCommand),
    /// Explain a run from its results: queues, full windows, losses, hash collisions, the last flow's story
    Why(why::WhyCommand),
    /// Simulate every combination of some values and seeds: one table. Resumable; can be spread over machines
    Sweep(sweep::SweepCommand),
    /// Put the table of a sweep together from what several machines left
    Merge(merge::MergeCommand),
    /// Simulate the evaluation of the Stellar paper: its figures, published values beside ours
    Figures(figures::FiguresCommand),
}

/// `srdma sim run`: its options.
#[derive(Args)]
#[command(
    after_help = "Results go to a directory while the simulation runs: results.jsonl, one JSON object a line, valid \
                        however far it came; plot.svg and summary.txt at the end.\n\nExit code: 0 every message was \
                        received, 1 some were not or results could not be kept, 2 the scenario or the arguments are \
                        wrong.\n\nExamples:\n  srdma sim run share/scenarios/permutation.toml\n  srdma sim run \
                        my.toml --seed 7 --out run7 --json"
)]
struct RunCommand {
    /// Scenario (share/scenarios has commented ones); not needed with --topo and one of --tm, --workload
    #[arg(required_unless_present = "topo")]
    scenario: Option<PathBuf>,

    /// Topology file of htsim, instead of the scenario's [topology]
    #[arg(long, value_name = "FILE.topo")]
    topo: Option<PathBuf>,

    /// Connection matrix of htsim, instead of the scenario's [workload]
    #[arg(long, value_name = "FILE.cm")]
    tm: Option<PathBuf>,

    /// Training workload of SimAI, instead of the scenario's [workload]
    #[arg(long, value_name = "FILE.txt", conflicts_with = "tm")]
    workload: Option<PathBuf>,

    /// Directory for the results [default: the scenario's name with .out]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Seed instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Print the reports as JSON instead of a table
    #[arg(long)]
    json: bool,

    /// Say nothing on the way
    #[arg(long)]
    quiet: bool,
}

/// One run that has ended.
struct Done {
    report: RunReport,
    moments: Vec<Moment>,
    took: Duration,
}

/// Carries out `srdma sim`.
pub fn sim(command: &SimCommand) -> ExitCode {
    match &command.what {
        What::Run(command) => run(command),
        What::Why(command) => why::why(command),
        What::Sweep(command) => sweep::sweep(command),
        What::Merge(command) => merge::merge(command),
        What::Figures(command) => figures::figures(command),
    }
}

fn run(command: &RunCommand) -> ExitCode {
    let scenario = match read(command) {
        Ok(scenario) => scenario,
        Err(problem) => {
            complain(&problem);
            return ExitCode::from(USAGE);
        }
    };
    match carry_out(command, &scenario) {
        Ok(runs) => {
            let all = runs.iter().all(|run| run.report.finished && run.report.messages[1] == 0);
            ExitCode::from(if all { 0 } else { FAILED })
        }
        Err(problem) => {
            complain(&problem);
            ExitCode::from(FAILED)
        }
    }
}

fn read(command: &RunCommand) -> Result<Scenario, String> {
    let graph =
        with_text(command.topo.as_deref(), |name, text| srdma_sim::read_topology(name, text, DEFAULT_QUEUE))?;
    let plan = with_text(command.tm.as_deref(), srdma_sim::read_matrix)?;
    let layered = with_text(command.workload.as_deref(), srdma_sim::read_simai)?;
    let workload = plan.map(Workload::Matrix).or(layered.map(Workload::Layered));
    let mut scenario = match (&command.scenario, graph, workload) {
        (Some(path), graph, workload) => {
            let read = with_text(Some(path), |name, text| srdma_sim::parse(name, text, graph, workload))?;
            read.ok_or_else(|| "no scenario".to_owned())?
        }
        (None, Some(graph), Some(workload)) => {
            Scenario::plain(&stem(command).display().to_string(), graph, workload)
        }
        _ => return Err("without a scenario, --topo and one of --tm, --workload are needed".to_owned()),
    };
    scenario.validate().map_err(|error| error.to_string())?;
    scenario.seed = command.seed.unwrap_or(scenario.seed);
    Ok(scenario)
}

/// What `read` makes of the file at `path`, if there is one.
fn with_text<T>(
    path: Option<&Path>,
    read: impl FnOnce(&str, &str) -> Result<T, FileError>,
) -> Result<Option<T>, String> {
    let Some(path) = path else { return Ok(None) };
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    read(&name, &text).map(Some).map_err(|error| error.to_string())
}

/// Name of the file that says what is sent, without its ending.
fn stem(command: &RunCommand) -> PathBuf {
    let path = command.scenario.as_ref().or(command.tm.as_ref()).or(command.workload.as_ref());
    path.and_then(|path| path.file_stem()).map_or_else(|| PathBuf::from("sim"), PathBuf::from)
}

fn carry_out(command: &RunCommand, scenario: &Scenario) -> Result<Vec<Done>, String> {
    let directory =
        command.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.out", stem(command).display())));
    let cannot = |error: std::io::Error| format!("cannot write to {}: {error}", directory.display());
    std::fs::create_dir_all(&directory).map_err(cannot)?;
    let mut files = Files::create(&directory, command.quiet).map_err(cannot)?;
    let mut runs = Vec::new();
    for variant in &scenario.variants {
        files.begin(&variant.name);
        let begin = Instant::now();
        let run = srdma_sim::run(scenario, variant, &mut files);
        files.end();
        let (report, moments) = run.map_err(|error| format!("{}: {error}", variant.name))?;
        runs.push(Done { report, moments, took: begin.elapsed() });
    }
    finish(command, scenario, &directory, &runs)?;
    Ok(runs)
}

/// The picture and the summary.
fn finish(command: &RunCommand, scenario: &Scenario, directory: &Path, runs: &[Done]) -> Result<(), String> {
    let pictured: Vec<(RunReport, Vec<Moment>)> =
        runs.iter().map(|run| (run.report.clone(), run.moments.clone())).collect();
    let picture = srdma_sim::svg(&scenario.name, &pictured).map_err(|error| error.to_string())?;
    let reports: Vec<RunReport> = pictured.into_iter().map(|(report, _)| report).collect();
    let summary = format!("{} (seed {})\n\n{}", scenario.name, scenario.seed, srdma_sim::table(&reports));
    for (name, text) in [("plot.svg", &picture), ("summary.txt", &summary)] {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    if command.json {
        let each = |run: &Done| {
            let mut report = run.report.json();
            report["real_s"] = json!(run.took.as_secs_f64());
            report
        };
        let all: Vec<_> = runs.iter().map(each).collect();
        out(&format!("{:#}\n", json!({ "scenario": scenario.name, "runs": all })));
        return Ok(());
    }
    let mut text = summary;
    for run in runs {
        let seconds = run.took.as_secs_f64();
        let rate = run.report.events as f64 / seconds.max(1e-9) / 1e6;
        let packets = run.report.packets as f64 / seconds.max(1e-9) / 1e3;
        text += &format!(
            "\n{}: {seconds:.2} s, {rate:.2} million events and {packets:.0} thousand data packets per second",
            run.report.variant
        );
    }
    text += &format!("\nresults.jsonl, plot.svg, summary.txt: {}\n", directory.display());
    out(&text);
    Ok(())
}
