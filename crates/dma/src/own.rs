//! Memory of this very process, reached through the kernel.
//!
//! `process_vm_readv` and `process_vm_writev` (process_vm_readv(2)) on our own pid copy between two lists of slices in one system
//! call and stop where memory is missing or protected. Where a sandbox forbids them, a pipe does the
//! same in smaller steps: writing it from our buffer and reading it into the target.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};

use crate::fork::OwnPid;

/// Slices per call and side (UIO_MAXIOV).
const SLICES_MAX: usize = 1024;
/// Bytes through the pipe per step: what an unprivileged pipe holds by default is 64 KiB (pipe(7)), but
/// may be a page where a user has many pipes.
const PIPE_STEP_BYTES: usize = 4096;

/// One copy between a buffer of ours, which is there, and memory of the program, which may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Address of our buffer.
    pub ours: usize,
    /// Address of the program's memory.
    pub theirs: u64,
    /// Bytes.
    pub length: usize,
}

impl Transfer {
    /// From these bytes to the program's memory, for [`OwnMemory::write`].
    pub fn out(ours: &[u8], theirs: u64) -> Transfer {
        Transfer { ours: ours.as_ptr() as usize, theirs, length: ours.len() }
    }

    /// From the program's memory to these bytes, for [`OwnMemory::read`].
    pub fn back(ours: &mut [u8], theirs: u64) -> Transfer {
        Transfer { ours: ours.as_mut_ptr() as usize, theirs, length: ours.len() }
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

/// Moves bytes within this process and never faults.
pub struct OwnMemory {
    pid: OwnPid,
    ours: Slices,
    theirs: Slices,
    /// Set once the direct calls were refused.
    pipe: Option<Pipe>,
}

/// A reused list of slices for the kernel.
struct Slices(Vec<libc::iovec>);

// SAFETY: the addresses are written right before the kernel reads them and never looked at otherwise.
unsafe impl Send for Slices {}
// SAFETY: a shared reference gives no access to them.
unsafe impl Sync for Slices {}

struct Pipe {
    /// Who opened it: a child after fork must not mix its bytes with its parent's.
    pid: libc::pid_t,
    read_end: File,
    write_end: File,
}

impl OwnMemory {
    /// A mover for this process; allocates nothing that grows with what it moves.
    ///
    /// # Safety
    /// Whoever holds it can change any byte of the process. The caller promises to hand it only
    /// addresses that the program has itself offered for such changes (registered memory), and buffers
    /// of its own that live through the call and, for [`OwnMemory::read`], are borrowed by nobody.
    pub unsafe fn new() -> OwnMemory {
        OwnMemory { pid: OwnPid::new(), ours: Slices(Vec::new()), theirs: Slices(Vec::new()), pipe: None }
    }

    /// Uses the pipe from now on, as in a sandbox that forbids the direct calls.
    pub fn forbid_direct(&mut self) -> io::Result<()> {
        self.pipe = Some(Pipe::open(self.pid.get())?);
        Ok(())
    }

    /// Copies `ours` to `theirs`, in order. Adjoining targets are joined; one system call per 1024
    /// transfers.
    pub fn write(&mut self, batch: &[Transfer]) -> Result<(), Fault> {
        self.transfer(batch, Way::ToTheirs)
    }

    /// Copies `theirs` to `ours`, in order.
    pub fn read(&mut self, batch: &[Transfer]) -> Result<(), Fault> {
        self.transfer(batch, Way::FromTheirs)
    }

    /// Replaces the 8 bytes at `address` by what `operation` makes of them (`None` leaves them alone);
    /// answers the value before. The memory must be writable either way. Atomic against other calls that
    /// the caller serialises with this one, not against the program's own instructions
    /// (`IBV_ATOMIC_HCA`).
    pub fn atomic_u64(
        &mut self,
        address: u64,
        operation: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
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
        // Where the next byte comes from: transfer number, and bytes of it that are done.
        let (mut index, mut offset) = (0, 0);
        loop {
            while index < batch.len() && offset == batch[index].length {
                (index, offset) = (index + 1, 0);
            }
            if index == batch.len() {
                return Ok(());
            }
            let moved = match self.pipe {
                Some(_) => self.step_through_pipe(batch[index], offset, way),
                None => self.step(&batch[index..], offset, way),
            };
            let mut moved = moved.ok_or(Fault { index })?;
            while moved > 0 {
                let step = moved.min(batch[index].length - offset);
                (moved, offset) = (moved - step, offset + step);
                if offset == batch[index].length {
                    (index, offset) = (index + 1, 0);
                }
            }
        }
    }

    /// One system call for as many of `batch` as it takes, the first from byte `offset` on. Bytes moved:
    /// more than 0, or `None` if the first byte could not be.
    fn step(&mut self, batch: &[Transfer], offset: usize, way: Way) -> Option<usize> {
        self.list(batch, offset)?;
        let (ours, theirs) = (&self.ours.0, &self.theirs.0);
        let (pid, our_count, their_count) = (self.pid.get(), ours.len() as _, theirs.len() as _);
        loop {
            // SAFETY: both lists live through the call and describe at most SLICES_MAX slices; whether
            // memory is there is for the kernel to find out, and what may be changed is the promise made
            // to `new`.
            let moved = unsafe {
                match way {
                    Way::ToTheirs => libc::process_vm_writev(
                        pid,
                        ours.as_ptr(),
                        our_count,
                        theirs.as_ptr(),
                        their_count,
                        0,
                    ),
                    Way::FromTheirs => {
                        libc::process_vm_readv(pid, ours.as_ptr(), our_count, theirs.as_ptr(), their_count, 0)
                    }
                }
            };
            if moved > 0 {
                return Some(moved as usize);
            }
            match io::Error::last_os_error().raw_os_error() {
                _ if moved == 0 => return None,
                Some(libc::EINTR) => {}
                Some(libc::EPERM | libc::ENOSYS | libc::EACCES) => {
                    self.pipe = Some(Pipe::open(pid).ok()?);
                    return self.step_through_pipe(batch[0], offset, way);
                }
                _ => return None,
            }
        }
    }

    fn step_through_pipe(&mut self, transfer: Transfer, offset: usize, way: Way) -> Option<usize> {
        let pid = self.pid.get();
        if self.pipe.as_ref().is_none_or(|pipe| pipe.pid != pid) {
            self.pipe = Some(Pipe::open(pid).ok()?);
        }
        self.pipe.as_mut()?.step(transfer, offset, way)
    }

    /// Fills the lists; `None` if the first range does not even fit the address space.
    fn list(&mut self, batch: &[Transfer], offset: usize) -> Option<()> {
        self.ours.0.clear();
        self.theirs.0.clear();
        let mut skip = offset;
        let mut theirs_end = None;
        for transfer in batch.iter().take(SLICES_MAX) {
            let length = transfer.length - skip;
            let (ours, theirs) =
                (transfer.ours + skip, usize::try_from(transfer.theirs).ok()?.checked_add(skip));
            skip = 0;
            if length == 0 {
                continue;
            }
            let Some((theirs, end)) = theirs.and_then(|from| Some((from, from.checked_add(length)?))) else {
                break;
            };
            self.ours.0.push(slice(ours, length));
            match self.theirs.0.last_mut() {
                Some(last) if theirs_end == Some(theirs) => last.iov_len += length,
                _ => self.theirs.0.push(slice(theirs, length)),
            }
            theirs_end = Some(end);
        }
        (!self.ours.0.is_empty()).then_some(())
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
    // kernel, is aligned for a futex because atomics are 8-byte aligned, and keeps its value.
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
    result >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

impl Pipe {
    fn open(pid: libc::pid_t) -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were just made and belong to nobody else.
        let (read_end, write_end) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
        Ok(Pipe { pid, read_end, write_end })
    }

    /// Moves the next bytes of one transfer; how many, or `None` if not even the first.
    fn step(&mut self, transfer: Transfer, offset: usize, way: Way) -> Option<usize> {
        let theirs = usize::try_from(transfer.theirs).ok()?.checked_add(offset)?;
        let ours = transfer.ours + offset;
        // Within one page on either side a copy is all or nothing.
        let to_page_end = |address: usize| PIPE_STEP_BYTES - address % PIPE_STEP_BYTES;
        let length = (transfer.length - offset).min(to_page_end(theirs)).min(to_page_end(ours));
        let (source, target) = match way {
            Way::ToTheirs => (ours, theirs),
            Way::FromTheirs => (theirs, ours),
        };
        let written = retry(|| {
            // SAFETY: the kernel checks the source.
            unsafe { libc::write(self.write_end.as_raw_fd(), source as *const libc::c_void, length) }
        })?;
        let read = retry(|| {
            // SAFETY: the kernel checks the target; that it may be changed is the promise made to `new`.
            unsafe { libc::read(self.read_end.as_raw_fd(), target as *mut libc::c_void, written) }
        });
        if read != Some(written) {
            self.drain(written - read.unwrap_or(0));
        }
        read
    }

    /// Empties the pipe of bytes that had nowhere to go.
    fn drain(&mut self, bytes: usize) {
        let mut sink = [0; PIPE_STEP_BYTES];
        let _ = self.read_end.read_exact(&mut sink[..bytes]);
    }
}

/// Calls again after a signal; `None` on any other failure, or if nothing was moved.
fn retry(mut call: impl FnMut() -> isize) -> Option<usize> {
    loop {
        match call() {
            moved if moved > 0 => return Some(moved as usize),
            0 => return None,
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            _ => return None,
        }
    }
}
