//! Answers whoever asks what the device is doing, while it does it.
//!
//! The background thread listens at a unix socket and copies counters out for each connection that asks, so there
//! is no thread for it, and nothing at all in the data path. What a watcher can cost is bounded: the worker's lock
//! is held for one queue pair's counters at a time; text is made a few lines at a time, with a turn of work in between;
//! few watchers are served at once, and one that does not read is dropped.
//!
//! Read [`Watch::serve`], then `answer` (what is said), `place` (where the socket is and who may come).

mod answer;
mod held;
mod place;

use std::io::{self, ErrorKind, Read};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use srdma_seams::{Duration, Now};

use crate::device::Shared;
use crate::options::Options;
use crate::wake;
use answer::{Answer, Request, REQUEST_BYTES_MAX};
use held::{socket_inode, Held};
pub use place::OtherEnd;
pub(crate) use place::WatchError;

/// Watchers served at once; further ones wait in the socket's queue.
const CLIENTS_MAX: usize = 4;
/// A watcher that neither asks nor reads for this long is dropped …
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// … and so is one that has not read its answer in this time.
const VISIT_MAX: Duration = Duration::from_secs(30);
/// How long to leave a socket alone whose connections cannot be accepted (no descriptor is free).
const REFUSED: Duration = Duration::from_secs(1);

const _: () = assert!(CLIENTS_MAX < wake::OTHERS_MAX);

/// The open descriptors, for a child after fork: number (-1 where there is none) and inode.
#[derive(Debug)]
pub(crate) struct Descriptors([(AtomicI32, AtomicU64); 1 + CLIENTS_MAX]);

impl Descriptors {
    pub(crate) fn new() -> Descriptors {
        Descriptors([const { (AtomicI32::new(-1), AtomicU64::new(0)) }; 1 + CLIENTS_MAX])
    }

    fn set(&self, index: usize, socket: RawFd) {
        let (fd, inode) = &self.0[index];
        fd.store(-1, Ordering::Release);
        if let Some(found) = socket_inode(socket) {
            inode.store(found, Ordering::Release);
            fd.store(socket, Ordering::Release);
        }
    }

    fn clear(&self, index: usize) {
        self.0[index].0.store(-1, Ordering::Release);
    }

