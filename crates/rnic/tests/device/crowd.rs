//! Many queue pairs between two hosts whose processors, not their links, are the bottleneck: every packet costs time to
//! send and to take, what has come waits in a socket that holds only so much, and now and then a host has no processor
//! at all.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use srdma_abi::Opcode;
use srdma_seams::{Duration, Event, Now};
use srdma_transport::Config;
use srdma_wire::Packet;

use crate::net::*;

/// What a packet takes of the kernel's accounting beyond its payload.
const OVERHEAD_BYTES: u64 = 768;
/// A call into the kernel, whatever it brings.
const CALL_NS: u64 = 2_000;
/// Packets taken in one turn.
const TURN_PACKETS: usize = 256;
const MILLISECOND: u64 = 1_000_000;

/// A host's processor and socket.
#[derive(Default)]
struct Busy {
    socket: VecDeque<Flying>,
    used_bytes: u64,
    dropped: u64,
    free_at: Now,
    more: bool,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    queue_pairs: usize,
    messages: usize,
    message_bytes: u32,
    /// Of the target's time; the initiator needs a quarter.
    packet_ns: u64,
    socket_bytes: u64,
    /// The target has no processor for so long, every 40 ms.
    stall_ns: u64,
}

/// What became of it.
#[derive(Debug)]
struct Outcome {
    data: u64,
    acks: u64,
    rtos: usize,
    dropped: u64,
    /// Fairness when half of all is done, and by the order of finishing.
    jain: [f64; 2],
    took_ns: u64,
}

struct Crowd {
    net: Net,
    case: Case,
    busy: [Busy; 2],
}

fn bytes_of(flying: &Flying) -> u64 {
    flying.sent.payload.len() as u64 + OVERHEAD_BYTES
}

impl Crowd {
    fn arrive(&mut self) {
        let arrived = self.net.take_arrived();
        for (busy, arrived) in self.busy.iter_mut().zip(arrived) {
            for flying in arrived {
                let bytes = bytes_of(&flying);
                if busy.used_bytes + bytes > self.case.socket_bytes {
                    busy.dropped += 1;
                    continue;
                }
                busy.used_bytes += bytes;
                busy.socket.push_back(flying);
            }
        }
    }

    /// One turn of a host's worker: packets, timers, sending; then it is busy with that for a while.
    fn turn(&mut self, index: usize) {
        let (now, case) = (self.net.now, self.case);
        if self.busy[index].free_at > now {
            return;
        }
        let busy = &mut self.busy[index];
        let count = busy.socket.len().min(TURN_PACKETS);
        let taken: Vec<Flying> = busy.socket.drain(..count).collect();
        busy.used_bytes -= taken.iter().map(bytes_of).sum::<u64>();
        let host = &mut self.net.hosts[index];
        host.world.free_bytes = ((case.socket_bytes - busy.used_bytes) / 2) as u32;
        if count > 0 {
            host.receive_all(now, &taken);
        }
        if busy.socket.is_empty() && host.nic.next_timeout().is_some_and(|at| at <= now) {
            host.nic.on_time(now, &mut host.world, &mut host.counts);
        }
        let (sent, more) = self.net.pump_once(index);
        let busy = &mut self.busy[index];
        busy.more = more;
        let packet_ns = if index == 0 { case.packet_ns / 4 } else { case.packet_ns };
        let work = (count + sent) as u64 * packet_ns + CALL_NS;
        busy.free_at = now + Duration(work);
        let phase = now.0 % (40 * MILLISECOND);
        if index == 1 && phase < case.stall_ns {
            busy.free_at = now + Duration(case.stall_ns - phase);
        }
    }

    /// Goes on to the next moment at which something happens.
    fn step(&mut self) -> bool {
        self.arrive();
        for index in 0..2 {
            self.turn(index);
        }
        let mut next = self.net.next_arrival();
        for (busy, host) in self.busy.iter().zip(&mut self.net.hosts) {
            let works = (!busy.socket.is_empty() || busy.more).then_some(Now(0));
            let due = [works, host.nic.next_timeout()].into_iter().flatten().min();
            next = [next, due.map(|due| due.max(busy.free_at))].into_iter().flatten().min();
        }
        let Some(next) = next else { return false };
        self.net.now = self.net.now.max(next);
        true
    }
}

/// (Σx)² / (n Σx²), R. Jain, D.-M. Chiu, W. Hawe, DEC-TR-301.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

