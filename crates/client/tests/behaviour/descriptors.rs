//! Programs that close descriptors which they have not opened, and open files of their own under the same numbers.

use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use srdma_abi::{Opcode, SendEntry};
use srdma_client::PostError;

use crate::ground::part::{part, this_test, Part};
use crate::ground::*;

/// What a descriptor of ours is, by the link in /proc/self/fd.
const KINDS: [&str; 4] = ["socket:", "timerfd", "srdma-staging", ""];
const BYTES: u32 = 4096;

/// Open descriptors beyond the standard ones whose file is of this kind.
fn descriptors(kind: &str) -> Vec<RawFd> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter_map(|entry| {
        let fd: RawFd = entry.file_name().to_str()?.parse().ok()?;
        // The directory being read is closed by now.
        let link = std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        (fd > 2 && link.contains(kind) && !link.starts_with("/proc")).then_some(fd)
    })
    .collect()
}

fn text_file() -> std::fs::File {
    use std::io::Write;
    // SAFETY: a name that ends in a zero byte; a fresh descriptor that nobody else owns.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"of-the-program".as_ptr(), libc::MFD_CLOEXEC);
        let high = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 900);
        libc::close(fd);
        std::fs::File::from_raw_fd(high)
    };
    file.write_all(&[b'x'; 100_000]).unwrap();
    file
}

fn is_untouched(file: &std::fs::File) -> bool {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; 200_000];
    let length = file.read_at(&mut bytes, 0).unwrap();
    length == 100_000 && bytes[..length].iter().all(|&byte| byte == b'x')
}

/// Clock ticks of CPU time that the process has used.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn device_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .filter(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default() == "srdma\n")
        .count()
}

/// Takes descriptors of `kind` away, closed or replaced, under traffic or at rest, and uses the device on.
fn lose(kind: &str, replace: bool, busy: bool) {
    let options = srdma_client::Options { paths: 3, ..options() };
    let pair = Pair::with(&options);
    let ((here, lkey), (there, rkey)) = (pair.a.host.region(BYTES.into()), pair.b.host.region(BYTES.into()));
    let write = |wr_id| -> SendEntry {
        to_remote(entry(Opcode::Write, wr_id, &[sge(&here, 0, BYTES, lkey)]), there.address(), rkey)
    };
    for wr_id in 0..20 {
        assert_eq!(outcomes(&[pair.a.run(write(wr_id))]), [done(wr_id)]);
    }
    // So that this end has placed bytes too, and opened what it takes.
    let read = entry(Opcode::Read, 20, &[sge(&here, 0, BYTES, lkey)]);
    assert_eq!(outcomes(&[pair.a.run(to_remote(read, there.address(), rkey))]), [done(20)]);
    pair.b.post_recv(99, &[]);
    if busy {
        (0..8).for_each(|wr_id| pair.a.post(write(wr_id)));
    }
    let file = text_file();
    let taken: Vec<RawFd> = descriptors(kind).into_iter().filter(|&fd| fd != file.as_raw_fd()).collect();
    assert!(!taken.is_empty(), "{kind}: none is open");
    for &fd in &taken {
        // SAFETY: what the test is about: descriptors of the library are closed, or name another file.
        unsafe {
            match replace {
                true => libc::dup2(file.as_raw_fd(), fd),
                false => libc::close(fd),
            };
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(50));
    // However late it is noticed, what is posted until then completes, with an error, and then nothing can be posted.
    let mut posted = if busy { 8 } else { 0 };
    let mut completed = 0;
    wait("the end of the device", &[], || {
        match pair.a.try_post(write(7), &[]) {
            Ok(()) => posted += 1,
            Err(PostError::Full) => {}
            Err(error) => {
                assert_eq!(error, PostError::Gone);
                return Some(());
            }
        }
        completed += pair.a.sends.poll(&mut [Default::default(); 16]).expect("not gone, only over");
        pair.b.recvs.poll(&mut []);
        std::thread::sleep(std::time::Duration::from_millis(1));
        None
    });
    wait("a completion of everything posted", &[], || {
        completed += pair.a.sends.poll(&mut [Default::default(); 16]).expect("not gone, only over");
        (completed == posted).then_some(())
    });
    assert!(pair.a.host.device.alloc_pd().is_err());
    let _ = pair.b.host.device.alloc_pd();
    // Asleep as well, whatever it slept on.
    wait("the threads' end", &[], || {
        pair.b.recvs.poll(&mut [Default::default(); 1]);
        std::thread::sleep(std::time::Duration::from_millis(1));
        (device_threads() == 0).then_some(())
    });
    let before = ticks();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(ticks() - before < 5, "somebody spins");
    assert!(is_untouched(&file), "{kind}: the program's file was written to");
}

#[test]
fn a_device_whose_descriptors_are_taken_away_ends_and_touches_no_file_of_the_program() {
    if let Some(words) = part() {
        return lose(KINDS[words[0].parse::<usize>().unwrap()], words[1] == "replaced", words[2] == "busy");
    }
    for (number, kind) in KINDS.iter().enumerate() {
        for how in ["closed", "replaced"] {
            for when in ["busy", "resting"] {
                let part = Part::start(this_test!(), &format!("{number} {how} {when}"));
                let (status, log) = part.finish();
                let name = format!("{kind:?} {how} {when}");
                assert!(status.success() && log.contains("1 passed"), "{name}: {status}\n{log}");
                // One line for each of the two devices.
                let lines = log.lines().filter(|line| line.contains("has closed descriptors")).count();
                assert_eq!(lines, 2, "{name}:\n{log}");
            }
        }
    }
}
