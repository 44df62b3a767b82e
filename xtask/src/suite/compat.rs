//! The table of `COMPAT.md`: which programs run, with what, as steps of the suite found it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{bail, Context, Result};

use super::{workspace, Step};
use crate::process::{find, Program};

const BEGIN: &str = "<!-- Written by `cargo xtask test --write-compat`. -->";
const END: &str = "<!-- The end of what is written. -->";
const HEAD: &str = "| Program | Version | Runs with | Refuses itself | Result |\n|---|---|---|---|---|\n";

/// A program of somebody else's that a step runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name, and what makes it complete.
    pub program: String,
    /// What it is run with beyond that; empty for nothing.
    pub flags: String,
    /// The program itself refuses that.
    pub refused: bool,
    /// The network it is run in.
    pub network: &'static str,
}

/// A row of the table, all networks together.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    program: String,
    runs_with: Vec<String>,
    refuses: Vec<String>,
    networks: BTreeSet<&'static str>,
    failed: Vec<String>,
}

/// One row for each program, in the order of the cases; each case with whether its step passed.
fn rows<'a>(cases: impl Iterator<Item = (&'a Case, bool)>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (case, passed) in cases {
        let known = rows.iter().position(|row| row.program == case.program);
        let index = known.unwrap_or_else(|| {
            rows.push(Row {
                program: case.program.clone(),
                runs_with: Vec::new(),
                refuses: Vec::new(),
                networks: BTreeSet::new(),
                failed: Vec::new(),
            });
            rows.len() - 1
        });
        let row = &mut rows[index];
        let flags = if case.flags.is_empty() { "no flags".into() } else { format!("`{}`", case.flags) };
        if !passed {
            row.failed.push(format!("{flags} ({})", case.network));
        }
        if !case.refused {
            row.networks.insert(case.network);
        }
        let place = if case.refused { &mut row.refuses } else { &mut row.runs_with };
        if !place.contains(&flags) {
            place.push(flags);
        }
    }
    // The suite's own order depends on which network it picks.
    let place = |flags: &String| (flags != "no flags", flags.trim_matches('`').to_owned());
    rows.iter_mut().for_each(|row| row.runs_with.sort_by_key(place));
    rows
}

/// The cells that the suite alone decides.
fn claim(row: &Row) -> [String; 3] {
    [format!("`{}`", row.program), row.runs_with.join(", "), row.refuses.join(", ")]
}

fn line(row: &Row, version: &str) -> String {
    let [program, runs_with, refuses] = claim(row);
    let networks = row.networks.iter().copied().collect::<Vec<_>>().join(", ");
    let result = match row.failed.is_empty() {
        true => format!("passed: {networks}"),
        false => format!("FAILED: {}", row.failed.join(", ")),
    };
    format!("| {program} | {version} | {runs_with} | {refuses} | {result} |\n")
}

/// The package of a program and its version, as Debian's database has them.
fn version(program: &str) -> String {
    let name = program.split(' ').next().unwrap_or(program);
    let ask = |args: &[&str]| Some(Program::new("dpkg-query").args(args).success().ok()?.stdout);
    let package = || {
        let owner = ask(&["-S", &find(name)?.display().to_string()])?;
        let package = owner.split(':').next()?.to_owned();
        let version = ask(&["-W", "-f", "${Version}", &package])?;
        Some(format!("{package} {version}"))
    };
    package().unwrap_or_else(|| "of no package".into())
}

/// Writes the table of what these steps did; each with whether it passed.
pub fn write<'a>(outcomes: impl Iterator<Item = (&'a Case, bool)>) -> Result<PathBuf> {
    let table: String = rows(outcomes).iter().map(|row| line(row, &version(&row.program))).collect();
    let file = workspace().join("COMPAT.md");
    let text = std::fs::read_to_string(&file)?;
    let (before, rest) = text.split_once(BEGIN).context("COMPAT.md has no place for the table")?;
    let Some((_, after)) = rest.split_once(END) else {
        bail!("COMPAT.md: the place for the table has no end")
    };
    std::fs::write(&file, format!("{before}{BEGIN}\n\n{HEAD}{table}\n{END}{after}"))?;
    Ok(file)
}

