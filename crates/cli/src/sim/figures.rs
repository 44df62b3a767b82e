//! `srdma sim figures`: the paper's evaluation, simulated, as pictures and a report.

use super::progress::{cores, Progress};
use super::{FAILED, USAGE};
use crate::print::{complain, out};
use clap::Args;
use serde_json::json;
use srdma_sim::figures::{markdown, Case, Drawn, Figure, Outcome, Scale, FIGURES};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `srdma sim figures`: its options.
#[derive(Args)]
#[command(
    after_help = "Each figure becomes a picture (fig9.svg) with the published values beside those simulated; report.md has them \
                  all, with what differs and whether the published order came out, report.json the same for \
                  programs.\n\nExit code: 0 all was simulated, whatever came of it; 1 something could not be, or results \
                  could not be kept; 2 the arguments are wrong.\n\nExamples:\n  srdma sim figures --quick\n  srdma sim \
                  figures --only fig9 --out fig9"
)]
pub struct FiguresCommand {
    /// Scaled down: minutes on two cores
    #[arg(long)]
    quick: bool,

    /// Only this figure; can be given several times
    #[arg(long, value_name = "FIGURE", value_parser = known)]
    only: Vec<String>,

    /// Directory for pictures and report
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,

    /// Runs at once [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    jobs: Option<u32>,

    /// Print what came of it as JSON
    #[arg(long)]
    json: bool,

    /// Say nothing on the way
    #[arg(long)]
    quiet: bool,

    /// Smaller still: for tests
    #[arg(long, hide = true, conflicts_with = "quick")]
    smallest: bool,
}

fn known(name: &str) -> Result<String, String> {
    match FIGURES.iter().any(|figure| figure.id == name) {
        true => Ok(name.to_owned()),
        false => {
            let all: Vec<&str> = FIGURES.iter().map(|figure| figure.id).collect();
            Err(format!("there are {}", all.join(", ")))
        }
    }
}

/// Carries out `srdma sim figures`.
pub fn figures(command: &FiguresCommand) -> ExitCode {
    if let Err(error) = std::fs::create_dir_all(&command.out) {
        complain(&format_args!("cannot write to {}: {error}", command.out.display()));
        return ExitCode::from(USAGE);
    }
    match carry_out(command).and_then(|drawn| keep(command, &drawn)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            complain(&problem);
            ExitCode::from(FAILED)
        }
    }
}

fn carry_out(command: &FiguresCommand) -> Result<Vec<Drawn>, String> {
    let scale = match (command.quick, command.smallest) {
        (true, _) => Scale::Quick,
        (_, true) => Scale::Smallest,
        _ => Scale::Full,
    };
    let wanted = |figure: &&Figure| command.only.is_empty() || command.only.iter().any(|id| id == figure.id);
    let figures: Vec<&'static Figure> = FIGURES.iter().filter(wanted).collect();
    let cases: Vec<(usize, Case)> = figures
        .iter()
        .enumerate()
        .flat_map(|(index, figure)| figure.cases(scale).into_iter().map(move |case| (index, case)))
        .collect();
    let mut outcomes: Vec<Option<Outcome>> = cases.iter().map(|_| None).collect();
    let mut progress = Progress::new("runs", cases.len(), 0, command.quiet);
    progress.tell(0);
    let mut done = 0;
    let jobs = command.jobs.map_or_else(cores, |jobs| jobs as usize);
    srdma_sim::across(
        jobs,
        cases.len(),
        |index| cases[index].1.carry_out(),
        |index, outcome| {
            let case = &cases[index].1;
            let outcome = outcome.map_err(|error| format!("{}: {error}", case.name()))?;
            if !outcome.is_finished() {
                complain(&format_args!("{}: unfinished within its limit", case.name()));
            }
            outcomes[index] = Some(outcome);
            done += 1;
            progress.tell(done);
            Ok::<(), String>(())
        },
    )?;
    progress.end();
    let mut by_figure: Vec<Vec<Outcome>> = figures.iter().map(|_| Vec::new()).collect();
    for ((figure, _), outcome) in cases.iter().zip(outcomes) {
        by_figure[*figure].extend(outcome);
    }
    Ok(figures.iter().zip(&by_figure).map(|(figure, outcomes)| figure.read(outcomes)).collect())
}

fn keep(command: &FiguresCommand, drawn: &[Drawn]) -> Result<(), String> {
    let write = |name: &str, text: &str| {
        let path: &Path = &command.out.join(name);
        std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    for figure in drawn {
        write(&format!("{}.svg", figure.id()), &figure.svg().map_err(|error| error.to_string())?)?;
    }
    write("report.md", &markdown(&line(command), drawn, |figure| format!("{}.svg", figure.id())))?;
    let all: Vec<_> = drawn.iter().map(Drawn::json).collect();
    let report = format!("{:#}\n", json!({ "command": line(command), "figures": all }));
    write("report.json", &report)?;
    if command.json {
        out(&report);
        return Ok(());
    }
    let mut text = String::new();
    for figure in drawn {
        let verdict = figure.verdict();
        text += &format!("{}  order reproduced: {}\n", figure.id(), verdict.words());
        for broken in &verdict.broken {
            text += &format!("       {broken}\n");
        }
    }
    text += &format!("report.md, report.json, pictures: {}\n", command.out.display());
    out(&text);
    Ok(())
}

/// The command that makes the same again.
fn line(command: &FiguresCommand) -> String {
    let only: String = command.only.iter().map(|id| format!(" --only {id}")).collect();
    format!("srdma sim figures{}{only}", if command.quick { " --quick" } else { "" })
}
