//! Each way in which a request, a receive or a peer can be wrong: what each side sees, and that
//! nothing is written.

use srdma_abi::{AsyncKind, Cause, Opcode, QpAttributes, QpState, SendFlags, WcStatus};
use srdma_memory::Rights;
use srdma_seams::{Duration, MrKey};

use crate::host::BASE;
use crate::net::*;

const SECOND: Duration = Duration::from_secs(1);

/// What a wrong request does.
struct Case {
    name: &'static str,
    opcode: Opcode,
    /// Rights of the target region.
    region: Rights,
    /// Access flags of the target queue pair.
    access: u32,
    /// Address, and bytes, of the request; the region is [4096, 8192).
    at: u64,
    length: u32,
    /// The key is wrong in this way.
    key: Key,
    cause: Cause,
    event: AsyncKind,
}

#[derive(Clone, Copy, PartialEq)]
enum Key {
    Right,
    Unknown,
    Stale,
    OtherPd,
}

const BOTH: u32 = 0xf;
const fn case(name: &'static str, opcode: Opcode) -> Case {
    Case {
        name,
        opcode,
        region: ALL,
        access: BOTH,
        at: 4096,
        length: 8,
        key: Key::Right,
        cause: Cause::RemoteAccess,
        event: AsyncKind::QpAccessErr,
    }
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let each = [
        (Opcode::Write, Rights::REMOTE_WRITE, Cause::RemoteAccess),
        (Opcode::WriteImm, Rights::REMOTE_WRITE, Cause::RemoteAccess),
        (Opcode::Read, Rights::REMOTE_READ, Cause::RemoteAccess),
        (Opcode::FetchAdd, Rights::REMOTE_ATOMIC, Cause::RemoteAccess),
        (Opcode::CompareSwap, Rights::REMOTE_ATOMIC, Cause::RemoteAccess),
    ];
    for (opcode, right, _) in each {
        let lacks = Rights(ALL.0 & !right.0);
        cases.push(Case { region: lacks, ..case("region lacks the right", opcode) });
        cases.push(Case { access: lacks.0, ..case("queue pair lacks the right", opcode) });
        for (name, key) in
            [("unknown key", Key::Unknown), ("stale key", Key::Stale), ("another PD's key", Key::OtherPd)]
        {
            cases.push(Case { key, cause: Cause::RemoteKey, ..case(name, opcode) });
        }
        let bounds = Case { cause: Cause::RemoteBounds, ..case("one byte before", opcode) };
        let before = if opcode.is_read_or_atomic() && opcode != Opcode::Read { 8 } else { 1 };
        cases.push(Case { at: 4096 - before, ..bounds });
        let bounds = Case { cause: Cause::RemoteBounds, ..case("past the end", opcode) };
        cases.push(Case { at: 8192, ..bounds });
        let bounds = Case { cause: Cause::RemoteBounds, ..case("around the address space", opcode) };
        cases.push(Case { at: (u64::MAX - 7).wrapping_sub(BASE), ..bounds });
    }
    for opcode in [Opcode::Write, Opcode::WriteImm, Opcode::Read] {
        let bounds = Case { cause: Cause::RemoteBounds, ..case("far past the end", opcode) };
        cases.push(Case { length: 40_000, ..bounds });
    }
    for opcode in [Opcode::FetchAdd, Opcode::CompareSwap] {
        let invalid = Case { cause: Cause::RemoteInvalid, ..case("unaligned atomic", opcode) };
        cases.push(Case { at: 4100, event: AsyncKind::QpReqErr, ..invalid });
    }
    cases
}

