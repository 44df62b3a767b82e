//! Waking the thread that sleeps in the kernel, and knowing whether it needs waking.
//!
//! The background thread publishes until when it will sleep. Whoever creates work that must be done
//! earlier than that kicks it; nobody pays a system call for a thread that is awake or will wake in
//! time anyway.
//!
//! It is kicked by a timer that is set to now, and not by an event counter: we live in somebody's process, which may
//! have closed our descriptor and opened a file of its own under the same number. What is written to a counter would
//! then land in that file; setting a timer on anything that is none is an error and changes nothing.
//! Then nobody can be kicked any more, and the device ends: [`srdma_net::SlotHandle::rouse`] wakes the sleeper for that.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use srdma_ring::SleepUntil;
use srdma_seams::Now;

use crate::clock;

/// Descriptors that the sleeper can wait for beside the socket.
pub const OTHERS_MAX: usize = 6;

/// What ended a sleep; nothing of both if it was a kick or the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// The socket has data.
    pub socket: bool,
    /// One of the other descriptors is ready.
    pub others: bool,
}

/// Where the background thread sleeps.
#[derive(Debug)]
pub struct Pillow {
    timer: OwnedFd,
    until: SleepUntil,
    /// The timer is no longer there, or the socket is not: nobody can be woken any more.
    lost: AtomicBool,
}

impl Pillow {
    /// A new one; nobody sleeps.
    pub fn new() -> io::Result<Pillow> {
        // SAFETY: timerfd_create takes no pointers; the result is checked before it is owned.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a fresh descriptor that nothing else owns.
        let timer = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Pillow { timer, until: SleepUntil::default(), lost: AtomicBool::new(false) })
    }

    /// The descriptor to include in the poll set.
    pub fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// Whether a descriptor that is slept on was closed or replaced by the program.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the number still names a timer; if not, it is lost for good. One system call.
    pub fn is_intact(&self) -> bool {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut left = libc::itimerspec { it_interval: zero, it_value: zero };
        // SAFETY: `left` is writable and outlives the call; a number that names no timer is an error.
        if unsafe { libc::timerfd_gettime(self.fd(), &mut left) } != 0 {
            self.lost.store(true, Ordering::Relaxed);
        }
        !self.is_lost()
    }

    /// Sets the timer to fire at once, or disarms it, which also takes a firing back.
    fn set(&self, fire: bool) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: 0, tv_nsec: i64::from(fire) };
        let wanted = libc::itimerspec { it_interval: zero, it_value: value };
        // An absolute time long past is due at once.
        let flags = libc::TFD_TIMER_ABSTIME;
        // SAFETY: `wanted` outlives the call, and no old value is asked for.
        if unsafe { libc::timerfd_settime(self.fd(), flags, &wanted, std::ptr::null_mut()) } != 0 {
            self.lost.store(true, Ordering::Relaxed);
        }
    }

    /// Called by the sleeper before it looks for work one last time: from here on work created by
    /// others with an earlier deadline kicks it.
    pub fn lie_down(&self, until: Option<Now>) {
        self.until.lie_down(until.map(|at| at.0));
    }

    /// Called by the sleeper when it is up again.
    pub fn get_up(&self) {
        self.until.get_up();
    }

    /// Whether the sleeper is awake, or naps: it is not to be kicked.
    pub fn is_awake(&self) -> bool {
        self.until.is_up_by(0)
    }

    /// Whether the sleeper is up by `deadline` without being kicked.
    pub fn is_up_by(&self, deadline: Now) -> bool {
        self.until.is_up_by(deadline.0)
    }

    /// Wakes the sleeper if it would sleep past `deadline`. Returns whether it had to.
    pub fn kick(&self, deadline: Now) -> bool {
        if !self.until.must_wake(deadline.0) {
            return false;
        }
        self.kick_always();
        true
    }

    /// Wakes the sleeper whatever it does.
    pub fn kick_always(&self) {
        self.set(true);
    }

    /// Sleeps until a kick, data on `socket`, something of `others` (the first [`OTHERS_MAX`] count), or `until`.
    pub fn sleep(
        &self,
        socket: Option<RawFd>,
        others: &[libc::pollfd],
        until: Option<Now>,
        now: Now,
    ) -> Woken {
        let mut fds = [libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 }; 2 + OTHERS_MAX];
        fds[1].fd = socket.unwrap_or(-1);
        let count = 2 + others.len().min(OTHERS_MAX);
        fds[2..count].copy_from_slice(&others[..count - 2]);
        let span = until.map(|until| {
            let ns = until.since(now).0;
            libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
        });
        let timeout = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        clock::expect_within(until.map(|until| until.since(now)));
        // SAFETY: `count` of `fds`, and `timeout`, live across the call; no signal mask is given.
        unsafe { libc::ppoll(fds.as_mut_ptr(), count as libc::nfds_t, timeout, std::ptr::null()) };
        clock::awake();
        if fds[0].revents != 0 {
            // A kick, or something that is no timer: then this does not succeed.
            self.set(false);
        }
        if fds[..2].iter().any(|polled| polled.revents & libc::POLLNVAL != 0) {
            self.lost.store(true, Ordering::Relaxed);
        }
        Woken { socket: fds[1].revents != 0, others: fds[2..count].iter().any(|fd| fd.revents != 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeper_that_would_sleep_too_long_is_kicked() {
        let pillow = Pillow::new().expect("timerfd");
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
    fn a_kick_before_the_sleep_ends_the_sleep_and_only_that_one() {
        let pillow = Pillow::new().expect("timerfd");
        pillow.lie_down(None);
        pillow.kick(Now(1));
        assert_eq!(pillow.sleep(None, &[], None, Now(0)), Woken::default());
        let mut again = libc::pollfd { fd: pillow.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives across the call.
        assert_eq!(unsafe { libc::poll(&mut again, 1, 20) }, 0, "the kick is used up");
        assert!(!pillow.is_lost());
    }

    /// Closed, or anything else under its number: noticed by the sleeper, by whoever kicks or looks, and left as it is.
    #[test]
    fn a_descriptor_that_is_no_longer_ours_is_noticed_and_not_written_to() {
        let empty = || tempfile().expect("a file");
        for way in ["sleep", "kick", "look"] {
            for replaced in [false, true] {
                let mut pillow = Pillow::new().expect("timerfd");
                // SAFETY: no pointers; a number that no other test gets.
                let high = unsafe { libc::fcntl(pillow.fd(), libc::F_DUPFD_CLOEXEC, 600) };
                assert!(high >= 600);
                // SAFETY: fresh, and nobody else's.
                pillow.timer = unsafe { OwnedFd::from_raw_fd(high) };
                let file = empty();
                // SAFETY: the number is the pillow's; what it names is replaced or closed, as a program might.
                unsafe {
                    match replaced {
                        true => libc::dup2(file.as_raw_fd(), pillow.fd()),
                        false => libc::close(pillow.fd()),
                    };
                }
                pillow.lie_down(None);
                match way {
                    "sleep" => _ = pillow.sleep(None, &[], Some(Now(1)), Now(0)),
                    "kick" => _ = pillow.kick(Now(1)),
                    _ => assert!(!pillow.is_intact()),
                }
                assert!(pillow.is_lost(), "{way}, replaced {replaced}");
                assert_eq!(file.metadata().expect("its length").len(), 0);
                std::mem::forget(pillow);
            }
        }
    }

    fn tempfile() -> io::Result<std::fs::File> {
        // SAFETY: a name that ends in a zero byte; the result is checked before it is owned.
        let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh, and nobody else's.
        Ok(unsafe { std::fs::File::from_raw_fd(fd) })
    }
}
