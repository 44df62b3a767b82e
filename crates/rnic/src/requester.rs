//! The sending half: takes entries from the send ring, hands messages to transport, completes them
//! in posting order.
//!
//! A work request is *taken* when it is copied out of the ring and its local keys are checked, and
//! *submitted* when transport has given it its message number, which rises by one with each. It is
//! retired, and its ring space given back, when it is complete: inline data stays in the ring until
//! then because it may have to be sent again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use srdma_abi::control::LIMITS;
use srdma_abi::entry::SEND_BODY_OFFSET;
use srdma_abi::{
    AsyncEvent, AsyncKind, Cause, Completion, Opcode, QpState, SendEntry, SendFlags, Sge, WcOpcode,
};
use srdma_memory::{AddressSpace, Rights, Segment};
use srdma_seams::event::DropCause;
use srdma_seams::{ids::extend, Cqn, Duration, Event, Observer};
use srdma_wire::{Data, Nak, NakCode, Op, Space};

use crate::authz;
use crate::cx::Cx;
use crate::place::{Owner, Side};
use crate::qp::Qp;
use crate::rnr::{Refusals, Verdict};
use crate::scatter::SgeList;
use crate::world::{Copy, PayloadRef, Source, Taken, World};

/// Taken but not yet submitted work requests; the rest waits in the ring.
const TAKEN_MAX: u64 = 1024;

/// A work request of the send queue.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub opcode: Opcode,
    pub flags: SendFlags,
    pub wr_id: u64,
    pub imm: u32,
    pub remote_address: u64,
    pub rkey: u32,
    pub compare_add: u64,
    pub swap: u64,
    /// Number of the peer's receive that it consumes.
    pub receive: u32,
    /// Bytes of payload, or of the answer for READ and atomics.
    pub length: u32,
    pub sges: SgeList,
    /// Offset of inline data in the send ring.
    pub inline_at: u64,
    /// Ring space to give back.
    units: u32,
    /// Bytes of the answer that have come.
    answered: u32,
    /// A packet of the answer has come.
    answer_seen: bool,
    /// The answer is wholly placed.
    done: bool,
    /// Why it fails when its turn comes.
    pub failure: Option<Cause>,
}

/// State of the sending half.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    queue: VecDeque<Wqe>,
    /// Number of the front of `queue`, counted from 0 for each connection.
    front: u64,
    /// Work requests before this one are complete. A READ is complete when its answer has come; its
    /// request stays in `queue` until that too is acknowledged, for transport may ask for it again.
    completed: u64,
    /// Work requests before this one are submitted.
    submitted: u64,
    /// Message number of work request 0.
    first_msn: u64,
    /// Receives of the peer consumed by submitted work requests.
    receives: u32,
    /// READs and atomics submitted whose answer is not known to be acknowledged in order.
    reads: VecDeque<u64>,
    /// Of those, not yet done.
    reads_open: u32,
    /// Answers wholly received, in order.
    answers_landed: u64,
    /// The ring may hold more.
    ring_has_more: bool,
    /// The ring is unusable.
    ring_is_bad: bool,
    /// By a refusal: every message before this one has landed.
    landed_by_nak: u64,
    refusals: Refusals,
    /// Tell the program when the send queue has drained.
    pub notify_drained: bool,
}

impl Requester {
    /// Nothing posted; messages are numbered from `first_msn`.
    pub fn new(first_msn: u64) -> Requester {
        Requester { first_msn, landed_by_nak: first_msn, ..Requester::default() }
    }

    /// The submitted, incomplete work request with this number (transport's token).
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Wqe> {
        let position = number.checked_sub(self.front)?;
        self.queue.get_mut(usize::try_from(position).ok()?)
    }

    /// The same, to look at.
    pub fn get(&self, number: u64) -> Option<&Wqe> {
        let position = number.checked_sub(self.front)?;
        self.queue.get(usize::try_from(position).ok()?)
    }

