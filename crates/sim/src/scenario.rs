//! What to simulate, as plain values.

use std::collections::BTreeSet;

use srdma_fabric::{FabricConfig, Graph, Time};
use srdma_rnic::Order;
use srdma_seams::Duration;
use srdma_transport::{Config, CongestionKind, SelectorKind};
use srdma_wire::DATA_HEADER_BYTES;
use srdma_workload::{PlacementError, PlanError};

use crate::fault::Fault;
use crate::job::{Job, Workload};
use crate::work::place;

/// A scenario: everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// The network.
    pub graph: Graph,
    /// All switches hash alike.
    pub polarised: bool,
    /// Switches cut payloads off that they have no room for.
    pub trims: bool,
    /// What is sent: at least one job that is no background.
    pub jobs: Vec<Job>,
    /// What breaks, when; times count from the first message.
    pub faults: Vec<Fault>,
    /// Simulated time after which a run ends unfinished.
    pub limit: Time,
    /// Time before looks count for what waits at whole switches.
    pub warm_up: Time,
    /// Time between two looks at the queues.
    pub sample_every: Time,
    /// The runs: at least one.
    pub variants: Vec<Variant>,
}

/// One run of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What it is called.
    pub name: String,
    /// Its settings.
    pub settings: Settings,
}

/// Settings of transport and RNIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Paths of each connection.
    pub paths: u16,
    /// How the next is chosen.
    pub selector: SelectorKind,
    /// What a program may see of reordering.
    pub order: Order,
    /// Payload bytes of a full packet.
    pub payload_bytes: u16,
    /// Packets that travel together.
    pub unit_packets: u8,
    /// What decides the congestion window.
    pub congestion: CongestionKind,
    /// A window for each path instead of one for all.
    pub path_windows: bool,
    /// Congestion window at the start.
    pub window_initial_bytes: u64,
    /// Congestion window at most.
    pub window_max_bytes: u64,
    /// Queueing delay that the window aims at.
    pub target_delay: Duration,
    /// Shortest retransmission time-out.
    pub rto_min: Duration,
    /// Shortest time that end points take for a reordering or a loss.
    pub grain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            paths: 128,
            selector: SelectorKind::default(),
            order: Order::Default,
            payload_bytes: 4096,
            unit_packets: 1,
            congestion: CongestionKind::Delay,
            path_windows: false,
            window_initial_bytes: 512 << 10,
            window_max_bytes: 4 << 20,
            target_delay: Duration::from_micros(20),
            rto_min: Duration::from_micros(250),
            grain: Duration::from_micros(2),
        }
    }
}

impl Scenario {
    /// Default settings and no faults, on `graph`.
    pub fn plain(name: &str, graph: Graph, workload: Workload) -> Scenario {
        let settings = Settings::default();
        Scenario {
            name: name.to_owned(),
            seed: 1,
            graph,
            polarised: false,
            trims: false,
            jobs: vec![Job::plain("job 1", workload)],
            faults: Vec::new(),
            limit: DEFAULT_LIMIT,
            warm_up: Time(0),
            sample_every: DEFAULT_SAMPLE,
            variants: vec![Variant { name: settings.name(), settings }],
        }
    }

    /// What cannot be seen in one part alone.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        if self.jobs.iter().all(|job| job.background) {
            return Err(ScenarioError::Background);
        }
        self.jobs.iter().try_for_each(|job| job.workload.validate())?;
        self.placements().map(drop)
    }

    /// The hosts of each job, by member; of one that is queued, those that it would have if it were alone.
    pub fn placements(&self) -> Result<Vec<Vec<u32>>, ScenarioError> {
        let mut taken = BTreeSet::new();
        let mut all = Vec::new();
        for (number, job) in self.jobs.iter().enumerate() {
            let (needed, there) = (job.workload.members(), self.graph.hosts);
            if needed > there {
                return Err(ScenarioError::Hosts { job: job.name.clone(), needed, there });
            }
            let nobody = BTreeSet::new();
            let others = if job.queued { &nobody } else { &taken };
            let hosts = place(job, self.graph.hosts, others, self.seed, number);
            let hosts = hosts.map_err(|why| ScenarioError::Placement { job: job.name.clone(), why })?;
            if !job.queued {
                taken.extend(hosts.iter().copied());
            }
            all.push(hosts);
        }
        Ok(all)
    }

    /// Settings of the simulator for one of the variants.
    pub fn config(&self, settings: &Settings) -> FabricConfig {
        FabricConfig {
            seed: self.seed,
            datagram_bytes_max: settings.payload_bytes + DATA_HEADER_BYTES as u16,
            transport: settings.transport(),
            order: settings.order,
            polarised: self.polarised,
            trims: self.trims,
            ..FabricConfig::default()
        }
    }
}

/// A scenario cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// All jobs are background.
    #[error("A run needs a job that is no background")]
    Background,
    /// A workload is not as it should be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A workload does not fit the network.
    #[error("{job} needs {needed} hosts, but the network has {there}")]
    Hosts {
        /// Name of the job.
        job: String,
        /// Hosts that it needs.
        needed: u32,
        /// Hosts that there are.
        there: u32,
    },
    /// A job finds no hosts.
    #[error("{job}: {why}")]
    Placement {
        /// Its name.
        job: String,
        /// Why.
        why: PlacementError,
    },
}

/// Simulated time after which a run ends, if nothing else is said: a second.
pub(crate) const DEFAULT_LIMIT: Time = Time::from_nanos(1_000_000_000);
/// Time between two samples likewise: 10 µs.
pub(crate) const DEFAULT_SAMPLE: Time = Time::from_nanos(10_000);

impl Settings {
    /// What a variant is called that nobody has named.
    pub fn name(&self) -> String {
        let congestion = match self.congestion {
            CongestionKind::Delay => "",
            other => CongestionKind::ALL.iter().find(|(_, kind)| *kind == other).map_or("", |(name, _)| name),
        };
        format!("{} {} {congestion}", self.selector.name(), self.paths).trim_end().to_owned()
    }

    /// As transport wants them.
    pub fn transport(&self) -> Config {
        Config {
            paths: self.paths,
            selector: self.selector,
            unit_packets_max: self.unit_packets,
            congestion: self.congestion,
            path_windows: self.path_windows,
            window_initial_bytes: self.window_initial_bytes,
            window_max_bytes: self.window_max_bytes,
            target_delay: self.target_delay,
            rto_min: self.rto_min,
            grain: self.grain,
            // There is no socket whose accounting a packet would burden.
            packet_overhead_bytes: 0,
            ..Config::default()
        }
    }
}
