//! From a unit of transport to a burst of packets: headers, and where their payload lies.

use core::net::SocketAddr;

use srdma_abi::QpState;
use srdma_memory::Rights;
use srdma_seams::{Duration, Observer};
use srdma_transport::{Fragment, Stretch, Unit};
use srdma_wire::{Ack, Data, Message, NakCode, Op, Packet, Part, Space, UnitTag};

use crate::answers::Answer;
use crate::authz::{self, Target};
use crate::cx::Cx;
use crate::qp::{Outcome, Qp};
use crate::world::{Burst, Outgoing, SendRefusal, World};

/// A socket that is full is tried again after this time at the latest.
pub(crate) const BUSY_RETRY: Duration = Duration::from_micros(200);

/// Why a packet cannot be made.
enum Unfit {
    /// Its message is finished or flushed.
    Gone,
    /// A local key of work request `.0` no longer does.
    Request(u64, srdma_abi::Cause),
    /// The key of answer `.0` no longer does.
    Answer(u64, NakCode),
}

impl Qp {
    /// Sends one unit, if there is one.
    pub(crate) fn emit<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) -> Outcome {
        let sends = match self.attributes.state {
            QpState::Rtr | QpState::Rts | QpState::Sqd => !self.is_dead,
            QpState::Err => self.serves_answers && !self.is_dead,
            _ => false,
        };
        let (true, Some(conn), Some(peer)) = (sends, &mut self.conn, self.peer) else { return Outcome::Idle };
        let Some(unit) = conn.poll_unit(cx.now, cx.shared.peers.trunk(self.peer_index), cx.obs) else {
            return if conn.waits_for_window() { Outcome::WindowFull } else { Outcome::Idle };
        };
        if let Err(unfit) = self.build(cx, &unit) {
            self.take_back(cx, &unit);
            return self.on_unfit(cx, unfit);
        }
        if cx.shared.scratch.runs.is_empty() {
            // Only answers that are refused meanwhile: as if lost.
            return Outcome::Sent(0);
        }
        match self.send(cx, peer, &unit) {
            Ok(()) => {
                self.unreachable = false;
                let bytes = cx.shared.scratch.runs.iter().map(|run| run.payload_bytes).sum();
                self.note_sent(&unit);
                Outcome::Sent(bytes)
            }
            Err(SendRefusal::Busy) => {
                self.take_back(cx, &unit);
                self.retry_at = Some(cx.now + BUSY_RETRY);
                Outcome::Blocked
            }
            Err(SendRefusal::Fault { packet }) => {
                self.take_back(cx, &unit);
                self.on_fault(cx, &unit, packet)
            }
            // As if lost on the way: time-outs decide, and the cause is known when they do.
            Err(SendRefusal::Unreachable) => {
                self.unreachable = true;
                Outcome::Sent(0)
            }
            Err(SendRefusal::TooBig) => {
                if let Some(conn) = &mut self.conn {
                    conn.too_big(cx.now);
                }
                Outcome::Sent(0)
            }
        }
    }

    /// Sends the burst that was built, with the ACK that has waited for it.
    fn send<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        peer: SocketAddr,
        unit: &Unit,
    ) -> Result<(), SendRefusal> {
        let is_held = self.conn.as_ref().is_some_and(|conn| conn.is_ack_held());
        let is_single = matches!(&cx.shared.scratch.runs[..], [run] if run.packets == 1);
        if is_held && !is_single {
            self.say_acks(cx, peer);
        }
        let ack = if is_held && is_single { self.next_ack(cx) } else { None };
        let scratch = &cx.shared.scratch;
        let burst = Burst {
            peer,
            path: unit.path,
            traffic_class: self.attributes.traffic_class,
            runs: &scratch.runs,
            segments: &scratch.segments,
        };
        let Some(ack) = ack else { return cx.world.send_burst(&burst) };
        let space = ack.space;
        let sent = cx.world.send_burst_with_ack(&burst, &Packet::Ack(Ack { path: unit.path, ..ack }));
        if let (Err(_), Some(conn)) = (sent, &mut self.conn) {
            conn.ack_again(space);
        }
        sent
    }

    /// Sends what must not wait for the window that it shares, or for its turn.
    pub(crate) fn emit_urgent<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        if self.conn.as_ref().is_some_and(|conn| conn.is_urgent()) {
            // If the socket is full, it is tried again soon.
            let _ = self.emit(cx);
        }
    }

    fn take_back<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, unit: &Unit) {
        if let Some(conn) = &mut self.conn {
            conn.unit_refused(cx.now, unit, cx.shared.peers.trunk(self.peer_index), cx.obs);
        }
    }

    /// Describes the unit message by message, not packet by packet: keys are asked once for each.
    fn build<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, unit: &Unit) -> Result<(), Unfit> {
        cx.shared.scratch.runs.clear();
        cx.shared.scratch.segments.clear();
        let mut index = 0;
        while index < unit.packets {
            let stretch = self.stretch(unit, index).ok_or(Unfit::Gone)?;
            let first = stretch.first;
            if unit.space == Space::Response && self.responder.answers.is_refused(first.msn) {
                break;
            }
            let (count, each) = self.conn.as_ref().map_or((1, 0), |conn| conn.parts(unit.space, &first));
            if count == 1 {
                self.build_run(cx, unit, index, &stretch, None)?;
            }
            for part in (0..count).filter(|_| count > 1) {
                let from = u32::from(part) * each;
                let length = first.length.saturating_sub(from).min(each);
                let piece = Fragment { offset: first.offset + from, length, ..first };
                let piece = Stretch { first: piece, packets: 1, bytes: length };
                self.build_run(cx, unit, index, &piece, Some(Part { index: part, count }))?;
            }
            index += stretch.packets;
        }
        Ok(())
    }

    /// Adds packets of `unit` from number `index` on, or a part of one.
    fn build_run<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        unit: &Unit,
        index: u8,
        stretch: &Stretch,
        part: Option<Part>,
    ) -> Result<(), Unfit> {
        let fragment = &stretch.first;
        let begun = cx.shared.scratch.segments.len();
        let (op, solicited) = match unit.space {
            Space::Request => self.build_request(cx, stretch)?,
            Space::Response => self.build_answer(cx, stretch)?,
        };
        let header = Data {
            dest_qpn: srdma_seams::Qpn(self.attributes.dest_qpn),
            connection: self.remote_connection(),
            psn: fragment.seq as u32,
            unit: UnitTag { transmit: unit.transmit, path: unit.path, index, packets: unit.packets },
            message: Message {
                msn: fragment.msn as u32,
                length: fragment.message_length,
                offset: fragment.offset,
            },
            part,
            solicited,
            payload_crc: None,
            tag: None,
            op,
        };
        let scratch = &mut cx.shared.scratch;
        scratch.runs.push(Outgoing {
            header,
            packets: stretch.packets,
            payload_each: fragment.length,
            payload_bytes: stretch.bytes,
            segment_count: (scratch.segments.len() - begun) as u16,
        });
        Ok(())
    }

    fn build_request<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        stretch: &Stretch,
    ) -> Result<(Op, bool), Unfit> {
        let (number, offset) = (stretch.first.token, stretch.first.offset);
        let Some(wqe) = self.requester.get(number) else { return Err(Unfit::Gone) };
        if wqe.failure.is_some() {
            return Err(Unfit::Gone);
        }
        let range = (offset, stretch.bytes);
        self.request_payload(&cx.shared.memory, wqe, range, &mut cx.shared.scratch.segments)
            .map_err(|cause| Unfit::Request(number, cause))?;
        let solicited = wqe.opcode.consumes_receive() && wqe.flags.contains(srdma_abi::SendFlags::SOLICITED);
        let landed = self.conn.as_ref().map_or(0, |conn| conn.landed(Space::Request) as u32);
        Ok((wqe.op(offset, landed), solicited))
    }

    fn build_answer<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        stretch: &Stretch,
    ) -> Result<(Op, bool), Unfit> {
        let fragment = &stretch.first;
        let Some(saved) = self.responder.answers.get(fragment.msn) else { return Err(Unfit::Gone) };
        let request = saved.request as u32;
        match saved.answer {
            Answer::Value(value) => Ok((Op::AtomicResponse { request, value }, false)),
            Answer::Read(whole) => {
                let part = Target {
                    rkey: whole.rkey,
                    address: whole.address.wrapping_add(u64::from(fragment.offset)),
                    length: stretch.bytes,
                };
                if part.length > 0 {
                    let access = self.attributes.access;
                    let memory = &cx.shared.memory;
                    let place = authz::remote(memory, self.asker, access, &part, Rights::REMOTE_READ)
                        .map_err(|code| Unfit::Answer(fragment.msn, code))?;
                    cx.shared.scratch.segments.push(place.segment);
                }
                Ok((Op::ReadResponse { request }, false))
            }
        }
    }

    fn on_unfit<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, unfit: Unfit) -> Outcome {
        match unfit {
            Unfit::Gone => return Outcome::Idle,
            Unfit::Request(number, cause) => {
                self.fail_request(cx, number, cause);
                self.complete_requests(cx);
            }
            Unfit::Answer(msn, code) => self.refuse_answer(cx, msn, code),
        }
        Outcome::Sent(0)
    }

    /// Memory that a packet of the unit wants to read is gone.
    fn on_fault<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        unit: &Unit,
        packet: usize,
    ) -> Outcome {
        // Where there are more datagrams than packets, they are the parts of one packet.
        let seq = unit.first + (packet as u64).min(u64::from(unit.packets) - 1);
        let Some(fragment) = self.fragment(unit.space, seq) else { return Outcome::Idle };
        match unit.space {
            Space::Request => self.on_unfit(cx, Unfit::Request(fragment.token, srdma_abi::Cause::LocalFault)),
            Space::Response => self.on_unfit(cx, Unfit::Answer(fragment.msn, NakCode::Fault)),
        }
    }

    /// The bytes of an answer may no longer be read: its request is refused after all, and so are
    /// those after it. Earlier answers are still sent.
    fn refuse_answer<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, msn: u64, code: NakCode) {
        let Some(request) = self.responder.answers.get(msn).map(|saved| saved.request) else { return };
        self.responder.answers.refuse_from(msn);
        match self.attributes.state {
            // A later request was refused before; this one is now the first.
            QpState::Err => self.store_nak(cx, request, code),
            _ => self.refuse_now(cx, request, code, None),
        }
    }

    /// Notes answers whose last packet has now left.
    fn note_sent(&mut self, unit: &Unit) {
        if unit.space != Space::Response {
            return;
        }
        let mut index = 0;
        while index < unit.packets {
            let Some(stretch) = self.stretch(unit, index) else { return };
            let first = &stretch.first;
            if first.offset + stretch.bytes == first.message_length {
                self.responder.answers.left(first.msn);
            }
            index += stretch.packets;
        }
    }

    /// What the packets of `unit` from number `index` on stand for, as far as they are of one message.
    fn stretch(&self, unit: &Unit, index: u8) -> Option<Stretch> {
        let first = unit.first + u64::from(index);
        self.conn.as_ref()?.stretch(unit.space, first, unit.packets - index)
    }

    fn fragment(&self, space: Space, seq: u64) -> Option<Fragment> {
        self.conn.as_ref()?.fragment(space, seq)
    }
}
