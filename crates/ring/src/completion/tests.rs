#![allow(clippy::unwrap_used)]

use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst as Sequential};
use std::thread;

use super::*;
use crate::memory::Layout;
use crate::testing::Dice;

fn ring(units: u32) -> (RingMemory, CompletionProducer, CompletionConsumer) {
    let memory = RingMemory::heap(Layout::new(units).unwrap()).unwrap();
    (memory.clone(), CompletionProducer::new(memory.clone()), CompletionConsumer::new(memory))
}

fn numbered(wr_id: u64) -> Completion {
    Completion { wr_id, ..Completion::default() }
}

fn of_qp(wr_id: u64, qpn: u32) -> Completion {
    Completion { wr_id, qpn, ..Completion::default() }
}

fn pop_all(consumer: &mut CompletionConsumer) -> Vec<u64> {
    let mut out = vec![Completion::default(); 3];
    let mut ids = vec![];
    loop {
        match consumer.pop(&mut out) {
            0 => return ids,
            count => ids.extend(out[..count].iter().map(|completion| completion.wr_id)),
        }
    }
}

#[test]
fn every_field_survives_the_ring() {
    let (_, mut producer, mut consumer) = ring(1);
    let full = Completion {
        wr_id: 0x0102_0304_0506_0708,
        qpn: 0x1112_1314,
        src_qpn: 0x2122_2324,
        status: 0x31,
        opcode: 0x32,
        flags: WcFlags(0x33),
        reserved: 0x34,
        vendor_err: 0x4142_4344,
        byte_len: 0x5152_5354,
        imm: 0x6162_6364,
        timestamp_ns: 0x7172_7374_7576_7778,
        padding: [1, 2, 3],
    };
    producer.push(&full).unwrap();
    let mut out = [Completion::default()];
    assert_eq!((consumer.pop(&mut out), out[0]), (1, full));
    assert_eq!(consumer.pop(&mut out), 0);
    assert_eq!(consumer.pop(&mut []), 0);
}

#[test]
#[allow(unsafe_code)]
fn words_are_the_bytes_of_the_repr_c_struct() {
    let completion = Completion { qpn: 7, status: 3, imm: 9, vendor_err: 0x0102_0304, ..numbered(1) };
    // SAFETY: 64 bytes without padding (a const assertion in abi), any bit pattern is eight u64.
    let bytes: [u64; 8] = unsafe { core::mem::transmute(completion) };
    assert_eq!(to_words(&completion), bytes.map(u64::to_le));
}

#[test]
fn nothing_unpolled_is_overwritten_when_the_ring_is_full() {
    let (_, mut producer, mut consumer) = ring(4);
    for round in 0..5 {
        for wr_id in 0..4 {
            producer.push(&numbered(round * 10 + wr_id)).unwrap();
        }
        assert_eq!(producer.push(&numbered(99)), Err(Full));
        let wanted: Vec<u64> = (0..4).map(|wr_id| round * 10 + wr_id).collect();
        assert_eq!(pop_all(&mut consumer), wanted);
    }
    assert!(!producer.is_broken() && !consumer.is_broken());
}

#[test]
fn one_arming_gives_one_signal_for_what_it_asked() {
    // solicited_only at arming, then pushes (solicited?), then signals expected at each.
    let cases: &[(bool, &[bool], &[bool])] = &[
        (false, &[false, false], &[true, false]),
        (false, &[true, true], &[true, false]),
        (true, &[false, true, true], &[false, true, false]),
    ];
    for &(solicited_only, pushes, signals) in cases {
        let (_, mut producer, mut consumer) = ring(8);
        assert!(!producer.take_arm(true), "not armed yet");
        assert!(!consumer.arm(solicited_only));
        for (&solicited, &signal) in pushes.iter().zip(signals) {
            producer.push(&numbered(1)).unwrap();
            assert_eq!(producer.take_arm(solicited), signal, "{solicited_only} {pushes:?}");
        }
    }
}

#[test]
fn a_completion_there_at_arming_signals_at_once_and_only_once() {
    let solicited = Completion { flags: WcFlags::SOLICITED, ..numbered(1) };
    let error = Completion { status: 12, ..numbered(1) };
    for (completion, solicited_only, at_once) in
        [(numbered(1), false, true), (numbered(1), true, false), (solicited, true, true), (error, true, true)]
    {
        let (_, mut producer, mut consumer) = ring(8);
        producer.push(&completion).unwrap();
        assert!(!producer.take_arm(true));
        assert_eq!(consumer.arm(solicited_only), at_once);
        producer.push(&solicited).unwrap();
        assert_eq!(producer.take_arm(true), !at_once, "the arm was used up, or is still there");
    }
}

#[test]
fn a_completion_that_was_signalled_does_not_signal_again_when_the_client_arms_before_it_polls() {
    let (_, mut producer, mut consumer) = ring(8);
    for round in 0..20 {
        assert!(!consumer.arm(false), "nothing new in round {round}");
        producer.push(&numbered(round)).unwrap();
        assert!(producer.take_arm(false), "the event of round {round}");
        // Event taken; armed first, polled then. The last completion is still there and was told of.
        assert!(!consumer.arm(false), "no second event in round {round}");
        assert_eq!(pop_all(&mut consumer).len(), 1);
        // Another one that comes now is told of by the device, as it was armed.
        producer.push(&numbered(round)).unwrap();
        assert!(producer.take_arm(false));
        // A third, unarmed, is found by the next arming although the second was told of.
        producer.push(&numbered(round)).unwrap();
        assert!(!producer.take_arm(false));
        assert!(consumer.arm(false), "the third completion of round {round} was told of by nobody");
        assert_eq!(pop_all(&mut consumer).len(), 2);
    }
}

