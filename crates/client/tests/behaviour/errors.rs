//! The error state, the way back from it, and destruction.

use srdma_abi::{Cause, Completion, Opcode, QpState};
use srdma_client::PostError;

use crate::ground::*;

#[test]
fn what_is_posted_in_the_error_state_is_flushed_in_order() {
    let pair = Pair::new();
    let (here, lkey) = pair.a.host.region(4096);
    pair.a.post_recv(10, &[sge(&here, 0, 8, lkey)]);
    pair.a.post_recv(11, &[]);
    pair.a.go_to(QpState::Err);
    let flushed = |ids: &[u64]| ids.iter().map(|&id| failed(id, Cause::Flushed)).collect::<Vec<_>>();
    assert_eq!(outcomes(&pair.a.received(2)), flushed(&[10, 11]));
    for round in 0..3 {
        let opcodes = [Opcode::Send, Opcode::Write, Opcode::Read, Opcode::FetchAdd];
        for (i, opcode) in opcodes.into_iter().enumerate() {
            let mut request = entry(opcode, round * 100 + i as u64, &[sge(&here, 0, 8, lkey)]);
            // Unsignalled requests complete too when they fail.
            if i % 2 == 1 {
                request.flags = srdma_abi::SendFlags(0);
            }
            pair.a.post(request);
            pair.a.post_recv(round * 100 + 50 + i as u64, &[]);
        }
        let base = round * 100;
        let sent = pair.a.sent(4);
        assert_eq!(outcomes(&sent), flushed(&[base, base + 1, base + 2, base + 3]));
        assert_eq!(sent.iter().map(|c| c.opcode).collect::<Vec<_>>(), [0, 1, 2, 4]);
        assert_eq!(outcomes(&pair.a.received(4)), flushed(&[base + 50, base + 51, base + 52, base + 53]));
    }
    pair.a.assert_silent();
}

#[test]
fn requests_under_way_are_flushed_in_order_when_the_error_state_is_asked_for() {
    let pair = Pair::new();
    // Nothing that consumes a receive can complete, nor anything after it.
    pair.a.post(entry(Opcode::Send, 1, &[]));
    let (here, lkey) = pair.a.host.region(1 << 20);
    let (there, rkey) = pair.b.host.region(1 << 20);
    for (wr_id, opcode) in [(2, Opcode::Write), (3, Opcode::Read), (4, Opcode::FetchAdd)] {
        let length = if opcode == Opcode::FetchAdd { 8 } else { 1 << 20 };
        pair.a.post(to_remote(entry(opcode, wr_id, &[sge(&here, 0, length, lkey)]), there.address(), rkey));
        pair.a.post_recv(wr_id, &[]);
    }
    pair.a.go_to(QpState::Err);
    pair.a.post(entry(Opcode::Send, 5, &[]));
    let expected: Vec<_> = (1..=5).map(|id| failed(id, Cause::Flushed)).collect();
    assert_eq!(outcomes(&pair.a.sent(5)), expected);
    assert_eq!(outcomes(&pair.a.received(3)), expected[1..4]);
    pair.a.assert_silent();
}

#[test]
fn posts_that_come_too_early_are_refused() {
    let host = Host::open(addresses()[0], &options());
    let end = End::new(host, Shape::default());
    assert_eq!(end.try_post_recv(1, &[]), Err(PostError::State));
    assert_eq!(end.try_post(entry(Opcode::Send, 1, &[]), &[]), Err(PostError::State));
    end.init(&attributes());
    assert_eq!(end.try_post_recv(1, &[]), Ok(()));
    assert_eq!(end.try_post(entry(Opcode::Send, 1, &[]), &[]), Err(PostError::State));
}

