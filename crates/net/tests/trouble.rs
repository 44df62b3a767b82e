//! What the kernel, the device, the program or a plan of faults can do to a burst.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use srdma_net::{Endpoint, Options, RawSlice, ReceiveBatch, SendError};
use srdma_seams::fault::{Class, Direction, Fault, FaultKind, Paths};
use srdma_seams::{ConnectionId, FaultPlan, Faults, Now, PathId, Qpn};
use srdma_wire::{Close, Packet};

const PATH: PathId = PathId(5);

/// Tests run side by side, also beside those of other files: each takes slots and an address of its own.
fn options() -> Options {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let first = NEXT.fetch_add(8, Ordering::Relaxed);
    Options { slots: first..=first + 7, ..Options::default() }
}

fn pair() -> (Endpoint, Endpoint) {
    let options = options();
    let open = || Endpoint::open("127.0.0.77".parse().unwrap(), &options).unwrap();
    (open(), open())
}

/// Receives until `count` packets are there, or nothing more comes for `patience`.
fn collect(endpoint: &mut Endpoint, count: usize, patience: Duration) -> Vec<Vec<u8>> {
    let mut batch = ReceiveBatch::new(32).unwrap();
    let mut arrived = Vec::new();
    let mut last = Instant::now();
    while arrived.len() < count && last.elapsed() < patience {
        if endpoint.receive(&mut batch).unwrap() > 0 {
            last = Instant::now();
        }
        arrived.extend(batch.segments().map(|segment| batch.packet(&segment).to_vec()));
    }
    arrived
}

fn drain(endpoint: &mut Endpoint) -> Vec<Vec<u8>> {
    collect(endpoint, usize::MAX, Duration::from_millis(50))
}

/// Packets that can be told apart: number and pattern.
fn packets(count: usize, length: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|index| (0..length).map(|at| if at == 0 { index as u8 } else { at as u8 }).collect())
        .collect()
}

fn send(sender: &mut Endpoint, to: SocketAddr, packets: &[Vec<u8>]) -> Result<(), SendError> {
    let mut burst = sender.burst(PATH, to, 0);
    for packet in packets {
        let (header, payload) = packet.split_at(packet.len().min(40));
        burst.push_encoded(header, &[RawSlice::from(payload)]).unwrap();
    }
    burst.send()
}

#[test]
fn a_device_that_refuses_segmentation_loses_nothing() {
    for errno in [libc::EIO, libc::EINVAL, libc::EOPNOTSUPP, libc::EMSGSIZE] {
        let (mut sender, mut receiver) = pair();
        let all = packets(20, 1200);
        sender.refuse_gso(Some(errno));
        assert!(sender.gso());
        for round in 0..2 {
            send(&mut sender, receiver.address(), &all).unwrap();
            assert!(collect(&mut receiver, 20, Duration::from_secs(1)) == all, "errno {errno} round {round}");
            assert!(!sender.gso());
        }
        let counters = sender.counters();
        assert_eq!((counters.gso_fallbacks, counters.gso_messages, counters.sent_packets), (1, 0, 40));
    }
    // Other errors say nothing about the device.
    let (mut sender, receiver) = pair();
    sender.refuse_gso(Some(libc::ENOBUFS));
    assert_eq!(send(&mut sender, receiver.address(), &packets(20, 1200)), Err(SendError::Busy));
    assert!(sender.gso());
    assert_eq!(sender.counters().send_busy, 1);
}

/// Two pages, of which the second is gone.
struct HalfGone(*mut u8);

const PAGE: usize = 4096;

impl HalfGone {
    fn new() -> HalfGone {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice, half of it protected at once.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(0, libc::mprotect(at.byte_add(PAGE), PAGE, libc::PROT_NONE));
            HalfGone(at.cast())
        }
    }

    fn slice(&self, offset: usize, length: usize) -> RawSlice {
        RawSlice { address: self.0 as usize + offset, length }
    }
}

