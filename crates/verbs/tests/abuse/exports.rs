//! The functions under test, by address.

#[path = "../../build/symbols.rs"]
mod symbols;

pub use symbols::Class;

/// One exported function.
pub struct Export {
    pub name: &'static str,
    pub class: Class,
    pub real: bool,
    pub outs: &'static [(usize, usize)],
    pub errno: i32,
    pub at: unsafe extern "C" fn(),
}

// Brings the functions into this program.
use srdma_verbs as _;

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

type Any = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// Calls a function with six words, of which it takes those it knows of; what it returned, and errno.
///
/// # Safety
/// What the function would follow as a plain pointer is null or good.
pub unsafe fn call(export: &Export, words: [usize; 6]) -> (usize, i32) {
    // SAFETY: integers and pointers travel in registers on the ABIs that we build for, at most six of them here.
    let function = unsafe { std::mem::transmute::<unsafe extern "C" fn(), Any>(export.at) };
    let [a, b, c, d, e, f] = words;
    // SAFETY: the location of errno is always valid; the rest is the caller's promise.
    unsafe {
        *libc::__errno_location() = 0;
        let value = function(a, b, c, d, e, f);
        (value, *libc::__errno_location())
    }
}

/// The function of that name.
pub fn export(name: &str) -> &'static Export {
    EXPORTS.iter().find(|export| export.name == name).unwrap_or_else(|| panic!("{name} is not exported"))
}
