//! Two devices that talk without sockets or data: what a packet costs is the rooms' own doing.
#![allow(clippy::unwrap_used, dead_code)]

use std::net::{IpAddr, SocketAddr};

use srdma_abi::{
    AsyncEvent, Completion, Opcode, QpAttributes, QpInit, QpMask, QpState, RecvEntry, SendEntry,
};
use srdma_memory::{Rights, Segment};
use srdma_rnic::world::{
    AtomicOp, Burst, Copy, CopyFault, CqFull, HoldSlot, Link, Mover, PayloadRef, Queues, SendRefusal, Taken,
};
use srdma_rnic::{Batch, Nic, NicConfig, Order};
use srdma_seams::{ConnectionId, Cqn, Now, PathId, Qpn};
use srdma_transport::Config;
use srdma_wire::{emit_run, Packet, DATA_HEADER_BYTES_MAX};

/// A world without data: the same entry for ever, completions counted, packets kept for the peer.
pub struct World {
    entry: SendEntry,
    to_post: u64,
    pub completions: u64,
    out: Vec<(PathId, Packet, u32)>,
    headers: Vec<u8>,
    pub bursts: u64,
}

impl Queues for World {
    fn take_send(&mut self, _qpn: Qpn, entry: &mut SendEntry) -> Taken {
        if self.to_post == 0 {
            return Taken::Empty;
        }
        self.to_post -= 1;
        entry.clone_from(&self.entry);
        Taken::Entry { offset: 0, units: 1 }
    }
    fn retire_send(&mut self, _qpn: Qpn, _units: u32) {}
    fn take_recv(&mut self, _qpn: Qpn, _entry: &mut RecvEntry) -> Taken {
        Taken::Entry { offset: 0, units: 1 }
    }
    fn retire_recv(&mut self, _qpn: Qpn, _units: u32) {}
    fn complete(&mut self, _cq: Cqn, completion: &Completion, _solicited: bool) -> Result<(), CqFull> {
        assert_eq!(completion.status, 0, "{completion:?}");
        self.completions += 1;
        Ok(())
    }
    fn raise(&mut self, event: AsyncEvent) {
        panic!("{event:?}");
    }
}

impl Mover for World {
    fn copy(&mut self, _batch: &[Copy]) -> Result<(), CopyFault> {
        Ok(())
    }
    fn atomic(&mut self, _at: Segment, _op: AtomicOp) -> Result<u64, CopyFault> {
        Ok(0)
    }
    fn hold(&mut self, _payload: PayloadRef) -> Option<HoldSlot> {
        Some(HoldSlot(0))
    }
    fn release(&mut self, _slot: HoldSlot) {}
    fn payload_crc(&mut self, _payload: PayloadRef) -> u32 {
        0
    }
}

impl Link for World {
    fn send_burst(&mut self, burst: &Burst<'_>) -> Result<(), SendRefusal> {
        self.bursts += 1;
        for run in burst.runs {
            emit_run(&run.header, run.packets, run.payload_each, &mut self.headers).unwrap();
        }
        let all = burst.runs.iter().flat_map(|run| run.packets());
        self.out.extend(all.map(|(header, bytes)| (burst.path, Packet::Data(header), bytes)));
        Ok(())
    }
    fn send_control(
        &mut self,
        _peer: SocketAddr,
        path: PathId,
        packet: &Packet,
        _pad: u16,
    ) -> Result<(), SendRefusal> {
        self.out.push((path, *packet, 0));
        Ok(())
    }
    fn free_bytes(&self) -> u32 {
        8 << 20
    }
}

pub struct End {
    pub nic: Nic,
    pub world: World,
    address: IpAddr,
    batch: Batch,
}

/// Of both ends.
pub const QPN: Qpn = Qpn(5);

