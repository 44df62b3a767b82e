//! A host for tests: memory that checks itself, rings as vectors, an outbox instead of a socket.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;

use srdma_abi::entry::{EntryError, SEND_BODY_OFFSET};
use srdma_abi::{AsyncEvent, Completion, RecvEntry, SendEntry, SendFlags, UNIT_BYTES};
use srdma_memory::{AddressSpace, Segment};
use srdma_rnic::world::{
    AtomicOp, Burst, Copy, CopyFault, CqFull, HoldSlot, Link, Mover, PayloadRef, Queues, SendRefusal, Source,
    Taken,
};
use srdma_seams::{Cqn, PathId, Qpn, Rng};
use srdma_wire::Packet;

use crate::net::is_data;

/// First mapped address of every host.
pub const BASE: u64 = 0x10_0000;

impl Sent {
    /// Bytes of UDP payload, as far as a narrow path minds.
    pub fn bytes(&self) -> u32 {
        match self.packet {
            Packet::Hello(hello) => u32::from(hello.probe_bytes.max(96)),
            Packet::Data(_) => 72 + self.payload.len() as u32,
            Packet::Ack(ack) => 40 + 8 * u32::from(ack.block_count) + 10 * u32::from(ack.unit_count),
            _ => 40,
        }
    }
}

/// A packet on its way out.
#[derive(Clone, Debug)]
pub struct Sent {
    pub peer: SocketAddr,
    pub path: PathId,
    pub packet: Packet,
    pub payload: Vec<u8>,
}

/// What lies in a work queue.
#[derive(Clone, Debug)]
pub enum Posted<T> {
    Entry { entry: T, offset: u32, units: u32 },
    Garbage,
}

#[derive(Debug)]
pub struct Ring<T> {
    pub waiting: VecDeque<Posted<T>>,
    pub taken: VecDeque<u32>,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Ring { waiting: VecDeque::new(), taken: VecDeque::new() }
    }
}

impl<T> Ring<T> {
    fn retire(&mut self, mut units: u32) {
        while units > 0 {
            let first = self.taken.pop_front().expect("more units retired than taken");
            assert!(first <= units, "half an entry retired");
            units -= first;
        }
    }
}

#[derive(Debug)]
pub struct Cq {
    pub capacity: usize,
    pub queue: VecDeque<Completion>,
}

/// Blocks written one after the other; whoever sees the last byte of one must see all before it.
#[derive(Debug, Default)]
pub struct Journal {
    /// (start address, expected bytes), in posting order.
    pub blocks: Vec<(u64, Vec<u8>)>,
    /// Blocks before this one are known to be complete.
    verified: usize,
}

/// Where payloads of a buffer lie already, one packet every `stride` bytes of it.
pub struct Away {
    pub address: u64,
    pub payload_bytes: u32,
    pub stride: u32,
}

impl Away {
    fn address_of(&self, payload: PayloadRef) -> u64 {
        let index = u64::from((payload.offset - 7) / self.stride);
        let within = u64::from((payload.offset - 7) % self.stride);
        self.address + index * u64::from(self.payload_bytes) + within
    }
}

#[derive(Default)]
pub struct World {
    pub memory: Vec<u8>,
    pub unmapped: Vec<Range<u64>>,
    pub sends: HashMap<Qpn, Ring<SendEntry>>,
    pub send_bytes: HashMap<Qpn, (Vec<u8>, u32)>,
    pub recvs: HashMap<Qpn, Ring<RecvEntry>>,
    pub cqs: HashMap<Cqn, Cq>,
    pub events: Vec<AsyncEvent>,
    pub buffers: Vec<Vec<u8>>,
    /// Payloads that lie at their place already: buffer and address.
    pub away: HashMap<u32, Away>,
    /// Bursts whose packets were offered as one.
    pub runs: u64,

