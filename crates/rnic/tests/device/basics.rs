//! Each operation once, over a perfect link.

use srdma_abi::{Opcode, SendFlags, WcFlags, WcOpcode};
use srdma_seams::Duration;

use crate::host::BASE;
use crate::net::*;

const SECOND: Duration = Duration::from_secs(1);

fn pattern(length: usize, salt: u8) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(salt) ^ (i >> 8) as u8).collect()
}

#[test]
fn a_write_puts_bytes_there_and_completes_once() {
    for length in [1u32, 8, 1000, 1448, 5000, 100_000] {
        let (mut net, a, b) = Net::connected(1, Options::default());
        let (from, to) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL));
        let bytes = pattern(length as usize, 3);
        net.hosts[0].world.set(BASE + 64, &bytes);
        net.post(a, to_remote(entry(Opcode::Write, 77, &[sge(64, length, from)]), 4096, to));
        net.run_for(SECOND);
        assert_eq!(net.hosts[1].world.bytes(BASE + 4096, u64::from(length)), bytes);
        let done = net.poll(a, a.send_cq);
        assert_eq!(done.len(), 1);
        assert_eq!((done[0].wr_id, done[0].status, done[0].opcode), (77, 0, WcOpcode::Write as u8));
        assert!(net.poll(b, b.recv_cq).is_empty(), "a WRITE is silent at its target");
    }
}

#[test]
fn a_send_fills_the_receive_it_meets() {
    let (mut net, a, b) = Net::connected(2, Options::default());
    let (from, to) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL));
    let bytes = pattern(10_000, 9);
    net.hosts[0].world.set(BASE, &bytes);
    net.post_recv(b, 5, &[sge(0, 3000, to), sge(8000, 0, to), sge(10_000, 9000, to)]);
    let mut send = entry(Opcode::SendImm, 6, &[sge(0, 4000, from), sge(4000, 6000, from)]);
    send.imm = 0xabcd;
    send.flags = SendFlags::SIGNALED.with(SendFlags::SOLICITED);
    net.post(a, send);
    net.run_for(SECOND);
    let done = net.poll(b, b.recv_cq);
    assert_eq!(done.len(), 1);
    let recv = done[0];
    assert_eq!((recv.wr_id, recv.status, recv.byte_len, recv.imm), (5, 0, 10_000, 0xabcd));
    assert_eq!((recv.qpn, recv.src_qpn), (b.qpn.0, a.qpn.0));
    assert!(recv.flags.contains(WcFlags::IMM) && recv.flags.contains(WcFlags::SOLICITED));
    assert_eq!(net.hosts[1].world.bytes(BASE, 3000), &bytes[..3000]);
    assert_eq!(net.hosts[1].world.bytes(BASE + 10_000, 7000), &bytes[3000..]);
    assert_eq!(net.hosts[1].world.solicited, 1);
    assert_eq!(net.poll(a, a.send_cq).len(), 1);
}

#[test]
fn a_read_brings_bytes_back() {
    for length in [1u32, 8, 5000, 100_000] {
        let (mut net, a, _) = Net::connected(3, Options::default());
        let (to, from) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL));
        let bytes = pattern(length as usize, 1);
        net.hosts[1].world.set(BASE + 4096, &bytes);
        let half = length / 2;
        let local = [sge(0, half, to), sge(200_000, length - half, to)];
        net.post(a, to_remote(entry(Opcode::Read, 8, &local), 4096, from));
        net.run_for(SECOND);
        let done = net.poll(a, a.send_cq);
        assert_eq!((done.len(), done[0].status, done[0].byte_len), (1, 0, length));
        assert_eq!(net.hosts[0].world.bytes(BASE, u64::from(half)), &bytes[..half as usize]);
        assert_eq!(
            net.hosts[0].world.bytes(BASE + 200_000, u64::from(length - half)),
            &bytes[half as usize..]
        );
    }
}

#[test]
fn atomics_change_the_target_once_and_return_what_was_there() {
    let (mut net, a, _) = Net::connected(4, Options::default());
    let (to, at) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.hosts[1].world.set(BASE + 8, &41u64.to_ne_bytes());
    let mut add = to_remote(entry(Opcode::FetchAdd, 1, &[sge(0, 8, to)]), 8, at);
    add.compare_add = 2;
    net.post(a, add);
    // The result may be scattered too.
    let mut swap = to_remote(entry(Opcode::CompareSwap, 2, &[sge(8, 3, to), sge(11, 5, to)]), 8, at);
    (swap.compare_add, swap.swap) = (43, 99);
    net.post(a, swap);
    let mut miss = to_remote(entry(Opcode::CompareSwap, 3, &[sge(16, 8, to)]), 8, at);
    (miss.compare_add, miss.swap) = (43, 7);
    net.post(a, miss);
    net.run_for(SECOND);
    let done = net.poll(a, a.send_cq);
    assert_eq!(
        done.iter().map(|c| (c.wr_id, c.status, c.byte_len)).collect::<Vec<_>>(),
        [(1, 0, 8), (2, 0, 8), (3, 0, 8)]
    );
    let world = &net.hosts[0].world;
    assert_eq!([0, 8, 16].map(|at| world.word(BASE + at)), [41, 43, 99]);
    assert_eq!((net.hosts[1].world.word(BASE + 8), net.hosts[1].world.atomics_done), (99, 3));
}

#[test]
fn a_write_with_immediate_consumes_a_receive_and_tells_its_length() {
    let (mut net, a, b) = Net::connected(5, Options::default());
    let (from, to) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL));
    net.hosts[0].world.set(BASE, &pattern(9000, 4));
    net.post_recv(b, 1, &[]);
    let mut write = to_remote(entry(Opcode::WriteImm, 2, &[sge(0, 9000, from)]), 100, to);
    write.imm = 4711;
    net.post(a, write);
    net.run_for(SECOND);
    let done = net.poll(b, b.recv_cq);
    assert_eq!((done.len(), done[0].wr_id, done[0].byte_len, done[0].imm), (1, 1, 9000, 4711));
    assert_eq!(done[0].opcode, WcOpcode::RecvWriteImm as u8);
    assert_eq!(net.hosts[1].world.bytes(BASE + 100, 9000), pattern(9000, 4));
    assert_eq!(net.poll(a, a.send_cq).len(), 1);
}
