//! The network of Alibaba's HPN 7.0 (Qian et al., SIGCOMM 2024): rails, switch pairs, and planes that meet only in the
//! hosts.
//!
//! A server has a NIC for each GPU, and NIC *n* of every server of a segment is connected with switch pair *n* of the
//! segment: its rail. Each port of a NIC leads to another switch of the pair, and the first switches of all pairs form one
//! plane with aggregation switches of its own, the second ones another. So a packet's plane is chosen by the port that it
//! leaves by, and its way by the uplink of the first switch: choice among aggregation switches, of which there are 60 in
//! a plane. Pods are joined by core switches, again in planes.

use alloc::format;
use alloc::vec::Vec;

use crate::link::QueueLimits;
use crate::ports::PORTS_MAX;
use crate::time::{Rate, Time};
use crate::topology::{
    check_queue, within, Cable, End, Graph, Group, Switch, TopologyError, CABLES_MAX, HOSTS_MAX, SWITCHES_MAX,
};

/// See the module. Every NIC is a host of the [`Graph`], numbered segment by segment and server by server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hpn {
    /// Pods; 1 if there is no core.
    pub pods: u32,
    /// Segments of a pod: 15.
    pub segments: u32,
    /// Servers of a segment: 128.
    pub servers: u32,
    /// NICs of a server, hence rails: 8.
    pub nics: u32,
    /// Ports of a NIC, hence planes: 2.
    pub planes: u32,
    /// Aggregation switches of a pod and plane: 60.
    pub aggs: u32,
    /// Cables of an aggregation switch to the core, 8; 0 with one pod.
    pub agg_uplinks: u32,
    /// Core switches of a plane; 0 with one pod.
    pub cores: u32,
    /// Of a port of a NIC: 200 Gbit/s.
    pub port_rate: Rate,
    /// Of a cable between switches: 400 Gbit/s.
    pub uplink_rate: Rate,
    /// Propagation on the cable of a NIC.
    pub port_delay: Time,
    /// Propagation between switches.
    pub uplink_delay: Time,
    /// Each queue of a switch.
    pub queue: QueueLimits,
}

impl Hpn {
    /// Checks every range, and that the cables come out even.
    pub fn validate(&self) -> Result<(), TopologyError> {
        within("pods", "1 to 64", self.pods.into(), 1, 64)?;
        within("segments", "1 to 64", self.segments.into(), 1, 64)?;
        within("servers_per_segment", "1 to 1024", self.servers.into(), 1, 1024)?;
        within("nics_per_server", "1 to 16", self.nics.into(), 1, 16)?;
        within("planes", "1 to 8", self.planes.into(), 1, PORTS_MAX as u64)?;
        within("aggs_per_plane", "1 to 1024", self.aggs.into(), 1, 1024)?;
        let hosts =
            u64::from(self.pods) * u64::from(self.segments) * u64::from(self.servers) * u64::from(self.nics);
        within("NICs in all", "2 to 1048576", hosts, 2, HOSTS_MAX.into())?;
        let delays = self.port_delay.0.max(self.uplink_delay.0);
        within("delay (ps)", "up to a second", delays, 0, 1_000_000_000_000)?;
        check_queue(&self.queue)?;
        self.check_core()?;
        let switches = u64::from(self.planes)
            * u64::from(self.pods * (self.segments * self.nics + self.aggs) + self.cores);
        within("switches in all", "up to 65536", switches, 1, SWITCHES_MAX)?;
        let upwards = u64::from(self.tors()) * u64::from(self.aggs);
        let to_core = u64::from(self.planes * self.pods * self.aggs) * u64::from(self.agg_uplinks);
        let cables = hosts * u64::from(self.planes) + upwards + to_core;
        within("cables in all", "up to 4194304", cables, 1, CABLES_MAX)
    }

    fn check_core(&self) -> Result<(), TopologyError> {
        if self.pods == 1 {
            within("agg_uplinks", "0 with one pod", self.agg_uplinks.into(), 0, 0)?;
            return within("cores_per_plane", "0 with one pod", self.cores.into(), 0, 0);
        }
        within("agg_uplinks", "1 to 1024 with several pods", self.agg_uplinks.into(), 1, 1024)?;
        within("cores_per_plane", "1 to 4096 with several pods", self.cores.into(), 1, 4096)?;
        let uplinks = self.aggs * self.agg_uplinks;
        match uplinks % self.cores {
            0 => Ok(()),
            _ => {
                let key = "aggs_per_plane × agg_uplinks divided by cores_per_plane";
                Err(TopologyError::Ratio { key, value: uplinks, by: self.cores })
            }
        }
    }

