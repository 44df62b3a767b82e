//! The simulator: data packets per CPU second of its one thread, and what large networks take.
//!
//! CPU time of the whole process, reading and drawing included; it does not depend on what else the machine does as wall
//! time would. The networks and permutations are written here in htsim's formats, so that its own simulator can be given the
//! same files (`--htsim`).

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{json, Value};

use super::{Judged, Options};
use crate::process::{Outcome, Program};
use crate::programs::Launcher;
use crate::report::{self, median, Table};

const MESSAGE_BYTES: u32 = 2_000_000;
/// Data packets per CPU second aimed at.
const PACKETS_PER_S_MIN: f64 = 500_000.0;
/// Cost per packet in a network eight times as large may be this much higher, caches being what they are.
const LINEAR_MIN: f64 = 0.8;
/// What a large simulation may take.
const SECONDS_MAX: u64 = 1_200;

/// A network in three tiers, 1:1, of 128 hosts; one of leaves and spines, 1:1, of 1,024. 100 Gbit/s.
const TREE_128: &str = "Nodes 128
Tiers 3
Podsize 16
Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Bundle 1
Tier 2
Downlink_speed_Gbps 100
Radix_Down 8
Downlink_Latency_ns 1000
";
const LEAVES_1024: &str = "Nodes 1024
Tiers 2
Podsize 1024
Tier 0
Downlink_speed_Gbps 100
Radix_Down 32
Radix_Up 32
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 32
Downlink_Latency_ns 1000
Bundle 1
";

/// A permutation in which nobody sends to itself, as a connection matrix; the same every time.
fn permutation(hosts: u32) -> String {
    let mut order: Vec<u32> = (0..hosts).collect();
    let mut state = 1u64;
    // Sattolo's shuffle makes one cycle of all.
    for last in (1..hosts as usize).rev() {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        order.swap(last, (state >> 33) as usize % last);
    }
    let mut text = format!("Nodes {hosts}\nConnections {hosts}\n");
    for (from, to) in order.iter().enumerate() {
        let _ = writeln!(text, "{from}->{to} id {} start 0 size {MESSAGE_BYTES}", from + 1);
    }
    text
}

/// A case: what it is called, its files, and what was measured, a value for each round.
struct Case {
    name: &'static str,
    hosts: u32,
    topo: PathBuf,
    matrix: PathBuf,
    packets_per_s: Vec<f64>,
    took_us: f64,
    memory_mb: f64,
    htsim_per_s: Vec<f64>,
}

impl Case {
    fn new(launcher: &Launcher, name: &'static str, hosts: u32, tree: &str) -> Result<Case> {
        let (topo, matrix) = (launcher.file(".topo"), launcher.file(".cm"));
        std::fs::write(&topo, tree)?;
        std::fs::write(&matrix, permutation(hosts))?;
        let (packets_per_s, htsim_per_s) = (Vec::new(), Vec::new());
        Ok(Case { name, hosts, topo, matrix, packets_per_s, took_us: 0.0, memory_mb: 0.0, htsim_per_s })
    }

    fn round(&mut self, launcher: &Launcher, htsim: Option<&Path>) -> Result<()> {
        let arguments =
            ["--topo", &self.topo.display().to_string(), "--tm", &self.matrix.display().to_string()]
                .map(str::to_owned);
        let (report, done) = simulate(launcher, &arguments)?;
        self.packets_per_s.push(report.packets / done.cpu.as_secs_f64());
        (self.took_us, self.memory_mb) = (report.took_us, done.memory_bytes as f64 / 1e6);
        if let Some(htsim) = htsim {
            self.htsim_per_s.push(of_htsim(htsim, self)?);
        }
        Ok(())
    }

    fn row(&self) -> Vec<String> {
        let (ours, theirs) = (median(&self.packets_per_s), &self.htsim_per_s);
        let ratio = || format!("{:.1}", ours / median(theirs));
        vec![
            self.name.into(),
            format!("{:.0}", ours / 1e3),
            format!("{:.0}", self.took_us),
            format!("{:.0}", self.memory_mb),
            if theirs.is_empty() { "not there".into() } else { ratio() },
        ]
    }
}

struct Said {
    packets: f64,
    took_us: f64,
}

/// `srdma sim run` with `arguments`: what its only variant reports, and what the process took.
fn simulate(launcher: &Launcher, arguments: &[String]) -> Result<(Said, Outcome)> {
    let out = launcher.file(".out").display().to_string();
    let program = launcher.srdma().args(["sim", "run", "--json", "--quiet", "--out", &out]).args(arguments);
    let done = program.limit(Duration::from_secs(SECONDS_MAX)).success()?;
    let said: Value = serde_json::from_str(&done.stdout).context("srdma sim printed no JSON")?;
    let number = |key: &str| said["runs"][0][key].as_f64().with_context(|| format!("no {key} in {said}"));
    Ok((Said { packets: number("packets")?, took_us: number("took_us")? }, done))
}

