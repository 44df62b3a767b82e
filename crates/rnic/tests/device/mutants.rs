//! A whole connection that is fed its own packets, changed in their bytes: the attacker of the fuzz target in
//! `fuzz/` and of the test in `fuzzed`.
//!
//! *On the path*, the attacker sees every packet and keeps the connection id: to us it is the peer gone mad. Then
//! nothing may panic, no byte outside the regions may change, and other queue pairs must not notice. *Off the
//! path* it may know addresses, queue-pair numbers and message contents, but not the 64 random bits that each
//! end chose: then the connection itself must not notice.

use srdma_abi::{Opcode, QpState, SendFlags};
use srdma_seams::{ConnectionId, Duration, Event, MrKey, Rng};
use srdma_wire::{emit, parse, Packet, HEADER_BYTES_MAX};

use crate::host::{Sent, BASE};
use crate::net::*;
use crate::property::reseal;

/// Where the attacker sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attacker {
    OnPath,
    OffPath,
}

/// What decides: a seed, or the bytes of a fuzzer.
#[allow(dead_code)] // each user has one
pub enum Choices<'a> {
    Seeded(Rng),
    Bytes(&'a [u8]),
}

impl Choices<'_> {
    /// A number in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        match self {
            Choices::Seeded(rng) => rng.below(bound),
            Choices::Bytes(bytes) => {
                let mut number = 0;
                let mut reach = 1u64;
                while reach < bound {
                    let Some((first, rest)) = bytes.split_first() else { break };
                    (number, *bytes) = (number << 8 | u64::from(*first), rest);
                    reach = reach.saturating_mul(256);
                }
                number % bound.max(1)
            }
        }
    }

    /// Nothing is left to decide with.
    #[allow(dead_code)] // a fuzzer's
    pub fn are_spent(&self) -> bool {
        matches!(self, Choices::Bytes([]))
    }
}

/// Regions of each host; everything else is out of bounds.
const OPEN: std::ops::Range<u64> = 4096..65536;
/// Packets kept to be changed.
const CORPUS_MAX: usize = 256;
/// Bytes of one checked WRITE.
const BLOCK: u64 = 3000;

/// Two hosts, a queue pair of each under attack, and one of each that must not notice.
pub struct Arena {
    pub net: Net,
    attacker: Attacker,
    good: [QpRef; 2],
    bad: [QpRef; 2],
    keys: [MrKey; 2],
    corpus: Vec<(usize, Sent)>,
    /// Highest packet and message number that each end of the pair under attack has sent.
    newest: [(u32, u32); 2],
    posted: u64,
    /// Mutants that were packets still.
    pub delivered: u64,
    pub restarts: u64,
    pub drops: [u64; 16],
}

impl Arena {
    pub fn new(seed: u64, attacker: Attacker) -> Arena {
        let mut net = Net::new(
            seed,
            Options {
                faults: Faults { straight: seed.is_multiple_of(2), ..Faults::SPREAD },
                ..Options::default()
            },
        );
        let keys = [0, 1].map(|host| net.region(host, OPEN.start, OPEN.end - OPEN.start, ALL));
        let (good, bad) = ([net.qp(0), net.qp(1)], [net.qp(0), net.qp(1)]);
        net.connect(good[0], good[1], attributes(), attributes());
        net.connect(bad[0], bad[1], attributes(), attributes());
        net.record = Some(vec![]);
        let mut arena = Arena {
            net,
            attacker,
            good,
            bad,
            keys,
            corpus: vec![],
            newest: [(0, 0); 2],
            posted: 0,
            delivered: 0,
            restarts: 0,
            drops: [0; 16],
        };
        arena.work();
        arena
    }

