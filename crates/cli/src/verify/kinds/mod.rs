//! The kinds of rounds: one promise of the transport each.
//!
//! A round is three or four steps. The target *prepares* memory and receives, and says it is ready. The
//! client *acts* until all its requests are complete, while the target *watches* what comes as a program
//! would: receives, or bare memory. Then the target *settles* what only the end can tell, and its whole
//! region is compared.

mod atomic;
mod changing;
mod flag;
mod last_byte;
mod notice;
mod overlap;
mod read;
mod send;
mod write;
mod write_imm;

use super::failure::Failure;
use super::side::Side;
use clap::ValueEnum;

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// WRITEs of any size, anywhere
    Write,
    /// READs of any size
    Read,
    /// SENDs into posted and late receives: order and content
    Send,
    /// WRITEs with immediate: the notice never overtakes the bytes
    WriteImm,
    /// Fetch-and-add and compare-and-swap of several queue pairs on one word
    Atomic,
    /// 64 WRITEs and a flag: who sees the flag in memory finds every byte
    Flag,
    /// Who sees the last byte of a WRITE in memory finds all others
    LastByte,
    /// Overlapping WRITEs end as if done one after the other
    Overlap,
    /// WRITEs and then a SEND, WRITE with immediate or atomic: it never overtakes the bytes
    Notice,
    /// Memory that changes while it is transferred
    Changing,
}

impl Kind {
    /// All.
    pub const ALL: [Kind; 10] = [
        Kind::Write,
        Kind::Read,
        Kind::Send,
        Kind::WriteImm,
        Kind::Atomic,
        Kind::Flag,
        Kind::LastByte,
        Kind::Overlap,
        Kind::Notice,
        Kind::Changing,
    ];

    /// Name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Write => "write",
            Kind::Read => "read",
            Kind::Send => "send",
            Kind::WriteImm => "write-imm",
            Kind::Atomic => "atomic",
            Kind::Flag => "flag",
            Kind::LastByte => "last-byte",
            Kind::Overlap => "overlap",
            Kind::Notice => "notice",
            Kind::Changing => "changing",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it relies on the order in which bytes become visible within and between WRITEs, which
    /// relaxed ordering gives up.
    pub fn polls_memory(self) -> bool {
        matches!(self, Kind::Flag | Kind::LastByte)
    }

    /// Target: before the client starts.
    pub fn prepare(self, target: &mut Side) -> Result<(), Failure> {
        match self {
            Kind::Write => write::prepare(target),
            Kind::Read => read::prepare(target),
            Kind::Send => send::prepare(target),
            Kind::WriteImm => write_imm::prepare(target),
            Kind::Atomic => atomic::prepare(target),
            Kind::Flag => flag::prepare(target),
            Kind::LastByte => last_byte::prepare(target),
            Kind::Overlap => overlap::prepare(target),
            Kind::Notice => notice::prepare(target),
            Kind::Changing => changing::prepare(target),
        }
    }

    /// Target: while the client acts.
    pub fn watch(self, target: &mut Side) -> Result<(), Failure> {
        match self {
            Kind::Write | Kind::Read | Kind::Atomic | Kind::Overlap => Ok(()),
            Kind::Send => send::watch(target),
            Kind::WriteImm => write_imm::watch(target),
            Kind::Flag => flag::watch(target),
            Kind::LastByte => last_byte::watch(target),
            Kind::Notice => notice::watch(target),
            Kind::Changing => changing::watch(target),
        }
    }

    /// Client: returns the bytes moved.
    pub fn act(self, client: &mut Side) -> Result<u64, Failure> {
        match self {
            Kind::Write => write::act(client),
            Kind::Read => read::act(client),
            Kind::Send => send::act(client),
            Kind::WriteImm => write_imm::act(client),
            Kind::Atomic => atomic::act(client),
            Kind::Flag => flag::act(client),
            Kind::LastByte => last_byte::act(client),
            Kind::Overlap => overlap::act(client),
            Kind::Notice => notice::act(client),
            Kind::Changing => changing::act(client),
        }
    }

    /// Target: when all requests are complete, before the whole region is compared.
    pub fn settle(self, target: &mut Side) -> Result<(), Failure> {
        match self {
            Kind::Changing => changing::settle(target),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_possible_value().unwrap().get_name(), kind.name());
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(Kind::value_variants(), Kind::ALL);
        assert_eq!(Kind::from_name("nothing"), None);
    }
}
