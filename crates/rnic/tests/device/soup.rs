//! Every operation mixed, over every kind of link, against a model that does them in order.
//!
//! `SRDMA_SOUP_SEED=n` replays one seed; `SRDMA_SOUP_SEEDS=n` sets how many are run.

use std::collections::VecDeque;

use srdma_abi::{Completion, Opcode, SendEntry, SendFlags, Sge, WcFlags, WcOpcode};
use srdma_rnic::Order;
use srdma_seams::{Duration, MrKey, Rng};

use crate::host::{Journal, BASE};
use crate::net::*;

const SEEDS: u64 = 400;
const OPS: usize = 60;
const MESSAGE_MAX: u64 = 6000;
const SLOTS: u64 = 8;

/// Bytes that never change: the source of all messages, on every host, from offset 0.
const ROM: u64 = 64 << 10;
/// Per direction of a queue pair, at the target: overlapping WRITEs, journal, atomics, receives;
/// at the initiator: READ results.
const RW: u64 = 8 << 10;
const JOURNAL: u64 = OPS as u64 * 5000;
const RECEIVES: u64 = OPS as u64 * 8192;
const READS: u64 = OPS as u64 * 8192;
const DIRECTION: u64 = RW + JOURNAL + SLOTS * 8 + RECEIVES + READS;

struct Expected {
    wr_id: u64,
    opcode: WcOpcode,
    byte_len: u32,
    imm: Option<u32>,
    /// Contents at the local side, as (offset, bytes).
    contents: Vec<(u64, Vec<u8>)>,
    /// Journal blocks that must be visible with it.
    journal: usize,
}

/// One direction of one queue pair: posts, models, checks.
struct Direction {
    from: QpRef,
    to: QpRef,
    base: u64,
    keys: [MrKey; 2],
    rom: Vec<u8>,
    rng: Rng,
    left: usize,
    fence_next: bool,
    rw: Vec<u8>,
    slots: [u64; SLOTS as usize],
    journal_at: u64,
    journal_index: usize,
    journal_blocks: usize,
    receives: u64,
    receives_posted: u64,
    receive_sizes: VecDeque<(u64, u32)>,
    sends: VecDeque<Expected>,
    recvs: VecDeque<Expected>,
    atomics: u64,
    serial: u64,
}

impl Direction {
    fn rw_at(&self) -> u64 {
        self.base
    }
    fn journal_base(&self) -> u64 {
        self.base + RW
    }
    fn slots_at(&self) -> u64 {
        self.base + RW + JOURNAL
    }
    fn receive_at(&self, number: u64) -> u64 {
        self.base + RW + JOURNAL + SLOTS * 8 + number * 8192
    }
    fn read_at(&self, number: u64) -> u64 {
        self.base + RW + JOURNAL + SLOTS * 8 + RECEIVES + number * 8192
    }

    /// Cuts `[offset, offset + length)` into up to four elements, some of them empty.
    fn cut(&mut self, offset: u64, length: u32, key: MrKey) -> Vec<Sge> {
        let mut sges = vec![];
        let mut done = 0;
        for _ in 0..self.rng.below(4) {
            let part = self.rng.below(u64::from(length - done) + 1) as u32;
            sges.push(sge(offset + u64::from(done), part, key));
            done += part;
        }
        if done < length || self.rng.below(2) == 0 {
            sges.push(sge(offset + u64::from(done), length - done, key));
        }
        sges
    }

    fn length(&mut self) -> u32 {
        match self.rng.below(8) {
            0 => 0,
            1 | 2 => 1 + self.rng.below(64) as u32,
            3 | 4 => 1 + self.rng.below(1500) as u32,
            _ => 1 + self.rng.below(MESSAGE_MAX) as u32,
        }
    }

    fn post_one(&mut self, net: &mut Net) {
        self.left -= 1;
        self.serial += 1;
        match self.rng.below(20) {
            0..=5 => self.post_write(net),
            6..=9 => self.post_journal(net),
            10..=13 => self.post_send(net),
            14..=16 => self.post_read(net),
            _ => self.post_atomic(net),
        }
    }