fn end(host: u8, datagram_bytes_max: u16) -> End {
    let address = IpAddr::from([10, 0, 0, host]);
    let nic = Nic::new(NicConfig {
        address,
        datagram_bytes_max,
        transport: Config::default(),
        order: Order::Default,
        seed: u64::from(host),
        faults: Default::default(),
    });
    let world = World {
        entry: SendEntry::default(),
        to_post: 0,
        completions: 0,
        out: Vec::with_capacity(1 << 14),
        headers: vec![0; 64 * DATA_HEADER_BYTES_MAX],
        bursts: 0,
    };
    End { nic, world, address, batch: Batch::new() }
}

fn connect(end: &mut End, peer: u8) {
    let pd = end.nic.alloc_pd().unwrap();
    let key = end.nic.register(pd, 0, 1 << 40, 0, Rights(0xf)).unwrap();
    let cq = end.nic.create_cq().unwrap();
    let init = QpInit {
        pd: pd.0,
        send_cq: cq.0,
        recv_cq: cq.0,
        max_send_sge: 4,
        sq_sig_all: true,
        ..QpInit::default()
    };
    end.nic.create_qp(QPN, &init, ConnectionId(u64::from(peer) + 100)).unwrap();
    let mut attributes = QpAttributes {
        access: srdma_abi::Access(0xf),
        has_gid: true,
        dest_qpn: QPN.0,
        timeout: 14,
        retry_cnt: 7,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        ..QpAttributes::default()
    };
    attributes.dest_gid = std::net::Ipv4Addr::new(10, 0, 0, peer).to_ipv6_mapped().octets();
    let steps = [
        (QpState::Init, 1 | 1 << 3 | 1 << 4 | 1 << 5),
        (QpState::Rtr, 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20),
        (QpState::Rts, 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16),
    ];
    for (state, mask) in steps {
        attributes.state = state;
        end.nic
            .modify_qp(Now(0), QPN, &attributes, QpMask(mask), ConnectionId(0), &mut end.world, &mut ())
            .unwrap();
    }
    end.world.entry.rkey = key.0;
    end.world.entry.sges[0].lkey = key.0;
}

/// Lets both talk until nothing happens for a while; packets arrive at once and in order.
fn run(ends: &mut [End; 2], now: &mut Now, rounds: usize) -> u64 {
    let mut packets = 0;
    for _ in 0..rounds {
        now.0 += 20_000;
        for side in 0..2 {
            let [a, b] = ends;
            let (from, to) = if side == 0 { (a, b) } else { (b, a) };
            from.nic.pump(*now, 64, &mut from.world, &mut ());
            to.batch.clear();
            for (path, packet, bytes) in from.world.out.drain(..) {
                let payload = PayloadRef { buffer: 0, offset: 0, length: bytes };
                let from = SocketAddr::new(from.address, 49152 + path.0);
                to.batch.push(from, &packet, payload, false);
                packets += 1;
            }
            to.nic.receive(*now, &to.batch, &mut to.world, &mut ());
            if to.nic.next_timeout().is_some_and(|at| at <= *now) {
                to.nic.on_time(*now, &mut to.world, &mut ());
            }
        }
    }
    packets
}

/// Two ends, connected, that will post `opcode` with `length` bytes whenever asked to.
pub fn pair(opcode: Opcode, length: u32, datagram_bytes_max: u16) -> [End; 2] {
    let mut ends = [end(1, datagram_bytes_max), end(2, datagram_bytes_max)];
    connect(&mut ends[0], 2);
    connect(&mut ends[1], 1);
    let rkey = ends[1].world.entry.rkey;
    let entry = &mut ends[0].world.entry;
    (entry.opcode, entry.rkey, entry.sge_count, entry.sges[0].length) = (opcode, rkey, 1, length);
    ends
}

/// Posts `requests` and lets both ends talk for `rounds` rounds; how many packets that were.
pub fn post(ends: &mut [End; 2], now: &mut Now, requests: u64, rounds: usize) -> u64 {
    ends[0].world.to_post += requests;
    ends[0].nic.doorbell_send(*now, QPN, &mut ends[0].world, &mut ());
    run(ends, now, rounds)
}