#[test]
fn a_wrong_request_is_refused_on_both_sides_and_writes_nothing() {
    for case in cases() {
        let mut net = Net::new(3, Options::default());
        let (a, b) = (net.qp(0), net.qp(1));
        let open = QpAttributes { access: srdma_abi::Access(case.access), ..attributes() };
        net.connect(a, b, attributes(), open);
        let local = net.region(0, 0, 1 << 20, ALL);
        net.hosts[0].world.memory.fill(7);
        let own = net.region(1, 0, 4096, ALL);
        let right = net.region(1, 4096, 4096, case.region);
        let key = match case.key {
            Key::Right => right,
            Key::Unknown => MrKey(right.0 ^ 0x5555),
            Key::Stale => {
                net.hosts[1].nic.deregister(right).unwrap();
                right
            }
            Key::OtherPd => {
                let host = &mut net.hosts[1];
                let pd = host.nic.alloc_pd().unwrap();
                host.nic.register(pd, BASE + 4096, 4096, BASE + 4096, ALL).unwrap()
            }
        };
        net.post_recv(b, 50, &[]);
        net.post_recv(b, 51, &[sge(0, 64, own)]);
        // One good message before, two after.
        net.post(a, entry(Opcode::Send, 1, &[sge(0, 0, local)]));
        let sges = [sge(0, case.length, local)];
        let mut wrong = to_remote(entry(case.opcode, 2, &sges), 0, key);
        wrong.remote_address = BASE.wrapping_add(case.at);
        net.post(a, wrong);
        net.post(a, to_remote(entry(Opcode::Write, 3, &[sge(0, 64, local)]), 0, own));
        net.post(a, entry(Opcode::Send, 4, &[sge(0, 64, local)]));
        net.run_for(SECOND);

        let name = format!("{} {:?}", case.name, case.opcode);
        let sent: Vec<_> = net.poll(a, a.send_cq).iter().map(|c| (c.wr_id, c.status, c.vendor_err)).collect();
        let flushed = (WcStatus::WrFlushErr as u8, Cause::Flushed as u32);
        let refused = (case.cause.status() as u8, case.cause as u32);
        assert_eq!(
            sent,
            [(1, 0, 0), (2, refused.0, refused.1), (3, flushed.0, flushed.1), (4, flushed.0, flushed.1)],
            "{name}"
        );
        let received: Vec<_> = net.poll(b, b.recv_cq).iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(received, [(50, 0), (51, flushed.0)], "{name}");
        assert_eq!((net.state(a), net.state(b)), (QpState::Err, QpState::Err), "{name}");
        let events: Vec<_> =
            net.hosts[1].world.events.iter().map(|event| (event.kind, event.object)).collect();
        assert_eq!(events, [(case.event, b.qpn.0)], "{name}");
        assert!(net.hosts[1].world.memory.iter().all(|&byte| byte == 0), "{name}: something was written");
        assert!(net.hosts[0].world.events.is_empty(), "{name}");
    }
}

#[test]
fn nothing_of_a_message_out_of_bounds_is_written_in_whatever_order_it_comes() {
    for seed in 0..20 {
        let options = Options { faults: Faults::SPREAD, ..Options::default() };
        let (mut net, a, _) = Net::connected(seed, options);
        let (local, remote) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 50_000, ALL));
        net.hosts[0].world.memory.fill(7);
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 50_001, local)]), 0, remote));
        net.run_for(SECOND);
        assert_eq!(net.poll(a, a.send_cq)[0].vendor_err, Cause::RemoteBounds as u32);
        assert!(net.hosts[1].world.memory.iter().all(|&byte| byte == 0), "seed {seed}");
    }
}

