//! In the steady state the simulator allocates nothing, and the RNIC in its hosts hardly anything: what overlaps among
//! WRITEs that come out of order is kept in a tree, one of whose nodes comes and goes with some forty packets. A test of
//! its own, because it counts every allocation of the process.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use srdma_fabric::{
    Change, Fabric, FabricConfig, FlowId, Graph, Hpn, LeafSpine, LinkId, Nothing, Notice, Post, QueueLimits,
    Rate, SharedBuffer, Time,
};
use srdma_transport::Config;

struct Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above with the same layout, as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const QUEUE: QueueLimits = QueueLimits { bytes: 8 << 20, ecn_min_bytes: 200 << 10, ecn_max_bytes: 800 << 10 };

fn leaf_spine() -> Graph {
    let rate = Rate::from_bits_per_second(100_000_000_000).unwrap();
    let network = LeafSpine {
        leaves: 2,
        hosts_per_leaf: 8,
        spines: 8,
        host_rate: rate,
        spine_rate: rate,
        host_delay: Time::from_nanos(500),
        spine_delay: Time::from_nanos(500),
        queue: QUEUE,
    };
    network.graph().unwrap()
}

/// Two ports for each host.
fn planes() -> Graph {
    let rate = Rate::from_bits_per_second(50_000_000_000).unwrap();
    let network = Hpn {
        pods: 1,
        segments: 2,
        servers: 4,
        nics: 2,
        planes: 2,
        aggs: 4,
        agg_uplinks: 0,
        cores: 0,
        port_rate: rate,
        uplink_rate: rate,
        port_delay: Time::from_nanos(500),
        uplink_delay: Time::from_nanos(500),
        queue: QUEUE,
    };
    network.graph().unwrap()
}

fn fabric(graph: Graph) -> Fabric<Nothing> {
    let transport = Config {
        unit_packets_max: 1,
        window_max_bytes: 1 << 20,
        packet_overhead_bytes: 0,
        ..Config::default()
    };
    let config = FabricConfig { transport, ..FabricConfig::default() };
    Fabric::new(config, graph, |_| Nothing).unwrap()
}

#[test]
fn steady_traffic_hardly_allocates() {
    let (allocated, sent) = steady(fabric(leaf_spine()));
    assert!(sent > 50_000, "traffic flows: {sent}");
    assert!(allocated <= sent / 20, "{allocated} allocations for {sent} packets");
    // Ports, shared buffers and what wires do besides add nothing to what the RNICs need.
    let (plain, sent) = steady(fabric(planes()));
    let mut graph = planes();
    let buffer = Some(SharedBuffer { bytes: 256 << 20, alpha_128ths: 1024 });
    graph.switches.iter_mut().for_each(|switch| switch.buffer = buffer);
    let mut full = fabric(graph);
    let links: Vec<LinkId> = (0..full.links().len() as u32).map(LinkId).collect();
    full.change_at(Time(0), links, Change::Bursts { loss_ppm: 1, packets: 1_000_000 });
    let (with, same) = steady(full);
    assert!(sent > 50_000 && same.abs_diff(sent) < sent / 100, "{sent} and {same} packets");
    assert!(with <= plain + plain / 20 + 100, "{with} allocations, {plain} without");
}

/// Allocations, and packets sent, in three milliseconds.
fn steady(mut fabric: Fabric<Nothing>) -> (u64, u64) {
    let flows: Vec<FlowId> = (0..16).map(|host| fabric.connect(host, (host + 8) % 16).unwrap()).collect();
    let mut notices = Vec::with_capacity(1024);
    let mut posted = 0;
    let mut post = |fabric: &mut Fabric<Nothing>, flow: FlowId| {
        posted += 1;
        fabric.post(Post { flow, message: flow.0, bytes: 1 << 20, local: 0, remote: 0 }).unwrap();
    };
    flows.iter().for_each(|&flow| (0..3).for_each(|_| post(&mut fabric, flow)));
    // Two messages behind the one under way, always.
    let mut run = |fabric: &mut Fabric<Nothing>, until: Time| {
        while fabric.now() < until {
            fabric.run_until(until).unwrap();
            fabric.take_notices(&mut notices);
            for notice in notices.drain(..) {
                if let Notice::Sent { message, .. } = notice {
                    post(fabric, FlowId(message));
                }
            }
        }
    };
    run(&mut fabric, Time::from_nanos(3_000_000));
    let packets = |fabric: &Fabric<Nothing>| -> u64 {
        flows.iter().map(|&flow| fabric.counts(flow).unwrap().0.packets).sum()
    };
    let (before, sent) = (ALLOCATIONS.load(Ordering::Relaxed), packets(&fabric));
    run(&mut fabric, Time::from_nanos(6_000_000));
    (ALLOCATIONS.load(Ordering::Relaxed) - before, packets(&fabric) - sent)
}
