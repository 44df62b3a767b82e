//! How queue pairs stop: no receives, no answer, no peer, a full completion queue, the program's wish.

use std::cell::Cell;
use std::rc::Rc;

use srdma_abi::cause::{INJECTED, TABLE};
use srdma_abi::{AsyncKind, Cause, Opcode, QpAttributes, QpMask, QpState, SendFlags, WcStatus};
use srdma_rnic::world::SendRefusal;
use srdma_rnic::ControlError;
use srdma_seams::event::{DropCause, Event};
use srdma_seams::fault::{Direction, Failure};
use srdma_seams::{Duration, Now};
use srdma_wire::{NakCode, Op, Packet};

use crate::host::{Sent, BASE};
use crate::net::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn codes(done: &[srdma_abi::Completion]) -> Vec<(u64, u32)> {
    done.iter().map(|c| (c.wr_id, c.vendor_err)).collect()
}

fn is_send(sent: &Sent) -> bool {
    matches!(sent.packet, Packet::Data(data) if matches!(data.op, Op::Send { .. }))
}

#[test]
fn a_send_without_receive_is_tried_rnr_retry_times_more_and_then_fails() {
    for rnr_retry in 0..7u8 {
        let mut net = Net::pair(1);
        let (a, b) = (net.qp(0), net.qp(1));
        net.connect(a, b, QpAttributes { rnr_retry, ..attributes() }, attributes());
        let local = net.region(0, 0, 4096, ALL);
        net.run_for(SECOND);
        net.record = Some(vec![]);
        net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
        net.post(a, entry(Opcode::Send, 2, &[sge(0, 8, local)]));
        net.run_for(MINUTE);
        assert_eq!(
            codes(&net.poll(a, a.send_cq)),
            [(1, Cause::RnrExceeded as u32), (2, Cause::Flushed as u32)]
        );
        assert_eq!((net.state(a), net.state(b)), (QpState::Err, QpState::Rts));
        let first = |sent: &Sent| matches!(sent.packet, Packet::Data(data) if data.message.msn == 0);
        let attempts =
            net.record.take().unwrap().iter().filter(|(_, sent)| is_send(sent) && first(sent)).count();
        assert_eq!(attempts, usize::from(rnr_retry) + 1, "rnr_retry {rnr_retry}");
    }
}

#[test]
fn rnr_retry_seven_waits_for_ever_and_the_timer_code_says_how_often() {
    for (timer, wait_us) in [(1u8, 10u64), (12, 640), (0, 655_360)] {
        let mut net = Net::pair(2);
        let (a, b) = (net.qp(0), net.qp(1));
        net.connect(a, b, attributes(), QpAttributes { min_rnr_timer: timer, ..attributes() });
        let (local, own) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
        net.run_for(SECOND);
        net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
        net.run_for(Duration::from_secs(20));
        let naks = net.hosts[1].counts.count(|event| matches!(event, Event::RnrSent { .. })) as u64;
        let most = 20_000_000 / wait_us + 1;
        assert!(naks > most / 4 && naks <= most, "{naks} refusals in 20 s with timer {wait_us} µs");
        assert_eq!(net.state(a), QpState::Rts);
        net.post_recv(b, 5, &[sge(0, 8, own)]);
        net.run_for(SECOND);
        assert_eq!(codes(&net.poll(a, a.send_cq)), [(1, 0)]);
        assert_eq!(codes(&net.poll(b, b.recv_cq)), [(5, 0)]);
    }
}

#[test]
fn each_message_has_its_own_count_of_refusals() {
    let mut net = Net::pair(3);
    let (a, b) = (net.qp(0), net.qp(1));
    net.connect(
        a,
        b,
        QpAttributes { rnr_retry: 1, ..attributes() },
        QpAttributes { min_rnr_timer: 14, ..attributes() },
    );
    let (local, own) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    for i in 0..20 {
        net.post(a, entry(Opcode::Send, i, &[sge(0, 8, local)]));
        // Each is refused once, then met.
        net.run_for(Duration::from_micros(500));
        net.post_recv(b, i, &[sge(0, 8, own)]);
        net.run_for(Duration::from_millis(3));
    }
    assert_eq!(net.poll(a, a.send_cq).iter().filter(|c| c.status == 0).count(), 20);
    assert!(net.hosts[0].counts.count(|event| matches!(event, Event::RnrReceived { .. })) >= 20);
}

