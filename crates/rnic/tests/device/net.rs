//! Several devices joined by a seeded link: loss, duplication, delay per path, a virtual clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use srdma_abi::{
    Access, Completion, Opcode, QpAttributes, QpInit, QpMask, QpState, RecvEntry, SendEntry, SendFlags, Sge,
};
use srdma_memory::Rights;
use srdma_rnic::world::PayloadRef;
use srdma_rnic::{follows, Batch, Nic, NicConfig, Order, Run, Waiting};
use srdma_seams::event::DropCause;
use srdma_seams::{ConnectionId, Cqn, Duration, Event, MrKey, Now, Observer, PdId, Qpn, Rng};
use srdma_transport::Config;
use srdma_wire::{Data, Packet};

use crate::host::{Away, Cq, Posted, Sent, World, BASE};

/// All remote rights.
pub const ALL: Rights = Rights(0xf);

/// Counts what the device reports.
#[derive(Default)]
pub struct Counts {
    pub events: Vec<Event>,
}

impl Counts {
    pub fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }

    pub fn drops(&self, wanted: DropCause) -> usize {
        self.count(|event| matches!(event, Event::Dropped { cause, .. } if *cause == wanted))
    }
}

impl Observer for Counts {
    fn event(&mut self, now: Now, event: Event) {
        if std::env::var("SRDMA_TRACE").is_ok() {
            println!("{} {event:?}", now.0);
        }
        // A soup makes millions of the common ones; nobody asks for those.
        if !matches!(
            event,
            Event::UnitSent { .. } | Event::UnitAcked { .. } | Event::Window { .. } | Event::AckSent { .. }
        ) {
            self.events.push(event);
        }
    }
}

/// What the link does.
#[derive(Clone, Debug)]
pub struct Faults {
    pub loss_ppm: u32,
    pub duplicate_ppm: u32,
    /// Every packet takes this long …
    pub delay_ns: u64,
    /// … plus up to this long, drawn once per path and pair of hosts …
    pub path_spread_ns: u64,
    /// … plus up to this long, drawn for each packet.
    pub jitter_ns: u64,
    /// Payloads are put where they should belong before their headers are read.
    pub straight: bool,
    /// Arrivals are noticed only at multiples of this, many at once; 1 or more.
    pub quantum_ns: u64,
}

impl Faults {
    pub const NONE: Faults = Faults {
        loss_ppm: 0,
        duplicate_ppm: 0,
        delay_ns: 5_000,
        path_spread_ns: 0,
        jitter_ns: 0,
        straight: true,
        quantum_ns: 1,
    };
    pub const SPREAD: Faults = Faults {
        loss_ppm: 0,
        duplicate_ppm: 0,
        delay_ns: 5_000,
        path_spread_ns: 400_000,
        jitter_ns: 50_000,
        straight: true,
        quantum_ns: 1,
    };
}

pub struct Host {
    pub address: IpAddr,
    pub nic: Nic,
    pub world: World,
    pub counts: Counts,
    pub pd: PdId,
    next_qpn: u32,
}

/// A queue pair of a host, with its completion queues.
#[derive(Clone, Copy, Debug)]
pub struct QpRef {
    pub host: usize,
    pub qpn: Qpn,
    pub send_cq: Cqn,
    pub recv_cq: Cqn,
}

/// A packet under way.
pub struct Flying {
    to: usize,
    from: SocketAddr,
    pub sent: Sent,
}

/// What a filter decides about a packet before the link does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Drop,
    /// On top of the link's delay.
    Delay(u64),
}

type Filter = Box<dyn FnMut(Now, usize, &Sent) -> Verdict>;

pub struct Net {
    pub now: Now,
    pub hosts: Vec<Host>,
    pub faults: Faults,
    pub filter: Option<Filter>,
    /// From then on the interface of host 0 takes only datagrams up to this size.
    pub narrow_host_0: Option<(Now, u16)>,
    /// Every packet sent, if recording.
    pub record: Option<Vec<(usize, Sent)>>,
    rng: Rng,
    seed: u64,
    flying: BinaryHeap<Reverse<(u64, u64, usize)>>,
    parked: Vec<Option<Flying>>,
    free: Vec<usize>,
    serial: u64,
    ids: u64,
}

