//! Claims on ports, and processes that do nothing.

use std::net::UdpSocket;

use srdma_abi::{Opcode, QpInit, QpState};

use crate::ground::part::{alone, this_test};
use crate::ground::*;

#[test]
fn an_address_whose_slots_are_all_taken_is_one_clear_error() {
    let address = addresses()[0];
    let ports = std::iter::once(4791).chain(61_001..=61_255);
    let mut taken: Vec<UdpSocket> = ports.map(|port| UdpSocket::bind((address, port)).unwrap()).collect();
    let host = Host::open(address, &options());
    let cq = host.device.create_cq(4, None).unwrap();
    let init = QpInit { pd: host.pd, send_cq: cq.number(), recv_cq: cq.number(), ..QpInit::default() };
    let error = host.device.create_qp(&init).err().expect("no slot is free");
    assert_eq!(error.errno, libc::EADDRINUSE);
    for wanted in [&address.to_string()[..], "4791", "61255"] {
        assert!(error.text.contains(wanted), "{wanted} is missing in: {}", error.text);
    }
    assert_eq!(error.text.lines().count(), 1);
    // The one that comes free is used.
    let free = taken.remove(77).local_addr().unwrap().port();
    let qp = host.device.create_qp(&init).expect("a slot is free");
    assert_eq!(host.report()["device"]["port"], free);
    assert_eq!(qp.number() >> 16, u32::from(free - 61_000));
}

#[test]
fn nothing_is_claimed_and_no_thread_runs_before_the_first_queue_pair() {
    alone(this_test!(), || {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        let address = addresses()[0];
        let host = Host::open(address, &options());
        let (_memory, key) = host.region(4096);
        host.device.deregister(key).unwrap();
        host.device.create_cq(4, None).unwrap().destroy().unwrap();
        assert_eq!(threads(), before);
        drop(UdpSocket::bind((address, 4791)).expect("the port is free"));
        let _end = End::new(host, Shape::default());
        assert_eq!(threads(), before + 1);
        UdpSocket::bind((address, 4791)).expect_err("the port is taken");
    });
}

#[test]
fn two_processes_of_one_address_have_slots_of_their_own() {
    if part::part().is_some() {
        let address = part::hear().parse().unwrap();
        let host = Host::open(address, &options());
        let end = End::new(host, Shape::default());
        part::say(end.qp.number());
        let qpn = part::hear().parse().unwrap();
        end.connect(Name { address, qpn }, &attributes());
        end.post_recv(1, &[]);
        part::say("ready");
        assert_eq!(outcomes(&end.received(1)), [done(1)]);
        part::say("received");
        part::hear();
        return;
    }
    let address = addresses()[0];
    let host = Host::open(address, &options());
    let end = End::new(host, Shape::default());
    let mut peer = part::Part::start(this_test!(), "peer");
    peer.say(address);
    let qpn: u32 = peer.hear().parse().unwrap();
    assert_eq!((end.qp.number() >> 16, qpn >> 16), (0, 1));
    end.connect(Name { address, qpn }, &attributes());
    peer.say(end.qp.number());
    assert_eq!(peer.hear(), "ready");
    assert_eq!(outcomes(&[end.run(entry(Opcode::Send, 2, &[]))]), [done(2)]);
    assert_eq!(peer.hear(), "received");
}

/// Voluntary context switches of the device's threads, and clock ticks of CPU time of the process.
fn activity() -> (u64, u64) {
    let mut switches = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap();
        if name.trim() != "srdma" {
            continue;
        }
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        switches += line.split_whitespace().last().unwrap().parse::<u64>().unwrap();
    }
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // utime and stime of proc(5), counted from the state after the name.
    (switches, fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
}

#[test]
fn an_idle_process_wakes_for_nothing() {
    alone(this_test!(), || {
        let pair = Pair::new();
        let hosts = [pair.a.host, pair.b.host];
        let ((here, lkey), (there, rkey)) = (hosts[0].region(1 << 20), hosts[1].region(1 << 20));
        for wr_id in 0..50 {
            let opcode = if wr_id % 2 == 0 { Opcode::Write } else { Opcode::Read };
            let request = entry(opcode, wr_id, &[sge(&here, 0, 1 << 20, lkey)]);
            assert_eq!(outcomes(&[pair.a.run(to_remote(request, there.address(), rkey))]), [done(wr_id)]);
        }
        // Beside it: receives that wait, a queue pair in the error state, one whose peer never was.
        pair.b.post_recv(1, &[]);
        let failed_pair = Pair::on(hosts[0], hosts[1]);
        failed_pair.a.run(to_remote(entry(Opcode::Write, 1, &[sge(&here, 0, 8, lkey)]), 0, rkey));
        failed_pair.b.await_state(QpState::Err);
        let lonely = End::new(hosts[0], Shape::default());
        lonely.connect(Name { address: hosts[1].address, qpn: 0x20_0000 }, &attributes());

        // Whatever follows the last traffic is over; a refusal is repeated for five seconds.
        std::thread::sleep(std::time::Duration::from_secs(7));
        let (switches, ticks) = activity();
        std::thread::sleep(std::time::Duration::from_secs(1));
        let (switches_after, ticks_after) = activity();
        assert!(switches > 0, "the threads have never slept?");
        assert_eq!(switches_after - switches, 0, "wake-ups");
        assert_eq!(ticks_after - ticks, 0, "clock ticks of CPU time");
    });
}
