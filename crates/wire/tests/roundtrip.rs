//! Every value survives the way to bytes and back, and no damaged header is taken for a packet.
#![allow(clippy::unwrap_used)]

mod generator;

use generator::{packet, samples, to_datagram};
use srdma_seams::fault::Class;
use srdma_seams::{ConnectionId, PathId, Qpn, Rng, TransmitId};
use srdma_wire::{
    emit, emit_data, emit_run, parse, peek, Data, EmitError, Follower, Message, Op, Packet, ParseError,
    Space, UnitTag, DATA_HEADER_BYTES, DATA_HEADER_BYTES_MAX, HEADER_BYTES_MAX,
};

/// Where the header ends, hence what the header check covers.
fn header_bytes(packet: &Packet) -> usize {
    emit(packet, &mut [0; HEADER_BYTES_MAX]).unwrap()
}

#[test]
fn every_kind_at_its_extremes_comes_back_equal() {
    for (name, packet) in samples() {
        let datagram = to_datagram(&packet);
        assert_eq!(parse(&datagram), Ok((packet, header_bytes(&packet))), "{name}");
    }
}

#[test]
fn random_values_come_back_equal() {
    let seed = 0x5eed_0001;
    let mut rng = Rng::stream(seed, "roundtrip", 0);
    for round in 0..100_000 {
        let packet = packet(&mut rng);
        let datagram = to_datagram(&packet);
        assert_eq!(parse(&datagram), Ok((packet, header_bytes(&packet))), "seed {seed:#x}, round {round}");
    }
}

#[test]
fn a_peek_tells_the_class_and_the_path() {
    for (name, packet) in samples() {
        let expected = match &packet {
            Packet::Data(data) => (Class::Data, data.unit.path),
            Packet::Ack(ack) => (Class::Ack, ack.path),
            Packet::Nak(nak) => (Class::Control, nak.path),
            Packet::Echo(echo) => (Class::Control, echo.path),
            Packet::Close(_) => (Class::Control, PathId(0)),
            Packet::Hello(_) => (Class::Control, PathId(u16::MAX)),
        };
        let datagram = to_datagram(&packet);
        assert_eq!(peek(&datagram), Some(expected), "{name}");
        assert_eq!(peek(&datagram[..31]), None, "{name}");
    }
    assert_eq!(peek(&[0; 40]), None, "another protocol");
}

#[test]
fn every_truncation_is_an_error() {
    for (name, packet) in samples() {
        let datagram = to_datagram(&packet);
        for length in 0..header_bytes(&packet) {
            assert!(parse(&datagram[..length]).is_err(), "{name} cut to {length}");
        }
    }
}

#[test]
fn every_buffer_that_is_too_short_is_refused() {
    for (name, packet) in samples() {
        let mut buffer = [0; HEADER_BYTES_MAX];
        for length in 0..header_bytes(&packet) {
            assert_eq!(emit(&packet, &mut buffer[..length]), Err(EmitError::NoRoom), "{name} in {length}");
        }
    }
}

/// FECN and BECN, which a switch may set.
fn is_mutable(bit: usize) -> bool {
    matches!(bit, 32 | 33)
}

fn flip(datagram: &mut [u8], bit: usize) {
    datagram[bit / 8] ^= 0x80 >> (bit % 8);
}

#[test]
fn every_single_flipped_bit_is_detected_and_congestion_bits_are_not() {
    for (name, packet) in samples() {
        let mut datagram = to_datagram(&packet);
        for bit in 0..header_bytes(&packet) * 8 {
            flip(&mut datagram, bit);
            if is_mutable(bit) {
                assert_eq!(parse(&datagram).unwrap().0, packet, "{name}, bit {bit}");
            } else {
                assert!(parse(&datagram).is_err(), "{name}, bit {bit}");
            }
            flip(&mut datagram, bit);
        }
    }
}

#[test]
fn two_flipped_bits_are_detected() {
    let seed = 0x5eed_0002;
    let mut rng = Rng::stream(seed, "two bits", 0);
    for (name, packet) in samples() {
        let mut datagram = to_datagram(&packet);
        let bits = header_bytes(&packet) * 8;
        // All pairs of a header of 32 bytes, a sample of the longer ones.
        let exhaustive = bits <= 256;
        let pairs = if exhaustive { bits * bits } else { 20_000 };
        for pair in 0..pairs {
            let (one, two) = match exhaustive {
                true => (pair / bits, pair % bits),
                false => (rng.below(bits as u64) as usize, rng.below(bits as u64) as usize),
            };
            if one == two || is_mutable(one) || is_mutable(two) {
                continue;
            }
            flip(&mut datagram, one);
            flip(&mut datagram, two);
            assert!(parse(&datagram).is_err(), "{name}, bits {one} and {two}, seed {seed:#x}");
            flip(&mut datagram, one);
            flip(&mut datagram, two);
        }
    }
}

