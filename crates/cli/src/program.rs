//! Which file a command names, and whether the dynamic linker will put our libraries before it.
//!
//! A program that ignores `LD_PRELOAD` would run without us and say only that there is no RDMA
//! device, so what can be seen beforehand is refused here. Formats: ELF-64 (System V gABI, chapters
//! 4 and 5) and scripts (execve(2)); secure execution: ld.so(8).

use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a program cannot be run on the software RNIC.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No such file in any directory of PATH.
    #[error("{0}: no such program in PATH; install it, or give its path")]
    NotInPath(String),
    /// No such file.
    #[error("{0}: no such file")]
    NoFile(String),
    /// It is there, but not a program.
    #[error("{0} is a directory, not a program")]
    Directory(String),
    /// The execute bit is not set for us.
    #[error("{0} is not executable; try `chmod +x`")]
    NotExecutable(String),
    /// The interpreter of the script is missing.
    #[error("{script}: its interpreter {interpreter} does not exist; install it")]
    NoInterpreter { script: String, interpreter: String },
    /// There is no dynamic linker to load our libraries.
    #[error("{0} is statically linked, so no library can be put before it; use a dynamically linked build")]
    Static(String),
    /// Linked against another C library.
    #[error("{0} is linked against musl; our libraries need glibc, use a build for glibc")]
    Musl(String),
    /// For another machine.
    #[error("{0} is a program for another kind of processor than this srdma; use matching builds")]
    Foreign(String),
    /// The linker ignores LD_PRELOAD in secure execution.
    #[error("{program} {why}, so the linker ignores LD_PRELOAD; run a copy of it without that")]
    Secure { program: String, why: &'static str },
}

impl ProgramError {
    /// The exit code that shells, env(1) and nohup(1) use for this.
    pub fn exit_code(&self) -> u8 {
        match self {
            ProgramError::NotInPath(_) | ProgramError::NoFile(_) => 127,
            _ => 126,
        }
    }
}

/// Finds the file that `name` means, as execvp(3) does: with a slash it is a path, otherwise the first
/// executable in `search` (the value of PATH).
pub fn find(name: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    let shown = name.to_string_lossy().into_owned();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return executable(&path).map(|()| path);
    }
    let mut denied = None;
    // An unset PATH means these (execvp(3), confstr(_CS_PATH)); an empty entry means here.
    for directory in search.unwrap_or(OsStr::new("/bin:/usr/bin")).as_bytes().split(|b| *b == b':') {
        let directory = if directory.is_empty() { b"." } else { directory };
        let path = Path::new(OsStr::from_bytes(directory)).join(name);
        match executable(&path) {
            Ok(()) if !name.is_empty() => return Ok(path),
            Err(error @ ProgramError::NotExecutable(_)) => denied = denied.or(Some(error)),
            _ => {}
        }
    }
    Err(denied.unwrap_or(ProgramError::NotInPath(shown)))
}

fn executable(path: &Path) -> Result<(), ProgramError> {
    let shown = path.display().to_string();
    let meta = path.metadata().map_err(|_| ProgramError::NoFile(shown.clone()))?;
    if meta.is_dir() {
        return Err(ProgramError::Directory(shown));
    }
    let text = CString::new(path.as_os_str().as_bytes()).map_err(|_| ProgramError::NoFile(shown.clone()))?;
    // SAFETY: `text` is a NUL-terminated string that outlives the call.
    let allowed = unsafe { libc::access(text.as_ptr(), libc::X_OK) } == 0;
    // access(2) says yes to root for a file with any execute bit, and for directories.
    if !allowed || meta.permissions().mode() & 0o111 == 0 {
        return Err(ProgramError::NotExecutable(shown));
    }
    Ok(())
}

/// Refuses what would run without our libraries. What cannot be read or is unknown passes: execve(2)
/// will judge it.
pub fn inspect(path: &Path) -> Result<(), ProgramError> {
    let shown = || path.display().to_string();
    let Ok(mut file) = File::open(path) else { return Ok(()) };
    let mut head = [0u8; 256];
    let Ok(len) = fill(&mut file, &mut head) else { return Ok(()) };
    if let Some(interpreter) = script_interpreter(&head[..len]) {
        return match inspect(&interpreter) {
            _ if !interpreter.exists() => Err(ProgramError::NoInterpreter {
                script: shown(),
                interpreter: interpreter.display().to_string(),
            }),
            verdict => verdict,
        };
    }
    match linkage(&mut file, &head[..len]) {
        Some(Linkage::Static) => return Err(ProgramError::Static(shown())),
        Some(Linkage::Foreign) => return Err(ProgramError::Foreign(shown())),
        Some(Linkage::Musl) => return Err(ProgramError::Musl(shown())),
        Some(Linkage::Dynamic) | None => {}
    }
    match file.metadata().ok().and_then(|meta| secure(path, &meta)) {
        Some(why) => Err(ProgramError::Secure { program: shown(), why }),
        None => Ok(()),
    }
}

