#![allow(clippy::unwrap_used)]
//! A device whose own code fails, and doorbells that ring while a control call has the lock.

use std::io::Read;
use std::os::fd::FromRawFd;

use srdma_abi::{Completion, Opcode, RecvEntry, SendEntry, SendFlags};
use srdma_ring::{units_for, CompletionConsumer, Layout, RingMemory, WorkProducer};
use srdma_seams::fault::{Faults, Window};
use srdma_seams::{Duration, PathId, Slot};
use srdma_wire::{Echo, Packet};

use super::*;
use srdma_abi::QpState;

/// A queue pair in INIT or further, with the program's ends of its rings.
struct Program {
    device: Arc<Device>,
    qpn: Qpn,
    completions: CompletionConsumer,
    send: WorkProducer,
    recv: WorkProducer,
    events: std::fs::File,
    /// Last byte of the address that it is connected to.
    peer: u8,
}

fn rings<T>(units: u32, device: impl Fn(RingMemory) -> T) -> (RingMemory, T) {
    let memory = RingMemory::heap(Layout::new(units).unwrap()).unwrap();
    (memory.clone(), device(memory))
}

fn to_rtr() -> QpMask {
    QpMask::STATE
        .with(QpMask::AV)
        .with(QpMask::PATH_MTU)
        .with(QpMask::DEST_QPN)
        .with(QpMask::RQ_PSN)
        .with(QpMask::MAX_DEST_RD_ATOMIC)
        .with(QpMask::MIN_RNR_TIMER)
}

fn program(host: u8) -> Program {
    program_with(host, Options { paths: 4, ..Options::default() })
}

fn program_with(host: u8, options: Options) -> Program {
    let address = IpAddr::from([127, 9, std::process::id() as u8, host]);
    let device = Device::new(address, options).unwrap();
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors; the read end is owned by the file, the write end lives as long as the test.
    let events = unsafe {
        assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK), 0);
        std::fs::File::from_raw_fd(pipe[0])
    };
    device.opened(pipe[1]);
    let pd = device.alloc_pd().unwrap();
    let (memory, producer) = rings(64, CompletionProducer::new);
    let cq = device.create_cq(producer, None, pipe[1]).unwrap();
    let init = QpInit {
        pd,
        send_cq: cq.0,
        recv_cq: cq.0,
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
        sq_sig_all: true,
    };
    let units = units_for(16, 2).unwrap();
    let ((send, send_end), (recv, recv_end)) =
        (rings(units, WorkConsumer::new), rings(units, WorkConsumer::new));
    let qpn = device.create_qp(&init, send_end, recv_end, pipe[1]).unwrap();
    Program {
        device,
        qpn,
        completions: CompletionConsumer::new(memory),
        send: WorkProducer::new(send),
        recv: WorkProducer::new(recv),
        events,
        peer: 99,
    }
}

impl Program {
    fn modify(&self, state: QpState, mask: u32) {
        let attributes = QpAttributes {
            state,
            port: 1,
            path_mtu: 5,
            dest_gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, self.peer],
            has_gid: true,
            dest_qpn: 0x1234,
            ..QpAttributes::default()
        };
        self.device.modify_qp(self.qpn, &attributes, QpMask(mask | QpMask::STATE.0)).unwrap();
    }

    fn to_rts(&self) {
        self.modify(QpState::Init, QpMask::PKEY_INDEX.with(QpMask::PORT).with(QpMask::ACCESS_FLAGS).0);
        self.modify(QpState::Rtr, to_rtr().0);
        let to_rts = QpMask::SQ_PSN
            .with(QpMask::TIMEOUT)
            .with(QpMask::RETRY_CNT)
            .with(QpMask::RNR_RETRY)
            .with(QpMask::MAX_QP_RD_ATOMIC);
        self.modify(QpState::Rts, to_rts.0);
    }

    fn post_send(&mut self, wr_id: u64) {
        let entry =
            SendEntry { opcode: Opcode::Send, flags: SendFlags::SIGNALED, wr_id, ..SendEntry::default() };
        assert!(self.send.push_send(&entry, &[]) && self.send.publish());
    }

    fn completed(&mut self) -> Vec<(u64, Option<Cause>)> {
        let mut found = [Completion::default(); 16];
        let count = self.completions.pop(&mut found);
        found[..count].iter().map(|c| (c.wr_id, Cause::from_code(c.vendor_err))).collect()
    }
}

