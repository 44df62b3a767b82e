//! Completion rings: a device appends completions, a client polls them or arms the ring and sleeps.
//!
//! # Arming
//!
//! The shared word `armed` says which completion the client wants to be told of: none, the next
//! solicited one, or the next one of any kind. It only ever rises by arming (a weaker request does not
//! replace a stronger one, IBTA 11.4.2.2) and falls to none when one side takes it, and with it the
//! duty to signal. So one arming gives one signal, whoever gives it.
//!
//! A completion that is there when the client arms signals at once, which is kinder than the verbs ask for and
//! spares programs the arm/poll race. But only one that no earlier signal was for: a program that takes an
//! event, arms, and then polls (ibv_get_cq_event(3) has it in this order) would otherwise get a second event with
//! nothing behind it. The word `told` is the producer index up to which the device has signalled.
//!
//! # Memory ordering
//!
//! * Completion words Relaxed, producer index **Release** / **Acquire**, consumer index likewise the
//!   other way round: as in [`work`](crate::work).
//! * Arming against appending is the pattern "write mine, read yours" on two different words, which no
//!   acquire and release can order (both sides could read the old value and the wake-up would be
//!   lost). So each side puts a **SeqCst fence** between: the device stores the producer index, fences,
//!   reads `armed`; the client raises `armed`, fences, reads the producer index. The fences have one
//!   order; whoever is second sees what the first wrote. Hence after "arm, poll: empty" a later
//!   completion always signals, and one that was there at arming is found by the arming itself.
//! * Taking `armed` is a compare-and-swap or swap, **AcqRel**, so that only one side gets it.

use srdma_abi::{Completion, WcFlags};

use crate::memory::{RingMemory, ARMED, CONSUMER, PRODUCER, TOLD, UNIT_WORDS};
use crate::sync::fence;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

const ARMED_NONE: u64 = 0;
const ARMED_SOLICITED: u64 = 1;
const ARMED_ANY: u64 = 2;

/// The completion ring has no room: an overrun, or a client that wrote an impossible consumer index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The completion ring is full")]
pub struct Full;

/// Whether a solicited-only arm is triggered by `completion`: errors always do (IBTA 11.4.2.2).
fn is_solicited(completion: &Completion) -> bool {
    completion.flags.contains(WcFlags::SOLICITED) || completion.status != 0
}

fn to_words(c: &Completion) -> [u64; UNIT_WORDS] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let bytes = u32::from_le_bytes([c.status, c.opcode, c.flags.0, c.reserved]);
    let [p0, p1, p2] = c.padding;
    [
        c.wr_id,
        pair(c.qpn, c.src_qpn),
        pair(bytes, c.vendor_err),
        pair(c.byte_len, c.imm),
        c.timestamp_ns,
        p0,
        p1,
        p2,
    ]
}

fn from_words(words: [u64; UNIT_WORDS]) -> Completion {
    let low = |word: u64| word as u32;
    let high = |word: u64| (word >> 32) as u32;
    let [wr_id, qpns, kind, lengths, timestamp_ns, p0, p1, p2] = words;
    let [status, opcode, flags, reserved] = low(kind).to_le_bytes();
    Completion {
        wr_id,
        qpn: low(qpns),
        src_qpn: high(qpns),
        status,
        opcode,
        flags: WcFlags(flags),
        reserved,
        vendor_err: high(kind),
        byte_len: low(lengths),
        imm: high(lengths),
        timestamp_ns,
        padding: [p0, p1, p2],
    }
}

fn store(memory: &RingMemory, index: u64, completion: &Completion) {
    for (word, value) in memory.unit(index).zip(to_words(completion)) {
        word.store(value, Relaxed);
    }
}

fn load(memory: &RingMemory, index: u64) -> Completion {
    let mut words = [0; UNIT_WORDS];
    for (value, word) in words.iter_mut().zip(memory.unit(index)) {
        *value = word.load(Relaxed);
    }
    from_words(words)
}

/// The device's half of a completion ring.
pub struct CompletionProducer {
    memory: RingMemory,
    capacity: u64,
    produced: u64,
    /// Consumer index as last read and believed.
    consumed: u64,
    broken: bool,
}

impl CompletionProducer {
    /// The producer of a ring that nothing has been produced in.
    pub fn new(memory: RingMemory) -> CompletionProducer {
        let capacity = u64::from(memory.layout().units());
        CompletionProducer { memory, capacity, produced: 0, consumed: 0, broken: false }
    }

    /// Appends a completion and makes it visible. Nothing unpolled is ever overwritten.
    ///
    /// Follow with [`CompletionProducer::take_arm`], once after several if they come together.
    pub fn push(&mut self, completion: &Completion) -> Result<(), Full> {
        if self.produced - self.consumed >= self.capacity {
            self.refresh()?;
        }
        store(&self.memory, self.produced, completion);
        self.produced += 1;
        self.memory.word(PRODUCER).store(self.produced, Release);
        Ok(())
    }

