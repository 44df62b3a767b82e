//! The world of a device: its rings, its sockets, and the memory of its program, or of the programs attached to it.

use std::net::SocketAddr;

use srdma_abi::{AsyncEvent, Completion, RecvEntry, SendEntry};
use srdma_dma::{Holds, OwnMemory, Transfer};
use srdma_memory::{AddressSpace, Segment};
use srdma_net::{Endpoint, RawSlice, ReceiveBatch, SendError};
use srdma_rnic::world::{
    AtomicOp, Burst, Copy, CopyFault, CqFull, HoldSlot, Link, Mover, PayloadRef, Queues, SendRefusal, Source,
    Taken,
};
use srdma_seams::{Cqn, PathId, Qpn};
use srdma_wire::Packet;

use crate::programs::{changed, Programs};
use crate::queues::RingTable;
use crate::straight::Straight;

/// Bytes of held payloads that one device keeps at most. What does not fit is treated as not received.
const HOLD_BYTES_MAX: usize = 32 << 20;

/// Everything that `rnic` needs from outside.
pub(crate) struct Ground {
    pub(crate) rings: RingTable,
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) batch: Option<ReceiveBatch>,
    pub(crate) memory: OwnMemory,
    /// Programs in other processes; then none is in ours.
    pub(crate) programs: Programs,
    pub(crate) holds: Holds,
    pub(crate) free_bytes: u32,
    /// The background thread will be up in time to send an ACK that waits.
    pub(crate) acks_may_wait: bool,
    /// A socket was full: try again soon although nothing else happens.
    pub(crate) busy: bool,
    transfers: Vec<Transfer>,
    /// Which copy of the batch each of the transfers is.
    indices: Vec<usize>,
    pub(crate) straight: Straight,
    /// System calls that placed bytes.
    pub(crate) placement_calls: u64,
    slices: Vec<RawSlice>,
}

impl Ground {
    pub(crate) fn new() -> Ground {
        Ground {
            rings: RingTable::default(),
            endpoint: None,
            batch: None,
            // SAFETY: this world hands it only addresses that `rnic` has resolved through a live key, i.e. memory
            // that the program registered for exactly this, and buffers of its own that live through each call.
            memory: unsafe { OwnMemory::new() },
            programs: Programs::default(),
            holds: Holds::new(HOLD_BYTES_MAX),
            free_bytes: 0,
            acks_may_wait: false,
            busy: false,
            transfers: Vec::new(),
            indices: Vec::new(),
            straight: Straight::default(),
            placement_calls: 0,
            slices: Vec::new(),
        }
    }

    /// Whether all descriptors still are what was opened, and not closed or replaced by the program.
    pub(crate) fn is_intact(&mut self) -> bool {
        self.endpoint.as_mut().is_none_or(Endpoint::is_intact) && self.memory.is_intact()
    }

    /// They are not: nothing is sent, received or moved from here on, and nothing is closed by its number.
    pub(crate) fn abandon_descriptors(&mut self) {
        if let Some(endpoint) = self.endpoint.take() {
            endpoint.abandon();
        }
        self.memory.abandon();
        self.rings.wary = true;
    }

    /// Copies payloads that went straight to their places back to their receive buffers. False if the memory is gone.
    pub(crate) fn bring_back(&mut self, payloads: impl IntoIterator<Item = PayloadRef>) -> bool {
        let Some(batch) = &mut self.batch else { return true };
        self.transfers.clear();
        for payload in payloads {
            let Some(address) = self.straight.address_of(payload) else { continue };
            let ours = batch.bytes_mut(payload.buffer, payload.offset, payload.length);
            self.transfers.push(Transfer::back(ours, address));
        }
        self.straight.brought_back += self.transfers.len() as u64;
        self.transfers.is_empty() || self.memory.read(&self.transfers).is_ok()
    }

