//! Who may carry a packet on: for each switch and each leaf of a destination, the links on shortest ways.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::topology::{End, Graph, TopologyError};

/// A link as routing sees it: where it leads from and to.
pub(crate) type Hop = (End, End);

const FAR: u32 = u32::MAX;

/// See the module. A *leaf* here is a switch that has hosts.
#[derive(Debug)]
pub(crate) struct Routes {
    /// Leaf (by its rank among leaves) and downward link of each host.
    hosts: Vec<(u32, u32)>,
    leaves: Vec<u32>,
    /// Start and length in `members`, by switch × leaf.
    groups: Vec<(u32, u32)>,
    members: Vec<u32>,
}

impl Routes {
    /// Ways over the links for which `usable` says so. A switch that is left with no way drops what it is sent.
    pub fn find(graph: &Graph, hops: &[Hop], usable: impl Fn(usize) -> bool) -> Routes {
        let mut rank = vec![FAR; graph.switches.len()];
        let mut leaves = Vec::new();
        let mut hosts = vec![(FAR, FAR); graph.hosts as usize];
        for (link, &(from, to)) in hops.iter().enumerate() {
            if let (End::Switch(switch), End::Host(host)) = (from, to) {
                if rank[switch as usize] == FAR {
                    rank[switch as usize] = leaves.len() as u32;
                    leaves.push(switch);
                }
                hosts[host as usize] = (rank[switch as usize], link as u32);
            }
        }
        let mut routes = Routes { hosts, leaves, groups: Vec::new(), members: Vec::new() };
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
        self.groups = vec![(0, 0); switches * self.leaves.len()];
        for (rank, &leaf) in self.leaves.iter().enumerate() {
            let distance = distances(leaf, &into);
            for switch in (0..switches).filter(|&switch| distance[switch] != FAR) {
                let start = self.members.len() as u32;
                let nearer = |&&(_, to): &&(u32, u32)| distance[to as usize] < distance[switch];
                self.members.extend(out[switch].iter().filter(nearer).map(|&(link, _)| link));
                self.groups[switch * self.leaves.len() + rank] = (start, self.members.len() as u32 - start);
            }
        }
    }

    /// Whether every host that has a leaf can be reached from every leaf.
    pub fn check(&self, graph: &Graph) -> Result<(), TopologyError> {
        for (host, &(rank, _)) in self.hosts.iter().enumerate() {
            let unreachable =
                |&&leaf: &&u32| leaf != self.leaves[rank as usize] && self.group(leaf, rank).is_empty();
            if let Some(&leaf) = self.leaves.iter().find(unreachable) {
                let from = graph.name_of(End::Switch(leaf));
                return Err(TopologyError::Disconnected { from, to: host as u32 });
            }
        }
        Ok(())
    }

    fn group(&self, switch: u32, rank: u32) -> &[u32] {
        let (start, count) = self.groups[switch as usize * self.leaves.len() + rank as usize];
        &self.members[start as usize..(start + count) as usize]
    }

    /// The link on which `switch` sends a packet for `host`, chosen by `hash` among equals.
    pub fn next(&self, switch: u32, host: u32, hash: u64) -> Option<u32> {
        let (rank, down) = self.hosts[host as usize];
        if self.leaves[rank as usize] == switch {
            return Some(down);
        }
        let group = self.group(switch, rank);
        // The upper bits, scaled: no division, and no bias worth mentioning below 2³² members.
        group.get((((hash >> 32) * group.len() as u64) >> 32) as usize).copied()
    }
}

fn distances(leaf: u32, into: &[Vec<u32>]) -> Vec<u32> {
    let mut distance = vec![FAR; into.len()];
    distance[leaf as usize] = 0;
    let mut queue = VecDeque::from([leaf]);
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
