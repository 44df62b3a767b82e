//! Registered memory that is unmapped, protected or deregistered under traffic.
//!
//! Each in a process of its own: what is unmapped here could be another test's a moment later, and a
//! signal shows as what the process ended with.

use std::sync::atomic::{AtomicU64, Ordering};

use srdma_abi::{AsyncKind, Cause, Completion, Opcode, QpState};

use crate::ground::part::{alone, this_test};
use crate::ground::*;

const BYTES: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Requests that may complete after their memory is gone: those under way, and far more.
const STEPS_MAX: usize = 200;

/// Whose memory goes away.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Whose {
    Requesters,
    Responders,
}

type Vanish = fn(&Memory);

const UNMAPPED: Vanish = Memory::unmap;
/// Only one page in the middle.
const PROTECTED: Vanish = |memory| memory.protect(BYTES / 2, PAGE, libc::PROT_NONE);
const READ_ONLY: Vanish = |memory| memory.protect(BYTES / 2, PAGE, libc::PROT_READ);

/// Keeps a few requests on their way until one of them fails; what it and the rest fail with.
fn until_failure(pair: &Pair, post: impl Fn(u64), after: usize, vanish: impl FnOnce()) -> Vec<Completion> {
    const DEPTH: usize = 4;
    for wr_id in 0..DEPTH as u64 {
        post(wr_id);
    }
    let mut next = DEPTH as u64;
    let mut step = || {
        let completion = pair.a.sent(1)[0];
        if completion.status == 0 {
            post(next);
            next += 1;
        }
        completion
    };
    for _ in 0..after {
        assert_eq!(step().status, 0, "before anything is wrong");
    }
    vanish();
    let first = (0..STEPS_MAX).map(|_| step()).find(|completion| completion.status != 0);
    let mut failures = vec![first.expect("a failure")];
    failures.extend(pair.a.sent(DEPTH - 1));
    failures
}

/// One way to lose memory: a failing queue pair, and one beside it that must not notice.
fn lose(opcode: Opcode, whose: Whose, how: &str, vanish: Vanish, cause: Cause) {
    let name = format!("{opcode:?}, {whose:?} memory {how}");
    let [left, right] = addresses().map(|address| Host::open(address, &options()));
    let (pair, other) = (Pair::on(left, right), Pair::on(left, right));
    let ((here, lkey), (there, rkey)) = (left.region(BYTES), right.region(BYTES));
    let ((calm, calm_lkey), (calm_there, calm_rkey)) = (left.region(PAGE), right.region(PAGE));
    let calm_write = |wr_id| {
        let write = entry(Opcode::Write, wr_id, &[sge(&calm, 0, 4096, calm_lkey)]);
        outcomes(&[other.a.run(to_remote(write, calm_there.address(), calm_rkey))])
    };
    let post = |wr_id| {
        if opcode.consumes_receive() {
            pair.b.post_recv(wr_id, &[sge(&there, 0, BYTES as u32, rkey)]);
        }
        let request = entry(opcode, wr_id, &[sge(&here, 0, BYTES as u32, lkey)]);
        pair.a.post(to_remote(request, there.address(), rkey));
    };
    let failures = until_failure(&pair, post, 3, || {
        assert_eq!(calm_write(1), [done(1)]);
        vanish(if whose == Whose::Requesters { &here } else { &there });
    });
    assert_eq!(failures[0].vendor_err, cause as u32, "{name}");
    assert_eq!(failures[0].status, cause.status() as u8, "{name}");
    assert!(failures[1..].iter().all(|c| c.vendor_err == Cause::Flushed as u32), "{name}");
    assert_eq!(pair.a.state(), QpState::Err, "{name}");
    if whose == Whose::Responders {
        pair.b.await_state(QpState::Err);
    }
    if whose == Whose::Responders && !opcode.consumes_receive() {
        assert_eq!(right.await_event(), event(AsyncKind::QpAccessErr, pair.b.qp.number()), "{name}");
    }
    calm.store(0, &pattern(4096, 5));
    assert_eq!(calm_write(2), [done(2)], "{name}: the other queue pair goes on");
    assert_eq!(calm_there.load(0, 4096), pattern(4096, 5));
}

