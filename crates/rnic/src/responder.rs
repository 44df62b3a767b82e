//! The receiving half: decides on each packet of the peer's requests, places it, and carries out what
//! has its turn.
//!
//! A packet is *accepted* (placed or held) or transport is told that it never came, so that the peer
//! sends it again. An error is recorded on its message and told to the peer only when everything
//! before that message has landed, as a receiver that takes packets in order would.

use srdma_abi::control::LIMITS;
use srdma_abi::{AsyncKind, Cause};
use srdma_memory::{AddressSpace, Rights, Segment};
use srdma_seams::event::DropCause;
use srdma_seams::{ids::extend, Cqn, Event, Observer};
use srdma_wire::{Data, NakCode, Op, Space};

use crate::answers::Answers;
use crate::authz::{self, Target};
use crate::cx::Cx;
use crate::ordering::{Kind, Message, NotOpen, Piece, Tracker};
use crate::overlap::Overlaps;
use crate::place::{Owner, Side};
use crate::qp::Qp;
use crate::receives::Receives;
use crate::world::{AtomicOp, Copy, HoldSlot, PayloadRef, Source, World};
use crate::Order;

/// State of the receiving half.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub tracker: Tracker,
    pub receives: Receives,
    pub answers: Answers,
    overlaps: Overlaps,
}

impl Responder {
    /// Nothing has come; messages of both spaces are numbered from `first_msn`.
    pub fn new(first_msn: u64) -> Responder {
        Responder {
            tracker: Tracker::new(first_msn),
            answers: Answers::new(first_msn),
            ..Responder::default()
        }
    }

    /// Whether no message ahead of the oldest open one has written to a range of addresses.
    pub fn is_untouched(&self, space: AddressSpace, range: (u64, u64)) -> bool {
        self.overlaps.is_untouched(space, range)
    }

    /// Forgets open messages; answers already given remain.
    pub fn clear_open(&mut self) {
        self.tracker = Tracker::new(self.tracker.landed());
        self.overlaps.clear();
        self.receives.clear_refusals();
    }
}

/// The wire's number of a refusal.
pub(crate) fn nak_number(code: NakCode) -> u8 {
    match code {
        NakCode::Rnr { .. } => 0,
        NakCode::Key => 1,
        NakCode::Bounds => 2,
        NakCode::Access => 3,
        NakCode::Invalid => 4,
        NakCode::Fault => 5,
        NakCode::ReceiveTooSmall => 6,
        NakCode::TooManyReads => 7,
        NakCode::Failed => 8,
    }
}

/// Why a packet was not accepted.
pub(crate) enum Reject {
    /// Its message is refused.
    Refuse(NakCode, Option<Cause>),
    /// As if it never came, and counted.
    Drop(DropCause),
    /// No receive is posted.
    Starved,
}

impl From<NakCode> for Reject {
    fn from(code: NakCode) -> Reject {
        Reject::Refuse(code, None)
    }
}

/// One packet of a request.
#[derive(Clone, Copy)]
struct Piecemeal {
    seq: u64,
    msn: u64,
    offset: u32,
    payload: PayloadRef,
}

/// Where the bytes of a packet are.
#[derive(Clone, Copy)]
enum Bytes {
    Fresh(PayloadRef),
    Held(HoldSlot),
}

impl Bytes {
    fn from(self, skip: u32, length: u32) -> Source {
        match self {
            Bytes::Fresh(payload) => {
                Source::Payload(PayloadRef { buffer: payload.buffer, offset: payload.offset + skip, length })
            }
            Bytes::Held(slot) => Source::Held(slot, skip),
        }
    }
}

