//! Who may carry a packet on: for each switch and the leaves of a destination, the links on shortest ways to any of them.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use crate::topology::{End, Graph, TopologyError};

/// A link as routing sees it: where it leads from and to.
pub(crate) type Hop = (End, End);

const FAR: u32 = u32::MAX;
/// Instead of a number of links: the switch is a leaf of the class.
const LOCAL: u32 = u32::MAX;

/// See the module. A *leaf* here is a switch that has hosts; hosts at the same leaves are of one *class*.
#[derive(Debug)]
pub(crate) struct Routes {
    /// Class of each host, and where its links begin in `downs`.
    hosts: Vec<(u32, u32)>,
    /// Links from leaves to hosts: of each host one from each leaf of its class, in that order.
    downs: Vec<u32>,
    classes: Vec<Vec<u32>>,
    /// Start and length in `members`, by switch × class; for a leaf of the class its position, and [`LOCAL`].
    groups: Vec<(u32, u32)>,
    members: Vec<u32>,
}

impl Graph {
    /// Checks that packets get from every switch that has hosts to every host.
    pub fn check_ways(&self) -> Result<(), TopologyError> {
        let hops: Vec<Hop> =
            self.cables.iter().flat_map(|cable| [(cable.from, cable.to), (cable.to, cable.from)]).collect();
        Routes::find(self, &hops, |_| true).check(self)
    }
}

impl Routes {
    /// Ways over the links for which `usable` says so. A switch that is left with no way drops what it is sent, and a host
    /// that is left with no link keeps those it had.
    pub fn find(graph: &Graph, hops: &[Hop], usable: impl Fn(usize) -> bool) -> Routes {
        let mut found: Vec<(u32, u32, u32)> = Vec::new();
        for (link, &hop) in hops.iter().enumerate() {
            if let (End::Switch(leaf), End::Host(host)) = hop {
                found.push((host, leaf, link as u32));
            }
        }
        found.sort_unstable();
        let mut routes = Routes {
            hosts: vec![(0, 0); graph.hosts as usize],
            downs: Vec::with_capacity(found.len()),
            classes: Vec::new(),
            groups: Vec::new(),
            members: Vec::new(),
        };
        let mut known: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
        for all in found.chunk_by(|a, b| a.0 == b.0) {
            let is_left = |entry: &&(u32, u32, u32)| usable(entry.2 as usize);
            let none_left = !all.iter().any(|entry| is_left(&entry));
            let left = || all.iter().filter(|entry| none_left || is_left(entry));
            let leaves: Vec<u32> = left().map(|entry| entry.1).collect();
            let class = known.get(&leaves).copied().unwrap_or_else(|| {
                routes.classes.push(leaves.clone());
                known.insert(leaves, routes.classes.len() as u32 - 1);
                routes.classes.len() as u32 - 1
            });
            routes.hosts[all[0].0 as usize] = (class, routes.downs.len() as u32);
            routes.downs.extend(left().map(|entry| entry.2));
        }
        routes.fill(graph.switches.len(), hops, usable);
        routes
    }

    fn fill(&mut self, switches: usize, hops: &[Hop], usable: impl Fn(usize) -> bool) {
        let mut out: Vec<Vec<(u32, u32)>> = vec![Vec::new(); switches];
        let mut into: Vec<Vec<u32>> = vec![Vec::new(); switches];
        for (link, &(from, to)) in hops.iter().enumerate() {
            if let (End::Switch(from), End::Switch(to), true) = (from, to, usable(link)) {
                out[from as usize].push((link as u32, to));
                into[to as usize].push(from);
            }
        }
        self.groups = vec![(0, 0); switches * self.classes.len()];
        // The links upwards of a switch are the same for most classes.
        let mut latest = vec![(0, 0); switches];
        for (class, leaves) in self.classes.iter().enumerate() {
            let distance = distances(leaves, &into);
            for switch in (0..switches).filter(|&switch| distance[switch] != FAR) {
                let nearer = |&&(_, to): &&(u32, u32)| distance[to as usize] < distance[switch];
                let links = || out[switch].iter().filter(nearer).map(|&(link, _)| link);
                let (start, count): (u32, u32) = latest[switch];
                let known = &self.members[start as usize..(start + count) as usize];
                if !links().eq(known.iter().copied()) {
                    let start = self.members.len() as u32;
                    self.members.extend(links());
                    latest[switch] = (start, self.members.len() as u32 - start);
                }
                self.groups[switch * self.classes.len() + class] = latest[switch];
            }
            for (position, &leaf) in leaves.iter().enumerate() {
                self.groups[leaf as usize * self.classes.len() + class] = (position as u32, LOCAL);
            }
        }
    }

    /// Whether every host can be reached from every leaf.
    pub fn check(&self, graph: &Graph) -> Result<(), TopologyError> {
        let leaves: BTreeSet<u32> = self.classes.iter().flatten().copied().collect();
        for (host, &(class, _)) in self.hosts.iter().enumerate() {
            let unreachable =
                |&&leaf: &&u32| self.groups[leaf as usize * self.classes.len() + class as usize].1 == 0;
            if let Some(&leaf) = leaves.iter().find(unreachable) {
                let from = graph.name_of(End::Switch(leaf));
                return Err(TopologyError::Disconnected { from, to: host as u32 });
            }
        }
        Ok(())
    }

    /// The links on which `switch` may send a packet for `host`.
    pub fn all(&self, switch: u32, host: u32) -> &[u32] {
        let (class, downs) = self.hosts[host as usize];
        let (start, count) = self.groups[switch as usize * self.classes.len() + class as usize];
        match count {
            LOCAL => core::slice::from_ref(&self.downs[(downs + start) as usize]),
            count => &self.members[start as usize..(start + count) as usize],
        }
    }

    /// The link on which `switch` sends a packet for `host`, chosen by `hash` among equals.
    pub fn next(&self, switch: u32, host: u32, hash: u64) -> Option<u32> {
        let (class, downs) = self.hosts[host as usize];
        let (start, count) = self.groups[switch as usize * self.classes.len() + class as usize];
        if count == LOCAL {
            return Some(self.downs[(downs + start) as usize]);
        }
        let group = &self.members[start as usize..(start + count) as usize];
        // The upper bits, scaled: no division, and no bias worth mentioning below 2³² members.
        group.get((((hash >> 32) * group.len() as u64) >> 32) as usize).copied()
    }
}

/// Links from each switch to the nearest of `leaves`.
fn distances(leaves: &[u32], into: &[Vec<u32>]) -> Vec<u32> {
    let mut distance = vec![FAR; into.len()];
    leaves.iter().for_each(|&leaf| distance[leaf as usize] = 0);
    let mut queue: VecDeque<u32> = leaves.iter().copied().collect();
    while let Some(switch) = queue.pop_front() {
        for &before in &into[switch as usize] {
            if distance[before as usize] == FAR {
                distance[before as usize] = distance[switch as usize] + 1;
                queue.push_back(before);
            }
        }
    }
    distance
}

/// What a switch hashes of a packet: addresses and UDP ports. The protocol is always UDP.
pub(crate) fn five_tuple(from: u32, to: u32, source_port: u16, port: u16) -> u64 {
    let addresses = u64::from(from) << 32 | u64::from(to);
    let ports = u64::from(source_port) << 16 | u64::from(port);
    mix(addresses ^ mix(ports.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// The hash of one switch: its own seed over the five-tuple.
pub(crate) fn hash_at(tuple: u64, switch_seed: u64) -> u64 {
    mix(tuple ^ switch_seed)
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
