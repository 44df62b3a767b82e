//! Networks that break: whatever happens, every byte arrives once and right.

use srdma_fabric::{Change, End, Fabric, FlowId, LinkId, Notice, Origin, Pattern, Rate, Time};

use crate::net::{across, config, GBPS};

fn spine_links(fabric: &Fabric<Pattern>, name: &str) -> Vec<LinkId> {
    fabric.links_at(End::Switch(fabric.graph().switch_named(name).unwrap()))
}

fn all_arrived(fabric: &Fabric<Pattern>, flows: &[FlowId], notices: &[Notice], bytes: u64, what: &str) {
    assert_eq!(notices.len(), 2 * flows.len(), "{what}: {notices:?}");
    for flow in flows {
        let flow = fabric.flow(*flow).unwrap();
        let origin = Origin { host: flow.from, address: 0 };
        fabric.ground(flow.to).unwrap().check(bytes, bytes, origin).unwrap_or_else(|error| {
            panic!("{what}: {error}");
        });
    }
    let audit = fabric.audit().unwrap();
    assert!(audit.injected.0 > 0 && audit.delivered.0 > 0);
}

#[test]
fn one_percent_loss_on_one_spine_costs_retransmissions_only() {
    for seed in 1..5 {
        let (fabric, flows, notices) = across(config(128, seed), 4, 2 << 20, |fabric| {
            let links = spine_links(fabric, "spine2");
            fabric.change_at(fabric.now(), links, Change::Loss(10_000));
        });
        all_arrived(&fabric, &flows, &notices, 2 << 20, &format!("seed {seed}"));
        let again: u64 =
            flows.iter().map(|&flow| fabric.counts(flow).unwrap().0.retransmitted.iter().sum::<u64>()).sum();
        let lost: u64 = fabric.links().iter().map(|link| link.counts().lost).sum();
        assert!(lost > 0 && again > 0, "seed {seed}: {lost} lost, {again} sent again");
        assert_eq!(fabric.audit().unwrap().dropped.0, lost, "seed {seed}");
    }
}

#[test]
fn a_spine_that_goes_down_under_way_is_survived_with_and_without_routing() {
    for reroute in [false, true] {
        let (fabric, flows, notices) = across(config(128, 11), 4, 4 << 20, |fabric| {
            let links = spine_links(fabric, "spine1");
            let at = fabric.now().after(Time::from_nanos(60_000));
            fabric.change_at(at, links, Change::Down);
            if reroute {
                fabric.change_at(at.after(Time::from_nanos(50_000)), Vec::new(), Change::Reroute);
            }
        });
        all_arrived(&fabric, &flows, &notices, 4 << 20, &format!("reroute {reroute}"));
        let cut: u64 = fabric.links().iter().map(|link| link.counts().cut).sum();
        assert!(cut > 0);
    }
}

#[test]
fn shallow_queues_overflow_and_nothing_is_lost_for_good() {
    for seed in 1..4 {
        let mut shallow = config(1, seed);
        shallow.transport.window_initial_bytes = 2 << 20;
        let (fabric, flows, notices) = across(shallow, 8, 1 << 20, |fabric| {
            let rate = Rate::from_bits_per_second(GBPS).unwrap();
            let all: Vec<LinkId> = (0..4).flat_map(|n| spine_links(fabric, &format!("spine{n}"))).collect();
            fabric.change_at(fabric.now(), all, Change::Rate(rate));
        });
        all_arrived(&fabric, &flows, &notices, 1 << 20, &format!("seed {seed}"));
    }
}

#[test]
fn with_every_way_black_the_flow_fails_and_says_so() {
    let (fabric, flows, notices) = across(config(4, 2), 1, 1 << 16, |fabric| {
        let all: Vec<LinkId> = (0..4).flat_map(|n| spine_links(fabric, &format!("spine{n}"))).collect();
        fabric.change_at(fabric.now(), all, Change::Loss(1_000_000));
    });
    assert!(notices.is_empty(), "the documented patience is longer than this run: {notices:?}");
    let (sender, _) = fabric.counts(flows[0]).unwrap();
    assert!(sender.timeouts >= 3, "{sender:?}");
}
