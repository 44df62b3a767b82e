//! Every interleaving, and every value a weak memory could show, as far as loom enumerates them.
#![allow(clippy::unwrap_used)]

use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;
use std::sync::Arc;

use srdma_abi::{Completion, WcFlags, UNIT_BYTES};

use crate::memory::{Layout, RingMemory};
use crate::work::{Next, WorkConsumer, WorkProducer, ENTRY_BYTES_MAX};
use crate::{CompletionConsumer, CompletionProducer, DoorbellPage, SleepUntil};

fn memory(units: u32) -> RingMemory {
    RingMemory::heap(Layout::new(units).unwrap()).unwrap()
}

/// Appends an entry of `units` units, all of whose bytes after the first eight are `tag`.
fn post(producer: &mut WorkProducer, units: usize, tag: u8) -> bool {
    let Some(mut reserved) = producer.reserve(units) else { return false };
    reserved.bytes().fill(tag);
    reserved.bytes()[..8].copy_from_slice(&[1, 0, units as u8, 0, 0, 0, 0, 0]);
    reserved.commit();
    producer.publish();
    true
}

fn post_waiting(producer: &mut WorkProducer, units: usize, tag: u8) {
    while !post(producer, units, tag) {
        thread::yield_now();
    }
}

fn take_waiting(consumer: &mut WorkConsumer, tag: u8) {
    let mut scratch = [0; ENTRY_BYTES_MAX];
    loop {
        match consumer.next(&mut scratch) {
            Next::Empty => thread::yield_now(),
            Next::Bad(bad) => panic!("{bad}"),
            Next::Entry { bytes, units, .. } => {
                assert!(scratch[8..bytes].iter().all(|&byte| byte == tag));
                assert!(bytes >= UNIT_BYTES);
                return consumer.release(units);
            }
        }
    }
}

