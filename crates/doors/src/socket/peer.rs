//! Who is at the other end of a socket, and its memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use srdma_dma::ProcessMemory;

/// SO_PEERPIDFD (Linux 6.5), not in libc yet.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process that connected.
pub(crate) struct Peer {
    pub(crate) pid: libc::pid_t,
    pub(crate) uid: u32,
    /// Names this very process, whatever becomes of its number.
    process: OwnedFd,
}

fn option<T: Copy>(socket: RawFd, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is as long as stated and lives through the call.
    let got =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, name, (&raw mut value).cast(), &mut length) };
    match got {
        0 if length as usize == size_of::<T>() => Ok(value),
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Process id and user of whoever connected.
pub(crate) fn credentials(socket: RawFd) -> io::Result<libc::ucred> {
    option(socket, libc::SO_PEERCRED, libc::ucred { pid: 0, uid: 0, gid: 0 })
}

impl Peer {
    /// Who connected to this socket.
    pub(crate) fn of(socket: RawFd) -> io::Result<Peer> {
        let known = credentials(socket)?;
        if known.pid <= 0 {
            let text = "the program is in a process namespace that this daemon does not see into";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let fd = match option(socket, SO_PEERPIDFD, -1) {
            Ok(fd) => fd,
            // Older kernels: the number may have a new owner by now, but only one of the same user gets further.
            // SAFETY: no pointers.
            Err(_) => unsafe { libc::syscall(libc::SYS_pidfd_open, known.pid, 0) as RawFd },
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh, and nobody else's.
        let process = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Peer { pid: known.pid, uid: known.uid, process })
    }

    /// Whether it still runs: then its number is its own.
    fn is_alive(&self) -> bool {
        let mut ended = libc::pollfd { fd: self.process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives through the call.
        unsafe { libc::poll(&mut ended, 1, 0) == 0 }
    }

    /// Opens its memory. The order matters: what was opened is the memory of the process with that number at that
    /// moment; that it belongs to whoever connected is looked at afterwards. A process that executed a program with more rights in
    /// between is another user's by then (proc(5): /proc/PID belongs to root while that is so), and
    /// if it has executed yet another, what was opened is gone.
    pub(crate) fn memory(&self) -> io::Result<ProcessMemory> {
        let folder = format!("/proc/{}", self.pid);
        let file: File = OpenOptions::new().read(true).write(true).open(format!("{folder}/mem"))?;
        let owner = std::fs::metadata(&folder)?.uid();
        if owner != self.uid || !self.is_alive() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: the engine hands it buffers of its own that live through each call, and addresses that were registered
        // for this, should the program be in our own process.
        Ok(unsafe { ProcessMemory::new(OwnedFd::from(file)) })
    }
}
