//! The way into the error state: everything outstanding completes, in posting order per queue.

use srdma_abi::{AsyncEvent, AsyncKind, Cause, QpState};
use srdma_seams::{Duration, Event, Observer};

use crate::cx::Cx;
use crate::qp::Qp;
use crate::requester::Wqe;
use crate::world::{Taken, World};

impl Qp {
    /// Fails the queue pair for a reason of the sending half: the oldest send completes with
    /// `cause`, everything else is flushed.
    pub(crate) fn fail<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        cause: Cause,
        event: Option<AsyncKind>,
    ) {
        if self.enter_error(cx, cause, event) {
            self.flush_sends(cx, Some(cause));
            self.flush_recvs(cx, None);
        }
    }

    /// Fails the queue pair for a reason of the receiving half: the oldest receive completes with
    /// `cause` if there is one, everything else is flushed.
    pub(crate) fn fail_receiving<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        cause: Option<Cause>,
        event: Option<AsyncKind>,
    ) {
        if self.enter_error(cx, cause.unwrap_or(Cause::Flushed), event) {
            self.flush_recvs(cx, cause);
            self.flush_sends(cx, None);
        }
    }

    /// The program wants the error state.
    pub(crate) fn fail_by_request<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        if self.enter_error(cx, Cause::Flushed, None) {
            self.serves_answers = false;
            self.leave_trunk(cx.shared);
            self.flush_sends(cx, None);
            self.flush_recvs(cx, None);
        }
    }

    fn enter_error<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        cause: Cause,
        event: Option<AsyncKind>,
    ) -> bool {
        if matches!(self.attributes.state, QpState::Err | QpState::Reset) {
            return false;
        }
        if let (Some(peer), true) = (self.peer, self.conn.as_ref().is_some_and(|conn| conn.is_ack_held())) {
            // What it waits for will not come.
            self.say_acks(cx, peer);
        }
        self.attributes.state = QpState::Err;
        // A peer whose later request was refused still gets the answers to its earlier ones.
        self.serves_answers = self.responder.answers.are_owed();
        cx.event(Event::QpFailed { qpn: self.qpn, cause: self.code(cause) });
        if let Some(kind) = event {
            cx.world.raise(AsyncEvent { kind, object: self.qpn.0 });
        }
        let oldest = self.requester.oldest_msn();
        if let Some(conn) = &mut self.conn {
            let trunk = cx.shared.peers.trunk(self.peer_index);
            conn.pause(cx.now, oldest as u32, Duration::MAX, trunk);
            cx.shared.peers.wake(self.peer_index);
        }
        self.release_pieces(cx);
        self.responder.clear_open();
        true
    }

    /// Gives back every payload that the world holds for this queue pair.
    pub(crate) fn release_pieces<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        while let Some(piece) = self.responder.tracker.pop_piece() {
            cx.world.release(piece.slot);
        }
    }

    /// Completes every send, those still in the ring included.
    pub(crate) fn flush_sends<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, first: Option<Cause>) {
        let mut cause = first.unwrap_or(Cause::Flushed);
        while let Some(wqe) = self.requester.pop() {
            self.fail_send(cx, wqe, cause);
            cause = Cause::Flushed;
        }
        while let Some(wqe) = self.take_send_to_flush(cx) {
            self.fail_send(cx, wqe, cause);
            cause = Cause::Flushed;
        }
    }

    fn take_send_to_flush<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) -> Option<Wqe> {
        if !self.requester.ring_is_usable() {
            return None;
        }
        let scratch = &mut cx.shared.scratch;
        match cx.world.take_send(self.qpn, &mut scratch.send_entry) {
            Taken::Entry { offset, units } => {
                Some(Wqe::from_entry(&scratch.send_entry, offset, units, &mut scratch.sges))
            }
            Taken::Empty => None,
            Taken::Bad(_) => {
                self.requester.give_ring_up();
                None
            }
        }
    }

    /// Completes every receive, those still in the ring included.
    pub(crate) fn flush_recvs<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, first: Option<Cause>) {
        let mut cause = first.unwrap_or(Cause::Flushed);
        while let Some(recv) = self.responder.receives.pop().or_else(|| self.take_recv_to_flush(cx)) {
            self.fail_recv(cx, recv, cause);
            cause = Cause::Flushed;
        }
    }

    /// Back to RESET: everything posted is forgotten without a word.
    pub(crate) fn discard_queues<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        let mut units = 0;
        while let Some(wqe) = self.requester.pop().or_else(|| self.take_send_to_flush(cx)) {
            units += wqe.units();
        }
        if units > 0 {
            cx.world.retire_send(self.qpn, units);
        }
        let mut units = 0;
        while let Some(recv) = self.responder.receives.pop().or_else(|| self.take_recv_to_flush(cx)) {
            units += recv.units;
        }
        if units > 0 {
            cx.world.retire_recv(self.qpn, units);
        }
    }
}
