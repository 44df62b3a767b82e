//! What a person sees: progress lines with the time since the start, tables, bars. Colours only on a terminal.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

static START: OnceLock<Instant> = OnceLock::new();

/// Since the first call of anything here.
pub fn elapsed() -> Duration {
    START.get_or_init(Instant::now).elapsed()
}

/// Whether to colour.
fn coloured() -> bool {
    static COLOURED: OnceLock<bool> = OnceLock::new();
    *COLOURED.get_or_init(|| std::env::var_os("NO_COLOR").is_none() && std::io::stdout().is_terminal())
}

fn painted(code: &str, text: &str) -> String {
    if coloured() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Green.
pub fn good(text: &str) -> String {
    painted("32", text)
}

/// Red.
pub fn bad(text: &str) -> String {
    painted("31;1", text)
}

/// Bold.
pub fn strong(text: &str) -> String {
    painted("1", text)
}

/// Faint.
pub fn faint(text: &str) -> String {
    painted("2", text)
}

/// One progress line.
pub fn say(text: &str) {
    let stamp = faint(&format!("[{:6.1} s]", elapsed().as_secs_f64()));
    let mut out = std::io::stdout().lock();
    // A closed pipe must not end a run whose exit code matters.
    let _ = writeln!(out, "{stamp} {text}").and_then(|()| out.flush());
}

/// Something the reader should know.
pub fn note(text: &str) {
    say(&format!("{} {text}", painted("33", "note:")));
}

/// A line without a time.
pub fn plain(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Rows under a head, columns as wide as they need to be. The first column is flush left, others right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these column names.
    pub fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|&word| word.to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    /// All lines.
    pub fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut lines = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::from("  ");
            for (column, cell) in row.iter().enumerate() {
                let gap = " ".repeat(widths[column] - cell.chars().count());
                match column {
                    0 => line.push_str(&format!("{cell}{gap}")),
                    _ => line.push_str(&format!("  {gap}{cell}")),
                }
            }
            let line = line.trim_end().to_owned();
            lines.push(if index == 0 { strong(&line) } else { line });
            if index == 0 {
                let rule = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
                lines.push(format!("  {}", faint(&"─".repeat(rule))));
            }
        }
        lines
    }

    /// Prints it.
    pub fn print(&self) {
        self.lines().iter().for_each(|line| plain(line));
    }
}

/// A bar of at most `width` characters for `share` (0–1), in eighths of a character.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.push_str(EIGHTHS[eighths % 8]);
    let gap = width - bar.chars().count();
    bar.push_str(&" ".repeat(gap));
    bar
}

/// `1.5 GB` and the like (powers of ten).
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// Middle value; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        for (share, expected) in
            [(0.0, "    "), (0.25, "█   "), (0.5, "██  "), (0.5625, "██▎ "), (1.0, "████"), (7.0, "████")]
        {
            assert_eq!(bar(share, 4), expected, "{share}");
        }
    }

    #[test]
    fn medians_of_even_odd_and_none() {
        for (values, expected) in
            [(&[][..], 0.0), (&[3.0, 1.0, 2.0][..], 2.0), (&[4.0, 1.0, 2.0, 3.0][..], 2.5)]
        {
            assert_eq!(median(values), expected);
        }
    }

    #[test]
    fn bytes_read_well() {
        for (count, expected) in [(999, "999 B"), (1_500, "1.5 kB"), (2_000_000_000, "2.0 GB")] {
            assert_eq!(bytes(count), expected);
        }
    }
}