    /// Copies to memory of attached programs: as many at a time as go to one of them.
    fn copy_to_programs(&mut self, batch: &[Copy]) -> Result<(), CopyFault> {
        let mut transfers = std::mem::take(&mut self.transfers);
        let (mut begin, mut result) = (0, Ok(()));
        while let Some(first) = batch.get(begin).filter(|_| result.is_ok()) {
            transfers.clear();
            let same = batch[begin..].iter().take_while(|copy| copy.to.space == first.to.space);
            let whole = |copy: &&Copy| self.source(copy).len() == copy.to.length as usize;
            let fit = same.take_while(whole);
            transfers.extend(fit.map(|copy| Transfer::out(self.source(copy), copy.to.address)));
            let moved = match self.programs.memory(first.to.space) {
                Some(memory) if !transfers.is_empty() => {
                    memory.write(&transfers).map_err(|fault| fault.index)
                }
                _ => Err(0),
            };
            self.placement_calls += 1;
            result = moved.map_err(|index| CopyFault { index: begin + index });
            begin += transfers.len();
        }
        self.transfers = transfers;
        result
    }

    /// Whether the bytes of a copy lie at their place already.
    fn is_in_place(&self, copy: &Copy) -> bool {
        match copy.source {
            Source::Payload(payload) => self.straight.address_of(payload) == Some(copy.to.address),
            _ => false,
        }
    }

    fn payload(&self, payload: PayloadRef) -> &[u8] {
        match &self.batch {
            Some(batch) => batch.bytes(payload.buffer, payload.offset, payload.length),
            None => &[],
        }
    }

    /// Where the bytes of a copy come from; empty if the source does not hold that many.
    fn source<'a>(&'a self, copy: &'a Copy) -> &'a [u8] {
        let length = copy.to.length as usize;
        let bytes = match &copy.source {
            Source::Payload(payload) => self.payload(*payload),
            Source::Held(slot, from) => self.holds.get(slot.0).get(*from as usize..).unwrap_or(&[]),
            Source::Bytes(bytes) => &bytes[..],
        };
        bytes.get(..length).unwrap_or(&[])
    }
}

impl Queues for Ground {
    fn take_send(&mut self, qpn: Qpn, entry: &mut SendEntry) -> Taken {
        self.rings.take_send(qpn, entry)
    }
    fn retire_send(&mut self, qpn: Qpn, units: u32) {
        self.rings.retire_send(qpn, units);
    }
    fn take_recv(&mut self, qpn: Qpn, entry: &mut RecvEntry) -> Taken {
        self.rings.take_recv(qpn, entry)
    }
    fn retire_recv(&mut self, qpn: Qpn, units: u32) {
        self.rings.retire_recv(qpn, units);
    }
    fn complete(&mut self, cq: Cqn, completion: &Completion, solicited: bool) -> Result<(), CqFull> {
        self.rings.complete(cq, completion, solicited)
    }
    fn raise(&mut self, event: AsyncEvent) {
        self.rings.raise(event);
    }
}

impl Mover for Ground {
    fn copy(&mut self, batch: &[Copy]) -> Result<(), CopyFault> {
        if !self.programs.is_empty() {
            return self.copy_to_programs(batch);
        }
        // Before anything is overwritten.
        for (index, copy) in batch.iter().enumerate() {
            match copy.source {
                Source::Payload(payload) if !self.is_in_place(copy) && !self.bring_back([payload]) => {
                    return Err(CopyFault { index });
                }
                _ => {}
            }
        }
        let mut transfers = std::mem::take(&mut self.transfers);
        let mut indices = std::mem::take(&mut self.indices);
        transfers.clear();
        indices.clear();
        let mut result = Ok(());
        for (index, copy) in batch.iter().enumerate() {
            if self.is_in_place(copy) {
                continue;
            }
            indices.push(index);
            let source = self.source(copy);
            // Only host memory can be placed into, and only bytes that are there can be placed.
            if copy.to.space != AddressSpace::Host || source.len() != copy.to.length as usize {
                result = Err(CopyFault { index });
                break;
            }
            transfers.push(Transfer::out(source, copy.to.address));
        }
        let moved = self.memory.write(&transfers);
        self.placement_calls += u64::from(!transfers.is_empty());
        let fault =
            moved.map_err(|fault| CopyFault { index: indices.get(fault.index).copied().unwrap_or(0) });
        (self.transfers, self.indices) = (transfers, indices);
        fault?;
        result
    }

