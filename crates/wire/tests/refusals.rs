//! Headers whose check is right and whose fields are not: each is refused for its own reason.
#![allow(clippy::unwrap_used)]

mod generator;
mod property;

use generator::{ack_sample, close_sample, data_of, echo_sample, hello_sample, nak_sample, ops, to_datagram};
use srdma_seams::event::DropCause;
use srdma_wire::{parse, Data, Message, NakCode, Op, Packet, ParseError, VERSION};

/// Bytes to replace: where, and by what.
type Edits<'a> = &'a [(usize, u8)];

fn op(name: &str) -> Op {
    ops().into_iter().find(|(op, _)| *op == name).unwrap().1
}

fn data(name: &str) -> Vec<u8> {
    to_datagram(&Packet::Data(data_of(op(name))))
}

/// `datagram` with these bytes replaced and its check made right again.
fn edited(mut datagram: Vec<u8>, edits: Edits<'_>) -> Result<Packet, ParseError> {
    for &(at, value) in edits {
        datagram[at] = value;
    }
    property::reseal(&mut datagram);
    parse(&datagram).map(|(packet, _)| packet)
}

#[test]
fn fields_out_of_range_are_refused_by_name() {
    let ack = || to_datagram(&Packet::Ack(ack_sample(1, 1)));
    let nak = || to_datagram(&Packet::Nak(nak_sample(NakCode::Rnr { timer: 1 })));
    let hello = || to_datagram(&Packet::Hello(hello_sample()));
    let echo = || to_datagram(&Packet::Echo(echo_sample()));
    let close = || to_datagram(&Packet::Close(close_sample()));
    let cases: Vec<(&str, Vec<u8>, Edits<'_>, ParseError)> = vec![
        ("opcode between control and data", data("write"), &[(0, 0xc5)], ParseError::Opcode(0xc5)),
        ("opcode after the requests", data("write"), &[(0, 0xd7)], ParseError::Opcode(0xd7)),
        ("opcode after the responses", data("write"), &[(0, 0xe2)], ParseError::Opcode(0xe2)),
        ("layout version", data("write"), &[(24, 0x20)], ParseError::Version(2)),
        ("layout version of a HELLO", hello(), &[(24, 0x00)], ParseError::Version(0)),
        ("transport header version", data("write"), &[(1, 0x01)], ParseError::Field("PadCnt or TVer")),
        ("pad count", data("write"), &[(1, 0x10)], ParseError::Field("PadCnt or TVer")),
        ("data flags", data("write"), &[(24, 0x18)], ParseError::Flags(8)),
        ("part of one", data("write"), &[(24, 0x14), (30, 0), (31, 1)], ParseError::Field("part")),
        ("part of 65", data("write"), &[(24, 0x14), (30, 0), (31, 65)], ParseError::Field("part")),
        ("part beyond the last", data("write"), &[(24, 0x14), (30, 2), (31, 2)], ParseError::Field("part")),
        ("part of a READ request", data("read_request"), &[(24, 0x14), (31, 2)], ParseError::Field("part")),
        ("tag on an ACK", ack(), &[(24, 0x12)], ParseError::Flags(2)),
        ("tag on a CLOSE", close(), &[(24, 0x12)], ParseError::Flags(2)),
        ("path of data", data("write"), &[(28, 1)], ParseError::Field("path")),
        ("path of an ECHO", echo(), &[(28, 1)], ParseError::Field("path")),
        ("index not within the unit", data("write"), &[(26, 16)], ParseError::Field("unit")),
        ("unit of no packets", data("write"), &[(26, 0), (27, 0)], ParseError::Field("unit")),
        ("unit of 65 packets", data("write"), &[(27, 65)], ParseError::Field("unit")),
        ("33 blocks", ack(), &[(26, 33)], ParseError::Field("block count")),
        ("65 units", ack(), &[(27, 65)], ParseError::Field("unit count")),
        ("space 2", ack(), &[(30, 2)], ParseError::Field("space")),
        ("empty block", ack(), &[(47, 0x00)], ParseError::Field("block")),
        ("block longer than any window", ack(), &[(44, 0xa2)], ParseError::Field("block")),
        ("report of no packets", ack(), &[(54, 0), (55, 0)], ParseError::Field("unit report")),
        ("more marks than packets", ack(), &[(55, 17)], ParseError::Field("unit report")),
        ("path of a report", ack(), &[(52, 1)], ParseError::Field("unit report")),
        ("NAK code 9", nak(), &[(26, 9)], ParseError::Field("NAK code")),
        ("RNR timer 32", nak(), &[(27, 32)], ParseError::Field("NAK code")),
        ("no paths", hello(), &[(29, 0)], ParseError::Field("paths")),
        ("257 paths", hello(), &[(28, 1), (29, 1)], ParseError::Field("paths")),
        ("no window", hello(), &[(81, 0)], ParseError::Field("window_packets")),
        ("window above 2^17", hello(), &[(83, 1)], ParseError::Field("window_packets")),
    ];
    for (name, datagram, edits, error) in cases {
        assert_eq!(edited(datagram, edits), Err(error), "{name}");
    }
    let no_id: Vec<(usize, u8)> = (32..40).map(|at| (at, 0)).collect();
    assert_eq!(edited(hello(), &no_id), Err(ParseError::Field("connection")));
}