#[test]
fn a_weaker_request_does_not_replace_a_stronger_one() {
    let (_, mut producer, mut consumer) = ring(8);
    assert!(!consumer.arm(false));
    assert!(!consumer.arm(true));
    producer.push(&numbered(1)).unwrap();
    assert!(producer.take_arm(false));
    pop_all(&mut consumer);
    assert!(!consumer.arm(true));
    assert!(!consumer.arm(false));
    producer.push(&numbered(1)).unwrap();
    assert!(producer.take_arm(false));
}

#[test]
fn completions_of_a_destroyed_queue_pair_are_never_seen_again() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let (_, mut producer, mut consumer) = ring(16);
        let mut model: Vec<(u64, u32)> = vec![];
        for wr_id in 0..400 {
            let qpn = dice.below(3) as u32;
            match producer.push(&of_qp(wr_id, qpn)) {
                Ok(()) => model.push((wr_id, qpn)),
                Err(Full) => assert_eq!(model.len(), 16, "seed {seed}"),
            }
            match dice.below(20) {
                0 => {
                    let gone = dice.below(3) as u32;
                    let before = model.len();
                    model.retain(|&(_, qpn)| qpn != gone);
                    assert_eq!(consumer.forget(gone) as usize, before - model.len(), "seed {seed}");
                }
                1..=4 => {
                    let wanted: Vec<u64> = model.drain(..).map(|(wr_id, _)| wr_id).collect();
                    assert_eq!(pop_all(&mut consumer), wanted, "seed {seed}");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn an_impossible_consumer_index_makes_the_ring_full_for_good() {
    for lie in [5, 1000, u64::MAX] {
        let (memory, mut producer, _) = ring(4);
        for wr_id in 0..4 {
            producer.push(&numbered(wr_id)).unwrap();
        }
        memory.word(CONSUMER).store(lie, Relaxed);
        assert_eq!(producer.push(&numbered(9)), Err(Full), "{lie}");
        memory.word(CONSUMER).store(4, Relaxed);
        assert_eq!(producer.push(&numbered(9)), Err(Full), "{lie}: sticky");
        assert!(producer.is_broken());
    }
    let (memory, mut producer, mut consumer) = ring(1);
    producer.push(&numbered(0)).unwrap();
    assert_eq!(pop_all(&mut consumer), [0]);
    producer.push(&numbered(1)).unwrap();
    memory.word(CONSUMER).store(0, Relaxed);
    assert_eq!((producer.push(&numbered(2)), producer.is_broken()), (Err(Full), true), "went back");
}

#[test]
fn an_impossible_producer_index_ends_the_polling() {
    for lie in [5, 1000, u64::MAX] {
        let (memory, mut producer, mut consumer) = ring(4);
        producer.push(&numbered(0)).unwrap();
        memory.word(PRODUCER).store(lie, Relaxed);
        assert_eq!((pop_all(&mut consumer), consumer.is_broken()), (vec![], true), "{lie}");
        memory.word(PRODUCER).store(1, Relaxed);
        assert!(pop_all(&mut consumer).is_empty() && !consumer.arm(false));
        assert_eq!(consumer.forget(0), 0);
    }
}

#[test]
fn random_words_anywhere_never_lead_outside() {
    for seed in 0..2_000 {
        let mut dice = Dice::new(seed);
        let capacity = 1 << dice.below(5);
        let (memory, mut producer, mut consumer) = ring(capacity);
        let mut out = vec![Completion::default(); 8];
        for _ in 0..100 {
            let word = [PRODUCER, CONSUMER, ARMED][dice.below(3) as usize];
            let lie = match dice.below(4) {
                0 => dice.next(),
                _ => producer.produced.wrapping_add(dice.below(8)).wrapping_sub(4),
            };
            memory.word(word).store(lie, Relaxed);
            let _ = producer.push(&numbered(1));
            let _ = (producer.take_arm(dice.below(2) == 0), consumer.arm(dice.below(2) == 0));
            let size = dice.below(9) as usize;
            assert!(consumer.pop(&mut out[..size]) <= size.min(capacity as usize));
            assert!(consumer.forget(7) <= capacity);
            assert!(producer.produced - producer.consumed <= u64::from(capacity), "seed {seed}");
        }
    }
}

#[test]
fn a_sleeper_is_always_woken() {
    // The waiter sleeps for ever on a lost signal: the test then hangs rather than passes.
    const COUNT: u64 = 100_000;
    let (_, mut producer, mut consumer) = ring(64);
    let signals = AtomicU64::new(0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut next = 0;
            let mut seen_signals = 0;
            while next < COUNT {
                for wr_id in pop_all(&mut consumer) {
                    assert_eq!(wr_id, next);
                    next += 1;
                }
                if next == COUNT {
                    break;
                }
                if !consumer.arm(false) {
                    while signals.load(Sequential) == seen_signals {
                        thread::park();
                    }
                    seen_signals = signals.load(Sequential);
                }
            }
        });
        for wr_id in 0..COUNT {
            while producer.push(&numbered(wr_id)).is_err() {
                thread::yield_now();
            }
            if producer.take_arm(false) {
                signals.fetch_add(1, Sequential);
                waiter.thread().unpark();
            }
        }
    });
}
