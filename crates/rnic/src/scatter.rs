//! Scatter-gather lists as kept by a queue pair, and the parts of them that one packet touches.

use alloc::vec::Vec;

use srdma_abi::Sge;

const FEW: usize = 2;

/// The elements of one work request. One or two lie inside; more take a vector, which is handed back
/// to a store when the request is done, so that steady traffic allocates nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct SgeList {
    few: [Sge; FEW],
    many: Vec<Sge>,
    count: u8,
}

impl SgeList {
    /// Copies `sges`, taking a vector from `spare` if they are many.
    pub fn new(sges: &[Sge], spare: &mut Vec<Vec<Sge>>) -> SgeList {
        let mut list = SgeList { count: sges.len().min(255) as u8, ..SgeList::default() };
        if sges.len() <= FEW {
            list.few[..sges.len()].copy_from_slice(sges);
        } else {
            list.many = spare.pop().unwrap_or_default();
            list.many.clear();
            list.many.extend_from_slice(sges);
        }
        list
    }

    /// Gives the vector back.
    pub fn recycle(self, spare: &mut Vec<Vec<Sge>>) {
        if self.many.capacity() > 0 && spare.len() < 64 {
            spare.push(self.many);
        }
    }

    /// The elements.
    pub fn as_slice(&self) -> &[Sge] {
        match usize::from(self.count) {
            count if count <= FEW => &self.few[..count],
            _ => &self.many,
        }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.as_slice().iter().map(|sge| u64::from(sge.length)).sum()
    }

    /// The parts of elements that bytes `[offset, offset + length)` of the message fall on, in order.
    pub fn parts(&self, offset: u32, length: u32) -> Parts<'_> {
        Parts { rest: self.as_slice(), skip: u64::from(offset), left: u64::from(length) }
    }
}

/// See [`SgeList::parts`].
pub(crate) struct Parts<'a> {
    rest: &'a [Sge],
    skip: u64,
    left: u64,
}

impl Iterator for Parts<'_> {
    type Item = Sge;

    fn next(&mut self) -> Option<Sge> {
        while self.left > 0 {
            let (first, rest) = self.rest.split_first()?;
            self.rest = rest;
            let length = u64::from(first.length);
            if self.skip >= length {
                self.skip -= length;
                continue;
            }
            let take = (length - self.skip).min(self.left);
            let address = first.address.wrapping_add(self.skip);
            self.skip = 0;
            self.left -= take;
            return Some(Sge { address, length: take as u32, lkey: first.lkey });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(lengths: &[u32]) -> SgeList {
        let sges: Vec<Sge> = lengths
            .iter()
            .enumerate()
            .map(|(i, &length)| Sge { address: 1000 * (i as u64 + 1), length, lkey: i as u32 })
            .collect();
        SgeList::new(&sges, &mut Vec::new())
    }

    #[test]
    fn parts_follow_the_elements_and_skip_empty_ones() {
        type Case<'a> = (&'a [u32], u32, u32, &'a [(u64, u32)]);
        let cases: &[Case<'_>] = &[
            (&[10], 0, 10, &[(1000, 10)]),
            (&[10], 4, 3, &[(1004, 3)]),
            (&[10, 0, 10], 5, 10, &[(1005, 5), (3000, 5)]),
            (&[1, 2, 3, 4], 1, 6, &[(2000, 2), (3000, 3), (4000, 1)]),
            (&[1, 2, 3, 4], 6, 9, &[(4000, 4)]),
            (&[], 0, 5, &[]),
            (&[5], 0, 0, &[]),
        ];
        for (lengths, offset, length, want) in cases {
            let got: Vec<(u64, u32)> =
                list(lengths).parts(*offset, *length).map(|sge| (sge.address, sge.length)).collect();
            assert_eq!(&got, want, "{lengths:?} {offset} {length}");
        }
    }

    #[test]
    fn a_vector_comes_back_and_is_used_again() {
        let mut spare = Vec::new();
        let many = [Sge { address: 1, length: 1, lkey: 1 }; 5];
        let list = SgeList::new(&many, &mut spare);
        assert_eq!((list.as_slice().len(), list.bytes()), (5, 5));
        list.recycle(&mut spare);
        assert_eq!(spare.len(), 1);
        let again = SgeList::new(&many[..3], &mut spare);
        assert_eq!((spare.len(), again.as_slice().len()), (0, 3));
    }
}
