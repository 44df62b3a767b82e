//! A network of one's own, cable by cable.

use std::collections::{BTreeMap, VecDeque};

use srdma_fabric::{Cable, End, Graph, Switch};

use crate::file::rate;
use crate::network::{delay, needed, queue};
use crate::reader::{FileError, Table};

/// Cables side by side, at most.
const COUNT_MAX: u64 = 1024;

/// `switches` names them, `[[topology.cable]]` says what is connected.
pub(crate) fn cables(table: &Table<'_>) -> Result<Graph, FileError> {
    let hosts = needed(table, "hosts")?;
    let names = table.text("switches")?;
    let names = table.required("switches", names)?;
    let mut switches: BTreeMap<&str, u32> = BTreeMap::new();
    for name in names.value.split_whitespace() {
        let is_plain =
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.starts_with("host");
        if !is_plain || switches.insert(name, switches.len() as u32).is_some() {
            let problem = format!("\"{name}\": each name once, of letters, digits and _, and not host…");
            return Err(table.error_at(names.at, "switches", &problem));
        }
    }
    let mut cables = Vec::new();
    for cable in table.tables("cable")? {
        read_cable(&cable, hosts, &switches, &mut cables)?;
        cable.finish()?;
    }
    let tiers = tiers(hosts, switches.len(), &cables);
    let mut named: Vec<(&str, u32)> = switches.into_iter().collect();
    named.sort_by_key(|&(_, number)| number);
    let switch = |(name, number): (&str, u32)| Switch::new(name.to_owned(), tiers[number as usize]);
    let graph =
        Graph { hosts, switches: named.into_iter().map(switch).collect(), cables, groups: Vec::new() };
    table.finish()?;
    graph.validate().and_then(|()| graph.check_ways()).map_err(|error| table.error(&error.to_string()))?;
    Ok(graph)
}

fn read_cable(
    table: &Table<'_>,
    hosts: u32,
    switches: &BTreeMap<&str, u32>,
    cables: &mut Vec<Cable>,
) -> Result<(), FileError> {
    let between = table.text("between")?;
    let between = table.required("between", between)?;
    let wrong = |what: &str| {
        let problem =
            format!("{what}: two of host0 …, host2..5 for several, and the switches, with a - between");
        table.error_at(between.at, "between", &problem)
    };
    let (a, b) = between.value.split_once('-').ok_or_else(|| wrong("there is no -"))?;
    let ends =
        |name: &str| ends(name, hosts, switches).ok_or_else(|| wrong(&format!("there is no \"{name}\"")));
    let (from, to) = (ends(a)?, ends(b)?);
    if let (&[End::Host(_), ..], &[End::Host(_), ..]) = (&from[..], &to[..]) {
        return Err(wrong("two hosts cannot be connected"));
    }
    let rate = table.required("gbps", rate(table, "gbps")?)?;
    let (delay, queue) = (delay(table, "delay_ns")?, queue(table)?);
    let count = table.whole("count", 1..=COUNT_MAX)?.unwrap_or(1);
    for (&from, &to) in from.iter().flat_map(|from| to.iter().map(move |to| (from, to))) {
        // The host first.
        let (from, to) = if matches!(to, End::Host(_)) { (to, from) } else { (from, to) };
        cables.extend((0..count).map(|_| Cable { from, to, rate, delay, queue }));
    }
    Ok(())
}

/// What a name stands for.
fn ends(name: &str, hosts: u32, switches: &BTreeMap<&str, u32>) -> Option<Vec<End>> {
    let Some(number) = name.strip_prefix("host") else {
        return switches.get(name).map(|&switch| vec![End::Switch(switch)]);
    };
    let (first, last) = number.split_once("..").unwrap_or((number, number));
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < hosts).then(|| (first..=last).map(End::Host).collect())
}

/// Distance of each switch from the nearest host.
fn tiers(hosts: u32, switches: usize, cables: &[Cable]) -> Vec<u8> {
    let node = |end: End| match end {
        End::Host(host) => host as usize,
        End::Switch(switch) => hosts as usize + switch as usize,
    };
    let mut beside: Vec<Vec<usize>> = vec![Vec::new(); hosts as usize + switches];
    for cable in cables {
        let (a, b) = (node(cable.from), node(cable.to));
        beside[a].push(b);
        beside[b].push(a);
    }
    let mut distance = vec![u8::MAX; beside.len()];
    distance[..hosts as usize].fill(0);
    let mut queue: VecDeque<usize> = (0..hosts as usize).collect();
    while let Some(at) = queue.pop_front() {
        for &next in &beside[at] {
            if distance[next] == u8::MAX && distance[at] < u8::MAX - 1 {
                distance[next] = distance[at] + 1;
                queue.push_back(next);
            }
        }
    }
    distance.split_off(hosts as usize)
}
