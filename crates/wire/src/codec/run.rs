//! Headers of packets that carry one part of a message after the other: written once, then continued.
//!
//! Between two neighbours only the packet number, the unit index, the offset and the address change. A CRC
//! is linear: the CRC of two headers' XOR, with neither start value nor final XOR, is the XOR of their
//! CRCs. So the check of each header is that of the first, XOR what the changed bytes contribute, each by
//! one look-up that depends on its place.

use super::data::{self, DATA_HEADER_BYTES};
use super::error::EmitError;
use crate::crc::contributions;
use crate::packet::{Data, Message, Op, UnitTag};

/// Places of the bytes that change from packet to packet: the lowest of the packet number, the unit index, the
/// lower three of the offset and of the address.
const OFTEN: [usize; 8] = [11, 26, 45, 46, 47, 53, 54, 55];
/// Places of those that only a carry changes: the rest of the packet number (its highest byte lies apart), of
/// the offset and of the address.
const SELDOM: [usize; 9] = [25, 9, 10, 44, 48, 49, 50, 51, 52];

/// What a byte at each of the places contributes to the check of a header without extensions.
static OFTEN_CONTRIBUTE: [[u32; 256]; OFTEN.len()] = contributions(DATA_HEADER_BYTES, OFTEN);
static SELDOM_CONTRIBUTE: [[u32; 256]; SELDOM.len()] = contributions(DATA_HEADER_BYTES, SELDOM);

impl Data {
    /// The header of the packet `steps` after this one, if each of them carries `payload_bytes` of this
    /// message. `None` where a number would overflow.
    #[inline]
    pub fn continued(&self, steps: u8, payload_bytes: u32) -> Option<Data> {
        let bytes = payload_bytes.checked_mul(steps.into())?;
        let mut next = *self;
        next.psn = self.psn.wrapping_add(steps.into());
        next.unit = UnitTag { index: self.unit.index.checked_add(steps)?, ..self.unit };
        next.message = Message { offset: self.message.offset.checked_add(bytes)?, ..self.message };
        if let Op::Write { address, .. } | Op::WriteImm { address, .. } = &mut next.op {
            *address = address.wrapping_add(bytes.into());
        }
        Some(next)
    }
}

/// Writes the headers of `packets` packets one after the other to the front of `out`: that of `first`, and
/// those that continue it, where each packet but the last carries `payload_bytes`. Returns the length of one
/// header in bytes. The same bytes as [`emit`](super::emit) would write for each.
#[inline]
pub fn emit_run(first: &Data, packets: u8, payload_bytes: u32, out: &mut [u8]) -> Result<usize, EmitError> {
    let bytes = data::emit(first, out)?;
    if packets < 2 {
        return Ok(bytes);
    }
    if bytes != DATA_HEADER_BYTES {
        return Err(EmitError::Field("extension of a run"));
    }
    // Those between cannot be out of range if neither end is.
    let last = packets.wrapping_sub(1);
    let end = first.continued(last, payload_bytes).ok_or(EmitError::Field("run"))?;
    data::validate(&end)?;
    let (front, rest) = out.split_first_chunk_mut::<DATA_HEADER_BYTES>().ok_or(EmitError::NoRoom)?;
    let first = Moving::read(front);
    let mut at = first;
    let mut left = rest.chunks_exact_mut(DATA_HEADER_BYTES);
    for _ in 0..last {
        let place = left.next().and_then(|place| place.first_chunk_mut()).ok_or(EmitError::NoRoom)?;
        *place = *front;
        at = at.step(payload_bytes, moves_address(&end.op));
        at.write(place, first.check ^ first.difference(&at));
    }
    Ok(bytes)
}

/// How many of `headers` continue the first of them, bit for bit as [`emit_run`] would have written them: its check is known
/// to be right, its operation is `op`, and each packet carries `payload_bytes`.
///
/// That is said without writing what is expected: what moves is compared as numbers, all else as words.
#[inline]
pub(super) fn continuing<'a>(
    payload_bytes: u32,
    op: &Op,
    mut headers: impl Iterator<Item = &'a Header>,
) -> u8 {
    let Some(mut before) = headers.next() else { return 0 };
    let (mut here, moves_address) = (Moving::read(before), moves_address(op));
    let mut count = 0u8;
    for header in headers {
        let next = here.step(payload_bytes, moves_address);
        let next = Moving { check: here.check ^ here.difference(&next), ..next };
        if count == u8::MAX || Moving::read(header) != next || !differ_in_moving_only(before, header) {
            break;
        }
        (before, here, count) = (header, next, count.wrapping_add(1));
    }
    count
}

