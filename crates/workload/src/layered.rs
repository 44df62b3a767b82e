//! A training step that is given layer by layer: how long each computes and what its members then do together.

use alloc::vec::Vec;

use crate::pattern::{Exchange, Pattern};
use crate::plan::{within, PlanError};
use crate::program::{GroupsId, OpId, Program, What};
use crate::team::{Ranks, Servers, Team, Together, Ways};

/// Who does a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// Those that share layers.
    Tensor,
    /// Replicas.
    Data,
    /// Those that share the experts of layers.
    Experts,
    /// Those that have the same experts.
    SameExperts,
}

/// Computing, then a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// Picoseconds of computing.
    pub compute_ps: u64,
    /// What is done, by whom, and its bytes.
    pub collective: Option<(Together, Among, u64)>,
}

/// A layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// Forward; the next layer waits for it.
    pub forward: Phase,
    /// Backward, gradients of the input; the layer below waits for it.
    pub input: Phase,
    /// Backward, gradients of the weights. Nothing but the end of the step waits for its collective.
    pub weights: Phase,
    /// Picoseconds of using them.
    pub update_ps: u64,
}

/// Layers, forward from the first to the last, then backward. Every stage carries all of them out: they are those of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layered {
    /// Layers of a stage; those of a micro-batch follow those of the one before.
    pub layers: Vec<Layer>,
    /// GPUs that share layers, stages, replicas, GPUs that share experts.
    pub degrees: [u32; 4],
    /// Micro-batches that `layers` are of, …
    pub micro_batches: u32,
    /// … after each of which so many bytes are passed to the next stage, and backward to the one before. Nobody waits for them
    /// but the end of the step: stages work side by side, as in a pipeline that is full.
    pub pass_bytes: u64,
    /// Where members sit.
    pub servers: Servers,
    /// Chains of each ring over the network.
    pub slices: u32,
    /// Bytes and times are divided by this.
    pub scale: u32,
}

/// The groups of a stage.
struct Stage {
    all: GroupsId,
    teams: [Option<Team>; 4],
    next: Option<(GroupsId, GroupsId)>,
}

impl Layered {
    /// GPUs.
    pub fn members(&self) -> u32 {
        self.degrees[..3].iter().fold(1, |product, &degree| product.saturating_mul(degree))
    }

    fn ways(&self) -> Ways {
        Ways { servers: self.servers, slices: self.slices, scale: self.scale }
    }

    /// Checks every range.
    pub fn validate(&self) -> Result<(), PlanError> {
        let [tensor, pipeline, data, expert] = self.degrees;
        for (key, degree) in [("tensor", tensor), ("pipeline", pipeline), ("data", data), ("expert", expert)]
        {
            within(key, "1 to 65536", degree.into(), 1, 1 << 16)?;
        }
        within("data divided by expert leaves", "nothing", (data % expert).into(), 0, 0)?;
        let gpus = u64::from(tensor) * u64::from(pipeline) * u64::from(data);
        within("tensor × pipeline × data", "1 to 65536", gpus, 1, 1 << 16)?;
        within("layers", "1 to 1000000", self.layers.len() as u64, 1, 1_000_000)?;
        within("micro_batches", "1 to the layers", self.micro_batches.into(), 1, self.layers.len() as u64)?;
        // Some operations a layer and phase, each with its members: said here, before it is written out.
        let shares = gpus * self.layers.len() as u64 * 6;
        within("layers × GPUs", "about 11 million", shares / 6, 1, 11_000_000)?;
        self.ways().validate()
    }

    /// The operations of a step.
    pub fn program(&self) -> Result<Program, PlanError> {
        self.validate()?;
        let mut program = Program::new(self.members());
        let stages: Vec<Stage> = (0..self.degrees[1]).map(|stage| self.stage(&mut program, stage)).collect();
        for stage in &stages {
            self.carry_out(&mut program, stage);
        }
        program.validate()?;
        Ok(program)
    }

    fn stage(&self, program: &mut Program, stage: u32) -> Stage {
        let [tensor, pipeline, data, expert] = self.degrees;
        let ranks = Ranks { tensor, data, expert, stage };
        let mut team = |groups: Vec<Vec<u32>>| Team::new(&self.ways(), program, &groups);
        let teams = [
            team(ranks.of_tensor()),
            team(ranks.of_data()),
            team(ranks.of_experts()),
            team(ranks.of_same_experts()),
        ];
        let (first, own) = ranks.own();
        let next = (stage + 1 < pipeline && self.pass_bytes > 0).then(|| {
            let (forth, back) = ranks.pairs();
            (program.groups(2, forth), program.groups(2, back))
        });
        Stage { all: program.groups(1, (first..first + own).collect()), teams, next }
    }

