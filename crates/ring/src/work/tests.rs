#![allow(clippy::unwrap_used)]

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use srdma_abi::entry::{INLINE_MAX, RECV_SGE_MAX, SEND_SGE_MAX};
use srdma_abi::{Opcode, Sge};

use super::*;
use crate::memory::Layout;
use crate::testing::Dice;

fn ring(units: u32) -> (RingMemory, WorkProducer, WorkConsumer) {
    let memory = RingMemory::heap(Layout::new(units).unwrap()).unwrap();
    (memory.clone(), WorkProducer::new(memory.clone()), WorkConsumer::new(memory))
}

fn with_elements(wr_id: u64, sge_count: usize) -> SendEntry {
    let mut entry = SendEntry { opcode: Opcode::Write, wr_id, ..SendEntry::default() };
    entry.sge_count = sge_count as u8;
    for (i, sge) in entry.sges[..sge_count].iter_mut().enumerate() {
        *sge = Sge { address: wr_id * 100 + i as u64, length: i as u32, lkey: 5 };
    }
    entry
}

fn with_inline(wr_id: u64, length: usize) -> SendEntry {
    let flags = SendFlags::INLINE.with(SendFlags::SIGNALED);
    SendEntry { flags, wr_id, inline_len: length as u16, ..SendEntry::default() }
}

const SCRATCH: [u8; ENTRY_BYTES_MAX] = [0; ENTRY_BYTES_MAX];

#[test]
fn entries_of_every_length_come_out_as_they_went_in() {
    let (_, mut producer, mut consumer) = ring(64);
    let mut scratch = SCRATCH;
    for round in 0..20 {
        for sge_count in 0..=SEND_SGE_MAX {
            let entry = with_elements(round, sge_count);
            assert!(producer.push_send(&entry, &[]));
            assert_eq!(consumer.next(&mut scratch), Next::Empty, "not yet published");
            assert!(producer.publish() && !producer.publish());
            let Next::Entry { bytes, offset, units } = consumer.next(&mut scratch) else { panic!() };
            assert_eq!(bytes, entry.units() * UNIT_BYTES);
            assert!(offset as usize + bytes <= 64 * UNIT_BYTES);
            let mut out = SendEntry::default();
            SendEntry::decode(&scratch[..bytes], &mut out).unwrap();
            assert_eq!(out, entry);
            consumer.release(units);
        }
    }
    for sge_count in 0..=RECV_SGE_MAX {
        let mut entry = RecvEntry { wr_id: 9, sge_count: sge_count as u8, ..RecvEntry::default() };
        for sge in &mut entry.sges[..sge_count] {
            *sge = Sge { address: 1, length: 2, lkey: 3 };
        }
        assert!(producer.push_recv(&entry) && producer.publish());
        let Next::Entry { bytes, units, .. } = consumer.next(&mut scratch) else { panic!() };
        let mut out = RecvEntry::default();
        RecvEntry::decode(&scratch[..bytes], &mut out).unwrap();
        assert_eq!(out, entry);
        consumer.release(units);
    }
}

#[test]
#[allow(unsafe_code)]
fn inline_data_lies_contiguous_in_the_ring_where_the_offset_says() {
    let (memory, mut producer, mut consumer) = ring(32);
    let mut scratch = SCRATCH;
    let data: Vec<u8> = (0..INLINE_MAX).map(|i| i as u8 ^ 0x5a).collect();
    for length in 0..=INLINE_MAX {
        let entry = with_inline(length as u64, length);
        let (a, b) = data[..length].split_at(length / 3);
        if length % 2 == 0 {
            assert!(producer.push_send(&entry, &[a, &[], b]));
        } else {
            let pieces = [a, &[], b]
                .map(|piece: &[u8]| (piece.as_ptr().expose_provenance() as u64, piece.len() as u32));
            // SAFETY: the pieces are slices of a living vector.
            assert!(unsafe { producer.push_send_gather(&entry, &pieces) });
        }
        producer.publish();
        let Next::Entry { bytes, offset, units } = consumer.next(&mut scratch) else { panic!() };
        assert_eq!(&scratch[SEND_BODY_OFFSET..SEND_BODY_OFFSET + length], &data[..length]);
        assert!(scratch[SEND_BODY_OFFSET + length..bytes].iter().all(|&byte| byte == 0));
        let body = u64::from(offset) + SEND_BODY_OFFSET as u64;
        let address = consumer.entry_address(body, length as u32).unwrap();
        // SAFETY: inside the ring's memory, which `memory` keeps, and nobody writes now.
        let seen = unsafe { core::slice::from_raw_parts(address, length) };
        assert_eq!(seen, &data[..length]);
        consumer.release(units);
    }
    drop(memory);
}

