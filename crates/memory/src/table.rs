//! Live regions by key: register, look up, check, forget.
//!
//! # Keys
//!
//! A key is the next value of a 32-bit counter, run through a seeded permutation. Nothing in it is an
//! index that could be used again: a key comes back only after 2³² − 1 other registrations, so a
//! stale key of any age is refused. (An index of 20 bits would leave a generation of only 12, which one
//! busy slot exhausts in 4,096 registrations.) At the wrap, keys still live are skipped. Key 0 is never
//! given out.
//!
//! The permutation spreads consecutive keys, so that a guess at a neighbour of a known key misses. It
//! is no secret: what protects a region is the check of tenant, protection domain, bounds and rights.
//!
//! # Cost
//!
//! Regions lie in an open-addressing table with linear probing, at most half full. The keys are a
//! permutation of our own choice, hence uniform, and their low bits are the position: a look-up reads
//! on average at most one and a half slots for a live key and two and a half for any other, and no
//! program can choose keys that collide. A removal shifts its followers back, so that no tombstones
//! pile up. Only `register` allocates, when the table doubles (never shrinking). The length of a region
//! costs nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use srdma_seams::{MrKey, PdId, Rng};

use crate::{Asker, Refused, Region, Rights, Segment};

/// Why a region was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// `base + length` or `iova + length` exceeds 2⁶⁴ − 1.
    #[error("{length} bytes from {start:#x} reach past the end of the address space")]
    Overflow {
        /// First byte: the base or the iova, whichever overflows.
        start: u64,
        /// Bytes.
        length: u64,
    },
    /// Remote WRITE or atomics are allowed but LOCAL_WRITE is not; ibv_reg_mr(3) demands both.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE")]
    Rights,
    /// As many regions as the device holds are registered.
    #[error("Limit of {limit} memory regions (max_mr) reached")]
    Limit {
        /// How many are allowed.
        limit: u32,
    },
}

/// The key names no live region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("No memory region has key {0}")]
pub struct UnknownKey(pub MrKey);

/// Where the bytes of an access are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The bytes: as many as were asked for.
    pub segment: Segment,
    /// Everything the region allows; RELAXED_ORDERING changes how a WRITE is placed.
    pub rights: Rights,
}

/// A region and the key that leads to it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u32,
    region: Region,
}

/// All memory regions of a device. See the [module](self) for how keys are made.
#[derive(Clone, Debug)]
pub struct Table {
    slots: Vec<Option<Slot>>,
    live: u32,
    limit: u32,
    counter: u32,
    permutation: Permutation,
    per_pd: BTreeMap<PdId, u32>,
}

const FIRST_SLOTS: usize = 16;
/// Half of the positions at the largest size; far above any device's `max_mr`.
const LIMIT_MAX: u32 = 1 << 28;

impl Table {
    /// An empty table for at most `limit` regions (2²⁸ at the most). `seed` decides the sequence of
    /// keys; two devices should differ in it.
    pub fn new(seed: u64, limit: u32) -> Table {
        Table {
            slots: Vec::new(),
            live: 0,
            limit: limit.min(LIMIT_MAX),
            counter: 0,
            permutation: Permutation::new(seed),
            per_pd: BTreeMap::new(),
        }
    }

    /// Registers `region` and returns its key, lkey and rkey in one.
    ///
    /// A region of length 0 is allowed: it takes accesses of length 0 at its address and refuses all
    /// others. Whether the memory exists is nobody's business until bytes move.
    pub fn register(&mut self, region: Region) -> Result<MrKey, RegisterError> {
        for start in [region.base, region.iova] {
            if start.checked_add(region.length).is_none() {
                return Err(RegisterError::Overflow { start, length: region.length });
            }
        }
        let remote_change = Rights::REMOTE_WRITE.0 | Rights::REMOTE_ATOMIC.0;
        if region.rights.0 & remote_change != 0 && !region.rights.contains(Rights::LOCAL_WRITE) {
            return Err(RegisterError::Rights);
        }
        if self.live >= self.limit {
            return Err(RegisterError::Limit { limit: self.limit });
        }
        if (self.live as usize + 1) * 2 > self.slots.len() {
            self.double();
        }
        let key = self.fresh_key();
        self.insert(Slot { key, region });
        self.live += 1;
        *self.per_pd.entry(region.pd).or_insert(0) += 1;
        Ok(MrKey(key))
    }

