//! A short fuzz run with a fixed seed, under plain `cargo test`. `fuzz/` has the open-ended one.
//! `SRDMA_FUZZ_SEED` and `SRDMA_FUZZ_RUNS` change the seed and the budget.
#![allow(clippy::unwrap_used)]

mod generator;
mod property;

use generator::{has_payload, packet, samples, to_datagram};
use srdma_seams::{ConnectionId, PathId, Qpn, Rng};
use srdma_wire::{emit, parse, NakCode, Packet, HEADER_BYTES_MAX};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn mutate(datagram: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let length = datagram.len().max(1) as u64;
    let at = rng.below(length) as usize;
    match rng.below(7) {
        0 => datagram.truncate(at),
        1 => datagram.extend((0..rng.below(40)).map(|i| i as u8)),
        2 => {
            let other = &corpus[rng.below(corpus.len() as u64) as usize];
            let end = at.min(other.len()).min(datagram.len());
            datagram[..end].copy_from_slice(&other[..end]);
        }
        kind => {
            // Half of the changes go to the first 48 bytes, where lengths and counts are.
            let at = if rng.below(2) == 0 { at } else { at % 48 };
            let interesting = [0, 1, 0x7f, 0x80, 0xff, 64, 65, 32, 33, rng.next_u32() as u8];
            if let Some(byte) = datagram.get_mut(at) {
                match kind {
                    3 | 4 => *byte ^= 1 << rng.below(8),
                    _ => *byte = interesting[rng.below(10) as usize],
                }
            }
        }
    }
}

fn kind(packet: &Packet) -> usize {
    match packet {
        Packet::Hello(_) => 0,
        Packet::Data(_) => 1,
        Packet::Ack(_) => 2,
        Packet::Nak(_) => 3,
        Packet::Close(_) => 4,
        Packet::Echo(_) => 5,
    }
}

#[test]
fn mutated_packets_never_panic_and_what_is_accepted_is_stable() {
    let (seed, runs) = (setting("SRDMA_FUZZ_SEED", 1), setting("SRDMA_FUZZ_RUNS", 300_000));
    println!("SRDMA_FUZZ_SEED={seed} SRDMA_FUZZ_RUNS={runs}");
    let mut rng = Rng::stream(seed, "mutate", 0);
    let corpus: Vec<Vec<u8>> = samples().iter().map(|(_, packet)| to_datagram(packet)).collect();
    let (mut accepted, mut refused) = ([0u64; 6], 0u64);
    for _ in 0..runs {
        let mut datagram = corpus[rng.below(corpus.len() as u64) as usize].clone();
        for _ in 0..1 + rng.below(3) {
            mutate(&mut datagram, &corpus, &mut rng);
        }
        // Without this nearly everything would end at the header check.
        if rng.below(8) != 0 {
            property::reseal(&mut datagram);
        }
        match property::check(&datagram) {
            Some(packet) => accepted[kind(&packet)] += 1,
            None => refused += 1,
        }
    }
    // The run means something only if mutants of every kind got through and many did not.
    assert!(accepted.iter().all(|&count| count > runs / 1_000), "{accepted:?} accepted, {refused} refused");
    assert!(refused > runs / 4, "{accepted:?} accepted, {refused} refused");
}

/// Pushes one field out of range, sometimes.
fn spoil(packet: &mut Packet, rng: &mut Rng) {
    let byte = rng.next_u32() as u8;
    match packet {
        Packet::Data(data) => match rng.below(6) {
            0 => data.unit.index = byte,
            1 => data.unit.packets = byte,
            2 => data.unit.path = PathId(rng.next_u32() as u16),
            3 => data.dest_qpn = Qpn(rng.next_u32()),
            4 => data.message.offset = rng.next_u32(),
            _ => data.message.length = rng.next_u32(),
        },
        Packet::Ack(ack) => match rng.below(6) {
            0 => ack.block_count = byte,
            1 => ack.unit_count = byte,
            2 => ack.blocks[0].end = rng.next_u32(),
            3 => ack.units[0].ce = byte,
            4 => ack.units[0].packets = byte,
            _ => ack.units[0].path = PathId(rng.next_u32() as u16),
        },
        Packet::Hello(hello) => match rng.below(4) {
            0 => hello.paths = rng.next_u32() as u16,
            1 => hello.window_packets = rng.next_u32(),
            2 => hello.src_qpn = Qpn(rng.next_u32()),
            _ => hello.connection = ConnectionId(0),
        },
        Packet::Nak(nak) => nak.code = NakCode::Rnr { timer: byte },
        Packet::Close(close) => close.dest_qpn = Qpn(rng.next_u32()),
        Packet::Echo(echo) => echo.path = PathId(rng.next_u32() as u16),
    }
}

#[test]
fn what_emit_accepts_parse_accepts_and_the_rest_is_refused() {
    let seed = setting("SRDMA_FUZZ_SEED", 1);
    println!("SRDMA_FUZZ_SEED={seed}");
    let mut rng = Rng::stream(seed, "spoil", 0);
    let (mut accepted, mut refused) = (0u32, 0u32);
    for round in 0..100_000 {
        let mut packet = packet(&mut rng);
        if rng.below(2) == 0 {
            spoil(&mut packet, &mut rng);
        }
        let mut header = vec![0; HEADER_BYTES_MAX];
        let Ok(length) = emit(&packet, &mut header) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        let datagram = to_datagram(&packet);
        let (back, offset) =
            parse(&datagram).unwrap_or_else(|error| panic!("round {round}: {packet:?}: {error}"));
        assert_eq!(offset, length, "round {round}");
        assert!(datagram.len() == length || !matches!(&packet, Packet::Data(data) if !has_payload(&data.op)));
        match (back, packet) {
            // Entries beyond the count are not carried.
            (Packet::Ack(back), Packet::Ack(packet)) => {
                assert_eq!((back.blocks(), back.units()), (packet.blocks(), packet.units()), "round {round}");
            }
            (back, packet) => assert_eq!(back, packet, "round {round}"),
        }
    }
    assert!(accepted > 10_000 && refused > 10_000, "{accepted} accepted, {refused} refused");
}
