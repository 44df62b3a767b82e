//! A descriptor that may stop being ours: a program that closes all it finds also closes those of the libraries in it,
//! and what it opens next gets their numbers.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};

/// The inode of the socket behind a descriptor; `None` if it is closed, or no socket.
pub(super) fn socket_inode(fd: RawFd) -> Option<u64> {
    // SAFETY: all zeros is a valid stat.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is writable and outlives the call; a number that is not open is an error.
    let got = unsafe { libc::fstat(fd, &mut found) };
    (got == 0 && found.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(found.st_ino)
}

/// Something that owns a descriptor, closed in the end only if the number still means the same socket.
pub(super) struct Held<T: AsRawFd + IntoRawFd> {
    owner: Option<T>,
    inode: Option<u64>,
}

impl<T: AsRawFd + IntoRawFd> Held<T> {
    pub(super) fn new(owner: T) -> Held<T> {
        let inode = socket_inode(owner.as_raw_fd());
        Held { owner: Some(owner), inode }
    }

    /// Whether the number still means the socket that was given. To be asked before each use.
    pub(super) fn is_ours(&self) -> bool {
        self.inode.is_some() && socket_inode(self.as_raw_fd()) == self.inode
    }
}

impl<T: AsRawFd + IntoRawFd> AsRawFd for Held<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.owner.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl<T: AsRawFd + IntoRawFd> Deref for Held<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.owner {
            Some(owner) => owner,
            None => unreachable!("taken only by drop"),
        }
    }
}

impl<T: AsRawFd + IntoRawFd> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.owner {
            Some(owner) => owner,
            None => unreachable!("taken only by drop"),
        }
    }
}

impl<T: AsRawFd + IntoRawFd> Drop for Held<T> {
    fn drop(&mut self) {
        let is_ours = self.is_ours();
        if let Some(owner) = self.owner.take().filter(|_| !is_ours) {
            // Somebody else's number now: not to be closed.
            let _ = owner.into_raw_fd();
        }
    }
}
