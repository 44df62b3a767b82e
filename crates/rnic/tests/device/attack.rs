//! Kinds of attack, one by one: each is counted under its own cause, and the connection goes on with right bytes.

use srdma_abi::{Cause, Opcode, QpState};
use srdma_seams::event::DropCause;
use srdma_seams::{ConnectionId, Duration, Event, MrKey, Qpn};
use srdma_wire::{Close, Hello, Nak, NakCode, Packet};

use crate::host::{Sent, BASE};
use crate::net::*;

const SECOND: Duration = Duration::from_secs(1);

/// A connection that has moved bytes, and what it sent for that.
struct Ground {
    net: Net,
    ends: [QpRef; 2],
    keys: [MrKey; 2],
    sent: Vec<(usize, Sent)>,
    rounds: u8,
}

impl Ground {
    fn new(seed: u64) -> Ground {
        let (mut net, a, b) = Net::connected(seed, Options { hosts: 3, ..Options::default() });
        let keys = [0, 1].map(|host| net.region(host, 0, 1 << 16, ALL));
        net.record = Some(vec![]);
        let mut ground = Ground { net, ends: [a, b], keys, sent: vec![], rounds: 0 };
        ground.work();
        ground.sent = std::mem::take(ground.net.record.as_mut().unwrap());
        ground
    }

    /// Bytes move in both directions, and are right.
    fn work(&mut self) {
        self.rounds += 1;
        for (side, (&from, to)) in self.ends.iter().zip([self.ends[1], self.ends[0]]).enumerate() {
            let (here, there) = (self.keys[side], self.keys[1 - side]);
            let place = 8192 * (1 + side as u64);
            self.net.hosts[side].world.set(BASE + place, &[self.rounds; 5000]);
            self.net.post_recv(to, 1, &[]);
            self.net.post(from, to_remote(entry(Opcode::Write, 1, &[sge(place, 5000, here)]), place, there));
            self.net.post(from, to_remote(entry(Opcode::Read, 2, &[sge(0, 4000, here)]), place, there));
            self.net.post(from, entry(Opcode::Send, 3, &[]));
        }
        self.net.run_for(SECOND);
        for (side, end) in self.ends.into_iter().enumerate() {
            let done: Vec<_> = self.net.poll(end, end.send_cq).iter().map(|c| (c.wr_id, c.status)).collect();
            assert_eq!(done, [(1, 0), (2, 0), (3, 0)]);
            assert_eq!(self.net.poll(end, end.recv_cq).len(), 1);
            let place = BASE + 8192 * (1 + side as u64);
            assert_eq!(self.net.hosts[1 - side].world.bytes(place, 5000), [self.rounds; 5000]);
        }
    }

    fn drops(&self, host: usize) -> Vec<(DropCause, usize)> {
        let causes = ALL_CAUSES.into_iter().map(|cause| (cause, self.net.hosts[host].counts.drops(cause)));
        causes.filter(|(_, count)| *count > 0).collect()
    }

    fn forget_counts(&mut self) {
        self.net.hosts.iter_mut().for_each(|host| host.counts.events.clear());
    }

    /// Packets of host 0 to host 1.
    fn packets(&self) -> Vec<Sent> {
        self.sent.iter().filter(|(host, _)| *host == 0).map(|(_, sent)| sent.clone()).collect()
    }

    /// A data packet of host 0 that would be its next.
    fn next_data(&mut self, change: impl FnOnce(&mut srdma_wire::Data)) -> Sent {
        let last = self.packets().into_iter().rev().find_map(|sent| match sent.packet {
            Packet::Data(data) if data.op.space() == srdma_wire::Space::Request => Some((data, sent)),
            _ => None,
        });
        let (mut data, sent) = last.unwrap();
        change(&mut data);
        Sent { packet: Packet::Data(data), ..sent }
    }
}

const ALL_CAUSES: [DropCause; 9] = [
    DropCause::UnknownQp,
    DropCause::QpState,
    DropCause::ForeignConnection,
    DropCause::ForeignAddress,
    DropCause::Duplicate,
    DropCause::Stale,
    DropCause::BeyondWindow,
    DropCause::BogusAck,
    DropCause::Inconsistent,
];

/// Any packet with another connection id, as one off the path would guess it.
fn with_id(packet: &Packet, id: ConnectionId) -> Packet {
    let mut packet = *packet;
    match &mut packet {
        Packet::Data(data) => data.connection = id,
        Packet::Ack(ack) => ack.connection = id,
        Packet::Nak(nak) => nak.connection = id,
        Packet::Close(close) => close.connection = id,
        Packet::Hello(hello) => (hello.connection, hello.echo) = (id, id),
        Packet::Echo(_) => {}
    }
    packet
}

