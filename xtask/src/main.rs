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

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, Result};

/// Every command there is.
pub const COMMANDS: [&str; 7] = ["demo", "test", "soak", "bench", "dist", "tidy", "fabric"];

const USAGE: &str = "\
cargo xtask COMMAND

  demo    [--json FILE] [--dist DIR]    real RDMA programs over 4 spines, beside TCP, in three minutes
  test    [--only PATTERN] [--list] [--jobs N] [--dist DIR]   everything that CI runs
  soak    [--only PATTERN] [--list] [--jobs N] [--dist DIR]   the same, every combination and more seeds
  bench   [--json FILE] [--check] [--pairs N] [--only PART] [--dist DIR]   speed beside TCP
  dist                                  the relocatable tree in target/dist
  tidy                                  house rules: dependencies, no_std, file lengths, names
  fabric  show|clean [--all]            build and measure the test network; remove leftovers
";

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
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let args: Vec<String> = words.collect();
    match command.as_str() {
        "dist" => dist::run(&args).map(|()| true).map_err(|error| anyhow::anyhow!("{error}")),
        "demo" => {
            let words = Arguments::parse(args, &["json", "dist"])?;
            demo::run(words.json, words.dist)
        }
        "test" | "soak" => {
            let words = Arguments::parse(args, &["only", "list", "jobs", "dist"])?;
            suite::run(&suite::Options {
                soak: command == "soak",
                only: words.only,
                list: words.list,
                jobs: words.jobs,
                dist: words.dist,
            })
        }
        "bench" => {
            let words = Arguments::parse(args, &["json", "check", "pairs", "only", "dist"])?;
            bench::run(&bench::Options {
                json: words.json,
                check: words.check,
                pairs: words.pairs,
                dist: words.dist,
                only: words.only,
            })
        }
        "tidy" => {
            let findings = tidy::check()?;
            findings.iter().for_each(|finding| report::plain(finding));
            report::plain(&format!("{} findings", findings.len()));
            Ok(findings.is_empty())
        }
        "fabric" => fabric_command(&args),
        "" | "help" | "-h" | "--help" => {
            print!("{USAGE}");
            Ok(!command.is_empty())
        }
        other => bail!("there is no `cargo xtask {other}`\n\n{USAGE}"),
    }
}

/// Options of all commands; each command says which it takes.
struct Arguments {
    json: Option<PathBuf>,
    only: Option<String>,
    dist: Option<PathBuf>,
    jobs: usize,
    pairs: usize,
    list: bool,
    check: bool,
}

impl Arguments {
    fn parse(args: Vec<String>, known: &[&str]) -> Result<Arguments> {
        use lexopt::{Arg, ValueExt};
        let mut found =
            Arguments { json: None, only: None, dist: None, jobs: 1, pairs: 5, list: false, check: false };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            let name = match arg {
                Arg::Long(name) if known.contains(&name) => name.to_owned(),
                other => return Err(other.unexpected().into()),
            };
            match name.as_str() {
                // Absolute, because steps may change directory.
                "json" => found.json = Some(std::path::absolute(parser.value()?)?),
                "dist" => found.dist = Some(std::path::absolute(parser.value()?)?),
                "only" => found.only = Some(parser.value()?.string()?),
                "jobs" => found.jobs = parser.value()?.parse()?,
                "pairs" => found.pairs = parser.value()?.parse()?,
                "list" => found.list = true,
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
