//! What the members of a group send to each other, step by step.

use crate::plan::{within, PlanError, MESSAGE_MAX};

/// A collective, or a simpler exchange. Members of a group are numbered from 0 in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// AllReduce by a ring (Patarasuk and Yuan 2009): reduce-scatter, then all-gather, each members − 1 steps, to the next
    /// member.
    AllReduceRing,
    /// The first half of it.
    ReduceScatterRing,
    /// The second half of it.
    AllGatherRing,
    /// AllReduce by recursive halving and doubling (Thakur, Rabenseifner and Gropp 2005), with partners at half the members'
    /// distance first. A power of two of members.
    AllReduceHalving,
    /// Everybody sends a part to everybody else, beginning with the next member.
    AllToAll {
        /// Messages that a member has on their way at once.
        parallel: u32,
    },
    /// All send to the first.
    Incast,
    /// The first sends to all others.
    Outcast {
        /// Messages that it has on their way at once.
        parallel: u32,
    },
    /// The first sends to the second; there are no others.
    Pass,
}

/// What the next message of a chain waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// What was sent in the step before has a counterpart; that must have come.
    Step,
    /// No more than so many may be on their way.
    Window(u32),
}

/// An exchange: a pattern, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Who sends to whom.
    pub pattern: Pattern,
    /// Bytes of a member's buffer: of an AllReduce its contribution, of ReduceScatter and AllGather the whole that is scattered
    /// or gathered, of an AllToAll what it holds for all members, itself included; otherwise of each sender to each receiver.
    pub bytes: u64,
    /// Pieces that each message travels in, each with a chain of steps of its own, so that one hides the latency of
    /// another.
    pub slices: u32,
}

impl Pattern {
    /// Messages of a chain that member `at` of `members` sends, and that it receives.
    pub(crate) fn counts(self, members: u32, at: u32) -> (u32, u32) {
        let others = members - 1;
        match self {
            Pattern::AllReduceRing => (2 * others, 2 * others),
            Pattern::ReduceScatterRing | Pattern::AllGatherRing | Pattern::AllToAll { .. } => {
                (others, others)
            }
            Pattern::AllReduceHalving => (2 * members.ilog2(), 2 * members.ilog2()),
            Pattern::Incast if at == 0 => (0, others),
            Pattern::Outcast { .. } if at == 0 => (others, 0),
            Pattern::Pass if at == 0 => (1, 0),
            Pattern::Incast => (1, 0),
            Pattern::Outcast { .. } | Pattern::Pass => (0, 1),
        }
    }

    /// To whom member `at` sends in `step`.
    pub(crate) fn to(self, members: u32, at: u32, step: u32) -> u32 {
        let levels = members.ilog2();
        match self {
            Pattern::AllReduceRing | Pattern::ReduceScatterRing | Pattern::AllGatherRing => {
                (at + 1) % members
            }
            Pattern::AllReduceHalving if step < levels => at ^ (members >> (step + 1)),
            Pattern::AllReduceHalving => at ^ (1 << (step - levels)),
            Pattern::AllToAll { .. } => ((u64::from(at) + u64::from(step) + 1) % u64::from(members)) as u32,
            Pattern::Incast => 0,
            Pattern::Outcast { .. } => step + 1,
            Pattern::Pass => 1,
        }
    }

    pub(crate) fn gate(self) -> Gate {
        match self {
            Pattern::AllToAll { parallel } | Pattern::Outcast { parallel } => Gate::Window(parallel),
            Pattern::Incast | Pattern::Pass => Gate::Window(u32::MAX),
            _ => Gate::Step,
        }
    }

    /// *Bus bandwidth* as a share of the bytes of a member's buffer per second: what each link carries, independent of the
    /// number of members (NCCL tests, PERFORMANCE.md). `None` where it is not defined.
    pub fn bus_share(self, members: u32) -> Option<f64> {
        let others = f64::from(members.saturating_sub(1)) / f64::from(members.max(1));
        match self {
            Pattern::AllReduceRing | Pattern::AllReduceHalving => Some(2.0 * others),
            Pattern::ReduceScatterRing | Pattern::AllGatherRing | Pattern::AllToAll { .. } => Some(others),
            Pattern::Incast | Pattern::Outcast { .. } | Pattern::Pass => None,
        }
    }
}

impl Exchange {
    /// Bytes of each message of a chain in `step`, rounded up.
    pub(crate) fn message_bytes(&self, members: u32, step: u32) -> u32 {
        let (bytes, members, levels) = (self.bytes, u64::from(members), members.ilog2());
        let share = match self.pattern {
            Pattern::AllReduceHalving if step < levels => bytes.div_ceil(1 << (step + 1)),
            Pattern::AllReduceHalving => bytes.div_ceil(members >> (step - levels)),
            Pattern::Incast | Pattern::Outcast { .. } | Pattern::Pass => bytes,
            _ => bytes.div_ceil(members),
        };
        share.div_ceil(self.slices.into()).max(1) as u32
    }

