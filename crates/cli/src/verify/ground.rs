//! The memory that RDMA reaches, and beside it what it must hold.
//!
//! Whoever starts a transfer, or expects one, says so here in the order in which it must take effect
//! ([`Ground::paint`], [`Ground::expect`]); a check compares memory with that, byte for byte.

use super::pattern;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

/// Bytes shown of each side of a difference.
const SHOWN: usize = 16;
/// Step of [`Ground::check_backwards`], bytes.
const BACK_STEP: u64 = 4096;

/// Anonymous memory of this process that others (the software RNIC, the kernel) write to at any time. So no
/// Rust reference to its bytes is ever made.
pub struct Region {
    base: NonNull<u8>,
    bytes: u64,
}

// SAFETY: every access goes through raw pointers or atomics; a race shows wrong values, which is what
// the checks look for.
unsafe impl Sync for Region {}
// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Region {}

impl Region {
    /// Maps `bytes`, all zero.
    pub fn new(bytes: u64) -> io::Result<Region> {
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(base) if at != libc::MAP_FAILED => Ok(Region { base, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Pointer to `length` bytes at offset `at`. Panics if they are outside: offsets come from our own plans.
    fn at(&self, at: u64, length: u64) -> *mut u8 {
        assert!(at <= self.bytes && length <= self.bytes - at, "{length} bytes at {at} of {}", self.bytes);
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(at as usize) }
    }

    /// Writes `bytes` at `at`.
    pub fn store(&self, at: u64, bytes: &[u8]) {
        let to = self.at(at, bytes.len() as u64);
        // SAFETY: `to` has room for them, and a slice of ours never lies in the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies what is at `at` now.
    pub fn load(&self, at: u64, out: &mut [u8]) {
        let from = self.at(at, out.len() as u64);
        // SAFETY: as in `store`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    /// The 8-byte word at `at` (a multiple of 8), as a poller sees it.
    pub fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at & 7 == 0, "{at} is not aligned");
        // SAFETY: within the mapping, aligned (a mapping starts at a page), and lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.at(at, 8).cast()) }
    }

    /// The byte at `at`, as a poller sees it.
    pub fn byte(&self, at: u64) -> &AtomicU8 {
        // SAFETY: as in `word`; bytes are always aligned.
        unsafe { AtomicU8::from_ptr(self.at(at, 1)) }
    }

    fn equals(&self, at: u64, expected: &[u8]) -> bool {
        let here = self.at(at, expected.len() as u64);
        // SAFETY: both sides have that many bytes; memcmp(3) only reads them.
        unsafe { libc::memcmp(here.cast(), expected.as_ptr().cast(), expected.len()) == 0 }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; whoever registered it has deregistered it before.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes as usize) };
    }
}

/// Memory that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Offset of the first wrong byte in the region.
    pub at: u64,
    /// Wrong bytes in the range that was checked.
    pub wrong: u64,
    /// What must be there, from `at` on.
    pub expected: Vec<u8>,
    /// What is there.
    pub got: Vec<u8>,
}

/// A region and what it must hold.
pub struct Ground {
    region: Arc<Region>,
    expected: Vec<u8>,
    /// Damage one byte of the next range that is checked: a check that does not notice is none.
    pub planted: bool,
}

impl Ground {
    /// Maps `bytes` and writes a first pattern over all of them, made from `seed`.
    pub fn new(bytes: u64, seed: u64) -> io::Result<Ground> {
        let region = Arc::new(Region::new(bytes)?);
        let mut ground = Ground { region, expected: vec![0; bytes as usize], planted: false };
        ground.paint(0, bytes, pattern::tag(seed, "ground", 0, 0, 0), 0);
        Ok(ground)
    }

    /// The memory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The memory, for a thread of its own.
    pub fn share(&self) -> Arc<Region> {
        Arc::clone(&self.region)
    }

    /// Bytes `from` and following of message `tag` will come to `at`.
    pub fn expect(&mut self, at: u64, length: u64, tag: u64, from: u64) {
        pattern::fill(tag, from, &mut self.expected[at as usize..(at + length) as usize]);
    }

    /// Writes them there ourselves.
    pub fn paint(&mut self, at: u64, length: u64, tag: u64, from: u64) {
        self.expect(at, length, tag, from);
        self.region.store(at, &self.expected[at as usize..(at + length) as usize]);
    }

