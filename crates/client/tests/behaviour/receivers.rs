//! Receivers that are not ready, and queues that are full.

use srdma_abi::{AsyncKind, Cause, Completion, Opcode, QpAttributes, QpState};
use srdma_client::PostError;

use crate::ground::*;

#[test]
fn a_send_waits_for_a_receive_that_is_posted_late() {
    for opcode in [Opcode::Send, Opcode::WriteImm] {
        let pair = Pair::new();
        let ((here, lkey), (there, rkey)) = (pair.a.host.region(4096), pair.b.host.region(4096));
        here.fill(9);
        pair.a.post(to_remote(entry(opcode, 1, &[sge(&here, 0, 3000, lkey)]), there.address(), rkey));
        wait("a few refusals", &[pair.a.host, pair.b.host], || {
            (pair.a.counters()["rnr_received"].as_u64()? > 10).then_some(())
        });
        pair.a.assert_silent();
        assert_eq!(pair.a.state(), QpState::Rts);
        pair.b.post_recv(2, &[sge(&there, 0, 3000, rkey)]);
        assert_eq!(outcomes(&pair.b.received(1)), [done(2)], "{opcode:?}");
        assert_eq!(outcomes(&pair.a.sent(1)), [done(1)], "{opcode:?}");
        assert_eq!(there.load(0, 3000), [9; 3000]);
    }
}

#[test]
fn n_retries_are_n_plus_one_refusals_and_then_an_error() {
    for rnr_retry in [0u8, 1, 3] {
        let [a, b] = addresses().map(|address| Host::open(address, &options()));
        let ours = QpAttributes { rnr_retry, ..attributes() };
        let pair = Pair::shaped(a, b, [Shape::default(); 2], [ours, attributes()]);
        pair.a.post(entry(Opcode::Send, 1, &[]));
        pair.a.post(entry(Opcode::Send, 2, &[]));
        let expected = [failed(1, Cause::RnrExceeded), failed(2, Cause::Flushed)];
        assert_eq!(outcomes(&pair.a.sent(2)), expected, "rnr_retry {rnr_retry}");
        assert_eq!(pair.a.state(), QpState::Err);
        let refusals = pair.b.counters()["rnr_sent"].as_u64().unwrap();
        assert_eq!(refusals, u64::from(rnr_retry) + 1);
    }
}

#[test]
fn writes_and_reads_need_no_receive() {
    let pair = Pair::new();
    let ((here, lkey), (there, rkey)) = (pair.a.host.region(4096), pair.b.host.region(4096));
    for (i, opcode) in [Opcode::Write, Opcode::Read, Opcode::FetchAdd].into_iter().enumerate() {
        let request = to_remote(entry(opcode, i as u64, &[sge(&here, 0, 8, lkey)]), there.address(), rkey);
        assert_eq!(outcomes(&[pair.a.run(request)]), [done(i as u64)]);
    }
    assert_eq!(pair.b.counters()["rnr_sent"], 0);
}

#[test]
fn a_full_queue_says_so_and_has_room_again_when_requests_are_complete() {
    const QUEUE: u32 = 16;
    let [a, b] = addresses().map(|address| Host::open(address, &options()));
    let shape = Shape { send_wr: QUEUE, recv_wr: QUEUE, ..Shape::default() };
    let pair = Pair::shaped(a, b, [shape; 2], [attributes(); 2]);
    for round in 0..5 {
        // Nothing can complete before the peer has receives.
        let mut posted = 0u64;
        let full = loop {
            match pair.a.try_post(entry(Opcode::Send, posted, &[]), &[]) {
                Ok(()) => posted += 1,
                Err(error) => break error,
            }
            assert!(posted < 10_000, "the queue is never full");
        };
        assert_eq!(full, PostError::Full, "round {round}");
        assert!(posted >= u64::from(QUEUE), "only {posted} of {QUEUE} fit");
        let mut received = 0;
        let mut wanted = 0;
        while received < posted {
            while wanted < posted {
                match pair.b.try_post_recv(wanted, &[]) {
                    Ok(()) => wanted += 1,
                    Err(error) => {
                        assert_eq!(error, PostError::Full);
                        assert!(wanted - received >= u64::from(QUEUE), "only {} fit", wanted - received);
                        break;
                    }
                }
            }
            let some = pair.b.received(1);
            assert_eq!(outcomes(&some), [done(received)]);
            received += 1;
        }
        let expected: Vec<_> = (0..posted).map(done).collect();
        assert_eq!(outcomes(&pair.a.sent(posted as usize)), expected, "round {round}");
    }
}

#[test]
fn a_completion_queue_that_overflows_fails_and_keeps_what_it_had() {
    const ENTRIES: u32 = 4;
    let [a, b] = addresses().map(|address| Host::open(address, &options()));
    let shape = Shape { cq_entries: ENTRIES, ..Shape::default() };
    let pair = Pair::shaped(a, b, [shape; 2], [attributes(); 2]);
    let bystander = Pair::on(a, b);
    let ((here, lkey), (there, rkey)) = (a.region(4096), b.region(4096));
    let write =
        |wr_id| to_remote(entry(Opcode::Write, wr_id, &[sge(&here, 0, 8, lkey)]), there.address(), rkey);
    for wr_id in 0..u64::from(ENTRIES) + 3 {
        pair.a.post(write(wr_id));
    }
    assert_eq!(a.await_event(), event(AsyncKind::CqErr, pair.a.sends.number()));
    pair.a.await_state(QpState::Err);
    // What was in the queue is as it was; nothing that came later has taken its place.
    let kept = pair.a.sent(ENTRIES as usize);
    assert_eq!(outcomes(&kept), (0..u64::from(ENTRIES)).map(done).collect::<Vec<_>>());
    let mut out = [Completion::default(); 8];
    assert_eq!(pair.a.sends.poll(&mut out), Some(0), "{out:?}");
    pair.a.post(write(99));
    pair.a.assert_silent();
    assert_eq!(a.event(), None, "the event comes once");
    assert_eq!(outcomes(&[bystander.a.run(write(5))]), [done(5)]);
}
