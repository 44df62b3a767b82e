//! Scenario files from text to report: what is refused and where, what a run says while it lasts and at the end.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde_json::Value;
use srdma_sim::{run, FileError, RunReport, Scenario, Sink, Status, Sweep};

const SMALL: &str = r#"
name = "small"
seed = 3
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 4
spines = 4
host_gbps = 100
[workload]
kind = "permutation"
kib = 512
[run]
limit_ms = 20
sample_us = 10
"#;

fn parse(file: &str, text: &str) -> Result<Scenario, FileError> {
    srdma_sim::parse(file, text, None, None)
}

/// Keeps everything; fails after some records, as a full disk does.
#[derive(Default)]
struct Kept {
    records: Vec<String>,
    room: Option<usize>,
    told: usize,
}

impl Sink for Kept {
    fn record(&mut self, record: &Value) -> Result<(), std::io::Error> {
        if self.room == Some(self.records.len()) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.records.push(record.to_string());
        Ok(())
    }

    fn progress(&mut self, status: &Status) {
        assert!(status.received_bytes <= status.planned_bytes);
        self.told += 1;
    }
}

fn carried_out(scenario: &Scenario) -> (Vec<RunReport>, Kept) {
    let mut kept = Kept::default();
    let reports = scenario.variants.iter().map(|variant| run(scenario, variant, &mut kept).unwrap().0);
    let reports = reports.collect();
    (reports, kept)
}

#[test]
fn what_is_wrong_is_said_with_file_line_and_key() {
    let cases = [
        ("spines = 4", "spines = 0", "small.toml:8: topology.spines: must be 1 to 4096, not 0"),
        ("spines = 4", "spine = 4", "small.toml:4: [topology]: spines is missing"),
        (
            "host_gbps = 100",
            "host_gbps = \"fast\"",
            "small.toml:9: topology.host_gbps: must be a number, not string",
        ),
        (
            "host_gbps = 100",
            "host_gbps = 0",
            "small.toml:9: topology.host_gbps: must be 0.001 to 8000, not 0",
        ),
        (
            "kib = 512",
            "kib = 512\nbytes = 1",
            "small.toml:13: workload.bytes: unknown key; known here: arrivals, background, block, every_us",
        ),
        (
            "\"permutation\"",
            "\"allgather\"",
            "small.toml:11: workload.kind: must be one of permutation, allreduce-ring",
        ),
        ("seed = 3", "seed = 3\nseed = 4", "small.toml:4: duplicate key"),
        ("seed = 3", "seed = ", "small.toml:3: "),
        (
            "[run]",
            "[[fault]]\non = \"spine9\"\nwhat = \"down\"\n[run]",
            "small.toml:14: fault.on: there is no \"spine9\"",
        ),
        (
            "[run]",
            "[[fault]]\non = \"leaf0-leaf1\"\nwhat = \"down\"\n[run]",
            "small.toml:14: fault.on: there is no",
        ),
        (
            "[run]",
            "[[fault]]\non = \"spine1\"\nwhat = \"loss\"\n[run]",
            "small.toml:13: [fault]: percent is missing",
        ),
        (
            "[run]",
            "[[fault]]\nat_us = 9\nuntil_us = 9\non = \"spine1\"\nwhat = \"down\"\n[run]",
            "until_us must be later",
        ),
        (
            "[run]",
            "[transport]\npaths = 257\n[run]",
            "small.toml:14: transport.paths: must be 1 to 256, not 257",
        ),
        (
            "[run]",
            "[transport]\nwindow_initial_kib = 9000\n[run]",
            "window_initial_kib is larger than window_max_kib",
        ),
        (
            "[run]",
            "[transport]\npayload_bytes = 1001\n[run]",
            "payload_bytes must be a multiple of 8, not 1001",
        ),
        (
            "[run]",
            "[transport]\ncongestion = \"cubic\"\n[run]",
            "small.toml:14: transport.congestion: must be one of delay, swift, nscc, not \"cubic\"",
        ),
        ("sample_us = 10", "sample_us = 0", "sample_us must be more than 0"),
        ("[run]", "[[variant]]\npaths = 3\n[run]", "small.toml:13: [variant]: name is missing"),
        (
            "[run]",
            "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"a\"\n[run]",
            "must differ from that of every other",
        ),
        ("limit_ms = 20", "queue_kib = 4", "small.toml:14: run.queue_kib: unknown key"),
        (
            "host_gbps = 100",
            "host_gbps = 100\necn_max_kib = 9000",
            "small.toml:4: [topology]: A queue of 8388608 bytes",
        ),
    ];
    parse("small.toml", SMALL).unwrap();
    for (from, to, said) in cases {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "{from}");
        let error = parse("small.toml", &text).expect_err(said).to_string();
        assert!(error.contains(said) && error.starts_with("small.toml:"), "{error}\nwanted: {said}");
    }
}

