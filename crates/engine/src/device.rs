//! A device: the worker behind its lock, the doorbells in front of it, and the control calls.

mod error;

use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use srdma_abi::{AsyncEvent, AsyncKind, Cause, PortInfo, QpAttributes, QpInit, QpMask};
use srdma_memory::Rights;
use srdma_net::interfaces::{self, Interface};
use srdma_net::{Endpoint, SlotHandle};
use srdma_ring::{CompletionProducer, DoorbellPage, WorkConsumer};
use srdma_rnic::world::Queues;
use srdma_rnic::{Nic, NicConfig};
use srdma_seams::{Cqn, MrKey, Now, PdId, Qpn};
use srdma_transport::{Config, ANSWER_WAIT};

use crate::bells::Pages;
use crate::control::{check_route, open_endpoint};
use crate::options::{for_this_process, Options};
use crate::owed::Owed;
use crate::patience::Patience;
use crate::queues::CqEvents;
use crate::wake::Pillow;
use crate::watch::{Descriptors, Watch};
use crate::worker::Worker;
use crate::{announce, background, claims, clock, stats};
pub use error::{DeviceError, StartError};

/// How long a poll waits for packets where cores are scarce.
const POLL_WAIT_NS: i64 = 100_000;
/// Doorbells: one per queue-pair number of a slot.
const DOORBELLS: u32 = 1 << 16;
/// Largest UDP payload of a packet whose interface has this MTU: IP and UDP headers off. Smaller ones than a
/// connection can work with are refused by the kernel when it tries.
fn datagram_bytes_max(address: IpAddr, mtu_bytes: u32) -> u16 {
    let headers = if address.is_ipv4() { 28 } else { 48 };
    mtu_bytes.saturating_sub(headers).clamp(512, 65_000) as u16
}

/// The interface that has `address`.
pub(crate) fn interface_of(address: IpAddr) -> std::io::Result<Option<Interface>> {
    let addresses = interfaces::usable_addresses(true)?;
    Ok(addresses.into_iter().find(|found| found.ip == address).map(|found| found.interface))
}

/// State of the port with `address`, as the interface is now.
pub(crate) fn port(address: IpAddr) -> PortInfo {
    let found = interface_of(address).ok().flatten();
    PortInfo {
        active: found.as_ref().is_some_and(|found| found.is_up() && found.is_running()),
        mtu_bytes: found.as_ref().map_or(0, |found| found.mtu_bytes),
        speed_mbps: found.and_then(|found| found.speed_mbps).unwrap_or(0),
    }
}

/// The RNIC for `address`, as the options want it.
pub(crate) fn new_nic(address: IpAddr, mtu_bytes: u32, options: &Options) -> Result<Nic, StartError> {
    let transport = Config {
        paths: options.paths,
        selector: options.selector,
        unit_packets_max: options.unit_packets_max,
        ..Config::default()
    };
    transport.validate().map_err(|error| StartError::Setting(error.to_string()))?;
    options.faults.validate().map_err(|error| StartError::Setting(error.to_string()))?;
    Ok(Nic::new(NicConfig {
        address,
        datagram_bytes_max: datagram_bytes_max(address, mtu_bytes),
        transport,
        order: options.order,
        seed: options.seed.unwrap_or_else(clock::entropy),
        faults: options.faults.clone(),
    }))
}