/// The message itself came early; that is no reason to refuse it while an in-order receiver would
/// still be busy with the one before.
#[test]
fn a_send_that_overtook_others_is_not_refused_before_its_turn() {
    let mut net = Net::pair(4);
    let (a, b) = (net.qp(0), net.qp(1));
    net.connect(a, b, QpAttributes { rnr_retry: 0, ..attributes() }, attributes());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.run_for(SECOND);
    let slow = |_: Now, _: usize, sent: &Sent| match sent.packet {
        Packet::Data(data) if matches!(data.op, Op::Write { .. }) => Verdict::Delay(2_000_000),
        _ => Verdict::Pass,
    };
    net.filter = Some(Box::new(slow));
    net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, remote));
    net.post(a, entry(Opcode::Send, 2, &[sge(0, 8, local)]));
    net.run_for(Duration::from_millis(1));
    net.post_recv(b, 3, &[sge(64, 8, remote)]);
    net.run_for(SECOND);
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(1, 0), (2, 0)]);
    assert_eq!(codes(&net.poll(b, b.recv_cq)), [(3, 0)]);
}

#[test]
fn a_peer_that_falls_silent_is_given_up_in_order() {
    for (timeout, retry_cnt) in [(14u8, 7u8), (12, 3), (14, 0)] {
        let mut net = Net::pair(5);
        let (a, b) = (net.qp(0), net.qp(1));
        let with = QpAttributes { timeout, retry_cnt, ..attributes() };
        net.connect(a, b, with, with);
        let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, remote));
        net.run_for(SECOND);
        net.filter = Some(Box::new(|_, _, _| Verdict::Drop));
        let start = net.now;
        net.post(a, to_remote(entry(Opcode::Write, 2, &[sge(0, 8, local)]), 0, remote));
        net.post(a, to_remote(entry(Opcode::Read, 3, &[sge(0, 8, local)]), 0, remote));
        assert!(net.run_until(MINUTE, |net| net.state(a) == QpState::Err), "{timeout} {retry_cnt}");
        let done = net.poll(a, a.send_cq);
        let (no_answer, flushed) = (Cause::NoAnswer as u32, Cause::Flushed as u32);
        assert_eq!(codes(&done), [(1, 0), (2, no_answer), (3, flushed)]);
        assert_eq!(done[1].status, WcStatus::RetryExcErr as u8);
        let formula = (4096u64 << timeout) * (u64::from(retry_cnt) + 1);
        let took = net.now.since(start).0;
        assert!(took >= formula && took <= 4 * formula + 1_000_000_000, "{took} ns, formula {formula} ns");
        assert!(net.hosts[0].world.events.is_empty(), "a requester's error is told by its completion");
    }
}

#[test]
fn a_reader_whose_answer_never_comes_is_told() {
    let (mut net, a, _) = Net::connected(6, Options::default());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.run_for(SECOND);
    // Acknowledgements pass, answers do not, until the peer is silent altogether.
    let dead = Rc::new(Cell::new(false));
    let is_dead = Rc::clone(&dead);
    net.filter = Some(Box::new(move |_, host, sent| match host {
        1 if is_dead.get() || is_data(&sent.packet) => Verdict::Drop,
        _ => Verdict::Pass,
    }));
    net.post(a, to_remote(entry(Opcode::Read, 1, &[sge(0, 8, local)]), 0, remote));
    net.run_for(Duration::from_millis(5));
    dead.set(true);
    assert!(net.run_until(MINUTE, |net| net.state(a) == QpState::Err));
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(1, Cause::NoAnswer as u32)]);
}

/// The peer lives, asks and acknowledges, but the data of its answers never gets through: the reader is
/// told within the documented time, and the peer stops trying, though it is only in RTR.
#[test]
fn a_reader_whose_answers_are_swallowed_is_told_although_the_peer_lives() {
    let mut net = Net::pair(9);
    let (a, b) = (net.qp(0), net.qp(1));
    for (qp, peer) in [(a, b), (b, a)] {
        net.go_init(qp, attributes());
        net.go_rtr(qp, peer, attributes());
    }
    net.go_rts(a, attributes());
    let (local, remote) = (net.region(0, 0, 65536, ALL), net.region(1, 0, 65536, ALL));
    net.filter = Some(Box::new(|_, host, sent| match host == 1 && is_data(&sent.packet) {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    let from = net.now;
    net.post(a, to_remote(entry(Opcode::Read, 1, &[sge(0, 50_000, local)]), 0, remote));
    net.post(a, to_remote(entry(Opcode::Read, 2, &[sge(0, 50_000, local)]), 0, remote));
    assert!(net.run_until(MINUTE, |net| net.state(a) == QpState::Err));
    let formula = 8 * (4096u64 << 14);
    let took = net.now.since(from).0;
    assert!((formula..=4 * formula).contains(&took), "{took}");
    let done = net.poll(a, a.send_cq);
    assert_eq!(codes(&done), [(1, Cause::NoAnswer as u32), (2, Cause::Flushed as u32)]);
    assert_eq!(done[0].status, WcStatus::RetryExcErr as u8);
    net.run_for(MINUTE);
    net.record = Some(vec![]);
    net.run_for(MINUTE);
    assert_eq!(net.record.take().unwrap().len(), 0, "it still tries");
    assert_eq!(net.state(b), QpState::Rtr);
}

/// What is ahead of a READ may take any time: its answer is owed only once it is carried out.
#[test]
fn a_read_behind_a_send_without_receive_waits_as_long_as_that() {
    let (mut net, a, b) = Net::connected(10, Options::default());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
    net.post(a, to_remote(entry(Opcode::Read, 2, &[sge(0, 4096, local)]), 0, remote));
    net.run_for(MINUTE);
    assert_eq!(net.state(a), QpState::Rts);
    net.post_recv(b, 5, &[sge(0, 8, remote)]);
    net.run_for(SECOND);
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(1, 0), (2, 0)]);
}

#[test]
fn timeout_zero_never_gives_up() {
    let mut net = Net::pair(7);
    let (a, b) = (net.qp(0), net.qp(1));
    net.connect(a, b, QpAttributes { timeout: 0, ..attributes() }, attributes());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.run_for(SECOND);
    net.filter = Some(Box::new(|_, _, _| Verdict::Drop));
    net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, remote));
    net.run_for(Duration::from_secs(600));
    assert_eq!(net.state(a), QpState::Rts);
    net.filter = None;
    net.run_for(Duration::from_secs(5));
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(1, 0)]);
}

