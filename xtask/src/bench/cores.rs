//! How far apart the processor's cores are while something is measured.
//!
//! The cores of a virtual machine move about on those of its host. While they share a cache, a line that one has written
//! reaches the other in some 100 ns; from one chiplet to another it takes three or four times as long, for seconds or
//! minutes, and whatever sends on one core and receives on the other runs at half its speed. No program in the
//! machine can change that, but a comparison can see it: what is compared is measured under the same conditions, or again.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use serde_json::{json, Value};

use crate::report;

/// Times there and back in one block; the best of some blocks counts, for other work may have a core meanwhile.
const BOUNCES: u64 = 4_000;
const BLOCKS: usize = 8;
/// Two looks that differ by more were at different machines.
const SAME: f64 = 1.6;
/// A round is taken after so many attempts, whatever the machine did.
const ATTEMPTS: usize = 5;

/// The rounds of a comparison, and what the machine was like in each.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    apart_ns: Vec<f64>,
    left_out: usize,
}

impl Rounds {
    /// Measures until the cores were as far apart afterwards as before. The `Err` of a measurement is final.
    pub(super) fn take<T>(&mut self, mut measure: impl FnMut() -> Result<T>) -> Result<T> {
        for attempt in 1.. {
            let before = apart_ns()?;
            let value = measure()?;
            let after = apart_ns()?;
            if is_same(before, after) || attempt == ATTEMPTS {
                self.apart_ns.push(after);
                return Ok(value);
            }
            self.left_out += 1;
            report::say(&format!(
                "  left out: the cores moved, {before:.0} ns apart before and {after:.0} after"
            ));
        }
        unreachable!("the loop ends at the last attempt")
    }

    /// The last round's, to be said beside what it measured.
    pub(super) fn last(&self) -> String {
        self.apart_ns.last().map_or(String::new(), |ns| format!("cores {ns:.0} ns apart"))
    }

    /// For a report.
    pub(super) fn json(&self) -> Value {
        json!({"cores_apart_ns": self.apart_ns, "left_out": self.left_out})
    }
}

fn is_same(a: f64, b: f64) -> bool {
    a.max(b) <= SAME * a.min(b)
}

/// How long a cache line takes from one core to another and back, ns. Of the first two cores that we may use; 0 if
/// there is only one.
fn apart_ns() -> Result<f64> {
    let [Some(here), Some(there)] = first_cores()? else { return Ok(0.0) };
    let line = Arc::new(AtomicU64::new(0));
    let turns = 2 * BOUNCES * BLOCKS as u64;
    let answers = {
        let line = Arc::clone(&line);
        std::thread::spawn(move || -> Result<()> {
            stay_on(there)?;
            (0..turns).step_by(2).for_each(|turn| pass(&line, turn + 1));
            Ok(())
        })
    };
    let asks = std::thread::spawn(move || -> Result<f64> {
        stay_on(here)?;
        let mut best = f64::INFINITY;
        for block in 0..BLOCKS as u64 {
            let begun = Instant::now();
            (0..2 * BOUNCES).step_by(2).for_each(|turn| pass(&line, block * 2 * BOUNCES + turn));
            best = best.min(begun.elapsed().as_secs_f64() * 1e9 / BOUNCES as f64);
        }
        Ok(best)
    });
    let ns = asks.join().ok().context("the thread that asks has panicked")??;
    answers.join().ok().context("the thread that answers has panicked")??;
    Ok(ns)
}

/// Waits for its turn and gives it on. A core that the other thread needs, too, is let go.
fn pass(line: &AtomicU64, turn: u64) {
    let mut waited = 0u32;
    while line.load(Ordering::Acquire) != turn {
        waited += 1;
        match waited % 4_096 {
            0 => std::thread::yield_now(),
            _ => spin_loop(),
        }
    }
    line.store(turn + 1, Ordering::Release);
}

fn first_cores() -> Result<[Option<usize>; 2]> {
    // SAFETY: a set of bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is writable and as long as stated; 0 means this thread.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    ensure!(got == 0, "sched_getaffinity: {}", std::io::Error::last_os_error());
    // SAFETY: the numbers asked about are within the set.
    let mut cores = (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) });
    Ok([cores.next(), cores.next()])
}

fn stay_on(core: usize) -> Result<()> {
    // SAFETY: a set of bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `core` came from a set of the same size.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: `set` is readable and as long as stated; 0 means this thread.
    let got = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    ensure!(got == 0, "sched_setaffinity: {}", std::io::Error::last_os_error());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_line_takes_some_time_to_the_other_core() {
        let ns = apart_ns().expect("two threads");
        assert!(ns >= 0.0 && ns.is_finite());
        assert_eq!(ns > 1.0, first_cores().expect("a set")[1].is_some(), "{ns}");
    }

    #[test]
    fn looks_that_differ_by_half_are_the_same_and_others_are_not() {
        assert!(is_same(130.0, 195.0) && is_same(195.0, 130.0) && is_same(0.0, 0.0));
        assert!(!is_same(130.0, 400.0) && !is_same(400.0, 130.0));
    }
}