#[test]
fn the_scenarios_we_ship_are_scenarios() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share/scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let scenario = parse(&path.display().to_string(), &text).unwrap();
        assert!(scenario.variants.len() > 1 && text.starts_with('#'), "{path:?}: commented, and compares");
        count += 1;
    }
    assert!(count >= 4);
}

#[test]
fn the_sweeps_we_ship_are_sweeps() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share/sweeps");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let file = srdma_sim::parse_sweep(&path.display().to_string(), &text).unwrap();
        let scenario = std::fs::read_to_string(folder.join(&file.scenario)).unwrap();
        let sweep = Sweep::new(file, "scenario", &scenario).unwrap();
        assert!(sweep.points().len() > 10 && text.starts_with('#'), "{path:?}: commented, and of some size");
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn a_run_reports_what_it_did_and_records_it_on_the_way() {
    let scenario = parse("small.toml", SMALL).unwrap();
    let (reports, kept) = carried_out(&scenario);
    let report = &reports[0];
    assert!(report.finished && report.messages == [8, 0, 8], "{report:?}");
    assert!(report.took_us >= report.ideal_us && report.took_us < 2.0 * report.ideal_us, "{report:?}");
    assert_eq!(report.packets, 8 * 512 / 4 + report.retransmitted.iter().sum::<u64>());
    assert_eq!(report.flows.iter().map(|flow| flow.bytes).sum::<u64>(), 8 * 512 * 1024);
    assert_eq!(report.spine_bytes.len(), 4);
    let kinds: Vec<String> = kept
        .records
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!((kinds.first().unwrap().as_str(), kinds.last().unwrap().as_str()), ("run", "end"));
    assert_eq!(kinds.iter().filter(|kind| *kind == "flow").count(), 8);
    assert!(kept.told > 3 && kinds.iter().filter(|kind| *kind == "sample").count() == kept.told);
}

#[test]
fn runs_repeat_and_the_number_of_paths_decides_which_spines_are_used() {
    let text = format!("{SMALL}[[variant]]\nname = \"one\"\npaths = 1\nselector = \"single\"\n[[variant]]\nname = \"many\"\n");
    let scenario = parse("small.toml", &text).unwrap();
    let (first, _) = carried_out(&scenario);
    let (again, _) = carried_out(&scenario);
    assert_eq!(first, again);
    let [one, many] = &first[..] else { panic!("two variants") };
    assert!(many.imbalance() < one.imbalance(), "{} and {}", many.imbalance(), one.imbalance());
    assert!(many.took_us <= one.took_us);
    let table = srdma_sim::table(&first);
    assert!(table.contains("one") && table.contains("8 of 8"), "{table}");
    let pictured: Vec<_> = first.into_iter().map(|report| (report, Vec::new())).collect();
    let picture = srdma_sim::svg("small", &pictured).unwrap();
    assert!(
        picture.starts_with("<svg") && picture.contains("many") && picture.trim_end().ends_with("</svg>")
    );
}

