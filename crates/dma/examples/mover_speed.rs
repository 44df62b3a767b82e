//! How fast the mover is, beside a plain copy and beside `process_vm_writev`:
//! `cargo run --release -p srdma-dma --example mover_speed`.
#![allow(clippy::unwrap_used)]

use srdma_dma::{OwnMemory, Transfer};

const TARGET_BYTES: usize = 64 << 20;

/// CPU time of this thread, nanoseconds: what others do on the machine counts little.
fn cpu_ns() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Median of nine runs, CPU nanoseconds per call.
fn time_ns(calls: usize, mut call: impl FnMut(usize)) -> f64 {
    let mut runs: Vec<f64> = (0..9)
        .map(|_| {
            let start = cpu_ns();
            (0..calls).for_each(&mut call);
            (cpu_ns() - start) / calls as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[4]
}

fn report(name: &str, bytes: usize, ns: f64) {
    println!("{name:>28} {bytes:>8} B {ns:>10.0} ns {:>7.2} GB/s", bytes as f64 / ns);
}

fn main() {
    let source = vec![1u8; 4 << 20];
    let mut target = vec![2u8; TARGET_BYTES];
    let base = target.as_mut_ptr();
    // SAFETY: it is handed parts of `target`, which nobody borrows, and of `source`.
    let (mut staged, mut piped) = unsafe { (OwnMemory::new(), OwnMemory::new()) };
    piped.use_pipe();
    for bytes in [8, 64, 4096, 65_536, 1 << 20] {
        let calls = (4 << 20) / bytes.max(512);
        let place = |call: usize| (call * bytes.max(64)) % (TARGET_BYTES - bytes);
        let from = |call: usize| &source[(call * bytes) % (source.len() - bytes)..][..bytes];
        let transfer = |call: usize| Transfer::out(from(call), base as u64 + place(call) as u64);
        report("write", bytes, time_ns(calls, |call| staged.write(&[transfer(call)]).unwrap()));
        report("write by pipe", bytes, time_ns(calls, |call| piped.write(&[transfer(call)]).unwrap()));
        let direct = |call: usize| {
            let transfer = transfer(call);
            let ours = libc::iovec { iov_base: transfer.ours as *mut _, iov_len: bytes };
            let theirs = libc::iovec { iov_base: transfer.theirs as *mut _, iov_len: bytes };
            // SAFETY: both ranges are within `source` and `target`.
            let moved = unsafe { libc::process_vm_writev(libc::getpid(), &ours, 1, &theirs, 1, 0) };
            assert_eq!(moved, bytes as isize);
        };
        report("process_vm_writev", bytes, time_ns(calls, direct));
        let plain = |call: usize| {
            // SAFETY: both ranges are within `source` and `target`.
            unsafe { std::ptr::copy_nonoverlapping(from(call).as_ptr(), base.add(place(call)), bytes) }
        };
        report("memcpy", bytes, time_ns(calls, plain));
    }
    let mut word = 0u64;
    let at = &raw mut word as u64;
    let atomic = |_| {
        staged.atomic_u64(at, |v| Some(v + 1)).unwrap();
    };
    report("atomic", 8, time_ns(10_000, atomic));
    for payload in [1400, 4096, 8900] {
        let packets = 65_000 / (payload + 60);
        let mut batch = Vec::new();
        let burst = |call: usize| {
            batch.clear();
            for packet in 0..packets {
                let start = call % 32 * 65_536 + packet * (payload + 60) + 60;
                let to = (call * packets + packet) * payload % (TARGET_BYTES - payload);
                batch.push(Transfer::out(&source[start..start + payload], base as u64 + to as u64));
            }
            staged.write(&batch).unwrap();
        };
        report(&format!("burst of {packets} x {payload}"), packets * payload, time_ns(500, burst));
    }
    std::hint::black_box(&target);
}
