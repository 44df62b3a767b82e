//! `srdma bench net`: what the software RNIC reaches between two hosts with no verbs program in the way.
//!
//! The two sides find each other, open devices and connect queue pairs as those of `srdma verify` do, by the same
//! code: `verify --listen` serves this command, too. What is measured is one-sided, so the listening host's program
//! does nothing; its background thread answers. Read [`measure`] (posting and timing), [`report`].

mod measure;
mod report;

use crate::options::NicOptions;
use crate::print::{complain, out};
use crate::verify::{self, Failure, Side};
use clap::{Args, Subcommand};
use measure::{Bench, Work};
use report::Report;
use srdma_abi::Opcode;
use std::process::ExitCode;
use std::time::Duration;

/// `srdma bench`: what to measure.
#[derive(Args)]
pub struct BenchCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Bandwidth, latency and message rate to a host, every byte read back and checked
    Net(NetCommand),
}

/// `srdma bench net`: its options.
#[derive(Args)]
#[command(
    override_usage = "srdma bench net [OPTIONS]\n       srdma bench net HOST [OPTIONS]",
    after_help = "Without HOST it is the other side, for one client after another.\n\nExit code: 0 measured and every \
                  byte right, 1 a byte was wrong, 2 it could not be measured or the arguments are wrong.\n\n\
                  Examples:\n  srdma bench net                     on one host\n  srdma bench net HOST                \
                  on the other"
)]
struct NetCommand {
    /// Host that runs `srdma bench net`
    host: Option<String>,

    /// TCP port of the side channel, on which no data travels; 0 without HOST takes a free one
    #[arg(long, default_value_t = verify::PORT)]
    port: u16,

    /// How long each of the measurements takes
    #[arg(long, value_name = "SECS", default_value = "2", value_parser = parse_seconds, requires = "host")]
    seconds: Duration,

    /// Queue pairs to use at once; latency takes one
    #[arg(long, value_name = "N", default_value = "1", value_parser = verify::parse_qps, requires = "host")]
    qps: usize,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Damage one byte before it is checked: shows that the check notices
    #[arg(long, hide = true)]
    plant: bool,

    #[command(flatten)]
    nic: NicOptions,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.05..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "must be 0.05 to 3600 seconds".to_owned())
}

/// Carries out `srdma bench`.
pub fn bench(command: &BenchCommand) -> ExitCode {
    let What::Net(command) = &command.what;
    let Some(host) = &command.host else {
        return verify::verify(&verify::VerifyCommand::listening(command.port, command.json, &command.nic));
    };
    match net(command, host) {
        Ok(report) => {
            out(&if command.json { format!("{:#}\n", report.object()) } else { report.text() });
            ExitCode::SUCCESS
        }
        Err(failure) => {
            complain(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn net(command: &NetCommand, host: &str) -> Result<Report, Failure> {
    let asked = verify::VerifyCommand::against(host, command.port, command.qps, &command.nic);
    let (mut side, options) = verify::connected(&asked, host)?;
    let result = measured(command, &mut side).map(|mut report| {
        report.host = host.to_owned();
        report.paths = options.paths;
        report
    });
    verify::farewell(&mut side, &result);
    result
}

/// All measurements, one after the other.
fn measured(command: &NetCommand, side: &mut Side) -> Result<Report, Failure> {
    side.ground.planted = command.plant;
    let mut bench = Bench::new(side, command.seconds)?;
    let mut report = Report { qps: command.qps, ..Report::default() };
    // The handshake and the first window are no part of what lasts.
    bench.run(&Work::bulk(Opcode::Write), Duration::from_millis(100))?;
    for (name, work) in [
        ("write_bandwidth", Work::bulk(Opcode::Write)),
        ("read_bandwidth", Work::bulk(Opcode::Read)),
        ("write_rate", Work::small(Opcode::Write)),
    ] {
        let flow = bench.run(&work, command.seconds)?;
        report.flows.push((name, flow));
        report.verified_bytes += bench.verify()?;
    }
    for (name, opcode) in [("write_latency", Opcode::Write), ("read_latency", Opcode::Read)] {
        report.latencies.push((name, bench.latency(opcode)?));
    }
    report.verified_bytes += bench.verify()?;
    Ok(report)
}