    /// Whether the client must be signalled now because of what was pushed. `solicited` says whether
    /// any of it was solicited or an error. True disarms the ring: the caller owes one signal.
    #[must_use = "true is a duty to signal"]
    pub fn take_arm(&self, solicited: bool) -> bool {
        fence(SeqCst);
        let armed = self.memory.word(ARMED).load(Relaxed);
        let triggered = armed == ARMED_ANY || (armed == ARMED_SOLICITED && solicited);
        // If the exchange fails, the client disarmed it and signals, or is arming it higher right
        // now; then its fence comes after ours and it finds our completion itself.
        let taken =
            triggered && self.memory.word(ARMED).compare_exchange(armed, ARMED_NONE, AcqRel, Relaxed).is_ok();
        if taken {
            // Before the signal itself, so that who was signalled knows what for.
            self.memory.word(TOLD).store(self.produced, Release);
        }
        taken
    }

    /// Whether the client ever wrote an impossible consumer index; the ring counts as full since.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    fn refresh(&mut self) -> Result<(), Full> {
        let consumed = self.memory.word(CONSUMER).load(Acquire);
        // Neither back, nor ahead of what was produced.
        self.broken |= consumed < self.consumed || consumed > self.produced;
        if self.broken {
            return Err(Full);
        }
        self.consumed = consumed;
        if self.produced - self.consumed >= self.capacity {
            return Err(Full);
        }
        Ok(())
    }
}

/// The client's half of a completion ring.
pub struct CompletionConsumer {
    memory: RingMemory,
    capacity: u64,
    consumed: u64,
    /// Producer index as last read and believed.
    produced: u64,
    /// Completions before this one have been signalled, by either side.
    told: u64,
    broken: bool,
}

impl CompletionConsumer {
    /// The consumer of a ring that nothing has been consumed from.
    pub fn new(memory: RingMemory) -> CompletionConsumer {
        let capacity = u64::from(memory.layout().units());
        CompletionConsumer { memory, capacity, consumed: 0, produced: 0, told: 0, broken: false }
    }

    /// Takes up to `out.len()` completions, oldest first; returns how many.
    pub fn pop(&mut self, out: &mut [Completion]) -> usize {
        if self.produced - self.consumed < out.len() as u64 {
            self.refresh();
        }
        let count = (self.produced - self.consumed).min(out.len() as u64);
        for (index, slot) in (self.consumed..self.consumed + count).zip(out) {
            *slot = load(&self.memory, index);
        }
        self.consume(count);
        count as usize
    }

    /// Asks for one signal at the next completion, or at the next that is solicited or an error.
    ///
    /// Returns whether such a completion is already there, no signal was given for it, and the *caller* must
    /// signal: the device will not. Otherwise the device signals (or already has). An earlier request for any completion
    /// is not weakened by a solicited-only one.
    #[must_use = "true is a duty to signal"]
    pub fn arm(&mut self, solicited_only: bool) -> bool {
        let wanted = if solicited_only { ARMED_SOLICITED } else { ARMED_ANY };
        self.memory.word(ARMED).fetch_max(wanted, AcqRel);
        fence(SeqCst);
        self.refresh();
        // A device that lies here can only make us signal too often or not at all: its own loss.
        self.told = self.told.max(self.memory.word(TOLD).load(Acquire)).min(self.produced);
        let news = self.told.max(self.consumed)..self.produced;
        let there = if solicited_only {
            news.into_iter().any(|index| is_solicited(&load(&self.memory, index)))
        } else {
            !news.is_empty()
        };
        let ours = there && self.memory.word(ARMED).swap(ARMED_NONE, AcqRel) != ARMED_NONE;
        if ours {
            self.told = self.produced;
        }
        ours
    }

    /// Drops what is pending for `qpn`, which the device no longer completes anything for: its number
    /// may be reused, and its program must not hear of it again. Returns how many.
    pub fn forget(&mut self, qpn: u32) -> u32 {
        self.refresh();
        let mut keep_at = self.produced;
        for index in (self.consumed..self.produced).rev() {
            let completion = load(&self.memory, index);
            if completion.qpn != qpn {
                keep_at -= 1;
                // Pending units are the client's: the device does not touch them until consumed.
                store(&self.memory, keep_at, &completion);
            }
        }
        let count = keep_at - self.consumed;
        self.consume(count);
        count as u32
    }

    /// Whether the producer index was ever impossible; nothing more is taken since.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    fn consume(&mut self, count: u64) {
        if count != 0 {
            self.consumed += count;
            self.memory.word(CONSUMER).store(self.consumed, Release);
        }
    }

    fn refresh(&mut self) {
        let produced = self.memory.word(PRODUCER).load(Acquire);
        // Neither back, nor ahead by more than we gave back.
        self.broken |= produced < self.produced || produced - self.consumed > self.capacity;
        if !self.broken {
            self.produced = produced;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