    pub copies_saved: u64,
    pub holds: HashMap<u32, Vec<u8>>,
    pub holds_max: usize,
    pub holds_peak: usize,
    next_hold: u32,
    pub outbox: Vec<Sent>,
    pub journals: Vec<Journal>,
    /// ACKs may wait for the program's answer.
    pub acks_may_wait: bool,
    /// ACKs that left with data.
    pub acks_with_data: u64,
    /// Chance of a full socket.
    pub busy_ppm: u32,
    pub rng: Option<Rng>,
    /// What the kernel says to every data burst.
    pub refusal: Option<SendRefusal>,
    /// UDP payload that the interface takes, if not any.
    pub mtu_bytes: Option<u16>,
    /// Free bytes of the receive socket, as told to peers.
    pub free_bytes: u32,
    pub atomics_done: u64,
    pub copies_done: u64,
    pub solicited: u64,
    /// Destroyed queue pairs: nothing may be delivered for them.
    pub destroyed: HashSet<u32>,
}

impl World {
    pub fn new(bytes: usize) -> World {
        World { memory: vec![0; bytes], holds_max: 4096, free_bytes: 8 << 20, ..World::default() }
    }

    pub fn bytes(&self, address: u64, length: u64) -> &[u8] {
        let at = (address - BASE) as usize;
        &self.memory[at..at + length as usize]
    }

    pub fn set(&mut self, address: u64, bytes: &[u8]) {
        let at = (address - BASE) as usize;
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn word(&self, address: u64) -> u64 {
        u64::from_ne_bytes(self.bytes(address, 8).try_into().expect("8 bytes"))
    }

    /// Writes a payload before anybody has decided that it belongs there; false if there is no memory.
    pub fn put_straight(&mut self, address: u64, payload: &[u8]) -> bool {
        if !self.is_mapped(address, payload.len() as u64) {
            return false;
        }
        self.set(address, payload);
        self.check_journals(address..address + payload.len() as u64);
        true
    }

    fn is_mapped(&self, start: u64, length: u64) -> bool {
        let end = start + length;
        start >= BASE
            && end <= BASE + self.memory.len() as u64
            && !self.unmapped.iter().any(|hole| hole.start < end && start < hole.end)
    }

    pub fn post_send(&mut self, qpn: Qpn, mut entry: SendEntry, inline: &[u8]) {
        if entry.flags.contains(SendFlags::INLINE) {
            entry.inline_len = inline.len() as u16;
            entry.sge_count = 0;
        }
        let units = entry.units() as u32;
        let (bytes, tail) = self.send_bytes.entry(qpn).or_insert_with(|| (vec![0; 1 << 21], 0));
        let length = units as usize * UNIT_BYTES;
        let offset = if *tail as usize + length > bytes.len() { 0 } else { *tail };
        *tail = offset + length as u32;
        let at = offset as usize + SEND_BODY_OFFSET;
        bytes[at..at + inline.len()].copy_from_slice(inline);
        self.sends.entry(qpn).or_default().waiting.push_back(Posted::Entry { entry, offset, units });
    }

    pub fn post_recv(&mut self, qpn: Qpn, entry: RecvEntry) {
        let units = entry.units() as u32;
        self.recvs.entry(qpn).or_default().waiting.push_back(Posted::Entry { entry, offset: 0, units });
    }

    fn gather(&self, segment: &Segment) -> Option<Vec<u8>> {
        match segment.space {
            AddressSpace::Host => self
                .is_mapped(segment.address, u64::from(segment.length))
                .then(|| self.bytes(segment.address, u64::from(segment.length)).to_vec()),
            AddressSpace::SendRing(qpn) => {
                let at = segment.address as usize;
                Some(self.send_bytes[&qpn].0[at..at + segment.length as usize].to_vec())
            }
            AddressSpace::Gpu(_) | AddressSpace::Program(_) => None,
        }
    }

    fn check_journals(&mut self, touched: Range<u64>) {
        for journal in &mut self.journals {
            let near = |block: &(u64, Vec<u8>)| {
                let end = block.0 + block.1.len() as u64;
                block.0 < touched.end && touched.start < end
            };
            let Some(newest) = journal.blocks.iter().rposition(near) else { continue };
            let visible = |at: usize| {
                let (start, want) = &journal.blocks[at];
                let start = (start - BASE) as usize;
                (&self.memory[start..start + want.len()], want)
            };
            let (now, want) = visible(newest);
            if now.last() != want.last() {
                continue;
            }
            for at in journal.verified..=newest {
                let (now, want) = visible(at);
                assert_eq!(
                    now, want,
                    "the last byte of block {newest} is visible, but not all of block {at}"
                );
            }
            journal.verified = journal.verified.max(newest);
        }
    }
}

impl Queues for World {
    fn take_send(&mut self, qpn: Qpn, entry: &mut SendEntry) -> Taken {
        let ring = self.sends.entry(qpn).or_default();
        match ring.waiting.pop_front() {
            None => Taken::Empty,
            Some(Posted::Garbage) => Taken::Bad(EntryError::Opcode(200)),
            Some(Posted::Entry { entry: posted, offset, units }) => {
                *entry = posted;
                ring.taken.push_back(units);
                Taken::Entry { offset, units }
            }
        }
    }