/// Settings of a test device.
pub struct Options {
    pub hosts: usize,
    pub memory: usize,
    pub order: Order,
    pub transport: Config,
    pub datagram_bytes: u16,
    pub faults: Faults,
    pub failures: srdma_seams::Faults,
}

impl Default for Options {
    fn default() -> Self {
        let transport = Config { unit_packets_max: 8, ..Config::default() };
        Options {
            hosts: 2,
            memory: 1 << 20,
            order: Order::Default,
            transport,
            datagram_bytes: 1472,
            faults: Faults::NONE,
            failures: Default::default(),
        }
    }
}

/// Attributes of a connected queue pair; tests change what they are about.
pub fn attributes() -> QpAttributes {
    QpAttributes {
        access: Access(0xf),
        has_gid: true,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        ..QpAttributes::default()
    }
}

pub const TO_INIT: QpMask = QpMask(1 | 1 << 3 | 1 << 4 | 1 << 5);
pub const TO_RTR: QpMask = QpMask(1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20);
pub const TO_RTS: QpMask = QpMask(1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16);

impl Net {
    pub fn new(seed: u64, options: Options) -> Net {
        let mut rng = Rng::stream(seed, "net", 0);
        let hosts = (0..options.hosts)
            .map(|i| {
                let address = IpAddr::from([10, 0, 0, i as u8 + 1]);
                let mut nic = Nic::new(NicConfig {
                    address,
                    datagram_bytes_max: options.datagram_bytes,
                    transport: options.transport.clone(),
                    order: options.order,
                    seed: rng.next_u64(),
                    faults: options.failures.clone(),
                });
                let pd = nic.alloc_pd().unwrap();
                let mut world = World::new(options.memory);
                world.rng = Some(Rng::stream(seed, "busy", i as u64));
                Host { address, nic, world, counts: Counts::default(), pd, next_qpn: 17 }
            })
            .collect();
        Net {
            now: Now(1_000_000),
            hosts,
            faults: options.faults,
            filter: None,
            narrow_host_0: None,
            record: None,
            rng,
            seed,
            flying: BinaryHeap::new(),
            parked: Vec::new(),
            free: Vec::new(),
            serial: 0,
            ids: seed.wrapping_mul(0x9e37_79b9).max(1),
        }
    }

    pub fn pair(seed: u64) -> Net {
        Net::new(seed, Options::default())
    }

    pub fn connection_id(&mut self) -> ConnectionId {
        self.ids = self.ids.wrapping_add(0x1_0000_0001);
        ConnectionId(self.ids)
    }

    // --- objects ------------------------------------------------------------------------------

    pub fn init(&self, host: usize) -> QpInit {
        QpInit {
            pd: self.hosts[host].pd.0,
            max_send_wr: 4096,
            max_recv_wr: 4096,
            max_send_sge: 16,
            max_recv_sge: 16,
            max_inline_data: 512,
            ..QpInit::default()
        }
    }

    pub fn cq(&mut self, host: usize, capacity: usize) -> Cqn {
        let host = &mut self.hosts[host];
        let cq = host.nic.create_cq().unwrap();
        host.world.cqs.insert(cq, Cq { capacity, queue: VecDeque::new() });
        cq
    }

    pub fn qp(&mut self, host: usize) -> QpRef {
        let init = self.init(host);
        self.qp_with(host, init, 1 << 16)
    }

    pub fn qp_with(&mut self, host: usize, mut init: QpInit, capacity: usize) -> QpRef {
        let (send_cq, recv_cq) = (self.cq(host, capacity), self.cq(host, capacity));
        (init.send_cq, init.recv_cq) = (send_cq.0, recv_cq.0);
        let id = self.connection_id();
        let owner = &mut self.hosts[host];
        owner.next_qpn += 1;
        let qpn = Qpn(owner.next_qpn);
        owner.nic.create_qp(qpn, &init, id).unwrap();
        QpRef { host, qpn, send_cq, recv_cq }
    }

