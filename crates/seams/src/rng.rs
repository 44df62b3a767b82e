//! Seeded chance. One labelled stream per purpose, so that one more draw here does not shift another's.

/// xoshiro256++ (Blackman and Vigna, 2019), seeded through SplitMix64.
///
/// Good enough to spread packets and to drive tests; not for secrets. Connection ids, which an
/// off-path attacker must not guess, are drawn by the driver from the operating system and passed in.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// A stream that depends on `seed` alone.
    pub fn new(seed: u64) -> Rng {
        let mut s = seed;
        Rng { state: [splitmix(&mut s), splitmix(&mut s), splitmix(&mut s), splitmix(&mut s)] }
    }

    /// The stream called `label` number `id` under `seed`: independent of every other label and id.
    pub fn stream(seed: u64, label: &str, id: u64) -> Rng {
        let mut mixed = seed ^ 0x243f_6a88_85a3_08d3;
        for byte in label.bytes() {
            mixed = (mixed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut s = mixed;
        let first = splitmix(&mut s);
        Rng::new(first ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number in `0..bound`; 0 if `bound` is 0. Bias is below 2⁻³² for bounds under 2³².
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `p` (parts per million).
    pub fn chance_ppm(&mut self, p: u32) -> bool {
        p != 0 && self.below(1_000_000) < u64::from(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_label_repeat_and_others_differ() {
        let draw = |seed, label, id| Rng::stream(seed, label, id).next_u64();
        assert_eq!(draw(1, "spray", 7), draw(1, "spray", 7));
        assert_ne!(draw(1, "spray", 7), draw(1, "spray", 8));
        assert_ne!(draw(1, "spray", 7), draw(1, "fault", 7));
        assert_ne!(draw(1, "spray", 7), draw(2, "spray", 7));
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut rng = Rng::new(42);
        let mut hits = [0u32; 128];
        for _ in 0..128_000 {
            hits[rng.below(128) as usize] += 1;
        }
        assert!(hits.iter().all(|&h| (800..1200).contains(&h)), "{hits:?}");
        assert_eq!(rng.below(0), 0);
    }
}
