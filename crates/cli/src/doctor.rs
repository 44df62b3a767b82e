//! `srdma doctor`: what of this host is good, what costs speed, and what to type.

use crate::print::{complain, out};
use clap::Args;
use serde_json::{json, Value};
use srdma_client::Options;
use srdma_probe::doctor::{judge, Facts, Finding, Level, Wants};
use std::fmt::Write;
use std::process::ExitCode;

/// Exit code when something does not work.
const UNWELL: u8 = 1;

/// `srdma doctor`: its options.
#[derive(Args)]
#[command(
    after_help = "Looks only at this host, and only at what anybody may read; `srdma check HOST` looks at the way to \
                  another.\n\nExit code: 0 all is well or merely slower than it could be, 1 something does not work."
)]
pub struct DoctorCommand {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Carries out `srdma doctor`.
pub fn doctor(command: &DoctorCommand) -> ExitCode {
    let facts = match Facts::gather() {
        Ok(facts) => facts,
        Err(error) => {
            let said = format!("cannot list the addresses of this host: {error}");
            if command.json {
                out(&format!("{:#}\n", json!({ "error": said })));
            }
            complain(&said);
            return ExitCode::from(UNWELL);
        }
    };
    let defaults = Options::default();
    let findings = judge(&facts, Wants::of_a_device(defaults.receive_buffer_bytes, defaults.paths));
    out(&match command.json {
        true => format!("{:#}\n", object(&findings)),
        false => text(&findings),
    });
    ExitCode::from(if worst(&findings) == Level::Bad { UNWELL } else { 0 })
}

fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Good)
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Good => "good",
        Level::Costs => "costs",
        Level::Bad => "bad",
    }
}

fn verdict(findings: &[Finding]) -> String {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    match (count(Level::Bad), count(Level::Costs)) {
        (0, 0) => "OK: nothing to do".into(),
        (0, costs) => format!("OK, but {costs} of these could be better"),
        (bad, _) => format!("NOT WELL: {bad} of these must be mended first"),
    }
}

/// For a person: a line for each finding, and below it what to type.
fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    let mut area = "";
    for finding in findings {
        let shown = if finding.area == area { "" } else { finding.area };
        area = finding.area;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{shown:<11} {:<5}  {}", word(finding.level), finding.what);
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(text, "{:19}type: {remedy}", "");
        }
    }
    let _ = writeln!(text, "\n{}", verdict(findings));
    text
}

/// For a program.
fn object(findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        json!({
            "area": finding.area,
            "level": word(finding.level),
            "what": finding.what,
            "type": finding.remedy,
        })
    };
    json!({
        "level": word(worst(findings)),
        "findings": findings.iter().map(one).collect::<Value>(),
        "verdict": verdict(findings),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(area: &'static str, level: Level, remedy: Option<&str>) -> Finding {
        Finding { area, level, what: format!("{area} is so"), remedy: remedy.map(str::to_owned) }
    }

    #[test]
    fn both_forms_say_the_same() {
        let findings = [
            finding("network", Level::Good, None),
            finding("network", Level::Costs, Some("ethtool")),
            finding("ports", Level::Bad, Some("ss")),
        ];
        for (shown, level, said) in
            [(1, "good", "OK: "), (2, "costs", "OK, but 1"), (3, "bad", "NOT WELL: 1")]
        {
            let (text, object) = (text(&findings[..shown]), object(&findings[..shown]));
            assert_eq!(object["level"], level);
            assert!(text.lines().last().is_some_and(|line| line.starts_with(said)), "{text}");
            for finding in &findings[..shown] {
                let typed = finding.remedy.as_ref().map_or(String::new(), |remedy| format!("type: {remedy}"));
                assert!(text.contains(&finding.what) && text.contains(&typed), "{text}");
            }
            assert_eq!(object["findings"].as_array().map(Vec::len), Some(shown));
        }
    }
}
