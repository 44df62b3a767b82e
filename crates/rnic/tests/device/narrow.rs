//! The path's MTU is lowered under a connection.

use srdma_abi::{Cause, Opcode, QpState, WcStatus};
use srdma_rnic::world::SendRefusal;
use srdma_seams::event::Event;
use srdma_seams::{Duration, Now};
use srdma_transport::Config;

use crate::host::BASE;
use crate::net::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const LENGTH: u32 = 400_000;

fn jumbo() -> Options {
    let transport = Config { unit_packets_max: 8, window_initial_bytes: 64 << 10, ..Config::default() };
    Options { datagram_bytes: 8972, transport, ..Options::default() }
}

fn narrow(net: &mut Net, mtu: u32) {
    net.filter = Some(Box::new(move |_, _, sent| match sent.bytes() > mtu {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
}

fn narrowings(net: &Net, host: usize) -> Vec<u16> {
    let size = |event: &Event| match event {
        Event::PathNarrowed { mtu_bytes, .. } => Some(*mtu_bytes),
        _ => None,
    };
    net.hosts[host].counts.events.iter().filter_map(size).collect()
}

/// READ: the requester sends small packets only, the responder finds that its large ones vanish. WRITE: the
/// other way round. In flight or not, the bytes arrive, and the sender names the size that is left.
#[test]
fn writes_and_reads_outlive_a_lowered_mtu_and_it_is_named() {
    for (opcode, sender) in [(Opcode::Write, 0), (Opcode::Read, 1), (Opcode::Send, 0)] {
        for in_flight in [true, false] {
            let (mut net, a, b) = Net::connected(4, jumbo());
            let keys = [net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL)];
            let bytes: Vec<u8> = (0..LENGTH).map(|i| (i % 251) as u8 ^ (i >> 9) as u8).collect();
            net.hosts[sender].world.set(BASE, &bytes);
            net.post_recv(b, 5, &[sge(0, LENGTH, keys[1])]);
            net.run_for(SECOND);
            if !in_flight {
                narrow(&mut net, 1472);
            }
            net.post(a, to_remote(entry(opcode, 1, &[sge(0, LENGTH, keys[0])]), 0, keys[1]));
            net.run_for(Duration::from_micros(11));
            narrow(&mut net, 1472);
            net.run_for(SECOND);
            let done = net.poll(a, a.send_cq);
            assert_eq!(done.iter().map(|c| c.status).collect::<Vec<_>>(), [0], "{opcode:?}");
            let got = net.hosts[1 - sender].world.bytes(BASE, LENGTH.into());
            assert!(got == bytes, "{opcode:?}: other bytes");
            assert_eq!(narrowings(&net, sender), [1472], "{opcode:?} {in_flight}");
            assert!(narrowings(&net, 1 - sender).is_empty(), "{opcode:?}");
        }
    }
}

/// The interface's own MTU is lowered: the kernel refuses, which is no missing route.
#[test]
fn an_interface_that_takes_only_smaller_packets_is_followed() {
    let (mut net, a, _) = Net::connected(5, jumbo());
    let keys = [net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL)];
    net.run_for(SECOND);
    net.narrow_host_0 = Some((net.now, 1472));
    net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, LENGTH, keys[0])]), 0, keys[1]));
    let from = net.now;
    assert!(net.run_until(SECOND, |net| !net.hosts[0].world.cqs[&a.send_cq].queue.is_empty()));
    assert_eq!(net.poll(a, a.send_cq)[0].status, 0);
    assert!(net.now.since(from) < Duration::from_millis(150), "{:?}", net.now.since(from));
    assert_eq!(narrowings(&net, 0), [1472]);
}

/// Too narrow for any packet: an error of its own at both sides that send.
#[test]
fn a_path_too_narrow_for_any_packet_has_a_cause_of_its_own() {
    let (mut net, a, b) = Net::connected(6, jumbo());
    let keys = [net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL)];
    net.run_for(SECOND);
    narrow(&mut net, 500);
    for (qp, own, other) in [(a, keys[0], keys[1]), (b, keys[1], keys[0])] {
        net.post(qp, to_remote(entry(Opcode::Write, 1, &[sge(0, LENGTH, own)]), 0, other));
    }
    assert!(net.run_until(MINUTE, |net| net.state(a) == QpState::Err && net.state(b) == QpState::Err));
    for qp in [a, b] {
        let done = net.poll(qp, qp.send_cq);
        assert_eq!(done[0].status, WcStatus::RetryExcErr as u8);
        assert_eq!(done[0].vendor_err, Cause::PathMtu as u32);
    }
}

/// Nothing of this happens for other refusals or for a peer that is silent for a while.
#[test]
fn a_silent_peer_or_a_missing_route_is_no_narrow_path() {
    for refusal in [None, Some(SendRefusal::Unreachable)] {
        let (mut net, a, _) = Net::connected(7, jumbo());
        let keys = [net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL)];
        net.run_for(SECOND);
        let until = Now(net.now.0 + 1_000_000_000);
        match refusal {
            None => {
                net.filter = Some(Box::new(move |now, host, _| match now < until && host == 1 {
                    true => Verdict::Drop,
                    false => Verdict::Pass,
                }));
            }
            Some(_) => net.hosts[0].world.refusal = refusal,
        }
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, LENGTH, keys[0])]), 0, keys[1]));
        net.run_for(MINUTE);
        let wanted = refusal.map_or(0, |_| Cause::Unreachable as u32);
        assert_eq!(net.poll(a, a.send_cq)[0].vendor_err, wanted);
        assert!(narrowings(&net, 0).is_empty() && narrowings(&net, 1).is_empty());
    }
}
