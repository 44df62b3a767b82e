//! The table of error causes, row by row: how each is met, and what either side sees of it.
//!
//! A cause that is new in the table does not compile here until a way to it is given.

use srdma_abi::cause::TABLE;
use srdma_abi::{AsyncKind, Cause, Completion, Opcode, QpAttributes, QpState};
use srdma_memory::Rights;
use srdma_rnic::world::SendRefusal;
use srdma_seams::{Duration, MrKey};
use srdma_wire::Packet;

use crate::host::BASE;
use crate::net::*;

/// What the side that meets the cause (first) and its peer see.
struct Seen {
    here: Side,
    there: Side,
}

struct Side {
    state: QpState,
    /// `vendor_err` and status of all completions, sends first.
    completions: Vec<(u32, u8)>,
    events: Vec<AsyncKind>,
}

fn side(net: &mut Net, qp: QpRef) -> Side {
    let codes = |done: Vec<Completion>| done.into_iter().map(|c| (c.vendor_err, c.status));
    let mut completions: Vec<_> = codes(net.poll(qp, qp.send_cq)).collect();
    completions.extend(codes(net.poll(qp, qp.recv_cq)));
    let events = net.hosts[qp.host].world.events.iter().map(|event| event.kind).collect();
    Side { state: net.state(qp), completions, events }
}

fn seen(mut net: Net, here: QpRef, there: QpRef) -> Seen {
    net.run_for(Duration::from_secs(60));
    Seen { here: side(&mut net, here), there: side(&mut net, there) }
}

/// Two queue pairs, a region of each side, and a receive at the second.
fn ground() -> (Net, QpRef, QpRef, [MrKey; 2]) {
    let (mut net, a, b) = Net::connected(31, Options::default());
    let keys = [0, 1].map(|host| net.region(host, 0, 4096, ALL));
    net.post_recv(b, 70, &[sge(0, 64, keys[1])]);
    net.run_for(Duration::from_secs(1));
    (net, a, b, keys)
}

/// The first side posts a WRITE of `length` bytes from `at` to `to`, with these keys.
fn write(at: u64, length: u32, lkey: MrKey, to: u64, rkey: MrKey) -> srdma_abi::SendEntry {
    to_remote(entry(Opcode::Write, 1, &[sge(at, length, lkey)]), to, rkey)
}

/// The same operation, with the region of side `host` changed by `change` first.
fn with(change: impl FnOnce(&mut Net, QpRef, [MrKey; 2]) -> srdma_abi::SendEntry) -> Seen {
    let (mut net, a, b, keys) = ground();
    let entry = change(&mut net, a, keys);
    net.post(a, entry);
    seen(net, a, b)
}

/// Local causes: a request that this side cannot carry out.
fn meet_local(cause: Cause) -> Option<Seen> {
    Some(match cause {
        Cause::Flushed => {
            let (mut net, a, b, [lkey, rkey]) = ground();
            net.go(a, QpState::Err);
            net.post(a, write(0, 8, lkey, 0, rkey));
            seen(net, a, b)
        }
        Cause::LocalKey => with(|_, _, [lkey, rkey]| write(0, 8, MrKey(lkey.0 ^ 1), 0, rkey)),
        Cause::LocalBounds => with(|_, _, [lkey, rkey]| write(4090, 8, lkey, 0, rkey)),
        Cause::LocalAccess => with(|net, _, [_, rkey]| {
            let locked = net.region(0, 8192, 4096, Rights::REMOTE_READ);
            to_remote(entry(Opcode::Read, 1, &[sge(8192, 8, locked)]), 0, rkey)
        }),
        Cause::LocalFault => with(|net, _, [lkey, rkey]| {
            net.hosts[0].world.unmapped.push(BASE..BASE + 4096);
            write(0, 8, lkey, 0, rkey)
        }),
        Cause::BadEntry => {
            let (mut net, a, b, _) = ground();
            net.post_garbage(a);
            seen(net, a, b)
        }
        Cause::MessageTooLong => with(|net, _, [_, rkey]| {
            let host = &mut net.hosts[0];
            let large = host.nic.register(host.pd, BASE, 1 << 40, BASE, ALL).unwrap();
            let two = [sge(0, 1 << 30, large), sge(0, 1, large)];
            to_remote(entry(Opcode::Write, 1, &two), 0, rkey)
        }),
        Cause::AtomicShape => {
            with(|_, _, [lkey, rkey]| to_remote(entry(Opcode::FetchAdd, 1, &[sge(0, 4, lkey)]), 0, rkey))
        }
        _ => return None,
    })
}

