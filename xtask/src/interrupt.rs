//! What must not outlive this process: child process groups and network namespaces.
//!
//! Whoever makes one registers it here and takes it out again when it is gone. On SIGINT, SIGTERM or
//! SIGHUP everything still registered is killed or deleted and the process ends with 128 + signal.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

static PIPE_WRITE_FD: AtomicI32 = AtomicI32::new(-1);
static REGISTERED: Mutex<Registered> =
    Mutex::new(Registered { groups: BTreeSet::new(), namespaces: BTreeSet::new() });

struct Registered {
    groups: BTreeSet<i32>,
    namespaces: BTreeSet<String>,
}

fn registered() -> MutexGuard<'static, Registered> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the process group led by `pid`.
pub fn add_group(pid: i32) {
    registered().groups.insert(pid);
}

/// The group's leader has been waited for.
pub fn remove_group(pid: i32) {
    registered().groups.remove(&pid);
}

/// Registers a named network namespace.
pub fn add_namespace(name: &str) {
    registered().namespaces.insert(name.to_owned());
}

/// The namespace has been deleted.
pub fn remove_namespace(name: &str) {
    registered().namespaces.remove(name);
}

extern "C" fn on_signal(signal: i32) {
    let byte = signal as u8;
    // SAFETY: write(2) is async-signal-safe; the descriptor stays open for the life of the process.
    unsafe { libc::write(PIPE_WRITE_FD.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
}

/// Starts listening for signals. Called once the process may have threads, see `ground`.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut ends = [0i32; 2];
        // SAFETY: `ends` has room for the two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return;
        }
        PIPE_WRITE_FD.store(ends[1], Ordering::Relaxed);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the handler only calls write(2).
            unsafe { libc::signal(signal, on_signal as extern "C" fn(i32) as libc::sighandler_t) };
        }
        let read_fd = ends[0];
        std::thread::spawn(move || {
            let mut byte = 0u8;
            // SAFETY: reads one byte into `byte`.
            let got = unsafe { libc::read(read_fd, (&raw mut byte).cast(), 1) };
            if got == 1 {
                clean();
                eprintln!("\nInterrupted: programs stopped, network namespaces removed");
                // SAFETY: ends the process without running destructors, which other threads may be using.
                unsafe { libc::_exit(128 + i32::from(byte)) };
            }
        });
    });
}

/// Kills and deletes everything registered.
fn clean() {
    let mut all = registered();
    for pid in std::mem::take(&mut all.groups) {
        // SAFETY: kill(2) has no memory effects; the group is one of ours and not yet waited for.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
    }
    for name in std::mem::take(&mut all.namespaces) {
        let _ = std::process::Command::new("ip").args(["netns", "del", &name]).output();
    }
}
