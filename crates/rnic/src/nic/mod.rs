//! The device: who gets a packet, whose turn it is to send, whose time has come.

pub(crate) mod control;
pub(crate) mod objects;
pub(crate) mod peers;
pub(crate) mod timers;
mod trimmed;

use alloc::vec::Vec;

use srdma_abi::control::LIMITS;
use srdma_abi::{AsyncKind, Cause, QpState};
use srdma_memory::Table;
use srdma_seams::event::DropCause;
use srdma_seams::{Cqn, Event, Now, Observer, Qpn};

use crate::batch::Batch;
use crate::cx::{Cx, Shared};
use crate::place::{Placement, Side};
use crate::qp::{Outcome, Qp};
use crate::world::World;
use crate::NicConfig;
use objects::{Pds, Qps};
use peers::Peers;

/// A device: all its queue pairs, regions and completion queues.
pub struct Nic {
    pub(crate) qps: Qps,
    pub(crate) pds: Pds,
    pub(crate) shared: Shared,
    touched: Vec<u32>,
    /// Queue pairs served by [`Nic::on_time`]; empty between calls, so that none of them allocates.
    woken: Vec<u32>,
    pub(crate) serial: u32,
}

impl Nic {
    /// A device with nothing in it.
    pub fn new(config: NicConfig) -> Nic {
        Nic {
            qps: Qps::new(),
            pds: Pds::default(),
            shared: Shared {
                memory: Table::new(config.seed, LIMITS.max_mr),
                peers: Peers::new(&config.transport),
                config,
                cqs: Default::default(),
                placement: Placement::default(),
                timers: Default::default(),
                overruns: Vec::new(),
                scratch: Default::default(),
            },
            touched: Vec::new(),
            woken: Vec::new(),
            serial: 0,
        }
    }

    /// The program has posted to the send ring of `qpn`.
    pub fn doorbell_send(&mut self, now: Now, qpn: Qpn, world: &mut impl World, obs: &mut impl Observer) {
        let cx = &mut Cx { now, world, obs, shared: &mut self.shared };
        let Some(qp) = self.qps.find_mut(qpn) else { return };
        match qp.attributes.state {
            QpState::Rts | QpState::Sqd => {
                qp.requester.ring_rung();
                qp.settle(cx);
            }
            QpState::Err => qp.flush_sends(cx, None),
            _ => {}
        }
        self.spread_overruns(now, world, obs);
    }

    /// The program has posted to the receive ring of `qpn`. Needed only in the error state, where
    /// receives are flushed at once; otherwise receives are taken when messages come.
    pub fn doorbell_recv(&mut self, now: Now, qpn: Qpn, world: &mut impl World, obs: &mut impl Observer) {
        let cx = &mut Cx { now, world, obs, shared: &mut self.shared };
        let Some(qp) = self.qps.find_mut(qpn) else { return };
        if qp.attributes.state == QpState::Err {
            qp.flush_recvs(cx, None);
        }
        self.spread_overruns(now, world, obs);
    }

    /// A batch of packets arrived. Bytes are placed, completions delivered, ACKs and NAKs sent.
    ///
    /// Copies of the whole batch are collected and done together; nothing that depends on them is
    /// told to anybody before.
    pub fn receive(&mut self, now: Now, batch: &Batch, world: &mut impl World, obs: &mut impl Observer) {
        for arrived in batch.iter() {
            let Some(qpn) = arrived.destination() else { continue };
            let Some(position) = self.qps.position(qpn) else {
                obs.event(now, Event::Dropped { qpn: Some(qpn), cause: DropCause::UnknownQp });
                continue;
            };
            let Some(qp) = self.qps.at(position) else { continue };
            qp.take(&mut Cx { now, world, obs, shared: &mut self.shared }, &arrived);
            if !core::mem::replace(&mut qp.is_touched, true) {
                self.touched.push(position);
            }
            if self.shared.placement.is_full() {
                self.execute(now, world, obs);
            }
        }
        self.execute(now, world, obs);
        while let Some(position) = self.touched.pop() {
            let Some(qp) = self.qps.at(position) else { continue };
            qp.is_touched = false;
            qp.settle(&mut Cx { now, world, obs, shared: &mut self.shared });
        }
        self.spread_overruns(now, world, obs);
    }

    /// Does the copies collected so far and tells queue pairs whose memory was not there.
    fn execute(&mut self, now: Now, world: &mut impl World, obs: &mut impl Observer) {
        self.shared.placement.execute(world);
        while let Some(owner) = self.shared.placement.take_fault() {
            let Some(qp) = self.qps.find_mut(owner.qpn) else { continue };
            match owner.side {
                Side::Responder => qp.on_request_fault(owner.msn),
                Side::Requester => {
                    let cx = &mut Cx { now, world, obs, shared: &mut self.shared };
                    qp.on_answer_fault(cx, owner.msn);
                }
            }
        }
    }

