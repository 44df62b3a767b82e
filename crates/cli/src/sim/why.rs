//! `srdma sim why`: where the time of a run went.

use super::USAGE;
use crate::print::{complain, out};
use clap::Args;
use srdma_sim::Explanation;
use std::path::PathBuf;
use std::process::ExitCode;

/// `srdma sim why`: its options.
#[derive(Args)]
#[command(
    after_help = "A run that was killed is explained as far as it came.\n\nExit code: 0 explained, 2 there are no \
                        such results or they are not what a run writes.\n\nExamples:\n  srdma sim run \
                        share/scenarios/selectors.toml\n  srdma sim why selectors.out\n  srdma sim why selectors.out --json"
)]
pub struct WhyCommand {
    /// Directory that `srdma sim run` made, or its results.jsonl
    #[arg(value_name = "RUN")]
    results: PathBuf,

    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// Carries out `srdma sim why`.
pub fn why(command: &WhyCommand) -> ExitCode {
    match read(command) {
        Ok(explanation) if command.json => out(&format!("{:#}\n", explanation.json())),
        Ok(explanation) => out(&explanation.text()),
        Err(problem) => {
            complain(&problem);
            return ExitCode::from(USAGE);
        }
    }
    ExitCode::SUCCESS
}

fn read(command: &WhyCommand) -> Result<Explanation, String> {
    let path = match command.results.is_dir() {
        true => command.results.join("results.jsonl"),
        false => command.results.clone(),
    };
    let name = path.display().to_string();
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
    srdma_sim::explain(&name, &text).map_err(|error| error.to_string())
}
