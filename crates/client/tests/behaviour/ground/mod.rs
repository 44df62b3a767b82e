//! What the tests stand on: devices, connected queue pairs, memory, and waiting with a deadline.

pub mod memory;
pub mod part;

use std::io::Read;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use srdma_abi::{
    Access, AsyncKind, Cause, Completion, Opcode, QpAttributes, QpInit, QpMask, QpState, RecvEntry,
    SendEntry, SendFlags, Sge,
};
use srdma_client::{Cq, CqEvents, Device, DeviceInfo, Options, PostError, Qp};

pub use memory::Memory;

/// Whatever has not happened by then will not happen. No measure of speed.
const PATIENCE: Duration = Duration::from_secs(20);

pub const ALL: Access = Access(1 | 2 | 4 | 8);

/// Settings of most tests: few paths, since every test has devices of its own.
pub fn options() -> Options {
    Options { paths: 8, seed: Some(1), ..Options::default() }
}

/// Two loopback addresses that no other test of this process uses.
pub fn addresses() -> [IpAddr; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let net = 16 + (std::process::id() % 200) as u8;
    let test = NEXT.fetch_add(1, Ordering::Relaxed);
    [1, 2].map(|host| IpAddr::from([127, net, test, host]))
}

/// An open device with a protection domain. Lives until the process ends, as the device itself does.
pub struct Host {
    pub device: Device,
    pub pd: u32,
    pub address: IpAddr,
    events: Mutex<std::fs::File>,
}

impl Host {
    pub fn open(address: IpAddr, options: &Options) -> &'static Host {
        Host::with(address, None, options)
    }

    /// A virtual device, at the socket `path` of its daemon.
    pub fn behind(path: &Path) -> &'static Host {
        let address = srdma_client::virtual_device(path).expect("it is shown").address;
        Host::with(address, Some(path.to_owned()), &options())
    }

    fn with(address: IpAddr, socket: Option<PathBuf>, options: &Options) -> &'static Host {
        let (mut events, events_in) = pipe();
        let info = DeviceInfo {
            name: "stellar0".into(),
            address,
            interface: "lo".into(),
            interface_index: 1,
            mtu_bytes: 65_536,
            guid: [0; 8],
            socket,
        };
        let device = Device::open(&info, options, events_in.as_raw_fd()).expect("the device opens");
        if let Some(own) = device.take_events() {
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::fcntl(own.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
            events = own;
        }
        // The device writes to it as long as the process lives.
        std::mem::forget(events_in);
        let pd = device.alloc_pd().expect("a protection domain");
        Box::leak(Box::new(Host { device, pd, address, events: Mutex::new(events.into()) }))
    }

    pub fn register(&self, memory: &Memory, access: Access) -> u32 {
        let (at, bytes) = (memory.address(), memory.bytes());
        self.device.register(self.pd, at, bytes, at, access.0).expect("a region")
    }

    /// Memory that the peer may do everything with, and its key.
    pub fn region(&self, bytes: u64) -> (Memory, u32) {
        let memory = Memory::new(bytes);
        (memory, self.register(&memory, ALL))
    }

    /// The next asynchronous event: kind as in verbs.h, and object.
    pub fn event(&self) -> Option<(u32, u32)> {
        let mut record = [0; 8];
        self.events.lock().unwrap().read_exact(&mut record).ok()?;
        let part = |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().unwrap());
        Some((part(0), part(4)))
    }

    /// Waits for an asynchronous event.
    pub fn await_event(&self) -> (u32, u32) {
        wait("an asynchronous event", &[self], || self.event())
    }

    pub fn report(&self) -> Value {
        serde_json::from_str(&self.device.report().expect("a report")).expect("it is JSON")
    }

    /// Counters of a queue pair.
    pub fn counters(&self, qpn: u32) -> Value {
        let report = self.report();
        let qps = report["qps"].as_array().expect("a list").clone();
        qps.into_iter().find(|qp| qp["qpn"] == qpn).unwrap_or_else(|| panic!("no {qpn} in {report}"))
    }
}

/// How a queue pair is made.
#[derive(Clone, Copy)]
pub struct Shape {
    pub cq_entries: u32,
    pub send_wr: u32,
    pub recv_wr: u32,
    pub sq_sig_all: bool,
    /// Where events of its two completion queues go.
    pub events: [Option<CqEvents>; 2],
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { cq_entries: 256, send_wr: 64, recv_wr: 64, sq_sig_all: false, events: [None; 2] }
    }
}

/// A queue pair as its peer must name it.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub address: IpAddr,
    pub qpn: u32,
}

impl Name {
    fn gid(&self) -> [u8; 16] {
        match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }
}

