//! Several jobs in a scenario: how they are read, placed, repeated and reported.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use srdma_sim::{parse, run, JobReport, RunReport, Sink, Status, Time};

const JOBS: &str = r#"
name = "jobs"
seed = 3
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 8
spines = 4
host_gbps = 100
[[job]]
name = "noise"
kind = "allreduce-ring"
kib = 256
hosts = 4
background = true
segments = 2
segment_hosts = 8
placement = "stride"
stride = 2
[[job]]
name = "measured"
kind = "allreduce-halving"
kib = 512
hosts = 8
rounds = 3
start_us = 20
placement = "random"
[run]
limit_ms = 20
"#;

#[derive(Default)]
struct Kept(Vec<Value>);

impl Sink for Kept {
    fn record(&mut self, record: &Value) -> Result<(), std::io::Error> {
        self.0.push(record.clone());
        Ok(())
    }
    fn progress(&mut self, status: &Status) {
        assert!(status.received_bytes <= status.planned_bytes);
    }
}

fn carried_out(text: &str) -> (RunReport, Vec<Value>) {
    let scenario = parse("jobs.toml", text, None, None).unwrap();
    let mut kept = Kept::default();
    let (report, _) = run(&scenario, &scenario.variants[0], &mut kept).unwrap();
    (report, kept.0)
}

#[test]
fn what_is_wrong_with_jobs_is_said_by_line() {
    let cases = [
        (
            "[run]",
            "[workload]\nkind = \"incast\"\nkib = 1\n[run]",
            "jobs.toml:28: [workload]: there are [[job]]s",
        ),
        (
            "name = \"measured\"",
            "name = \"noise\"",
            "jobs.toml:20: [job]: name: \"noise\" is that of another job",
        ),
        ("hosts = 4", "hosts = 3", "jobs.toml:10: [job]: 3 members cannot be divided by segments, 2"),
        (
            "\nhosts = 8",
            "\nhosts = 6",
            "jobs.toml:20: [job]: Halving and doubling is for 2, 4, 8, … members, not 6",
        ),
        (
            "\nhosts = 8",
            "\nhosts = 16",
            "jobs.toml:20: [job]: 16 hosts are wanted of segment 0, but 12 are free",
        ),
        ("\nhosts = 8", "\nhosts = 17", "jobs.toml:24: job.hosts: must be 2 to 16, not 17"),
        (
            "\nhosts = 8",
            "\nhosts = 8\nparallel = 2",
            "jobs.toml:25: job.parallel: unknown key; known here: arrivals",
        ),
        ("stride = 2\n", "", "jobs.toml:10: [job]: stride is missing"),
        ("\"random\"", "\"random\"\nstride = 3", "stride is for placement = \"stride\" only"),
        ("segment_hosts = 8\n", "", "segment_hosts is missing: how many hosts has one"),
        ("rounds = 3", "on_us = 5", "on_us and off_us are given together or not at all"),
        (
            "rounds = 3",
            "background = true",
            "jobs.toml:10: [job]: background: a run needs a job that is none",
        ),
        (
            "\"allreduce-halving\"",
            "\"all2all\"",
            "job.kind: must be one of permutation, allreduce-ring, allreduce-halving",
        ),
        ("kib = 512", "kib = 0.0001", "jobs.toml:23: job.kib: must be 0.001 to"),
    ];
    parse("jobs.toml", JOBS, None, None).unwrap();
    for (from, to, said) in cases {
        let text = JOBS.replacen(from, to, 1);
        assert_ne!(text, JOBS, "{from}");
        let error = parse("jobs.toml", &text, None, None).expect_err(said).to_string();
        assert!(error.contains(said) && error.starts_with("jobs.toml:"), "{error}\nwanted: {said}");
    }
}