    fn retire_send(&mut self, qpn: Qpn, units: u32) {
        self.sends.entry(qpn).or_default().retire(units);
    }

    fn take_recv(&mut self, qpn: Qpn, entry: &mut RecvEntry) -> Taken {
        let ring = self.recvs.entry(qpn).or_default();
        match ring.waiting.pop_front() {
            None => Taken::Empty,
            Some(Posted::Garbage) => Taken::Bad(EntryError::Units(0)),
            Some(Posted::Entry { entry: posted, offset, units }) => {
                *entry = posted;
                ring.taken.push_back(units);
                Taken::Entry { offset, units }
            }
        }
    }

    fn retire_recv(&mut self, qpn: Qpn, units: u32) {
        self.recvs.entry(qpn).or_default().retire(units);
    }

    fn complete(&mut self, cq: Cqn, completion: &Completion, solicited: bool) -> Result<(), CqFull> {
        assert!(!self.destroyed.contains(&completion.qpn), "a completion of a destroyed queue pair");
        let cq = self.cqs.get_mut(&cq).expect("completion queue exists");
        if cq.queue.len() >= cq.capacity {
            return Err(CqFull);
        }
        self.solicited += u64::from(solicited);
        cq.queue.push_back(*completion);
        Ok(())
    }

    fn raise(&mut self, event: AsyncEvent) {
        self.events.push(event);
    }
}

impl Mover for World {
    fn copy(&mut self, batch: &[Copy]) -> Result<(), CopyFault> {
        for (index, copy) in batch.iter().enumerate() {
            let length = copy.to.length as usize;
            assert!(length > 0, "a copy of nothing");
            let bytes = match copy.source {
                Source::Payload(payload)
                    if self
                        .away
                        .get(&payload.buffer)
                        .is_some_and(|away| away.address_of(payload) == copy.to.address) =>
                {
                    self.copies_saved += 1;
                    self.copies_done += 1;
                    continue;
                }
                Source::Payload(payload) => {
                    assert!(copy.to.length <= payload.length, "a copy past its payload");
                    let at = payload.offset as usize;
                    self.buffers[payload.buffer as usize][at..at + length].to_vec()
                }
                Source::Held(slot, skip) => {
                    let at = skip as usize;
                    self.holds[&slot.0][at..at + length].to_vec()
                }
                Source::Bytes(bytes) => bytes[..length].to_vec(),
            };
            if !self.is_mapped(copy.to.address, length as u64) {
                return Err(CopyFault { index });
            }
            assert_eq!(copy.to.space, AddressSpace::Host);
            self.set(copy.to.address, &bytes);
            self.copies_done += 1;
            self.check_journals(copy.to.address..copy.to.address + length as u64);
        }
        Ok(())
    }

