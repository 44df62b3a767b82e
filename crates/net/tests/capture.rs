//! A capture file holds what was sent and received, and others can read it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use srdma_net::{Capture, Endpoint, Options, RawSlice, ReceiveBatch};
use srdma_seams::{ConnectionId, PathId, Qpn};
use srdma_wire::{Close, Packet};

/// A file that goes away with the test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A captured packet: IP version, source and destination port, payload, direction, nanoseconds.
#[derive(Debug, PartialEq)]
struct Captured {
    version: u8,
    ports: (u16, u16),
    class: u8,
    payload: Vec<u8>,
    inbound: bool,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn ones_complement(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum = words.fold(start, |sum, word| sum + word);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Reads the blocks of a file, checking every length and checksum on the way.
fn parse(file: &[u8], since: u64) -> Vec<Captured> {
    let mut packets = Vec::new();
    let mut at = 0;
    let mut kinds = Vec::new();
    while at < file.len() {
        let (kind, length) = (word(file, at), word(file, at + 4) as usize);
        assert_eq!(length % 4, 0);
        assert_eq!(word(file, at + length - 4) as usize, length, "trailing length");
        let body = &file[at + 8..at + length - 4];
        kinds.push(kind);
        match kind {
            0x0a0d_0d0a => assert_eq!(word(body, 0), 0x1a2b_3c4d),
            1 => assert_eq!((word(body, 0), word(body, 4)), (101, 0)),
            6 => packets.push(parse_packet(body, since)),
            other => panic!("block {other}"),
        }
        at += length;
    }
    assert_eq!(kinds[..2], [0x0a0d_0d0a, 1]);
    packets
}

fn parse_packet(body: &[u8], since: u64) -> Captured {
    let time = u64::from(word(body, 4)) << 32 | u64::from(word(body, 8));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    assert!((since..=now).contains(&time));
    assert_eq!(word(body, 12), word(body, 16));
    let length = word(body, 12) as usize;
    let packet = &body[20..20 + length];
    let options = &body[20 + length.next_multiple_of(4)..];
    assert_eq!(options[..4], [2, 0, 4, 0], "epb_flags");
    let version = packet[0] >> 4;
    let (header_bytes, addresses, class) = match version {
        4 => (20, 12..20, packet[1]),
        _ => (40, 8..40, packet[0] << 4 | packet[1] >> 4),
    };
    if version == 4 {
        assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), length);
        assert_eq!(ones_complement(&packet[..20], 0), 0xffff, "header checksum");
    } else {
        assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])) + 40, length);
    }
    let udp = &packet[header_bytes..];
    assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
    let pseudo = u32::from(ones_complement(&packet[addresses], 17 + udp.len() as u32));
    assert_eq!(ones_complement(udp, pseudo), 0xffff, "UDP checksum");
    Captured {
        version,
        ports: (u16::from_be_bytes([udp[0], udp[1]]), u16::from_be_bytes([udp[2], udp[3]])),
        class,
        payload: udp[8..].to_vec(),
        inbound: word(options, 4) & 3 == 1,
    }
}

/// Sends bursts from one endpoint to another that has slot 0, both capturing into a file each.
fn record(address: IpAddr) -> (Scratch, Scratch, u16, u16) {
    let file = |name: &str| {
        let name = format!("srdma-capture-{}-{}-{name}.pcapng", std::process::id(), address.is_ipv4());
        Scratch(std::env::temp_dir().join(name))
    };
    let (out, in_) = (file("out"), file("in"));
    let open = |slots, scratch: &Scratch| {
        let mut endpoint = Endpoint::open(address, &Options { slots, ..Options::default() }).unwrap();
        endpoint.set_capture(Capture::create(&scratch.0).unwrap());
        endpoint
    };
    let mut receiver = open(0..=200, &in_);
    let mut sender = open(201..=250, &out);
    let mut burst = sender.burst(PathId(3), receiver.address(), 0x20);
    let payload: Vec<u8> = (0..5001u32).map(|i| i as u8).collect();
    for length in [1000, 1000, 333, 5001] {
        burst.push_encoded(b"head", &[RawSlice::from(&payload[..length])]).unwrap();
    }
    burst.send().unwrap();
    let close = Packet::Close(Close { dest_qpn: Qpn(7), connection: ConnectionId(8) });
    sender.send_control(PathId(3), receiver.address(), 0, &close, 0).unwrap();
    let mut batch = ReceiveBatch::new(8).unwrap();
    let (mut arrived, start) = (0, Instant::now());
    while arrived < 5 && start.elapsed() < Duration::from_secs(2) {
        arrived += receiver.receive(&mut batch).unwrap();
    }
    assert_eq!((sender.counters().captured_packets, receiver.counters().captured_packets), (5, 5));
    sender.flush_capture().unwrap();
    (out, in_, sender.path_port(PathId(3)).unwrap(), receiver.address().port())
}

#[test]
fn both_ends_record_the_same_packets() {
    for address in ["127.0.0.93", "::1"] {
        let address: IpAddr = address.parse().unwrap();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let (out, in_, source, destination) = record(address);
        let sent = parse(&fs::read(&out.0).unwrap(), since);
        let received = parse(&fs::read(&in_.0).unwrap(), since);
        assert_eq!(sent.iter().map(|p| p.payload.len()).collect::<Vec<_>>()[..4], [1004, 1004, 337, 5005]);
        assert!(sent[0].payload.starts_with(b"head\x00\x01\x02"));
        assert!(sent.iter().all(|packet| packet.ports == (source, destination) && !packet.inbound));
        assert_eq!(sent.iter().map(|packet| packet.class).collect::<Vec<_>>(), [0x22, 0x22, 0x22, 0x22, 2]);
        let flipped: Vec<_> = sent.into_iter().map(|packet| Captured { inbound: true, ..packet }).collect();
        assert_eq!(received, flipped);
        assert!(received.iter().all(|packet| packet.version == if address.is_ipv4() { 4 } else { 6 }));
    }
}

#[test]
fn tshark_reads_the_file_where_it_is_installed() {
    if Command::new("tshark").arg("-v").output().is_err() {
        eprintln!("not tested: tshark is not installed");
        return;
    }
    let (_, in_, source, destination) = record("127.0.0.94".parse().unwrap());
    assert_eq!(destination, 4791);
    let fields = [
        "udp.srcport",
        "udp.dstport",
        "udp.length",
        "ip.dsfield",
        "infiniband.bth.opcode",
        "udp.checksum.status",
    ];
    let mut tshark = Command::new("tshark");
    tshark.args(["-o", "udp.check_checksum:TRUE", "-T", "fields", "-r"]).arg(&in_.0);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 5, "{text} {}", String::from_utf8_lossy(&output.stderr));
    for (line, length) in lines.iter().zip(["1012", "1012", "345", "5013"]) {
        assert_eq!(line[..4], [&source.to_string(), "4791", length, "0x22"], "{text}");
    }
    assert!(lines.iter().all(|line| !line[4].is_empty()), "dissected as RoCEv2: {text}");
    assert!(lines.iter().all(|line| line[5] == "1"), "checksums are good: {text}");
}
