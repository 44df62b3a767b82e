//! Waking the thread that sleeps in the kernel, and knowing whether it needs waking.
//!
//! The background thread publishes until when it will sleep. Whoever creates work that must be done
//! earlier than that kicks it; nobody pays a system call for a thread that is awake or will wake in
//! time anyway.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{fence, AtomicU64, Ordering};

use srdma_seams::Now;

/// Published while the thread is awake: any work will be seen without a kick.
const AWAKE: u64 = 0;

/// Where the background thread sleeps.
#[derive(Debug)]
pub struct Pillow {
    event: OwnedFd,
    sleeping_until_ns: AtomicU64,
}

impl Pillow {
    /// A new one; nobody sleeps.
    pub fn new() -> io::Result<Pillow> {
        // SAFETY: eventfd takes no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a fresh descriptor that nothing else owns.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Pillow { event, sleeping_until_ns: AtomicU64::new(AWAKE) })
    }

    /// The descriptor to include in the poll set.
    pub fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Called by the sleeper before it looks for work one last time: from here on work created by
    /// others with an earlier deadline kicks it. The fence pairs with the one in [`Pillow::kick`]: either
    /// the sleeper's last look sees the work, or the creator sees the published time.
    pub fn lie_down(&self, until: Option<Now>) {
        let until_ns = until.map_or(u64::MAX, |now| now.0.max(AWAKE + 1));
        self.sleeping_until_ns.store(until_ns, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Called by the sleeper when it is up again.
    pub fn get_up(&self) {
        self.sleeping_until_ns.store(AWAKE, Ordering::SeqCst);
        let mut count = [0u8; 8];
        // SAFETY: the buffer has the eight bytes that an eventfd read takes; an empty one fails with
        // EAGAIN, which is as good.
        unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    /// Wakes the sleeper if it would sleep past `deadline`. Returns whether it had to.
    pub fn kick(&self, deadline: Now) -> bool {
        fence(Ordering::SeqCst);
        let until_ns = self.sleeping_until_ns.load(Ordering::SeqCst);
        if until_ns == AWAKE || until_ns <= deadline.0 {
            return false;
        }
        // One kick is enough: the sleeper counts as awake from here on.
        self.sleeping_until_ns.store(AWAKE, Ordering::SeqCst);
        self.kick_always();
        true
    }

    /// Wakes the sleeper whatever it does.
    pub fn kick_always(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes; a full counter fails with EAGAIN, and then a wake-up is due anyway.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Sleeps until a kick, data on `socket`, or `until`. Returns whether `socket` has data.
    pub fn sleep(&self, socket: Option<RawFd>, until: Option<Now>, now: Now) -> bool {
        let mut fds = [
            libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: socket.unwrap_or(-1), events: libc::POLLIN, revents: 0 },
        ];
        let span = until.map(|until| {
            let ns = until.since(now).0;
            libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
        });
        let timeout = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `fds` and `timeout` live across the call; no signal mask is given.
        unsafe { libc::ppoll(fds.as_mut_ptr(), 2, timeout, std::ptr::null()) };
        fds[1].revents != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeper_that_would_sleep_too_long_is_kicked() {
        let pillow = Pillow::new().expect("eventfd");
        assert!(!pillow.kick(Now(5)), "nobody sleeps");
        pillow.lie_down(Some(Now(100)));
        assert!(!pillow.kick(Now(100)), "it wakes in time");
        assert!(pillow.kick(Now(99)));
        assert!(!pillow.kick(Now(1)), "one kick is enough");
        pillow.get_up();
        pillow.lie_down(None);
        assert!(pillow.kick(Now(u64::MAX - 1)), "an endless sleep ends for any work");
    }

    #[test]
    fn a_kick_before_the_sleep_ends_the_sleep() {
        let pillow = Pillow::new().expect("eventfd");
        pillow.lie_down(None);
        pillow.kick(Now(1));
        assert!(!pillow.sleep(None, None, Now(0)));
    }
}
