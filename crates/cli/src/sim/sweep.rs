//! `srdma sim sweep`: many runs on all cores. Each is kept as it is ready, so that nothing is run twice.

use super::merge::{default_directory, kept_rows, load, write_table};
use super::progress::{cores, Progress};
use super::{FAILED, USAGE};
use crate::print::{complain, out};
use clap::Args;
use srdma_sim::{across, Point, Row, Sweep};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `srdma sim sweep`: its options.
#[derive(Args)]
#[command(
    after_help = "The file names a scenario, seeds, and values for keys of the scenario:\n\n  scenario = \
                  \"permutation.toml\"\n  seeds = 5\n  [vary]\n  \"transport.paths\" = [4, 16, 64]\n  \"workload.kib\" = \
                  { from = 256, to = 4096, times = 2 }\n\nA point that is ready is kept at once (points.jsonl); a sweep that \
                  was killed goes on where it was when it is started again. table.csv is the result, a line for each \
                  point.\n\nExit code: 0 all points have results, 1 a point could not be simulated or results could not \
                  be kept, 2 the files or the arguments are wrong.\n\nExamples:\n  srdma sim sweep share/sweeps/loss.toml\n  \
                  srdma sim sweep loss.toml --shard 3/16 --out /shared/loss       # on one of 16 machines\n  srdma sim \
                  merge loss.toml /shared/loss                           # when all are through"
)]
pub struct SweepCommand {
    /// The sweep (share/sweeps has a commented one)
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,

    /// Directory for the results [default: the file's name with .sweep]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Points simulated at once [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    jobs: Option<u32>,

    /// Only every N-th point, from the I-th on (from 0): what one of N machines does
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<Shard>,

    /// Say nothing on the way
    #[arg(long)]
    quiet: bool,
}

/// One of several parts of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    index: usize,
    count: usize,
}

fn shard(text: &str) -> Result<Shard, String> {
    let parsed =
        text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    match parsed {
        Some((index, count)) if index < count => Ok(Shard { index, count }),
        _ => Err("must be I/N with I from 0 to N − 1".to_owned()),
    }
}

/// Carries out `srdma sim sweep`.
pub fn sweep(command: &SweepCommand) -> ExitCode {
    let sweep = match load(&command.file) {
        Ok(sweep) => sweep,
        Err(problem) => {
            complain(&problem);
            return ExitCode::from(USAGE);
        }
    };
    match carry_out(command, &sweep) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(problem) => {
            complain(&problem);
            ExitCode::from(FAILED)
        }
    }
}

/// Whether every point of the part has numbers.
fn carry_out(command: &SweepCommand, sweep: &Sweep) -> Result<bool, String> {
    let directory = command.out.clone().unwrap_or_else(|| default_directory(&command.file));
    let cannot = |error: std::io::Error| format!("cannot write to {}: {error}", directory.display());
    std::fs::create_dir_all(&directory).map_err(cannot)?;
    let shard = command.shard.unwrap_or(Shard { index: 0, count: 1 });
    let mine: Vec<&Point> = sweep.points().iter().skip(shard.index).step_by(shard.count).collect();
    let mut rows = kept_rows(&directory)?;
    rows.retain(|row| row.error().is_none());
    let known: std::collections::HashSet<String> = rows.iter().map(|row| row.key().to_owned()).collect();
    let missing: Vec<&Point> = mine.iter().copied().filter(|point| !known.contains(point.key())).collect();
    let mut file = open_points(&directory, command.shard).map_err(cannot)?;
    let jobs = command.jobs.map_or_else(cores, |jobs| jobs as usize);
    let mut progress = Progress::new("points", missing.len(), mine.len() - missing.len(), command.quiet);
    progress.tell(0);
    let (mut done, mut failed) = (0, 0);
    across(
        jobs,
        missing.len(),
        |index| sweep.carry_out(missing[index]),
        |_, row: Row| {
            // One write for each line: whoever kills us finds whole lines.
            file.write_all(format!("{}\n", row.json()).as_bytes())?;
            if let Some(problem) = row.error() {
                failed += 1;
                complain(&format_args!("{}: {problem}", row.key()));
            }
            rows.push(row);
            done += 1;
            progress.tell(done);
            Ok(())
        },
    )
    .map_err(cannot)?;
    progress.end();
    match command.shard {
        None => drop(write_table(sweep, &rows, &directory)?),
        Some(Shard { index, count }) => out(&format!(
            "part {index} of {count}: {} points, {} of them kept from before; srdma sim merge makes the table\n",
            mine.len(),
            mine.len() - missing.len()
        )),
    }
    Ok(failed == 0)
}

/// The file that results are added to. A line that was cut short is taken away.
fn open_points(directory: &Path, shard: Option<Shard>) -> std::io::Result<File> {
    let name = match shard {
        None => "points.jsonl".to_owned(),
        Some(Shard { index, count }) => format!("points-{index}-of-{count}.jsonl"),
    };
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(directory.join(name))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last as u64 + 1);
    file.set_len(whole)?;
    file.seek(SeekFrom::Start(whole))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_one_of_n() {
        assert_eq!(shard("3/16"), Ok(Shard { index: 3, count: 16 }));
        for wrong in ["16/16", "1", "-1/2", "0/0", "a/b", ""] {
            assert!(shard(wrong).is_err(), "{wrong}");
        }
    }
}
