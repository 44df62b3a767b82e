//! Work queues: a client posts entries of 1–16 units, a device takes them.
//!
//! An entry never wraps: where it does not fit before the end of the ring, the producer marks the rest
//! as padding (first byte [`PADDING`]) and starts at the first unit. Padding is always published
//! together with the entry after it, is at most 15 units long, and is given back with that entry.
//!
//! # Memory ordering
//!
//! * The producer writes entry words Relaxed, then the producer index with **Release**; the consumer
//!   reads that index with **Acquire**. Whoever sees the index therefore sees the words.
//! * The consumer stores the consumer index with **Release** after its last read of the units, and the
//!   producer reads it with **Acquire** before it overwrites them, so no new word can be seen by an
//!   old read.
//! * Entry words need no ordering of their own. They are atomic because a hostile or merely broken
//!   producer may write at any time; what the consumer then gets is a mixture, which it has in a
//!   private copy before it validates anything.
//! * Nobody waits here, so nothing is SeqCst: waking a sleeper is the [`doorbell`](crate::doorbell)'s.

use srdma_abi::entry::{EntryError, SEND_BODY_OFFSET};
use srdma_abi::{RecvEntry, SendEntry, SendFlags, UNITS_MAX, UNIT_BYTES};

use crate::memory::{RingMemory, CONSUMER, PRODUCER, UNIT_WORDS, WORD_BYTES};
use crate::sync::Ordering::{Acquire, Relaxed, Release};

/// First byte of the first unit of padding; no opcode, and no receive entry starts so.
pub const PADDING: u8 = 0xff;

/// Bytes of the longest entry.
pub const ENTRY_BYTES_MAX: usize = UNITS_MAX * UNIT_BYTES;

/// Units of a ring that always has room for `max_wr` entries of up to `units_per_entry` units.
///
/// A ring's fill never spans its end twice, so beside the entries there is at most one run of padding,
/// shorter than an entry. The sum is rounded up to a power of two. `None` if that exceeds
/// [`UNITS_LIMIT`](crate::memory::UNITS_LIMIT) or an argument is out of range (1–16 units an entry).
pub fn units_for(max_wr: u32, units_per_entry: usize) -> Option<u32> {
    if units_per_entry == 0 || units_per_entry > UNITS_MAX {
        return None;
    }
    let each = units_per_entry as u32;
    let units = max_wr.max(1).checked_mul(each)?.checked_add(each - 1)?.checked_next_power_of_two()?;
    (units <= crate::memory::UNITS_LIMIT).then_some(units)
}

/// The other side wrote what no honest side writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRing {
    /// The producer index went back, or ahead by more than the ring holds.
    #[error("Producer index is impossible")]
    ProducerIndex,
    /// Padding that is too long, not at the end, or followed by nothing.
    #[error("Padding is impossible")]
    Padding,
    /// The entry claims to reach past the end of the ring or past the producer index.
    #[error("Entry of {0} units reaches past what was produced")]
    Reach(u8),
    /// The entry claims no possible length.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

impl From<BadRing> for EntryError {
    fn from(bad: BadRing) -> EntryError {
        match bad {
            BadRing::Entry(error) => error,
            BadRing::Reach(units) => EntryError::Units(units),
            BadRing::ProducerIndex | BadRing::Padding => EntryError::Units(0),
        }
    }
}

/// The client's half of a work queue.
pub struct WorkProducer {
    memory: RingMemory,
    capacity: u64,
    /// Units committed, ahead of or equal to the shared index.
    written: u64,
    published: u64,
    /// Consumer index as last read and believed.
    consumed: u64,
    broken: bool,
    /// The entry being made: encoded here, then copied into the ring word by word.
    staging: [u8; ENTRY_BYTES_MAX],
}

impl WorkProducer {
    /// The producer of a ring that nothing has been produced in.
    pub fn new(memory: RingMemory) -> WorkProducer {
        WorkProducer {
            capacity: u64::from(memory.layout().units()),
            memory,
            written: 0,
            published: 0,
            consumed: 0,
            broken: false,
            staging: [0; ENTRY_BYTES_MAX],
        }
    }

    /// Units not in use. An entry may need up to 15 more than its own for padding.
    pub fn free_units(&mut self) -> u32 {
        self.refresh();
        self.free() as u32
    }