    /// In a child after fork, where the thread that owns them does not exist: closes them, so that a watcher of the
    /// dead parent is not left waiting. Async-signal-safe.
    pub(crate) fn close_in_child(&self) {
        for (fd, inode) in &self.0 {
            let fd = fd.swap(-1, Ordering::AcqRel);
            if fd >= 0 && socket_inode(fd) == Some(inode.load(Ordering::Acquire)) {
                // SAFETY: the socket that was stored, and nothing in this process will close it: its owner is a thread
                // that was not copied.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// What is told of the device itself.
struct About {
    address: IpAddr,
    options: Options,
}

/// The socket and those who came.
pub(crate) struct Watch {
    about: About,
    listener: Held<UnixListener>,
    clients: [Option<Client>; CLIENTS_MAX],
    refused_until: Option<Now>,
    path: PathBuf,
    fds: Vec<libc::pollfd>,
}

impl Watch {
    /// Listens in `options.watch`, if that is given. Also answers the socket's path.
    pub(crate) fn open(address: IpAddr, options: &Options) -> Result<Option<(Watch, PathBuf)>, WatchError> {
        let Some(directory) = &options.watch else { return Ok(None) };
        let (listener, path) = place::listen(directory)?;
        let watch = Watch {
            about: About { address, options: options.clone() },
            listener: Held::new(listener),
            clients: [const { None }; CLIENTS_MAX],
            refused_until: None,
            path: path.clone(),
            fds: Vec::with_capacity(1 + CLIENTS_MAX),
        };
        Ok(Some((watch, path)))
    }

    /// What a child after fork must close.
    pub(crate) fn publish(&self, descriptors: &Descriptors) {
        descriptors.set(0, self.listener.as_raw_fd());
    }

    /// What to wait for.
    pub(crate) fn interest(&mut self) -> &[libc::pollfd] {
        self.fds.clear();
        let has_room = self.refused_until.is_none() && self.clients.iter().any(Option::is_none);
        if has_room {
            let fd = self.listener.as_raw_fd();
            self.fds.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        }
        self.fds.extend(self.clients.iter().flatten().map(Client::interest));
        &self.fds
    }

    /// Until when to wait for it.
    pub(crate) fn deadline(&self) -> Option<Now> {
        let clients = self.clients.iter().flatten().map(Client::deadline);
        clients.chain(self.refused_until).min()
    }

    /// One step for everybody who waits. Not to be called with the worker's lock held. False: the program has taken
    /// the socket away, and nobody can come any more.
    pub(crate) fn serve(&mut self, shared: &Shared, now: Now) -> bool {
        if !self.listener.is_ours() {
            (0..=CLIENTS_MAX).for_each(|index| shared.watch_fds.clear(index));
            return false;
        }
        if self.refused_until.is_some_and(|until| until <= now) {
            self.refused_until = None;
        }
        self.welcome(shared, now);
        for (index, place) in self.clients.iter_mut().enumerate() {
            let Some(client) = place else { continue };
            let goes_on = client.deadline() > now && client.step(shared, &self.about, now).unwrap_or(false);
            if !goes_on {
                shared.watch_fds.clear(1 + index);
                *place = None;
            }
        }
        true
    }

    fn welcome(&mut self, shared: &Shared, now: Now) {
        for (index, place) in self.clients.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
            if self.refused_until.is_some() {
                return;
            }
            match self.listener.accept() {
                Ok((stream, _)) if place::may_watch(&stream) && stream.set_nonblocking(true).is_ok() => {
                    shared.watch_fds.set(1 + index, stream.as_raw_fd());
                    *place = Some(Client::new(stream, now));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.refused_until = Some(now + REFUSED),
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // One that is left behind is removed by whoever looks for processes.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Somebody who watches.
struct Client {
    stream: Held<UnixStream>,
    came: Now,
    /// When it last asked or read something.
    alive: Now,
    request: Vec<u8>,
    answer: Option<Answer>,
    out: Vec<u8>,
    sent: usize,
}

impl Client {
    fn new(stream: UnixStream, now: Now) -> Client {
        let stream = Held::new(stream);
        Client { stream, came: now, alive: now, request: Vec::new(), answer: None, out: Vec::new(), sent: 0 }
    }

    fn interest(&self) -> libc::pollfd {
        let events = if self.answer.is_some() { libc::POLLOUT } else { libc::POLLIN };
        libc::pollfd { fd: self.stream.as_raw_fd(), events, revents: 0 }
    }

    fn deadline(&self) -> Now {
        (self.alive + SILENCE_MAX).min(self.came + VISIT_MAX)
    }

    /// Does what can be done now. Returns whether there is more to come.
    fn step(&mut self, shared: &Shared, about: &About, now: Now) -> io::Result<bool> {
        if !self.stream.is_ours() {
            return Ok(false);
        }
        if self.answer.is_none() {
            match self.hear()? {
                Some(request) => self.answer = Some(Answer::begin(request, shared, about, &mut self.out)),
                None => return Ok(true),
            }
        }
        let Some(answer) = &mut self.answer else { return Ok(true) };
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
            answer.more(shared, &mut self.out);
        }
        match send(&self.stream, &self.out[self.sent..]) {
            Ok(bytes) => {
                self.sent += bytes;
                self.alive = now;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(self.sent < self.out.len() || !answer.is_over())
    }

    /// The request, once its line is complete.
    fn hear(&mut self) -> io::Result<Option<Request>> {
        let mut bytes = [0; REQUEST_BYTES_MAX];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.request.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        match self.request.iter().position(|&byte| byte == b'\n') {
            Some(end) => Ok(Some(Request::parse(&self.request[..end]))),
            None if self.request.len() < REQUEST_BYTES_MAX => Ok(None),
            None => Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// Writes without waiting; a reader that has gone is an error and no signal: the program may have its own ideas of
/// SIGPIPE.
fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the slice is readable for its length across the call.
    let sent = unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(sent as usize)
}