    fn flags(&mut self) -> SendFlags {
        let mut flags = SendFlags(0);
        if self.left == 0 || self.rng.below(3) > 0 {
            flags = flags.with(SendFlags::SIGNALED);
        }
        if core::mem::take(&mut self.fence_next) || self.rng.below(10) == 0 {
            flags = flags.with(SendFlags::FENCE);
        }
        flags
    }

    fn submit(&mut self, net: &mut Net, mut entry: SendEntry, bytes: &[u8], expected: Expected) {
        entry.flags = self.flags();
        if entry.flags.contains(SendFlags::SIGNALED) {
            self.sends.push_back(expected);
        }
        if !entry.opcode.is_read_or_atomic() && bytes.len() <= 500 && self.rng.below(2) == 0 {
            entry.flags = entry.flags.with(SendFlags::INLINE);
            return net.post_inline(self.from, entry, bytes);
        }
        net.post(self.from, entry);
    }

    fn expected(&self, opcode: WcOpcode) -> Expected {
        let wr_id = self.serial;
        Expected { wr_id, opcode, byte_len: 0, imm: None, contents: vec![], journal: self.journal_blocks }
    }

    fn source(&mut self, length: u32) -> (u64, Vec<u8>) {
        let at = self.rng.below(ROM - u64::from(length) + 1);
        (at, self.rom[at as usize..at as usize + length as usize].to_vec())
    }

    fn post_write(&mut self, net: &mut Net) {
        let length = self.length();
        let (from, bytes) = self.source(length);
        let to = self.rng.below(RW - u64::from(length) + 1);
        self.rw[to as usize..to as usize + bytes.len()].copy_from_slice(&bytes);
        self.write(net, from, &bytes, self.rw_at() + to);
    }

    fn post_journal(&mut self, net: &mut Net) {
        let longest = if self.rng.below(2) == 0 { 8 } else { 5000 };
        let length = 1 + self.rng.below(longest) as u32;
        let (from, bytes) = self.source(length);
        let to = self.journal_base() + self.journal_at;
        self.journal_at += u64::from(length);
        if let Some(journal) = net.hosts[self.to.host].world.journals.get_mut(self.journal_index) {
            journal.blocks.push((BASE + to, bytes.clone()));
            self.journal_blocks += 1;
        }
        self.write(net, from, &bytes, to);
    }

    fn write(&mut self, net: &mut Net, from: u64, bytes: &[u8], to: u64) {
        let sges = self.cut(from, bytes.len() as u32, self.keys[0]);
        let with_imm = self.rng.below(4) == 0;
        let opcode = if with_imm { Opcode::WriteImm } else { Opcode::Write };
        let mut write = to_remote(entry(opcode, self.serial, &sges), to, self.keys[1]);
        write.imm = self.rng.next_u32();
        if with_imm {
            let expected = Expected {
                wr_id: self.receives,
                byte_len: bytes.len() as u32,
                imm: Some(write.imm),
                ..self.expected(WcOpcode::RecvWriteImm)
            };
            self.expect_receive(0, expected);
        }
        let expected = self.expected(WcOpcode::Write);
        self.submit(net, write, bytes, expected);
    }

    fn expect_receive(&mut self, length: u32, expected: Expected) {
        self.recvs.push_back(expected);
        self.receive_sizes.push_back((self.receives, length));
        self.receives += 1;
    }

    fn post_send(&mut self, net: &mut Net) {
        let length = self.length();
        let (from, bytes) = self.source(length);
        let sges = self.cut(from, length, self.keys[0]);
        let with_imm = self.rng.below(2) == 0;
        let opcode = if with_imm { Opcode::SendImm } else { Opcode::Send };
        let mut send = entry(opcode, self.serial, &sges);
        send.imm = self.rng.next_u32();
        let at = self.receive_at(self.receives);
        let expected = Expected {
            wr_id: self.receives,
            byte_len: length,
            imm: with_imm.then_some(send.imm),
            contents: vec![(at, bytes.clone())],
            ..self.expected(WcOpcode::Recv)
        };
        self.expect_receive(length, expected);
        let expected = self.expected(WcOpcode::Send);
        self.submit(net, send, &bytes, expected);
    }

