//! Looking at a device from outside while it works, and what watchers that behave badly can do: nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;
use srdma_abi::Opcode;
use srdma_client::Options;

use crate::ground::part::{alone, hear, part, say, this_test, Part};
use crate::ground::*;

/// A directory for sockets, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("srdma-watch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Place(path)
    }

    fn options(&self) -> Options {
        Options { watch: Some(self.0.clone()), ..options() }
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            std::fs::read_dir(&self.0).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Asks at `socket`; the lines of the answer.
fn ask(socket: &Path, request: &str) -> Vec<Value> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

/// The socket and the line of the device that has queue pair `qpn`.
fn find(place: &Place, qpn: u32) -> (PathBuf, Value) {
    for socket in place.sockets() {
        if let Some(line) = ask(&socket, "paths").into_iter().find(|line| line["qpn"] == qpn) {
            return (socket, line);
        }
    }
    panic!("nobody has queue pair {qpn:#x}");
}

fn written(pair: &Pair) -> impl Fn(u64) + '_ {
    let ((here, lkey), (there, rkey)) = (pair.a.host.region(1 << 20), pair.b.host.region(1 << 20));
    move |wr_id| {
        here.store(0, &pattern(1 << 20, wr_id));
        let request = entry(Opcode::Write, wr_id, &[sge(&here, 0, 1 << 20, lkey)]);
        assert_eq!(outcomes(&[pair.a.run(to_remote(request, there.address(), rkey))]), [done(wr_id)]);
        assert!(there.load(0, 1 << 20) == pattern(1 << 20, wr_id));
    }
}

#[test]
fn a_watcher_sees_peer_state_and_counters_that_move() {
    let place = Place::new("sees");
    let pair = Pair::with(&place.options());
    assert_eq!(place.sockets().len(), 2, "a socket for each device");
    let write = written(&pair);
    let qpn = pair.a.qp.number();
    let sum = |line: &Value| -> u64 {
        line["paths"].as_array().unwrap().iter().map(|path| path["bytes"].as_u64().unwrap()).sum()
    };
    let mut before = 0;
    for wr_id in 1..4 {
        write(wr_id);
        let (_, line) = find(&place, qpn);
        let bytes = line["bytes_sent"].as_u64().unwrap();
        assert!(bytes >= before + (1 << 20), "{line}");
        assert_eq!(sum(&line), bytes);
        assert_eq!((&line["state"], &line["live"]), (&"rts".into(), &true.into()));
        assert_eq!(line["peer_qpn"], pair.b.qp.number());
        assert!(line["peer"].as_str().unwrap().starts_with(&pair.b.host.address.to_string()), "{line}");
        assert!(line["now"]["window_bytes"].as_u64().unwrap() > 0, "{line}");
        before = bytes;
    }
    let (socket, _) = find(&place, qpn);
    let lines = ask(&socket, "");
    let (head, end) = (&lines[0], &lines[lines.len() - 1]);
    assert_eq!((&head["pid"], &end["end"]), (&std::process::id().into(), &true.into()));
    assert_eq!(head["device"]["address"], pair.a.host.address.to_string());
    assert!(head["socket"]["sent_bytes"].as_u64().unwrap() >= before && head["time_ns"].is_u64(), "{head}");
    assert_eq!(lines[1]["paths"], Value::Array(Vec::new()), "paths are told only to who asks");
    assert_ne!(ask(&socket, &format!("paths={qpn}"))[1]["paths"], Value::Array(Vec::new()));
}

#[test]
fn queue_pairs_that_are_gone_are_told_of_to_who_asks() {
    let place = Place::new("gone");
    let pair = Pair::with(&place.options());
    written(&pair)(1);
    let qpn = pair.a.qp.number();
    let (socket, line) = find(&place, qpn);
    drop(pair);
    let told = |request| ask(&socket, request).into_iter().find(|line| line["qpn"] == qpn);
    assert_eq!(told(""), None);
    let finished = told("finished paths").unwrap();
    assert_eq!((&finished["live"], &finished["bytes_sent"]), (&false.into(), &line["bytes_sent"]));
}