/// What callers and the background thread share.
pub(crate) struct Shared {
    pub(crate) worker: Mutex<Worker>,
    pub(crate) pillow: Arc<Pillow>,
    sends: DoorbellPage,
    recvs: DoorbellPage,
    pub(crate) patience: Patience,
    owed: Arc<Owed>,
    /// The slot socket, once there is one; -1 before.
    socket: AtomicI32,
    /// Bytes that the device has received so far.
    pub(crate) received_bytes: AtomicU64,
    /// The last look at the socket left nothing in it.
    pub(crate) is_drained: AtomicBool,
    /// Callers that wait at the socket: what comes is theirs, or they would sleep on while another thread
    /// completes what they wait for.
    pub(crate) callers_waiting: AtomicU32,
    /// Nothing here may be touched any more: a child after fork, or the process exits.
    gone: AtomicBool,
    /// Our own code has failed: everything was flushed, nothing more is done.
    failed: AtomicBool,
    /// Descriptors of ours were closed or replaced by the program; that is why it has failed.
    lost: AtomicBool,
    /// Some queue pair has been in the error state: receives posted now may have to be flushed.
    flushing: AtomicBool,
    /// Descriptors of the background thread's own.
    pub(crate) watch_fds: Descriptors,
    /// A plan of faults has the device stand still: neither packets nor doorbells are anybody's business.
    frozen: AtomicBool,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Worker>> {
        match self.worker.try_lock() {
            Ok(worker) => Some(worker),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether the background thread has nothing left to do.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_over() || self.lost.load(Ordering::Acquire)
    }

    /// Whether there is nothing left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.gone.load(Ordering::Acquire) || self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn doorbells_pending(&self) -> bool {
        (self.sends.is_rung() || self.recvs.is_rung()) && !self.frozen.load(Ordering::Relaxed)
    }

    fn bells(&self) -> Pages<'_> {
        Pages { sends: &self.sends, recvs: &self.recvs }
    }

    /// Makes progress if nobody else is at it; tells whether packets had arrived.
    pub(crate) fn progress_if_free(&self) -> Option<bool> {
        self.work_if_free(|worker, bells| worker.turn(bells))
    }

    /// Sends what was posted, if nobody else is at work; tells nothing of packets.
    fn send_if_free(&self) -> Option<bool> {
        self.work_if_free(|worker, bells| {
            worker.send_posted(bells);
            false
        })
    }

    fn work_if_free(&self, work: impl Fn(&mut Worker, Pages<'_>) -> bool) -> Option<bool> {
        let mut result = None;
        loop {
            // Whoever holds the lock looks at the doorbells once more after letting go, so that a bell rung
            // meanwhile is never left to nobody.
            let Some(mut worker) = self.try_lock() else { return result };
            worker.world.acks_may_wait = self.pillow.is_up_by(clock::now() + ANSWER_WAIT);
            let had_packets = work(&mut worker, self.bells());
            if !self.let_go(worker) {
                return result;
            }
            *result.get_or_insert(false) |= had_packets;
            if !self.doorbells_pending() {
                return result;
            }
        }
    }

    /// Gives the core away until a packet comes, for a moment at most, and takes the packet.
    fn wait_for_packets(&self) {
        let mut socket =
            libc::pollfd { fd: self.socket.load(Ordering::Relaxed), events: libc::POLLIN, revents: 0 };
        let span = libc::timespec { tv_sec: 0, tv_nsec: POLL_WAIT_NS };
        self.callers_waiting.fetch_add(1, Ordering::Relaxed);
        // SAFETY: one pollfd and a timespec that live across the call; a descriptor of -1 is skipped.
        unsafe { libc::ppoll(&mut socket, 1, &span, std::ptr::null()) };
        self.callers_waiting.fetch_sub(1, Ordering::Relaxed);
        self.patience.waited(clock::now());
        if socket.revents & libc::POLLNVAL != 0 {
            self.lose();
        } else if socket.revents != 0 {
            self.progress_if_free();
        }
    }

    /// Makes progress, waiting for the lock.
    pub(crate) fn progress_blocking(&self) {
        let mut worker = self.lock();
        worker.world.acks_may_wait = self.pillow.is_up_by(clock::now() + ANSWER_WAIT);
        worker.turn(self.bells());
        let _ = self.let_go(worker);
    }

    /// Fires timers that are due, if nobody holds the lock; after a look at the socket, for what they wait for may
    /// lie there.
    pub(crate) fn timers_if_free(&self) -> Option<bool> {
        let mut worker = self.try_lock()?;
        let now = clock::now();
        if worker.look_after(now) && worker.is_due(now) {
            worker.turn(self.bells());
            let _ = self.let_go(worker);
        }
        Some(false)
    }

    /// The background thread is about to sleep: until when it may, and the socket to listen on. Published before the
    /// lock is given up: whoever makes work that is due earlier has had the lock before, and it is counted here, or
    /// has it after, and sees when the thread would wake.
    pub(crate) fn lie_down(&self) -> (Option<Now>, Option<RawFd>) {
        let mut worker = self.lock();
        let deadline = worker.deadline(clock::now());
        self.pillow.lie_down(deadline);
        let endpoint = worker.world.endpoint.as_ref().filter(|_| worker.frozen_until.is_none());
        let socket = endpoint.map(|endpoint| endpoint.readable_fd().as_raw_fd());
        (deadline, socket)
    }

    /// Who posts while a control call has the lock goes away again: his doorbell is left to the background thread.
    /// The fences in `ring` and `is_rung` are one pair: either he finds the lock free, or we find his bell.
    fn hand_over_doorbells(&self) {
        let to_flush = || self.flushing.load(Ordering::Relaxed) && self.recvs.is_rung();
        if (self.sends.is_rung() || to_flush()) && self.pillow.kick(Now(0)) && self.pillow.is_lost() {
            self.lose();
        }
    }

    /// Unlocks, and wakes the background thread if it would sleep past what has become due. False: descriptors were
    /// found to be no longer ours, and the device has ended.
    fn let_go(&self, mut worker: MutexGuard<'_, Worker>) -> bool {
        worker.review_owed();
        worker.announce();
        if let Some(endpoint) = &worker.world.endpoint {
            self.received_bytes.store(endpoint.received_bytes(), Ordering::Relaxed);
            self.is_drained.store(worker.is_drained, Ordering::Relaxed);
        }
        // Before it sleeps, whoever is awake takes the lock and asks for himself; who naps will be up soon.
        // What is due at once may be said to have been due a moment ago.
        let now = worker.latest;
        let deadline = if self.pillow.is_awake() { None } else { worker.deadline(now) };
        let lost = worker.is_lost;
        self.frozen.store(worker.frozen_until.is_some(), Ordering::Relaxed);
        if worker.counters.failures > 0 {
            self.flushing.store(true, Ordering::Relaxed);
        }
        drop(worker);
        if let Some(deadline) = deadline {
            self.pillow.kick(deadline);
        }
        if lost || self.pillow.is_lost() {
            self.lose();
        }
        !self.is_over()
    }
}

