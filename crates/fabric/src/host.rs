//! A host: the production RNIC, and the world it sees: work queues as lists, memory without data, one link.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use srdma_abi::{AsyncEvent, Completion, Opcode, RecvEntry, SendEntry, SendFlags, Sge, WcOpcode};
use srdma_memory::Segment;
use srdma_rnic::world::{
    AtomicOp, Burst, Copy, CopyFault, CqFull, HoldSlot, Link, Mover, PayloadRef, Queues, SendRefusal, Source,
    Taken,
};
use srdma_rnic::Nic;
use srdma_seams::{Cqn, PathId, Qpn, Slot};
use srdma_wire::{data_header_bytes, emit, Data, Packet, HEADER_BYTES_MAX};

use crate::fabric::{Notice, Planted};
use crate::ground::{Ground, Origin};
use crate::loss::Fate;
use crate::network::{Event, Network};
use crate::packet::{Cargo, Header, Hop};
use crate::ports::{fold, Ports};
use crate::routes::five_tuple;
use crate::time::Time;
use crate::watch::Watch;

/// First UDP source port: path *n* is this plus *n* (the dynamic ports, RFC 6335).
const FIRST_PORT: u16 = 49_152;
/// Free bytes of the receive buffer that hosts tell. Receiving takes no time here.
const FREE_BYTES: u32 = 1 << 30;
/// Turns of sending without a packet leaving, at most; more would mean that the RNIC loops.
const TURNS_MAX: usize = 1 << 16;

/// Address of a host: 10.0.0.1 and on.
pub(crate) fn address(host: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0a00_0001 + host))
}

fn host_at(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(v4) => u32::from(v4).checked_sub(0x0a00_0001),
        IpAddr::V6(_) => None,
    }
}

/// A WRITE that was posted and not taken yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub message: u32,
    pub bytes: u32,
    pub local: u64,
    pub remote: u64,
    pub lkey: u32,
    pub rkey: u32,
}

/// A host but for its RNIC: what the RNIC's world needs.
#[derive(Debug)]
pub(crate) struct Desk {
    pub host: u32,
    /// Its links to the network.
    pub ports: Ports,
    /// Bytes around each UDP payload.
    pub framing_bytes: u32,
    /// Posted work by queue pair.
    pub sends: Vec<VecDeque<Work>>,
    /// Work that will be posted when the host's turn comes, with its queue pair.
    pub to_post: VecDeque<(u32, Work)>,
    /// Where the packet at hand has its payload from.
    pub arrived: Origin,
    /// Payloads kept for later.
    pub holds: Vec<Origin>,
    pub holds_free: Vec<u32>,
    pub holds_max: usize,
    /// An event of the ports is scheduled.
    pub egress_due: bool,
    /// The earliest event of the timer that is scheduled.
    pub timer_at: Time,
}

/// A host.
pub(crate) struct Host<G> {
    pub nic: Nic,
    pub desk: Desk,
    pub ground: G,
    pub watch: Watch,
}

/// What the RNIC sees during one call.
pub(crate) struct Surroundings<'a, G> {
    pub network: &'a mut Network,
    pub notices: &'a mut Vec<Notice>,
    pub desk: &'a mut Desk,
    pub ground: &'a mut G,
}