    fn post_read(&mut self, net: &mut Net) {
        let length = self.length();
        let to = self.read_at(self.serial - 1);
        let sges = self.cut(to, length, self.keys[0]);
        let (from, bytes) = match self.rng.below(2) {
            0 => self.source(length),
            _ => {
                let at = self.rng.below(RW - u64::from(length) + 1);
                let bytes = self.rw[at as usize..at as usize + length as usize].to_vec();
                (self.rw_at() + at, bytes)
            }
        };
        let read = to_remote(entry(Opcode::Read, self.serial, &sges), from, self.keys[1]);
        let expected =
            Expected { byte_len: length, contents: vec![(to, bytes)], ..self.expected(WcOpcode::Read) };
        self.submit(net, read, &[], expected);
        // A READ promises nothing against later WRITEs unless those are fenced.
        self.fence_next = true;
    }

    fn post_atomic(&mut self, net: &mut Net) {
        self.atomics += 1;
        let slot = self.rng.below(SLOTS);
        let old = self.slots[slot as usize];
        let to = self.read_at(self.serial - 1);
        let swap = self.rng.below(2) == 0;
        let opcode = if swap { Opcode::CompareSwap } else { Opcode::FetchAdd };
        let sges = self.cut(to, 8, self.keys[0]);
        let mut atomic =
            to_remote(entry(opcode, self.serial, &sges), self.slots_at() + slot * 8, self.keys[1]);
        atomic.compare_add = if swap && self.rng.below(3) > 0 { old } else { self.rng.next_u64() };
        atomic.swap = self.rng.next_u64();
        self.slots[slot as usize] = match swap {
            true if atomic.compare_add == old => atomic.swap,
            true => old,
            false => old.wrapping_add(atomic.compare_add),
        };
        let expected = Expected {
            byte_len: 8,
            contents: vec![(to, old.to_ne_bytes().to_vec())],
            ..self.expected(if swap { WcOpcode::CompareSwap } else { WcOpcode::FetchAdd })
        };
        self.submit(net, atomic, &[], expected);
    }

    fn post_receive(&mut self, net: &mut Net) {
        let Some((number, length)) = self.receive_sizes.pop_front() else { return };
        let room = length + self.rng.below(100) as u32;
        let sges = self.cut(self.receive_at(number), room, self.keys[1]);
        net.post_recv(self.to, number, &sges);
        self.receives_posted += 1;
    }

