//! `srdma verify`: our own check of every byte, over our own library.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

use super::{wait_until_it_listens, Launcher};
use crate::fabric::Fabric;
use crate::process::{Outcome, Program, Running};

/// Its TCP port, on which the two sides take turns.
const PORT: u16 = 18600;
/// Its exit code when bytes were wrong.
const WRONG: i32 = 1;

/// Why a run proved nothing, or proved the contrary.
#[derive(Debug)]
pub struct NotVerified {
    client: Outcome,
    server: Outcome,
}

impl NotVerified {
    /// In a line: whether bytes were wrong or the check could not finish, and the words of the side that failed.
    pub fn reason(&self) -> String {
        let sides = [("client", &self.client), ("server", &self.server)];
        if let Some((_, side)) = sides.iter().find(|(_, side)| side.code == Some(WRONG)) {
            return format!("bytes were wrong; {}", complaint(side).unwrap_or_else(|| side.end()));
        }
        let failed = || sides.iter().filter(|(_, side)| side.code != Some(0));
        let ended = |(name, side): &(&str, &Outcome)| format!("the {name} {}", side.end());
        // A side that somebody else killed is the cause of what the other complains of.
        let killed = failed().find(|(_, side)| side.signal.is_some() && !side.timed_out).map(ended);
        let told = || failed().find_map(|(name, side)| Some(format!("{name}: {}", complaint(side)?)));
        let both = || failed().map(ended).collect::<Vec<_>>().join(", ");
        format!("the check could not finish; {}", killed.or_else(told).unwrap_or_else(both))
    }
}

/// The last line in which the command says what is wrong.
fn complaint(side: &Outcome) -> Option<String> {
    side.stderr.lines().rfind(|line| line.starts_with("srdma: ")).map(str::to_owned)
}

impl fmt::Display for NotVerified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}\n  server {}", self.client.story(), self.server.story())
    }
}

impl std::error::Error for NotVerified {}

/// A listening side on the second host, with `more` options, that listens by now.
pub fn listen(launcher: &Launcher, fabric: &Fabric, limit: Duration, more: &[&str]) -> Result<Running> {
    let mut server =
        launcher.srdma().args(["verify", "--listen"]).args(more).on(&fabric.h2).limit(limit).start()?;
    if let Err(error) = wait_until_it_listens(&fabric.h2, PORT, &mut server) {
        let server = server.stop(Duration::from_millis(200))?;
        anyhow::bail!("{error}: {}", server.story());
    }
    Ok(server)
}

/// A side on the first host that leads for `seconds`.
pub fn lead(launcher: &Launcher, fabric: &Fabric, seconds: u64) -> Program {
    let host = fabric.h2.address.to_string();
    launcher.srdma().args(["verify", &host, "--seconds", &seconds.to_string()]).on(&fabric.h1)
}

/// Runs it for `seconds` between the two hosts, with `more` options of the client; what it said at the end.
///
/// # Errors
/// [`NotVerified`] if a side did not exit with 0.
pub fn run(launcher: &Launcher, fabric: &Fabric, seconds: u64, more: &[&str]) -> Result<String> {
    let limit = Duration::from_secs(seconds + 90);
    let server = listen(launcher, fabric, limit, &["--once"])?;
    let client = lead(launcher, fabric, seconds).args(more).limit(limit).run()?;
    let server = server.let_end(Duration::from_secs(20))?;
    if client.code != Some(0) || server.code != Some(0) {
        return Err(NotVerified { client, server }.into());
    }
    let last = client.stdout.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("");
    Ok(last.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(code: Option<i32>, stderr: &str) -> Outcome {
        Outcome {
            line: "srdma verify".into(),
            code,
            signal: code.is_none().then_some(9),
            timed_out: code.is_none(),
            stdout: String::new(),
            stderr: stderr.into(),
            wall: Duration::from_secs(7),
            cpu: Duration::ZERO,
            memory_bytes: 0,
        }
    }

    #[test]
    fn the_reason_is_there_whatever_went_wrong() {
        let replay = "srdma: write round 3: bytes differ\nsrdma: to repeat: srdma verify B\n";
        for (client, server, said) in [
            (side(Some(1), replay), side(Some(1), ""), "bytes were wrong; srdma: to repeat"),
            (
                side(Some(0), ""),
                side(Some(1), "srdma: flag round 1"),
                "bytes were wrong; srdma: flag round 1",
            ),
            (
                side(Some(2), "srdma: no route\n"),
                side(Some(2), ""),
                "could not finish; client: srdma: no route",
            ),
            (
                side(Some(2), "srdma: gone\n"),
                Outcome { timed_out: false, ..side(None, "") },
                "could not finish; the server was ended by signal 9",
            ),
            (side(Some(2), ""), side(Some(2), "srdma: no\n"), "could not finish; server: srdma: no"),
            (side(Some(0), ""), side(None, ""), "could not finish; the server did not end within 7s"),
            (
                side(Some(101), "panicked"),
                side(None, ""),
                "could not finish; the client exited with 101, the",
            ),
        ] {
            let reason = NotVerified { client, server }.reason();
            assert!(reason.contains(said), "{reason}");
        }
    }
}
