//! What is to be moved, and how it is cut for the kernel: the same for every mover.

/// Slices per call (UIO_MAXIOV, readv(2)), less one for a tail that is split off.
const SLICES_MAX: usize = 1023;
/// Transfers shorter than this are messages, or ends of messages, rather than parts of a stream.
const STREAM_BYTES_MIN: usize = 1024;
/// Bytes of a word, which a poller may read at once.
pub(crate) const WORD_BYTES: usize = 8;

/// One copy between a buffer of ours, which is there, and memory of the program, which may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Address of our buffer.
    pub ours: usize,
    /// Address of the program's memory.
    pub theirs: u64,
    /// Bytes.
    pub length: usize,
    /// Its last word may be polled: it appears after everything before it in the batch. Transfers of less
    /// than 1 KiB, and those whose target the next does not continue, are always treated so.
    pub ordered: bool,
}

impl Transfer {
    /// From these bytes to the program's memory, for `write` of a mover.
    pub fn out(ours: &[u8], theirs: u64) -> Transfer {
        Transfer { ours: ours.as_ptr() as usize, theirs, length: ours.len(), ordered: false }
    }

    /// From the program's memory to these bytes, for `read` of a mover.
    pub fn back(ours: &mut [u8], theirs: u64) -> Transfer {
        Transfer { ours: ours.as_mut_ptr() as usize, theirs, length: ours.len(), ordered: false }
    }

    /// See [`Transfer::ordered`].
    pub fn ordered(self) -> Transfer {
        Transfer { ordered: true, ..self }
    }

    fn must_end_last(&self) -> bool {
        self.ordered || self.length < STREAM_BYTES_MIN
    }

    /// Where the program's byte number `offset` lies, if the rest from there fits the address space.
    pub(crate) fn theirs_at(&self, offset: usize) -> Option<usize> {
        let start = usize::try_from(self.theirs).ok()?;
        start.checked_add(self.length)?;
        Some(start + offset)
    }
}

/// Memory that should be there is not mapped, or protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory of transfer {index} is not mapped or is protected")]
pub struct Fault {
    /// Which transfer of the batch. Those before it are complete; it and those after it are not, or only
    /// in part.
    pub index: usize,
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToTheirs,
    FromTheirs,
}

/// How far a batch has come.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    /// The transfer that the next byte belongs to.
    pub(crate) index: usize,
    /// Bytes of it that are done.
    pub(crate) offset: usize,
}

impl Position {
    /// Steps over transfers that are complete; the one to go on with, if any.
    pub(crate) fn settle<'a>(&mut self, batch: &'a [Transfer]) -> Option<&'a Transfer> {
        while self.offset == batch.get(self.index)?.length {
            *self = Position { index: self.index + 1, offset: 0 };
        }
        batch.get(self.index)
    }

    /// Steps over so many bytes.
    pub(crate) fn advance(&mut self, batch: &[Transfer], mut bytes: usize) {
        while let Some(transfer) = self.settle(batch).filter(|_| bytes > 0) {
            let step = bytes.min(transfer.length - self.offset);
            self.offset += step;
            bytes -= step;
        }
    }
}

/// A reused list of slices for the kernel.
#[derive(Default)]
pub(crate) struct Slices(pub(crate) Vec<libc::iovec>);

// SAFETY: the addresses are written right before the kernel reads them and never looked at otherwise.
unsafe impl Send for Slices {}
// SAFETY: a shared reference gives no access to them.
unsafe impl Sync for Slices {}

impl Slices {
    /// Lists the program's side of what one call can take from `at` on; how many bytes that is.
    ///
    /// Stores of one string instruction may become visible in any order (Intel SDM volume 3, 9.2.4), those
    /// of the next come after them: a slice of its own is a barrier. So the last word of an ordered
    /// transfer is one.
    pub(crate) fn list(&mut self, batch: &[Transfer], mut at: Position, bytes_max: usize) -> usize {
        let slices = &mut self.0;
        slices.clear();
        let (mut bytes, mut joinable_at) = (0, None);
        while let Some(transfer) = at.settle(batch) {
            let length = (transfer.length - at.offset).min(bytes_max - bytes);
            let Some(address) = transfer.theirs_at(at.offset) else { break };
            if length == 0 || slices.len() + 2 > SLICES_MAX {
                break;
            }
            let ends = at.offset + length == transfer.length;
            let ordered = ends && (transfer.must_end_last() || !is_continued(batch, at.index));
            let tail = if ordered { (address + length - 1) % WORD_BYTES + 1 } else { 0 };
            let front = length.saturating_sub(tail);
            if front > 0 {
                match slices.last_mut() {
                    Some(last) if joinable_at == Some(address) => last.iov_len += front,
                    _ => slices.push(slice(address, front)),
                }
            }
            if front < length {
                slices.push(slice(address + front, length - front));
            }
            joinable_at = if ordered { None } else { address.checked_add(length) };
            at.offset += length;
            bytes += length;
        }
        bytes
    }

