//! Counts what the sans-IO rooms report, per queue pair and per path.
//!
//! The observer of the data path: plain additions on memory that the worker's lock already owns.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;

use srdma_abi::cause::INJECTED;
use srdma_seams::event::{DropCause, RetransmitCause};
use srdma_seams::{Event, Now, Observer, Qpn};

/// Kinds of [`DropCause`].
pub const DROP_CAUSES: usize = 15;
/// Kinds of [`RetransmitCause`].
pub const RETRANSMIT_CAUSES: usize = 7;
/// Queue pairs that are gone and whose counters are kept one by one, the last ones; of those before, only the sum is. With
/// 128 paths in use the counters of one take 9 KiB.
const FINISHED_MAX: usize = 256;

/// Spreads our own queue pairs' numbers, of which no peer chooses any: an event is counted for every packet.
#[derive(Clone, Debug, Default)]
struct QpnHasher(u64);

impl Hasher for QpnHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        // Fibonacci hashing (Knuth, TAOCP 3, 6.4): the map takes its position from the lower bits and a tag
        // from the upper ones.
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// What happened on one path of one queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathCounters {
    /// Units sent.
    pub units: u64,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent, headers included.
    pub bytes: u64,
    /// Packets reported as received.
    pub acked: u64,
    /// Packets held lost.
    pub lost: u64,
    /// Packets reported with a congestion mark.
    pub ce: u64,
    /// Shortest round trip seen; 0 if none.
    pub rtt_min_ns: u64,
    /// Packets received that had been sent on this path by the peer.
    pub received: u64,
}

/// What happened on one queue pair.
#[derive(Clone, Debug, Default)]
pub struct QpCounters {
    /// Peer's address and slot port, once known.
    pub peer: Option<SocketAddr>,
    /// Peer's queue pair.
    pub peer_qpn: u32,
    /// Units sent.
    pub units_sent: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes sent, headers included.
    pub bytes_sent: u64,
    /// Packets sent again, by cause.
    pub retransmitted: [u64; RETRANSMIT_CAUSES],
    /// Packets held lost, by cause.
    pub lost: [u64; RETRANSMIT_CAUSES],
    /// Losses that turned out to be none.
    pub undone: u64,
    /// Tail probes.
    pub tail_probes: u64,
    /// Retransmission time-outs.
    pub rtos: u64,
    /// Packets accepted.
    pub packets_received: u64,
    /// Payload bytes accepted.
    pub bytes_received: u64,
    /// Packets not used, by cause.
    pub dropped: [u64; DROP_CAUSES],
    /// Last packets of WRITEs that had to wait.
    pub held: u64,
    /// Farthest that a packet arrived ahead of the first one missing, in packets.
    pub ahead_max_packets: u32,
    /// ACKs sent.
    pub acks_sent: u64,
    /// RNR NAKs sent and received.
    pub rnr_sent: u64,
    /// See `rnr_sent`.
    pub rnr_received: u64,
    /// Fatal NAKs sent and received.
    pub naks_sent: u64,
    /// See `naks_sent`.
    pub naks_received: u64,
    /// Congestion marks reported by the peer.
    pub ce_marked: u64,
    /// Shortest, smoothed (1/8) and longest round trip; 0 if none.
    pub rtt_min_ns: u64,
    /// See `rtt_min_ns`.
    pub rtt_smoothed_ns: u64,
    /// See `rtt_min_ns`.
    pub rtt_max_ns: u64,
    /// Congestion window now, and at most so far.
    pub window_bytes: u64,
    /// See `window_bytes`.
    pub window_max_bytes: u64,
    /// UDP payload found to pass; 0 before the handshake.
    pub mtu_bytes: u16,
    /// Times that the path was found to pass only smaller packets than before.
    pub narrowed: u64,
    /// Times that it was found to pass larger packets again.
    pub widened: u64,
    /// Paths suspected dead, and restored.
    pub paths_suspected: u64,
    /// See `paths_suspected`.
    pub paths_restored: u64,
    /// Code of the error table, if the queue pair failed.
    pub failure: u16,
    /// Per path, as far as one was used.
    pub paths: Vec<PathCounters>,
}

impl QpCounters {
    fn path(&mut self, path: u16) -> &mut PathCounters {
        let index = usize::from(path) & 0xff;
        if self.paths.len() <= index {
            self.paths.resize(index + 1, PathCounters::default());
        }
        &mut self.paths[index]
    }

