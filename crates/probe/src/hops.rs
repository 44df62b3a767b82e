//! Probes of limited life from many source ports: who is at each hop.

use crate::paths::{hop, Trace};
use crate::prober::{collect, Answer, Prober, SMALL_BYTES};
use crate::socket::Icmp;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Between two probes: no faster than the 1,000 ICMP errors a second that a Linux router sends at all.
const PACE: Duration = Duration::from_millis(1);
/// Probes sent at once, since a millisecond is too short to sleep well.
const BATCH: usize = 8;
/// Times that a source port is tried at one hop.
const ROUNDS: usize = 3;
/// Hops in a row without any answer after which nothing more is expected.
const SILENT_HOPS_MAX: u8 = 4;

/// Bounds of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Farthest hop.
    pub hops_max: u8,
    /// How long an answer may take.
    pub patience: Duration,
    /// How long it all may take.
    pub budget: Duration,
}

/// Asks each hop in turn, from every prober's source port, until all of them have reached the peer.
pub fn sweep(probers: &mut [Prober], peer: IpAddr, bounds: Bounds) -> Vec<Trace> {
    let end = Instant::now() + bounds.budget;
    let port = |prober: &Prober| prober.local().map_or(0, |local| local.port());
    let mut traces: Vec<Trace> =
        probers.iter().map(|p| Trace { source_port: port(p), ..Trace::default() }).collect();
    let mut silent_hops = 0;
    for ttl in 1..=bounds.hops_max {
        for round in 0..ROUNDS {
            let missing = missing(&traces, ttl);
            if missing.is_empty() || Instant::now() >= end {
                break;
            }
            ask(probers, &missing, ttl, peer, &mut traces);
            settle(probers, ttl, peer, &mut traces, bounds.patience);
            let state = hop(&traces, usize::from(ttl - 1));
            let unheard = state.answered == 0 && round > 0;
            if state.is_settled() || unheard {
                break;
            }
        }
        if traces.iter().all(|trace| trace.reached.is_some()) || Instant::now() >= end {
            break;
        }
        let router = traces.iter().any(|trace| at(trace, ttl).is_some());
        let heard = router || traces.iter().any(|trace| trace.reached == Some(ttl));
        silent_hops = if heard { 0 } else { silent_hops + 1 };
        // A peer that refuses does so ever more slowly; whoever is silent from here on is most likely the peer.
        let refused = traces.iter().any(|trace| trace.refused);
        if silent_hops == SILENT_HOPS_MAX || (refused && !router) {
            break;
        }
    }
    traces
}

fn at(trace: &Trace, ttl: u8) -> Option<IpAddr> {
    trace.routers.get(usize::from(ttl - 1)).copied().flatten()
}

/// Probers that do not know who is at this hop.
fn missing(traces: &[Trace], ttl: u8) -> Vec<usize> {
    let lacks = |trace: &Trace| trace.reached.is_none() && at(trace, ttl).is_none();
    (0..traces.len()).filter(|index| lacks(&traces[*index])).collect()
}

/// Sends one probe from each of `missing`, at the pace, reading answers between.
fn ask(probers: &mut [Prober], missing: &[usize], ttl: u8, peer: IpAddr, traces: &mut [Trace]) {
    for batch in missing.chunks(BATCH) {
        for index in batch {
            // What the kernel refuses to send is a probe without an answer.
            let _ = probers[*index].send(ttl, SMALL_BYTES);
        }
        let span = PACE * batch.len() as u32;
        collect(probers, span, |index, answer| note(&mut traces[index], peer, answer));
    }
}

/// Waits for late answers, as long as there are any to come.
fn settle(probers: &mut [Prober], ttl: u8, peer: IpAddr, traces: &mut [Trace], patience: Duration) {
    let end = Instant::now() + patience;
    while Instant::now() < end && !missing(traces, ttl).is_empty() {
        collect(probers, end.saturating_duration_since(Instant::now()), |index, answer| {
            note(&mut traces[index], peer, answer);
            true
        });
    }
}

/// Enters an answer in the trace of its source port. Never enough: the caller decides by time.
fn note(trace: &mut Trace, peer: IpAddr, answer: Answer) -> bool {
    let arrived = |trace: &mut Trace, ttl: u8, refused: bool| {
        trace.refused = refused && (trace.refused || trace.reached.is_none());
        trace.reached = Some(trace.reached.map_or(ttl, |known| known.min(ttl)));
    };
    match answer {
        Answer::Reply { sent, .. } => arrived(trace, sent.ttl, false),
        Answer::Refused { sent, refusal } => match (refusal.icmp, refusal.by) {
            (Icmp::TimeExceeded, Some(router)) => {
                let index = usize::from(sent.ttl.saturating_sub(1));
                if trace.routers.len() <= index {
                    trace.routers.resize(index + 1, None);
                }
                trace.routers[index] = Some(router);
            }
            (Icmp::PortUnreachable, Some(by)) if by == peer => arrived(trace, sent.ttl, true),
            _ => {}
        },
    }
    false
}
