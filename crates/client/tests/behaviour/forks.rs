//! Children after fork: they have none of the parent's objects, and the parent does not notice them.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use srdma_abi::{Completion, Opcode, QpState};
use srdma_client::{devices, Device, PostError};

use crate::ground::part::{alone, hear, part, say, this_test, Part};
use crate::ground::*;

const PAGE: u64 = 4096;

/// Runs `body` in a child, and answers what it ended with: an exit code, or a signal above 1000.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    match fork() {
        0 => {
            // A child that hangs ends with SIGALRM.
            // SAFETY: no pointers.
            unsafe { libc::alarm(20) };
            let code = body();
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(code) }
        }
        child => reap(child),
    }
}

fn fork() -> libc::pid_t {
    // SAFETY: the child makes no use of what other threads may have locked, but for what is tested.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    child
}

fn reap(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is writable; the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    match libc::WIFEXITED(status) {
        true => libc::WEXITSTATUS(status),
        false => 1000 + libc::WTERMSIG(status),
    }
}

/// Number of the first of the child's checks that fails; 0 if none does.
fn misuse(pair: &Pair, rkey: u32) -> i32 {
    let a = &pair.a;
    let device = &a.host.device;
    let mut out = [Completion::default(); 1];
    let io = Some(libc::EIO);
    let init = a.qp.init();
    let info = || devices(Some([127, 0, 0, 1].into())).ok()?.into_iter().next();
    let checks: [&dyn Fn() -> bool; 12] = [
        &|| a.try_post(entry(Opcode::Send, 1, &[]), &[]) == Err(PostError::Gone),
        &|| a.try_post_recv(1, &[]) == Err(PostError::Gone),
        &|| a.qp.query().err().map(|e| e.errno) == io,
        &|| a.qp.modify(&attributes(), srdma_abi::QpMask::ACCESS_FLAGS).err().map(|e| e.errno) == io,
        &|| a.qp.destroy().err().map(|e| e.errno) == io,
        &|| device.alloc_pd().err().map(|e| e.errno) == io,
        &|| device.register(a.host.pd, 4096, 8, 4096, 0).err().map(|e| e.errno) == io,
        &|| device.deregister(rkey).err().map(|e| e.errno) == io,
        &|| device.create_cq(4, None).err().map(|e| e.errno) == io,
        &|| device.report().err().map(|e| e.errno) == io,
        &|| device.create_qp(&init).err().map(|e| e.errno) == io,
        &|| {
            let Some(info) = info() else { return false };
            Device::open(&info, &options(), -1).err().map(|e| e.errno) == io
        },
    ];
    if a.sends.poll(&mut out).is_some() {
        return 100;
    }
    a.recvs.arm(false);
    checks.iter().position(|check| !check()).map_or(0, |failed| failed as i32 + 1)
}

#[test]
fn a_child_gets_clean_errors_and_the_parent_goes_on() {
    alone(this_test!(), || {
        let pair = Pair::new();
        let ((here, lkey), (there, rkey)) = (pair.a.host.region(1 << 20), pair.b.host.region(1 << 20));
        let write = |wr_id| {
            here.store(0, &pattern(1 << 20, wr_id));
            let request = entry(Opcode::Write, wr_id, &[sge(&here, 0, 1 << 20, lkey)]);
            assert_eq!(outcomes(&[pair.a.run(to_remote(request, there.address(), rkey))]), [done(wr_id)]);
            assert!(there.load(0, 1 << 20) == pattern(1 << 20, wr_id));
        };
        write(1);
        assert_eq!(in_child(|| misuse(&pair, rkey)), 0, "number of the check that failed, or 1000 + signal");
        write(2);
        // Children at any moment: requests are on their way, and another thread holds locks half of the time.
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    pair.a.recvs.poll(&mut [Completion::default(); 1]);
                    drop((pair.a.qp.post_sends(), pair.a.qp.post_recvs()));
                }
            });
            for wr_id in 3..30 {
                let request = entry(Opcode::Write, wr_id, &[sge(&here, 0, 1 << 20, lkey)]);
                pair.a.post(to_remote(request, there.address(), rkey));
                assert_eq!(in_child(|| misuse(&pair, rkey)), 0, "in round {wr_id}");
                assert_eq!(outcomes(&pair.a.sent(1)), [done(wr_id)]);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!((pair.a.state(), pair.b.state()), (QpState::Rts, QpState::Rts));
    });
}

#[test]
fn a_child_may_write_beside_registered_memory() {
    alone(this_test!(), || {
        let pair = Pair::new();
        let (a, b) = (pair.a.host, pair.b.host);
        let (here, lkey) = a.region(PAGE);
        let there = Memory::new(PAGE);
        let half = PAGE / 2;
        let rkey = b.device.register(b.pd, there.address(), half, there.address(), ALL.0).unwrap();
        let write = |wr_id, value| {
            here.fill(value);
            let request = entry(Opcode::Write, wr_id, &[sge(&here, 0, half as u32, lkey)]);
            assert_eq!(outcomes(&[pair.a.run(to_remote(request, there.address(), rkey))]), [done(wr_id)]);
        };
        write(1, 5);
        let code = in_child(|| {
            there.store(half, &[6; 2048]);
            i32::from(there.load(0, half) != [5; 2048] || there.load(half, half) != [6; 2048])
        });
        assert_eq!(code, 0, "0 as hoped, 1 for wrong bytes, 1011 for a segmentation fault");
        // The parent's half is the parent's, and that is where remote bytes go.
        write(2, 7);
        assert_eq!((there.load(0, half), there.load(half, half)), (vec![7; 2048], vec![0; 2048]));
        // A child that lives on with a copy of the page does not take them either.
        let child = fork();
        if child == 0 {
            loop {
                // SAFETY: waits for the signal that ends it.
                unsafe { libc::pause() };
            }
        }
        write(3, 8);
        assert_eq!(there.load(0, half), [8; 2048]);
        // SAFETY: our child.
        unsafe { libc::kill(child, libc::SIGKILL) };
        assert_eq!(reap(child), 1000 + libc::SIGKILL);
    });
}