    /// Makes one of neighbours.
    pub(crate) fn join(&mut self) {
        self.0.dedup_by(|next, last| {
            let adjoins = last.iov_base as usize + last.iov_len == next.iov_base as usize;
            if adjoins {
                last.iov_len += next.iov_len;
            }
            adjoins
        });
    }
}

/// Whether the target of the transfer after number `index` adjoins its target.
fn is_continued(batch: &[Transfer], index: usize) -> bool {
    let next = batch[index + 1..].iter().find(|next| next.length != 0);
    next.is_some_and(|next| batch[index].theirs.checked_add(batch[index].length as u64) == Some(next.theirs))
}

/// Calls `visit(transfer, offset within it, bytes before it, its bytes)` for the `bytes` from `at` on.
pub(crate) fn each_part(
    batch: &[Transfer],
    mut at: Position,
    bytes: usize,
    mut visit: impl FnMut(&Transfer, usize, usize, usize),
) {
    let mut done = 0;
    while let Some(transfer) = at.settle(batch).filter(|_| done < bytes) {
        let length = (transfer.length - at.offset).min(bytes - done);
        visit(transfer, at.offset, done, length);
        at.offset += length;
        done += length;
    }
}

pub(crate) fn slice(address: usize, length: usize) -> libc::iovec {
    libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 1 << 16;

    /// What one call would be told to fill, as (offset from `BASE`, length).
    fn listed(batch: &[(usize, usize, bool)]) -> Vec<(usize, usize)> {
        const BASE: usize = 0x10_0000;
        let batch: Vec<Transfer> = batch
            .iter()
            .map(|&(at, length, ordered)| Transfer {
                ours: BASE,
                theirs: (BASE + at) as u64,
                length,
                ordered,
            })
            .collect();
        let mut theirs = Slices::default();
        let bytes = theirs.list(&batch, Position { index: 0, offset: 0 }, BYTES_MAX);
        let slices = theirs.0.iter();
        let listed: Vec<_> = slices.map(|slice| (slice.iov_base as usize - BASE, slice.iov_len)).collect();
        assert_eq!(bytes, listed.iter().map(|slice| slice.1).sum::<usize>());
        listed
    }

    #[test]
    fn streams_are_joined_and_what_may_be_polled_comes_last() {
        for (name, batch, expected) in [
            ("a word", &[(0, 8, false)][..], &[(0, 8)][..]),
            ("a byte", &[(5, 1, false)], &[(5, 1)]),
            ("one message", &[(0, 64, false)], &[(0, 56), (56, 8)]),
            ("an odd end", &[(0, 61, false)], &[(0, 56), (56, 5)]),
            ("a stream", &[(0, 1400, false), (1400, 1400, false)], &[(0, 2792), (2792, 8)]),
            (
                "the end of a message within a stream",
                &[(0, 1400, true), (1400, 1400, false)],
                &[(0, 1392), (1392, 8), (1400, 1392), (2792, 8)],
            ),
            ("adjoining messages", &[(0, 16, false), (16, 16, false)], &[(0, 8), (8, 8), (16, 8), (24, 8)]),
            (
                "messages apart",
                &[(0, 2000, false), (4000, 0, false), (4000, 2000, false)],
                &[(0, 1992), (1992, 8), (4000, 1992), (5992, 8)],
            ),
            ("more than one call takes", &[(0, 40_000, false), (40_000, 40_000, false)], &[(0, BYTES_MAX)]),
        ] {
            assert_eq!(listed(batch), expected, "{name}");
        }
    }
}
