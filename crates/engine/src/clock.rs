//! The monotonic clock of this process.

use srdma_seams::Now;

/// Nanoseconds of CLOCK_MONOTONIC. A clock that stands still is harmless; it never goes back.
pub fn now() -> Now {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; CLOCK_MONOTONIC always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Now(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Random bytes from the operating system, for connection ids that an attacker must not guess.
pub fn entropy() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is 8 bytes long and lives across the call.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    // getrandom cannot fail for 8 bytes once the pool is initialised; before that (early boot) the
    // address of a stack variable and the clock are what there is.
    let here = std::ptr::from_ref(&bytes) as u64;
    now().0.rotate_left(32) ^ here.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
