//! Posting requests, timing their completions, and reading back what was written.

use crate::verify::{Failure, Side, SENDS};
use srdma_abi::{Completion, Opcode, SendEntry, SendFlags, Sge, WcStatus};
use std::time::{Duration, Instant};

/// Bytes at the other side that are written and read, and of the pattern here.
const AREA_BYTES: u64 = 8 << 20;
/// Where in our memory READs put what they bring; the pattern lies before it.
const BACK: u64 = AREA_BYTES;
/// Bytes of a bulk message.
const BULK_BYTES: u32 = 1 << 20;
/// Bytes of a small one.
pub const SMALL_BYTES: u32 = 64;
/// Nothing completes for this long: the other side is gone.
const STALL: Duration = Duration::from_secs(60);
/// Round trips kept: more say no more about percentiles.
const TRIPS_MAX: usize = 1_000_000;
/// Empty polls between two looks at the clock and at the other side.
const LOOK_EVERY: u32 = 4096;

/// A kind of load.
pub struct Work {
    /// WRITE or READ.
    opcode: Opcode,
    /// Bytes of each message.
    bytes: u32,
    /// Messages of a queue pair under way at once.
    depth: u32,
    /// Messages posted together; the last one is signalled.
    batch: u32,
}

impl Work {
    /// Messages of 1 MiB.
    pub fn bulk(opcode: Opcode) -> Work {
        Work { opcode, bytes: BULK_BYTES, depth: 16, batch: 1 }
    }

    /// Messages of 64 bytes.
    pub fn small(opcode: Opcode) -> Work {
        Work { opcode, bytes: SMALL_BYTES, depth: 128, batch: 16 }
    }
}

/// What a load reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    /// Bytes of each message.
    pub bytes: u32,
    /// Messages completed.
    pub messages: u64,
    /// In this time.
    pub seconds: f64,
    /// User and system time of this process meanwhile.
    pub cpu_seconds: f64,
}

/// Times from posting one message to its completion, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// Bytes of each message.
    pub bytes: u32,
    /// Messages.
    pub messages: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// The shortest.
    pub least_ns: u64,
    /// The longest.
    pub most_ns: u64,
}

/// A connected side that measures.
pub struct Bench<'a> {
    side: &'a mut Side,
    seconds: Duration,
    tag: u64,
    posted: u64,
}