/// What the peer refuses.
fn meet_remote(cause: Cause) -> Option<Seen> {
    let send = |_: &mut Net, _: QpRef, [lkey, _]: [MrKey; 2]| entry(Opcode::Send, 1, &[sge(0, 65, lkey)]);
    Some(match cause {
        Cause::ReceiveTooSmall => {
            let Seen { here, there } = with(send);
            Seen { here: there, there: here }
        }
        Cause::RemoteReceiveTooSmall => with(send),
        Cause::RemoteKey => with(|_, _, [lkey, rkey]| write(0, 8, lkey, 0, MrKey(rkey.0 ^ 1))),
        Cause::RemoteBounds => with(|_, _, [lkey, rkey]| write(0, 8, lkey, 4090, rkey)),
        Cause::RemoteAccess => with(|net, _, [lkey, _]| {
            let closed = net.region(1, 8192, 4096, Rights::REMOTE_READ);
            write(0, 8, lkey, 8192, closed)
        }),
        Cause::RemoteInvalid => {
            with(|_, _, [lkey, rkey]| to_remote(entry(Opcode::FetchAdd, 1, &[sge(0, 8, lkey)]), 4, rkey))
        }
        Cause::RemoteFault => with(|net, _, [lkey, rkey]| {
            net.hosts[1].world.unmapped.push(BASE..BASE + 4096);
            write(0, 8, lkey, 0, rkey)
        }),
        Cause::RemoteTooManyReads => {
            let mut net = Net::pair(32);
            let (a, b) = (net.qp(0), net.qp(1));
            net.connect(a, b, attributes(), QpAttributes { max_dest_rd_atomic: 1, ..attributes() });
            let keys = [0, 1].map(|host| net.region(host, 0, 1 << 20, ALL));
            for wr_id in 0..16 {
                let read = entry(Opcode::Read, wr_id, &[sge(0, 1 << 18, keys[0])]);
                net.post(a, to_remote(read, 0, keys[1]));
            }
            seen(net, a, b)
        }
        _ => return None,
    })
}

/// A peer that does not answer as it should, or not at all.
fn meet_silence(cause: Cause) -> Option<Seen> {
    Some(match cause {
        Cause::NoAnswer => with(|net, _, [lkey, rkey]| {
            net.filter = Some(Box::new(|_, _, _| Verdict::Drop));
            write(0, 8, lkey, 0, rkey)
        }),
        Cause::PathMtu => with(|net, _, [lkey, rkey]| {
            // Smaller than any data packet: the handshake's least.
            net.filter = Some(Box::new(|_, _, sent| match sent.bytes() > 500 {
                true => Verdict::Drop,
                false => Verdict::Pass,
            }));
            write(0, 4096, lkey, 0, rkey)
        }),
        Cause::NoHandshake | Cause::Unreachable | Cause::Version => {
            let mut net = Net::pair(33);
            let (a, b) = (net.qp(0), net.qp(1));
            let local = net.region(0, 0, 4096, ALL);
            net.go_init(a, attributes());
            net.go_rtr(a, b, attributes());
            net.go_rts(a, attributes());
            if cause == Cause::Unreachable {
                net.hosts[0].world.refusal = Some(SendRefusal::Unreachable);
            }
            net.record = Some(vec![]);
            net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
            net.run_for(Duration::from_millis(1));
            if let (Cause::Version, Some((_, mut answer))) = (cause, net.record.take().unwrap().pop()) {
                let Packet::Hello(hello) = &mut answer.packet else { panic!("{answer:?}") };
                (hello.version, hello.dest_qpn, hello.src_qpn) = (99, a.qpn, b.qpn);
                answer.peer.set_ip(net.hosts[0].address);
                net.fly(1, answer, 0);
            }
            seen(net, a, b)
        }
        Cause::PeerClosed => {
            let (mut net, a, b, [lkey, rkey]) = ground();
            net.destroy(b);
            net.post(a, write(0, 8, lkey, 0, rkey));
            net.run_for(Duration::from_secs(60));
            let gone = Side { state: QpState::Reset, completions: vec![], events: vec![] };
            Seen { here: side(&mut net, a), there: gone }
        }
        Cause::RnrExceeded => {
            let mut net = Net::pair(34);
            let (a, b) = (net.qp(0), net.qp(1));
            net.connect(a, b, QpAttributes { rnr_retry: 2, ..attributes() }, attributes());
            let local = net.region(0, 0, 4096, ALL);
            net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
            seen(net, a, b)
        }
        _ => return None,
    })
}

