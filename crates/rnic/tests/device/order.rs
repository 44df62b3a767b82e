//! As if in order: notices, flags, fences, overlaps, numbers, duplicates.

use std::net::SocketAddr;

use srdma_abi::{Opcode, QpAttributes, QpState, SendFlags};
use srdma_memory::Rights;
use srdma_rnic::world::PayloadRef;
use srdma_rnic::{Batch, Order, Run};
use srdma_seams::event::{DropCause, Event};
use srdma_seams::{Duration, Rng};
use srdma_transport::Config;
use srdma_wire::{Op, Packet};

use crate::host::{Journal, Sent, BASE};
use crate::net::*;

const SECOND: Duration = Duration::from_secs(1);

fn spread() -> Options {
    Options { faults: Faults::SPREAD, ..Options::default() }
}

fn ok(done: &[srdma_abi::Completion]) -> Vec<u64> {
    done.iter().for_each(|c| assert_eq!(c.status, 0, "{c:?}"));
    done.iter().map(|c| c.wr_id).collect()
}

/// Whatever tells of data comes after the data, under random delays of 128 paths.
#[test]
fn no_notice_overtakes_the_writes_before_it() {
    for round in 0..1000u64 {
        let (mut net, a, b) = Net::connected(round, spread());
        let (local, remote) = (net.region(0, 0, 1 << 19, ALL), net.region(1, 0, 1 << 19, ALL));
        net.hosts[0].world.memory.fill(1);
        for i in 0..64 {
            let sges = [sge(i * 4096, 4096, local)];
            let mut write = to_remote(entry(Opcode::Write, i, &sges), i * 4096, remote);
            write.flags = SendFlags(0);
            net.post(a, write);
        }
        let flag = 400_000u64;
        match round % 4 {
            0 => {
                net.post_recv(b, 0, &[]);
                net.post(a, to_remote(entry(Opcode::WriteImm, 99, &[]), 0, remote));
            }
            1 => {
                net.post_recv(b, 0, &[sge(flag, 8, remote)]);
                net.post(a, entry(Opcode::Send, 99, &[sge(0, 8, local)]));
            }
            2 => {
                let mut add = to_remote(entry(Opcode::FetchAdd, 99, &[sge(450_000, 8, local)]), flag, remote);
                add.compare_add = 1;
                net.post(a, add);
            }
            _ => net.post(a, to_remote(entry(Opcode::Write, 99, &[sge(0, 8, local)]), flag, remote)),
        }
        let told = |net: &mut Net| match round % 4 {
            0 | 1 => !net.poll(b, b.recv_cq).is_empty(),
            _ => net.hosts[1].world.word(BASE + flag) != 0,
        };
        assert!(net.run_until(SECOND, told), "round {round}");
        assert!(net.hosts[1].world.bytes(BASE, 64 * 4096).iter().all(|&byte| byte == 1), "round {round}");
    }
}

#[test]
fn the_last_byte_of_a_write_comes_last() {
    let mut held = 0;
    for seed in 0..100 {
        let (mut net, a, _) = Net::connected(seed, spread());
        let (local, remote) = (net.region(0, 0, 1 << 19, ALL), net.region(1, 0, 1 << 19, ALL));
        let mut rng = Rng::stream(seed, "lengths", 0);
        net.hosts[0].world.memory.fill(1);
        let mut journal = Journal::default();
        let mut at = 0u64;
        for i in 0..40 {
            let length = 1 + rng.below(8000) as u32;
            journal.blocks.push((BASE + at, vec![1; length as usize]));
            net.post(a, to_remote(entry(Opcode::Write, i, &[sge(0, length, local)]), at, remote));
            at += u64::from(length);
        }
        net.hosts[1].world.journals.push(journal); // checked after every copy
        net.run_for(SECOND);
        assert_eq!(ok(&net.poll(a, a.send_cq)).len(), 40);
        held += net.hosts[1].counts.count(|event| matches!(event, Event::Held { .. }));
    }
    assert!(held > 1000, "only {held} packets were held: nothing was tested");
}

