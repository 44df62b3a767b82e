//! Networks as plain descriptions: switches, hosts, cables between them.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::buffer::SharedBuffer;
use crate::link::QueueLimits;
use crate::ports::PORTS_MAX;
use crate::time::{Rate, Time};

/// One end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Host with this number.
    Host(u32),
    /// Switch with this number.
    Switch(u32),
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// What reports and faults call it.
    pub name: String,
    /// Distance from the hosts: 1 for a leaf.
    pub tier: u8,
    /// What its queues share, beside the limits of their own.
    pub buffer: Option<SharedBuffer>,
}

impl Switch {
    /// One whose queues have no limits but their own.
    pub fn new(name: String, tier: u8) -> Switch {
        Switch { name, tier, buffer: None }
    }
}

/// A cable: a link in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// One end; for a host's cable, the host.
    pub from: End,
    /// The other.
    pub to: End,
    /// Bits per second, each way.
    pub rate: Rate,
    /// Propagation, each way.
    pub delay: Time,
    /// Of the queue before the link, where a switch sends into it. A host's own queue has no limit.
    pub queue: QueueLimits,
}

/// Switches that have one name together, so that a fault can befall all of them: a plane, a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What faults call it.
    pub name: String,
    /// Numbers of its switches.
    pub switches: Vec<u32>,
}

/// Hosts, switches, cables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Hosts, numbered from 0. Each is one RNIC.
    pub hosts: u32,
    /// Switches.
    pub switches: Vec<Switch>,
    /// Cables. A host that has several has as many ports, of which each leads to another switch.
    pub cables: Vec<Cable>,
    /// Switches that fail together.
    pub groups: Vec<Group>,
}

/// What is wrong with a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A number is out of range.
    #[error("{key} must be {range}, not {value}")]
    Range {
        /// Name of the setting.
        key: &'static str,
        /// What is allowed.
        range: &'static str,
        /// What it is.
        value: u64,
    },
    /// One number is no multiple of another.
    #[error("{key} is no whole number: {value} / {by}")]
    Ratio {
        /// What it would count.
        key: &'static str,
        /// The one.
        value: u32,
        /// The other.
        by: u32,
    },
    /// The thresholds of a queue contradict each other.
    #[error("A queue of {bytes} bytes cannot mark from {min} to {max}: 0 < ecn_min ≤ ecn_max ≤ queue")]
    Thresholds {
        /// Its size.
        bytes: u64,
        /// First threshold.
        min: u64,
        /// Second.
        max: u64,
    },
    /// A cable ends nowhere.
    #[error("Cable {0} ends at something that does not exist")]
    NoSuchEnd(usize),
    /// A host has no cable, or more than an RNIC has ports.
    #[error("Host {host} has {cables} cables to switches; it must have 1 to {PORTS_MAX}")]
    Ports {
        /// Which.
        host: u32,
        /// How many.
        cables: u32,
    },
    /// A host has two cables to one switch.
    #[error("Host {host} has two cables to {to}; each of its ports leads to another switch")]
    Twice {
        /// Which.
        host: u32,
        /// A switch.
        to: String,
    },
    /// Two hosts cannot reach each other.
    #[error("No way leads from {from} to host {to}")]
    Disconnected {
        /// A switch.
        from: String,
        /// A host.
        to: u32,
    },
}

/// Hosts in an IPv4 network of ours.
pub(crate) const HOSTS_MAX: u32 = 1 << 20;
/// Cables that a description may have.
pub(crate) const CABLES_MAX: u64 = 1 << 22;
/// No more switches than a datacentre has.
pub(crate) const SWITCHES_MAX: u64 = 1 << 16;