/// One packet of every kind, as host 0 would send it.
fn one_of_each(ground: &Ground) -> Vec<Sent> {
    let packets = ground.packets();
    let data = packets.iter().find(|sent| is_data(&sent.packet)).unwrap().clone();
    let Packet::Data(header) = data.packet else { unreachable!() };
    let (dest_qpn, connection, path) = (header.dest_qpn, header.connection, header.unit.path);
    let ack = packets.iter().find(|sent| matches!(sent.packet, Packet::Ack(_))).unwrap().clone();
    let nak = Packet::Nak(Nak { dest_qpn, connection, path, msn: 0, code: NakCode::Fault });
    let close = Packet::Close(Close { dest_qpn, connection });
    let hello = Packet::Hello(hello(ground.ends[0].qpn, dest_qpn, ConnectionId(5), ConnectionId(0)));
    let with = |packet| Sent { packet, payload: vec![], ..data.clone() };
    vec![data.clone(), ack, with(nak), with(close), with(hello)]
}

fn hello(src_qpn: Qpn, dest_qpn: Qpn, connection: ConnectionId, echo: ConnectionId) -> Hello {
    Hello {
        dest_qpn,
        src_qpn,
        version: srdma_wire::VERSION,
        connection,
        echo,
        reply_wanted: true,
        measuring: false,
        claimed_address: [0; 16],
        observed_address: [0; 16],
        observed_port: 0,
        probe_bytes: 1472,
        proven_bytes: 1472,
        paths: 128,
        window_packets: 1,
        free_bytes: 0,
        features: 0,
        first_psn: 12345,
    }
}

#[test]
fn packets_with_a_guessed_connection_id_are_foreign() {
    let mut ground = Ground::new(1);
    let wrong = one_of_each(&ground);
    ground.forget_counts();
    for round in 0..50 {
        for sent in &wrong {
            let packet = with_id(&sent.packet, ConnectionId(0xbad0_0000 + round));
            ground.net.fly(0, Sent { packet, ..sent.clone() }, 0);
        }
    }
    ground.net.run_for(SECOND);
    assert_eq!(ground.drops(1), [(DropCause::ForeignConnection, 50 * wrong.len())]);
    ground.work();
}

#[test]
fn packets_from_another_address_are_foreign_even_with_the_right_id() {
    let mut ground = Ground::new(2);
    let right = one_of_each(&ground);
    ground.forget_counts();
    for sent in &right {
        ground.net.fly(2, sent.clone(), 0);
    }
    ground.net.run_for(SECOND);
    assert_eq!(ground.drops(1), [(DropCause::ForeignAddress, right.len())]);
    ground.work();
}

#[test]
fn packets_for_nobody_are_counted_as_such() {
    let mut ground = Ground::new(3);
    ground.forget_counts();
    let data = ground.next_data(|data| data.dest_qpn = Qpn(0x12_3456));
    ground.net.fly(0, data, 0);
    let mut unconnected = ground.next_data(|_| {});
    let idle = ground.net.qp(1);
    if let Packet::Data(data) = &mut unconnected.packet {
        data.dest_qpn = idle.qpn;
    }
    ground.net.fly(0, unconnected, 0);
    ground.net.run_for(SECOND);
    assert_eq!(ground.drops(1), [(DropCause::UnknownQp, 1), (DropCause::QpState, 1)]);
    ground.work();
}

#[test]
fn replayed_packets_are_duplicates_and_nothing_is_done_twice() {
    let mut ground = Ground::new(4);
    ground.forget_counts();
    let copies = ground.net.hosts[1].world.copies_done;
    let all = ground.sent.clone();
    let data = all.iter().filter(|(host, sent)| *host == 0 && is_data(&sent.packet)).count();
    for (host, sent) in all {
        ground.net.fly(host, sent, 0);
    }
    ground.net.run_for(SECOND);
    assert_eq!(ground.net.hosts[1].world.copies_done, copies);
    let dropped = ground.drops(1);
    let again: usize = dropped.iter().map(|(_, count)| count).sum();
    let kinds = dropped.iter().all(|(cause, _)| matches!(cause, DropCause::Duplicate | DropCause::Stale));
    assert!(kinds && again >= data, "{dropped:?}, {data} data packets");
    ground.work();
}

#[test]
fn packets_sent_back_to_their_sender_are_foreign() {
    let mut ground = Ground::new(5);
    // The hardest case: both queue pairs have the same number, so everything finds its way.
    assert_eq!(ground.ends[0].qpn, ground.ends[1].qpn);
    ground.forget_counts();
    let theirs = ground.packets();
    let back = ground.net.hosts[0].address;
    for sent in &theirs {
        let peer = std::net::SocketAddr::new(back, sent.peer.port());
        ground.net.fly(1, Sent { peer, ..sent.clone() }, 0);
    }
    ground.net.run_for(SECOND);
    assert_eq!(ground.drops(0), [(DropCause::ForeignConnection, theirs.len())]);
    ground.work();
}