#[test]
fn noise_is_never_a_packet() {
    let seed = 0x5eed_0003;
    let mut rng = Rng::stream(seed, "noise", 0);
    for round in 0..200_000 {
        let length = rng.below(200) as usize;
        let mut noise: Vec<u8> = (0..length).map(|_| rng.next_u32() as u8).collect();
        if length > 24 && rng.below(2) == 0 {
            (noise[0], noise[24]) = (0xc0 | (noise[0] & 0x3f), 0x10 | (noise[24] & 0x0f));
        }
        assert!(parse(&noise).is_err(), "seed {seed:#x}, round {round}");
    }
}

#[test]
fn rocev2_itself_is_named_as_a_foreign_opcode() {
    for opcode in [0x00u8, 0x04, 0x0a, 0x11, 0x64, 0x81, 0xbf] {
        let mut datagram = [0u8; 64];
        datagram[0] = opcode;
        assert_eq!(parse(&datagram), Err(ParseError::Opcode(opcode)));
    }
}

/// Runs of every operation, at the edges of their numbers, are the packets that each value alone makes.
#[test]
fn a_run_is_the_same_bytes_as_its_packets_one_by_one() {
    let seed = 0x5eed_0004;
    let mut rng = Rng::stream(seed, "run", 0);
    let mut runs = 0;
    for round in 0..20_000 {
        let Packet::Data(mut first) = packet(&mut rng) else { continue };
        (first.payload_crc, first.tag) = (None, None);
        let packets = 1 + rng.below(u64::from(first.unit.packets)) as u8;
        first.unit.index = rng.below(u64::from(first.unit.packets - packets) + 1) as u8;
        let room = first.message.length - first.message.offset;
        let each = rng.below(u64::from(room / u32::from(packets)) + 1) as u32;
        if rng.below(4) == 0 {
            first.psn = u32::MAX - rng.below(64) as u32;
        }
        if let Op::Write { address, .. } = &mut first.op {
            *address = u64::MAX - rng.below(1 << 20);
        }
        let mut written = [0xaa; 64 * DATA_HEADER_BYTES_MAX];
        let bytes = emit_run(&first, packets, each, &mut written).unwrap();
        for step in 0..packets {
            let mut alone = [0; DATA_HEADER_BYTES_MAX];
            emit_data(&first.continued(step, each).unwrap(), &mut alone).unwrap();
            let at = usize::from(step) * bytes;
            let place = &written[at..at + bytes];
            assert_eq!(place, &alone[..bytes], "seed {seed:#x}, round {round}, packet {step}");
        }
        let end = usize::from(packets) * bytes;
        assert!(written[end..].iter().all(|&byte| byte == 0xaa), "nothing beyond the run is touched");
        for short in [0, end - 1] {
            assert_eq!(emit_run(&first, packets, each, &mut written[..short]), Err(EmitError::NoRoom));
        }
        runs += u32::from(packets > 1);
    }
    assert!(runs > 1_000, "{runs}");
}

#[test]
fn a_run_that_no_receiver_would_take_is_refused() {
    let message = Message { msn: 0, length: 10_000, offset: 0 };
    let first = Data {
        dest_qpn: Qpn(2),
        connection: ConnectionId(1),
        psn: 0,
        unit: UnitTag { transmit: TransmitId(0), path: PathId(0), index: 0, packets: 8 },
        message,
        solicited: false,
        part: None,
        payload_crc: None,
        tag: None,
        op: Op::Write { address: 0, rkey: 0 },
    };
    let mut out = [0; 64 * DATA_HEADER_BYTES_MAX];
    assert!(emit_run(&first, 8, 1_400, &mut out).is_ok());
    let with_crc = Data { payload_crc: Some(1), ..first };
    let far = Message { length: u32::MAX, offset: u32::MAX - 1, ..message };
    for (what, first, packets, each) in [
        ("more packets than the unit has", first, 9, 1_000),
        ("the last begins past the end of the message", first, 8, 1_429),
        ("each payload would have its own CRC", with_crc, 8, 1_000),
        ("offset overflows", Data { message: far, ..first }, 8, 1),
    ] {
        assert!(matches!(emit_run(&first, packets, each, &mut out), Err(EmitError::Field(_))), "{what}");
    }
}

