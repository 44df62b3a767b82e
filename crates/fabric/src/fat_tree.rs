//! Two or three tiers of switches in pods, as most datacentres have them.

use alloc::format;
use alloc::vec::Vec;

use crate::link::QueueLimits;
use crate::time::{Rate, Time};
use crate::topology::{
    check_queue, within, Cable, End, Graph, Group, Switch, TopologyError, CABLES_MAX, HOSTS_MAX,
};

/// A tier of switches, and the cables below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Ports downwards of each switch.
    pub radix_down: u32,
    /// Ports upwards; 0 in the highest tier.
    pub radix_up: u32,
    /// Cables between a switch of this tier and one below that are connected at all; 1 in the lowest tier.
    pub bundle: u32,
    /// Of each cable below.
    pub rate: Rate,
    /// Propagation on each cable below.
    pub delay: Time,
    /// Time that a switch takes for a packet besides.
    pub switch_delay: Time,
}

/// Hosts in pods; within a pod every lowest switch is connected with every middle one, and middle switch *n* of every pod
/// with the highest switches of group *n*. With two tiers there is one pod, and the second tier is the highest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatTree {
    /// Hosts.
    pub hosts: u32,
    /// Hosts of a pod.
    pub pod_hosts: u32,
    /// Tiers, lowest first: two or three.
    pub tiers: Vec<Tier>,
    /// Each queue of a switch.
    pub queue: QueueLimits,
}

/// How many switches of each tier there are: lowest and middle ones per pod, highest ones in all.
struct Counts {
    pods: u32,
    low: u32,
    middle: u32,
    high: u32,
}

impl FatTree {
    /// Checks that the numbers fit together.
    pub fn validate(&self) -> Result<(), TopologyError> {
        self.counts().map(|_| ())
    }

    fn counts(&self) -> Result<Counts, TopologyError> {
        within("hosts", "2 to 1048576", self.hosts.into(), 2, HOSTS_MAX.into())?;
        within("number of tiers", "2 or 3", self.tiers.len() as u64, 2, 3)?;
        for tier in &self.tiers {
            within("radix_down", "1 to 65536", tier.radix_down.into(), 1, 1 << 16)?;
            within("radix_up", "0 to 65536", tier.radix_up.into(), 0, 1 << 16)?;
            within("bundle", "1 to 1024", tier.bundle.into(), 1, 1024)?;
            within(
                "delay (ps)",
                "up to a second",
                tier.delay.0.max(tier.switch_delay.0),
                0,
                1_000_000_000_000,
            )?;
        }
        check_queue(&self.queue)?;
        let lowest = &self.tiers[0];
        let pod_hosts = if self.tiers.len() == 2 { self.hosts } else { self.pod_hosts };
        let pods = exactly("hosts divided by those of a pod", self.hosts, pod_hosts)?;
        let low = exactly("hosts of a pod divided by radix_down of tier 0", pod_hosts, lowest.radix_down)?;
        let middle =
            exactly("radix_up of tier 0 divided by bundle of tier 1", lowest.radix_up, self.tiers[1].bundle)?;
        let ports = low_ports(low, &self.tiers[1]);
        let range = "bundle × the lowest switches of a pod";
        within("radix_down of tier 1", range, self.tiers[1].radix_down.into(), ports, ports)?;
        let high = match self.tiers.get(2) {
            None => 0,
            Some(highest) => {
                let ports = low_ports(pods, highest);
                within("radix_down of tier 2", "bundle × pods", highest.radix_down.into(), ports, ports)?;
                middle
                    * exactly(
                        "radix_up of tier 1 divided by bundle of tier 2",
                        self.tiers[1].radix_up,
                        highest.bundle,
                    )?
            }
        };
        let upwards = u64::from(pods) * u64::from(low) * u64::from(lowest.radix_up);
        let to_core = u64::from(pods) * u64::from(middle) * u64::from(self.tiers[1].radix_up);
        let cables = u64::from(self.hosts) + upwards + to_core;
        within("cables in all", "up to 4194304", cables, 1, CABLES_MAX)?;
        Ok(Counts { pods, low, middle, high })
    }

    /// Hosts are numbered pod by pod and switch by switch; switches are `leaf0`, … and `spine0`, … with two tiers,
    /// `tor0`, …, `agg0`, … and `core0`, … with three, where the switches of a pod are `pod0`, ….
    pub fn graph(&self) -> Result<Graph, TopologyError> {
        let counts = self.counts()?;
        let Counts { pods, low, middle, high } = counts;
        let names = if self.tiers.len() == 2 { ["leaf", "spine", ""] } else { ["tor", "agg", "core"] };
        let mut switches = Vec::new();
        for (tier, count) in [pods * low, pods * middle, high].into_iter().enumerate() {
            let named = |index| Switch::new(format!("{}{index}", names[tier]), tier as u8 + 1);
            switches.extend((0..count).map(named));
        }
        let mut cables = Vec::new();
        for host in 0..self.hosts {
            cables.push(self.cable(0, End::Host(host), End::Switch(host / self.tiers[0].radix_down)));
        }
        let (first_middle, first_high) = (pods * low, pods * (low + middle));
        for (pod, tor, agg) in all(pods, low, middle) {
            let (from, to) = (pod * low + tor, first_middle + pod * middle + agg);
            self.bundle(1, from, to, &mut cables);
        }
        let group = high.checked_div(middle).unwrap_or(0);
        for (pod, agg, core) in all(pods, middle, group) {
            self.bundle(2, first_middle + pod * middle + agg, first_high + agg * group + core, &mut cables);
        }
        let of_pod = |pod: u32| {
            let middles = (pods * low + pod * middle)..(pods * low + (pod + 1) * middle);
            (pod * low..(pod + 1) * low).chain(middles).collect()
        };
        let named = |pod| Group { name: format!("pod{pod}"), switches: of_pod(pod) };
        let groups = if high > 0 { (0..pods).map(named).collect() } else { Vec::new() };
        Ok(Graph { hosts: self.hosts, switches, cables, groups })
    }