    /// Bytes of memory of the lists.
    pub fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Wqe>() + self.reads.capacity() * size_of::<u64>()
    }

    /// Gives memory back that the lists do not need.
    pub fn fit(&mut self) {
        self.queue.shrink_to_fit();
        self.reads.shrink_to_fit();
    }

    /// Where the answer to the request with message number `request` (low 32 bits) goes, and the bytes of it that have
    /// not come, if it is a READ of `length` bytes that waits for some.
    pub fn answer_to_come(&self, request: u32, length: u32) -> Option<(&SgeList, u32)> {
        let wqe = self.get(self.message(extend(self.oldest_msn(), request))?)?;
        let waits = wqe.opcode == Opcode::Read && wqe.length == length && !wqe.done && wqe.failure.is_none();
        waits.then(|| (&wqe.sges, length.saturating_sub(wqe.answered)))
    }

    /// `bytes` more of the answer to the READ with message number `request` (low 32 bits) are in place.
    pub fn answer_came(&mut self, request: u32, bytes: u32) {
        let number = self.message(extend(self.oldest_msn(), request));
        if let Some(wqe) = number.and_then(|number| self.get_mut(number)) {
            wqe.answer_seen = true;
            wqe.answered += bytes;
        }
    }

    /// Whether any work request is incomplete.
    pub fn is_busy(&self) -> bool {
        self.next_to_complete().is_some()
    }

    /// Message number of the oldest incomplete work request.
    pub fn oldest_msn(&self) -> u64 {
        self.first_msn + self.completed
    }

    fn next_to_complete(&self) -> Option<&Wqe> {
        self.get(self.completed)
    }

    /// Response-space message number before which every answer is placed.
    pub fn answers_landed_msn(&self) -> u64 {
        self.first_msn + self.answers_landed
    }

    /// Whether the peer owes answers to READs or atomics that it has carried out: requests before
    /// `landed` have landed. Before that, what is ahead of them may rightly take any time.
    pub fn awaits_answers(&self, landed: u64) -> bool {
        self.reads_open > 0 && self.reads.front().is_some_and(|&number| self.first_msn + number < landed)
    }

    /// The ring has been rung for, or space has come free.
    pub fn ring_rung(&mut self) {
        self.ring_has_more = true;
    }

    /// Takes the oldest incomplete work request off, to be flushed.
    pub fn pop(&mut self) -> Option<Wqe> {
        while self.front < self.completed {
            self.queue.pop_front()?;
            self.front += 1;
        }
        let wqe = self.queue.pop_front()?;
        self.front += 1;
        self.completed += 1;
        Some(wqe)
    }

    /// Forgets complete work requests that transport will not ask for again: those before message
    /// `landed`.
    fn forget(&mut self, landed: u64, spare: &mut Vec<Vec<Sge>>) {
        while self.front < self.completed && self.first_msn + self.front < landed {
            let Some(wqe) = self.queue.pop_front() else { return };
            self.front += 1;
            wqe.sges.recycle(spare);
        }
    }

    /// Whether the ring can still be read.
    pub fn ring_is_usable(&self) -> bool {
        !self.ring_is_bad
    }

    /// The ring held something that is no entry.
    pub fn give_ring_up(&mut self) {
        self.ring_is_bad = true;
    }

    fn message(&self, msn: u64) -> Option<u64> {
        let number = msn.checked_sub(self.first_msn)?;
        (number >= self.completed && number < self.submitted).then_some(number)
    }
}

impl Wqe {
    /// Reads an entry as it came from the ring. Its `failure` is set if it cannot be carried out.
    pub fn from_entry(entry: &SendEntry, offset: u32, units: u32, spare: &mut Vec<Vec<Sge>>) -> Wqe {
        let sges = SgeList::new(&entry.sges[..usize::from(entry.sge_count)], spare);
        let bytes = match entry.flags.contains(SendFlags::INLINE) {
            true => u64::from(entry.inline_len),
            false => sges.bytes(),
        };
        Wqe {
            opcode: entry.opcode,
            flags: entry.flags,
            wr_id: entry.wr_id,
            imm: entry.imm,
            remote_address: entry.remote_address,
            rkey: entry.rkey,
            compare_add: entry.compare_add,
            swap: entry.swap,
            receive: 0,
            length: bytes.min(u64::from(u32::MAX)) as u32,
            sges,
            inline_at: u64::from(offset) + SEND_BODY_OFFSET as u64,
            units,
            answered: 0,
            answer_seen: false,
            done: false,
            failure: (bytes > u64::from(LIMITS.max_msg_bytes)).then_some(Cause::MessageTooLong),
        }
    }