    pub fn modify(
        &mut self,
        qp: QpRef,
        attributes: &QpAttributes,
        mask: QpMask,
    ) -> Result<(), srdma_rnic::ControlError> {
        let id = self.connection_id();
        let host = &mut self.hosts[qp.host];
        host.nic.modify_qp(self.now, qp.qpn, attributes, mask, id, &mut host.world, &mut host.counts)
    }

    pub fn go(&mut self, qp: QpRef, state: QpState) {
        let attributes = QpAttributes { state, ..attributes() };
        self.modify(qp, &attributes, QpMask::STATE).unwrap();
    }

    pub fn go_init(&mut self, qp: QpRef, with: QpAttributes) {
        self.modify(qp, &QpAttributes { state: QpState::Init, ..with }, TO_INIT).unwrap();
    }

    pub fn go_rtr(&mut self, qp: QpRef, peer: QpRef, with: QpAttributes) {
        let IpAddr::V4(address) = self.hosts[peer.host].address else { panic!("IPv4 only") };
        let rtr = QpAttributes {
            state: QpState::Rtr,
            dest_gid: address.to_ipv6_mapped().octets(),
            dest_qpn: peer.qpn.0,
            ..with
        };
        self.modify(qp, &rtr, TO_RTR).unwrap();
    }

    pub fn go_rts(&mut self, qp: QpRef, with: QpAttributes) {
        self.modify(qp, &QpAttributes { state: QpState::Rts, ..with }, TO_RTS).unwrap();
    }

    pub fn connect(&mut self, a: QpRef, b: QpRef, with_a: QpAttributes, with_b: QpAttributes) {
        let ends = if a.host == b.host && a.qpn == b.qpn { 1 } else { 2 };
        for (qp, peer, with) in [(a, b, with_a), (b, a, with_b)].into_iter().take(ends) {
            self.go_init(qp, with);
            self.go_rtr(qp, peer, with);
        }
        for (qp, with) in [(a, with_a), (b, with_b)].into_iter().take(ends) {
            self.go_rts(qp, with);
        }
    }

    /// Two hosts, one connected queue pair each.
    pub fn connected(seed: u64, options: Options) -> (Net, QpRef, QpRef) {
        let mut net = Net::new(seed, options);
        let (a, b) = (net.qp(0), net.qp(1));
        net.connect(a, b, attributes(), attributes());
        (net, a, b)
    }

    pub fn region(&mut self, host: usize, offset: u64, length: u64, rights: Rights) -> MrKey {
        let host = &mut self.hosts[host];
        host.nic.register(host.pd, BASE + offset, length, BASE + offset, rights).unwrap()
    }

    pub fn destroy(&mut self, qp: QpRef) {
        let host = &mut self.hosts[qp.host];
        host.nic.destroy_qp(self.now, qp.qpn, &mut host.world, &mut host.counts).unwrap();
    }

    // --- work ---------------------------------------------------------------------------------

    pub fn post(&mut self, qp: QpRef, entry: SendEntry) {
        self.post_inline(qp, entry, &[]);
    }

    pub fn post_inline(&mut self, qp: QpRef, entry: SendEntry, bytes: &[u8]) {
        let host = &mut self.hosts[qp.host];
        host.world.post_send(qp.qpn, entry, bytes);
        host.nic.doorbell_send(self.now, qp.qpn, &mut host.world, &mut host.counts);
    }

    pub fn post_garbage(&mut self, qp: QpRef) {
        let host = &mut self.hosts[qp.host];
        host.world.sends.entry(qp.qpn).or_default().waiting.push_back(Posted::Garbage);
        host.nic.doorbell_send(self.now, qp.qpn, &mut host.world, &mut host.counts);
    }

