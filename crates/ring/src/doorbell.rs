//! Doorbells: one bit for each queue that has new work, and a word by which the device says it sleeps.
//!
//! | bytes from the start | what | written by |
//! |---|---|---|
//! | 0 | `waiting`: 1 while the device sleeps or is about to | both |
//! | 128 | summary: bit *w* is set if word *w* below may be non-zero | both |
//! | then, from the next multiple of 128 | one bit for each queue | both |
//!
//! A page of 4 KiB has bits for [`DoorbellPage::queues_in`]`(4096)` = 30,720 queues. What a bit stands
//! for (a queue pair, one of its queues) is the caller's choice. Clients ring without a lock; any
//! number of rings between two drains is one bit, and draining looks at the summary first, so that
//! idle queues cost a bit of a word.
//!
//! # Memory ordering
//!
//! * Ringing sets the queue's bit and then the summary's, both by read-modify-write, **AcqRel**.
//!   Draining swaps the summary out first and then the words, likewise. If the drain's swap of the
//!   summary comes later in that word's history than the ring's, it synchronises with it and sees the
//!   queue's bit; if earlier, the summary bit is still set at the next drain. What was published to
//!   the queue before ringing is visible to whoever drained the bit.
//!   (loom does not reorder two read-modify-writes, so it would accept Relaxed here; hardware does.)
//! * Sleeping is an event count: the device sets `waiting`, **fences SeqCst**, looks for bits, sleeps.
//!   A client sets its bits, **fences SeqCst**, reads `waiting`. The fences have one order: either the
//!   device sees the bits or the client sees that it must wake the device.

use alloc::sync::Arc;

use crate::memory::{MemoryError, Words, SPACING_WORDS, WORD_BYTES};
use crate::sync::fence;
use crate::sync::Ordering::{AcqRel, Relaxed, SeqCst};

const BITS: usize = 64;
const WAITING: usize = 0;
const SUMMARY: usize = SPACING_WORDS;

/// Doorbells of one attached client. Clones are handles to the same page.
#[derive(Clone)]
pub struct DoorbellPage {
    words: Arc<Words>,
    queues: u32,
}

/// (summary words, first bit word, words in all) for so many queues.
const fn shape(queues: u32) -> (usize, usize, usize) {
    let bit_words = (queues as usize).div_ceil(BITS);
    let summaries = bit_words.div_ceil(BITS);
    let first = SUMMARY + summaries.next_multiple_of(SPACING_WORDS);
    (summaries, first, first + bit_words)
}

impl DoorbellPage {
    /// Queues that fit into so many bytes.
    pub const fn queues_in(bytes: usize) -> u32 {
        let mut bit_words = bytes / WORD_BYTES;
        while bit_words > 0 && shape((bit_words * BITS) as u32).2 * WORD_BYTES > bytes {
            bit_words -= 1;
        }
        (bit_words * BITS) as u32
    }

    /// A page for queues `0..queues` in our own heap.
    pub fn heap(queues: u32) -> Result<DoorbellPage, MemoryError> {
        Ok(DoorbellPage { words: Arc::new(Words::heap(shape(queues).2)?), queues })
    }

    /// A page for queues `0..queues` in memory that somebody else made and zeroed.
    ///
    /// # Safety
    /// As [`RingMemory::from_raw`](crate::RingMemory::from_raw).
    #[cfg(not(loom))]
    #[allow(unsafe_code)]
    // SAFETY: that the memory is there, and ours to use by atomics alone, is the caller's promise.
    pub unsafe fn from_raw(
        queues: u32,
        start: *mut u8,
        bytes: usize,
        keeper: Arc<dyn core::any::Any + Send + Sync>,
    ) -> Result<DoorbellPage, MemoryError> {
        // SAFETY: the caller promises what `Words::from_raw` asks.
        let words = unsafe { Words::from_raw(shape(queues).2, start, bytes, keeper) }?;
        Ok(DoorbellPage { words: Arc::new(words), queues })
    }

    /// Queues that have a bit.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// Client: `queue` has new work. Returns whether the device sleeps and the caller must wake it;
    /// of several clients ringing at once, one is told. A queue without a bit is ignored.
    #[must_use = "true is a duty to wake the device"]
    pub fn ring(&self, queue: u32) -> bool {
        if queue >= self.queues {
            return false;
        }
        let (_, first, _) = shape(self.queues);
        let word = queue as usize / BITS;
        self.words.at(first + word).fetch_or(1 << (queue as usize % BITS), AcqRel);
        self.words.at(SUMMARY + word / BITS).fetch_or(1 << (word % BITS), AcqRel);
        fence(SeqCst);
        let waiting = self.words.at(WAITING);
        waiting.load(Relaxed) != 0 && waiting.swap(0, AcqRel) != 0
    }

    /// Device: calls `work` for every queue rung since it was last taken. One pass: queues rung
    /// meanwhile may be left for the next. Returns how many were taken.
    pub fn take(&self, mut work: impl FnMut(u32)) -> u32 {
        let (summaries, first, total) = shape(self.queues);
        let mut taken = 0;
        for summary in 0..summaries {
            let marks = self.words.at(SUMMARY + summary);
            if marks.load(Relaxed) == 0 {
                continue;
            }
            for mark in set_bits(marks.swap(0, AcqRel)) {
                let word = summary * BITS + mark;
                if first + word >= total {
                    continue;
                }
                for bit in set_bits(self.words.at(first + word).swap(0, AcqRel)) {
                    let queue = (word * BITS + bit) as u32;
                    if queue < self.queues {
                        work(queue);
                        taken += 1;
                    }
                }
            }
        }
        taken
    }

    /// Whether any queue was rung since it was last taken.
    pub fn is_rung(&self) -> bool {
        fence(SeqCst);
        let (summaries, _, _) = shape(self.queues);
        (0..summaries).any(|summary| self.words.at(SUMMARY + summary).load(Relaxed) != 0)
    }

    /// Device: is about to sleep. True: nothing was rung, sleep until woken, then call
    /// [`DoorbellPage::awake`]. False: there is work (and the announcement is withdrawn).
    #[must_use = "false means there is work"]
    pub fn prepare_sleep(&self) -> bool {
        self.words.at(WAITING).store(1, Relaxed);
        fence(SeqCst);
        let (summaries, _, _) = shape(self.queues);
        let rung = (0..summaries).any(|summary| self.words.at(SUMMARY + summary).load(Relaxed) != 0);
        if rung {
            self.awake();
        }
        !rung
    }

    /// Device: no longer sleeps, for whatever reason. A wake-up already on its way may still come and
    /// find nothing to do.
    pub fn awake(&self) {
        self.words.at(WAITING).store(0, Relaxed);
    }
}

fn set_bits(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = bits.trailing_zeros() as usize;
        (bits != 0).then(|| {
            bits &= bits - 1;
            bit
        })
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