fn run(seed: u64, case: Case) -> Outcome {
    let transport = Config::default();
    let mut net = Net::new(seed, Options { transport, ..Options::default() });
    let counted = Rc::new(Cell::new((0, 0)));
    let counts = counted.clone();
    net.filter = Some(Box::new(move |_, _, sent| {
        let (data, acks) = counts.get();
        match sent.packet {
            Packet::Data(_) => counts.set((data + 1, acks)),
            Packet::Ack(_) => counts.set((data, acks + 1)),
            _ => {}
        }
        Verdict::Pass
    }));
    let (from, to) = (net.region(0, 0, 1 << 20, ALL), net.region(1, 0, 1 << 20, ALL));
    let pairs: Vec<_> = (0..case.queue_pairs).map(|_| (net.qp(0), net.qp(1))).collect();
    for &(a, b) in &pairs {
        net.connect(a, b, attributes(), attributes());
    }
    net.run_for(Duration::from_millis(10));
    let begun = net.now;
    for _ in 0..case.messages {
        for &(a, _) in &pairs {
            net.post(a, to_remote(entry(Opcode::Write, 0, &[sge(0, case.message_bytes, from)]), 0, to));
        }
    }
    let mut crowd = Crowd { net, case, busy: Default::default() };
    let total = case.queue_pairs * case.messages;
    let (mut done, mut finished_at) = (vec![0; case.queue_pairs], vec![0.0; case.queue_pairs]);
    let (mut all, mut half) = (0, None);
    while all < total {
        let goes_on = crowd.step() && crowd.net.now.0 < begun.0 + 60_000 * MILLISECOND;
        for (number, &(a, _)) in pairs.iter().enumerate() {
            for completion in crowd.net.poll(a, a.send_cq) {
                assert_eq!((completion.status, completion.vendor_err), (0, 0), "{seed} {case:?}");
                done[number] += 1;
                all += 1;
                finished_at[number] = (crowd.net.now.0 - begun.0) as f64;
            }
        }
        assert!(goes_on || all == total, "{seed} {case:?}: {all} of {total}");
        if all >= total / 2 && half.is_none() {
            half = Some(jain(&done.iter().map(|&done| f64::from(done)).collect::<Vec<_>>()));
        }
    }
    let rates: Vec<f64> = finished_at.iter().map(|at| 1.0 / at).collect();
    let (data, acks) = counted.get();
    Outcome {
        data,
        acks,
        rtos: crowd.net.hosts[0].counts.count(|event| matches!(event, Event::Rto { .. })),
        dropped: crowd.busy.iter().map(|busy| busy.dropped).sum(),
        jain: [half.unwrap_or(0.0), jain(&rates)],
        took_ns: crowd.net.now.since(begun).0,
    }
}

const CROWD: Case = Case {
    queue_pairs: 200,
    messages: 10,
    message_bytes: 64 << 10,
    packet_ns: 1_500,
    socket_bytes: 2 << 20,
    stall_ns: 0,
};

/// A busy processor is no loss: nobody times out, the socket never overflows, whole bursts share an acknowledgement,
/// and everybody gets the same. With a window for each queue pair, what they may send together is many times what
/// the socket holds.
#[test]
fn a_crowd_shares_a_busy_host_without_loss() {
    let cases = [
        CROWD,
        Case { packet_ns: 400, ..CROWD },
        Case { packet_ns: 10_000, ..CROWD },
        Case { queue_pairs: 400, ..CROWD },
        Case { queue_pairs: 16, messages: 40, ..CROWD },
        Case { socket_bytes: 212_992 * 2, ..CROWD },
    ];
    for (seed, case) in cases.into_iter().enumerate() {
        let outcome = run(seed as u64, case);
        println!("seed {seed}: {case:?}: {outcome:?}");
        assert_eq!((outcome.rtos, outcome.dropped), (0, 0), "seed {seed}: {outcome:?}");
        assert!(outcome.acks * 6 <= outcome.data, "seed {seed}: {outcome:?}");
        assert!(outcome.jain.iter().all(|&jain| jain >= 0.95), "seed {seed}: {outcome:?}");
    }
}

/// A peer without a processor is asked by one queue pair, not by each: what the others have sent lies in its socket,
/// and sending it again would overflow it.
#[test]
fn a_crowd_waits_for_a_host_that_stands_still() {
    let cases = [
        Case { stall_ns: 12 * MILLISECOND, ..CROWD },
        Case { stall_ns: 25 * MILLISECOND, ..CROWD },
        Case { stall_ns: 25 * MILLISECOND, queue_pairs: 400, ..CROWD },
    ];
    for (seed, case) in cases.into_iter().enumerate() {
        let outcome = run(seed as u64, case);
        println!("seed {seed}: {case:?}: {outcome:?}");
        let stalls = 1 + outcome.took_ns / (40 * MILLISECOND);
        assert_eq!(outcome.dropped, 0, "seed {seed}: {outcome:?}");
        assert!(outcome.rtos as u64 <= stalls * 15, "seed {seed}: {outcome:?}");
        assert!(outcome.jain.iter().all(|&jain| jain >= 0.95), "seed {seed}: {outcome:?}");
    }
}
