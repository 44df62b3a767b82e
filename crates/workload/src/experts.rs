//! Layers of a mixture of experts: tokens go to the GPUs of their experts, and come back.

use crate::pattern::{Exchange, Pattern};
use crate::plan::{within, PlanError};
use crate::program::{Program, What};

/// Layer after layer, all members exchange tokens (dispatch), compute, and exchange them again (combine). Every member sends
/// equally many to every other: routing that is balanced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertLayers {
    /// GPUs, each with its share of the experts.
    pub members: u32,
    /// Layers.
    pub layers: u32,
    /// Tokens of each GPU.
    pub tokens: u32,
    /// Bytes of a token.
    pub token_bytes: u32,
    /// Experts that a token visits.
    pub experts_per_token: u32,
    /// Picoseconds that the experts of a GPU compute in a layer.
    pub compute_ps: u64,
    /// Messages that a GPU has on their way at once.
    pub parallel: u32,
}

impl ExpertLayers {
    /// The operations of a round.
    pub fn program(&self) -> Result<Program, PlanError> {
        within("layers", "1 to 10000", self.layers.into(), 1, 10_000)?;
        within("tokens", "1 to 16777216", self.tokens.into(), 1, 1 << 24)?;
        within("token_bytes", "1 to 1048576", self.token_bytes.into(), 1, 1 << 20)?;
        within("experts_per_token", "1 to 64", self.experts_per_token.into(), 1, 64)?;
        let bytes = u64::from(self.tokens) * u64::from(self.token_bytes) * u64::from(self.experts_per_token);
        let pattern = Pattern::AllToAll { parallel: self.parallel };
        let exchange = What::Exchange(Exchange { pattern, bytes, slices: 1 });
        let mut program = Program::new(self.members);
        let everybody = program.everybody();
        let mut last = None;
        for _ in 0..self.layers {
            for what in [exchange, What::Compute(self.compute_ps), exchange] {
                last = Some(program.push(what, everybody, last.as_slice()));
            }
        }
        program.validate()?;
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unhindered_ps;

    #[test]
    fn tokens_go_out_and_come_back_in_every_layer() {
        let layers = ExpertLayers {
            members: 8,
            layers: 3,
            tokens: 64,
            token_bytes: 1024,
            experts_per_token: 2,
            compute_ps: 500,
            parallel: 2,
        };
        let program = layers.program().expect("valid");
        let mut out = [0; 8];
        program.traffic(|traffic| out[traffic.from as usize] += u64::from(traffic.bytes) * traffic.count);
        assert_eq!(out, [3 * 2 * 64 * 1024 * 2 / 8 * 7; 8]);
        assert_eq!(unhindered_ps(&program), 1500);
        for bad in
            [ExpertLayers { layers: 0, ..layers.clone() }, ExpertLayers { members: 1, ..layers.clone() }]
        {
            bad.program().expect_err("refused");
        }
    }
}