#[test]
fn a_peer_that_was_never_there_is_named_as_such() {
    for (refusal, cause) in [(None, Cause::NoHandshake), (Some(SendRefusal::Unreachable), Cause::Unreachable)]
    {
        let mut net = Net::pair(8);
        let (a, b) = (net.qp(0), net.qp(1));
        let local = net.region(0, 0, 4096, ALL);
        net.go_init(a, attributes());
        net.go_rtr(a, b, attributes());
        net.go_rts(a, attributes());
        net.hosts[0].world.refusal = refusal;
        net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
        assert!(net.run_until(MINUTE, |net| net.state(a) == QpState::Err), "{cause:?}");
        assert_eq!(codes(&net.poll(a, a.send_cq)), [(1, cause as u32)]);
    }
}

#[test]
fn a_peer_of_another_version_is_named_as_such() {
    let (mut net, a, b) = {
        let mut net = Net::pair(9);
        let (a, b) = (net.qp(0), net.qp(1));
        net.go_init(a, attributes());
        net.go_rtr(a, b, attributes());
        net.go_rts(a, attributes());
        (net, a, b)
    };
    let local = net.region(0, 0, 4096, ALL);
    net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
    net.record = Some(vec![]);
    net.run_for(Duration::from_millis(1));
    let (_, mut answer) = net.record.take().unwrap().pop().expect("a HELLO");
    let Packet::Hello(hello) = &mut answer.packet else { panic!("{answer:?}") };
    (hello.version, hello.dest_qpn, hello.src_qpn) = (99, a.qpn, b.qpn);
    answer.peer.set_ip(net.hosts[0].address);
    net.fly(1, answer, 0);
    assert!(net.run_until(MINUTE, |net| net.state(a) == QpState::Err));
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(1, Cause::Version as u32)]);
}

#[test]
fn a_peer_that_says_goodbye_fails_what_waits_and_what_comes_later() {
    for waits in [true, false] {
        let (mut net, a, b) = Net::connected(10, Options { faults: Faults::SPREAD, ..Options::default() });
        let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, remote));
        net.run_for(SECOND);
        if waits {
            net.post(a, entry(Opcode::Send, 2, &[sge(0, 8, local)]));
            net.run_for(Duration::from_millis(5));
        }
        net.destroy(b);
        net.run_for(Duration::from_millis(100));
        if !waits {
            assert_eq!(net.state(a), QpState::Rts, "nothing waits, so nothing has failed");
            net.post(a, entry(Opcode::Send, 2, &[sge(0, 8, local)]));
        }
        let done = net.poll(a, a.send_cq);
        assert_eq!(codes(&done), [(1, 0), (2, Cause::PeerClosed as u32)]);
        assert_eq!(done[1].status, WcStatus::RetryExcErr as u8);
    }
}

/// The last acknowledgement may be slower than the goodbye.
#[test]
fn what_the_peer_received_before_it_went_is_complete() {
    for seed in 0..200 {
        let options = Options { faults: Faults::SPREAD, ..Options::default() };
        let (mut net, a, b) = Net::connected(seed, options);
        let (local, own) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
        net.post_recv(b, 1, &[sge(0, 4096, own)]);
        net.post(a, entry(Opcode::Send, 2, &[sge(0, 4096, local)]));
        let mut received = vec![];
        assert!(net.run_until(SECOND, |net| {
            received.extend(net.poll(b, b.recv_cq));
            !received.is_empty()
        }));
        net.destroy(b);
        net.run_for(SECOND);
        assert_eq!(codes(&net.poll(a, a.send_cq)), [(2, 0)], "seed {seed}");
    }
}