    /// Calls `each` with sender, receiver, bytes and number of messages, for a group of so many.
    pub(crate) fn traffic(&self, members: u32, mut each: impl FnMut(u32, u32, u32, u64)) {
        for at in 0..members {
            let steps = self.pattern.counts(members, at).0;
            let slices = u64::from(self.slices);
            match self.pattern {
                Pattern::AllReduceRing | Pattern::ReduceScatterRing | Pattern::AllGatherRing => {
                    let count = u64::from(steps) * slices;
                    each(at, self.pattern.to(members, at, 0), self.message_bytes(members, 0), count);
                }
                _ => (0..steps).for_each(|step| {
                    let bytes = self.message_bytes(members, step);
                    each(at, self.pattern.to(members, at, step), bytes, slices);
                }),
            }
        }
    }

    pub(crate) fn validate(&self, members: u32) -> Result<(), PlanError> {
        within("members", "2 to 65536", members.into(), 2, 1 << 16)?;
        within("slices", "1 to 1024", self.slices.into(), 1, 1024)?;
        within("bytes", "1 byte to 1 TiB", self.bytes, 1, 1 << 40)?;
        match self.pattern {
            Pattern::AllReduceHalving if !members.is_power_of_two() => {
                return Err(PlanError::Power(members));
            }
            Pattern::AllToAll { parallel } | Pattern::Outcast { parallel } => {
                within("parallel", "1 or more", parallel.into(), 1, u64::MAX)?;
            }
            Pattern::Pass => within("members of a Pass", "2", members.into(), 2, 2)?,
            _ => {}
        }
        let first = match self.pattern {
            Pattern::AllReduceHalving => self.bytes.div_ceil(2),
            Pattern::Incast | Pattern::Outcast { .. } | Pattern::Pass => self.bytes,
            _ => self.bytes.div_ceil(members.into()),
        };
        within("bytes of a message", "1 GiB at most", first.div_ceil(self.slices.into()), 0, MESSAGE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const ALL: [Pattern; 8] = [
        Pattern::AllReduceRing,
        Pattern::ReduceScatterRing,
        Pattern::AllGatherRing,
        Pattern::AllReduceHalving,
        Pattern::AllToAll { parallel: 3 },
        Pattern::Incast,
        Pattern::Outcast { parallel: 2 },
        Pattern::Pass,
    ];

    /// What members say that they send is what the others say that they receive, and what the summary says.
    #[test]
    fn every_message_has_two_ends() {
        for pattern in ALL {
            let members = if pattern == Pattern::Pass { 2 } else { 8 };
            let exchange = Exchange { pattern, bytes: 8_000, slices: 2 };
            let (mut came, mut bytes) = (vec![0; members as usize], 0);
            for at in 0..members {
                for step in 0..pattern.counts(members, at).0 {
                    let to = pattern.to(members, at, step);
                    assert!(to < members && to != at, "{pattern:?} {at} {step}");
                    came[to as usize] += 1;
                    bytes += 2 * u64::from(exchange.message_bytes(members, step));
                }
            }
            let wanted: Vec<u32> = (0..members).map(|at| pattern.counts(members, at).1).collect();
            assert_eq!(came, wanted, "{pattern:?}");
            let mut summed = 0;
            exchange.traffic(members, |_, _, each, count| summed += u64::from(each) * count);
            assert_eq!(summed, bytes, "{pattern:?}");
        }
    }

    /// Both ways of an AllReduce move 2 (n − 1) / n of the buffer out of every member.
    #[test]
    fn allreduces_move_what_they_must() {
        for pattern in [Pattern::AllReduceRing, Pattern::AllReduceHalving] {
            let exchange = Exchange { pattern, bytes: 16 << 10, slices: 1 };
            let mut out = [0u64; 16];
            exchange.traffic(16, |from, _, bytes, count| out[from as usize] += u64::from(bytes) * count);
            assert_eq!(out, [(2 * 15) << 10; 16], "{pattern:?}");
            assert_eq!(pattern.bus_share(16), Some(2.0 * 15.0 / 16.0));
        }
    }

    #[test]
    fn partners_of_halving_exchange_with_each_other() {
        let pattern = Pattern::AllReduceHalving;
        for step in 0..8 {
            for at in 0..16 {
                let partner = pattern.to(16, at, step);
                assert_eq!(pattern.to(16, partner, step), at);
            }
        }
    }
}
