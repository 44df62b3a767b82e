//! Jobs: what is sent, by whom, when, how often.

use srdma_fabric::Time;
use srdma_workload::{
    unhindered_ps, Collective, Course, Execution, ExpertLayers, KvTransfer, Layered, Order, Permutation,
    Placement, Plan, PlanError, Program, Repeat, Servers, Traffic, Training, Written,
};

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// See [`Permutation`].
    Permutation(Permutation),
    /// See [`Collective`].
    Collective(Collective),
    /// See [`Training`].
    Training(Training),
    /// See [`Layered`].
    Layered(Layered),
    /// See [`ExpertLayers`].
    Experts(ExpertLayers),
    /// See [`KvTransfer`].
    KvTransfer(KvTransfer),
    /// Messages written out.
    Matrix(Plan),
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
    /// It is placed when it begins, on hosts that are free then, and waits for them if there are too few; jobs that
    /// came before it go first.
    pub queued: bool,
}

impl Workload {
    /// What it is called in files and reports.
    pub fn kind(&self) -> &'static str {
        match self {
            Workload::Permutation(_) => "permutation",
            Workload::Matrix(_) => "matrix",
            Workload::Collective(collective) => kind_of(collective),
            Workload::Training(_) => "training",
            Workload::Layered(_) => "simai",
            Workload::Experts(_) => "experts",
            Workload::KvTransfer(_) => "kv-cache",
        }
    }

    /// Members that it has.
    pub fn members(&self) -> u32 {
        match self {
            Workload::Permutation(workload) => workload.hosts,
            Workload::Collective(workload) => workload.members,
            Workload::Matrix(plan) => plan.hosts(),
            Workload::Training(training) => training.members(),
            Workload::Layered(layered) => layered.members(),
            Workload::Experts(layers) => layers.members,
            Workload::KvTransfer(transfer) => transfer.members(),
        }
    }

    /// Checks every range.
    pub fn validate(&self) -> Result<(), PlanError> {
        match self {
            Workload::Permutation(workload) => workload.validate(),
            Workload::Matrix(plan) => plan.validate(),
            Workload::Layered(layered) => layered.validate(),
            _ => self.program().map(drop),
        }
    }

    /// Its operations, if it is made of some.
    fn program(&self) -> Result<Option<Program>, PlanError> {
        Ok(match self {
            Workload::Permutation(_) | Workload::Matrix(_) => None,
            Workload::Collective(workload) => Some(workload.program()?),
            Workload::Training(training) => Some(training.program()?),
            Workload::Layered(layered) => Some(layered.program()?),
            Workload::Experts(layers) => Some(layers.program()?),
            Workload::KvTransfer(transfer) => Some(transfer.program()?),
        })
    }

    /// Its messages, if they are written out.
    fn plan(&self) -> Result<Plan, PlanError> {
        match self {
            Workload::Permutation(workload) => workload.plan(),
            Workload::Matrix(plan) => plan.validate().map(|()| plan.clone()),
            _ => Ok(Plan::default()),
        }
    }

    /// It, about to be carried out.
    pub fn course(&self, repeat: Repeat) -> Result<Box<dyn Course>, PlanError> {
        Ok(match self.program()? {
            Some(program) => Box::new(Execution::new(program, repeat)),
            None => Box::new(Written::new(self.plan()?, repeat)),
        })
    }

    /// Calls `each` with the messages of a round.
    pub fn traffic(&self, mut each: impl FnMut(Traffic)) -> Result<(), PlanError> {
        match self.program()? {
            Some(program) => program.traffic(each),
            None => {
                for message in self.plan()?.messages() {
                    each(Traffic { from: message.from, to: message.to, bytes: message.bytes, count: 1 });
                }
            }
        }
        Ok(())
    }

    /// Time of a round on a network that takes none, if its members compute.
    pub fn unhindered(&self) -> Result<Option<Time>, PlanError> {
        match self {
            Workload::Permutation(_) | Workload::Collective(_) | Workload::Matrix(_) => Ok(None),
            _ => Ok(self.program()?.map(|program| Time(unhindered_ps(&program)))),
        }
    }

    /// Servers that members sit in, if it knows of some.
    pub fn servers(&self) -> Option<Servers> {
        match self {
            Workload::Training(training) => Some(training.servers),
            Workload::Layered(layered) => Some(layered.servers),
            _ => None,
        }
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
            queued: false,
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
