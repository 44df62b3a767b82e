//! Packets from people who are not the peer, on the device's own port: each is counted by kind in the report, none is
//! answered but an ECHO, and the connection does not notice.

use std::net::{SocketAddr, UdpSocket};

use serde_json::Value;
use srdma_abi::Opcode;
use srdma_seams::{ConnectionId, PathId, Qpn, TransmitId};
use srdma_wire::{emit, Ack, Close, Data, Echo, Hello, Message, Nak, NakCode, Op, Packet, UnitTag};

use crate::ground::*;

/// Of each kind.
const TIMES: u64 = 20;

fn datagram(packet: &Packet) -> Vec<u8> {
    let mut bytes = vec![0; srdma_wire::HEADER_BYTES_MAX];
    let length = emit(packet, &mut bytes).unwrap();
    bytes.truncate(length);
    match packet {
        Packet::Data(data) => bytes.resize(length + data.message.length as usize, 0xbb),
        Packet::Hello(hello) => bytes.resize(length.max(usize::from(hello.probe_bytes)), 0),
        Packet::Echo(echo) => bytes.resize(length.max(usize::from(echo.probe_bytes)), 0),
        _ => {}
    }
    bytes
}

/// What somebody who knows both queue pairs' numbers, but no connection id, may say to `dest_qpn`.
fn guesses(dest_qpn: Qpn, src_qpn: Qpn) -> Vec<Packet> {
    let connection = ConnectionId(0x0bad_0bad_0bad_0bad);
    let path = PathId(3);
    let data = Data {
        dest_qpn,
        connection,
        psn: 1,
        unit: UnitTag { transmit: TransmitId(1), path, index: 0, packets: 1 },
        message: Message { msn: 1, length: 64, offset: 0 },
        op: Op::Write { address: 0x1000, rkey: 7 },
        solicited: false,
        part: None,
        payload_crc: None,
        tag: None,
    };
    let ack = Ack {
        dest_qpn,
        connection,
        path,
        space: srdma_wire::Space::Request,
        cumulative: 100,
        landed: 100,
        free_bytes: 1,
        block_count: 0,
        blocks: Default::default(),
        unit_count: 0,
        units: [Default::default(); srdma_wire::packet::ACK_UNITS_MAX],
    };
    let hello = Hello {
        dest_qpn,
        src_qpn,
        version: srdma_wire::VERSION,
        connection,
        echo: ConnectionId(0),
        reply_wanted: true,
        measuring: false,
        claimed_address: [0; 16],
        observed_address: [0; 16],
        observed_port: 0,
        probe_bytes: 1400,
        proven_bytes: 1400,
        paths: 8,
        window_packets: 1,
        free_bytes: 0,
        features: 0,
        first_psn: 99,
    };
    vec![
        Packet::Data(data),
        Packet::Ack(ack),
        Packet::Nak(Nak { dest_qpn, connection, path, msn: 0, code: NakCode::Key }),
        Packet::Close(Close { dest_qpn, connection }),
        Packet::Hello(hello),
    ]
}

fn echo_reply() -> Packet {
    Packet::Echo(Echo {
        nonce: 1,
        sequence: 1,
        path: PathId(0),
        reply: true,
        version: 1,
        observed_ttl: 1,
        observed_address: [0; 16],
        observed_port: 1,
        probe_bytes: 56,
    })
}

fn count(report: &Value, kind: &str) -> u64 {
    report[kind].as_u64().unwrap_or_else(|| panic!("no {kind} in {report}"))
}

#[test]
fn strangers_are_counted_by_kind_and_heard_by_nobody() {
    let pair = Pair::new();
    let ((here, lkey), (there, rkey)) = (pair.a.host.region(4096), pair.b.host.region(4096));
    let move_bytes = |value: u8| {
        here.fill(value);
        let write = entry(Opcode::Write, 1, &[sge(&here, 0, 4096, lkey)]);
        assert_eq!(outcomes(&[pair.a.run(to_remote(write, there.address(), rkey))]), [done(1)]);
        assert!(there.is_all(value));
    };
    move_bytes(1);
    let victim = pair.b.host;
    let port = victim.report()["device"]["port"].as_u64().unwrap() as u16;
    let target = SocketAddr::new(victim.address, port);
    // Any other address, and the peer's own: who sends may write there what he likes.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let forger = UdpSocket::bind((pair.a.host.address, 0)).unwrap();
    let (qpn, peer) = (Qpn(pair.b.qp.number()), Qpn(pair.a.qp.number()));
    let guesses = guesses(qpn, peer);
    let nobody = Qpn(qpn.0 ^ 0x7f00);
    for _ in 0..TIMES {
        let good = datagram(&guesses[0]);
        stranger.send_to(&good[..10], target).unwrap();
        stranger.send_to(&good[..60], target).unwrap();
        stranger.send_to(b"GET / HTTP/1.1\r\n\r\n", target).unwrap();
        let mut flipped = good.clone();
        flipped[50] ^= 1;
        stranger.send_to(&flipped, target).unwrap();
        for packet in &guesses {
            stranger.send_to(&datagram(packet), target).unwrap();
            forger.send_to(&datagram(packet), target).unwrap();
        }
        if let Packet::Close(close) = guesses[3] {
            stranger.send_to(&datagram(&Packet::Close(Close { dest_qpn: nobody, ..close })), target).unwrap();
        }
        stranger.send_to(&datagram(&echo_reply()), target).unwrap();
        // Not so fast that the kernel drops some.
        move_bytes(2);
    }
    move_bytes(3);
    let kinds = guesses.len() as u64;
    wait("all of them counted", &[victim], || {
        let (report, qp) = (victim.report(), victim.counters(qpn.0));
        let (device, own) = (&report["dropped"], &qp["dropped"]);
        let found = [
            count(device, "malformed"),
            count(device, "header_check"),
            count(device, "unknown_qp"),
            count(device, "unsolicited"),
            count(own, "foreign_connection"),
            count(own, "foreign_address"),
        ];
        // A connection id is asked for first; a HELLO, which may be the first, is known by its address.
        let foreign = (2 * (kinds - 1) + 1) * TIMES;
        (found == [3 * TIMES, TIMES, TIMES, TIMES, foreign, TIMES]).then_some(())
    });
    for socket in [&stranger, &forger] {
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv_from(&mut [0; 64]).is_err(), "somebody was answered");
    }
    move_bytes(4);
    pair.a.assert_silent();
}

#[test]
fn an_echo_is_answered_with_no_more_bytes_than_it_had() {
    let pair = Pair::new();
    let host = pair.a.host;
    let port = host.report()["device"]["port"].as_u64().unwrap() as u16;
    let prober = UdpSocket::bind("127.0.0.1:0").unwrap();
    prober.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    for probe_bytes in [0, 56, 57, 500, 1400] {
        let Packet::Echo(reply) = echo_reply() else { unreachable!() };
        let asked = datagram(&Packet::Echo(Echo { reply: false, probe_bytes, ..reply }));
        prober.send_to(&asked, (host.address, port)).unwrap();
        let mut answer = [0; 2048];
        let (length, _) = prober.recv_from(&mut answer).unwrap();
        assert!(length <= asked.len(), "{length} bytes for {}", asked.len());
    }
}
