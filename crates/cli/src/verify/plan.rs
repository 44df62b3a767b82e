//! What a round moves, made from the seed alone: both sides make the same plan and never exchange it.

use super::kinds::Kind;
use super::pattern;
use srdma_seams::Rng;

/// Bytes at the start of each queue pair's part that hold words: flags, counters, locks.
pub const WORDS_BYTES: u64 = 4096;
/// Longest message.
pub const LENGTH_MAX: u32 = 4 << 20;
/// Most elements per request.
pub const ELEMENTS_MAX: u64 = 4;
/// Longest inline message.
pub const INLINE_MAX: u32 = 512;
/// Bytes that one queue pair moves in a round, at most.
const BUDGET_BYTES: u64 = 16 << 20;
/// Unused bytes between two pieces of memory, at most: pieces lie at any alignment.
const GAP_MAX: u64 = 96;

/// One round of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Which.
    pub kind: Kind,
    /// Counted from 0 for each kind.
    pub number: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Bytes of the region that belong to each queue pair.
    pub part_bytes: u64,
}

/// Bytes of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset in the region.
    pub at: u64,
    /// Length.
    pub length: u32,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Makes its bytes.
    pub tag: u64,
    /// Its length.
    pub length: u32,
    /// Where it lies at the side that gathers or scatters it.
    pub elements: Vec<Span>,
    /// Where it lies, in one piece, at the other side.
    pub at: u64,
    /// Whether its bytes travel in the work request.
    pub inline: bool,
    /// Whether its completion is asked for.
    pub signalled: bool,
}

impl Round {
    /// The random numbers of queue pair `qp` for one purpose.
    pub fn rng(&self, purpose: &str, qp: usize) -> Rng {
        let label = format!("{}/{purpose}", self.kind.name());
        Rng::stream(self.seed ^ self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15), &label, qp as u64)
    }

    /// Tag of a message.
    pub fn tag(&self, qp: usize, message: usize) -> u64 {
        pattern::tag(self.seed, self.kind.name(), self.number, qp, message)
    }

    /// Offset of word `index` of a queue pair's part.
    pub fn word(&self, qp: usize, index: u64) -> u64 {
        assert!(index < WORDS_BYTES / 8);
        qp as u64 * self.part_bytes + index * 8
    }

    /// Where messages of queue pair `qp` may lie: start and end.
    pub fn data(&self, qp: usize) -> (u64, u64) {
        let start = qp as u64 * self.part_bytes;
        (start + WORDS_BYTES, start + self.part_bytes)
    }

    /// `count` messages of up to `length_max` bytes. Elements never overlap each other; `at` is anywhere
    /// within `window`, so messages may overlap there: the later one's bytes remain.
    pub fn anywhere(&self, qp: usize, count: u64, length_max: u32, window: (u64, u64)) -> Vec<Message> {
        let mut rng = self.rng("place", qp);
        let room = window.1 - window.0;
        let mut messages = self.messages(qp, count, length_max.min(room as u32));
        for message in &mut messages {
            message.at = window.0 + rng.below(room - u64::from(message.length) + 1);
        }
        messages
    }

    /// The same, with `at` never overlapping either.
    pub fn apart(&self, qp: usize, count: u64, length_max: u32) -> Vec<Message> {
        let mut rng = self.rng("place", qp);
        let mut messages = self.messages(qp, count, length_max);
        let mut cursor = Cursor::new(self.data(qp));
        // Backwards, so that the order in memory is not the order of the messages.
        for message in messages.iter_mut().rev() {
            message.at = cursor.take(u64::from(message.length), &mut rng);
        }
        messages
    }

    fn messages(&self, qp: usize, count: u64, length_max: u32) -> Vec<Message> {
        let mut rng = self.rng("messages", qp);
        let data = self.data(qp);
        let mut budget = BUDGET_BYTES.min((data.1 - data.0) / 2);
        let mut cursor = Cursor::new(data);
        let message = |number| {
            let length = length(&mut rng, length_max).min(budget as u32);
            budget -= u64::from(length);
            Message {
                tag: self.tag(qp, number as usize),
                length,
                elements: cursor.scatter(length, &mut rng),
                at: 0,
                inline: length <= INLINE_MAX && rng.below(2) == 0,
                signalled: number + 1 == count || rng.below(3) == 0,
            }
        };
        (0..count).map(message).collect()
    }
}

/// A length up to `max`: all magnitudes equally often, with zero and the edges of packets among them.
fn length(rng: &mut Rng, max: u32) -> u32 {
    let drawn = match rng.below(12) {
        0 => 0,
        1 => (1 + rng.below(9)) * [1024, 1408, 4096, 8192][rng.below(4) as usize] + rng.below(3) - 1,
        _ => {
            let bits = 1 + rng.below(u64::from(LENGTH_MAX.trailing_zeros()));
            rng.below(1 << bits) + rng.below(2)
        }
    };
    drawn.min(u64::from(max)) as u32
}

/// Hands out memory from a part, piece after piece.
pub struct Cursor {
    next: u64,
    end: u64,
}

impl Cursor {
    /// From `data.0` to `data.1`.
    pub fn new(data: (u64, u64)) -> Cursor {
        Cursor { next: data.0, end: data.1 }
    }

    /// The next `length` bytes, after a gap.
    pub fn take(&mut self, length: u64, rng: &mut Rng) -> u64 {
        let at = self.next + rng.below(GAP_MAX);
        self.next = at + length;
        assert!(self.next <= self.end, "a plan is larger than its part of the region");
        at
    }

    /// `length` bytes in up to [`ELEMENTS_MAX`] pieces, empty ones among them.
    pub fn scatter(&mut self, length: u32, rng: &mut Rng) -> Vec<Span> {
        let mut left = length;
        let mut spans = Vec::new();
        for rest in (0..=rng.below(ELEMENTS_MAX)).rev() {
            let piece = if rest == 0 { left } else { rng.below(u64::from(left) + 1) as u32 };
            spans.push(Span { at: self.take(u64::from(piece), rng), length: piece });
            left -= piece;
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(number: u64) -> Round {
        Round { kind: Kind::Write, number, seed: 11, part_bytes: 16 << 20 }
    }

    #[test]
    fn plans_fit_their_part_and_repeat() {
        for number in 0..200 {
            let round = round(number);
            let data = round.data(1);
            let messages = round.apart(1, 64, LENGTH_MAX);
            assert_eq!(format!("{messages:?}"), format!("{:?}", round.apart(1, 64, LENGTH_MAX)));
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for message in &messages {
                let spread: u32 = message.elements.iter().map(|span| span.length).sum();
                assert_eq!(spread, message.length);
                taken.push((message.at, message.at + u64::from(message.length)));
                assert!(message.at >= data.0 && message.at + u64::from(message.length) <= data.1);
            }
            taken.sort_unstable();
            assert!(taken.windows(2).all(|pair| pair[0].1 <= pair[1].0), "round {number}");
            assert!(messages.last().is_some_and(|last| last.signalled));
        }
    }

    #[test]
    fn lengths_reach_from_nothing_to_the_longest() {
        let mut rng = Rng::new(5);
        let drawn: Vec<u32> = (0..4000).map(|_| length(&mut rng, LENGTH_MAX)).collect();
        assert!(drawn.contains(&0) && drawn.contains(&1));
        assert!(drawn.iter().any(|&length| length > LENGTH_MAX / 2));
        assert!(drawn.iter().all(|&length| length <= LENGTH_MAX));
        assert!(drawn.iter().filter(|&&length| length < 4096).count() > 1000);
    }
}