    /// Stands for bytes in the ring that are no entry.
    fn bad() -> Wqe {
        let mut wqe = Wqe::from_entry(&SendEntry::default(), 0, 0, &mut Vec::new());
        wqe.failure = Some(Cause::BadEntry);
        wqe
    }

    /// Ring space to give back.
    pub fn units(&self) -> u32 {
        self.units
    }

    fn wc_opcode(&self) -> WcOpcode {
        match self.opcode {
            Opcode::Write | Opcode::WriteImm => WcOpcode::Write,
            Opcode::Send | Opcode::SendImm => WcOpcode::Send,
            Opcode::Read => WcOpcode::Read,
            Opcode::CompareSwap => WcOpcode::CompareSwap,
            Opcode::FetchAdd => WcOpcode::FetchAdd,
        }
    }

    fn is_inline(&self) -> bool {
        self.flags.contains(SendFlags::INLINE)
    }

    /// Header of the packet at `offset`; `landed` is what has landed of the peer's requests.
    pub fn op(&self, offset: u32, landed: u32) -> Op {
        let address = self.remote_address.wrapping_add(u64::from(offset));
        let (rkey, receive, imm) = (self.rkey, self.receive, self.imm);
        match self.opcode {
            Opcode::Write => Op::Write { address, rkey },
            Opcode::WriteImm => Op::WriteImm { address, rkey, imm, receive, landed },
            Opcode::Send => Op::Send { receive, imm: None, landed },
            Opcode::SendImm => Op::Send { receive, imm: Some(imm), landed },
            Opcode::Read => Op::ReadRequest { address, rkey, length: self.length },
            Opcode::CompareSwap => {
                Op::CompareSwap { address, rkey, compare: self.compare_add, swap: self.swap }
            }
            Opcode::FetchAdd => Op::FetchAdd { address, rkey, add: self.compare_add },
        }
    }
}

