//! Inference on separate hosts: some take prompts in (prefill) and pass what they have computed of them, the KV cache, to those that
//! write the answer (decode).

use alloc::collections::BTreeMap;
use alloc::vec;

use srdma_seams::Rng;

use crate::pattern::{Exchange, Pattern};
use crate::plan::{within, PlanError, MESSAGE_MAX};
use crate::program::{GroupsId, OpId, Program, What};

/// Requests come at random intervals. Each takes the next prefill host in turn, which computes one request after the other, and
/// any decode host. The cache is passed in pieces, each as soon as its layers are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvTransfer {
    /// Members 0 and on.
    pub prefill: u32,
    /// Members after those.
    pub decode: u32,
    /// Requests.
    pub requests: u32,
    /// Mean time between two, picoseconds; each is 0 to twice that.
    pub every_ps: u64,
    /// Tokens of a prompt: from these …
    pub tokens_min: u32,
    /// … to these.
    pub tokens_max: u32,
    /// Bytes of a token's keys and values, in all layers.
    pub token_bytes: u64,
    /// Picoseconds to compute a token.
    pub token_ps: u64,
    /// Pieces that a cache is passed in.
    pub pieces: u32,
    /// Decides times, lengths and decode hosts.
    pub seed: u64,
}

impl KvTransfer {
    /// Hosts.
    pub fn members(&self) -> u32 {
        self.prefill.saturating_add(self.decode)
    }

    /// Checks every range.
    pub fn validate(&self) -> Result<(), PlanError> {
        within("prefill", "1 to 65536", self.prefill.into(), 1, 1 << 16)?;
        within("decode", "1 to 65536", self.decode.into(), 1, 1 << 16)?;
        within("requests", "1 to 1000000", self.requests.into(), 1, 1_000_000)?;
        within("tokens_min", "1 to tokens_max", self.tokens_min.into(), 1, self.tokens_max.into())?;
        within("tokens_max", "1 to 16777216", self.tokens_max.into(), 1, 1 << 24)?;
        within("every", "an hour at most", self.every_ps, 0, 3_600_000_000_000_000)?;
        within("time of a token", "a second at most", self.token_ps, 0, 1_000_000_000_000)?;
        within("pieces", "1 to 1024", self.pieces.into(), 1, 1024)?;
        let pieces = u64::from(self.requests) * u64::from(self.pieces);
        within("requests × pieces", "4000000 at most", pieces, 1, 4_000_000)?;
        within("bytes of a token", "1 to 16 MiB", self.token_bytes, 1, 16 << 20)?;
        let piece = (u64::from(self.tokens_max) * self.token_bytes).div_ceil(self.pieces.into());
        within("bytes of a piece", "1 GiB at most", piece, 1, MESSAGE_MAX)
    }

    /// The operations: of each request, that it has come, and of each piece that it is computed and passed.
    pub fn program(&self) -> Result<Program, PlanError> {
        self.validate()?;
        let mut rng = Rng::stream(self.seed, "requests", 0);
        let mut program = Program::new(self.members());
        let mut alone: BTreeMap<u32, GroupsId> = BTreeMap::new();
        let mut pairs: BTreeMap<(u32, u32), GroupsId> = BTreeMap::new();
        let mut busy: BTreeMap<u32, OpId> = BTreeMap::new();
        let mut at_ps = 0u64;
        for request in 0..self.requests {
            let from = request % self.prefill;
            let to = self.prefill + rng.below(self.decode.into()) as u32;
            let more = u64::from(self.tokens_max - self.tokens_min) + 1;
            let tokens = u64::from(self.tokens_min) + rng.below(more);
            let own = *alone.entry(from).or_insert_with(|| program.groups(1, vec![from]));
            let pair = *pairs.entry((from, to)).or_insert_with(|| program.groups(2, vec![from, to]));
            let mut after = program.push(What::Until(at_ps), own, busy.get(&from).copied().as_slice());
            let pieces = u64::from(self.pieces);
            let bytes = (tokens * self.token_bytes).div_ceil(pieces);
            for _ in 0..pieces {
                after = program.push(What::Compute(tokens * self.token_ps / pieces), own, &[after]);
                let exchange = Exchange { pattern: Pattern::Pass, bytes, slices: 1 };
                program.push(What::Exchange(exchange), pair, &[after]);
            }
            busy.insert(from, after);
            at_ps = at_ps.saturating_add(rng.below(2 * self.every_ps + 1));
        }
        program.validate()?;
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unhindered_ps;
    use alloc::string::ToString;

    fn transfer() -> KvTransfer {
        KvTransfer {
            prefill: 2,
            decode: 3,
            requests: 50,
            every_ps: 1_000,
            tokens_min: 10,
            tokens_max: 10,
            token_bytes: 100,
            token_ps: 1_000,
            pieces: 4,
            seed: 5,
        }
    }

    #[test]
    fn every_request_is_computed_in_turn_and_passed_whole() {
        let program = transfer().program().expect("valid");
        let (mut bytes, mut receivers) = (0, alloc::collections::BTreeSet::new());
        program.traffic(|traffic| {
            assert!(traffic.from < 2 && traffic.to >= 2, "{traffic:?}");
            bytes += u64::from(traffic.bytes) * traffic.count;
            receivers.insert(traffic.to);
        });
        assert_eq!((bytes, receivers.len()), (50 * 10 * 100, 3));
        // Requests come faster than two hosts compute them: each computes 25 without a pause.
        let took = unhindered_ps(&program);
        assert!((25 * 10_000..26 * 10_000).contains(&took), "{took}");
        let rare = KvTransfer { every_ps: 100_000, ..transfer() };
        assert!(unhindered_ps(&rare.program().expect("valid")) > 50 * 70_000);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (bad, said) in [
            (KvTransfer { prefill: 0, ..transfer() }, "prefill must be 1 to 65536, not 0"),
            (KvTransfer { tokens_min: 11, ..transfer() }, "tokens_min must be 1 to tokens_max, not 11"),
            (KvTransfer { pieces: 0, ..transfer() }, "pieces must be 1 to 1024, not 0"),
            (KvTransfer { token_bytes: 0, ..transfer() }, "bytes of a token must be 1 to 16 MiB, not 0"),
        ] {
            let error = bad.program().expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
