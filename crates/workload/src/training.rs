//! A training step of a transformer: pipeline-, tensor-, data- and expert-parallel.
//!
//! Ranks are numbered as Megatron does it: those that share a layer are neighbours, then come replicas, then stages. A stage
//! takes micro-batches forward and backward in turn (one forward, one backward: Narayanan et al. 2021). Messages:
//!
//! - between stages, activations and their gradients of each micro-batch; the sender computes on meanwhile;
//! - among GPUs that share a layer, four AllReduces of the activations per layer and micro-batch;
//! - among GPUs that share a layer's experts, four AllToAlls per layer and micro-batch, if there are experts;
//! - among replicas, an AllReduce of the gradients, in buckets that begin as soon as the last micro-batch has brought them.
//!
//! What stays within a server takes its links' time and no network. An AllReduce over several GPUs of each of several servers
//! does the first and the last part within the servers, and rings of one GPU of each server carry the rest.

use alloc::vec;
use alloc::vec::Vec;

use crate::models::Model;
use crate::pattern::{Exchange, Pattern};
use crate::plan::{within, PlanError};
use crate::program::{GroupsId, OpId, Program, What};
use crate::team::{Ranks, Servers, Team, Together, Ways};

/// See the module. Every number that is not a size of the model can be had from [`Training::of`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Training {
    /// The model.
    pub model: Model,
    /// GPUs that share every layer.
    pub tensor: u32,
    /// Stages.
    pub pipeline: u32,
    /// Replicas.
    pub data: u32,
    /// GPUs, of different replicas, that share a layer's experts.
    pub expert: u32,
    /// Tokens of a sequence.
    pub sequence: u32,
    /// Sequences of a micro-batch.
    pub micro_batch: u32,
    /// Micro-batches of each replica in a step.
    pub micro_batches: u32,
    /// Floating-point operations per second that a GPU really does.
    pub gpu_flops: u64,
    /// Where ranks sit.
    pub servers: Servers,
    /// Parts that the layers of a stage are simulated in, each with the work and the messages of all its layers.
    pub parts: u32,
    /// Buckets of gradients of a stage: at most `parts`.
    pub buckets: u32,
    /// Chains of each AllReduce over the network.
    pub slices: u32,
    /// Bytes and times are divided by this: a step so many times shorter in which everything but latencies is in proportion.
    pub scale: u32,
}

/// Bytes of an activation, a parameter, a gradient (bfloat16).
const NUMBER_BYTES: u64 = 2;
const PICOSECONDS: u128 = 1_000_000_000_000;

impl Training {
    /// What is usual: sequences of 4,096 tokens, servers of eight GPUs with 400 Tflop/s and 400 GB/s each, four micro-batches per
    /// stage, or one if there is one stage.
    pub fn of(model: Model, [tensor, pipeline, data, expert]: [u32; 4]) -> Training {
        Training {
            model,
            tensor,
            pipeline,
            data,
            expert,
            sequence: 4096,
            micro_batch: 1,
            micro_batches: if pipeline > 1 { 4 * pipeline } else { 1 },
            gpu_flops: 400_000_000_000_000,
            servers: Servers::default(),
            parts: 4,
            buckets: 1,
            slices: 2,
            scale: 1,
        }
    }

    /// GPUs.
    pub fn members(&self) -> u32 {
        self.tensor.saturating_mul(self.pipeline).saturating_mul(self.data)
    }

    /// Checks every range.
    pub fn validate(&self) -> Result<(), PlanError> {
        let model = &self.model;
        within("layers", "1 to 1024", model.layers.into(), 1, 1024)?;
        within("hidden", "64 to 65536", model.hidden.into(), 64, 65_536)?;
        within("experts", "0 to 4096", model.experts.into(), 0, 4096)?;
        within("experts_per_token", "1 to 64", model.experts_per_token.into(), 1, 64)?;
        for (key, degree) in [
            ("tensor", self.tensor),
            ("pipeline", self.pipeline),
            ("data", self.data),
            ("expert", self.expert),
        ] {
            within(key, "1 to 65536", degree.into(), 1, 1 << 16)?;
        }
        let gpus = u64::from(self.tensor) * u64::from(self.pipeline) * u64::from(self.data);
        within("tensor × pipeline × data", "1 to 65536", gpus, 1, 1 << 16)?;
        within("sequence", "1 to 1048576", self.sequence.into(), 1, 1 << 20)?;
        within("micro_batch", "1 to 1024", self.micro_batch.into(), 1, 1024)?;
        within("micro_batches", "1 to 4096", self.micro_batches.into(), 1, 4096)?;
        within("gpu_tflops", "at least 1", self.gpu_flops / 1_000_000_000_000, 1, 1 << 20)?;
        within("parts", "1 to 1024", self.parts.into(), 1, 1024)?;
        within("buckets", "1 to parts", self.buckets.into(), 1, self.parts.into())?;
        self.ways().validate()?;
        // Said before it is written out: some operations for each, forward and backward.
        let shares = gpus * u64::from(self.micro_batches) * u64::from(self.parts);
        within("GPUs × micro_batches × parts", "8000000 at most", shares, 1, 8_000_000)?;
        if self.expert > 1 && model.experts == 0 {
            return within("expert of a model without experts", "1", self.expert.into(), 1, 1);
        }
        let left = self.data % self.expert;
        within("data divided by expert leaves", "nothing", left.into(), 0, 0)
    }