#[test]
fn pieces_longer_than_announced_are_cut() {
    let (_, mut producer, mut consumer) = ring(4);
    assert!(producer.push_send(&with_inline(1, 20), &[&[7; 500], &[8; 500]]));
    producer.publish();
    let mut scratch = SCRATCH;
    assert!(matches!(consumer.next(&mut scratch), Next::Entry { bytes: 128, .. }));
    assert_eq!(scratch[SEND_BODY_OFFSET..SEND_BODY_OFFSET + 20], [7; 20]);
    assert!(scratch[SEND_BODY_OFFSET + 20..128].iter().all(|&byte| byte == 0));
}

#[test]
fn a_ring_made_for_so_many_requests_holds_them_wherever_it_stands() {
    for units_per_entry in 1..=UNITS_MAX {
        for max_wr in [1u32, 2, 3, 7, 16, 31] {
            let units = units_for(max_wr, units_per_entry).unwrap();
            let (_, mut producer, mut consumer) = ring(units);
            let mut dice = Dice::new(u64::from(max_wr) * 100 + units_per_entry as u64);
            let mut scratch = SCRATCH;
            let mut outstanding = VecDeque::new();
            for step in 0..2_000 {
                // Keep it filled to the brim, mostly with the longest entries.
                while outstanding.len() < max_wr as usize {
                    let size = match dice.below(4) {
                        0 => 1 + dice.below(units_per_entry as u64) as usize,
                        _ => units_per_entry,
                    };
                    let got = producer.reserve(size);
                    let mut reserved = got.unwrap_or_else(|| panic!("{max_wr}×{units_per_entry} {step}"));
                    reserved.bytes()[2] = size as u8;
                    reserved.commit();
                    outstanding.push_back(size);
                    producer.publish();
                }
                for _ in 0..=dice.below(u64::from(max_wr)) {
                    let size = outstanding.pop_front().unwrap();
                    let Next::Entry { bytes, units, .. } = consumer.next(&mut scratch) else { panic!() };
                    assert_eq!(bytes, size * UNIT_BYTES);
                    consumer.release(units);
                }
            }
            assert!(!producer.is_broken());
        }
    }
}

#[test]
fn sizes_out_of_range_make_no_ring() {
    for (max_wr, units, wanted) in [
        (0, 1, Some(1)),
        (1, 1, Some(1)),
        (1, 2, Some(4)),
        (16_384, 16, Some(1 << 19)),
        (1, 0, None),
        (1, 17, None),
        (u32::MAX, 1, None),
        (1 << 31, 2, None),
        (1 << 24, 1, Some(1 << 24)),
        ((1 << 24) + 1, 1, None),
    ] {
        assert_eq!(units_for(max_wr, units), wanted, "{max_wr} {units}");
    }
}

#[test]
fn a_full_ring_takes_nothing_until_units_are_released() {
    let (_, mut producer, mut consumer) = ring(4);
    let mut scratch = SCRATCH;
    for wr_id in 0..4 {
        assert!(producer.push_send(&with_elements(wr_id, 1), &[]));
    }
    assert!(!producer.push_send(&with_elements(4, 1), &[]));
    assert!(producer.reserve(0).is_none() && producer.reserve(17).is_none());
    producer.publish();
    assert_eq!(producer.free_units(), 0);
    for _ in 0..4 {
        assert!(matches!(consumer.next(&mut scratch), Next::Entry { units: 1, .. }));
    }
    // Taken is not released: the inline data of a taken entry must stay.
    assert!(!producer.push_send(&with_elements(4, 1), &[]));
    consumer.release(1);
    assert_eq!(producer.free_units(), 1);
    assert!(producer.push_send(&with_elements(4, 1), &[]));
    assert!(!producer.is_broken());
}

