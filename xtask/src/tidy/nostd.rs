//! Proof that the sans-IO rooms do without std: a static library with its own panic handler and allocator that
//! depends on all of them. If anything pulled std in, there would be two panic handlers (E0152).

use std::fmt::Write as _;

use anyhow::Result;

use super::rooms;
use crate::process::Program;
use crate::suite::{target_directory, workspace};

const SOURCE: &str = include_str!("../../data/nostd_proof.rs");

/// What is wrong.
pub fn check() -> Result<Vec<String>> {
    let folder = target_directory().join("nostd-proof");
    std::fs::create_dir_all(folder.join("src"))?;
    let mut manifest = "[package]\nname = \"nostd-proof\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
        [lib]\ncrate-type = [\"staticlib\"]\n\n[profile.dev]\npanic = \"abort\"\n\n[workspace]\n\n[dependencies]\n"
        .to_owned();
    let mut source = SOURCE.to_owned();
    for room in rooms::sans_io()? {
        let path = workspace().join("crates").join(&room);
        let _ = writeln!(manifest, "srdma-{room} = {{ path = {:?} }}", path.display().to_string());
        let _ = writeln!(source, "extern crate srdma_{room} as _;");
    }
    std::fs::write(folder.join("Cargo.toml"), manifest)?;
    std::fs::write(folder.join("src/lib.rs"), source)?;
    // The same versions of third-party crates, so that nothing is downloaded anew.
    std::fs::copy(workspace().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let out = Program::new("cargo")
        .args(["build", "--quiet", "--target-dir"])
        .args([target_directory().join("nostd-proof/target")])
        .in_directory(&folder)
        .limit(std::time::Duration::from_secs(600))
        .run()?;
    if out.code == Some(0) {
        return Ok(Vec::new());
    }
    Ok(vec![format!("the sans-IO rooms do not link without std: {}", out.story())])
}