impl Graph {
    /// Checks what does not need ways to be found.
    pub fn validate(&self) -> Result<(), TopologyError> {
        within("hosts", "2 to 1048576", self.hosts.into(), 2, HOSTS_MAX.into())?;
        let mut ports = alloc::vec![0u32; self.hosts as usize];
        for (index, cable) in self.cables.iter().enumerate() {
            for (end, other) in [(cable.from, cable.to), (cable.to, cable.from)] {
                match end {
                    End::Host(host) if host < self.hosts && matches!(other, End::Switch(_)) => {
                        ports[host as usize] += 1
                    }
                    End::Switch(switch) if (switch as usize) < self.switches.len() => {}
                    _ => return Err(TopologyError::NoSuchEnd(index)),
                }
            }
            check_queue(&cable.queue)?;
        }
        match ports.iter().position(|&cables| cables == 0 || cables as usize > PORTS_MAX) {
            Some(host) => Err(TopologyError::Ports { host: host as u32, cables: ports[host] }),
            None => self.check_ports(),
        }
    }

    /// That no two ports of a host lead to one switch.
    fn check_ports(&self) -> Result<(), TopologyError> {
        let mut seen = BTreeSet::new();
        for cable in &self.cables {
            let (host, switch) = match (cable.from, cable.to) {
                (End::Host(host), End::Switch(switch)) | (End::Switch(switch), End::Host(host)) => {
                    (host, switch)
                }
                _ => continue,
            };
            if !seen.insert((host, switch)) {
                return Err(TopologyError::Twice { host, to: self.name_of(End::Switch(switch)) });
            }
        }
        Ok(())
    }

    /// Number of the switch called `name`.
    pub fn switch_named(&self, name: &str) -> Option<u32> {
        self.switches.iter().position(|switch| switch.name == name).map(|index| index as u32)
    }

    /// What an end is called.
    pub fn name_of(&self, end: End) -> String {
        match end {
            End::Host(host) => format!("host{host}"),
            End::Switch(switch) => {
                self.switches.get(switch as usize).map_or(String::new(), |switch| switch.name.clone())
            }
        }
    }
}

pub(crate) fn check_queue(queue: &QueueLimits) -> Result<(), TopologyError> {
    let (bytes, min, max) = (queue.bytes, queue.ecn_min_bytes, queue.ecn_max_bytes);
    let sensible = 0 < min && min <= max && (max <= bytes || min == u64::MAX);
    if sensible {
        Ok(())
    } else {
        Err(TopologyError::Thresholds { bytes, min, max })
    }
}

pub(crate) fn within(
    key: &'static str,
    range: &'static str,
    value: u64,
    low: u64,
    high: u64,
) -> Result<(), TopologyError> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(TopologyError::Range { key, range, value })
    }
}

/// Two tiers: every leaf is connected with every spine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafSpine {
    /// Leaf switches.
    pub leaves: u32,
    /// Hosts at each leaf.
    pub hosts_per_leaf: u32,
    /// Spine switches.
    pub spines: u32,
    /// Of a host's cable.
    pub host_rate: Rate,
    /// Of a cable between leaf and spine.
    pub spine_rate: Rate,
    /// Propagation on a host's cable.
    pub host_delay: Time,
    /// Propagation between leaf and spine.
    pub spine_delay: Time,
    /// Each queue of a switch.
    pub queue: QueueLimits,
}

impl LeafSpine {
    /// Checks every range.
    pub fn validate(&self) -> Result<(), TopologyError> {
        within("leaves", "1 to 4096", self.leaves.into(), 1, 4096)?;
        within("hosts_per_leaf", "1 to 4096", self.hosts_per_leaf.into(), 1, 4096)?;
        within("spines", "1 to 4096", self.spines.into(), 1, 4096)?;
        let hosts = u64::from(self.leaves) * u64::from(self.hosts_per_leaf);
        within("leaves × hosts_per_leaf", "2 to 1048576", hosts, 2, HOSTS_MAX.into())?;
        let cables = hosts + u64::from(self.leaves) * u64::from(self.spines);
        within("cables in all", "up to 4194304", cables, 1, CABLES_MAX)?;
        let delays = self.host_delay.0.max(self.spine_delay.0);
        within("delay (ps)", "up to a second", delays, 0, 1_000_000_000_000)?;
        check_queue(&self.queue)
    }

