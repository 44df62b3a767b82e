//! What a device and its queue pairs cost in memory, and that packets in steady state cost no allocation. A test
//! binary of its own, because it counts what the whole process allocates.
#![allow(clippy::unwrap_used)]

#[path = "../behaviour/ground/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros)]
mod ground;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use ground::part::{alone, this_test};
use ground::*;
use srdma_abi::{Completion, Opcode, SendEntry};
use srdma_client::Options;

struct Counting;
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: `at` came from the system's allocator with the same layout, as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live_bytes() -> i64 {
    LIVE_BYTES.load(Ordering::Relaxed)
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// 128 paths, as programs have them.
fn as_shipped() -> Options {
    Options { seed: Some(1), ..Options::default() }
}

fn write_to(there: &Memory, rkey: u32, here: &Memory, lkey: u32, length: u32) -> SendEntry {
    to_remote(entry(Opcode::Write, 1, &[sge(here, 0, length, lkey)]), there.address(), rkey)
}

#[test]
fn a_process_with_one_idle_queue_pair_takes_less_than_30_mb() {
    alone(this_test!(), || {
        let pair = Pair::with(&as_shipped());
        let ((here, lkey), (there, rkey)) = (pair.a.host.region(4096), pair.b.host.region(4096));
        for _ in 0..100 {
            assert_eq!(outcomes(&[pair.a.run(write_to(&there, rkey, &here, lkey, 4096))]), [done(1)]);
        }
        let bytes = resident_bytes();
        println!("{bytes} bytes with both ends in this process");
        assert!(bytes < 30 << 20, "{bytes} bytes");
    });
}

#[test]
fn a_further_idle_queue_pair_takes_less_than_64_kb() {
    const PAIRS: usize = 40;
    alone(this_test!(), || {
        let [a, b] = addresses().map(|address| Host::open(address, &as_shipped()));
        let small = Shape { cq_entries: 1, send_wr: 1, recv_wr: 1, ..Shape::default() };
        let pair = || Pair::shaped(a, b, [small; 2], [attributes(); 2]);
        let ((here, lkey), (there, rkey)) = (a.region(4 << 20), b.region(4 << 20));
        // What the devices themselves need comes with the first.
        let first = pair();
        assert_eq!(outcomes(&[first.a.run(write_to(&there, rkey, &here, lkey, 4 << 20))]), [done(1)]);
        let before = live_bytes();
        let per_queue_pair = || (live_bytes() - before) / (2 * PAIRS as i64);
        let pairs: Vec<Pair> = (0..PAIRS).map(|_| pair()).collect();
        println!("{} bytes when connected", per_queue_pair());
        for (length, times) in [(8, 100), (1 << 16, 10), (1 << 20, 2)] {
            for pair in &pairs {
                for _ in 0..times {
                    let request = write_to(&there, rkey, &here, lkey, length);
                    assert_eq!(outcomes(&[pair.a.run(request)]), [done(1)]);
                }
            }
            let bytes = per_queue_pair();
            println!("{bytes} bytes after {times} WRITEs of {length} bytes");
            assert!(
                bytes < 64 << 10,
                "{bytes} bytes after {times} WRITEs of {length} bytes, small rings included"
            );
        }
    });
}

#[test]
fn what_a_burst_needs_is_given_back_when_the_queue_pair_rests() {
    const REQUESTS: u64 = 2_000;
    alone(this_test!(), || {
        let [a, b] = addresses().map(|address| Host::open(address, &as_shipped()));
        let ((here, lkey), (there, rkey)) = (a.region(1 << 20), b.region(1 << 20));
        let deep = Shape { cq_entries: 8192, send_wr: 4096, ..Shape::default() };
        let request = |length| write_to(&there, rkey, &here, lkey, length);
        let burst = |pair: &Pair| {
            for length in [8, 4096, 1 << 16] {
                (0..REQUESTS).for_each(|_| pair.a.post(request(length)));
                pair.a.sent(REQUESTS as usize);
            }
        };
        let pair = || Pair::shaped(a, b, [deep; 2], [attributes(); 2]);
        // What the devices themselves need, for their largest batches, comes with the first.
        // How large those are is a matter of chance.
        (0..6).for_each(|_| burst(&pair()));
        let pair = pair();
        let before = live_bytes();
        burst(&pair);
        let most = live_bytes() - before;
        println!("{most} bytes after bursts");
        assert!(most > 200_000, "only {most} bytes: nothing was tested");
        let left = || (live_bytes() - before < 100_000).then_some(());
        wait("memory that is given back", &[a, b], || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            left()
        });
        println!("{} bytes at rest", live_bytes() - before);
        assert_eq!(outcomes(&[pair.a.run(request(1 << 20))]), [done(1)]);
    });
}

/// Posts and completes `count` requests, never more than `depth` under way, without an allocation of the test's own.
fn drive(pair: &Pair, request: &SendEntry, there: &Memory, key: u32, count: u64, depth: u64) {
    let mut out = [Completion::default(); 16];
    let (mut posted, mut completed) = (0, 0);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while completed < count {
        assert!(std::time::Instant::now() < deadline, "{completed} of {count} completed");
        while posted < count && posted - completed < depth {
            if request.opcode.consumes_receive() {
                pair.b.post_recv(1, &[sge(there, 0, there.bytes() as u32, key)]);
            }
            pair.a.post(request.clone());
            posted += 1;
        }
        let got = pair.a.sends.poll(&mut out).unwrap();
        assert!(out[..got].iter().all(|completion| completion.status == 0), "{:?}", out[0]);
        completed += got as u64;
        pair.b.recvs.poll(&mut out).unwrap();
    }
}

#[test]
fn no_packet_of_steady_traffic_costs_an_allocation() {
    alone(this_test!(), || {
        for opcode in [Opcode::Write, Opcode::Send, Opcode::Read] {
            for length in [64u32, 256 << 10] {
                let pair = Pair::with(&as_shipped());
                let ((here, lkey), (there, rkey)) =
                    (pair.a.host.region(length.into()), pair.b.host.region(length.into()));
                let request = entry(opcode, 1, &[sge(&here, 0, length, lkey)]);
                let request = to_remote(request, there.address(), rkey);
                let packets = || {
                    let (a, b) = (pair.a.counters(), pair.b.counters());
                    a["packets_received"].as_u64().unwrap() + b["packets_received"].as_u64().unwrap()
                };
                drive(&pair, &request, &there, rkey, 3_000, 16);
                let packets_before = packets();
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                drive(&pair, &request, &there, rkey, 2_000, 16);
                let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
                let packets = packets() - packets_before;
                println!("{opcode:?} of {length}: {allocations} allocations, {packets} packets");
                assert!(packets >= 2_000, "{opcode:?} of {length}: only {packets} packets");
                // Tables that are looked at once a second, and grow again, are not one per packet.
                assert!(
                    allocations <= 20 + packets / 1_000,
                    "{opcode:?} of {length}: {allocations} allocations, {packets} packets"
                );
            }
        }
    });
}
