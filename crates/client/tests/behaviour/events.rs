//! Completion events: one for each arming, at the right moment, and enough to live on.

use std::os::fd::{AsRawFd, OwnedFd};

use srdma_abi::{Cause, Opcode, SendFlags};
use srdma_client::CqEvents;

use crate::ground::*;

const COOKIE: u64 = 0x1122_3344_5566_7788;

/// The reading end of a completion queue's events.
struct Channel {
    reading: OwnedFd,
    _writing: OwnedFd,
}

impl Channel {
    fn new() -> (Channel, CqEvents) {
        let (reading, writing) = pipe();
        let events = CqEvents { fd: writing.as_raw_fd(), cookie: COOKIE };
        (Channel { reading, _writing: writing }, events)
    }

    /// Events that lie there now; takes them.
    fn take(&self) -> usize {
        let mut bytes = [0u8; 4096];
        // SAFETY: the buffer is as long as said.
        let got = unsafe { libc::read(self.reading.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        let got = got.max(0) as usize;
        assert!(bytes[..got].chunks(8).all(|record| record == COOKIE.to_ne_bytes()), "{got} bytes");
        got / 8
    }

    /// Waits in the kernel, as a program does; whether an event came in time.
    fn sleep(&self, timeout_ms: i32) -> bool {
        let mut fd = libc::pollfd { fd: self.reading.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        unsafe { libc::poll(&mut fd, 1, timeout_ms) == 1 }
    }
}

/// A pair whose second end tells of its receives.
fn told() -> (Pair, Channel) {
    let [a, b] = addresses().map(|address| Host::open(address, &options()));
    let (channel, events) = Channel::new();
    let shape = Shape { events: [None, Some(events)], ..Shape::default() };
    (Pair::shaped(a, b, [Shape::default(), shape], [attributes(); 2]), channel)
}

const LONG_MS: i32 = 20_000;
/// Long enough for an event that must not come.
const SHORT_MS: i32 = 60;

fn send(pair: &Pair, wr_id: u64, flags: SendFlags) {
    let request = srdma_abi::SendEntry { flags, ..entry(Opcode::Send, wr_id, &[]) };
    pair.a.post(request);
    assert_eq!(outcomes(&pair.a.sent(1)), [done(wr_id)]);
}

#[test]
fn an_armed_queue_tells_once() {
    let (pair, channel) = told();
    for wr_id in 0..10 {
        pair.b.post_recv(wr_id, &[]);
    }
    send(&pair, 0, SendFlags::SIGNALED);
    assert!(!channel.sleep(SHORT_MS), "nobody has armed it");
    assert_eq!(outcomes(&pair.b.received(1)), [done(0)]);
    for round in 0..3 {
        pair.b.recvs.arm(false);
        assert!(!channel.sleep(SHORT_MS), "nothing has come");
        for i in 1..=3 {
            send(&pair, round * 3 + i, SendFlags::SIGNALED);
        }
        assert!(channel.sleep(LONG_MS));
        pair.b.received(3);
        assert!(channel.take() == 1 && !channel.sleep(SHORT_MS), "one arming, one event");
    }
}

#[test]
fn arming_with_a_completion_there_tells_at_once() {
    let (pair, channel) = told();
    pair.b.post_recv(1, &[]);
    send(&pair, 1, SendFlags::SIGNALED);
    wait("the receive", &[pair.b.host], || {
        (pair.b.counters()["packets_received"].as_u64()? > 0).then_some(())
    });
    pair.b.recvs.arm(false);
    assert!(channel.sleep(LONG_MS));
    assert_eq!(channel.take(), 1);
    assert_eq!(outcomes(&pair.b.received(1)), [done(1)]);
}

#[test]
fn a_queue_armed_for_solicited_completions_waits_for_one_or_for_an_error() {
    let (pair, channel) = told();
    for wr_id in 1..=4 {
        pair.b.post_recv(wr_id, &[]);
    }
    let solicited = SendFlags::SIGNALED.with(SendFlags::SOLICITED);
    pair.b.recvs.arm(true);
    send(&pair, 1, SendFlags::SIGNALED);
    assert!(!channel.sleep(SHORT_MS), "it was not solicited");
    send(&pair, 2, solicited);
    assert!(channel.sleep(LONG_MS));
    assert_eq!((outcomes(&pair.b.received(2)), channel.take()), (vec![done(1), done(2)], 1));
    pair.b.recvs.arm(true);
    pair.b.go_to(srdma_abi::QpState::Err);
    assert!(channel.sleep(LONG_MS), "errors are always solicited");
    let flushed = [3, 4].map(|wr_id| failed(wr_id, Cause::Flushed));
    assert_eq!((outcomes(&pair.b.received(2)), channel.take()), (flushed.to_vec(), 1));
}

#[test]
fn a_stronger_arming_is_not_weakened() {
    let (pair, channel) = told();
    pair.b.post_recv(1, &[]);
    pair.b.recvs.arm(false);
    pair.b.recvs.arm(true);
    send(&pair, 1, SendFlags::SIGNALED);
    assert!(channel.sleep(LONG_MS));
}

/// Receives one message with events alone: arm, look, sleep.
fn receive_by_events(end: &End, channel: &Channel) -> u64 {
    let mut out = [srdma_abi::Completion::default(); 1];
    loop {
        if end.recvs.poll(&mut out) == Some(1) {
            assert_eq!(out[0].status, 0);
            return out[0].wr_id;
        }
        end.recvs.arm(false);
        if end.recvs.poll(&mut out) == Some(1) {
            assert_eq!(out[0].status, 0);
            return out[0].wr_id;
        }
        assert!(channel.sleep(LONG_MS), "no event in {LONG_MS} ms: {}", end.counters());
        channel.take();
    }
}

#[test]
fn a_ping_pong_lives_on_events_alone() {
    const ROUNDS: u64 = 300;
    let hosts = addresses().map(|address| Host::open(address, &options()));
    let channels = [Channel::new(), Channel::new()];
    let shape = |i: usize| Shape { events: [None, Some(channels[i].1)], ..Shape::default() };
    let pair = Pair::shaped(hosts[0], hosts[1], [shape(0), shape(1)], [attributes(); 2]);
    let ping = |end: &End, channel: &Channel, serves: bool| {
        for round in 0..ROUNDS {
            end.post_recv(round + 1, &[]);
            if serves {
                end.post(entry(Opcode::Send, round, &[]));
            }
            assert_eq!(receive_by_events(end, channel), round + 1);
            if !serves {
                end.post(entry(Opcode::Send, round, &[]));
            }
            assert_eq!(outcomes(&end.sent(1)), [done(round)]);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| ping(&pair.b, &channels[1].0, false));
        ping(&pair.a, &channels[0].0, true);
    });
}

#[test]
fn a_passive_target_is_served_while_its_program_sleeps() {
    let pair = Pair::new();
    let ((here, lkey), (there, rkey)) = (pair.a.host.region(1 << 20), pair.b.host.region(1 << 20));
    here.store(0, &pattern(1 << 20, 3));
    for wr_id in 0..20 {
        let opcode = if wr_id % 2 == 0 { Opcode::Write } else { Opcode::Read };
        let request = entry(opcode, wr_id, &[sge(&here, 0, 1 << 20, lkey)]);
        assert_eq!(outcomes(&[pair.a.run(to_remote(request, there.address(), rkey))]), [done(wr_id)]);
    }
    assert!(there.load(0, 1 << 20) == pattern(1 << 20, 3));
}
