//! The table of allowed dependencies (`xtask/data/rooms.toml`) against the manifests.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::Program;
use crate::suite::workspace;

const TABLE: &str = include_str!("../../data/rooms.toml");
const OURS: &str = "srdma-";
const SAFETY_LINT: &str = "undocumented_unsafe_blocks";

/// What is wrong.
pub fn check() -> Result<Vec<String>> {
    let out = Program::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .in_directory(&workspace())
        .success()?;
    let mut findings = judge(&TABLE.parse()?, &serde_json::from_str(&out.stdout)?)?;
    findings.extend(unguarded()?);
    Ok(findings)
}

/// Rooms that have left the lints of the house (among them: every `unsafe` says why it is sound), and sans-IO
/// rooms that do not forbid `unsafe`.
fn unguarded() -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for entry in std::fs::read_dir(workspace().join("crates"))? {
        let folder = entry?.path();
        let Ok(manifest) = std::fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let manifest: toml::Table = manifest.parse().with_context(|| folder.display().to_string())?;
        let lints = manifest.get("lints");
        let inherits =
            lints.and_then(|lints| lints.get("workspace")).and_then(|yes| yes.as_bool()) == Some(true);
        let spelled_out = lints
            .and_then(|lints| lints.get("clippy"))
            .is_some_and(|clippy| clippy.get(SAFETY_LINT).is_some());
        if !inherits && !spelled_out {
            findings.push(format!("{}: has not the lints of the workspace", folder.display()));
        }
    }
    for room in sans_io()? {
        let root = workspace().join("crates").join(&room).join("src/lib.rs");
        if !std::fs::read_to_string(root).unwrap_or_default().contains("#![forbid(unsafe_code)]") {
            findings.push(format!("{room}: a sans-IO room forbids unsafe code"));
        }
    }
    Ok(findings)
}

/// Names of the rooms that must do without std.
pub fn sans_io() -> Result<Vec<String>> {
    let table: toml::Table = TABLE.parse()?;
    let rooms = table.get("sans_io").and_then(|part| part.get("rooms")).and_then(|rooms| rooms.as_array());
    let rooms = rooms.context("rooms.toml lacks [sans_io] rooms")?;
    Ok(rooms.iter().filter_map(|room| room.as_str()).map(str::to_owned).collect())
}

fn judge(table: &toml::Table, metadata: &Value) -> Result<Vec<String>> {
    let allowed = |part: &str, room: &str| -> Option<BTreeSet<String>> {
        let names = table.get(part)?.get(room)?.as_array()?;
        Some(names.iter().filter_map(|name| name.as_str()).map(str::to_owned).collect())
    };
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or("");
        let room = name.strip_prefix(OURS).unwrap_or(name);
        let (Some(ours), Some(theirs)) = (allowed("rooms", room), allowed("third_party", room)) else {
            findings.push(format!("{name}: not in xtask/data/rooms.toml; say there what it may use"));
            continue;
        };
        for dependency in package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default() {
            if dependency["kind"] == "dev" {
                continue;
            }
            let used = dependency["name"].as_str().unwrap_or("");
            let (list, known) = match used.strip_prefix(OURS) {
                Some(other) => (&ours, other),
                None => (&theirs, used),
            };
            if !list.contains(known) {
                findings.push(format!("{name} uses {used}, which xtask/data/rooms.toml does not allow"));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_the_table_allows_passes() {
        let table: toml::Table =
            "[rooms]\na = []\nb = [\"a\"]\n[third_party]\na = []\nb = [\"libc\"]\n".parse().unwrap();
        let package = |name: &str, dependency: &str, kind: Value| json!({"packages": [{"name": name, "dependencies": [{"name": dependency, "kind": kind}]}]});
        for (metadata, findings) in [
            (package("srdma-b", "srdma-a", Value::Null), 0),
            (package("srdma-b", "libc", Value::Null), 0),
            (package("srdma-a", "srdma-b", Value::Null), 1),
            (package("srdma-a", "srdma-b", json!("dev")), 0),
            (package("srdma-a", "rand", json!("build")), 1),
            (package("srdma-c", "libc", Value::Null), 1),
        ] {
            assert_eq!(judge(&table, &metadata).unwrap().len(), findings, "{metadata}");
        }
    }
}
