//! CRC-32C (Castagnoli, RFC 3720 §12.1 and appendix B.4): polynomial 0x1EDC6F41, bits reflected,
//! start and final XOR of all ones.
//!
//! Sixteen bytes per step from constant tables ("slicing-by-16", after Kounavis and Berry 2005). The
//! x86 and Arm instructions would be faster still, but calling them takes `unsafe`, and at the length
//! of a packet header the tables cost some 20 ns.

/// The polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]` is the remainder of byte `b` followed by `k` zero bytes.
static TABLES: [[u32; 256]; 16] = tables();

#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // evaluated at compile time
const fn tables() -> [[u32; 256]; 16] {
    let mut tables = [[0u32; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 1 { (remainder >> 1) ^ POLYNOMIAL } else { remainder >> 1 };
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 16 {
        let mut byte = 0;
        while byte < 256 {
            let shorter = tables[zeros - 1][byte];
            tables[zeros][byte] = (shorter >> 8) ^ tables[0][(shorter & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// What a byte at each of `places` contributes to the CRC of `length` bytes: the XOR of two CRCs of messages of
/// that length is the XOR of the contributions of the bytes in which they differ.
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // evaluated at compile time
pub(crate) const fn contributions<const N: usize>(length: usize, places: [usize; N]) -> [[u32; 256]; N] {
    let mut all = [[0u32; 256]; N];
    let mut place = 0;
    while place < N {
        // Of a byte with one bit first; every other byte is a sum of those.
        let mut bit = 0;
        while bit < 8 {
            let mut remainder = TABLES[0][1 << bit];
            let mut zeros = length - places[place] - 1;
            while zeros > 0 {
                remainder = (remainder >> 8) ^ TABLES[0][(remainder & 0xff) as usize];
                zeros -= 1;
            }
            all[place][1 << bit] = remainder;
            bit += 1;
        }
        let mut byte = 1;
        while byte < 256 {
            let lowest = byte & (!byte + 1);
            all[place][byte] = all[place][byte ^ lowest] ^ all[place][lowest];
            byte += 1;
        }
        place += 1;
    }
    all
}

/// Remainder of `byte` with `ZEROS` bytes after it. A `u8` index into 256 entries cannot be out of
/// bounds, so no check remains.
#[inline(always)]
#[allow(clippy::indexing_slicing)] // ZEROS is constant and below 16, a u8 is below 256
fn look_up<const ZEROS: usize>(byte: u8) -> u32 {
    TABLES[ZEROS][byte as usize]
}

/// A CRC-32C being computed over bytes that do not lie together.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(u32);

impl Default for Crc32c {
    fn default() -> Self {
        Crc32c(u32::MAX)
    }
}

impl Crc32c {
    /// Takes `bytes` in.
    #[inline]
    #[must_use]
    pub fn update(self, bytes: &[u8]) -> Crc32c {
        let mut state = self.0;
        let mut rest = bytes;
        while let Some((chunk, after)) = rest.split_first_chunk::<16>() {
            state = step_16(state, chunk);
            rest = after;
        }
        if let Some((chunk, after)) = rest.split_first_chunk::<8>() {
            state = step_8(state, chunk);
            rest = after;
        }
        for &byte in rest {
            state = (state >> 8) ^ look_up::<0>(state as u8 ^ byte);
        }
        Crc32c(state)
    }

    /// The CRC of everything taken in.
    #[inline]
    pub fn finish(self) -> u32 {
        !self.0
    }
}

#[inline(always)]
fn step_8(state: u32, chunk: &[u8; 8]) -> u32 {
    let word = u64::from_le_bytes(*chunk) ^ u64::from(state);
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (look_up::<7>(a) ^ look_up::<6>(b) ^ look_up::<5>(c) ^ look_up::<4>(d))
        ^ (look_up::<3>(e) ^ look_up::<2>(f) ^ look_up::<1>(g) ^ look_up::<0>(h))
}

#[inline(always)]
fn step_16(state: u32, chunk: &[u8; 16]) -> u32 {
    let word = u128::from_le_bytes(*chunk) ^ u128::from(state);
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = word.to_le_bytes();
    // The bytes that wait for `state` come last, so that the others are looked up meanwhile.
    let late = (look_up::<8>(h) ^ look_up::<9>(g) ^ look_up::<10>(f) ^ look_up::<11>(e))
        ^ (look_up::<7>(i) ^ look_up::<6>(j) ^ look_up::<5>(k) ^ look_up::<4>(l))
        ^ (look_up::<3>(m) ^ look_up::<2>(n) ^ look_up::<1>(o) ^ look_up::<0>(p));
    late ^ ((look_up::<15>(a) ^ look_up::<14>(b)) ^ (look_up::<13>(c) ^ look_up::<12>(d)))
}

/// CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    Crc32c::default().update(bytes).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_hold() {
        let rising: [u8; 32] = core::array::from_fn(|i| i as u8);
        let falling: [u8; 32] = core::array::from_fn(|i| 31 - i as u8);
        let vectors: [(&[u8], u32); 6] = [
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (&falling, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ];
        for (bytes, expected) in vectors {
            assert_eq!(crc32c(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn every_length_and_cut_equals_the_bit_by_bit_definition() {
        let bytes: [u8; 100] = core::array::from_fn(|i| (i * 37 + 11) as u8);
        for length in 0..=bytes.len() {
            let mut slow = u32::MAX;
            for &byte in &bytes[..length] {
                slow ^= u32::from(byte);
                for _ in 0..8 {
                    slow = if slow & 1 == 1 { (slow >> 1) ^ POLYNOMIAL } else { slow >> 1 };
                }
            }
            for cut in 0..=length {
                let fast = Crc32c::default().update(&bytes[..cut]).update(&bytes[cut..length]);
                assert_eq!(fast.finish(), !slow, "length {length}, cut {cut}");
            }
        }
    }
}
