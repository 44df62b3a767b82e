//! A peer, and a program, that say anything at all: nothing panics, nothing outside the regions is
//! touched, and other queue pairs go on.

use srdma_abi::{Opcode, QpState, SendEntry, SendFlags, Sge};
use srdma_rnic::Order;
use srdma_seams::{Duration, Rng};
use srdma_wire::{Data, NakCode, Op, Packet};

use crate::host::{Sent, BASE};
use crate::net::*;

/// The regions of each host; everything else is out of bounds.
const OPEN: std::ops::Range<u64> = 4096..65536;

fn any_u32(rng: &mut Rng, near: u32) -> u32 {
    match rng.below(6) {
        0 => rng.next_u32(),
        1 => 0,
        2 => u32::MAX,
        3 => near,
        _ => near.wrapping_add(rng.below(20) as u32).wrapping_sub(10),
    }
}

fn any_u64(rng: &mut Rng, near: u64) -> u64 {
    match rng.below(6) {
        0 => rng.next_u64(),
        1 => u64::MAX - rng.below(16),
        _ => near.wrapping_add(rng.below(200_000)).wrapping_sub(100_000),
    }
}

fn any_op(rng: &mut Rng, key: u32) -> Op {
    let (address, rkey) =
        (any_u64(rng, BASE + OPEN.start), if rng.below(4) == 0 { rng.next_u32() } else { key });
    let receive = any_u32(rng, 3);
    let request = any_u32(rng, 3);
    match rng.below(9) {
        0 | 1 => Op::Write { address, rkey },
        2 => Op::WriteImm { address, rkey, imm: 1, receive, landed: rng.next_u32() },
        3 => Op::Send { receive, imm: None, landed: rng.next_u32() },
        4 => Op::ReadRequest { address, rkey, length: any_u32(rng, 1000) },
        5 => Op::CompareSwap { address, rkey, compare: 0, swap: 1 },
        6 => Op::FetchAdd { address: address & !7, rkey, add: 1 },
        7 => Op::ReadResponse { request },
        _ => Op::AtomicResponse { request, value: 7 },
    }
}

fn mangle_data(rng: &mut Rng, data: &mut Data, key: u32) {
    for _ in 0..=rng.below(3) {
        match rng.below(6) {
            0 => data.psn = any_u32(rng, data.psn),
            1 => data.message.msn = any_u32(rng, data.message.msn),
            2 => data.message.length = any_u32(rng, data.message.length),
            3 => data.message.offset = any_u32(rng, data.message.offset),
            4 => data.unit.index = rng.below(256) as u8,
            _ => data.op = any_op(rng, key),
        }
    }
}

fn mangle(rng: &mut Rng, sent: &mut Sent, key: u32) {
    match &mut sent.packet {
        Packet::Data(data) => mangle_data(rng, data, key),
        Packet::Ack(ack) => match rng.below(5) {
            0 => ack.cumulative = any_u32(rng, ack.cumulative),
            1 => ack.landed = any_u32(rng, ack.landed),
            2 => ack.block_count = rng.below(256) as u8,
            3 => ack.unit_count = rng.below(256) as u8,
            _ => ack.free_bytes = any_u32(rng, 0),
        },
        Packet::Hello(hello) => match rng.below(4) {
            0 => hello.first_psn = rng.next_u32(),
            1 => hello.window_packets = any_u32(rng, 1),
            2 => hello.probe_bytes = rng.below(65536) as u16,
            _ => hello.echo.0 ^= 1,
        },
        _ => {}
    }
    if rng.below(20) == 0 {
        if let Packet::Data(data) = sent.packet {
            let (dest_qpn, connection, path) = (data.dest_qpn, data.connection, data.unit.path);
            let msn = any_u32(rng, data.message.msn);
            let code = [NakCode::Rnr { timer: 255 }, NakCode::Fault, NakCode::Failed][rng.below(3) as usize];
            sent.packet = Packet::Nak(srdma_wire::Nak { dest_qpn, connection, path, msn, code });
        }
    }
    if rng.below(4) == 0 {
        sent.payload.resize(rng.below(1400) as usize, 0xbb);
    }
}

