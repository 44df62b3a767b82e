//! Operations and what each waits for: a workload that is written out only while it runs.
//!
//! An operation is carried out by groups of members: each computes, or waits for a time, or exchanges messages with the
//! others of its group. A member begins an operation when it is through with those that the operation comes after *and
//! that the member takes part in*: all waiting is local, as in a program that calls collectives. Nothing waits for an
//! operation that comes later in the list, so every program comes to its end.

use alloc::vec::Vec;

use crate::pattern::Exchange;
use crate::plan::{within, PlanError};

/// What members do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Nothing that others see, for so many picoseconds.
    Compute(u64),
    /// Wait until so many picoseconds after the workload's begin.
    Until(u64),
    /// Exchange messages.
    Exchange(Exchange),
}

/// Groups of members that do the same, each by itself: the members of the first, then those of the second, …
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    pub size: u32,
    pub members: Vec<u32>,
    /// Members and their places in `members`, by member.
    places: Vec<(u32, u32)>,
}

/// Some groups of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupsId(u32);

/// An operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpId(u32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub what: What,
    pub groups: u32,
    pub after: Vec<u32>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    members: u32,
    groups: Vec<Groups>,
    ops: Vec<Op>,
}

/// Messages between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Bytes of each.
    pub bytes: u32,
    /// How many.
    pub count: u64,
}

/// Most operations, each times its members, that a program may have: some of their state is kept while they run.
const SHARES_MAX: u64 = 1 << 26;

impl Groups {
    /// The place of `member`, if it is in one of the groups.
    pub fn place_of(&self, member: u32) -> Option<u32> {
        let found = self.places.binary_search_by_key(&member, |&(member, _)| member).ok()?;
        Some(self.places[found].1)
    }
}

impl Program {
    /// No operations yet, for so many members.
    pub fn new(members: u32) -> Program {
        Program { members, groups: Vec::new(), ops: Vec::new() }
    }

    /// Makes groups of `size` out of `members`, in that order.
    pub fn groups(&mut self, size: u32, members: Vec<u32>) -> GroupsId {
        let mut places: Vec<(u32, u32)> = members.iter().copied().zip(0..).collect();
        places.sort_unstable();
        self.groups.push(Groups { size, members, places });
        GroupsId(self.groups.len() as u32 - 1)
    }

    /// All members as one group, in their order.
    pub fn everybody(&mut self) -> GroupsId {
        self.groups(self.members, (0..self.members).collect())
    }

    /// Appends an operation.
    pub fn push(&mut self, what: What, groups: GroupsId, after: &[OpId]) -> OpId {
        self.ops.push(Op { what, groups: groups.0, after: after.iter().map(|op| op.0).collect() });
        OpId(self.ops.len() as u32 - 1)
    }

    /// Members, numbered from 0.
    pub fn members(&self) -> u32 {
        self.members
    }

    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }

    pub(crate) fn groups_of(&self, op: &Op) -> &Groups {
        &self.groups[op.groups as usize]
    }

    /// Calls `each` with all messages of a round, those of one pair of members of one operation together.
    pub fn traffic(&self, mut each: impl FnMut(Traffic)) {
        for op in &self.ops {
            let What::Exchange(exchange) = op.what else { continue };
            let groups = self.groups_of(op);
            for group in groups.members.chunks(groups.size as usize) {
                exchange.traffic(groups.size, |from, to, bytes, count| {
                    each(Traffic { from: group[from as usize], to: group[to as usize], bytes, count })
                });
            }
        }
    }

    /// Checks that every group and operation can be carried out.
    pub fn validate(&self) -> Result<(), PlanError> {
        within("members", "1 to 1048576", self.members.into(), 1, 1 << 20)?;
        for groups in &self.groups {
            let count = groups.members.len() as u64;
            let whole = groups.size > 0 && count > 0 && count.is_multiple_of(groups.size.into());
            let twice = groups.places.windows(2).any(|pair| pair[0].0 == pair[1].0);
            if !whole || twice || groups.places.last().is_some_and(|&(member, _)| member >= self.members) {
                return Err(PlanError::Groups { size: groups.size, members: count });
            }
        }
        let mut shares = 0u64;
        for (number, op) in self.ops.iter().enumerate() {
            let Some(groups) = self.groups.get(op.groups as usize) else {
                return Err(PlanError::Groups { size: 0, members: 0 });
            };
            shares += groups.members.len() as u64;
            if let Some(&after) = op.after.iter().find(|&&after| after as usize >= number) {
                return Err(PlanError::Dependency { message: number as u32, after });
            }
            if let What::Exchange(exchange) = op.what {
                exchange.validate(groups.size)?;
                shares += u64::from(exchange.slices) * groups.members.len() as u64;
            }
        }
        within("operations × members", "67108864 at most", shares, 0, SHARES_MAX)
    }
}
