//! What this machine lets us do: network namespaces as root, inside a user namespace, or not at all.

use std::sync::OnceLock;

use crate::process::Program;
use crate::{interrupt, report};

/// What hosts are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ground {
    /// We are root: named network namespaces.
    Root,
    /// An unprivileged user namespace in which we are root.
    UserNamespace,
    /// Neither is possible, for this reason: both hosts are this machine.
    Loopback(String),
}

static GROUND: OnceLock<Ground> = OnceLock::new();

/// Finds out, once, and moves this process into a user namespace if that is what it takes. From then
/// on the process may have no way to the outside network, so whatever needs it (cargo, apt) comes first.
///
/// Must be called while the process has one thread, because unshare(2) asks for that.
pub fn stand() -> &'static Ground {
    GROUND.get_or_init(|| {
        let ground = choose();
        interrupt::install();
        if let Ground::Loopback(why) = &ground {
            report::note(&format!("No network namespaces here ({why}); both sides run on this machine"));
        }
        ground
    })
}

fn choose() -> Ground {
    if std::env::var_os("SRDMA_XTASK_GROUND").is_some_and(|word| word == "loopback") {
        return Ground::Loopback("SRDMA_XTASK_GROUND=loopback".into());
    }
    // SAFETY: geteuid(2) cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return match become_root_of_a_user_namespace() {
            Ok(()) => Ground::UserNamespace,
            Err(why) => Ground::Loopback(why),
        };
    }
    let name = format!("srx-{}-probe", std::process::id());
    let made = Program::new("ip").args(["netns", "add", &name]).success();
    let _ = Program::new("ip").args(["netns", "del", &name]).run();
    match made {
        Ok(_) => Ground::Root,
        // Root in a container without CAP_SYS_ADMIN may still be allowed a user namespace.
        Err(_) => match become_root_of_a_user_namespace() {
            Ok(()) => Ground::UserNamespace,
            Err(why) => Ground::Loopback(why),
        },
    }
}

fn become_root_of_a_user_namespace() -> Result<(), String> {
    // SAFETY: no memory effects.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: no memory effects.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWNS) } != 0 {
        return Err(format!("no user namespace: {}", std::io::Error::last_os_error()));
    }
    let write = |file: &str, text: String| std::fs::write(file, text).map_err(|e| format!("{file}: {e}"));
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    let none = std::ptr::null();
    // SAFETY: static strings and null pointers, as mount(2) allows.
    let mounted = unsafe {
        libc::mount(none, c"/".as_ptr(), none, libc::MS_SLAVE | libc::MS_REC, none.cast());
        // `ip netns` keeps its names under /run, which belongs to the real root.
        libc::mount(c"tmpfs".as_ptr(), c"/run".as_ptr(), c"tmpfs".as_ptr(), 0, none.cast())
    };
    if mounted != 0 {
        return Err(format!("cannot mount a /run of our own: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}