#[test]
fn a_wrong_local_key_fails_in_order_and_sends_nothing() {
    type Make = fn(&mut Net, MrKey) -> (u64, u32, MrKey);
    let cases: &[(&str, Opcode, Make, Cause)] = &[
        ("unknown", Opcode::Write, |_, key| (0, 8, MrKey(key.0 ^ 1)), Cause::LocalKey),
        (
            "stale",
            Opcode::Send,
            |net, key| (net.hosts[0].nic.deregister(key).unwrap(), (0, 8, key)).1,
            Cause::LocalKey,
        ),
        ("bounds", Opcode::Write, |_, key| (4090, 8, key), Cause::LocalBounds),
        (
            "read only",
            Opcode::Read,
            |net, _| (0, 8, net.region(0, 0, 4096, Rights::REMOTE_READ)),
            Cause::LocalAccess,
        ),
        (
            "read only",
            Opcode::FetchAdd,
            |net, _| (0, 8, net.region(0, 0, 4096, Rights::NONE)),
            Cause::LocalAccess,
        ),
        ("not 8 bytes", Opcode::FetchAdd, |_, key| (0, 4, key), Cause::AtomicShape),
        ("not 8 bytes", Opcode::CompareSwap, |_, key| (0, 16, key), Cause::AtomicShape),
        (
            "unmapped",
            Opcode::Write,
            |net, key| {
                net.hosts[0].world.unmapped.push(BASE..BASE + 4096);
                (0, 8, key)
            },
            Cause::LocalFault,
        ),
    ];
    for (name, opcode, make, cause) in cases {
        let (mut net, a, b) = Net::connected(4, Options::default());
        let (good, local) = (net.region(0, 8192, 4096, ALL), net.region(0, 0, 4096, ALL));
        let remote = net.region(1, 0, 4096, ALL);
        net.hosts[0].world.memory.fill(7);
        let (at, length, key) = make(&mut net, local);
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(8192, 8, good)]), 0, remote));
        net.post(a, to_remote(entry(*opcode, 2, &[sge(at, length, key)]), 64, remote));
        net.post(a, to_remote(entry(Opcode::Write, 3, &[sge(8192, 8, good)]), 128, remote));
        net.run_for(SECOND);
        let sent: Vec<_> = net.poll(a, a.send_cq).iter().map(|c| (c.wr_id, c.vendor_err)).collect();
        assert_eq!(sent, [(1, 0), (2, *cause as u32), (3, Cause::Flushed as u32)], "{name} {opcode:?}");
        assert_eq!(net.state(a), QpState::Err);
        assert_eq!(net.hosts[1].world.bytes(BASE + 64, 200), [0; 200], "{name} {opcode:?}");
        assert_eq!(net.state(b), QpState::Rts, "the peer is not to blame");
    }
}

