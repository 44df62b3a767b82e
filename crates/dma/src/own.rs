//! Memory of this very process, reached through the kernel.
//!
//! Bytes are first copied into a piece of staging memory, which is also an anonymous file, and then read
//! from that file into the program's memory with one `preadv` per 64 KiB ([`crate::staging`]). That is
//! faster than `process_vm_writev`, which pins every page it touches (64 bytes: 0.3 against 0.9 µs), and
//! sandboxes allow it. Where they do not, a pipe does the same in smaller steps ([`crate::pipe`]).

use crate::fork::OwnPid;
use crate::pipe::Pipe;
use crate::staging::{Moved, Staging, STAGING_BYTES};

/// Slices per call (UIO_MAXIOV, readv(2)), less one for a tail that is split off.
const SLICES_MAX: usize = 1023;
/// Transfers shorter than this are messages, or ends of messages, rather than parts of a stream.
const STREAM_BYTES_MIN: usize = 1024;
/// Bytes of a word, which a poller may read at once.
const WORD_BYTES: usize = 8;

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
    /// From these bytes to the program's memory, for [`OwnMemory::write`].
    pub fn out(ours: &[u8], theirs: u64) -> Transfer {
        Transfer { ours: ours.as_ptr() as usize, theirs, length: ours.len(), ordered: false }
    }

    /// From the program's memory to these bytes, for [`OwnMemory::read`].
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
    fn theirs_at(&self, offset: usize) -> Option<usize> {
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
enum Way {
    ToTheirs,
    FromTheirs,
}

/// How far a batch has come.
#[derive(Clone, Copy)]
struct Position {
    /// The transfer that the next byte belongs to.
    index: usize,
    /// Bytes of it that are done.
    offset: usize,
}

impl Position {
    /// Steps over transfers that are complete; the one to go on with, if any.
    fn settle<'a>(&mut self, batch: &'a [Transfer]) -> Option<&'a Transfer> {
        while self.offset == batch.get(self.index)?.length {
            *self = Position { index: self.index + 1, offset: 0 };
        }
        batch.get(self.index)
    }
}

/// Moves bytes within this process and never faults.
pub struct OwnMemory {
    pid: OwnPid,
    staging: Option<Staging>,
    pipe: Option<Pipe>,
    /// No staging memory can be had, or must be used.
    piped: bool,
    theirs: Slices,
}

/// A reused list of slices for the kernel.
struct Slices(Vec<libc::iovec>);

// SAFETY: the addresses are written right before the kernel reads them and never looked at otherwise.
unsafe impl Send for Slices {}
// SAFETY: a shared reference gives no access to them.
unsafe impl Sync for Slices {}

impl OwnMemory {
    /// A mover for this process. It opens what it needs when first used.
    ///
    /// # Safety
    /// Whoever holds it can change any byte of the process. The caller promises to hand it only
    /// addresses that the program has itself offered for such changes (registered memory), and buffers
    /// of its own that live through the call and, for [`OwnMemory::read`], are borrowed by nobody else.
    pub unsafe fn new() -> OwnMemory {
        OwnMemory { pid: OwnPid::new(), staging: None, pipe: None, piped: false, theirs: Slices(Vec::new()) }
    }

    /// Uses the pipe from now on, as in a sandbox that forbids anonymous files.
    pub fn use_pipe(&mut self) {
        self.piped = true;
    }

    /// Whether the descriptors in use still are what was opened, and not closed or replaced by the program. One system
    /// call, or two where there is no staging memory.
    pub fn is_intact(&self) -> bool {
        self.staging.as_ref().is_none_or(Staging::is_intact) && self.pipe.as_ref().is_none_or(Pipe::is_intact)
    }

    /// Lets go of descriptors that are not intact without closing anything: the numbers may be the program's.
    pub fn abandon(&mut self) {
        std::mem::forget((self.staging.take(), self.pipe.take()));
    }

    /// Copies `ours` to `theirs`, in order. Adjoining targets are joined, and one system call takes up to
    /// 64 KiB.
    pub fn write(&mut self, batch: &[Transfer]) -> Result<(), Fault> {
        self.transfer(batch, Way::ToTheirs)
    }

    /// Copies `theirs` to `ours`, in order.
    pub fn read(&mut self, batch: &[Transfer]) -> Result<(), Fault> {
        self.transfer(batch, Way::FromTheirs)
    }