#[test]
fn a_relaxed_region_holds_nothing_and_strict_order_holds_everything_early() {
    let holds = |order, rights| {
        let (mut net, a, _) = Net::connected(5, Options { order, ..spread() });
        let (local, remote) = (net.region(0, 0, 1 << 19, ALL), net.region(1, 0, 1 << 19, rights));
        net.hosts[0].world.memory.fill(1);
        for i in 0..20 {
            net.post(a, to_remote(entry(Opcode::Write, i, &[sge(0, 8000, local)]), i * 8000, remote));
        }
        net.run_for(SECOND);
        assert_eq!(ok(&net.poll(a, a.send_cq)).len(), 20);
        assert!(net.hosts[1].world.bytes(BASE, 160_000).iter().all(|&byte| byte == 1));
        net.hosts[1].counts.count(|event| matches!(event, Event::Held { .. }))
    };
    let relaxed_region = Rights(ALL.0 | Rights::RELAXED_ORDERING.0);
    assert_eq!(holds(Order::Default, relaxed_region), 0);
    assert_eq!(holds(Order::Relaxed, ALL), 0);
    let (default, strict) = (holds(Order::Default, ALL), holds(Order::Strict, relaxed_region));
    assert!(default > 0 && strict > 2 * default, "{default} {strict}");
}

#[test]
fn a_full_hold_buffer_costs_time_not_bytes() {
    for order in [Order::Default, Order::Strict] {
        let (mut net, a, _) = Net::connected(6, Options { order, ..spread() });
        let (local, remote) = (net.region(0, 0, 1 << 19, ALL), net.region(1, 0, 1 << 19, ALL));
        net.hosts[0].world.memory.fill(1);
        net.hosts[1].world.holds_max = 1;
        for i in 0..50 {
            net.post(a, to_remote(entry(Opcode::Write, i, &[sge(0, 4000, local)]), i * 4000, remote));
        }
        net.run_for(Duration::from_secs(30));
        assert_eq!(ok(&net.poll(a, a.send_cq)).len(), 50, "{order:?}");
        assert!(net.hosts[1].counts.drops(DropCause::HoldFull) > 0);
        assert_eq!(net.hosts[1].world.holds_peak, 1);
    }
}

#[test]
fn where_writes_overlap_the_later_bytes_remain() {
    for seed in 0..200 {
        let (mut net, a, _) = Net::connected(seed, Options { datagram_bytes: 600, ..spread() });
        let (local, remote) = (net.region(0, 0, 1 << 19, ALL), net.region(1, 0, 1 << 16, ALL));
        let mut rng = Rng::stream(seed, "overlap", 0);
        let mut want = vec![0u8; 10_000];
        for i in 0..30u64 {
            let length = 1 + rng.below(5000);
            let to = rng.below(10_000 - length);
            net.hosts[0].world.set(BASE + i * 5000, &vec![i as u8 + 1; length as usize]);
            want[to as usize..(to + length) as usize].fill(i as u8 + 1);
            net.post(
                a,
                to_remote(entry(Opcode::Write, i, &[sge(i * 5000, length as u32, local)]), to, remote),
            );
        }
        net.run_for(SECOND);
        assert_eq!(ok(&net.poll(a, a.send_cq)).len(), 30);
        assert_eq!(net.hosts[1].world.bytes(BASE, 10_000), want, "seed {seed}");
    }
}