impl<'a> Bench<'a> {
    /// Paints the pattern here and writes all of it there.
    pub fn new(side: &'a mut Side, seconds: Duration) -> Result<Bench<'a>, Failure> {
        let mut bench = Bench { side, seconds, tag: 0, posted: 0 };
        bench.repaint()?;
        Ok(bench)
    }

    /// Another pattern, so that no earlier one can pass for it.
    fn repaint(&mut self) -> Result<(), Failure> {
        self.tag = self.tag.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.side.ground.paint(0, AREA_BYTES, self.tag, 0);
        self.sweep(Opcode::Write)
    }

    /// One pass over the whole area.
    fn sweep(&mut self, opcode: Opcode) -> Result<(), Failure> {
        let work = Work::bulk(opcode);
        for chunk in 0..AREA_BYTES / u64::from(BULK_BYTES) {
            self.posted = chunk;
            self.post(0, &work, 1)?;
            self.complete_one()?;
        }
        Ok(())
    }

    /// Reads everything back and compares it, then starts over with another pattern. Returns the bytes compared.
    pub fn verify(&mut self) -> Result<u64, Failure> {
        self.side.ground.paint(BACK, AREA_BYTES, !self.tag, 0);
        self.sweep(Opcode::Read)?;
        self.side.ground.expect(BACK, AREA_BYTES, self.tag, 0);
        self.side.check(0, BACK, AREA_BYTES, "what was written and read back")?;
        self.repaint()?;
        Ok(AREA_BYTES)
    }

    /// Posts `count` messages to queue pair `qp`, ringing once; the last one is signalled.
    fn post(&mut self, qp: usize, work: &Work, count: u32) -> Result<(), Failure> {
        let (nic, key, theirs) = self.side.parts();
        let here = self.side.ground.region().address();
        let mut posts = nic.qps[qp].post_sends();
        for number in 0..count {
            let at = self.posted * u64::from(work.bytes) % AREA_BYTES;
            self.posted += 1;
            let from = if work.opcode == Opcode::Read { BACK + at } else { at };
            let mut entry =
                SendEntry { opcode: work.opcode, wr_id: u64::from(count), ..SendEntry::default() };
            if number + 1 == count {
                entry.flags = SendFlags::SIGNALED;
            }
            entry.remote_address = theirs.base + at;
            entry.rkey = theirs.rkey;
            entry.sge_count = 1;
            entry.sges[0] = Sge { address: here + from, length: work.bytes, lkey: key };
            // SAFETY: nothing is inline.
            unsafe { posts.push(&mut entry, &[])? };
        }
        Ok(())
    }

    /// Takes completions; each one's `wr_id` says how many messages it stands for.
    fn poll(&mut self, done: &mut impl FnMut(u32, u64)) -> Result<bool, Failure> {
        let mut found = [Completion::default(); 16];
        let (nic, ..) = self.side.parts();
        let count = nic.cqs[SENDS].poll(&mut found).ok_or_else(|| Failure::Event("device gone".into()))?;
        for completion in &found[..count] {
            if completion.status != WcStatus::Success as u8 {
                return Err(Failure::completion(&self.side.round, 0, completion));
            }
            done(completion.qpn, completion.wr_id);
        }
        Ok(count > 0)
    }

    /// Waits for one completion.
    fn complete_one(&mut self) -> Result<(), Failure> {
        let mut idle = Idle::default();
        while !self.poll(&mut |_, _| {})? {
            idle.wait(self.side)?;
        }
        Ok(())
    }

    /// Keeps every queue pair busy with `work` for `span`.
    pub fn run(&mut self, work: &Work, span: Duration) -> Result<Flow, Failure> {
        let numbers: Vec<u32> = self.side.parts().0.qps.iter().map(|qp| qp.number()).collect();
        let mut under_way = vec![0; numbers.len()];
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        let (mut messages, mut is_over, mut idle) = (0, false, Idle::default());
        while !is_over || under_way.iter().any(|&count| count > 0) {
            is_over = is_over || begun.elapsed() >= span;
            for (qp, count) in under_way.iter_mut().enumerate() {
                while !is_over && *count + work.batch <= work.depth {
                    self.post(qp, work, work.batch)?;
                    *count += work.batch;
                }
            }
            let found = self.poll(&mut |qpn, count| {
                messages += count;
                if let Some(qp) = numbers.iter().position(|&number| number == qpn) {
                    under_way[qp] -= count as u32;
                }
            })?;
            match found {
                true => idle = Idle::default(),
                false => idle.wait(self.side)?,
            }
        }
        let cpu_seconds = cpu_seconds() - cpu;
        Ok(Flow { bytes: work.bytes, messages, seconds: begun.elapsed().as_secs_f64(), cpu_seconds })
    }

    /// One small message at a time.
    pub fn latency(&mut self, opcode: Opcode) -> Result<Latency, Failure> {
        let work = Work { batch: 1, depth: 1, ..Work::small(opcode) };
        let mut trips = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < self.seconds && trips.len() < TRIPS_MAX {
            let posted = Instant::now();
            self.post(0, &work, 1)?;
            self.complete_one()?;
            trips.push(posted.elapsed().as_nanos() as u64);
        }
        Ok(percentiles(trips))
    }
}

/// What a spinning waiter looks at now and then.
#[derive(Default)]
struct Idle {
    polls: u32,
    since: Option<Instant>,
}

impl Idle {
    fn wait(&mut self, side: &mut Side) -> Result<(), Failure> {
        self.polls += 1;
        if self.polls < LOOK_EVERY {
            return Ok(());
        }
        self.polls = 0;
        side.channel.has_message()?;
        if let Some(event) = side.trouble() {
            return Err(Failure::Event(event));
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() > STALL {
            return Err(Failure::Stalled(format!("nothing has completed for {STALL:?}")));
        }
        Ok(())
    }
}

fn percentiles(mut trips: Vec<u64>) -> Latency {
    trips.sort_unstable();
    let at = |share: f64| {
        let last = trips.len().saturating_sub(1);
        trips.get(((trips.len() as f64 * share) as usize).min(last)).copied().unwrap_or(0)
    };
    Latency {
        bytes: SMALL_BYTES,
        messages: trips.len() as u64,
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        least_ns: at(0.0),
        most_ns: at(1.0),
    }
}

/// User and system time of this process so far.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec to write to; the clock always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_members_of_the_sample() {
        let latency = percentiles((1..=1000).rev().collect());
        assert_eq!((latency.least_ns, latency.p50_ns, latency.p99_ns), (1, 501, 991));
        assert_eq!((latency.p999_ns, latency.most_ns, latency.messages), (1000, 1000, 1000));
        assert_eq!(percentiles(Vec::new()).most_ns, 0);
    }
}
