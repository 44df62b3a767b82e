//! What wires and buffers do to packets, one at a time.

use srdma_fabric::{
    Change, End, Fabric, FabricConfig, Graph, LinkId, Nothing, Origin, Pattern, Post, Rate, SharedBuffer,
    Time,
};

use crate::net::{across, at_rest, config, leaf_spine, received, run, write, GBPS};

/// A packet on the wire: 4,096 bytes of payload, its header, and what is around it.
const PACKET: u64 = 4096 + srdma_wire::DATA_HEADER_BYTES as u64 + 66;

fn gbps(number: u64) -> Rate {
    Rate::from_bits_per_second(number * GBPS).unwrap()
}

/// Hosts on one leaf.
fn leaf(hosts: u32) -> Graph {
    leaf_spine(1, hosts, 1).graph().unwrap()
}

/// The link from the leaf to `host`.
fn down_to(fabric: &Fabric<Nothing>, host: u32) -> LinkId {
    let links = fabric.links_at(End::Host(host));
    links.into_iter().find(|&link| fabric.ends(link).1 == End::Host(host)).unwrap()
}

/// Sends `bytes` from each of the others to the last host, from all at once; when everything was received, counted from
/// the first post.
fn incast(
    graph: Graph,
    bytes: u32,
    prepare: impl FnOnce(&mut Fabric<Nothing>, LinkId),
) -> (Fabric<Nothing>, Time) {
    let last = graph.hosts - 1;
    let mut fabric = Fabric::new(config(16, 1), graph, |_| Nothing).unwrap();
    let flows: Vec<_> = (0..last).map(|host| fabric.connect(host, last).unwrap()).collect();
    at_rest(&mut fabric);
    let begin = fabric.now();
    let link = down_to(&fabric, last);
    prepare(&mut fabric, link);
    flows.iter().for_each(|&flow| fabric.post(write(flow, flow.0, bytes)).unwrap());
    let notices = run(&mut fabric, flows.len(), begin.after(Time::from_nanos(100_000_000)));
    assert_eq!(notices.len(), 2 * flows.len());
    let all = flows.iter().map(|flow| received(&notices, flow.0).unwrap());
    let took = all.max().unwrap().since(begin);
    (fabric, took)
}

/// The queue before a link that becomes ten times slower, or faster, empties ten times more slowly, or faster, from
/// that moment on.
#[test]
fn what_waits_leaves_at_the_new_rate() {
    let (packets, bytes) = (2 * 24, 24 * 4096);
    let change_after = Time::from_nanos(8_000);
    for (before, after) in [(100, 10), (10, 100), (20, 5)] {
        let (fabric, took) = incast(leaf(3), bytes, |fabric, link| {
            fabric.change_at(fabric.now(), vec![link], Change::Rate(gbps(before)));
            fabric.change_at(fabric.now().after(change_after), vec![link], Change::Rate(gbps(after)));
        });
        // A packet comes whole to the leaf before it goes on.
        let begun = gbps(100).serialisation(PACKET).after(Time::from_nanos(600));
        let sent = gbps(before).bytes_in(change_after.since(begun));
        let rest = gbps(after).serialisation(packets * PACKET - sent);
        let wanted = change_after.after(rest).after(Time::from_nanos(600));
        let off = wanted.0.abs_diff(took.0);
        // The audit of the run would have noticed packets that vanish; two acknowledgements may be among the data.
        assert!(
            off <= 2 * gbps(after.min(before)).serialisation(200).0,
            "{before} to {after}: {took}, not {wanted}"
        );
        assert_eq!(fabric.audit().unwrap().dropped.0, 0);
    }
}

#[test]
fn a_longer_wire_takes_longer_and_a_shorter_one_is_not_overtaken_on() {
    let took = |extra_ns: u64, until_ns: u64| {
        let (fabric, took) = incast(leaf(2), 4096, |fabric, link| {
            fabric.change_at(fabric.now(), vec![link], Change::Delay(Time::from_nanos(extra_ns)));
            let until = fabric.now().after(Time::from_nanos(until_ns));
            fabric.change_at(until, vec![link], Change::Delay(Time(0)));
        });
        assert_eq!(fabric.audit().unwrap().dropped.0, 0);
        took
    };
    let plain = took(0, 1);
    assert_eq!(took(7_000, 1_000_000), plain.after(Time::from_nanos(7_000)));
    // The wire is cleared first: the leaf has the packet long before it may go on.
    let at_leaf = Time::from_nanos(600).after(gbps(100).serialisation(PACKET));
    assert_eq!(took(7_000, 1), plain.after(Time::from_nanos(7_001).since(at_leaf)));
    // In the midst of a long message: everything comes, in the order in which it left, hence nothing is sent again.
    let (fabric, _) = incast(leaf(2), 1 << 20, |fabric, link| {
        for step in 0..20 {
            let at = fabric.now().after(Time::from_nanos(4_000 * step));
            let extra = Time::from_nanos(if step % 2 == 0 { 3_000 } else { 0 });
            fabric.change_at(at, vec![link], Change::Delay(extra));
        }
    });
    assert_eq!(fabric.audit().unwrap().dropped.0, 0);
}

