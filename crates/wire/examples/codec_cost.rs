//! Nanoseconds that one header costs: `cargo run --release -p srdma-wire --example codec_cost`.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use srdma_seams::{ConnectionId, PathId, Qpn, TransmitId};
use srdma_wire::*;

const ROUNDS: u32 = 2_000_000;

/// Median of seven runs, in nanoseconds a round.
fn measure(name: &str, mut round: impl FnMut(u32)) {
    let mut runs: Vec<f64> = (0..7)
        .map(|_| {
            let start = Instant::now();
            (0..ROUNDS).for_each(&mut round);
            start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:28} {:7.1} ns (fastest {:.1})", runs[3], runs[0]);
}

fn main() {
    let data = Packet::Data(Data {
        dest_qpn: Qpn(0x12_3456),
        connection: ConnectionId(7),
        psn: 1,
        unit: UnitTag { transmit: TransmitId(1), path: PathId(3), index: 0, packets: 16 },
        message: Message { msn: 1, length: 1 << 20, offset: 0 },
        solicited: false,
        part: None,
        payload_crc: None,
        tag: None,
        op: Op::Write { address: 0x7f00_0000_0000, rkey: 9 },
    });
    let ack = Packet::Ack(Ack {
        dest_qpn: Qpn(0x12_3456),
        connection: ConnectionId(7),
        path: PathId(3),
        space: Space::Request,
        cumulative: 1,
        landed: 1,
        free_bytes: 1 << 20,
        block_count: 4,
        blocks: [AckBlock { first: 5, end: 9 }; ACK_BLOCKS_MAX],
        unit_count: 8,
        units: [AckUnit { packets: 16, ..AckUnit::default() }; ACK_UNITS_MAX],
    });
    let mut header = [0u8; HEADER_BYTES_MAX];
    measure("crc32c of 72 bytes", |_| {
        black_box(crc32c(black_box(&header[..72])));
    });
    for (name, packet, payload) in [("data", &data, 1400), ("ack, 4 blocks, 8 units", &ack, 0)] {
        let length = emit(packet, &mut header).unwrap();
        let mut datagram = header[..length].to_vec();
        datagram.resize(length + payload, 0);
        measure(&format!("emit {name}"), |_| {
            black_box(emit(black_box(packet), black_box(&mut header))).unwrap();
        });
        measure(&format!("parse {name}"), |_| {
            let (packet, offset) = parse(black_box(&datagram)).unwrap();
            black_box((&packet, offset));
        });
    }
    let bulk = vec![7u8; 1 << 16];
    let start = Instant::now();
    for _ in 0..4_000 {
        black_box(crc32c(black_box(&bulk)));
    }
    println!("crc32c of 64 KiB {:.2} GB/s", 4_000.0 * 65_536.0 / start.elapsed().as_nanos() as f64);
}