/// An entry as a hostile program might write it: any key, address, length, flag.
fn any_entry(rng: &mut Rng, wr_id: u64, lkey: u32, rkey: u32) -> SendEntry {
    let opcode = Opcode::from_code(1 + rng.below(7) as u8).unwrap();
    let sges: Vec<Sge> = (0..rng.below(5))
        .map(|_| {
            let length = any_u32(rng, 64) % [9, 3000, u32::MAX][rng.below(3) as usize];
            let lkey = if rng.below(20) == 0 { rng.next_u32() } else { lkey };
            Sge { address: BASE + OPEN.start + rng.below(4096), length, lkey }
        })
        .collect();
    let mut made = entry(opcode, wr_id, &sges);
    made.flags = SendFlags(rng.below(8) as u8);
    made.remote_address = (BASE + OPEN.start + rng.below(50_000)) & !7;
    made.rkey = rkey;
    made
}

/// Returns how often the victims had to be connected anew.
fn run(seed: u64) -> u64 {
    let mut rng = Rng::stream(seed, "hostile", 0);
    let order = [Order::Default, Order::Strict, Order::Relaxed][rng.below(3) as usize];
    let faults = Faults { loss_ppm: 20_000, ..Faults::SPREAD };
    let mut net = Net::new(seed, Options { order, faults, ..Options::default() });
    let keys = [0, 1].map(|host| net.region(host, OPEN.start, OPEN.end - OPEN.start, ALL));
    let (good, bad) = ([net.qp(0), net.qp(1)], [net.qp(0), net.qp(1)]);
    net.connect(good[0], good[1], attributes(), attributes());
    net.connect(bad[0], bad[1], attributes(), attributes());
    net.record = Some(vec![]);
    let (mut posted, mut restarts) = (0, 0);
    for round in 0..60u64 {
        if bad.iter().any(|&qp| net.state(qp) == QpState::Err) {
            bad.iter().for_each(|&qp| net.go(qp, QpState::Reset));
            net.connect(bad[0], bad[1], attributes(), attributes());
            restarts += 1;
        }
        for side in 0..2 {
            let made = any_entry(&mut rng, round, keys[side].0, keys[1 - side].0);
            if rng.below(2) == 0 {
                net.post(bad[side], made);
            }
            let receive =
                Sge { address: BASE + OPEN.start, length: any_u32(&mut rng, 3000), lkey: keys[side].0 };
            net.post_recv(bad[side], round, &[receive]);
        }
        if round % 6 == 0 {
            let bytes = [sge(OPEN.end - 64, 64, keys[0])];
            net.post(good[0], to_remote(entry(Opcode::Write, posted, &bytes), OPEN.end - 64, keys[1]));
            posted += 1;
        }
        net.run_for(Duration(rng.below(300_000)));
        let recorded = std::mem::take(net.record.as_mut().unwrap());
        for (host, mut sent) in recorded {
            let dest = match &sent.packet {
                Packet::Data(data) => data.dest_qpn,
                Packet::Ack(ack) => ack.dest_qpn,
                Packet::Hello(hello) => hello.dest_qpn,
                _ => continue,
            };
            if dest == bad[1 - host].qpn && rng.below(3) == 0 {
                mangle(&mut rng, &mut sent, keys[1 - host].0);
                net.fly(host, sent, 0);
            }
        }
    }
    net.run_for(Duration::from_secs(20));
    let done = net.poll(good[0], good[0].send_cq);
    assert_eq!(done.len() as u64, posted, "a neighbour suffered");
    assert!(done.iter().all(|c| c.status == 0));
    for host in &net.hosts {
        let memory = &host.world.memory;
        let (before, after) = (&memory[..OPEN.start as usize], &memory[OPEN.end as usize..]);
        assert!(before.iter().chain(after).all(|&byte| byte == 0), "bytes outside the regions");
    }
    for qp in good.into_iter().chain(bad) {
        net.destroy(qp);
    }
    for host in &mut net.hosts {
        assert!(host.world.holds.is_empty(), "payloads still held");
        assert_eq!(host.nic.next_timeout(), None);
    }
    restarts
}

#[test]
fn nothing_that_anybody_says_breaks_the_device() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("SRDMA_HOSTILE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SRDMA_HOSTILE_SEEDS").unwrap_or(200),
    };
    let mut restarts = 0;
    for seed in seeds.clone() {
        restarts += std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|_| {
            panic!("replay: SRDMA_HOSTILE_SEED={seed} cargo test -p srdma-rnic --test device hostile")
        });
    }
    let runs = seeds.end - seeds.start;
    assert!(restarts > 4 * runs && restarts < 50 * runs, "{restarts}: too tame, or dead at once");
}
