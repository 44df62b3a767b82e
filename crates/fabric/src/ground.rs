//! The memory of a host, as far as a simulation has one.

use alloc::vec;
use alloc::vec::Vec;

use srdma_memory::{AddressSpace, Segment};

pub use crate::packet::Origin;

/// Memory that received bytes are placed in.
pub trait Ground {
    /// Bytes that lie at `origin` are placed at `to`. False if there is no memory there.
    fn place(&mut self, to: Segment, origin: Origin) -> bool;
}

/// No data at all: bytes are placed by saying so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Ground for Nothing {
    fn place(&mut self, _to: Segment, _origin: Origin) -> bool {
        true
    }
}

/// Memory in which every byte says whose it is: what a host sends from address `a` is a function of the host and `a`.
/// It counts how often each byte was written.
#[derive(Clone, Debug)]
pub struct Pattern {
    bytes: Vec<u8>,
    writes: Vec<u8>,
}

impl Pattern {
    /// `bytes` bytes of memory from address 0 on.
    pub fn new(bytes: usize) -> Pattern {
        Pattern { bytes: vec![0; bytes], writes: vec![0; bytes] }
    }

    /// The byte at `address` of `host`, as its program wrote it.
    pub fn byte(host: u32, address: u64) -> u8 {
        let mixed = (address ^ u64::from(host) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56) as u8 | 1
    }

    /// Checks that `length` bytes at `address` are those that `origin` has, each placed once.
    pub fn check(&self, address: u64, length: u64, origin: Origin) -> Result<(), Misplaced> {
        for offset in 0..length {
            let at = (address + offset) as usize;
            let wanted = Pattern::byte(origin.host, origin.address + offset);
            let (found, writes) = (self.bytes[at], self.writes[at]);
            if found != wanted || writes != 1 {
                return Err(Misplaced { address: address + offset, wanted, found, writes });
            }
        }
        Ok(())
    }
}

/// A byte is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Byte {address:#x} is {found:#x}, should be {wanted:#x}, and was written {writes} times")]
pub struct Misplaced {
    /// Where.
    pub address: u64,
    /// What should be there.
    pub wanted: u8,
    /// What is there.
    pub found: u8,
    /// How often it was written.
    pub writes: u8,
}

impl Ground for Pattern {
    fn place(&mut self, to: Segment, origin: Origin) -> bool {
        let end = to.address.saturating_add(to.length.into());
        if to.space != AddressSpace::Host || end > self.bytes.len() as u64 {
            return false;
        }
        for offset in 0..u64::from(to.length) {
            let at = (to.address + offset) as usize;
            self.bytes[at] = Pattern::byte(origin.host, origin.address + offset);
            self.writes[at] = self.writes[at].saturating_add(1);
        }
        true
    }
}