    /// The word at `at` will be `value`.
    pub fn expect_word(&mut self, at: u64, value: u64) {
        self.expected[at as usize..at as usize + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// What must be at `at` in the end.
    pub fn expected_byte(&self, at: u64) -> u8 {
        self.expected[at as usize]
    }

    /// Whatever is in this range now is right.
    pub fn adopt(&mut self, at: u64, length: u64) {
        self.region.load(at, &mut self.expected[at as usize..(at + length) as usize]);
    }

    /// Compares a range.
    pub fn check(&mut self, at: u64, length: u64) -> Result<(), Difference> {
        self.plant(at, length);
        let expected = &self.expected[at as usize..(at + length) as usize];
        if self.region.equals(at, expected) {
            return Ok(());
        }
        let mut got = vec![0; length as usize];
        self.region.load(at, &mut got);
        // What was wrong a moment ago may have come right since: then the first byte stands for all.
        difference(at, expected, &got).map_or(Ok(()), Err)
    }

    /// Compares a range from its end to its start, because what came last is most likely to be late.
    pub fn check_backwards(&mut self, at: u64, length: u64) -> Result<(), Difference> {
        let mut end = at + length;
        while end > at {
            let start = end.saturating_sub(BACK_STEP).max(at);
            self.check(start, end - start)?;
            end = start;
        }
        Ok(())
    }

    /// Compares a range that held the message `tag` or its complement, and was changed from one to the
    /// other all the time: each byte must be one of the two. Then adopts it.
    pub fn check_either(&mut self, at: u64, length: u64, tag: u64, from: u64) -> Result<(), Difference> {
        self.plant(at, length);
        let mut one = vec![0; length as usize];
        pattern::fill(tag, from, &mut one);
        let mut got = vec![0; length as usize];
        self.region.load(at, &mut got);
        for (one, got) in one.iter_mut().zip(&got) {
            if *got == !*one {
                *one = *got;
            }
        }
        self.expected[at as usize..(at + length) as usize].copy_from_slice(&got);
        difference(at, &one, &got).map_or(Ok(()), Err)
    }

    fn plant(&mut self, at: u64, length: u64) {
        if length > 0 && std::mem::take(&mut self.planted) {
            self.region.byte(at + length / 2).fetch_xor(0x10, Ordering::SeqCst);
        }
    }
}

fn difference(at: u64, expected: &[u8], got: &[u8]) -> Option<Difference> {
    let first = expected.iter().zip(got).position(|(a, b)| a != b)?;
    let shown = first..expected.len().min(first + SHOWN);
    Some(Difference {
        at: at + first as u64,
        wrong: expected.iter().zip(got).filter(|(a, b)| a != b).count() as u64,
        expected: expected[shown.clone()].to_vec(),
        got: got[shown].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_wrong_byte_is_found_wherever_it_is() {
        let mut ground = Ground::new(64 << 10, 3).unwrap();
        ground.check(0, 64 << 10).unwrap();
        for at in [0u64, 1, 4095, 4096, 30_000, (64 << 10) - 1] {
            let byte = ground.region().byte(at).fetch_xor(1, Ordering::SeqCst);
            for found in [ground.check(0, 64 << 10), ground.check_backwards(0, 64 << 10)] {
                let found = found.unwrap_err();
                assert_eq!((found.at, found.wrong, found.got[0]), (at, 1, byte ^ 1));
                assert_eq!(found.expected[0], byte);
            }
            ground.region().byte(at).store(byte, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_range_that_changes_may_hold_either_pattern_and_nothing_else() {
        let mut ground = Ground::new(4096, 3).unwrap();
        let mut bytes = [0u8; 100];
        pattern::fill(9, 0, &mut bytes);
        bytes[50..].iter_mut().for_each(|byte| *byte = !*byte);
        ground.region().store(10, &bytes);
        ground.check_either(10, 100, 9, 0).unwrap();
        ground.check(0, 4096).unwrap();
        ground.region().byte(30).fetch_xor(1, Ordering::SeqCst);
        assert_eq!(ground.check_either(10, 100, 9, 0).unwrap_err().at, 30);
    }

    #[test]
    fn planted_damage_is_noticed_once() {
        let mut ground = Ground::new(4096, 3).unwrap();
        ground.planted = true;
        assert!(ground.check(100, 0).is_ok(), "nothing was checked, so nothing was damaged");
        assert_eq!(ground.check(100, 11).unwrap_err().at, 105);
        assert!(!ground.planted);
    }
}
