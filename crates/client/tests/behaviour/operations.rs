//! Every operation moves the right bytes, and completes with the right words.

use srdma_abi::{Completion, Opcode, SendFlags, Sge, WcFlags, WcOpcode};
use srdma_client::{Faults, Options};

use crate::ground::part::{alone, this_test};
use crate::ground::*;

const LENGTHS: [u32; 13] = [0, 1, 7, 8, 63, 64, 65, 1371, 1372, 1373, 4096, 65_535, (1 << 20) + 1];
const INLINE_MAX: u32 = 512;
const ROOM: u64 = 2 << 20;
/// Where messages begin in the memory of each side: nothing is aligned.
const HERE: u64 = 4099;
const THERE: u64 = 8191;
const IMM: u32 = 0xfeed_beef;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    One,
    Pieces,
    Inline,
}

/// One transfer between two connected ends.
#[derive(Clone, Copy, Debug)]
struct Case {
    opcode: Opcode,
    length: u32,
    layout: Layout,
}

fn cases() -> Vec<Case> {
    let opcodes = [Opcode::Send, Opcode::SendImm, Opcode::Write, Opcode::WriteImm, Opcode::Read];
    let mut cases = Vec::new();
    for opcode in opcodes {
        for length in LENGTHS {
            for layout in [Layout::One, Layout::Pieces, Layout::Inline] {
                let fits = length <= INLINE_MAX && opcode != Opcode::Read;
                if layout != Layout::Inline || fits {
                    cases.push(Case { opcode, length, layout });
                }
            }
        }
    }
    cases
}

/// Splits `length` bytes at `at` into unaligned pieces that lie apart, an empty one among them.
fn elements(memory: &Memory, at: u64, length: u32, key: u32, layout: Layout) -> Vec<Sge> {
    if layout != Layout::Pieces || length < 3 {
        return vec![sge(memory, at, length, key)];
    }
    let cuts = [length / 7, 0, length / 2, length - length / 7 - length / 2];
    let mut from = at;
    let piece = |bytes: u32| {
        let piece = sge(memory, from, bytes, key);
        from += u64::from(bytes) + 13;
        piece
    };
    cuts.into_iter().map(piece).collect()
}

fn scatter(memory: &Memory, elements: &[Sge], mut bytes: &[u8]) {
    for element in elements {
        let (piece, rest) = bytes.split_at(element.length as usize);
        memory.store(element.address - memory.address(), piece);
        bytes = rest;
    }
}

fn gather(memory: &Memory, elements: &[Sge]) -> Vec<u8> {
    let piece = |e: &Sge| memory.load(e.address - memory.address(), u64::from(e.length));
    elements.iter().flat_map(piece).collect()
}

/// Bytes of `memory` that are not in `elements` and no longer zero.
fn strays(memory: &Memory, elements: &[Sge]) -> usize {
    let mut bytes = memory.load(0, memory.bytes());
    for element in elements {
        let at = (element.address - memory.address()) as usize;
        bytes[at..at + element.length as usize].fill(0);
    }
    bytes.iter().filter(|&&byte| byte != 0).count()
}

/// Two connected ends with memory.
pub struct Stage<'a> {
    a: &'a End,
    b: &'a End,
    here: (Memory, u32),
    there: (Memory, u32),
}