    /// Switches are `tor0`, … (of a segment's first rail one for each plane, then of the next rail), `agg0`, … and
    /// `core0`, … (plane by plane). `plane0` is all of a plane, `segment0` the switches of a segment; `pod0` those of a pod
    /// where there are several.
    pub fn graph(&self) -> Result<Graph, TopologyError> {
        self.validate()?;
        let mut graph = Graph {
            hosts: self.pods * self.segments * self.servers * self.nics,
            switches: self.switches(),
            cables: Vec::new(),
            groups: self.groups(),
        };
        for host in 0..graph.hosts {
            for plane in 0..self.planes {
                let segment = host / (self.servers * self.nics);
                let tor = self.tor(segment, host % self.nics, plane);
                graph.cables.push(self.cable(End::Host(host), tor));
            }
        }
        for tor in 0..self.tors() {
            let (plane, segment) = (tor % self.planes, tor / (self.planes * self.nics));
            for agg in 0..self.aggs {
                let agg = self.agg(segment / self.segments, plane, agg);
                graph.cables.push(self.cable(End::Switch(tor), agg));
            }
        }
        self.lay_core(&mut graph.cables);
        Ok(graph)
    }

    /// Uplinks of a plane's aggregation switches go round its core switches.
    fn lay_core(&self, cables: &mut Vec<Cable>) {
        for pod in 0..self.pods {
            for (plane, agg) in (0..self.planes).flat_map(|plane| (0..self.aggs).map(move |agg| (plane, agg)))
            {
                let End::Switch(from) = self.agg(pod, plane, agg) else { continue };
                for uplink in 0..self.agg_uplinks {
                    let core = (agg * self.agg_uplinks + uplink) % self.cores;
                    cables.push(self.cable(End::Switch(from), self.core(plane, core)));
                }
            }
        }
    }

    fn tors(&self) -> u32 {
        self.pods * self.segments * self.nics * self.planes
    }

    fn tor(&self, segment: u32, rail: u32, plane: u32) -> End {
        End::Switch((segment * self.nics + rail) * self.planes + plane)
    }

    fn agg(&self, pod: u32, plane: u32, agg: u32) -> End {
        End::Switch(self.tors() + (plane * self.pods + pod) * self.aggs + agg)
    }

    fn core(&self, plane: u32, core: u32) -> End {
        End::Switch(self.tors() + self.planes * self.pods * self.aggs + plane * self.cores + core)
    }

    fn cable(&self, from: End, to: End) -> Cable {
        let (rate, delay) = match from {
            End::Host(_) => (self.port_rate, self.port_delay),
            End::Switch(_) => (self.uplink_rate, self.uplink_delay),
        };
        Cable { from, to, rate, delay, queue: self.queue }
    }