    /// Sends what windows allow, at most `bursts` bursts, round-robin over peers and their queue pairs with
    /// work. Returns whether more could be sent at once.
    pub fn pump(&mut self, now: Now, bursts: usize, world: &mut impl World, obs: &mut impl Observer) -> bool {
        let mut left = bursts;
        let mut blocked = false;
        while left > 0 && !blocked {
            let Some((peer, position)) = self.shared.peers.next() else { break };
            let Some(qp) = self.qps.at(position) else { continue };
            let outcome = qp.emit(&mut Cx { now, world, obs, shared: &mut self.shared });
            qp.is_active = outcome != Outcome::Idle;
            if !core::mem::replace(&mut qp.is_touched, true) {
                self.touched.push(position);
            }
            let peers = &mut self.shared.peers;
            match outcome {
                Outcome::Idle => peers.idle(peer),
                Outcome::Sent(bytes) => {
                    peers.sent(peer, position, bytes);
                    left -= 1;
                }
                Outcome::WindowFull => {
                    peers.blocked(peer, position);
                    peers.rest(peer);
                }
                Outcome::Blocked => {
                    peers.blocked(peer, position);
                    blocked = true;
                }
            }
        }
        // Once for all the bursts of a queue pair.
        while let Some(position) = self.touched.pop() {
            let Some(qp) = self.qps.at(position) else { continue };
            qp.is_touched = false;
            qp.arm(&mut Cx { now, world, obs, shared: &mut self.shared });
        }
        self.spread_overruns(now, world, obs);
        !blocked && self.shared.peers.is_anybody_active()
    }

    /// Whether the peer of `qpn` owes acknowledgements, so that more work will come of itself.
    pub fn is_owed(&self, qpn: Qpn) -> bool {
        self.qps.find(qpn).is_some_and(|qp| {
            qp.is_running() && !qp.is_dead && qp.conn.as_ref().is_some_and(|conn| conn.has_unacknowledged())
        })
    }

    /// [`Nic::next_timeout`] is no earlier than this, which is known without looking at any queue pair.
    pub fn timeout_bound(&self) -> Option<Now> {
        self.shared.timers.peek().map(|(at, _)| at)
    }

    /// When [`Nic::on_time`] wants to be called next.
    pub fn next_timeout(&mut self) -> Option<Now> {
        while let Some((at, sleeper)) = self.shared.timers.peek() {
            let deadline = match self.qps.at(sleeper.index) {
                Some(qp) if qp.sleeper == sleeper && qp.timer_at == Some(at) => {
                    let deadline = qp.deadline();
                    if deadline.is_some_and(|due| due <= at) {
                        return Some(at);
                    }
                    qp.timer_at = deadline;
                    deadline
                }
                _ => None,
            };
            self.shared.timers.pop();
            if let Some(due) = deadline {
                self.shared.timers.push(due, sleeper);
            }
        }
        None
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Now, world: &mut impl World, obs: &mut impl Observer) {
        // Each queue pair is served at most once per call, however often it asks for "now".
        let mut again = core::mem::take(&mut self.woken);
        while let Some(at) = self.next_timeout().filter(|&at| at <= now) {
            let Some((_, sleeper)) = self.shared.timers.peek() else { break };
            self.shared.timers.pop();
            let Some(qp) = self.qps.at(sleeper.index) else { continue };
            debug_assert_eq!(qp.timer_at, Some(at));
            qp.timer_at = Some(Now(0));
            let cx = &mut Cx { now, world, obs, shared: &mut self.shared };
            qp.on_time(cx);
            qp.settle(cx);
            qp.emit_urgent(cx);
            again.push(sleeper.index);
        }
        for position in again.drain(..) {
            let Some(qp) = self.qps.at(position) else { continue };
            qp.timer_at = None;
            qp.arm(&mut Cx { now, world, obs, shared: &mut self.shared });
        }
        self.woken = again;
        self.spread_overruns(now, world, obs);
    }

    /// Fails every queue pair with `cause` and a QP_FATAL event: what a driver does when our own code
    /// has panicked in its hands ([`Cause::Internal`]).
    pub fn fail_all(&mut self, now: Now, cause: Cause, world: &mut impl World, obs: &mut impl Observer) {
        for qp in self.qps.iter_mut() {
            let cx = &mut Cx { now, world: &mut *world, obs: &mut *obs, shared: &mut self.shared };
            qp.fail(cx, cause, Some(AsyncKind::QpFatal));
        }
        self.spread_overruns(now, world, obs);
    }

    /// Fails every queue pair whose completion queue has overflowed.
    pub(crate) fn spread_overruns(&mut self, now: Now, world: &mut impl World, obs: &mut impl Observer) {
        while let Some(cq) = self.shared.overruns.pop() {
            let uses = |qp: &&mut Qp| cq == Cqn(qp.init.send_cq) || cq == Cqn(qp.init.recv_cq);
            for qp in self.qps.iter_mut().filter(uses) {
                let cx = &mut Cx { now, world: &mut *world, obs: &mut *obs, shared: &mut self.shared };
                qp.fail(cx, Cause::CqOverrun, None);
            }
        }
    }
}
