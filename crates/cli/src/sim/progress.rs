//! How far many runs have come, told on stderr.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A word on stderr now and then.
pub struct Progress {
    what: &'static str,
    count: usize,
    kept: usize,
    is_terminal: bool,
    quiet: bool,
    begin: Instant,
    told: Option<Instant>,
}

impl Progress {
    /// Of `count` runs, called `what`, none is through; `kept` others were before.
    pub fn new(what: &'static str, count: usize, kept: usize, quiet: bool) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        Progress { what, count, kept, is_terminal, quiet, begin: Instant::now(), told: None }
    }

    /// So many are through.
    pub fn tell(&mut self, done: usize) {
        let pause = Duration::from_millis(if self.is_terminal { 200 } else { 10_000 });
        let is_soon = self.told.is_some_and(|told| told.elapsed() < pause);
        if self.quiet || is_soon {
            return;
        }
        self.told = Some(Instant::now());
        let line = words(self.what, done, self.count, self.kept, self.begin.elapsed());
        let _ = match self.is_terminal {
            true => write!(std::io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(std::io::stderr(), "{line}"),
        };
    }

    /// Nothing is left to say.
    pub fn end(&mut self) {
        if self.is_terminal && !self.quiet {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Progress in a line. Points take about as long as those that are through.
fn words(what: &str, done: usize, count: usize, kept: usize, real: Duration) -> String {
    let seconds = real.as_secs_f64();
    let left = match done {
        0 => "time left unknown".to_owned(),
        done => format!("{:.0} s left", seconds / done as f64 * (count - done) as f64),
    };
    let before = if kept > 0 { format!(", {kept} kept from before") } else { String::new() };
    format!("{done} of {count} {what}{before}, {seconds:.0} s, {left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_how_far_and_how_long() {
        assert_eq!(words("points", 0, 10, 0, Duration::ZERO), "0 of 10 points, 0 s, time left unknown");
        let line = words("points", 4, 10, 2, Duration::from_secs(8));
        assert_eq!(line, "4 of 10 points, 2 kept from before, 8 s, 12 s left");
    }
}