    fn switches(&self) -> Vec<Switch> {
        let aggs = self.planes * self.pods * self.aggs;
        let tiers = [("tor", self.tors()), ("agg", aggs), ("core", self.planes * self.cores)];
        let named = |(tier, (name, count)): (usize, (&'static str, u32))| {
            (0..count).map(move |index| Switch::new(format!("{name}{index}"), tier as u8 + 1))
        };
        tiers.into_iter().enumerate().flat_map(named).collect()
    }

    fn groups(&self) -> Vec<Group> {
        let aggs = |pod, plane| (0..self.aggs).map(move |agg| self.agg(pod, plane, agg));
        let tors = |segment, plane| (0..self.nics).map(move |rail| self.tor(segment, rail, plane));
        let segments = 0..self.pods * self.segments;
        let mut groups = Vec::new();
        for plane in 0..self.planes {
            let tors = segments.clone().flat_map(|segment| tors(segment, plane));
            let aggs = (0..self.pods).flat_map(|pod| aggs(pod, plane));
            let cores = (0..self.cores).map(|core| self.core(plane, core));
            groups.push(group("plane", plane, tors.chain(aggs).chain(cores)));
        }
        for segment in segments {
            groups.push(group("segment", segment, (0..self.planes).flat_map(|plane| tors(segment, plane))));
        }
        for pod in (0..self.pods).filter(|_| self.pods > 1) {
            let segments = pod * self.segments..(pod + 1) * self.segments;
            let of_plane = |plane| {
                segments.clone().flat_map(move |segment| tors(segment, plane)).chain(aggs(pod, plane))
            };
            groups.push(group("pod", pod, (0..self.planes).flat_map(of_plane)));
        }
        groups
    }
}

fn group(name: &str, number: u32, ends: impl Iterator<Item = End>) -> Group {
    let switch = |end| match end {
        End::Switch(switch) => Some(switch),
        End::Host(_) => None,
    };
    Group { name: format!("{name}{number}"), switches: ends.filter_map(switch).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn gbps(gbps: u64) -> Rate {
        Rate::from_bits_per_second(gbps * 1_000_000_000).expect("in range")
    }

    fn small() -> Hpn {
        Hpn {
            pods: 1,
            segments: 2,
            servers: 3,
            nics: 4,
            planes: 2,
            aggs: 5,
            agg_uplinks: 0,
            cores: 0,
            port_rate: gbps(200),
            uplink_rate: gbps(400),
            port_delay: Time::from_nanos(500),
            uplink_delay: Time::from_nanos(500),
            queue: QueueLimits { bytes: 1 << 20, ecn_min_bytes: 1 << 16, ecn_max_bytes: 1 << 18 },
        }
    }

    fn peers(graph: &Graph, end: End) -> Vec<End> {
        let both = graph.cables.iter().flat_map(|cable| [(cable.from, cable.to), (cable.to, cable.from)]);
        both.filter(|&(one, _)| one == end).map(|(_, other)| other).collect()
    }

    /// The sizes of the real thing: a pod of 15,360 NICs.
    #[test]
    fn a_pod_of_hpn_7_has_the_published_sizes() {
        let pod = Hpn { segments: 15, servers: 128, nics: 8, aggs: 60, ..small() };
        let graph = pod.graph().expect("valid");
        assert_eq!((graph.hosts, graph.switches.len()), (15_360, 240 + 120));
        let tor = peers(&graph, End::Switch(17));
        let down = tor.iter().filter(|end| matches!(end, End::Host(_))).count();
        assert_eq!((down, tor.len() - down), (128, 60));
        let agg = graph.switch_named("agg60").expect("first of the second plane");
        assert_eq!(peers(&graph, End::Switch(agg)).len(), 120);
    }

    #[test]
    fn planes_meet_only_in_the_hosts() {
        let graph = small().graph().expect("valid");
        graph.validate().expect("valid");
        assert_eq!((graph.hosts, graph.switches.len(), graph.cables.len()), (24, 16 + 10, 48 + 80));
        // NIC 2 of server 1 of segment 1: the third pair of that segment.
        assert_eq!(peers(&graph, End::Host(12 + 4 + 2)), [End::Switch(8 + 4), End::Switch(8 + 5)]);
        let plane = |end| {
            graph.groups.iter().position(|group| match end {
                End::Switch(switch) => group.switches.contains(&switch),
                End::Host(_) => false,
            })
        };
        for cable in graph.cables.iter().filter(|cable| matches!(cable.from, End::Switch(_))) {
            assert_eq!(plane(cable.from), plane(cable.to), "{cable:?}");
            assert!(plane(cable.from) < Some(2));
        }
        let names: Vec<&str> = graph.groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["plane0", "plane1", "segment0", "segment1"]);
        assert_eq!(graph.groups[0].switches.len(), 8 + 5);
    }

    #[test]
    fn pods_are_joined_by_cores_of_their_plane() {
        let two = Hpn { pods: 2, aggs: 6, agg_uplinks: 2, cores: 4, ..small() };
        let graph = two.graph().expect("valid");
        graph.validate().expect("valid");
        let core = |number: u32| graph.switch_named(&format!("core{number}")).expect("there");
        for number in 0..8 {
            let below = peers(&graph, End::Switch(core(number)));
            assert_eq!(below.len(), 2 * 6 * 2 / 4, "core{number}");
            let plane = &graph.groups[number as usize / 4];
            let inside = |end: &End| matches!(end, End::Switch(switch) if plane.switches.contains(switch));
            assert!(below.iter().all(inside), "core{number} meets its plane only");
        }
        let pod = graph.groups.iter().find(|group| group.name == "pod1").expect("there");
        assert_eq!(pod.switches.len(), 2 * (2 * 4 + 6));
    }

    fn huge(net: &Hpn) -> Hpn {
        let (pods, segments, servers, nics) = (64, 64, 1, 16);
        Hpn { pods, segments, servers, nics, planes: 8, aggs: 1024, agg_uplinks: 1, cores: 4, ..net.clone() }
    }

    #[test]
    fn numbers_that_do_not_fit_are_named() {
        type Change = fn(&mut Hpn);
        let cases: [(Change, &str); 6] = [
            (|net| net.planes = 9, "planes must be 1 to 8, not 9"),
            (|net| net.aggs = 0, "aggs_per_plane must be 1 to 1024, not 0"),
            (
                |net| (net.segments, net.servers, net.nics) = (1, 1, 1),
                "NICs in all must be 2 to 1048576, not 1",
            ),
            (|net| net.cores = 3, "cores_per_plane must be 0 with one pod, not 3"),
            (
                |net| (net.pods, net.agg_uplinks, net.cores) = (2, 2, 3),
                "divided by cores_per_plane is no whole number: 10 / 3",
            ),
            (|net| *net = huge(net), "switches in all must be up to 65536, not 1048608"),
        ];
        for (change, said) in cases {
            let mut net = Hpn { aggs: 5, ..small() };
            change(&mut net);
            let error = net.graph().expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
