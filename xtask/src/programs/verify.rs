//! `srdma verify`: our own check of every byte, over our own library.

use std::time::Duration;

use anyhow::{bail, Result};

use super::{wait_until_it_listens, Launcher};
use crate::fabric::Fabric;

/// Its TCP port, on which the two sides take turns.
const PORT: u16 = 18600;

/// Runs it for `seconds` between the two hosts, with `more` options of the client; what it said at the end.
pub fn run(launcher: &Launcher, fabric: &Fabric, seconds: u64, more: &[&str]) -> Result<String> {
    let limit = Duration::from_secs(seconds + 90);
    let mut server =
        launcher.srdma().args(["verify", "--listen", "--once"]).on(&fabric.h2).limit(limit).start()?;
    wait_until_it_listens(&fabric.h2, PORT, &mut server)?;
    let client = launcher
        .srdma()
        .args(["verify", &fabric.h2.address.to_string(), "--seconds", &seconds.to_string()])
        .args(more)
        .on(&fabric.h1)
        .limit(limit)
        .run()?;
    let server = server.let_end(Duration::from_secs(5))?;
    if client.code != Some(0) || server.code != Some(0) {
        bail!("client {}\n  server {}", client.story(), server.story());
    }
    let last = client.stdout.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("");
    Ok(last.trim().to_owned())
}