#[test]
fn the_error_state_flushes_in_order_and_so_does_everything_posted_later() {
    let (mut net, a, b) = Net::connected(11, Options::default());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.filter = Some(Box::new(|_, _, _| Verdict::Drop));
    for i in 0..5 {
        let mut write = to_remote(entry(Opcode::Write, i, &[sge(0, 8, local)]), 0, remote);
        if i % 2 == 0 {
            write.flags = SendFlags(0); // unsignalled ones are flushed with a completion too
        }
        net.post(a, write);
        net.post_recv(a, 100 + i, &[sge(0, 8, local)]);
    }
    net.run_for(Duration::from_millis(1));
    net.go(a, QpState::Err);
    let flushed = Cause::Flushed as u32;
    let want = |from: u64| (from..from + 5).map(|i| (i, flushed)).collect::<Vec<_>>();
    let sent = net.poll(a, a.send_cq);
    assert_eq!(codes(&sent), want(0));
    assert!(sent.iter().all(|c| c.status == WcStatus::WrFlushErr as u8));
    assert_eq!(codes(&net.poll(a, a.recv_cq)), want(100));
    for i in 5..10 {
        net.post(a, entry(Opcode::Send, i, &[sge(0, 8, local)]));
        net.post_recv(a, 100 + i, &[]);
    }
    assert_eq!(codes(&net.poll(a, a.send_cq)), want(5));
    assert_eq!(codes(&net.poll(a, a.recv_cq)), want(105));
    assert!(net.hosts[0].world.events.is_empty(), "the program knows what it did");
    net.filter = None;
    net.run_for(Duration::from_secs(5));
    assert_eq!(net.hosts[1].world.copies_done, 0, "nothing leaves a failed queue pair");
    assert_eq!(net.state(b), QpState::Rts);
}

#[test]
fn reset_forgets_everything_without_a_word_and_the_pair_connects_anew() {
    let (mut net, a, b) = Net::connected(12, Options::default());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    for round in 0..5u64 {
        net.post_recv(a, 1, &[]);
        net.post(a, entry(Opcode::Send, 2, &[sge(0, 8, local)])); // meets no receive
        net.run_for(Duration::from_millis(3));
        net.go(a, QpState::Reset);
        net.go(b, QpState::Reset);
        assert!(net.poll(a, a.send_cq).is_empty() && net.poll(a, a.recv_cq).is_empty());
        net.connect(a, b, attributes(), attributes());
        net.post(a, to_remote(entry(Opcode::Write, 10 + round, &[sge(0, 8, local)]), 0, remote));
        net.run_for(SECOND);
        assert_eq!(codes(&net.poll(a, a.send_cq)), [(10 + round, 0)]);
    }
}

#[test]
fn packets_of_a_dead_queue_pair_never_reach_its_successor() {
    let mut net = Net::pair(13);
    let (a, b) = (net.qp(0), net.qp(1));
    net.connect(a, b, attributes(), attributes());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.record = Some(vec![]);
    net.hosts[0].world.memory.fill(9);
    for i in 0..20 {
        net.post(a, to_remote(entry(Opcode::Write, i, &[sge(0, 8, local)]), 0, remote));
    }
    net.run_for(SECOND);
    let old: Vec<_> = net.record.take().unwrap();
    // Both ends again with the same numbers, as after a restart.
    let init = net.hosts[1].nic.query_qp(b.qpn).unwrap().1;
    for (qp, init) in [(a, net.hosts[0].nic.query_qp(a.qpn).unwrap().1), (b, init)] {
        net.destroy(qp);
        let id = net.connection_id();
        net.hosts[qp.host].nic.create_qp(qp.qpn, &init, id).unwrap();
    }
    net.connect(a, b, attributes(), attributes());
    net.run_for(SECOND);
    net.hosts[1].world.memory.fill(0);
    let before = net.hosts[1].counts.drops(DropCause::ForeignConnection);
    let replayed = old.iter().filter(|(host, sent)| *host == 0 && is_data(&sent.packet)).count();
    for (host, sent) in old {
        net.fly(host, sent, 0);
    }
    net.run_for(SECOND);
    assert!(net.hosts[1].world.memory.iter().all(|&byte| byte == 0));
    assert!(net.hosts[1].counts.drops(DropCause::ForeignConnection) >= before + replayed);
    net.poll(a, a.send_cq);
    net.post(a, to_remote(entry(Opcode::Write, 99, &[sge(0, 8, local)]), 0, remote));
    net.run_for(SECOND);
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(99, 0)]);
}