#[test]
fn a_fault_of_ours_flushes_what_was_posted_and_tells_the_program() {
    let mut program = program(1);
    program.to_rts();
    program.post_send(7);
    assert!(
        program.recv.push_recv(&RecvEntry { wr_id: 8, ..RecvEntry::default() }) && program.recv.publish()
    );
    program.device.ring_send(program.qpn);
    assert_eq!(program.completed(), [], "nobody answers at that address");

    program.device.guard(|_| panic!("planted"));

    assert_eq!(program.completed(), [(7, Some(Cause::Internal)), (8, Some(Cause::Flushed))]);
    let mut records = Vec::new();
    let mut record = [0; 8];
    while program.events.read_exact(&mut record).is_ok() {
        records.push(u32::from_ne_bytes(record[..4].try_into().unwrap()));
    }
    assert_eq!(records, [AsyncKind::QpFatal as u32, AsyncKind::DeviceFatal as u32]);
    assert!(program.device.is_over() && !program.device.is_gone());
    assert!(matches!(program.device.alloc_pd(), Err(DeviceError::Gone)));
}

/// Whoever has begun to post when the device fails may finish after everything was flushed.
#[test]
fn what_is_posted_while_the_device_fails_is_flushed_too() {
    let mut program = program(6);
    program.to_rts();
    program.device.guard(|_| panic!("planted"));
    assert_eq!(program.completed(), []);
    program.post_send(1);
    program.device.ring_send(program.qpn);
    assert_eq!(program.completed(), [(1, Some(Cause::Flushed))]);
    let recv = RecvEntry { wr_id: 2, ..RecvEntry::default() };
    assert!(program.recv.push_recv(&recv) && program.recv.publish());
    program.device.ring_recv(program.qpn);
    assert_eq!(program.completed(), [(2, Some(Cause::Flushed))]);
    // While somebody else has the lock, he flushes it: here, whoever posts next.
    program.post_send(3);
    let worker = program.device.shared.lock();
    program.device.ring_send(program.qpn);
    drop(worker);
    program.device.ring_recv(program.qpn);
    assert_eq!(program.completed(), [(3, Some(Cause::Flushed))]);
}

/// The same from another thread, at any moment.
#[test]
fn a_post_that_races_with_the_failure_of_the_device_completes() {
    for round in 0..40 {
        let mut program = program(100 + round);
        program.to_rts();
        let device = Arc::clone(&program.device);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_micros(u64::from(round) * 7));
                device.guard(|_| panic!("planted"));
            });
            for wr_id in 0..12 {
                program.post_send(wr_id);
                program.device.ring_send(program.qpn);
            }
        });
        let mut completed = program.completed();
        completed.sort_unstable_by_key(|(wr_id, _)| *wr_id);
        let all: Vec<u64> = completed.iter().map(|(wr_id, _)| *wr_id).collect();
        assert_eq!(all, (0..12).collect::<Vec<u64>>(), "round {round}");
    }
}

#[test]
fn a_fault_of_ours_in_a_control_call_is_its_error_and_the_end_of_the_device() {
    let program = program(2);
    let result = program.device.control::<()>(|_| panic!("planted"));
    assert!(matches!(result, Err(DeviceError::Gone)));
    assert!(program.device.is_over());
}

