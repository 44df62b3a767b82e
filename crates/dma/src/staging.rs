//! A piece of memory that is also a file: what lies in it can be *read as a file* into memory that may
//! not be there, and the kernel answers `EFAULT` instead of raising a signal.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Bytes moved per system call: small enough to stay in a core's cache between the copy into the staging
/// memory and the copy out of it.
pub(crate) const STAGING_BYTES: usize = 1 << 16;

/// An anonymous file (memfd_create(2)) mapped into this process.
pub(crate) struct Staging {
    file: OwnedFd,
    at: NonNull<u8>,
    inode: libc::ino_t,
    /// Who made it: a child after fork must not mix its bytes with its parent's.
    pub(crate) pid: libc::pid_t,
}

// SAFETY: one owner; the mapping is only reached through `&mut self`.
unsafe impl Send for Staging {}
// SAFETY: a shared reference gives no access to the mapping.
unsafe impl Sync for Staging {}

/// How many bytes went where they belong. `None`: not even the first.
pub(crate) type Moved = Option<usize>;

impl Staging {
    pub(crate) fn open(pid: libc::pid_t) -> io::Result<Staging> {
        // Beyond this limit writing a file, even this one, raises SIGXFSZ (getrlimit(2)).
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: room for one limit.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
        if !known || limit.rlim_cur < STAGING_BYTES as libc::rlim_t {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        // SAFETY: a name that ends in a zero byte.
        let fd = unsafe { libc::memfd_create(c"srdma-staging".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: no pointers.
        if unsafe { libc::ftruncate(fd, STAGING_BYTES as libc::off_t) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), STAGING_BYTES, protection, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(at.cast()) {
            Some(at) => Ok(Staging { inode: inode(fd)?, file, at, pid }),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// Whether the descriptor still names our file, and was not closed or replaced by the program.
    pub(crate) fn is_intact(&self) -> bool {
        inode(self.file.as_raw_fd()).is_ok_and(|found| found == self.inode)
    }

    /// Copies `length` bytes at `source` to byte `offset` of the staging memory.
    ///
    /// # Safety
    /// The source must be readable memory, not part of the staging memory.
    pub(crate) unsafe fn load(&mut self, offset: usize, source: *const u8, length: usize) {
        assert!(offset + length <= STAGING_BYTES);
        // SAFETY: the target is within the mapping, the source is the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(source, self.at.as_ptr().add(offset), length) }
    }

    /// Copies `length` bytes from byte `offset` of the staging memory to `target`.
    ///
    /// # Safety
    /// The target must be writable memory that nobody borrows, not part of the staging memory.
    pub(crate) unsafe fn store(&self, offset: usize, target: *mut u8, length: usize) {
        assert!(offset + length <= STAGING_BYTES);
        // SAFETY: the source is within the mapping, the target is the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(self.at.as_ptr().add(offset), target, length) }
    }

    /// Moves the staged bytes into `targets`, one after the other.
    ///
    /// # Safety
    /// What lies at the targets, if anything, may be overwritten.
    pub(crate) unsafe fn pour(&mut self, targets: &[libc::iovec]) -> Moved {
        // SAFETY: the list lives through the call; the kernel checks the memory, and that it may be
        // overwritten is the caller's promise.
        moved(|| unsafe { libc::preadv(self.file.as_raw_fd(), targets.as_ptr(), targets.len() as _, 0) })
    }

    /// Moves the bytes of `sources` into the staging memory, one after the other.
    pub(crate) fn draw(&mut self, sources: &[libc::iovec]) -> Moved {
        // SAFETY: the list lives through the call; the kernel checks the memory and only reads it. What it
        // writes to the file appears in the mapping, which nobody borrows.
        moved(|| unsafe { libc::pwritev(self.file.as_raw_fd(), sources.as_ptr(), sources.len() as _, 0) })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `open`; nobody borrows from it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), STAGING_BYTES) };
    }
}

/// The inode number of an open file: no two anonymous files or pipes have the same.
pub(crate) fn inode(fd: libc::c_int) -> io::Result<libc::ino_t> {
    // SAFETY: zero is a valid value of this struct of integers.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is writable and outlives the call.
    match unsafe { libc::fstat(fd, &mut found) } {
        0 => Ok(found.st_ino),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Calls again after a signal.
pub(crate) fn moved(mut call: impl FnMut() -> isize) -> Moved {
    loop {
        match call() {
            0 => return None,
            bytes if bytes > 0 => return Some(bytes as usize),
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            _ => return None,
        }
    }
}
