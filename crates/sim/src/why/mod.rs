//! Where the time of a run went.
//!
//! `notes` and `places` are what a run records: what its flows were doing whenever the queues were looked at, and where
//! packets waited. `explain` reads the records of a run back, `text` puts them into words.

mod explain;
mod notes;
mod places;
mod text;

use std::collections::BTreeMap;

use serde_json::{json, Map, Value};
use srdma_fabric::{Fabric, FlowId, LinkCounts, LinkId, Nothing, Time, RETRANSMIT_CAUSES};
use srdma_seams::PathId;

pub use explain::{explain, Explanation, RecordError};
pub(crate) use notes::{Notes, Posted, DOINGS};
pub(crate) use places::wait_us;

/// What [`record`] needs to know of a flow that has carried something, or should have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub id: FlowId,
    pub from: u32,
    pub to: u32,
    pub bytes: u64,
    /// Messages not received.
    pub left: u32,
    pub first_post: Time,
    pub last: Time,
}

/// What [`record`] needs to know of a run.
pub(crate) struct Seen<'a> {
    pub fabric: &'a Fabric<Nothing>,
    pub notes: &'a Notes,
    pub begin: Time,
    pub paths: u16,
    /// Links of switches and what they had done at the begin; the upward ones of the lowest switches.
    pub before: BTreeMap<LinkId, LinkCounts>,
    pub uplinks: &'a [LinkId],
    /// Name and mean wait of a byte, by kind of link.
    pub waits: Vec<(String, f64)>,
    pub flows: Vec<Ran>,
}

/// The record from which a run is explained.
pub(crate) fn record(seen: &Seen<'_>) -> Value {
    let sizes: Vec<(FlowId, u64)> = seen.flows.iter().map(|flow| (flow.id, flow.bytes)).collect();
    let waits: Vec<Value> =
        seen.waits.iter().map(|(name, wait)| json!({ "links": name, "wait_us": wait })).collect();
    json!({
        "kind": "why", "doing": seen.notes.shares(), "waits": waits,
        "links": places::links(seen.fabric, seen.begin, &seen.before),
        "hashing": places::hashing(seen.fabric, seen.uplinks, &sizes, seen.paths),
        "last_flow": last_flow(seen),
    })
}

/// The flow that was through last, or not at all.
fn last_flow(seen: &Seen<'_>) -> Option<Value> {
    let started = seen.flows.iter().filter(|flow| flow.first_post < Time::MAX);
    let flow = started.max_by_key(|flow| (flow.left > 0, flow.last, flow.id))?;
    let (sender, _) = seen.fabric.counts(flow.id)?;
    let causes = RETRANSMIT_CAUSES.iter().zip(sender.retransmitted);
    let retransmitted: Map<String, Value> =
        causes.map(|((name, _), count)| ((*name).to_owned(), json!(count))).collect();
    let mut told = seen.notes.story(flow.id);
    let us = |at: Time| at.since(seen.begin).0 as f64 / 1e6;
    let facts = json!({
        "from": flow.from, "to": flow.to, "bytes": flow.bytes, "messages_left": flow.left,
        "posted_us": us(flow.first_post), "last_us": us(flow.last),
        "packets": sender.packets, "retransmitted": retransmitted, "undone": sender.undone,
        "timeouts": sender.timeouts, "acked": sender.acked, "marked": sender.marked, "paths_suspected": sender.suspected,
        "window_min_bytes": sender.window_min, "window_max_bytes": sender.window_max,
        "way": way(seen, flow.id),
    });
    if let (Value::Object(told), Value::Object(facts)) = (&mut told, facts) {
        told.extend(facts);
    }
    Some(told)
}

/// Of a flow with one path: its links, and who else uses them.
fn way(seen: &Seen<'_>, flow: FlowId) -> Option<Vec<Value>> {
    if seen.paths > 1 {
        return None;
    }
    let way = seen.fabric.way(flow, PathId(0))?;
    let ways: Vec<Vec<LinkId>> =
        seen.flows.iter().filter_map(|flow| seen.fabric.way(flow.id, PathId(0))).collect();
    let told = way.iter().filter_map(|link| {
        let before = seen.before.get(link)?;
        let counts = seen.fabric.links()[link.0 as usize].counts();
        let wait = wait_us(counts.byte_ps - before.byte_ps, counts.bytes - before.bytes);
        let others = ways.iter().filter(|way| way.contains(link)).count().saturating_sub(1);
        let name = places::name_of(seen.fabric, *link);
        Some(json!({ "link": name, "wait_us": wait, "other_flows": others }))
    });
    Some(told.collect())
}
