//! The program's side: a conversation with the daemon, the doorbell page, and what the daemon made for us.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use srdma_abi::command::{self, *};
use srdma_abi::{PortInfo, QpAttributes, QpInit, QpMask};
use srdma_ring::{CompletionConsumer, DoorbellPage, Layout as RingLayout, RingMemory, WorkProducer};

use super::memory::Mapping;
use super::message;
use super::rnic::PAGE_BYTES;

/// A daemon that has not answered for so long has failed.
const PATIENCE_S: libc::time_t = 30;
/// Empty polls after which the core is offered to whoever makes progress: the daemon, perhaps.
const POLLS_PER_YIELD: u32 = 8;
/// Empty polls after which it is looked whether the daemon still lives.
const POLLS_PER_LOOK: u32 = 1 << 12;

/// Open devices of this process: a child after fork must give them up.
static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

/// Why a device behind a socket is not to be had, or refuses.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The socket cannot be connected to.
    #[error("{path}: {source}; does the daemon run, and is the device exposed?")]
    Connect {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The daemon has refused.
    #[error("{text}")]
    Refused {
        /// Positive errno.
        errno: i32,
        /// Its words.
        text: String,
    },
    /// The conversation has failed.
    #[error("the daemon does not answer: {0}")]
    Talk(#[source] io::Error),
    /// What came is no answer.
    #[error("the daemon's answer makes no sense: {0}")]
    Nonsense(String),
    /// Mapping what the daemon made failed.
    #[error("mapping the daemon's memory: {0}")]
    Memory(#[source] io::Error),
    /// The device is gone.
    #[error("The device is gone")]
    Gone,
}

impl DialError {
    /// Positive errno for the C caller.
    pub fn errno(&self) -> i32 {
        match self {
            DialError::Connect { source, .. } | DialError::Memory(source) => {
                source.raw_os_error().unwrap_or(libc::ENODEV)
            }
            DialError::Refused { errno, .. } => *errno,
            DialError::Talk(_) | DialError::Nonsense(_) | DialError::Gone => libc::EIO,
        }
    }
}

fn nonsense(what: impl std::fmt::Display) -> DialError {
    DialError::Nonsense(what.to_string())
}

/// A conversation: questions and answers, one at a time.
pub struct Talk {
    socket: OwnedFd,
    sequence: u32,
}

impl Talk {
    /// Connects to a daemon's socket.
    pub fn dial(path: &Path) -> Result<Talk, DialError> {
        let connect = |source| DialError::Connect { path: path.to_owned(), source };
        let (address, length) = message::address(path).map_err(connect)?;
        let socket = message::socket().map_err(connect)?;
        let patience = libc::timeval { tv_sec: PATIENCE_S, tv_usec: 0 };
        // SAFETY: address and patience live through their calls.
        let connected = unsafe {
            let size = size_of::<libc::timeval>() as libc::socklen_t;
            for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
                let value = (&raw const patience).cast();
                libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, size);
            }
            libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length)
        };
        match connected {
            0 => Ok(Talk { socket, sequence: 0 }),
            _ => Err(connect(io::Error::last_os_error())),
        }
    }

    /// Asks, and waits for the answer and what comes beside it.
    pub fn ask<R: Request>(&mut self, request: R) -> Result<(R::Reply, Vec<OwnedFd>), DialError> {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = command::encode(R::CODE, self.sequence, 0, &request, &mut buffer);
        message::send(self.socket.as_raw_fd(), &buffer[..bytes], &[], 0).map_err(DialError::Talk)?;
        let received = message::receive(self.socket.as_raw_fd(), &mut buffer, 0).map_err(DialError::Talk)?;
        if received.length == 0 {
            return Err(DialError::Talk(io::ErrorKind::ConnectionReset.into()));
        }
        let answer = command::decode_reply::<R>(&buffer[..received.length]).map_err(nonsense)?;
        let body = answer.map_err(|(errno, refused)| DialError::Refused {
            errno: errno as i32,
            text: refused.text().to_owned(),
        })?;
        match received.descriptors.len() == R::DESCRIPTORS {
            true => Ok((body, received.descriptors)),
            false => Err(nonsense("descriptors are missing")),
        }
    }

    /// Lets a daemon without privilege reach this process where the system (Yama, ptrace(2)) demands its consent.
    fn consent(&self) {
        let restricted = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
        if restricted.is_ok_and(|scope| scope.trim() == "1") {
            if let Ok(daemon) = super::peer::credentials(self.socket.as_raw_fd()) {
                // SAFETY: no pointers. A refusal shows when the daemon tries.
                unsafe { libc::prctl(libc::PR_SET_PTRACER, daemon.pid as libc::c_ulong, 0, 0, 0) };
            }
        }
    }
}

/// What is shown of the device behind a socket; attaches to nothing.
pub fn look(path: &Path) -> Result<DeviceShown, DialError> {
    Ok(Talk::dial(path)?.ask(AskDevice::default())?.0)
}