    /// One mutant of one packet.
    pub fn attack(&mut self, choices: &mut Choices<'_>) {
        let mut pick = || choices.below(self.corpus.len() as u64) as usize;
        // There are more ACKs than anything else, and less to change in them.
        let mut chosen = pick();
        for _ in 0..3 {
            chosen = if is_data(&self.corpus[chosen].1.packet) { chosen } else { pick() };
        }
        let (host, mut sent) = self.corpus[chosen].clone();
        if let (Packet::Data(data), true) = (&mut sent.packet, choices.below(2) == 0) {
            // Ahead of what was sent; old numbers are duplicates, which are not looked at.
            let (psn, msn) = self.newest[host];
            data.psn = psn.wrapping_add(1 + choices.below(3) as u32);
            data.message.msn = msn.wrapping_add(choices.below(3) as u32);
        }
        let mut bytes = datagram(&sent);
        for _ in 0..1 + choices.below(3) {
            change(&mut bytes, choices);
        }
        if self.attacker == Attacker::OffPath {
            forget_ids(&mut bytes, choices);
        }
        if choices.below(8) != 0 {
            reseal(&mut bytes);
        }
        let Ok((packet, header)) = parse(&bytes) else { return };
        self.delivered += 1;
        let payload = if matches!(packet, Packet::Data(_)) { bytes[header..].to_vec() } else { vec![] };
        self.net.fly(host, Sent { packet, payload, ..sent }, 0);
    }

    /// Honest work, and time for what was sent to arrive.
    pub fn work(&mut self) {
        let is_broken = self.bad.iter().any(|&qp| self.net.state(qp) == QpState::Err);
        assert!(!is_broken || self.attacker == Attacker::OnPath, "an off-path attacker broke a connection");
        // A forged number that was believed can also stop a connection for good.
        if is_broken || (self.attacker == Attacker::OnPath && self.posted % 8 == 7) {
            self.bad.iter().for_each(|&qp| self.net.go(qp, QpState::Reset));
            // Ids of the old connection are foreign now.
            self.look();
            self.corpus.clear();
            self.net.connect(self.bad[0], self.bad[1], attributes(), attributes());
            self.newest = [(0, 0); 2];
            self.restarts += u64::from(is_broken);
        }
        let (here, there) = (self.keys[0], self.keys[1]);
        let place = OPEN.start + self.posted % 8 * BLOCK;
        let mark = (self.posted % 251) as u8 + 1;
        self.net.hosts[0].world.set(BASE + place, &[mark; BLOCK as usize]);
        let write = |opcode| to_remote(entry(opcode, 7, &[sge(place, BLOCK as u32, here)]), place, there);
        self.net.post_recv(self.bad[1], self.posted, &[sge(OPEN.end - 4096, 64, there)]);
        self.net.post(self.bad[0], write(Opcode::Write));
        self.net.post(self.bad[0], entry(Opcode::Send, 8, &[sge(OPEN.start, 64, here)]));
        let mut read = to_remote(entry(Opcode::Read, 9, &[sge(OPEN.end - 8192, 64, here)]), place, there);
        read.flags = SendFlags::SIGNALED;
        self.net.post(self.bad[0], read);
        let bytes = [sge(OPEN.end - 64, 64, here)];
        self.net.post(self.good[0], to_remote(entry(Opcode::Write, 0, &bytes), OPEN.end - 64, there));
        self.posted += 1;
        match self.attacker {
            // Everything, in time, with the right bytes.
            Attacker::OffPath => {
                let (a, b) = (self.bad[0], self.bad[1]);
                let mut got = vec![];
                let done = self.net.run_until(Duration::from_secs(20), |net| {
                    got.extend(net.poll(a, a.send_cq));
                    got.len() >= 3
                });
                assert!(done && got.iter().all(|c| c.status == 0), "{got:?}");
                assert_eq!(self.net.hosts[1].world.bytes(BASE + place, BLOCK), [mark; BLOCK as usize]);
                assert_eq!(self.net.poll(b, b.recv_cq).len(), 1);
            }
            Attacker::OnPath => self.net.run_for(Duration::from_millis(2)),
        }
        self.look();
    }

