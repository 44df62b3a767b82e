//! Networks written in scenarios: what they carry, what befalls their parts, and what is refused and where.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use srdma_fabric::Change;
use srdma_seams::Rng;
use srdma_sim::{run, RunReport, Scenario, Sink, Status};

struct Nowhere;

impl Sink for Nowhere {
    fn record(&mut self, _record: &Value) -> Result<(), std::io::Error> {
        Ok(())
    }
    fn progress(&mut self, _status: &Status) {}
}

const HPN: &str = r#"
seed = 5
[topology]
kind = "hpn"
segments = 2
servers_per_segment = 4
nics_per_server = 2
aggs_per_plane = 6
port_gbps = 100
uplink_gbps = 200
[workload]
kind = "permutation"
kib = 2048
[run]
limit_ms = 20
"#;

const TREE: &str = r#"
[topology]
kind = "fat-tree"
pods = 4
tors_per_pod = 2
hosts_per_tor = 4
host_gbps = 100
[workload]
kind = "permutation"
kib = 1024
[run]
limit_ms = 20
"#;

const LEAF: &str = r#"
[topology]
leaves = 2
hosts_per_leaf = 4
spines = 4
host_gbps = 100
[workload]
kind = "permutation"
kib = 512
[run]
limit_ms = 20
"#;

/// Two leaves, a fast and a slow way between them, and a host with a port at each.
const CABLES: &str = r#"
[topology]
kind = "cables"
hosts = 7
switches = "left right over under"
[[topology.cable]]
between = "host0..2-left"
gbps = 100
[[topology.cable]]
between = "right-host3..5"
gbps = 100
[[topology.cable]]
between = "host6-left"
gbps = 50
[[topology.cable]]
between = "host6-right"
gbps = 50
[[topology.cable]]
between = "left-over"
gbps = 200
count = 2
[[topology.cable]]
between = "right-over"
gbps = 400
[[topology.cable]]
between = "left-under"
gbps = 100
delay_ns = 2000
[[topology.cable]]
between = "under-right"
gbps = 100
delay_ns = 2000
[workload]
kind = "permutation"
kib = 512
[run]
limit_ms = 20
"#;

fn parse(text: &str) -> Scenario {
    srdma_sim::parse("net.toml", text, None, None).unwrap()
}

fn reports(text: &str) -> Vec<RunReport> {
    let scenario = parse(text);
    scenario.variants.iter().map(|variant| run(&scenario, variant, &mut Nowhere).unwrap().0).collect()
}

fn report(text: &str) -> RunReport {
    let report = reports(text).remove(0);
    assert!(report.finished, "{report:?}");
    report
}

/// Bytes that left the aggregation switches of each plane.
fn planes(report: &RunReport) -> [u64; 2] {
    let half = report.spine_bytes.len() / 2;
    let sum = |part: &[(String, u64)]| part.iter().map(|(_, bytes)| bytes).sum();
    [sum(&report.spine_bytes[..half]), sum(&report.spine_bytes[half..])]
}

#[test]
fn two_planes_carry_alike_and_twice_as_fast_as_one() {
    let both = report(HPN);
    assert_eq!(both.spine_bytes.len(), 12);
    let [first, second] = planes(&both);
    assert!(first.abs_diff(second) * 20 < first + second, "{first} and {second}");
    // 16 NICs on 8 switches of the lowest tier; at least half of the bytes of the busiest NIC on each of its ports.
    assert!(both.took_us < 1.4 * both.ideal_us, "{both:?}");
    let one = report(&HPN.replace("[workload]", "planes = 1\n[workload]"));
    assert!((one.ideal_us / both.ideal_us - 2.0).abs() < 1e-6);
    let single = report(&HPN.replace("[run]", "[transport]\npaths = 1\nselector = \"single\"\n[run]"));
    assert!(single.took_us > 1.9 * both.ideal_us, "one path has one port: {} µs", single.took_us);
}

#[test]
fn a_plane_fails_by_name() {
    let whole = report(HPN);
    for (fault, lost) in [("what = \"down\"", false), ("what = \"loss\"\npercent = 100", true)] {
        let fault = format!("[[fault]]\non = \"plane1\"\nat_us = 40\n{fault}\n[run]");
        let broken = report(&HPN.replace("[run]", &fault));
        let ([first, second], [_, before]) = (planes(&broken), planes(&whole));
        assert!(second < before / 2 && first > before, "{fault}: {first} and {second}, {before} without it");
        assert_eq!((broken.lost > 0, broken.cut > 0), (lost, !lost), "{fault}");
    }
}

