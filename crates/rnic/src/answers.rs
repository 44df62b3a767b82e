//! READs and atomics of the peer: carried out when everything before them has landed, answered with
//! messages of the response space.

use alloc::collections::VecDeque;

use srdma_abi::control::LIMITS;
use srdma_memory::{Rights, Segment, Table};
use srdma_seams::Observer;
use srdma_wire::{NakCode, Space};

use crate::authz::{self, Target};
use crate::cx::Cx;
use crate::ordering::{Kind, Message};
use crate::qp::Qp;
use crate::world::World;

/// Answers kept for a peer that does not acknowledge them; beyond, its further requests wait.
const SAVED_MAX: usize = 1024;

/// An answer, kept until the peer has acknowledged it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    /// Message number of the request.
    pub request: u64,
    /// What the answer is.
    pub answer: Answer,
    /// All of it has left at least once, so the peer may regard the request as done.
    pub sent: bool,
}

/// See [`Saved`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// These bytes, read and checked anew each time they are sent.
    Read(Target),
    /// The value before an atomic: carried out once, told any number of times.
    Value(u64),
}

/// Answers given but not yet acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    saved: VecDeque<Saved>,
    /// Response-space message number of the front of `saved`.
    front: u64,
    /// Answers that have not wholly left yet.
    unsent: u32,
    /// Answers from this response-space message on can no longer be given.
    refused_from: Option<u64>,
}

impl Answers {
    /// None given yet; they are numbered from `first_msn`.
    pub fn new(first_msn: u64) -> Answers {
        Answers { front: first_msn, ..Answers::default() }
    }

    /// The answer with this response-space message number.
    pub fn get(&self, msn: u64) -> Option<&Saved> {
        let position = msn.checked_sub(self.front)?;
        self.saved.get(usize::try_from(position).ok()?)
    }

    /// Whether any is not yet acknowledged.
    pub fn are_owed(&self) -> bool {
        !self.saved.is_empty()
    }

    /// Bytes of memory of the list.
    pub fn bytes(&self) -> usize {
        self.saved.capacity() * size_of::<Saved>()
    }

    /// Gives memory back that the list does not need.
    pub fn fit(&mut self) {
        self.saved.shrink_to_fit();
    }

    /// Response-space message number of the next answer.
    fn end(&self) -> u64 {
        self.front + self.saved.len() as u64
    }

    fn push(&mut self, saved: Saved) {
        self.saved.push_back(saved);
        self.unsent += 1;
    }

    /// Answer `msn` has wholly left.
    pub fn left(&mut self, msn: u64) {
        let position = msn.checked_sub(self.front).and_then(|at| usize::try_from(at).ok());
        let Some(saved) = position.and_then(|at| self.saved.get_mut(at)) else { return };
        if !core::mem::replace(&mut saved.sent, true) {
            self.unsent = self.unsent.saturating_sub(1);
        }
    }

    /// The peer has acknowledged every answer before `msn`.
    pub fn acknowledged(&mut self, msn: u64) {
        while self.front < msn {
            let Some(saved) = self.saved.pop_front() else { return };
            self.front += 1;
            if !saved.sent {
                self.unsent = self.unsent.saturating_sub(1);
            }
        }
    }

    /// Answer `msn` and those after it can no longer be given.
    pub fn refuse_from(&mut self, msn: u64) {
        self.refused_from = Some(self.refused_from.map_or(msn, |first| first.min(msn)));
    }

    /// Whether answer `msn` can no longer be given.
    pub fn is_refused(&self, msn: u64) -> bool {
        self.refused_from.is_some_and(|first| msn >= first)
    }
}

impl Qp {
    /// Carries out the READ or atomic whose turn it is; false if it cannot be now.
    pub(crate) fn execute<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        message: &Message,
    ) -> bool {
        if self.responder.answers.saved.len() >= SAVED_MAX {
            return false;
        }
        match self.try_execute(cx, message) {
            Ok((answer, length)) => {
                let request = self.responder.tracker.head();
                let Some(conn) = &mut self.conn else { return false };
                let msn = conn.submit(cx.now, Space::Response, length, 0);
                debug_assert_eq!(msn, self.responder.answers.end());
                self.responder.answers.push(Saved { request, answer, sent: false });
                self.responder.tracker.executed();
                true
            }
            Err(code) => {
                let msn = self.responder.tracker.head();
                if let Some(conn) = &mut self.conn {
                    conn.unreceive(Space::Request, message.seq, None);
                }
                self.refuse_now(cx, msn, code, None);
                false
            }
        }
    }

    fn try_execute<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        message: &Message,
    ) -> Result<(Answer, u32), NakCode> {
        if self.responder.answers.unsent >= u32::from(self.attributes.max_dest_rd_atomic) {
            return Err(NakCode::TooManyReads);
        }
        let Some(kind) = message.kind else { return Err(NakCode::Invalid) };
        let place = self.may_execute(&cx.shared.memory, &kind)?;
        match (kind, place) {
            (Kind::Read { address, rkey, length }, _) => {
                Ok((Answer::Read(Target { rkey, address, length }), length))
            }
            (Kind::Atomic { op, .. }, Some(place)) => {
                let value = cx.world.atomic(place, op).map_err(|_| NakCode::Fault)?;
                Ok((Answer::Value(value), 0))
            }
            _ => Err(NakCode::Invalid),
        }
    }

    /// Whether the peer may do this READ or atomic; if so, where, unless it is of length 0.
    pub(crate) fn may_execute(&self, memory: &Table, kind: &Kind) -> Result<Option<Segment>, NakCode> {
        let access = self.attributes.access;
        let (target, right) = match *kind {
            Kind::Read { address, rkey, length } => (Target { rkey, address, length }, Rights::REMOTE_READ),
            Kind::Atomic { address, rkey, .. } => {
                (Target { rkey, address, length: 8 }, Rights::REMOTE_ATOMIC)
            }
            _ => return Err(NakCode::Invalid),
        };
        let misaligned = right == Rights::REMOTE_ATOMIC && target.address % 8 != 0;
        if misaligned || target.length > LIMITS.max_msg_bytes {
            return Err(NakCode::Invalid);
        }
        if target.length == 0 {
            return authz::permits(access, right).map(|()| None);
        }
        authz::remote(memory, self.asker, access, &target, right).map(|place| Some(place.segment))
    }
}