#[test]
fn memory_that_vanishes_under_traffic_ends_in_errors_and_never_in_a_signal() {
    alone(this_test!(), || {
        let all: [(&str, Vanish); 3] =
            [("unmapped", UNMAPPED), ("protected", PROTECTED), ("read-only", READ_ONLY)];
        for (how, vanish) in all {
            // What is only read may become read-only.
            let read_only = how == "read-only";
            lose(Opcode::Write, Whose::Responders, how, vanish, Cause::RemoteFault);
            lose(Opcode::Send, Whose::Responders, how, vanish, Cause::RemoteFault);
            lose(Opcode::Read, Whose::Requesters, how, vanish, Cause::LocalFault);
            if !read_only {
                lose(Opcode::Write, Whose::Requesters, how, vanish, Cause::LocalFault);
                lose(Opcode::Send, Whose::Requesters, how, vanish, Cause::LocalFault);
                lose(Opcode::Read, Whose::Responders, how, vanish, Cause::RemoteFault);
            }
        }
    });
}

#[test]
fn an_atomic_on_memory_that_is_gone_is_an_error() {
    for protection in [libc::PROT_NONE, libc::PROT_READ] {
        let pair = Pair::new();
        let ((here, lkey), (there, rkey)) = (pair.a.host.region(PAGE), pair.b.host.region(PAGE));
        there.protect(0, PAGE, protection);
        let add = to_remote(entry(Opcode::FetchAdd, 1, &[sge(&here, 0, 8, lkey)]), there.address(), rkey);
        assert_eq!(outcomes(&[pair.a.run(add)]), [failed(1, Cause::RemoteFault)]);
        assert_eq!(pair.b.host.await_event(), event(AsyncKind::QpAccessErr, pair.b.qp.number()));
    }
}

#[test]
fn after_deregistration_nothing_reads_the_memory_any_more() {
    alone(this_test!(), || {
        const LARGE: u64 = 64 << 20;
        const STEP: u64 = 64 << 10;
        let pair = Pair::new();
        let ((here, lkey), (there, rkey)) = (pair.a.host.region(LARGE), pair.b.host.region(LARGE));
        there.fill(1);
        let read = entry(Opcode::Read, 1, &[sge(&here, 0, LARGE as u32, lkey)]);
        pair.a.post(to_remote(read, there.address(), rkey));
        wait("the first bytes", &[pair.a.host, pair.b.host], || {
            pair.a.sends.poll(&mut []);
            (here.load(STEP, 1) == [1]).then_some(())
        });
        pair.b.host.device.deregister(rkey).unwrap();
        // New contents, then nothing at all: whoever reads either does so after the deregistration.
        there.fill(2);
        there.unmap();
        assert_eq!(outcomes(&pair.a.sent(1)), [failed(1, Cause::RemoteKey)]);
        pair.b.await_state(QpState::Err);
        let last = here.load(LARGE - 8, 8);
        assert_eq!(last, [0; 8], "all of it had been read before: the test was too slow");
        assert!(here.load(0, LARGE).iter().all(|&byte| byte != 2));
    });
}

#[test]
fn after_deregistration_nothing_writes_the_memory_any_more() {
    let pair = Pair::new();
    let ((here, lkey), (there, rkey)) = (pair.a.host.region(BYTES), pair.b.host.region(BYTES));
    here.fill(1);
    let post = |wr_id| {
        let write = entry(Opcode::Write, wr_id, &[sge(&here, 0, BYTES as u32, lkey)]);
        pair.a.post(to_remote(write, there.address(), rkey));
    };
    let failures = until_failure(&pair, post, 5, || {
        pair.b.host.device.deregister(rkey).unwrap();
        there.fill(2);
    });
    assert_eq!(failures[0].vendor_err, Cause::RemoteKey as u32);
    assert!(there.is_all(2), "written after the deregistration");
}

#[test]
fn a_stale_key_never_names_another_region() {
    let pair = Pair::new();
    let (here, lkey) = pair.a.host.region(PAGE);
    let there = Memory::new(PAGE);
    there.fill(7);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50_000 {
        let key = pair.b.host.register(&there, ALL);
        assert!(seen.insert(key), "key {key:#x} comes again");
        pair.b.host.device.deregister(key).unwrap();
    }
    // A live region takes the place of one of them.
    let _live = pair.b.host.register(&there, ALL);
    let stale = *seen.iter().next().unwrap();
    let write = to_remote(entry(Opcode::Write, 1, &[sge(&here, 0, 8, lkey)]), there.address(), stale);
    assert_eq!(outcomes(&[pair.a.run(write)]), [failed(1, Cause::RemoteKey)]);
    assert!(there.is_all(7));
}

