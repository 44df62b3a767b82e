//! Shared memory as an array of 64-bit atomic words, and where a ring's parts lie in it.
//!
//! | bytes from the start | what | written by |
//! |---|---|---|
//! | 0 | producer index: units ever produced | producer |
//! | 128 | consumer index: units ever consumed | consumer |
//! | 256 | armed (completion rings): 0 no, 1 next solicited, 2 next | both |
//! | 384 | `units` × 64 bytes of entries | producer |
//!
//! Indices count up for ever (64 bits do not wrap in any machine's life); the position is the index
//! modulo the power-of-two number of units. Each index has 128 bytes to itself, because adjacent
//! 64-byte lines are fetched in pairs on common processors and would be shared falsely.
#![allow(unsafe_code)]

use alloc::sync::Arc;

use srdma_abi::UNIT_BYTES;

use crate::sync::AtomicU64;

pub(crate) const WORD_BYTES: usize = 8;
pub(crate) const UNIT_WORDS: usize = UNIT_BYTES / WORD_BYTES;

/// Words between parts that different sides write. The model checker tracks every word, so it gets few.
pub(crate) const SPACING_WORDS: usize = if cfg!(loom) { 1 } else { 16 };
pub(crate) const PRODUCER: usize = 0;
pub(crate) const CONSUMER: usize = SPACING_WORDS;
pub(crate) const ARMED: usize = 2 * SPACING_WORDS;
/// Shares a line with `ARMED`: both are touched only when a client sleeps.
pub(crate) const TOLD: usize = if cfg!(loom) { ARMED + SPACING_WORDS } else { ARMED + 1 };
const ENTRIES: usize = if cfg!(loom) { TOLD + SPACING_WORDS } else { 3 * SPACING_WORDS };

/// Most units of a ring: 1 GiB of entries.
pub const UNITS_LIMIT: u32 = 1 << 24;

/// Alignment of ring memory in bytes.
pub const ALIGNMENT: usize = 128;

/// Why there is no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The number of units is no power of two from 1 to [`UNITS_LIMIT`].
    #[error("A ring of {0} units: must be a power of two up to 16777216")]
    Units(u32),
    /// The mapping is too short for the layout.
    #[error("Mapping of {given} bytes, {needed} needed")]
    Short {
        /// Bytes it has.
        given: usize,
        /// Bytes the layout takes.
        needed: usize,
    },
    /// The mapping does not start at a multiple of [`ALIGNMENT`].
    #[error("Mapping is not aligned to 128 bytes")]
    Alignment,
    /// The heap has no room for it.
    #[error("No memory for {0} bytes")]
    Exhausted(usize),
}

/// Size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    units: u32,
}

impl Layout {
    /// A ring of `units` units of 64 bytes: a power of two.
    pub const fn new(units: u32) -> Result<Layout, MemoryError> {
        if !units.is_power_of_two() || units > UNITS_LIMIT {
            return Err(MemoryError::Units(units));
        }
        Ok(Layout { units })
    }

    /// Units of 64 bytes.
    pub const fn units(self) -> u32 {
        self.units
    }

    /// Bytes of memory it takes, header included.
    pub const fn bytes(self) -> usize {
        self.words() * WORD_BYTES
    }

    const fn words(self) -> usize {
        ENTRIES + self.units as usize * UNIT_WORDS
    }
}

/// Memory of one ring. Clones are handles to the same memory.
#[derive(Clone)]
pub struct RingMemory {
    words: Arc<Words>,
    layout: Layout,
}

impl RingMemory {
    /// A ring in our own heap, zeroed, freed with its last handle. Pages never used cost nothing
    /// where the allocator maps large blocks lazily.
    pub fn heap(layout: Layout) -> Result<RingMemory, MemoryError> {
        Ok(RingMemory { words: Arc::new(Words::heap(layout.words())?), layout })
    }

    /// A ring in memory that somebody else made, zeroed when the ring was made. `keeper` is dropped
    /// after the last access, and may unmap.
    ///
    /// # Safety
    /// Until `keeper` is dropped, `bytes` bytes at `start` stay mapped readable and writable. Within
    /// this process they are accessed through handles of this type only (or by the kernel); other
    /// processes may do anything to their content, but not shrink what is mapped (seal a memfd).
    #[cfg(not(loom))]
    // SAFETY: that the memory is there, and ours to use by atomics alone, is the caller's promise.
    pub unsafe fn from_raw(
        layout: Layout,
        start: *mut u8,
        bytes: usize,
        keeper: Arc<dyn core::any::Any + Send + Sync>,
    ) -> Result<RingMemory, MemoryError> {
        // SAFETY: the caller promises what `Words::from_raw` asks.
        let words = unsafe { Words::from_raw(layout.words(), start, bytes, keeper) }?;
        Ok(RingMemory { words: Arc::new(words), layout })
    }

