//! Endpoints in a process of their own: limits, namespaces and death.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::IpAddr;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use srdma_net::{route, Endpoint, Options, RawSlice, ReceiveBatch, SendError};
use srdma_seams::PathId;

/// What a child says by its exit status.
const DONE: i32 = 0;
const FAILED: i32 = 1;
const NOT_HERE: i32 = 77;

/// One test at a time: a child inherits the sockets of whatever runs beside it, and keeps their ports.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` in a child that ends without cleaning up, as a killed one would; its status.
fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child is a copy with one thread, uses libc's allocator, which survives fork, and leaves
    // through `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let status = catch_unwind(AssertUnwindSafe(work)).unwrap_or(FAILED);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    assert_eq!(child, unsafe { libc::waitpid(child, &mut status, 0) });
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}

fn options(first: u8) -> Options {
    Options { slots: first..=first + 3, ..Options::default() }
}

fn count_arrivals(endpoint: &mut Endpoint, count: usize) -> usize {
    let mut batch = ReceiveBatch::new(8).unwrap();
    let (mut arrived, mut last) = (0, Instant::now());
    while arrived < count && last.elapsed() < Duration::from_secs(1) {
        let packets = endpoint.receive(&mut batch).unwrap();
        arrived += packets;
        if packets > 0 {
            last = Instant::now();
        }
    }
    arrived
}

#[test]
fn a_dead_process_frees_its_slot() {
    let _alone = alone();
    let address: IpAddr = "127.0.0.90".parse().unwrap();
    let status = in_child(|| {
        let endpoint = Endpoint::open(address, &options(1)).unwrap();
        let right = endpoint.slot().0 == 1;
        std::mem::forget(endpoint);
        if right {
            DONE
        } else {
            FAILED
        }
    });
    assert_eq!(status, DONE);
    assert_eq!(Endpoint::open(address, &options(1)).unwrap().slot().0, 1);
}

#[test]
fn paths_share_sockets_when_files_run_out() {
    let _alone = alone();
    let address: IpAddr = "127.0.0.91".parse().unwrap();
    let status = in_child(|| {
        let mut receiver = Endpoint::open(address, &options(5)).unwrap();
        let mut sender = Endpoint::open(address, &options(5)).unwrap();
        // SAFETY: duplicates a descriptor only to learn the lowest free number.
        let next = unsafe { libc::fcntl(1, libc::F_DUPFD, 3) };
        // SAFETY: closes the duplicate.
        unsafe { libc::close(next) };
        let limit = libc::rlimit { rlim_cur: next as libc::rlim_t + 8, rlim_max: next as libc::rlim_t + 8 };
        // SAFETY: sets a limit of this child.
        assert_eq!(0, unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) });
        for path in 0..128 {
            sender.send_bytes(PathId(path), receiver.address(), 0, b"on any path").unwrap();
        }
        assert_eq!(count_arrivals(&mut receiver, 128), 128);
        let counters = sender.counters();
        // Descriptors of other tests may lie in between.
        assert!((1..=8).contains(&counters.path_sockets), "{counters:?}");
        assert!(std::fs::File::open("/proc/self/stat").is_ok(), "the program still opens its files");
        assert_eq!(counters.path_sockets + counters.path_shared, 128);
        DONE
    });
    assert_eq!(status, DONE);
}

/// Moves this process into a network namespace of its own, whose loopback has this MTU; false where that is not allowed.
fn isolate(mtu_bytes: i32) -> bool {
    // SAFETY: no pointers; this process has one thread.
    let alone = unsafe {
        libc::unshare(libc::CLONE_NEWNET) == 0 || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) == 0
    };
    if !alone {
        return false;
    }
    // SAFETY: zero is a valid value of `ifreq`; the name stays terminated; the requests outlive the calls.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        request.ifr_ifru.ifru_mtu = mtu_bytes;
        let sized = libc::ioctl(socket, libc::SIOCSIFMTU as _, &request) == 0;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        let up = libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request) == 0;
        libc::close(socket);
        sized && up
    }
}

fn burst(sender: &mut Endpoint, to: &Endpoint, payload: &[u8], count: usize) -> Result<(), SendError> {
    let mut burst = sender.burst(PathId(1), to.address(), 0);
    for _ in 0..count {
        burst.push_encoded(&[], &[RawSlice::from(payload)]).unwrap();
    }
    burst.send()
}