    /// Adds what another has counted: sums, and the greatest and least of what has no sum.
    fn add(&mut self, other: &QpCounters) {
        let sum = |to: &mut u64, from: u64| *to += from;
        sum(&mut self.units_sent, other.units_sent);
        sum(&mut self.packets_sent, other.packets_sent);
        sum(&mut self.bytes_sent, other.bytes_sent);
        sum(&mut self.undone, other.undone);
        sum(&mut self.tail_probes, other.tail_probes);
        sum(&mut self.rtos, other.rtos);
        sum(&mut self.packets_received, other.packets_received);
        sum(&mut self.bytes_received, other.bytes_received);
        sum(&mut self.held, other.held);
        sum(&mut self.acks_sent, other.acks_sent);
        sum(&mut self.rnr_sent, other.rnr_sent);
        sum(&mut self.rnr_received, other.rnr_received);
        sum(&mut self.naks_sent, other.naks_sent);
        sum(&mut self.naks_received, other.naks_received);
        sum(&mut self.ce_marked, other.ce_marked);
        sum(&mut self.paths_suspected, other.paths_suspected);
        sum(&mut self.paths_restored, other.paths_restored);
        let each = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        each(&mut self.retransmitted, &other.retransmitted);
        each(&mut self.lost, &other.lost);
        each(&mut self.dropped, &other.dropped);
        self.ahead_max_packets = self.ahead_max_packets.max(other.ahead_max_packets);
        self.rtt_min_ns = least(self.rtt_min_ns, other.rtt_min_ns);
        self.rtt_max_ns = self.rtt_max_ns.max(other.rtt_max_ns);
        self.window_max_bytes = self.window_max_bytes.max(other.window_max_bytes);
        for (index, from) in other.paths.iter().enumerate() {
            let to = self.path(index as u16);
            sum(&mut to.units, from.units);
            sum(&mut to.packets, from.packets);
            sum(&mut to.bytes, from.bytes);
            sum(&mut to.acked, from.acked);
            sum(&mut to.lost, from.lost);
            sum(&mut to.ce, from.ce);
            sum(&mut to.received, from.received);
            to.rtt_min_ns = least(to.rtt_min_ns, from.rtt_min_ns);
        }
    }

    fn count(&mut self, event: Event) {
        match event {
            Event::UnitSent { path, packets, bytes, retransmission, .. } => {
                self.units_sent += 1;
                self.packets_sent += u64::from(packets);
                self.bytes_sent += u64::from(bytes);
                if let Some(cause) = retransmission {
                    self.retransmitted[cause as usize] += u64::from(packets);
                }
                let p = self.path(path.0);
                p.units += 1;
                p.packets += u64::from(packets);
                p.bytes += u64::from(bytes);
            }
            Event::UnitAcked { path, packets, ce, rtt, .. } => self.acked(path.0, packets, ce, rtt.0),
            Event::UnitLost { path, packets, cause, .. } => {
                self.lost[cause as usize] += u64::from(packets);
                self.path(path.0).lost += u64::from(packets);
            }
            Event::LossUndone { .. } => self.undone += 1,
            Event::TailProbe { .. } => self.tail_probes += 1,
            Event::Rto { .. } => self.rtos += 1,
            Event::PathSuspected { .. } => self.paths_suspected += 1,
            Event::PathRestored { .. } => self.paths_restored += 1,
            Event::Window { bytes, .. } => {
                self.window_bytes = bytes;
                self.window_max_bytes = self.window_max_bytes.max(bytes);
            }
            Event::Received { path, packets, bytes, ahead, .. } => {
                self.packets_received += u64::from(packets);
                self.bytes_received += u64::from(bytes);
                self.ahead_max_packets = self.ahead_max_packets.max(ahead);
                self.path(path.0).received += u64::from(packets);
            }
            Event::Dropped { cause, .. } => self.dropped[cause as usize] += 1,
            Event::Held { .. } => self.held += 1,
            Event::AckSent { .. } => self.acks_sent += 1,
            Event::RnrSent { .. } => self.rnr_sent += 1,
            Event::RnrReceived { .. } => self.rnr_received += 1,
            Event::NakSent { .. } => self.naks_sent += 1,
            Event::NakReceived { .. } => self.naks_received += 1,
            Event::Connected { mtu_bytes, .. } => self.mtu_bytes = mtu_bytes,
            Event::PathNarrowed { mtu_bytes, .. } => {
                self.mtu_bytes = mtu_bytes;
                self.narrowed += 1;
            }
            Event::PathWidened { mtu_bytes, .. } => {
                self.mtu_bytes = mtu_bytes;
                self.widened += 1;
            }
            Event::QpFailed { cause, .. } => self.failure = cause,
            _ => {}
        }
    }

