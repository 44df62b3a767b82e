//! What is done for a run at once is what would be done packet by packet.
#![allow(clippy::unwrap_used)]

use alloc::vec::Vec;

use super::*;
use srdma_seams::Rng;

const PAYLOAD: u32 = 100;

fn space(rng: &mut Rng) -> SendSpace {
    let mut space = SendSpace::new(Space::Request, [0, (1 << 32) - 20][rng.below(2) as usize], 0);
    space.set_payload(PAYLOAD);
    for token in 0..1 + rng.below(12) {
        let length = [0, 7, 64, 100, 107, 200, 950, 5_000][rng.below(8) as usize];
        space.submit(length, token);
    }
    space
}

/// Packet by packet: all of one length but a shorter last, within every limit.
fn one_by_one(space: &SendSpace, first: u64, end: u64, limit: &UnitLimit) -> (u8, u32, u32, u32) {
    let (mut packets, mut bytes, mut each, mut last) = (0u8, 0, 0, 0);
    while packets < limit.packets {
        let seq = first + u64::from(packets);
        let Some(length) = space.fragment(seq).map(|fragment| fragment.length) else { break };
        let fits = limit.allows(u64::from(packets) + 1, u64::from(bytes + length));
        if seq >= end || (packets > 0 && (length > each || !fits)) {
            break;
        }
        each = if packets == 0 { length } else { each };
        (packets, bytes, last) = (packets + 1, bytes + length, length);
        if length < each {
            break;
        }
    }
    (packets, bytes, each, last)
}

#[test]
fn a_run_is_as_long_as_its_packets_one_by_one() {
    for seed in 0..3_000 {
        let mut rng = Rng::stream(seed, "run", 0);
        let mut space = space(&mut rng);
        let limit = UnitLimit {
            packets: 1 + rng.below(64) as u8,
            wire_bytes: 200 + rng.below(7_000),
            header_bytes: 72,
            window_bytes: 200 + rng.below(20_000),
            packet_cost: 200,
            window_packets: 1 + rng.below(100) as u32,
        };
        let mut transmit = 0;
        while let Some(first) = space.next_new(limit.window_packets) {
            let run = space.run_from(first, false, &limit).unwrap();
            let end = space.base + u64::from(limit.window_packets);
            let want = one_by_one(&space, first, end.min(space.end), &limit);
            assert_eq!((run.packets, run.payload_bytes, run.each, run.last), want, "seed {seed}");
            space.mark_sent(&run, transmit);
            assert!((run.first..run.end()).all(|seq| space.transmit_of(seq) == Some(transmit as u32)));
            transmit += 1;
            if rng.below(3) == 0 {
                space.mark_lost(first, transmit - 1, None, RetransmitCause::Age);
            }
        }
        while let Some(first) = space.next_lost() {
            let end = (first..space.next).find(|&seq| !space.lost.get(seq)).unwrap_or(space.next);
            let run = space.run_from(first, true, &limit).unwrap();
            let want = one_by_one(&space, first, end, &limit);
            assert_eq!((run.packets, run.payload_bytes, run.each, run.last), want, "seed {seed}, again");
            space.mark_sent(&run, transmit);
            transmit += 1;
        }
        assert_eq!(space.lost_count, 0, "seed {seed}");
    }
}

#[test]
fn a_stretch_is_its_fragments_and_ends_with_the_message() {
    for seed in 0..300 {
        let mut rng = Rng::stream(seed, "stretch", 0);
        let space = space(&mut rng);
        for seq in space.base..space.end {
            let wanted = 1 + rng.below(64) as u8;
            let stretch = space.stretch(seq, wanted).unwrap();
            let all: Vec<Fragment> =
                (0..u64::from(stretch.packets)).map(|step| space.fragment(seq + step).unwrap()).collect();
            assert_eq!(stretch.first, all[0], "seed {seed}");
            assert_eq!(stretch.bytes, all.iter().map(|fragment| fragment.length).sum::<u32>());
            assert!(all.iter().all(|fragment| fragment.msn == all[0].msn));
            let next = space.fragment(seq + u64::from(stretch.packets));
            assert!(stretch.packets == wanted || next.is_none_or(|next| next.msn != all[0].msn));
        }
        assert_eq!(space.stretch(space.end, 1), None);
    }
}

/// The peer may have some parts of a packet, so it never travels whole again, though the path would pass it.
#[test]
fn what_has_travelled_in_parts_keeps_to_them() {
    let mut space = SendSpace::new(Space::Request, 0, 0);
    space.part_bytes_min = 40;
    space.set_payload(100);
    space.submit(600, 0);
    let limit = UnitLimit {
        packets: 64,
        wire_bytes: 64_000,
        header_bytes: 72,
        window_bytes: 64_000,
        packet_cost: 200,
        window_packets: 64,
    };
    let run = space.run_from(0, false, &UnitLimit { packets: 5, ..limit }).unwrap();
    space.mark_sent(&run, 0);
    (0..5).for_each(|seq| space.mark_lost(seq, 0, None, RetransmitCause::Age));
    assert!(space.can_shrink(56) && space.can_shrink(40) && !space.can_shrink(32));
    space.set_payload(56);
    let (seq, next) = (space.next_lost().unwrap(), space.next_new(64).unwrap());
    let again = space.run_from(seq, true, &limit).unwrap();
    let new = space.run_from(next, false, &limit).unwrap();
    assert_eq!((again.packets, again.parts, new.packets, new.parts), (1, 3, 1, 3));
    space.mark_sent(&again, 1);
    space.mark_sent(&new, 2);
    space.mark_lost(0, 1, None, RetransmitCause::Age);
    space.mark_lost(5, 2, None, RetransmitCause::Age);
    space.set_payload(40);
    assert_eq!(space.parts(0, 100), (3, 40), "whatever the path has become meanwhile");
    space.set_payload(1_000);
    let parts: Vec<u8> = (0..6).map(|seq| space.parts(seq, 100).0).collect();
    assert_eq!(parts, [3, 1, 1, 1, 1, 3]);
    let runs: Vec<(u8, u8)> = [0, 1, 5]
        .map(|seq| space.run_from(seq, true, &limit).unwrap())
        .map(|run| (run.packets, run.parts))
        .into();
    assert_eq!(runs, [(1, 3), (4, 1), (1, 3)]);
    let grown = space.submit(2_000, 1);
    assert_eq!((grown, space.run_from(6, false, &limit).unwrap().packets), (1, 2));
}