    fn atomic(&mut self, at: Segment, op: AtomicOp) -> Result<u64, CopyFault> {
        if !self.programs.is_empty() {
            return self.programs.atomic(at, op);
        }
        if at.space != AddressSpace::Host || at.length != 8 {
            return Err(CopyFault { index: 0 });
        }
        self.memory.atomic_u64(at.address, |old| changed(op, old)).map_err(|_| CopyFault { index: 0 })
    }

    fn hold(&mut self, payload: PayloadRef) -> Option<HoldSlot> {
        if !self.bring_back([payload]) {
            return None;
        }
        let bytes = match &self.batch {
            Some(batch) => batch.bytes(payload.buffer, payload.offset, payload.length),
            None => &[],
        };
        self.holds.put(bytes).map(HoldSlot)
    }

    fn release(&mut self, slot: HoldSlot) {
        self.holds.release(slot.0);
    }

    fn payload_crc(&mut self, payload: PayloadRef) -> u32 {
        if !self.bring_back([payload]) {
            return 0;
        }
        srdma_wire::crc32c(self.payload(payload))
    }
}

/// The first packet of the run that segment number `index` belongs to: all of it is one message.
fn first_packet_of(burst: &Burst<'_>, index: usize) -> usize {
    let (mut packet, mut segments) = (0, 0);
    for run in burst.runs {
        segments += usize::from(run.segment_count);
        if index < segments {
            break;
        }
        packet += usize::from(run.packets);
    }
    packet
}

fn refusal(error: SendError) -> SendRefusal {
    match error {
        SendError::Busy => SendRefusal::Busy,
        SendError::Fault { packet } => SendRefusal::Fault { packet },
        SendError::Unreachable => SendRefusal::Unreachable,
        SendError::TooBig => SendRefusal::TooBig,
    }
}

impl Ground {
    /// An ACK goes behind: it is shorter than any data packet, so that both leave as one message.
    fn send(&mut self, burst: &Burst<'_>, ack: Option<&Packet>) -> Result<(), SendRefusal> {
        let Some(endpoint) = &mut self.endpoint else {
            return Err(SendRefusal::Unreachable);
        };
        if !self.programs.is_empty() {
            if let Err(index) = self.programs.stage(burst.segments) {
                return Err(SendRefusal::Fault { packet: first_packet_of(burst, index) });
            }
        }
        let mut staged = 0;
        let mut out = endpoint.burst(burst.path, burst.peer, burst.traffic_class);
        let mut segments = burst.segments.iter();
        let mut packet = 0;
        for run in burst.runs {
            self.slices.clear();
            for segment in segments.by_ref().take(usize::from(run.segment_count)) {
                let address = match segment.space {
                    AddressSpace::Host => Some(segment.address as usize),
                    AddressSpace::SendRing(qpn) => self
                        .rings
                        .inline_address(qpn, segment.address, segment.length)
                        .map(|pointer| pointer as usize),
                    AddressSpace::Program(_) => {
                        staged += segment.length as usize;
                        Some(self.programs.staged_at(staged - segment.length as usize))
                    }
                    AddressSpace::Gpu(_) => None,
                };
                let Some(address) = address else {
                    return Err(SendRefusal::Fault { packet });
                };
                self.slices.push(RawSlice { address, length: segment.length as usize });
            }
            out.push_run(&run.header, run.packets, run.payload_each, &self.slices)
                .map_err(|_| SendRefusal::TooBig)?;
            packet += usize::from(run.packets);
        }
        if let Some(ack) = ack {
            out.push(ack, &[]).map_err(|_| SendRefusal::TooBig)?;
        }
        let result = out.send().map_err(refusal);
        self.busy |= result == Err(SendRefusal::Busy);
        result
    }
}

impl Link for Ground {
    fn send_burst(&mut self, burst: &Burst<'_>) -> Result<(), SendRefusal> {
        self.send(burst, None)
    }

    fn send_burst_with_ack(&mut self, burst: &Burst<'_>, ack: &Packet) -> Result<(), SendRefusal> {
        self.send(burst, Some(ack))
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
        let Some(endpoint) = &mut self.endpoint else {
            return Err(SendRefusal::Unreachable);
        };
        endpoint.send_control(path, peer, 0, packet, pad_bytes).map_err(refusal)
    }

    fn free_bytes(&self) -> u32 {
        self.free_bytes
    }
}
