//! What holds in every run, and that somebody would notice if it did not.

use srdma_fabric::{Change, End, Fabric, FabricConfig, FlowId, Notice, Origin, Pattern, Planted, Time};
use srdma_transport::config::Planted as InTransport;

use crate::net::{across, at_rest, config, leaf_spine, write};

fn lossy(fabric: &mut Fabric<Pattern>) {
    let spine = End::Switch(fabric.graph().switch_named("spine0").unwrap());
    fabric.change_at(fabric.now(), fabric.links_at(spine), Change::Loss(50_000));
}

fn hash(seed: u64) -> (u64, u64, Vec<Notice>) {
    let (fabric, _, notices) = across(config(32, seed), 3, 1 << 20, lossy);
    (fabric.trace_hash(), fabric.events(), notices)
}

#[test]
fn equal_seeds_make_equal_runs_and_others_do_not() {
    for seed in 1..4 {
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
    }
    assert_ne!(hash(1).0, hash(2).0);
}

/// How often somebody looks at a run makes no difference to it.
#[test]
fn a_run_is_the_same_however_it_is_cut_into_pieces() {
    let hashes = [100_000_000, 7_777, 130].map(|step_ns| {
        let graph = leaf_spine(2, 3, 4).graph().unwrap();
        let mut fabric = Fabric::new(config(16, 5), graph, |_| Pattern::new(1 << 20)).unwrap();
        let flows: Vec<FlowId> = (0..6).map(|host| fabric.connect(host, (host + 2) % 6).unwrap()).collect();
        at_rest(&mut fabric);
        lossy(&mut fabric);
        for (message, &flow) in flows.iter().enumerate() {
            fabric.post(write(flow, message as u32, 1 << 20)).unwrap();
        }
        let end = fabric.now().after(Time::from_nanos(2_000_000));
        let mut notices = Vec::new();
        while fabric.now() < end {
            fabric.run_until(end.min(fabric.now().after(Time::from_nanos(step_ns)))).unwrap();
            fabric.take_notices(&mut notices);
        }
        assert_eq!(notices.len(), 12, "steps of {step_ns} ns");
        (fabric.trace_hash(), fabric.events())
    });
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

/// A program that posts at one host when another has been told something: the message goes, in good time.
#[test]
fn what_one_host_is_told_may_be_answered_by_any() {
    let graph = leaf_spine(2, 2, 4).graph().unwrap();
    let mut fabric = Fabric::new(config(16, 5), graph, |_| Pattern::new(1 << 20)).unwrap();
    let flows: Vec<FlowId> = (0..4).map(|host| fabric.connect(host, (host + 1) % 4).unwrap()).collect();
    at_rest(&mut fabric);
    fabric.post(write(flows[0], 0, 4096)).unwrap();
    let (mut told, mut last) = (0, fabric.now());
    let mut notices = Vec::new();
    while told < 40 {
        assert_eq!(
            fabric.run_until(last.after(Time::from_nanos(50_000))).unwrap(),
            srdma_fabric::Stop::Notices
        );
        fabric.take_notices(&mut notices);
        for notice in notices.drain(..) {
            let Notice::Received { at, message } = notice else { continue };
            assert!(at > last && message == told, "{notice:?}");
            (last, told) = (at, told + 1);
            // Of host `message + 1`, or of one that has nothing to do with it.
            fabric.post(write(flows[(told as usize * 3) % 4], told, 4096)).unwrap();
        }
    }
}

#[test]
fn fabrics_of_one_process_do_not_disturb_each_other() {
    let alone = hash(7);
    let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(|| hash(7))).collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), alone);
    }
}

#[test]
fn packets_that_vanish_are_noticed_while_it_runs() {
    let planted = FabricConfig { planted: Some(Planted::ForgetDrops), ..config(32, 1) };
    let graph = leaf_spine(2, 2, 4).graph().unwrap();
    let mut fabric = Fabric::new(planted, graph, |_| Pattern::new(4 << 20)).unwrap();
    let flow = fabric.connect(0, 2).unwrap();
    at_rest(&mut fabric);
    lossy(&mut fabric);
    fabric.post(write(flow, 0, 4 << 20)).unwrap();
    let limit = fabric.now().after(Time::from_nanos(1_000_000));
    let error =
        fabric.run_until(limit).expect_err("5 % of a quarter of the packets are dropped and not counted");
    assert!(error.to_string().contains("is not delivered"), "{error}");
}

fn misplaced(fabric: &Fabric<Pattern>, flows: &[FlowId], bytes: u64) -> bool {
    flows.iter().any(|&flow| {
        let flow = fabric.flow(flow).unwrap();
        let origin = Origin { host: flow.from, address: 0 };
        fabric.ground(flow.to).unwrap().check(bytes, bytes, origin).is_err()
    })
}

#[test]
fn bugs_are_noticed_by_what_arrives() {
    let transport = |settings: &mut FabricConfig| settings.transport.planted = Some(InTransport::RefuseHead);
    let fabric = |settings: &mut FabricConfig| settings.planted = Some(Planted::Misplace);
    let none = |_: &mut FabricConfig| {};
    type Plant = fn(&mut FabricConfig);
    let bugs: [(&str, Plant, bool); 3] =
        [("none", none, false), ("RefuseHead", transport, true), ("Misplace", fabric, true)];
    for (name, plant, noticed) in bugs {
        for seed in 1..4 {
            let mut settings = config(32, seed);
            plant(&mut settings);
            let (fabric, flows, notices) = across(settings, 3, 2 << 20, lossy);
            let found = notices.len() != 2 * flows.len() || misplaced(&fabric, &flows, 2 << 20);
            assert_eq!(found, noticed, "{name}, seed {seed}");
        }
    }
}

#[test]
fn refusals_name_what_is_wrong() {
    let graph = leaf_spine(2, 2, 4).graph().unwrap();
    let mut settings = config(32, 1);
    settings.transport.paths = 257;
    let Err(error) = Fabric::new(settings, graph.clone(), |_| Pattern::new(0)) else { panic!("taken") };
    assert_eq!(error.to_string(), "Paths must be 1 to 256, not 257");
    let mut fabric = Fabric::new(config(32, 1), graph.clone(), |_| Pattern::new(0)).unwrap();
    for (from, to) in [(0, 0), (0, 4), (9, 1)] {
        let error = fabric.connect(from, to).expect_err("no such pair").to_string();
        assert_eq!(error, format!("There can be no flow from host {from} to host {to}"));
    }
    let flow = fabric.connect(0, 1).unwrap();
    let error = fabric.post(write(flow, 0, u32::MAX)).expect_err("too large").to_string();
    assert!(error.contains("at most 1073741824 bytes"), "{error}");
    let mut island = graph;
    island.cables.retain(|cable| !matches!((cable.from, cable.to), (End::Switch(1), _)));
    let Err(error) = Fabric::new(config(32, 1), island, |_| Pattern::new(0)) else { panic!("taken") };
    assert_eq!(error.to_string(), "No way leads from leaf1 to host 0");
}