    /// Forgets a region. From here on its key resolves to nothing; waiting for accesses that were
    /// resolved before is the caller's part.
    pub fn deregister(&mut self, key: MrKey) -> Result<(), UnknownKey> {
        let position = self.position(key).ok_or(UnknownKey(key))?;
        let Some(slot) = self.slots[position].take() else { return Err(UnknownKey(key)) };
        self.close_gap(position);
        self.live -= 1;
        if let Some(count) = self.per_pd.get_mut(&slot.region.pd) {
            *count -= 1;
            if *count == 0 {
                self.per_pd.remove(&slot.region.pd);
            }
        }
        Ok(())
    }

    /// Whether `asker` may do what `needs` says with `length` bytes at `address` (in the region's
    /// iova space) under `key`; if so, where they are.
    ///
    /// An access of length 0 may lie anywhere from the first byte to one past the last. (IBTA
    /// C9-88 has the responder skip the check for these altogether; that is the caller's choice.)
    pub fn resolve(
        &self,
        asker: Asker,
        key: MrKey,
        address: u64,
        length: u32,
        needs: Rights,
    ) -> Result<Translation, Refused> {
        let region = self.region(key).ok_or(Refused::Key(key))?;
        if region.tenant != asker.tenant || region.pd != asker.pd {
            return Err(Refused::Key(key));
        }
        if !region.rights.contains(needs) {
            return Err(Refused::Rights);
        }
        let offset = address.checked_sub(region.iova).ok_or(Refused::Bounds)?;
        let end = offset.checked_add(u64::from(length)).ok_or(Refused::Bounds)?;
        if end > region.length {
            return Err(Refused::Bounds);
        }
        // Cannot wrap: offset ≤ length, and base + length was checked at registration.
        let address = region.base.wrapping_add(offset);
        Ok(Translation { segment: Segment { space: region.space, address, length }, rights: region.rights })
    }

    /// The live region with this key.
    pub fn region(&self, key: MrKey) -> Option<&Region> {
        self.slots[self.position(key)?].as_ref().map(|slot| &slot.region)
    }

    /// Live regions of a protection domain.
    pub fn regions_in(&self, pd: PdId) -> u32 {
        self.per_pd.get(&pd).copied().unwrap_or(0)
    }

    /// Live regions.
    pub fn len(&self) -> u32 {
        self.live
    }

    /// Whether no region is registered.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The next key that is neither 0 nor live. Terminates because far fewer than 2³² are live.
    fn fresh_key(&mut self) -> u32 {
        loop {
            self.counter = self.counter.wrapping_add(1);
            let key = self.permutation.of(self.counter);
            if key != 0 && self.position(MrKey(key)).is_none() {
                return key;
            }
        }
    }

    /// Position of a live key. At least half the slots are empty, so the walk ends.
    fn position(&self, key: MrKey) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = key.0 as usize & mask;
        while let Some(slot) = &self.slots[at] {
            if slot.key == key.0 {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn insert(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = slot.key as usize & mask;
        while self.slots[at].is_some() {
            at = (at + 1) & mask;
        }
        self.slots[at] = Some(slot);
    }

    /// Moves back what had been pushed past the emptied `gap` (Knuth, TAOCP 3, 6.4, Algorithm R).
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        let mut at = (gap + 1) & mask;
        while let Some(slot) = self.slots[at] {
            let home = slot.key as usize & mask;
            let from_home = at.wrapping_sub(home) & mask;
            let from_gap = at.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.slots[gap] = Some(slot);
                self.slots[at] = None;
                gap = at;
            }
            at = (at + 1) & mask;
        }
    }

    fn double(&mut self) {
        let wanted = (self.slots.len() * 2).max(FIRST_SLOTS);
        let mut old = Vec::with_capacity(wanted);
        old.resize(wanted, None);
        core::mem::swap(&mut old, &mut self.slots);
        for slot in old.into_iter().flatten() {
            self.insert(slot);
        }
    }
}

/// A permutation of the 32-bit numbers: a Feistel network of four rounds over 16-bit halves.
#[derive(Clone, Copy, Debug)]
struct Permutation {
    rounds: [u32; 4],
}

impl Permutation {
    fn new(seed: u64) -> Permutation {
        let mut rng = Rng::stream(seed, "memory-key", 0);
        Permutation { rounds: core::array::from_fn(|_| rng.next_u32()) }
    }

    fn of(self, number: u32) -> u32 {
        let (mut left, mut right) = (number >> 16, number & 0xffff);
        for round in self.rounds {
            let mixed = (right ^ round).wrapping_mul(0x9e37_79b1);
            let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca77);
            (left, right) = (right, left ^ (mixed >> 16));
        }
        (left << 16) | right
    }
}

#[cfg(test)]
mod tests;