impl<G: Ground> Host<G> {
    /// Calls the RNIC, then lets it send and sees to it that it is woken.
    pub fn call(
        &mut self,
        network: &mut Network,
        notices: &mut Vec<Notice>,
        call: impl FnOnce(&mut Nic, &mut Surroundings<'_, G>, &mut Watch),
    ) {
        let Host { nic, desk, ground, watch, .. } = self;
        let mut world = Surroundings { network, notices, desk, ground };
        call(nic, &mut world, watch);
        world.serve(nic, watch);
        world.arm(nic);
    }

    /// A packet arrived whole; `ce` says whether it carries a congestion mark.
    pub fn arrive(&mut self, network: &mut Network, notices: &mut Vec<Notice>, place: u32, ce: bool) {
        let cargo = network.packets.remove(place);
        let payload = PayloadRef { buffer: 0, offset: 0, length: cargo.payload_bytes };
        let from = SocketAddr::new(address(cargo.from), cargo.source_port);
        self.desk.arrived = Origin { host: cargo.from, address: cargo.address };
        if network.planted == Some(Planted::Misplace) && (network.events_done & 0xff) == 0 {
            self.desk.arrived.address ^= 8;
        }
        let mut batch = core::mem::take(&mut network.batch);
        batch.clear();
        match cargo.header {
            Header::Data(data) => batch.push(from, &Packet::Data(data), payload, ce),
            Header::Ack(at) => {
                if let Packet::Ack(ack) = &mut *network.ack {
                    network.packets.take_ack(at, ack);
                }
                batch.push(from, &network.ack, payload, ce);
            }
            Header::Other(packet) => batch.push(from, &packet, payload, ce),
            Header::Trimmed(data) => {
                network.batch = batch;
                let now = network.now.now();
                return self
                    .call(network, notices, |nic, world, watch| nic.trimmed(now, &data, world, watch));
            }
            Header::None => {}
        }
        let now = network.now.now();
        self.call(network, notices, |nic, world, watch| nic.receive(now, &batch, world, watch));
        network.batch = batch;
    }

    /// The program posts `work` to a queue pair.
    pub fn post(&mut self, network: &mut Network, notices: &mut Vec<Notice>, qp: u32, work: Work) {
        self.desk.sends[qp as usize].push_back(work);
        let now = network.now.now();
        self.call(network, notices, |nic, world, watch| nic.doorbell_send(now, qpn(qp), world, watch));
    }

    /// The program posts what could not be posted earlier.
    pub fn doorbell(&mut self, network: &mut Network, notices: &mut Vec<Notice>) {
        while let Some((qp, work)) = self.desk.to_post.pop_front() {
            self.post(network, notices, qp, work);
        }
    }

    /// A link may be idle.
    pub fn egress(&mut self, network: &mut Network, notices: &mut Vec<Notice>) {
        self.desk.egress_due = false;
        self.call(network, notices, |_, _, _| {});
    }

    /// The RNIC asked to be woken.
    pub fn timer(&mut self, network: &mut Network, notices: &mut Vec<Notice>) {
        // An earlier time was asked for since; that one counts.
        if network.now != self.desk.timer_at {
            return;
        }
        self.desk.timer_at = Time::MAX;
        let now = network.now.now();
        self.call(network, notices, |nic, world, watch| {
            if nic.next_timeout().is_some_and(|at| at <= now) {
                nic.on_time(now, world, watch);
            }
        });
    }
}

impl<G: Ground> Surroundings<'_, G> {
    /// Sends while a link is idle: the packet that leaves next is chosen when it can leave.
    fn serve(&mut self, nic: &mut Nic, watch: &mut Watch) {
        let now = self.network.now;
        for _ in 0..TURNS_MAX {
            if self.desk.ports.idle_at(&self.network.links) > now {
                break;
            }
            if !nic.pump(now.now(), 1, self, watch) {
                return;
            }
        }
        let idle_at = self.desk.ports.idle_at(&self.network.links);
        if !self.desk.egress_due {
            self.desk.egress_due = true;
            self.network.schedule(idle_at, self.desk.host, Event::Egress(self.desk.host));
        }
    }

    fn arm(&mut self, nic: &mut Nic) {
        // With every acknowledgement time-outs move; who is to be woken earlier than that learns it then.
        if nic.timeout_bound().is_none_or(|bound| Time::at(bound) >= self.desk.timer_at) {
            return;
        }
        let Some(at) = nic.next_timeout() else { return };
        // What is due at once is due a nanosecond later, so that time goes on whatever the RNIC asks.
        let at = Time::at(at).max(self.network.now.after(Time::from_nanos(1)));
        if at < self.desk.timer_at {
            self.desk.timer_at = at;
            self.network.schedule(at, self.desk.host, Event::Timer(self.desk.host));
        }
    }

    fn launch(&mut self, to: SocketAddr, path: PathId, header: Header, sizes: (u32, u32), address: u64) {
        let Some(to_host) = host_at(to.ip()) else { return };
        let (header_bytes, payload_bytes) = sizes;
        let source_port = FIRST_PORT.wrapping_add(path.0);
        let cargo = Cargo { header, from: self.desk.host, source_port, payload_bytes, address };
        let hop = Hop {
            to: to_host,
            tuple: tuple_of(self.desk.host, to_host, path),
            bytes: header_bytes + payload_bytes + self.desk.framing_bytes,
            epoch: 0,
            fate: Fate::Comes,
            ce: false,
        };
        let port = self.desk.ports.choose(&self.network.links, folded_of(self.desk.host, to_host, path));
        self.network.inject(port, hop, cargo);
    }
}