/// Many who connect and say nothing, ask and do not read, or say too much: all are dropped, and a good one is served.
#[test]
fn watchers_that_behave_badly_are_dropped_and_leave_nothing() {
    alone(this_test!(), || {
        let place = Place::new("bad");
        let pair = Pair::with(&place.options());
        let write = written(&pair);
        write(1);
        let (socket, _) = find(&place, pair.a.qp.number());
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        let connect = || UnixStream::connect(&socket).unwrap();
        let mut bad: Vec<UnixStream> = (0..8).map(|_| connect()).collect();
        for (number, stream) in bad.iter_mut().enumerate() {
            let words: &[u8] = match number % 4 {
                0 => b"",
                1 => b"paths finished\n",
                2 => b"paths",
                _ => &[b'x'; 4096],
            };
            let _ = stream.write_all(words);
        }
        write(2);
        assert_eq!(ask(&socket, "")[1]["qpn"], pair.a.qp.number(), "behind eight bad ones");
        write(3);
        for stream in &mut bad {
            let mut rest = Vec::new();
            // A reset is an end, too.
            let _ = stream.read_to_end(&mut rest);
        }
        drop(bad);
        for _ in 0..300 {
            drop(connect());
        }
        ask(&socket, "");
        // Paths that are used for the first time open sockets, too: at most 8 of either device.
        wait("descriptors to be closed", &[], || (descriptors() <= before + 16).then_some(()));
        write(4);
    });
}

/// A watcher that asks for more than any buffer holds, and does not read.
#[test]
fn a_reader_that_stands_still_holds_up_nobody() {
    let place = Place::new("still");
    let (a, b) = {
        let [a, b] = addresses();
        (Host::open(a, &place.options()), Host::open(b, &place.options()))
    };
    let pairs: Vec<Pair> = (0..100).map(|_| Pair::on(a, b)).collect();
    pairs.iter().for_each(|pair| written(pair)(1));
    let (socket, _) = find(&place, pairs[0].a.qp.number());
    let mut still = UnixStream::connect(&socket).unwrap();
    let size: libc::c_int = 4096;
    // SAFETY: an int that lives across the call.
    unsafe {
        let size_of = size_of_val(&size) as libc::socklen_t;
        libc::setsockopt(
            still.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const size).cast(),
            size_of,
        );
    }
    still.write_all(b"paths\n").unwrap();
    written(&pairs[1])(2);
    assert_eq!(ask(&socket, "paths").len(), 102, "device, 100 queue pairs, end");
    written(&pairs[2])(3);
    let mut rest = Vec::new();
    let _ = still.read_to_end(&mut rest);
    assert!(!rest.is_empty());
}

#[test]
fn another_user_gets_no_answer() {
    // SAFETY: no preconditions, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    alone(this_test!(), || {
        let place = Place::new("other");
        let pair = Pair::with(&place.options());
        let (socket, _) = find(&place, pair.a.qp.number());
        for (path, mode) in [(&place.0, 0o777), (&socket, 0o777)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let answer = |user: libc::uid_t| {
            // SAFETY: the child only connects, writes and reads; setresuid changes nobody else.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: no pointers; ends the child without running what belongs to the parent.
                unsafe {
                    libc::setresuid(user, user, user);
                    let mut stream = UnixStream::connect(&socket).unwrap();
                    let _ = stream.write_all(b"\n");
                    let mut byte = [0];
                    libc::_exit(stream.read(&mut byte).unwrap_or(0) as i32);
                }
            }
            let mut status = 0;
            // SAFETY: `status` is writable; the child is ours.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            libc::WEXITSTATUS(status)
        };
        assert_eq!((answer(0), answer(65_534)), (1, 0), "bytes read: by root, by nobody");
    });
}

#[test]
fn where_no_socket_can_be_made_the_device_works_all_the_same() {
    let place = Place::new("none");
    std::fs::write(&place.0, "a file").unwrap();
    let open = Place::new("open");
    std::fs::create_dir(&open.0).unwrap();
    std::fs::set_permissions(&open.0, std::fs::Permissions::from_mode(0o755)).unwrap();
    let long = Place::new(&"x".repeat(120));
    for directory in [&place.0, &open.0, &long.0, Path::new("/nowhere/at/all")] {
        let pair = Pair::with(&Options { watch: Some(directory.into()), ..options() });
        written(&pair)(1);
    }
    assert!(open.sockets().is_empty(), "others may look into that directory");
    let _ = std::fs::remove_file(&place.0);
}