/// Bytes of a header that no [`Moving`] field covers, as a mask.
const STANDING: Header = {
    let mut mask = [0xff; DATA_HEADER_BYTES];
    [mask[25], mask[9], mask[10], mask[11], mask[26]] = [0; 5];
    [mask[20], mask[21], mask[22], mask[23]] = [0; 4];
    [mask[44], mask[45], mask[46], mask[47]] = [0; 4];
    [mask[48], mask[49], mask[50], mask[51], mask[52], mask[53], mask[54], mask[55]] = [0; 8];
    mask
};

#[inline(always)]
fn differ_in_moving_only(a: &Header, b: &Header) -> bool {
    let (a, _) = a.as_chunks::<8>();
    let (b, _) = b.as_chunks::<8>();
    let (mask, _) = STANDING.as_chunks::<8>();
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let differing = |sum, ((a, b), mask)| sum | (word(a) ^ word(b)) & word(mask);
    a.iter().zip(b).zip(mask).fold(0, differing) == 0
}

const fn moves_address(op: &Op) -> bool {
    matches!(op, Op::Write { .. } | Op::WriteImm { .. })
}

/// The fields that change, and the check of the header that they were read from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Moving {
    number: u32,
    index: u8,
    offset: u32,
    /// What lies in its place, if the operation has none.
    address: u64,
    check: u32,
}

/// A header without extensions.
pub(super) type Header = [u8; DATA_HEADER_BYTES];

impl Moving {
    /// The header that continues `header`, whose operation is `op` and whose packet carries `payload_bytes`.
    #[inline(always)]
    pub(super) fn next_header(header: &Header, payload_bytes: u32, op: &Op) -> Header {
        let here = Moving::read(header);
        let next = here.step(payload_bytes, moves_address(op));
        let mut following = *header;
        next.write(&mut following, here.check ^ here.difference(&next));
        following
    }

    #[inline(always)]
    fn read(h: &Header) -> Moving {
        Moving {
            number: u32::from_be_bytes([h[25], h[9], h[10], h[11]]),
            index: h[26],
            offset: u32::from_be_bytes([h[44], h[45], h[46], h[47]]),
            address: u64::from_be_bytes([h[48], h[49], h[50], h[51], h[52], h[53], h[54], h[55]]),
            check: u32::from_be_bytes([h[20], h[21], h[22], h[23]]),
        }
    }

    /// Those of the next header.
    #[inline(always)]
    fn step(self, payload_bytes: u32, moves_address: bool) -> Moving {
        let advance = if moves_address { u64::from(payload_bytes) } else { 0 };
        Moving {
            number: self.number.wrapping_add(1),
            index: self.index.wrapping_add(1),
            offset: self.offset.wrapping_add(payload_bytes),
            address: self.address.wrapping_add(advance),
            check: self.check,
        }
    }

    /// What the check of `other`'s header differs in, if all other fields are the same.
    #[inline(always)]
    fn difference(&self, other: &Moving) -> u32 {
        let (number, offset) = (self.number ^ other.number, self.offset ^ other.offset);
        let address = self.address ^ other.address;
        let [n0, n1, n2, n3] = number.to_be_bytes();
        let [o0, o1, o2, o3] = offset.to_be_bytes();
        let [a0, a1, a2, a3, a4, a5, a6, a7] = address.to_be_bytes();
        let often = [n3, self.index ^ other.index, o1, o2, o3, a5, a6, a7];
        let carried = u64::from(number >> 8) | u64::from(offset >> 24) | address >> 24 != 0;
        let seldom = [n0, n1, n2, o0, a0, a1, a2, a3, a4];
        sum(&OFTEN_CONTRIBUTE, often) ^ if carried { sum(&SELDOM_CONTRIBUTE, seldom) } else { 0 }
    }

    #[inline(always)]
    fn write(&self, h: &mut Header, check: u32) {
        [h[25], h[9], h[10], h[11]] = self.number.to_be_bytes();
        [h[20], h[21], h[22], h[23]] = check.to_be_bytes();
        h[26] = self.index;
        [h[44], h[45], h[46], h[47]] = self.offset.to_be_bytes();
        [h[48], h[49], h[50], h[51], h[52], h[53], h[54], h[55]] = self.address.to_be_bytes();
    }
}

#[inline(always)]
#[allow(clippy::indexing_slicing)] // a u8 is below 256
fn sum<const N: usize>(contributions: &[[u32; 256]; N], bytes: [u8; N]) -> u32 {
    contributions.iter().zip(bytes).fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte)])
}
