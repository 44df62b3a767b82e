//! The table: read, written, compared.

use std::fmt::Write;

use srdma_sim::RunReport;

/// Columns besides the name, and how many digits they have behind the point.
const COLUMNS: [(&str, usize); 9] = [
    ("took_us", 3),
    ("least_us", 3),
    ("flow_p99_us", 3),
    ("queue_mean_B", 0),
    ("queue_max_B", 0),
    ("packets", 0),
    ("again", 0),
    ("marked", 0),
    ("dropped", 0),
];

const HEAD: &str = "\
# What comes of the small scenarios of this folder, by variant: time until all is received, and the least that the busiest
# link needs; the time that 99 % of the messages do not exceed; mean length of a switch's queues over time, and the longest;
# data packets sent, those of them sent again, marked and dropped.
# Written by: SRDMA_BLESS=1 cargo test -p srdma-sim --test regression
";

/// A line of the table: its name, and its values as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    name: String,
    values: Vec<String>,
}

impl Row {
    /// What came of the run called `name`.
    pub fn of(name: &str, report: &RunReport) -> Row {
        let links: u64 = report.queues.iter().map(|queue| queue.count).sum();
        let mean = report.queues.iter().map(|queue| queue.mean_bytes * queue.count as f64).sum::<f64>();
        let values = [
            report.took_us,
            report.ideal_us,
            report.completion.p99,
            mean / links.max(1) as f64,
            report.queues.iter().map(|queue| queue.max_bytes).max().unwrap_or(0) as f64,
            report.packets as f64,
            report.retransmitted.iter().sum::<u64>() as f64,
            report.marked as f64,
            (report.overflowed + report.lost + report.cut) as f64,
        ];
        let written = values.iter().zip(COLUMNS).map(|(value, (_, digits))| format!("{value:.digits$}"));
        Row { name: name.to_owned(), values: written.collect() }
    }
}

/// The table as a file has it.
pub fn text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let heads = COLUMNS.map(|(head, _)| head.to_owned());
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row.values[column].len());
            cells.chain([heads[column].len()]).max().unwrap_or(0)
        })
        .collect();
    let mut text = HEAD.to_owned();
    let mut line = |name: &str, values: &[String]| {
        let _ = write!(text, "{name:width$}");
        values.iter().zip(&widths).for_each(|(value, width)| {
            let _ = write!(text, "  {value:>width$}");
        });
        text.push('\n');
    };
    line("#", &heads);
    rows.iter().for_each(|row| line(&row.name, &row.values));
    text
}

/// The lines of a file.
pub fn read(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let row = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let values = words.split_off(words.len().saturating_sub(COLUMNS.len()));
        Row { name: words.join(" "), values: values.into_iter().map(str::to_owned).collect() }
    };
    lines.map(row).collect()
}

/// What differs, in lines for a person; nothing if nothing does.
pub fn drift(known: &[Row], found: &[Row]) -> String {
    let mut said = String::new();
    for row in found {
        match known.iter().find(|old| old.name == row.name) {
            None => said += &format!("  {} is not in the table\n", row.name),
            Some(old) if old == row => {}
            Some(old) => {
                said += &format!("  {}\n", row.name);
                for ((old, new), (column, _)) in old.values.iter().zip(&row.values).zip(COLUMNS) {
                    if old != new {
                        said += &format!("    {column:<12} {old:>12} -> {new:>12}{}\n", share(old, new));
                    }
                }
            }
        }
    }
    for old in known.iter().filter(|old| !found.iter().any(|row| row.name == old.name)) {
        said += &format!("  {} is in the table, but there is no such scenario\n", old.name);
    }
    said
}

fn share(old: &str, new: &str) -> String {
    match (old.parse::<f64>(), new.parse::<f64>()) {
        (Ok(old), Ok(new)) if old != 0.0 => format!("   {:+.2} %", (new / old - 1.0) * 100.0),
        _ => String::new(),
    }
}

#[test]
fn drift_is_said_by_name_and_column() {
    let row = |name: &str, took: f64| {
        let report = RunReport { took_us: took, packets: 64, ..RunReport::default() };
        Row::of(name, &report)
    };
    let old = vec![row("one: a b", 10.0), row("two", 1.0), row("gone", 1.0)];
    assert_eq!(read(&text(&old)), old);
    assert_eq!(drift(&old, &old), "");
    let said = drift(&old, &[row("one: a b", 10.5), row("two", 1.0), row("new", 1.0)]);
    let wanted = [
        "  one: a b\n",
        "took_us",
        "10.000 ->",
        "10.500   +5.00 %",
        "  new is not in",
        "  gone is in the table",
    ];
    assert!(
        wanted.iter().all(|part| said.contains(part)) && !said.contains("two") && !said.contains("packets"),
        "{said}"
    );
}