/// One address of this host as a software RNIC, in this process.
pub struct Device {
    address: IpAddr,
    options: Options,
    shared: Arc<Shared>,
    /// The slot's socket once claimed: for a child that cannot have the lock.
    slot: OnceLock<SlotHandle>,
    /// Where watchers find it, if they do.
    watched_at: OnceLock<PathBuf>,
}

impl Device {
    /// A device that has claimed nothing yet.
    pub fn new(address: IpAddr, options: Options) -> Result<Arc<Device>, StartError> {
        let system = |what| move |source| StartError::System { what, source };
        let found = interface_of(address).map_err(system("Listing the addresses of this host"))?;
        let mtu_bytes = found.as_ref().map_or(1_500, |found| found.mtu_bytes);
        let nic = new_nic(address, mtu_bytes, &options)?;
        let doorbells = || DoorbellPage::heap(DOORBELLS).map_err(|e| StartError::Setting(e.to_string()));
        let owed = Arc::new(Owed::default());
        let pillow = Arc::new(Pillow::new().map_err(system("Making a timerfd"))?);
        let shared = Shared {
            worker: Mutex::new(Worker::new(nic, Arc::clone(&owed), Arc::clone(&pillow))),
            owed,
            pillow,
            sends: doorbells()?,
            recvs: doorbells()?,
            patience: Patience::default(),
            socket: AtomicI32::new(-1),
            received_bytes: AtomicU64::new(0),
            is_drained: AtomicBool::new(false),
            callers_waiting: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            flushing: AtomicBool::new(false),
            watch_fds: Descriptors::new(),
            frozen: AtomicBool::new(false),
        };
        let (slot, watched_at) = (OnceLock::new(), OnceLock::new());
        Ok(Arc::new(Device { address, options, shared: Arc::new(shared), slot, watched_at }))
    }

