//! perftest: every program with every flag that it accepts, in every network.
//!
//! CI runs a subset in which every pair of (program, flag), (program, network) and (flag, network) occurs;
//! `soak` runs the whole product.

use std::collections::BTreeSet;

use anyhow::{ensure, Result};

use super::compat::Case;
use super::{Setting, Step};
use crate::fabric::{Fabric, Spec};
use crate::process::Program;
use crate::programs::perftest::{self, Refusal, FLAGS, PROGRAMS};
use crate::programs::Pair;

/// Networks that the matrix runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Net {
    /// Two hosts on a cable as fast as the machine.
    Cable,
    /// Four spines of 200 Mbit/s.
    Spines,
    /// The same, each losing 1 % of packets.
    Loss,
}

const NETS: [Net; 3] = [Net::Cable, Net::Spines, Net::Loss];

impl Net {
    fn name(self) -> &'static str {
        match self {
            Net::Cable => "cable",
            Net::Spines => "spines",
            Net::Loss => "loss",
        }
    }

    fn spec(self) -> Spec {
        match self {
            Net::Cable => Spec::pair(),
            Net::Spines => Spec::spines(Some(200)),
            Net::Loss => Spec::spines(Some(200)).loss(&[10; 4], false),
        }
    }
}

/// Accepted runs, and refused ones once each.
pub fn steps(soak: bool) -> Result<Vec<Step>> {
    let table = perftest::refusals()?;
    let mut steps = Vec::new();
    for (program, flag) in product() {
        if let Some(row) = perftest::refusal(&table, program, flag).cloned() {
            let line = format!("{program} {flag}");
            let case = case(program, flag, true, Net::Cable);
            steps.push(Step::new(format!("refusal/{line}"), move |_| refuses(&line, &row)).covering(case));
        }
    }
    let accepted: Vec<_> =
        product().filter(|(program, flag)| perftest::refusal(&table, program, flag).is_none()).collect();
    let runs = if soak {
        accepted.iter().flat_map(|&(program, flag)| NETS.map(|net| (program, flag, net))).collect()
    } else {
        pairwise(&accepted)
    };
    for (program, flag, net) in runs {
        let name = format!("perftest/{} {program} {flag}", net.name());
        let step = Step::new(name.trim_end(), move |setting| run(setting, program, flag, net));
        steps.push(step.covering(case(program, flag, false, net)));
    }
    Ok(steps)
}

fn case(program: &str, flag: &str, refused: bool, net: Net) -> Case {
    Case { program: program.into(), flags: flag.into(), refused, network: net.name() }
}

fn product() -> impl Iterator<Item = (&'static str, &'static str)> {
    PROGRAMS.iter().flat_map(|&program| FLAGS.iter().map(move |&flag| (program, flag)))
}

/// For each accepted (program, flag) the network that covers most pairs not covered yet; ties go to the
/// network used least so far. Every (program, flag) has its own run, so only the other two kinds of pair
/// need looking after; runs are added for those that no choice has covered.
fn pairwise<'a>(accepted: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str, Net)> {
    let mut with_program = BTreeSet::new();
    let mut with_flag = BTreeSet::new();
    let mut used = [0usize; NETS.len()];
    let mut runs = Vec::new();
    for &(program, flag) in accepted {
        let gain = |net: Net| {
            usize::from(!with_program.contains(&(program, net)))
                + usize::from(!with_flag.contains(&(flag, net)))
        };
        // Ping-pong up to 8 MiB takes minutes over slow links; bandwidth programs cover these with -a.
        let slow = flag == "-a" && program.contains("_lat");
        let nets = if slow { &NETS[..1] } else { &NETS[..] };
        let best =
            (0..nets.len()).max_by_key(|&index| (gain(NETS[index]), usize::MAX - used[index])).unwrap_or(0);
        used[best] += 1;
        with_program.insert((program, NETS[best]));
        with_flag.insert((flag, NETS[best]));
        runs.push((program, flag, NETS[best]));
    }
    for &(program, flag) in accepted {
        for net in NETS {
            if with_program.insert((program, net)) | with_flag.insert((flag, net)) {
                runs.push((program, flag, net));
            }
        }
    }
    runs
}

