//! Looks at memory that may not be there, without a signal: a pipe is written from it, and the kernel
//! answers `EFAULT` (pipe(7), write(2)). Slow; only for errors, injected faults and captures.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sys::{last_errno, Identity, RawSlice};

/// Smallest page of the architectures we run on, and what a pipe takes at once (PIPE_BUF).
const PAGE_BYTES: usize = 4096;

/// A pipe to read doubtful memory through.
pub(crate) struct Probe {
    read_end: File,
    write_end: OwnedFd,
    /// Both ends are one file.
    file: Option<Identity>,
}

thread_local! {
    static PROBE: RefCell<Option<Probe>> = const { RefCell::new(None) };
}

impl Probe {
    fn open() -> io::Result<Probe> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were just made and belong to nobody else.
        let (read_end, write_end) = unsafe { (File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        Ok(Probe { file: Identity::of(ends[0]), read_end, write_end })
    }

    /// Whether the program has left the descriptors alone.
    fn is_intact(&self) -> bool {
        let now = [self.read_end.as_raw_fd(), self.write_end.as_raw_fd()].map(Identity::of);
        self.file.is_some() && now == [self.file; 2]
    }

    /// Copies `out.len()` bytes from `address`, at most `PAGE_BYTES` and within one page.
    fn copy_page(&mut self, address: usize, out: &mut [u8]) -> bool {
        loop {
            // SAFETY: the kernel reads from `address`, and answers EFAULT if nothing is there; it writes
            // nothing to this process.
            let written =
                unsafe { libc::write(self.write_end.as_raw_fd(), address as *const libc::c_void, out.len()) };
            if written == out.len() as isize {
                return self.read_end.read_exact(out).is_ok();
            }
            if written >= 0 {
                let _ = self.read_end.read(out);
                return false;
            }
            if last_errno() != libc::EINTR {
                return false;
            }
        }
    }

    /// Appends the bytes of `slices` to `out`; false if any is not readable.
    pub(crate) fn gather(slices: &[RawSlice], out: &mut Vec<u8>) -> bool {
        PROBE.with_borrow_mut(|probe| {
            if !probe.as_ref().is_some_and(Probe::is_intact) {
                // Not dropped: the numbers may be the program's.
                std::mem::forget(probe.take());
                *probe = Probe::open().ok();
            }
            let Some(probe) = probe else { return false };
            slices.iter().all(|slice| probe.append(*slice, out))
        })
    }

    fn append(&mut self, slice: RawSlice, out: &mut Vec<u8>) -> bool {
        let mut done = 0;
        while done < slice.length {
            let Some(address) = slice.address.checked_add(done) else { return false };
            let step = (PAGE_BYTES - address % PAGE_BYTES).min(slice.length - done);
            let start = out.len();
            out.resize(start + step, 0);
            if !self.copy_page(address, &mut out[start..]) {
                return false;
            }
            done += step;
        }
        true
    }

    /// Whether every byte of `slices` can be read now.
    pub(crate) fn readable(slices: &[RawSlice]) -> bool {
        let mut scratch = Vec::new();
        slices.iter().all(|slice| {
            scratch.clear();
            Probe::gather(std::slice::from_ref(slice), &mut scratch)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathers_what_is_there_and_refuses_what_is_not() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let mut out = Vec::new();
        assert!(Probe::gather(&[RawSlice::from(&bytes[3..9_000]), RawSlice::from(&bytes[..5])], &mut out));
        assert_eq!(out, [&bytes[3..9_000], &bytes[..5]].concat());
        for address in [0usize, 8, usize::MAX - 4] {
            assert!(!Probe::readable(&[RawSlice { address, length: 16 }]), "{address:#x}");
        }
        assert!(Probe::readable(&[RawSlice::from(&bytes[..])]), "usable after a refusal");
    }
}