/// Addresses of payload bytes in a list of segments.
struct Walk<'a> {
    segments: &'a [Segment],
    offset: u32,
}

impl Walk<'_> {
    /// Address of the next byte; moves on by `bytes`. A packet has its bytes from one segment: the works posted here
    /// have one each.
    fn advance(&mut self, bytes: u32) -> u64 {
        let Some(first) = self.segments.first() else { return 0 };
        let address = first.address + u64::from(self.offset);
        self.offset += bytes;
        while let Some(first) = self.segments.first().filter(|first| self.offset >= first.length) {
            self.offset -= first.length;
            self.segments = &self.segments[1..];
        }
        address
    }
}

impl<G: Ground> Queues for Surroundings<'_, G> {
    fn take_send(&mut self, qpn: Qpn, entry: &mut SendEntry) -> Taken {
        let position = usize::from(qpn.index().wrapping_sub(Watch::FIRST));
        let Some(work) = self.desk.sends.get_mut(position).and_then(VecDeque::pop_front) else {
            return Taken::Empty;
        };
        entry.opcode = Opcode::WriteImm;
        entry.flags = SendFlags::SIGNALED;
        entry.wr_id = work.message.into();
        entry.imm = work.message;
        entry.remote_address = work.remote;
        entry.rkey = work.rkey;
        entry.inline_len = 0;
        entry.sge_count = 1;
        entry.sges[0] = Sge { address: work.local, length: work.bytes, lkey: work.lkey };
        Taken::Entry { offset: 0, units: 1 }
    }

    fn retire_send(&mut self, _qpn: Qpn, _units: u32) {}

    fn take_recv(&mut self, _qpn: Qpn, entry: &mut RecvEntry) -> Taken {
        // There is always a receive, and it needs no memory: a WRITE with immediate brings its own place.
        entry.wr_id = 0;
        entry.sge_count = 0;
        Taken::Entry { offset: 0, units: 1 }
    }

    fn retire_recv(&mut self, _qpn: Qpn, _units: u32) {}

    fn complete(&mut self, _cq: Cqn, completion: &Completion, _solicited: bool) -> Result<(), CqFull> {
        let (at, host) = (self.network.now, self.desk.host);
        let notice = if completion.status != 0 {
            let (message, cause) = (completion.wr_id as u32, completion.vendor_err);
            Notice::Failed { at, host, message, cause }
        } else if completion.opcode == WcOpcode::RecvWriteImm as u8 {
            Notice::Received { at, message: completion.imm }
        } else {
            Notice::Sent { at, message: completion.wr_id as u32 }
        };
        self.notices.push(notice);
        Ok(())
    }

    /// A failed queue pair shows in its completions.
    fn raise(&mut self, _event: AsyncEvent) {}
}

impl<G: Ground> Mover for Surroundings<'_, G> {
    fn copy(&mut self, batch: &[Copy]) -> Result<(), CopyFault> {
        for (index, copy) in batch.iter().enumerate() {
            let (base, offset) = match copy.source {
                Source::Payload(payload) => (self.desk.arrived, payload.offset),
                Source::Held(slot, offset) => {
                    (self.desk.holds.get(slot.0 as usize).copied().unwrap_or_default(), offset)
                }
                Source::Bytes(_) => (Origin::default(), 0),
            };
            let origin = Origin { address: base.address + u64::from(offset), ..base };
            if !self.ground.place(copy.to, origin) {
                return Err(CopyFault { index });
            }
        }
        Ok(())
    }

    /// Memory without data holds zeros.
    fn atomic(&mut self, _at: Segment, _op: AtomicOp) -> Result<u64, CopyFault> {
        Ok(0)
    }

    fn hold(&mut self, payload: PayloadRef) -> Option<HoldSlot> {
        let desk = &mut *self.desk;
        let origin = Origin { address: desk.arrived.address + u64::from(payload.offset), ..desk.arrived };
        if let Some(slot) = desk.holds_free.pop() {
            desk.holds[slot as usize] = origin;
            return Some(HoldSlot(slot));
        }
        (desk.holds.len() < desk.holds_max).then(|| {
            desk.holds.push(origin);
            HoldSlot(desk.holds.len() as u32 - 1)
        })
    }

    fn release(&mut self, slot: HoldSlot) {
        self.desk.holds_free.push(slot.0);
    }

    fn payload_crc(&mut self, _payload: PayloadRef) -> u32 {
        0
    }
}

