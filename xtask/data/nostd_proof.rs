//! Links the sans-IO rooms with a panic handler and an allocator of its own, hence without std.
#![no_std]

extern crate alloc;

use core::alloc::{GlobalAlloc, Layout};

struct Nothing;

// SAFETY: every allocation fails, which the contract allows.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _layout: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    // SAFETY: nothing was ever allocated, so nothing is freed.
    unsafe fn dealloc(&self, _pointer: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Nothing = Nothing;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Uses something of the rooms, so that they are not merely named.
#[no_mangle]
pub extern "C" fn proof(seed: u64) -> u64 {
    let mut rng = srdma_seams::Rng::stream(seed, "proof", 0);
    let port = srdma_seams::Qpn::new(srdma_seams::Slot(0), 2).slot().port();
    let rights = srdma_memory::Rights::REMOTE_WRITE.contains(srdma_memory::Rights::NONE);
    let config = srdma_transport::Config::default();
    let order = srdma_rnic::Order::default();
    let boxed = alloc::boxed::Box::new((config, order, rights));
    rng.next_u64() ^ u64::from(port) ^ u64::from(boxed.2) ^ u64::from(srdma_wire::packet::VERSION)
}

