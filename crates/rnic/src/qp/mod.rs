//! One RC queue pair: the two halves, the connection they share, and what ties them together.
//!
//! [`Qp::on_packet`] takes packets; [`Qp::settle`] follows every batch, doorbell and time-out: it
//! delivers, completes, submits, acknowledges and sets the timer. [`Qp::emit`](crate::emit) sends.

pub(crate) mod connect;
mod footprint;
pub(crate) mod state;

use alloc::boxed::Box;
use core::net::SocketAddr;

use srdma_abi::{AsyncEvent, AsyncKind, Cause, QpAttributes, QpInit, QpState};
use srdma_memory::Asker;
use srdma_seams::event::DropCause;
use srdma_seams::{ConnectionId, Duration, Event, Now, Observer, PathId, Qpn};
use srdma_transport::{Arrival, Connection, Failure, HelloOutcome};
use srdma_wire::{Ack, Data, Hello, Nak, NakCode, Packet, Space};

use crate::batch::{Arrived, Says};
use crate::cx::Cx;
use crate::doom::Doom;
use crate::nic::peers::PeerIndex;
use crate::nic::timers::Sleeper;
use crate::qp::footprint::Footprint;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::world::{PayloadRef, SendRefusal, World};

/// After the peer says that it is gone, acknowledgements on slower paths may still come.
const CLOSE_GRACE: Duration = Duration::from_millis(20);
/// A fatal refusal is told again after this time, then after twice as long, …
const NAK_REPEAT: Duration = Duration::from_millis(10);
/// … this often.
const NAK_REPEATS: u8 = 8;
/// ACKs of one call, at most; more would mean that transport loops.
const ACKS_MAX: usize = 16;

/// What became of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Something was done, and payload sent, so many bytes; there may be more.
    Sent(u32),
    /// Nothing to send now.
    Idle,
    /// The window that is shared with the other queue pairs of the peer has no room.
    WindowFull,
    /// The socket is full.
    Blocked,
}

/// The peer will not answer any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerGone {
    /// How we know.
    pub cause: Cause,
    /// From when on requests fail for it.
    pub from: Now,
}

/// A fatal refusal, told until the peer must have heard it.
#[derive(Clone, Copy, Debug)]
struct StoredNak {
    nak: Nak,
    repeats: u8,
    next: Option<Now>,
    due: bool,
}

/// A queue pair.
pub(crate) struct Qp {
    pub qpn: Qpn,
    pub init: QpInit,
    pub attributes: QpAttributes,
    pub asker: Asker,
    /// Position and serial number, for timers.
    pub sleeper: Sleeper,
    /// Earliest entry for it in the timers.
    pub timer_at: Option<Now>,
    /// In the list of queue pairs of its peer with something to send.
    pub is_active: bool,
    /// In the list of queue pairs to settle after the batch, or to arm after sending.
    pub is_touched: bool,
    /// Connection id that packets to us must carry.
    pub connection: ConnectionId,
    pub peer: Option<SocketAddr>,
    /// The same among the device's peers, while there is a connection.
    pub peer_index: PeerIndex,
    pub conn: Option<Box<Connection>>,
    pub requester: Requester,
    pub responder: Responder,
    pub peer_gone: Option<PeerGone>,
    /// Transport has given up.
    pub is_dead: bool,
    /// In the error state: answers to earlier requests are still sent.
    pub serves_answers: bool,
    /// The kernel refused the last packet.
    pub unreachable: bool,
    /// When to try a full socket again.
    pub retry_at: Option<Now>,
    footprint: Footprint,
    /// What is to fail on purpose.
    pub doom: Doom,
    other_version: bool,
    established: bool,
    control_path: u16,
    stored_nak: Option<StoredNak>,
    /// Cumulative packet numbers last acknowledged, per space.
    acked: [Option<u32>; 2],
    /// First packet number not yet received, as far as known here, per space.
    pub next_seq: [u64; 2],
}

impl Qp {
    /// A queue pair in RESET. `connection` is replaced when it connects.
    pub fn new(qpn: Qpn, init: QpInit, asker: Asker, connection: ConnectionId, doom: Doom) -> Qp {
        Qp {
            qpn,
            init,
            attributes: QpAttributes::default(),
            asker,
            sleeper: Sleeper { index: 0, serial: 0 },
            timer_at: None,
            is_active: false,
            is_touched: false,
            connection,
            peer: None,
            peer_index: PeerIndex::NONE,
            conn: None,
            requester: Requester::default(),
            responder: Responder::default(),
            peer_gone: None,
            is_dead: false,
            serves_answers: false,
            unreachable: false,
            retry_at: None,
            footprint: Footprint::default(),
            doom,
            other_version: false,
            established: false,
            control_path: 0,
            stored_nak: None,
            acked: [None; 2],
            next_seq: [0; 2],
        }
    }