#[test]
fn a_malformed_entry_fails_and_the_queue_pair_works_again_after_a_reset() {
    let too_many = |net: &mut Net, a: QpRef, key| {
        net.post(a, entry(Opcode::Write, 9, &[sge(0, 1, key); 17]));
        9
    };
    let garbage = |net: &mut Net, a: QpRef, _: MrKey| {
        net.post_garbage(a);
        0
    };
    let inline_read = |net: &mut Net, a: QpRef, _: MrKey| {
        let mut read = entry(Opcode::Read, 9, &[]);
        read.flags = read.flags.with(SendFlags::INLINE);
        net.post_inline(a, read, &[1, 2, 3]);
        9
    };
    let long_inline = |net: &mut Net, a: QpRef, _: MrKey| {
        let mut write = entry(Opcode::Write, 9, &[]);
        write.flags = write.flags.with(SendFlags::INLINE);
        net.post_inline(a, write, &[0; 513]);
        9
    };
    type Post<'a> = &'a dyn Fn(&mut Net, QpRef, MrKey) -> u64;
    let all: [Post<'_>; 4] = [&too_many, &garbage, &inline_read, &long_inline];
    for post in all {
        let (mut net, a, b) = Net::connected(5, Options::default());
        let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
        let wr_id = post(&mut net, a, local);
        net.run_for(SECOND);
        let sent = net.poll(a, a.send_cq);
        assert_eq!((sent.len(), sent[0].wr_id, sent[0].status), (1, wr_id, WcStatus::LocQpOpErr as u8));
        assert_eq!(sent[0].vendor_err, Cause::BadEntry as u32);
        net.go(a, QpState::Reset);
        net.go(b, QpState::Reset);
        net.connect(a, b, attributes(), attributes());
        for i in 0..1000 {
            net.post(a, to_remote(entry(Opcode::Write, i, &[sge(0, 8, local)]), 0, remote));
        }
        net.run_for(SECOND);
        let sent = net.poll(a, a.send_cq);
        assert_eq!(sent.len(), 1000);
        assert!(sent.iter().enumerate().all(|(i, c)| c.wr_id == i as u64 && c.status == 0));
    }
}

#[test]
fn a_message_longer_than_the_limit_fails_here() {
    let (mut net, a, _) = Net::connected(6, Options::default());
    let host = &mut net.hosts[0];
    let key = host.nic.register(host.pd, BASE, 1 << 40, BASE, ALL).unwrap();
    net.post(a, entry(Opcode::Send, 1, &[sge(0, 1 << 30, key), sge(0, 1, key)]));
    net.run_for(SECOND);
    let sent = net.poll(a, a.send_cq);
    assert_eq!(
        (sent[0].status, sent[0].vendor_err),
        (WcStatus::LocLenErr as u8, Cause::MessageTooLong as u32)
    );
}

#[test]
fn a_receive_that_does_not_do_fails_on_both_sides() {
    type Make = fn(&mut Net, MrKey) -> Vec<srdma_abi::Sge>;
    let cases: &[(&str, Make, Cause, Cause)] = &[
        ("small", |_, key| vec![sge(0, 99, key)], Cause::ReceiveTooSmall, Cause::RemoteReceiveTooSmall),
        ("no room at all", |_, _| vec![], Cause::ReceiveTooSmall, Cause::RemoteReceiveTooSmall),
        ("unknown key", |_, key| vec![sge(0, 200, MrKey(key.0 ^ 1))], Cause::LocalKey, Cause::RemoteFault),
        ("bounds", |_, key| vec![sge(4090, 200, key)], Cause::LocalBounds, Cause::RemoteFault),
        (
            "read only",
            |net, _| vec![sge(0, 200, net.region(1, 0, 4096, Rights::REMOTE_READ))],
            Cause::LocalAccess,
            Cause::RemoteFault,
        ),
        (
            "unmapped",
            |net, key| {
                net.hosts[1].world.unmapped.push(BASE..BASE + 4096);
                vec![sge(0, 200, key)]
            },
            Cause::LocalFault,
            Cause::RemoteFault,
        ),
    ];
    for (name, make, here, there) in cases {
        let (mut net, a, b) = Net::connected(7, Options::default());
        let (local, own) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
        net.hosts[0].world.memory.fill(7);
        let sges = make(&mut net, own);
        net.post_recv(b, 1, &sges);
        net.post_recv(b, 2, &[sge(0, 200, own)]);
        net.post(a, entry(Opcode::Send, 3, &[sge(0, 100, local)]));
        net.post(a, entry(Opcode::Send, 4, &[sge(0, 100, local)]));
        net.run_for(SECOND);
        let got: Vec<_> = net.poll(b, b.recv_cq).iter().map(|c| (c.wr_id, c.vendor_err)).collect();
        assert_eq!(got, [(1, *here as u32), (2, Cause::Flushed as u32)], "{name}");
        let sent: Vec<_> = net.poll(a, a.send_cq).iter().map(|c| (c.wr_id, c.vendor_err)).collect();
        assert_eq!(sent, [(3, *there as u32), (4, Cause::Flushed as u32)], "{name}");
        assert!(net.hosts[1].world.memory.iter().all(|&byte| byte == 0), "{name}");
    }
}

#[test]
fn memory_that_is_gone_is_an_error_at_both_sides() {
    // (what is unmapped: 0 = initiator's, 1 = target's; operation; cause at the initiator)
    let cases = [
        (1, Opcode::Write, Cause::RemoteFault),
        (1, Opcode::Read, Cause::RemoteFault),
        (1, Opcode::FetchAdd, Cause::RemoteFault),
        (0, Opcode::Read, Cause::LocalFault),
        (0, Opcode::FetchAdd, Cause::LocalFault),
        (0, Opcode::Send, Cause::LocalFault),
    ];
    for (side, opcode, cause) in cases {
        let (mut net, a, b) = Net::connected(8, Options::default());
        let (local, remote) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL));
        let length = if opcode == Opcode::FetchAdd { 8 } else { 20_000 };
        net.hosts[side].world.unmapped.push(BASE + 4096..BASE + 8192);
        let at = if opcode == Opcode::FetchAdd { 4096 } else { 0 };
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(9000, 8, local)]), 9000, remote));
        net.post(a, to_remote(entry(opcode, 2, &[sge(at, length, local)]), at, remote));
        net.run_for(SECOND);
        let sent: Vec<_> = net.poll(a, a.send_cq).iter().map(|c| (c.wr_id, c.vendor_err)).collect();
        assert_eq!(sent, [(1, 0), (2, cause as u32)], "{opcode:?} {side}");
        let target = net.hosts[1].world.events.iter().map(|event| event.kind).collect::<Vec<_>>();
        let (state, events) = match side {
            1 => (QpState::Err, vec![AsyncKind::QpAccessErr]),
            _ => (QpState::Rts, vec![]),
        };
        assert_eq!((net.state(b), target), (state, events), "{opcode:?} {side}");
    }
}