/// Sockets among the descriptors that a program started from here finds open.
fn inherited_sockets(mut command: Command) -> Vec<String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let sockets = own_sockets();
    assert!(!sockets.is_empty(), "the device has sockets");
    sockets.into_iter().filter(|socket| text.contains(socket)).collect()
}

fn own_sockets() -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    links
        .filter_map(|link| std::fs::read_link(link.ok()?.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .filter(|target| target.starts_with("socket:"))
        .collect()
}

#[test]
fn a_program_started_from_here_inherits_no_socket() {
    alone(this_test!(), || {
        let pair = Pair::new();
        let ((here, lkey), (there, rkey)) = (pair.a.host.region(PAGE), pair.b.host.region(PAGE));
        let write = to_remote(entry(Opcode::Write, 1, &[sge(&here, 0, 64, lkey)]), there.address(), rkey);
        assert_eq!(outcomes(&[pair.a.run(write)]), [done(1)]);
        let list = || {
            let mut list = Command::new("ls");
            list.args(["-l", "/proc/self/fd"]);
            list
        };
        assert_eq!(inherited_sockets(list()), [""; 0], "started without a fork of its own");
        let mut forked = list();
        // SAFETY: the hook does nothing; it makes the library fork and exec.
        unsafe { forked.pre_exec(|| Ok(())) };
        assert_eq!(inherited_sockets(forked), [""; 0], "started with fork and exec");
    });
}

/// A process that forks children under traffic, which outlive it.
fn parent_of_many(address: std::net::IpAddr) {
    let host = Host::open(address, &options());
    let pair = Pair::on(host, host);
    let ((here, lkey), (there, rkey)) = (host.region(1 << 20), host.region(1 << 20));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let request = entry(Opcode::Write, 1, &[sge(&here, 0, 1 << 20, lkey)]);
                pair.a.run(to_remote(request, there.address(), rkey));
            }
        });
        for _ in 0..20 {
            let child = fork();
            if child == 0 {
                // SAFETY: async-signal-safe calls only: lets go of what the test reads, and waits for its end.
                unsafe {
                    (0..3).for_each(|fd| {
                        libc::close(fd);
                    });
                    libc::alarm(60);
                    loop {
                        libc::pause();
                    }
                }
            }
            say(child);
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        stop.store(true, Ordering::Relaxed);
    });
    say(host.report()["device"]["port"].clone());
    hear();
}

#[test]
fn children_do_not_hold_the_slot_when_the_parent_is_gone() {
    if let Some(words) = part() {
        return parent_of_many(words[1].parse().unwrap());
    }
    let address = addresses()[0];
    let mut parent = Part::start(this_test!(), &format!("parent {address}"));
    let children: Vec<libc::pid_t> = (0..20).map(|_| parent.hear().parse().unwrap()).collect();
    assert_eq!(parent.hear(), "4791");
    std::net::UdpSocket::bind((address, 4791)).expect_err("the parent has it");
    parent.say("end");
    let (status, log) = parent.finish();
    let alive = children.iter().filter(|&&child| exists(child)).count();
    let bound = std::net::UdpSocket::bind((address, 4791));
    for child in children {
        // SAFETY: a child of the part, which waits for this.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    assert!(status.success(), "{status}\n{log}");
    assert_eq!(alive, 20, "the children live on");
    bound.expect("the slot is free");
}

/// Devices that one process opens, one after the other, while another of its threads forks.
const DEVICES: u8 = 60;

/// Opens devices and claims their slots while children come into being, which outlive it.
fn parent_that_opens(first: std::net::IpAddr) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..DEVICES {
                End::new(Host::open(nth(first, number), &options()), Shape::default());
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let child = fork();
            if child == 0 {
                // SAFETY: async-signal-safe calls only: lets go of what the test reads, and waits for its end.
                unsafe {
                    (0..3).for_each(|fd| {
                        libc::close(fd);
                    });
                    libc::alarm(60);
                    loop {
                        libc::pause();
                    }
                }
            }
            say(child);
        }
    });
    say("opened");
}

fn nth(first: std::net::IpAddr, number: u8) -> std::net::IpAddr {
    let std::net::IpAddr::V4(v4) = first else { panic!("{first}") };
    let [a, b, c, _] = v4.octets();
    [a, b, c, 3 + number].into()
}

#[test]
fn a_child_made_while_a_device_is_opened_does_not_hold_its_slot() {
    if let Some(words) = part() {
        return parent_that_opens(words[1].parse().unwrap());
    }
    let first = addresses()[0];
    let mut parent = Part::start(this_test!(), &format!("parent {first}"));
    let mut children: Vec<libc::pid_t> = Vec::new();
    while let Ok(child) = parent.hear().parse() {
        children.push(child);
    }
    let (status, log) = parent.finish();
    let bound: Vec<_> =
        (0..DEVICES).map(|number| std::net::UdpSocket::bind((nth(first, number), 4791))).collect();
    for &child in &children {
        // SAFETY: a child of the part, which waits for this.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    assert!(status.success(), "{status}\n{log}");
    assert!(children.len() > 1, "no child came into being");
    let held: Vec<usize> = (0..bound.len()).filter(|&number| bound[number].is_err()).collect();
    assert_eq!(held, [0; 0], "slots that {} children hold", children.len());
}

fn exists(process: libc::pid_t) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(process, 0) == 0 }
}
