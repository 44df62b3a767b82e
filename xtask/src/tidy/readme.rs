//! What the README tells people to run or to read exists.

use anyhow::Result;

use crate::suite::workspace;
use crate::usage;

/// What is wrong.
pub fn check() -> Result<Vec<String>> {
    let Ok(text) = std::fs::read_to_string(workspace().join("README.md")) else {
        return Ok(vec!["README.md is missing".into()]);
    };
    Ok(judge(&text, &|name| usage::command(name).is_some(), &|path| workspace().join(path).exists()))
}

fn judge(text: &str, is_command: &dyn Fn(&str) -> bool, is_there: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for part in line.split("cargo xtask ").skip(1) {
            let command = part.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or("");
            if !command.is_empty() && !is_command(command) {
                findings.push(format!("README.md:{}: there is no `cargo xtask {command}`", index + 1));
            }
        }
        for part in line.split("](").skip(1) {
            let target = part.split([')', '#']).next().unwrap_or("");
            let elsewhere = target.is_empty() || target.contains("://");
            if !elsewhere && !is_there(target) {
                findings.push(format!("README.md:{}: there is no {target}", index + 1));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_links_must_exist() {
        let text =
            "`cargo xtask demo` [a](A.md) [b](B.md#part) [c](https://example.org/x)\ncargo xtask fly\n";
        let findings = judge(text, &|command| command == "demo", &|path| path == "A.md");
        assert_eq!(findings.len(), 2, "{findings:?}");
    }
}
