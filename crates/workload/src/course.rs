//! A workload under way: what it asks for, and what it is told.

use alloc::vec::Vec;

/// Something that a workload wants. Members are its own numbers, from 0; who places it knows their hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A WRITE with immediate, posted now.
    Send {
        /// What [`Told`] calls it. No two messages under way share a token.
        token: u32,
        /// Sender.
        from: u32,
        /// Receiver.
        to: u32,
        /// Bytes.
        bytes: u32,
    },
    /// To be told when it is this late.
    Wake {
        /// What [`Told`] calls it; tokens of wake-ups and of messages have nothing to do with each other.
        token: u32,
        /// Picoseconds since the workload began.
        at_ps: u64,
    },
}

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The receiver has been told of this message.
    Received(u32),
    /// The sender knows that it has landed.
    Sent(u32),
    /// It is as late as asked for.
    Woken(u32),
}

/// A round from its first member's begin to its last one's end. Picoseconds since the workload began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When its first member began.
    pub from_ps: u64,
    /// When its last member was through.
    pub to_ps: u64,
}

/// A workload that is carried out. Whoever drives it does what it wishes and tells what has happened, in the order in
/// which it happens; times never go backwards.
pub trait Course {
    /// What is wanted at the begin.
    fn begin(&mut self, wishes: &mut Vec<Wish>);

    /// Something has happened: adds what is wanted now.
    fn told(&mut self, now_ps: u64, what: Told, wishes: &mut Vec<Wish>);

    /// Nothing more will be wanted, and everything has happened.
    fn is_done(&self) -> bool;

    /// Rounds that are through, in their order.
    fn rounds(&self) -> &[Span];
}

/// How often a workload is repeated, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// So many rounds; without end if not given.
    pub times: Option<u32>,
    /// Rounds begin in the first of these spans only, then pause for the second, and again; picoseconds. A round that
    /// has begun is carried through.
    pub bursts: Option<(u64, u64)>,
}

impl Repeat {
    /// Once, at once.
    pub const ONCE: Repeat = Repeat { times: Some(1), bursts: None };

    /// Whether there is a round with this number, counted from 0.
    pub(crate) fn has(&self, round: u32) -> bool {
        self.times.is_none_or(|times| round < times)
    }

    /// When a round may begin that somebody wants to begin `now`.
    pub(crate) fn opens(&self, now_ps: u64) -> u64 {
        let Some((on, off)) = self.bursts else { return now_ps };
        let cycle = on.saturating_add(off).max(1);
        match now_ps % cycle < on {
            true => now_ps,
            false => (now_ps / cycle + 1).saturating_mul(cycle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_begin_in_bursts_only() {
        let bursts = Repeat { times: None, bursts: Some((50, 30)) };
        for (now, opens) in [(0, 0), (49, 49), (50, 80), (79, 80), (80, 80), (131, 160)] {
            assert_eq!(bursts.opens(now), opens, "{now}");
            assert_eq!(Repeat::ONCE.opens(now), now);
        }
        assert!(bursts.has(u32::MAX) && Repeat::ONCE.has(0) && !Repeat::ONCE.has(1));
    }
}