#[test]
fn reserved_and_foreign_bits_are_ignored() {
    let write = data_of(op("write"));
    let ack = ack_sample(1, 1);
    let cases: Vec<(&str, Packet, Edits<'_>)> = vec![
        ("partition key", Packet::Data(write), &[(2, 0x12), (3, 0x34)]),
        ("migration request", Packet::Data(write), &[(1, 0x40)]),
        ("reserved bits of the BTH", Packet::Data(write), &[(4, 0x3f), (8, 0xff)]),
        ("reserved word", Packet::Data(write), &[(30, 0xff), (31, 0xff)]),
        ("end of the operation", Packet::Data(write), &[(60, 1), (71, 1)]),
        ("reserved byte of an ACK", Packet::Ack(ack), &[(31, 0xff)]),
        ("flags of a HELLO", Packet::Hello(hello_sample()), &[(24, (VERSION << 4) | 0x0f)]),
        ("padding of a HELLO", Packet::Hello(hello_sample()), &[(96, 1), (1471, 1)]),
        ("padding of an ECHO", Packet::Echo(echo_sample()), &[(99, 1)]),
    ];
    for (name, packet, edits) in cases {
        assert_eq!(edited(to_datagram(&packet), edits), Ok(packet), "{name}");
    }
}

#[test]
fn payload_lies_within_its_message_or_the_packet_is_refused() {
    let cases = [
        // (message length, offset, payload bytes, accepted)
        (0, 0, 0, true),
        (0, 0, 1, false),
        (10, 0, 10, true),
        (10, 0, 11, false),
        (10, 9, 1, true),
        (10, 9, 2, false),
        (10, 4, 0, false),
        (u32::MAX, u32::MAX - 1, 1, true),
        (u32::MAX, u32::MAX - 1, 2, false),
        (u32::MAX, u32::MAX - 1, 60_000, false),
    ];
    for name in ["write", "write_imm", "send", "send_imm", "read_response"] {
        for (length, offset, payload, accepted) in cases {
            let message = Message { msn: 0, length, offset };
            let packet = Packet::Data(Data { message, ..data_of(op(name)) });
            let mut datagram = to_datagram(&packet);
            datagram.resize(72 + payload, 0);
            let expected = if accepted { Ok((packet, 72)) } else { Err(ParseError::BeyondMessage) };
            assert_eq!(parse(&datagram), expected, "{name}: {payload} bytes at {offset} of {length}");
        }
    }
}

#[test]
fn operations_without_payload_carry_none_and_have_no_length() {
    for name in ["read_request", "compare_swap", "fetch_add", "atomic_response"] {
        let mut longer = data(name);
        longer.push(0);
        let (announced, actual) = (longer.len() - 1, longer.len());
        assert_eq!(parse(&longer), Err(ParseError::Length { announced, actual }), "{name}");
        // Where an atomic has its key, the others have an offset.
        let offset = (!matches!(name, "compare_swap" | "fetch_add")).then_some(47);
        for at in [Some(43), offset].into_iter().flatten() {
            assert_eq!(edited(data(name), &[(at, 1)]), Err(ParseError::BeyondMessage), "{name} {at}");
        }
    }
}

#[test]
fn datagrams_are_as_long_as_they_say() {
    let packets = [
        Packet::Ack(ack_sample(2, 2)),
        Packet::Nak(nak_sample(NakCode::Key)),
        Packet::Close(close_sample()),
        Packet::Hello(hello_sample()),
        Packet::Echo(echo_sample()),
    ];
    for packet in packets {
        let datagram = to_datagram(&packet);
        for actual in [datagram.len() - 1, datagram.len() + 1] {
            let mut other = datagram.clone();
            other.resize(actual, 0);
            assert!(
                matches!(parse(&other), Err(ParseError::Length { .. } | ParseError::Truncated)),
                "{packet:?} as {actual} bytes"
            );
        }
    }
}

#[test]
fn every_refusal_is_counted_under_its_cause() {
    let damaged = {
        let mut datagram = data("write");
        datagram[50] ^= 1;
        parse(&datagram).unwrap_err()
    };
    assert_eq!(damaged.cause(), DropCause::HeaderCheck);
    assert_eq!(parse(&[]).unwrap_err().cause(), DropCause::Malformed);
    assert_eq!(edited(data("read_request"), &[(47, 1)]).unwrap_err().cause(), DropCause::Inconsistent);
}
