//! Packets for tests: one of each kind at the extremes of its fields, and random ones from a seed.
#![allow(clippy::unwrap_used, dead_code)]

use srdma_seams::{ConnectionId, PathId, Qpn, Rng, TransmitId};
use srdma_wire::{
    emit, Ack, AckBlock, AckUnit, Close, Data, Echo, Hello, Message, Nak, NakCode, Op, Packet, Part, Space,
    UnitTag, ACK_BLOCKS_MAX, ACK_UNITS_MAX, HEADER_BYTES_MAX,
};

/// Every code with, for RNR, one timer.
pub const NAK_CODES: [NakCode; 9] = [
    NakCode::Rnr { timer: 31 },
    NakCode::Key,
    NakCode::Bounds,
    NakCode::Access,
    NakCode::Invalid,
    NakCode::Fault,
    NakCode::ReceiveTooSmall,
    NakCode::TooManyReads,
    NakCode::Failed,
];

/// Whether payload follows packets of this operation.
pub fn has_payload(op: &Op) -> bool {
    matches!(op, Op::Write { .. } | Op::WriteImm { .. } | Op::Send { .. } | Op::ReadResponse { .. })
}

/// The packet as it travels: header, some payload if it must have one, padding if it announces some.
pub fn to_datagram(packet: &Packet) -> Vec<u8> {
    let mut datagram = vec![0; HEADER_BYTES_MAX];
    let length = emit(packet, &mut datagram).unwrap();
    datagram.truncate(length);
    let total = match packet {
        Packet::Hello(hello) => length.max(usize::from(hello.probe_bytes)),
        Packet::Echo(echo) => length.max(usize::from(echo.probe_bytes)),
        Packet::Data(data) if has_payload(&data.op) => {
            length + (data.message.length - data.message.offset).min(16) as usize
        }
        _ => length,
    };
    datagram.resize(total, 0);
    datagram
}

fn op(kind: u64, rng: &mut Rng) -> Op {
    let (address, rkey) = (rng.next_u64(), rng.next_u32());
    match kind {
        0 => Op::Write { address, rkey },
        1 => Op::WriteImm {
            address,
            rkey,
            imm: rng.next_u32(),
            receive: rng.next_u32(),
            landed: rng.next_u32(),
        },
        2 => Op::Send { receive: rng.next_u32(), imm: None, landed: rng.next_u32() },
        3 => Op::Send { receive: rng.next_u32(), imm: Some(rng.next_u32()), landed: rng.next_u32() },
        4 => Op::ReadRequest { address, rkey, length: rng.next_u32() },
        5 => Op::ReadResponse { request: rng.next_u32() },
        6 => Op::CompareSwap { address, rkey, compare: rng.next_u64(), swap: rng.next_u64() },
        7 => Op::FetchAdd { address, rkey, add: rng.next_u64() },
        _ => Op::AtomicResponse { request: rng.next_u32(), value: rng.next_u64() },
    }
}

fn data(rng: &mut Rng) -> Data {
    let kind = rng.below(9);
    let op = op(kind, rng);
    let packets = 1 + rng.below(64) as u8;
    let length = if has_payload(&op) { rng.next_u32() >> rng.below(32) } else { 0 };
    let parts = 2 + rng.below(63) as u8;
    let part = Part { index: rng.below(u64::from(parts)) as u8, count: parts };
    let part = (has_payload(&op) && rng.below(4) == 0).then_some(part);
    Data {
        dest_qpn: Qpn(rng.next_u32() >> 8),
        connection: ConnectionId(rng.next_u64()),
        psn: rng.next_u32(),
        unit: UnitTag {
            transmit: TransmitId(rng.next_u32()),
            path: PathId(rng.below(256) as u16),
            index: rng.below(u64::from(packets)) as u8,
            packets,
        },
        message: Message { msn: rng.next_u32(), length, offset: rng.below(u64::from(length)) as u32 },
        solicited: rng.below(2) == 0,
        part,
        payload_crc: (rng.below(2) == 0).then(|| rng.next_u32()),
        tag: (rng.below(4) == 0).then(|| core::array::from_fn(|_| rng.next_u32() as u8)),
        op,
    }
}

