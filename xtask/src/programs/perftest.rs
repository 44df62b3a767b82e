//! Debian's perftest: which programs and flags there are, what it refuses, and what its tables say.

use anyhow::{Context, Result};

/// The programs, each with what makes it complete.
pub const PROGRAMS: &[&str] = &[
    "ib_write_bw",
    "ib_write_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_atomic_bw -A CMP_AND_SWAP",
    "ib_atomic_bw -A FETCH_AND_ADD",
    "ib_atomic_lat -A CMP_AND_SWAP",
    "ib_atomic_lat -A FETCH_AND_ADD",
];

/// The flags, each alone; the empty one is "no flags".
pub const FLAGS: &[&str] = &["", "-a", "-q 4", "-b", "-e", "-D 3"];

/// A combination that a program itself refuses.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The flag.
    pub flag: String,
    /// Programs by name.
    pub programs: Vec<String>,
    /// What it prints.
    pub says: String,
}

/// The checked-in table.
pub fn refusals() -> Result<Vec<Refusal>> {
    let table: toml::Table = include_str!("../../data/perftest_refusals.toml").parse()?;
    let rows = table.get("refusal").and_then(|rows| rows.as_array()).context("no [[refusal]] rows")?;
    rows.iter()
        .map(|row| {
            let text = |key: &str| {
                row.get(key).and_then(|value| value.as_str()).map(str::to_owned).context("no text")
            };
            let programs = row.get("programs").and_then(|value| value.as_array()).context("no programs")?;
            let programs = programs.iter().filter_map(|name| name.as_str()).map(str::to_owned).collect();
            Ok(Refusal { flag: text("flag")?, says: text("says")?, programs })
        })
        .collect()
}

/// The row of the table that refuses `flag` of `program`, if any.
pub fn refusal<'a>(table: &'a [Refusal], program: &str, flag: &str) -> Option<&'a Refusal> {
    let name = program.split(' ').next().unwrap_or(program);
    table.iter().find(|row| row.flag == flag && row.programs.iter().any(|known| known == name))
}

/// A line of a bandwidth table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Bytes per message.
    pub bytes: u64,
    /// Messages, all queue pairs together.
    pub iterations: u64,
    /// Average, megabytes (10⁶) per second.
    pub mb_per_s: f64,
}

/// A line of a latency table, microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Bytes per message.
    pub bytes: u64,
    /// Messages.
    pub iterations: u64,
    /// Typical; the average where no other is given (`-D`).
    pub typical_us: f64,
    /// 99th percentile; 0 where none is given (`-D`).
    pub p99_us: f64,
}

fn rows(output: &str) -> impl Iterator<Item = Vec<f64>> + '_ {
    output.lines().filter_map(|line| {
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() >= 4)
    })
}

/// All lines of a bandwidth run's table (its "MB" are MiB).
pub fn bandwidths(output: &str) -> Vec<Bandwidth> {
    let line = |row: Vec<f64>| Bandwidth {
        bytes: row[0] as u64,
        iterations: row[1] as u64,
        mb_per_s: row[3] * 1.048_576,
    };
    rows(output).filter(|row| row.len() == 5).map(line).collect()
}

/// All lines of a latency run's table: nine columns, or four with `-D`.
pub fn latencies(output: &str) -> Vec<Latency> {
    let line = |row: Vec<f64>| {
        let (typical_us, p99_us) = if row.len() >= 9 { (row[4], row[7]) } else { (row[2], 0.0) };
        Latency { bytes: row[0] as u64, iterations: row[1] as u64, typical_us, p99_us }
    };
    rows(output).filter(|row| row.len() >= 9 || row.len() == 4).map(line).collect()
}

/// Payload bytes that the tables of a run account for, in one direction.
pub fn bytes_accounted(program: &str, output: &str) -> u64 {
    if program.contains("_bw") {
        bandwidths(output).iter().map(|row| row.bytes * row.iterations).sum()
    } else {
        latencies(output).iter().map(|row| row.bytes * row.iterations).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tables_of_all_three_shapes_are_read() {
        let bw = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      5000             1000.00            500.00            0.008\n";
        let row = bandwidths(bw)[0];
        assert_eq!((row.bytes, row.iterations, row.mb_per_s), (65536, 5000, 524.288));
        let lat = " #bytes #iterations    t_min[usec] t_max t_typical t_avg t_stdev 99% 99.9%\n 2       1000          1.00           9.00         2.00     2.10      0.30   3.00    8.00\n";
        assert_eq!(latencies(lat), [Latency { bytes: 2, iterations: 1000, typical_us: 2.0, p99_us: 3.0 }]);
        let long = " #bytes #iterations t_avg[usec]    tps average\n 2       100000          4.50            111111.11\n";
        assert_eq!(
            latencies(long),
            [Latency { bytes: 2, iterations: 100_000, typical_us: 4.5, p99_us: 0.0 }]
        );
        assert_eq!(bytes_accounted("ib_write_bw", bw), 65536 * 5000);
    }

    #[test]
    fn the_refusal_table_names_only_known_programs_and_flags() {
        for row in refusals().unwrap() {
            assert!(FLAGS.contains(&row.flag.as_str()), "{row:?}");
            for name in &row.programs {
                assert!(PROGRAMS.iter().any(|program| program.split(' ').next() == Some(name)), "{name}");
            }
        }
    }
}