impl Qp {
    /// A packet of a request, not seen before. Returns whether it was accepted.
    pub(crate) fn on_request<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        data: &Data,
        payload: PayloadRef,
        (seq, msn): (u64, u64),
    ) -> bool {
        let packet = Piecemeal { seq, msn, offset: data.message.offset, payload };
        let begun = cx.shared.placement.len();
        let Err(reject) = self.accept(cx, data, &packet) else {
            self.advance(cx);
            return true;
        };
        cx.shared.placement.truncate(begun);
        if let Some(conn) = &mut self.conn {
            conn.unreceive(Space::Request, seq, data.part);
        }
        match reject {
            Reject::Drop(cause) => cx.dropped(self.qpn, cause),
            Reject::Refuse(code, local) => self.responder.tracker.refuse(msn, code, local),
            Reject::Starved => {
                if let Some(message) = self.responder.tracker.get_mut(msn) {
                    message.starved = true;
                }
            }
        }
        false
    }

    fn accept<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        data: &Data,
        packet: &Piecemeal,
    ) -> Result<(), Reject> {
        let kind = self.kind_of(data);
        let length = data.message.length;
        let message = match self.responder.tracker.open(packet.msn) {
            Ok(message) => message,
            Err(NotOpen::Beyond) => return Err(Reject::Drop(DropCause::BeyondWindow)),
            Err(NotOpen::Landed) => return Err(Reject::Drop(DropCause::Inconsistent)),
            Err(NotOpen::Refused) => return Err(Reject::Drop(DropCause::QpState)),
        };
        let same = message.kind.is_none_or(|known| known == kind && message.length == length);
        if !same || !is_consistent(message, &kind, length, packet) {
            return Err(Reject::Drop(DropCause::Inconsistent));
        }
        message.kind = Some(kind);
        message.length = length;
        message.solicited |= data.solicited;
        if length > LIMITS.max_msg_bytes {
            return Err(NakCode::Invalid.into());
        }
        match kind {
            Kind::Write { address, rkey, imm } => {
                let target = Target { rkey, address, length };
                self.accept_write(cx, packet, &target, imm.map(|(_, receive)| receive))
            }
            Kind::Send { receive, .. } => self.accept_send(cx, packet, receive, length),
            Kind::Read { .. } | Kind::Atomic { .. } => {
                // Asked again when its turn comes; asked now so that nothing after it is placed.
                self.may_execute(&cx.shared.memory, &kind)?;
                self.mark(packet.msn, 0, false);
                if let Some(message) = self.responder.tracker.get_mut(packet.msn) {
                    message.seq = packet.seq;
                }
                Ok(())
            }
        }
    }

    pub(crate) fn kind_of(&self, data: &Data) -> Kind {
        let receive_number = |low| extend(self.responder.receives.next(), low);
        let start = |address: u64| address.wrapping_sub(u64::from(data.message.offset));
        match data.op {
            Op::Write { address, rkey } => Kind::Write { address: start(address), rkey, imm: None },
            Op::WriteImm { address, rkey, imm, receive, .. } => {
                Kind::Write { address: start(address), rkey, imm: Some((imm, receive_number(receive))) }
            }
            Op::Send { receive, imm, .. } => Kind::Send { receive: receive_number(receive), imm },
            Op::CompareSwap { address, rkey, compare, swap } => {
                Kind::Atomic { address, rkey, op: AtomicOp::CompareSwap { compare, swap } }
            }
            Op::FetchAdd { address, rkey, add } => {
                Kind::Atomic { address, rkey, op: AtomicOp::FetchAdd { add } }
            }
            Op::ReadRequest { address, rkey, length } => Kind::Read { address, rkey, length },
            // Answers never get here; a READ of nothing is harmless.
            Op::ReadResponse { .. } | Op::AtomicResponse { .. } => {
                Kind::Read { address: 0, rkey: 0, length: 0 }
            }
        }
    }

    fn accept_write<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        packet: &Piecemeal,
        target: &Target,
        receive: Option<u64>,
    ) -> Result<(), Reject> {
        let relaxed = self.may_write(cx, target)?;
        if let Some(receive) = receive {
            self.bind(cx, receive)?;
        }
        let length = packet.payload.length;
        let next = self.responder.tracker.is_next(packet.msn, packet.offset);
        let last = packet.offset + length == target.length;
        let held = length > 0
            && !next
            && match cx.shared.config.order {
                Order::Strict => true,
                Order::Default => last && !relaxed,
                Order::Relaxed => false,
            };
        if held {
            self.hold(cx, packet)?;
        } else {
            self.place_write(cx, packet.msn, target, (packet.offset, length), Bytes::Fresh(packet.payload))?;
        }
        self.mark(packet.msn, length, held);
        Ok(())
    }

    /// Whether the peer may do the WRITE; if so, whether the region waives the order of its bytes.
    fn may_write<W: World, O: Observer>(&self, cx: &Cx<'_, W, O>, target: &Target) -> Result<bool, NakCode> {
        if target.length == 0 {
            authz::permits(self.attributes.access, Rights::REMOTE_WRITE)?;
            return Ok(true);
        }
        let access = self.attributes.access;
        authz::remote(&cx.shared.memory, self.asker, access, target, Rights::REMOTE_WRITE)
            .map(|translation| translation.rights.contains(Rights::RELAXED_ORDERING))
    }

    fn hold<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        packet: &Piecemeal,
    ) -> Result<(), Reject> {
        let slot = cx.world.hold(packet.payload).ok_or(Reject::Drop(DropCause::HoldFull))?;
        let Piecemeal { msn, offset, payload, .. } = *packet;
        self.responder.tracker.hold(packet.seq, Piece { msn, offset, length: payload.length, slot });
        cx.event(Event::Held { qpn: self.qpn });
        Ok(())
    }

    pub(crate) fn mark(&mut self, msn: u64, length: u32, held: bool) {
        if let Some(message) = self.responder.tracker.get_mut(msn) {
            message.arrived = true;
            message.starved = false;
            message.accepted += length;
            if !held {
                message.placed += length;
            }
        }
    }

    fn place_write<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        msn: u64,
        target: &Target,
        (offset, length): (u32, u32),
        bytes: Bytes,
    ) -> Result<(), NakCode> {
        if length == 0 {
            return Ok(());
        }
        let access = self.attributes.access;
        let whole = authz::remote(&cx.shared.memory, self.asker, access, target, Rights::REMOTE_WRITE)?;
        let start = whole.segment.address + u64::from(offset);
        let ahead = msn > self.responder.tracker.head();
        let shared = &mut *cx.shared;
        let visible = &mut shared.scratch.visible;
        visible.clear();
        let range = (start, start + u64::from(length));
        self.responder.overlaps.place(whole.segment.space, range, msn, ahead, visible);
        let owner = Owner { qpn: self.qpn, side: Side::Responder, msn };
        for &(from, end) in visible.iter() {
            let length = (end - from) as u32;
            let to = Segment { space: whole.segment.space, address: from, length };
            shared.placement.push(owner, Copy { to, source: bytes.from((from - start) as u32, length) });
        }
        Ok(())
    }

    /// Notes that host memory nobody else has claimed holds bytes of message `msn`.
    pub(crate) fn note_written<W, O>(&mut self, cx: &mut Cx<'_, W, O>, msn: u64, range: (u64, u64)) {
        let ahead = msn > self.responder.tracker.head();
        let visible = &mut cx.shared.scratch.visible;
        visible.clear();
        self.responder.overlaps.place(AddressSpace::Host, range, msn, ahead, visible);
        debug_assert_eq!(visible[..], [range], "somebody else's bytes");
    }

    fn accept_send<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        packet: &Piecemeal,
        receive: u64,
        message_length: u32,
    ) -> Result<(), Reject> {
        let room = self.bind(cx, receive)?;
        if u64::from(message_length) > room {
            return Err(Reject::Refuse(NakCode::ReceiveTooSmall, Some(Cause::ReceiveTooSmall)));
        }
        let length = packet.payload.length;
        let next = self.responder.tracker.is_next(packet.msn, packet.offset);
        let held = cx.shared.config.order == Order::Strict && length > 0 && !next;
        if held {
            self.hold(cx, packet)?;
        } else {
            let bytes = Bytes::Fresh(packet.payload);
            self.place_send(cx, packet.msn, receive, (packet.offset, length), bytes)?;
        }
        self.mark(packet.msn, length, held);
        Ok(())
    }

    fn place_send<W: World, O: Observer>(
        &self,
        cx: &mut Cx<'_, W, O>,
        msn: u64,
        receive: u64,
        (offset, length): (u32, u32),
        bytes: Bytes,
    ) -> Result<(), Reject> {
        let Some(recv) = self.responder.receives.get(receive) else { return Err(Reject::Starved) };
        let owner = Owner { qpn: self.qpn, side: Side::Responder, msn };
        let mut done = 0;
        for part in recv.sges.parts(offset, length) {
            let to = authz::local(&cx.shared.memory, self.asker, &part, Rights::LOCAL_WRITE)
                .map_err(|cause| Reject::Refuse(NakCode::Failed, Some(cause)))?;
            cx.shared.placement.push(owner, Copy { to, source: bytes.from(done, part.length) });
            done += part.length;
        }
        Ok(())
    }

    /// Releases held packets that have become the next in order, and moves on over whole messages.
    pub(crate) fn advance<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        loop {
            while let Some((seq, piece)) = self.responder.tracker.release() {
                self.place_piece(cx, seq, &piece);
            }
            if !self.responder.tracker.advance() {
                break;
            }
        }
        self.responder.overlaps.landed(self.responder.tracker.head());
    }

    fn place_piece<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, seq: u64, piece: &Piece) {
        let Some(message) = self.responder.tracker.get_mut(piece.msn) else { return };
        let (kind, length) = (message.kind, message.length);
        let begun = cx.shared.placement.len();
        let bytes = Bytes::Held(piece.slot);
        let range = (piece.offset, piece.length);
        let placed = match kind {
            Some(Kind::Write { address, rkey, .. }) => {
                let target = Target { rkey, address, length };
                self.place_write(cx, piece.msn, &target, range, bytes).map_err(Reject::from)
            }
            Some(Kind::Send { receive, .. }) => self.place_send(cx, piece.msn, receive, range, bytes),
            _ => Err(NakCode::Invalid.into()),
        };
        cx.shared.placement.release_after(piece.slot);
        match placed {
            Ok(()) => {
                if let Some(message) = self.responder.tracker.get_mut(piece.msn) {
                    message.placed += piece.length;
                }
            }
            Err(reject) => {
                cx.shared.placement.truncate(begun);
                let (code, local) = match reject {
                    Reject::Refuse(code, local) => (code, local),
                    _ => (NakCode::Invalid, None),
                };
                self.responder.tracker.refuse(piece.msn, code, local);
                if let Some(conn) = &mut self.conn {
                    conn.unreceive(Space::Request, seq, None);
                }
            }
        }
    }

    /// The mover found the memory that a message wants to change gone.
    pub(crate) fn on_request_fault(&mut self, msn: u64) {
        let Some(message) = self.responder.tracker.get_mut(msn) else { return };
        let is_send = matches!(message.kind, Some(Kind::Send { .. }));
        let local = is_send.then_some(Cause::LocalFault);
        self.responder.tracker.refuse(msn, NakCode::Fault, local);
    }

    /// Delivers messages whose copies are done and carries out what has its turn.
    pub(crate) fn deliver<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        loop {
            while let Some(message) = self.responder.tracker.deliver() {
                if self.fails_doomed_receive(cx, &message) {
                    return;
                }
                if !self.deliver_receive(cx, &message) {
                    // The peer counts its receives otherwise than we do: nobody's buffer is safe.
                    let landed = self.responder.tracker.landed();
                    return self.refuse_now(cx, landed - 1, NakCode::Invalid, None);
                }
            }
            if self.overran(cx) {
                return;
            }
            let Some(message) = self.responder.tracker.head_message() else { break };
            let message = *message;
            if let Some(code) = message.error {
                let msn = self.responder.tracker.head();
                return self.refuse_now(cx, msn, code, message.local);
            }
            if message.starved {
                self.tell_starved(cx, &message);
                break;
            }
            if !message.arrived || !message.kind.is_some_and(|kind| kind.is_executed()) {
                break;
            }
            if !self.execute(cx, &message) {
                break;
            }
            self.advance(cx);
            cx.shared.placement.execute(cx.world);
            while let Some(owner) = cx.shared.placement.take_fault() {
                self.on_request_fault(owner.msn);
            }
        }
        if let Some(conn) = &mut self.conn {
            conn.set_landed(Space::Request, self.responder.tracker.landed());
        }
    }

    fn overran<W: World, O: Observer>(&self, cx: &Cx<'_, W, O>) -> bool {
        cx.shared.cqs.is_broken(Cqn(self.init.recv_cq))
    }

    /// Refuses message `msn`, before which everything has landed: the queue pair fails on both sides.
    pub(crate) fn refuse_now<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        msn: u64,
        code: NakCode,
        local: Option<Cause>,
    ) {
        if let Some(conn) = &mut self.conn {
            conn.set_landed(Space::Request, msn.min(self.responder.tracker.landed()));
        }
        cx.event(Event::NakSent { qpn: self.qpn, code: nak_number(code) });
        self.store_nak(cx, msn, code);
        let event = match code {
            _ if local.is_some() => None,
            NakCode::Key | NakCode::Bounds | NakCode::Access | NakCode::Fault => Some(AsyncKind::QpAccessErr),
            _ => Some(AsyncKind::QpReqErr),
        };
        // Our own requests are flushed: the fault was the peer's, or that of a receive.
        self.fail_receiving(cx, local, event);
    }
}

/// Whether a packet's fields fit one another and what is already known of its message.
fn is_consistent(message: &Message, kind: &Kind, length: u32, packet: &Piecemeal) -> bool {
    let bytes = packet.payload.length;
    if kind.is_executed() {
        return length == 0 && packet.offset == 0 && bytes == 0 && !message.arrived;
    }
    let end = u64::from(packet.offset) + u64::from(bytes);
    let new = u64::from(message.accepted) + u64::from(bytes);
    end <= u64::from(length) && new <= u64::from(length) && (bytes > 0 || (length == 0 && !message.arrived))
}
