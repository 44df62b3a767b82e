//! Where results go while a simulation runs: a file of JSON lines, and a word on stderr now and then.

use srdma_sim::{Sink, Status};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two words: on a terminal, where each replaces the last, and elsewhere.
const ON_TERMINAL: Duration = Duration::from_millis(200);
const ELSEWHERE: Duration = Duration::from_secs(10);

/// See the module.
pub struct Files {
    records: File,
    quiet: bool,
    is_terminal: bool,
    name: String,
    begin: Instant,
    told: Instant,
    has_told: bool,
}

impl Files {
    /// Results in `directory`, which exists. Those of an earlier run are replaced.
    pub fn create(directory: &Path, quiet: bool) -> std::io::Result<Files> {
        Ok(Files {
            records: File::create(directory.join("results.jsonl"))?,
            quiet,
            is_terminal: std::io::stderr().is_terminal(),
            name: String::new(),
            begin: Instant::now(),
            told: Instant::now(),
            has_told: false,
        })
    }

    /// A run begins.
    pub fn begin(&mut self, name: &str) {
        self.name = name.to_owned();
        self.begin = Instant::now();
        self.told = self.begin;
    }

    /// It has ended, well or not.
    pub fn end(&mut self) {
        if self.is_terminal && std::mem::take(&mut self.has_told) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Sink for Files {
    /// One write for each line: whoever kills us finds whole lines.
    fn record(&mut self, record: &serde_json::Value) -> std::io::Result<()> {
        self.records.write_all(format!("{record}\n").as_bytes())
    }

    fn progress(&mut self, status: &Status) {
        let pause = if self.is_terminal { ON_TERMINAL } else { ELSEWHERE };
        if self.quiet || self.told.elapsed() < pause {
            return;
        }
        self.told = Instant::now();
        self.has_told = true;
        let line = words(&self.name, status, self.begin.elapsed());
        let _ = match self.is_terminal {
            true => write!(std::io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(std::io::stderr(), "{line}"),
        };
    }
}

/// Progress in a line. What is left is guessed from the bytes received so far.
fn words(name: &str, status: &Status, real: Duration) -> String {
    let seconds = real.as_secs_f64();
    let share = status.received_bytes as f64 / status.planned_bytes.max(1) as f64;
    let left = match share > 0.01 {
        true => format!("{:.0} s left", seconds / share - seconds),
        false => "time left unknown".to_owned(),
    };
    let rate = status.events as f64 / seconds.max(1e-9) / 1e6;
    format!(
        "{name}: {} simulated in {seconds:.1} s, {:.0} % received, {left}, {rate:.1} million events per second",
        status.simulated,
        share * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_sim::Time;

    #[test]
    fn progress_says_how_far_and_how_long() {
        let status = Status {
            simulated: Time::from_nanos(1_234_500),
            received_bytes: 25,
            planned_bytes: 100,
            events: 8_000_000,
        };
        let line = words("128 paths", &status, Duration::from_secs(4));
        assert_eq!(
            line,
            "128 paths: 1234.500 µs simulated in 4.0 s, 25 % received, 12 s left, 2.0 million events per second"
        );
    }
}