/// Where the checked-in table and the suite disagree about what is run.
pub fn check(steps: &[Step]) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(workspace().join("COMPAT.md"))?;
    let cases = steps.iter().filter_map(|step| step.case.as_ref());
    Ok(judge(&text, &rows(cases.map(|case| (case, true)))))
}

fn judge(text: &str, expected: &[Row]) -> Vec<String> {
    let table =
        text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map_or("", |(table, _)| table);
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches(['|', ' ']).split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    let mut listed: Vec<Vec<String>> =
        table.lines().filter(|line| line.starts_with("| `")).map(cells).collect();
    let mut findings = Vec::new();
    for row in expected {
        let [program, runs_with, refuses] = claim(row);
        match listed.iter().position(|cells| cells.first() == Some(&program)) {
            None => findings.push(format!("COMPAT.md: {program} is missing")),
            Some(at) => {
                let cells = listed.swap_remove(at);
                let same =
                    |index: usize, wanted: &String| cells.get(index).is_some_and(|cell| cell == wanted);
                if !same(2, &runs_with) || !same(3, &refuses) {
                    findings.push(format!("COMPAT.md: the suite runs {program} with other flags"));
                }
                if cells.get(4).is_none_or(|result| !result.starts_with("passed")) {
                    findings.push(format!("COMPAT.md: {program} has not passed"));
                }
            }
        }
    }
    findings.extend(listed.iter().map(|cells| format!("COMPAT.md: no step runs {}", cells[0])));
    if !findings.is_empty() {
        findings.push("  `cargo xtask test --write-compat` writes the table".into());
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(program: &str, flags: &str, refused: bool, network: &'static str) -> Case {
        Case { program: program.into(), flags: flags.into(), refused, network }
    }

    #[test]
    fn a_row_says_what_ran_where_and_what_failed() {
        let cases = [
            case("a", "-q 4", false, "cable"),
            case("a", "", false, "loss"),
            case("a", "-q 4", false, "loss"),
            case("a", "-e", true, "cable"),
            case("b", "-e", false, "cable"),
        ];
        let table = rows(cases.iter().map(|case| (case, case.program == "a")));
        let lines: Vec<String> = table.iter().map(|row| line(row, "v 1")).collect();
        assert_eq!(lines[0], "| `a` | v 1 | no flags, `-q 4` | `-e` | passed: cable, loss |\n");
        assert_eq!(lines[1], "| `b` | v 1 | `-e` |  | FAILED: `-e` (cable) |\n");
    }

    #[test]
    fn a_table_that_differs_from_the_suite_is_noticed() {
        let cases =
            [case("a", "", false, "cable"), case("a", "-e", true, "cable"), case("b", "", false, "cable")];
        let expected = rows(cases.iter().map(|case| (case, true)));
        let (a, b) = (line(&expected[0], "v"), line(&expected[1], "v"));
        let judged = |table: &str| judge(&format!("x\n{BEGIN}\n\n{HEAD}{table}\n{END}\ny"), &expected);
        assert_eq!(judged(&format!("{a}{b}")), Vec::<String>::new());
        for (table, said) in [
            (a.clone(), "`b` is missing"),
            (format!("{a}{b}{}", b.replace("`b`", "`c`")), "no step runs `c`"),
            (format!("{}{b}", a.replace("`-e`", "`-f`")), "`a` with other flags"),
            (format!("{a}{}", b.replace("passed: cable", "FAILED: no flags (cable)")), "`b` has not passed"),
            (String::new(), "`a` is missing"),
        ] {
            let findings = judged(&table);
            assert!(findings[0].contains(said), "{findings:?}");
        }
    }
}
