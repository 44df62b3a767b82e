//! House rules that a machine can check.

mod nostd;
mod promises;
mod readme;
mod rooms;
mod sources;

use anyhow::Result;

use crate::suite::{compat, real_steps};

/// What is wrong, one line each.
pub fn check() -> Result<Vec<String>> {
    let mut findings = rooms::check()?;
    findings.extend(sources::check()?);
    findings.extend(readme::check()?);
    findings.extend(compat::check(&real_steps(false)?)?);
    findings.extend(promises::check()?);
    findings.extend(nostd::check()?);
    Ok(findings)
}
