#![allow(clippy::unwrap_used)]

use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst as Sequential};
use std::thread;

use super::*;
use crate::testing::Dice;

fn taken(page: &DoorbellPage) -> Vec<u32> {
    let mut queues = vec![];
    let count = page.take(|queue| queues.push(queue));
    assert_eq!(count as usize, queues.len());
    queues
}

#[test]
fn each_queue_rung_is_taken_once() {
    for queues in [1, 63, 64, 65, 4096, 4097, 30_720, 65_536] {
        let page = DoorbellPage::heap(queues).unwrap();
        assert_eq!(taken(&page), []);
        let chosen: Vec<u32> = [0, 1, queues / 2, queues - 1].into_iter().filter(|&q| q < queues).collect();
        for &queue in chosen.iter().rev().chain(&chosen) {
            assert!(!page.ring(queue), "nobody sleeps");
        }
        for beyond in [queues, queues + 63, u32::MAX] {
            assert!(!page.ring(beyond));
        }
        let mut wanted = chosen.clone();
        wanted.dedup();
        assert_eq!((taken(&page), taken(&page)), (wanted, vec![]), "{queues}");
    }
}

#[test]
fn the_page_holds_what_the_documentation_says() {
    assert_eq!(DoorbellPage::queues_in(4096), 30_720);
    for bytes in [0, 64, 256, 264, 272, 4096, 12_288] {
        let queues = DoorbellPage::queues_in(bytes);
        assert!(queues == 0 || shape(queues).2 * WORD_BYTES <= bytes, "{bytes}");
        assert!(shape(queues + 1).2 * WORD_BYTES > bytes, "{bytes}: one more would fit");
    }
}

#[test]
fn a_sleeping_device_is_woken_by_the_first_ring_only() {
    let page = DoorbellPage::heap(100).unwrap();
    assert!(page.prepare_sleep());
    assert!(page.ring(5));
    assert!(!page.ring(6) && !page.ring(5));
    page.awake();
    assert_eq!(taken(&page), [5, 6]);
    assert!(!page.ring(7));
    assert!(!page.prepare_sleep(), "there is work");
    assert!(!page.ring(8), "and so it does not sleep");
    assert_eq!(taken(&page), [7, 8]);
    assert!(page.prepare_sleep());
    page.awake();
    assert!(!page.ring(9), "woken by something else");
}

#[test]
fn whatever_a_client_writes_only_queues_that_exist_are_taken() {
    for seed in 0..500 {
        let mut dice = Dice::new(seed);
        let queues = 1 + dice.below(9000) as u32;
        let page = DoorbellPage::heap(queues).unwrap();
        let (_, _, total) = shape(queues);
        for _ in 0..20 {
            for _ in 0..20 {
                let word = dice.below(total as u64) as usize;
                page.words.at(word).store(dice.next() & dice.next(), Relaxed);
            }
            let _ = page.prepare_sleep();
            let found = taken(&page);
            assert!(found.iter().all(|&queue| queue < queues), "seed {seed}");
            assert!(found.len() <= queues as usize);
        }
    }
}

#[test]
fn no_ring_is_lost_between_clients_and_a_device_that_sleeps() {
    const RINGS: u32 = 50_000;
    let page = DoorbellPage::heap(300).unwrap();
    // What each client has published to its queue, and how much of it the device has seen.
    let published = [const { AtomicU32::new(0) }; 2];
    let queues = [7u32, 299];
    thread::scope(|scope| {
        let device = scope.spawn(|| {
            let mut seen = [0; 2];
            while seen != [RINGS; 2] {
                let count = page.take(|queue| {
                    let client = queues.iter().position(|&q| q == queue).unwrap();
                    seen[client] = published[client].load(Relaxed);
                });
                if count == 0 && page.prepare_sleep() {
                    // A lost wake-up parks for ever.
                    thread::park();
                    page.awake();
                }
            }
        });
        for client in 0..2 {
            let (page, published, waker) = (page.clone(), &published[client], device.thread().clone());
            scope.spawn(move || {
                for number in 1..=RINGS {
                    published.store(number, Relaxed);
                    if page.ring(queues[client]) {
                        waker.unpark();
                    }
                }
            });
        }
    });
    assert_eq!(published.each_ref().map(|p| p.load(Sequential)), [RINGS; 2]);
}
