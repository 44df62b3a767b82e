//! One numbering of the sending side: messages become packet numbers, each packet has a state.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use srdma_seams::event::RetransmitCause;
use srdma_seams::{ids, Now, PathId};
use srdma_wire::{Ack, AckBlock, Space, PARTS_MAX};

use crate::bitmap::SeqBits;
use crate::paths::PathSet;
use crate::units::Units;
use crate::{BogusAck, Fragment, Stretch};

/// A submitted message.
#[derive(Clone, Copy, Debug)]
struct MessageRecord {
    /// First packet number; meaningless before the payload size is known.
    first: u64,
    packets: u32,
    length: u32,
    token: u64,
    /// Payload bytes of each of its packets but the last, fixed once the first is sent.
    each: u32,
}

impl MessageRecord {
    fn fragment_length(&self, seq: u64) -> u32 {
        self.each.min(self.length - (seq - self.first) as u32 * self.each)
    }

    /// One past its last packet.
    fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }

    /// Length of packet `seq`, and how many packets of that length begin with it.
    fn alike(&self, seq: u64) -> (u32, u64) {
        let (length, last) = (self.fragment_length(seq), self.end() - 1);
        let alike = if self.fragment_length(last) == length { last + 1 - seq } else { last - seq };
        (length, alike)
    }
}

/// A packet that was sent: its last transmission, and how the one before was lost, if one was.
#[derive(Clone, Copy, Debug)]
struct PacketRecord {
    transmit: u32,
    lost_on: PathId,
    cause: RetransmitCause,
    /// It has travelled in parts, and does for ever: the peer may have some of them.
    in_parts: bool,
}

const UNSENT: PacketRecord =
    PacketRecord { transmit: 0, lost_on: NO_PATH, cause: RetransmitCause::Local, in_parts: false };
/// Packets that there is always room for.
const PACKETS_MIN: usize = 64;
const NO_PATH: PathId = PathId(u16::MAX);

/// How much may travel together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitLimit {
    pub(crate) packets: u8,
    /// Bytes on the wire, headers included, and bytes of one header.
    pub(crate) wire_bytes: u64,
    pub(crate) header_bytes: u32,
    /// Bytes of the congestion window, and what a packet costs there beyond its payload.
    pub(crate) window_bytes: u64,
    pub(crate) packet_cost: u32,
    /// Packets that the receiver's window holds.
    pub(crate) window_packets: u32,
}

impl UnitLimit {
    /// Whether a unit may have so many packets with so much payload.
    fn allows(&self, packets: u64, payload_bytes: u64) -> bool {
        payload_bytes + packets * u64::from(self.header_bytes) <= self.wire_bytes
            && payload_bytes + packets * u64::from(self.packet_cost) <= self.window_bytes
    }

    /// Of `count` packets of `length` bytes each, how many may be added to `run`.
    fn room(&self, run: &Run, count: u64, length: u32) -> u64 {
        let (packets, bytes) = (u64::from(run.packets), u64::from(run.payload_bytes));
        let with = |added: u64| self.allows(packets + added, bytes + added * u64::from(length));
        if with(count) {
            return count;
        }
        // At most 64 packets: as quick as a division.
        (1..count).take_while(|&added| with(added)).last().unwrap_or(0)
    }
}

/// Packets chosen to travel together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) packets: u8,
    /// Payload bytes of all packets.
    pub(crate) payload_bytes: u32,
    /// Payload bytes of each packet but the last, and of the last.
    pub(crate) each: u32,
    pub(crate) last: u32,
    /// Datagrams of each packet: one, unless it has become too large and travels alone, in parts.
    pub(crate) parts: u8,
    /// Path that lost the first packet before.
    pub(crate) lost_on: Option<PathId>,
    /// Why the packets are sent again, if they are.
    pub(crate) cause: Option<RetransmitCause>,
}

