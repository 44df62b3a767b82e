//! The `srdma` command: starts programs on the software RNIC, and looks at the way to a host.
//!
//! It reads arguments, prepares an environment or calls `srdma_probe`, and prints. It must not know
//! how packets are sprayed or queue pairs work: the libraries that it puts before a program do that,
//! and everything they are told goes through the environment. [`options`] is that contract: the one
//! place where a command-line option meets its `SRDMA_…` variable.
//!
//! Read [`options`], then [`environment`] (what `run` and `env` set), [`program`] (what can be
//! started), and [`check`].

mod check;
mod check_text;
mod environment;
mod explain;
mod options;
mod print;
mod program;
mod run;
mod tree;

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
    /// Print the environment that `run` would set, for a shell, a Dockerfile or a tool
    Env(environment::EnvCommand),
    /// Test the way to a host: does it answer, and over how many distinct paths
    Check(check::CheckCommand),
    /// Explain an error code (vendor_err of a completion)
    Explain(explain::ExplainCommand),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // clap knows whether this is help (standard output, 0) or a mistake (standard error, 2).
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match arguments.command {
        Command::Run(command) => run::run(&command),
        Command::Env(command) => environment::env(&command),
        Command::Check(command) => check::check(&command),
        Command::Explain(command) => explain::explain(&command),
    }
}
