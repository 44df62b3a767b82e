//! `srdma verify`: moves patterns between two hosts and checks every byte of them.
//!
//! It uses the software RNIC as any program would, through `srdma_client`, and knows nothing of what lies
//! below: what it finds is what a program would have met. Both sides make the same plan of each round from
//! the seed; over TCP they only take turns.
//!
//! Read [`kinds`] (what is proved, one file each), then [`plan`] and [`ground`] (what moves, and what memory must
//! hold), [`side`] (posting, waiting, checking), [`client`] and [`target`] (the two sides of a round).

mod channel;
mod client;
mod failure;
mod ground;
mod kinds;
mod message;
mod nic;
mod pattern;
mod plan;
mod settings;
mod side;
mod tally;
mod target;

use crate::options::NicOptions;
use crate::print::{complain, out};
use clap::Args;
use client::Outcome;
use kinds::Kind;
use serde_json::json;
use srdma_client::Options;
use std::hash::{BuildHasher, Hasher};
use std::process::ExitCode;

pub use client::farewell;
pub use failure::Failure;
pub use nic::SENDS;
pub use side::Side;

/// TCP port of the side channel.
pub const PORT: u16 = 18600;

/// `srdma verify`: its options.
#[derive(Args)]
#[command(
    override_usage = "srdma verify --listen [OPTIONS]\n       srdma verify HOST [OPTIONS]",
    after_help = "Exit code: 0 every byte was right, 1 something was not, 2 the run failed or the arguments are \
                  wrong.\n\nExamples:\n  srdma verify --listen               on one host\n  \
                  srdma verify HOST --seconds 60      on the other"
)]
pub struct VerifyCommand {
    /// Host that runs `srdma verify --listen`
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    host: Option<String>,

    /// Be the other side, for one client after another
    #[arg(long)]
    listen: bool,

    /// End after one client, with its exit code
    #[arg(long, requires = "listen", conflicts_with = "host")]
    once: bool,

    /// TCP port of the side channel, on which no data travels; 0 with --listen takes a free one
    #[arg(long, default_value_t = PORT)]
    port: u16,

    /// How long; each kind has its turn at least once
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "listen")]
    seconds: u64,

    /// Queue pairs to use at once
    #[arg(long, value_name = "N", default_value = "2", conflicts_with = "listen",
          value_parser = parse_qps)]
    qps: usize,

    /// Kinds to run, separated by commas [default: all]
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',', conflicts_with = "listen")]
    only: Vec<Kind>,

    /// First round of each kind, to repeat one that failed
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "listen")]
    round: u64,

    /// Show progress though standard error is no terminal
    #[arg(long)]
    progress: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Damage one byte before it is checked, in the first round of KIND: shows that checks notice
    #[arg(long, value_enum, value_name = "KIND", hide = true)]
    plant: Option<Kind>,

    #[command(flatten)]
    nic: NicOptions,
}

/// A number of queue pairs that a side can have.
pub fn parse_qps(text: &str) -> Result<usize, String> {
    let qps = text.parse().ok().filter(|qps| (1..=message::QPS_MAX).contains(qps));
    qps.ok_or_else(|| format!("must be 1 to {}", message::QPS_MAX))
}

impl VerifyCommand {
    fn new(port: u16, nic: &NicOptions) -> VerifyCommand {
        VerifyCommand {
            host: None,
            listen: false,
            once: false,
            port,
            seconds: 0,
            qps: 1,
            only: Vec::new(),
            round: 0,
            progress: false,
            json: false,
            plant: None,
            nic: nic.clone(),
        }
    }

    /// The side that listens, for another command that connects as this one does.
    pub fn listening(port: u16, json: bool, nic: &NicOptions) -> VerifyCommand {
        VerifyCommand { listen: true, json, ..VerifyCommand::new(port, nic) }
    }

    /// The side that leads, likewise.
    pub fn against(host: &str, port: u16, qps: usize, nic: &NicOptions) -> VerifyCommand {
        VerifyCommand { host: Some(host.to_owned()), qps, ..VerifyCommand::new(port, nic) }
    }
}

/// Connects with a side that listens, and leaves the rest to the caller. Also answers the settings of the device.
pub fn connected(command: &VerifyCommand, host: &str) -> Result<(Side, Options), Failure> {
    let options = settings::options(&command.nic, &crate::environment::inherited)?;
    let seed = options.seed.unwrap_or_else(random_seed);
    let (side, _) = client::connect(command, host, &options, seed)?;
    Ok((side, options))
}

/// Carries out `srdma verify`.
pub fn verify(command: &VerifyCommand) -> ExitCode {
    let options = match settings::options(&command.nic, &crate::environment::inherited) {
        Ok(options) => options,
        Err(failure) => return not_started(command, &failure),
    };
    match &command.host {
        Some(host) => lead(command, host, &options),
        None => listen(command, &options),
    }
}

fn lead(command: &VerifyCommand, host: &str, options: &Options) -> ExitCode {
    let seed = options.seed.unwrap_or_else(random_seed);
    let outcome = client::run(command, host, options, seed);
    let code = report(command, &outcome);
    if let Some(line) = outcome.failure.as_ref().and_then(|failure| client::replay(command, host, failure)) {
        complain(&format!("to repeat: {line}"));
    }
    code
}

fn listen(command: &VerifyCommand, options: &Options) -> ExitCode {
    let listener = match target::listen(command) {
        Ok(listener) => listener,
        Err(failure) => return not_started(command, &failure),
    };
    if let Ok(address) = listener.local_addr() {
        out(&match command.json {
            true => format!("{}\n", json!({ "listening": { "port": address.port() } })),
            false => format!("listening on port {}\n", address.port()),
        });
    }
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let code = report(command, &target::serve(command, options, stream));
                if command.once {
                    return code;
                }
            }
            Err(error) => return not_started(command, &error.into()),
        }
    }
}

/// Says why nothing was checked: all that there is to say.
fn not_started(command: &VerifyCommand, failure: &Failure) -> ExitCode {
    if command.json {
        out(&format!("{}\n", json!({ "error": failure.to_string() })));
    }
    complain(failure);
    ExitCode::from(failure.exit_code())
}

/// Prints how a run went.
fn report(command: &VerifyCommand, outcome: &Outcome) -> ExitCode {
    let Outcome { tally, elapsed, failure } = outcome;
    if let Some(failure) = failure.as_ref().filter(|_| tally.rounds() == 0) {
        return not_started(command, failure);
    }
    out(&match command.json {
        true => format!("{}\n", tally.object(*elapsed, failure.as_ref())),
        // It came for something else, such as to measure.
        false if tally.rounds() == 0 => format!("a client came and went ({elapsed:.1?})\n"),
        false => tally.text(*elapsed),
    });
    match failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            complain(failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

/// A seed that nobody chose: the standard library's hashers start from the system's entropy.
fn random_seed() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
