//! Endpoints over loopback: what leaves one arrives at the other as it was.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use srdma_net::{Endpoint, OpenError, Options, RawSlice, ReceiveBatch, SendError};
use srdma_seams::PathId;

/// Tests run side by side: each takes slots of its own.
fn own_slots() -> std::ops::RangeInclusive<u8> {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let first = NEXT.fetch_add(8, Ordering::Relaxed);
    first..=first + 7
}

fn options() -> Options {
    Options { slots: own_slots(), ..Options::default() }
}

fn open(ip: &str, options: &Options) -> Endpoint {
    Endpoint::open(ip.parse().unwrap(), options).unwrap()
}

struct Arrived {
    bytes: Vec<u8>,
    from: SocketAddr,
    class: u8,
    ce: bool,
    ttl: u8,
}

/// Receives until `count` packets are there, or nothing more comes for a second.
fn collect(endpoint: &mut Endpoint, count: usize) -> Vec<Arrived> {
    let mut batch = ReceiveBatch::new(32).unwrap();
    let mut arrived = Vec::new();
    let mut last = Instant::now();
    while arrived.len() < count && last.elapsed() < Duration::from_secs(1) {
        if endpoint.receive(&mut batch).unwrap() > 0 {
            last = Instant::now();
        }
        for segment in batch.segments() {
            arrived.push(Arrived {
                bytes: batch.packet(&segment).to_vec(),
                from: segment.from,
                class: segment.traffic_class,
                ce: segment.ce,
                ttl: segment.ttl,
            });
        }
    }
    arrived
}

/// Sizes of packets of one burst: equal runs, a shorter tail, growth, singles.
const MIXED_SIZES: &[usize] =
    &[1000, 1000, 1000, 200, 1000, 1400, 1400, 1, 1, 1, 8000, 8000, 30_000, 30_000, 30_000, 40, 41];

fn pattern(index: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (index * 31 + at) as u8).collect()
}

fn send_mixed(sender: &mut Endpoint, path: PathId, to: SocketAddr, class: u8) -> Vec<Vec<u8>> {
    let packets: Vec<Vec<u8>> =
        MIXED_SIZES.iter().enumerate().map(|(index, &length)| pattern(index, length)).collect();
    let mut burst = sender.burst(path, to, class);
    for packet in &packets {
        // A header, and a payload in three pieces of which one is empty.
        let header = packet.len().min(30);
        let (front, back) = packet[header..].split_at((packet.len() - header) / 3);
        let payload = [RawSlice::from(front), RawSlice::from(&[][..]), RawSlice::from(back)];
        burst.push_encoded(&packet[..header], &payload).unwrap();
    }
    burst.send().unwrap();
    packets
}

#[test]
fn bursts_of_mixed_sizes_arrive_whole_with_ports_and_marks() {
    for (ip, gso, gro) in [
        ("127.0.0.1", true, true),
        ("127.0.0.1", true, false),
        ("127.0.0.1", false, true),
        ("127.0.0.1", false, false),
        ("::1", true, true),
        ("::1", false, false),
    ] {
        let options = Options { gso, gro, ..options() };
        let mut receiver = open(ip, &options);
        let mut sender = open(ip, &options);
        for (path, class) in [(0u16, 0u8), (7, 0x68), (255, 0xff)] {
            let case = format!("{ip} gso {gso} gro {gro} path {path}");
            let sent = send_mixed(&mut sender, PathId(path), receiver.address(), class);
            let arrived = collect(&mut receiver, sent.len());
            let bytes: Vec<_> = arrived.iter().map(|packet| packet.bytes.clone()).collect();
            assert_eq!(bytes.iter().map(Vec::len).collect::<Vec<_>>(), MIXED_SIZES, "{case}");
            assert!(bytes == sent, "{case}");
            for packet in &arrived {
                assert_eq!(packet.from.port(), sender.path_port(PathId(path)).unwrap(), "{case}");
                assert_eq!(packet.from.ip(), ip.parse::<IpAddr>().unwrap(), "{case}");
                assert_eq!(packet.class, class & 0xfc | 2, "{case}");
                assert!(!packet.ce && packet.ttl == 64, "{case}: ttl {}", packet.ttl);
            }
        }
        let (out, in_) = (sender.counters(), receiver.counters());
        assert_eq!(out.sent_packets, 3 * MIXED_SIZES.len() as u64);
        assert_eq!((in_.received_packets, in_.received_bytes), (out.sent_packets, out.sent_bytes));
        assert_eq!(out.gso_messages > 0, gso);
        assert_eq!(out.send_calls, 3, "one system call per burst: {out:?}");
        assert_eq!(in_.received_datagrams < in_.received_packets, gso && gro, "{in_:?}");
        assert_eq!(out.path_sockets, 3);
    }
}