#[test]
fn an_allreduce_has_a_bus_bandwidth_below_that_of_its_links() {
    let text = SMALL.replace("\"permutation\"", "\"allreduce-ring\"\nslices = 2\nrounds = 2\nstride = 5");
    let (reports, _) = carried_out(&parse("ring.toml", &text).unwrap());
    let report = &reports[0];
    assert_eq!(report.messages, [8 * 14 * 2 * 2, 0, 8 * 14 * 2 * 2]);
    let gbps = report.bus_gbps.unwrap();
    assert!((10.0..100.0).contains(&gbps), "{gbps}");
}

#[test]
fn faults_come_and_go_and_everything_arrives() {
    for (fault, cut) in [
        ("on = \"spine1\"\nwhat = \"down\"\nat_us = 10\nreroute_after_us = 20\nuntil_us = 300", true),
        ("on = \"leaf0-spine2\"\nwhat = \"loss\"\npercent = 20", false),
        ("on = \"spine0\"\nwhat = \"rate\"\ngbps = 10\nuntil_us = 50", false),
    ] {
        let text = SMALL.replace("[run]", &format!("[[fault]]\n{fault}\n[run]"));
        let (reports, _) = carried_out(&parse("fault.toml", &text).unwrap());
        assert!(reports[0].finished, "{fault}: {:?}", reports[0]);
        assert_eq!(reports[0].cut > 0, cut, "{fault}");
        assert_eq!(reports[0].lost > 0, fault.contains("loss"), "{fault}");
    }
}

/// What the transport makes of a network that is not as it should be, at the times of a datacentre.
#[test]
fn spraying_copes_with_slow_and_lossy_links() {
    let base = SMALL.replace("kib = 512", "kib = 4096").replace("sample_us = 10", "sample_us = 100");
    let took = |fault: &str, transport: &str| {
        let text = base.replace("[run]", &format!("[[fault]]\n{fault}\n[transport]\n{transport}\n[run]"));
        let (reports, _) = carried_out(&parse("cope.toml", &text).unwrap());
        assert!(reports[0].finished, "{fault}, {transport}");
        reports[0].took_us / reports[0].ideal_us
    };
    let slow = "on = \"leaf0-spine2\"\nwhat = \"rate\"\ngbps = 25";
    let (adaptive, blind) = (took(slow, ""), took(slow, "selector = \"oblivious\""));
    assert!(adaptive < 0.85 * blind, "the slow link is avoided: {adaptive:.2}, blind {blind:.2}");
    let lossy = "on = \"spine2\"\nwhat = \"loss\"\npercent = 1";
    let (fast, patient) = (took(lossy, ""), took(lossy, "grain_us = 100"));
    assert!(
        fast < patient && fast < 1.25,
        "losses cost a round trip and not 100 µs: {fast:.2}, {patient:.2}"
    );
}

/// Of sixteen uplinks of a leaf one swallows all packets and routing never notices. Dead paths are tried again now and then,
/// but nobody waits for what they were given.
#[test]
fn a_black_uplink_costs_an_allreduce_little() {
    let base = SMALL
        .replace("spines = 4", "spines = 16\nspine_gbps = 50")
        .replace("\"permutation\"", "\"allreduce-ring\"\nslices = 2\nrounds = 4\nstride = 5")
        .replace("kib = 512", "kib = 8192");
    let took = |fault: &str| {
        let (reports, _) = carried_out(&parse("black.toml", &base.replace("[run]", fault)).unwrap());
        assert!(reports[0].finished, "{fault}");
        reports[0].took_us
    };
    let clean = took("[run]");
    let black = took("[[fault]]\non = \"leaf0-spine7\"\nwhat = \"loss\"\npercent = 100\n[run]");
    assert!(black < 1.2 * clean, "{black:.0} µs, {clean:.0} without the fault");
}

#[test]
fn a_disk_that_is_full_ends_the_run_and_what_is_there_is_whole() {
    let scenario = parse("small.toml", SMALL).unwrap();
    let mut kept = Kept { room: Some(5), ..Kept::default() };
    let error = run(&scenario, &scenario.variants[0], &mut kept).expect_err("full").to_string();
    assert!(error.starts_with("Cannot write results"), "{error}");
    assert!(kept.records.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert_eq!(kept.records.len(), 5);
}
