//! Small networks and settings of a fast fabric.

use srdma_fabric::{
    Fabric, FabricConfig, FlowId, Ground, LeafSpine, Notice, Pattern, Post, QueueLimits, Rate, Stop, Time,
};
use srdma_seams::Duration;
use srdma_transport::{Config, SelectorKind};

pub const GBPS: u64 = 1_000_000_000;

/// One packet at a time over `paths` paths, with the times of a datacentre.
pub fn transport(paths: u16) -> Config {
    Config {
        paths,
        selector: if paths == 1 { SelectorKind::Single } else { SelectorKind::Oblivious },
        unit_packets_max: 1,
        window_initial_bytes: 512 << 10,
        window_max_bytes: 4 << 20,
        packet_overhead_bytes: 0,
        target_delay: Duration::from_micros(20),
        rto_min: Duration::from_micros(250),
        ..Config::default()
    }
}

pub fn config(paths: u16, seed: u64) -> FabricConfig {
    FabricConfig { seed, transport: transport(paths), audit_every: 64, ..FabricConfig::default() }
}

pub fn leaf_spine(leaves: u32, hosts_per_leaf: u32, spines: u32) -> LeafSpine {
    let rate = Rate::from_bits_per_second(100 * GBPS).unwrap();
    LeafSpine {
        leaves,
        hosts_per_leaf,
        spines,
        host_rate: rate,
        spine_rate: rate,
        host_delay: Time::from_nanos(600),
        spine_delay: Time::from_nanos(900),
        queue: QueueLimits { bytes: 8 << 20, ecn_min_bytes: 200 << 10, ecn_max_bytes: 800 << 10 },
    }
}

/// Runs until `limit` or until `wanted` messages have been sent and received; what was noticed.
pub fn run<G: Ground>(fabric: &mut Fabric<G>, wanted: usize, limit: Time) -> Vec<Notice> {
    let mut notices = Vec::new();
    while notices.len() < 2 * wanted {
        let stop = fabric.run_until(limit).expect("packets neither appear nor vanish");
        fabric.take_notices(&mut notices);
        if stop == Stop::Limit {
            break;
        }
    }
    notices
}

/// Every flow connected, and nothing under way.
pub fn at_rest<G: Ground>(fabric: &mut Fabric<G>) {
    let until = fabric.now().after(Time::from_nanos(100_000));
    assert_eq!(fabric.run_until(until).unwrap(), Stop::Limit);
    assert_eq!(fabric.audit().unwrap().flying, (0, 0));
}

pub fn received(notices: &[Notice], wanted: u32) -> Option<Time> {
    notices.iter().find_map(|notice| match *notice {
        Notice::Received { at, message } if message == wanted => Some(at),
        _ => None,
    })
}

pub fn write(flow: FlowId, message: u32, bytes: u32) -> Post {
    Post { flow, message, bytes, local: 0, remote: 0 }
}

/// `flows` flows from hosts of one leaf to those of the other; each sends `bytes` over memory that checks itself.
/// Returns the fabric when all has arrived, and what was noticed.
pub fn across(
    config: FabricConfig,
    flows: u32,
    bytes: u32,
    prepare: impl FnOnce(&mut Fabric<Pattern>),
) -> (Fabric<Pattern>, Vec<FlowId>, Vec<Notice>) {
    let graph = leaf_spine(2, flows, 4).graph().unwrap();
    let mut fabric = Fabric::new(config, graph, |_| Pattern::new(2 * bytes as usize)).unwrap();
    let ids: Vec<FlowId> = (0..flows).map(|host| fabric.connect(host, flows + host).unwrap()).collect();
    at_rest(&mut fabric);
    prepare(&mut fabric);
    for (message, flow) in ids.iter().enumerate() {
        fabric.post(Post { remote: bytes.into(), ..write(*flow, message as u32, bytes) }).unwrap();
    }
    let limit = fabric.now().after(Time::from_nanos(200_000_000));
    let notices = run(&mut fabric, ids.len(), limit);
    (fabric, ids, notices)
}