#[test]
fn a_region_deregistered_while_it_is_read_is_read_no_further() {
    let (mut net, a, b) = Net::connected(9, Options::default());
    let (local, remote) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL));
    net.hosts[1].world.memory.fill(1);
    net.post(a, to_remote(entry(Opcode::Read, 1, &[sge(0, 1 << 20, local)]), 0, remote));
    assert!(net.run_until(SECOND, |net| net.hosts[0].world.copies_done > 10));
    net.hosts[1].nic.deregister(remote).unwrap();
    // From now on a single byte read at the target would be the new contents; what is in flight
    // still carries the old.
    net.hosts[1].world.memory.fill(2);
    net.run_for(SECOND);
    assert!(net.hosts[0].world.memory.iter().all(|&byte| byte != 2), "read after deregistration");
    let sent = net.poll(a, a.send_cq);
    assert_eq!((sent[0].status, sent[0].vendor_err), (WcStatus::RemAccessErr as u8, Cause::RemoteKey as u32));
    assert_eq!((net.state(a), net.state(b)), (QpState::Err, QpState::Err));
}

#[test]
fn answers_before_a_refused_one_still_come() {
    // The second READ is refused while the first one's answer is still on its way, and the way is bad.
    for seed in 0..60 {
        let faults = Faults { loss_ppm: 100_000, ..Faults::SPREAD };
        let (mut net, a, _) = Net::connected(seed, Options { faults, ..Options::default() });
        let (local, remote) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL));
        net.hosts[1].world.memory.fill(1);
        net.post(a, to_remote(entry(Opcode::Read, 1, &[sge(0, 100_000, local)]), 0, remote));
        net.post(a, to_remote(entry(Opcode::Read, 2, &[sge(200_000, 8, local)]), 0, MrKey(remote.0 ^ 1)));
        net.post(a, to_remote(entry(Opcode::Write, 3, &[sge(0, 8, local)]), 0, remote));
        net.run_for(Duration::from_secs(5));
        let sent: Vec<_> = net.poll(a, a.send_cq).iter().map(|c| (c.wr_id, c.vendor_err)).collect();
        let want = [(1, 0), (2, Cause::RemoteKey as u32), (3, Cause::Flushed as u32)];
        assert_eq!(sent, want, "seed {seed}");
        assert_eq!(net.hosts[0].world.bytes(BASE, 100_000), [1; 100_000]);
    }
}

#[test]
fn more_reads_than_agreed_are_refused() {
    let (mut net, a, b) = {
        let mut net = Net::pair(10);
        let (a, b) = (net.qp(0), net.qp(1));
        net.connect(a, b, attributes(), QpAttributes { max_dest_rd_atomic: 1, ..attributes() });
        (net, a, b)
    };
    let (local, remote) = (net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL));
    net.run_for(SECOND);
    // All requests in one batch: the answers cannot have left in between.
    for i in 0..8 {
        net.post(a, to_remote(entry(Opcode::Read, i, &[sge(0, 8, local)]), 0, remote));
    }
    net.run_for(SECOND);
    let sent = net.poll(a, a.send_cq);
    assert_eq!(sent.len(), 8);
    let failed = sent.iter().find(|c| c.status != 0).expect("one is refused");
    assert_eq!(
        (failed.status, failed.vendor_err),
        (WcStatus::RemInvReqErr as u8, Cause::RemoteTooManyReads as u32)
    );
    assert_eq!(net.state(b), QpState::Err);
}