/// The socket is the parent's alone: a child that outlives it does not keep a watcher waiting.
#[test]
fn a_child_inherits_no_socket_and_an_end_removes_it() {
    if let Some(words) = part() {
        let place = Place(PathBuf::from(&words[0]));
        let pair = Pair::with(&place.options());
        let (socket, _) = find(&place, pair.a.qp.number());
        let _waiting = UnixStream::connect(&socket).unwrap();
        ask(&socket, "");
        // SAFETY: the child only closes descriptors and sleeps.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no pointers.
            unsafe {
                libc::alarm(60);
                // Who waits for the parent's last word does not wait for the child.
                for fd in 0..3 {
                    libc::close(fd);
                }
                loop {
                    libc::pause();
                }
            }
        }
        say(child);
        hear();
        std::mem::forget(place);
        std::process::exit(0);
    }
    for dies in [true, false] {
        let place = Place::new("fork");
        let mut parent = Part::start(this_test!(), &place.0.display().to_string());
        let child: libc::pid_t = parent.hear().parse().unwrap();
        let sockets = place.sockets();
        assert_eq!(sockets.len(), 2);
        if dies {
            parent.kill();
            // The child lets go as the first thing that it does, which may be later than the parent's death.
            let nobody = || sockets.iter().all(|socket| UnixStream::connect(socket).is_err()).then_some(());
            wait("the end of all listening, the child's too", &[], nobody);
            assert_eq!(place.sockets(), sockets, "whoever looks for processes removes them");
        } else {
            parent.say("end");
            let (status, log) = parent.finish();
            assert!(status.success(), "{log}");
            assert!(place.sockets().is_empty(), "an orderly end removes its sockets");
        }
        // SAFETY: a child of our child, which only sleeps.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
}

/// No descriptor is free when a watcher comes: the thread does not spin over it, and answers later.
#[test]
fn a_watcher_waits_while_no_descriptor_is_free() {
    alone(this_test!(), || {
        let place = Place::new("full");
        let pair = Pair::with(&place.options());
        let write = written(&pair);
        write(1);
        let (socket, _) = find(&place, pair.a.qp.number());
        let mut stream = UnixStream::connect(&socket).unwrap();
        // Whatever is still open of the first question must go, or its number would be free.
        wait("watchers to be let go", &[], || (ask(&socket, "").len() == 3).then_some(()));
        let mut files = Vec::new();
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 4096 };
        // SAFETY: a rlimit that lives across the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        while let Ok(file) = std::fs::File::open("/dev/null") {
            files.push(file);
        }
        let another = files.pop().map(|file| (drop(file), UnixStream::connect(&socket).unwrap()).1);
        assert_idle();
        write(2);
        files.clear();
        drop(another);
        stream.write_all(b"\n").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("\"pid\""), "{answer}");
    });
}

/// No thread of this process spins: of half a second, little is spent.
fn assert_idle() {
    let cpu_us = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a timespec to write to.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
    };
    let before = cpu_us();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let spent_us = cpu_us() - before;
    assert!(spent_us < 100_000, "{spent_us} µs of CPU while nothing can be done");
}

/// A program that closes what is not its own and gets our numbers: nothing of it is written to or closed.
#[test]
fn a_socket_that_the_program_takes_away_is_given_up() {
    alone(this_test!(), || {
        let place = Place::new("taken");
        let pair = Pair::with(&place.options());
        let write = written(&pair);
        write(1);
        let (socket, _) = find(&place, pair.a.qp.number());
        let mut watcher = UnixStream::connect(&socket).unwrap();
        ask(&socket, "");
        // SAFETY: a name that ends in a zero byte; the result is checked.
        let file = unsafe { libc::memfd_create(c"the program's".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(file >= 0);
        let is_local = |fd: i32| {
            let (mut domain, mut length) = (0, size_of::<libc::c_int>() as libc::socklen_t);
            // SAFETY: an int and its length, writable across the call.
            let got = unsafe {
                let domain = (&raw mut domain).cast();
                libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, domain, &mut length)
            };
            got == 0 && domain == libc::AF_UNIX
        };
        let ours: Vec<i32> = (3..200).filter(|&fd| fd != watcher.as_raw_fd() && is_local(fd)).collect();
        assert!(ours.len() >= 3, "two listeners and a connection: {ours:?}");
        // SAFETY: takes numbers away from the device, as a careless program might.
        ours.iter().for_each(|&fd| assert_eq!(unsafe { libc::dup2(file, fd) }, fd));
        let _ = watcher.write_all(b"paths\n");
        write(2);
        assert_idle();
        assert!(UnixStream::connect(&socket).is_err());
        for fd in ours {
            let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
            assert!(path.to_string_lossy().contains("the program's"), "{fd} is {path:?}");
        }
        // SAFETY: ours, open.
        assert_eq!(unsafe { libc::lseek(file, 0, libc::SEEK_END) }, 0, "something was written");
    });
}