#[test]
fn a_measured_job_ends_the_run_and_the_background_says_what_it_got() {
    let (report, records) = carried_out(JOBS);
    let [noise, measured] = &report.jobs[..] else { panic!("two jobs") };
    assert!(report.finished && measured.finished && measured.rounds == 3 && !noise.finished);
    // Halving and doubling among eight: three partners each way, for each of eight members and three rounds.
    assert_eq!((report.messages, measured.messages), ([8 * 6 * 3, 0, 8 * 6 * 3], 8 * 6 * 3));
    assert!(noise.rounds > 0 && noise.bytes > 0 && noise.bus_gbps.is_some(), "{noise:?}");
    let bus = measured.bus_gbps.unwrap();
    assert!((bus / measured.algorithm_gbps.unwrap() - 2.0 * 7.0 / 8.0).abs() < 1e-9);
    assert!((10.0..100.0).contains(&bus) && report.bus_gbps == Some(bus), "{bus}");
    assert!(report.took_us >= 20.0 + measured.took_us - 1e-6, "it began after 20 µs: {report:?}");
    let jobs = records.last().unwrap()["report"]["jobs"].as_array().unwrap().clone();
    assert_eq!((jobs.len(), jobs[0]["background"].as_bool()), (2, Some(true)));
    assert_eq!(
        records.iter().filter(|record| record["kind"] == "flow").count(),
        8 * 3,
        "measured flows only"
    );
    let table = srdma_sim::table(&[report]);
    assert!(table.contains("noise in the background: rounds, bus Gbit/s"), "{table}");
    assert_eq!(carried_out(JOBS).0.trace_hash, carried_out(JOBS).0.trace_hash);
}

/// A job that has the network to itself is faster than one with a neighbour, and one whose neighbour pauses is between.
#[test]
fn a_background_that_pauses_takes_less_than_one_that_does_not() {
    let measured = |change: &dyn Fn(&str) -> String| -> JobReport {
        let text =
            change(&JOBS.replace("hosts = 4", "hosts = 8\nslices = 4").replace("kib = 256", "kib = 512"));
        let text = text
            .replace("rounds = 3", "rounds = 8")
            .replace("[run]", "[transport]\npaths = 1\nselector = \"single\"\n[run]");
        carried_out(&text).0.jobs.last().unwrap().clone()
    };
    let beside = measured(&|text| text.to_owned());
    let bursts = measured(&|text| {
        text.replacen("background = true", "background = true\non_us = 20\noff_us = 600", 1)
    });
    let alone =
        measured(&|text| text.replacen("background = true", "background = true\nstart_us = 19000", 1));
    let [alone, bursts, beside] = [alone, bursts, beside].map(|job| job.bus_gbps.unwrap());
    assert!(
        alone >= bursts && bursts > beside,
        "{alone} alone, {bursts} beside bursts, {beside} beside a stream"
    );
}

/// Every kind of workload, once, with the messages that it must have.
#[test]
fn every_kind_is_carried_out() {
    let base = JOBS.split("[[job]]").next().unwrap().to_owned();
    for (kind, messages) in [
        ("kind = \"permutation\"\nmessage_kib = 16", 16 * 4),
        ("kind = \"allreduce-ring\"\nslices = 2", 16 * 30 * 2),
        ("kind = \"allreduce-halving\"", 16 * 8),
        ("kind = \"reduce-scatter\"", 16 * 15),
        ("kind = \"all-gather\"\nrounds = 2", 16 * 15 * 2),
        ("kind = \"all-to-all\"\nparallel = 4", 16 * 15),
        ("kind = \"incast\"", 15),
        ("kind = \"outcast\"\nparallel = 2", 15),
    ] {
        let (report, _) = carried_out(&format!("{base}[workload]\nkib = 64\n{kind}\n"));
        assert!(report.finished, "{kind}: {report:?}");
        assert_eq!(report.messages, [messages, 0, messages], "{kind}");
        let least = Time((report.ideal_us * 1e6) as u64);
        assert!(report.took_us > report.ideal_us, "{kind}: {} µs, at least {least}", report.took_us);
    }
}

