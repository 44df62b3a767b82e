//! The memory of another process: a child that waits while its pages are read and written.
#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use srdma_dma::{Fault, ProcessMemory, Transfer};

const PAGE: usize = 4096;

fn memory_of(pid: libc::pid_t) -> ProcessMemory {
    let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).unwrap();
    // SAFETY: another process' memory, and buffers of this test alone.
    unsafe { ProcessMemory::new(OwnedFd::from(file)) }
}

/// A child of ours (fork without exec: its memory is a copy of ours, at the same addresses) that sleeps.
struct Sleeper(libc::pid_t);

impl Sleeper {
    fn new() -> Sleeper {
        // SAFETY: the child only sleeps, which is async-signal-safe.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: no pointers.
                unsafe { libc::pause() };
            },
            pid => {
                assert!(pid > 0);
                Sleeper(pid)
            }
        }
    }

    fn memory(&self) -> ProcessMemory {
        memory_of(self.0)
    }

    fn end(&self) {
        // SAFETY: our own child, ended and waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// Pages of our own, each with its protection.
fn pages(protections: &[libc::c_int]) -> usize {
    let bytes = protections.len() * PAGE;
    // SAFETY: a new mapping; parts of it are protected or unmapped before anybody looks.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        for (index, protection) in protections.iter().enumerate() {
            let page = start.cast::<u8>().add(index * PAGE).cast();
            match *protection {
                -1 => assert_eq!(libc::munmap(page, PAGE), 0),
                other => assert_eq!(libc::mprotect(page, PAGE, other), 0),
            }
        }
        start as usize
    }
}

const OPEN: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
const GONE: libc::c_int = -1;

#[test]
fn bytes_go_there_and_come_back_and_ours_stay_as_they_were() {
    let start = pages(&[OPEN; 4]);
    let child = Sleeper::new();
    let mut memory = child.memory();
    let parts: Vec<Vec<u8>> = (0..9u8).map(|number| vec![number + 1; 1_500]).collect();
    let batch: Vec<Transfer> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| Transfer::out(part, (start + 10 + index * 1_500) as u64))
        .collect();
    memory.write(&batch).unwrap();
    let calls = memory.calls;
    assert!(calls <= 2, "{calls} calls for one stream and its last word");
    let (mut first, mut second) = (vec![0; 6_000], vec![0; 7_500]);
    let back = [
        Transfer::back(&mut first, (start + 10) as u64),
        Transfer::back(&mut second, (start + 10 + 6_000) as u64),
    ];
    memory.read(&back).unwrap();
    assert_eq!(memory.calls - calls, 1, "one call for what adjoins");
    assert_eq!([first, second].concat(), parts.concat());
    // SAFETY: our own pages.
    assert_eq!(unsafe { *((start + 10) as *const u8) }, 0, "the child's memory was written, not ours");
    let address = (start + 16) as u64;
    memory.write(&[Transfer::out(&7u64.to_ne_bytes(), address)]).unwrap();
    assert_eq!(memory.atomic_u64(address, |old| Some(old + 5)), Ok(7));
    assert_eq!(memory.atomic_u64(address, |_| None), Ok(12));
}

#[test]
fn what_is_not_there_is_a_fault_of_the_right_transfer() {
    let start = pages(&[OPEN, GONE, OPEN]);
    let child = Sleeper::new();
    let mut memory = child.memory();
    let bytes = [7; 100];
    let at = |offset: usize| Transfer::out(&bytes, (start + offset) as u64);
    for (batch, index) in [
        (vec![at(0), at(PAGE), at(2 * PAGE)], 1),
        (vec![at(0), at(200), at(PAGE - 50)], 2),
        (vec![at(2 * PAGE - 1)], 0),
        (vec![Transfer::out(&bytes, u64::MAX - 50)], 0),
        (vec![at(0), Transfer::out(&bytes, 1 << 63)], 1),
    ] {
        assert_eq!(memory.write(&batch), Err(Fault { index }));
    }
    let mut back = [0; 100];
    assert_eq!(memory.read(&[Transfer::back(&mut back, (start + PAGE) as u64)]), Err(Fault { index: 0 }));
    assert_eq!(memory.write(&[at(2 * PAGE)]), Ok(()));
}

#[test]
fn nothing_is_reached_after_the_end() {
    let start = pages(&[OPEN]);
    let child = Sleeper::new();
    let mut memory = child.memory();
    memory.write(&[Transfer::out(&[1; 8], start as u64)]).unwrap();
    child.end();
    assert_eq!(memory.write(&[Transfer::out(&[2; 8], start as u64)]), Err(Fault { index: 0 }));
}

/// A program that executes another one keeps its number, and only that.
#[test]
fn another_program_under_the_same_number_is_not_reached() {
    let mut child: Child = Command::new("sh")
        .args(["-c", "echo 1; read line; exec sleep 100"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 2]).unwrap();
    let mut memory = memory_of(child.id() as libc::pid_t);
    let readable = |pid: u32| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let line = maps.lines().find(|line| line.contains("[stack]")).unwrap().to_owned();
        u64::from_str_radix(line.split(['-', ' ']).nth(1).unwrap(), 16).unwrap() - 8
    };
    let mut word = [0; 8];
    memory.read(&[Transfer::back(&mut word, readable(child.id()))]).unwrap();
    drop(child.stdin.take());
    let is_other = || std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() == "sleep\n";
    while !is_other() {
        std::thread::yield_now();
    }
    let place = readable(child.id());
    assert_eq!(memory.read(&[Transfer::back(&mut word, place)]), Err(Fault { index: 0 }));
    child.kill().unwrap();
    child.wait().unwrap();
}