fn refuses(line: &str, row: &Refusal) -> Result<String> {
    let mut words = line.split_whitespace();
    let out = Program::new(words.next().unwrap_or("")).args(words).run()?;
    ensure!(
        out.code.is_some_and(|code| code != 0),
        "accepts what the table says it refuses: {}",
        out.story()
    );
    let said = out.stdout.contains(&row.says) || out.stderr.contains(&row.says);
    ensure!(said, "refuses in other words than {:?}: {}", row.says, out.story());
    Ok(row.says.clone())
}

fn run(setting: &Setting<'_>, program: &str, flag: &str, net: Net) -> Result<String> {
    let fabric = Fabric::build(net.spec())?;
    // 2 B to 8 MiB a thousand times is for a fast cable.
    let short = if flag == "-a" && net != Net::Cable { " -n 100" } else { "" };
    let pair = Pair::new(&format!("{program} -F {flag}{short}")).limit(if flag == "-a" { 600 } else { 120 });
    let before = fabric.host_count()?;
    let done = pair.run(setting.launcher()?, &fabric)?.success()?;
    let after = fabric.host_count()?;

    let accounted = perftest::bytes_accounted(program, &done.client.stdout);
    ensure!(accounted > 0, "no line in the table of {}", done.client.story());
    let (near, far) = (done.client_stats()?, done.server_stats()?);
    // Operands and results of atomics travel in headers: 8 bytes that the program accounts for are a packet.
    let (unit, expected, received) = if program.contains("atomic") {
        ("packets", accounted / 8, near.packets_received() + far.packets_received())
    } else {
        ("bytes", accounted, near.payload_received() + far.payload_received())
    };
    ensure!(
        received >= expected,
        "the program accounts for {expected} {unit}, our devices received {received}"
    );
    let sent = near.bytes_sent() + far.bytes_sent();
    ensure!(sent >= accounted, "the program accounts for {accounted} bytes, our devices sent {sent}");
    let kernel = after.rx_bytes + after.tx_bytes - before.rx_bytes - before.tx_bytes;
    ensure!(kernel >= accounted, "the program accounts for {accounted} bytes, the interface for {kernel}");
    if net == Net::Loss && kernel > 10_000_000 {
        let lost: u64 = fabric.counts()?.iter().map(|spine| spine.dropped).sum();
        ensure!(lost > 0, "the fabric lost nothing");
    }
    Ok(remark(program, &done.client.stdout))
}

fn remark(program: &str, output: &str) -> String {
    if program.contains("_bw") {
        let last = perftest::bandwidths(output).last().copied();
        return last.map_or(String::new(), |row| format!("{} B: {:.0} MB/s", row.bytes, row.mb_per_s));
    }
    let first = perftest::latencies(output).first().copied();
    first.map_or(String::new(), |row| format!("{} B: {:.1} µs", row.bytes, row.typical_us))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_subset_has_every_pair_and_is_smaller_than_the_product() {
        let table = perftest::refusals().unwrap();
        let accepted: Vec<_> = product().filter(|(p, f)| perftest::refusal(&table, p, f).is_none()).collect();
        let runs = pairwise(&accepted);
        for &(program, flag) in &accepted {
            assert!(runs.iter().any(|run| (run.0, run.1) == (program, flag)), "{program} {flag}");
            for net in NETS {
                assert!(runs.iter().any(|run| (run.0, run.2) == (program, net)), "{program} {net:?}");
                assert!(runs.iter().any(|run| (run.1, run.2) == (flag, net)), "{flag} {net:?}");
            }
        }
        assert!(
            runs.len() < accepted.len() * NETS.len(),
            "{} of {}",
            runs.len(),
            accepted.len() * NETS.len()
        );
    }
}
