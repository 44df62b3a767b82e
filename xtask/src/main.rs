//! `cargo xtask`: builds, tests, demonstrates and measures the project.
//!
//! It knows the project only from outside, as its users do: through cargo, through `target/dist`, through
//! the statistics that programs leave behind and through the kernel's own counters. `fabric` makes networks,
//! `programs` runs RDMA programs in them, `suite` is the list of tests, `demo` and `bench` are what their
//! names say, `tidy` checks the house rules.

mod bench;
mod demo;
mod dist;
mod fabric;
mod ground;
mod interrupt;
mod packages;
mod process;
mod programs;
mod report;
mod suite;
mod tidy;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, Result};

fn main() -> ExitCode {
    report::elapsed();
    with_system_directories_on_path();
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{} {error:#}", report::bad("error:"));
            ExitCode::FAILURE
        }
    }
}

/// A user's PATH often lacks the directories that ip, tc and nft are in.
fn with_system_directories_on_path() {
    let path = std::env::var("PATH").unwrap_or_default();
    std::env::set_var("PATH", format!("{path}:/usr/sbin:/sbin"));
}

/// Runs the command; false means that a check did not hold.
fn run() -> Result<bool> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let asks_for_help = |word: &String| word == "-h" || word == "--help";
    let wants_help = args.iter().any(asks_for_help) || args.first().is_some_and(|word| word == "help");
    args.retain(|word| !asks_for_help(word));
    if args.first().is_some_and(|word| word == "help") {
        args.remove(0);
    }
    if args.is_empty() {
        print!("{}", usage::overview());
        return Ok(wants_help);
    }
    let name = args.remove(0);
    let Some(command) = usage::command(&name) else {
        bail!("there is no `cargo xtask {name}`\n\n{}", usage::overview())
    };
    if wants_help {
        print!("{}", command.help());
        return Ok(true);
    }
    perform(command, args)
}

fn perform(command: &usage::Command, args: Vec<String>) -> Result<bool> {
    match command.name {
        "dist" => return dist::run(&args).map(|()| true).map_err(|error| anyhow::anyhow!("{error}")),
        "fabric" => return fabric_command(&args),
        _ => {}
    }
    let words = Arguments::parse(args, command)?;
    match command.name {
        "demo" => demo::run(words.json, words.dist),
        "test" | "soak" => suite::run(&suite::Options {
            soak: command.name == "soak",
            only: words.only,
            list: words.list,
            jobs: words.jobs,
            dist: words.dist,
            write_compat: words.write_compat,
        }),
        "bench" => bench::run(&bench::Options {
            json: words.json,
            check: words.check,
            pairs: words.pairs,
            dist: words.dist,
            only: words.only,
            htsim: words.htsim,
        }),
        _ => {
            let findings = tidy::check()?;
            findings.iter().for_each(|finding| report::plain(finding));
            report::plain(&format!("{} findings", findings.len()));
            Ok(findings.is_empty())
        }
    }
}

/// Options of all commands; [`usage`] says which of them a command takes.
struct Arguments {
    json: Option<PathBuf>,
    only: Option<String>,
    dist: Option<PathBuf>,
    htsim: Option<PathBuf>,
    jobs: usize,
    pairs: usize,
    list: bool,
    check: bool,
    write_compat: bool,
}

impl Arguments {
    fn parse(args: Vec<String>, command: &usage::Command) -> Result<Arguments> {
        use lexopt::{Arg, ValueExt};
        let mut found = Arguments {
            json: None,
            only: None,
            dist: None,
            htsim: None,
            jobs: 1,
            pairs: 5,
            list: false,
            check: false,
            write_compat: false,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            let name = match arg {
                Arg::Long(name) if command.takes(name) => name.to_owned(),
                // `bench sim` is `bench --only =sim`.
                Arg::Value(part) if command.name == "bench" && found.only.is_none() => {
                    found.only = Some(format!("={}", part.string()?));
                    continue;
                }
                other => {
                    let error = other.unexpected();
                    bail!("{error}; see `cargo xtask {} --help`", command.name)
                }
            };
            match name.as_str() {
                // Absolute, because steps may change directory.
                "json" => found.json = Some(std::path::absolute(parser.value()?)?),
                "htsim" => found.htsim = Some(std::path::absolute(parser.value()?)?),
                "dist" => found.dist = Some(std::path::absolute(parser.value()?)?),
                "only" => found.only = Some(parser.value()?.string()?),
                "jobs" => found.jobs = parser.value()?.parse()?,
                "pairs" => found.pairs = parser.value()?.parse()?,
                "list" => found.list = true,
                "write-compat" => found.write_compat = true,
                _ => found.check = true,
            }
        }
        Ok(found)
    }
}

fn fabric_command(args: &[String]) -> Result<bool> {
    match args.first().map(String::as_str) {
        Some("clean") => {
            let names = fabric::clean(args.iter().any(|arg| arg == "--all"))?;
            report::plain(&format!("{} network namespaces removed {}", names.len(), names.join(" ")));
            Ok(true)
        }
        Some("show") => {
            packages::ensure(&[packages::FABRIC])?;
            let before = report::elapsed();
            let spec = fabric::Spec::spines(Some(200)).loss(&[10], false);
            let fabric = fabric::Fabric::build(spec)?;
            report::say(&format!("{:?}: built in {:.0?}", ground::stand(), report::elapsed() - before));
            fabric.counts()?.iter().for_each(|count| report::plain(&format!("  {count:?}")));
            Ok(true)
        }
        _ => bail!("cargo xtask fabric show|clean"),
    }
}