impl Drop for HalfGone {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`.
        unsafe { libc::munmap(self.0.cast(), 2 * PAGE) };
    }
}

#[test]
fn payload_that_is_gone_names_its_packet_and_sends_nothing() {
    let memory = HalfGone::new();
    let (good, gone, partly) =
        (memory.slice(0, 1000), memory.slice(PAGE, 1000), memory.slice(PAGE - 500, 1000));
    let delay_all = plan(1, Fault::always(FaultKind::Delay(srdma_seams::Duration(1))));
    for (name, payloads, bad) in [
        ("first", vec![gone, good, good], 0),
        ("middle", vec![good, good, gone, good], 2),
        ("last, in part", vec![good, good, good, partly], 3),
        ("alone", vec![partly], 0),
    ] {
        for gso in [true, false] {
            for faults in [None, Some(delay_all.clone())] {
                let (mut sender, mut receiver) = pair_with(gso);
                let delayed = faults.is_some();
                if let Some(plan) = faults {
                    sender.set_faults(plan);
                }
                let mut burst = sender.burst(PATH, receiver.address(), 0);
                for payload in &payloads {
                    burst.push_encoded(b"header", &[*payload]).unwrap();
                }
                assert_eq!(burst.send(), Err(SendError::Fault { packet: bad }), "{name} gso {gso} {delayed}");
                assert_eq!(sender.counters().send_faults, 1);
                if gso && !delayed {
                    assert_eq!(drain(&mut receiver), Vec::<Vec<u8>>::new(), "{name}");
                }
                // The endpoint goes on.
                let mut sender = sender;
                sender.set_faults(FaultPlan::new(0, Faults::default()));
                send(&mut sender, receiver.address(), &packets(3, 600)).unwrap();
                let arrived = drain(&mut receiver);
                assert!(arrived.ends_with(&packets(3, 600)), "{name}: {}", arrived.len());
            }
        }
    }
}

fn pair_with(gso: bool) -> (Endpoint, Endpoint) {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let address = std::net::IpAddr::from([127, 0, 1, NEXT.fetch_add(1, Ordering::Relaxed)]);
    let options = Options { gso, slots: 1..=8, ..Options::default() };
    let open = || Endpoint::open(address, &options).unwrap();
    (open(), open())
}

#[test]
fn a_packet_beyond_the_mtu_is_too_big_and_the_device_is_not_blamed() {
    let (mut sender, receiver) = pair();
    // Loopback's MTU is 65,536 by default, beyond any datagram: ask for a route's limit by size instead.
    let largest = usize::from(
        srdma_net::route::payload_bytes_max("127.0.0.1".parse().unwrap(), "127.0.0.1".parse().unwrap())
            .unwrap(),
    );
    assert_eq!(largest, srdma_net::DATAGRAM_BYTES_MAX);
    let mut burst = sender.burst(PATH, receiver.address(), 0);
    let bytes = vec![1; largest + 1];
    let refused = burst.push_encoded(&[], &[RawSlice::from(&bytes[..])]);
    assert_eq!(refused, Err(srdma_net::PushError::TooLong));
    assert_eq!(sender.send_bytes(PATH, receiver.address(), 0, &bytes), Err(SendError::TooBig));
    assert!(sender.gso());
}

fn plan(seed: u64, fault: Fault) -> FaultPlan {
    FaultPlan::new(seed, Faults { packets: vec![fault], ..Faults::default() })
}

#[test]
fn a_plan_of_losses_loses_packets_or_whole_bursts() {
    for (whole_burst, seed) in [(false, 3), (true, 4)] {
        let (mut sender, mut receiver) = pair();
        let fault = Fault { chance_ppm: 200_000, whole_burst, ..Fault::always(FaultKind::Drop) };
        sender.set_faults(plan(seed, fault));
        let all = packets(10, 700);
        let (mut partial, mut lost) = (0, 0);
        for _ in 0..100 {
            send(&mut sender, receiver.address(), &all).unwrap();
            let arrived = collect(&mut receiver, 10, Duration::from_millis(2));
            assert!(arrived.iter().all(|packet| all.contains(packet)));
            partial += usize::from(!arrived.is_empty() && arrived.len() < 10);
            lost += 10 - arrived.len();
        }
        assert_eq!(lost as u64, sender.counters().fault_drops, "seed {seed}");
        assert!((100..320).contains(&lost), "seed {seed}: {lost}");
        assert_eq!(partial > 0, !whole_burst, "seed {seed}: {partial}");
    }
}

#[test]
fn duplicates_come_twice_and_corruption_flips_one_bit() {
    let (mut sender, mut receiver) = pair();
    let all = packets(4, 900);
    sender.set_faults(plan(1, Fault::always(FaultKind::Duplicate)));
    send(&mut sender, receiver.address(), &all).unwrap();
    let twice: Vec<_> = all.iter().flat_map(|packet| [packet.clone(), packet.clone()]).collect();
    assert!(collect(&mut receiver, 8, Duration::from_secs(1)) == twice);

    sender.set_faults(plan(2, Fault::always(FaultKind::Corrupt)));
    send(&mut sender, receiver.address(), &all).unwrap();
    let arrived = collect(&mut receiver, 4, Duration::from_secs(1));
    for (sent, got) in all.iter().zip(&arrived) {
        let flipped: u32 = sent.iter().zip(got).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!((sent.len(), flipped), (got.len(), 1));
    }
    assert_eq!(arrived.len(), 4);
    let counters = sender.counters();
    assert_eq!((counters.fault_duplicates, counters.fault_corruptions), (4, 4));
    assert!(all == packets(4, 900), "the program's memory is untouched");
}

#[test]
fn delayed_packets_leave_when_their_time_has_come_with_the_bytes_of_then() {
    let (mut sender, mut receiver) = pair();
    let span = srdma_seams::Duration(500);
    sender.set_faults(plan(1, Fault::always(FaultKind::Delay(span))));
    assert_eq!(sender.advance(Now(1000)), None);
    let mut all = packets(3, 300);
    send(&mut sender, receiver.address(), &all).unwrap();
    let then = all.clone();
    all.iter_mut().for_each(|packet| packet.fill(0xee));
    assert_eq!(sender.advance(Now(1499)), Some(Now(1500)));
    assert_eq!(drain(&mut receiver), Vec::<Vec<u8>>::new());
    assert_eq!(sender.advance(Now(1500)), None);
    assert!(collect(&mut receiver, 3, Duration::from_secs(1)) == then);
    assert_eq!(sender.counters().fault_delays, 3);
}

fn received(kind: FaultKind) -> Fault {
    Fault { direction: Direction::Receive, ..Fault::always(kind) }
}

#[test]
fn arrivals_are_lost_doubled_and_changed_by_the_plan_of_the_receiver() {
    let (mut sender, mut receiver) = pair();
    let all = packets(12, 700);
    receiver.set_faults(plan(1, Fault { chance_ppm: 500_000, ..received(FaultKind::Drop) }));
    send(&mut sender, receiver.address(), &all).unwrap();
    let some = drain(&mut receiver);
    assert!(some.len() < 12 && some.iter().all(|packet| all.contains(packet)), "{}", some.len());
    assert_eq!(receiver.counters().fault_drops, 12 - some.len() as u64);
    assert_eq!(receiver.counters().received_packets, 12, "the socket had them all");

    receiver.set_faults(plan(1, received(FaultKind::Duplicate)));
    send(&mut sender, receiver.address(), &all).unwrap();
    let twice: Vec<_> = all.iter().flat_map(|packet| [packet.clone(), packet.clone()]).collect();
    assert!(drain(&mut receiver) == twice);

    receiver.set_faults(plan(2, received(FaultKind::Corrupt)));
    send(&mut sender, receiver.address(), &all).unwrap();
    for (sent, got) in all.iter().zip(&drain(&mut receiver)) {
        let flipped: u32 = sent[..32].iter().zip(&got[..32]).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!((flipped, &sent[32..]), (1, &got[32..]));
    }
    receiver.set_faults(plan(3, Fault { direction: Direction::Send, ..received(FaultKind::Drop) }));
    send(&mut sender, receiver.address(), &all).unwrap();
    assert!(drain(&mut receiver) == all, "a plan about sends leaves arrivals alone");
}

#[test]
fn delayed_arrivals_come_when_their_time_has_come_also_more_than_a_batch_holds() {
    let (mut sender, mut receiver) = pair();
    receiver.set_faults(plan(1, received(FaultKind::Delay(srdma_seams::Duration(500)))));
    let all = packets(50, 300);
    assert_eq!(receiver.advance(Now(1000)), None);
    send(&mut sender, receiver.address(), &all).unwrap();
    assert_eq!(drain(&mut receiver), Vec::<Vec<u8>>::new());
    assert_eq!(receiver.advance(Now(1499)), Some(Now(1500)));
    assert_eq!(drain(&mut receiver), Vec::<Vec<u8>>::new());
    receiver.advance(Now(1500));
    assert!(collect(&mut receiver, 50, Duration::from_secs(1)) == all);
    assert_eq!(receiver.advance(Now(1500)), None);
    assert_eq!(receiver.counters().fault_delays, 50);
}

#[test]
fn a_clause_about_a_class_or_a_path_leaves_other_packets_alone() {
    let close = Packet::Close(Close { dest_qpn: Qpn(0x1_0002), connection: ConnectionId(77) });
    for (class, paths, lost) in [
        (Some(Class::Control), vec![], true),
        (Some(Class::Data), vec![], false),
        (None, vec![Paths { first: 5, last: 5, step: 1 }], true),
        (None, vec![Paths { first: 1, last: 255, step: 5 }], false),
    ] {
        let (mut sender, mut receiver) = pair();
        let fault = Fault { class, paths, ..Fault::always(FaultKind::Drop) };
        sender.set_faults(plan(1, fault.clone()));
        sender.send_control(PATH, receiver.address(), 0, &close, 0).unwrap();
        assert_eq!(drain(&mut receiver).is_empty(), lost, "{fault}");
    }
}

#[test]
fn what_the_kernel_drops_for_want_of_room_is_counted() {
    let options = Options { receive_buffer_bytes: 1 << 16, gro: false, ..options() };
    let mut receiver = Endpoint::open("127.0.0.78".parse().unwrap(), &options).unwrap();
    let mut sender = Endpoint::open("127.0.0.78".parse().unwrap(), &options).unwrap();
    let empty = receiver.free_bytes();
    assert!(empty > 0);
    for _ in 0..30 {
        send(&mut sender, receiver.address(), &packets(20, 1000)).unwrap();
    }
    assert!(receiver.free_bytes() < empty / 2);
    let arrived = drain(&mut receiver).len() as u64;
    // The count rides on the next packet that gets through.
    send(&mut sender, receiver.address(), &packets(1, 100)).unwrap();
    assert_eq!(drain(&mut receiver).len(), 1);
    let counters = receiver.counters();
    assert!(arrived < 600);
    assert_eq!(counters.kernel_drops, 600 - arrived);
    assert_eq!(receiver.free_bytes(), empty);
    assert_eq!(receiver.counters().kernel_drops, 600 - arrived, "the same drops are not counted twice");
}

#[test]
fn control_packets_are_encoded_and_padded_with_zeros() {
    let (mut sender, mut receiver) = pair();
    let packet = Packet::Close(Close { dest_qpn: Qpn(0x1_0002), connection: ConnectionId(77) });
    sender.send_control(PATH, receiver.address(), 0, &packet, 0).unwrap();
    sender.send_control(PATH, receiver.address(), 0, &packet, 1400).unwrap();
    let arrived = collect(&mut receiver, 2, Duration::from_secs(1));
    let bare = &arrived[0];
    assert_eq!(arrived[1].len(), 1400);
    assert_eq!(arrived[1][..bare.len()], bare[..]);
    assert!(arrived[1][bare.len()..].iter().all(|&byte| byte == 0));
    assert_eq!(srdma_wire::parse(bare).unwrap().0, packet);
}
