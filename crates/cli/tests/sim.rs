//! `srdma sim` from outside: exit codes, what lies where, what a killed run leaves.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCENARIO: &str = r#"
name = "from outside"
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 4
spines = 4
host_gbps = 100
[workload]
kind = "permutation"
kib = 256
"#;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("srdma-sim-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn scenario(&self, text: &str) -> PathBuf {
        let path = self.0.join("scenario.toml");
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn srdma(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srdma"));
    command.current_dir(&folder.0).args(["sim", "run"]).stdin(Stdio::null());
    command
}

fn lines(directory: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(directory.join("results.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_prints_a_table_and_leaves_records_a_picture_and_a_summary() {
    let folder = Folder::new("table");
    let out = srdma(&folder).arg(folder.scenario(SCENARIO)).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("from outside (seed 1)") && text.contains("8 of 8"), "{text}");
    let directory = folder.0.join("scenario.out");
    assert_eq!(lines(&directory).last().unwrap()["kind"], "end");
    assert!(std::fs::read_to_string(directory.join("plot.svg")).unwrap().contains("</svg>"));
    assert!(text.starts_with(&std::fs::read_to_string(directory.join("summary.txt")).unwrap()));
}

#[test]
fn json_names_every_run_and_seeds_decide() {
    let folder = Folder::new("json");
    let path = folder.scenario(SCENARIO);
    let report = |seed: &str| {
        let out = srdma(&folder).arg(&path).args(["--json", "--seed", seed]).output().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        value["runs"][0].clone()
    };
    let (first, again, other) = (report("5"), report("5"), report("6"));
    assert_eq!((&first["seed"], &first["finished"]), (&5.into(), &true.into()));
    assert_eq!(first["trace_hash"], again["trace_hash"]);
    assert_ne!(first["trace_hash"], other["trace_hash"]);
}

#[test]
fn a_scenario_that_is_wrong_is_named_by_line_and_leaves_nothing() {
    let folder = Folder::new("wrong");
    let path = folder.scenario(&SCENARIO.replace("spines = 4", "spines = -1"));
    let out = srdma(&folder).arg(&path).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("scenario.toml:7: topology.spines: must be 1 to 4096, not -1"), "{said}");
    assert!(out.stdout.is_empty() && !folder.0.join("scenario.out").exists());
    let out = srdma(&folder).arg("nowhere.toml").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("cannot read nowhere.toml"));
}