impl<'a> Stage<'a> {
    pub fn new(a: &'a End, b: &'a End) -> Stage<'a> {
        Stage { a, b, here: a.host.region(ROOM), there: b.host.region(ROOM) }
    }

    /// Does one transfer and checks every byte and every field.
    fn run(&self, salt: u64, case: Case) {
        let Case { opcode, length, layout } = case;
        let ((here, lkey), (there, rkey)) = (self.here, self.there);
        let bytes = pattern(length as usize, salt);
        let ours = elements(&here, HERE, length, lkey, layout);
        let theirs = match opcode.consumes_receive() && opcode != Opcode::WriteImm {
            true => elements(&there, THERE, length, rkey, layout),
            false => vec![sge(&there, THERE, length, rkey)],
        };
        let (from, to) = match opcode {
            Opcode::Read => ((&there, &theirs), (&here, &ours)),
            _ => ((&here, &ours), (&there, &theirs)),
        };
        to.0.fill(0);
        scatter(from.0, from.1, &bytes);
        if opcode.consumes_receive() {
            let sges = if opcode == Opcode::WriteImm { &[][..] } else { &theirs[..] };
            self.b.post_recv(salt + 1000, sges);
        }
        let mut request = to_remote(entry(opcode, salt, &ours), there.address() + THERE, rkey);
        request.imm = IMM;
        if layout == Layout::Inline {
            request.flags = request.flags.with(SendFlags::INLINE);
        }
        if salt & 1 == 0 {
            request.flags = request.flags.with(SendFlags::SOLICITED);
        }
        let inline = if layout == Layout::Inline { &bytes[..] } else { &[] };
        self.a.try_post(request, inline).unwrap();
        self.check_send(salt, case, &self.a.sent(1)[0]);
        if opcode.consumes_receive() {
            self.check_receive(salt, case, &self.b.received(1)[0]);
        }
        assert!(gather(to.0, to.1) == bytes, "{case:?}: wrong bytes");
        assert_eq!(strays(to.0, to.1), 0, "{case:?}: bytes elsewhere");
    }

    fn check_send(&self, salt: u64, case: Case, completion: &Completion) {
        let (opcode, byte_len) = match case.opcode {
            Opcode::Read => (WcOpcode::Read, case.length),
            Opcode::Write | Opcode::WriteImm => (WcOpcode::Write, 0),
            _ => (WcOpcode::Send, 0),
        };
        let c = completion;
        assert_eq!((c.wr_id, c.status, c.vendor_err), (salt, 0, 0), "{case:?}");
        assert_eq!((c.opcode, c.byte_len), (opcode as u8, byte_len), "{case:?}");
        assert_eq!((c.qpn, c.flags), (self.a.qp.number(), WcFlags(0)), "{case:?}");
    }

    fn check_receive(&self, salt: u64, case: Case, completion: &Completion) {
        let (opcode, imm) = match case.opcode {
            Opcode::WriteImm => (WcOpcode::RecvWriteImm, Some(IMM)),
            Opcode::SendImm => (WcOpcode::Recv, Some(IMM)),
            _ => (WcOpcode::Recv, None),
        };
        let c = completion;
        assert_eq!((c.wr_id, c.status, c.vendor_err), (salt + 1000, 0, 0), "{case:?}");
        assert_eq!((c.opcode, c.byte_len), (opcode as u8, case.length), "{case:?}");
        assert_eq!((c.qpn, c.src_qpn), (self.b.qp.number(), self.a.qp.number()), "{case:?}");
        assert_eq!(c.flags.contains(WcFlags::IMM), imm.is_some(), "{case:?}");
        assert_eq!(c.flags.contains(WcFlags::SOLICITED), salt & 1 == 0, "{case:?}");
        assert_eq!(c.imm, imm.unwrap_or(0), "{case:?}");
    }

    pub fn run_atomics(&self) {
        let ((here, lkey), (there, rkey)) = (self.here, self.there);
        // (operation, before, compare or addend, swap, after)
        let cases = [
            (Opcode::CompareSwap, 5u64, 5u64, u64::MAX, u64::MAX),
            (Opcode::CompareSwap, 5, 6, 9, 5),
            (Opcode::FetchAdd, 40, 2, 0, 42),
            (Opcode::FetchAdd, u64::MAX, 3, 0, 2),
        ];
        for (at, pieces) in [(64u64, 1usize), (72, 2)] {
            for (opcode, before, compare_add, swap, after) in cases {
                here.fill(0);
                there.fill(0);
                there.store(at, &before.to_ne_bytes());
                let sges = match pieces {
                    1 => vec![sge(&here, 16, 8, lkey)],
                    _ => vec![sge(&here, 16, 3, lkey), sge(&here, 19, 5, lkey)],
                };
                let request = to_remote(entry(opcode, 3, &sges), there.address() + at, rkey);
                self.a.post(srdma_abi::SendEntry { compare_add, swap, ..request });
                let c = self.a.sent(1)[0];
                let expected = match opcode {
                    Opcode::FetchAdd => WcOpcode::FetchAdd,
                    _ => WcOpcode::CompareSwap,
                };
                assert_eq!((c.wr_id, c.status, c.opcode, c.byte_len), (3, 0, expected as u8, 8));
                assert_eq!((here.word(16), there.word(at)), (before, after), "{opcode:?}");
                let touched = [sge(&there, at, 8, rkey)];
                assert_eq!(strays(&there, &touched) + strays(&here, &[sge(&here, 16, 8, lkey)]), 0);
            }
        }
    }

    pub fn run_all(&self) {
        for (salt, case) in cases().into_iter().enumerate() {
            self.run(salt as u64, case);
        }
        self.run_atomics();
    }
}

#[test]
fn every_operation_between_two_devices() {
    let pair = Pair::with(&Options { seed: Some(3), ..Options::default() });
    Stage::new(&pair.a, &pair.b).run_all();
    Stage::new(&pair.b, &pair.a).run_all();
}