#[test]
fn a_reservation_dropped_takes_nothing() {
    let (_, mut producer, mut consumer) = ring(2);
    assert!(producer.reserve(2).is_some());
    assert!(!producer.publish());
    assert_eq!((producer.free_units(), consumer.next(&mut [0; 1024])), (2, Next::Empty));
}

#[test]
fn a_reset_queue_forgets_what_was_posted_and_goes_on() {
    let (_, mut producer, mut consumer) = ring(8);
    let mut scratch = SCRATCH;
    for wr_id in 0..5 {
        producer.push_send(&with_elements(wr_id, 1), &[]);
    }
    producer.publish();
    assert!(matches!(consumer.next(&mut scratch), Next::Entry { .. }));
    consumer.discard();
    assert_eq!((consumer.next(&mut scratch), producer.free_units()), (Next::Empty, 8));
    producer.push_send(&with_elements(77, 1), &[]);
    producer.publish();
    assert!(matches!(consumer.next(&mut scratch), Next::Entry { units: 1, offset: 320, .. }));
    assert_eq!(scratch[8], 77);
}

#[test]
fn lies_of_the_producer_are_found_and_remembered() {
    let lengths = |claims: &'static [(u64, u8, u8)]| claims;
    // capacity, (unit, byte 0, byte 2)…, producer index, verdict
    let cases = [
        (8, lengths(&[]), 9, BadRing::ProducerIndex),
        (8, lengths(&[]), u64::MAX, BadRing::ProducerIndex),
        (8, lengths(&[]), 1, BadRing::Entry(EntryError::Units(0))),
        (8, lengths(&[(0, 1, 17)]), 8, BadRing::Entry(EntryError::Units(17))),
        (8, lengths(&[(0, 1, 2)]), 1, BadRing::Reach(2)),
        (8, lengths(&[(0, 1, 9)]), 8, BadRing::Reach(9)),
        (8, lengths(&[(0, PADDING, 0)]), 8, BadRing::Padding),
        (32, lengths(&[(0, PADDING, 0)]), 32, BadRing::Padding),
    ];
    for (capacity, units, produced, verdict) in cases {
        let (memory, _, mut consumer) = ring(capacity);
        let mut scratch = SCRATCH;
        for &(unit, first, claimed) in units {
            let word = u64::from(first) | u64::from(claimed) << 16;
            memory.unit(unit).next().unwrap().store(word, Relaxed);
        }
        memory.word(PRODUCER).store(produced, Relaxed);
        assert_eq!(consumer.next(&mut scratch), Next::Bad(verdict));
        memory.word(PRODUCER).store(0, Relaxed);
        assert_eq!(consumer.next(&mut scratch), Next::Bad(verdict), "sticky");
    }
}

#[test]
fn padding_and_reach_are_judged_where_the_consumer_stands() {
    let word = |first: u8, claimed: u8| u64::from(first) | u64::from(claimed) << 16;
    // Six of eight units consumed; then these first words of units 6, 7, 0 and this producer index.
    let cases = [
        ([word(PADDING, 0), 0, word(1, 3)], 11, Ok((0, 5))),
        ([word(PADDING, 0), 0, word(1, 3)], 10, Err(BadRing::Reach(3))),
        ([word(PADDING, 0), 0, word(1, 3)], 8, Err(BadRing::Padding)),
        ([word(PADDING, 0), 0, word(PADDING, 1)], 14, Err(BadRing::Padding)),
        ([word(1, 2), 0, 0], 8, Ok((6 * 64, 2))),
        ([word(1, 3), 0, 0], 14, Err(BadRing::Reach(3))),
        ([word(1, 1), 0, 0], 15, Err(BadRing::ProducerIndex)),
        ([word(1, 1), 0, 0], 5, Err(BadRing::ProducerIndex)),
    ];
    for (case, (words, produced, wanted)) in cases.into_iter().enumerate() {
        let (memory, mut producer, mut consumer) = ring(8);
        let mut scratch = SCRATCH;
        for _ in 0..6 {
            producer.push_send(&with_elements(0, 1), &[]);
        }
        producer.publish();
        for _ in 0..6 {
            consumer.next(&mut scratch);
        }
        consumer.release(6);
        for (unit, value) in [6, 7, 0].into_iter().zip(words) {
            memory.unit(unit).next().unwrap().store(value, Relaxed);
        }
        memory.word(PRODUCER).store(produced, Relaxed);
        match (consumer.next(&mut scratch), wanted) {
            (Next::Entry { offset, units, .. }, Ok(expected)) => {
                assert_eq!((offset, units), expected, "case {case}");
            }
            (got, Err(bad)) => assert_eq!(got, Next::Bad(bad), "case {case}"),
            (got, Ok(_)) => panic!("case {case}: {got:?}"),
        }
    }
}