/// A queue pair with its two completion queues.
pub struct End {
    pub host: &'static Host,
    pub qp: Qp,
    pub sends: Cq,
    pub recvs: Cq,
}

pub fn attributes() -> QpAttributes {
    QpAttributes {
        access: ALL,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        ..QpAttributes::default()
    }
}

fn mask(bits: &[QpMask]) -> QpMask {
    bits.iter().fold(QpMask::STATE, |all, &bit| all.with(bit))
}

/// RESET → INIT.
pub fn init(qp: &Qp, wanted: &QpAttributes) {
    let bits = [QpMask::PKEY_INDEX, QpMask::PORT, QpMask::ACCESS_FLAGS];
    qp.modify(&QpAttributes { state: QpState::Init, ..*wanted }, mask(&bits)).expect("INIT");
}

/// INIT → RTR → RTS, with `peer`.
pub fn start(qp: &Qp, peer: Name, wanted: &QpAttributes) {
    let named = QpAttributes { dest_gid: peer.gid(), has_gid: true, dest_qpn: peer.qpn, ..*wanted };
    let rtr = [
        QpMask::AV,
        QpMask::PATH_MTU,
        QpMask::DEST_QPN,
        QpMask::RQ_PSN,
        QpMask::MAX_DEST_RD_ATOMIC,
        QpMask::MIN_RNR_TIMER,
    ];
    let rts =
        [QpMask::SQ_PSN, QpMask::TIMEOUT, QpMask::RETRY_CNT, QpMask::RNR_RETRY, QpMask::MAX_QP_RD_ATOMIC];
    qp.modify(&QpAttributes { state: QpState::Rtr, ..named }, mask(&rtr)).expect("RTR");
    qp.modify(&QpAttributes { state: QpState::Rts, ..named }, mask(&rts)).expect("RTS");
}

impl End {
    pub fn new(host: &'static Host, shape: Shape) -> End {
        let [sends, recvs] =
            shape.events.map(|events| host.device.create_cq(shape.cq_entries, events).expect("a queue"));
        let init = QpInit {
            pd: host.pd,
            send_cq: sends.number(),
            recv_cq: recvs.number(),
            max_send_wr: shape.send_wr,
            max_recv_wr: shape.recv_wr,
            max_send_sge: 8,
            max_recv_sge: 8,
            max_inline_data: 512,
            sq_sig_all: shape.sq_sig_all,
        };
        let qp = host.device.create_qp(&init).expect("a queue pair");
        End { host, qp, sends, recvs }
    }

    pub fn name(&self) -> Name {
        Name { address: self.host.address, qpn: self.qp.number() }
    }

    /// RESET → INIT.
    pub fn init(&self, wanted: &QpAttributes) {
        init(&self.qp, wanted);
    }

    /// INIT → RTR → RTS, with `peer`.
    pub fn start(&self, peer: Name, wanted: &QpAttributes) {
        start(&self.qp, peer, wanted);
    }

    pub fn connect(&self, peer: Name, wanted: &QpAttributes) {
        self.init(wanted);
        self.start(peer, wanted);
    }
    pub fn go_to(&self, state: QpState) {
        self.qp.modify(&QpAttributes { state, ..attributes() }, QpMask::STATE).expect("RESET or ERR");
    }

    pub fn state(&self) -> QpState {
        self.qp.query().expect("it exists").state
    }

    pub fn counters(&self) -> Value {
        self.host.counters(self.qp.number())
    }

    pub fn try_post(&self, mut entry: SendEntry, inline: &[u8]) -> Result<(), PostError> {
        let pieces = [(inline.as_ptr() as u64, inline.len() as u32)];
        // SAFETY: the piece is the slice.
        unsafe { self.qp.post_sends().push(&mut entry, &pieces) }
    }

    pub fn post(&self, entry: SendEntry) {
        self.try_post(entry, &[]).expect("posted");
    }

    pub fn try_post_recv(&self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let mut entry = RecvEntry { wr_id, sge_count: sges.len() as u8, ..RecvEntry::default() };
        entry.sges[..sges.len()].copy_from_slice(sges);
        self.qp.post_recvs().push(&entry)
    }

    pub fn post_recv(&self, wr_id: u64, sges: &[Sge]) {
        self.try_post_recv(wr_id, sges).expect("posted");
    }

    /// The next `count` completions of sends.
    pub fn sent(&self, count: usize) -> Vec<Completion> {
        take(&self.sends, count, "completions of sends", self.host)
    }

    /// The next `count` completions of receives.
    pub fn received(&self, count: usize) -> Vec<Completion> {
        take(&self.recvs, count, "completions of receives", self.host)
    }

    /// Posts a send and waits for its completion.
    pub fn run(&self, entry: SendEntry) -> Completion {
        self.post(entry);
        self.sent(1)[0]
    }

