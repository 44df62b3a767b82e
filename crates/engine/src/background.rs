//! The thread that makes progress when no caller does: it serves passive targets, programs that poll
//! memory, and timers. Blocked in the kernel when there is nothing to do.
//!
//! On two cores a thread woken for every packet that a polling caller takes anyway would ruin the
//! caller's latency. So it has several ways to sleep. *Listening*: on the socket; every arrival wakes it.
//! *Napping*: off the socket for a moment at a time, because callers poll; at the end of each nap it
//! looks whether they still do, and whether packets were left lying about. And while bulk traffic comes it *dozes*: off the
//! socket for a shorter moment, in which some of it gathers.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use srdma_seams::{Duration, Now};

use crate::clock;
use crate::device::Shared;
use crate::wake::Woken;
use crate::watch::Watch;

/// How long a caller that was woken by the same packet gets to take it.
const STEP_BACK: Duration = Duration::from_micros(50);
/// The shortest turn that the scheduler grants (100 µs).
const TURN: Duration = Duration::from_micros(100);
/// So many bytes in one turn, and the next will come as well.
const THICK_BYTES: u64 = 128 << 10;
/// How long to stay off the socket then. Waking us for each burst costs a sender more than sending it does.
const DOZE: Duration = Duration::from_micros(50);
/// How late a sleep may end, at most (the kernel's default is 50 µs).
const SLACK_NS: libc::c_ulong = 1_000;
/// How long to stay off the socket while callers poll.
const NAP: Duration = Duration::from_micros(500);
/// A caller that polled within this time is polling.
const RECENT: Duration = Duration::from_micros(200);
/// Packets that lie unread although the last poll is this long ago were left for us.
const LEFT_LYING: Duration = Duration::from_micros(30);
/// A caller that finds nothing this often between two packets polls in a loop …
const SPINS_PER_PACKET: u64 = 4;
/// … or this often in one nap. If it has not polled just now, it has lost its core; perhaps to us.
const SPINS_PER_NAP: u64 = 50;
/// Wake-ups in a row that found the work already done before we take to napping.
const USELESS_MAX: u32 = 8;
/// The same, after naps have proved too slow for this program.
const USELESS_MAX_WARY: u32 = 512;
/// Naps in a row after which nothing was left lying that make up for one after which something was.
const FORGIVEN_AFTER: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    Listening,
    Napping,
}

/// What the thread has learned of its callers.
#[derive(Debug)]
struct Habits {
    sleep: Sleep,
    useless: u32,
    late: u32,
    /// Naps since the last late one.
    in_time: u32,
    useless_max: u32,
    /// Polls that callers had made when this was last looked at.
    polls: u64,
    /// Bytes that had been received then.
    received_bytes: u64,
}

impl Habits {
    fn new() -> Habits {
        Habits {
            sleep: Sleep::Listening,
            useless: 0,
            late: 0,
            in_time: 0,
            useless_max: USELESS_MAX,
            polls: 0,
            received_bytes: 0,
        }
    }

    /// Whether much has come since this was last asked.
    fn comes_thick(&mut self, received_bytes: u64) -> bool {
        received_bytes.wrapping_sub(std::mem::replace(&mut self.received_bytes, received_bytes))
            >= THICK_BYTES
    }

    /// Polls since this was last asked.
    fn spins(&mut self, polls: u64) -> u64 {
        polls.wrapping_sub(std::mem::replace(&mut self.polls, polls))
    }

    /// A wake-up while listening found work that nobody else would have done, or none.
    fn listened(&mut self, useful: bool, polled_recently: bool) {
        self.useless = if useful { 0 } else { self.useless + 1 };
        if self.useless >= self.useless_max && polled_recently {
            *self = Habits { sleep: Sleep::Napping, useless: 0, late: 0, ..*self };
        }
    }

    /// A nap ended: did callers poll lately, and did packets lie about unread?
    fn napped(&mut self, polled_recently: bool, left_lying: bool) {
        if !polled_recently {
            *self = Habits { sleep: Sleep::Listening, useless: 0, ..*self };
        } else if left_lying {
            (self.late, self.in_time) = (self.late + 1, 0);
            if self.late >= 2 {
                *self = Habits {
                    useless_max: USELESS_MAX_WARY,
                    polls: self.polls,
                    received_bytes: self.received_bytes,
                    ..Habits::new()
                };
            }
        } else {
            self.in_time += 1;
            if self.in_time >= FORGIVEN_AFTER {
                // Once, a caller had lost its core.
                *self = Habits { late: 0, useless_max: USELESS_MAX, ..*self };
            }
        }
    }
}

