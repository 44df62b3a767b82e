//! Every test that a document names exists: `` `path/to/file.rs::name_of_test` ``.

use anyhow::Result;

use crate::suite::workspace;

const DOCUMENTS: [&str; 3] = ["THREAT_MODEL.md", "SPECIFICATION.md", "docs/known-faults.md"];

/// What is wrong.
pub fn check() -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(workspace().join(document)).unwrap_or_default();
        let is_there = |file: &str, test: &str| {
            let source = std::fs::read_to_string(workspace().join(file)).unwrap_or_default();
            has_test(&source, test)
        };
        findings.extend(judge(document, &text, &is_there));
    }
    Ok(findings)
}

/// A test of that name, or one that a macro makes of a function of that name.
fn has_test(source: &str, test: &str) -> bool {
    source.contains("#[test]") && source.contains(&format!("fn {test}("))
}

fn judge(document: &str, text: &str, is_there: &dyn Fn(&str, &str) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    // Inside a table whose rows each name a test.
    let mut wants_test = false;
    for (index, line) in text.lines().enumerate() {
        let mut named = 0;
        for word in line.split('`').skip(1).step_by(2) {
            let Some((file, test)) = word.split_once(".rs::") else { continue };
            named += 1;
            if !is_there(&format!("{file}.rs"), test) {
                findings.push(format!("{document}:{}: there is no test {word}", index + 1));
            }
        }
        let is_head = line.ends_with("| Held by |") || line.ends_with("| Test |");
        wants_test = is_head || (wants_test && line.starts_with('|'));
        if wants_test && !is_head && !line.starts_with("|---") && named == 0 {
            findings.push(format!("{document}:{}: a promise without a test", index + 1));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_needs_a_test_and_the_test_must_exist() {
        let text = "| Promise | Held by |\n|---|---|\n| a | `x.rs::good` |\n| b | `x.rs::bad` |\n| c | nothing |\n\n| d |\n";
        let findings = judge("D.md", text, &|file, test| (file, test) == ("x.rs", "good"));
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("x.rs::bad") && findings[1].contains("D.md:5"), "{findings:?}");
        assert!(has_test("#[test]\nfn it_holds() {", "it_holds"));
        assert!(!has_test("fn it_holds() {", "it_holds") && !has_test("#[test]\nfn it() {", "it_holds"));
    }
}
