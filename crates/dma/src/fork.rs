//! The process id, without a system call each time, and right in a child after fork.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering};

/// Remembers `getpid` on a page that the kernel wipes in a child (MADV_WIPEONFORK, madvise(2)), so that a
/// child never moves bytes in its parent.
pub(crate) struct OwnPid {
    /// `None` where the kernel cannot wipe: then it is asked each time.
    page: Option<NonNull<AtomicI32>>,
}

/// One page of any architecture that we run on is at least this long; the kernel rounds up.
const PAGE_BYTES: usize = 4096;

// SAFETY: the page holds one atomic and is unmapped only on drop.
unsafe impl Send for OwnPid {}
// SAFETY: as above; all access is atomic.
unsafe impl Sync for OwnPid {}

impl OwnPid {
    pub(crate) fn new() -> OwnPid {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return OwnPid { page: None };
        }
        // SAFETY: the mapping just made.
        if unsafe { libc::madvise(at, PAGE_BYTES, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: the same mapping, of which nobody knows.
            unsafe { libc::munmap(at, PAGE_BYTES) };
            return OwnPid { page: None };
        }
        OwnPid { page: NonNull::new(at.cast()) }
    }

    pub(crate) fn get(&self) -> libc::pid_t {
        let Some(page) = self.page else { return getpid() };
        // SAFETY: a live page, aligned, zero or a pid.
        let known = unsafe { page.as_ref() };
        match known.load(Ordering::Relaxed) {
            0 => {
                let pid = getpid();
                known.store(pid, Ordering::Relaxed);
                pid
            }
            pid => pid,
        }
    }
}

impl Drop for OwnPid {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // SAFETY: the mapping made by `new`; nobody borrows from it any more.
            unsafe { libc::munmap(page.as_ptr().cast(), PAGE_BYTES) };
        }
    }
}

fn getpid() -> libc::pid_t {
    // SAFETY: no pointers, never fails.
    unsafe { libc::getpid() }
}