#[test]
fn spoilt_packets_are_counted_as_such_and_sent_again() {
    let (fabric, flows, notices) = across(config(32, 2), 3, 1 << 20, |fabric| {
        let spine = End::Switch(fabric.graph().switch_named("spine1").unwrap());
        fabric.change_at(fabric.now(), fabric.links_at(spine), Change::Corrupt(30_000));
    });
    assert_eq!(notices.len(), 2 * flows.len());
    let sum = |count: fn(&srdma_fabric::LinkCounts) -> u64| -> u64 {
        fabric.links().iter().map(|link| count(link.counts())).sum()
    };
    let (corrupted, lost) = (sum(|counts| counts.corrupted), sum(|counts| counts.lost));
    assert!(corrupted > 0 && lost == 0, "{corrupted} spoilt, {lost} lost");
    assert_eq!(fabric.audit().unwrap().dropped.0, corrupted);
}

#[test]
fn losses_in_bursts_are_survived() {
    for seed in 1..4 {
        let (fabric, flows, notices) = across(config(64, seed), 4, 2 << 20, |fabric| {
            let spine = End::Switch(fabric.graph().switch_named("spine2").unwrap());
            let bursts = Change::Bursts { loss_ppm: 20_000, packets: 12 };
            fabric.change_at(fabric.now(), fabric.links_at(spine), bursts);
        });
        assert_eq!(notices.len(), 2 * flows.len(), "seed {seed}");
        assert!(fabric.audit().unwrap().dropped.0 > 0, "seed {seed}");
    }
}

/// Marks of the receiver's queue: with them washed out, delay alone holds the windows.
#[test]
fn where_marks_are_washed_out_delay_holds_the_window() {
    let mut graph = leaf(5);
    for cable in &mut graph.cables {
        cable.queue.ecn_min_bytes = 50_000;
        cable.queue.ecn_max_bytes = 100_000;
    }
    let marked = |fabric: &Fabric<Nothing>| -> u64 {
        (0..4).map(|flow| fabric.counts(srdma_fabric::FlowId(flow)).unwrap().0.marked).sum()
    };
    let (fabric, plain) = incast(graph.clone(), 4 << 20, |_, _| {});
    assert!(marked(&fabric) > 100 && fabric.links().iter().any(|link| link.counts().marked > 100));
    let (fabric, washed) = incast(graph, 4 << 20, |fabric, link| {
        fabric.change_at(fabric.now(), vec![link], Change::Bleach(true));
    });
    assert_eq!(marked(&fabric), 0, "the switch marks, but nobody sees it");
    assert!(fabric.links().iter().any(|link| link.counts().marked > 100));
    assert!(washed < Time(plain.0 * 11 / 10), "{washed}, {plain} with marks");
    assert_eq!(fabric.audit().unwrap().dropped.0, 0, "8 MiB are enough for windows that watch the delay");
}

/// An incast into a queue that is far too short. A header that arrives alone tells of the loss; without it the sender must
/// wait until something later on the same path is answered.
#[test]
fn a_trimmed_packet_is_sent_again_sooner_than_a_dropped_one() {
    let took = |trims: bool, seed: u64| {
        let mut graph = leaf_spine(2, 12, 4).graph().unwrap();
        for cable in &mut graph.cables {
            let limits = &mut cable.queue;
            (limits.bytes, limits.ecn_min_bytes, limits.ecn_max_bytes) = (60_000, 30_000, 60_000);
        }
        let settings = FabricConfig { trims, ..config(32, seed) };
        let mut fabric = Fabric::new(settings, graph, |_| Pattern::new(12 << 16)).unwrap();
        let flows: Vec<_> = (0..12).map(|host| fabric.connect(host, 12).unwrap()).collect();
        at_rest(&mut fabric);
        let begin = fabric.now();
        for flow in &flows {
            let at = u64::from(flow.0) << 16;
            fabric.post(Post { local: at, remote: at, ..write(*flow, flow.0, 1 << 16) }).unwrap();
        }
        let notices = run(&mut fabric, flows.len(), begin.after(Time::from_nanos(100_000_000)));
        assert_eq!(notices.len(), 2 * flows.len());
        for (host, flow) in flows.iter().enumerate() {
            let at = u64::from(flow.0) << 16;
            let origin = Origin { host: host as u32, address: at };
            fabric.ground(12).unwrap().check(at, 1 << 16, origin).unwrap();
        }
        let sum = |count: fn(&srdma_fabric::LinkCounts) -> u64| -> u64 {
            fabric.links().iter().map(|link| count(link.counts())).sum()
        };
        let (trimmed, overflowed) = (sum(|counts| counts.trimmed), sum(|counts| counts.overflowed));
        assert_eq!(trimmed > 0, trims, "{trimmed}");
        // Large probes of the handshake are no data, and cannot be trimmed.
        assert!(!trims || overflowed * 4 < trimmed, "{overflowed} dropped all the same, {trimmed} trimmed");
        assert_eq!(fabric.audit().unwrap().dropped.0, overflowed);
        flows.iter().map(|flow| received(&notices, flow.0).unwrap().since(begin).0).max().unwrap()
    };
    let (with, without): (Vec<u64>, Vec<u64>) =
        (1..4).map(|seed| (took(true, seed), took(false, seed))).unzip();
    let sum = |all: &[u64]| all.iter().sum::<u64>();
    assert!(sum(&with) * 10 < sum(&without) * 9, "{with:?} ps, {without:?} without");
}