    /// Whether the consumer index was ever impossible; from then on the ring counts as full.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Room for an entry of `units` units; `None` if there is too little now, or if `units` is none
    /// of 1–16. Nothing is taken until [`Reserved::commit`].
    pub fn reserve(&mut self, units: usize) -> Option<Reserved<'_>> {
        if units == 0 || units > UNITS_MAX {
            return None;
        }
        let left = self.capacity - (self.written & (self.capacity - 1));
        let padding = if left < units as u64 { left } else { 0 };
        let wanted = padding + units as u64;
        if self.free() < wanted {
            self.refresh();
            if self.free() < wanted {
                return None;
            }
        }
        self.staging[..units * UNIT_BYTES].fill(0);
        Some(Reserved { producer: self, padding, units })
    }

    /// Makes all committed entries visible to the device. Returns whether there were any.
    pub fn publish(&mut self) -> bool {
        let any = self.written != self.published;
        if any {
            self.memory.word(PRODUCER).store(self.written, Release);
            self.published = self.written;
        }
        any
    }

    /// Commits `entry`, with the bytes of `inline` one after the other as its inline data if it has
    /// [`SendFlags::INLINE`]; `entry.inline_len` must be their sum. False: no room now.
    pub fn push_send(&mut self, entry: &SendEntry, inline: &[&[u8]]) -> bool {
        let Some(mut reserved) = self.reserve(entry.units()) else { return false };
        entry.encode(reserved.bytes());
        let mut body = reserved.inline_body(entry);
        for piece in inline {
            let (now, rest) = body.split_at_mut(piece.len().min(body.len()));
            now.copy_from_slice(&piece[..now.len()]);
            body = rest;
        }
        reserved.commit();
        true
    }

    /// As [`WorkProducer::push_send`], with inline data at `(address, length)` pieces of this process.
    /// Bytes beyond `entry.inline_len` are not read.
    ///
    /// # Safety
    /// Each piece is readable memory, and none of it belongs to this ring. (That another thread may
    /// change it meanwhile is the program's own affair, as with any RDMA buffer.)
    #[allow(unsafe_code)]
    // SAFETY: that the pieces can be read, and are none of this ring, is the caller's promise.
    pub unsafe fn push_send_gather(&mut self, entry: &SendEntry, inline: &[(u64, u32)]) -> bool {
        let Some(mut reserved) = self.reserve(entry.units()) else { return false };
        entry.encode(reserved.bytes());
        let mut body = reserved.inline_body(entry);
        for &(address, length) in inline {
            let (now, rest) = body.split_at_mut((length as usize).min(body.len()));
            let source = core::ptr::with_exposed_provenance::<u8>(address as usize);
            if !now.is_empty() {
                // SAFETY: the caller vouches for the source; the destination is our staging area,
                // which no program has a pointer to.
                unsafe { core::ptr::copy_nonoverlapping(source, now.as_mut_ptr(), now.len()) };
            }
            body = rest;
        }
        reserved.commit();
        true
    }

    /// Commits a receive. False: no room now.
    pub fn push_recv(&mut self, entry: &RecvEntry) -> bool {
        let Some(mut reserved) = self.reserve(entry.units()) else { return false };
        entry.encode(reserved.bytes());
        reserved.commit();
        true
    }

    fn free(&self) -> u64 {
        if self.broken {
            return 0;
        }
        self.capacity - (self.written - self.consumed)
    }

    fn refresh(&mut self) {
        let consumed = self.memory.word(CONSUMER).load(Acquire);
        // Neither back, nor ahead of what was published.
        if consumed < self.consumed || consumed > self.published {
            self.broken = true;
        } else {
            self.consumed = consumed;
        }
    }
}

/// Room for one entry, found by [`WorkProducer::reserve`]. Dropping it takes nothing.
pub struct Reserved<'a> {
    producer: &'a mut WorkProducer,
    padding: u64,
    units: usize,
}

impl Reserved<'_> {
    /// The entry's bytes, zero at first.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.producer.staging[..self.units * UNIT_BYTES]
    }

    /// Copies the entry into the ring. The device sees it at the next [`WorkProducer::publish`].
    pub fn commit(self) {
        let Reserved { producer, padding, units } = self;
        if padding != 0 {
            if let Some(word) = producer.memory.unit(producer.written).next() {
                word.store(u64::from(PADDING), Relaxed);
            }
        }
        let start = producer.written + padding;
        for (index, unit) in producer.staging[..units * UNIT_BYTES].chunks_exact(UNIT_BYTES).enumerate() {
            let words = producer.memory.unit(start + index as u64);
            for (word, bytes) in words.zip(unit.chunks_exact(WORD_BYTES)) {
                let mut value = [0; WORD_BYTES];
                value.copy_from_slice(bytes);
                word.store(u64::from_le_bytes(value), Relaxed);
            }
        }
        producer.written = start + units as u64;
    }

    fn inline_body(&mut self, entry: &SendEntry) -> &mut [u8] {
        let length = if entry.flags.contains(SendFlags::INLINE) { usize::from(entry.inline_len) } else { 0 };
        &mut self.bytes()[SEND_BODY_OFFSET..SEND_BODY_OFFSET + length]
    }
}