#[test]
fn the_mtu_bounds_packets_not_bursts_and_the_device_is_not_blamed() {
    let _alone = alone();
    for address in ["127.0.0.1", "::1"] {
        let address: IpAddr = address.parse().unwrap();
        let status = in_child(|| {
            if !isolate(1500) {
                return NOT_HERE;
            }
            let mut receiver = Endpoint::open(address, &Options::default()).unwrap();
            let mut sender = Endpoint::open(address, &Options::default()).unwrap();
            assert_eq!((receiver.slot().0, sender.slot().0), (0, 1));
            let largest = usize::from(route::payload_bytes_max(address, address).unwrap());
            assert_eq!(largest, if address.is_ipv4() { 1472 } else { 1452 });
            let bytes = vec![9; largest + 1];
            for count in [1, 2, 40] {
                assert_eq!(burst(&mut sender, &receiver, &bytes, count), Err(SendError::TooBig), "{count}");
                assert!(sender.gso());
            }
            assert_eq!(count_arrivals(&mut receiver, 1), 0);
            burst(&mut sender, &receiver, &bytes[1..], 44).unwrap();
            assert_eq!(count_arrivals(&mut receiver, 44), 44);
            let counters = sender.counters();
            assert_eq!((counters.gso_messages, counters.send_too_big), (1, 3));
            assert_eq!(receiver.counters().received_datagrams, 1);
            DONE
        });
        assert!(status == DONE || status == NOT_HERE, "{address}: {status}");
        if status == NOT_HERE {
            eprintln!("not tested: this machine lets nobody make a network namespace");
        }
    }
}

#[test]
fn a_destination_without_a_route_is_refused_in_words() {
    let _alone = alone();
    let status = in_child(|| {
        if !isolate(1500) {
            return NOT_HERE;
        }
        let mut sender = Endpoint::open("127.0.0.1".parse().unwrap(), &Options::default()).unwrap();
        let nowhere = "192.0.2.1:4791".parse().unwrap();
        for _ in 0..3 {
            assert_eq!(sender.send_bytes(PathId(0), nowhere, 0, b"x"), Err(SendError::Unreachable));
        }
        let text = sender.last_refusal().unwrap();
        assert!(text.contains("127.0.0.1 to 192.0.2.1:4791") && text.contains("unreachable"), "{text}");
        assert_eq!(sender.counters().send_unreachable, 3);
        assert_eq!(route::source_for_default_route(false), None);
        DONE
    });
    assert!(status == DONE || status == NOT_HERE, "{status}");
}

#[test]
fn a_child_that_gives_its_sockets_up_does_not_keep_the_slot() {
    let _alone = alone();
    let address: IpAddr = "127.0.0.92".parse().unwrap();
    for gives_up in [true, false] {
        let mut endpoint = Endpoint::open(address, &options(9)).unwrap();
        let to = endpoint.address();
        endpoint.send_bytes(PathId(0), to, 0, b"opens a path").unwrap();
        let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        // SAFETY: as in `in_child`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            drop(ours);
            let works = catch_unwind(AssertUnwindSafe(|| {
                if gives_up {
                    endpoint.close_descriptors_in_child();
                    assert!(endpoint.send_bytes(PathId(0), to, 0, b"x").is_err());
                    assert!(endpoint.receive(&mut ReceiveBatch::new(1).unwrap()).is_err());
                }
                theirs.write_all(b"!").unwrap();
                // Lives on until the parent has looked.
                let _ = theirs.read(&mut [0]);
                drop(endpoint);
            }));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if works.is_ok() { DONE } else { FAILED }) };
        }
        drop(theirs);
        ours.read_exact(&mut [0]).unwrap();
        let counters = endpoint.counters();
        let mut batch = ReceiveBatch::new(1).unwrap();
        assert_eq!(endpoint.receive(&mut batch).unwrap(), 1, "the parent's sockets are untouched");
        assert_eq!(counters.path_sockets, 1);
        drop(endpoint);
        let again = Endpoint::open(address, &options(9)).unwrap();
        assert_eq!(again.slot().0, if gives_up { 9 } else { 10 });
        drop(ours);
        let mut status = -1;
        // SAFETY: waits for the child made above.
        assert_eq!(child, unsafe { libc::waitpid(child, &mut status, 0) });
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, DONE));
    }
}

#[test]
fn no_privilege_is_needed() {
    let _alone = alone();
    let address: IpAddr = "127.0.0.95".parse().unwrap();
    const NOBODY: libc::uid_t = 65_534;
    let status = in_child(|| {
        // SAFETY: changes the identity of this child. The result does not matter: who cannot change it has
        // no privilege to begin with.
        unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) };
        let mut receiver = Endpoint::open(address, &Options::default()).unwrap();
        let mut sender = Endpoint::open(address, &Options::default()).unwrap();
        sender.send_bytes(PathId(3), receiver.address(), 0, b"anybody").unwrap();
        assert_eq!(count_arrivals(&mut receiver, 1), 1);
        assert!(receiver.free_bytes() > 0);
        DONE
    });
    assert_eq!(status, DONE);
}
