//! What a packet of bulk traffic costs from work request to header and from header to completion, both ends
//! together, without sockets and without data.
//!
//! Times depend on the machine; instructions hardly do:
//! `valgrind --tool=callgrind target/release/deps/bulk-… --bench --profile-time 1` shows where they go.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../tests/pair/mod.rs"]
mod pair;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use srdma_abi::Opcode;
use srdma_seams::Now;

fn bulk(c: &mut Criterion) {
    let mut group = c.benchmark_group("bulk");
    for (name, opcode, length) in [
        ("write_1_mib", Opcode::Write, 1 << 20),
        ("read_1_mib", Opcode::Read, 1 << 20),
        ("write_64_b", Opcode::Write, 64),
    ] {
        let mut ends = pair::pair(opcode, length, 1472);
        let mut now = Now(0);
        let mut packets = 0;
        for _ in 0..20 {
            packets = pair::post(&mut ends, &mut now, 8, 30);
        }
        group.throughput(Throughput::Elements(packets));
        group.bench_function(name, |bench| bench.iter(|| pair::post(&mut ends, &mut now, 8, 30)));
    }
    group.finish();
}

criterion_group!(benches, bulk);
criterion_main!(benches);
