//! What every machine of a queue pair is handed: time, the world, the observer, and what the queue
//! pairs of a device share.

use alloc::vec::Vec;

use srdma_abi::{AsyncEvent, AsyncKind, Completion, RecvEntry, SendEntry, Sge};
use srdma_memory::{Segment, Table};
use srdma_seams::event::DropCause;
use srdma_seams::{Cqn, Event, Now, Observer, Qpn};

use crate::nic::objects::Cqs;
use crate::nic::peers::Peers;
use crate::nic::timers::Timers;
use crate::place::Placement;
use crate::world::{Outgoing, Queues};
use crate::NicConfig;

/// What the queue pairs of a device share.
pub(crate) struct Shared {
    /// Settings.
    pub config: NicConfig,
    /// Regions.
    pub memory: Table,
    /// Completion queues.
    pub cqs: Cqs,
    /// Copies of the current batch.
    pub placement: Placement,
    /// Whom the queue pairs are connected to, and whose turn it is to send.
    pub peers: Peers,
    /// When queue pairs want to be woken.
    pub timers: Timers,
    /// Completion queues that overflowed in this call.
    pub overruns: Vec<Cqn>,
    /// Buffers that are filled and emptied within one call.
    pub scratch: Scratch,
}

/// See [`Shared::scratch`].
#[derive(Default)]
pub(crate) struct Scratch {
    pub send_entry: SendEntry,
    pub recv_entry: RecvEntry,
    pub runs: Vec<Outgoing>,
    pub segments: Vec<Segment>,
    pub visible: Vec<(u64, u64)>,
    pub sges: Vec<Vec<Sge>>,
}

/// The moment and the surroundings of one call.
pub(crate) struct Cx<'a, W, O> {
    /// Now.
    pub now: Now,
    /// Queues, memory, packets.
    pub world: &'a mut W,
    /// Is told what happens.
    pub obs: &'a mut O,
    /// See [`Shared`].
    pub shared: &'a mut Shared,
}

impl<W: Queues, O: Observer> Cx<'_, W, O> {
    /// Tells the observer.
    pub fn event(&mut self, event: Event) {
        self.obs.event(self.now, event);
    }

    /// Counts a packet as not used.
    pub fn dropped(&mut self, qpn: Qpn, cause: DropCause) {
        self.event(Event::Dropped { qpn: Some(qpn), cause });
    }

    /// Delivers a completion. One that does not fit breaks the queue: it is told once, and every
    /// queue pair attached follows at the end of the call.
    pub fn complete(&mut self, cq: Cqn, completion: &Completion, solicited: bool) {
        if self.shared.cqs.is_broken(cq) {
            return;
        }
        if self.world.complete(cq, completion, solicited).is_err() && self.shared.cqs.break_queue(cq) {
            self.world.raise(AsyncEvent { kind: AsyncKind::CqErr, object: cq.0 });
            self.shared.overruns.push(cq);
        }
    }
}