    /// The operations of a step.
    pub fn program(&self) -> Result<Program, PlanError> {
        self.validate()?;
        let mut build = Build::new(self);
        build.steps();
        build.program.validate()?;
        Ok(build.program)
    }

    /// Tokens of a micro-batch.
    fn tokens(&self) -> u64 {
        u64::from(self.sequence) * u64::from(self.micro_batch)
    }

    /// Time for so many operations of a GPU.
    fn compute_ps(&self, flops: u128) -> u64 {
        (flops * PICOSECONDS / u128::from(self.gpu_flops) / u128::from(self.scale)) as u64
    }

    fn ways(&self) -> Ways {
        Ways { servers: self.servers, slices: self.slices, scale: self.scale }
    }

    /// Time for one part of the layers of a stage forward, of one micro-batch.
    fn forward_ps(&self) -> u64 {
        let flops = u128::from(self.model.flops_per_token(self.sequence)) * u128::from(self.tokens());
        self.compute_ps(flops / u128::from(self.tensor) / u128::from(self.pipeline) / u128::from(self.parts))
    }

    /// Bytes of the activations of a micro-batch between two layers, for all GPUs that share a layer.
    fn activation_bytes(&self) -> u64 {
        self.tokens() * u64::from(self.model.hidden) * NUMBER_BYTES
    }
}

/// The groups of a stage.
struct Stage {
    all: GroupsId,
    tensor: Option<Team>,
    expert: Option<Team>,
    /// Replicas of what every replica has, and of the experts.
    data: Option<Team>,
    data_of_experts: Option<Team>,
    /// Pairs with the next stage, forward and backward.
    next: Option<(GroupsId, GroupsId)>,
    /// What the stage is through with at last.
    last: Vec<OpId>,
}

struct Build<'a> {
    training: &'a Training,
    program: Program,
    stages: Vec<Stage>,
    /// By stage and micro-batch: that the stage may begin it.
    forward: Vec<Vec<Option<OpId>>>,
    backward: Vec<Vec<Option<OpId>>>,
}

