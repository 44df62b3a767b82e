//! The `srdma` command: starts programs on the software RNIC, and looks at the way to a host.
//!
//! It reads arguments, prepares an environment or calls `srdma_probe`, and prints. It must not know
//! how packets are sprayed or queue pairs work: the libraries that it puts before a program do that,
//! and everything they are told goes through the environment. [`options`] is that contract: the one
//! place where a command-line option meets its `SRDMA_…` variable.
//!
//! Read [`options`], then [`environment`] (what `run` and `env` set), [`program`] (what can be
//! started), [`check`] and [`doctor`].

mod bench;
mod check;
mod check_text;
mod daemon;
mod doctor;
mod environment;
mod explain;
mod options;
mod pages;
mod print;
mod program;
mod run;
mod sim;
mod stats;
mod top;
mod tree;
mod vdev;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Exit code of wrong arguments.
const USAGE: u8 = 2;

/// RDMA programs on any machine with an IP address: no RDMA hardware, no kernel module, no root.
#[derive(Parser)]
#[command(name = "srdma", version, subcommand_required = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program on the software RNIC
    Run(run::RunCommand),
    /// Be the RNIC of this host, for virtual devices
    Daemon(daemon::DaemonCommand),
    /// Define, show and remove virtual devices
    Vdev(vdev::VdevCommand),
    /// Print the environment that `run` would set, for a shell, a Dockerfile or a tool
    Env(environment::EnvCommand),
    /// Test the way to a host: does it answer, and over how many distinct paths
    Check(check::CheckCommand),
    /// Look at this host: what is good, what costs speed, what to type
    Doctor(doctor::DoctorCommand),
    /// Explain an error code (vendor_err of a completion)
    Explain(explain::ExplainCommand),
    /// Show what running programs do: queue pairs, rates, retransmissions, paths
    Stats(stats::StatsCommand),
    /// The same on a terminal, busiest first
    Top(top::TopCommand),
    /// Measure: bandwidth, latency, message rate between two hosts
    Bench(bench::BenchCommand),
    /// Move patterns between two hosts and check every byte
    Verify(verify::VerifyCommand),
    /// Simulate: what a scenario would do on a network of simulated switches
    Sim(sim::SimCommand),
    /// Print the completions of this command for a shell
    Completions(pages::CompletionsCommand),
    /// Write manual pages and completions into a directory
    #[command(hide = true)]
    Pages(pages::PagesCommand),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refused(&error),
    };
    match arguments.command {
        Command::Run(command) => run::run(&command),
        Command::Daemon(command) => daemon::daemon(&command),
        Command::Vdev(command) => vdev::vdev(&command),
        Command::Env(command) => environment::env(&command),
        Command::Check(command) => check::check(&command),
        Command::Doctor(command) => doctor::doctor(&command),
        Command::Explain(command) => explain::explain(&command),
        Command::Stats(command) => stats::stats(&command),
        Command::Top(command) => top::top(&command),
        Command::Bench(command) => bench::bench(&command),
        Command::Verify(command) => verify::verify(&command),
        Command::Sim(command) => sim::sim(&command),
        Command::Completions(command) => pages::completions(&command),
        Command::Pages(command) => pages::pages(&command),
    }
}

/// Prints what clap says instead of arguments: help as it is, a mistake as one line.
fn refused(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => print::out(&error.to_string()),
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
        }
        _ => {
            print::complain(&mistake(&error.to_string()));
            return ExitCode::from(USAGE);
        }
    }
    ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
}

/// The lines of clap's message up to the usage, as one, and where to read on.
fn mistake(message: &str) -> String {
    let told = message.strip_prefix("error: ").unwrap_or(message);
    let worth = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let (mut words, mut alike) = (Vec::new(), None);
    for line in told.lines().take_while(worth).map(str::trim_start) {
        match line.strip_prefix("tip: ") {
            None => words.extend(line.split_whitespace()),
            // "a similar argument exists: '--slot'"; other tips are for people who know what they want.
            Some(tip) if tip.contains("similar") => alike = tip.split_once(": ").map(|(_, names)| names),
            Some(_) => {}
        }
    }
    let meant = alike.map_or(String::new(), |names| format!(" (did you mean {names}?)"));
    format!("{}{meant}; see --help", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_contradict_nothing() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn mistakes_are_one_line_that_names_the_option() {
        for (line, said) in [
            ("run --paths 0 -- true", "invalid value '0' for '--paths <N>': 0 is not in 1..=256; see --help"),
            ("run --selector x -- true", "[possible values: single, rr, oblivious, "),
            ("run", "required arguments were not provided: <PROGRAM>"),
            ("run --bogus -- true", "unexpected argument '--bogus' found"),
            ("check", "<HOST>"),
            ("check --listen host", "cannot be used with"),
            ("check host --for 3", "cannot be used with"),
            ("check host --port 0", "0 is not in 1..=65535"),
            ("check host --paths 257", "257 is not in 0..=256"),
            ("explain", "<CODE|list>"),
            ("nonsense", "unrecognized subcommand 'nonsense'; see --help"),
            ("chek", "unrecognized subcommand 'chek' (did you mean 'check'?); see --help"),
            ("check --slott 3", "unexpected argument '--slott' found (did you mean '--slot'?); see --help"),
        ] {
            let parsed = Arguments::try_parse_from(std::iter::once("srdma").chain(line.split(' ')));
            let Err(error) = parsed else { panic!("{line}: taken") };
            let text = mistake(&error.to_string());
            assert!(text.contains(said) && !text.contains('\n'), "{line}: {text}");
        }
    }
}
