//! Memory that daemon and program share: made and sealed by the daemon, mapped by both.

use std::any::Any;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Anonymous memory that can be passed on and never changes its size: whoever holds the descriptor could
/// otherwise cut it off and have the other side killed by a signal (SIGBUS).
pub(crate) fn sealed(bytes: usize) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a name that ends in a zero byte; the result is checked before it is owned.
    let fd = unsafe { libc::memfd_create(c"srdma-shared".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh, and nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no pointers.
    let done = unsafe {
        libc::ftruncate(fd, bytes as libc::off_t) == 0 && libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0
    };
    if done {
        Ok(file)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A mapping of the whole of such memory. The pages are there when they are first touched.
pub(crate) struct Mapping {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: an address and a length; what lies there is reached through the rings, by atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes, which the memory must have.
    pub(crate) fn new(memory: RawFd, bytes: usize) -> io::Result<Arc<Mapping>> {
        // SAFETY: all zeros is a valid stat.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `found` is writable and outlives the call.
        if unsafe { libc::fstat(memory, &mut found) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no pointers.
        let seals = unsafe { libc::fcntl(memory, libc::F_GET_SEALS) };
        if found.st_size < bytes as libc::off_t || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "shared memory is too short, or not sealed",
            ));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, memory, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Arc::new(Mapping { start: start.cast(), bytes }))
    }

    /// Address of byte `offset`.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.start.wrapping_add(offset.min(self.bytes))
    }

    /// Bytes from there on.
    pub(crate) fn bytes_from(&self, offset: usize) -> usize {
        self.bytes.saturating_sub(offset)
    }

    /// What keeps it mapped.
    pub(crate) fn keeper(self: &Arc<Mapping>) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(self) as Arc<dyn Any + Send + Sync>
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; rings in it hold a keeper, so none is left.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// A counter that wakes whoever waits for its descriptor (eventfd(2)).
pub(crate) fn event_counter() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it is owned.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A pipe for records of events: the reading end may block, the writing end never does. They are different open
/// files, so that whoever has one cannot change that of the other.
pub(crate) fn event_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors; then they are owned once each.
    let (read, write) = unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    // SAFETY: no pointers.
    match unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        0 => Ok((read, write)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shared_memory_keeps_its_size() {
        let memory = sealed(8192).unwrap();
        for bytes in [0, 4096, 16_384] {
            // SAFETY: no pointers.
            assert_ne!(unsafe { libc::ftruncate(memory.as_raw_fd(), bytes) }, 0, "{bytes}");
        }
        let mapping = Mapping::new(memory.as_raw_fd(), 8192).unwrap();
        assert_eq!((mapping.bytes_from(128), mapping.bytes_from(9000)), (8064, 0));
        assert!(Mapping::new(memory.as_raw_fd(), 8193).is_err(), "more than there is");
    }
}