#[test]
fn a_destroyed_queue_pair_delivers_nothing_more() {
    for seed in 0..50 {
        let options = Options { faults: Faults::SPREAD, ..Options::default() };
        let (mut net, a, b) = Net::connected(seed, options);
        let (local, remote) = (net.region(0, 0, 1 << 16, ALL), net.region(1, 0, 1 << 16, ALL));
        for i in 0..10 {
            net.post_recv(b, i, &[sge(0, 4096, remote)]);
            net.post(a, to_remote(entry(Opcode::Write, i, &[sge(0, 4096, local)]), 0, remote));
            net.post(a, entry(Opcode::Send, i, &[sge(0, 4096, local)]));
        }
        net.run_for(Duration::from_micros(20 * seed));
        for qp in [b, a] {
            net.destroy(qp);
            net.hosts[qp.host].world.destroyed.insert(qp.qpn.0); // the world panics from here on
        }
        net.run_for(Duration::from_secs(5));
        for host in &mut net.hosts {
            assert!(host.world.holds.is_empty(), "seed {seed}: payloads still held");
            assert_eq!(host.nic.next_timeout(), None);
        }
        let unknown = net.hosts[1].counts.drops(DropCause::UnknownQp);
        assert!(seed > 10 || unknown > 0 || net.hosts[1].world.copies_done == 0);
    }
}

#[test]
fn a_full_completion_queue_fails_its_queue_pairs_and_no_others() {
    let mut net = Net::pair(14);
    let small = net.cq(0, 4);
    let mut init = net.init(0);
    let large = net.cq(0, 1000);
    let other = net.qp(0);
    let peers = [net.qp(1), net.qp(1), net.qp(1)];
    (init.send_cq, init.recv_cq) = (small.0, large.0);
    let a = net.qp(0);
    // A queue pair whose sends complete elsewhere, but whose receives would go to the full queue.
    let mixed = {
        let id = net.connection_id();
        let qpn = srdma_seams::Qpn(900);
        let mut init = init;
        (init.send_cq, init.recv_cq) = (large.0, small.0);
        net.hosts[0].nic.create_qp(qpn, &init, id).unwrap();
        QpRef { host: 0, qpn, send_cq: large, recv_cq: small }
    };
    let full = {
        let id = net.connection_id();
        let qpn = srdma_seams::Qpn(901);
        net.hosts[0].nic.create_qp(qpn, &init, id).unwrap();
        QpRef { host: 0, qpn, send_cq: small, recv_cq: large }
    };
    net.connect(full, peers[0], attributes(), attributes());
    net.connect(mixed, peers[1], attributes(), attributes());
    net.connect(other, peers[2], attributes(), attributes());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    // This one waits (no receive) when its completion queue breaks.
    net.post(mixed, entry(Opcode::Send, 50, &[sge(0, 8, local)]));
    net.post(mixed, entry(Opcode::Send, 51, &[sge(0, 8, local)]));
    net.run_for(Duration::from_millis(5));
    for i in 0..10 {
        net.post(full, to_remote(entry(Opcode::Write, i, &[sge(0, 8, local)]), 0, remote));
    }
    net.run_for(SECOND);
    assert_eq!(codes(&net.poll(full, small)), [(0, 0), (1, 0), (2, 0), (3, 0)]);
    let events: Vec<_> = net.hosts[0].world.events.iter().map(|event| (event.kind, event.object)).collect();
    assert_eq!(events, [(AsyncKind::CqErr, small.0)]);
    assert_eq!((net.state(full), net.state(mixed)), (QpState::Err, QpState::Err));
    let waiting: Vec<_> = net.poll(mixed, large).into_iter().filter(|c| c.qpn == mixed.qpn.0).collect();
    assert_eq!(codes(&waiting), [(50, Cause::CqOverrun as u32), (51, Cause::Flushed as u32)]);
    assert_eq!((net.state(other), net.state(a)), (QpState::Rts, QpState::Reset));
}