/// `struct sched_attr`, version 0 (sched_setattr(2)).
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Asks for punctual waking, and for short turns on the core, so that the scheduler lets the thread in at once when a packet wakes it
/// although a spinning caller holds the core: it works for a few microseconds and sleeps again. Takes no privilege
/// (Linux 6.12; older kernels ignore the wish), gives no more of the core than anybody's share.
pub(crate) fn ask_for_short_turns() {
    let mut attr = SchedAttr { size: size_of::<SchedAttr>() as u32, ..SchedAttr::default() };
    // SAFETY: the structure is as long as its first field says and lives across both calls; 0 means this thread. The
    // kernel's own values are read first so that policy and nice stay as they are.
    unsafe {
        let got = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, attr.size, 0);
        if got == 0 && attr.policy == libc::SCHED_OTHER as u32 {
            attr.size = size_of::<SchedAttr>() as u32;
            attr.runtime_ns = TURN.0;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
        }
        libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS);
    }
}

/// Starts the thread. Signals are the program's business: all but faults of the thread's own are blocked on it, so that
/// none interrupts us instead of the program, nor ends a program that has blocked it everywhere else.
pub(crate) fn spawn(shared: &Arc<Shared>, watch: Option<Watch>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let body = move || {
        let work = std::panic::AssertUnwindSafe(|| run(&shared, Watchers(watch)));
        if std::panic::catch_unwind(work).is_err() {
            shared.fail();
        }
        clock::expect_within(None);
    };
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises `all`; both sets live across the calls. A new thread inherits the mask.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT] {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        let refused = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
    }
    let started = std::thread::Builder::new().name("srdma".into()).spawn(body);
    // SAFETY: `before` was filled by the call that succeeded above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started.map(drop)
}

/// Those who watch, if the device can be watched.
struct Watchers(Option<Watch>);

impl Watchers {
    /// Sleeps, but not past what watchers wait for.
    fn sleep(&mut self, shared: &Shared, socket: Option<RawFd>, until: Option<Now>, now: Now) -> Woken {
        let Some(watch) = &mut self.0 else { return shared.pillow.sleep(socket, &[], until, now) };
        let until = [until, watch.deadline()].into_iter().flatten().min();
        shared.pillow.sleep(socket, watch.interest(), until, now)
    }

    /// Takes a step for them, outside the lock. A fault there costs them, not the device.
    fn serve(&mut self, shared: &Shared, woken: Woken) {
        let Some(watch) = &mut self.0 else { return };
        if !woken.others && watch.deadline().is_none() {
            return;
        }
        let step = std::panic::AssertUnwindSafe(|| watch.serve(shared, clock::now()));
        if !std::panic::catch_unwind(step).unwrap_or(false) {
            self.0 = None;
        }
        // A bell that rang while counters were being copied found the lock taken.
        if shared.doorbells_pending() {
            shared.progress_if_free();
        }
    }
}

/// Body of the thread. Ends when the device is gone.
fn run(shared: &Arc<Shared>, mut watchers: Watchers) {
    ask_for_short_turns();
    let mut habits = Habits::new();
    while !shared.is_ending() {
        let woken = match habits.sleep {
            Sleep::Listening => listen(shared, &mut habits, &mut watchers),
            Sleep::Napping => nap(shared, &mut habits, &mut watchers),
        };
        if shared.pillow.is_lost() {
            shared.lose();
        }
        watchers.serve(shared, woken);
    }
}

fn polled_recently(shared: &Shared, now: Now, span: Duration) -> bool {
    now.since(shared.patience.last_poll()) < span
}