/// Jobs come, wait for hosts that others have, and leave; more hosts make them wait less.
#[test]
fn a_day_of_jobs_shares_the_hosts() {
    let base = JOBS.split("[[job]]").next().unwrap().to_owned();
    let day = format!(
        "{base}[[job]]\nname = \"ring\"\nkind = \"allreduce-ring\"\nkib = 512\nhosts = 12\narrivals = 3\nevery_us = 10\n\
         placement = \"random\"\n[[job]]\nname = \"pair\"\nkind = \"incast\"\nkib = 64\nhosts = 2\narrivals = 4\n\
         every_us = 20\n"
    );
    let (report, _) = carried_out(&day);
    let names: Vec<&str> = report.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["ring 1", "ring 2", "ring 3", "pair 1", "pair 2", "pair 3", "pair 4"]);
    assert!(report.finished && report.jobs.iter().all(|job| job.finished), "{report:?}");
    assert_eq!(report.messages[0], 3 * 12 * 22 + 4);
    // Of sixteen hosts only one ring has room at a time.
    let rings = &report.jobs[..3];
    assert!(rings[0].waited_us == 0.0 && rings[1].waited_us > 1.0 && rings[2].waited_us > rings[1].waited_us);
    assert!(report.took_us > rings.iter().map(|job| job.took_us).sum::<f64>());
    assert!(report.member_gbps() > 1.0);
    let (wide, _) = carried_out(&day.replace("hosts_per_leaf = 8", "hosts_per_leaf = 32"));
    assert!(wide.finished && wide.jobs.iter().all(|job| job.waited_us < 0.001), "{wide:?}");
    assert_eq!(carried_out(&day).0.trace_hash, report.trace_hash);
    for (from, to, said) in [
        ("arrivals = 3\n", "", "arrivals and every_us are given together or not at all"),
        ("arrivals = 3", "arrivals = 3\nbackground = true", "jobs that come are no background"),
        ("hosts = 12", "hosts = 17", "job.hosts: must be 2 to 16, not 17"),
    ] {
        let error = parse("jobs.toml", &day.replacen(from, to, 1), None, None).expect_err(said).to_string();
        assert!(error.contains(said) && error.starts_with("jobs.toml:"), "{error}\nwanted: {said}");
    }
}

#[test]
fn inference_and_experts_are_carried_out() {
    let base = JOBS.split("[[job]]").next().unwrap().to_owned();
    let text = format!(
        "{base}[[job]]\nkind = \"kv-cache\"\nprefill = 2\ndecode = 4\nrequests = 10\nrequest_every_us = 2\n\
         tokens_min = 10\ntokens_max = 20\ntoken_kib = 1\ntoken_us = 0.1\npieces = 2\n[[job]]\nkind = \"experts\"\n\
         hosts = 8\nlayers = 2\ntokens = 64\ntoken_bytes = 512\nexperts_per_token = 2\ncompute_us = 5\n"
    );
    let (report, _) = carried_out(&text);
    let [cache, experts] = &report.jobs[..] else { panic!("two jobs") };
    assert!(report.finished, "{report:?}");
    assert_eq!((cache.messages, experts.messages), (10 * 2, 8 * 7 * 2 * 2));
    assert_eq!((cache.kind, cache.members, experts.kind), ("kv-cache", 6, "experts"));
    assert_eq!(experts.unhindered_us, Some(10.0));
    assert!(experts.round_us.mean > 10.0 && cache.round_us.mean > cache.unhindered_us.unwrap());
    for (from, to, said) in [
        ("decode = 4\n", "", "decode is missing"),
        ("tokens_min = 10", "tokens_min = 30", "tokens_min must be 1 to tokens_max, not 30"),
        ("layers = 2", "layers = 0", "job.layers: must be 1 to 10000, not 0"),
    ] {
        let error = parse("jobs.toml", &text.replacen(from, to, 1), None, None).expect_err(said).to_string();
        assert!(error.contains(said) && error.starts_with("jobs.toml:"), "{error}\nwanted: {said}");
    }
}