    /// Its address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether nothing of it may be touched any more, not even its queues.
    pub fn is_gone(&self) -> bool {
        self.shared.gone.load(Ordering::Acquire)
    }

    /// Whether it takes no more work: it is gone, or our own code has failed. What was flushed then can still be
    /// polled.
    pub fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    /// State of the port, as the interface is now.
    pub fn port(&self) -> PortInfo {
        port(self.address)
    }

    /// Runs a control call. A panic of ours fails the device instead of the program.
    fn control<T>(&self, call: impl FnOnce(&mut Worker) -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        if self.shared.is_over() {
            return Err(DeviceError::Gone);
        }
        let mut worker = self.shared.lock();
        let run = std::panic::AssertUnwindSafe(|| {
            let now = clock::now();
            worker.stands_still(now);
            match worker.look_after(now) {
                true => call(&mut worker),
                false => Err(DeviceError::Gone),
            }
        });
        let result = std::panic::catch_unwind(run);
        // Whoever calls hears of a device that has ended with the next call.
        let _ = self.shared.let_go(worker);
        self.shared.hand_over_doorbells();
        result.unwrap_or_else(|_| {
            self.shared.fail();
            Err(DeviceError::Gone)
        })
    }

    /// A program opened the device and wants events about it at `async_fd`.
    pub fn opened(&self, async_fd: RawFd) {
        // A device that is gone has no events.
        let _ = self.control(|worker| {
            worker.world.rings.learn(async_fd);
            worker.world.rings.opens.push(async_fd);
            Ok(())
        });
    }

    /// It closed it again.
    pub fn closed(&self, async_fd: RawFd) {
        let _ = self.control(|worker| {
            worker.world.rings.opens.retain(|fd| *fd != async_fd);
            Ok(())
        });
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Result<u32, DeviceError> {
        self.control(|worker| Ok(worker.nic.alloc_pd()?.0))
    }

    /// Removes it.
    pub fn dealloc_pd(&self, pd: u32) -> Result<(), DeviceError> {
        self.control(|worker| Ok(worker.nic.dealloc_pd(PdId(pd))?))
    }

    /// Registers memory of this process.
    pub fn register(
        &self,
        pd: u32,
        base: u64,
        length: u64,
        iova: u64,
        access: u32,
    ) -> Result<u32, DeviceError> {
        self.control(|worker| Ok(worker.nic.register(PdId(pd), base, length, iova, Rights(access))?.0))
    }

    /// When this returns, no access through the key can follow: every access happens under the lock taken here.
    pub fn deregister(&self, key: u32) -> Result<(), DeviceError> {
        self.control(|worker| Ok(worker.nic.deregister(MrKey(key))?))
    }

    /// Makes a completion queue on `ring`.
    pub fn create_cq(
        &self,
        ring: CompletionProducer,
        events: Option<CqEvents>,
        async_fd: RawFd,
    ) -> Result<Cqn, DeviceError> {
        self.control(|worker| worker.create_cq(ring, events, async_fd))
    }

    /// Removes it.
    pub fn destroy_cq(&self, cq: Cqn) -> Result<(), DeviceError> {
        self.control(|worker| worker.destroy_cq(cq))
    }

    /// Makes an RC queue pair on two rings, claiming the slot if this is the first.
    pub fn create_qp(
        &self,
        init: &QpInit,
        send: WorkConsumer,
        recv: WorkConsumer,
        async_fd: RawFd,
    ) -> Result<Qpn, DeviceError> {
        self.control(|worker| {
            if worker.world.endpoint.is_none() {
                self.claim(worker)?;
            }
            worker.create_qp(init, send, recv, async_fd)
        })
    }

    /// Binds the slot's port and starts the background thread.
    fn claim(&self, worker: &mut Worker) -> Result<(), StartError> {
        // Until the slot is where a child finds it.
        let _claiming = claims::claiming();
        let (endpoint, batch) = open_endpoint(self.address, &self.options)?;
        // Its first step waits for the lock that is held here. Whatever fails up to here leaves no half of a device.
        background::spawn(&self.shared, self.watchable())
            .map_err(|source| StartError::System { what: "Starting the background thread", source })?;
        self.shared.socket.store(endpoint.readable_fd().as_raw_fd(), Ordering::Relaxed);
        // A slot is claimed once.
        let _ = self.slot.set(endpoint.slot_handle());
        worker.adopt(endpoint, batch);
        Ok(())
    }

    /// Opens the socket for watchers. Without one the device works as well.
    fn watchable(&self) -> Option<Watch> {
        static SAID: AtomicBool = AtomicBool::new(false);
        match Watch::open(self.address, &self.options) {
            Ok(opened) => {
                let (watch, path) = opened?;
                watch.publish(&self.shared.watch_fds);
                // Whoever claims holds the lock, and claims once.
                let _ = self.watched_at.set(path);
                Some(watch)
            }
            Err(error) => {
                if self.options.log && !SAID.swap(true, Ordering::Relaxed) {
                    eprintln!("srdma: `srdma stats` will not find this process: {error}");
                }
                None
            }
        }
    }

    /// Changes attributes and state.
    pub fn modify_qp(&self, qpn: Qpn, attributes: &QpAttributes, mask: QpMask) -> Result<(), DeviceError> {
        if mask.contains(QpMask::AV) {
            check_route(self.address, attributes)?;
        }
        self.control(|worker| worker.modify_qp(qpn, attributes, mask))
    }

    /// Shows attributes.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpAttributes, DeviceError> {
        self.control(|worker| Ok(worker.nic.query_qp(qpn)?.0))
    }

