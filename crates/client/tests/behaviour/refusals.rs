//! What a queue pair may not do is refused with the right words on both sides, and leaves no trace.

use srdma_abi::{Access, AsyncKind, Cause, Opcode, QpAttributes, QpState};

use crate::ground::*;

const BYTES: u32 = 4096;

/// What is wrong with a request on remote memory.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A key that never was.
    Unknown,
    /// That of a region that has been deregistered.
    Stale,
    /// That of another protection domain.
    OtherPd,
    /// `length` bytes at this distance from the region's first byte.
    Bounds(i64, u32),
    /// The region lacks this access.
    Region(u32),
    /// The peer's queue pair lacks it.
    QueuePair(u32),
}

const WRITE: u32 = Access::REMOTE_WRITE.0;
const READ: u32 = Access::REMOTE_READ.0;
const ATOMIC: u32 = Access::REMOTE_ATOMIC.0;

fn without(access: u32) -> Access {
    Access(ALL.0 & !access)
}

fn needs(opcode: Opcode) -> u32 {
    match opcode {
        Opcode::Read => READ,
        Opcode::CompareSwap | Opcode::FetchAdd => ATOMIC,
        _ => WRITE,
    }
}

fn remote_faults(opcode: Opcode) -> Vec<(Fault, Cause)> {
    let needed = needs(opcode);
    let mut faults = vec![
        (Fault::Unknown, Cause::RemoteKey),
        (Fault::Stale, Cause::RemoteKey),
        (Fault::OtherPd, Cause::RemoteKey),
        (Fault::Bounds(-8, 8), Cause::RemoteBounds),
        (Fault::Bounds(BYTES.into(), 8), Cause::RemoteBounds),
        (Fault::Region(needed), Cause::RemoteAccess),
        (Fault::QueuePair(needed), Cause::RemoteAccess),
    ];
    if needed != ATOMIC {
        faults.extend([
            (Fault::Bounds(-1, 8), Cause::RemoteBounds),
            (Fault::Bounds(i64::from(BYTES) - 7, 8), Cause::RemoteBounds),
            (Fault::Bounds(0, BYTES + 1), Cause::RemoteBounds),
            // The last bytes of the address space, and beyond.
            (Fault::Bounds(i64::MIN, 64), Cause::RemoteBounds),
        ]);
    }
    faults
}

#[test]
fn a_request_that_the_peer_may_not_make_is_refused_on_both_sides() {
    let [left, right] = addresses().map(|address| Host::open(address, &options()));
    for opcode in [Opcode::Write, Opcode::WriteImm, Opcode::Read, Opcode::CompareSwap, Opcode::FetchAdd] {
        for (fault, cause) in remote_faults(opcode) {
            refuse(left, right, opcode, fault, cause);
        }
    }
}

fn refuse(left: &'static Host, right: &'static Host, opcode: Opcode, fault: Fault, cause: Cause) {
    let name = format!("{opcode:?} {fault:?}");
    let theirs = match fault {
        Fault::QueuePair(access) => QpAttributes { access: without(access), ..attributes() },
        _ => attributes(),
    };
    let pair = Pair::shaped(left, right, [Shape::default(); 2], [attributes(), theirs]);
    let (here, lkey) = left.region(2 * u64::from(BYTES));
    // The region lies in the middle of memory that must not change.
    let around = Memory::new(3 * u64::from(BYTES));
    around.fill(7);
    here.fill(9);
    let (base, bytes) = (around.address() + u64::from(BYTES), u64::from(BYTES));
    let register = |pd, access: Access| right.device.register(pd, base, bytes, base, access.0).unwrap();
    let good = register(right.pd, ALL);
    let rkey = match fault {
        Fault::Unknown => good ^ 0x5555,
        Fault::Stale => {
            let stale = register(right.pd, ALL);
            right.device.deregister(stale).unwrap();
            stale
        }
        Fault::OtherPd => register(right.device.alloc_pd().unwrap(), ALL),
        Fault::Region(access) => register(right.pd, without(access)),
        _ => good,
    };
    let (address, length) = match fault {
        Fault::Bounds(i64::MIN, length) => (u64::MAX - 31, length),
        Fault::Bounds(at, length) => (base.wrapping_add_signed(at), length),
        _ => (base, 8),
    };
    pair.b.post_recv(50, &[]);
    pair.b.post_recv(51, &[]);
    pair.a.post_recv(60, &[]);
    pair.a.post(entry(Opcode::Send, 1, &[]));
    pair.a.post(to_remote(entry(opcode, 2, &[sge(&here, 0, length, lkey)]), address, rkey));
    pair.a.post(to_remote(entry(Opcode::Write, 3, &[sge(&here, 0, 8, lkey)]), base, good));

    let expected = [done(1), failed(2, cause), failed(3, Cause::Flushed)];
    assert_eq!(outcomes(&pair.a.sent(3)), expected, "{name}");
    assert_eq!(outcomes(&pair.b.received(2)), [done(50), failed(51, Cause::Flushed)], "{name}");
    assert_eq!(outcomes(&pair.a.received(1)), [failed(60, Cause::Flushed)], "{name}");
    assert_eq!((pair.a.state(), pair.b.state()), (QpState::Err, QpState::Err), "{name}");
    assert_eq!(right.await_event(), event(AsyncKind::QpAccessErr, pair.b.qp.number()), "{name}");
    assert_eq!(left.event(), None, "{name}");
    assert!(around.is_all(7), "{name}: something was written");
    assert!(here.is_all(9), "{name}: something was read");
}

