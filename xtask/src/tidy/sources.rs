//! Length, names and words of source files.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::process::Program;
use crate::suite::workspace;

const LINES_MAX: usize = 800;
/// Names that say nothing about what a file is for.
const EMPTY_NAMES: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "manager", "misc", "tools"];
/// Put together here so that this file does not find itself.
const UNFINISHED: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!("), concat!("unimplemented", "!(")];

/// Clocks that somebody may set: a deadline counted by one would come at once, or never. `CLOCK_MONOTONIC` cannot jump.
const SETTABLE_CLOCKS: [&str; 4] = [
    concat!("System", "Time"),
    concat!("CLOCK_", "REALTIME"),
    concat!("gettime", "ofday"),
    concat!("CLOCK_", "TAI"),
];
/// Files that tell a person, a capture or a program the time of day, and count nothing by it.
const TELL_THE_TIME: [&str; 3] =
    ["crates/net/src/capture.rs", "crates/verbs/src/cq_ex.rs", "crates/cli/src/stats/attach.rs"];

/// Folders whose files a macro declares as modules: `cargo fmt` does not find them.
const DECLARED_BY_MACRO: [&str; 1] = ["crates/transport/src/paths/selector/"];

/// What is wrong.
pub fn check() -> Result<Vec<String>> {
    let out = Program::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])
        .in_directory(&workspace())
        .success()?;
    let mut findings = Vec::new();
    for name in out.stdout.lines() {
        // A file may be listed and already deleted.
        if let Ok(text) = std::fs::read_to_string(workspace().join(name)) {
            findings
                .extend(judge(&PathBuf::from(name), &text).into_iter().map(|what| format!("{name}{what}")));
        }
    }
    let unseen =
        out.stdout.lines().filter(|name| DECLARED_BY_MACRO.iter().any(|folder| name.starts_with(folder)));
    let rustfmt = Program::new("rustfmt").args(["--edition", "2021", "--check", "-l"]);
    let misshaped = rustfmt.args(unseen).in_directory(&workspace()).run()?;
    findings.extend(
        misshaped.stdout.lines().map(|name| format!("{name}: not as rustfmt has it; run it by hand")),
    );
    Ok(findings)
}

fn judge(path: &Path, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > LINES_MAX {
        findings.push(format!(": {} lines; split it by purpose ({LINES_MAX} at most)", lines.len()));
    }
    for part in path.iter().filter_map(|part| part.to_str()) {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        if EMPTY_NAMES.contains(&stem) {
            findings.push(format!(": the name {stem:?} does not say what it is for"));
        }
    }
    let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    if is_root && !text.starts_with("//! ") {
        findings.push(": does not open with what it is for (//!)".into());
    }
    if is_root && text.starts_with("//! placeholder") {
        findings.push(": has only a placeholder for a head".into());
    }
    for (index, line) in lines.iter().enumerate() {
        if let Some(word) = UNFINISHED.iter().find(|word| line.contains(**word)) {
            findings.push(format!(":{}: {word}", index + 1));
        }
    }
    let is_ours = path.starts_with("crates") && path.components().any(|part| part.as_os_str() == "src");
    if is_ours && !TELL_THE_TIME.iter().any(|allowed| path == Path::new(allowed)) {
        for (index, line) in lines.iter().enumerate() {
            if let Some(clock) = SETTABLE_CLOCKS.iter().find(|clock| line.contains(**clock)) {
                findings.push(format!(":{}: {clock} can be set; count by CLOCK_MONOTONIC", index + 1));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_finds_its_own() {
        let long = "//! a\n".repeat(LINES_MAX + 1);
        let unfinished = format!("//! a\n// {}: later\n", UNFINISHED[0]);
        let by_the_wall = format!("//! a\nlet t = {}::now();\n", SETTABLE_CLOCKS[0]);
        let cases: [(&str, &str, usize); 9] = [
            ("crates/a/src/lib.rs", "//! what it is for\n", 0),
            ("crates/a/src/lib.rs", "fn f() {}\n", 1),
            ("crates/a/src/utils.rs", "", 1),
            ("crates/a/src/common/x.rs", "", 1),
            ("crates/a/src/x.rs", &long, 1),
            ("crates/a/src/x.rs", &unfinished, 1),
            ("crates/a/src/lib.rs", "//! placeholder\n", 1),
            ("crates/a/src/x.rs", &by_the_wall, 1),
            (TELL_THE_TIME[0], &by_the_wall, 0),
        ];
        for (path, text, expected) in cases {
            let findings = judge(Path::new(path), text);
            assert_eq!(findings.len(), expected, "{path}: {findings:?}");
        }
    }
}
