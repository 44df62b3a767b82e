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