#[test]
fn errors_of_one_queue_pair_come_to_its_queues_alone_once_for_each_request() {
    let mut net = Net::pair(23);
    let (dying, living) = ([net.qp(0), net.qp(1)], [net.qp(0), net.qp(1)]);
    for [a, b] in [dying, living] {
        net.connect(a, b, attributes(), attributes());
    }
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.run_for(SECOND);
    for [a, _] in [dying, living] {
        // Both wait for a receive that is not there.
        (0..30).for_each(|wr_id| net.post(a, entry(Opcode::Send, wr_id, &[sge(0, 8, local)])));
        (0..20).for_each(|wr_id| net.post_recv(a, wr_id, &[]));
    }
    net.run_for(Duration::from_millis(1));
    net.go(dying[0], QpState::Err);
    net.run_for(Duration::from_millis(1));
    let flushed = |count| (0..count).map(|wr_id| (wr_id, Cause::Flushed as u32)).collect::<Vec<_>>();
    assert_eq!(codes(&net.poll(dying[0], dying[0].send_cq)), flushed(30));
    assert_eq!(codes(&net.poll(dying[0], dying[0].recv_cq)), flushed(20));
    for cq in [living[0].send_cq, living[0].recv_cq] {
        assert_eq!(codes(&net.poll(living[0], cq)), []);
    }
    (0..30).for_each(|wr_id| net.post_recv(living[1], wr_id, &[sge(0, 8, remote)]));
    net.run_for(SECOND);
    assert_eq!(codes(&net.poll(living[0], living[0].send_cq)), (0..30).map(|id| (id, 0)).collect::<Vec<_>>());
}

#[test]
fn a_fault_of_our_own_fails_every_queue_pair_and_says_so() {
    let (mut net, a, b) = Net::connected(20, Options::default());
    let local = net.region(0, 0, 4096, ALL);
    net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
    net.post_recv(a, 2, &[]);
    let host = &mut net.hosts[0];
    host.nic.fail_all(net.now, Cause::Internal, &mut host.world, &mut host.counts);
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(1, Cause::Internal as u32)]);
    assert_eq!(codes(&net.poll(a, a.recv_cq)), [(2, Cause::Flushed as u32)]);
    let events: Vec<_> = net.hosts[0].world.events.iter().map(|event| (event.kind, event.object)).collect();
    assert_eq!(events, [(AsyncKind::QpFatal, a.qpn.0)]);
    assert_eq!(net.state(b), QpState::Rts);
}

fn doomed(queue: Direction, number: u64, cause: Cause) -> Options {
    let failure = Failure { queue, number, qp: None, cause: cause as u16 };
    let failures = srdma_seams::Faults { failures: vec![failure], ..Default::default() };
    Options { failures, ..Options::default() }
}

#[test]
fn the_nth_send_fails_on_purpose_with_any_cause_and_is_marked_as_injected() {
    for row in TABLE {
        let (mut net, a, b) = Net::connected(21, doomed(Direction::Send, 3, row.cause));
        let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
        for i in 1..=5 {
            net.post(a, to_remote(entry(Opcode::Write, i, &[sge(0, 8, local)]), 0, remote));
        }
        net.post_recv(a, 9, &[]);
        net.run_for(SECOND);
        let code = row.cause as u32 | if row.cause == Cause::Flushed { 0 } else { u32::from(INJECTED) };
        let flushed = Cause::Flushed as u32;
        let done = net.poll(a, a.send_cq);
        assert_eq!(codes(&done), [(1, 0), (2, 0), (3, code), (4, flushed), (5, flushed)]);
        assert_eq!(done[2].status, row.status as u8);
        assert_eq!(codes(&net.poll(a, a.recv_cq)), [(9, flushed)]);
        assert_eq!((net.state(a), net.state(b)), (QpState::Err, QpState::Rts));
        let failed =
            |event: &Event| matches!(event, Event::QpFailed { cause, .. } if u32::from(*cause) == code);
        assert_eq!(net.hosts[0].counts.count(failed), 1);
    }
}

#[test]
fn the_nth_receive_fails_on_purpose_and_the_peer_hears_of_it() {
    let (mut net, a, b) = Net::connected(22, doomed(Direction::Receive, 2, Cause::LocalFault));
    let (local, own) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    for i in 1..=4 {
        net.post_recv(b, i, &[sge(0, 8, own)]);
        net.post(a, entry(Opcode::Send, 10 + i, &[sge(0, 8, local)]));
    }
    net.run_for(SECOND);
    let (flushed, struck) = (Cause::Flushed as u32, Cause::LocalFault as u32 | u32::from(INJECTED));
    assert_eq!(codes(&net.poll(b, b.recv_cq)), [(1, 0), (2, struck), (3, flushed), (4, flushed)]);
    let failed = Cause::RemoteFault as u32;
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(11, 0), (12, failed), (13, flushed), (14, flushed)]);
    assert_eq!((net.state(a), net.state(b)), (QpState::Err, QpState::Err));
}

#[test]
fn sqd_lets_what_was_sent_finish_and_keeps_the_rest() {
    let (mut net, a, _) = Net::connected(15, Options::default());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.run_for(SECOND);
    net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, remote));
    let sqd = QpAttributes { state: QpState::Sqd, ..attributes() };
    net.modify(a, &sqd, QpMask::STATE.with(QpMask::EN_SQD_ASYNC_NOTIFY)).unwrap();
    assert!(net.hosts[0].world.events.is_empty(), "not drained yet");
    net.post(a, to_remote(entry(Opcode::Write, 2, &[sge(0, 8, local)]), 0, remote));
    net.run_for(SECOND);
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(1, 0)]);
    let events: Vec<_> = net.hosts[0].world.events.iter().map(|event| event.kind).collect();
    assert_eq!(events, [AsyncKind::SqDrained]);
    net.go(a, QpState::Rts);
    net.run_for(SECOND);
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(2, 0)]);
}