    pub fn post_recv(&mut self, qp: QpRef, wr_id: u64, sges: &[Sge]) {
        let mut entry = RecvEntry { wr_id, sge_count: sges.len() as u8, ..RecvEntry::default() };
        entry.sges[..sges.len()].copy_from_slice(sges);
        let host = &mut self.hosts[qp.host];
        host.world.post_recv(qp.qpn, entry);
        host.nic.doorbell_recv(self.now, qp.qpn, &mut host.world, &mut host.counts);
    }

    pub fn poll(&mut self, qp: QpRef, cq: Cqn) -> Vec<Completion> {
        self.hosts[qp.host].world.cqs.get_mut(&cq).unwrap().queue.drain(..).collect()
    }

    pub fn state(&self, qp: QpRef) -> QpState {
        self.hosts[qp.host].nic.query_qp(qp.qpn).unwrap().0.state
    }

    // --- time ---------------------------------------------------------------------------------

    /// Lets everybody send, then goes to the next moment at which something happens, not after
    /// `limit`. False if nothing ever will.
    pub fn step(&mut self, limit: Now) -> bool {
        if let Some((_, mtu)) = self.narrow_host_0.take_if(|(at, _)| *at <= self.now) {
            self.hosts[0].world.mtu_bytes = Some(mtu);
        }
        for host in 0..self.hosts.len() {
            self.pump(host);
        }
        let arrival = self.next_arrival();
        let timer = self.hosts.iter_mut().filter_map(|host| host.nic.next_timeout()).min();
        let Some(next) = [arrival, timer].into_iter().flatten().min() else {
            self.now = self.now.max(limit);
            return false;
        };
        if next > limit {
            self.now = self.now.max(limit);
            return false;
        }
        self.now = self.now.max(next);
        self.arrivals();
        for host in &mut self.hosts {
            if host.nic.next_timeout().is_some_and(|at| at <= self.now) {
                host.nic.on_time(self.now, &mut host.world, &mut host.counts);
            }
        }
        true
    }

    pub fn run_for(&mut self, span: Duration) {
        let limit = self.now + span;
        while self.step(limit) {}
    }

    /// Until `done`, at most `span`; false if that was not enough.
    pub fn run_until(&mut self, span: Duration, mut done: impl FnMut(&mut Net) -> bool) -> bool {
        let limit = self.now + span;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(limit) {
                return done(self);
            }
        }
    }

    fn pump(&mut self, host: usize) {
        while self.pump_once(host).1 {}
    }

    /// Packets that a host sends in one go, and whether it could send more.
    pub fn pump_once(&mut self, host: usize) -> (usize, bool) {
        let end = &mut self.hosts[host];
        let more = end.nic.pump(self.now, 16, &mut end.world, &mut end.counts);
        let outbox = std::mem::take(&mut self.hosts[host].world.outbox);
        let count = outbox.len();
        for sent in outbox {
            self.launch(host, sent);
        }
        (count, more)
    }

    pub fn next_arrival(&self) -> Option<Now> {
        self.flying.peek().map(|Reverse((at, _, _))| Now(*at))
    }

    fn launch(&mut self, host: usize, sent: Sent) {
        if let Some(record) = &mut self.record {
            record.push((host, sent.clone()));
        }
        let mut extra = 0;
        if let Some(filter) = &mut self.filter {
            match filter(self.now, host, &sent) {
                Verdict::Pass => {}
                Verdict::Drop => return,
                Verdict::Delay(ns) => extra = ns,
            }
        }
        if self.rng.chance_ppm(self.faults.loss_ppm) {
            return;
        }
        let copies = 1 + u32::from(self.rng.chance_ppm(self.faults.duplicate_ppm));
        for _ in 0..copies {
            self.fly(host, sent.clone(), extra);
        }
    }

    /// Puts a packet on its way, faults or not.
    pub fn fly(&mut self, host: usize, sent: Sent, extra: u64) {
        let Some(to) = self.hosts.iter().position(|other| other.address == sent.peer.ip()) else { return };
        let path = u64::from(sent.path.0);
        let label = path + 1000 * (host as u64 * 8 + to as u64);
        let spread = Rng::stream(self.seed, "path", label).below(self.faults.path_spread_ns + 1);
        let jitter = self.rng.below(self.faults.jitter_ns + 1);
        let at = self.now.0 + self.faults.delay_ns + spread + jitter + extra;
        let at = at.next_multiple_of(self.faults.quantum_ns);
        let from = SocketAddr::new(self.hosts[host].address, 49152 + sent.path.0);
        let flying = Some(Flying { to, from, sent });
        let place = match self.free.pop() {
            Some(place) => {
                self.parked[place] = flying;
                place
            }
            None => {
                self.parked.push(flying);
                self.parked.len() - 1
            }
        };
        self.serial += 1;
        self.flying.push(Reverse((at, self.serial, place)));
    }

    /// What has arrived at each host by now.
    pub fn take_arrived(&mut self) -> Vec<VecDeque<Flying>> {
        let mut arrived: Vec<VecDeque<Flying>> = self.hosts.iter().map(|_| VecDeque::new()).collect();
        while let Some(&Reverse((at, _, place))) = self.flying.peek() {
            if at > self.now.0 {
                break;
            }
            self.flying.pop();
            let Some(flying) = self.parked[place].take() else { continue };
            self.free.push(place);
            arrived[flying.to].push_back(flying);
        }
        arrived
    }

    fn arrivals(&mut self) {
        let arrived = self.take_arrived();
        for (host, mut arrived) in self.hosts.iter_mut().zip(arrived) {
            while !arrived.is_empty() {
                if self.faults.straight && self.rng.below(4) > 0 && host.straight(self.now, &mut arrived) {
                    continue;
                }
                let most = match self.faults.straight {
                    true => 1 + self.rng.below(8) as usize,
                    false => usize::MAX,
                };
                let mut batch = Batch::new();
                while let Some(flying) = arrived.pop_front() {
                    host.unpack(&flying, &mut batch);
                    if batch.len() >= most {
                        break;
                    }
                }
                host.receive(self.now, &batch);
            }
        }
    }
}

