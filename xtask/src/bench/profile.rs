//! Where the work of a message goes: system calls by our own counters, instructions by room by callgrind.
//!
//! Counts, no times. Under callgrind both sides run some thirty times slower, so they get a clock that runs thirty times
//! slower too; otherwise the transport would take the profiler for a congested network. What a run of few messages costs is
//! taken off a run of many, so that start and end of a program do not count.

use std::path::{Path, PathBuf};

use anyhow::{ensure, Context, Result};
use serde_json::{json, Value};

use super::callgrind::{per_message, read, Costs};
use super::{Judged, Options};
use crate::fabric::{Fabric, Spec};
use crate::programs::stats::Stats;
use crate::programs::{Launcher, Pair};
use crate::report::{self, Table};

/// As much as callgrind slows a program down.
const SLOWER: u32 = 30;

struct Case {
    name: &'static str,
    /// The program that waits without asking again and again, up to the number of messages.
    sleeping: &'static str,
    few: u32,
    many: u32,
    /// For the counters, at full speed, as programs are usually run.
    polling: &'static str,
    count: u32,
}

const CASES: [Case; 3] = [
    Case {
        name: "1 MiB WRITE",
        sleeping: "crowd --queue-pairs 1 --bytes 1048576 --events --messages",
        few: 20,
        many: 220,
        polling: "ib_write_bw -F -s 1048576 -n",
        count: 2_000,
    },
    Case {
        name: "64 B SEND, many under way",
        sleeping: "ib_send_bw -F -e -s 64 -n",
        few: 1_000,
        many: 11_000,
        polling: "ib_send_bw -F -s 64 -n",
        count: 100_000,
    },
    Case {
        name: "64 B SEND and its answer",
        sleeping: "ib_send_lat -F -e -s 64 -n",
        few: 200,
        many: 2_200,
        polling: "ib_send_lat -F -s 64 -n",
        count: 5_000,
    },
];

/// Words of a command line; `crowd` is a program of ours.
fn argv(launcher: &Launcher, line: &str, messages: u32) -> Result<Vec<String>> {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    if words[0] == "crowd" {
        words[0] = launcher.c_program("crowd")?.display().to_string();
    }
    words.push(messages.to_string());
    Ok(words)
}

/// What one side counted, per message.
fn counts(stats: &Stats, messages: f64) -> Vec<(&'static str, f64)> {
    let per = |count: u64| count as f64 / messages;
    vec![
        ("packets sent", per(stats.packets_sent())),
        ("units sent", per(stats.units_sent())),
        ("ACKs sent", per(stats.acks_sent())),
        ("calls that send", per(stats.send_calls())),
        ("calls that receive", per(stats.receive_calls())),
        ("of these, found nothing", per(stats.receive_empty())),
        ("calls that place", per(stats.placement_calls())),
        ("packets put in place by the socket", per(stats.placed_straight())),
    ]
}

/// Counters of a run at full speed: client and server.
fn counted(launcher: &Launcher, fabric: &Fabric, case: &Case) -> Result<[Vec<(&'static str, f64)>; 2]> {
    let mut pair = Pair::new("").limit(120);
    pair.argv = argv(launcher, case.polling, case.count)?;
    let done = pair.run(launcher, fabric)?.success()?;
    let messages = f64::from(case.count);
    Ok([counts(done.client_stats()?, messages), counts(done.server_stats()?, messages)])
}

/// Instructions of client and server in a run of so many messages.
fn instructions(
    launcher: &Launcher,
    fabric: &Fabric,
    clock: &Path,
    case: &Case,
    messages: u32,
) -> Result<[Costs; 2]> {
    let folder = launcher.file("-callgrind");
    std::fs::create_dir_all(&folder)?;
    let out = format!("--callgrind-out-file={}/%p", folder.display());
    let mut pair = Pair::new("env").limit(180);
    // Loading the program alone takes valgrind some seconds, on a busy machine a minute.
    pair.listens_within = pair.limit;
    pair.argv.extend([format!("LD_PRELOAD={}", clock.display()), format!("SLOW_CLOCK={SLOWER}")]);
    pair.argv
        .extend(["valgrind", "--quiet", "--fair-sched=yes", "--tool=callgrind", &out].map(str::to_owned));
    pair.argv.extend(argv(launcher, case.sleeping, messages)?);
    let mut pids = [0; 2];
    pair.run_while_both(launcher, fabric, |client, server| {
        pids = [client.pid, server.pid];
        Ok(())
    })?
    .success()?;
    let costs = |pid: i32| -> Result<Costs> {
        let file: PathBuf = folder.join(pid.to_string());
        let text = std::fs::read(&file).with_context(|| format!("callgrind left no {}", file.display()))?;
        Ok(read(&String::from_utf8_lossy(&text)))
    };
    Ok([costs(pids[0])?, costs(pids[1])?])
}

/// Both tables of one case.
fn profile(launcher: &Launcher, fabric: &Fabric, clock: &Path, case: &Case) -> Result<Value> {
    let [here, there] = counted(launcher, fabric, case)?;
    let head = format!("{}, each message", case.name);
    let mut table = Table::new(&[&head, "sender", "receiver"]);
    for ((name, here), (_, there)) in here.iter().zip(&there) {
        table.row(&[(*name).into(), format!("{here:.3}"), format!("{there:.3}")]);
    }
    table.print();
    let few = instructions(launcher, fabric, clock, case, case.few)?;
    let many = instructions(launcher, fabric, clock, case, case.many)?;
    let messages = f64::from(case.many - case.few);
    let costs = [0, 1].map(|side| per_message(&few[side], &many[side], messages));
    let mut names: Vec<&String> = costs.iter().flat_map(Costs::keys).collect();
    names.sort();
    names.dedup();
    let of = |side: usize, name: &String| costs[side].get(name).copied().unwrap_or(0.0);
    names.sort_by(|a, b| (of(0, b) + of(1, b)).total_cmp(&(of(0, a) + of(1, a))));
    let sums = [0, 1].map(|side| costs[side].values().sum::<f64>());
    ensure!(sums.iter().all(|&sum| sum > 0.0), "callgrind counted nothing");
    let mut table = Table::new(&["instructions, each message", "sender", "receiver"]);
    for name in names.into_iter().filter(|name| of(0, name) + of(1, name) >= 1.0) {
        table.row(&[name.clone(), format!("{:.0}", of(0, name)), format!("{:.0}", of(1, name))]);
    }
    table.row(&["all".into(), format!("{:.0}", sums[0]), format!("{:.0}", sums[1])]);
    table.print();
    Ok(json!({
        "counts": {"sender": object(&here), "receiver": object(&there)},
        "instructions": {"sender": costs[0], "receiver": costs[1]},
    }))
}

fn object(counts: &[(&'static str, f64)]) -> Value {
    counts.iter().map(|&(name, count)| (name.to_owned(), Value::from(count))).collect()
}

/// Every case. Nothing is judged: counts explain what the other sections measure.
pub(super) fn section(launcher: &Launcher, _options: &Options, _judged: &mut Vec<Judged>) -> Result<Value> {
    let fabric = Fabric::build(Spec::pair())?;
    report::say("what a message costs: system calls, and instructions by room under callgrind");
    let clock = launcher.c_library("slow_clock")?;
    let mut json = serde_json::Map::new();
    for case in &CASES {
        json.insert(case.name.into(), profile(launcher, &fabric, &clock, case)?);
    }
    Ok(json.into())
}