/// Data packets per CPU second of uet-htsim with its own transport on the same files.
fn of_htsim(htsim: &Path, case: &Case) -> Result<f64> {
    let hosts = case.hosts.to_string();
    let fixed =
        "-sender_cc_only -load_balancing_algo oblivious -paths 128 -mtu 4160 -linkspeed 100000 -end 10000";
    let program = Program::new(htsim).args(fixed.split(' ')).args(["-nodes", &hosts]);
    let program = program.args(["-topo"]).args([&case.topo]).args(["-tm"]).args([&case.matrix]);
    let done = program.limit(Duration::from_secs(SECONDS_MAX)).success()?;
    let words: Vec<&str> = done.stdout.split_whitespace().collect();
    let after = |key: &str| {
        let at = words.iter().rposition(|&word| word == key)?;
        words.get(at + 1)?.parse::<f64>().ok()
    };
    let packets = after("New:").zip(after("Rtx:")).context("htsim counted no packets")?;
    Ok((packets.0 + packets.1) / done.cpu.as_secs_f64())
}

/// Permutations of 2 MB between 128 and 1,024 hosts.
pub(super) fn section(launcher: &Launcher, options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    report::say(&format!("simulated permutations of 2 MB over 128 paths, {} rounds", options.pairs));
    let mut cases = [
        Case::new(launcher, "128 hosts", 128, TREE_128)?,
        Case::new(launcher, "1,024 hosts", 1024, LEAVES_1024)?,
    ];
    for round in 1..=options.pairs {
        for case in &mut cases {
            case.round(launcher, options.htsim.as_deref())?;
            let last = case.packets_per_s.last().copied().unwrap_or(0.0);
            report::say(&format!(
                "  {round}: {}: {:.0} thousand data packets per CPU second",
                case.name,
                last / 1e3
            ));
        }
    }
    let head = ["", "thousand packets per CPU s", "all received, µs", "memory, MB", "ratio to uet-htsim"];
    let mut table = Table::new(&head);
    cases.iter().for_each(|case| table.row(&case.row()));
    table.print();
    let [small, large] = cases.each_ref().map(|case| median(&case.packets_per_s));
    judged.push(
        Judged::at_least("simulated packets per CPU second, 128 hosts", small, PACKETS_PER_S_MIN).goal(),
    );
    judged.push(Judged::at_least("the same of 1,024 hosts / of 128", large / small, LINEAR_MIN).goal());
    let json = |case: &Case| {
        json!({
            "hosts": case.hosts, "packets_per_s": case.packets_per_s, "took_us": case.took_us,
            "memory_mb": case.memory_mb, "htsim_packets_per_s": case.htsim_per_s,
        })
    };
    Ok(cases.iter().map(json).collect())
}

/// A pod of 15,360 NICs in the manner of HPN 7.0, one plane of it, and a segment of it of 1,024.
fn pod(leaves: u32, workload: &str) -> String {
    format!(
        "name = \"large\"\n[topology]\nkind = \"leaf-spine\"\nleaves = {leaves}\nhosts_per_leaf = 128\nspines = 60\n\
         host_gbps = 200\nspine_gbps = 400\n[workload]\n{workload}\n[run]\nlimit_ms = 1000\nsample_us = 100\n"
    )
}

/// What the large simulations take that are promised to be possible.
pub(super) fn large(launcher: &Launcher, _options: &Options, judged: &mut Vec<Judged>) -> Result<Value> {
    report::say("large simulations, 128 paths");
    let permutation = "kind = \"permutation\"\nkib = 1024";
    let ring = "kind = \"allreduce-ring\"\nkib = 65536\nstride = 129";
    let mut table = Table::new(&["", "CPU s", "memory, GB", "data packets, millions", "all received, µs"]);
    let mut results = serde_json::Map::new();
    for (name, text, memory_gb_max) in [
        ("permutation of 1 MiB between 15,360 NICs", pod(120, permutation), 8.0),
        ("AllReduce of 64 MiB by 1,024 GPUs", pod(8, ring), 4.0),
    ] {
        let scenario = launcher.file(".toml");
        std::fs::write(&scenario, text)?;
        let (said, done) = simulate(launcher, &[scenario.display().to_string()])?;
        let (cpu_s, memory_gb) = (done.cpu.as_secs_f64(), done.memory_bytes as f64 / 1e9);
        let numbers = [(cpu_s, 0), (memory_gb, 2), (said.packets / 1e6, 1), (said.took_us, 0)];
        let cells = numbers.map(|(number, digits)| format!("{number:.digits$}"));
        table.row(&[&[name.to_owned()], &cells[..]].concat());
        judged.push(Judged::at_most(format!("memory of a simulated {name}, GB"), memory_gb, memory_gb_max));
        let said = json!({ "cpu_s": cpu_s, "memory_gb": memory_gb, "packets": said.packets, "took_us": said.took_us });
        results.insert(name.into(), said);
    }
    table.print();
    Ok(results.into())
}