#[test]
fn a_refusal_survives_loss() {
    for seed in 0..30 {
        let faults = Faults { loss_ppm: 300_000, ..Faults::NONE };
        let (mut net, a, _) = Net::connected(seed, Options { faults, ..Options::default() });
        let local = net.region(0, 0, 4096, ALL);
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, MrKey(1)));
        net.run_for(Duration::from_secs(5));
        let sent = net.poll(a, a.send_cq);
        assert_eq!((sent.len(), sent[0].vendor_err), (1, Cause::RemoteKey as u32), "seed {seed}");
    }
}

/// Nothing of the requester's is unacknowledged here, so only repetition brings the refusal across.
#[test]
fn a_refused_answer_is_told_until_it_is_heard() {
    let (mut net, a, b) = Net::connected(11, Options::default());
    let (local, remote) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL));
    net.post(a, to_remote(entry(Opcode::Read, 1, &[sge(0, 1 << 20, local)]), 0, remote));
    assert!(net.run_until(SECOND, |net| net.hosts[0].world.copies_done > 10));
    net.hosts[1].nic.deregister(remote).unwrap();
    let mut lost = 0;
    net.filter = Some(Box::new(move |_, _, sent| {
        let is_nak = matches!(sent.packet, srdma_wire::Packet::Nak(_));
        lost += u32::from(is_nak);
        if is_nak && lost <= 4 {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }));
    net.run_for(Duration::from_millis(300));
    assert_eq!(net.poll(a, a.send_cq)[0].vendor_err, Cause::RemoteKey as u32);
    net.run_for(Duration::from_secs(60));
    assert_eq!(net.state(b), QpState::Err);
    for host in &mut net.hosts {
        assert_eq!(host.nic.next_timeout(), None, "a refusal is not repeated for ever");
    }
}

#[test]
fn a_local_region_deregistered_while_it_is_sent_is_sent_no_further() {
    let (mut net, a, b) = Net::connected(12, Options::default());
    let (local, remote) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL));
    net.hosts[0].world.memory.fill(1);
    net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 1 << 20, local)]), 0, remote));
    net.post(a, to_remote(entry(Opcode::Write, 2, &[]), 0, remote));
    assert!(net.run_until(SECOND, |net| net.hosts[1].world.copies_done > 10));
    net.hosts[0].nic.deregister(local).unwrap();
    net.hosts[0].world.memory.fill(2);
    net.run_for(SECOND);
    assert!(net.hosts[1].world.memory.iter().all(|&byte| byte != 2), "sent after deregistration");
    let sent: Vec<_> = net.poll(a, a.send_cq).iter().map(|c| (c.wr_id, c.vendor_err)).collect();
    assert_eq!(sent, [(1, Cause::LocalKey as u32), (2, Cause::Flushed as u32)]);
    assert_eq!((net.state(a), net.state(b)), (QpState::Err, QpState::Rts));
}

/// A queue pair's own protection domain counts, not the first one.
#[test]
fn regions_of_another_protection_domain_are_strangers_here_and_there() {
    let mut net = Net::pair(13);
    let first = [net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL)];
    for host in &mut net.hosts {
        host.pd = host.nic.alloc_pd().unwrap();
    }
    let own = [net.region(0, 0, 4096, ALL), net.region(1, 0, 4096, ALL)];
    let cases = [(own, 0), ([own[0], first[1]], Cause::RemoteKey as u32), (first, Cause::LocalKey as u32)];
    for ([local, remote], cause) in cases {
        let (a, b) = (net.qp(0), net.qp(1));
        net.connect(a, b, attributes(), attributes());
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 8, local)]), 0, remote));
        net.run_for(SECOND);
        assert_eq!(net.poll(a, a.send_cq)[0].vendor_err, cause);
    }
}
