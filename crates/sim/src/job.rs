//! Jobs: what is sent, by whom, when, how often.

use srdma_fabric::Time;
use srdma_workload::{
    Collective, Course, Execution, Order, Permutation, Placement, Plan, PlanError, Program, Repeat, Traffic,
    Written,
};

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// See [`Permutation`].
    Permutation(Permutation),
    /// See [`Collective`].
    Collective(Collective),
    /// Messages written out.
    Matrix(Plan),
    /// Operations written out; and what they are called in reports.
    Program(&'static str, Program),
}

/// A workload on hosts. Several run side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What it is called.
    pub name: String,
    /// What it sends.
    pub workload: Workload,
    /// On which hosts.
    pub placement: Placement,
    /// When it begins, after the first of all.
    pub start: Time,
    /// How often.
    pub repeat: Repeat,
    /// It is there for the others: the run does not wait for its end.
    pub background: bool,
}

impl Workload {
    /// What it is called in files and reports.
    pub fn kind(&self) -> &'static str {
        match self {
            Workload::Permutation(_) => "permutation",
            Workload::Matrix(_) => "matrix",
            Workload::Collective(collective) => kind_of(collective),
            Workload::Program(kind, _) => kind,
        }
    }

    /// Members that it has.
    pub fn members(&self) -> u32 {
        match self {
            Workload::Permutation(workload) => workload.hosts,
            Workload::Collective(workload) => workload.members,
            Workload::Matrix(plan) => plan.hosts(),
            Workload::Program(_, program) => program.members(),
        }
    }

    /// Checks every range.
    pub fn validate(&self) -> Result<(), PlanError> {
        match self {
            Workload::Permutation(workload) => workload.validate(),
            Workload::Collective(workload) => workload.program().map(drop),
            Workload::Matrix(plan) => plan.validate(),
            Workload::Program(_, program) => program.validate(),
        }
    }

    /// It, about to be carried out.
    pub fn course(&self, repeat: Repeat) -> Result<Box<dyn Course>, PlanError> {
        self.validate()?;
        Ok(match self {
            Workload::Permutation(workload) => Box::new(Written::new(workload.plan()?, repeat)),
            Workload::Matrix(plan) => Box::new(Written::new(plan.clone(), repeat)),
            Workload::Collective(workload) => Box::new(Execution::new(workload.program()?, repeat)),
            Workload::Program(_, program) => Box::new(Execution::new(program.clone(), repeat)),
        })
    }

    /// Calls `each` with the messages of a round.
    pub fn traffic(&self, mut each: impl FnMut(Traffic)) -> Result<(), PlanError> {
        let mut written = |plan: &Plan| {
            for message in plan.messages() {
                each(Traffic { from: message.from, to: message.to, bytes: message.bytes, count: 1 });
            }
        };
        match self {
            Workload::Permutation(workload) => written(&workload.plan()?),
            Workload::Matrix(plan) => written(plan),
            Workload::Collective(workload) => workload.program()?.traffic(each),
            Workload::Program(_, program) => program.traffic(each),
        }
        Ok(())
    }

    /// Bytes of a member's buffer, and bus bandwidth as a share of algorithm bandwidth, where there is one.
    pub fn bus(&self) -> Option<(u64, f64)> {
        let exchange = |collective: &Collective| {
            let share = collective.exchange.pattern.bus_share(collective.members)?;
            Some((collective.exchange.bytes, share))
        };
        match self {
            Workload::Collective(collective) => exchange(collective),
            _ => None,
        }
    }
}

fn kind_of(collective: &Collective) -> &'static str {
    let pattern = collective.exchange.pattern;
    let known = crate::work::COLLECTIVES
        .iter()
        .find(|(_, known)| core::mem::discriminant(known) == core::mem::discriminant(&pattern));
    known.map_or("", |(kind, _)| kind)
}

impl Job {
    /// Once, at once, on the first hosts, in order.
    pub fn plain(name: &str, workload: Workload) -> Job {
        Job {
            name: name.to_owned(),
            workload,
            placement: Placement::default(),
            start: Time(0),
            repeat: Repeat::ONCE,
            background: false,
        }
    }

    /// The same on hosts in this order.
    pub fn ordered(self, order: Order) -> Job {
        Job { placement: Placement { order, ..self.placement }, ..self }
    }

    /// The same as background of others, again and again; in bursts, if `bursts` says how long one lasts and how long the pause.
    pub fn background(self, bursts: Option<(Time, Time)>) -> Job {
        let bursts = bursts.map(|(on, off)| (on.0, off.0));
        Job { repeat: Repeat { times: None, bursts }, background: true, ..self }
    }
}