/// Why the kernel would start `path` in secure-execution mode (AT_SECURE of getauxval(3)).
fn secure(path: &Path, meta: &Metadata) -> Option<&'static str> {
    // SAFETY: these calls have no preconditions and cannot fail.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    if meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid {
        return Some("runs as another user (set-user-ID)");
    }
    let group_bits = libc::S_ISGID | libc::S_IXGRP;
    if meta.mode() & group_bits == group_bits && meta.gid() != gid {
        return Some("runs as another group (set-group-ID)");
    }
    let text = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: both strings are NUL-terminated; a null buffer of size 0 asks for the length only.
    let length =
        unsafe { libc::getxattr(text.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    // root has the capabilities anyway, so nothing is gained and nothing is secure.
    (length > 0 && uid != 0).then_some("has file capabilities")
}

fn fill(file: &mut File, into: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read(&mut into[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The interpreter that `#!` names.
fn script_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let word = line.split(|b| [b' ', b'\t', b'\r'].contains(b)).find(|word| !word.is_empty())?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(word.to_vec())))
}

#[derive(Debug, PartialEq, Eq)]
enum Linkage {
    Dynamic,
    Static,
    Musl,
    Foreign,
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62; // EM_X86_64
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183; // EM_AARCH64

const PT_INTERP: u32 = 3;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// How an ELF file is linked; `None` if it is not one, or is cut short.
fn linkage(file: &mut (impl Read + Seek), head: &[u8]) -> Option<Linkage> {
    const HEADER_BYTES: usize = 64;
    const ENTRY_BYTES: usize = 56;
    if !head.starts_with(b"\x7fELF") || head.len() < HEADER_BYTES {
        return None;
    }
    let (class_64, little_endian) = (head[4] == 2, head[5] == 1);
    if !class_64 || !little_endian || u16_at(head, 18)? != MACHINE {
        return Some(Linkage::Foreign);
    }
    let (table_at, entry_bytes, entries) = (u64_at(head, 32)?, u16_at(head, 54)?, u16_at(head, 56)?);
    if usize::from(entry_bytes) < ENTRY_BYTES {
        return None;
    }
    let mut table = vec![0u8; usize::from(entry_bytes) * usize::from(entries)];
    file.seek(SeekFrom::Start(table_at)).ok()?;
    file.read_exact(&mut table).ok()?;
    let is_interp = |entry: &&[u8]| entry[..4] == PT_INTERP.to_le_bytes();
    let Some(entry) = table.chunks_exact(usize::from(entry_bytes)).find(is_interp) else {
        return Some(Linkage::Static);
    };
    let mut name = Vec::new();
    file.seek(SeekFrom::Start(u64_at(entry, 8)?)).ok()?;
    file.take(u64_at(entry, 32)?.min(4096)).read_to_end(&mut name).ok()?;
    let musl = name.windows(7).any(|part| part == b"ld-musl");
    Some(if musl { Linkage::Musl } else { Linkage::Dynamic })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Cursor;

    /// An ELF-64 file with one program header of type `kind` that points at `interpreter`.
    fn elf(class: u8, machine: u16, kind: u32, interpreter: &str) -> Vec<u8> {
        let mut file = vec![0u8; 120];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[54..56].copy_from_slice(&56u16.to_le_bytes());
        file[56..58].copy_from_slice(&1u16.to_le_bytes());
        file[64..68].copy_from_slice(&kind.to_le_bytes());
        file[72..80].copy_from_slice(&120u64.to_le_bytes());
        file[96..104].copy_from_slice(&(interpreter.len() as u64).to_le_bytes());
        file.extend(interpreter.as_bytes());
        file
    }

    fn judged(file: &[u8]) -> Option<Linkage> {
        linkage(&mut Cursor::new(file), &file[..file.len().min(256)])
    }

    #[test]
    fn linkage_is_read_from_the_program_headers() {
        let glibc = "/lib64/ld-linux-x86-64.so.2";
        for (file, expected) in [
            (elf(2, MACHINE, PT_INTERP, glibc), Some(Linkage::Dynamic)),
            (elf(2, MACHINE, 1, glibc), Some(Linkage::Static)),
            (elf(2, MACHINE, PT_INTERP, "/lib/ld-musl-x86_64.so.1"), Some(Linkage::Musl)),
            (elf(1, MACHINE, PT_INTERP, glibc), Some(Linkage::Foreign)),
            (elf(2, 40, PT_INTERP, glibc), Some(Linkage::Foreign)),
            (b"#!/bin/sh\n".to_vec(), None),
            (Vec::new(), None),
        ] {
            assert_eq!(judged(&file), expected);
        }
    }

    #[test]
    fn a_cut_or_scrambled_header_is_left_to_the_kernel() {
        let whole = elf(2, MACHINE, PT_INTERP, "/lib64/ld-linux-x86-64.so.2");
        for len in 0..120 {
            assert_eq!(judged(&whole[..len]), None, "{len}");
        }
        let mut far = whole.clone();
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(judged(&far), None);
        let mut narrow = whole;
        narrow[54..56].copy_from_slice(&1u16.to_le_bytes());
        assert_eq!(judged(&narrow), None);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        for (head, interpreter) in [
            ("#!/bin/sh\nexit", Some("/bin/sh")),
            ("#! /usr/bin/env python3\n", Some("/usr/bin/env")),
            ("#!/bin/sh\t-e\r\n", Some("/bin/sh")),
            ("#!\n", None),
            ("#", None),
        ] {
            assert_eq!(script_interpreter(head.as_bytes()), interpreter.map(PathBuf::from), "{head}");
        }
    }

    #[test]
    fn programs_are_found_as_execvp_does() {
        let path = OsStr::new("/no/such:/bin");
        assert_eq!(find(OsStr::new("sh"), Some(path)).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find(OsStr::new("sh"), None).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find(OsStr::new("/bin/sh"), Some(path)).unwrap(), Path::new("/bin/sh"));
        for (name, code) in
            [("no-such-program", 127), ("", 127), ("/no/such", 127), ("/tmp", 126), ("/etc/passwd", 126)]
        {
            assert_eq!(find(OsStr::new(name), Some(path)).unwrap_err().exit_code(), code, "{name}");
        }
    }
}