#[test]
fn every_operation_over_the_large_packets_of_one_device() {
    // 127.0.0.1 is the address of an interface, whose MTU of 64 KiB is found and used.
    let host = Host::open([127, 0, 0, 1].into(), &options());
    let pair = Pair::on(host, host);
    Stage::new(&pair.a, &pair.b).run_all();
    let mtu_bytes = pair.a.counters()["mtu_bytes"].as_u64().unwrap();
    assert!(mtu_bytes > 9000, "{mtu_bytes}");
}

#[test]
fn every_operation_over_ipv6() {
    let host = Host::open(std::net::Ipv6Addr::LOCALHOST.into(), &options());
    let pair = Pair::on(host, host);
    Stage::new(&pair.a, &pair.b).run_all();
}

#[test]
fn every_operation_of_a_queue_pair_with_itself() {
    let host = Host::open(addresses()[0], &options());
    let end = End::new(host, Shape::default());
    end.connect(end.name(), &attributes());
    Stage::new(&end, &end).run_all();
}

#[test]
fn every_operation_through_loss() {
    for loss_ppm in [10_000, 50_000] {
        let pair = Pair::with(&Options { faults: Faults::loss(loss_ppm), ..options() });
        Stage::new(&pair.a, &pair.b).run_all();
        let counters = pair.a.counters();
        let sent_again: u64 =
            counters["retransmitted"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        let packets = counters["packets_sent"].as_u64().unwrap();
        assert!(
            sent_again * 1_000_000 / packets > u64::from(loss_ppm) / 2,
            "{loss_ppm} ppm lost, but only {sent_again} of {packets} packets sent again"
        );
    }
}

#[test]
fn every_operation_through_loss_of_large_packets() {
    // In a process of its own: the first open of an address decides its settings.
    alone(this_test!(), || {
        let host = Host::open([127, 0, 0, 1].into(), &Options { faults: Faults::loss(50_000), ..options() });
        let pair = Pair::on(host, host);
        Stage::new(&pair.a, &pair.b).run_all();
        assert!(pair.a.counters()["mtu_bytes"].as_u64().unwrap() > 9000);
    });
}

#[test]
fn queue_pairs_of_one_process_move_bytes_side_by_side() {
    const PAIRS: usize = 8;
    const ROUNDS: u64 = 20;
    const LENGTH: u32 = 100_000;
    let [left, right] = addresses().map(|address| Host::open(address, &options()));
    // Between two devices and within one.
    let pairs: Vec<Pair> =
        (0..PAIRS).map(|i| Pair::on(left, if i % 2 == 0 { right } else { left })).collect();
    let stages: Vec<Stage> = pairs.iter().map(|pair| Stage::new(&pair.a, &pair.b)).collect();
    for round in 0..ROUNDS {
        for (i, stage) in stages.iter().enumerate() {
            let ((here, lkey), (there, rkey)) = (stage.here, stage.there);
            here.store(HERE, &pattern(LENGTH as usize, round * 100 + i as u64));
            let write = entry(Opcode::Write, round, &[sge(&here, HERE, LENGTH, lkey)]);
            stage.a.post(to_remote(write, there.address() + THERE, rkey));
        }
        for (i, stage) in stages.iter().enumerate() {
            assert_eq!(outcomes(&stage.a.sent(1)), [done(round)], "pair {i}");
            let expected = pattern(LENGTH as usize, round * 100 + i as u64);
            assert!(stage.there.0.load(THERE, LENGTH.into()) == expected, "pair {i}, round {round}");
        }
    }
}

#[test]
fn only_signalled_sends_complete_unless_all_are_asked_for() {
    for sq_sig_all in [false, true] {
        let [a, b] = addresses().map(|address| Host::open(address, &options()));
        let shape = Shape { sq_sig_all, ..Shape::default() };
        let pair = Pair::shaped(a, b, [shape; 2], [attributes(); 2]);
        let ((here, lkey), (there, rkey)) = (a.region(4096), b.region(4096));
        // Five times the queue: space of unsignalled requests comes back too.
        let mut signalled = Vec::new();
        for i in 0..320u64 {
            let opcode = if i % 3 == 0 { Opcode::Read } else { Opcode::Write };
            let mut request = to_remote(entry(opcode, i, &[sge(&here, 0, 8, lkey)]), there.address(), rkey);
            if i % 16 != 15 {
                request.flags = SendFlags(0);
            }
            pair.a.post(request);
            if sq_sig_all || i % 16 == 15 {
                signalled.extend(pair.a.sent(1));
            }
        }
        let expected: Vec<_> = (0..320).filter(|i| sq_sig_all || i % 16 == 15).map(done).collect();
        assert_eq!(outcomes(&signalled), expected);
        pair.a.assert_silent();
    }
}
