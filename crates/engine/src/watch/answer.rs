//! What a watcher asks and what it is told: one line of words, then one JSON object a line.
//!
//! The request is any of `paths` (of every queue pair), `paths=QPN` (of that one), `finished` (queue pairs that are
//! gone, too). The answer is the device, then every queue pair, then `{"end":true}`. The objects are those of
//! `--stats`; a queue pair also has its `state` and what is `now`.

use std::vec::IntoIter;

use serde_json::{json, Value};
use srdma_abi::QpState;
use srdma_seams::Qpn;
use srdma_transport::Snapshot;

use super::About;
use crate::clock;
use crate::device::Shared;
use crate::stats::{self, Head};

/// Longest request, its end included.
pub(super) const REQUEST_BYTES_MAX: usize = 128;
/// Text made between two turns of work, at least; a queue pair more than that at most.
const STEP_BYTES: usize = 16 << 10;
/// Queue pairs copied between two turns of work, at most.
const STEP_QPS: usize = 16;

/// Whose paths are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paths {
    Nobodys,
    Everybodys,
    Of(u32),
}

/// What a watcher wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    paths: Paths,
    finished: bool,
}

impl Request {
    /// Words that are not understood ask for nothing: a later release may know more.
    pub(super) fn parse(line: &[u8]) -> Request {
        let mut request = Request { paths: Paths::Nobodys, finished: false };
        for word in String::from_utf8_lossy(line).split_whitespace() {
            match (word, word.strip_prefix("paths=").and_then(|qpn| qpn.parse().ok())) {
                (_, Some(qpn)) => request.paths = Paths::Of(qpn),
                ("paths", _) => request.paths = Paths::Everybodys,
                ("finished", _) => request.finished = true,
                _ => {}
            }
        }
        request
    }

    fn wants_paths(&self, qpn: u32) -> bool {
        match self.paths {
            Paths::Nobodys => false,
            Paths::Everybodys => true,
            Paths::Of(wanted) => wanted == qpn,
        }
    }
}

/// An answer under way.
pub(super) struct Answer {
    request: Request,
    finished: std::ops::Range<usize>,
    live: IntoIter<u32>,
    is_over: bool,
}

impl Answer {
    /// Writes the first line to `out`.
    pub(super) fn begin(request: Request, shared: &Shared, about: &About, out: &mut Vec<u8>) -> Answer {
        let worker = shared.lock();
        let head = Head::of(&worker);
        let live = worker.counters.live_numbers();
        let finished = if request.finished { worker.counters.finished_count() } else { 0 };
        drop(worker);
        let mut first = head.value(about.address, &about.options);
        first["time_ns"] = json!(clock::now().0);
        line(out, &first);
        Answer { request, finished: 0..finished, live: live.into_iter(), is_over: false }
    }

    /// Whether everything was written.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Writes some more lines to `out`.
    pub(super) fn more(&mut self, shared: &Shared, out: &mut Vec<u8>) {
        for _ in 0..STEP_QPS {
            if out.len() >= STEP_BYTES {
                return;
            }
            if let Some(index) = self.finished.next() {
                let copy = shared.lock().counters.finished(index).map(|(qpn, qp)| (qpn, qp.clone()));
                if let Some((qpn, mut qp)) = copy {
                    self.thin(qpn, &mut qp);
                    line(out, &stats::queue_pair(qpn, &qp, false));
                }
            } else if let Some(qpn) = self.live.next() {
                let worker = shared.lock();
                let copy = worker.counters.live(Qpn(qpn)).cloned();
                let state = worker.nic.watch_qp(Qpn(qpn));
                drop(worker);
                // Gone since it was listed.
                let Some((mut qp, (state, connection))) = copy.zip(state) else { continue };
                self.thin(qpn, &mut qp);
                let mut value = stats::queue_pair(qpn, &qp, true);
                value["state"] = state_name(state).into();
                value["now"] = connection.map_or(Value::Null, |connection| now(&connection));
                line(out, &value);
            } else {
                line(out, &json!({ "end": true }));
                self.is_over = true;
                return;
            }
        }
    }

    fn thin(&self, qpn: u32, qp: &mut crate::counters::QpCounters) {
        if !self.request.wants_paths(qpn) {
            qp.paths.clear();
        }
    }
}

fn line(out: &mut Vec<u8>, value: &Value) {
    // Writing to memory cannot fail, and the keys are strings.
    let _ = serde_json::to_writer(&mut *out, value);
    out.push(b'\n');
}

fn state_name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "reset",
        QpState::Init => "init",
        QpState::Rtr => "rtr",
        QpState::Rts => "rts",
        QpState::Sqd => "sqd",
        QpState::Sqe => "sqe",
        QpState::Err => "err",
    }
}

/// What only this moment knows.
fn now(connection: &Snapshot) -> Value {
    json!({
        "inflight_bytes": connection.inflight_bytes,
        "window_bytes": connection.window_bytes,
        "peer_free_bytes": connection.peer_free_bytes,
        "rtt_ns": connection.rtt.0,
        "rtt_min_ns": connection.rtt_min.0,
        "queueing_delay_ns": connection.queueing_delay.0,
        "rto_ns": connection.rto.0,
        "paths_suspected": connection.paths_suspected,
        "messages_waiting": connection.messages_waiting,
        "out_of_order_packets": connection.ahead_packets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_words_and_unknown_ones_are_passed_over() {
        for (line, paths, finished) in [
            ("", Paths::Nobodys, false),
            ("paths finished", Paths::Everybodys, true),
            ("paths=65537", Paths::Of(65537), false),
            ("paths=x later=1 finished", Paths::Nobodys, true),
            ("\u{fffd}", Paths::Nobodys, false),
        ] {
            assert_eq!(Request::parse(line.as_bytes()), Request { paths, finished }, "{line}");
        }
        assert_eq!(Request::parse(&[0xff, b' ', 0]), Request { paths: Paths::Nobodys, finished: false });
    }
}