#[test]
fn files_of_htsim_need_no_scenario_and_go_before_one() {
    let folder = Folder::new("htsim");
    let tier =
        |n, more: &str| format!("Tier {n}\nDownlink_speed_Gbps 100\nDownlink_Latency_ns 1000\n{more}\n");
    let topology = format!(
        "Nodes 8\nTiers 2\nPodsize 8\n{}{}",
        tier(0, "Radix_Down 4\nRadix_Up 4"),
        tier(1, "Radix_Down 2")
    );
    std::fs::write(folder.0.join("small.topo"), topology).unwrap();
    std::fs::write(folder.0.join("two.cm"), "Nodes 8\nConnections 2\n0->5 size 9000\n6->1 start 3 size 64\n")
        .unwrap();
    let run = |more: &[&str]| srdma(&folder).args(more).output().unwrap();
    let out = run(&["--topo", "small.topo", "--tm", "two.cm"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(
        text.contains("two (seed 1)") && text.contains("2 of 2") && folder.0.join("two.out").exists(),
        "{text}"
    );
    folder.scenario(SCENARIO);
    let out = run(&["scenario.toml", "--tm", "two.cm"]);
    assert!(String::from_utf8(out.stdout).unwrap().contains("2 of 2"));
    let out = run(&["--tm", "two.cm"]);
    assert_eq!(out.status.code(), Some(2));
    std::fs::write(folder.0.join("large.cm"), "Nodes 99\n98->5 size 9000\n").unwrap();
    let out = run(&["--topo", "small.topo", "--tm", "large.cm"]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("needs 99 hosts, but the network has 8") && out.status.code() == Some(2), "{said}");
}

#[test]
fn what_is_not_received_within_the_limit_is_a_failure() {
    let folder = Folder::new("limit");
    let path = folder.scenario(&format!("{SCENARIO}[run]\nlimit_ms = 0.01\n"));
    let out = srdma(&folder).arg(&path).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("unfinished at"), "{text}");
}

#[test]
fn a_run_that_is_killed_leaves_whole_records() {
    let folder = Folder::new("killed");
    let long = SCENARIO.replace("kib = 256", "kib = 4000000");
    let path = folder.scenario(&format!("{long}[run]\nlimit_ms = 100000\nsample_us = 20\n"));
    let mut child = srdma(&folder).arg(&path).arg("--quiet").stdout(Stdio::null()).spawn().unwrap();
    let results = folder.0.join("scenario.out/results.jsonl");
    while std::fs::metadata(&results).map_or(0, |file| file.len()) < 5_000 {
        assert!(child.try_wait().unwrap().is_none(), "it ends before it can be killed");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(lines(&folder.0.join("scenario.out")).len() > 3);
}

#[test]
fn a_run_is_explained_from_what_it_left_even_if_it_was_killed() {
    let folder = Folder::new("why");
    let out = srdma(&folder).arg(folder.scenario(SCENARIO)).arg("--quiet").output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    let why = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_srdma"));
        let out = command.current_dir(&folder.0).args(["sim", "why"]).args(more).output().unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (code, text, said) = why(&["scenario.out"]);
    assert!(code == Some(0) && text.contains("took ") && text.contains("last flow"), "{text}{said}");
    let (_, text, _) = why(&["scenario.out", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["runs"][0]["finished"], true);
    let results = folder.0.join("scenario.out/results.jsonl");
    let records = std::fs::read_to_string(&results).unwrap();
    std::fs::write(&results, &records[..records.len() / 2]).unwrap();
    let (code, text, said) = why(&["scenario.out/results.jsonl"]);
    assert!(code == Some(0) && text.contains("ended before its time"), "{text}{said}");
    let (code, _, said) = why(&["nowhere"]);
    assert!(code == Some(2) && said.contains("cannot read nowhere"), "{said}");
}

const SWEEP: &str = "scenario = \"scenario.toml\"\nseeds = 2\n[vary]\n\"transport.paths\" = [1, 16]\n\
                     \"workload.kib\" = [64]\n";

fn sweep(folder: &Folder, more: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srdma"));
    let out = command.current_dir(&folder.0).arg("sim").args(more).output().unwrap();
    (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
}

/// The table without its first line, as cells.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn a_sweep_keeps_what_is_ready_and_runs_only_the_rest() {
    let folder = Folder::new("sweep");
    folder.scenario(SCENARIO);
    std::fs::write(folder.0.join("s.toml"), SWEEP).unwrap();
    let (code, text, said) = sweep(&folder, &["sweep", "s.toml", "--quiet", "--jobs", "2"]);
    assert_eq!((code, text.as_str()), (Some(0), "4 of 4 points: s.sweep/table.csv\n"), "{said}");
    let table = folder.0.join("s.sweep/table.csv");
    let first = rows(&table);
    let head: Vec<&[String]> = first.iter().map(|row| &row[..4]).collect();
    assert_eq!(head[1], ["1", "64", "adaptive 1", "2"].map(str::to_owned).as_slice(), "{head:?}");
    // Killed in the middle of a line: two points are whole.
    let points = folder.0.join("s.sweep/points.jsonl");
    let text = std::fs::read_to_string(&points).unwrap();
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    std::fs::write(&points, &text[..ends[2] - 5]).unwrap();
    let (code, _, said) = sweep(&folder, &["sweep", "s.toml"]);
    assert!(code == Some(0) && said.contains("0 of 2 points, 2 kept from before"), "{said}");
    assert_eq!(rows(&table), first, "the same again");
    let lines = std::fs::read_to_string(&points).unwrap();
    assert!(
        lines.lines().count() == 4
            && lines.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok())
    );
    // Another scenario: nothing of it is there yet.
    folder.scenario(&SCENARIO.replace("spines = 4", "spines = 2"));
    let (_, _, said) = sweep(&folder, &["merge", "s.toml"]);
    assert_eq!(said.matches("no result: ").count(), 4, "{said}");
}

#[test]
fn parts_of_a_sweep_make_the_same_table_wherever_they_ran() {
    let folder = Folder::new("shards");
    folder.scenario(SCENARIO);
    std::fs::write(folder.0.join("s.toml"), SWEEP).unwrap();
    sweep(&folder, &["sweep", "s.toml", "--quiet", "--out", "whole"]);
    for (shard, out) in [("0/3", "a"), ("2/3", "b")] {
        let (code, _, said) = sweep(&folder, &["sweep", "s.toml", "--quiet", "--shard", shard, "--out", out]);
        assert_eq!(code, Some(0), "{said}");
    }
    let (code, text, said) = sweep(&folder, &["merge", "s.toml", "a", "b"]);
    assert!(code == Some(1) && text.contains("3 of 4") && said.contains("no result: "), "{text}{said}");
    sweep(&folder, &["sweep", "s.toml", "--quiet", "--shard", "1/3", "--out", "b"]);
    let (code, _, said) = sweep(&folder, &["merge", "s.toml", "a", "b"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(rows(&folder.0.join("a/table.csv")), rows(&folder.0.join("whole/table.csv")));
}

#[test]
fn a_sweep_that_is_wrong_is_named_before_anything_runs() {
    let folder = Folder::new("wrongsweep");
    folder.scenario(SCENARIO);
    for (from, to, wanted) in [
        ("[1, 16]", "[1, 300]", "With transport.paths = 300, workload.kib = 64: scenario.toml"),
        ("transport.paths", "topology.leafs", "topology.leafs: unknown key"),
        ("scenario.toml", "nowhere.toml", "cannot read nowhere.toml"),
        ("seeds = 2", "seeds = -1", "s.toml:2: seeds: must be"),
        ("transport.paths", "name.paths", "name.paths: 1 cannot stand there"),
    ] {
        std::fs::write(folder.0.join("s.toml"), SWEEP.replace(from, to)).unwrap();
        let (code, _, said) = sweep(&folder, &["sweep", "s.toml"]);
        assert!(code == Some(2) && said.contains(wanted), "{said}\nwanted: {wanted}");
        assert!(!folder.0.join("s.sweep").exists());
    }
    std::fs::write(folder.0.join("s.toml"), SWEEP).unwrap();
    assert_eq!(sweep(&folder, &["sweep", "s.toml", "--shard", "3/3"]).0, Some(2));
}

#[test]
fn a_figure_becomes_a_picture_and_a_report_with_a_verdict() {
    let folder = Folder::new("figures");
    let (code, text, said) = sweep(&folder, &["figures", "--smallest", "--only", "fig9", "--quiet"]);
    assert!(code == Some(0) && text.contains("fig9  order reproduced: "), "{text}{said}");
    let read = |name: &str| std::fs::read_to_string(folder.0.join("figures").join(name)).unwrap();
    assert!(read("fig9.svg").contains("</svg>") && read("report.md").contains("![Figure 9"));
    let report: serde_json::Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(report["figures"][0]["figure"], "fig9");
    let (code, _, said) = sweep(&folder, &["figures", "--only", "fig8"]);
    assert!(code == Some(2) && said.contains("there are fig9"), "{said}");
}
