//! One exchange among all members, as benchmarks of collectives do it.

use crate::pattern::{Exchange, Pattern};
use crate::plan::PlanError;
use crate::program::{Program, What};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Members, numbered in the order of the pattern.
    pub members: u32,
    /// What they do.
    pub exchange: Exchange,
}

impl Collective {
    /// An AllReduce by a ring, in one piece.
    pub fn ring(members: u32, bytes: u64) -> Collective {
        let exchange = Exchange { pattern: Pattern::AllReduceRing, bytes, slices: 1 };
        Collective { members, exchange }
    }

    /// The operations of a round: one.
    pub fn program(&self) -> Result<Program, PlanError> {
        self.exchange.validate(self.members)?;
        let mut program = Program::new(self.members);
        let everybody = program.everybody();
        program.push(What::Exchange(self.exchange), everybody, &[]);
        program.validate()?;
        Ok(program)
    }

    /// Bus bandwidth in bytes per second of `rounds` that took so many picoseconds together, where it is defined
    /// ([`Pattern::bus_share`]).
    pub fn bus_bytes_per_second(&self, rounds: u64, picoseconds: u64) -> Option<f64> {
        let share = self.exchange.pattern.bus_share(self.members)?;
        let bytes = self.exchange.bytes as f64 * rounds as f64;
        Some(bytes * share / (picoseconds.max(1) as f64 * 1e-12))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn bus_bandwidth_counts_what_each_link_carries() {
        let ring = Collective::ring(4, 4_000);
        let carried = 6.0 * 1000.0;
        assert_eq!(ring.bus_bytes_per_second(1, 1_000_000), Some(carried / 1e-6));
        let exchange = Exchange { pattern: Pattern::Incast, ..ring.exchange };
        assert_eq!(Collective { exchange, ..ring }.bus_bytes_per_second(1, 1), None);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = Collective::ring(4, 4_000);
        let with = |pattern, bytes, slices| Collective {
            exchange: Exchange { pattern, bytes, slices },
            ..good.clone()
        };
        for (bad, said) in [
            (Collective { members: 1, ..good.clone() }, "members must be 2 to 65536, not 1"),
            (with(Pattern::AllReduceRing, 0, 1), "bytes must be 1 byte to 1 TiB, not 0"),
            (with(Pattern::AllReduceRing, 100, 0), "slices must be 1 to 1024, not 0"),
            (with(Pattern::Incast, 2 << 30, 1), "bytes of a message must be 1 GiB at most"),
            (with(Pattern::AllToAll { parallel: 0 }, 100, 1), "parallel must be 1 or more, not 0"),
            (with(Pattern::Pass, 100, 1), "members of a Pass must be 2, not 4"),
            (
                Collective { members: 6, ..with(Pattern::AllReduceHalving, 100, 1) },
                "2, 4, 8, … members, not 6",
            ),
        ] {
            let error = bad.program().expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