impl Run {
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }

    fn add(&mut self, count: u64, length: u32) {
        if count > 0 {
            self.packets += count as u8;
            self.payload_bytes += count as u32 * length;
            self.last = length;
        }
    }

    /// Only its first packet.
    pub(crate) fn cut_to_one(&mut self) {
        self.packets = 1;
        self.payload_bytes = self.each;
        self.last = self.each;
    }

    /// Datagrams that it takes.
    pub(crate) fn datagrams(&self) -> u32 {
        u32::from(self.packets) * u32::from(self.parts)
    }
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newly {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Window bytes of the largest of them that was in flight.
    pub(crate) largest: u64,
    /// Newest transmission of which a packet was acknowledged, and whether there is one.
    pub(crate) newest: Option<u64>,
    /// A transmission held lost whose packet was acknowledged before it was sent again.
    pub(crate) unlost: Option<u64>,
    pub(crate) landed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SendSpace {
    space: Space,
    messages: VecDeque<MessageRecord>,
    /// Message number of `messages[0]`.
    first_msn: u64,
    peer_landed: u64,
    payload_bytes: Option<u32>,
    /// Payload of the smallest datagram that a path may be narrowed to.
    pub(crate) part_bytes_min: u32,
    /// No packet from this one on has travelled in parts.
    parts_before: u64,
    /// Every packet before this one is acknowledged.
    base: u64,
    /// Next packet never sent.
    next: u64,
    /// One past the last packet that has a number.
    end: u64,
    packets: Vec<PacketRecord>,
    acked: SeqBits,
    lost: SeqBits,
    lost_count: u64,
    /// No lost packet lies before this one.
    lost_from: u64,
    /// While paused, packets from this one on stay here.
    pub(crate) hold_from: u64,
}

impl SendSpace {
    pub(crate) fn new(space: Space, first_psn: u64, first_msn: u64) -> SendSpace {
        SendSpace {
            space,
            messages: VecDeque::new(),
            first_msn,
            peer_landed: first_msn,
            payload_bytes: None,
            part_bytes_min: 8,
            parts_before: first_psn,
            base: first_psn,
            next: first_psn,
            end: first_psn,
            packets: vec![UNSENT; PACKETS_MIN],
            acked: SeqBits::new(),
            lost: SeqBits::new(),
            lost_count: 0,
            lost_from: first_psn,
            hold_from: u64::MAX,
        }
    }

    /// The payload size is known, or has changed. Messages of which nothing was sent are cut, and numbered, by it;
    /// what was sent keeps its numbers and travels in parts.
    pub(crate) fn set_payload(&mut self, bytes: u32) {
        self.payload_bytes = Some(bytes);
        self.cut_unsent(bytes);
    }

    /// Whether what is in flight can travel in datagrams with at most `bytes` of payload, in parts if need be.
    pub(crate) fn can_shrink(&self, bytes: u32) -> bool {
        let mut begun = self.messages.iter().filter(|m| m.first < self.next && m.end() > self.base);
        begun.all(|m| m.each <= bytes || self.part_bytes(m.each) <= bytes)
    }

    /// Payload of each part, but the last, of a packet with `length` bytes. It follows from the length alone, since a
    /// packet's parts must be the same in every transmission; and it is as small as can be, so that they get through
    /// however narrow the path becomes.
    fn part_bytes(&self, length: u32) -> u32 {
        self.part_bytes_min.max(length.div_ceil(PARTS_MAX.into()).next_multiple_of(8))
    }

    /// Cuts, and numbers, every message of which nothing was sent.
    fn cut_unsent(&mut self, bytes: u32) {
        let mut end = None;
        let mut hold_from = self.hold_from;
        for message in self.messages.iter_mut().filter(|message| message.first >= self.next) {
            let first = end.unwrap_or(message.first);
            if self.hold_from == message.first {
                hold_from = first;
            }
            (message.first, message.each) = (first, bytes);
            message.packets = packets_of(message.length, bytes);
            end = Some(first + u64::from(message.packets));
        }
        self.hold_from = hold_from;
        self.end = end.unwrap_or(self.end);
    }

    /// Datagrams in which packet `seq` with `length` payload bytes travels, and bytes of each but the last.
    pub(crate) fn parts(&self, seq: u64, length: u32) -> (u8, u32) {
        if self.payload_bytes.is_none_or(|bytes| length <= bytes) && !self.is_in_parts(seq) {
            return (1, length);
        }
        let bytes = self.part_bytes(length);
        (length.div_ceil(bytes).clamp(1, PARTS_MAX.into()) as u8, bytes)
    }

    /// Whether `seq` has travelled in parts.
    fn is_in_parts(&self, seq: u64) -> bool {
        seq >= self.base && seq < self.parts_before.min(self.next) && self.packet(seq).in_parts
    }

    /// Packets from `seq` on, `count` at most, that have not travelled in parts.
    fn whole_run(&self, seq: u64, count: u64) -> u64 {
        if seq >= self.parts_before {
            return count;
        }
        (seq..seq + count).position(|seq| self.is_in_parts(seq)).map_or(count, |position| position as u64)
    }

    pub(crate) fn submit(&mut self, length: u32, token: u64) -> u64 {
        let packets = self.payload_bytes.map_or(0, |bytes| packets_of(length, bytes));
        let each = self.payload_bytes.unwrap_or(0);
        self.messages.push_back(MessageRecord { first: self.end, packets, length, token, each });
        self.end += u64::from(packets);
        self.first_msn + self.messages.len() as u64 - 1
    }

    pub(crate) fn peer_landed(&self) -> u64 {
        self.peer_landed
    }

    /// Whether something that was sent, and is not paused, is not finished.
    pub(crate) fn is_awaiting(&self) -> bool {
        let sent_end = self.next.min(self.hold_from);
        self.payload_bytes.is_some() && self.messages.front().is_some_and(|m| m.first < sent_end)
    }

    /// Packets held lost that may be sent again now.
    pub(crate) fn next_lost(&mut self) -> Option<u64> {
        if self.lost_count == 0 {
            return None;
        }
        let from = self.lost_from.max(self.base);
        let found = self.lost.next_set(from, self.next);
        self.lost_from = found.unwrap_or(self.next);
        found.filter(|&seq| seq < self.hold_from)
    }

    /// Next packet never sent, if the receiver's window of `window_packets` has room for it.
    pub(crate) fn next_new(&self, window_packets: u32) -> Option<u64> {
        let limit = self.end.min(self.hold_from).min(self.base + u64::from(window_packets));
        (self.next < limit).then_some(self.next)
    }

    /// Whether anything is left to send, allowed or not.
    pub(crate) fn has_more(&self) -> bool {
        self.lost_count > 0 || self.next < self.end
    }

    /// Whether there is anything to send: a packet held lost, or a new one that the peer has room for.
    pub(crate) fn has_to_send(&self, window_packets: u32) -> bool {
        let has_lost = || {
            let lost = self.lost.next_set(self.lost_from.max(self.base), self.next);
            lost.is_some_and(|seq| seq < self.hold_from)
        };
        self.next_new(window_packets).is_some() || (self.lost_count > 0 && has_lost())
    }

    /// The last packet sent that is not acknowledged, else the last one of the last sent message
    /// that the peer does not report as landed. What a probe would repeat.
    pub(crate) fn probe_candidate(&self) -> Option<u64> {
        if !self.is_awaiting() {
            return None;
        }
        let end = self.next.min(self.hold_from);
        let unacked = (self.base..end).rev().find(|&seq| !self.acked.get(seq));
        unacked.or(end.checked_sub(1)).filter(|&seq| self.message_at(seq).is_some())
    }

    /// Chooses packets from `first` on that travel together: all of one size, the last may be
    /// shorter (one segment size per burst).
    pub(crate) fn run_from(&self, first: u64, again: bool, limit: &UnitLimit) -> Option<Run> {
        let window_end = if again { self.next } else { self.base + u64::from(limit.window_packets) };
        let end = window_end.min(self.end).min(self.hold_from);
        let mut index = self.message_index(first)?;
        let mut run = Run {
            first,
            packets: 0,
            payload_bytes: 0,
            each: 0,
            last: 0,
            parts: 1,
            lost_on: None,
            cause: None,
        };
        if again {
            let packet = self.packet(first);
            run.cause = Some(packet.cause);
            run.lost_on = (packet.lost_on != NO_PATH).then_some(packet.lost_on);
        }
        let end = if again { self.lost.next_clear(first, end) } else { end };
        let end = end.min(first + u64::from(limit.packets));
        let mut seq = first;
        while seq < end {
            let message = self.messages.get(index)?;
            let (length, alike) = message.alike(seq);
            let (parts, _) = self.parts(seq, length);
            if run.packets == 0 {
                (run.each, run.parts) = (length, parts);
            } else if length > run.each || parts > 1 {
                break;
            }
            let wanted = if parts > 1 { 1 } else { self.whole_run(seq, alike.min(end - seq)) };
            let count = limit.room(&run, wanted, length).max(u64::from(run.packets == 0));
            run.add(count, length);
            seq += count;
            if count < wanted || length < run.each || parts > 1 {
                break;
            }
            if seq == message.end() {
                index += 1;
            }
        }
        (run.packets > 0).then_some(run)
    }

    /// One packet, sent before, whatever its state: what a probe carries.
    pub(crate) fn probe_run(&self, seq: u64) -> Option<Run> {
        let length = self.message_at(seq)?.fragment_length(seq);
        let cause = Some(RetransmitCause::TailProbe);
        Some(Run {
            first: seq,
            packets: 1,
            payload_bytes: length,
            each: length,
            last: length,
            parts: self.parts(seq, length).0,
            lost_on: None,
            cause,
        })
    }

    /// Whether packet `seq` is acknowledged.
    pub(crate) fn is_acked(&self, seq: u64) -> bool {
        seq < self.base || (seq < self.next && self.acked.get(seq))
    }

    /// The packets of `run` are in flight as `transmit`.
    pub(crate) fn mark_sent(&mut self, run: &Run, transmit: u64) {
        let end = run.end();
        if run.cause.is_none() {
            self.grow(end);
            self.next = end;
        }
        let first = run.first.max(self.base);
        if self.lost_count > 0 {
            self.lost_count -= self.lost.clear_range(first, end);
        }
        let in_parts = run.parts > 1;
        if in_parts {
            self.parts_before = self.parts_before.max(end);
        }
        if run.cause.is_none() {
            self.fill(first, end, PacketRecord { transmit: transmit as u32, in_parts, ..UNSENT });
        } else {
            for seq in first..end {
                let slot = self.slot(seq);
                self.packets[slot].transmit = transmit as u32;
                self.packets[slot].in_parts |= in_parts;
            }
        }
    }

    /// Sets the records of `[first, end)`, which may wrap around.
    fn fill(&mut self, first: u64, end: u64, record: PacketRecord) {
        let (slot, count) = (self.slot(first), (end - first) as usize);
        let before_wrap = count.min(self.packets.len() - slot);
        self.packets[slot..slot + before_wrap].fill(record);
        self.packets[..count - before_wrap].fill(record);
    }

    /// The newest packets, sent for the first time as a unit, did not leave after all. False if
    /// others were sent since.
    pub(crate) fn unsend(&mut self, first: u64, packets: u8) -> bool {
        let newest = first + u64::from(packets) == self.next && first >= self.base;
        if newest {
            self.lost_count -= self.lost.clear_range(first, self.next);
            self.next = first;
        }
        newest
    }

    /// Messages not finished.
    pub(crate) fn message_count(&self) -> u64 {
        self.messages.len() as u64
    }

    /// Packet `seq`, last sent as `transmit`, has to be sent again, if possible not on `lost_on`.
    pub(crate) fn mark_lost(
        &mut self,
        seq: u64,
        transmit: u64,
        lost_on: Option<PathId>,
        cause: RetransmitCause,
    ) {
        let current = seq >= self.base && seq < self.next && !self.acked.get(seq);
        if !current || self.packet(seq).transmit != transmit as u32 {
            return;
        }
        let slot = self.slot(seq);
        self.packets[slot].cause = cause;
        self.packets[slot].lost_on = lost_on.unwrap_or(NO_PATH);
        if self.lost.set(seq) {
            self.lost_count += 1;
            self.lost_from = self.lost_from.min(seq);
        }
    }

    /// Transmission that `seq` last travelled in, if it is neither acknowledged nor held lost.
    pub(crate) fn transmit_of(&self, seq: u64) -> Option<u32> {
        let sent = seq >= self.base && seq < self.next;
        (sent && !self.acked.get(seq) && !self.lost.get(seq)).then(|| self.packet(seq).transmit)
    }

    /// Whether `ack` can be true.
    pub(crate) fn check(&self, ack: &Ack) -> Result<(), BogusAck> {
        if ids::extend(self.base, ack.cumulative) > self.next {
            return Err(BogusAck);
        }
        let submitted_end = self.first_msn + self.messages.len() as u64;
        if ids::extend(self.peer_landed, ack.landed) > submitted_end {
            return Err(BogusAck);
        }
        for block in ack.blocks() {
            let (first, end) = (ids::extend(self.base, block.first), ids::extend(self.base, block.end));
            if first > end || end > self.next {
                return Err(BogusAck);
            }
        }
        Ok(())
    }

    /// Packet number after the last packet of the messages before `landed` (low 32 bits); `None` if that is no
    /// news.
    pub(crate) fn end_of_landed(&self, landed: u32) -> Result<Option<u64>, BogusAck> {
        let landed = ids::extend(self.peer_landed, landed);
        if landed <= self.first_msn {
            return Ok(None);
        }
        let last = usize::try_from(landed - self.first_msn - 1).ok().and_then(|i| self.messages.get(i));
        match last {
            Some(last) if self.payload_bytes.is_some() => {
                let end = last.end();
                if end <= self.next {
                    Ok(Some(end.max(self.base)))
                } else {
                    Err(BogusAck)
                }
            }
            _ => Err(BogusAck),
        }
    }

    /// Takes over what `ack` (already checked) says about packets and messages. A transmission
    /// that left after `sent_before` cannot be the one that was acknowledged.
    pub(crate) fn acknowledge(
        &mut self,
        ack: &Ack,
        blocks: &[AckBlock],
        sent_before: Now,
        units: &mut Units,
        paths: &mut PathSet,
    ) -> Newly {
        let mut newly = Newly::default();
        let cumulative = ids::extend(self.base, ack.cumulative);
        if cumulative > self.base {
            self.acknowledge_range(self.base, cumulative, sent_before, units, paths, &mut newly);
            self.acked.clear_range(self.base, cumulative);
            self.base = cumulative;
        }
        for block in blocks {
            let (first, end) = (ids::extend(self.base, block.first), ids::extend(self.base, block.end));
            self.acknowledge_range(first.max(self.base), end, sent_before, units, paths, &mut newly);
        }
        self.retire(ids::extend(self.peer_landed, ack.landed), &mut newly);
        newly
    }

    fn acknowledge_range(
        &mut self,
        from: u64,
        end: u64,
        sent_before: Now,
        units: &mut Units,
        paths: &mut PathSet,
        newly: &mut Newly,
    ) {
        let mut seq = self.acked.next_clear(from, end.max(from));
        while seq < end {
            let transmit = units.extend(self.packet(seq).transmit);
            let mut count = 1;
            if self.lost.clear(seq) {
                self.lost_count -= 1;
                newly.unlost = Some(transmit);
            } else {
                // What is in flight as part of one unit is acknowledged in one go.
                let known = self.acked.next_set(seq, end).unwrap_or(end);
                let (settled, bytes) = units.settle_run(transmit, seq, known - seq);
                count = settled.max(1);
                newly.bytes += bytes;
                let unit = units.get(transmit);
                // What comes in parts says nothing about larger packets.
                let whole = unit.filter(|unit| !unit.in_parts);
                let each = whole.map_or(0, |unit| u64::from(unit.charge_each));
                newly.largest = newly.largest.max(if settled > 1 { each } else { each.min(bytes) });
                if unit.is_some_and(|unit| unit.sent <= sent_before) {
                    newly.newest = newly.newest.max(Some(transmit));
                    paths.note_acked(units, transmit);
                }
            }
            self.acked.set_range(seq, seq + count);
            newly.packets += count;
            seq = self.acked.next_clear(seq + count, end);
        }
    }

    /// Forgets messages that are finished. The peer cannot have landed what it has not received,
    /// so its word counts only as far as everything is acknowledged.
    fn retire(&mut self, landed: u64, newly: &mut Newly) {
        while let Some(message) = self.messages.front() {
            let received = self.payload_bytes.is_some() && message.end() <= self.base;
            if !received || (self.space == Space::Request && self.first_msn >= landed) {
                break;
            }
            self.messages.pop_front();
            self.first_msn += 1;
        }
        if self.first_msn > self.peer_landed {
            self.peer_landed = self.first_msn;
            newly.landed = true;
        }
    }

    /// Keeps everything of message `msn` (low 32 bits) and later from being sent, and takes back
    /// what is in flight. Returns false if nothing of the message was sent.
    pub(crate) fn hold(&mut self, msn: u32, units: &mut Units) -> bool {
        let msn = ids::extend(self.first_msn, msn);
        let Some(index) = msn.checked_sub(self.first_msn) else { return false };
        let Some(message) = self.messages.get(index as usize) else { return false };
        if self.payload_bytes.is_none() {
            return false;
        }
        let was_sent = message.first < self.next;
        self.hold_from = self.hold_from.min(message.first);
        for seq in self.hold_from.max(self.base)..self.next {
            if let Some(low) = self.transmit_of(seq) {
                let transmit = units.extend(low);
                units.settle(transmit, seq);
                self.mark_lost(seq, transmit, None, RetransmitCause::Rnr);
            }
        }
        was_sent
    }

    /// What packet number `seq` stands for.
    pub(crate) fn fragment(&self, seq: u64) -> Option<Fragment> {
        let index = self.message_index(seq)?;
        self.fragment_of(index, self.messages.get(index)?, seq)
    }

    fn fragment_of(&self, index: usize, message: &MessageRecord, seq: u64) -> Option<Fragment> {
        let offset = (seq - message.first) as u32 * message.each;
        Some(Fragment {
            seq,
            msn: self.first_msn + index as u64,
            token: message.token,
            message_length: message.length,
            offset,
            length: message.fragment_length(seq),
        })
    }

    /// What the packets from `seq` on stand for, `packets` at most, as far as they belong to one message.
    pub(crate) fn stretch(&self, seq: u64, packets: u8) -> Option<Stretch> {
        let index = self.message_index(seq)?;
        let message = self.messages.get(index)?;
        let first = self.fragment_of(index, message, seq)?;
        let packets = (message.end() - seq).min(packets.into());
        let most = u64::from(message.each) * packets;
        let bytes = most.min(u64::from(message.length - first.offset)) as u32;
        Some(Stretch { first, packets: packets as u8, bytes })
    }

    fn message_at(&self, seq: u64) -> Option<&MessageRecord> {
        self.messages.get(self.message_index(seq)?)
    }

    fn message_index(&self, seq: u64) -> Option<usize> {
        self.payload_bytes?;
        if seq >= self.end {
            return None;
        }
        self.messages.partition_point(|message| message.first <= seq).checked_sub(1)
    }

    fn slot(&self, seq: u64) -> usize {
        seq as usize & (self.packets.len() - 1)
    }

    fn packet(&self, seq: u64) -> PacketRecord {
        self.packets[self.slot(seq)]
    }

    fn grow(&mut self, end: u64) {
        self.acked.ensure(self.base, self.next, end);
        self.lost.ensure(self.base, self.next, end);
        if end - self.base > self.packets.len() as u64 {
            self.resize((end - self.base).next_power_of_two() as usize);
        }
    }

    /// Moves the packets to a ring of another size, a power of two that they fit into.
    fn resize(&mut self, capacity: usize) {
        let mut packets = vec![UNSENT; capacity];
        for seq in self.base..self.next {
            packets[seq as usize & (capacity - 1)] = self.packet(seq);
        }
        self.packets = packets;
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let tables = self.packets.len() * size_of::<PacketRecord>() + self.acked.bytes() + self.lost.bytes();
        tables + self.messages.capacity() * size_of::<MessageRecord>()
    }

    /// Gives memory back that what is in flight does not need.
    pub(crate) fn fit(&mut self) {
        let needed = ((self.next - self.base) as usize).next_power_of_two().max(PACKETS_MIN);
        if needed < self.packets.len() {
            self.resize(needed);
        }
        self.acked.fit(self.base, self.next);
        self.lost.fit(self.base, self.next);
        self.messages.shrink_to_fit();
    }
}

fn packets_of(length: u32, payload_bytes: u32) -> u32 {
    length.div_ceil(payload_bytes).max(1)
}

#[cfg(test)]
mod tests;
