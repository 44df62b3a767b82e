//! What the header of a bulk packet costs: written alone, written as part of a unit, read.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use srdma_seams::{ConnectionId, PathId, Qpn, TransmitId};
use srdma_wire::{emit_data, emit_run, parse, Data, Follower, Message, Op, UnitTag, DATA_HEADER_BYTES_MAX};

/// What fits into one burst at an MTU of 1,500.
const PACKETS: u8 = 44;
const PAYLOAD_BYTES: u32 = 1_400;

fn headers(c: &mut Criterion) {
    let first = Data {
        dest_qpn: Qpn(0x0012_3456),
        connection: ConnectionId(0x0123_4567_89ab_cdef),
        psn: 5_000,
        unit: UnitTag { transmit: TransmitId(77), path: PathId(5), index: 0, packets: PACKETS },
        message: Message { msn: 9, length: 1 << 20, offset: 616_000 },
        solicited: false,
        part: None,
        payload_crc: None,
        tag: None,
        op: Op::Write { address: 0x7f00_1234_5678, rkey: 42 },
    };
    let mut out = [0; PACKETS as usize * DATA_HEADER_BYTES_MAX];
    let mut group = c.benchmark_group("headers");
    group.throughput(Throughput::Elements(PACKETS.into()));
    group.bench_function("emit_alone", |bench| {
        bench.iter(|| {
            let mut at = 0;
            for step in 0..PACKETS {
                let data = black_box(&first).continued(step, PAYLOAD_BYTES).unwrap();
                at += emit_data(&data, &mut out[at..]).unwrap();
            }
            at
        });
    });
    group.bench_function("emit_run", |bench| {
        bench.iter(|| emit_run(black_box(&first), PACKETS, PAYLOAD_BYTES, &mut out).unwrap());
    });
    let bytes = emit_run(&first, PACKETS, PAYLOAD_BYTES, &mut out).unwrap();
    let datagrams: Vec<Vec<u8>> =
        out.chunks(bytes).take(PACKETS.into()).map(|header| [header, &[0; 1_400]].concat()).collect();
    group.bench_function("parse_alone", |bench| {
        bench.iter(|| datagrams.iter().filter(|datagram| parse(black_box(datagram)).is_ok()).count());
    });
    group.bench_function("parse_following", |bench| {
        let mut follower = Follower::new();
        bench
            .iter(|| datagrams.iter().filter(|datagram| follower.parse(black_box(datagram)).is_ok()).count());
    });
    let burst = datagrams.concat();
    group.bench_function("parse_run", |bench| {
        let (mut follower, stride) = (Follower::new(), bytes + PAYLOAD_BYTES as usize);
        bench.iter(|| {
            follower.parse(black_box(&datagrams[0])).unwrap();
            assert_eq!(follower.continues(black_box(&burst), stride, PACKETS.into()), u32::from(PACKETS));
        });
    });
    group.finish();
}

criterion_group!(benches, headers);
criterion_main!(benches);
