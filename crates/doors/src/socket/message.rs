//! Messages with descriptors beside them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use srdma_abi::command::{DESCRIPTORS_MAX, MESSAGE_BYTES_MAX};

/// Bytes of a message's control part: one header and the descriptors, aligned (cmsg(3)).
const CONTROL_WORDS: usize = 8;
type Control = [u64; CONTROL_WORDS];

const _: () = {
    // SAFETY: arithmetic only.
    let space = unsafe { libc::CMSG_SPACE((DESCRIPTORS_MAX * size_of::<RawFd>()) as u32) };
    assert!(space as usize <= size_of::<Control>());
};

/// A connected pair's other end; for tests, and for whoever passes a socket on.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it is owned.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A socket's path as the kernel takes it, with its length. Longer ones than `sun_path` are refused.
pub(crate) fn address(path: &std::path::Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all zeros is a valid address of no family.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        let text =
            format!("{}: a socket's path has 1 to {} bytes", path.display(), address.sun_path.len() - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

/// Sends one message, whole or not at all. `flags` beside MSG_NOSIGNAL.
pub(crate) fn send(to: RawFd, bytes: &[u8], descriptors: &[OwnedFd], flags: libc::c_int) -> io::Result<()> {
    let mut control: Control = [0; CONTROL_WORDS];
    let mut slice = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: zero is a valid `msghdr`: null pointers and integers.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut slice;
    header.msg_iovlen = 1;
    let count = descriptors.len().min(DESCRIPTORS_MAX);
    if count > 0 {
        let payload = (count * size_of::<RawFd>()) as u32;
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: arithmetic; then the first header lies within `control`, which has room for it and the descriptors.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(payload) as _;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(payload) as _;
            let data = libc::CMSG_DATA(first).cast::<RawFd>();
            for (index, descriptor) in descriptors.iter().take(count).enumerate() {
                data.add(index).write_unaligned(descriptor.as_raw_fd());
            }
        }
    }
    loop {
        // SAFETY: header, slice and control live through the call.
        let sent = unsafe { libc::sendmsg(to, &header, flags | libc::MSG_NOSIGNAL) };
        match sent {
            sent if sent == bytes.len() as isize => return Ok(()),
            sent if sent >= 0 => return Err(io::ErrorKind::WriteZero.into()),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// A message that has come.
pub(crate) struct Received {
    /// Its bytes; none at the end of the conversation.
    pub(crate) length: usize,
    /// What came beside it.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Takes one message. One that does not fit is an error.
pub(crate) fn receive(
    from: RawFd,
    into: &mut [u8; MESSAGE_BYTES_MAX],
    flags: libc::c_int,
) -> io::Result<Received> {
    let mut control: Control = [0; CONTROL_WORDS];
    let mut slice = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: zero is a valid `msghdr`.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    let length = loop {
        header.msg_controllen = size_of::<Control>() as _;
        // SAFETY: header, slice and control live through the call.
        let length = unsafe { libc::recvmsg(from, &mut header, flags | libc::MSG_CMSG_CLOEXEC) };
        match length {
            length if length >= 0 => break length as usize,
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    };
    let descriptors = take_descriptors(&header);
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too long"));
    }
    Ok(Received { length, descriptors })
}

fn take_descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut taken = Vec::new();
    // SAFETY: the kernel has filled control and its length; the macros stay within.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !at.is_null() {
        // SAFETY: a header within control.
        let part = unsafe { &*at };
        if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: arithmetic only.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = (part.cmsg_len as usize).saturating_sub(head) / size_of::<RawFd>();
            for index in 0..count {
                // SAFETY: the kernel wrote `count` descriptors there, each new and nobody else's.
                taken.push(unsafe {
                    let fd = libc::CMSG_DATA(at).cast::<RawFd>().add(index).read_unaligned();
                    OwnedFd::from_raw_fd(fd)
                });
            }
        }
        // SAFETY: as for the first.
        at = unsafe { libc::CMSG_NXTHDR(header, at) };
    }
    taken
}