    fn acked(&mut self, path: u16, packets: u8, ce: u8, rtt_ns: u64) {
        self.ce_marked += u64::from(ce);
        if rtt_ns > 0 {
            self.rtt_min_ns = if self.rtt_min_ns == 0 { rtt_ns } else { self.rtt_min_ns.min(rtt_ns) };
            self.rtt_max_ns = self.rtt_max_ns.max(rtt_ns);
            self.rtt_smoothed_ns = if self.rtt_smoothed_ns == 0 {
                rtt_ns
            } else {
                self.rtt_smoothed_ns - self.rtt_smoothed_ns / 8 + rtt_ns / 8
            };
        }
        let p = self.path(path);
        p.acked += u64::from(packets);
        p.ce += u64::from(ce);
        if rtt_ns > 0 && (p.rtt_min_ns == 0 || rtt_ns < p.rtt_min_ns) {
            p.rtt_min_ns = rtt_ns;
        }
    }
}

/// The lesser of two times of which 0 means none.
fn least(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, other) | (other, 0) => other,
        _ => a.min(b),
    }
}

/// All counters of a device.
#[derive(Debug, Default)]
pub struct Counters {
    live: HashMap<u32, Box<QpCounters>, BuildHasherDefault<QpnHasher>>,
    finished: VecDeque<(u32, Box<QpCounters>)>,
    /// Queue pairs that are gone and no longer listed one by one.
    pub finished_unlisted: u64,
    /// The sum of their counters.
    pub unlisted: QpCounters,
    /// Queue pairs that ever entered the error state.
    pub failures: u64,
    /// Those of them that a plan of faults wanted.
    pub injected_failures: u64,
    /// Those of them that nobody was told of yet, with the code of their cause.
    pub unannounced: Vec<(Qpn, u16)>,
    /// Queue pairs whose path became narrower, nobody told yet, with the UDP payload that still passes.
    pub narrowed: Vec<(Qpn, u16)>,
    /// Packets that belong to no queue pair, by cause.
    pub dropped: [u64; DROP_CAUSES],
}

impl Counters {
    /// The counters of a live queue pair, made if new.
    pub fn qp(&mut self, qpn: Qpn) -> &mut QpCounters {
        self.live.entry(qpn.0).or_default()
    }

    /// The counters of a queue pair, if it is live.
    pub fn live(&self, qpn: Qpn) -> Option<&QpCounters> {
        self.live.get(&qpn.0).map(|counters| &**counters)
    }

    /// The queue pair is gone; its counters are kept for the report.
    pub fn retire(&mut self, qpn: Qpn) {
        if let Some(counters) = self.live.remove(&qpn.0) {
            self.finished.push_back((qpn.0, counters));
            if self.finished.len() > FINISHED_MAX {
                if let Some((_, oldest)) = self.finished.pop_front() {
                    self.finished_unlisted += 1;
                    self.unlisted.add(&oldest);
                }
            }
        }
    }

    /// Every queue pair, finished ones first, with whether it is live.
    pub fn all(&self) -> impl Iterator<Item = (u32, &QpCounters, bool)> {
        let finished = self.finished.iter().map(|(qpn, c)| (*qpn, &**c, false));
        finished.chain(self.live.iter().map(|(qpn, c)| (*qpn, &**c, true)))
    }

    /// Numbers of the live ones.
    pub fn live_numbers(&self) -> Vec<u32> {
        self.live.keys().copied().collect()
    }

    /// Queue pairs that are gone and listed.
    pub fn finished_count(&self) -> usize {
        self.finished.len()
    }

    /// One of them, in the order in which they ended.
    pub fn finished(&self, index: usize) -> Option<(u32, &QpCounters)> {
        self.finished.get(index).map(|(qpn, counters)| (*qpn, &**counters))
    }

    /// Counts a packet that was refused before it reached a queue pair.
    pub fn drop_foreign(&mut self, cause: DropCause) {
        self.dropped[cause as usize] += 1;
    }
}

fn subject(event: &Event) -> Option<Qpn> {
    match *event {
        Event::UnitSent { qpn, .. }
        | Event::UnitAcked { qpn, .. }
        | Event::UnitLost { qpn, .. }
        | Event::LossUndone { qpn, .. }
        | Event::TailProbe { qpn }
        | Event::Rto { qpn, .. }
        | Event::PathSuspected { qpn, .. }
        | Event::PathRestored { qpn, .. }
        | Event::Window { qpn, .. }
        | Event::Received { qpn, .. }
        | Event::Held { qpn }
        | Event::AckSent { qpn, .. }
        | Event::RnrSent { qpn }
        | Event::RnrReceived { qpn }
        | Event::NakSent { qpn, .. }
        | Event::NakReceived { qpn, .. }
        | Event::HelloSent { qpn }
        | Event::Connected { qpn, .. }
        | Event::PathNarrowed { qpn, .. }
        | Event::PathWidened { qpn, .. }
        | Event::QpFailed { qpn, .. } => Some(qpn),
        Event::Dropped { qpn, .. } => qpn,
        _ => None,
    }
}

