//! htsim's files: what is read, what is refused and where, and that they can be carried out.
#![allow(clippy::unwrap_used)]

use srdma_sim::{read_matrix, read_topology, run, Scenario, Sink, Status, Workload, DEFAULT_QUEUE};

const TREE: &str = "# three tiers
Nodes 16
Tiers 3
Podsize 4

Tier 0
Oversubscribed 1
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Switch_Latency_ns 0

Tier 1
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Bundle 1

Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000";

/// Two chains, a barrier that waits for both, and a late starter.
const MATRIX: &str = "Nodes 16
Connections 6
Triggers 3
0->5 id 1 start 0 size 200000 send_done_trigger 1
0->9 id 2 trigger 1 size 100000 send_done_trigger 3
4->0 id 3 start 10 size 100000 recv_done_trigger 2   # microseconds
0->4 id 4 trigger 2 size 100000 recv_done_trigger 3
15->1 id 5 trigger 3 size 64
3->2 id 6 start 500 size 4096
trigger id 1 oneshot
trigger id 2 oneshot
trigger id 3 barrier 2
";

struct Nowhere;

impl Sink for Nowhere {
    fn record(&mut self, _record: &serde_json::Value) -> Result<(), std::io::Error> {
        Ok(())
    }
    fn progress(&mut self, _status: &Status) {}
}

#[test]
fn a_topology_and_a_matrix_are_carried_out_with_their_triggers_and_times() {
    let graph = read_topology("t.topo", TREE, DEFAULT_QUEUE).unwrap();
    assert_eq!((graph.hosts, graph.switches.len(), graph.cables.len()), (16, 8 + 8 + 4, 16 * 3));
    let plan = read_matrix("m.cm", MATRIX).unwrap();
    assert_eq!((plan.messages().len(), plan.bytes(), plan.hosts()), (6, 504_160, 16));
    let scenario = Scenario::plain("both", graph, Workload::Matrix(plan));
    let (report, _) = run(&scenario, &scenario.variants[0], &mut Nowhere).unwrap();
    assert!(report.finished && report.messages == [6, 0, 6], "{report:?}");
    assert!((500.0..520.0).contains(&report.took_us), "the last begins after 500 µs: {}", report.took_us);
    let kinds: Vec<&str> = report.queues.iter().map(|queue| queue.links.as_str()).collect();
    assert_eq!(kinds, ["tor to agg", "agg to core", "tor to host", "agg to tor", "core to agg"]);
    assert_eq!(report.spine_bytes.len(), 4);
}

#[test]
fn topologies_are_refused_by_line() {
    let cases = [
        ("Nodes 16", "Nodes", "t.topo:2: Nodes: a number is missing"),
        ("Nodes 16", "Nodes sixteen", "t.topo:2: Nodes: must be a whole number, not \"sixteen\""),
        ("Nodes 16", "", "t.topo:1: Nodes is missing"),
        ("Tiers 3", "Tiers 2", "t.topo:1: Tiers says 2, but 3 are described"),
        ("Tier 1\n", "Tier 2\n", "t.topo:14: Tier 2 comes before tier 1"),
        ("Radix_Up 2", "Radix_Sideways 2", "t.topo:10: Radix_Sideways is not known here; known are Nodes"),
        ("Radix_Up 2", "Radix_Up 2 3", "t.topo:10: Radix_Up: one number, and no more, not \"3\""),
        ("Radix_Up 2\n", "", "t.topo:6: Radix_Up of tier 0 is missing"),
        ("Oversubscribed 1", "Oversubscribed 2", "t.topo:6: tier 0 is said to be oversubscribed 2:1"),
        (
            "Downlink_speed_Gbps 100",
            "Downlink_speed_Gbps 0",
            "t.topo:6: Downlink_speed_Gbps of tier 0: must be 1",
        ),
        ("Podsize 4", "Podsize 6", "hosts divided by those of a pod is no whole number: 16 / 6"),
        ("Radix_Down 4", "Radix_Down 5", "radix_down of tier 2 must be bundle × pods, not 5"),
    ];
    for (from, to, said) in cases {
        let text = TREE.replacen(from, to, 1);
        let error = read_topology("t.topo", &text, DEFAULT_QUEUE).expect_err(said).to_string();
        assert!(error.contains(said) && error.starts_with("t.topo:"), "{error}\nwanted: {said}");
    }
}

#[test]
fn matrices_are_refused_by_line() {
    let cases = [
        ("Nodes 16", "", "m.cm:1: Nodes is missing"),
        ("Nodes 16", "Nodes 12", "m.cm:8: there are only 12 nodes, counted from 0"),
        ("Connections 6", "Connections 7", "m.cm:2: 7 connections are announced, but 6 follow"),
        ("Triggers 3", "Triggers 4", "m.cm:3: 4 triggers are announced, but 3 follow"),
        ("0->5", "0->x", "m.cm:4: \"0->x\" names no two nodes"),
        ("0->5", "5->5", "Message 0 has no two ends"),
        ("id 1 start 0 size 200000", "id 1 start 0", "m.cm:4: size is missing"),
        ("size 200000", "size 0", "m.cm:4: size: must be 1 byte to 1 GiB, not 0"),
        ("size 200000", "size 200000 color 3", "m.cm:4: \"color\" is not known here; known are id"),
        ("start 0 size", "start size", "m.cm:4: start: must be a whole number, not \"size\""),
        ("trigger id 2 oneshot\n", "", "m.cm:3: 3 triggers are announced, but 2 follow"),
        ("id 4 trigger 2", "id 4 trigger 9", "m.cm:7: trigger 9 is described nowhere"),
        ("barrier 2", "barrier 3", "m.cm:12: trigger 3 waits for 3, but 2 connections fire it"),
        (
            "trigger id 1 oneshot",
            "trigger id 1 multishot",
            "m.cm:10: trigger 1: \"multishot\" is not known here",
        ),
        ("trigger id 2", "trigger id 1", "m.cm:11: trigger 1 is described twice"),
        (
            "15->1 id 5 trigger 3 size 64",
            "15->1 id 5 trigger 3 size 64 extra",
            "m.cm:8: extra: a number is missing",
        ),
        ("4->0 id 3 start 10", "4->0 id 3 trigger 2", "waits for itself, by way of others"),
        ("Nodes 16", "Nodes 16\nfailure up", "m.cm:2: \"failure\" is not known here"),
    ];
    read_matrix("m.cm", MATRIX).unwrap();
    for (from, to, said) in cases {
        let text = MATRIX.replacen(from, to, 1);
        let error = read_matrix("m.cm", &text).expect_err(said).to_string();
        assert!(error.contains(said) && error.starts_with("m.cm:"), "{error}\nwanted: {said}");
    }
}

/// Whatever bytes a file has, it is read or refused.
#[test]
fn mutilated_files_are_refused_or_read() {
    for seed in 0..3_000 {
        let mut rng = srdma_seams::Rng::stream(seed, "mutilate", 0);
        for text in [TREE, MATRIX] {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                match rng.below(3) {
                    0 => bytes[at] = b" 0123456789->#\nTx"[rng.below(17) as usize],
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, bytes[rng.below(bytes.len() as u64) as usize]),
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            let _ = read_matrix("m.cm", &text);
            let small = !text
                .split_whitespace()
                .any(|word| word.parse::<u64>().is_ok_and(|n| (2000..1 << 32).contains(&n)));
            if small {
                let _ = read_topology("t.topo", &text, DEFAULT_QUEUE);
            }
        }
    }
}