#[test]
fn a_queue_pair_in_rtr_receives_and_says_so_once() {
    let mut net = Net::pair(16);
    let (a, b) = (net.qp(0), net.qp(1));
    for (qp, peer) in [(a, b), (b, a)] {
        net.go_init(qp, attributes());
        net.go_rtr(qp, peer, attributes());
    }
    net.go_rts(a, attributes());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.hosts[0].world.memory.fill(3);
    for i in 0..3 {
        net.post(a, to_remote(entry(Opcode::Write, i, &[sge(0, 8, local)]), 0, remote));
    }
    net.post(a, to_remote(entry(Opcode::Read, 3, &[sge(64, 8, local)]), 0, remote));
    net.run_for(SECOND);
    assert_eq!(net.poll(a, a.send_cq).len(), 4);
    assert_eq!(net.hosts[1].world.bytes(BASE, 8), [3; 8]);
    let events: Vec<_> = net.hosts[1].world.events.iter().map(|event| event.kind).collect();
    assert_eq!(events, [AsyncKind::CommEst]);
}

#[test]
fn a_late_peer_is_waited_for() {
    let mut net = Net::pair(17);
    let (a, b) = (net.qp(0), net.qp(1));
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.go_init(a, attributes());
    net.go_rtr(a, b, attributes());
    net.go_rts(a, attributes());
    net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, remote));
    net.run_for(Duration::from_millis(300));
    net.go_init(b, attributes());
    net.go_rtr(b, a, attributes());
    net.run_for(SECOND);
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(1, 0)]);
}

#[test]
fn control_calls_refuse_what_makes_no_sense_and_change_nothing() {
    let mut net = Net::pair(18);
    let (a, b) = (net.qp(0), net.qp(1));
    let host = &mut net.hosts[0];
    assert_eq!(host.nic.destroy_cq(a.send_cq), Err(ControlError::Busy("completion queue")));
    assert_eq!(host.nic.dealloc_pd(host.pd), Err(ControlError::Busy("protection domain")));
    let mut init = host.nic.query_qp(a.qpn).unwrap().1;
    init.max_send_sge = 33;
    assert!(matches!(
        host.nic.create_qp(srdma_seams::Qpn(77), &init, srdma_seams::ConnectionId(1)),
        Err(ControlError::Invalid(_))
    ));
    let init = host.nic.query_qp(a.qpn).unwrap().1;
    for qpn in [0, 1, 0xff_ffff, a.qpn.0] {
        let made = host.nic.create_qp(srdma_seams::Qpn(qpn), &init, srdma_seams::ConnectionId(1));
        assert!(matches!(made, Err(ControlError::Invalid(_))), "{qpn:#x}");
    }
    net.go_init(a, attributes());
    // No GID, a GID of another family: no peer, and the state stays.
    for gid in [None, Some([0xfd; 16])] {
        let rtr = QpAttributes {
            state: QpState::Rtr,
            has_gid: gid.is_some(),
            dest_gid: gid.unwrap_or_default(),
            dest_qpn: b.qpn.0,
            ..attributes()
        };
        let error = net.modify(a, &rtr, TO_RTR).unwrap_err();
        assert!(error.to_string().contains("GID"), "{error}");
        assert_eq!(net.state(a), QpState::Init);
    }
    net.go_rtr(a, b, attributes());
    let greedy = QpAttributes { state: QpState::Rts, max_rd_atomic: 17, ..attributes() };
    assert!(net.modify(a, &greedy, TO_RTS).is_err());
    assert_eq!(net.state(a), QpState::Rtr);
    net.destroy(a);
    assert!(net.hosts[0].nic.query_qp(a.qpn).is_err());
    let host = &mut net.hosts[0];
    assert_eq!(host.nic.destroy_cq(a.send_cq), Ok(()));
    assert_eq!(host.nic.destroy_cq(a.recv_cq), Ok(()));
    assert_eq!(host.nic.dealloc_pd(host.pd), Ok(()));
}