fn listen(shared: &Arc<Shared>, habits: &mut Habits, watchers: &mut Watchers) -> Woken {
    let (deadline, socket) = shared.lie_down();
    // A device that has lost its descriptors may have nothing left to wake us with, and is known as such since before
    // it gave up the socket.
    if shared.is_ending() {
        return Woken::default();
    }
    // One last look: a bell that rang while the lock was held kicked nobody.
    if shared.doorbells_pending() {
        shared.pillow.get_up();
        shared.progress_blocking();
        return Woken::default();
    }
    let comes_thick = habits.comes_thick(shared.received_bytes.load(Ordering::Relaxed));
    if comes_thick && shared.is_drained.load(Ordering::Relaxed) {
        return doze(shared, watchers, deadline);
    }
    let woken = watchers.sleep(shared, socket, deadline, clock::now());
    let had_packets = woken.socket;
    shared.pillow.get_up();
    if shared.is_over() || shared.pillow.is_lost() {
        return woken;
    }
    if had_packets && shared.callers_waiting.load(Ordering::Relaxed) > 0 {
        // Woken together with a caller that waits for just this. If it has not taken the packets in a moment, we do.
        habits.listened(false, true);
        let now = clock::now();
        shared.pillow.sleep(None, &[], Some(now + STEP_BACK), now);
        return woken;
    }
    let useful = shared.progress_if_free();
    if had_packets {
        // Who polls all the time would have taken them in a moment; perhaps we have just taken his core.
        let needed = useful == Some(true) && habits.spins(shared.patience.polls()) < SPINS_PER_PACKET;
        habits.listened(needed, polled_recently(shared, clock::now(), RECENT));
        if useful.is_none() {
            // Somebody is at it. Do not spin on a socket that he will drain.
            std::thread::yield_now();
        }
    } else if useful.is_none() {
        shared.progress_blocking();
    }
    woken
}

/// Bulk traffic comes: lets it gather for a moment.
fn doze(shared: &Arc<Shared>, watchers: &mut Watchers, deadline: Option<Now>) -> Woken {
    let now = clock::now();
    let until = deadline.map_or(now + DOZE, |at| at.min(now + DOZE));
    let woken = watchers.sleep(shared, None, Some(until), now);
    shared.pillow.get_up();
    // What comes is theirs who wait at the socket.
    let is_theirs = shared.callers_waiting.load(Ordering::Relaxed) > 0;
    if !shared.is_over() && !shared.pillow.is_lost() && !is_theirs {
        shared.progress_if_free();
    }
    woken
}

fn nap(shared: &Arc<Shared>, habits: &mut Habits, watchers: &mut Watchers) -> Woken {
    let now = clock::now();
    let until = now + NAP;
    // Naps end by themselves within a timer's slack: nobody needs to kick.
    let woken = watchers.sleep(shared, None, Some(until), now);
    shared.pillow.get_up();
    let now = clock::now();
    // Who waits at the socket is woken by what comes, and takes it.
    let waits = shared.callers_waiting.load(Ordering::Relaxed) > 0;
    let idle_callers = !waits && !polled_recently(shared, now, LEFT_LYING);
    let useful = if idle_callers { shared.progress_if_free() } else { shared.timers_if_free() };
    let spins = habits.spins(shared.patience.polls()) >= SPINS_PER_NAP;
    let left_lying = idle_callers && useful == Some(true) && !spins;
    habits.napped(waits || spins || polled_recently(shared, now, RECENT), left_lying);
    woken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_naps_only_when_callers_poll_and_returns_when_they_stop() {
        let mut habits = Habits::new();
        for _ in 0..USELESS_MAX {
            habits.listened(false, false);
        }
        assert_eq!(habits.sleep, Sleep::Listening, "nobody polls");
        habits.listened(false, true);
        assert_eq!(habits.sleep, Sleep::Napping);
        habits.napped(true, false);
        assert_eq!(habits.sleep, Sleep::Napping);
        habits.napped(false, false);
        assert_eq!(habits.sleep, Sleep::Listening);
    }

    #[test]
    fn packets_left_lying_twice_end_the_naps_for_long() {
        let mut habits = Habits { sleep: Sleep::Napping, ..Habits::new() };
        habits.napped(true, true);
        assert_eq!(habits.sleep, Sleep::Napping);
        habits.napped(true, true);
        assert_eq!((habits.sleep, habits.useless_max), (Sleep::Listening, USELESS_MAX_WARY));
        habits.listened(true, true);
        for _ in 0..USELESS_MAX_WARY - 1 {
            habits.listened(false, true);
        }
        assert_eq!(habits.sleep, Sleep::Listening);
    }

    #[test]
    fn packets_left_lying_now_and_then_are_forgiven() {
        let mut habits = Habits { sleep: Sleep::Napping, useless_max: USELESS_MAX_WARY, ..Habits::new() };
        for _ in 0..10 {
            habits.napped(true, true);
            for _ in 0..FORGIVEN_AFTER {
                assert_eq!(habits.sleep, Sleep::Napping);
                habits.napped(true, false);
            }
            assert_eq!(habits.useless_max, USELESS_MAX);
        }
    }
}
