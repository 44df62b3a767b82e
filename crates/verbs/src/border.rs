//! The C border: errno conventions, caught panics, null checks and the log line of a refused call.
//!
//! Every exported function is declared by [`export!`], which names how it fails. Its body returns a
//! `Result` and may panic: a fault of ours ends as EIO in the caller, never as an abort.

use libc::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::OnceLock;

/// Why a call fails, as a positive errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const EINVAL: Errno = Errno(libc::EINVAL);
    pub(crate) const EIO: Errno = Errno(libc::EIO);
    pub(crate) const EBUSY: Errno = Errno(libc::EBUSY);
    pub(crate) const ENOENT: Errno = Errno(libc::ENOENT);
    pub(crate) const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

    /// The calling thread's errno.
    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Sets the calling thread's errno.
    pub(crate) fn set(self) -> c_int {
        // SAFETY: the C library's errno location of this thread is always valid.
        unsafe { *libc::__errno_location() = self.0 };
        self.0
    }
}

/// A refused control call: its errno, and its reason in the log; on stderr in any case if the device cannot start.
pub(crate) fn refused(call: &str) -> impl Fn(srdma_client::ControlError) -> Errno + '_ {
    move |error| {
        match error.cannot_start {
            true => say(&error.text),
            false => warn(call, &error.text),
        }
        Errno(if error.errno > 0 { error.errno } else { libc::EIO })
    }
}

/// EINVAL, with the reason in the log.
pub(crate) fn invalid(call: &str, why: &str) -> Errno {
    warn(call, why);
    Errno::EINVAL
}

/// EOPNOTSUPP, with the reason in the log.
pub(crate) fn unsupported(call: &str, what: &str) -> Errno {
    warn(call, what);
    Errno::EOPNOTSUPP
}

/// Whether `SRDMA_LOG` asks for the reasons of failed calls (any value but `0` and `off`).
pub(crate) fn log_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| {
        std::env::var_os("SRDMA_LOG").is_some_and(|v| !v.is_empty() && v != "0" && v != "off")
    })
}

/// One line on stderr if `SRDMA_LOG` is set: programs' own output stays clean otherwise.
pub(crate) fn warn(call: &str, why: &str) {
    if log_wanted() {
        say(&format!("{call}: {why}"));
    }
}

/// One line on stderr, whatever the settings. A closed stderr is not worth a panic.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "srdma: {line}");
}

/// Runs `body`; a panic becomes EIO.
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::EIO))
}

/// 0 or the positive errno, which is set as well (some programs print `%m`).
pub(crate) fn positive(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => errno.set(),
    }
}

/// The value, or −1 with errno set.
pub(crate) fn minus_one(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

/// The pointer, or null with errno set.
pub(crate) fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        errno.set();
        std::ptr::null_mut()
    })
}

/// The object behind a handle, or EINVAL for null.
///
/// # Safety
/// A non-null `handle` points to a live `T` that is not written meanwhile.
pub(crate) unsafe fn object<'a, T>(handle: *const T) -> Result<&'a T, Errno> {
    // SAFETY: passed on to the caller.
    unsafe { handle.as_ref() }.ok_or(Errno::EINVAL)
}

/// Stores a result where the caller wants it; null means it does not.
///
/// # Safety
/// A non-null `place` is writable and properly aligned for `T`.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: passed on to the caller.
        unsafe { place.write(value) };
    }
}

/// Declares C functions. The word before `fn` says how they fail:
/// `errno` (0 or a positive errno, body `Result<(), Errno>`), `minus_one` (−1 and errno, body
/// `Result<c_int, Errno>`), `pointer` (null and errno, body `Result<*mut T, Errno>`), `nothing` (body
/// `Result<(), Errno>`, ignored). With `internal` the function is only reached through a table.
macro_rules! export {
    () => {};
    ($(#[$meta:meta])* errno fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$meta])*
        #[no_mangle]
        #[allow(unused_unsafe)] // not every body touches a pointer
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> libc::c_int {
            // SAFETY: what the manual page asks of callers; null handles are checked in the body.
            $crate::border::positive($crate::border::caught(|| unsafe { $body }))
        }
        $crate::border::export! { $($rest)* }
    };
    ($(#[$meta:meta])* minus_one fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$meta])*
        #[no_mangle]
        #[allow(unused_unsafe)] // not every body touches a pointer
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> libc::c_int {
            // SAFETY: what the manual page asks of callers; null handles are checked in the body.
            $crate::border::minus_one($crate::border::caught(|| unsafe { $body }))
        }
        $crate::border::export! { $($rest)* }
    };
    ($(#[$meta:meta])* pointer fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $of:ty $body:block $($rest:tt)*) => {
        $(#[$meta])*
        #[no_mangle]
        #[allow(unused_unsafe)] // not every body touches a pointer
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> *mut $of {
            // SAFETY: what the manual page asks of callers; null handles are checked in the body.
            $crate::border::pointer($crate::border::caught(|| unsafe { $body }))
        }
        $crate::border::export! { $($rest)* }
    };
    ($(#[$meta:meta])* nothing fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$meta])*
        #[no_mangle]
        #[allow(unused_unsafe)] // not every body touches a pointer
        pub unsafe extern "C" fn $name($($arg: $ty),*) {
            // SAFETY: what the manual page asks of callers; null handles are checked in the body.
            let _ = $crate::border::caught(|| unsafe { $body });
        }
        $crate::border::export! { $($rest)* }
    };
}
pub(crate) use export;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_ours_is_an_error_of_the_call_in_each_convention() {
        let fault = || panic!("planted");
        assert_eq!(positive(caught(fault)), libc::EIO);
        let fault = || panic!("planted");
        assert_eq!(minus_one(caught(fault)), -1);
        assert_eq!(Errno::last(), Errno::EIO);
        let fault = || -> Result<*mut u8, Errno> { panic!("planted") };
        assert!(pointer(caught(fault)).is_null());
    }
}
