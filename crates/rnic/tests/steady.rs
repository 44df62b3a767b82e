//! In the steady state, no packet costs an allocation. A test of its own, because it counts every
//! allocation of the process.
#![allow(clippy::unwrap_used)]

mod pair;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use pair::{pair, post};
use srdma_abi::Opcode;
use srdma_seams::Now;

struct Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above with the same layout, as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn steady_traffic_allocates_nothing() {
    for (opcode, length) in [
        (Opcode::Write, 1 << 20),
        (Opcode::Write, 64),
        (Opcode::Send, 0),
        (Opcode::Read, 100_000),
        (Opcode::FetchAdd, 8),
    ] {
        let mut ends = pair(opcode, length, 8972);
        let mut now = Now(0);
        for _ in 0..100 {
            post(&mut ends, &mut now, 32, 60);
        }
        let completed = ends[0].world.completions;
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let packets: u64 = (0..50).map(|_| post(&mut ends, &mut now, 32, 60)).sum();
        let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert!(ends[0].world.completions >= completed + 1000, "{opcode:?}: traffic flows");
        assert!(allocated <= 8, "{opcode:?}: {allocated} allocations in {packets} packets");
    }
}
