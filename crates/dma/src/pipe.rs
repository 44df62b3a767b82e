//! The way for sandboxes without anonymous files: bytes are written into a pipe from one side and read
//! into the other, page by page, and the kernel answers `EFAULT` where memory is missing.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};

use crate::staging::{inode, moved, Moved};

/// Bytes per step: a pipe holds at least a page, even where a user has too many of them (pipe(7)).
const STEP_BYTES: usize = 4096;

pub(crate) struct Pipe {
    read_end: File,
    write_end: File,
    inode: libc::ino_t,
    /// Who opened it, see [`crate::staging::Staging::pid`].
    pub(crate) pid: libc::pid_t,
}

impl Pipe {
    pub(crate) fn open(pid: libc::pid_t) -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were just made and belong to nobody else.
        let (read_end, write_end) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
        Ok(Pipe { inode: inode(ends[0])?, read_end, write_end, pid })
    }

    /// See [`crate::staging::Staging::is_intact`].
    pub(crate) fn is_intact(&self) -> bool {
        let ends = [self.read_end.as_raw_fd(), self.write_end.as_raw_fd()];
        ends.into_iter().all(|fd| inode(fd).is_ok_and(|found| found == self.inode))
    }

    /// Moves up to `length` bytes, not beyond a page on either side.
    ///
    /// # Safety
    /// What lies at `target`, if anything, may be overwritten.
    pub(crate) unsafe fn step(&mut self, source: usize, target: usize, length: usize) -> Moved {
        // Within one page a copy is all or nothing.
        let to_page_end = |address: usize| STEP_BYTES - address % STEP_BYTES;
        let length = length.min(to_page_end(source)).min(to_page_end(target));
        let written = moved(|| {
            // SAFETY: the kernel checks the source and only reads it.
            unsafe { libc::write(self.write_end.as_raw_fd(), source as *const libc::c_void, length) }
        })?;
        let read = moved(|| {
            // SAFETY: the kernel checks the target; that it may be overwritten is the caller's promise.
            unsafe { libc::read(self.read_end.as_raw_fd(), target as *mut libc::c_void, written) }
        });
        self.drain(written - read.unwrap_or(0));
        read
    }

    /// Empties the pipe of bytes that had nowhere to go.
    fn drain(&mut self, bytes: usize) {
        if bytes > 0 {
            let _ = self.read_end.read_exact(&mut [0; STEP_BYTES][..bytes]);
        }
    }
}