#[test]
fn what_an_oversubscribed_tree_carries_is_what_its_uplinks_do() {
    let full = report(TREE);
    assert_eq!(full.spine_bytes.len(), 4 * 2, "four ports upwards of each lowest switch, two of the next");
    let thin = report(&TREE.replace("[workload]", "tor_oversubscription = 4\n[workload]"));
    assert_eq!(thin.spine_bytes.len(), 2);
    assert!(thin.took_us > 2.5 * full.took_us, "{} and {}", thin.took_us, full.took_us);
    let wide = report(&TREE.replace("[workload]", "agg_gbps = 400\ntor_oversubscription = 1\n[workload]"));
    assert_eq!(wide.spine_bytes.len(), 2, "one fast port instead of four");
}

#[test]
fn what_is_wrong_with_a_network_is_said_with_file_and_line() {
    let cases = [
        (HPN, "segments = 2", "segments = 0", "net.toml:5: topology.segments: must be 1 to 4096, not 0"),
        (HPN, "segments = 2", "segment = 2", "net.toml:3: [topology]: segments is missing"),
        (
            HPN,
            "segments = 2",
            "segments = 2\nplanes = 9",
            "net.toml:3: [topology]: planes must be 1 to 8, not 9",
        ),
        (HPN, "segments = 2", "segments = 2\npods = 2", "net.toml:3: [topology]: cores_per_plane is missing"),
        (
            HPN,
            "port_gbps = 100",
            "port_gbps = 0",
            "net.toml:9: topology.port_gbps: must be 0.001 to 8000, not 0",
        ),
        (HPN, "segments = 2", "segments = 2\nspines = 4", "net.toml:6: topology.spines: unknown key"),
        (
            HPN,
            "[run]",
            "[[fault]]\non = \"plane2\"\nwhat = \"down\"\n[run]",
            "net.toml:15: fault.on: there is no \"plane2\": name a switch",
        ),
        (
            HPN,
            "[run]",
            "[[fault]]\non = \"tor0-tor1\"\nwhat = \"down\"\n[run]",
            "net.toml:15: fault.on: there is no \"tor0-tor1\"",
        ),
        (
            TREE,
            "pods = 4",
            "pods = 4\ntor_oversubscription = 3",
            "net.toml:2: [topology]: tor_oversubscription = 3 makes 1.333 ports",
        ),
        (
            TREE,
            "pods = 4",
            "pods = 4\nagg_gbps = 900",
            "net.toml:2: [topology]: tor_oversubscription = 1 makes 0.444 ports",
        ),
        (
            TREE,
            "pods = 4\ntors_per_pod = 2\nhosts_per_tor = 4",
            "pods = 4096\ntors_per_pod = 4096\nhosts_per_tor = 4096",
            "that many hosts cannot be numbered",
        ),
        (
            TREE,
            "\"fat-tree\"",
            "\"torus\"",
            "net.toml:3: topology.kind: must be one of leaf-spine, fat-tree, hpn, cables",
        ),
    ];
    for (base, from, to, said) in cases {
        let text = base.replacen(from, to, 1);
        assert_ne!(text, base, "{from}");
        let error = srdma_sim::parse("net.toml", &text, None, None).expect_err(said).to_string();
        assert!(error.contains(said), "{error}\nwanted: {said}");
    }
}

