//! What the answers to probes of limited life prove about the number of distinct paths. No I/O.
//!
//! A *path* here is the sequence of addresses with which the routers between here and the peer answer.
//! Routers limit how many ICMP errors they send (Linux: six at once, then one a second to each host),
//! so many probes stay unanswered by routers that are there; what is missing is never made up. When a
//! part is enough is decided by the stopping rule of the multipath detection algorithm (Augustin,
//! Friedman, Teixeira: "Multipath tracing with Paris traceroute", 2007).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What the probes of one source port found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The source port.
    pub source_port: u16,
    /// Router that answered at hop 1, 2, …; `None` where nobody did.
    pub routers: Vec<Option<IpAddr>>,
    /// Least time-to-live with which the peer was reached.
    pub reached: Option<u8>,
    /// It was reached only in that it refused. Hosts limit their refusals, so it may be nearer than `reached` says.
    pub refused: bool,
}

impl Trace {
    /// Routers on the way, if the peer was reached.
    fn length(&self) -> Option<usize> {
        self.reached.map(|ttl| usize::from(ttl.saturating_sub(1)))
    }

    fn router(&self, hop: usize) -> Option<IpAddr> {
        self.routers.get(hop).copied().flatten()
    }

    /// Whether a router is, or may be, at this hop (0-based).
    fn passes(&self, hop: usize) -> bool {
        self.length().is_none_or(|length| hop < length)
    }
}

/// What is known of one hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Distance, from 1.
    pub ttl: u8,
    /// Source ports that pass it.
    pub asked: usize,
    /// How many of those got an answer.
    pub answered: usize,
    /// Who answered, and to how many source ports.
    pub routers: BTreeMap<IpAddr, usize>,
}

impl Hop {
    /// Whether another router would have been seen by now.
    pub fn is_settled(&self) -> bool {
        self.answered > 0 && (self.answered == self.asked || self.answered >= enough(self.routers.len()))
    }

    /// Whether some probes were answered and some not: what is there limits its answers, which is no loss of
    /// packets on the way.
    pub fn is_limited(&self) -> bool {
        (1..self.asked).contains(&self.answered)
    }
}

/// How many distinct paths there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// No router is in between: one path as far as IP can see.
    Direct,
    /// Every source port's path is known: exactly so many among them.
    Exact(usize),
    /// Enough of them are known to exclude one more equally likely path with 95 % confidence.
    Confident(usize),
    /// At least so many; answers are missing.
    AtLeast(usize),
    /// No router answers.
    Unknown,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Source ports probed.
    pub source_ports: usize,
    /// Source ports from which the peer was reached.
    pub reached: usize,
    /// Source ports whose whole path is known.
    pub known: usize,
    /// Distinct paths.
    pub count: Count,
    /// Hop by hop.
    pub hops: Vec<Hop>,
}

impl Discovery {
    /// Most routers side by side at one hop.
    pub fn widest(&self) -> usize {
        self.hops.iter().map(|hop| hop.routers.len()).max().unwrap_or(0)
    }
}

/// Answers after which a further, equally likely alternative beside `seen` ones would have shown itself
/// with 95 % confidence: least n with (k+1)·(k/(k+1))ⁿ ≤ 0.05, a union bound on the exact chance.
pub fn enough(seen: usize) -> usize {
    let k = seen as f64;
    if seen == 0 {
        return usize::MAX;
    }
    ((0.05 / (k + 1.0)).ln() / (k / (k + 1.0)).ln()).ceil() as usize
}

/// The state of hop `index` (0-based) over all traces.
pub fn hop(traces: &[Trace], index: usize) -> Hop {
    let mut routers = BTreeMap::new();
    let passing = traces.iter().filter(|trace| trace.passes(index));
    let asked = passing.clone().count();
    for router in passing.filter_map(|trace| trace.router(index)) {
        *routers.entry(router).or_insert(0) += 1;
    }
    Hop { ttl: (index + 1).min(255) as u8, asked, answered: routers.values().sum(), routers }
}

/// Draws the conclusion.
pub fn discover(traces: &[Trace]) -> Discovery {
    let reached = traces.iter().filter(|trace| trace.reached.is_some()).count();
    // Beyond the last router that answered, traces that never arrived say nothing, nor do those that were refused: what
    // is silent there may as well be the peer.
    let last_heard = |trace: &Trace| trace.routers.iter().rposition(Option::is_some).map_or(0, |at| at + 1);
    let known_length = |trace: &Trace| trace.length().filter(|_| !trace.refused);
    let depth =
        traces.iter().map(|trace| known_length(trace).unwrap_or(last_heard(trace))).max().unwrap_or(0);
    let is_next = traces.iter().any(|trace| trace.length() == Some(0));
    let hops: Vec<Hop> = (0..depth).map(|index| hop(traces, index)).collect();
    let whole: Vec<Vec<IpAddr>> = traces.iter().filter_map(|trace| whole_path(trace, &hops)).collect();
    let known = whole.len();
    let distinct = whole.into_iter().collect::<BTreeSet<_>>().len();
    let heard = hops.iter().any(|hop| hop.answered > 0);
    let least = hops.iter().map(|hop| hop.routers.len()).max().unwrap_or(0).max(distinct);
    let count = if depth == 0 && is_next {
        Count::Direct
    } else if !heard {
        Count::Unknown
    } else if known == traces.len() {
        Count::Exact(distinct)
    } else if distinct == least && known >= enough(distinct) {
        Count::Confident(distinct)
    } else {
        Count::AtLeast(least)
    };
    Discovery { source_ports: traces.len(), reached, known, count, hops }
}