#[test]
fn a_request_that_makes_no_sense_is_refused_as_invalid() {
    let [left, right] = addresses().map(|address| Host::open(address, &options()));
    // Atomics on addresses that are no multiple of 8; a message longer than the receive.
    for (opcode, at) in [(Opcode::FetchAdd, 4), (Opcode::CompareSwap, 1), (Opcode::FetchAdd, 7)] {
        let pair = Pair::on(left, right);
        let ((here, lkey), (there, rkey)) = (left.region(4096), right.region(4096));
        there.fill(7);
        let request = to_remote(entry(opcode, 1, &[sge(&here, 0, 8, lkey)]), there.address() + at, rkey);
        assert_eq!(outcomes(&[pair.a.run(request)]), [failed(1, Cause::RemoteInvalid)]);
        assert_eq!(right.await_event(), event(AsyncKind::QpReqErr, pair.b.qp.number()));
        assert!(there.is_all(7));
    }
}

#[test]
fn a_receive_that_does_not_do_fails_on_both_sides() {
    type Make = fn(&'static Host, Memory, u32) -> Vec<srdma_abi::Sge>;
    let cases: &[(&str, Make, Cause, Cause)] = &[
        (
            "small",
            |_, m, key| vec![sge(&m, 0, 99, key)],
            Cause::ReceiveTooSmall,
            Cause::RemoteReceiveTooSmall,
        ),
        ("no room", |_, _, _| vec![], Cause::ReceiveTooSmall, Cause::RemoteReceiveTooSmall),
        ("key", |_, m, key| vec![sge(&m, 0, 200, key ^ 0x5555)], Cause::LocalKey, Cause::RemoteFault),
        ("bounds", |_, m, key| vec![sge(&m, 4000, 200, key)], Cause::LocalBounds, Cause::RemoteFault),
        (
            "other protection domain",
            |host, m, _| {
                let pd = host.device.alloc_pd().unwrap();
                let key = host.device.register(pd, m.address(), m.bytes(), m.address(), ALL.0).unwrap();
                vec![sge(&m, 0, 200, key)]
            },
            Cause::LocalKey,
            Cause::RemoteFault,
        ),
        (
            "read only",
            |host, m, _| vec![sge(&m, 0, 200, host.register(&m, Access::REMOTE_READ))],
            Cause::LocalAccess,
            Cause::RemoteFault,
        ),
    ];
    let [left, right] = addresses().map(|address| Host::open(address, &options()));
    for &(name, make, here_cause, there_cause) in cases {
        let pair = Pair::on(left, right);
        let ((here, lkey), (there, rkey)) = (left.region(4096), right.region(4096));
        here.fill(9);
        pair.b.post_recv(1, &make(right, there, rkey));
        pair.b.post_recv(2, &[sge(&there, 0, 200, rkey)]);
        pair.a.post(entry(Opcode::Send, 3, &[sge(&here, 0, 150, lkey)]));
        pair.a.post(entry(Opcode::Send, 4, &[sge(&here, 0, 8, lkey)]));
        assert_eq!(
            outcomes(&pair.b.received(2)),
            [failed(1, here_cause), failed(2, Cause::Flushed)],
            "{name}"
        );
        assert_eq!(outcomes(&pair.a.sent(2)), [failed(3, there_cause), failed(4, Cause::Flushed)], "{name}");
        assert!(there.is_all(0), "{name}");
    }
}

#[test]
fn a_local_fault_fails_in_order_and_does_not_reach_the_peer() {
    type Make = fn(&'static Host, Memory, u32) -> srdma_abi::Sge;
    let unknown: Make = |_, m, key| sge(&m, 0, 8, key ^ 0x5555);
    let stale: Make = |host, m, _| {
        let key = host.register(&m, ALL);
        host.device.deregister(key).unwrap();
        sge(&m, 0, 8, key)
    };
    let other_pd: Make = |host, m, _| {
        let pd = host.device.alloc_pd().unwrap();
        sge(&m, 0, 8, host.device.register(pd, m.address(), m.bytes(), m.address(), ALL.0).unwrap())
    };
    let beyond: Make = |_, m, key| sge(&m, 4089, 8, key);
    let before: Make = |_, m, key| srdma_abi::Sge { address: m.address() - 1, length: 8, lkey: key };
    let wrap: Make = |_, _, key| srdma_abi::Sge { address: u64::MAX - 3, length: 8, lkey: key };
    let read_only: Make = |host, m, _| sge(&m, 0, 8, host.register(&m, Access::REMOTE_READ));
    let four: Make = |_, m, key| sge(&m, 0, 4, key);
    let cases: &[(&str, Make, &[Opcode], Cause)] = &[
        ("unknown", unknown, &[Opcode::Write, Opcode::Send, Opcode::Read], Cause::LocalKey),
        ("stale", stale, &[Opcode::Write, Opcode::Send, Opcode::Read], Cause::LocalKey),
        ("other protection domain", other_pd, &[Opcode::Write, Opcode::FetchAdd], Cause::LocalKey),
        ("beyond", beyond, &[Opcode::Write, Opcode::Send, Opcode::Read], Cause::LocalBounds),
        ("before", before, &[Opcode::Write, Opcode::Send, Opcode::Read], Cause::LocalBounds),
        ("wrap", wrap, &[Opcode::Write, Opcode::Send, Opcode::Read], Cause::LocalBounds),
        ("read only", read_only, &[Opcode::Read, Opcode::FetchAdd], Cause::LocalAccess),
        ("four bytes", four, &[Opcode::FetchAdd, Opcode::CompareSwap], Cause::AtomicShape),
    ];
    let [left, right] = addresses().map(|address| Host::open(address, &options()));
    for &(name, make, opcodes, cause) in cases {
        for &opcode in opcodes {
            let pair = Pair::on(left, right);
            let ((here, lkey), (there, rkey)) = (left.region(4096), right.region(4096));
            here.fill(9);
            pair.b.post_recv(9, &[sge(&there, 0, 100, rkey)]);
            let good = |wr_id| {
                let write = entry(Opcode::Write, wr_id, &[sge(&here, 0, 8, lkey)]);
                to_remote(write, there.address() + 1000, rkey)
            };
            pair.a.post(good(1));
            pair.a.post(to_remote(entry(opcode, 2, &[make(left, here, lkey)]), there.address(), rkey));
            pair.a.post(good(3));
            let expected = [done(1), failed(2, cause), failed(3, Cause::Flushed)];
            assert_eq!(outcomes(&pair.a.sent(3)), expected, "{name} {opcode:?}");
            assert_eq!((pair.a.state(), pair.b.state()), (QpState::Err, QpState::Rts), "{name}");
            assert_eq!(there.load(0, 100), [0; 100], "{name} {opcode:?}");
            assert!(here.is_all(9), "{name} {opcode:?}");
        }
    }
}

#[test]
fn reading_needs_no_right_to_write_here() {
    // The source of a WRITE or SEND may be memory that the device may only read.
    let pair = Pair::new();
    let here = Memory::new(4096);
    here.fill(9);
    let lkey = pair.a.host.register(&here, Access(0));
    let (there, rkey) = pair.b.host.region(4096);
    here.protect(0, 4096, libc::PROT_READ);
    pair.b.post_recv(1, &[sge(&there, 2048, 64, rkey)]);
    let write = to_remote(entry(Opcode::Write, 1, &[sge(&here, 0, 64, lkey)]), there.address(), rkey);
    assert_eq!(outcomes(&[pair.a.run(write)]), [done(1)]);
    assert_eq!(outcomes(&[pair.a.run(entry(Opcode::Send, 2, &[sge(&here, 0, 64, lkey)]))]), [done(2)]);
    assert_eq!(outcomes(&pair.b.received(1)), [done(1)]);
    assert_eq!((there.load(0, 64), there.load(2048, 64)), (vec![9; 64], vec![9; 64]));
}
