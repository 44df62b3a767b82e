//! Every host sends to one other, and every host receives from one other.

use alloc::vec::Vec;

use srdma_seams::Rng;

use crate::plan::{within, Plan, PlanError, MESSAGES_MAX, MESSAGE_MAX};

/// A random permutation without fixed points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    /// Hosts, numbered from 0.
    pub hosts: u32,
    /// Bytes that each sends.
    pub bytes: u64,
    /// Bytes of each message; the last of a host may be shorter.
    pub message_bytes: u64,
    /// Which permutation.
    pub seed: u64,
}

impl Permutation {
    /// Checks every range.
    pub fn validate(&self) -> Result<(), PlanError> {
        within("hosts", "2 to 1048576", self.hosts.into(), 2, 1 << 20)?;
        within("bytes", "1 byte to 1 TiB", self.bytes, 1, 1 << 40)?;
        within("message_bytes", "1 byte to 1 GiB", self.message_bytes, 1, MESSAGE_MAX)?;
        let messages = u64::from(self.hosts).saturating_mul(self.bytes.div_ceil(self.message_bytes));
        if messages > MESSAGES_MAX {
            return Err(PlanError::Messages(messages));
        }
        Ok(())
    }

    /// The messages.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        self.validate()?;
        let targets = self.targets();
        let mut plan = Plan::default();
        for (from, &to) in targets.iter().enumerate() {
            let mut left = self.bytes;
            while left > 0 {
                let bytes = left.min(self.message_bytes);
                plan.push(from as u32, to, bytes as u32, &[]);
                left -= bytes;
            }
        }
        Ok(plan)
    }

    /// One cycle through all hosts (Sattolo 1986): nobody sends to itself.
    fn targets(&self) -> Vec<u32> {
        let mut rng = Rng::stream(self.seed, "permutation", 0);
        let mut targets: Vec<u32> = (0..self.hosts).collect();
        for last in (1..targets.len()).rev() {
            targets.swap(last, rng.below(last as u64) as usize);
        }
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;

    #[test]
    fn everybody_sends_to_another_and_everybody_receives() {
        for seed in 0..50 {
            let workload = Permutation { hosts: 17, bytes: 2500, message_bytes: 1000, seed };
            let plan = workload.plan().expect("valid");
            plan.validate().expect("valid");
            assert_eq!((plan.messages().len(), plan.bytes()), (17 * 3, 17 * 2500), "seed {seed}");
            let receivers: BTreeSet<u32> = plan.messages().iter().map(|message| message.to).collect();
            assert_eq!(receivers.len(), 17, "seed {seed}");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = Permutation { hosts: 4, bytes: 100, message_bytes: 100, seed: 0 };
        for (bad, said) in [
            (Permutation { hosts: 1, ..good.clone() }, "hosts must be 2 to 1048576, not 1"),
            (Permutation { bytes: 0, ..good.clone() }, "bytes must be 1 byte to 1 TiB, not 0"),
            (Permutation { message_bytes: 2 << 30, ..good.clone() }, "message_bytes must be"),
            (Permutation { bytes: 1 << 40, message_bytes: 1, ..good.clone() }, "messages are more than"),
        ] {
            let error = bad.plan().expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