impl Qp {
    /// Takes entries from the ring and submits what may be submitted.
    pub(crate) fn requester_fill<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        if self.attributes.state != QpState::Rts {
            return;
        }
        loop {
            self.take_sends(cx);
            let before = self.requester.submitted;
            self.submit_ready(cx);
            if self.requester.submitted == before || !self.requester.ring_has_more {
                return;
            }
        }
    }

    fn take_sends<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        while self.requester.ring_has_more
            && !self.requester.ring_is_bad
            && self.requester.queue.back().is_none_or(|last| last.failure.is_none())
            && self.requester.front + self.requester.queue.len() as u64 - self.requester.submitted < TAKEN_MAX
        {
            match cx.world.take_send(self.qpn, &mut cx.shared.scratch.send_entry) {
                Taken::Empty => self.requester.ring_has_more = false,
                Taken::Entry { offset, units } => {
                    let scratch = &mut cx.shared.scratch;
                    let mut wqe = Wqe::from_entry(&scratch.send_entry, offset, units, &mut scratch.sges);
                    wqe.failure = wqe.failure.or_else(|| self.entry_failure(cx, &wqe));
                    self.requester.queue.push_back(wqe);
                }
                Taken::Bad(_) => {
                    self.requester.ring_is_bad = true;
                    self.requester.queue.push_back(Wqe::bad());
                }
            }
        }
    }

    /// Why an entry cannot be carried out, if so. The ring is the program's: it may hold anything.
    fn entry_failure<W: World, O: Observer>(&self, cx: &Cx<'_, W, O>, wqe: &Wqe) -> Option<Cause> {
        let sges = wqe.sges.as_slice();
        if sges.len() > self.init.max_send_sge as usize
            || (wqe.is_inline() && (wqe.length > self.init.max_inline_data || wqe.opcode.is_read_or_atomic()))
        {
            return Some(Cause::BadEntry);
        }
        let needs = match wqe.opcode {
            Opcode::CompareSwap | Opcode::FetchAdd if wqe.length != 8 => return Some(Cause::AtomicShape),
            // No READ can ever leave: better said now than never.
            opcode if opcode.is_read_or_atomic() && self.attributes.max_rd_atomic == 0 => {
                return Some(Cause::BadEntry)
            }
            opcode if opcode.is_read_or_atomic() => Rights::LOCAL_WRITE,
            _ => Rights::NONE,
        };
        let used = sges.iter().filter(|sge| sge.length > 0);
        used.filter_map(|sge| authz::local(&cx.shared.memory, self.asker, sge, needs).err()).next()
    }

    fn submit_ready<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        let Some(conn) = &mut self.conn else { return };
        let requester = &mut self.requester;
        while let Some(wqe) = requester.queue.get_mut((requester.submitted - requester.front) as usize) {
            let is_read = wqe.opcode.is_read_or_atomic();
            let fenced = wqe.flags.contains(SendFlags::FENCE) && requester.reads_open > 0;
            let crowded = is_read && requester.reads_open >= u32::from(self.attributes.max_rd_atomic);
            if wqe.failure.is_some() || fenced || crowded {
                return;
            }
            if wqe.opcode.consumes_receive() {
                wqe.receive = requester.receives;
                requester.receives = requester.receives.wrapping_add(1);
            }
            if is_read {
                requester.reads.push_back(requester.submitted);
                requester.reads_open += 1;
            }
            let carried = if is_read { 0 } else { wqe.length };
            let msn = conn.submit(cx.now, Space::Request, carried, requester.submitted);
            debug_assert_eq!(msn, requester.first_msn + requester.submitted);
            requester.submitted += 1;
        }
    }

    /// Payload of work request `number` from `offset`, appended to `segments`. The keys are asked
    /// about again: the region may have been deregistered since.
    pub(crate) fn request_payload(
        &self,
        memory: &srdma_memory::Table,
        wqe: &Wqe,
        (offset, length): (u32, u32),
        segments: &mut Vec<Segment>,
    ) -> Result<(), Cause> {
        if wqe.is_inline() {
            if length > 0 {
                let address = wqe.inline_at + u64::from(offset);
                segments.push(Segment { space: AddressSpace::SendRing(self.qpn), address, length });
            }
            return Ok(());
        }
        for part in wqe.sges.parts(offset, length) {
            segments.push(authz::local(memory, self.asker, &part, Rights::NONE)?);
        }
        Ok(())
    }

    /// Work request `number` cannot go on: it fails when its turn comes, and neither it nor anything
    /// after it is sent again.
    pub(crate) fn fail_request<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        number: u64,
        cause: Cause,
    ) {
        let msn = self.requester.first_msn + number;
        if let Some(wqe) = self.requester.get_mut(number) {
            wqe.failure.get_or_insert(cause);
        }
        if let Some(conn) = &mut self.conn {
            let trunk = cx.shared.peers.trunk(self.peer_index);
            conn.pause(cx.now, msn as u32, Duration::MAX, trunk);
        }
    }

    /// A packet of the answer to a READ or atomic. Returns whether it was accepted.
    pub(crate) fn on_answer<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        data: &Data,
        payload: PayloadRef,
        seq: u64,
    ) -> bool {
        let (request, value) = match data.op {
            Op::ReadResponse { request } => (request, None),
            Op::AtomicResponse { request, value } => (request, Some(value)),
            _ => return false,
        };
        let msn = extend(self.requester.oldest_msn(), request);
        let Some(number) = self.requester.message(msn) else {
            cx.dropped(self.qpn, DropCause::Stale);
            return false;
        };
        let Some(wqe) = self.requester.get_mut(number) else { return false };
        let expected = if value.is_some() { 0 } else { wqe.length };
        let fits = wqe.opcode.is_read_or_atomic()
            && value.is_some() == (wqe.opcode != Opcode::Read)
            && data.message.length == expected
            && u64::from(data.message.offset) + u64::from(payload.length) <= u64::from(expected)
            && (payload.length > 0 || expected == 0)
            && u64::from(wqe.answered) + u64::from(payload.length) <= u64::from(wqe.length);
        if !fits || wqe.done || (value.is_some() && wqe.answer_seen) {
            if let Some(conn) = &mut self.conn {
                conn.unreceive(Space::Response, seq, data.part);
            }
            cx.dropped(self.qpn, DropCause::Inconsistent);
            return false;
        }
        wqe.answer_seen = true;
        let bytes = if value.is_some() { 8 } else { payload.length };
        wqe.answered += bytes;
        let offset = data.message.offset;
        let owner = Owner { qpn: self.qpn, side: Side::Requester, msn };
        self.place_answer(cx, number, owner, (offset, bytes), |done| match value {
            Some(value) => shifted(value, done),
            None => Source::Payload(PayloadRef {
                buffer: payload.buffer,
                offset: payload.offset + done,
                length: payload.length - done,
            }),
        });
        true
    }

    fn place_answer<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        number: u64,
        owner: Owner,
        (offset, bytes): (u32, u32),
        source: impl Fn(u32) -> Source,
    ) {
        let asker = self.asker;
        let Some(wqe) = self.requester.get_mut(number) else { return };
        let begun = cx.shared.placement.len();
        let mut done = 0;
        for part in wqe.sges.parts(offset, bytes) {
            match authz::local(&cx.shared.memory, asker, &part, Rights::LOCAL_WRITE) {
                Ok(to) => cx.shared.placement.push(owner, Copy { to, source: source(done) }),
                Err(cause) => {
                    cx.shared.placement.truncate(begun);
                    return self.fail_request(cx, number, cause);
                }
            }
            done += part.length;
        }
    }

    /// The mover found the local memory of an answer gone.
    pub(crate) fn on_answer_fault<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, msn: u64) {
        if let Some(number) = self.requester.message(msn) {
            self.fail_request(cx, number, Cause::LocalFault);
        }
    }

    /// Answers whose last byte is now placed are done.
    pub(crate) fn finish_answers(&mut self) {
        let requester = &mut self.requester;
        let (front, queue) = (requester.front, &mut requester.queue);
        for &number in &requester.reads {
            let Some(wqe) = number.checked_sub(front).and_then(|at| queue.get_mut(at as usize)) else {
                continue;
            };
            if !wqe.done && wqe.answer_seen && wqe.answered == wqe.length && wqe.failure.is_none() {
                wqe.done = true;
                requester.reads_open = requester.reads_open.saturating_sub(1);
            }
        }
        let mut landed = false;
        while let Some(&number) = requester.reads.front() {
            let done = number < front || queue.get((number - front) as usize).is_some_and(|wqe| wqe.done);
            if !done {
                break;
            }
            requester.reads.pop_front();
            requester.answers_landed += 1;
            landed = true;
        }
        if let (true, Some(conn)) = (landed, &mut self.conn) {
            conn.set_landed(Space::Response, requester.answers_landed_msn());
        }
    }

    /// The peer refused a message.
    pub(crate) fn on_nak<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, nak: &Nak) {
        if !matches!(self.attributes.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        let msn = extend(self.requester.oldest_msn(), nak.msn);
        let acked = self.conn.as_ref().map_or(0, |conn| conn.peer_landed(Space::Request));
        let Some(number) = self.requester.message(msn) else {
            return cx.dropped(self.qpn, DropCause::Stale);
        };
        let rnr_retry = self.attributes.rnr_retry;
        let Some(wqe) = self.requester.get_mut(number) else { return };
        if msn < acked && !wqe.opcode.is_read_or_atomic() {
            return cx.dropped(self.qpn, DropCause::Stale);
        }
        if let NakCode::Rnr { timer } = nak.code {
            if !wqe.opcode.consumes_receive() {
                return cx.dropped(self.qpn, DropCause::Inconsistent);
            }
            cx.event(Event::RnrReceived { qpn: self.qpn });
            match self.requester.refusals.refused(cx.now, msn, timer, rnr_retry) {
                Verdict::Known => {}
                Verdict::GiveUp => self.fail_request(cx, number, Cause::RnrExceeded),
                Verdict::Wait(wait) => {
                    if let Some(conn) = &mut self.conn {
                        conn.pause(cx.now, nak.msn, wait, cx.shared.peers.trunk(self.peer_index));
                    }
                }
            }
            return;
        }
        cx.event(Event::NakReceived { qpn: self.qpn, code: crate::responder::nak_number(nak.code) });
        self.requester.landed_by_nak = self.requester.landed_by_nak.max(msn);
        self.fail_request(cx, number, cause_of(nak.code));
    }

    /// Completes, in order, what is finished; fails the queue pair if the next in order has failed.
    pub(crate) fn complete_requests<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        if !matches!(self.attributes.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        let Some(conn) = &self.conn else { return };
        let acknowledged = conn.peer_landed(Space::Request);
        let landed = acknowledged.max(self.requester.landed_by_nak);
        let mut units = 0;
        let mut failure = None;
        while let Some(wqe) = self.requester.next_to_complete() {
            let submitted = self.requester.completed < self.requester.submitted;
            let finished = submitted
                && match wqe.opcode.is_read_or_atomic() {
                    true => wqe.done,
                    false => self.requester.oldest_msn() < landed,
                };
            if !finished {
                failure = wqe.failure;
                break;
            }
            if self.doom.strikes_send(self.requester.completed) {
                failure = Some(self.doom.strike_send());
                break;
            }
            units += wqe.units;
            if self.init.sq_sig_all || wqe.flags.contains(SendFlags::SIGNALED) {
                // Ring space first: who polls this completion may post into it at once.
                cx.world.retire_send(self.qpn, core::mem::take(&mut units));
                let completion = self.send_completion(cx, wqe, None);
                cx.complete(Cqn(self.init.send_cq), &completion, false);
            }
            self.requester.completed += 1;
        }
        self.requester.forget(acknowledged, &mut cx.shared.scratch.sges);
        if units > 0 {
            cx.world.retire_send(self.qpn, units);
        }
        match failure.or_else(|| self.peer_failure(cx)) {
            Some(cause) => self.fail(cx, cause, None),
            None => self.notice_drained(cx),
        }
    }

    /// The peer is gone and something still waits for it.
    fn peer_failure<W: World, O: Observer>(&self, cx: &Cx<'_, W, O>) -> Option<Cause> {
        let gone = self.peer_gone.as_ref().filter(|gone| gone.from <= cx.now)?;
        self.requester.is_busy().then_some(gone.cause)
    }

    fn notice_drained<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        let drained = self.requester.completed == self.requester.submitted;
        if self.attributes.state == QpState::Sqd && drained && self.requester.notify_drained {
            self.requester.notify_drained = false;
            cx.world.raise(AsyncEvent { kind: AsyncKind::SqDrained, object: self.qpn.0 });
        }
    }

    /// Delivers the completion of a work request that fails, and gives its ring space back.
    pub(crate) fn fail_send<W: World, O: Observer>(&self, cx: &mut Cx<'_, W, O>, wqe: Wqe, cause: Cause) {
        if wqe.units > 0 {
            cx.world.retire_send(self.qpn, wqe.units);
        }
        let completion = self.send_completion(cx, &wqe, Some(cause));
        cx.complete(Cqn(self.init.send_cq), &completion, true);
        wqe.sges.recycle(&mut cx.shared.scratch.sges);
    }

    fn send_completion<W, O>(&self, cx: &Cx<'_, W, O>, wqe: &Wqe, cause: Option<Cause>) -> Completion {
        Completion {
            wr_id: wqe.wr_id,
            qpn: self.qpn.0,
            src_qpn: self.attributes.dest_qpn,
            status: cause.map_or(0, |cause| cause.status() as u8),
            opcode: wqe.wc_opcode() as u8,
            vendor_err: cause.map_or(0, |cause| self.code(cause).into()),
            byte_len: if wqe.opcode.is_read_or_atomic() && cause.is_none() { wqe.length } else { 0 },
            timestamp_ns: cx.now.0,
            ..Completion::default()
        }
    }
}

/// The rest of an atomic's result after its first `done` bytes.
fn shifted(value: u64, done: u32) -> Source {
    let mut bytes = value.to_ne_bytes();
    bytes.rotate_left(done as usize & 7);
    Source::Bytes(bytes)
}

/// What a refusal means to the program.
fn cause_of(code: NakCode) -> Cause {
    match code {
        NakCode::Key => Cause::RemoteKey,
        NakCode::Bounds => Cause::RemoteBounds,
        NakCode::Access => Cause::RemoteAccess,
        NakCode::Invalid | NakCode::Rnr { .. } => Cause::RemoteInvalid,
        NakCode::Fault | NakCode::Failed => Cause::RemoteFault,
        NakCode::ReceiveTooSmall => Cause::RemoteReceiveTooSmall,
        NakCode::TooManyReads => Cause::RemoteTooManyReads,
    }
}