fn ack(rng: &mut Rng) -> Ack {
    let mut ack = Ack {
        dest_qpn: Qpn(rng.next_u32() >> 8),
        connection: ConnectionId(rng.next_u64()),
        path: PathId(rng.below(256) as u16),
        space: if rng.below(2) == 0 { Space::Request } else { Space::Response },
        cumulative: rng.next_u32(),
        landed: rng.next_u32(),
        free_bytes: rng.next_u32(),
        block_count: rng.below(ACK_BLOCKS_MAX as u64 + 1) as u8,
        blocks: [AckBlock::default(); ACK_BLOCKS_MAX],
        unit_count: rng.below(ACK_UNITS_MAX as u64 + 1) as u8,
        units: [AckUnit::default(); ACK_UNITS_MAX],
    };
    for block in ack.blocks.iter_mut().take(usize::from(ack.block_count)) {
        let first = rng.next_u32();
        *block = AckBlock { first, end: first.wrapping_add(1 + rng.below(1 << 17) as u32) };
    }
    for unit in ack.units.iter_mut().take(usize::from(ack.unit_count)) {
        let packets = 1 + rng.below(64) as u8;
        *unit = AckUnit {
            transmit: TransmitId(rng.next_u32()),
            path: PathId(rng.below(256) as u16),
            packets,
            ce: rng.below(u64::from(packets) + 1) as u8,
            delay_us: rng.next_u32() as u16,
        };
    }
    ack
}

fn hello(rng: &mut Rng) -> Hello {
    Hello {
        dest_qpn: Qpn(rng.next_u32() >> 8),
        src_qpn: Qpn(rng.next_u32() >> 8),
        version: rng.next_u32() as u8,
        connection: ConnectionId(rng.next_u64() | 1),
        echo: ConnectionId(rng.next_u64()),
        reply_wanted: rng.below(2) == 0,
        measuring: rng.below(2) == 0,
        claimed_address: core::array::from_fn(|_| rng.next_u32() as u8),
        observed_address: core::array::from_fn(|_| rng.next_u32() as u8),
        observed_port: rng.next_u32() as u16,
        probe_bytes: rng.below(9000) as u16,
        proven_bytes: rng.next_u32() as u16,
        paths: 1 + rng.below(256) as u16,
        window_packets: 1 + rng.below(1 << 17) as u32,
        free_bytes: rng.next_u32(),
        features: rng.next_u32(),
        first_psn: rng.next_u32(),
    }
}

fn echo(rng: &mut Rng) -> Echo {
    Echo {
        nonce: rng.next_u64(),
        sequence: rng.next_u32(),
        path: PathId(rng.below(256) as u16),
        reply: rng.below(2) == 0,
        version: rng.next_u32() as u8,
        observed_ttl: rng.next_u32() as u8,
        observed_address: core::array::from_fn(|_| rng.next_u32() as u8),
        observed_port: rng.next_u32() as u16,
        probe_bytes: rng.below(9000) as u16,
    }
}

/// A random packet whose fields are in range.
pub fn packet(rng: &mut Rng) -> Packet {
    match rng.below(8) {
        0 => Packet::Hello(hello(rng)),
        1 => Packet::Echo(echo(rng)),
        2 => Packet::Ack(ack(rng)),
        3 => Packet::Nak(Nak {
            dest_qpn: Qpn(rng.next_u32() >> 8),
            connection: ConnectionId(rng.next_u64()),
            path: PathId(rng.below(256) as u16),
            msn: rng.next_u32(),
            code: NAK_CODES[rng.below(NAK_CODES.len() as u64) as usize],
        }),
        4 => Packet::Close(Close {
            dest_qpn: Qpn(rng.next_u32() >> 8),
            connection: ConnectionId(rng.next_u64()),
        }),
        _ => Packet::Data(data(rng)),
    }
}