/// The last packet of a WRITE is held for want of the first. Both then arrive together with a later WRITE
/// over the same bytes, whose payloads go straight to memory: the held packet must not be copied over them.
#[test]
fn a_held_packet_is_not_copied_over_a_later_write_that_came_with_its_release() {
    const TICK_NS: u64 = 1_000_000;
    for seed in 0..60 {
        let faults = Faults { quantum_ns: TICK_NS, ..Faults::NONE };
        let transport = Config { unit_packets_max: 1, ..Config::default() };
        let (mut net, a, _) = Net::connected(seed, Options { faults, transport, ..Options::default() });
        let (local, remote) = (net.region(0, 0, 1 << 16, ALL), net.region(1, 0, 1 << 16, ALL));
        net.hosts[0].world.set(BASE, &[1; 1400 * 2 + 600]);
        net.hosts[0].world.set(BASE + 10_000, &[2; 1400 * 3]);
        // A connection that has sent something knows its peer and its round trip.
        net.post(a, to_remote(entry(Opcode::Write, 0, &[sge(0, 8, local)]), 60_000, remote));
        net.run_for(Duration(20 * TICK_NS));
        net.filter = Some(Box::new(|_, _, sent| match sent.packet {
            Packet::Data(data) if data.message.length == 3400 && data.message.offset < 2800 => {
                Verdict::Delay(TICK_NS)
            }
            _ => Verdict::Pass,
        }));
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 3400, local)]), 0, remote));
        net.run_for(Duration(TICK_NS));
        net.post(a, to_remote(entry(Opcode::Write, 2, &[sge(10_000, 4200, local)]), 2800, remote));
        net.run_for(SECOND);
        assert_eq!(ok(&net.poll(a, a.send_cq)), [0, 1, 2]);
        assert_eq!(net.hosts[1].world.bytes(BASE, 2800), [1; 2800], "seed {seed}");
        assert_eq!(net.hosts[1].world.bytes(BASE + 2800, 4200), [2; 4200], "seed {seed}");
    }
}

/// A world that is wrong about where the payloads of a run lie does harm to nobody: its packets are taken one by one, and
/// copied from where they came in.
#[test]
fn a_run_that_lies_elsewhere_is_copied_to_its_place() {
    const EACH: usize = 1400;
    for (elsewhere, packets) in [(40_000u64, 4u32), (8, 4), (0, 4)] {
        let transport = Config { unit_packets_max: 16, ..Config::default() };
        let (mut net, a, _) = Net::connected(1, Options { transport, ..Options::default() });
        let (local, remote) = (net.region(0, 0, 1 << 16, ALL), net.region(1, 0, 1 << 16, ALL));
        let bytes: Vec<u8> = (0..EACH * 6).map(|at| (at / 7) as u8).collect();
        net.hosts[0].world.set(BASE, &bytes);
        net.post(a, to_remote(entry(Opcode::Write, 0, &[sge(0, 8, local)]), 60_000, remote));
        net.run_for(SECOND);
        net.record = Some(vec![]);
        net.filter = Some(Box::new(|_, host, _| if host == 0 { Verdict::Drop } else { Verdict::Pass }));
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, bytes.len() as u32, local)]), 0, remote));
        net.run_for(Duration::from_micros(50));
        let sent: Vec<_> = net.record.take().unwrap().into_iter().filter(|(host, _)| *host == 0).collect();
        let Packet::Data(first) = sent[0].1.packet else { panic!("data come first") };
        let (from, now) = (SocketAddr::new(net.hosts[0].address, 50_000), net.now);
        let each = sent[0].1.payload.len();
        let host = &mut net.hosts[1];
        // What the buffer holds, as if the kernel had put everything there.
        let buffer =
            sent.iter().take(packets as usize).flat_map(|(_, sent)| [&[0; 7], &sent.payload[..]].concat());
        host.world.buffers.push(buffer.collect());
        let payload = PayloadRef { buffer: 0, offset: 7, length: each as u32 };
        let run = Run { packets, stride: each as u32 + 7, address: BASE + elsewhere };
        if elsewhere == 0 {
            // Here it is in place, and the buffer is worth nothing.
            host.world.buffers[0].fill(0xee);
            host.world.set(BASE, &bytes[..each * packets as usize]);
        }
        let mut batch = Batch::new();
        batch.push_run(from, &first, run, payload, false);
        host.nic.receive(now, &batch, &mut host.world, &mut host.counts);
        host.world.buffers.clear();
        assert_eq!(
            host.world.bytes(BASE, u64::from(packets) * each as u64),
            &bytes[..each * packets as usize]
        );
        net.filter = None;
        net.run_for(SECOND);
        assert_eq!(ok(&net.poll(a, a.send_cq)), [0, 1]);
        assert_eq!(net.hosts[1].world.bytes(BASE, bytes.len() as u64), bytes);
    }
}