/// What this device itself cannot go on with.
fn meet_own(cause: Cause) -> Option<Seen> {
    Some(match cause {
        Cause::CqOverrun => {
            // Sends of `a` complete where there is room; its receives, where there is none.
            let mut net = Net::pair(35);
            let (small, b) = (net.cq(0, 1), net.qp(1));
            let mut a = net.qp(0);
            let id = net.connection_id();
            let mut init = net.init(0);
            (init.send_cq, init.recv_cq) = (a.send_cq.0, small.0);
            (a.qpn, a.recv_cq) = (srdma_seams::Qpn(901), small);
            net.hosts[0].nic.create_qp(a.qpn, &init, id).unwrap();
            net.connect(a, b, attributes(), attributes());
            // One request waits for a receive that never comes when the queue overflows.
            net.post(a, entry(Opcode::Send, 1, &[]));
            for wr_id in 0..2 {
                net.post_recv(a, wr_id, &[]);
                net.post(b, entry(Opcode::Send, wr_id, &[]));
            }
            seen(net, a, b)
        }
        Cause::Internal => {
            let (mut net, a, b, [lkey, rkey]) = ground();
            net.filter = Some(Box::new(|_, _, _| Verdict::Drop));
            net.post(a, write(0, 8, lkey, 0, rkey));
            let host = &mut net.hosts[0];
            host.nic.fail_all(net.now, Cause::Internal, &mut host.world, &mut host.counts);
            seen(net, a, b)
        }
        _ => return None,
    })
}

/// What the peer sees: its state, events, and the codes of its completions.
fn expected_there(cause: Cause) -> (QpState, Vec<AsyncKind>, Vec<Cause>) {
    use AsyncKind::{QpAccessErr, QpReqErr};
    use QpState::{Err, Reset, Rts};
    match cause {
        // Not its fault, so not its business: it hears of a local mistake only by silence.
        Cause::Flushed
        | Cause::LocalKey
        | Cause::LocalBounds
        | Cause::LocalAccess
        | Cause::LocalFault
        | Cause::BadEntry
        | Cause::MessageTooLong
        | Cause::AtomicShape
        | Cause::NoAnswer
        | Cause::PathMtu
        | Cause::RnrExceeded
        | Cause::Internal => (Rts, vec![], vec![]),
        Cause::ReceiveTooSmall => (Err, vec![], vec![Cause::RemoteReceiveTooSmall]),
        Cause::RemoteReceiveTooSmall => (Err, vec![], vec![Cause::ReceiveTooSmall]),
        Cause::RemoteKey | Cause::RemoteBounds | Cause::RemoteAccess | Cause::RemoteFault => {
            (Err, vec![QpAccessErr], vec![Cause::Flushed])
        }
        Cause::RemoteInvalid => (Err, vec![QpReqErr], vec![Cause::Flushed]),
        Cause::RemoteTooManyReads => (Err, vec![QpReqErr], vec![]),
        // There is no peer.
        Cause::NoHandshake | Cause::Unreachable | Cause::Version | Cause::PeerClosed => {
            (Reset, vec![], vec![])
        }
        // What it sent could not be told to the program there, so it is not acknowledged.
        Cause::CqOverrun => (Err, vec![], vec![Cause::NoAnswer]),
    }
}

#[test]
fn every_row_of_the_error_table_is_met_and_seen_on_both_sides() {
    for row in TABLE {
        let cause = row.cause;
        let Seen { here, there } = meet_local(cause)
            .or_else(|| meet_remote(cause))
            .or_else(|| meet_silence(cause))
            .or_else(|| meet_own(cause))
            .unwrap_or_else(|| panic!("nobody knows how to meet {cause:?}"));
        let met = (cause as u32, row.status as u8);
        assert!(here.completions.contains(&met), "{cause:?}: {:?}", here.completions);
        assert_eq!(here.state, QpState::Err, "{cause:?}");
        let (state, events, causes) = expected_there(cause);
        assert_eq!((there.state, &there.events), (state, &events), "{cause:?} at the peer");
        for wanted in causes {
            let found = there.completions.iter().any(|&(code, _)| code == wanted as u32);
            assert!(found, "{cause:?} at the peer: {:?}", there.completions);
        }
        if state == QpState::Rts {
            assert!(there.completions.is_empty(), "{cause:?} at the peer: {:?}", there.completions);
        }
    }
}