    /// Whether packets are taken and sent.
    pub fn is_running(&self) -> bool {
        matches!(self.attributes.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
    }

    /// Connection id that the peer wants to see; 0 before the handshake.
    pub fn remote_connection(&self) -> ConnectionId {
        self.conn.as_ref().map_or(ConnectionId(0), |conn| conn.remote_connection())
    }

    // --- packets in ---------------------------------------------------------------------------

    /// A packet for this queue pair came.
    pub fn on_packet<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, arrived: &Arrived<'_>) {
        let connection = match arrived.says {
            Says::Data(data) | Says::Run(data, _) => data.connection,
            Says::Other(Packet::Hello(hello)) => return self.on_hello(cx, hello, arrived.from),
            Says::Other(Packet::Ack(ack)) => ack.connection,
            Says::Other(Packet::Nak(nak)) => nak.connection,
            Says::Other(Packet::Close(close)) => close.connection,
            Says::Other(Packet::Data(_) | Packet::Echo(_)) => return,
        };
        if !self.is_running() && self.attributes.state != QpState::Err {
            return cx.dropped(self.qpn, DropCause::QpState);
        }
        if connection != self.connection {
            return cx.dropped(self.qpn, DropCause::ForeignConnection);
        }
        if self.peer.is_none_or(|peer| peer.ip() != arrived.from.ip()) {
            return cx.dropped(self.qpn, DropCause::ForeignAddress);
        }
        match arrived.says {
            Says::Data(data) => self.on_data(cx, data, arrived.payload, arrived.ce),
            // Taken apart by the device.
            Says::Run(..) => {}
            Says::Other(Packet::Ack(ack)) => self.on_ack(cx, ack),
            Says::Other(Packet::Nak(nak)) => self.on_nak(cx, nak),
            Says::Other(Packet::Close(_)) => self.on_close(cx),
            Says::Other(Packet::Hello(_) | Packet::Data(_) | Packet::Echo(_)) => {}
        }
    }