#[test]
fn a_fence_waits_for_the_reads_before_it() {
    for seed in 0..50 {
        let (mut net, a, _) = Net::connected(seed, spread());
        let (local, remote) = (net.region(0, 0, 1 << 19, ALL), net.region(1, 0, 1 << 19, ALL));
        net.hosts[0].world.memory.fill(1);
        net.hosts[1].world.memory.fill(2);
        // READ 200 KB, then overwrite them: only a fence keeps the READ from seeing the new bytes.
        net.post(a, to_remote(entry(Opcode::Read, 1, &[sge(200_000, 200_000, local)]), 0, remote));
        let mut write = to_remote(entry(Opcode::Write, 2, &[sge(0, 200_000, local)]), 0, remote);
        write.flags = write.flags.with(SendFlags::FENCE);
        net.post(a, write);
        net.run_for(SECOND);
        assert_eq!(ok(&net.poll(a, a.send_cq)), [1, 2]);
        assert!(net.hosts[0].world.bytes(BASE + 200_000, 200_000).iter().all(|&byte| byte == 2), "{seed}");
        assert!(net.hosts[1].world.bytes(BASE, 200_000).iter().all(|&byte| byte == 1), "{seed}");
    }
}

/// At most max_rd_atomic on the wire, however many are posted.
#[test]
fn no_more_reads_are_outstanding_than_agreed() {
    // In order, the reads on the wire are those sent less those complete.
    for (limit, options) in [(1u8, spread()), (1, Options::default()), (4, Options::default())] {
        let mut net = Net::new(7, options);
        let (a, b) = (net.qp(0), net.qp(1));
        let with = QpAttributes { max_rd_atomic: limit, max_dest_rd_atomic: limit, ..attributes() };
        net.connect(a, b, with, with);
        let (local, remote) = (net.region(0, 0, 1 << 16, ALL), net.region(1, 0, 1 << 16, ALL));
        net.record = Some(vec![]);
        for i in 0..64 {
            net.post(a, to_remote(entry(Opcode::Read, i, &[sge(i * 8, 8, local)]), i * 8, remote));
        }
        let (mut done, mut seen, mut most) = (vec![], 0, 0);
        assert!(net.run_until(SECOND, |net| {
            done.extend(ok(&net.poll(a, a.send_cq)));
            for (host, sent) in net.record.as_ref().unwrap() {
                if let (0, Packet::Data(data)) = (host, sent.packet) {
                    seen = seen.max(data.message.msn + 1);
                }
            }
            most = most.max(u64::from(seen) - done.len() as u64);
            done.len() == 64
        }));
        assert_eq!(done, (0..64).collect::<Vec<_>>());
        assert!(most <= u64::from(limit), "{most} at once");
        assert!(most == u64::from(limit), "never as many as allowed");
    }
}