    /// Its size.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Address of `length` bytes at byte `offset` from the first unit, so that the kernel can gather
    /// inline data straight from the ring. `None` if they reach outside.
    ///
    /// What lies there may change at any time: hand the address to the kernel, do not dereference it.
    #[cfg(not(loom))]
    pub fn entry_address(&self, offset: u64, length: u32) -> Option<*const u8> {
        let end = offset.checked_add(u64::from(length))?;
        if end > u64::from(self.layout.units) * UNIT_BYTES as u64 {
            return None;
        }
        let first = self.words.start().wrapping_add(ENTRIES * WORD_BYTES);
        Some(first.wrapping_add(offset as usize))
    }

    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        self.words.at(index)
    }

    /// The words of unit number `index`, counted since the ring was made.
    pub(crate) fn unit(&self, index: u64) -> impl Iterator<Item = &AtomicU64> {
        let position = (index & u64::from(self.layout.units - 1)) as usize;
        let first = ENTRIES + position * UNIT_WORDS;
        (first..first + UNIT_WORDS).map(|word| self.words.at(word))
    }
}

/// Words that another side may write while we read.
#[cfg(not(loom))]
pub(crate) struct Words {
    start: core::ptr::NonNull<AtomicU64>,
    count: usize,
    owner: Owner,
}

#[cfg(not(loom))]
enum Owner {
    Heap(core::alloc::Layout),
    /// Dropped with us.
    Mapped(#[allow(dead_code)] Arc<dyn core::any::Any + Send + Sync>),
}

// SAFETY: the memory is reached through atomics only, and the owner is Send and Sync.
#[cfg(not(loom))]
unsafe impl Send for Words {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for Words {}

#[cfg(not(loom))]
impl Words {
    pub(crate) fn heap(count: usize) -> Result<Words, MemoryError> {
        let bytes = count.saturating_mul(WORD_BYTES);
        let exhausted = MemoryError::Exhausted(bytes);
        let shape = core::alloc::Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| exhausted)?;
        if bytes == 0 {
            return Err(exhausted);
        }
        // SAFETY: the size is not zero.
        let start = unsafe { alloc::alloc::alloc_zeroed(shape) };
        let start = core::ptr::NonNull::new(start.cast::<AtomicU64>()).ok_or(exhausted)?;
        Ok(Words { start, count, owner: Owner::Heap(shape) })
    }

    /// # Safety
    /// See [`RingMemory::from_raw`].
    pub(crate) unsafe fn from_raw(
        count: usize,
        start: *mut u8,
        bytes: usize,
        keeper: Arc<dyn core::any::Any + Send + Sync>,
    ) -> Result<Words, MemoryError> {
        let needed = count * WORD_BYTES;
        if bytes < needed {
            return Err(MemoryError::Short { given: bytes, needed });
        }
        match core::ptr::NonNull::new(start.cast::<AtomicU64>()) {
            Some(first) if start.align_offset(ALIGNMENT) == 0 => {
                Ok(Words { start: first, count, owner: Owner::Mapped(keeper) })
            }
            _ => Err(MemoryError::Alignment),
        }
    }

    /// The word at `index`. Callers stay below the count by construction (positions are masked); the
    /// check is what makes that memory-safe whatever they do.
    pub(crate) fn at(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count, "word {index} of {}", self.count);
        // SAFETY: in bounds, aligned, zeroed or written as u64, alive as long as self, and never
        // accessed other than atomically within this process.
        unsafe { self.start.add(index).as_ref() }
    }

    fn start(&self) -> *const u8 {
        self.start.as_ptr().cast_const().cast()
    }
}

#[cfg(not(loom))]
impl Drop for Words {
    fn drop(&mut self) {
        if let Owner::Heap(shape) = self.owner {
            // SAFETY: allocated in `heap` with this very layout, and freed once.
            unsafe { alloc::alloc::dealloc(self.start.as_ptr().cast(), shape) };
        }
    }
}

/// Words of the model checker.
#[cfg(loom)]
pub(crate) struct Words(alloc::vec::Vec<AtomicU64>);

#[cfg(loom)]
impl Words {
    pub(crate) fn heap(count: usize) -> Result<Words, MemoryError> {
        Ok(Words((0..count).map(|_| AtomicU64::new(0)).collect()))
    }

    pub(crate) fn at(&self, index: usize) -> &AtomicU64 {
        &self.0[index]
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
