//! The daemon's side: who comes, what they ask, and the one thread that does all of it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use srdma_abi::command::{Path, Quota, MESSAGE_BYTES_MAX, NO_OWNER};
use srdma_abi::control::LIMITS;
use srdma_engine::{Hosted, Options, StartError};
use srdma_net::interfaces;
use srdma_vstellar::host::Change;
use srdma_vstellar::{Definition, DeviceId, Interpreter, Port, SessionId, Who};

use super::message;
use super::peer::Peer;
use super::rnic::Rnic;
use crate::inproc::guid;

/// Name of the socket where devices are managed, in the daemon's directory.
pub const CONTROL: &str = "control";
/// Prefix of the sockets of devices.
const DEVICE: &str = "vdev-";
/// Held while a daemon serves a directory.
const LOCK: &str = "lock";
/// Connections that are not attached, all devices together: beyond, a new one is closed.
const VISITORS_MAX: usize = 256;
/// Programs attached at once.
const SESSIONS_MAX: u32 = 4_096;
/// Completion channels, each a descriptor of ours.
const CHANNELS_MAX: u32 = 8_192;
/// Bytes of all rings.
const RING_BYTES_MAX: u64 = 8 << 30;
/// Turns of work between two looks at the doors while there is more work.
const TURNS_PER_LOOK: u32 = 8;
/// Events taken from the kernel at once.
const EVENTS: usize = 64;

/// Why the daemon cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The RNIC cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Another daemon serves the directory.
    #[error("another daemon serves {0}; give this one a directory of its own")]
    Taken(PathBuf),
    /// The system refuses.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServerError {
    let what = what.into();
    move |source| ServerError::System { what, source }
}

/// What something that is waited for is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Packets,
    Stop,
    Control,
    Device(DeviceId),
    Talk(SessionId),
    Bell(SessionId),
}

impl Token {
    fn number(self) -> u64 {
        let (kind, value) = match self {
            Token::Packets => (0, 0),
            Token::Stop => (1, 0),
            Token::Control => (2, 0),
            Token::Device(device) => (3, u64::from(device.0)),
            Token::Talk(session) => (4, session.0),
            Token::Bell(session) => (5, session.0),
        };
        value << 3 | kind
    }

    fn of(number: u64) -> Token {
        let value = number >> 3;
        match number & 7 {
            0 => Token::Packets,
            1 => Token::Stop,
            2 => Token::Control,
            3 => Token::Device(DeviceId(value as u32)),
            4 => Token::Talk(SessionId(value)),
            _ => Token::Bell(SessionId(value)),
        }
    }
}

/// All that is waited for (epoll(7)).
pub(crate) struct Waiting(OwnedFd);

