//! Where the socket is, and who may connect.
//!
//! One socket per device, `PID-N` in a directory that belongs to the user alone. It appears there only when it is
//! listened at: whoever finds one that refuses connections knows that its process is gone.

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Devices of one process, and processes of other PID namespaces with the same number, at most.
const NUMBERS: u32 = 256;

/// Why nobody can watch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    /// The directory is not ours alone.
    #[error("{} must be a directory of this user with mode 0700", .0.display())]
    Directory(PathBuf),
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    File {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Makes the directory if need be, and a socket in it.
pub(super) fn listen(directory: &Path) -> Result<(UnixListener, PathBuf), WatchError> {
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| WatchError::File { path, source }
    };
    make_directory(directory)?;
    let pid = std::process::id();
    for number in 0..NUMBERS {
        let path = directory.join(format!("{pid}-{number}"));
        let hidden = directory.join(format!(".{pid}-{number}"));
        let listener = match UnixListener::bind(&hidden) {
            Ok(listener) => listener,
            Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
            Err(error) => return Err(refused(&hidden)(error)),
        };
        let published = listener.set_nonblocking(true).and_then(|()| rename_new(&hidden, &path));
        match published {
            Ok(()) => return Ok((listener, path)),
            Err(error) => {
                // What cannot be removed now is as harmless as what a killed process leaves.
                let _ = std::fs::remove_file(&hidden);
                if error.kind() != ErrorKind::AlreadyExists {
                    return Err(refused(&path)(error));
                }
            }
        }
    }
    Err(refused(directory)(ErrorKind::AddrInUse.into()))
}

fn make_directory(directory: &Path) -> Result<(), WatchError> {
    let refused = |source| WatchError::File { path: directory.to_owned(), source };
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(error)),
        _ => {}
    }
    let found = std::fs::symlink_metadata(directory).map_err(refused)?;
    // SAFETY: no preconditions, cannot fail.
    let us = unsafe { libc::geteuid() };
    if !found.is_dir() || found.uid() != us || found.mode() & 0o077 != 0 {
        return Err(WatchError::Directory(directory.to_owned()));
    }
    Ok(())
}

/// Gives a socket another name that nothing has yet.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

/// The process at the other end of a unix socket, as the kernel vouches for it (SO_PEERCRED, unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherEnd {
    /// Its number here; `None` for one of a PID namespace that is not seen from here.
    pub pid: Option<u32>,
    /// Its effective user when it connected, or began to listen.
    pub user: u32,
}

impl OtherEnd {
    /// Asks the kernel.
    pub fn of(stream: &UnixStream) -> io::Result<OtherEnd> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `peer` has the length that is given; both live across the call.
        let got = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &mut length,
            )
        };
        match got {
            0 => Ok(OtherEnd { pid: u32::try_from(peer.pid).ok().filter(|&pid| pid > 0), user: peer.uid }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Whether the other end of `stream` is a process of this user, or of root.
pub(super) fn may_watch(stream: &UnixStream) -> bool {
    // SAFETY: no preconditions, cannot fail.
    let us = unsafe { libc::geteuid() };
    OtherEnd::of(stream).is_ok_and(|end| end.user == us || end.user == 0)
}
