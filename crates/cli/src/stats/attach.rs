//! Finding the processes of this user that run on the software RNIC, and asking each of their devices.
//!
//! A device listens at a socket of its own (`srdma_client::watching` says where) and answers a line of words with
//! one JSON object a line: itself, its queue pairs, `{"end":true}`. Whoever answers is not trusted: what it may
//! say, and how long it may take, is bounded.

use serde_json::Value;
use srdma_client::{watching, OtherEnd};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// A process that says nothing for this long is stopped, or far too busy.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// How long an answer may take in all.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest answer, bytes: 65,536 queue pairs with all paths would be longer.
const ANSWER_BYTES_MAX: u64 = 512 << 20;
/// A socket is listened at before it appears. If one that refuses is older than this, its number has a new owner.
const STALE_AGE: Duration = Duration::from_secs(10);

/// What a device said.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Process, as this process knows it.
    pub pid: u32,
    /// The device.
    pub head: Value,
    /// Its queue pairs.
    pub qps: Vec<Value>,
}

/// Why a socket gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Silent {
    /// Its process is gone.
    #[error("the process is gone")]
    Gone,
    /// Too many ask it already, or it is stopped.
    #[error("it does not answer; is it stopped?")]
    Stopped,
    /// It belongs to somebody else.
    #[error("it belongs to user {0}")]
    Foreign(u32),
    /// Not what a device says.
    #[error("it says what this release does not understand ({0}); use the same release on both sides")]
    Nonsense(&'static str),
    /// The system refuses.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// The sockets of all devices of this user (of all users for root), with the process that each one's name tells.
/// What killed processes have left is removed.
pub fn sockets(directories: &[PathBuf]) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for entry in
        directories.iter().flat_map(|directory| fs::read_dir(directory).into_iter().flatten()).flatten()
    {
        let path = entry.path();
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(pid_of) else { continue };
        if is_stale(&path, pid) {
            // Somebody else may have been faster.
            let _ = fs::remove_file(&path);
        } else {
            found.push((pid, path));
        }
    }
    found.sort();
    found
}

/// Where to look.
pub fn directories() -> Vec<PathBuf> {
    watching::directories(&crate::environment::inherited)
}

/// `PID-N`.
fn pid_of(name: &str) -> Option<u32> {
    let (pid, number) = name.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// Whether nobody listens there any more. Only what belongs to us is called so.
fn is_stale(path: &Path, pid: u32) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    // SAFETY: no preconditions, cannot fail.
    let us = unsafe { libc::geteuid() };
    let refuses = || connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    // Without a process of that number here it may still be one of another PID namespace: then it does not refuse.
    let is_old = || {
        found.modified().is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > STALE_AGE))
    };
    found.uid() == us && (!Path::new("/proc").join(pid.to_string()).exists() || is_old()) && refuses()
}

/// Connects without waiting: a process that is stopped accepts nobody, and then its queue is full at last.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all zeros is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    // SAFETY: no pointers; the result is checked before it is owned.
    let fd = unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `address` has the length that is given and lives across the call.
    if unsafe { libc::connect(fd, (&raw const address).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    Ok(stream)
}

/// Asks the device at `path`; `request` as in the engine's `watch` module.
pub fn ask(path: &Path, pid: u32, request: &str) -> Result<Answer, Silent> {
    let mut stream = connect(path).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => Silent::Gone,
        ErrorKind::WouldBlock => Silent::Stopped,
        _ => Silent::System(error),
    })?;
    let listener = OtherEnd::of(&stream)?;
    // SAFETY: no preconditions, cannot fail.
    let us = unsafe { libc::geteuid() };
    if us != 0 && listener.user != us {
        return Err(Silent::Foreign(listener.user));
    }
    stream.write_all(request.as_bytes()).and_then(|()| stream.write_all(b"\n")).map_err(interrupted)?;
    // A process of another PID namespace has no number here but its own.
    let pid = listener.pid.unwrap_or(pid);
    understand(BufReader::new(stream.take(ANSWER_BYTES_MAX)), pid, Instant::now() + ANSWER_MAX)
}

fn interrupted(error: io::Error) -> Silent {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Silent::Stopped,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Silent::Gone,
        _ => Silent::System(error),
    }
}

fn understand(reader: impl BufRead, pid: u32, deadline: Instant) -> Result<Answer, Silent> {
    let mut answer = Answer { pid, head: Value::Null, qps: Vec::new() };
    for line in reader.split(b'\n') {
        let line = line.map_err(interrupted)?;
        if Instant::now() > deadline {
            return Err(Silent::Stopped);
        }
        let value: Value = serde_json::from_slice(&line).map_err(|_| Silent::Nonsense("no JSON"))?;
        if value["end"] == true {
            return Ok(answer);
        }
        match &answer.head {
            Value::Null if value["version"] != 1 => return Err(Silent::Nonsense("another version")),
            Value::Null => answer.head = value,
            _ => answer.qps.push(value),
        }
    }
    Err(Silent::Gone)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::net::UnixListener;

    fn told(text: &str) -> Result<Answer, Silent> {
        understand(text.as_bytes(), 7, Instant::now() + ANSWER_MAX)
    }

    #[test]
    fn an_answer_is_whole_or_none() {
        let answer = told("{\"version\":1,\"pid\":3}\n{\"qpn\":5}\n{\"end\":true}\nmore").unwrap();
        assert_eq!((answer.pid, answer.qps.len(), &answer.head["pid"]), (7, 1, &3.into()));
        for text in
            ["", "{\"version\":1}\n", "{\"version\":2}\n{\"end\":true}\n", "x\n", "{\"version\":1}\n[\n"]
        {
            assert!(told(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sockets_that_killed_processes_left_are_removed_and_nothing_else_is() {
        let directory = std::env::temp_dir().join(format!("srdma-attach-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let pid = std::process::id();
        let at = |name: String| directory.join(name);
        let _alive = UnixListener::bind(at(format!("{pid}-0"))).unwrap();
        // No process has this number: they end at 2²².
        let _elsewhere = UnixListener::bind(at("9999999-0".into())).unwrap();
        drop(UnixListener::bind(at("9999999-1".into())).unwrap());
        drop(UnixListener::bind(at(format!("{pid}-1"))).unwrap());
        fs::write(at("notes".into()), "").unwrap();
        let names = |found: Vec<(u32, PathBuf)>| -> Vec<String> {
            found.iter().map(|(_, path)| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        let found = names(sockets(std::slice::from_ref(&directory)));
        assert_eq!(found, [format!("{pid}-0"), format!("{pid}-1"), "9999999-0".into()]);
        let left = fs::read_dir(&directory).unwrap().count();
        assert_eq!(left, 4, "one just made by a living process may be its next socket");
        fs::remove_dir_all(&directory).unwrap();
    }
}