    fn on_hello<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, hello: &Hello, from: SocketAddr) {
        // Answers that are still owed may wait for the handshake to end.
        if !self.is_running() && !self.serves_answers {
            return cx.dropped(self.qpn, DropCause::QpState);
        }
        if self.peer.is_none_or(|peer| peer.ip() != from.ip()) {
            return cx.dropped(self.qpn, DropCause::ForeignAddress);
        }
        if hello.src_qpn.0 != self.attributes.dest_qpn {
            return cx.dropped(self.qpn, DropCause::ForeignConnection);
        }
        let Some(conn) = &mut self.conn else { return };
        match conn.on_hello(cx.now, hello, from, cx.shared.peers.trunk(self.peer_index), cx.obs) {
            HelloOutcome::Known | HelloOutcome::Connected => {}
            HelloOutcome::VersionMismatch(_) => self.other_version = true,
            HelloOutcome::Foreign => cx.dropped(self.qpn, DropCause::ForeignConnection),
        }
    }

    fn on_data<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        data: &Data,
        payload: PayloadRef,
        ce: bool,
    ) {
        let space = data.op.space();
        if !self.is_running() {
            if let (Space::Request, Some(stored)) = (space, &mut self.stored_nak) {
                stored.due = true;
            }
            return cx.dropped(self.qpn, DropCause::QpState);
        }
        if data.payload_crc.is_some_and(|crc| cx.world.payload_crc(payload) != crc) {
            return cx.dropped(self.qpn, DropCause::PayloadCheck);
        }
        let Some(conn) = &mut self.conn else { return };
        let (seq, msn) = match conn.arrival(cx.now, data, ce) {
            Arrival::New { seq, msn } => (seq, msn),
            Arrival::Duplicate => return cx.dropped(self.qpn, DropCause::Duplicate),
            Arrival::Stale => return cx.dropped(self.qpn, DropCause::Stale),
            Arrival::Beyond => return cx.dropped(self.qpn, DropCause::BeyondWindow),
        };
        self.hear_landed(cx, data);
        self.notice_established(cx);
        let accepted = match space {
            Space::Request => self.on_request(cx, data, payload, (seq, msn)),
            Space::Response => self.on_answer(cx, data, payload, seq),
        };
        if accepted {
            let (ahead, bytes) = (self.ahead(space, seq, 1), payload.length);
            cx.event(Event::Received { qpn: self.qpn, path: data.unit.path, packets: 1, bytes, ahead });
        }
    }

    /// The first packet in RTR is worth an event (IBTA 11.6.3.1, "communication established").
    pub fn notice_established<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        if !self.established {
            self.established = true;
            if self.attributes.state == QpState::Rtr {
                cx.world.raise(AsyncEvent { kind: AsyncKind::CommEst, object: self.qpn.0 });
            }
        }
    }

    fn on_ack<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, ack: &Ack) {
        if !self.is_running() && !self.serves_answers {
            return;
        }
        let Some(conn) = &mut self.conn else { return };
        if conn.on_ack(cx.now, ack, cx.shared.peers.trunk(self.peer_index), cx.obs).is_err() {
            return cx.dropped(self.qpn, DropCause::BogusAck);
        }
        let answers = conn.peer_landed(Space::Response);
        self.responder.answers.acknowledged(answers);
        if self.attributes.state == QpState::Err {
            self.serves_answers = self.responder.answers.are_owed();
        }
    }

    fn on_close<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        if self.peer_gone.is_none() {
            let from = cx.now + CLOSE_GRACE;
            self.peer_gone = Some(PeerGone { cause: Cause::PeerClosed, from });
        }
    }

    // --- after each batch, doorbell and time-out -----------------------------------------------

    /// Draws all consequences of what came in. Copies of the batch have been done.
    pub fn settle<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        // Requests first: what the peer's program sends in answer to one must not be heard of before it.
        if self.is_running() {
            self.complete_requests(cx);
        }
        if self.is_running() {
            self.deliver(cx);
        }
        if self.is_running() {
            self.finish_answers();
            self.complete_requests(cx);
            self.requester_fill(cx);
            self.complete_requests(cx);
            if let Some(conn) = &mut self.conn {
                let landed = conn.peer_landed(Space::Request);
                conn.expect_answer(cx.now, self.requester.awaits_answers(landed));
            }
        }
        self.speak(cx);
        self.repeat_nak(cx);
        self.activate(cx);
        self.watch_footprint(cx.now);
        self.arm(cx);
    }

    /// HELLOs and ACKs that are due.
    fn speak<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        let speaks = (self.is_running() || self.serves_answers) && !self.is_dead;
        let (true, Some(conn), Some(peer)) = (speaks, &mut self.conn, self.peer) else { return };
        if let Some(hello) = conn.poll_hello(cx.now, cx.world.free_bytes(), cx.obs) {
            let path = self.next_path(cx);
            let sent = cx.world.send_control(peer, path, &Packet::Hello(hello), hello.probe_bytes);
            // One that is too big for the interface says that this size does not get through, no more.
            if sent != Err(SendRefusal::TooBig) {
                self.unreachable = sent == Err(SendRefusal::Unreachable);
            }
        }
        let Some(conn) = &mut self.conn else { return };
        if !conn.holds_ack(cx.now, cx.world.acks_may_wait()) {
            self.say_acks(cx, peer);
        }
    }

    /// ACKs that are due, whether they might wait or not.
    pub fn say_acks<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, peer: SocketAddr) {
        for _ in 0..ACKS_MAX {
            let Some(ack) = self.next_ack(cx) else { break };
            // A lost or refused ACK is repeated when the peer asks again by retransmitting.
            let _ = cx.world.send_control(peer, ack.path, &Packet::Ack(ack), 0);
        }
    }

    /// The next ACK that is due.
    pub fn next_ack<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) -> Option<Ack> {
        let ack = self.conn.as_mut()?.poll_ack(cx.now, cx.world.free_bytes(), cx.obs)?;
        self.acked[ack.space as usize] = Some(ack.cumulative);
        Some(ack)
    }

    /// Path for the next control packet: each in turn, so that one dead path does not silence us.
    pub fn next_path<W, O>(&mut self, cx: &Cx<'_, W, O>) -> PathId {
        let path = self.control_path % cx.shared.config.transport.paths.max(1);
        self.control_path = self.control_path.wrapping_add(1);
        PathId(path)
    }

    /// Puts the queue pair in the list of those that may have something to send.
    fn activate<W, O>(&mut self, cx: &mut Cx<'_, W, O>) {
        let sends = self.is_running() || self.serves_answers;
        let may_send = self.conn.as_ref().is_some_and(|conn| conn.may_send());
        if sends && !self.is_active && may_send && !self.is_dead {
            self.is_active = true;
            cx.shared.peers.line_up(self.peer_index, self.sleeper.index);
        }
        cx.shared.peers.wake(self.peer_index);
    }

    // --- refusals --------------------------------------------------------------------------------

    /// Tells the peer that message `msn` is refused.
    pub fn send_nak<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, msn: u64, code: NakCode) -> Nak {
        let nak = Nak {
            dest_qpn: Qpn(self.attributes.dest_qpn),
            connection: self.remote_connection(),
            path: self.next_path(cx),
            msn: msn as u32,
            code,
        };
        if let Some(peer) = self.peer {
            let _ = cx.world.send_control(peer, nak.path, &Packet::Nak(nak), 0);
        }
        nak
    }

    /// The same for a fatal refusal, which is repeated: nothing else would bring it back if lost.
    pub fn store_nak<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, msn: u64, code: NakCode) {
        let nak = self.send_nak(cx, msn, code);
        let next = Some(cx.now + NAK_REPEAT);
        self.stored_nak = Some(StoredNak { nak, repeats: 0, next, due: false });
    }

    fn repeat_nak<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        let path = self.next_path(cx);
        let (Some(stored), Some(peer)) = (&mut self.stored_nak, self.peer) else { return };
        let timed = stored.next.is_some_and(|next| next <= cx.now);
        if timed {
            stored.repeats += 1;
            let wait = NAK_REPEAT * (1 << stored.repeats);
            stored.next = (stored.repeats < NAK_REPEATS).then_some(cx.now + wait);
        }
        if timed || stored.due {
            stored.due = false;
            stored.nak.path = path;
            let _ = cx.world.send_control(peer, path, &Packet::Nak(stored.nak), 0);
        }
    }

    // --- time ------------------------------------------------------------------------------------

    /// When something is due.
    pub fn deadline(&self) -> Option<Now> {
        let speaks = (self.is_running() || self.serves_answers) && !self.is_dead;
        let conn = self.conn.as_ref().filter(|_| speaks).and_then(|conn| conn.next_timeout());
        let gone = self.peer_gone.map(|gone| gone.from).filter(|_| !self.is_dead);
        let nak = self.stored_nak.and_then(|stored| stored.next);
        let all = [conn, gone, nak, self.retry_at, self.footprint.fit_at];
        all.into_iter().flatten().filter(|at| at.0 != u64::MAX).min()
    }

    /// Sees to it that the device is called when something is due.
    pub fn arm<W, O>(&mut self, cx: &mut Cx<'_, W, O>) {
        let Some(at) = self.deadline() else { return };
        if self.timer_at.is_none_or(|set| at < set) {
            self.timer_at = Some(at);
            cx.shared.timers.push(at, self.sleeper);
        }
    }

    /// Something may be due; [`Qp::settle`] follows.
    pub fn on_time<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        if self.retry_at.is_some_and(|at| at <= cx.now) {
            self.retry_at = None;
        }
        self.fit_if_due(cx.now);
        if self.peer_gone.is_some_and(|gone| gone.from <= cx.now) {
            self.is_dead = true;
            self.serves_answers = false;
            self.leave_trunk(cx.shared);
        }
        if self.is_dead || !(self.is_running() || self.serves_answers) {
            return;
        }
        let Some(conn) = &mut self.conn else { return };
        if conn.next_timeout().is_none_or(|at| at > cx.now) {
            return;
        }
        let trunk = cx.shared.peers.trunk(self.peer_index);
        if let Err(failure) = conn.on_timeout(cx.now, trunk, cx.obs) {
            let cause = match failure {
                Failure::NoAnswer | Failure::NoHandshake if self.unreachable => Cause::Unreachable,
                Failure::NoHandshake if self.other_version => Cause::Version,
                Failure::NoHandshake => Cause::NoHandshake,
                Failure::NoAnswer => Cause::NoAnswer,
                Failure::PathMtu => Cause::PathMtu,
            };
            self.is_dead = true;
            self.serves_answers = false;
            self.leave_trunk(cx.shared);
            self.peer_gone.get_or_insert(PeerGone { cause, from: cx.now });
        }
    }
}