impl Waiting {
    fn new() -> io::Result<Waiting> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh, and nobody else's.
        Ok(Waiting(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn add(&self, fd: RawFd, token: Token, events: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token.number() };
        // SAFETY: `event` lives through the call.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A program's bell: each time that it rings is told once, and it is never read.
    pub(crate) fn bell(&self, session: SessionId, fd: RawFd) -> io::Result<()> {
        self.add(fd, Token::Bell(session), libc::EPOLLIN | libc::EPOLLET)
    }

    /// It is about to be closed here; others may hold the same open file.
    pub(crate) fn forget(&self, fd: RawFd) {
        // SAFETY: no event is given. What is not watched is an error without consequence.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Waits for so long (`None`: for ever); what has happened.
    fn wait(&self, span_ns: Option<u64>, happened: &mut Vec<Token>) {
        happened.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let span = span_ns.map(|ns| libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        });
        let timeout = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: events and timeout live through the call; no signal mask is given.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS as libc::c_int,
                timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        happened.extend(events.iter().take(count.max(0) as usize).map(|event| Token::of(event.u64)));
    }
}

/// A listening socket at a path that goes with it.
struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`, for this user alone.
    fn open(path: PathBuf) -> io::Result<Listener> {
        let (socket, (address, length)) = (message::socket()?, message::address(&path)?);
        // One that a killed daemon has left; nobody else serves the directory.
        let _ = std::fs::remove_file(&path);
        let fd = socket.as_raw_fd();
        // SAFETY: `address` lives through the call; the mask is put back before anything else is made: one thread.
        let bound = unsafe {
            let mask = libc::umask(0o177);
            let bound = libc::bind(fd, (&raw const address).cast(), length);
            libc::umask(mask);
            bound
        };
        // SAFETY: no pointers.
        let listens = bound == 0
            && unsafe { libc::listen(fd, 128) == 0 && libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) == 0 };
        match listens {
            true => Ok(Listener { socket, path }),
            false => Err(io::Error::last_os_error()),
        }
    }

    fn accept(&self) -> io::Result<OwnedFd> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let none = std::ptr::null_mut();
        // SAFETY: no address is asked for; the result is checked before it is owned.
        let fd = unsafe { libc::accept4(self.socket.as_raw_fd(), none, none.cast(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh, and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Gone already: nothing to do.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Keeps definitions beyond the daemon's end.
pub trait Keeper: Send {
    /// Does; only then is the change made. If it cannot, the words for whoever asked.
    fn keep(&mut self, change: &Change) -> Result<(), String>;
}

/// A device that can be opened.
struct Exposure {
    listener: Listener,
    owner: u32,
}

/// All of them.
pub(crate) struct Exposures {
    directory: PathBuf,
    open: HashMap<DeviceId, Exposure>,
}

impl Exposures {
    /// Listens for programs that open the device; its path.
    pub(crate) fn open(
        &mut self,
        device: DeviceId,
        definition: &Definition,
        waiting: &Waiting,
    ) -> io::Result<Path> {
        let Definition { name, owner, .. } = *definition;
        let exposure = match self.open.entry(device) {
            std::collections::hash_map::Entry::Occupied(there) => there.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                let listener = Listener::open(self.directory.join(format!("{DEVICE}{name}")))?;
                if owner != NO_OWNER {
                    std::os::unix::fs::chown(&listener.path, Some(owner), None)?;
                }
                waiting.add(listener.socket.as_raw_fd(), Token::Device(device), libc::EPOLLIN)?;
                free.insert(Exposure { listener, owner })
            }
        };
        let mut path = Path::default();
        let bytes = exposure.listener.path.as_os_str().as_bytes();
        path.0[..bytes.len()].copy_from_slice(bytes);
        Ok(path)
    }

    /// Nobody opens it any more.
    pub(crate) fn close(&mut self, device: DeviceId, waiting: &Waiting) {
        if let Some(exposure) = self.open.remove(&device) {
            waiting.forget(exposure.listener.socket.as_raw_fd());
        }
    }
}

/// The daemon.
pub struct Server {
    interpreter: Interpreter,
    rnic: Rnic,
    waiting: Arc<Waiting>,
    control: Listener,
    talks: HashMap<SessionId, OwnedFd>,
    /// Given up for a moment when no descriptor is free, so that whoever knocks then can be turned away.
    spare: Option<File>,
    /// Held while we serve the directory.
    #[allow(dead_code)]
    lock: File,
}

/// Takes the directory, which is made if it is not there.
fn take_directory(directory: &FilePath) -> Result<File, ServerError> {
    let told = |what: &str| system(format!("{what} {}", directory.display()));
    std::fs::create_dir_all(directory).map_err(told("Making"))?;
    let lock = File::create(directory.join(LOCK)).map_err(told("Writing into"))?;
    // SAFETY: no pointers.
    if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Err(ServerError::Taken(directory.to_owned()));
    }
    let _ = lock.set_permissions(std::fs::Permissions::from_mode(0o600));
    // What a killed daemon has left.
    for entry in std::fs::read_dir(directory).map_err(told("Reading"))?.flatten() {
        if entry.file_name().as_bytes().starts_with(DEVICE.as_bytes()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(lock)
}

/// All that the devices of a host may have together.
fn host_quota() -> Quota {
    Quota {
        pds: LIMITS.max_pd,
        mrs: LIMITS.max_mr,
        cqs: LIMITS.max_cq,
        qps: LIMITS.max_qp,
        channels: CHANNELS_MAX,
        sessions: SESSIONS_MAX,
        memory_bytes: u64::MAX,
        ring_bytes: RING_BYTES_MAX,
    }
}

impl Server {
    /// Claims a slot of `address` and listens in `directory`, which no other daemon may serve.
    ///
    /// `keeper` is told of every definition and has none yet of this daemon's making: see [`Server::restore`].
    pub fn open(
        address: IpAddr,
        directory: &FilePath,
        options: Options,
        keeper: Option<Box<dyn Keeper>>,
    ) -> Result<Server, ServerError> {
        let lock = take_directory(directory)?;
        let found =
            interfaces::usable_addresses(true).map_err(system("Listing the addresses of this host"))?;
        // All of 127.0.0.0/8 is this host's, but only what was configured is listed.
        let interface = found.into_iter().find(|found| found.ip == address).map(|found| found.interface);
        let engine = Hosted::open(address, options)?;
        let waiting = Arc::new(Waiting::new().map_err(system("epoll_create1"))?);
        let control = Listener::open(directory.join(CONTROL)).map_err(system("Listening for commands"))?;
        let watched =
            [(engine.readable_fd(), Token::Packets), (Some(control.socket.as_raw_fd()), Token::Control)];
        for (fd, token) in watched {
            waiting.add(fd.unwrap_or(-1), token, libc::EPOLLIN).map_err(system("epoll_ctl"))?;
        }
        let gid = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let (mac, interface_index) = interface.map_or(([0; 6], 0), |found| (found.mac, found.index));
        let fixed = Port { gid, guid: guid(mac, address), interface_index, ..Port::default() };
        let exposures = Exposures { directory: directory.to_owned(), open: HashMap::new() };
        let rnic = Rnic::new(engine, Arc::clone(&waiting), exposures, fixed, keeper);
        let interpreter = Interpreter::new(host_quota());
        let spare = File::open("/dev/null").ok();
        Ok(Server { interpreter, rnic, waiting, control, talks: HashMap::new(), spare, lock })
    }

    /// Defines what was defined before a restart: limits of a tenant, or a device. What makes no sense (any more) is
    /// refused in words, and stays wherever it is kept.
    pub fn restore(&mut self, change: &Change) -> Result<(), String> {
        let restored = match change {
            Change::Tenant(limit) => self.interpreter.limit_tenant(&limit.tenant, &limit.quota),
            Change::Device(device) => self.interpreter.define(&device.into()).map(drop),
            Change::NoDevice(_) => Ok(()),
        };
        restored.map_err(|refusal| refusal.text)
    }

    /// UDP port of its slot.
    pub fn slot_port(&self) -> Option<u16> {
        self.rnic.engine.slot_port()
    }

    /// Every counter of the RNIC as JSON.
    pub fn report(&self) -> String {
        self.rnic.engine.report()
    }

    /// Serves until `stop` is readable.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> Result<(), ServerError> {
        self.waiting.add(stop.as_raw_fd(), Token::Stop, libc::EPOLLIN).map_err(system("epoll_ctl"))?;
        Hosted::settle_in();
        let mut happened = Vec::with_capacity(EVENTS);
        let mut turns = 0;
        loop {
            let span_ns = match self.rnic.engine.turn() {
                true => {
                    turns += 1;
                    if turns % TURNS_PER_LOOK != 0 {
                        continue;
                    }
                    Some(0)
                }
                false => self.rnic.engine.may_sleep_ns(),
            };
            self.waiting.wait(span_ns, &mut happened);
            self.rnic.engine.woke();
            for &token in &happened {
                match token {
                    Token::Packets => {}
                    Token::Stop => {
                        self.rnic.engine.shut_down();
                        return Ok(());
                    }
                    Token::Control => self.welcome(None),
                    Token::Device(device) => self.welcome(Some(device)),
                    Token::Talk(session) => self.hear(session),
                    Token::Bell(session) => self.rnic.rouse(session),
                }
            }
        }
    }

    /// Somebody knocks: at a device's door, or at ours.
    fn welcome(&mut self, device: Option<DeviceId>) {
        let (listener, owner) = match device {
            None => (&self.control, NO_OWNER),
            Some(device) => match self.rnic.exposures.open.get(&device) {
                Some(exposure) => (&exposure.listener, exposure.owner),
                None => return,
            },
        };
        let socket = match listener.accept() {
            Ok(socket) => socket,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                self.spare = None;
                drop(listener.accept());
                self.spare = File::open("/dev/null").ok();
                return;
            }
            Err(_) => return,
        };
        let visitors = self.talks.len().saturating_sub(self.rnic.engine.attached());
        let Some(peer) = Peer::of(socket.as_raw_fd()).ok().filter(|peer| may_come(peer, owner)) else {
            return;
        };
        if visitors >= VISITORS_MAX {
            return;
        }
        let session = self.interpreter.connect(device.map_or(Who::Manager, Who::Program));
        if self.waiting.add(socket.as_raw_fd(), Token::Talk(session), libc::EPOLLIN).is_err() {
            return self.interpreter.disconnect(session, &mut self.rnic);
        }
        self.rnic.peers.insert(session, peer);
        self.talks.insert(session, socket);
    }

    /// One message, or the end, of a conversation.
    fn hear(&mut self, session: SessionId) {
        let Some(socket) = self.talks.get(&session).map(AsRawFd::as_raw_fd) else { return };
        let mut question = [0; MESSAGE_BYTES_MAX];
        let length = match message::receive(socket, &mut question, libc::MSG_DONTWAIT) {
            // What came beside it is closed: no command has descriptors.
            Ok(received) if received.length > 0 => received.length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            _ => return self.part(session),
        };
        let mut answer = [0; MESSAGE_BYTES_MAX];
        let bytes = self.interpreter.execute(session, &question[..length], &mut self.rnic, &mut answer);
        let beside = std::mem::take(&mut self.rnic.beside);
        // Who does not read answers is not asked for patience.
        if message::send(socket, &answer[..bytes], &beside, libc::MSG_DONTWAIT).is_err() {
            self.part(session);
        }
    }

    fn part(&mut self, session: SessionId) {
        if let Some(socket) = self.talks.remove(&session) {
            self.waiting.forget(socket.as_raw_fd());
        }
        self.interpreter.disconnect(session, &mut self.rnic);
        self.rnic.peers.remove(&session);
    }
}

/// The daemon's own user, root, and a device's owner; the files' permissions say the same.
fn may_come(peer: &Peer, owner: u32) -> bool {
    // SAFETY: no preconditions, cannot fail.
    let own = unsafe { libc::geteuid() };
    peer.uid == 0 || peer.uid == own || (owner != NO_OWNER && peer.uid == owner)
}