    fn check(&mut self, net: &mut Net) {
        for done in net.poll(self.from, self.from.send_cq) {
            let expected = self.sends.pop_front().expect("a send completed twice");
            check_one(net, self.from.host, &done, &expected);
        }
        for done in net.poll(self.to, self.to.recv_cq) {
            let expected = self.recvs.pop_front().expect("a receive completed twice");
            check_one(net, self.to.host, &done, &expected);
            assert_eq!(done.imm, expected.imm.unwrap_or(0));
            assert_eq!(done.flags.contains(WcFlags::IMM), expected.imm.is_some());
            let world = &net.hosts[self.to.host].world;
            let blocks = world.journals.get(self.journal_index).map_or(&[][..], |journal| &journal.blocks);
            for (start, want) in blocks.iter().take(expected.journal) {
                assert_eq!(world.bytes(*start, want.len() as u64), want, "a notice overtook a WRITE");
            }
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.sends.is_empty() && self.recvs.is_empty()
    }

    fn check_end(&self, net: &Net) {
        let world = &net.hosts[self.to.host].world;
        assert_eq!(world.bytes(BASE + self.rw_at(), RW), self.rw, "overlapping WRITEs");
        for (slot, want) in self.slots.iter().enumerate() {
            assert_eq!(world.word(BASE + self.slots_at() + slot as u64 * 8), *want, "atomic slot {slot}");
        }
        if let Some(journal) = world.journals.get(self.journal_index) {
            for (start, want) in &journal.blocks {
                assert_eq!(world.bytes(*start, want.len() as u64), want, "journal");
            }
        }
    }
}

fn check_one(net: &Net, host: usize, done: &Completion, expected: &Expected) {
    assert_eq!((done.wr_id, done.status), (expected.wr_id, 0), "{done:?}");
    assert_eq!((done.opcode, done.byte_len), (expected.opcode as u8, expected.byte_len));
    for (at, bytes) in &expected.contents {
        assert_eq!(net.hosts[host].world.bytes(BASE + at, bytes.len() as u64), bytes, "{done:?}");
    }
}

fn options(rng: &mut Rng, pairs: u64) -> Options {
    let mut options = Options {
        memory: (ROM + 2 * pairs * DIRECTION) as usize,
        order: match rng.below(6) {
            0 => Order::Strict,
            1 => Order::Relaxed,
            _ => Order::Default,
        },
        datagram_bytes: [600, 1472, 8972][rng.below(3) as usize],
        ..Options::default()
    };
    let odds = |rng: &mut Rng, max: u64| if rng.below(2) == 0 { 0 } else { rng.below(max) };
    options.faults = Faults {
        loss_ppm: odds(rng, 50_000) as u32,
        duplicate_ppm: odds(rng, 30_000) as u32,
        delay_ns: 1_000 + rng.below(50_000),
        path_spread_ns: odds(rng, 1_000_000),
        jitter_ns: odds(rng, 200_000),
        straight: rng.below(2) == 0,
        quantum_ns: [1, 50_000, 300_000][rng.below(3) as usize],
    };
    options.transport.unit_packets_max = [1, 4, 16][rng.below(3) as usize];
    options.transport.paths = [1, 8, 128][rng.below(3) as usize];
    let near_wrap = [0, (1 << 24) - 3, (1u64 << 32) - 30][rng.below(3) as usize];
    options.transport.first_psn = near_wrap;
    options.transport.first_msn = [0, (1u64 << 32) - 7][rng.below(2) as usize];
    options
}

fn directions(net: &mut Net, rng: &mut Rng, seed: u64, pairs: u64, journals: bool) -> Vec<Direction> {
    let memory = net.hosts[0].world.memory.len() as u64;
    let rom: Vec<u8> = (0..ROM).map(|_| 1 + rng.below(255) as u8).collect();
    for host in &mut net.hosts {
        host.world.set(BASE, &rom);
        host.world.holds_max = [1 << 20, 2][rng.below(2) as usize];
        host.world.acks_may_wait = rng.below(2) == 0;
        host.world.busy_ppm = [0, 50_000][rng.below(2) as usize];
    }
    let keys = [net.region(0, 0, memory, ALL), net.region(1, 0, memory, ALL)];
    let mut all = vec![];
    for pair in 0..pairs {
        let ends = [net.qp(0), net.qp(1)];
        let reads = 1 + rng.below(16) as u8;
        let with =
            srdma_abi::QpAttributes { max_rd_atomic: reads, max_dest_rd_atomic: reads, ..attributes() };
        net.connect(ends[0], ends[1], with, with);
        for side in 0..2usize {
            let (from, to) = (ends[side], ends[1 - side]);
            let journal_index = net.hosts[to.host].world.journals.len();
            if journals {
                net.hosts[to.host].world.journals.push(Journal::default());
            }
            all.push(Direction {
                from,
                to,
                base: ROM + (pair * 2 + side as u64) * DIRECTION,
                keys: [keys[from.host], keys[to.host]],
                rom: rom.clone(),
                rng: Rng::stream(seed, "ops", pair * 2 + side as u64),
                left: if rng.below(4) == 0 { 1 } else { OPS },
                fence_next: false,
                rw: vec![0; RW as usize],
                slots: [0; SLOTS as usize],
                journal_at: 0,
                journal_index,
                journal_blocks: 0,
                receives: 0,
                receives_posted: 0,
                receive_sizes: VecDeque::new(),
                sends: VecDeque::new(),
                recvs: VecDeque::new(),
                atomics: 0,
                serial: 0,
            });
        }
    }
    all
}

/// For some seeds the path, or the interface of host 0, passes only smaller packets after a while.
fn narrow_later(net: &mut Net, seed: u64, before: u16) {
    let mut rng = Rng::stream(seed, "narrow", 0);
    let mtu = [1472, 1300, 600][rng.below(3) as usize];
    let (at, direction) = (net.now + Duration(rng.below(3_000_000)), rng.below(3) as usize);
    if mtu >= before || rng.below(2) == 0 {
        return;
    }
    net.filter = Some(Box::new(move |now, host, sent| {
        match now >= at && direction != host && sent.bytes() > u32::from(mtu) {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    }));
    if rng.below(2) == 0 {
        net.narrow_host_0 = Some((at, mtu));
    }
}

fn run(seed: u64) -> Net {
    let mut rng = Rng::stream(seed, "soup", 0);
    let pairs = 1 + rng.below(2);
    let options = options(&mut rng, pairs);
    let journals = options.order != Order::Relaxed;
    if std::env::var("SRDMA_SOUP_SEED").is_ok() {
        println!("{pairs} pairs, {:?}, {:?}, {:?}", options.order, options.faults, options.transport);
    }
    let before = options.datagram_bytes;
    let mut net = Net::new(seed, options);
    narrow_later(&mut net, seed, before);
    let mut all = directions(&mut net, &mut rng, seed, pairs, journals);
    let limit = net.now + Duration::from_secs(60);
    while !all.iter().all(Direction::is_done) {
        assert!(net.now < limit, "not done after a minute");
        for direction in &mut all {
            while direction.left > 0 && direction.rng.below(3) > 0 {
                direction.post_one(&mut net);
            }
            while !direction.receive_sizes.is_empty() && direction.rng.below(3) > 0 {
                direction.post_receive(&mut net);
            }
        }
        let until = net.now + Duration(1 + rng.below(100_000));
        while net.step(until) {
            for direction in &mut all {
                direction.check(&mut net);
            }
        }
    }
    net.run_for(Duration::from_secs(5));
    for direction in &all {
        direction.check_end(&net);
    }
    let atomics: u64 = all.iter().map(|direction| direction.atomics).sum();
    assert_eq!(net.hosts.iter().map(|host| host.world.atomics_done).sum::<u64>(), atomics);
    for host in &mut net.hosts {
        assert!(host.world.holds.is_empty(), "payloads still held");
        assert!(host.world.sends.values().all(|ring| ring.taken.is_empty()), "entries not retired");
        assert!(host.world.recvs.values().all(|ring| ring.taken.is_empty()), "receives not retired");
        assert!(host.world.events.is_empty(), "{:?}", host.world.events);
        assert_eq!(host.nic.next_timeout(), None, "an idle device wants to be woken");
    }
    net
}

#[test]
fn any_mix_over_any_link_ends_as_if_in_order() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("SRDMA_SOUP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SRDMA_SOUP_SEEDS").unwrap_or(SEEDS),
    };
    let mut seen = Seen::default();
    for seed in seeds.clone() {
        let net = std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|_| {
            panic!("replay: SRDMA_SOUP_SEED={seed} cargo test -p srdma-rnic --test device soup")
        });
        seen.add(&net);
    }
    if seeds.end - seeds.start >= 100 {
        seen.check();
    }
}