const QPN: Qpn = Qpn(0x12_3456);
const CONNECTION: ConnectionId = ConnectionId(0x0102_0304_0506_0708);

/// A data packet of `op` with telling values everywhere.
pub fn data_of(op: Op) -> Data {
    let (length, offset) = if has_payload(&op) { (0x0010_0000, 0x2000) } else { (0, 0) };
    Data {
        dest_qpn: QPN,
        connection: CONNECTION,
        psn: 0xa1a2_a3a4,
        unit: UnitTag { transmit: TransmitId(0xb1b2_b3b4), path: PathId(0x7f), index: 2, packets: 16 },
        message: Message { msn: 0xc1c2_c3c4, length, offset },
        solicited: false,
        part: None,
        payload_crc: None,
        tag: None,
        op,
    }
}

/// One data packet of each operation.
pub fn ops() -> [(&'static str, Op); 9] {
    let (address, rkey) = (0x7f01_0203_0405_0607, 0xd1d2_d3d4);
    let (request, receive) = (0xe1e2_e3e4, 0xf1f2_f3f4);
    // The program stored 0x01020304 in network order.
    let imm = u32::from_le_bytes([1, 2, 3, 4]);
    [
        ("write", Op::Write { address, rkey }),
        ("write_imm", Op::WriteImm { address, rkey, imm, receive, landed: u32::MAX }),
        ("send", Op::Send { receive, imm: None, landed: 0 }),
        ("send_imm", Op::Send { receive, imm: Some(imm), landed: 7 }),
        ("read_request", Op::ReadRequest { address, rkey, length: 0x0010_0000 }),
        ("read_response", Op::ReadResponse { request }),
        ("compare_swap", Op::CompareSwap { address, rkey, compare: 0x1112_1314_1516_1718, swap: 7 }),
        ("fetch_add", Op::FetchAdd { address, rkey, add: 0x2122_2324_2526_2728 }),
        ("atomic_response", Op::AtomicResponse { request, value: 0x3132_3334_3536_3738 }),
    ]
}

/// A HELLO with telling values everywhere.
pub fn hello_sample() -> Hello {
    Hello {
        dest_qpn: QPN,
        src_qpn: Qpn(0x65_4321),
        version: 1,
        connection: CONNECTION,
        echo: ConnectionId(0x1112_1314_1516_1718),
        reply_wanted: true,
        measuring: false,
        claimed_address: core::array::from_fn(|i| 0x40 + i as u8),
        observed_address: core::array::from_fn(|i| 0x60 + i as u8),
        observed_port: 0xc123,
        probe_bytes: 1472,
        proven_bytes: 1200,
        paths: 128,
        window_packets: 1 << 17,
        free_bytes: 0x0034_0000,
        features: 2,
        first_psn: 0xa1a2_a3a4,
    }
}

/// An ECHO reply with telling values everywhere.
pub fn echo_sample() -> Echo {
    Echo {
        nonce: 0x2122_2324_2526_2728,
        sequence: 0xa1a2_a3a4,
        path: PathId(0x7f),
        reply: true,
        version: 1,
        observed_ttl: 63,
        observed_address: core::array::from_fn(|i| 0x60 + i as u8),
        observed_port: 0xc123,
        probe_bytes: 100,
    }
}

/// An ACK with this many telling blocks and units.
pub fn ack_sample(block_count: usize, unit_count: usize) -> Ack {
    let mut ack = Ack {
        dest_qpn: QPN,
        connection: CONNECTION,
        path: PathId(0x7f),
        space: Space::Response,
        cumulative: 0xa1a2_a3a4,
        landed: 0xc1c2_c3c4,
        free_bytes: 0x0034_0000,
        block_count: block_count as u8,
        blocks: [AckBlock::default(); ACK_BLOCKS_MAX],
        unit_count: unit_count as u8,
        units: [AckUnit::default(); ACK_UNITS_MAX],
    };
    for (i, block) in ack.blocks.iter_mut().take(block_count).enumerate() {
        let first = 0xa1a2_b000 + i as u32 * 16;
        *block = AckBlock { first, end: first + 5 };
    }
    for (i, unit) in ack.units.iter_mut().take(unit_count).enumerate() {
        let transmit = TransmitId(0xb1b2_b300 + i as u32);
        *unit = AckUnit { transmit, path: PathId(i as u16), packets: 16, ce: 3, delay_us: 250 };
    }
    ack
}

/// A NAK with telling values everywhere.
pub fn nak_sample(code: NakCode) -> Nak {
    Nak { dest_qpn: QPN, connection: CONNECTION, path: PathId(0x7f), msn: 0xc1c2_c3c4, code }
}

/// A CLOSE with telling values everywhere.
pub fn close_sample() -> Close {
    Close { dest_qpn: QPN, connection: CONNECTION }
}

/// Every kind, and every field at its least and its most.
pub fn samples() -> Vec<(String, Packet)> {
    let mut samples = Vec::new();
    for (name, op) in ops() {
        let plain = data_of(op);
        samples.push((name.to_string(), Packet::Data(plain)));
        let full = Data {
            dest_qpn: Qpn(0xff_ffff),
            connection: ConnectionId(u64::MAX),
            psn: u32::MAX,
            unit: UnitTag { transmit: TransmitId(u32::MAX), path: PathId(255), index: 63, packets: 64 },
            solicited: true,
            part: None,
            payload_crc: Some(u32::MAX),
            tag: Some([0xff; 16]),
            ..plain
        };
        samples.push((format!("{name} full"), Packet::Data(full)));
        if has_payload(&op) {
            let part = Some(Part { index: 63, count: 64 });
            samples.push((format!("{name} part"), Packet::Data(Data { part, ..full })));
        }
        let empty = Data {
            dest_qpn: Qpn(0),
            connection: ConnectionId(0),
            psn: 0,
            unit: UnitTag { transmit: TransmitId(0), path: PathId(0), index: 0, packets: 1 },
            message: Message { msn: 0, length: 0, offset: 0 },
            ..plain
        };
        samples.push((format!("{name} empty"), Packet::Data(empty)));
    }
    for (blocks, units) in [(0, 0), (1, 0), (0, 1), (3, 7), (ACK_BLOCKS_MAX, ACK_UNITS_MAX)] {
        samples.push((format!("ack {blocks} {units}"), Packet::Ack(ack_sample(blocks, units))));
    }
    for code in NAK_CODES {
        samples.push((format!("nak {code:?}"), Packet::Nak(nak_sample(code))));
    }
    samples.push(("close".to_string(), Packet::Close(close_sample())));
    let hello = hello_sample();
    samples.push(("hello".to_string(), Packet::Hello(hello)));
    samples.push(("hello unpadded".to_string(), Packet::Hello(Hello { probe_bytes: 0, ..hello })));
    let most = Hello { paths: 256, version: 255, features: u32::MAX, probe_bytes: u16::MAX, ..hello };
    samples.push(("hello most".to_string(), Packet::Hello(most)));
    let least = Hello {
        echo: ConnectionId(0),
        connection: ConnectionId(1),
        reply_wanted: false,
        measuring: true,
        paths: 1,
        window_packets: 1,
        ..hello
    };
    samples.push(("hello least".to_string(), Packet::Hello(least)));
    samples.push(("echo".to_string(), Packet::Echo(echo_sample())));
    let probe = Echo { reply: false, observed_ttl: 0, observed_port: 0, probe_bytes: 1472, ..echo_sample() };
    samples.push(("echo probe".to_string(), Packet::Echo(probe)));
    samples
}
