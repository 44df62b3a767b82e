//! What wakes a program: pipes of eight-byte records, and the count of events it has not acknowledged.
//!
//! A pipe, not a datagram socket: it holds thousands of records, a record is written and read whole,
//! and each write is an edge for `EPOLLET`. Records carry numbers, never pointers, so one about an
//! object that is gone is recognised and dropped.

use crate::border::Errno;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// A pipe whose write end never blocks. The program may set the read end to non-blocking.
#[derive(Debug)]
pub(crate) struct Pipe {
    read: AtomicI32,
    write: AtomicI32,
}

impl Pipe {
    pub(crate) fn new() -> Result<Pipe, Errno> {
        let mut fds = [-1; 2];
        // SAFETY: `fds` has room for the two descriptors.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(Errno::last());
        }
        let pipe = Pipe { read: AtomicI32::new(fds[0]), write: AtomicI32::new(fds[1]) };
        // SAFETY: F_SETFL on a descriptor that we own, without pointers.
        if unsafe { libc::fcntl(pipe.write_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(Errno::last());
        }
        Ok(pipe)
    }

    /// Reads from `read` from now on, whose writing end is somebody else's; there is none of ours any more.
    pub(crate) fn adopt(&self, read: OwnedFd) {
        self.close();
        self.read.store(read.into_raw_fd(), Ordering::Relaxed);
    }

    pub(crate) fn read_fd(&self) -> RawFd {
        self.read.load(Ordering::Relaxed)
    }

    pub(crate) fn write_fd(&self) -> RawFd {
        self.write.load(Ordering::Relaxed)
    }

    /// Closes both ends, once; reading fails from then on.
    pub(crate) fn close(&self) {
        for end in [&self.write, &self.read] {
            let fd = end.swap(-1, Ordering::Relaxed);
            if fd >= 0 {
                // SAFETY: a descriptor that we opened, given up by the swap.
                unsafe { libc::close(fd) };
            }
        }
    }

    /// Next record; waits for it unless the program made the descriptor non-blocking. EINTR is
    /// reported, as programs use signals to end such waits. EIO: nobody writes any more.
    pub(crate) fn next(&self) -> Result<[u8; 8], Errno> {
        let mut record = [0u8; 8];
        // SAFETY: `record` is writable for the eight bytes asked for.
        match unsafe { libc::read(self.read_fd(), record.as_mut_ptr().cast(), record.len()) } {
            8 => Ok(record),
            n if n < 0 => Err(Errno::last()),
            _ => Err(Errno::EIO),
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.close();
    }
}

/// Events about one object: destroying it waits until each that was handed out is acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    delivered: u64,
    acknowledged: u64,
}

impl Acks {
    pub(crate) fn deliver(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).delivered += 1;
    }

    pub(crate) fn acknowledge(&self, events: u32) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.acknowledged += u64::from(events);
        self.changed.notify_all();
    }

    /// Returns when all delivered events are acknowledged.
    pub(crate) fn wait(&self) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let _counts = self
            .changed
            .wait_while(counts, |counts| counts.acknowledged < counts.delivered)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::{mpsc, Arc};

    #[test]
    fn waiting_ends_with_the_last_acknowledgement_and_not_before() {
        let acks = Arc::new(Acks::default());
        acks.wait(); // nothing delivered
        acks.deliver();
        acks.deliver();
        let (done, finished) = mpsc::channel();
        let waiter = {
            let acks = Arc::clone(&acks);
            std::thread::spawn(move || {
                acks.wait();
                done.send(()).unwrap();
            })
        };
        acks.acknowledge(1);
        assert!(finished.try_recv().is_err(), "one of two is not enough");
        acks.acknowledge(1);
        finished.recv().unwrap();
        waiter.join().unwrap();
    }

    #[test]
    fn a_non_blocking_reader_is_told_that_nothing_is_there() {
        let pipe = Pipe::new().unwrap();
        // SAFETY: F_SETFL on an open descriptor.
        unsafe { libc::fcntl(pipe.read_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(pipe.next(), Err(Errno(libc::EAGAIN)));
        // SAFETY: eight readable bytes.
        unsafe { libc::write(pipe.write_fd(), [7u8; 8].as_ptr().cast(), 8) };
        assert_eq!(pipe.next(), Ok([7; 8]));
    }
}