/// A queue pair that was made.
pub struct QpMade {
    /// Its number.
    pub number: u32,
    /// Our half of the send ring.
    pub send: WorkProducer,
    /// Our half of the receive ring.
    pub recv: WorkProducer,
    /// Bells of sends and receives.
    pub bells: (u32, u32),
}

/// A device behind a socket, attached.
pub struct Device {
    talk: Mutex<Talk>,
    shown: DeviceShown,
    page: DoorbellPage,
    bell: OwnedFd,
    /// Numbers of its two descriptors, for a child after fork.
    descriptors: [RawFd; 2],
    /// Where asynchronous events are read, until somebody takes it.
    events: Mutex<Option<OwnedFd>>,
    gone: AtomicBool,
    polls: AtomicU32,
}

impl Device {
    /// Attaches this process to the device at `path`.
    pub fn attach(path: &Path) -> Result<Arc<Device>, DialError> {
        let mut talk = Talk::dial(path)?;
        talk.consent();
        let (shown, _) = talk.ask(AskDevice::default())?;
        let (attached, descriptors) = talk.ask(AskAttach::default())?;
        let mut descriptors = descriptors.into_iter();
        let (Some(page), Some(bell), Some(events)) =
            (descriptors.next(), descriptors.next(), descriptors.next())
        else {
            return Err(nonsense("descriptors are missing"));
        };
        let mapping = Mapping::new(page.as_raw_fd(), PAGE_BYTES).map_err(DialError::Memory)?;
        let bells = attached.bells.min(DoorbellPage::queues_in(PAGE_BYTES));
        // SAFETY: mapped until the keeper goes, sealed against shrinking, and reached here by this page alone.
        let page = unsafe { DoorbellPage::from_raw(bells, mapping.at(0), PAGE_BYTES, mapping.keeper()) };
        let descriptors = [talk.socket.as_raw_fd(), bell.as_raw_fd()];
        let device = Arc::new(Device {
            talk: Mutex::new(talk),
            shown,
            page: page.map_err(nonsense)?,
            bell,
            descriptors,
            events: Mutex::new(Some(events)),
            gone: AtomicBool::new(false),
            polls: AtomicU32::new(0),
        });
        // SAFETY: a plain function that stays mapped, as for the device in our own process.
        HOOK.call_once(|| unsafe { _ = libc::pthread_atfork(None, None, Some(after_fork_in_child)) });
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// The device as it was when we came.
    pub fn shown(&self) -> &DeviceShown {
        &self.shown
    }

    /// The reading end of the asynchronous events' pipe, once. Its end means that the daemon has gone.
    pub fn take_events(&self) -> Option<OwnedFd> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether nothing of it can be used any more.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<R: Request>(&self, request: R) -> Result<(R::Reply, Vec<OwnedFd>), DialError> {
        if self.is_gone() {
            return Err(DialError::Gone);
        }
        let answer = self.talk().ask(request);
        if matches!(answer, Err(DialError::Talk(_) | DialError::Nonsense(_))) {
            // An answer that comes now would be taken for another question's.
            self.gone.store(true, Ordering::Release);
        }
        answer
    }

    /// State of the port.
    pub fn port(&self) -> PortInfo {
        let shown = self.ask(AskDevice::default()).map_or(DeviceShown::default(), |(shown, _)| shown);
        PortInfo { active: shown.port_active != 0, mtu_bytes: shown.mtu_bytes, speed_mbps: shown.speed_mbps }
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Result<u32, DialError> {
        Ok(self.ask(AskPd::default())?.0.number)
    }

    /// Removes it.
    pub fn dealloc_pd(&self, pd: u32) -> Result<(), DialError> {
        self.ask(EndPd(number(pd))).map(drop)
    }

    /// Registers memory of this process.
    pub fn register(
        &self,
        pd: u32,
        base: u64,
        length: u64,
        iova: u64,
        access: u32,
    ) -> Result<u32, DialError> {
        Ok(self.ask(AskMemory(RegisterMemory { pd, access, base, length, iova }))?.0.number)
    }

    /// When this returns, no access through the key can follow.
    pub fn deregister(&self, key: u32) -> Result<(), DialError> {
        self.ask(EndMemory(number(key))).map(drop)
    }

    /// Makes a completion channel: its number, and where its records are read.
    pub fn create_channel(&self) -> Result<(u32, OwnedFd), DialError> {
        let (made, descriptors) = self.ask(AskChannel::default())?;
        let read = descriptors.into_iter().next().ok_or_else(|| nonsense("no pipe"))?;
        Ok((made.number, read))
    }

    /// Removes it.
    pub fn destroy_channel(&self, channel: u32) -> Result<(), DialError> {
        self.ask(EndChannel(number(channel))).map(drop)
    }

    /// Makes a completion queue: its number and our half of its ring.
    pub fn create_cq(
        &self,
        entries: u32,
        events: Option<(u32, u64)>,
    ) -> Result<(u32, CompletionConsumer, u32), DialError> {
        let (channel, cookie) = events.unwrap_or((NO_CHANNEL, 0));
        let (made, descriptors) = self.ask(AskCq(CreateCq { entries, channel, cookie }))?;
        let layout = RingLayout::new(made.units).map_err(nonsense)?;
        let mapping = mapped(&descriptors, layout.bytes())?;
        let ring = ring(&mapping, 0, layout)?;
        Ok((made.number, CompletionConsumer::new(ring), made.units))
    }

    /// Removes it.
    pub fn destroy_cq(&self, cq: u32) -> Result<(), DialError> {
        self.ask(EndCq(number(cq))).map(drop)
    }

    /// Has the daemon write an event of the queue: what was asked for is there already.
    pub fn signal(&self, cq: u32) {
        // A daemon that is gone wakes whoever waits in another way.
        let _ = self.ask(TellCq(number(cq)));
    }

    /// Makes an RC queue pair.
    pub fn create_qp(&self, init: &QpInit) -> Result<QpMade, DialError> {
        let (made, descriptors) = self.ask(AskQp(init.into()))?;
        let layout = |units| RingLayout::new(units).map_err(nonsense);
        let (send, recv) = (layout(made.send_units)?, layout(made.recv_units)?);
        let offset = made.recv_offset as usize;
        let mapping = mapped(&descriptors, offset.saturating_add(recv.bytes()).max(send.bytes()))?;
        if offset < send.bytes() {
            return Err(nonsense("rings that overlap"));
        }
        Ok(QpMade {
            number: made.number,
            send: WorkProducer::new(ring(&mapping, 0, send)?),
            recv: WorkProducer::new(ring(&mapping, offset, recv)?),
            bells: (made.send_bell, made.recv_bell),
        })
    }

    /// Changes attributes and state.
    pub fn modify_qp(&self, qp: u32, attributes: &QpAttributes, mask: QpMask) -> Result<(), DialError> {
        let change = ModifyQp { number: qp, mask: mask.0, attributes: attributes.into() };
        self.ask(ChangeQp(change)).map(drop)
    }

    /// Shows them.
    pub fn query_qp(&self, qp: u32) -> Result<QpAttributes, DialError> {
        let (attributes, _) = self.ask(ShowQp(number(qp)))?;
        attributes.checked().ok_or_else(|| nonsense("no such state"))
    }

    /// Removes it.
    pub fn destroy_qp(&self, qp: u32) -> Result<(), DialError> {
        self.ask(EndQp(number(qp))).map(drop)
    }

    /// Something was posted.
    pub fn ring(&self, bell: u32) {
        if self.page.ring(bell) {
            let one = 1u64;
            // SAFETY: eight readable bytes. Nobody but ourselves could fill the counter up.
            unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
        }
    }

    /// A queue was found empty: progress is made elsewhere, and needs a core.
    pub fn poll(&self) {
        let polls = self.polls.fetch_add(1, Ordering::Relaxed);
        if polls.is_multiple_of(POLLS_PER_YIELD) {
            // SAFETY: no preconditions.
            unsafe { libc::sched_yield() };
        }
        if polls.is_multiple_of(POLLS_PER_LOOK) && self.has_ended() {
            self.gone.store(true, Ordering::Release);
        }
    }

    /// Whether the daemon has hung up.
    fn has_ended(&self) -> bool {
        let [fd, _] = self.descriptors;
        let mut polled = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one pollfd that lives through the call.
        unsafe { libc::poll(&mut polled, 1, 0) };
        polled.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
    }
}

/// In a child after fork: the conversation is the parent's. The numbers stay open, on something harmless, so that no
/// other file gets them while they are thought to be ours. Async-signal-safe: a flag, eventfd(2), dup(2) and close(2).
extern "C" fn after_fork_in_child() {
    let Ok(open) = OPEN.try_lock() else { return };
    // SAFETY: no pointers.
    let harmless = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    for device in open.iter().filter(|device| device.strong_count() > 0) {
        // SAFETY: the allocation stays while a weak count is there, and what is read and set has no destructor; no
        // count is touched, for that might free memory.
        let device = unsafe { &*device.as_ptr() };
        device.gone.store(true, Ordering::Release);
        for fd in device.descriptors {
            // SAFETY: the child's copies, which nothing else in the child uses.
            unsafe { libc::dup3(harmless, fd, libc::O_CLOEXEC) };
        }
    }
    // SAFETY: made above.
    unsafe { libc::close(harmless) };
}

fn number(number: u32) -> Number {
    Number { number, reserved: 0 }
}

fn mapped(descriptors: &[OwnedFd], bytes: usize) -> Result<Arc<Mapping>, DialError> {
    let memory = descriptors.first().ok_or_else(|| nonsense("no memory"))?;
    Mapping::new(memory.as_raw_fd(), bytes).map_err(DialError::Memory)
}

fn ring(mapping: &Arc<Mapping>, offset: usize, layout: RingLayout) -> Result<RingMemory, DialError> {
    let (start, bytes) = (mapping.at(offset), mapping.bytes_from(offset));
    // SAFETY: mapped until the keeper goes, sealed against shrinking, and in this process reached by this ring alone.
    unsafe { RingMemory::from_raw(layout, start, bytes, mapping.keeper()) }.map_err(nonsense)
}