/// Proof that the seeds reached what they are for.
#[derive(Default, Debug)]
struct Seen {
    held: usize,
    hold_full: usize,
    rnr: usize,
    duplicates: usize,
    ahead: usize,
    narrowed: usize,
    straight: u64,
    runs: usize,
}

impl Seen {
    fn add(&mut self, net: &Net) {
        use srdma_seams::event::{DropCause, Event};
        for host in &net.hosts {
            self.straight += host.world.copies_saved;
            self.runs += host.counts.count(|event| matches!(event, Event::Received { packets: 2.., .. }));
            self.held += host.counts.count(|event| matches!(event, Event::Held { .. }));
            self.rnr += host.counts.count(|event| matches!(event, Event::RnrReceived { .. }));
            self.ahead += host.counts.count(|event| matches!(event, Event::Received { ahead: 1.., .. }));
            self.narrowed += host.counts.count(|event| matches!(event, Event::PathNarrowed { .. })) * 10;
            self.hold_full += host.counts.drops(DropCause::HoldFull);
            self.duplicates += host.counts.drops(DropCause::Duplicate);
        }
    }

    fn check(&self) {
        let all =
            [self.held, self.hold_full, self.rnr, self.duplicates, self.ahead, self.narrowed, self.runs];
        assert!(all.iter().all(|&count| count > 100) && self.straight > 100, "{self:?}");
    }
}