/// Nobody polls and no packet comes: what was posted while a control call had the lock must be taken all the same.
#[test]
fn a_doorbell_rung_during_a_control_call_is_answered() {
    let mut program = program(3);
    program.to_rts();
    // To the error state: the only sends that complete without a peer are flushed ones.
    program.modify(QpState::Err, 0);
    let device = Arc::clone(&program.device);
    for wr_id in 0..50 {
        program.post_send(wr_id);
        // The thread sleeps before the call takes the lock, or the bell would be found by its last look.
        std::thread::sleep(std::time::Duration::from_millis(2));
        device
            .control(|_| {
                let poster = Arc::clone(&program.device);
                let qpn = program.qpn;
                std::thread::spawn(move || poster.ring_send(qpn)).join().unwrap();
                Ok(())
            })
            .unwrap();
        let begun = std::time::Instant::now();
        let completed = loop {
            let completed = program.completed();
            if !completed.is_empty() || begun.elapsed() > std::time::Duration::from_secs(10) {
                break completed;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        assert_eq!(completed, [(wr_id, Some(Cause::Flushed))]);
    }
}

#[test]
fn a_peer_that_no_route_leads_to_is_refused_when_it_is_named() {
    let program = program(5);
    let mut attributes = QpAttributes {
        state: QpState::Rtr,
        path_mtu: 5,
        // A documentation address (RFC 5737): nothing leads there from a loopback address.
        dest_gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 9],
        has_gid: true,
        dest_qpn: 0x1234,
        ..QpAttributes::default()
    };
    program.modify(QpState::Init, QpMask::PKEY_INDEX.with(QpMask::PORT).with(QpMask::ACCESS_FLAGS).0);
    let error = program.device.modify_qp(program.qpn, &attributes, to_rtr()).unwrap_err();
    assert!(matches!(error, DeviceError::NoRoute { .. }) && error.errno() > 0, "{error:?}");
    let local = program.device.address().to_string();
    assert!(error.to_string().contains("203.0.113.9") && error.to_string().contains(&local), "{error}");
    assert_eq!(program.device.query_qp(program.qpn).unwrap().state, QpState::Init, "nothing has changed");
    attributes.dest_gid[12..].copy_from_slice(&[127, 0, 0, 99]);
    program.device.modify_qp(program.qpn, &attributes, to_rtr()).unwrap();
}

/// What falls due while the thread is on its way to bed wakes it.
#[test]
fn work_made_after_the_last_look_at_the_deadline_kicks() {
    let device = Device::new(IpAddr::from([127, 0, 0, 1]), Options::default()).unwrap();
    let shared = &device.shared;
    assert_eq!(shared.lie_down(), (None, None), "nothing is claimed, no thread runs");
    let mut worker = shared.lock();
    worker.more = true;
    shared.let_go(worker);
    let mut kicked = libc::pollfd { fd: shared.pillow.fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd that lives across the call.
    assert_eq!(unsafe { libc::poll(&mut kicked, 1, 0) }, 1);
}

/// A program that blocks a signal on all its own threads must not get it on ours.
#[test]
fn no_signal_of_the_program_is_handled_on_our_thread() {
    let _program = program(4);
    let begun = std::time::Instant::now();
    loop {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            if read("comm").trim() != "srdma" {
                continue;
            }
            let status = read("status");
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
            let blocked = u64::from_str_radix(blocked, 16).unwrap();
            for signal in [libc::SIGALRM, libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGUSR1] {
                assert_ne!(blocked >> (signal - 1) & 1, 0, "signal {signal} of mask {blocked:#x}");
            }
            assert_eq!(blocked >> (libc::SIGSEGV - 1) & 1, 0, "our own faults are not hidden");
            return;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "the thread never came");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A plan of faults has the device stand still while control calls have it speak to its peer: nothing leaves, nothing is
/// answered, and what was to be said is said afterwards, if there is an afterwards.
#[test]
fn a_device_that_stands_still_says_nothing_and_hears_nothing() {
    for (host, endless) in [(7, true), (8, false)] {
        let peer = std::net::UdpSocket::bind((format!("127.0.0.{}", 90 + host), Slot(0).port())).unwrap();
        let from = clock::now();
        let thaw = Duration::from_millis(500);
        let until = if endless { Duration::MAX } else { thaw };
        let freezes = vec![Window::once(Duration::ZERO, until)];
        let faults = Faults { freezes, ..Faults::default() };
        let mut program = program_with(host, Options { paths: 4, faults, ..Options::default() });
        program.peer = 90 + host;
        program.to_rts();
        program.post_send(1);
        program.device.ring_send(program.qpn);
        let echo = Packet::Echo(Echo {
            nonce: 1,
            sequence: 1,
            path: PathId(0),
            reply: false,
            version: srdma_wire::VERSION,
            observed_ttl: 0,
            observed_address: [0; 16],
            observed_port: 0,
            probe_bytes: 56,
        });
        let mut bytes = vec![0; 1 << 16];
        let length = srdma_wire::emit(&echo, &mut bytes).unwrap();
        peer.send_to(&bytes[..length], (program.device.address(), Slot(0).port())).unwrap();
        // What would be repeated or answered is due by then.
        std::thread::sleep(std::time::Duration::from_millis(100));
        program.device.poll();
        if endless {
            program.device.destroy_qp(program.qpn).unwrap();
        }
        peer.set_nonblocking(true).unwrap();
        let heard = peer.recv(&mut bytes).map_err(|error| error.kind());
        if endless || clock::now() < from + thaw {
            assert_eq!(heard, Err(std::io::ErrorKind::WouldBlock), "while it stood still");
        }
        if !endless {
            peer.set_nonblocking(false).unwrap();
            peer.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
            let mut kinds = Vec::new();
            while kinds.len() < 2 {
                let length = peer.recv(&mut bytes).unwrap();
                let (packet, _) = srdma_wire::parse(&bytes[..length]).unwrap();
                let kind = match packet {
                    Packet::Hello(_) => "hello",
                    Packet::Echo(_) => "echo",
                    other => panic!("{other:?}"),
                };
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
        }
    }
}
