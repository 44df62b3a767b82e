//! `srdma run`: becomes the program, with our libraries before it.

use crate::daemon::At;
use crate::environment::{inherited, Environment, EnvironmentError, Format};
use crate::options::NicOptions;
use crate::print::{complain, out, shell_quoted};
use crate::program::{find, inspect, ProgramError};
use crate::tree::Libraries;
use crate::vdev::socket_of;
use crate::USAGE;
use clap::Args;
use srdma_doors::socket::DialError;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code when the program was not started for a reason of ours.
const FAILED: u8 = 125;

/// `srdma run`: its options.
#[derive(Args)]
#[command(
    override_usage = "srdma run [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "The exit code is the program's. If it was not started: 2 wrong options, 125 our libraries \
                  or a\nusable address are missing, 126 it cannot be run, 127 it was not found.\n\n\
                  Examples:\n  srdma run -- ib_write_bw            on one host\n  \
                  srdma run -- ib_write_bw HOST       on the other"
)]
pub struct RunCommand {
    #[command(flatten)]
    nic: NicOptions,

    /// Run it on this virtual device: its name, if the daemon may be asked (see `srdma vdev`), or the path of its
    /// socket; then the other options are the daemon's
    #[arg(long, value_name = "NAME|PATH")]
    vdev: Option<String>,

    #[command(flatten)]
    at: At,

    /// Show the environment and the command instead of running it
    #[arg(long)]
    print: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    line: Vec<OsString>,
}

/// Why the program was not started.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(
        "no usable address: this host has no interface that is up with a routable address; \
         bring one up, or use `--addr 127.0.0.1` for programs on this host only"
    )]
    NoAddress,
    #[error("cannot list the addresses of this host ({0}); give one with --addr")]
    Interfaces(std::io::Error),
    #[error("SRDMA_ADDR={0} is no address of this host; correct or unset it, or use --addr")]
    ForeignAddress(String),
    #[error("--{0} is the daemon's to decide; give it to `srdma daemon`")]
    Daemons(String),
    #[error(transparent)]
    Device(#[from] DialError),
    #[error("{program}: {error}")]
    Exec { program: String, error: std::io::Error },
}

impl RunError {
    fn exit_code(&self) -> u8 {
        match self {
            RunError::Environment(EnvironmentError::Option(_)) | RunError::Daemons(_) => USAGE,
            RunError::Program(error) => error.exit_code(),
            RunError::Exec { error, .. } if error.kind() == std::io::ErrorKind::NotFound => 127,
            RunError::Exec { .. } => 126,
            _ => FAILED,
        }
    }
}

/// What is about to be started.
struct Prepared {
    environment: Environment,
    program: PathBuf,
}

fn prepare(command: &RunCommand) -> Result<Prepared, RunError> {
    let name = command.line.first().cloned().unwrap_or_default();
    let libraries = Libraries::find().map_err(EnvironmentError::from)?;
    let mut environment =
        Environment::new(&libraries, &command.nic, &inherited).map_err(EnvironmentError::from)?;
    command.nic.settings(&inherited).map_err(EnvironmentError::from)?;
    let program = find(&name, std::env::var_os("PATH").as_deref())?;
    inspect(&program)?;
    if let Some(name) = &command.vdev {
        if let Some((variable, _)) = command.nic.variables().map_err(EnvironmentError::from)?.first() {
            let option = variable.trim_start_matches("SRDMA_").to_lowercase().replace('_', "-");
            return Err(RunError::Daemons(option));
        }
        let path = socket_of(&command.at, name)?;
        environment.0.push(("SRDMA_VDEV", path.display().to_string()));
    } else if command.nic.addr.is_none() && inherited("SRDMA_VDEV").is_none_or(|text| text.is_empty()) {
        check_address(inherited("SRDMA_ADDR"))?;
    }
    Ok(Prepared { environment, program })
}

/// That the libraries will find an address, given the one the environment asks for.
fn check_address(asked: Option<String>) -> Result<(), RunError> {
    match asked.filter(|text| !text.is_empty()) {
        Some(text) => {
            let own =
                text.parse().is_ok_and(|ip: std::net::IpAddr| std::net::UdpSocket::bind((ip, 0)).is_ok());
            own.then_some(()).ok_or(RunError::ForeignAddress(text))
        }
        None => match srdma_probe::address::usable() {
            Ok(list) if list.is_empty() => Err(RunError::NoAddress),
            Ok(_) => Ok(()),
            Err(error) => Err(RunError::Interfaces(error)),
        },
    }
}

fn start(command: &RunCommand) -> Result<(), RunError> {
    let prepared = prepare(command)?;
    if command.print {
        let mut line = shell_quoted(&prepared.program.to_string_lossy());
        for argument in &command.line[1..] {
            line.push(' ');
            line.push_str(&shell_quoted(&argument.to_string_lossy()));
        }
        out(&format!("{}exec {line}\n", prepared.environment.format(Format::Sh)));
        return Ok(());
    }
    let error = std::process::Command::new(&prepared.program)
        .arg0(&command.line[0])
        .args(&command.line[1..])
        .envs(prepared.environment.0)
        .exec();
    Err(RunError::Exec { program: prepared.program.display().to_string(), error })
}

/// Carries out `srdma run`: returns only if the program was not started.
pub fn run(command: &RunCommand) -> ExitCode {
    match start(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}