    /// Hosts are numbered leaf by leaf; switches are `leaf0`, …, then `spine0`, ….
    pub fn graph(&self) -> Result<Graph, TopologyError> {
        self.validate()?;
        let named = |name: &str, tier, count: u32| {
            (0..count).map(move |index| Switch::new(format!("{name}{index}"), tier)).collect::<Vec<_>>()
        };
        let mut switches = named("leaf", 1, self.leaves);
        switches.extend(named("spine", 2, self.spines));
        let (queue, mut cables) = (self.queue, Vec::new());
        for host in 0..self.leaves * self.hosts_per_leaf {
            let (from, to) = (End::Host(host), End::Switch(host / self.hosts_per_leaf));
            cables.push(Cable { from, to, rate: self.host_rate, delay: self.host_delay, queue });
        }
        for leaf in 0..self.leaves {
            for spine in 0..self.spines {
                let (from, to) = (End::Switch(leaf), End::Switch(self.leaves + spine));
                cables.push(Cable { from, to, rate: self.spine_rate, delay: self.spine_delay, queue });
            }
        }
        Ok(Graph { hosts: self.leaves * self.hosts_per_leaf, switches, cables, groups: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> LeafSpine {
        let rate = Rate::from_bits_per_second(100_000_000_000).expect("in range");
        LeafSpine {
            leaves: 2,
            hosts_per_leaf: 3,
            spines: 4,
            host_rate: rate,
            spine_rate: rate,
            host_delay: Time::from_nanos(500),
            spine_delay: Time::from_nanos(500),
            queue: QueueLimits { bytes: 1 << 20, ecn_min_bytes: 1 << 16, ecn_max_bytes: 1 << 18 },
        }
    }

    #[test]
    fn a_leaf_spine_network_has_its_cables() {
        let graph = small().graph().expect("valid");
        assert_eq!((graph.hosts, graph.switches.len(), graph.cables.len()), (6, 6, 6 + 8));
        assert_eq!(graph.cables[5].to, End::Switch(1));
        assert_eq!((graph.switch_named("spine3"), graph.switch_named("spine4")), (Some(5), None));
        graph.validate().expect("valid");
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        type Change = fn(&mut LeafSpine);
        let cases: [(Change, &str); 6] = [
            (|net| net.leaves = 0, "leaves must be 1 to 4096, not 0"),
            (|net| net.spines = 5000, "spines must be 1 to 4096, not 5000"),
            (|net| (net.leaves, net.hosts_per_leaf) = (1, 1), "leaves × hosts_per_leaf must be 2"),
            (|net| (net.leaves, net.spines) = (4096, 4096), "cables in all must be up to 4194304"),
            (|net| net.queue.ecn_max_bytes = 1 << 21, "cannot mark from 65536 to 2097152"),
            (|net| net.spine_delay = Time::MAX, "delay (ps) must be up to a second"),
        ];
        for (change, said) in cases {
            let mut net = small();
            change(&mut net);
            let error = format!("{}", net.graph().expect_err(said));
            assert!(error.contains(said), "{error}");
        }
        let mut graph = small().graph().expect("valid");
        graph.cables.remove(2);
        assert_eq!(graph.validate(), Err(TopologyError::Ports { host: 2, cables: 0 }));
        let mut twice = small().graph().expect("valid");
        twice.cables.push(twice.cables[4]);
        let error = format!("{}", twice.validate().expect_err("two cables to one leaf"));
        assert_eq!(error, "Host 4 has two cables to leaf1; each of its ports leads to another switch");
        graph.cables[0].to = End::Switch(99);
        assert_eq!(graph.validate(), Err(TopologyError::NoSuchEnd(0)));
    }
}