impl Host {
    /// Takes packets in one batch.
    pub fn receive_all(&mut self, now: Now, arrived: &[Flying]) {
        let mut batch = Batch::new();
        for flying in arrived {
            self.unpack(flying, &mut batch);
        }
        self.receive(now, &batch);
    }

    /// Appends a packet, its payload somewhere inside a buffer of its own, as after a header.
    fn unpack(&mut self, flying: &Flying, batch: &mut Batch) {
        let mut bytes = vec![0xee; 7];
        bytes.extend(&flying.sent.payload);
        let length = flying.sent.payload.len() as u32;
        let payload = PayloadRef { buffer: self.world.buffers.len() as u32, offset: 7, length };
        self.world.buffers.push(bytes);
        batch.push(flying.from, &flying.sent.packet, payload, false);
    }

    /// Appends the first packets of a burst, whose payloads lie at `address`, as a run if several continue one another;
    /// how many that are. Now and then none, so that they come one by one.
    fn unpack_run(&mut self, burst: &[Flying], first: &Data, address: u64, batch: &mut Batch) -> usize {
        let continues = |(index, flying): &(usize, &Flying)| {
            let payload_bytes = flying.sent.payload.len() as u32;
            let expected = first.continued(*index as u8, payload_bytes);
            matches!((&flying.sent.packet, expected), (Packet::Data(header), Some(data)) if *header == data)
        };
        let packets = burst.iter().enumerate().take_while(continues).count();
        self.world.runs += u64::from(packets > 1);
        if packets < 2 || self.world.runs.is_multiple_of(4) {
            return 0;
        }
        let buffer = self.world.buffers.len() as u32;
        let length = burst[0].sent.payload.len() as u32;
        let stride = length + 7;
        // The kernel has put the payloads elsewhere: what lies here is worth nothing.
        self.world.buffers.push(vec![0xee; packets * stride as usize]);
        self.world.away.insert(buffer, Away { address, payload_bytes: length, stride });
        let run = Run { packets: packets as u32, stride, address };
        batch.push_run(burst[0].from, first, run, PayloadRef { buffer, offset: 7, length }, false);
        packets
    }