/// What `[[fault]]` says, on one spine of a small network, and what the report counts.
#[test]
fn every_kind_of_fault_does_what_it_says() {
    let base = LEAF.replace("kib = 512", "kib = 1024");
    let plain = report(&base);
    let with =
        |fault: &str| report(&base.replace("[run]", &format!("[[fault]]\non = \"spine1\"\n{fault}\n[run]")));
    let bursts = with("what = \"loss\"\npercent = 5\nburst_packets = 20");
    let single = with("what = \"loss\"\npercent = 5");
    assert!(bursts.lost > 0 && single.lost > 0 && bursts.lost != single.lost);
    let corrupt = with("what = \"corrupt\"\npercent = 5");
    assert!(corrupt.corrupted > 0 && corrupt.lost == 0, "{corrupt:?}");
    let far = with("what = \"delay\"\ndelay_us = 5");
    assert!(far.took_us > plain.took_us + 5.0, "{} and {}", far.took_us, plain.took_us);
    let flapping = with("what = \"down\"\nat_us = 10\nuntil_us = 15\nevery_us = 20\ntimes = 4");
    let once = with("what = \"down\"\nat_us = 10\nuntil_us = 15");
    assert!(flapping.cut > once.cut && once.cut > 0, "{} and {}", flapping.cut, once.cut);
    let slow = with("what = \"rate\"\ngbps = 10\nat_us = 20\nuntil_us = 60");
    assert!(slow.took_us > plain.took_us && slow.overflowed + slow.lost + slow.cut == 0);
    let washed = parse(&base.replace("[run]", "[[fault]]\non = \"leaf0>spine1\"\nwhat = \"bleach\"\n[run]"));
    assert_eq!(washed.faults[0].change, Change::Bleach(true));
}

#[test]
fn one_buffer_for_all_queues_of_a_switch_is_written_as_such() {
    let small = LEAF.replace(
        "[workload]",
        "buffer_kib = 256\nalpha = 0.5\necn_min_kib = 200\necn_max_kib = 256\n[workload]",
    );
    let shared = report(&small.replace("[run]", "[transport]\npaths = 1\nselector = \"single\"\n[run]"));
    let longest = shared.queues.iter().map(|queue| queue.max_bytes).max().unwrap();
    assert!(shared.overflowed > 0 && longest <= (256 << 10) * 34 / 100, "half of what is free: {longest}");
}

#[test]
fn what_there_is_no_room_for_is_trimmed_where_switches_do_that() {
    let shallow = LEAF
        .replace(
            "[workload]",
            "queue_kib = 100\necn_min_kib = 50\necn_max_kib = 100\ntrim = true\n[workload]",
        )
        .replace("[run]", "[transport]\npaths = 1\nselector = \"single\"\n[run]");
    let trimmed = report(&shallow);
    assert!(trimmed.trimmed > 10, "{trimmed:?}");
    assert!(srdma_sim::table(std::slice::from_ref(&trimmed)).contains("cut down to their headers"));
    let dropped = report(&shallow.replace("trim = true", "trim = false"));
    assert!(dropped.trimmed == 0 && dropped.overflowed > 10, "{dropped:?}");
}

const FAULTS: &str = r#"
[[fault]]
on = "pod1"
what = "loss"
percent = 3
burst_packets = 4
[[fault]]
on = "tor0>agg1"
what = "down"
at_us = 3
until_us = 4
every_us = 9
times = 3
[run]"#;

/// `text` with one to three changes of lines.
fn mutilated(text: &str, rng: &mut Rng) -> String {
    const VALUES: [&str; 14] = [
        "0",
        "1",
        "3",
        "-1",
        "4097",
        "18446744073709551615",
        "1e9",
        "nan",
        "true",
        "\"x\"",
        "[]",
        "0.1",
        "{}",
        "",
    ];
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..=rng.below(2) {
        let place = rng.below(lines.len() as u64) as usize;
        match rng.below(4) {
            0 => drop(lines.remove(place)),
            1 => lines.insert(place, lines[rng.below(lines.len() as u64) as usize].clone()),
            2 => {
                let key = lines[place].split('=').next().unwrap_or("").to_owned();
                lines[place] = format!("{key}= {}", VALUES[rng.below(VALUES.len() as u64) as usize]);
            }
            _ => {
                let at = rng.below(lines[place].chars().count() as u64 + 1) as usize;
                lines[place] = lines[place].chars().take(at).collect();
            }
        }
    }
    lines.join("\n")
}

