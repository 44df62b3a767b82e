//! Hosts with several ports: planes that meet only in the hosts, and switch pairs that do not.

use std::collections::BTreeSet;

use srdma_fabric::{Change, End, Fabric, FlowId, Graph, Hpn, LinkId, Origin, Pattern, Post, Rate, Time};
use srdma_seams::PathId;

use crate::net::{at_rest, config, leaf_spine, run, write, GBPS};

fn hpn(servers: u32, aggs: u32) -> Hpn {
    let gbps = |gbps| Rate::from_bits_per_second(gbps * GBPS).unwrap();
    Hpn {
        pods: 1,
        segments: 2,
        servers,
        nics: 2,
        planes: 2,
        aggs,
        agg_uplinks: 0,
        cores: 0,
        port_rate: gbps(100),
        uplink_rate: gbps(200),
        port_delay: Time::from_nanos(500),
        uplink_delay: Time::from_nanos(500),
        queue: leaf_spine(1, 2, 1).queue,
    }
}

/// The switches on the way of a path, by name.
fn switches(fabric: &Fabric<Pattern>, flow: FlowId, path: u16) -> Vec<String> {
    let way = fabric.way(flow, PathId(path)).unwrap();
    let (_, last) = fabric.ends(*way.last().unwrap());
    assert_eq!(last, End::Host(fabric.flow(flow).unwrap().to), "path {path} leads where it should");
    let ends = way.iter().map(|&link| fabric.ends(link).1).filter(|end| matches!(end, End::Switch(_)));
    ends.map(|end| fabric.graph().name_of(end)).collect()
}

#[test]
fn half_of_the_paths_lead_through_each_plane_and_stay_in_it() {
    let graph = hpn(2, 8).graph().unwrap();
    let mut fabric = Fabric::new(config(128, 1), graph, |_| Pattern::new(0)).unwrap();
    // Host 1 is the second rail of the first segment, host 4 the first rail of the second.
    let flow = fabric.connect(1, 4).unwrap();
    let (mut planes, mut aggs) = ([0, 0], BTreeSet::new());
    for path in 0..128 {
        let way = switches(&fabric, flow, path);
        let number = |name: &str, kind: &str| name.strip_prefix(kind).unwrap().parse::<usize>().unwrap();
        let (up, agg, down) = (number(&way[0], "tor"), number(&way[1], "agg"), number(&way[2], "tor"));
        let plane = up % 2;
        assert_eq!((up, agg / 8, down), (2 + plane, plane, 4 + plane), "{way:?}");
        planes[plane] += 1;
        aggs.insert(agg);
    }
    assert_eq!(planes, [64, 64]);
    assert!(aggs.len() >= 15, "64 hashes miss one of 8 once in a thousand times: {aggs:?}");
}

/// Sends `bytes` from host 0 to host 4 and returns how long they took, after `prepare`.
fn took(graph: Graph, bytes: u32, prepare: impl FnOnce(&mut Fabric<Pattern>)) -> (Fabric<Pattern>, Time) {
    let mut fabric = Fabric::new(config(128, 3), graph, |_| Pattern::new(2 * bytes as usize)).unwrap();
    let flow = fabric.connect(0, 4).unwrap();
    at_rest(&mut fabric);
    prepare(&mut fabric);
    let begin = fabric.now();
    fabric.post(Post { remote: bytes.into(), ..write(flow, 0, bytes) }).unwrap();
    let notices = run(&mut fabric, 1, begin.after(Time::from_nanos(50_000_000)));
    assert_eq!(notices.len(), 2);
    let origin = Origin { host: 0, address: 0 };
    fabric.ground(4).unwrap().check(bytes.into(), bytes.into(), origin).unwrap();
    let took = crate::net::received(&notices, 0).unwrap().since(begin);
    (fabric, took)
}

fn bytes_of(fabric: &Fabric<Pattern>, group: &str) -> u64 {
    let group = fabric.graph().groups.iter().find(|found| found.name == group).unwrap();
    let all: BTreeSet<LinkId> =
        group.switches.iter().flat_map(|&switch| fabric.links_at(End::Switch(switch))).collect();
    all.iter().map(|link| fabric.links()[link.0 as usize].counts().bytes).sum()
}

