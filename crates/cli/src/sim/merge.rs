//! `srdma sim merge`, and the files of a sweep: points that are ready, and the table.

use super::{FAILED, USAGE};
use crate::print::{complain, out};
use clap::Args;
use srdma_sim::{Row, Sweep};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Points that are named when they are missing.
const NAMED: usize = 5;

/// `srdma sim merge`: its options.
#[derive(Args)]
#[command(
    after_help = "Reads every points*.jsonl in the directories and writes table.csv into the first.\n\nExit code: 0 all points \
                  have results, 1 some are missing or the table could not be written, 2 the files or the arguments are \
                  wrong.\n\nExample:\n  srdma sim merge loss.toml /shared/loss"
)]
pub struct MergeCommand {
    /// The sweep
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,

    /// Directories with its results [default: the file's name with .sweep]
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,
}

/// Carries out `srdma sim merge`.
pub fn merge(command: &MergeCommand) -> ExitCode {
    let sweep = match load(&command.file) {
        Ok(sweep) => sweep,
        Err(problem) => {
            complain(&problem);
            return ExitCode::from(USAGE);
        }
    };
    let default = [default_directory(&command.file)];
    let directories = if command.directories.is_empty() { &default[..] } else { &command.directories };
    let mut rows = Vec::new();
    for directory in directories {
        match kept_rows(directory) {
            Ok(more) => rows.extend(more),
            Err(problem) => {
                complain(&problem);
                return ExitCode::from(USAGE);
            }
        }
    }
    match write_table(&sweep, &rows, &directories[0]) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(problem) => {
            complain(&problem);
            ExitCode::from(FAILED)
        }
    }
}

/// Reads a sweep and its scenario.
pub fn load(path: &Path) -> Result<Sweep, String> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let file = srdma_sim::parse_sweep(&path.display().to_string(), &read(path)?)
        .map_err(|error| error.to_string())?;
    let scenario = path.parent().unwrap_or(Path::new("")).join(&file.scenario);
    let text = read(&scenario)?;
    Sweep::new(file, &scenario.display().to_string(), &text).map_err(|error| error.to_string())
}

/// Where the results of a sweep are if nobody says otherwise.
pub fn default_directory(path: &Path) -> PathBuf {
    let stem = path.file_stem().map_or("sim".into(), |stem| stem.to_string_lossy());
    PathBuf::from(format!("{stem}.sweep"))
}

/// What is ready in a directory, of this or any other machine.
pub fn kept_rows(directory: &Path) -> Result<Vec<Row>, String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", directory.display());
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("points") && name.ends_with(".jsonl") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut rows = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(cannot)?;
        rows.extend(text.lines().filter_map(Row::read));
    }
    Ok(rows)
}

/// Writes the table; whether it is complete. What is not is named.
pub fn write_table(sweep: &Sweep, rows: &[Row], directory: &Path) -> Result<bool, String> {
    let (text, missing) = srdma_sim::csv(sweep, rows);
    let path = directory.join("table.csv");
    std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    for point in missing.iter().take(NAMED) {
        complain(&format_args!("no result: {}", point.key()));
    }
    let count = sweep.points().len();
    out(&format!("{} of {count} points: {}\n", count - missing.len(), path.display()));
    Ok(missing.is_empty())
}