impl Observer for Counters {
    fn event(&mut self, _now: Now, event: Event) {
        if let Event::QpFailed { qpn, cause } = event {
            self.failures += 1;
            self.injected_failures += u64::from(cause & INJECTED != 0);
            self.unannounced.push((qpn, cause));
        }
        if let Event::PathNarrowed { qpn, mtu_bytes } = event {
            self.narrowed.push((qpn, mtu_bytes));
        }
        match subject(&event).and_then(|qpn| self.live.get_mut(&qpn.0)) {
            Some(counters) => counters.count(event),
            None => {
                if let Event::Dropped { cause, .. } = event {
                    self.dropped[cause as usize] += 1;
                }
            }
        }
    }
}

/// Name of a [`DropCause`] in reports.
pub fn drop_name(index: usize) -> &'static str {
    const NAMES: [&str; DROP_CAUSES] = [
        "malformed",
        "header_check",
        "payload_check",
        "unknown_qp",
        "qp_state",
        "foreign_connection",
        "foreign_address",
        "duplicate",
        "stale",
        "beyond_window",
        "hold_full",
        "tag",
        "bogus_ack",
        "inconsistent",
        "unsolicited",
    ];
    const _: () = assert!(DropCause::Unsolicited as usize + 1 == DROP_CAUSES);
    NAMES[index]
}

/// Name of a [`RetransmitCause`] in reports.
pub fn retransmit_name(index: usize) -> &'static str {
    const NAMES: [&str; RETRANSMIT_CAUSES] =
        ["path_order", "age", "tail_probe", "rto", "rnr", "local", "path_probe"];
    const _: () = assert!(RetransmitCause::PathProbe as usize + 1 == RETRANSMIT_CAUSES);
    NAMES[index]
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_seams::{Duration, PathId};

    #[test]
    fn events_land_on_their_queue_pair_and_path_and_outlive_it() {
        let mut counters = Counters::default();
        let qpn = Qpn(17);
        counters.qp(qpn);
        let sent = Event::UnitSent {
            qpn,
            path: PathId(5),
            packets: 4,
            bytes: 400,
            retransmission: Some(RetransmitCause::Age),
        };
        counters.event(Now(1), sent);
        let acked = Event::UnitAcked { qpn, path: PathId(5), packets: 4, ce: 1, rtt: Duration(900) };
        counters.event(Now(2), acked);
        counters.event(Now(3), Event::Dropped { qpn: None, cause: DropCause::UnknownQp });
        counters.retire(qpn);
        let (number, c, live) = counters.all().next().expect("one queue pair");
        assert_eq!((number, live, c.packets_sent, c.retransmitted[1]), (17, false, 4, 4));
        assert_eq!((c.paths[5].units, c.paths[5].acked, c.paths[5].ce, c.rtt_min_ns), (1, 4, 1, 900));
        assert_eq!(counters.dropped[DropCause::UnknownQp as usize], 1);
    }

    #[test]
    fn of_many_finished_queue_pairs_the_last_are_listed_and_of_the_others_the_sum_is_kept() {
        let mut counters = Counters::default();
        let count = FINISHED_MAX as u32 + 100;
        for number in 0..count {
            let qpn = Qpn(number + 2);
            counters.qp(qpn);
            let bytes = number + 1;
            let sent = Event::UnitSent { qpn, path: PathId(127), packets: 1, bytes, retransmission: None };
            counters.event(Now(1), sent);
            let rtt = Duration(u64::from(1_000 - number));
            counters.event(Now(2), Event::UnitAcked { qpn, path: PathId(127), packets: 1, ce: 0, rtt });
            counters.retire(qpn);
        }
        assert_eq!(counters.all().count(), FINISHED_MAX);
        assert_eq!(counters.all().map(|(qpn, ..)| qpn).min(), Some(102), "the last ones");
        assert_eq!(counters.finished_unlisted, 100);
        let sum = &counters.unlisted;
        assert_eq!(
            (sum.packets_sent, sum.bytes_sent, sum.rtt_min_ns, sum.rtt_max_ns),
            (100, 5050, 901, 1000)
        );
        assert_eq!((sum.paths[127].bytes, sum.paths[127].acked, sum.paths[127].rtt_min_ns), (5050, 100, 901));
        let total: u64 = counters.all().map(|(_, qp, _)| qp.packets_sent).sum();
        assert_eq!(total + sum.packets_sent, u64::from(count));
    }
}
