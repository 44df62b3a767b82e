//! Every exported function, called as no program should: null, freed and foreign handles, absurd numbers, structs
//! full of rubbish, in any order, from eight threads at once. The list is generated from `symbols.txt`; a function
//! that is new there and not described in `signatures` fails the test.
//!
//! What cannot be told apart is not tried: an address that is no handle in a place where the function takes a plain
//! pointer (a struct to read, a place for a result). C has no way to refuse those.
#![allow(clippy::unwrap_used)]

mod exports;
mod handles;
mod rubbish;
mod signatures;

use std::sync::{Mutex, MutexGuard, PoisonError};

use exports::{call, Class, EXPORTS};
use signatures::{signature, Returns};

/// Held by each test that removes objects: they would dig up one another's graves.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Functions that do nothing yet fail alike whatever they are given, and fill what they should have filled.
#[test]
fn a_function_that_is_not_there_fails_as_its_manual_page_says() {
    let mut stubs = 0;
    for export in EXPORTS.iter().filter(|export| !export.real) {
        let mut places = [[0xa5a5_a5a5_a5a5_a5a5u64; 64]; 6];
        let pointers = places.each_mut().map(|place| place.as_mut_ptr() as usize);
        for arguments in [[0; 6], pointers] {
            // SAFETY: a stub reads nothing and fills at most the bytes that its line in symbols.txt names.
            let (value, errno) = unsafe { call(export, arguments) };
            let name = export.name;
            match export.class {
                Class::Int => assert_eq!((value as i32, errno), (export.errno, export.errno), "{name}"),
                Class::Neg => assert_eq!((value as i32, errno), (-1, export.errno), "{name}"),
                Class::Ptr => assert_eq!((value, errno), (0, export.errno), "{name}"),
                Class::Zero => assert_eq!(value as i32, 0, "{name}"),
                Class::Str => assert_ne!(value, 0, "{name}"),
                Class::Void => {}
            }
        }
        for &(argument, bytes) in export.outs {
            let bytes_of: Vec<u8> = places[argument - 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert!(bytes_of[..bytes].iter().all(|&byte| byte == 0), "{}: argument {argument}", export.name);
            assert!(bytes_of[bytes..].iter().all(|&byte| byte == 0xa5), "{}: one too many", export.name);
        }
        stubs += 1;
    }
    assert!(stubs > 300, "the list is short: {stubs}");
}

#[test]
fn every_real_function_is_described() {
    for export in EXPORTS.iter().filter(|export| export.real) {
        let found = signature(export.name);
        assert!(found.is_some(), "{} is new in symbols.txt: describe it in signatures.rs", export.name);
    }
    for described in signatures::ALL {
        let known = EXPORTS.iter().any(|export| export.real && export.name == described.name);
        assert!(known, "{} is described but not in symbols.txt", described.name);
    }
}

/// A call that must have failed did so in the way of its convention.
pub fn assert_refused(returns: Returns, value: usize, errno: i32, wanted: i32, what: &str) {
    match returns {
        Returns::Errno => assert_eq!(value as i32, wanted, "{what}"),
        Returns::MinusOne => assert_eq!((value as i32, errno), (-1, wanted), "{what}"),
        Returns::Null => assert_eq!((value, errno), (0, wanted), "{what}"),
        Returns::NegativeErrno => assert_eq!(value as isize, -(wanted as isize), "{what}"),
        Returns::Zero => assert_eq!(value, 0, "{what}"),
        Returns::Nothing | Returns::Anything => {}
    }
}