#[test]
fn a_hello_sent_back_before_there_is_a_peer_connects_nobody_to_himself() {
    let mut net = Net::pair(6);
    let (a, b) = (net.qp(0), net.qp(1));
    assert_eq!(a.qpn, b.qpn);
    let local = net.region(0, 0, 4096, ALL);
    net.record = Some(vec![]);
    net.go_init(a, attributes());
    net.go_rtr(a, b, attributes());
    net.go_rts(a, attributes());
    net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
    let back = net.hosts[0].address;
    let mut reflected = 0;
    for _ in 0..100 {
        net.run_for(Duration::from_millis(1));
        for (_, sent) in std::mem::take(net.record.as_mut().unwrap()) {
            let peer = std::net::SocketAddr::new(back, sent.peer.port());
            net.fly(1, Sent { peer, ..sent }, 0);
            reflected += 1;
        }
    }
    net.run_for(Duration::from_millis(1));
    assert!(reflected > 3);
    let connected = net.hosts[0].counts.count(|event| matches!(event, Event::Connected { .. }));
    assert_eq!((connected, net.hosts[0].counts.drops(DropCause::ForeignConnection)), (0, reflected));
}

#[test]
fn what_only_a_lying_peer_can_say_is_dropped_by_kind() {
    let mut ground = Ground::new(7);
    let far = ground.next_data(|data| data.psn = data.psn.wrapping_add(1 << 20));
    let old = ground.next_data(|data| data.psn = data.psn.wrapping_sub(1 << 20));
    let mut ack = ground.packets().into_iter().find(|sent| matches!(sent.packet, Packet::Ack(_))).unwrap();
    if let Packet::Ack(ack) = &mut ack.packet {
        ack.cumulative = ack.cumulative.wrapping_add(1 << 16);
    }
    for (sent, cause) in [(far, DropCause::BeyondWindow), (old, DropCause::Stale), (ack, DropCause::BogusAck)]
    {
        ground.forget_counts();
        ground.net.fly(0, sent, 0);
        ground.net.run_for(SECOND);
        assert_eq!(ground.drops(1), [(cause, 1)]);
        ground.work();
    }
}

#[test]
fn a_forged_handshake_never_confirms_and_the_half_open_connection_expires() {
    let mut net = Net::pair(8);
    // Nobody is there; somebody forges the peer's HELLOs, knowing both numbers and the peer's address.
    let (a, b) = (net.qp(0), net.qp(1));
    let local = net.region(0, 0, 4096, ALL);
    net.go_init(a, attributes());
    net.go_rtr(a, b, attributes());
    net.go_rts(a, attributes());
    net.post(a, entry(Opcode::Send, 1, &[sge(0, 8, local)]));
    let peer = std::net::SocketAddr::new(net.hosts[0].address, 4791);
    let limit = net.now + Duration::from_secs(120);
    let mut forged = 0;
    while net.state(a) == QpState::Rts && net.now < limit {
        let packet = Packet::Hello(hello(b.qpn, a.qpn, ConnectionId(1000 + forged), ConnectionId(0)));
        net.fly(1, Sent { peer, path: srdma_seams::PathId(0), packet, payload: vec![] }, 0);
        net.run_for(Duration::from_millis(2));
        forged += 1;
    }
    let failed = net.poll(a, a.send_cq);
    assert_eq!((failed[0].wr_id, failed[0].vendor_err), (1, Cause::NoHandshake as u32));
    assert!(forged > 100);
    assert_eq!(net.hosts[0].counts.count(|event| matches!(event, Event::Connected { .. })), 0);
    // No object, no timer is left of all the strangers.
    net.destroy(a);
    assert_eq!(net.hosts[0].nic.next_timeout(), None);
}

#[test]
fn forged_handshakes_do_not_keep_the_true_peer_out() {
    for seed in 0..100 {
        let mut net = Net::new(seed, Options { faults: Faults::SPREAD, ..Options::default() });
        let (a, b) = (net.qp(0), net.qp(1));
        let keys = [0, 1].map(|host| net.region(host, 0, 1 << 16, ALL));
        net.connect(a, b, attributes(), attributes());
        net.hosts[0].world.memory.fill(9);
        net.post(a, to_remote(entry(Opcode::Write, 1, &[sge(0, 20_000, keys[0])]), 0, keys[1]));
        net.post_recv(b, 2, &[]);
        net.post(a, entry(Opcode::Send, 2, &[]));
        let peers = [0, 1].map(|host| std::net::SocketAddr::new(net.hosts[host].address, 4791));
        for forged in 0..200 {
            for (from, to, here, there) in [(1, 0, a, b), (0, 1, b, a)] {
                let packet =
                    Packet::Hello(hello(there.qpn, here.qpn, ConnectionId(77 + forged), ConnectionId(0)));
                let path = srdma_seams::PathId(forged as u16 % 128);
                net.fly(from, Sent { peer: peers[to], path, packet, payload: vec![] }, 0);
            }
            net.run_for(Duration::from_micros(50));
        }
        net.run_for(Duration::from_secs(10));
        let done: Vec<_> = net.poll(a, a.send_cq).iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(done, [(1, 0), (2, 0)], "seed {seed}");
        assert_eq!(net.hosts[1].world.bytes(BASE, 20_000), [9; 20_000], "seed {seed}");
    }
}
