//! `srdma stats`: what running processes of this user do on the software RNIC, while they do it.
//!
//! Read [`attach`] (who is there, and asking them), [`sample`] (what has changed), [`text`] (in words).

pub mod amount;
pub mod attach;
pub mod sample;
pub mod text;

use crate::print::complain;
use clap::Args;
use sample::{Sample, Sampler, Wanted};
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between the two looks of a single report.
const LOOK: Duration = Duration::from_millis(250);
/// Home, and clear to the end of the screen (ECMA-48).
const CLEAR: &str = "\x1b[H\x1b[J";

/// `srdma stats`: its options.
#[derive(Args)]
#[command(
    after_help = "Programs are found where `srdma run` (or `srdma env`) has put our library into them, unless \
                        SRDMA_STATS_SOCKET=off is set there. Looking costs them nothing while nobody looks, and a few \
                        hundred microseconds each time somebody does.\n\nExit code: 0 something was shown, 1 there is \
                        no such process, 2 the arguments are wrong.\n\nExamples:\n  srdma stats\n  srdma stats \
                        --watch 1 4711\n  srdma stats --json | jq '.devices[].rates'"
)]
pub struct StatsCommand {
    /// Only these processes [default: all of this user; of root: all]
    #[arg(value_name = "PID")]
    pids: Vec<u32>,

    /// Again every SECS seconds, until interrupted or every PID has ended
    #[arg(long, value_name = "SECS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds)]
    watch: Option<Duration>,

    /// End after this many reports
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,

    /// Print JSON: the objects of `--stats`, with rates; with --watch, a line for each report
    #[arg(long)]
    json: bool,

    /// Show every queue pair and every path, and queue pairs that are gone
    #[arg(long)]
    all: bool,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.05..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "must be 0.05 to 86400 seconds".to_owned())
}

/// Carries out `srdma stats`.
pub fn stats(command: &StatsCommand) -> ExitCode {
    let mut sampler = Sampler::new(attach::directories());
    let wanted = Wanted {
        pids: command.pids.clone(),
        all_paths: command.all || command.json,
        finished: command.all,
        ..Wanted::default()
    };
    let interval = command.watch.unwrap_or(LOOK);
    let mut next = Instant::now() + interval;
    let mut shown = false;
    sampler.take(&wanted);
    for number in 1.. {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next = (next + interval).max(Instant::now());
        let sample = sampler.take(&wanted);
        let is_empty = sample.devices.is_empty() && sample.silent.is_empty();
        if is_empty && (command.watch.is_none() || have_ended(&command.pids)) {
            break;
        }
        shown |= !is_empty;
        // A reader that has gone away wants no more.
        if show(command, &sample).is_err() || command.watch.is_none() || command.count == Some(number) {
            break;
        }
    }
    if shown {
        return ExitCode::SUCCESS;
    }
    complain(&nobody(&command.pids));
    ExitCode::from(1)
}

/// Whether there is nobody left to wait for. A process that has ended and was not waited for by its parent is still
/// listed, as a zombie (proc(5)).
fn have_ended(pids: &[u32]) -> bool {
    let is_alive = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name, which is in brackets and may hold any.
        stat.rsplit(')')
            .next()
            .and_then(|rest| rest.trim_start().chars().next())
            .is_some_and(|state| state != 'Z')
    };
    !pids.is_empty() && !pids.iter().any(is_alive)
}

/// Why nothing is shown.
pub fn nobody(pids: &[u32]) -> String {
    let who = match pids {
        [] => "no process of this user has".to_owned(),
        [pid] => format!("process {pid} does not have"),
        _ => "none of these processes has".to_owned(),
    };
    format!("{who} a queue pair on the software RNIC; start one with `srdma run -- PROGRAM`")
}

fn show(command: &StatsCommand, sample: &Sample) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if command.json {
        let devices: Vec<_> = sample.devices.iter().map(sample::Device::object).collect();
        let silent: Vec<_> =
            sample.silent.iter().map(|(pid, why)| json!({ "pid": pid, "why": why.to_string() })).collect();
        let report = json!({ "version": 1, "devices": devices, "silent": silent });
        match command.watch {
            Some(_) => writeln!(out, "{report}")?,
            None => writeln!(out, "{report:#}")?,
        }
        return out.flush();
    }
    if command.watch.is_some() && io::stdout().is_terminal() {
        out.write_all(CLEAR.as_bytes())?;
    }
    let text = text::sample(sample, if command.all { usize::MAX } else { text::SHOWN });
    let text = if text.is_empty() { format!("{}\n", nobody(&command.pids)) } else { text };
    out.write_all(text.as_bytes())?;
    if command.watch.is_some() {
        writeln!(out)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_process_is_over_when_it_ends_although_nobody_has_waited_for_it() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pids = [child.id(), 9_999_999];
        assert!(!have_ended(&pids) && !have_ended(&[]));
        drop(child.stdin.take());
        let begun = Instant::now();
        while !have_ended(&pids) {
            assert!(begun.elapsed() < Duration::from_secs(20), "a zombie is taken for alive");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(have_ended(&pids));
    }
}
