//! What a run notes on the way, so that it can be explained: what each flow was doing whenever the queues were looked at.

use serde_json::{json, Value};
use srdma_fabric::{Fabric, FlowId, Nothing, Time};

/// Moments kept of each flow; when there are more, every other is forgotten and half as many are noted from then on.
const MOMENTS_MAX: usize = 32;
/// Events that must have happened, for each flow, since flows were last looked at: looking takes little of the time.
const EVENTS_PER_FLOW: u64 = 4;

/// What a flow is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing to send: it waits for messages of others, or for its time.
    Waiting = 0,
    /// It has packets that were never sent, and its window has room: its host's link is the limit.
    Sending = 1,
    /// It has packets to send, but the window is full.
    WindowFull = 2,
    /// Everything was sent once; something has not been received, or not been told to be.
    Draining = 3,
}

/// Names of [`Doing`] in records, in its order.
pub(crate) const DOINGS: [&str; 4] = ["waiting", "sending", "window_full", "draining"];

/// What a run knows of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub id: FlowId,
    /// Data packets that its messages posted so far need.
    pub packets: u64,
    /// Messages posted and not received.
    pub open: u32,
    /// All its messages were received.
    pub is_done: bool,
}

/// A flow at one moment. Counts are since the begin.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Time,
    doing: Doing,
    packets: u64,
    marked: u64,
    retransmitted: u64,
    timeouts: u32,
    dead_paths: u16,
    window_bytes: u64,
    rtt_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct History {
    moments: Vec<Moment>,
    /// Looks between two moments that are kept, and those since the last.
    every: u32,
    since: u32,
    /// Looks by what it was doing.
    looks: [u64; 4],
}

impl History {
    fn note(&mut self, moment: Moment) {
        self.looks[moment.doing as usize] += 1;
        self.since += 1;
        if self.since < self.every {
            return;
        }
        self.since = 0;
        if self.moments.len() == MOMENTS_MAX {
            let mut index = 0;
            self.moments.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every = self.every.max(1) * 2;
        }
        self.moments.push(moment);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    histories: Vec<History>,
    due_at_event: u64,
    looks: [u64; 4],
}

impl Notes {
    /// Looks at all `flows`, unless it did a moment ago. How many are doing what.
    pub fn look(
        &mut self,
        fabric: &Fabric<Nothing>,
        begin: Time,
        flows: impl ExactSizeIterator<Item = Posted>,
    ) -> Option<[u64; 4]> {
        if fabric.events() < self.due_at_event {
            return None;
        }
        self.due_at_event = fabric.events() + EVENTS_PER_FLOW * flows.len() as u64;
        let mut doings = [0; 4];
        let at = fabric.now().since(begin);
        for posted in flows {
            if posted.is_done {
                continue;
            }
            let Some(moment) = moment(fabric, at, posted) else { continue };
            doings[moment.doing as usize] += 1;
            let index = posted.id.0 as usize;
            if self.histories.len() <= index {
                self.histories.resize_with(index + 1, History::default);
            }
            self.histories[index].note(moment);
        }
        for (sum, count) in self.looks.iter_mut().zip(doings) {
            *sum += count;
        }
        Some(doings)
    }

    /// Shares of what flows that were not through were doing, over all looks.
    pub fn shares(&self) -> Value {
        shares(&self.looks)
    }

    /// The same of one flow, and its moments.
    pub fn story(&self, flow: FlowId) -> Value {
        let none = History::default();
        let history = self.histories.get(flow.0 as usize).unwrap_or(&none);
        let moments: Vec<Value> = history.moments.iter().map(Moment::json).collect();
        json!({ "doing": shares(&history.looks), "timeline": moments })
    }
}

impl Moment {
    fn json(&self) -> Value {
        json!({
            "at_us": self.at.0 as f64 / 1e6, "doing": DOINGS[self.doing as usize], "packets": self.packets,
            "marked": self.marked, "retransmitted": self.retransmitted, "timeouts": self.timeouts,
            "dead_paths": self.dead_paths, "window_bytes": self.window_bytes, "rtt_us": self.rtt_ns as f64 / 1e3,
        })
    }
}

fn moment(fabric: &Fabric<Nothing>, at: Time, posted: Posted) -> Option<Moment> {
    let (sender, _) = fabric.counts(posted.id)?;
    let state = fabric.snapshot(posted.id)?;
    let retransmitted: u64 = sender.retransmitted.iter().sum();
    let packet_bytes = sender.bytes / sender.packets.max(1);
    let doing = if posted.open == 0 {
        Doing::Waiting
    } else if sender.packets - retransmitted >= posted.packets {
        Doing::Draining
    } else if state.inflight_bytes + packet_bytes > state.window_bytes {
        Doing::WindowFull
    } else {
        Doing::Sending
    };
    Some(Moment {
        at,
        doing,
        packets: sender.packets,
        marked: sender.marked,
        retransmitted,
        timeouts: sender.timeouts as u32,
        dead_paths: state.paths_suspected,
        window_bytes: state.window_bytes,
        rtt_ns: state.rtt.0,
    })
}

fn shares(looks: &[u64; 4]) -> Value {
    let all = looks.iter().sum::<u64>().max(1) as f64;
    let pairs =
        DOINGS.iter().zip(looks).map(|(name, count)| ((*name).to_owned(), json!(*count as f64 / all)));
    Value::Object(pairs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_stays_small_and_keeps_both_ends() {
        let mut history = History::default();
        for at in 0..10_000 {
            history.note(Moment {
                at: Time(at),
                doing: Doing::Sending,
                packets: 0,
                marked: 0,
                retransmitted: 0,
                timeouts: 0,
                dead_paths: 0,
                window_bytes: 0,
                rtt_ns: 0,
            });
        }
        let at: Vec<u64> = history.moments.iter().map(|moment| moment.at.0).collect();
        assert!(at.len() <= MOMENTS_MAX && at.len() > MOMENTS_MAX / 2, "{at:?}");
        assert!(
            at[0] == 0 && at[at.len() - 1] > 9_000 && at.windows(2).all(|pair| pair[0] < pair[1]),
            "{at:?}"
        );
        assert_eq!(history.looks, [0, 10_000, 0, 0]);
    }
}
