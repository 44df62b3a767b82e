//! AllReduce by a ring (Patarasuk and Yuan 2009): reduce-scatter, then all-gather, each `members − 1` steps.

use alloc::vec;

use crate::plan::{within, After, Plan, PlanError, MESSAGES_MAX, MESSAGE_MAX};

/// Members 0, 1, …, each sending to the next. A step's message waits for the step before to have come from the left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllReduceRing {
    /// Members; member *n* is host `n × stride mod members`, so neighbours need not share a leaf.
    pub members: u32,
    /// Distance in hosts between neighbours; must have no common divisor with `members`.
    pub stride: u32,
    /// Bytes that each member contributes.
    pub bytes: u64,
    /// Pieces that each chunk travels in, each with a chain of its own, so that one hides the latency of another.
    pub slices: u32,
    /// AllReduces one after the other.
    pub rounds: u32,
}

impl AllReduceRing {
    /// Checks every range.
    pub fn validate(&self) -> Result<(), PlanError> {
        within("members", "2 to 65536", self.members.into(), 2, 1 << 16)?;
        within("slices", "1 to 1024", self.slices.into(), 1, 1024)?;
        within("rounds", "1 to 100000", self.rounds.into(), 1, 100_000)?;
        let pieces = u64::from(self.members) * u64::from(self.slices);
        within("bytes", "at least one byte per slice, 1 TiB at most", self.bytes, pieces, 1 << 40)?;
        within("bytes / members / slices", "1 GiB at most", self.bytes.div_ceil(pieces), 1, MESSAGE_MAX)?;
        let common = gcd(self.stride.into(), self.members.into());
        within("common divisor of stride and members", "1", common, 1, 1)?;
        let messages = pieces * self.steps() * u64::from(self.rounds);
        if messages > MESSAGES_MAX {
            return Err(PlanError::Messages(messages));
        }
        Ok(())
    }

    /// Steps of one AllReduce.
    fn steps(&self) -> u64 {
        2 * (u64::from(self.members) - 1)
    }

    /// Bytes of each message: a member's contribution, by members and slices, rounded up.
    pub fn message_bytes(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.members) * u64::from(self.slices))
    }

    /// The messages.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        self.validate()?;
        let host = |member: u32| {
            (u64::from(member % self.members) * u64::from(self.stride) % u64::from(self.members)) as u32
        };
        let bytes = self.message_bytes() as u32;
        let mut plan = Plan::default();
        // Of each slice, the newest message to each member.
        let mut newest = vec![None; (self.members * self.slices) as usize];
        for _ in 0..self.steps() * u64::from(self.rounds) {
            for slice in 0..self.slices as usize {
                let row = slice * self.members as usize;
                let mut came = vec![None; self.members as usize];
                for member in 0..self.members {
                    let wait: Option<After> = newest[row + member as usize];
                    let number = plan.push(host(member), host(member + 1), bytes, wait.as_slice());
                    came[((member + 1) % self.members) as usize] = Some(After::Received(number));
                }
                newest[row..row + came.len()].copy_from_slice(&came);
            }
        }
        Ok(plan)
    }

    /// Bytes per second that AllReduce benchmarks report as *bus bandwidth*, for a run of `picoseconds`: independent of
    /// the number of members (NCCL tests, PERFORMANCE.md).
    pub fn bus_bytes_per_second(&self, picoseconds: u64) -> f64 {
        let share = self.steps() as f64 / f64::from(self.members);
        let all = self.bytes as f64 * f64::from(self.rounds);
        all * share / (picoseconds.max(1) as f64 * 1e-12)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Progress;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    fn ring() -> AllReduceRing {
        AllReduceRing { members: 5, stride: 2, bytes: 1000, slices: 2, rounds: 3 }
    }

    /// Carried out in any order, every message becomes ready exactly once, and no step overtakes the one before it.
    #[test]
    fn each_step_waits_for_the_one_before() {
        let plan = ring().plan().expect("valid");
        plan.validate().expect("valid");
        assert_eq!((plan.messages().len(), plan.messages()[0].bytes), (5 * 2 * 8 * 3, 100));
        for seed in 0..20 {
            let mut rng = srdma_seams::Rng::new(seed);
            let mut progress = Progress::new(&plan);
            let mut ready: Vec<u32> = progress.first().collect();
            assert_eq!(ready.len(), 10, "the first step of each slice");
            let mut times = vec![0; plan.messages().len()];
            while !ready.is_empty() {
                let message = ready.swap_remove(rng.below(ready.len() as u64) as usize);
                times[message as usize] += 1;
                assert!(plan
                    .after(&plan.messages()[message as usize])
                    .iter()
                    .all(|b| times[b.message() as usize] == 1));
                progress.sent(message, &mut ready);
                progress.received(message, &mut ready);
            }
            assert!(progress.is_done() && times.iter().all(|&times| times == 1), "seed {seed}");
        }
    }

    #[test]
    fn bus_bandwidth_counts_what_each_link_carries() {
        let ring = AllReduceRing { members: 4, stride: 1, bytes: 4_000, slices: 1, rounds: 1 };
        let carried = 6.0 * ring.message_bytes() as f64;
        assert_eq!(ring.bus_bytes_per_second(1_000_000), carried / 1e-6);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (bad, said) in [
            (AllReduceRing { members: 1, ..ring() }, "members must be"),
            (AllReduceRing { stride: 5, ..ring() }, "common divisor of stride and members must be 1, not 5"),
            (AllReduceRing { bytes: 9, ..ring() }, "bytes must be at least one byte per slice"),
            (
                AllReduceRing { members: 60_000, stride: 1, bytes: 1 << 30, ..ring() },
                "messages are more than",
            ),
        ] {
            let error = bad.plan().expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
