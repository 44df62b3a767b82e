//! Memory that is there is moved; memory that is not is named, and nobody dies of it.
#![allow(clippy::unwrap_used)]

use srdma_dma::{Fault, OwnMemory, Transfer};
use srdma_seams::Rng;

const PAGE: usize = 4096;

/// Pages of our own, some of them protected.
struct Pages(*mut u8, usize);

impl Pages {
    fn new(pages: usize) -> Pages {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE, protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Pages(at.cast(), pages * PAGE)
    }

    fn protect(&self, page: usize, protection: i32) {
        // SAFETY: one page of the mapping; nobody holds a reference into it.
        assert_eq!(0, unsafe { libc::mprotect(self.0.add(page * PAGE).cast(), PAGE, protection) });
    }

    fn address(&self, offset: usize) -> u64 {
        self.0 as u64 + offset as u64
    }

    /// A copy of readable bytes.
    fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        // SAFETY: within the mapping, in pages that the test left readable.
        unsafe { std::slice::from_raw_parts(self.0.add(offset), length) }.to_vec()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// Both ways: staging memory, and the pipe for sandboxes.
fn movers() -> [(&'static str, OwnMemory); 2] {
    // SAFETY: the tests hand over pages of their own and local buffers only.
    let (staged, mut piped) = unsafe { (OwnMemory::new(), OwnMemory::new()) };
    piped.use_pipe();
    [("staging", staged), ("pipe", piped)]
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

#[test]
fn scattered_and_adjoining_targets_are_written_in_order() {
    for (name, mut memory) in movers() {
        let pages = Pages::new(64);
        let source = pattern(100_000);
        let mut batch = Vec::new();
        // Adjoining targets from scattered sources, beyond one call's slices, with empty ones between.
        for i in 0..2500 {
            batch.push(Transfer::out(&source[i * 40..i * 40 + 33], pages.address(100 + i * 33)));
            batch.push(Transfer::out(&[], pages.address(0)));
        }
        // A later transfer overwrites an earlier one.
        batch.push(Transfer::out(&[7; 10], pages.address(105)));
        memory.write(&batch).unwrap();
        let mut expected: Vec<u8> = (0..2500).flat_map(|i| source[i * 40..i * 40 + 33].to_vec()).collect();
        expected[5..15].fill(7);
        assert!(pages.bytes(100, expected.len()) == expected, "{name}");

        let mut back = vec![0; expected.len()];
        let (front, rest) = back.split_at_mut(50_001);
        let batch =
            [Transfer::back(rest, pages.address(100 + 50_001)), Transfer::back(front, pages.address(100))];
        memory.read(&batch).unwrap();
        assert!(back == expected, "{name}");
    }
}

#[test]
fn the_transfer_that_fails_is_named_and_earlier_ones_are_done() {
    for (name, mut memory) in movers() {
        for (case, protection) in [("none", libc::PROT_NONE), ("read-only", libc::PROT_READ)] {
            let pages = Pages::new(8);
            pages.protect(4, protection);
            let bytes = pattern(3 * PAGE);
            let at = |page: usize, offset: usize| pages.address(page * PAGE + offset);
            // (targets and lengths, index of the one that fails)
            let batches: &[(&[(u64, usize)], usize)] = &[
                (&[(at(4, 0), 8)], 0),
                (&[(at(0, 0), 8), (at(4, 8), 8), (at(1, 0), 8)], 1),
                (&[(at(0, 0), 8), (at(3, PAGE - 8), 8), (at(4, 0), 8)], 2),
                (&[(at(3, PAGE - 8), 16)], 0),
                (&[(at(2, 0), 3 * PAGE)], 0),
                (&[(at(3, 0), PAGE - 1), (at(3, PAGE - 1), 1), (at(4, 0), 0), (at(4, 0), 1)], 3),
                (&[(at(0, 0), 8), (u64::MAX - 3, 8)], 1),
                (&[(at(0, 0), 8), (16, 8), (at(1, 0), 8)], 1),
            ];
            for (targets, fails) in batches {
                let batch: Vec<_> =
                    targets.iter().map(|&(to, length)| Transfer::out(&bytes[..length], to)).collect();
                let result = memory.write(&batch);
                assert_eq!(result, Err(Fault { index: *fails }), "{name} {case} {targets:x?}");
                for &(to, length) in &targets[..*fails] {
                    assert_eq!(
                        pages.bytes((to - pages.address(0)) as usize, length),
                        bytes[..length],
                        "{name}"
                    );
                }
            }
            let mut back = vec![0; PAGE + 8];
            let result = memory.read(&[Transfer::back(&mut back, at(3, 8))]);
            assert_eq!(result, if case == "none" { Err(Fault { index: 0 }) } else { Ok(()) }, "{name}");
            // A fault leaves the mover usable.
            memory.write(&[Transfer::out(b"again", at(0, 0))]).unwrap();
            assert_eq!(pages.bytes(0, 5), b"again", "{name}");
        }
    }
}

#[test]
fn atomics_need_memory_that_can_be_written() {
    for (name, mut memory) in movers() {
        let pages = Pages::new(3);
        let counter = pages.address(64);
        assert_eq!(memory.atomic_u64(counter, |v| Some(v.wrapping_add(5))), Ok(0), "{name}");
        assert_eq!(memory.atomic_u64(counter, |v| (v == 5).then_some(9)), Ok(5), "{name}");
        assert_eq!(memory.atomic_u64(counter, |v| (v == 5).then_some(1)), Ok(9), "{name}");
        assert_eq!(pages.bytes(64, 8), 9u64.to_ne_bytes(), "{name}");
        for protection in [libc::PROT_READ, libc::PROT_NONE] {
            pages.protect(1, protection);
            for change in [None, Some(1)] {
                let result = memory.atomic_u64(pages.address(PAGE), |_| change);
                assert_eq!(result, Err(Fault { index: 0 }), "{name} {protection} {change:?}");
            }
        }
    }
}

#[test]
fn a_child_after_fork_moves_bytes_of_its_own_not_of_its_parent() {
    for (name, mut memory) in movers() {
        let pages = Pages::new(1);
        memory.write(&[Transfer::out(b"parent", pages.address(0))]).unwrap();
        // SAFETY: the child only makes system calls and exits without running destructors.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let done = memory.write(&[Transfer::out(b"child!", pages.address(0))]).is_ok()
                && pages.bytes(0, 6) == b"child!";
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if done { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        assert_eq!(child, unsafe { libc::waitpid(child, &mut status, 0) });
        assert_eq!(status, 0, "{name}");
        assert_eq!(pages.bytes(0, 6), b"parent", "{name}");
    }
}

#[test]
fn random_batches_do_what_copies_would_have_done() {
    const PAGES: usize = 48;
    for (name, mut memory) in movers() {
        for seed in 0..60 {
            let mut rng = Rng::stream(seed, "batches", 0);
            let pages = Pages::new(PAGES);
            let barrier = rng.below(PAGES as u64) as usize;
            pages.protect(barrier, libc::PROT_READ);
            let mut model = vec![0u8; PAGES * PAGE];
            for _ in 0..20 {
                let count = 1 + rng.below(60) as usize;
                let magnitude = 1 + rng.below(15);
                let mut end = 0;
                let source: Vec<u8> = (0..40_000).map(|_| rng.next_u32() as u8).collect();
                let batch: Vec<Transfer> = (0..count)
                    .map(|_| {
                        let length = rng.below(1 << magnitude) as usize;
                        let joins = rng.chance_ppm(600_000) && end + length <= PAGES * PAGE;
                        let to = if joins { end } else { rng.below((PAGES * PAGE - length) as u64) as usize };
                        end = to + length;
                        let from = rng.below((source.len() - length) as u64) as usize;
                        let transfer = Transfer::out(&source[from..from + length], pages.address(to));
                        if rng.chance_ppm(300_000) {
                            transfer.ordered()
                        } else {
                            transfer
                        }
                    })
                    .collect();
                let forbidden = barrier * PAGE..(barrier + 1) * PAGE;
                let range = |transfer: &Transfer| {
                    let start = (transfer.theirs - pages.address(0)) as usize;
                    start..start + transfer.length
                };
                let fails = batch.iter().position(|transfer| {
                    let to = range(transfer);
                    !to.is_empty() && to.start < forbidden.end && forbidden.start < to.end
                });
                let expected = fails.map_or(Ok(()), |index| Err(Fault { index }));
                assert_eq!(memory.write(&batch), expected, "{name} seed {seed}");
                for transfer in &batch[..fails.unwrap_or(count)] {
                    let from = transfer.ours - source.as_ptr() as usize;
                    model[range(transfer)].copy_from_slice(&source[from..from + transfer.length]);
                }
                if let Some(index) = fails {
                    // How much of the failing one was written is nobody's promise.
                    let partial = range(&batch[index]);
                    model[partial.clone()].copy_from_slice(&pages.bytes(partial.start, partial.len()));
                }
                assert!(pages.bytes(0, PAGES * PAGE) == model, "{name} seed {seed}");
            }
        }
    }
}

#[test]
fn a_limit_on_file_sizes_raises_no_signal() {
    // SAFETY: the child makes system calls, allocates a little and exits without running destructors; the
    // test allocator is that of libc, whose locks fork keeps usable.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: sets a limit of this child.
        let limited = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &none) } == 0;
        // SAFETY: hands over local buffers only.
        let mut memory = unsafe { OwnMemory::new() };
        let (mut target, mut back) = ([0u8; 5000], [0u8; 5000]);
        let address = target.as_mut_ptr() as u64;
        let done = limited
            && memory.write(&[Transfer::out(&[3; 5000], address)]).is_ok()
            && memory.read(&[Transfer::back(&mut back, address)]).is_ok()
            && back == [3; 5000];
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if done { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    assert_eq!(child, unsafe { libc::waitpid(child, &mut status, 0) });
    assert_eq!(status, 0);
}