impl<'a> Build<'a> {
    fn new(training: &'a Training) -> Build<'a> {
        let (mut program, count) = (Program::new(training.members()), training.pipeline);
        let stages = (0..count).map(|stage| Stage::new(training, &mut program, stage)).collect();
        let none = vec![vec![None; training.micro_batches as usize]; count as usize];
        Build { training, program, stages, forward: none.clone(), backward: none }
    }

    /// All stages, each in its order; one waits until what it needs has been written down.
    fn steps(&mut self) {
        let orders: Vec<Vec<(bool, u32)>> =
            (0..self.training.pipeline).map(|stage| order(self.training, stage)).collect();
        let mut next = vec![0; orders.len()];
        loop {
            let mut is_through = true;
            let mut has_moved = false;
            for (stage, order) in orders.iter().enumerate() {
                while let Some(&(is_forward, batch)) = order.get(next[stage]) {
                    is_through = false;
                    if !self.may(stage as u32, is_forward, batch) {
                        break;
                    }
                    self.batch(stage as u32, is_forward, batch, next[stage] + 1 == order.len());
                    next[stage] += 1;
                    has_moved = true;
                }
            }
            if is_through || !has_moved {
                return;
            }
        }
    }

    fn may(&self, stage: u32, is_forward: bool, batch: u32) -> bool {
        let (stages, batch) = (self.training.pipeline, batch as usize);
        match is_forward {
            true => stage == 0 || self.forward[stage as usize][batch].is_some(),
            false => stage + 1 == stages || self.backward[stage as usize][batch].is_some(),
        }
    }

    /// A micro-batch passes a stage.
    fn batch(&mut self, stage: u32, is_forward: bool, batch: u32, is_last: bool) {
        let (at, number) = (stage as usize, batch as usize);
        let came = if is_forward { self.forward[at][number] } else { self.backward[at][number] };
        let mut after: Vec<OpId> = self.stages[at].last.iter().copied().chain(came).collect();
        let parts = self.training.parts;
        let mut reduced = Vec::new();
        for part in 0..parts {
            after = vec![self.part(at, is_forward, &after)];
            let buckets = self.training.buckets;
            // The buckets end where their share of the parts does.
            let is_full = (part + 1) * buckets / parts > part * buckets / parts;
            if is_last && !is_forward && is_full {
                reduced.extend(self.reduce(at, after[0]));
            }
        }
        self.hand_on(stage, is_forward, number, after[0]);
        self.stages[at].last = after;
        self.stages[at].last.extend(reduced);
    }

    /// To the next stage, or back.
    fn hand_on(&mut self, stage: u32, is_forward: bool, batch: usize, after: OpId) {
        let to = if is_forward {
            Some(stage + 1).filter(|&to| to < self.training.pipeline)
        } else {
            stage.checked_sub(1)
        };
        let Some(to) = to else { return };
        let Some((forth, back)) = self.stages[stage.min(to) as usize].next else { return };
        let groups = if is_forward { forth } else { back };
        let bytes =
            self.training.ways().scaled(self.training.activation_bytes() / u64::from(self.training.tensor));
        let what = What::Exchange(Exchange { pattern: Pattern::Pass, bytes, slices: 1 });
        let pass = self.program.push(what, groups, &[after]);
        let table = if is_forward { &mut self.forward } else { &mut self.backward };
        table[to as usize][batch] = Some(pass);
    }

    /// Some layers of a stage, with what those that share them tell each other.
    fn part(&mut self, at: usize, is_forward: bool, after: &[OpId]) -> OpId {
        let training = self.training;
        let compute_ps = training.forward_ps() * if is_forward { 1 } else { 2 };
        let Stage { all, tensor, expert, .. } = self.stages[at];
        let mut op = self.program.push(What::Compute(compute_ps), all, after);
        // Layers of a stage's part, in halves because of what does not divide: two collectives a layer, each way.
        let collectives = u64::from(training.model.layers) * 2;
        let share = u64::from(training.pipeline) * u64::from(training.parts);
        if let Some(team) = tensor {
            let bytes = training.activation_bytes() * collectives / share;
            op = team.collective(&training.ways(), &mut self.program, Together::AllReduce, bytes, op);
        }
        if let Some(team) = expert {
            let visits = u64::from(training.model.experts_per_token);
            let bytes = training.activation_bytes() * visits * collectives / share;
            op = team.collective(&training.ways(), &mut self.program, Together::AllToAll, bytes, op);
        }
        op
    }

    /// The gradients of a bucket, among replicas.
    fn reduce(&mut self, at: usize, after: OpId) -> Vec<OpId> {
        let training = self.training;
        let ranks = u64::from(training.tensor) * u64::from(training.pipeline);
        let share = ranks * u64::from(training.buckets);
        let Stage { data, data_of_experts, .. } = self.stages[at];
        let mut ops = Vec::new();
        if let Some(team) = data {
            let bytes = training.model.shared_parameters() * NUMBER_BYTES / share;
            ops.push(team.collective(&training.ways(), &mut self.program, Together::AllReduce, bytes, after));
        }
        if let Some(team) = data_of_experts {
            let bytes =
                training.model.expert_parameters() * NUMBER_BYTES / share / u64::from(training.expert);
            ops.push(team.collective(&training.ways(), &mut self.program, Together::AllReduce, bytes, after));
        }
        ops
    }
}

/// Micro-batches in the order of a stage: forward as many as later stages need to begin, then one backward, one forward.
fn order(training: &Training, stage: u32) -> Vec<(bool, u32)> {
    let batches = training.micro_batches;
    let ahead = (training.pipeline - stage - 1).min(batches);
    let mut order: Vec<(bool, u32)> = (0..ahead).map(|batch| (true, batch)).collect();
    for batch in ahead..batches {
        order.extend([(true, batch), (false, batch - ahead)]);
    }
    order.extend((batches - ahead..batches).map(|batch| (false, batch)));
    order
}

impl Stage {
    fn new(training: &Training, program: &mut Program, stage: u32) -> Stage {
        let Training { tensor, data, expert, pipeline, .. } = *training;
        let ranks = Ranks { tensor, data, expert, stage };
        let (ways, has_experts) = (training.ways(), training.model.experts > 0);
        let experts = |groups: Vec<Vec<u32>>| if has_experts { groups } else { Vec::new() };
        let (first, own) = ranks.own();
        Stage {
            all: program.groups(1, (first..first + own).collect()),
            tensor: Team::new(&ways, program, &ranks.of_tensor()),
            expert: Team::new(&ways, program, &experts(ranks.of_experts())),
            data: Team::new(&ways, program, &ranks.of_data()),
            data_of_experts: Team::new(&ways, program, &experts(ranks.of_same_experts())),
            next: (stage + 1 < pipeline).then(|| {
                let (forth, back) = ranks.pairs();
                (program.groups(2, forth), program.groups(2, back))
            }),
            last: Vec::new(),
        }
    }
}