fn plane_links(fabric: &Fabric<Pattern>, plane: usize) -> Vec<LinkId> {
    let switches = &fabric.graph().groups[plane].switches;
    let links: BTreeSet<LinkId> =
        switches.iter().flat_map(|&switch| fabric.links_at(End::Switch(switch))).collect();
    links.into_iter().collect()
}

#[test]
fn one_flow_uses_the_bandwidth_of_both_ports() {
    let bytes = 8 << 20;
    let (fabric, took) = took(hpn(2, 8).graph().unwrap(), bytes, |_| {});
    let gbps = f64::from(bytes) * 8_000.0 / took.0 as f64;
    assert!((180.0..200.0).contains(&gbps), "two ports of 100 Gbit/s less headers: {gbps:.1}");
    let (first, second) = (bytes_of(&fabric, "plane0"), bytes_of(&fabric, "plane1"));
    let share = first as f64 / (first + second) as f64;
    assert!((0.49..0.51).contains(&share), "{first} and {second} bytes");
}

#[test]
fn a_plane_that_is_down_leaves_the_other() {
    let bytes = 4 << 20;
    let (fabric, took) = took(hpn(2, 8).graph().unwrap(), bytes, |fabric| {
        let at = fabric.now().after(Time::from_nanos(50_000));
        fabric.change_at(at, plane_links(fabric, 1), Change::Down);
    });
    let least = Rate::from_bits_per_second(100 * GBPS).unwrap().serialisation(bytes.into());
    assert!(took < Time(least.0 * 13 / 10), "{took}, one port needs {least} at least");
    let cut: u64 = fabric.links().iter().map(|link| link.counts().cut).sum();
    assert!(cut > 0 && cut < 400, "what was under way is lost, and the NIC sends nothing after it: {cut}");
}

/// The NIC's own cable is up, so only transport can find out.
#[test]
fn a_plane_that_swallows_everything_is_avoided() {
    let bytes = 4 << 20;
    let (_, took) = took(hpn(2, 8).graph().unwrap(), bytes, |fabric| {
        let switches: Vec<LinkId> = plane_links(fabric, 1);
        let inner = |link: &LinkId| !matches!(fabric.ends(*link).0, End::Host(_));
        let links = switches.into_iter().filter(inner).collect();
        fabric.change_at(fabric.now().after(Time::from_nanos(50_000)), links, Change::Loss(1_000_000));
    });
    assert!(took < Time::from_nanos(5_000_000), "{took}");
}

/// Two leaves for each host, but all leaves meet at all spines: when a host's cable is gone and routing knows, its packets
/// come by the other leaf.
#[test]
fn where_leaves_meet_routing_leads_round_a_cable_that_is_down() {
    let mut graph = leaf_spine(4, 2, 4).graph().unwrap();
    let second = |cable: &srdma_fabric::Cable| match (cable.from, cable.to) {
        (host @ End::Host(_), End::Switch(leaf)) => {
            Some(srdma_fabric::Cable { from: host, to: End::Switch(leaf ^ 1), ..*cable })
        }
        _ => None,
    };
    let more: Vec<_> = graph.cables.iter().filter_map(second).collect();
    graph.cables.extend(more);
    let (fabric, _) = took(graph, 4 << 20, |fabric| {
        let leaf = fabric.graph().switch_named("leaf2").unwrap();
        let links = fabric.links_between(End::Host(4), End::Switch(leaf));
        let at = fabric.now().after(Time::from_nanos(30_000));
        fabric.change_at(at, links, Change::Down);
        fabric.change_at(at.after(Time::from_nanos(20_000)), Vec::new(), Change::Reroute);
    });
    assert_eq!(fabric.unroutable(), 0);
    let leaf = |name| End::Switch(fabric.graph().switch_named(name).unwrap());
    for path in 0..128 {
        let way = fabric.way(FlowId(0), PathId(path)).unwrap();
        assert_eq!(fabric.ends(*way.last().unwrap()), (leaf("leaf3"), End::Host(4)), "path {path}");
    }
}
