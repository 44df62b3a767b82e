//! The bytes themselves. A change here is a change of the protocol: it needs another version.
#![allow(clippy::unwrap_used)]

mod generator;

use generator::{ack_sample, close_sample, data_of, echo_sample, hello_sample, nak_sample, ops};
use srdma_wire::{
    data_header_bytes, emit, packet, Data, NakCode, Packet, DATA_HEADER_BYTES, DATA_HEADER_BYTES_MAX,
    ECHO_BYTES, HEADER_BYTES_MAX, HELLO_BYTES,
};

fn header(packet: &Packet) -> Vec<u8> {
    let mut bytes = vec![0xee; HEADER_BYTES_MAX];
    let length = emit(packet, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// Eight groups of four bytes a line.
fn hex(bytes: &[u8]) -> String {
    let groups: Vec<String> =
        bytes.chunks(4).map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    groups.chunks(8).map(|line| line.join(" ")).collect::<Vec<_>>().join("\n")
}

/// One packet of each kind.
fn kinds() -> Vec<(&'static str, Packet)> {
    let mut kinds: Vec<_> = ops().into_iter().map(|(name, op)| (name, Packet::Data(data_of(op)))).collect();
    let (_, write) = ops()[0];
    let extended = Data {
        solicited: true,
        part: None,
        payload_crc: Some(0xf5f6_f7f8),
        tag: Some(core::array::from_fn(|i| 0x80 + i as u8)),
        ..data_of(write)
    };
    kinds.push(("write, solicited, CRC, tag", Packet::Data(extended)));
    kinds.push(("ack", Packet::Ack(ack_sample(2, 2))));
    kinds.push(("nak rnr", Packet::Nak(nak_sample(NakCode::Rnr { timer: 14 }))));
    kinds.push(("nak access", Packet::Nak(nak_sample(NakCode::Access))));
    kinds.push(("close", Packet::Close(close_sample())));
    kinds.push(("hello", Packet::Hello(hello_sample())));
    kinds.push(("echo", Packet::Echo(echo_sample())));
    kinds
}

#[test]
fn the_bytes_of_every_kind_stay_as_they_are() {
    let golden = include_str!("golden.txt");
    let mut written = String::new();
    for (name, packet) in kinds() {
        written.push_str(&format!("{name}\n{}\n\n", hex(&header(&packet))));
    }
    assert_eq!(written.trim_end(), golden.trim_end(), "as written now:\n{written}");
}

#[test]
fn lengths_are_what_the_constants_say() {
    for (name, op) in ops() {
        let plain = data_of(op);
        let with_crc = Data { payload_crc: Some(0), ..plain };
        let full = Data { tag: Some([0; 16]), ..with_crc };
        let (crc, both) = (packet::FEATURE_PAYLOAD_CRC, packet::FEATURE_PAYLOAD_CRC | packet::FEATURE_TAG);
        for (data, features) in [(plain, 0), (with_crc, crc), (full, both)] {
            let expected = data_header_bytes(features);
            assert_eq!(header(&Packet::Data(data)).len(), expected, "{name} {features}");
        }
    }
    assert_eq!((DATA_HEADER_BYTES, DATA_HEADER_BYTES_MAX, HEADER_BYTES_MAX), (72, 96, 936));
    assert_eq!(header(&Packet::Ack(ack_sample(32, 64))).len(), HEADER_BYTES_MAX);
    assert_eq!(header(&Packet::Hello(hello_sample())).len(), HELLO_BYTES);
    assert_eq!(header(&Packet::Echo(echo_sample())).len(), ECHO_BYTES);
}

/// What a dissector of RoCEv2 finds at the offsets of the Base Transport Header (IBTA 9.2).
#[test]
fn a_rocev2_dissector_finds_a_base_transport_header() {
    for (name, packet) in kinds() {
        let bytes = header(&packet);
        assert!(bytes[0] >= 0xc0, "{name}: opcode of the manufacturer range");
        let solicited = name == "write, solicited, CRC, tag";
        assert_eq!(bytes[1] & 0x80 != 0, solicited, "{name}: solicited event");
        assert_eq!(bytes[1] & 0x7f, 0, "{name}: no migration, no padding, transport version 0");
        assert_eq!(bytes[2..4], [0xff, 0xff], "{name}: default partition");
        assert_eq!(bytes[4], 0, "{name}: FECN, BECN, reserved");
        let qpn = if name == "echo" { [0, 0, 0] } else { [0x12, 0x34, 0x56] };
        assert_eq!(bytes[5..8], qpn, "{name}: destination queue pair");
        assert_eq!(bytes[8], 0, "{name}: no acknowledgement asked for");
        let unnumbered = name == "close" || name.starts_with("nak");
        let number = if unnumbered { [0, 0, 0] } else { [0xa2, 0xa3, 0xa4] };
        assert_eq!(bytes[9..12], number, "{name}: packet number");
    }
}

#[test]
fn the_protocol_document_names_the_same_opcodes_and_shows_the_same_bytes() {
    let document = include_str!("../../../PROTOCOL.md");
    for (kind, packet) in kinds() {
        let name = kind.split([' ', ',']).next().unwrap().to_uppercase();
        let row = format!("| 0x{:02X} | {name} |", header(&packet)[0]);
        assert!(document.contains(&row), "no row {row}");
    }
    for kind in ["write", "ack"] {
        let packet = kinds().into_iter().find(|(name, _)| *name == kind).unwrap().1;
        let shown = hex(&header(&packet));
        assert!(document.contains(&shown), "{kind} is not shown as\n{shown}");
    }
}
