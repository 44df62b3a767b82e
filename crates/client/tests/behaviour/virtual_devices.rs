//! Devices behind the socket of a daemon: the same programs, and whoever means harm.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use srdma_abi::command::{Name, *};
use srdma_abi::{Cause, Completion, Opcode, QpInit, QpState};
use srdma_client::CqEvents;
use srdma_doors::socket::client::Talk;
use srdma_doors::socket::server::{Server, CONTROL};
use srdma_doors::socket::DialError;
use srdma_ring::memory::ALIGNMENT;
use srdma_seams::Rng;

use crate::ground::*;
use crate::operations::Stage;

/// A daemon on a thread of its own.
struct Daemon {
    directory: PathBuf,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    fn start(address: IpAddr) -> Daemon {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("srdma-vdev-{}-{number}", std::process::id()));
        // SAFETY: no pointers; the result is checked before it is owned.
        let stop = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        assert!(stop >= 0);
        // SAFETY: fresh, and nobody else's.
        let stop = unsafe { OwnedFd::from_raw_fd(stop) };
        let mut server = Server::open(address, &directory, options(), None).expect("the daemon starts");
        let until = stop.try_clone().unwrap();
        let thread = std::thread::spawn(move || server.run(until.as_fd()).expect("it serves"));
        Daemon { directory, stop, thread: Some(thread) }
    }

    fn talk(&self) -> Talk {
        Talk::dial(&self.directory.join(CONTROL)).expect("the daemon listens")
    }

    /// Defines a device and has it offered; its socket.
    fn device(&self, name: &str, tenant: &str, quota: Quota) -> PathBuf {
        let (name, tenant) = (Name::new(name).unwrap(), Name::new(tenant).unwrap());
        let mut talk = self.talk();
        talk.ask(Define(DefineDevice { name, tenant, quota, owner: NO_OWNER, reserved: 0 }))
            .expect("defined");
        let (exposed, _) = talk.ask(Expose(DeviceNamed { name })).expect("exposed");
        let path = exposed.path.0;
        let end = path.iter().position(|&byte| byte == 0).unwrap();
        PathBuf::from(std::str::from_utf8(&path[..end]).unwrap())
    }

    fn used(&self, name: &str) -> Quota {
        let name = Name::new(name).unwrap();
        self.talk().ask(Show(DeviceNamed { name })).expect("shown").0.used
    }

    fn end(&mut self) {
        let one = 1u64;
        // SAFETY: eight readable bytes.
        unsafe { libc::write(self.stop.as_raw_fd(), (&raw const one).cast(), 8) };
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the daemon has not panicked");
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn plain(daemon: &Daemon, name: &str, tenant: &str) -> &'static Host {
    Host::behind(&daemon.device(name, tenant, Quota::default()))
}

#[test]
fn every_operation_between_devices_of_two_daemons() {
    let daemons = addresses().map(Daemon::start);
    let [a, b] = [&daemons[0], &daemons[1]].map(|daemon| plain(daemon, "a", "t"));
    let pair = Pair::on(a, b);
    Stage::new(&pair.a, &pair.b).run_all();
    Stage::new(&pair.b, &pair.a).run_all();
}

#[test]
fn every_operation_between_a_virtual_device_and_one_in_a_process() {
    let [address, other] = addresses();
    let daemon = Daemon::start(address);
    let pair = Pair::on(plain(&daemon, "a", "t"), Host::open(other, &options()));
    Stage::new(&pair.a, &pair.b).run_all();
    Stage::new(&pair.b, &pair.a).run_all();
}

/// Tenants may agree to connect; no key of one is worth anything on a queue pair of the other.
#[test]
fn a_key_of_another_tenant_is_refused_on_the_same_rnic() {
    let daemon = Daemon::start(addresses()[0]);
    let [ours, theirs] = [("a", "t"), ("b", "u")].map(|(name, tenant)| plain(&daemon, name, tenant));
    for (opcode, cause) in [(Opcode::Write, Cause::RemoteKey), (Opcode::Read, Cause::RemoteKey)] {
        let pair = Pair::on(ours, ours);
        let (here, lkey) = ours.region(4096);
        let (victim, rkey) = theirs.region(4096);
        victim.fill(7);
        pair.a.post(to_remote(entry(opcode, 1, &[sge(&here, 0, 64, lkey)]), victim.address(), rkey));
        assert_eq!(outcomes(&pair.a.sent(1)), [failed(1, cause)]);
        assert!(victim.load(0, 4096).iter().all(|&byte| byte == 7));
        assert!(here.load(0, 4096).iter().all(|&byte| byte == 0));
        // And as a local key.
        let pair = Pair::on(ours, ours);
        pair.a.post(to_remote(entry(Opcode::Write, 2, &[sge(&victim, 0, 64, rkey)]), here.address(), lkey));
        assert_eq!(outcomes(&pair.a.sent(1)), [failed(2, Cause::LocalKey)]);
    }
}