/// The pages are given back to the kernel and come anew (as under a balloon): what is read is what is there now.
#[test]
fn pages_that_are_discarded_and_filled_again_are_read_as_they_are() {
    let pair = Pair::new();
    let ((here, lkey), (there, rkey)) = (pair.a.host.region(16 * PAGE), pair.b.host.region(16 * PAGE));
    for round in 1..20u8 {
        there.fill(round);
        // SAFETY: pages of the test's own mapping; their content is what is thrown away.
        let rc = unsafe {
            let half = std::ptr::without_provenance_mut::<libc::c_void>(there.address() as usize);
            libc::madvise(half, 8 * PAGE as usize, libc::MADV_DONTNEED)
        };
        assert_eq!(rc, 0);
        there.store(0, &[round ^ 0x80; PAGE as usize]);
        let read = entry(Opcode::Read, 1, &[sge(&here, 0, 16 * PAGE as u32, lkey)]);
        assert_eq!(outcomes(&[pair.a.run(to_remote(read, there.address(), rkey))]), [done(1)]);
        assert!(here.load(0, PAGE).iter().all(|&byte| byte == round ^ 0x80), "round {round}");
        assert!(here.load(PAGE, 7 * PAGE).iter().all(|&byte| byte == 0), "round {round}");
        assert!(here.load(8 * PAGE, 8 * PAGE).iter().all(|&byte| byte == round), "round {round}");
    }
}

fn minor_faults() -> i64 {
    // SAFETY: a plain struct of numbers, filled by the call.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) }, 0);
    usage.ru_minflt
}

#[test]
fn a_terabyte_of_address_space_is_registered_without_touching_it() {
    alone(this_test!(), || {
        const LENGTH: u64 = 1 << 40;
        let pair = Pair::new();
        let (here, lkey) = pair.a.host.region(PAGE);
        here.fill(9);
        // The first region pays for the table.
        let small = pair.b.host.region(PAGE);
        pair.b.host.device.deregister(small.1).unwrap();
        let there = Memory::reserve(LENGTH);
        let before = minor_faults();
        let rkey = pair.b.host.register(&there, ALL);
        let faults = minor_faults() - before;
        assert!(faults < 16, "{faults} page faults");
        // What is mapped can be used, at the end too; what is not is an error.
        let write = |wr_id, at: u64| {
            let write = entry(Opcode::Write, wr_id, &[sge(&here, 0, 4096, lkey)]);
            outcomes(&[pair.a.run(to_remote(write, there.address() + at, rkey))])
        };
        for (i, at) in [0, LENGTH / 2, LENGTH - PAGE].into_iter().enumerate() {
            there.protect(at, PAGE, libc::PROT_READ | libc::PROT_WRITE);
            assert_eq!(write(i as u64, at), [done(i as u64)]);
            assert_eq!(there.load(at, PAGE), [9; PAGE as usize]);
        }
        assert_eq!(write(7, LENGTH / 4), [failed(7, Cause::RemoteFault)]);
        let before = minor_faults();
        pair.b.host.device.deregister(rkey).unwrap();
        assert!(minor_faults() - before < 16);
    });
}

#[test]
fn memory_that_changes_while_it_is_read_is_no_error() {
    const LENGTH: u32 = 256 << 10;
    for opcode in [Opcode::Write, Opcode::Send, Opcode::Read] {
        let pair = Pair::new();
        let (bytes, here_key) = pair.a.host.region(LENGTH.into());
        let (there, there_key) = pair.b.host.region(LENGTH.into());
        let source = if opcode == Opcode::Read { there } else { bytes };
        let stop = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut value = 0u8;
                while stop.load(Ordering::Relaxed) == 0 {
                    value = value.wrapping_add(1);
                    source.fill(value);
                }
            });
            for i in 0..60 {
                if opcode == Opcode::Send {
                    pair.b.post_recv(i, &[sge(&there, 0, LENGTH, there_key)]);
                }
                let request = entry(opcode, i, &[sge(&bytes, 0, LENGTH, here_key)]);
                let completion = pair.a.run(to_remote(request, there.address(), there_key));
                if completion.status != 0 {
                    stop.store(1, Ordering::Relaxed);
                }
                assert_eq!(outcomes(&[completion]), [done(i)], "{opcode:?}");
            }
            stop.store(1, Ordering::Relaxed);
        });
        for end in [&pair.a, &pair.b] {
            let report = end.host.report();
            assert_eq!(end.counters()["dropped"]["payload_check"], 0, "{opcode:?}");
            for cause in ["header_check", "malformed"] {
                assert_eq!(report["dropped"][cause], 0, "{opcode:?}");
            }
        }
    }
}