    /// Takes in what was sent and counted.
    fn look(&mut self) {
        let numbers = self.bad.map(|qp| qp.qpn);
        for (host, sent) in std::mem::take(self.net.record.as_mut().expect("recording")) {
            let to = match &sent.packet {
                Packet::Data(data) => data.dest_qpn,
                Packet::Ack(ack) => ack.dest_qpn,
                Packet::Hello(hello) => hello.dest_qpn,
                Packet::Nak(nak) => nak.dest_qpn,
                Packet::Close(close) => close.dest_qpn,
                Packet::Echo(_) => continue,
            };
            if to != numbers[1 - host] {
                continue;
            }
            if let Packet::Data(data) = &sent.packet {
                let (psn, msn) = &mut self.newest[host];
                (*psn, *msn) = ((*psn).max(data.psn), (*msn).max(data.message.msn));
            }
            match self.corpus.len() < CORPUS_MAX {
                true => self.corpus.push((host, sent)),
                false => {
                    self.corpus[(self.posted * 31 + self.delivered) as usize % CORPUS_MAX] = (host, sent)
                }
            }
        }
        for host in &mut self.net.hosts {
            for event in host.counts.events.drain(..) {
                if let Event::Dropped { cause, .. } = event {
                    self.drops[cause as usize] += 1;
                }
            }
        }
    }

    /// What must hold at the end.
    pub fn finish(mut self) {
        self.net.run_for(Duration::from_secs(30));
        let done = self.net.poll(self.good[0], self.good[0].send_cq);
        assert_eq!(done.len() as u64, self.posted, "a neighbour suffered");
        assert!(done.iter().all(|c| c.status == 0));
        for host in &self.net.hosts {
            let (before, rest) = host.world.memory.split_at(OPEN.start as usize);
            let after = &rest[(OPEN.end - OPEN.start) as usize..];
            assert!(before.iter().chain(after).all(|&byte| byte == 0), "bytes outside the regions");
        }
        for qp in self.good.into_iter().chain(self.bad) {
            self.net.destroy(qp);
        }
        for host in &mut self.net.hosts {
            assert!(host.world.holds.is_empty(), "payloads still held");
            assert_eq!(host.nic.next_timeout(), None);
        }
    }
}

/// A packet as it travels.
fn datagram(sent: &Sent) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES_MAX];
    let length = emit(&sent.packet, &mut bytes).expect("we sent it");
    bytes.truncate(length);
    bytes.extend(&sent.payload);
    if let Packet::Hello(hello) = &sent.packet {
        bytes.resize(length.max(usize::from(hello.probe_bytes)), 0);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let at = choices.below(bytes.len().max(1) as u64) as usize;
    // Most of the changes go where the fields are.
    let at = if choices.below(8) == 0 { at } else { at % 72 };
    match choices.below(8) {
        0 => bytes.truncate(at),
        1 => bytes.resize(bytes.len() + choices.below(64) as usize, 0xee),
        2 => {
            // A whole number, near what it was.
            let Some(field) = bytes.get_mut(at / 4 * 4..at / 4 * 4 + 4) else { return };
            let number = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
            let near = number.wrapping_add(choices.below(64) as u32).wrapping_sub(32);
            field.copy_from_slice(&near.to_be_bytes());
        }
        kind => {
            let interesting = [0, 1, 0x7f, 0x80, 0xff, 64, 65, 32, 33, choices.below(256) as u8];
            let value = interesting[choices.below(10) as usize];
            let bit = 1 << choices.below(8);
            match bytes.get_mut(at) {
                Some(byte) if kind < 5 => *byte ^= bit,
                Some(byte) => *byte = value,
                None => {}
            }
        }
    }
}

/// What an attacker off the path cannot know: ids are guesses. A HELLO may also claim to know none.
fn forget_ids(bytes: &mut [u8], choices: &mut Choices<'_>) {
    let guess = |choices: &mut Choices<'_>| {
        ConnectionId(0xa77a_0000_0000_0000 | choices.below(1 << 32)).0.to_be_bytes()
    };
    // Changes that make another kind of packet must not smuggle an id through.
    let is_hello = bytes.first() == Some(&0xc0);
    if let Some(id) = bytes.get_mut(12..20) {
        let known = !is_hello || choices.below(2) == 0;
        id.copy_from_slice(&if known { guess(choices) } else { [0; 8] });
    }
    if let (true, Some(id)) = (is_hello, bytes.get_mut(32..40)) {
        id.copy_from_slice(&guess(choices));
    }
}