/// The whole path of a trace that arrived. Where it had no answer but all others name one router, and
/// enough of them, that router it is.
fn whole_path(trace: &Trace, hops: &[Hop]) -> Option<Vec<IpAddr>> {
    let only = |hop: &Hop| match hop.routers.first_key_value() {
        Some((router, _)) if hop.routers.len() == 1 && hop.is_settled() => Some(*router),
        _ => None,
    };
    let length = trace.length()?;
    (0..length).map(|index| trace.router(index).or_else(|| only(hops.get(index)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(hop: u8, number: u8) -> IpAddr {
        IpAddr::from([10, hop, number, 1])
    }

    /// A trace through the routers with these numbers, hop by hop; 0 is one that did not answer.
    fn trace(numbers: &[u8]) -> Trace {
        let name = |(hop, number): (usize, &u8)| (*number > 0).then(|| router(hop as u8, *number));
        Trace {
            source_port: 1,
            routers: numbers.iter().enumerate().map(name).collect(),
            reached: Some(numbers.len() as u8 + 1),
            refused: false,
        }
    }

    /// Chance that `answers` drawn evenly from `routers` miss at least one, by inclusion and exclusion.
    fn chance_of_missing_one(routers: i32, answers: i32) -> f64 {
        let mut ways = 1.0;
        let mut sum = 0.0;
        for missed in 1..routers {
            ways *= f64::from(routers - missed + 1) / f64::from(missed);
            let term = ways * (1.0 - f64::from(missed) / f64::from(routers)).powi(answers);
            sum += if missed % 2 == 1 { term } else { -term };
        }
        sum
    }

    #[test]
    fn the_stopping_rule_keeps_its_confidence_and_wastes_little() {
        for (seen, answers) in [(1, 6), (2, 11), (3, 16), (4, 21), (8, 45), (16, 97)] {
            assert_eq!(enough(seen), answers, "{seen}");
            let chance = |answers| chance_of_missing_one(seen as i32 + 1, answers);
            assert!(chance(answers as i32) <= 0.05 && chance(answers as i32 - 2) > 0.05, "{seen}");
        }
        assert_eq!(enough(0), usize::MAX);
    }

    #[test]
    fn paths_are_counted_only_as_far_as_they_are_known() {
        let many = |count: usize, make: &dyn Fn(u8) -> Vec<u8>| -> Vec<Trace> {
            (0..count).map(|i| trace(&make(i as u8))).collect()
        };
        let spines = |i: u8| 1 + i % 4;
        let table: Vec<(&str, Vec<Trace>, Count)> = vec![
            ("same link", many(8, &|_| vec![]), Count::Direct),
            ("one router", many(8, &|_| vec![1]), Count::Exact(1)),
            ("four spines, all answer", many(128, &|i| vec![1, spines(i), 1]), Count::Exact(4)),
            (
                "four spines, each router answers six times",
                many(128, &|i| vec![u8::from(i < 6), if i < 24 { spines(i) } else { 0 }, u8::from(i < 6)]),
                Count::Confident(4),
            ),
            (
                "too few answers at the spines",
                many(128, &|i| vec![1, if i < 12 { spines(i) } else { 0 }, 1]),
                Count::AtLeast(4),
            ),
            ("a silent hop", many(128, &|i| vec![1, spines(i), 0]), Count::AtLeast(4)),
            ("nobody answers", many(128, &|_| vec![0, 0, 0]), Count::Unknown),
            ("two stages of two", many(128, &|i| vec![1 + i % 2, 1 + i / 2 % 2]), Count::Exact(4)),
            (
                "paths of two lengths",
                many(128, &|i| if i % 2 == 0 { vec![1, 1] } else { vec![1, 2, 1] }),
                Count::Exact(2),
            ),
            ("nothing probed", vec![], Count::Unknown),
        ];
        for (name, traces, count) in table {
            assert_eq!(discover(&traces).count, count, "{name}");
        }
    }

    /// A host that refuses, but not each time, is not taken for a row of silent routers.
    #[test]
    fn a_peer_that_limits_its_refusals_is_no_hop() {
        let refused = |routers: &[u8], ttl: u8| Trace { reached: Some(ttl), refused: true, ..trace(routers) };
        for (traces, hops, count) in [
            (vec![refused(&[], 1), refused(&[0, 0], 3), refused(&[0; 13], 14)], 0, Count::Direct),
            (vec![refused(&[0, 0], 3), refused(&[0; 13], 14)], 0, Count::Unknown),
            (vec![refused(&[1], 2), refused(&[1, 0, 0], 4), refused(&[0; 13], 14)], 1, Count::AtLeast(1)),
            (vec![refused(&[0, 2, 0], 4), trace(&[1, 2, 0])], 3, Count::AtLeast(1)),
        ] {
            let found = discover(&traces);
            assert_eq!((found.hops.len(), found.count), (hops, count), "{traces:?}");
        }
    }

    #[test]
    fn a_peer_that_was_never_reached_leaves_the_routers_that_answered() {
        let mut lost = trace(&[1, 2, 0, 0, 0]);
        lost.reached = None;
        let found = discover(&[lost]);
        assert_eq!((found.reached, found.known, found.hops.len()), (0, 0, 2));
        assert_eq!(found.count, Count::AtLeast(1));
    }
}