/// Marks that one of eight spines washes out: the paths over the others keep theirs, and nobody concludes from the lack of
/// some that there are none.
#[test]
fn marks_are_missed_on_the_paths_that_lose_them_alone() {
    let run_with = |bleached: bool| {
        let mut graph = leaf_spine(2, 4, 8).graph().unwrap();
        for cable in graph.cables.iter_mut().filter(|cable| matches!(cable.from, End::Switch(_))) {
            cable.rate = gbps(20);
            (cable.queue.ecn_min_bytes, cable.queue.ecn_max_bytes) = (30_000, 60_000);
        }
        let mut fabric = Fabric::new(config(128, 4), graph, |_| Nothing).unwrap();
        let flows: Vec<_> = (0..4).map(|host| fabric.connect(host, 4 + host).unwrap()).collect();
        at_rest(&mut fabric);
        let begin = fabric.now();
        if bleached {
            let spine = End::Switch(fabric.graph().switch_named("spine3").unwrap());
            fabric.change_at(begin, fabric.links_at(spine), Change::Bleach(true));
        }
        flows.iter().for_each(|&flow| fabric.post(write(flow, flow.0, 4 << 20)).unwrap());
        let notices = run(&mut fabric, 4, begin.after(Time::from_nanos(100_000_000)));
        let took = flows.iter().map(|flow| received(&notices, flow.0).unwrap().since(begin).0).max().unwrap();
        let marked: u64 = flows.iter().map(|&flow| fabric.counts(flow).unwrap().0.marked).sum();
        (took, marked, fabric.audit().unwrap().dropped.0)
    };
    let (plain, all, _) = run_with(false);
    let (took, some, dropped) = run_with(true);
    assert!(some > all / 2 && all > 100, "{some} of {all} marks are seen");
    assert!(took < plain * 11 / 10 && dropped == 0, "{took} ps, {plain} with all marks, {dropped} dropped");
}

#[test]
fn a_shared_buffer_gives_one_busy_port_much_and_two_less() {
    let longest = |alpha_128ths: u32, receivers: u32| {
        let mut graph = leaf(18);
        graph.switches[0].buffer = Some(SharedBuffer { bytes: 1_200_000, alpha_128ths });
        let mut settings = config(4, 1);
        settings.transport.window_initial_bytes = 1 << 20;
        let mut fabric = Fabric::new(settings, graph, |_| Nothing).unwrap();
        let flows: Vec<_> =
            (0..16).map(|host| fabric.connect(host, 16 + host % receivers).unwrap()).collect();
        at_rest(&mut fabric);
        flows.iter().for_each(|&flow| fabric.post(write(flow, flow.0, 1 << 20)).unwrap());
        let limit = fabric.now().after(Time::from_nanos(100_000_000));
        assert_eq!(run(&mut fabric, flows.len(), limit).len(), 2 * flows.len());
        let counts = |host: u32| *fabric.links()[down_to(&fabric, host).0 as usize].counts();
        let overflowed = counts(16).overflowed + counts(17).overflowed;
        assert!(overflowed > 0, "the buffer is too small for all of it");
        assert_eq!(fabric.audit().unwrap().dropped.0, overflowed);
        counts(16).queue_max_bytes
    };
    // A queue has α times what is free: α / (1 + α) of the buffer alone, α / (1 + 2α) beside another of its kind.
    for (alpha, receivers, share) in [(128, 1, 0.5), (128, 2, 1.0 / 3.0), (1024, 1, 8.0 / 9.0), (32, 1, 0.2)]
    {
        let found = longest(alpha, receivers) as f64 / 1_200_000.0;
        assert!(
            (found - share).abs() < 0.04,
            "α = {alpha}/128, {receivers} busy: {found:.3} of it, not {share:.3}"
        );
    }
}