impl Qp {
    /// Forgets the connection and everything that came of it.
    pub(super) fn forget_connection(&mut self) {
        self.conn = None;
        self.peer = None;
        self.peer_gone = None;
        self.is_dead = false;
        self.serves_answers = false;
        self.unreachable = false;
        self.retry_at = None;
        self.other_version = false;
        self.established = false;
        self.stored_nak = None;
        self.acked = [None; 2];
        self.next_seq = [0; 2];
        self.requester = Requester::default();
        self.responder = Responder::default();
    }

    /// What was last acknowledged, with what has landed, as the last words on a connection.
    pub(super) fn last_acks<W, O>(&self, cx: &Cx<'_, W, O>, path: PathId) -> [Option<Ack>; 2]
    where
        W: World,
    {
        let landed = [self.responder.tracker.landed(), self.requester.answers_landed_msn()];
        [Space::Request, Space::Response].map(|space| {
            Some(Ack {
                dest_qpn: Qpn(self.attributes.dest_qpn),
                connection: self.remote_connection(),
                path,
                space,
                cumulative: self.acked[space as usize]?,
                landed: landed[space as usize] as u32,
                free_bytes: cx.world.free_bytes(),
                block_count: 0,
                blocks: Default::default(),
                unit_count: 0,
                units: [Default::default(); srdma_wire::packet::ACK_UNITS_MAX],
            })
        })
    }

    /// The fatal refusal that the peer may not have heard yet.
    pub(super) fn last_nak(&self) -> Option<Nak> {
        self.stored_nak.map(|stored| stored.nak)
    }
}