/// Runs broken off by other packets, by damage, by marks that a switch set and by payload of the wrong length:
/// who follows says the same as who does not.
#[test]
fn a_follower_finds_what_parsing_each_packet_finds() {
    let seed = 0x5eed_0005;
    let mut rng = Rng::stream(seed, "follow", 0);
    let mut follower = Follower::new();
    let (mut followed, mut refused) = (0, 0);
    for round in 0..20_000 {
        let packet = packet(&mut rng);
        let mut datagrams = vec![to_datagram(&packet)];
        if let Packet::Data(first) = packet {
            let each = datagrams[0].len() - header_bytes(&packet);
            for step in 1..=rng.below(6) as u8 {
                let Some(next) = first.continued(step, each as u32) else { break };
                let mut datagram = vec![0; DATA_HEADER_BYTES_MAX];
                let Ok(bytes) = emit_data(&next, &mut datagram) else { break };
                let left = (first.message.length - next.message.offset) as usize;
                datagram.resize(bytes + left.min(each) + usize::from(rng.below(20) == 0), 0);
                datagrams.push(datagram);
            }
        }
        for datagram in &mut datagrams {
            let bits = datagram.len().min(100) as u64 * 8;
            match rng.below(8) {
                0 => flip(datagram, rng.below(bits) as usize),
                1 => flip(datagram, 32 + rng.below(2) as usize),
                _ => {}
            }
            let alone = parse(datagram);
            assert_eq!(follower.parse(datagram), alone, "seed {seed:#x}, round {round}");
            followed += u32::from(alone.is_ok());
            refused += u32::from(alone.is_err());
        }
    }
    assert!(followed > 20_000 && refused > 1_000, "{followed} {refused}");
}

/// Bursts with a packet damaged, swapped, repeated or missing somewhere: a run ends right before the first packet that
/// does not continue the one before it, and whoever parses on sees what he would have seen without runs.
#[test]
fn a_run_ends_before_the_first_packet_that_does_not_continue_it() {
    let seed = 0x5eed_0006;
    let mut rng = Rng::stream(seed, "runs", 0);
    let (mut whole, mut broken) = (0, 0);
    for round in 0..60_000 {
        let Packet::Data(mut first) = packet(&mut rng) else { continue };
        if rng.below(4) > 0 {
            (first.payload_crc, first.tag, first.part) = (None, None, None);
            first.unit = UnitTag { index: first.unit.index % 8, packets: 64, ..first.unit };
        }
        let (each, count) = (1 + rng.below(64) as u32, 2 + rng.below(12) as u8);
        if first.op.space() == Space::Request && rng.below(2) == 0 {
            first.op = Op::Write { address: rng.next_u64(), rkey: 7 };
            first.message.offset %= 1 << 30;
            first.message.length = first.message.offset + each * u32::from(count);
        }
        let mut header = vec![0; DATA_HEADER_BYTES_MAX];
        let Ok(bytes) = emit_data(&first, &mut header) else { continue };
        let stride = bytes + each as usize;
        let mut datagrams: Vec<Vec<u8>> = (0..count)
            .map_while(|step| first.continued(step, each))
            .map_while(|data| emit_data(&data, &mut header).ok().map(|bytes| header[..bytes].to_vec()))
            .collect();
        datagrams.iter_mut().for_each(|datagram| datagram.resize(stride, 0));
        let at = rng.below(datagrams.len() as u64) as usize;
        match rng.below(5) {
            0 => flip(&mut datagrams[at], rng.below(56 * 8) as usize),
            1 => drop(datagrams.remove(at)),
            2 => datagrams.insert(at, datagrams[at].clone()),
            3 => datagrams.swap(0, at),
            _ => {}
        }
        let Some(Ok((Packet::Data(begin), _))) = datagrams.first().map(|datagram| parse(datagram)) else {
            continue;
        };
        // To the bit: what a switch has marked is read in full.
        let mut is_like = |datagram: &[u8], data: &Data| {
            emit_data(data, &mut header).is_ok_and(|bytes| datagram.starts_with(&header[..bytes]))
        };
        let is_plain =
            header_bytes(&Packet::Data(begin)) == DATA_HEADER_BYTES && is_like(&datagrams[0], &begin);
        let expected = 1 + datagrams[1..]
            .iter()
            .zip(1u8..)
            .take_while(|(datagram, step)| {
                let Some(next) = begin.continued(*step, each).filter(|_| is_plain) else { return false };
                is_like(datagram, &next)
                    && parse(datagram).is_ok_and(|(packet, _)| packet == Packet::Data(next))
            })
            .count() as u32;
        let (mut follower, burst) = (Follower::new(), datagrams.concat());
        assert!(follower.parse(&datagrams[0]).is_ok());
        let asked = 1 + rng.below(datagrams.len() as u64) as u32;
        let run = follower.continues(&burst, stride, asked);
        assert_eq!(run, expected.min(asked), "seed {seed:#x}, round {round}: {begin:?}");
        for datagram in &datagrams[run as usize..] {
            assert_eq!(follower.parse(datagram), parse(datagram), "seed {seed:#x}, round {round}");
        }
        whole += u32::from(run as usize == datagrams.len() && run > 1);
        broken += u32::from((run as usize) < datagrams.len());
    }
    assert!(whole > 500 && broken > 2_000, "{whole} {broken}");
}
