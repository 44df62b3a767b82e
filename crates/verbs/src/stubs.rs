//! Functions that programs import but this device does not have; generated from `symbols.txt`.
//!
//! Each fails as its manual page says, with EOPNOTSUPP, and fills its results first, so that a program
//! which looks at them anyway finds zeros.

use libc::{c_char, c_int, c_void};
use std::ptr;

fn fail(errno: c_int) -> c_int {
    crate::border::Errno(errno).set()
}

/// # Safety
/// `place` is null or points to `bytes` writable bytes.
unsafe fn fill(place: *mut u8, bytes: usize) {
    if !place.is_null() {
        // SAFETY: passed on to the caller.
        unsafe { place.write_bytes(0, bytes) };
    }
}

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