    /// Removes a queue pair; its number goes into quarantine.
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<(), DeviceError> {
        self.control(|worker| worker.destroy_qp(qpn))
    }

    /// The program posted to a send ring.
    pub fn ring_send(&self, qpn: Qpn) {
        // The page's own sleeping flag is not used in this process: the caller makes the progress itself.
        let _ = self.shared.sends.ring(u32::from(qpn.index()));
        if !self.shared.owed.may_wait(qpn.index()) {
            self.guard(Shared::send_if_free);
        }
    }

    /// The program posted to a receive ring. Receives are taken when messages come, so there is nothing to do
    /// now, unless a queue pair is in the error state and its receives must be flushed.
    pub fn ring_recv(&self, qpn: Qpn) {
        let _ = self.shared.recvs.ring(u32::from(qpn.index()));
        if self.shared.flushing.load(Ordering::Relaxed) {
            self.guard(|shared| shared.progress_if_free());
        }
    }

    /// A caller found a completion queue empty: makes progress, or waits a moment for some where cores are
    /// scarce.
    pub fn poll(&self) {
        let wait = self.shared.patience.poll(clock::now());
        self.guard(|shared| {
            let progress = shared.progress_if_free();
            if wait && progress != Some(true) {
                shared.wait_for_packets();
            }
        });
    }

    /// Writes an event on the caller's behalf.
    pub fn signal(&self, events: CqEvents) {
        let mut worker = self.shared.lock();
        worker.look_after(clock::now());
        worker.world.rings.tell(events.fd, events.cookie.to_ne_bytes());
        let _ = self.shared.let_go(worker);
    }