#[test]
fn entries_pass_whole_and_in_order_through_a_ring_that_wraps() {
    // Three units, then two, in a ring of four: the second waits for the first, and pads.
    let cases: [(u32, &'static [usize]); 3] = [(1, &[1, 1, 1]), (2, &[1, 1, 1]), (4, &[3, 2])];
    for (ring_units, entries) in cases {
        loom::model(move || {
            let memory = memory(ring_units);
            let mut producer = WorkProducer::new(memory.clone());
            let mut consumer = WorkConsumer::new(memory);
            let client = thread::spawn(move || {
                for (tag, units) in entries.iter().enumerate() {
                    post_waiting(&mut producer, *units, tag as u8 + 1);
                }
            });
            for tag in 0..entries.len() {
                take_waiting(&mut consumer, tag as u8 + 1);
            }
            client.join().unwrap();
        });
    }
}

fn completion(wr_id: u64, solicited: bool) -> Completion {
    let flags = if solicited { WcFlags::SOLICITED } else { WcFlags(0) };
    Completion { wr_id, flags, ..Completion::default() }
}

fn pop_ids(consumer: &mut CompletionConsumer) -> std::vec::Vec<u64> {
    let mut out = [Completion::default(); 4];
    let count = consumer.pop(&mut out);
    out[..count].iter().map(|completion| completion.wr_id).collect()
}

/// The device appends `pushes` (solicited or not) and signals where told; the client polls
/// `polls_before` times, arms, and polls once more. Returns what each did.
struct Outcome {
    polled: usize,
    polled_after_arm: usize,
    left: std::vec::Vec<u64>,
    signals: u64,
}

fn arm_against(pushes: &[bool], solicited_only: bool, polls_before: usize) -> Outcome {
    let memory = memory(4);
    let mut producer = CompletionProducer::new(memory.clone());
    let mut consumer = CompletionConsumer::new(memory);
    let pushes = pushes.to_vec();
    let device = thread::spawn(move || {
        let mut signals = 0;
        for (index, &solicited) in pushes.iter().enumerate() {
            producer.push(&completion(index as u64, solicited)).unwrap();
            signals += u64::from(producer.take_arm(solicited));
        }
        signals
    });
    let mut polled = 0;
    for _ in 0..polls_before {
        polled += pop_ids(&mut consumer).len();
    }
    let own_signal = consumer.arm(solicited_only);
    let polled_after_arm = pop_ids(&mut consumer).len();
    let signals = device.join().unwrap() + u64::from(own_signal);
    let left = pop_ids(&mut consumer);
    Outcome { polled, polled_after_arm, left, signals }
}

#[test]
fn after_arm_and_an_empty_poll_a_later_completion_always_signals() {
    for count in [1, 2] {
        for polls_before in [0, 1] {
            loom::model(move || {
                let pushes = &[false, false][..count];
                let outcome = arm_against(pushes, false, polls_before);
                assert_eq!(outcome.polled + outcome.polled_after_arm + outcome.left.len(), count);
                assert!(outcome.signals <= 1, "one arming, one signal");
                if !outcome.left.is_empty() || outcome.polled_after_arm > 0 {
                    assert_eq!(outcome.signals, 1, "came at or after arming, and nobody was told");
                }
            });
        }
    }
}

#[test]
fn a_solicited_only_arm_misses_no_solicited_completion() {
    for pushes in [[false, true], [true, false]] {
        loom::model(move || {
            let outcome = arm_against(&pushes, true, 0);
            assert_eq!(outcome.polled_after_arm + outcome.left.len(), 2);
            assert_eq!(outcome.signals, 1, "the client had polled nothing before it armed");
        });
    }
    loom::model(|| {
        let outcome = arm_against(&[false, false], true, 0);
        assert_eq!(outcome.signals, 0, "nothing was solicited");
    });
}

#[test]
fn raising_an_arm_from_solicited_to_any_loses_no_signal() {
    for solicited in [false, true] {
        loom::model(move || {
            let memory = memory(2);
            let mut producer = CompletionProducer::new(memory.clone());
            let mut consumer = CompletionConsumer::new(memory);
            let device = thread::spawn(move || {
                producer.push(&completion(0, solicited)).unwrap();
                u64::from(producer.take_arm(solicited))
            });
            let mut signals = u64::from(consumer.arm(true));
            signals += u64::from(consumer.arm(false));
            signals += device.join().unwrap();
            // Two armings: a solicited completion may trigger both.
            assert!((1..=2).contains(&signals), "{signals}");
            assert!(signals == 1 || solicited);
        });
    }
}

#[test]
fn a_ring_of_one_hands_its_slot_back_and_forth() {
    loom::model(|| {
        let memory = memory(1);
        let mut producer = CompletionProducer::new(memory.clone());
        let mut consumer = CompletionConsumer::new(memory);
        let device = thread::spawn(move || {
            for wr_id in 0..2 {
                while producer.push(&completion(wr_id, false)).is_err() {
                    thread::yield_now();
                }
            }
        });
        let mut seen = std::vec::Vec::new();
        while seen.len() < 2 {
            match pop_ids(&mut consumer) {
                ids if ids.is_empty() => thread::yield_now(),
                ids => seen.extend(ids),
            }
        }
        device.join().unwrap();
        assert_eq!(seen, [0, 1]);
    });
}

/// Clients publish to their queue and ring; the device drains once, and sleeps if it may. Nothing may
/// be left while it sleeps with nobody told to wake it.
fn ring_against_sleep(queues: &'static [u32]) {
    loom::model(move || {
        let page = DoorbellPage::heap(130).unwrap();
        let work: Arc<std::vec::Vec<AtomicU64>> =
            Arc::new(queues.iter().map(|_| AtomicU64::new(0)).collect());
        let clients: std::vec::Vec<_> = (0..queues.len())
            .map(|client| {
                let (page, work) = (page.clone(), work.clone());
                thread::spawn(move || {
                    work[client].store(1, Relaxed);
                    page.ring(queues[client])
                })
            })
            .collect();
        let mut seen = 0;
        let mut take = |page: &DoorbellPage| {
            page.take(|queue| {
                let client = queues.iter().position(|&q| q == queue).unwrap();
                assert_eq!(work[client].load(Relaxed), 1, "rung before it was published");
                seen += 1;
            })
        };
        take(&page);
        let sleeps = page.prepare_sleep();
        let wakes = clients.into_iter().map(|client| client.join().unwrap()).filter(|&wake| wake).count();
        let left = take(&page);
        assert!(wakes <= 1, "one is told to wake it");
        if sleeps && left > 0 {
            assert_eq!(wakes, 1, "asleep, with work, and nobody was told to wake it");
        }
        assert_eq!(seen, queues.len(), "each ring is taken once");
    });
}

#[test]
fn a_device_never_sleeps_on_a_ring() {
    ring_against_sleep(&[3]);
}

#[test]
fn two_clients_ringing_wake_a_sleeping_device_once() {
    ring_against_sleep(&[3, 4]);
    ring_against_sleep(&[3, 129]);
}

/// Makers of work publish it with a deadline; the sleeper lies down, looks once more, and sleeps if it may. It must never
/// sleep past a deadline with nobody told to wake it.
fn work_against_sleep(deadlines: &'static [u64]) {
    loom::model(move || {
        let sleep = Arc::new(SleepUntil::default());
        let work: Arc<std::vec::Vec<AtomicU64>> =
            Arc::new(deadlines.iter().map(|_| AtomicU64::new(u64::MAX)).collect());
        let makers: std::vec::Vec<_> = (0..deadlines.len())
            .map(|maker| {
                let (sleep, work) = (sleep.clone(), work.clone());
                thread::spawn(move || {
                    work[maker].store(deadlines[maker], Relaxed);
                    sleep.must_wake(deadlines[maker])
                })
            })
            .collect();
        sleep.lie_down(Some(100));
        let due = work.iter().map(|deadline| deadline.load(Relaxed)).min().unwrap();
        let sleeps = due >= 100;
        let wakes = makers.into_iter().map(|maker| maker.join().unwrap()).filter(|&wake| wake).count();
        assert!(wakes <= 1, "one is told to wake it");
        if sleeps && deadlines.iter().any(|&deadline| deadline < 100) {
            assert_eq!(wakes, 1, "asleep past a deadline, and nobody was told to wake it");
        }
    });
}

#[test]
fn nobody_sleeps_past_work_that_is_due_earlier() {
    work_against_sleep(&[50]);
    work_against_sleep(&[100]);
    work_against_sleep(&[50, 60]);
    work_against_sleep(&[50, 200]);
}