/// Nothing is a message too, and takes its number.
#[test]
fn messages_of_no_bytes_between_others_for_each_operation() {
    for faults in [Faults::NONE, Faults::SPREAD] {
        for opcode in [Opcode::Write, Opcode::WriteImm, Opcode::Send, Opcode::SendImm, Opcode::Read] {
            for form in 0..3 {
                let (mut net, a, b) =
                    Net::connected(8, Options { faults: faults.clone(), ..Options::default() });
                let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
                net.record = Some(vec![]);
                net.post_recv(b, 0, &[]);
                net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 1000, local)]), 0, remote));
                let sges = [sge(0, 0, local), sge(0, 0, local)];
                let mut nothing = entry(opcode, 2, &sges[..form]);
                nothing.imm = 5;
                if form == 2 && !opcode.is_read_or_atomic() {
                    nothing.flags = nothing.flags.with(SendFlags::INLINE);
                }
                // The key of a message of no bytes is not looked at.
                (nothing.remote_address, nothing.rkey) = (0, 0);
                net.post(a, nothing);
                net.post(a, to_remote(entry(Opcode::Write, 3, &[sge(0, 1000, local)]), 0, remote));
                net.run_for(SECOND);
                let done = net.poll(a, a.send_cq);
                assert_eq!(ok(&done), [1, 2, 3], "{opcode:?}");
                assert_eq!(done[1].byte_len, 0);
                let got = net.poll(b, b.recv_cq);
                assert_eq!(got.len(), usize::from(opcode.consumes_receive()), "{opcode:?}");
                assert!(got.iter().all(|c| c.status == 0 && c.byte_len == 0));
                let mut numbers: Vec<u32> = net
                    .record
                    .unwrap()
                    .iter()
                    .filter_map(|(host, sent)| match sent.packet {
                        Packet::Data(data) if *host == 0 => Some(data.psn),
                        _ => None,
                    })
                    .collect();
                numbers.sort_unstable();
                numbers.dedup();
                assert_eq!(numbers, [0, 1, 2], "{opcode:?}");
            }
        }
    }
}

/// Counts cross the widths at which somebody might keep them.
#[test]
fn numbers_cross_every_wrap() {
    for first in [(1u64 << 24) - 3, (1 << 32) - 3, (1 << 31) - 3, (1 << 33) - 3] {
        for (first_psn, first_msn) in [(first, 0), (0, first), (first, first)] {
            let transport = Config { first_psn, first_msn, ..Options::default().transport };
            let faults = Faults { loss_ppm: 50_000, ..Faults::SPREAD };
            let (mut net, a, b) = Net::connected(9, Options { transport, faults, ..Options::default() });
            let (local, remote) = (net.region(0, 0, 1 << 16, ALL), net.region(1, 0, 1 << 16, ALL));
            net.hosts[0].world.memory.fill(1);
            for i in 0..10 {
                net.post_recv(b, i, &[sge(60_000, 100, remote)]);
                net.post(a, to_remote(entry(Opcode::Write, 4 * i, &[sge(0, 3000, local)]), i * 3000, remote));
                net.post(a, entry(Opcode::Send, 4 * i + 1, &[sge(0, 100, local)]));
                net.post(a, to_remote(entry(Opcode::Read, 4 * i + 2, &[sge(8000, 8, local)]), 0, remote));
                let mut add =
                    to_remote(entry(Opcode::FetchAdd, 4 * i + 3, &[sge(9000, 8, local)]), 50_000, remote);
                add.compare_add = 1;
                net.post(a, add);
            }
            net.run_for(Duration::from_secs(5));
            assert_eq!(
                ok(&net.poll(a, a.send_cq)),
                (0..40).collect::<Vec<_>>(),
                "{first_psn:#x} {first_msn:#x}"
            );
            assert_eq!(ok(&net.poll(b, b.recv_cq)), (0..10).collect::<Vec<_>>());
            assert_eq!(net.hosts[1].world.word(BASE + 50_000), 10);
        }
    }
}

fn op_is(sent: &Sent, wanted: fn(&Op) -> bool) -> bool {
    matches!(&sent.packet, Packet::Data(data) if wanted(&data.op))
}