    fn carry_out(&self, program: &mut Program, stage: &Stage) {
        let mut last = None;
        for (number, layer) in self.layers.iter().enumerate() {
            last = self.phase(program, stage, layer.forward, last);
            self.pass(program, stage.next.map(|(forth, _)| forth), number, last);
        }
        for (number, layer) in self.layers.iter().enumerate().rev() {
            last = self.phase(program, stage, layer.input, last);
            last = self.compute(program, stage, layer.weights.compute_ps, last);
            let weights = Phase { compute_ps: 0, ..layer.weights };
            let reduced = self.phase(program, stage, weights, last);
            if reduced != last {
                self.compute(program, stage, layer.update_ps, reduced);
            }
            self.pass(program, stage.next.map(|(_, back)| back), self.layers.len() - 1 - number, last);
        }
    }

    fn compute(
        &self,
        program: &mut Program,
        stage: &Stage,
        span_ps: u64,
        after: Option<OpId>,
    ) -> Option<OpId> {
        let span_ps = span_ps / u64::from(self.scale);
        if span_ps == 0 {
            return after;
        }
        Some(program.push(What::Compute(span_ps), stage.all, after.as_slice()))
    }

    fn phase(&self, program: &mut Program, stage: &Stage, phase: Phase, after: Option<OpId>) -> Option<OpId> {
        let after = self.compute(program, stage, phase.compute_ps, after);
        let Some((what, among, bytes)) = phase.collective.filter(|&(_, _, bytes)| bytes > 0) else {
            return after;
        };
        let Some(team) = stage.teams[among as usize] else { return after };
        // A collective is after something: after nothing that takes time, if there is nothing else.
        let after = after.unwrap_or_else(|| program.push(What::Compute(0), stage.all, &[]));
        Some(team.collective(&self.ways(), program, what, bytes, after))
    }

    /// After the last layer of each micro-batch.
    fn pass(&self, program: &mut Program, pairs: Option<GroupsId>, number: usize, after: Option<OpId>) {
        let (layers, batches) = (self.layers.len(), self.micro_batches as usize);
        let is_last = (number + 1) * batches / layers > number * batches / layers;
        let Some(pairs) = pairs.filter(|_| is_last) else { return };
        let exchange =
            Exchange { pattern: Pattern::Pass, bytes: self.ways().scaled(self.pass_bytes), slices: 1 };
        program.push(What::Exchange(exchange), pairs, after.as_slice());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unhindered_ps;
    use alloc::vec;

    fn layered() -> Layered {
        let phase =
            |compute_ps, what, among, bytes| Phase { compute_ps, collective: Some((what, among, bytes)) };
        let layer = Layer {
            forward: phase(1000, Together::AllGather, Among::Tensor, 800),
            input: phase(2000, Together::ReduceScatter, Among::Tensor, 800),
            weights: phase(500, Together::AllReduce, Among::Data, 1600),
            update_ps: 10,
        };
        let servers = Servers { gpus: 1, ..Servers::default() };
        Layered {
            layers: vec![layer; 4],
            degrees: [2, 2, 4, 1],
            micro_batches: 2,
            pass_bytes: 100,
            servers,
            slices: 1,
            scale: 1,
        }
    }

    #[test]
    fn layers_send_and_compute_what_they_say() {
        let program = layered().program().expect("valid");
        let mut out = [0; 16];
        program.traffic(|traffic| out[traffic.from as usize] += u64::from(traffic.bytes) * traffic.count);
        // Gathered and scattered halves, three halves of the gradients, two passes each way.
        assert_eq!(out, [4 * (400 + 400 + 2400) + 200; 16]);
        assert_eq!(unhindered_ps(&program), 4 * 3500 + 10);
    }

    #[test]
    fn groups_within_a_server_need_no_network() {
        let servers = Servers { gpus: 2, bytes_per_second: 1_000_000_000_000 };
        let program = Layered { servers, ..layered() }.program().expect("valid");
        let mut out = [0; 16];
        program.traffic(|traffic| out[traffic.from as usize] += u64::from(traffic.bytes) * traffic.count);
        assert_eq!(out, [4 * 2400 + 200; 16]);
        assert_eq!(unhindered_ps(&program), 4 * (3500 + 2 * 400) + 10, "a byte takes a picosecond");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in [
            Layered { layers: vec![], ..layered() },
            Layered { degrees: [2, 2, 4, 3], ..layered() },
            Layered { degrees: [0, 2, 4, 1], ..layered() },
            Layered { micro_batches: 5, ..layered() },
            Layered { scale: 0, ..layered() },
        ] {
            bad.program().expect_err("refused");
        }
    }
}
