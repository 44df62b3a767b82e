//! Events per second of one thread: of the queue alone, and of a permutation over leaves and spines in which every host
//! has a production RNIC.
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{criterion_group, criterion_main, BatchSize, Criterion, Throughput};
use srdma_fabric::queue::{Entry, EventQueue};
use srdma_fabric::{Fabric, FabricConfig, LeafSpine, Nothing, Post, QueueLimits, Rate, Time};
use srdma_seams::{Duration, Rng};
use srdma_transport::Config;

/// Every event causes one other, a packet time and a propagation later.
fn queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue");
    let waiting = 50_000;
    group.throughput(Throughput::Elements(waiting));
    group.bench_function("turn over 50000", |bench| {
        let mut rng = Rng::new(1);
        let mut queue = EventQueue::new(Time(500_000));
        let entry = |at, item| Entry { at: Time(at), rank: 0, item, load: [0u64; 3] };
        (0..waiting).for_each(|item| queue.push(entry(rng.below(1_000_000), item as u32)));
        let mut taken = Vec::new();
        bench.iter(|| {
            let mut turned = 0;
            while turned < waiting {
                queue.take(Time::MAX, &mut taken).unwrap();
                turned += taken.len() as u64;
                for &Entry { at, item, .. } in &taken {
                    queue.push(entry(at.0 + 500_000 + rng.below(1_000_000), item));
                }
            }
        });
    });
    group.finish();
}

fn fabric(paths: u16) -> Fabric<Nothing> {
    let rate = Rate::from_bits_per_second(400_000_000_000).unwrap();
    let graph = LeafSpine {
        leaves: 8,
        hosts_per_leaf: 16,
        spines: 16,
        host_rate: rate,
        spine_rate: rate,
        host_delay: Time::from_nanos(500),
        spine_delay: Time::from_nanos(500),
        queue: QueueLimits { bytes: 8 << 20, ecn_min_bytes: 200 << 10, ecn_max_bytes: 800 << 10 },
    };
    let transport = Config {
        paths,
        unit_packets_max: 1,
        window_initial_bytes: 512 << 10,
        window_max_bytes: 4 << 20,
        packet_overhead_bytes: 0,
        target_delay: Duration::from_micros(20),
        rto_min: Duration::from_micros(250),
        ..Config::default()
    };
    let config = FabricConfig { transport, ..FabricConfig::default() };
    let mut fabric = Fabric::new(config, graph.graph().unwrap(), |_| Nothing).unwrap();
    let flows: Vec<_> = (0..128).map(|host| fabric.connect(host, (host + 64) % 128).unwrap()).collect();
    fabric.run_until(Time::from_nanos(100_000)).unwrap();
    for (message, &flow) in flows.iter().enumerate() {
        let (message, bytes) = (message as u32, 1 << 20);
        fabric.post(Post { flow, message, bytes, local: 0, remote: 0 }).unwrap();
    }
    fabric
}

fn finish(fabric: &mut Fabric<Nothing>) -> u64 {
    let before = fabric.events();
    let mut notices = Vec::new();
    while notices.len() < 2 * 128 {
        fabric.run_until(Time::from_nanos(50_000_000)).unwrap();
        fabric.take_notices(&mut notices);
    }
    fabric.events() - before
}

/// Elements are events; a data packet between leaves is ten of them, four hops each for it and its acknowledgement.
fn permutation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("permutation of 128 hosts, 1 MiB each");
    group.sample_size(10);
    for paths in [1, 128] {
        group.throughput(Throughput::Elements(finish(&mut fabric(paths))));
        group.bench_function(format!("{paths} paths"), |bench| {
            bench.iter_batched_ref(|| fabric(paths), finish, BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, queue, permutation);
criterion_main!(benches);
