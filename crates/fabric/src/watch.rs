//! What a host's RNIC reports, by flow.

use alloc::vec::Vec;

use srdma_seams::event::RetransmitCause;
use srdma_seams::{Event, Now, Observer, Qpn};

/// Causes of retransmissions, in the order of [`FlowCounts::retransmitted`].
pub const RETRANSMIT_CAUSES: [(&str, RetransmitCause); 7] = [
    ("path_order", RetransmitCause::PathOrder),
    ("age", RetransmitCause::Age),
    ("tail_probe", RetransmitCause::TailProbe),
    ("rto", RetransmitCause::Rto),
    ("rnr", RetransmitCause::Rnr),
    ("local", RetransmitCause::Local),
    ("path_probe", RetransmitCause::PathProbe),
];

/// What one end of a connection has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// The handshake is complete in this end's sending direction.
    pub is_connected: bool,
    /// Data packets sent, retransmissions included.
    pub packets: u64,
    /// Their bytes of UDP payload.
    pub bytes: u64,
    /// Packets sent again, by cause ([`RETRANSMIT_CAUSES`]).
    pub retransmitted: [u64; RETRANSMIT_CAUSES.len()],
    /// Packets held lost that had arrived.
    pub undone: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// Packets acknowledged, and how many of them carried a congestion mark.
    pub acked: u64,
    /// See `acked`.
    pub marked: u64,
    /// Congestion window, least and most since the handshake, and now. Bytes.
    pub window_min: u64,
    /// See `window_min`.
    pub window_max: u64,
    /// See `window_min`.
    pub window: u64,
    /// Times that a path was held dead.
    pub suspected: u64,
    /// Data packets received, and those that were not used.
    pub received: u64,
    /// See `received`.
    pub unused: u64,
    /// Most packets between a received one and the first one missing.
    pub ahead_max: u32,
}

/// Counts by queue pair of one host, whose numbers begin at [`Watch::FIRST`].
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub flows: Vec<FlowCounts>,
}

impl Watch {
    pub const FIRST: u16 = 2;

    fn at(&mut self, qpn: Qpn) -> Option<&mut FlowCounts> {
        self.flows.get_mut(usize::from(qpn.index().checked_sub(Watch::FIRST)?))
    }

    fn count(&mut self, qpn: Qpn, what: impl FnOnce(&mut FlowCounts)) {
        if let Some(counts) = self.at(qpn) {
            what(counts);
        }
    }
}

impl Observer for Watch {
    fn event(&mut self, _now: Now, event: Event) {
        match event {
            Event::UnitSent { qpn, packets, bytes, retransmission, .. } => self.count(qpn, |counts| {
                counts.packets += u64::from(packets);
                counts.bytes += u64::from(bytes);
                if let Some(cause) = retransmission {
                    counts.retransmitted[cause as usize] += u64::from(packets);
                }
            }),
            Event::UnitAcked { qpn, packets, ce, .. } => self.count(qpn, |counts| {
                counts.acked += u64::from(packets);
                counts.marked += u64::from(ce);
            }),
            Event::Window { qpn, bytes } => self.count(qpn, |counts| {
                let first = counts.window_max == 0;
                counts.window = bytes;
                counts.window_max = counts.window_max.max(bytes);
                counts.window_min = if first { bytes } else { counts.window_min.min(bytes) };
            }),
            Event::Connected { qpn, .. } => self.count(qpn, |counts| counts.is_connected = true),
            Event::LossUndone { qpn, .. } => self.count(qpn, |counts| counts.undone += 1),
            Event::Rto { qpn, .. } => self.count(qpn, |counts| counts.timeouts += 1),
            Event::PathSuspected { qpn, .. } => self.count(qpn, |counts| counts.suspected += 1),
            Event::Received { qpn, ahead, .. } => self.count(qpn, |counts| {
                counts.received += 1;
                counts.ahead_max = counts.ahead_max.max(ahead);
            }),
            Event::Dropped { qpn: Some(qpn), .. } => self.count(qpn, |counts| counts.unused += 1),
            _ => {}
        }
    }
}
