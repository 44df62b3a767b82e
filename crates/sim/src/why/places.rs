//! Where packets were held up: links, and what hashing alone put on each.

use std::collections::BTreeMap;

use serde_json::{json, Value};
use srdma_fabric::{Fabric, FlowId, Link, LinkCounts, LinkId, Nothing, Time};
use srdma_seams::PathId;

/// Links that are named.
const NAMED: usize = 8;
/// Ways that are followed at most; of more flows, every so many is looked at.
const WAYS_MAX: usize = 1 << 18;

/// What a link's name is in reports: `leaf0 to spine3`.
pub(crate) fn name_of(fabric: &Fabric<Nothing>, link: LinkId) -> String {
    let (from, to) = fabric.ends(link);
    format!("{} to {}", fabric.graph().name_of(from), fabric.graph().name_of(to))
}

/// A link of a switch, from `begin` on.
struct Busy<'a> {
    id: LinkId,
    link: &'a Link,
    bytes: u64,
    byte_ps: u128,
}

/// The links whose packets waited longest in total, and those that dropped the most.
pub(crate) fn links(fabric: &Fabric<Nothing>, begin: Time, before: &BTreeMap<LinkId, LinkCounts>) -> Value {
    let span = fabric.now().since(begin);
    let mut all: Vec<Busy<'_>> = Vec::new();
    for (&id, before) in before {
        let link = &fabric.links()[id.0 as usize];
        let counts = link.counts();
        let (bytes, byte_ps) = (counts.bytes - before.bytes, counts.byte_ps - before.byte_ps);
        all.push(Busy { id, link, bytes, byte_ps });
    }
    let dropped = |link: &Link| {
        let counts = link.counts();
        counts.overflowed + counts.lost + counts.corrupted + counts.cut
    };
    all.sort_by_key(|busy| (std::cmp::Reverse(busy.byte_ps), busy.id));
    let waited: Vec<Value> = all.iter().take(NAMED).map(|busy| busy.json(fabric, span)).collect();
    all.retain(|busy| dropped(busy.link) > 0);
    all.sort_by_key(|busy| (std::cmp::Reverse(dropped(busy.link)), busy.id));
    let dropping: Vec<Value> = all.iter().take(NAMED).map(|busy| busy.json(fabric, span)).collect();
    json!({ "waited": waited, "dropped": dropping, "dropping": all.len() })
}

impl Busy<'_> {
    fn json(&self, fabric: &Fabric<Nothing>, span: Time) -> Value {
        let counts = self.link.counts();
        let busy = self.link.rate().serialisation(self.bytes).0 as f64 / span.0.max(1) as f64;
        json!({
            "link": name_of(fabric, self.id), "busy": busy, "bytes": self.bytes,
            "wait_us": wait_us(self.byte_ps, self.bytes), "queue_max_bytes": counts.queue_max_bytes,
            "marked": counts.marked, "overflowed": counts.overflowed, "lost": counts.lost,
            "corrupt": counts.corrupted, "cut": counts.cut,
        })
    }
}

/// Mean time of a byte in a queue, its own serialisation included.
pub(crate) fn wait_us(byte_ps: u128, bytes: u64) -> f64 {
    byte_ps as f64 / bytes.max(1) as f64 / 1e6
}

/// Bytes that hashing puts on each upward link of the lowest switches (`uplinks`), if every path of a flow gets its equal
/// share, and how many of them a connection reaches.
pub(crate) fn hashing(
    fabric: &Fabric<Nothing>,
    uplinks: &[LinkId],
    flows: &[(FlowId, u64)],
    paths: u16,
) -> Option<Value> {
    let every = (flows.len() * usize::from(paths)).div_ceil(WAYS_MAX).max(1);
    let mut planned: BTreeMap<LinkId, (f64, u32)> = uplinks.iter().map(|&link| (link, (0.0, 0))).collect();
    let (mut reached, mut looked_at) = (0u64, 0u64);
    for &(flow, bytes) in flows.iter().step_by(every) {
        let mut own: BTreeMap<LinkId, u32> = BTreeMap::new();
        for path in 0..paths {
            let way = fabric.way(flow, PathId(path)).unwrap_or_default();
            if let Some(&up) = way.iter().find(|link| planned.contains_key(link)) {
                *own.entry(up).or_default() += 1;
            }
        }
        if own.is_empty() {
            continue;
        }
        looked_at += 1;
        reached += own.len() as u64;
        for (link, count) in own {
            let Some((load, connections)) = planned.get_mut(&link) else { continue };
            *load += bytes as f64 * f64::from(count) / f64::from(paths);
            *connections += 1;
        }
    }
    if looked_at == 0 {
        return None;
    }
    let mean = planned.values().map(|(load, _)| load).sum::<f64>() / planned.len().max(1) as f64;
    let (&worst, &(most, connections)) = planned.iter().max_by(|a, b| a.1 .0.total_cmp(&b.1 .0))?;
    let carried = |link: LinkId| fabric.links()[link.0 as usize].counts().bytes as f64;
    let all: f64 = uplinks.iter().map(|&link| carried(link)).sum();
    let most_carried = uplinks.iter().map(|&link| carried(link)).fold(0.0, f64::max);
    Some(json!({
        "flows": looked_at, "paths": paths, "uplinks": planned.len(),
        "uplinks_per_flow": reached as f64 / looked_at as f64,
        "unused": planned.values().filter(|(load, _)| *load == 0.0).count(),
        "planned_max_to_mean": most / mean.max(1.0),
        "worst": name_of(fabric, worst), "worst_flows": connections,
        "carried_max_to_mean": most_carried * uplinks.len() as f64 / all.max(1.0),
    }))
}
