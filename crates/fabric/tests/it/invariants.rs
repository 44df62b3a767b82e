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
