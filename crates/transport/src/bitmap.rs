//! A ring of bits addressed by 64-bit packet numbers, grown on demand.

use alloc::vec;
use alloc::vec::Vec;

/// One bit per packet number of a sliding range.
///
/// The owner keeps the range: bits outside it must be clear, because the storage wraps around.
#[derive(Debug)]
pub(crate) struct SeqBits {
    words: Vec<u64>,
}

impl SeqBits {
    pub(crate) fn new() -> SeqBits {
        SeqBits { words: vec![0; 4] }
    }

    /// Makes room for the range `[base, end)`; bits set in `[base, used_end)` are kept.
    pub(crate) fn ensure(&mut self, base: u64, used_end: u64, end: u64) {
        let needed = ((end - base) / 64 + 2).next_power_of_two() as usize;
        if needed <= self.words.len() {
            return;
        }
        let mut grown = SeqBits { words: vec![0; needed] };
        let mut seq = base;
        while let Some(set) = self.next_set(seq, used_end) {
            grown.set(set);
            seq = set + 1;
        }
        *self = grown;
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Gives memory back that the bits of `[base, end)` do not need; all others are clear.
    pub(crate) fn fit(&mut self, base: u64, end: u64) {
        let mut fitting = SeqBits::new();
        fitting.ensure(base, base, end);
        if fitting.words.len() < self.words.len() {
            let mut seq = base;
            while let Some(set) = self.next_set(seq, end) {
                fitting.set(set);
                seq = set + 1;
            }
            *self = fitting;
        }
    }

    fn slot(&self, seq: u64) -> usize {
        (seq / 64) as usize & (self.words.len() - 1)
    }

    pub(crate) fn get(&self, seq: u64) -> bool {
        self.words[self.slot(seq)] >> (seq % 64) & 1 == 1
    }

    /// Sets the bit; says whether it was clear.
    pub(crate) fn set(&mut self, seq: u64) -> bool {
        let slot = self.slot(seq);
        let bit = 1 << (seq % 64);
        let was_clear = self.words[slot] & bit == 0;
        self.words[slot] |= bit;
        was_clear
    }

    /// Clears the bit; says whether it was set.
    pub(crate) fn clear(&mut self, seq: u64) -> bool {
        let slot = self.slot(seq);
        let bit = 1 << (seq % 64);
        let was_set = self.words[slot] & bit != 0;
        self.words[slot] &= !bit;
        was_set
    }

    /// Sets `[from, end)`.
    pub(crate) fn set_range(&mut self, from: u64, end: u64) {
        for_words(from, end, |at, mask| {
            let slot = self.slot(at);
            self.words[slot] |= mask;
        });
    }

    /// Clears `[from, end)`; returns how many bits were set.
    pub(crate) fn clear_range(&mut self, from: u64, end: u64) -> u64 {
        let mut cleared = 0;
        for_words(from, end, |at, mask| {
            let slot = self.slot(at);
            cleared += u64::from((self.words[slot] & mask).count_ones());
            self.words[slot] &= !mask;
        });
        cleared
    }

    /// First set bit in `[from, end)`.
    pub(crate) fn next_set(&self, from: u64, end: u64) -> Option<u64> {
        self.find(from, end, 0)
    }

    /// First clear bit in `[from, end)`, or `end`.
    pub(crate) fn next_clear(&self, from: u64, end: u64) -> u64 {
        self.find(from, end, u64::MAX).unwrap_or(end)
    }

    fn find(&self, mut from: u64, end: u64, flip: u64) -> Option<u64> {
        while from < end {
            let word = (self.words[self.slot(from)] ^ flip) >> (from % 64);
            if word != 0 {
                let found = from + u64::from(word.trailing_zeros());
                return (found < end).then_some(found);
            }
            from = (from / 64 + 1) * 64;
        }
        None
    }

    /// Start of the run of set bits that ends with the set bit `seq`, not before `base`.
    pub(crate) fn run_start(&self, seq: u64, base: u64) -> u64 {
        let mut at = seq;
        loop {
            // Bits of this word up to and including `at`, highest first.
            let clear = (!self.words[self.slot(at)]) << (63 - at % 64);
            if clear != 0 {
                return (at + 1).saturating_sub(u64::from(clear.leading_zeros())).max(base);
            }
            let word_start = at / 64 * 64;
            if word_start <= base {
                return base;
            }
            at = word_start - 1;
        }
    }
}

/// Hands `change` each word that `[from, end)` touches, by one of its numbers, and the bits meant there.
fn for_words(mut from: u64, end: u64, mut change: impl FnMut(u64, u64)) {
    while from < end {
        let next = ((from / 64 + 1) * 64).min(end);
        change(from, run_mask(from % 64, next - from));
        from = next;
    }
}

/// `length` ones from bit `first` on; `first + length` ≤ 64.
fn run_mask(first: u64, length: u64) -> u64 {
    if length >= 64 {
        u64::MAX
    } else {
        ((1 << length) - 1) << first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_seams::Rng;

    /// Every query answers as a plain list of flags would, for ranges that start anywhere.
    #[test]
    fn queries_agree_with_a_plain_list() {
        for seed in 0..50 {
            let mut rng = Rng::stream(seed, "bits", 0);
            let base = [0, 61, (1 << 32) - 3, (1 << 40) + 17][rng.below(4) as usize];
            let span = 1 + rng.below(700);
            let mut bits = SeqBits::new();
            let mut plain = vec![false; span as usize];
            for step in 0..span {
                bits.ensure(base, base + step, base + step + 1);
                if rng.below(3) > 0 {
                    plain[step as usize] = true;
                    assert!(bits.set(base + step), "seed {seed}");
                }
            }
            for from in 0..span {
                let set = (from..span).find(|&i| plain[i as usize]).map(|i| base + i);
                let clear = (from..span).find(|&i| !plain[i as usize]).map_or(base + span, |i| base + i);
                assert_eq!(bits.next_set(base + from, base + span), set, "seed {seed}");
                assert_eq!(bits.next_clear(base + from, base + span), clear, "seed {seed}");
                assert_eq!(bits.get(base + from), plain[from as usize]);
                if plain[from as usize] {
                    let start = (0..=from).rev().take_while(|&i| plain[i as usize]).last().unwrap_or(from);
                    assert_eq!(bits.run_start(base + from, base), base + start, "seed {seed}");
                }
            }
            let (cut, end) = (rng.below(span), base + span);
            let after_cut = plain[cut as usize..].iter().filter(|&&set| set).count() as u64;
            assert_eq!(bits.clear_range(base + cut, end), after_cut, "seed {seed}");
            assert_eq!(bits.next_set(base + cut, end), None, "seed {seed}");
            let stop = cut + rng.below(span - cut + 1);
            bits.set_range(base + cut, base + stop);
            for at in 0..span {
                let want = if at < cut { plain[at as usize] } else { at < stop };
                assert_eq!(bits.get(base + at), want, "seed {seed}");
            }
        }
    }
}
