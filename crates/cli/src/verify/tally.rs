//! What was done, per kind, and how it is shown.

use super::failure::Failure;
use super::kinds::Kind;
use serde_json::{json, Value};
use std::fmt::Write;
use std::time::Duration;

/// Rounds and bytes of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    rounds: u64,
    bytes: u64,
    mismatches: u64,
}

/// Counts of all kinds.
#[derive(Clone, Debug)]
pub struct Tally {
    seed: u64,
    qps: usize,
    counts: Vec<(Kind, Count)>,
}

impl Tally {
    /// Nothing done yet.
    pub fn new(seed: u64, qps: usize, kinds: &[Kind]) -> Tally {
        Tally { seed, qps, counts: kinds.iter().map(|&kind| (kind, Count::default())).collect() }
    }

    fn count(&mut self, kind: Kind) -> Option<&mut Count> {
        self.counts.iter_mut().find(|(its, _)| *its == kind).map(|(_, count)| count)
    }

    /// A round was right.
    pub fn right(&mut self, kind: Kind, bytes: u64) {
        if let Some(count) = self.count(kind) {
            count.rounds += 1;
            count.bytes += bytes;
        }
    }

    /// The run ended early.
    pub fn ended(&mut self, failure: &Failure) {
        if let Some(count) = failure.finding().and_then(|finding| self.count(finding.kind)) {
            count.rounds += 1;
            count.mismatches += 1;
        }
    }

    /// Rounds so far.
    pub fn rounds(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count.rounds).sum()
    }

    /// Bytes moved and verified so far.
    pub fn bytes(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count.bytes).sum()
    }

    fn mismatches(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count.mismatches).sum()
    }

    /// For people.
    pub fn text(&self, elapsed: Duration) -> String {
        let mut text = format!("{:<10} {:>8} {:>12} {:>10}\n", "kind", "rounds", "bytes", "mismatches");
        for (kind, count) in &self.counts {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<10} {:>8} {:>12} {:>10}",
                kind.name(),
                count.rounds,
                readable(count.bytes),
                count.mismatches
            );
        }
        let seconds = elapsed.as_secs_f64();
        let (bytes, rounds, mismatches) = (readable(self.bytes()), self.rounds(), self.mismatches());
        let _ = writeln!(
            text,
            "{bytes} in {rounds} rounds over {} queue pairs in {seconds:.1} s, {mismatches} mismatches, seed {}",
            self.qps, self.seed
        );
        text
    }

    /// For programs; one line.
    pub fn object(&self, elapsed: Duration, failure: Option<&Failure>) -> Value {
        let kind = |(kind, count): &(Kind, Count)| {
            json!({
                "kind": kind.name(),
                "rounds": count.rounds,
                "bytes": count.bytes,
                "mismatches": count.mismatches,
            })
        };
        json!({
            "seed": self.seed,
            "qps": self.qps,
            "seconds": elapsed.as_secs_f64(),
            "rounds": self.rounds(),
            "bytes": self.bytes(),
            "mismatches": self.mismatches(),
            "kinds": self.counts.iter().map(kind).collect::<Vec<_>>(),
            "finding": failure.and_then(Failure::finding).map(|finding| finding.object()),
            "error": failure.map(ToString::to_string),
        })
    }
}

/// Bytes with a decimal unit.
pub fn readable(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.2} GB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_with_their_unit() {
        for (bytes, shown) in [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000_000, "2.50 GB")] {
            assert_eq!(readable(bytes), shown);
        }
    }
}
