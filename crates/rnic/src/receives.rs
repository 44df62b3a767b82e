//! Receives: taken from the ring when a message needs them, completed in order, refused for want of.

use alloc::collections::VecDeque;

use srdma_abi::{Cause, Completion, WcFlags, WcOpcode};
use srdma_seams::event::DropCause;
use srdma_seams::{Cqn, Duration, Event, Now, Observer};
use srdma_wire::NakCode;

use crate::cx::Cx;
use crate::ordering::{Kind, Message};
use crate::qp::Qp;
use crate::responder::Reject;
use crate::rnr;
use crate::scatter::SgeList;
use crate::world::{Taken, World};

/// The same refusal for want of a receive is not repeated within this time.
const RNR_QUIET_MAX: Duration = Duration::from_millis(2);

/// A receive taken from the ring.
#[derive(Clone, Debug)]
pub(crate) struct Recv {
    pub wr_id: u64,
    pub units: u32,
    pub sges: SgeList,
}

/// Receives taken but not yet complete.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    taken: VecDeque<Recv>,
    /// Number of the front of `taken`, counted from 0 for each connection.
    next: u64,
    ring_is_bad: bool,
    /// Last message refused for want of a receive, and until when not to repeat that.
    starving: Option<(u64, Now)>,
}

impl Receives {
    /// Number of the receive that completes next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Receive `number`, if it is taken and not complete.
    pub fn get(&self, number: u64) -> Option<&Recv> {
        let position = number.checked_sub(self.next)?;
        self.taken.get(usize::try_from(position).ok()?)
    }

    /// Takes the oldest receive off: it is complete, or to be flushed.
    pub fn pop(&mut self) -> Option<Recv> {
        let recv = self.taken.pop_front()?;
        self.next += 1;
        Some(recv)
    }

    /// Bytes of memory of the list.
    pub fn bytes(&self) -> usize {
        self.taken.capacity() * size_of::<Recv>()
    }

    /// Gives memory back that the list does not need.
    pub fn fit(&mut self) {
        self.taken.shrink_to_fit();
    }

    /// Nobody is waited for any more.
    pub fn clear_refusals(&mut self) {
        self.starving = None;
    }

    fn is_quiet(&self, now: Now, msn: u64) -> bool {
        self.starving.is_some_and(|(last, until)| last == msn && now < until)
    }
}

impl Qp {
    /// Makes sure that receive number `receive` is taken from the ring; returns its bytes.
    pub(crate) fn bind<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        receive: u64,
    ) -> Result<u64, Reject> {
        let receives = &mut self.responder.receives;
        let Some(position) = receive.checked_sub(receives.next) else {
            return Err(Reject::Drop(DropCause::Inconsistent));
        };
        while receives.taken.len() as u64 <= position && !receives.ring_is_bad {
            let scratch = &mut cx.shared.scratch;
            match cx.world.take_recv(self.qpn, &mut scratch.recv_entry) {
                Taken::Empty => return Err(Reject::Starved),
                Taken::Bad(_) => receives.ring_is_bad = true,
                Taken::Entry { units, .. } => {
                    let entry = &scratch.recv_entry;
                    let count = usize::from(entry.sge_count);
                    let sges = SgeList::new(&entry.sges[..count], &mut scratch.sges);
                    receives.taken.push_back(Recv { wr_id: entry.wr_id, units, sges });
                }
            }
        }
        match receives.get(receive) {
            Some(recv) => Ok(recv.sges.bytes()),
            None => Err(NakCode::Failed.into()),
        }
    }

    /// Completes the receive that a delivered message consumes; false if it is not its turn.
    pub(crate) fn deliver_receive<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        message: &Message,
    ) -> bool {
        let Some(number) = message.kind.and_then(|kind| kind.receive()) else { return true };
        if number != self.responder.receives.next() {
            return false;
        }
        let Some(recv) = self.responder.receives.pop() else { return false };
        let (opcode, imm) = match message.kind {
            Some(Kind::Send { imm, .. }) => (WcOpcode::Recv, imm),
            Some(Kind::Write { imm, .. }) => (WcOpcode::RecvWriteImm, imm.map(|(imm, _)| imm)),
            _ => (WcOpcode::Recv, None),
        };
        let flag = |set: bool, flag: WcFlags| if set { flag.0 } else { 0 };
        let completion = Completion {
            wr_id: recv.wr_id,
            qpn: self.qpn.0,
            src_qpn: self.attributes.dest_qpn,
            opcode: opcode as u8,
            flags: WcFlags(flag(imm.is_some(), WcFlags::IMM) | flag(message.solicited, WcFlags::SOLICITED)),
            byte_len: message.length,
            imm: imm.unwrap_or(0),
            timestamp_ns: cx.now.0,
            ..Completion::default()
        };
        // Ring space first: who polls this completion may post into it at once.
        cx.world.retire_recv(self.qpn, recv.units);
        cx.complete(Cqn(self.init.recv_cq), &completion, message.solicited);
        recv.sges.recycle(&mut cx.shared.scratch.sges);
        true
    }

    /// Delivers the completion of a receive that fails, and gives its ring space back.
    pub(crate) fn fail_recv<W: World, O: Observer>(&self, cx: &mut Cx<'_, W, O>, recv: Recv, cause: Cause) {
        let completion = Completion {
            wr_id: recv.wr_id,
            qpn: self.qpn.0,
            src_qpn: self.attributes.dest_qpn,
            status: cause.status() as u8,
            opcode: WcOpcode::Recv as u8,
            vendor_err: self.code(cause).into(),
            timestamp_ns: cx.now.0,
            ..Completion::default()
        };
        cx.world.retire_recv(self.qpn, recv.units);
        cx.complete(Cqn(self.init.recv_cq), &completion, true);
        recv.sges.recycle(&mut cx.shared.scratch.sges);
    }

    /// Takes one receive from the ring for flushing.
    pub(crate) fn take_recv_to_flush<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
    ) -> Option<Recv> {
        if self.responder.receives.ring_is_bad {
            return None;
        }
        match cx.world.take_recv(self.qpn, &mut cx.shared.scratch.recv_entry) {
            Taken::Entry { units, .. } => {
                let wr_id = cx.shared.scratch.recv_entry.wr_id;
                Some(Recv { wr_id, units, sges: SgeList::default() })
            }
            Taken::Empty => None,
            Taken::Bad(_) => {
                self.responder.receives.ring_is_bad = true;
                None
            }
        }
    }

    /// The message whose turn it is met no receive: say so, unless one has been posted meanwhile.
    pub(crate) fn tell_starved<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, message: &Message) {
        let msn = self.responder.tracker.head();
        if let Some(message) = self.responder.tracker.get_mut(msn) {
            message.starved = false;
        }
        let Some(receive) = message.kind.and_then(|kind| kind.receive()) else { return };
        let quiet = self.responder.receives.is_quiet(cx.now, msn);
        if quiet || !matches!(self.bind(cx, receive), Err(Reject::Starved)) {
            return;
        }
        let timer = self.attributes.min_rnr_timer;
        self.responder.receives.starving = Some((msn, cx.now + rnr::wait(timer).min(RNR_QUIET_MAX)));
        cx.event(Event::RnrSent { qpn: self.qpn });
        self.send_nak(cx, msn, NakCode::Rnr { timer });
    }
}