    /// Both completion queues are empty, also after a little while.
    pub fn assert_silent(&self) {
        let until = Instant::now() + Duration::from_millis(60);
        let mut out = [Completion::default(); 1];
        while Instant::now() < until {
            for cq in [&self.sends, &self.recvs] {
                assert_eq!(cq.poll(&mut out), Some(0), "{out:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn await_state(&self, state: QpState) {
        wait("a queue pair's state", &[self.host], || (self.state() == state).then_some(()));
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Fails only in tests that have destroyed it themselves, or where the device is gone.
        let _ = self.qp.destroy();
        let _ = self.sends.destroy();
        let _ = self.recvs.destroy();
    }
}

fn take(cq: &Cq, count: usize, what: &str, host: &'static Host) -> Vec<Completion> {
    let mut all: Vec<Completion> = Vec::new();
    let mut out = [Completion::default(); 16];
    wait(&format!("{count} {what}"), &[host], || {
        let room = (count - all.len()).min(out.len());
        let got = cq.poll(&mut out[..room]).expect("the device lives");
        all.extend(&out[..got]);
        (all.len() == count).then_some(())
    });
    all
}

/// Two connected queue pairs.
pub struct Pair {
    pub a: End,
    pub b: End,
}

impl Pair {
    /// On two new devices.
    pub fn new() -> Pair {
        Pair::with(&options())
    }

    pub fn with(options: &Options) -> Pair {
        let [a, b] = addresses().map(|address| Host::open(address, options));
        Pair::on(a, b)
    }

    pub fn on(a: &'static Host, b: &'static Host) -> Pair {
        Pair::shaped(a, b, [Shape::default(); 2], [attributes(); 2])
    }

    pub fn shaped(
        a: &'static Host,
        b: &'static Host,
        shapes: [Shape; 2],
        attributes: [QpAttributes; 2],
    ) -> Pair {
        let pair = Pair { a: End::new(a, shapes[0]), b: End::new(b, shapes[1]) };
        pair.a.connect(pair.b.name(), &attributes[0]);
        pair.b.connect(pair.a.name(), &attributes[1]);
        pair
    }
}

/// Looks until there is something; if nothing comes, fails and shows the counters of `hosts`.
pub fn wait<T>(what: &str, hosts: &[&Host], mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        if Instant::now() > deadline {
            let reports: Vec<String> = hosts.iter().map(|host| brief(host.report())).collect();
            panic!("{what} did not come\n{}", reports.join("\n"));
        }
        std::thread::yield_now();
    }
}

/// A report without its lists of paths.
fn brief(mut report: Value) -> String {
    for qp in report["qps"].as_array_mut().into_iter().flatten() {
        qp["paths"] = Value::Null;
    }
    report.to_string()
}

/// A non-blocking pipe: reading end, writing end.
pub fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for the two descriptors.
    let rc = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: pipe2 has just opened both, and nobody else owns them.
    unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) }
}

/// A signalled send.
pub fn entry(opcode: Opcode, wr_id: u64, sges: &[Sge]) -> SendEntry {
    let flags = SendFlags::SIGNALED;
    let mut entry = SendEntry { opcode, wr_id, flags, sge_count: sges.len() as u8, ..SendEntry::default() };
    entry.sges[..sges.len()].copy_from_slice(sges);
    entry
}

/// The same for an operation on remote memory.
pub fn to_remote(entry: SendEntry, remote_address: u64, rkey: u32) -> SendEntry {
    SendEntry { remote_address, rkey, ..entry }
}

/// `length` bytes at `at` of `memory`.
pub fn sge(memory: &Memory, at: u64, length: u32, lkey: u32) -> Sge {
    Sge { address: memory.address() + at, length, lkey }
}

/// Bytes that tell their place, different for each `salt`.
pub fn pattern(length: usize, salt: u64) -> Vec<u8> {
    (0..length as u64)
        .map(|i| (i.wrapping_add(salt << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// Status and cause of completions, with their tags.
pub fn outcomes(completions: &[Completion]) -> Vec<(u64, u8, u32)> {
    completions.iter().map(|c| (c.wr_id, c.status, c.vendor_err)).collect()
}

/// What [`outcomes`] shows of a request that failed for `cause`.
pub fn failed(wr_id: u64, cause: Cause) -> (u64, u8, u32) {
    (wr_id, cause.status() as u8, cause as u32)
}

/// What [`outcomes`] shows of a request that was carried out.
pub fn done(wr_id: u64) -> (u64, u8, u32) {
    (wr_id, 0, 0)
}

/// An event as [`Host::event`] shows it.
pub fn event(kind: AsyncKind, object: u32) -> (u32, u32) {
    (kind as u32, object)
}