/// A replayed READ in the middle of a WRITE disturbs neither.
#[test]
fn old_requests_replayed_amid_a_write_are_only_duplicates() {
    let (mut net, a, _) = Net::connected(10, spread());
    let (local, remote) = (net.region(0, 0, 1 << 19, ALL), net.region(1, 0, 1 << 19, ALL));
    net.hosts[0].world.memory.fill(1);
    net.record = Some(vec![]);
    for i in 0..5 {
        net.post(a, to_remote(entry(Opcode::Read, i, &[sge(400_000 + i * 8, 8, local)]), 0, remote));
        let mut add = to_remote(entry(Opcode::FetchAdd, 10 + i, &[sge(450_000, 8, local)]), 300_000, remote);
        add.compare_add = 1;
        net.post(a, add);
    }
    net.run_for(SECOND);
    let old: Vec<Sent> =
        net.record.take().unwrap().into_iter().filter(|(host, _)| *host == 0).map(|(_, sent)| sent).collect();
    net.post(a, to_remote(entry(Opcode::Write, 99, &[sge(0, 200_000, local)]), 0, remote));
    let mut replay = old.iter().filter(|sent| is_data(&sent.packet)).cycle().take(100);
    while net.step(net.now + Duration::from_millis(100)) {
        if let Some(sent) = replay.next() {
            net.fly(0, sent.clone(), 0);
        }
    }
    assert_eq!(ok(&net.poll(a, a.send_cq)).last(), Some(&99));
    assert!(net.hosts[1].world.bytes(BASE, 200_000).iter().all(|&byte| byte == 1));
    assert_eq!((net.hosts[1].world.word(BASE + 300_000), net.hosts[1].world.atomics_done), (5, 5));
    assert!(net.hosts[1].counts.drops(DropCause::Duplicate) >= 20);
}