impl<G: Ground> Link for Surroundings<'_, G> {
    fn send_burst(&mut self, burst: &Burst<'_>) -> Result<(), SendRefusal> {
        let mut rest = burst.segments;
        for run in burst.runs {
            let (own, others) = rest.split_at(usize::from(run.segment_count).min(rest.len()));
            rest = others;
            let mut walk = Walk { segments: own, offset: 0 };
            for (header, bytes) in run.packets() {
                let address = walk.advance(bytes);
                let sizes = (data_bytes(&header), bytes);
                self.launch(burst.peer, burst.path, Header::Data(header), sizes, address);
            }
        }
        Ok(())
    }

    fn send_control(
        &mut self,
        peer: SocketAddr,
        path: PathId,
        packet: &Packet,
        pad_bytes: u16,
    ) -> Result<(), SendRefusal> {
        let bytes = control_bytes(packet).max(pad_bytes.into());
        let header = self.network.packets.header_of(packet);
        self.launch(peer, path, header, (bytes, 0), 0);
        Ok(())
    }

    fn free_bytes(&self) -> u32 {
        FREE_BYTES
    }
}

/// Header of a data packet without options: those that have any are rare enough to be asked.
fn data_bytes(header: &Data) -> u32 {
    if header.payload_crc.is_none() && header.tag.is_none() && header.part.is_none() {
        return data_header_bytes(0) as u32;
    }
    control_bytes(&Packet::Data(*header))
}

/// Bytes of a packet without its payload.
fn control_bytes(packet: &Packet) -> u32 {
    if let Packet::Ack(ack) = packet {
        return 40 + 8 * u32::from(ack.block_count) + 10 * u32::from(ack.unit_count);
    }
    let mut bytes = [0; HEADER_BYTES_MAX];
    emit(packet, &mut bytes).unwrap_or(HEADER_BYTES_MAX) as u32
}

/// What switches hash of a packet on `path`. The peer's port is that of slot 0.
pub(crate) fn tuple_of(from: u32, to: u32, path: PathId) -> u64 {
    five_tuple(from, to, FIRST_PORT.wrapping_add(path.0), Slot(0).port())
}

/// What the NIC of `from` chooses a port by, for packets on `path`.
pub(crate) fn folded_of(from: u32, to: u32, path: PathId) -> u32 {
    fold(from, to, FIRST_PORT.wrapping_add(path.0), Slot(0).port())
}

/// Number of a host's queue pair at `position`.
pub(crate) fn qpn(position: u32) -> Qpn {
    Qpn::new(Slot(0), Watch::FIRST + position as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_seams::ConnectionId;
    use srdma_wire::{Ack, AckBlock, AckUnit, Space, ACK_BLOCKS_MAX, ACK_UNITS_MAX};

    #[test]
    fn an_ack_is_as_long_as_it_is_on_the_wire() {
        for (block_count, unit_count) in [(0, 0), (1, 1), (7, 3), (ACK_BLOCKS_MAX as u8, ACK_UNITS_MAX as u8)]
        {
            let blocks = core::array::from_fn(|index| AckBlock {
                first: index as u32 * 9 + 5,
                end: index as u32 * 9 + 7,
            });
            let ack = Packet::Ack(Ack {
                dest_qpn: Qpn(2),
                connection: ConnectionId(1),
                path: PathId(3),
                space: Space::Request,
                cumulative: 2,
                landed: 0,
                free_bytes: 1,
                block_count,
                blocks,
                unit_count,
                units: [AckUnit { packets: 1, ..AckUnit::default() }; ACK_UNITS_MAX],
            });
            let mut bytes = [0; HEADER_BYTES_MAX];
            assert_eq!(
                emit(&ack, &mut bytes),
                Ok(control_bytes(&ack) as usize),
                "{block_count} {unit_count}"
            );
        }
    }

    #[test]
    fn hosts_and_addresses_name_each_other() {
        for host in [0, 1, 255, 70_000, (1 << 20) - 1] {
            assert_eq!(host_at(address(host)), Some(host));
        }
    }
}