#[test]
fn forged_packets_change_nothing() {
    let (mut net, a, b) = Net::connected(19, Options::default());
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.hosts[0].world.memory.fill(5);
    net.record = Some(vec![]);
    net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, remote));
    net.run_for(SECOND);
    let record = net.record.take().unwrap();
    let (_, genuine) = record.iter().find(|(_, sent)| is_data(&sent.packet)).unwrap().clone();
    let Packet::Data(data) = genuine.packet else { unreachable!() };
    let copies = net.hosts[1].world.copies_done;
    let mut forged = vec![];
    // Contradictions within and between packets, with the right connection id.
    let mut next = data;
    (next.psn, next.message.msn) = (data.psn + 1, 1);
    for (offset, length, msn) in [(0, 4, 1), (8, 8, 1), (u32::MAX, 8, 1), (0, 8, 0), (0, 8, 1 << 30)] {
        let mut wrong = next;
        (wrong.message.offset, wrong.message.length, wrong.message.msn) = (offset, length, msn);
        forged.push(Packet::Data(wrong));
    }
    let mut stranger = data;
    stranger.connection.0 ^= 1;
    forged.push(Packet::Data(stranger));
    let (dest_qpn, connection, path) = (data.dest_qpn, data.connection, data.unit.path);
    for code in [NakCode::Key, NakCode::Rnr { timer: 31 }] {
        forged.push(Packet::Nak(srdma_wire::Nak { dest_qpn, connection, path, msn: 77, code }));
    }
    let response = srdma_wire::Data { op: Op::ReadResponse { request: 5 }, psn: 0, ..data };
    forged.push(Packet::Data(response));
    for packet in forged {
        let sent = Sent { packet, ..genuine.clone() };
        net.fly(0, sent, 0);
    }
    net.run_for(SECOND);
    assert_eq!(net.hosts[1].world.copies_done, copies);
    assert_eq!((net.state(a), net.state(b)), (QpState::Rts, QpState::Rts));
    net.poll(a, a.send_cq);
    net.post(a, to_remote(entry(Opcode::Write, 2, &[sge(0, 8, local)]), 0, remote));
    net.run_for(Duration::from_secs(5));
    assert_eq!(codes(&net.poll(a, a.send_cq)), [(2, 0)]);
    // What only a broken peer can say is refused as such.
    (next.psn, next.message.msn, next.message.length) = (data.psn + 2, 2, u32::MAX);
    net.fly(0, Sent { packet: Packet::Data(next), ..genuine }, 0);
    net.run_for(SECOND);
    assert_eq!(net.state(b), QpState::Err);
    assert_eq!(net.hosts[1].world.events.last().map(|event| event.kind), Some(AsyncKind::QpReqErr));
}

/// The next message after `genuine`, as its sender could have made it.
fn forge(genuine: &Sent, change: impl FnOnce(&mut srdma_wire::Data)) -> Sent {
    let Packet::Data(mut data) = genuine.packet else { panic!("{genuine:?}") };
    data.psn += 1;
    data.message.msn += 1;
    change(&mut data);
    Sent { packet: Packet::Data(data), ..genuine.clone() }
}

#[test]
fn another_hosts_packets_are_dropped_even_with_the_right_connection_id() {
    let (mut net, a, _) = Net::connected(21, Options { hosts: 3, ..Options::default() });
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.record = Some(vec![]);
    net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, remote));
    net.run_for(SECOND);
    let record = net.record.take().unwrap();
    let (_, genuine) = record.iter().find(|(_, sent)| is_data(&sent.packet)).unwrap();
    let copies = net.hosts[1].world.copies_done;
    net.fly(2, forge(genuine, |_| {}), 0);
    net.run_for(SECOND);
    assert_eq!(net.hosts[1].world.copies_done, copies);
    assert_eq!(net.hosts[1].counts.drops(DropCause::ForeignAddress), 1);
    net.fly(0, forge(genuine, |_| {}), 0);
    net.run_for(SECOND);
    assert_eq!(net.hosts[1].world.copies_done, copies + 1, "from the peer it would have been taken");
}

#[test]
fn a_peer_that_counts_receives_wrongly_is_refused_and_completes_none() {
    let (mut net, a, b) = Net::connected(22, Options::default());
    let (local, own) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    for i in 0..5 {
        net.post_recv(b, i, &[sge(i * 64, 64, own)]);
    }
    net.record = Some(vec![]);
    net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
    net.run_for(SECOND);
    let record = net.record.take().unwrap();
    let (_, genuine) = record.iter().find(|(_, sent)| is_send(sent)).unwrap();
    let skipping = forge(genuine, |data| data.op = Op::Send { receive: 3, imm: None, landed: 0 });
    net.fly(0, skipping, 0);
    net.run_for(SECOND);
    let got = codes(&net.poll(b, b.recv_cq));
    assert_eq!(got[0], (0, 0));
    assert_eq!(got[1..], (1..5).map(|i| (i, Cause::Flushed as u32)).collect::<Vec<_>>());
    assert_eq!(net.state(b), QpState::Err);
    assert_eq!(net.hosts[1].world.events.last().map(|event| event.kind), Some(AsyncKind::QpReqErr));
}