/// The result of an atomic is told again, not made again.
#[test]
fn an_atomic_whose_answer_is_lost_is_done_once() {
    let (mut net, a, _) = Net::connected(11, Options::default());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.hosts[1].world.set(BASE, &41u64.to_ne_bytes());
    net.run_for(SECOND);
    let mut lost = 0;
    let mut values = vec![];
    net.filter = Some(Box::new(move |_, host, sent| match sent.packet {
        Packet::Data(data) if host == 1 => {
            let Op::AtomicResponse { value, .. } = data.op else { return Verdict::Pass };
            values.push(value);
            assert!(values.iter().all(|&value| value == 41), "{values:?}");
            lost += 1;
            if lost <= 3 {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        }
        // The request is lost once too, and so is its acknowledgement.
        _ => Verdict::Pass,
    }));
    let mut add = to_remote(entry(Opcode::FetchAdd, 1, &[sge(0, 8, local)]), 0, remote);
    add.compare_add = 1;
    net.post(a, add);
    net.run_for(SECOND);
    assert_eq!(ok(&net.poll(a, a.send_cq)), [1]);
    assert_eq!(net.hosts[0].world.word(BASE), 41);
    assert_eq!((net.hosts[1].world.word(BASE), net.hosts[1].world.atomics_done), (42, 1));
}

#[test]
fn a_lost_answer_is_sent_again_without_the_request() {
    let (mut net, a, _) = Net::connected(12, Options::default());
    let (local, remote) = (net.region(0, 0, 1 << 19, ALL), net.region(1, 0, 1 << 19, ALL));
    net.hosts[1].world.memory.fill(4);
    net.run_for(SECOND);
    let mut count = 0;
    net.filter = Some(Box::new(move |_, host, sent| {
        count += u32::from(host == 1 && op_is(sent, |op| matches!(op, Op::ReadResponse { .. })));
        if host == 1 && is_data(&sent.packet) && count % 5 == 0 {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }));
    net.record = Some(vec![]);
    net.post(a, to_remote(entry(Opcode::Read, 1, &[sge(0, 100_000, local)]), 0, remote));
    net.run_for(SECOND);
    assert_eq!(ok(&net.poll(a, a.send_cq)), [1]);
    assert!(net.hosts[0].world.bytes(BASE, 100_000).iter().all(|&byte| byte == 4));
    let requests = net
        .record
        .unwrap()
        .iter()
        .filter(|(_, sent)| op_is(sent, |op| matches!(op, Op::ReadRequest { .. })))
        .count();
    assert_eq!(requests, 1);
}

#[test]
fn a_queue_pair_connected_to_itself_works_like_any_other() {
    let mut net = Net::new(13, spread());
    let a = net.qp(0);
    net.connect(a, a, attributes(), attributes());
    let key = net.region(0, 0, 1 << 16, ALL);
    net.hosts[0].world.memory[..4096].fill(6);
    net.post_recv(a, 1, &[sge(8192, 4096, key)]);
    net.post(a, entry(Opcode::Send, 2, &[sge(0, 4096, key)]));
    net.post(a, to_remote(entry(Opcode::Write, 3, &[sge(0, 4096, key)]), 16384, key));
    net.post(a, to_remote(entry(Opcode::Read, 4, &[sge(32768, 4096, key)]), 16384, key));
    let mut add = to_remote(entry(Opcode::FetchAdd, 5, &[sge(50_000, 8, key)]), 51_200, key);
    add.compare_add = 3;
    net.post(a, add);
    net.run_for(SECOND);
    assert_eq!(ok(&net.poll(a, a.send_cq)), [2, 3, 4, 5]);
    assert_eq!(ok(&net.poll(a, a.recv_cq)), [1]);
    for at in [8192, 16384, 32768] {
        assert_eq!(net.hosts[0].world.bytes(BASE + at, 4096), [6; 4096]);
    }
    assert_eq!(net.hosts[0].world.word(BASE + 51_200), 3);
    assert_eq!(net.state(a), QpState::Rts);
}

#[test]
fn queue_pairs_of_one_device_talk_to_each_other_and_to_others_at_once() {
    let mut net = Net::new(14, Options { hosts: 3, ..spread() });
    let qps: Vec<QpRef> = [0, 0, 0, 1, 0, 2, 1, 2].map(|host| net.qp(host)).into();
    let keys = [0, 1, 2].map(|host| net.region(host, 0, 1 << 19, ALL));
    for host in &mut net.hosts {
        host.world.memory[..4096].fill(8);
    }
    for pair in qps.chunks(2) {
        net.connect(pair[0], pair[1], attributes(), attributes());
    }
    for (slot, pair) in qps.chunks(2).enumerate() {
        for (side, (from, to)) in [(pair[0], pair[1]), (pair[1], pair[0])].into_iter().enumerate() {
            let at = 8192 + (slot as u64 * 2 + side as u64) * 4096;
            for i in 0..20 {
                net.post(
                    from,
                    to_remote(entry(Opcode::Write, i, &[sge(0, 4096, keys[from.host])]), at, keys[to.host]),
                );
            }
        }
    }
    net.run_for(SECOND);
    for (slot, pair) in qps.chunks(2).enumerate() {
        for (side, (from, to)) in [(pair[0], pair[1]), (pair[1], pair[0])].into_iter().enumerate() {
            assert_eq!(ok(&net.poll(from, from.send_cq)), (0..20).collect::<Vec<_>>());
            let at = BASE + 8192 + (slot as u64 * 2 + side as u64) * 4096;
            assert_eq!(net.hosts[to.host].world.bytes(at, 4096), [8; 4096]);
        }
    }
}

#[test]
fn unsignalled_sends_complete_silently_unless_all_are_signalled() {
    for all in [false, true] {
        let mut net = Net::pair(15);
        let init = srdma_abi::QpInit { sq_sig_all: all, ..net.init(0) };
        let (a, b) = (net.qp_with(0, init, 1000), net.qp(1));
        net.connect(a, b, attributes(), attributes());
        let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
        for i in 0..9 {
            let mut write = to_remote(entry(Opcode::Write, i, &[sge(0, 8, local)]), 0, remote);
            write.flags = if i % 3 == 2 { SendFlags::SIGNALED } else { SendFlags(0) };
            net.post(a, write);
        }
        net.run_for(SECOND);
        let want: Vec<u64> = if all { (0..9).collect() } else { vec![2, 5, 8] };
        assert_eq!(ok(&net.poll(a, a.send_cq)), want);
        assert!(net.hosts[0].world.sends[&a.qpn].taken.is_empty(), "all ring space is given back");
    }
}

#[test]
fn inline_data_is_sent_again_from_the_ring() {
    let (mut net, a, _) = Net::connected(16, Options::default());
    let remote = net.region(1, 0, 4096, ALL);
    net.run_for(SECOND);
    let mut lost = 0;
    net.filter = Some(Box::new(move |_, host, sent| {
        lost += u32::from(host == 0 && is_data(&sent.packet));
        if host == 0 && is_data(&sent.packet) && lost < 4 {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }));
    let bytes: Vec<u8> = (0..400).map(|i| i as u8).collect();
    let mut write = to_remote(entry(Opcode::Write, 1, &[]), 7, remote);
    write.flags = write.flags.with(SendFlags::INLINE);
    net.post_inline(a, write, &bytes);
    net.run_for(SECOND);
    assert_eq!(ok(&net.poll(a, a.send_cq)), [1]);
    assert_eq!(net.hosts[1].world.bytes(BASE + 7, 400), bytes);
}

/// A key of the past opens nothing, however many came after it.
#[test]
fn a_stale_key_meets_no_new_region() {
    let (mut net, a, _) = Net::connected(17, Options::default());
    let local = net.region(0, 0, 4096, ALL);
    let mut stale = vec![];
    for _ in 0..100_000 {
        let key = net.region(1, 0, 4096, ALL);
        net.hosts[1].nic.deregister(key).unwrap();
        stale.push(key);
    }
    let live = net.region(1, 0, 4096, ALL);
    assert!(!stale.contains(&live));
    net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, live));
    net.post(a, to_remote(entry(Opcode::Write, 2, &[sge(0, 8, local)]), 0, stale[0]));
    net.run_for(SECOND);
    let done = net.poll(a, a.send_cq);
    assert_eq!(
        done.iter().map(|c| c.vendor_err).collect::<Vec<_>>(),
        [0, srdma_abi::Cause::RemoteKey as u32]
    );
}

/// perftest's latency tests with events read one event for their own message and one for the answer, in that
/// order, from one channel: the ACK may take a slower path than the answer, or be lost.
#[test]
fn an_answer_is_never_heard_of_before_the_message_that_it_answers() {
    for with_imm in [false, true] {
        let (mut net, a, b) = Net::connected(31, Options::default());
        let keys = [net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL)];
        net.run_for(SECOND);
        // Every acknowledgement from the answering side is lost.
        net.filter = Some(Box::new(|_, host, sent| match sent.packet {
            Packet::Ack(_) if host == 1 => Verdict::Drop,
            _ => Verdict::Pass,
        }));
        for round in 0..20 {
            net.post_recv(a, 100 + round, &[sge(0, 64, keys[0])]);
            net.post_recv(b, 200 + round, &[sge(0, 64, keys[1])]);
            net.post(a, entry(Opcode::Send, round, &[sge(0, 8, keys[0])]));
            let mut polled = vec![];
            assert!(net.run_until(SECOND, |net| {
                polled = net.poll(b, b.recv_cq);
                !polled.is_empty()
            }));
            assert_eq!(ok(&polled), [200 + round]);
            let answer = match with_imm {
                true => to_remote(entry(Opcode::WriteImm, round, &[sge(0, 8, keys[1])]), 0, keys[0]),
                false => entry(Opcode::Send, round, &[sge(0, 8, keys[1])]),
            };
            net.post(b, answer);
            assert!(net.run_until(SECOND, |net| {
                polled = net.poll(a, a.recv_cq);
                !polled.is_empty()
            }));
            assert_eq!(ok(&polled), [100 + round]);
            assert_eq!(ok(&net.poll(a, a.send_cq)), [round], "the message's own completion comes first");
        }
    }
}
