//! Acknowledgements on their way, each as small as it is: the value has room for all the blocks and unit reports that there
//! may ever be, a kilobyte, of which most use a tenth. Places are used again.

use alloc::vec::Vec;

use srdma_seams::{ConnectionId, PathId, Qpn, TransmitId};
use srdma_wire::{Ack, AckBlock, AckUnit, Space, ACK_BLOCKS_MAX, ACK_UNITS_MAX};

/// Words of an ACK without blocks and units, of a block, and of a unit.
const HEAD_WORDS: usize = 8;
const BLOCK_WORDS: usize = 2;
const UNIT_WORDS: usize = 3;
/// Sizes of places; the last fits any ACK.
const SIZES: [usize; 4] =
    [16, 32, 64, HEAD_WORDS + BLOCK_WORDS * ACK_BLOCKS_MAX + UNIT_WORDS * ACK_UNITS_MAX];

/// Where an ACK is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckPlace {
    size: u8,
    place: u32,
}

/// Places of one size.
#[derive(Debug, Default)]
struct Shelf {
    words: Vec<u32>,
    free: Vec<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    shelves: [Shelf; SIZES.len()],
}

impl Acks {
    /// Keeps a copy of `ack`.
    pub fn keep(&mut self, ack: &Ack) -> AckPlace {
        let (blocks, units) = (ack.blocks(), ack.units());
        let needed = HEAD_WORDS + BLOCK_WORDS * blocks.len() + UNIT_WORDS * units.len();
        let size = SIZES.iter().position(|&words| words >= needed).unwrap_or(SIZES.len() - 1);
        let (words, shelf) = (SIZES[size], &mut self.shelves[size]);
        let place = shelf.free.pop().unwrap_or_else(|| {
            shelf.words.resize(shelf.words.len() + words, 0);
            (shelf.words.len() / words) as u32 - 1
        });
        let own = &mut shelf.words[place as usize * words..][..words];
        let (head, rest) = own.split_at_mut(HEAD_WORDS);
        let connection = ack.connection.0;
        let counts = (blocks.len() as u32) << 8 | units.len() as u32;
        head.copy_from_slice(&[
            ack.dest_qpn.0,
            connection as u32,
            (connection >> 32) as u32,
            u32::from(ack.path.0) << 16 | ack.space as u32,
            ack.cumulative,
            ack.landed,
            ack.free_bytes,
            counts,
        ]);
        let (for_blocks, for_units) = rest.split_at_mut(BLOCK_WORDS * blocks.len());
        for (words, block) in for_blocks.chunks_exact_mut(BLOCK_WORDS).zip(blocks) {
            words.copy_from_slice(&[block.first, block.end]);
        }
        for (words, unit) in for_units.chunks_exact_mut(UNIT_WORDS).zip(units) {
            let small = u32::from(unit.path.0) << 16 | u32::from(unit.packets) << 8 | u32::from(unit.ce);
            words.copy_from_slice(&[unit.transmit.0, small, unit.delay_us.into()]);
        }
        AckPlace { size: size as u8, place }
    }

    /// The ACK at `at` becomes `ack`, of which nothing else is touched than what it says; its place is free.
    pub fn take(&mut self, at: AckPlace, ack: &mut Ack) {
        let (words, shelf) = (SIZES[usize::from(at.size)], &self.shelves[usize::from(at.size)]);
        let own = &shelf.words[at.place as usize * words..][..words];
        let (head, rest) = own.split_at(HEAD_WORDS);
        ack.dest_qpn = Qpn(head[0]);
        ack.connection = ConnectionId(u64::from(head[2]) << 32 | u64::from(head[1]));
        ack.path = PathId((head[3] >> 16) as u16);
        ack.space = if head[3] & 1 == 0 { Space::Request } else { Space::Response };
        (ack.cumulative, ack.landed, ack.free_bytes) = (head[4], head[5], head[6]);
        (ack.block_count, ack.unit_count) = ((head[7] >> 8) as u8, head[7] as u8);
        let (for_blocks, for_units) = rest.split_at(BLOCK_WORDS * usize::from(ack.block_count));
        for (block, words) in ack.blocks.iter_mut().zip(for_blocks.chunks_exact(BLOCK_WORDS)) {
            *block = AckBlock { first: words[0], end: words[1] };
        }
        let count = usize::from(ack.unit_count);
        for (unit, words) in ack.units.iter_mut().zip(for_units.chunks_exact(UNIT_WORDS)).take(count) {
            *unit = AckUnit {
                transmit: TransmitId(words[0]),
                path: PathId((words[1] >> 16) as u16),
                packets: (words[1] >> 8) as u8,
                ce: words[1] as u8,
                delay_us: words[2] as u16,
            };
        }
        self.free(at);
    }

    /// Nobody will look at the ACK at `at`.
    pub fn free(&mut self, at: AckPlace) {
        self.shelves[usize::from(at.size)].free.push(at.place);
    }

    /// An ACK that says nothing, to be filled by [`Acks::take`].
    pub const fn blank() -> Ack {
        Ack {
            dest_qpn: Qpn(0),
            connection: ConnectionId(0),
            path: PathId(0),
            space: Space::Request,
            cumulative: 0,
            landed: 0,
            free_bytes: 0,
            block_count: 0,
            blocks: [AckBlock { first: 0, end: 0 }; ACK_BLOCKS_MAX],
            unit_count: 0,
            units: [AckUnit { transmit: TransmitId(0), path: PathId(0), packets: 0, ce: 0, delay_us: 0 };
                ACK_UNITS_MAX],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_seams::Rng;

    fn any(rng: &mut Rng) -> Ack {
        let (block_count, unit_count) = (rng.below(33) as u8, rng.below(65) as u8);
        let mut ack = Ack {
            dest_qpn: Qpn(rng.next_u32()),
            connection: ConnectionId(rng.next_u64()),
            path: PathId(rng.next_u32() as u16),
            space: if rng.below(2) == 0 { Space::Request } else { Space::Response },
            cumulative: rng.next_u32(),
            landed: rng.next_u32(),
            free_bytes: rng.next_u32(),
            block_count,
            unit_count,
            ..Acks::blank()
        };
        for block in ack.blocks.iter_mut().take(block_count.into()) {
            *block = AckBlock { first: rng.next_u32(), end: rng.next_u32() };
        }
        for unit in ack.units.iter_mut().take(unit_count.into()) {
            let [packets, ce] = [0; 2].map(|_: i32| rng.next_u32() as u8);
            let (transmit, path) = (TransmitId(rng.next_u32()), PathId(rng.next_u32() as u16));
            *unit = AckUnit { transmit, path, packets, ce, delay_us: rng.next_u32() as u16 };
        }
        ack
    }

    #[test]
    fn what_is_kept_is_what_is_taken() {
        let mut rng = Rng::stream(1, "acks", 0);
        let (mut acks, mut kept) = (Acks::default(), Vec::new());
        for _ in 0..5_000 {
            if rng.below(3) > 0 || kept.is_empty() {
                let ack = any(&mut rng);
                kept.push((acks.keep(&ack), ack));
                continue;
            }
            let (at, wanted) = kept.swap_remove(rng.below(kept.len() as u64) as usize);
            let mut found = Acks::blank();
            acks.take(at, &mut found);
            assert_eq!(found, wanted);
        }
    }
}