#[test]
fn an_impossible_consumer_index_makes_the_ring_full_for_good() {
    for lie in [3, 100, u64::MAX] {
        let (memory, mut producer, _) = ring(4);
        producer.push_send(&with_elements(0, 1), &[]);
        producer.push_send(&with_elements(1, 1), &[]);
        producer.publish();
        memory.word(CONSUMER).store(lie, Relaxed);
        assert_eq!(producer.free_units(), 0, "{lie}");
        memory.word(CONSUMER).store(2, Relaxed);
        assert!(producer.is_broken() && producer.reserve(1).is_none());
    }
    // Ahead of what is published, though not of what is written; then going back.
    let (memory, mut producer, _) = ring(4);
    producer.push_send(&with_elements(0, 1), &[]);
    memory.word(CONSUMER).store(1, Relaxed);
    assert_eq!((producer.free_units(), producer.is_broken()), (0, true));
    let (memory, mut producer, _) = ring(4);
    producer.push_send(&with_elements(0, 1), &[]);
    producer.publish();
    memory.word(CONSUMER).store(1, Relaxed);
    assert_eq!(producer.free_units(), 4);
    memory.word(CONSUMER).store(0, Relaxed);
    assert_eq!((producer.free_units(), producer.is_broken()), (0, true));
}

struct Stop<'a>(&'a AtomicBool);
impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// What must hold of any answer, whatever the other side wrote.
fn check(next: Next, capacity: u32, outstanding: &mut u32) {
    if let Next::Entry { bytes, offset, units } = next {
        assert!(bytes % UNIT_BYTES == 0 && (64..=1024).contains(&bytes));
        assert!(offset as usize + bytes <= capacity as usize * UNIT_BYTES);
        assert!(units as usize >= bytes / UNIT_BYTES && units as usize <= bytes / UNIT_BYTES + 15);
        *outstanding += units;
        assert!(*outstanding <= capacity);
    }
}

#[test]
fn random_words_anywhere_never_lead_outside() {
    let mut entries = 0;
    for seed in 0..3_000 {
        let mut dice = Dice::new(seed);
        let capacity = 1 << dice.below(7);
        let (memory, mut producer, mut consumer) = ring(capacity);
        let mut scratch = SCRATCH;
        let mut outstanding = 0;
        for _ in 0..40 {
            for index in 0..u64::from(capacity) {
                let first = [1, 3, PADDING, dice.below(256) as u8][dice.below(4) as usize];
                let claimed = [1, 2, dice.below(16) as u8, dice.below(256) as u8][dice.below(4) as usize];
                let value = u64::from(first) | u64::from(claimed) << 16;
                memory.unit(index).next().unwrap().store(value, Relaxed);
            }
            let near = [consumer.taken, consumer.released, producer.published];
            for word in [PRODUCER, CONSUMER] {
                let lie = match dice.below(8) {
                    0 => dice.next(),
                    _ => near[dice.below(3) as usize].wrapping_add(dice.below(u64::from(capacity) + 1)),
                };
                memory.word(word).store(lie, Relaxed);
            }
            for _ in 0..4 {
                let next = consumer.next(&mut scratch);
                entries += u32::from(matches!(next, Next::Entry { .. }));
                check(next, capacity, &mut outstanding);
                if matches!(next, Next::Bad(_)) && dice.below(4) != 0 {
                    // Go on, to get deeper: no state may lead outside.
                    consumer.bad = None;
                }
            }
            let give = dice.below(u64::from(outstanding) + 1) as u32;
            consumer.release(give);
            outstanding -= give;
            if dice.below(20) == 0 {
                consumer.discard();
                outstanding = (consumer.taken - consumer.released) as u32;
            }
            assert!(producer.free_units() <= capacity);
            if let Some(reserved) = producer.reserve(1 + dice.below(16) as usize) {
                reserved.commit();
            }
            producer.publish();
        }
    }
    assert!(entries > 5_000, "only {entries} entries got through: the test tests little");
}