    fn atomic(&mut self, at: Segment, op: AtomicOp) -> Result<u64, CopyFault> {
        assert_eq!((at.address % 8, at.length), (0, 8));
        if !self.is_mapped(at.address, 8) {
            return Err(CopyFault { index: 0 });
        }
        self.atomics_done += 1;
        let before = self.word(at.address);
        let after = match op {
            AtomicOp::CompareSwap { compare, swap } if before == compare => swap,
            AtomicOp::CompareSwap { .. } => before,
            AtomicOp::FetchAdd { add } => before.wrapping_add(add),
        };
        self.set(at.address, &after.to_ne_bytes());
        Ok(before)
    }

    fn hold(&mut self, payload: PayloadRef) -> Option<HoldSlot> {
        if self.holds.len() >= self.holds_max {
            return None;
        }
        let at = payload.offset as usize;
        let bytes = self.buffers[payload.buffer as usize][at..at + payload.length as usize].to_vec();
        self.next_hold += 1;
        self.holds.insert(self.next_hold, bytes);
        self.holds_peak = self.holds_peak.max(self.holds.len());
        Some(HoldSlot(self.next_hold))
    }

    fn release(&mut self, slot: HoldSlot) {
        assert!(self.holds.remove(&slot.0).is_some(), "a held payload released twice");
    }

    fn payload_crc(&mut self, _payload: PayloadRef) -> u32 {
        0
    }
}

impl Link for World {
    fn send_burst(&mut self, burst: &Burst<'_>) -> Result<(), SendRefusal> {
        let busy = self.busy_ppm;
        if self.rng.as_mut().is_some_and(|rng| rng.chance_ppm(busy)) {
            return Err(SendRefusal::Busy);
        }
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let largest = burst.runs.iter().map(|run| run.payload_each + 72).max();
        if self.mtu_bytes.is_some_and(|mtu| largest > Some(u32::from(mtu))) {
            return Err(SendRefusal::TooBig);
        }
        let count: usize = burst.runs.iter().map(|run| usize::from(run.packets)).sum();
        assert!(count <= 64, "more than a burst holds");
        let mut segments = burst.segments.iter();
        let mut packets = Vec::new();
        for run in burst.runs {
            let mut payload = Vec::new();
            for segment in segments.by_ref().take(usize::from(run.segment_count)) {
                payload.extend(self.gather(segment).ok_or(SendRefusal::Fault { packet: packets.len() })?);
            }
            assert_eq!(payload.len(), run.payload_bytes as usize);
            assert_eq!(run.packets().count(), usize::from(run.packets));
            for (header, bytes) in run.packets() {
                let rest = payload.split_off(bytes as usize);
                let packet = Packet::Data(header);
                packets.push(Sent { peer: burst.peer, path: burst.path, packet, payload });
                payload = rest;
            }
            assert!(payload.is_empty(), "payload that belongs to no packet");
        }
        assert!(segments.next().is_none(), "segments that belong to no packet");
        self.outbox.extend(packets);
        Ok(())
    }

    fn send_burst_with_ack(&mut self, burst: &Burst<'_>, ack: &Packet) -> Result<(), SendRefusal> {
        let data: usize = burst.runs.iter().map(|run| usize::from(run.packets)).sum();
        assert_eq!((data, is_data(ack)), (1, false), "one packet, one ACK");
        self.send_burst(burst)?;
        self.acks_with_data += 1;
        self.send_control(burst.peer, burst.path, ack, 0)
    }

    fn acks_may_wait(&self) -> bool {
        self.acks_may_wait
    }

    fn send_control(
        &mut self,
        peer: SocketAddr,
        path: PathId,
        packet: &Packet,
        pad_bytes: u16,
    ) -> Result<(), SendRefusal> {
        if self.mtu_bytes.is_some_and(|mtu| pad_bytes > mtu) {
            return Err(SendRefusal::TooBig);
        }
        if self.refusal == Some(SendRefusal::Unreachable) {
            return Err(SendRefusal::Unreachable);
        }
        self.outbox.push(Sent { peer, path, packet: *packet, payload: Vec::new() });
        Ok(())
    }

    fn free_bytes(&self) -> u32 {
        self.free_bytes
    }
}