    fn receive(&mut self, now: Now, batch: &Batch) {
        self.nic.receive(now, batch, &mut self.world, &mut self.counts);
        self.world.buffers.clear();
        self.world.away.clear();
    }

    /// Takes what is at the front of `arrived` as a world does that receives straight into memory: packets of equal
    /// length from one sender as one datagram, whatever they are, since a network may lose some of a burst. False if the
    /// first ones must be looked at first.
    fn straight(&mut self, now: Now, arrived: &mut VecDeque<Flying>) -> bool {
        let mut batch = Batch::new();
        let mut written: Vec<(u64, u64)> = Vec::new();
        while let Some(first) = arrived.front() {
            let Packet::Data(data) = first.sent.packet else { break };
            let payload_bytes = first.sent.payload.len() as u32;
            let same = |flying: &&Flying| {
                flying.from == first.from && flying.sent.payload.len() == payload_bytes as usize
            };
            let packets = arrived.iter().take_while(same).take(8).count() as u32;
            // The last packet of a GRO datagram may be shorter.
            let shorter = arrived.get(packets as usize).is_some_and(|next| {
                next.from == first.from && next.sent.payload.len() < payload_bytes as usize
            });
            let behind_others = !batch.is_empty();
            let waiting = Waiting { from: first.from, first: &data, payload_bytes, packets, behind_others };
            let foreseen = self.nic.foresee(now, &waiting, &mut self.world, &mut self.counts);
            let Some((address, bytes)) = foreseen else { break };
            assert!(bytes > 0 && bytes % payload_bytes == 0 && bytes / payload_bytes <= packets);
            let (end, foreseen) = (address + u64::from(bytes), bytes / payload_bytes);
            if written.iter().any(|&(start, stop)| start < end && address < stop) {
                break;
            }
            written.push((address, end));
            let datagram: Vec<Flying> = arrived.drain(..(packets + u32::from(shorter)) as usize).collect();
            let mut expected = 0;
            for (index, flying) in datagram.iter().enumerate().take(foreseen as usize) {
                let (index, place) = (index as u32, address + index as u64 * u64::from(payload_bytes));
                if !self.world.put_straight(place, &flying.sent.payload) {
                    // Memory that is not there: the kernel loses the datagram, whole.
                    self.receive(now, &batch);
                    return true;
                }
                let next = matches!(&flying.sent.packet,
                    Packet::Data(header) if follows(&data, header, index, payload_bytes));
                expected += u32::from(next && expected == index);
            }
            let run = self.unpack_run(&datagram[..expected as usize], &data, address, &mut batch);
            for (index, flying) in datagram.iter().enumerate().skip(run) {
                let buffer = self.world.buffers.len() as u32;
                self.unpack(flying, &mut batch);
                if (index as u32) < expected {
                    let place = address + index as u64 * u64::from(payload_bytes);
                    self.world.away.insert(buffer, Away { address: place, payload_bytes, stride: u32::MAX });
                }
            }
            if expected < packets + u32::from(shorter) {
                break;
            }
        }
        if batch.is_empty() {
            return false;
        }
        self.receive(now, &batch);
        true
    }
}

// --- entries ----------------------------------------------------------------------------------

pub fn sge(offset: u64, length: u32, key: MrKey) -> Sge {
    Sge { address: BASE + offset, length, lkey: key.0 }
}

/// A signalled send entry.
pub fn entry(opcode: Opcode, wr_id: u64, sges: &[Sge]) -> SendEntry {
    let mut entry = SendEntry {
        opcode,
        wr_id,
        flags: SendFlags::SIGNALED,
        sge_count: sges.len() as u8,
        ..SendEntry::default()
    };
    entry.sges[..sges.len()].copy_from_slice(sges);
    entry
}

pub fn to_remote(mut entry: SendEntry, offset: u64, key: MrKey) -> SendEntry {
    entry.remote_address = BASE + offset;
    entry.rkey = key.0;
    entry
}

pub fn is_data(packet: &Packet) -> bool {
    matches!(packet, Packet::Data(_))
}