/// What [`WorkConsumer::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Empty,
    /// An entry, copied to the start of the caller's scratch. Not yet validated beyond its length.
    Entry {
        /// Bytes copied.
        bytes: usize,
        /// Where it lies: bytes from the ring's first unit, for [`WorkConsumer::entry_address`].
        offset: u32,
        /// Units to [`WorkConsumer::release`] for it, skipped padding included.
        units: u32,
    },
    /// The producer lied. The queue is unusable from here on.
    Bad(BadRing),
}

/// The device's half of a work queue.
pub struct WorkConsumer {
    memory: RingMemory,
    capacity: u64,
    /// Units handed out by `next`.
    taken: u64,
    /// Units given back; the shared index repeats it and is never read here.
    released: u64,
    /// Producer index as last read and believed.
    produced: u64,
    bad: Option<BadRing>,
}

impl WorkConsumer {
    /// The consumer of a ring that nothing has been consumed from.
    pub fn new(memory: RingMemory) -> WorkConsumer {
        WorkConsumer {
            capacity: u64::from(memory.layout().units()),
            memory,
            taken: 0,
            released: 0,
            produced: 0,
            bad: None,
        }
    }

    /// Takes the next entry. Its units stay the device's until released.
    pub fn next(&mut self, scratch: &mut [u8; ENTRY_BYTES_MAX]) -> Next {
        if let Some(bad) = self.bad {
            return Next::Bad(bad);
        }
        let found = self.take(scratch);
        if let Next::Bad(bad) = found {
            self.bad = Some(bad);
        }
        found
    }

    /// Gives the oldest `units` units back to the producer (no more than were taken).
    pub fn release(&mut self, units: u32) {
        debug_assert!(u64::from(units) <= self.taken - self.released, "released more than was taken");
        self.released = (self.released + u64::from(units)).min(self.taken);
        self.memory.word(CONSUMER).store(self.released, Release);
    }

    /// Forgets and gives back everything produced so far, taken or not: the queue pair was reset.
    pub fn discard(&mut self) {
        if let Err(bad) = self.refresh() {
            self.bad = Some(bad);
            return;
        }
        self.taken = self.produced;
        self.released = self.produced;
        self.memory.word(CONSUMER).store(self.released, Release);
    }

    /// See [`RingMemory::entry_address`].
    #[cfg(not(loom))]
    pub fn entry_address(&self, offset: u64, length: u32) -> Option<*const u8> {
        self.memory.entry_address(offset, length)
    }

    fn take(&mut self, scratch: &mut [u8; ENTRY_BYTES_MAX]) -> Next {
        if self.taken == self.produced {
            if let Err(bad) = self.refresh() {
                return Next::Bad(bad);
            }
            if self.taken == self.produced {
                return Next::Empty;
            }
        }
        let available = self.produced - self.taken;
        let mut left = self.capacity - (self.taken & (self.capacity - 1));
        let mut padding = 0;
        self.copy_unit(self.taken, scratch, 0);
        if scratch[0] == PADDING {
            if left >= UNITS_MAX as u64 || available <= left {
                return Next::Bad(BadRing::Padding);
            }
            padding = left;
            left = self.capacity;
            self.copy_unit(self.taken + padding, scratch, 0);
            if scratch[0] == PADDING {
                return Next::Bad(BadRing::Padding);
            }
        }
        // From the private copy: the shared byte may say something else by now.
        let units = match SendEntry::claimed_units(&scratch[..UNIT_BYTES]) {
            Ok(units) => units,
            Err(error) => return Next::Bad(error.into()),
        };
        if units as u64 > left.min(available - padding) {
            return Next::Bad(BadRing::Reach(units as u8));
        }
        let start = self.taken + padding;
        for index in 1..units {
            self.copy_unit(start + index as u64, scratch, index);
        }
        self.taken = start + units as u64;
        Next::Entry {
            bytes: units * UNIT_BYTES,
            offset: (start & (self.capacity - 1)) as u32 * UNIT_BYTES as u32,
            units: padding as u32 + units as u32,
        }
    }

    fn copy_unit(&self, index: u64, scratch: &mut [u8; ENTRY_BYTES_MAX], to_unit: usize) {
        let slots = scratch.chunks_exact_mut(WORD_BYTES).skip(to_unit * UNIT_WORDS);
        for (word, slot) in self.memory.unit(index).zip(slots) {
            slot.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
    }

    fn refresh(&mut self) -> Result<(), BadRing> {
        let produced = self.memory.word(PRODUCER).load(Acquire);
        // Neither back, nor ahead by more than we gave back.
        if produced < self.produced || produced - self.released > self.capacity {
            return Err(BadRing::ProducerIndex);
        }
        self.produced = produced;
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