    /// Runs `work`; a panic of ours fails the device instead of the program. Once it has failed, what was posted just
    /// then is flushed.
    fn guard<T>(&self, work: impl FnOnce(&Shared) -> T) {
        let work = || match self.shared.is_over() {
            false => drop(work(&self.shared)),
            true => self.shared.flush_posted(),
        };
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
            self.shared.fail();
        }
    }

    /// Every counter of the device and its queue pairs as JSON, as `--stats` writes it at exit.
    pub fn report(&self) -> Result<String, DeviceError> {
        self.control(|worker| Ok(stats::report(self.address, &self.options, worker)))
    }

    /// Ends the device at process exit: peers are told, reports are written.
    pub fn shut_down(&self) {
        if self.shared.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.pillow.kick_always();
        if let Some(path) = self.watched_at.get() {
            // One that is left behind is removed by whoever looks for processes.
            let _ = std::fs::remove_file(path);
        }
        let mut worker = self.shared.lock();
        let now = clock::now();
        if let Some(path) = &self.options.stats {
            let path = for_this_process(path);
            let report = stats::report(self.address, &self.options, &worker);
            if let Err(error) = std::fs::write(&path, report) {
                eprintln!("srdma: cannot write {}: {error}", path.display());
            }
        }
        if !worker.look_after(now) {
            worker.world.abandon_descriptors();
        }
        worker.stands_still(now);
        let Worker { nic, world, counters, .. } = &mut *worker;
        for qpn in world.rings.queue_pairs() {
            // A queue pair that is already gone needs no farewell.
            let _ = nic.destroy_qp(now, qpn, world, counters);
        }
        if let Some(endpoint) = &mut world.endpoint {
            let _ = endpoint.flush_capture();
        }
    }

    /// In a child after fork: gives up the parent's descriptors. Async-signal-safe: flags, dup(2) and close(2) only.
    pub fn abandon_in_child(&self) {
        self.shared.gone.store(true, Ordering::Release);
        self.shared.watch_fds.close_in_child();
        match (self.shared.try_lock(), self.slot.get()) {
            (Some(worker), _) => {
                if let Some(endpoint) = &worker.world.endpoint {
                    endpoint.close_descriptors_in_child();
                }
            }
            // The parent was at work, and its thread will never unlock here.
            (None, Some(slot)) => slot.close_in_child(),
            (None, None) => {}
        }
    }
}

impl Shared {
    /// Our own code failed: the device is dead. Everything that was posted is flushed, every queue pair is in the
    /// error state, and every program that has the device open hears of it. Not to be called with the lock held.
    pub(crate) fn fail(&self) {
        if self.failed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut worker = self.lock();
        worker.stands_still(clock::now());
        let Worker { nic, world, counters, .. } = &mut *worker;
        // What the failure left behind may make us fail once more; the event must go out all the same.
        let flush = || nic.fail_all(clock::now(), Cause::Internal, world, counters);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(flush));
        let event = AsyncEvent { kind: AsyncKind::DeviceFatal, object: 0 };
        worker.world.rings.raise(event);
        worker.review_owed();
        drop(worker);
        self.flushing.store(true, Ordering::Relaxed);
        // Who posted meanwhile, and found the lock taken or the device not yet failed, counts on being seen here.
        self.flush_posted();
        self.pillow.kick_always();
    }

    /// Completes what was posted to a device that has failed. Like [`Shared::work_if_free`]: who finds the lock taken
    /// goes away, and whoever has it looks at the doorbells once more after letting go.
    fn flush_posted(&self) {
        while !self.gone.load(Ordering::Acquire) && self.doorbells_pending() {
            let Some(mut worker) = self.try_lock() else { return };
            let flush = || worker.flush_posted(self.bells());
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(flush));
        }
    }

    /// Descriptors of ours were closed, or their numbers belong to the program now. Nothing can be sent or received any
    /// more, and nothing of ours may be written or closed by its number. Not to be called with the lock held.
    pub(crate) fn lose(&self) {
        if self.gone.load(Ordering::Acquire) || self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        self.socket.store(-1, Ordering::Relaxed);
        let mut worker = self.lock();
        let local = worker.slot();
        let slot = worker.world.endpoint.as_ref().map(Endpoint::slot_handle);
        worker.world.abandon_descriptors();
        drop(worker);
        announce::descriptors_lost(local);
        self.fail();
        // The thread sleeps on the timer and on the socket. Without the timer, nothing but the socket wakes it.
        if let Some(slot) = slot.filter(|_| self.pillow.is_lost()) {
            slot.rouse();
        }
    }
}

#[cfg(test)]
mod tests;