#[test]
fn a_writer_racing_with_the_reader_yields_wrong_values_at_worst() {
    let capacity = 32;
    let (memory, mut producer, mut consumer) = ring(capacity);
    let stop = AtomicBool::new(false);
    let mut entries = 0u32;
    thread::scope(|scope| {
        let _stop_even_on_panic = Stop(&stop);
        scope.spawn(|| {
            // Flips first bytes and lengths for as long as the reader reads.
            let mut dice = Dice::new(3);
            while !stop.load(SeqCst) {
                let unit = dice.below(u64::from(capacity));
                let claimed = [1, 2, 16, 17, 255][dice.below(5) as usize];
                let first = [1, u64::from(PADDING)][dice.below(2) as usize];
                memory.unit(unit).next().unwrap().store(first | claimed << 16, Relaxed);
            }
        });
        let mut scratch = SCRATCH;
        for _ in 0..20_000 {
            while producer.push_send(&with_elements(1, 1), &[]) {}
            producer.publish();
            let mut outstanding = 0;
            loop {
                let next = consumer.next(&mut scratch);
                check(next, capacity, &mut outstanding);
                match next {
                    Next::Entry { bytes, .. } => {
                        entries += 1;
                        // The copy is ours: decoding it twice gives the same.
                        let mut outs = vec![SendEntry::default(); 2];
                        let first = SendEntry::decode(&scratch[..bytes], &mut outs[0]);
                        assert_eq!(first, SendEntry::decode(&scratch[..bytes], &mut outs[1]));
                        assert_eq!(outs[0], outs[1]);
                    }
                    Next::Empty => break,
                    Next::Bad(_) => {
                        // A new pair of halves goes on where the old one stood.
                        consumer.bad = None;
                        consumer.taken = consumer.produced;
                        break;
                    }
                }
            }
            let rest = (consumer.taken - consumer.released) as u32;
            consumer.release(rest);
        }
    });
    assert!(entries > 1_000, "{entries}");
}

#[test]
fn two_threads_pass_entries_in_order_and_whole() {
    let (_, mut producer, mut consumer) = ring(64);
    let count = 200_000u64;
    thread::scope(|scope| {
        scope.spawn(move || {
            for wr_id in 0..count {
                let entry = with_elements(wr_id, (wr_id % 14) as usize);
                while !producer.push_send(&entry, &[]) {
                    producer.publish();
                    thread::yield_now();
                }
                if wr_id % 3 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        let mut scratch = SCRATCH;
        let mut out = SendEntry::default();
        for wr_id in 0..count {
            let (bytes, units) = loop {
                match consumer.next(&mut scratch) {
                    Next::Entry { bytes, units, .. } => break (bytes, units),
                    Next::Empty => thread::yield_now(),
                    Next::Bad(bad) => panic!("{bad}"),
                }
            };
            SendEntry::decode(&scratch[..bytes], &mut out).unwrap();
            assert_eq!((out.wr_id, u64::from(out.sge_count)), (wr_id, wr_id % 14));
            if let Some(last) = out.sges[..usize::from(out.sge_count)].last() {
                assert_eq!(last.address, wr_id * 100 + wr_id % 14 - 1);
            }
            consumer.release(units);
        }
    });
}