#[test]
fn what_is_no_longer_there_ends_as_an_error_on_both_sides() {
    let daemons = addresses().map(Daemon::start);
    let [a, b] = [&daemons[0], &daemons[1]].map(|daemon| plain(daemon, "a", "t"));
    for (whose, cause) in [("theirs", Cause::RemoteFault), ("ours", Cause::LocalFault)] {
        let pair = Pair::on(a, b);
        let ((here, lkey), (there, rkey)) = (a.region(1 << 20), b.region(1 << 20));
        let gone = if whose == "theirs" { &there } else { &here };
        let request = |wr_id| {
            to_remote(entry(Opcode::Write, wr_id, &[sge(&here, 0, 1 << 20, lkey)]), there.address(), rkey)
        };
        assert_eq!(outcomes(&[pair.a.run(request(1))]), [done(1)]);
        gone.unmap();
        assert_eq!(outcomes(&[pair.a.run(request(2))]), [failed(2, cause)], "{whose}");
    }
}

#[test]
fn an_armed_queue_wakes_its_program_once() {
    let daemons = addresses().map(Daemon::start);
    let [a, b] = [&daemons[0], &daemons[1]].map(|daemon| plain(daemon, "a", "t"));
    let (number, reading) = b.device.create_channel().unwrap().expect("the daemon makes it");
    let events = CqEvents { fd: number, cookie: 77 };
    let shape = Shape { events: [None, Some(events)], ..Shape::default() };
    let pair = Pair::shaped(a, b, [Shape::default(), shape], [attributes(); 2]);
    let ready = |timeout_ms| {
        let mut fd = libc::pollfd { fd: reading.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        unsafe { libc::poll(&mut fd, 1, timeout_ms) == 1 }
    };
    let take = || {
        let mut record = [0u8; 8];
        // SAFETY: eight writable bytes.
        assert_eq!(unsafe { libc::read(reading.as_raw_fd(), record.as_mut_ptr().cast(), 8) }, 8);
        assert_eq!(u64::from_ne_bytes(record), 77);
    };
    for round in 0..3 {
        pair.b.recvs.arm(false);
        assert!(!ready(30), "nothing has come");
        pair.b.post_recv(round, &[]);
        assert_eq!(outcomes(&[pair.a.run(entry(Opcode::Send, round, &[]))]), [done(round)]);
        assert!(ready(20_000));
        take();
        // Armed too late: what it asks for is there already.
        pair.b.post_recv(round, &[]);
        pair.a.run(entry(Opcode::Send, round, &[]));
        pair.b.recvs.arm(false);
        assert!(ready(20_000));
        take();
        assert_eq!(pair.b.received(2).len(), 2);
        assert!(!ready(30));
    }
}

#[test]
fn a_daemon_that_ends_is_noticed_wherever_a_program_waits() {
    let mut daemons = addresses().map(Daemon::start);
    let [a, b] = [&daemons[0], &daemons[1]].map(|daemon| plain(daemon, "a", "t"));
    let pair = Pair::on(a, b);
    daemons[0].end();
    let mut out = [Completion::default(); 1];
    wait("the end of polling", &[], || pair.a.sends.poll(&mut out).is_none().then_some(()));
    assert!(a.device.alloc_pd().is_err());
    assert!(pair.a.try_post(entry(Opcode::Send, 1, &[]), &[]).is_err());
    // The other side has been told goodbye.
    pair.b.post(entry(Opcode::Send, 1, &[]));
    assert_eq!(outcomes(&pair.b.sent(1)), [failed(1, Cause::PeerClosed)]);
}

#[test]
fn what_a_program_leaves_is_gone_at_once() {
    let daemon = Daemon::start(addresses()[0]);
    let path = daemon.device("a", "t", Quota::default());
    for _ in 0..3 {
        let device = srdma_doors::socket::Device::attach(&path).unwrap();
        let pd = device.alloc_pd().unwrap();
        let (cq, _ring, _) = device.create_cq(16, None).unwrap();
        let init = QpInit { pd, send_cq: cq, recv_cq: cq, max_send_wr: 4, ..QpInit::default() };
        device.create_qp(&init).unwrap();
        device.register(pd, 4096, 4096, 4096, 15).unwrap();
        assert_eq!(daemon.used("a").qps, 1);
        drop(device);
        wait("what it had is gone", &[], || (daemon.used("a") == Quota::default()).then_some(()));
    }
}

#[test]
fn quotas_are_told_in_words() {
    let daemon = Daemon::start(addresses()[0]);
    let path = daemon.device("a", "t", Quota { pds: 1, sessions: 1, ..Quota::default() });
    let device = srdma_doors::socket::Device::attach(&path).unwrap();
    device.alloc_pd().unwrap();
    let Err(DialError::Refused { errno, text }) = device.alloc_pd() else { panic!("two domains") };
    assert_eq!((errno, text.as_str()), (libc::ENOMEM, "device a: 1 of 1 protection domains are in use"));
    let Err(DialError::Refused { text, .. }) = srdma_doors::socket::Device::attach(&path) else {
        panic!("two programs")
    };
    assert_eq!(text, "device a: 1 of 1 attached programs are in use");
}

/// Maps memory that came beside an answer.
fn mapped(memory: &OwnedFd) -> (*mut u64, usize) {
    // SAFETY: all zeros is a valid stat.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `found` outlives the call; the mapping is new and never unmapped.
    unsafe {
        assert_eq!(libc::fstat(memory.as_raw_fd(), &mut found), 0);
        let (bytes, both) = (found.st_size as usize, libc::PROT_READ | libc::PROT_WRITE);
        let at = libc::mmap(std::ptr::null_mut(), bytes, both, libc::MAP_SHARED, memory.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        (at.cast(), bytes / 8)
    }
}

/// Rubbish in the doorbell page, in rings, and on the socket, while a neighbour works.
#[test]
fn rubbish_in_shared_memory_and_on_the_socket_harms_nobody_else() {
    let daemons = addresses().map(Daemon::start);
    let [a, b] = [&daemons[0], &daemons[1]].map(|daemon| plain(daemon, "a", "t"));
    let pair = Pair::on(a, b);
    let path = daemons[0].device("evil", "u", Quota::default());
    for seed in 0..20u64 {
        let mut rng = Rng::stream(seed, "vdev-rubbish", 0);
        let mut talk = Talk::dial(&path).unwrap();
        let (_, page) = talk.ask(AskAttach::default()).unwrap();
        let pd = talk.ask(AskPd::default()).unwrap().0.number;
        let (cq, cq_memory) =
            talk.ask(AskCq(CreateCq { entries: 16, channel: NO_CHANNEL, cookie: 0 })).unwrap();
        let mut areas = vec![mapped(&page[0]), mapped(&cq_memory[0])];
        for _ in 0..3 {
            let init =
                QpInit { pd, send_cq: cq.number, recv_cq: cq.number, max_send_wr: 8, ..QpInit::default() };
            let (made, memory) = talk.ask(AskQp((&init).into())).unwrap();
            assert_eq!(made.recv_offset as usize % ALIGNMENT, 0);
            areas.push(mapped(&memory[0]));
            let state = [QpState::Init, QpState::Err][rng.below(2) as usize];
            let mask = if state == QpState::Err { 1 } else { 1 | 1 << 3 | 1 << 4 | 1 << 5 };
            let attributes = (&srdma_abi::QpAttributes { state, ..attributes() }).into();
            talk.ask(ChangeQp(ModifyQp { number: made.number, mask, attributes })).unwrap();
        }
        for _ in 0..2_000 {
            let (start, words) = areas[rng.below(areas.len() as u64) as usize];
            let value = if rng.chance_ppm(500_000) { rng.next_u64() } else { rng.below(64) };
            // SAFETY: within the mapping; the daemon expects anything there at any time.
            unsafe { start.add(rng.below(words as u64) as usize).write_volatile(value) };
            // SAFETY: eight readable bytes.
            unsafe { libc::write(page[1].as_raw_fd(), (&raw const value).cast(), 8) };
        }
        let stage = Stage::new(&pair.a, &pair.b);
        stage.run_atomics();
        match rng.below(3) {
            0 => drop(talk),
            1 => assert!(matches!(
                talk.ask(EndQp(Number { number: 7, reserved: 0 })),
                Err(DialError::Refused { .. })
            )),
            _ => {}
        }
    }
    wait("it is cleaned up", &[], || (daemons[0].used("evil") == Quota::default()).then_some(()));
}

/// What a killed daemon leaves is no obstacle; what a living one holds is.
#[test]
fn a_directory_has_one_daemon() {
    let [address, other] = addresses();
    let mut daemon = Daemon::start(address);
    let again = Server::open(other, &daemon.directory, options(), None);
    assert!(again.err().unwrap().to_string().contains("another daemon serves"));
    daemon.end();
    for stale in [CONTROL, "vdev-a"] {
        std::fs::write(daemon.directory.join(stale), "").unwrap();
    }
    drop(Server::open(other, &daemon.directory, options(), None).expect("stale sockets are replaced"));
    let left = |name: &str| Path::new(&daemon.directory).join(name).exists();
    assert!(!left("vdev-a") && !left(CONTROL));
}