#[test]
fn binding_is_claiming_and_dropping_is_giving_back() {
    let options = Options { slots: own_slots(), ..Options::default() };
    let first = *options.slots.start();
    let a = open("127.0.0.9", &options);
    let b = open("127.0.0.9", &options);
    let elsewhere = open("127.0.0.10", &options);
    assert_eq!([a.slot().0, b.slot().0, elsewhere.slot().0], [first, first + 1, first]);
    drop(a);
    assert_eq!(open("127.0.0.9", &options).slot().0, first);

    let narrow = Options { slots: b.slot().0..=b.slot().0, ..options };
    match Endpoint::open("127.0.0.9".parse().unwrap(), &narrow) {
        Err(OpenError::AllSlotsTaken { tried: 1, first_port, last_port, .. }) => {
            assert_eq!((first_port, last_port), (b.slot().port(), b.slot().port()))
        }
        other => panic!("{:?}", other.err()),
    }
    match Endpoint::open("203.0.113.77".parse().unwrap(), &narrow) {
        Err(error @ OpenError::AddressUnavailable { .. }) => {
            assert!(error.to_string().contains("203.0.113.77"))
        }
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_foreign_family_is_refused_in_words() {
    let mut sender = open("127.0.0.1", &options());
    let to: SocketAddr = "[::1]:61001".parse().unwrap();
    assert_eq!(sender.send_bytes(PathId(0), to, 0, b"x"), Err(SendError::Unreachable));
    assert!(sender.last_refusal().unwrap().contains("[::1]:61001"));
    // An IPv4 address in IPv6 clothes is an IPv4 address.
    let mut receiver = open("127.0.0.1", &options());
    let mapped = SocketAddr::new("::ffff:127.0.0.1".parse().unwrap(), receiver.address().port());
    sender.send_bytes(PathId(0), mapped, 0x20, b"mapped").unwrap();
    let arrived = collect(&mut receiver, 1);
    assert_eq!((&arrived[0].bytes[..], arrived[0].class), (&b"mapped"[..], 0x22));
}

#[test]
fn a_batch_is_full_as_long_as_more_may_wait_and_asks_for_more() {
    let options = Options { gro: false, ..options() };
    let mut receiver = open("127.0.0.11", &options);
    let mut sender = open("127.0.0.11", &options);
    for number in 0..100u8 {
        sender.send_bytes(PathId(0), receiver.address(), 0, &[number]).unwrap();
    }
    let mut batch = ReceiveBatch::new(16).unwrap();
    let (mut arrived, mut calls) = (Vec::new(), 0);
    loop {
        receiver.receive(&mut batch).unwrap();
        calls += 1;
        arrived.extend(batch.segments().map(|segment| batch.packet(&segment)[0]));
        if !batch.is_full() {
            break;
        }
    }
    assert_eq!(arrived, (0..100).collect::<Vec<u8>>());
    // 4, 8, then 16 at a time: fewer system calls than with a fixed small number.
    assert_eq!(calls, 8);
    assert_eq!(receiver.receive(&mut batch).unwrap(), 0);
    assert!(!batch.is_full() && batch.segments().next().is_none());
    assert_eq!(batch.bytes(0, 0, 1), b"", "nothing of an earlier call shows");
}

/// A socket of the standard library that marks its packets as having met congestion.
fn congested_socket(ip: &str) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    let v4 = socket.local_addr().unwrap().is_ipv4();
    let (level, name) =
        if v4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
    let class: libc::c_int = 0x6b;
    // SAFETY: a value of the stated length that outlives the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const class).cast(), 4) };
    assert_eq!(result, 0);
    socket
}

#[test]
fn congestion_marks_of_the_network_are_seen_per_packet() {
    for ip in ["127.0.0.12", "::1"] {
        let options = options();
        let mut receiver = open(ip, &options);
        let mut unmarked = open(ip, &options);
        let marked = congested_socket(ip);
        for _ in 0..3 {
            marked.send_to(b"marked", receiver.address()).unwrap();
            unmarked.send_bytes(PathId(1), receiver.address(), 0x68, b"not").unwrap();
        }
        let arrived = collect(&mut receiver, 6);
        assert_eq!(arrived.len(), 6);
        for packet in arrived {
            let expected = packet.bytes == b"marked";
            assert_eq!((packet.ce, packet.class), (expected, if expected { 0x6b } else { 0x6a }), "{ip}");
        }
        assert_eq!(receiver.counters().received_ce, 3);
    }
}

/// Six packets of 1,000 bytes, the last shorter: of the first four, payloads go elsewhere.
#[test]
fn a_datagram_is_looked_at_and_then_taken_apart() {
    const HEADER: usize = 40;
    for (gso, places_mapped) in [(true, true), (false, true), (true, false)] {
        let case = format!("gso {gso}, places mapped {places_mapped}");
        let mut receiver = open("127.0.0.1", &options());
        let mut sender = open("127.0.0.1", &Options { gso, ..options() });
        let mut batch = ReceiveBatch::new(4).unwrap();
        assert_eq!(receiver.glance(&mut batch).unwrap(), None, "{case}");
        let packets: Vec<Vec<u8>> =
            [1000, 1000, 1000, 1000, 1000, 300].iter().enumerate().map(|(i, &n)| pattern(i, n)).collect();
        let mut burst = sender.burst(PathId(3), receiver.address(), 0);
        for packet in &packets {
            burst.push_encoded(&packet[..HEADER], &[RawSlice::from(&packet[HEADER..])]).unwrap();
        }
        burst.send().unwrap();
        let together = if gso { 6 } else { 1 };
        let glance = receiver.glance(&mut batch).unwrap().unwrap();
        assert_eq!((glance.from.port(), glance.segment_bytes), (sender.path_port(PathId(3)).unwrap(), 1000));
        assert_eq!(glance.length, if gso { 5300 } else { 1000 }, "{case}");
        assert_eq!(glance.head[..], packets[0][..srdma_net::scatter::GLANCE_BYTES], "{case}");

        let mut elsewhere = vec![0u8; 4 * (1000 - HEADER)];
        let wanted = if gso { 4 } else { 1 };
        let address = if places_mapped { elsewhere.as_mut_ptr() as usize } else { 8 };
        let places = RawSlice { address, length: wanted * (1000 - HEADER) };
        let cut = srdma_net::Cut { segment_bytes: 1000, header_bytes: HEADER as u32 };
        // SAFETY: `elsewhere` is ours, and nothing lies at address 8.
        let taken = unsafe { receiver.take_apart(&mut batch, &glance, cut, places) };
        if !places_mapped {
            assert_eq!(taken.unwrap_err().raw_os_error(), Some(libc::EFAULT), "{case}");
            assert_eq!(receiver.glance(&mut batch).unwrap(), None, "{case}: lost");
            continue;
        }
        assert_eq!(taken.unwrap(), together, "{case}");
        for (index, segment) in batch.last_segments().enumerate() {
            let bytes = batch.packet(&segment);
            assert_eq!(bytes[..HEADER], packets[index][..HEADER], "{case}: header {index}");
            match index < wanted {
                true => assert_eq!(
                    elsewhere[index * (1000 - HEADER)..][..1000 - HEADER],
                    packets[index][HEADER..],
                    "{case}: payload {index}"
                ),
                false => assert_eq!(bytes, packets[index], "{case}: packet {index}"),
            }
        }
        let second = receiver.glance(&mut batch).unwrap();
        assert_eq!(second.is_some(), !gso, "{case}: the batch holds one datagram only");
    }
}
