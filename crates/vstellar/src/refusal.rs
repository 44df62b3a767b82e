//! Why a command is not carried out.

use alloc::string::String;

use srdma_abi::command::{Denial, Malformed};

/// Linux' numbers (errno(3)): what a program behind libibverbs gets to see.
pub mod errno {
    /// No such name.
    pub const ENOENT: u32 = 2;
    /// No memory, and what the verbs say of any limit.
    pub const ENOMEM: u32 = 12;
    /// May not.
    pub const EACCES: u32 = 13;
    /// In use.
    pub const EBUSY: u32 = 16;
    /// The name is taken.
    pub const EEXIST: u32 = 17;
    /// No sense.
    pub const EINVAL: u32 = 22;
    /// Not a message.
    pub const EPROTO: u32 = 71;
    /// Another version.
    pub const EPROTONOSUPPORT: u32 = 93;
}

/// A refusal: for the program an errno, for the counters a kind, for a person words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Positive errno.
    pub errno: u32,
    /// Kind.
    pub denial: Denial,
    /// What is wrong, naming the object, the limit or the range.
    pub text: String,
}

impl Refusal {
    /// A refusal with the errno that its kind usually has.
    pub fn new(denial: Denial, text: impl Into<String>) -> Refusal {
        let errno = match denial {
            Denial::Malformed => errno::EPROTO,
            Denial::Version => errno::EPROTONOSUPPORT,
            Denial::NotHere => errno::EACCES,
            Denial::Quota | Denial::Host => errno::ENOMEM,
            Denial::Handle | Denial::Value => errno::EINVAL,
            Denial::Busy => errno::EBUSY,
            Denial::Exists => errno::EEXIST,
            Denial::Unknown => errno::ENOENT,
        };
        Refusal { errno, denial, text: text.into() }
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Refusal {
        let denial = match malformed {
            Malformed::Version(_) => Denial::Version,
            _ => Denial::Malformed,
        };
        Refusal::new(denial, alloc::format!("{malformed}"))
    }
}

/// Refusals so far, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Denials([u64; Denial::COUNT]);

impl Denials {
    /// Of one kind.
    pub fn of(&self, denial: Denial) -> u64 {
        self.0[denial as usize]
    }

    /// Of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn count(&mut self, denial: Denial) {
        self.0[denial as usize] += 1;
    }
}
