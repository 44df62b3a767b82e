//! Bytes that say where they belong: each depends on the message (its tag) and on its position there.

/// Increment of SplitMix64: odd, so that no two positions of a message share a word's seed.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: u64 = 8;

/// The tag of message `message` that queue pair `qp` carries under `seed` in round `round` of `label`.
pub fn tag(seed: u64, label: &str, round: u64, qp: usize, message: usize) -> u64 {
    let mixed = label.bytes().fold(seed, |state, byte| mix(state ^ u64::from(byte)).wrapping_add(STEP));
    [round, qp as u64, message as u64].iter().fold(mixed, |state, part| mix(state ^ part).wrapping_add(STEP))
}

/// Writes the bytes of message `tag` from its position `from` on.
pub fn fill(tag: u64, from: u64, out: &mut [u8]) {
    let into_word = (from % WORD) as usize;
    let head = if into_word == 0 { 0 } else { (WORD as usize - into_word).min(out.len()) };
    let (first, rest) = out.split_at_mut(head);
    let mut index = from / WORD;
    if head > 0 {
        first.copy_from_slice(&word(tag, index)[into_word..into_word + head]);
        index += 1;
    }
    let mut words = rest.chunks_exact_mut(WORD as usize);
    for chunk in &mut words {
        chunk.copy_from_slice(&word(tag, index));
        index += 1;
    }
    let tail = words.into_remainder();
    let length = tail.len();
    tail.copy_from_slice(&word(tag, index)[..length]);
}

fn word(tag: u64, index: u64) -> [u8; 8] {
    mix(tag.wrapping_add(index.wrapping_mul(STEP))).to_le_bytes()
}

fn mix(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(0xe703_7ed1_a0b4_28db);
    x ^= x >> 29;
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_the_same_however_it_is_cut() {
        let mut whole = [0u8; 100];
        fill(7, 0, &mut whole);
        for from in 0..40usize {
            for length in 0..40usize {
                let mut part = vec![0u8; length];
                fill(7, from as u64, &mut part);
                assert_eq!(part, whole[from..from + length], "{length} bytes from {from}");
            }
        }
    }

    #[test]
    fn messages_rounds_and_queue_pairs_differ() {
        let base = tag(1, "write", 2, 3, 4);
        for other in [
            tag(2, "write", 2, 3, 4),
            tag(1, "read", 2, 3, 4),
            tag(1, "write", 3, 3, 4),
            tag(1, "write", 2, 4, 4),
            tag(1, "write", 2, 3, 5),
        ] {
            let (mut a, mut b) = ([0u8; 64], [0u8; 64]);
            fill(base, 0, &mut a);
            fill(other, 0, &mut b);
            let equal = a.iter().zip(&b).filter(|(a, b)| a == b).count();
            assert!(equal < 16, "{equal} of 64 bytes are equal");
        }
    }
}
