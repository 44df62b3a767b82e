//! What the sockets alone can do over loopback, with and without segmentation offload:
//! `cargo run --release -p srdma-net --example socket_speed [ADDRESS]`.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use srdma_net::{Endpoint, Options, RawSlice, ReceiveBatch};
use srdma_seams::PathId;

const HEADER_BYTES: usize = 64;

/// Sends and receives by turns on one thread for a while; bytes of payload per second and packets lost.
fn throughput(sender: &mut Endpoint, receiver: &mut Endpoint, payload_bytes: usize) -> (f64, u64) {
    let memory = vec![5u8; 4 << 20];
    let mut batch = ReceiveBatch::new(32).unwrap();
    let packets = (65_000 / (payload_bytes + HEADER_BYTES)).clamp(1, 64);
    let before = (sender.counters(), receiver.counters());
    let (start, mut at, mut path) = (Instant::now(), 0, 0);
    while start.elapsed() < Duration::from_millis(300) {
        for _ in 0..8 {
            let mut burst = sender.burst(PathId(path), receiver.address(), 0);
            for _ in 0..packets {
                let payload = RawSlice::from(&memory[at..at + payload_bytes]);
                burst.push_encoded(&[1; HEADER_BYTES], &[payload]).unwrap();
                at = (at + payload_bytes) % (memory.len() - payload_bytes);
            }
            burst.send().unwrap();
            path = (path + 1) % 128;
        }
        while receiver.receive(&mut batch).unwrap() > 0 {}
    }
    let seconds = start.elapsed().as_secs_f64();
    let received = receiver.counters().received_packets - before.1.received_packets;
    let sent = sender.counters().sent_packets - before.0.sent_packets;
    (received as f64 * payload_bytes as f64 / seconds, sent - received)
}

/// Median time of one small packet from the call that sends it to its bytes being here.
fn latency_ns(sender: &mut Endpoint, receiver: &mut Endpoint) -> u128 {
    let mut batch = ReceiveBatch::new(32).unwrap();
    let mut times: Vec<u128> = (0..20_000)
        .map(|_| {
            let start = Instant::now();
            let mut burst = sender.burst(PathId(0), receiver.address(), 0);
            burst.push_encoded(&[1; HEADER_BYTES], &[RawSlice::from(&b"12345678"[..])]).unwrap();
            burst.send().unwrap();
            while receiver.receive(&mut batch).unwrap() == 0 {}
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn empty_ns(receiver: &mut Endpoint) -> u128 {
    let mut batch = ReceiveBatch::new(32).unwrap();
    let start = Instant::now();
    for _ in 0..100_000 {
        receiver.receive(&mut batch).unwrap();
    }
    start.elapsed().as_nanos() / 100_000
}

fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.99".into()).parse().unwrap();
    for (gso, gro) in [(true, true), (true, false), (false, false)] {
        let options = Options { gso, gro, ..Options::default() };
        let mut receiver = Endpoint::open(address, &options).unwrap();
        let mut sender = Endpoint::open(address, &options).unwrap();
        println!("GSO {gso}, GRO {gro}:");
        println!("  one packet, sent and received: {} ns", latency_ns(&mut sender, &mut receiver));
        println!("  finding nothing: {} ns", empty_ns(&mut receiver));
        for payload_bytes in [1344, 4096, 8900, 32_000] {
            let (rate, lost) = throughput(&mut sender, &mut receiver, payload_bytes);
            println!("  {payload_bytes:>6} B payload: {:>6.1} Gbit/s, {lost} lost", rate * 8.0 / 1e9);
        }
    }
}