#[test]
fn a_network_of_ones_own_is_written_cable_by_cable() {
    let scenario = parse(CABLES);
    let tiers: Vec<u8> = scenario.graph.switches.iter().map(|switch| switch.tier).collect();
    assert_eq!((tiers, scenario.graph.cables.len()), (vec![1, 1, 2, 2], 3 + 3 + 2 + 2 + 1 + 2));
    let own = report(CABLES);
    assert!(own.spine_bytes.iter().all(|(_, bytes)| *bytes > 0), "both ways are used: {:?}", own.spine_bytes);
    // Without the cables of one side nothing is connected but by the host, which carries nothing on.
    let island = CABLES
        .replace("between = \"right-over\"", "between = \"left-over\"")
        .replace("under-right", "left-under");
    let error = srdma_sim::parse("net.toml", &island, None, None).expect_err("two islands").to_string();
    assert!(error.starts_with("net.toml:2: [topology]: No way leads from "), "{error}");
}

/// Whatever a scenario says of a network and its faults, it is read or refused with its file and line.
#[test]
fn mutilated_networks_are_refused_by_line_or_read() {
    let pods = "pods = 2\ncores_per_plane = 8\nagg_uplinks = 4\nbuffer_kib = 9000\n[workload]";
    let thin = "tor_oversubscription = 2\nalpha = 2\nbuffer_kib = 4000\ntrim = true\n[workload]";
    let own = CABLES.replace("under", "agg1").replace("left", "tor0");
    let trees = [HPN.replace("[workload]", pods), TREE.replace("[workload]", thin)];
    let [hpn, tree] = trees.map(|text| text.replace("[run]", FAULTS));
    let texts = [hpn, tree, own.replace("[run]", &FAULTS.replace("pod1", "over"))];
    texts.iter().for_each(|text| drop(parse(text)));
    let (mut read, mut refused) = (0, 0);
    for seed in 0..4_000 {
        let mut rng = Rng::stream(seed, "mutilated", 0);
        let text = mutilated(&texts[rng.below(3) as usize], &mut rng);
        match srdma_sim::parse("net.toml", &text, None, None) {
            Ok(scenario) => {
                scenario.graph.validate().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                read += 1;
            }
            Err(error) => {
                let lines = text.matches('\n').count() + 1;
                assert!((1..=lines).contains(&error.line), "seed {seed}: {error}");
                assert!(error.to_string().starts_with("net.toml:"), "seed {seed}: {error}");
                refused += 1;
            }
        }
    }
    assert!(read > 100 && refused > 1_000, "{read} read, {refused} refused");
}

/// How many ways a flow's paths have, which depends on how switches hash.
#[test]
fn paths_that_fall_together_are_counted_and_warned_of() {
    let tree = TREE.replace("tors_per_pod = 2", "tors_per_pod = 4").replace("kib = 1024", "kib = 16");
    let [seeded, alike] = ["false", "true"].map(|alike| {
        let report = report(&tree.replace("[workload]", &format!("polarised = {alike}\n[workload]")));
        assert_eq!(srdma_sim::table(std::slice::from_ref(&report)).contains("warning: "), alike == "true");
        report.ways
    });
    // Between pods there are four middle switches and four of the highest for each, within a pod four in all.
    assert!(seeded.possible > 8.0 && seeded.possible <= 16.0, "{seeded:?}");
    assert!(seeded.share > 0.98 && seeded.warning().is_none(), "{seeded:?}");
    assert!(alike.distinct <= 4.0 && alike.possible == seeded.possible, "{alike:?}");
    assert!(alike.warning().unwrap().contains("polarised"), "{alike:?}");
}

/// A run that does not end says how to have it again, and so it comes.
#[test]
fn a_failed_run_says_what_repeats_it() {
    let fault = "[[fault]]\non = \"leaf0\"\nwhat = \"loss\"\npercent = 100\nat_us = 20\n[run]";
    let text = LEAF.replace("[run]", fault).replace("limit_ms = 20", "limit_ms = 1");
    let mut scenario = parse(&text);
    scenario.seed = 77;
    let first = run(&scenario, &scenario.variants[0], &mut Nowhere).unwrap().0;
    assert!(!first.finished);
    let table = srdma_sim::table(std::slice::from_ref(&first));
    let said = table.lines().last().unwrap();
    assert!(said.contains("unfinished; ") && said.contains("--seed 77"), "{said}");
    let (_, seed) = said.split_once("--seed ").unwrap();
    let mut again = parse(&text);
    again.seed = seed.split(' ').next().unwrap().parse().unwrap();
    let second = run(&again, &again.variants[0], &mut Nowhere).unwrap().0;
    assert!(said.ends_with(&format!("trace {:016x}", second.trace_hash)), "{said}");
}
