//! Connection matrices: who sends how much to whom, when, or after what.
//!
//! ```text
//! Nodes 16
//! Connections 2
//! Triggers 1
//! 2->11 id 1 start 0 size 2000000 send_done_trigger 1
//! 2->4 id 2 trigger 1 size 2000000
//! trigger id 1 oneshot
//! ```
//!
//! `start` is in microseconds. Connections between the same two hosts become messages of one connection.

use std::collections::BTreeMap;

use srdma_workload::{After, Plan};

use super::{lines, number};
use crate::reader::{FileError, Source};

/// A connection as its line says it.
#[derive(Clone, Copy, Default)]
struct Line {
    at: usize,
    from: u32,
    to: u32,
    size: Option<u32>,
    start_us: u64,
    trigger: Option<u64>,
}

/// A trigger: what fires it, and how often that must happen.
#[derive(Default)]
struct Trigger {
    at: usize,
    fired_by: Vec<After>,
    count: Option<u64>,
}

/// Reads the connection matrix `text`; `file` is what errors call it.
pub fn read_matrix(file: &str, text: &str) -> Result<Plan, FileError> {
    let source = Source { file, text };
    let (mut nodes, mut said) = (None, [None; 2]);
    let mut connections = Vec::new();
    let mut triggers: BTreeMap<u64, Trigger> = BTreeMap::new();
    for (at, words) in lines(source) {
        match words[0].to_ascii_lowercase().as_str() {
            "nodes" => nodes = Some(number(source, at, words[0], words.get(1))?),
            "connections" => said[0] = Some((at, number(source, at, words[0], words.get(1))?)),
            "triggers" => said[1] = Some((at, number(source, at, words[0], words.get(1))?)),
            "trigger" => read_trigger(source, at, &words, &mut triggers)?,
            word if word.contains("->") => {
                let index = connections.len() as u32;
                connections.push(read_connection(source, at, &words, index, &mut triggers)?);
            }
            _ => return Err(source.error(at, format!("\"{}\" is not known here", words[0]))),
        }
    }
    let declared = triggers.values().filter(|trigger| trigger.count.is_some()).count();
    for (said, found, what) in [(said[0], connections.len(), "connections"), (said[1], declared, "triggers")]
    {
        if let Some((at, said)) = said.filter(|&(_, said)| said != found as u64) {
            return Err(source.error(at, format!("{said} {what} are announced, but {found} follow")));
        }
    }
    let nodes = nodes.ok_or_else(|| source.error(0, "Nodes is missing"))?;
    check_triggers(source, &triggers)?;
    let mut plan = Plan::default();
    for line in &connections {
        if u64::from(line.from.max(line.to)) >= nodes {
            return Err(source.error(line.at, format!("there are only {nodes} nodes, counted from 0")));
        }
        let after = match line.trigger.map(|id| (id, triggers.get(&id))) {
            None => &[][..],
            Some((_, Some(trigger))) if trigger.count.is_some() => &trigger.fired_by[..],
            Some((id, _)) => return Err(source.error(line.at, format!("trigger {id} is described nowhere"))),
        };
        let Some(size) = line.size else { return Err(source.error(line.at, "size is missing")) };
        plan.push_at(line.start_us.saturating_mul(1_000_000), line.from, line.to, size, after);
    }
    plan.validate().map_err(|error| source.error(0, error.to_string()))?;
    Ok(plan)
}

fn read_trigger(
    source: Source<'_>,
    at: usize,
    words: &[&str],
    triggers: &mut BTreeMap<u64, Trigger>,
) -> Result<(), FileError> {
    let ("id", kind) = (words.get(1).copied().unwrap_or(""), words.get(3).copied().unwrap_or("")) else {
        return Err(source.error(at, "a trigger is described as: trigger id N oneshot, or barrier COUNT"));
    };
    let id = number(source, at, "trigger id", words.get(2))?;
    let trigger = triggers.entry(id).or_default();
    if trigger.count.is_some() {
        return Err(source.error(at, format!("trigger {id} is described twice")));
    }
    trigger.at = at;
    trigger.count = Some(match kind {
        "oneshot" => 1,
        "barrier" => number(source, at, "barrier", words.get(4))?,
        other => {
            let problem =
                format!("trigger {id}: \"{other}\" is not known here; known are oneshot, barrier COUNT");
            return Err(source.error(at, problem));
        }
    });
    Ok(())
}

fn read_connection(
    source: Source<'_>,
    at: usize,
    words: &[&str],
    index: u32,
    triggers: &mut BTreeMap<u64, Trigger>,
) -> Result<Line, FileError> {
    let ends = words[0].split_once("->");
    let ends = ends.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let Some((from, to)) = ends else {
        return Err(source.error(at, format!("\"{}\" names no two nodes, as 3->7 does", words[0])));
    };
    let mut line = Line { at, from, to, ..Line::default() };
    for pair in words[1..].chunks(2) {
        let value = number(source, at, pair[0], pair.get(1))?;
        match pair[0] {
            // Identities are told in logs of htsim only; priorities are those of its queues.
            "id" | "prio" => {}
            "start" => line.start_us = value,
            "size" => line.size = Some(size(source, at, value)?),
            "trigger" => line.trigger = Some(value),
            "send_done_trigger" => triggers.entry(value).or_default().fired_by.push(After::Sent(index)),
            "recv_done_trigger" => triggers.entry(value).or_default().fired_by.push(After::Received(index)),
            other => {
                let known = "id, start, size, trigger, send_done_trigger, recv_done_trigger, prio";
                return Err(source.error(at, format!("\"{other}\" is not known here; known are {known}")));
            }
        }
    }
    Ok(line)
}

fn size(source: Source<'_>, at: usize, bytes: u64) -> Result<u32, FileError> {
    match u32::try_from(bytes).ok().filter(|bytes| (1..=1 << 30).contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => Err(source.error(at, format!("size: must be 1 byte to 1 GiB, not {bytes}"))),
    }
}

/// A trigger that several connections may fire, or none, would not say when.
fn check_triggers(source: Source<'_>, triggers: &BTreeMap<u64, Trigger>) -> Result<(), FileError> {
    for (id, trigger) in triggers {
        let Some(count) = trigger.count else { continue };
        let fired_by = trigger.fired_by.len() as u64;
        if fired_by != count {
            let problem = format!("trigger {id} waits for {count}, but {fired_by} connections fire it");
            return Err(source.error(trigger.at, problem));
        }
    }
    Ok(())
}