    /// Replaces the 8 bytes at `address` (a multiple of 8) by what `operation` makes of them (`None`
    /// leaves them alone); answers the value before. The memory must be writable either way. Atomic
    /// against other calls that the caller serialises with this one, not against the program's own
    /// instructions (`IBV_ATOMIC_HCA`).
    pub fn atomic_u64(
        &mut self,
        address: u64,
        operation: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<u64, Fault> {
        let mut bytes = [0; WORD_BYTES];
        self.read(&[Transfer::back(&mut bytes, address)])?;
        let before = u64::from_ne_bytes(bytes);
        match operation(before) {
            Some(after) => self.write(&[Transfer::out(&after.to_ne_bytes(), address)])?,
            None if is_writable(address) => {}
            None => return Err(Fault { index: 0 }),
        }
        Ok(before)
    }

    fn transfer(&mut self, batch: &[Transfer], way: Way) -> Result<(), Fault> {
        let mut at = Position { index: 0, offset: 0 };
        while let Some(transfer) = at.settle(batch) {
            let fault = Fault { index: at.index };
            let piped = self.piped || !self.open_staging();
            let mut moved = match (piped, way) {
                (true, _) => self.step(transfer, at.offset, way),
                (false, Way::ToTheirs) => self.pour(batch, at),
                (false, Way::FromTheirs) => self.draw(batch, at),
            }
            .ok_or(fault)?;
            while let Some(transfer) = at.settle(batch).filter(|_| moved > 0) {
                let step = moved.min(transfer.length - at.offset);
                at.offset += step;
                moved -= step;
            }
        }
        Ok(())
    }

    fn open_staging(&mut self) -> bool {
        let pid = self.pid.get();
        if self.staging.as_ref().is_none_or(|staging| staging.pid != pid) {
            self.staging = Staging::open(pid).ok();
            self.piped = self.staging.is_none();
        }
        !self.piped
    }

    /// One call of bytes to the program's memory, from `at` on.
    fn pour(&mut self, batch: &[Transfer], at: Position) -> Moved {
        let staged = self.list(batch, at);
        let staging = self.staging.as_mut()?;
        each_part(batch, at, staged, |transfer, offset, done, length| {
            let source = (transfer.ours + offset) as *const u8;
            // SAFETY: that our side is there is the promise made to `new`.
            unsafe { staging.load(done, source, length) }
        });
        // SAFETY: that the targets may be overwritten is the promise made to `new`.
        unsafe { staging.pour(&self.theirs.0) }
    }

    /// One call of bytes from the program's memory, from `at` on.
    fn draw(&mut self, batch: &[Transfer], at: Position) -> Moved {
        self.list(batch, at);
        let staging = self.staging.as_mut()?;
        let moved = staging.draw(&self.theirs.0)?;
        each_part(batch, at, moved, |transfer, offset, done, length| {
            let target = (transfer.ours + offset) as *mut u8;
            // SAFETY: that our side is there and borrowed by nobody is the promise made to `new`.
            unsafe { staging.store(done, target, length) }
        });
        Some(moved)
    }

    /// Lists the program's side of what one call can take from `at` on; how many bytes that is.
    ///
    /// Stores of one string instruction may become visible in any order (Intel SDM volume 3, 9.2.4), those
    /// of the next come after them: a slice of its own is a barrier. So the last word of an ordered
    /// transfer is one.
    fn list(&mut self, batch: &[Transfer], mut at: Position) -> usize {
        let slices = &mut self.theirs.0;
        slices.clear();
        let (mut bytes, mut joinable_at) = (0, None);
        while let Some(transfer) = at.settle(batch) {
            let length = (transfer.length - at.offset).min(STAGING_BYTES - bytes);
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

    /// A step through the pipe, from byte `offset` of `transfer` on.
    fn step(&mut self, transfer: &Transfer, offset: usize, way: Way) -> Moved {
        let pid = self.pid.get();
        if self.pipe.as_ref().is_none_or(|pipe| pipe.pid != pid) {
            self.pipe = Some(Pipe::open(pid).ok()?);
        }
        let (ours, theirs) = (transfer.ours + offset, transfer.theirs_at(offset)?);
        let (source, target) = match way {
            Way::ToTheirs => (ours, theirs),
            Way::FromTheirs => (theirs, ours),
        };
        // SAFETY: that the target may be overwritten is the promise made to `new`.
        unsafe { self.pipe.as_mut()?.step(source, target, transfer.length - offset) }
    }
}

/// Whether the target of the transfer after number `index` adjoins its target.
fn is_continued(batch: &[Transfer], index: usize) -> bool {
    let next = batch[index + 1..].iter().find(|next| next.length != 0);
    next.is_some_and(|next| batch[index].theirs.checked_add(batch[index].length as u64) == Some(next.theirs))
}

/// Calls `visit(transfer, offset within it, bytes before it, its bytes)` for the `bytes` from `at` on.
fn each_part(
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

fn slice(address: usize, length: usize) -> libc::iovec {
    libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length }
}

/// Whether the kernel may write at `address`, found out by an atomic OR with nothing (FUTEX_WAKE_OP,
/// futex(2)), which changes no value and wakes nobody.
fn is_writable(address: u64) -> bool {
    /// FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0).
    const OR_NOTHING: u32 = 2 << 28;
    let own: u32 = 0;
    // SAFETY: `own` outlives the call and nobody waits on it; the word at `address` is checked by the
    // kernel and keeps its value.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const own,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0usize,
            address as usize,
            OR_NOTHING,
        )
    };
    result >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // SAFETY: lists addresses only.
        let mut memory = unsafe { OwnMemory::new() };
        let bytes = memory.list(&batch, Position { index: 0, offset: 0 });
        let slices = memory.theirs.0.iter();
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
            (
                "more than one call takes",
                &[(0, 40_000, false), (40_000, 40_000, false)],
                &[(0, STAGING_BYTES)],
            ),
        ] {
            assert_eq!(listed(batch), expected, "{name}");
        }
    }
}