#[test]
fn a_queue_pair_works_again_after_a_reset_and_knows_nothing_of_before() {
    let pair = Pair::new();
    let ((here, lkey), (there, rkey)) = (pair.a.host.region(4096), pair.b.host.region(4096));
    for round in 0..4u64 {
        // Something under way, something completed and unpolled, something that fails.
        pair.b.post_recv(7, &[]);
        pair.a.post(entry(Opcode::Send, 1, &[]));
        let wrong = entry(Opcode::Write, 2, &[sge(&here, 0, 8, lkey)]);
        if round % 2 == 0 {
            pair.a.post(to_remote(wrong, there.address(), rkey ^ 0x5555));
            assert_eq!(outcomes(&pair.a.sent(2)), [done(1), failed(2, Cause::RemoteKey)]);
            assert_eq!(outcomes(&pair.b.received(1)), [done(7)]);
            pair.b.await_state(QpState::Err);
        } else {
            assert_eq!(outcomes(&pair.a.sent(1)), [done(1)]);
            assert_eq!(outcomes(&pair.b.received(1)), [done(7)]);
            pair.b.post_recv(8, &[]);
            pair.b.go_to(QpState::Err);
            assert_eq!(outcomes(&pair.b.received(1)), [failed(8, Cause::Flushed)]);
        }
        while pair.b.host.event().is_some() {}
        pair.a.go_to(QpState::Reset);
        pair.b.go_to(QpState::Reset);
        assert_eq!(pair.a.state(), QpState::Reset);
        pair.a.connect(pair.b.name(), &attributes());
        pair.b.connect(pair.a.name(), &attributes());
        for i in 0..200u64 {
            let bytes = pattern(4096, round * 1000 + i);
            here.store(0, &bytes);
            let write = entry(Opcode::WriteImm, i, &[sge(&here, 0, 4096, lkey)]);
            pair.b.post_recv(i, &[]);
            assert_eq!(outcomes(&[pair.a.run(to_remote(write, there.address(), rkey))]), [done(i)]);
            assert_eq!(outcomes(&pair.b.received(1)), [done(i)]);
            assert!(there.load(0, 4096) == bytes, "round {round}, {i}");
        }
    }
    assert_eq!(pair.b.host.event(), None);
}

#[test]
fn a_reset_forgets_what_was_posted() {
    let pair = Pair::new();
    for wr_id in 0..8 {
        pair.a.post(entry(Opcode::Send, wr_id, &[]));
        pair.a.post_recv(wr_id, &[]);
    }
    pair.a.go_to(QpState::Reset);
    pair.b.go_to(QpState::Reset);
    pair.a.assert_silent();
    pair.a.connect(pair.b.name(), &attributes());
    pair.b.connect(pair.a.name(), &attributes());
    // The first receive posted now is the first used: none of before is left.
    pair.a.post_recv(100, &[]);
    pair.b.post_recv(200, &[]);
    pair.a.post(entry(Opcode::Send, 101, &[]));
    pair.b.post(entry(Opcode::Send, 201, &[]));
    assert_eq!(outcomes(&pair.a.received(1)), [done(100)]);
    assert_eq!(outcomes(&pair.b.received(1)), [done(200)]);
    assert_eq!(outcomes(&pair.a.sent(1)), [done(101)]);
}

#[test]
fn no_completion_of_a_destroyed_queue_pair_is_delivered() {
    let [a, b] = addresses().map(|address| Host::open(address, &options()));
    let pair = Pair::on(a, b);
    // A second queue pair on the same completion queues.
    let init = srdma_abi::QpInit { pd: a.pd, ..pair.a.qp.init() };
    let second = a.device.create_qp(&init).unwrap();
    let ((here, lkey), (there, rkey)) = (a.region(4096), b.region(4096));
    for wr_id in 0..20 {
        let write = entry(Opcode::Write, wr_id, &[sge(&here, 0, 8, lkey)]);
        pair.a.post(to_remote(write, there.address(), rkey));
        pair.a.post_recv(wr_id, &[]);
    }
    // All of them wait in the queue, some perhaps still on their way.
    wait("the last write", &[a, b], || {
        let read = a.counters(pair.a.qp.number())["packets_sent"].as_u64()?;
        (read >= 20).then_some(())
    });
    let number = pair.a.qp.number();
    pair.a.qp.destroy().unwrap();
    pair.a.assert_silent();
    let mut out = [Completion::default(); 4];
    assert_eq!(pair.a.sends.poll(&mut out), Some(0));
    // Its number is not given to the next one.
    for _ in 0..100 {
        let next = a.device.create_qp(&init).unwrap();
        assert_ne!(next.number(), number);
        next.destroy().unwrap();
    }
    second.destroy().unwrap();
}

#[test]
fn the_peer_of_a_destroyed_queue_pair_is_told() {
    // With no time-out at all: only being told can end it.
    let [a, b] = addresses().map(|address| Host::open(address, &options()));
    let patient = srdma_abi::QpAttributes { timeout: 0, ..attributes() };
    let pair = Pair::shaped(a, b, [Shape::default(); 2], [patient; 2]);
    pair.a.post(entry(Opcode::Send, 1, &[]));
    pair.a.post(entry(Opcode::Send, 2, &[]));
    wait("a refusal", &[a, b], || (pair.a.counters()["rnr_received"].as_u64()? > 0).then_some(()));
    pair.b.qp.destroy().unwrap();
    assert_eq!(outcomes(&pair.a.sent(2)), [failed(1, Cause::PeerClosed), failed(2, Cause::Flushed)]);
    assert_eq!(pair.a.state(), QpState::Err);
}