    fn bundle(&self, tier: usize, from: u32, to: u32, cables: &mut Vec<Cable>) {
        for _ in 0..self.tiers[tier].bundle {
            cables.push(self.cable(tier, End::Switch(from), End::Switch(to)));
        }
    }

    /// Half of what a switch takes is put on each of the two cables that a packet uses there.
    fn cable(&self, tier: usize, from: End, to: End) -> Cable {
        let above = &self.tiers[tier];
        let below = tier.checked_sub(1).map_or(0, |below| self.tiers[below].switch_delay.0);
        let delay = Time(above.delay.0 + (above.switch_delay.0 + below) / 2);
        Cable { from, to, rate: above.rate, delay, queue: self.queue }
    }
}

/// Ports downwards that are needed to reach `count` switches.
fn low_ports(count: u32, tier: &Tier) -> u64 {
    u64::from(count) * u64::from(tier.bundle)
}

fn all(a: u32, b: u32, c: u32) -> impl Iterator<Item = (u32, u32, u32)> {
    (0..a).flat_map(move |x| (0..b).flat_map(move |y| (0..c).map(move |z| (x, y, z))))
}

/// `value / by`, which must be whole and not nothing.
fn exactly(key: &'static str, value: u32, by: u32) -> Result<u32, TopologyError> {
    let whole = value > 0 && value.checked_rem(by) == Some(0);
    if whole {
        Ok(value / by)
    } else {
        Err(TopologyError::Ratio { key, value, by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn tier(radix_down: u32, radix_up: u32) -> Tier {
        let rate = Rate::from_bits_per_second(100_000_000_000).expect("in range");
        let (delay, switch_delay) = (Time::from_nanos(1_000), Time::from_nanos(10));
        Tier { radix_down, radix_up, bundle: 1, rate, delay, switch_delay }
    }

    fn three() -> FatTree {
        let queue = QueueLimits { bytes: 1 << 20, ecn_min_bytes: 1 << 16, ecn_max_bytes: 1 << 18 };
        FatTree { hosts: 128, pod_hosts: 16, tiers: vec![tier(4, 4), tier(4, 4), tier(8, 0)], queue }
    }

    #[test]
    fn pods_are_joined_by_the_highest_tier() {
        let graph = three().graph().expect("valid");
        graph.validate().expect("valid");
        assert_eq!((graph.switches.len(), graph.cables.len()), (32 + 32 + 16, 128 + 128 + 128));
        let pod = &graph.groups[3];
        assert_eq!((pod.name.as_str(), &pod.switches[..]), ("pod3", &[12, 13, 14, 15, 44, 45, 46, 47][..]));
        let up = |from| graph.cables.iter().filter(move |cable| cable.from == from).map(|cable| cable.to);
        let agg5 = End::Switch(graph.switch_named("agg5").expect("there"));
        let cores: Vec<End> = up(agg5).collect();
        let core4 = graph.switch_named("core4").expect("there");
        assert_eq!(cores, (core4..core4 + 4).map(End::Switch).collect::<Vec<_>>(), "second of its pod");
        // Two links of a host's switch, four of which half is its own: up and down again every switch counts once.
        assert_eq!(graph.cables[0].delay, Time::from_nanos(1_005));
        assert_eq!(graph.cables[200].delay, Time::from_nanos(1_010));
    }

    #[test]
    fn bundles_and_two_tiers_are_counted() {
        let mut two = FatTree { tiers: vec![tier(32, 32), tier(8, 0)], hosts: 128, ..three() };
        two.tiers[1] = Tier { bundle: 2, ..two.tiers[1] };
        let graph = two.graph().expect("valid");
        assert_eq!((graph.switches.len(), graph.cables.len()), (4 + 16, 128 + 4 * 16 * 2));
        graph.validate().expect("valid");
    }

    #[test]
    fn numbers_that_do_not_fit_are_named() {
        type Change = fn(&mut FatTree);
        let cases: [(Change, &str); 6] = [
            (|tree| tree.pod_hosts = 24, "hosts divided by those of a pod is no whole number: 128 / 24"),
            (|tree| tree.tiers[0].radix_down = 3, "radix_down of tier 0 is no whole number: 16 / 3"),
            (|tree| tree.tiers[1].radix_down = 5, "radix_down of tier 1 must be bundle × the lowest"),
            (|tree| tree.tiers[2].radix_down = 9, "radix_down of tier 2 must be bundle × pods"),
            (|tree| tree.tiers[0].bundle = 0, "bundle must be 1 to 1024, not 0"),
            (|tree| tree.tiers.truncate(1), "number of tiers must be 2 or 3, not 1"),
        ];
        for (change, said) in cases {
            let mut tree = three();
            change(&mut tree);
            let error = tree.graph().expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
