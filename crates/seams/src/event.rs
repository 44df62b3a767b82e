//! Everything that can happen to a packet, a path or a connection, as one enum with stable codes.
//!
//! The rooms report to an [`Observer`] as they go. The observer `()` compiles away; counters, traces
//! and the reports of a simulation are other observers. A test may fail on an event it did not expect.

use crate::{Duration, Now, PathId, Qpn};

/// Why a packet was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RetransmitCause {
    /// A later unit of the same path was acknowledged and the reordering time passed.
    PathOrder = 0,
    /// Older than anything the slowest live path would take.
    Age = 1,
    /// Sent to provoke an acknowledgement of a silent tail.
    TailProbe = 2,
    /// The retransmission time-out fired.
    Rto = 3,
    /// The receiver was not ready (no receive posted) and its timer ran out.
    Rnr = 4,
    /// The local socket refused the unit.
    Local = 5,
    /// Its other transmission, a copy, went to see whether a path held dead delivers again.
    PathProbe = 6,
}

/// Why an arriving packet was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropCause {
    /// It did not parse: too short, unknown opcode or version, bad length.
    Malformed = 0,
    /// The header check did not match.
    HeaderCheck = 1,
    /// The optional payload CRC did not match.
    PayloadCheck = 2,
    /// No queue pair has that number.
    UnknownQp = 3,
    /// The queue pair is in no state to receive.
    QpState = 4,
    /// Wrong connection id: forged, or from a peer that has since restarted.
    ForeignConnection = 5,
    /// It came from an address that is not the peer's.
    ForeignAddress = 6,
    /// Already received.
    Duplicate = 7,
    /// Older than the receiver remembers.
    Stale = 8,
    /// Beyond the receive window.
    BeyondWindow = 9,
    /// Ahead of order, and the bounded hold buffer is full.
    HoldFull = 10,
    /// Its keyed tag is missing or wrong.
    Tag = 11,
    /// An acknowledgement of something never sent.
    BogusAck = 12,
    /// Fields contradict one another or what earlier packets of the message said.
    Inconsistent = 13,
    /// An ECHO reply that nobody asked for, or an ECHO beyond those answered in a second.
    Unsolicited = 14,
}

/// One thing that happened. Codes ([`Event::code`]) are stable: reports and traces store them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // each variant says what its fields are
pub enum Event {
    /// A unit of `packets` data packets left on `path`.
    UnitSent { qpn: Qpn, path: PathId, packets: u8, bytes: u32, retransmission: Option<RetransmitCause> },
    /// An acknowledgement for a unit sent on `path` came; `ce` of its packets carried congestion marks.
    UnitAcked { qpn: Qpn, path: PathId, packets: u8, ce: u8, rtt: Duration },
    /// `packets` packets sent on `path` are held lost.
    UnitLost { qpn: Qpn, path: PathId, packets: u8, cause: RetransmitCause },
    /// A packet held lost was acknowledged after all; the window is restored.
    LossUndone { qpn: Qpn, path: PathId },
    /// A tail probe was sent.
    TailProbe { qpn: Qpn },
    /// A retransmission time-out, the `attempt`-th without progress.
    Rto { qpn: Qpn, attempt: u8 },
    /// A path is held dead and will be skipped until it is probed again.
    PathSuspected { qpn: Qpn, path: PathId },
    /// A suspected path delivered again.
    PathRestored { qpn: Qpn, path: PathId },
    /// The congestion window changed.
    Window { qpn: Qpn, bytes: u64 },
    /// Data packets of one path were accepted: their bytes are placed or held. `ahead` counts packets between the first
    /// of them and the first one missing.
    Received { qpn: Qpn, path: PathId, packets: u32, bytes: u32, ahead: u32 },
    /// A packet was not used.
    Dropped { qpn: Option<Qpn>, cause: DropCause },
    /// The last packet of a WRITE waits for earlier bytes.
    Held { qpn: Qpn },
    /// An acknowledgement left.
    AckSent { qpn: Qpn, blocks: u8, units: u8 },
    /// Receiver not ready, told to the peer.
    RnrSent { qpn: Qpn },
    /// Receiver not ready, told by the peer.
    RnrReceived { qpn: Qpn },
    /// A fatal refusal told to the peer; `code` is the wire's NAK code.
    NakSent { qpn: Qpn, code: u8 },
    /// A fatal refusal told by the peer.
    NakReceived { qpn: Qpn, code: u8 },
    /// A handshake packet left.
    HelloSent { qpn: Qpn },
    /// The handshake is complete in the sending direction.
    Connected { qpn: Qpn, mtu_bytes: u16 },
    /// Packets above `mtu_bytes` of UDP payload no longer reach the peer while smaller ones do.
    PathNarrowed { qpn: Qpn, mtu_bytes: u16 },
    /// Packets up to `mtu_bytes` of UDP payload, larger than those in use, reach the peer again.
    PathWidened { qpn: Qpn, mtu_bytes: u16 },
    /// The queue pair entered the error state; `cause` is a code of the error table.
    QpFailed { qpn: Qpn, cause: u16 },
}

impl Event {
    /// Stable number of the kind of event.
    pub const fn code(&self) -> u16 {
        match self {
            Event::UnitSent { .. } => 1,
            Event::UnitAcked { .. } => 2,
            Event::UnitLost { .. } => 3,
            Event::LossUndone { .. } => 4,
            Event::TailProbe { .. } => 5,
            Event::Rto { .. } => 6,
            Event::PathSuspected { .. } => 7,
            Event::PathRestored { .. } => 8,
            Event::Window { .. } => 9,
            Event::Received { .. } => 10,
            Event::Dropped { .. } => 11,
            Event::Held { .. } => 12,
            Event::AckSent { .. } => 13,
            Event::RnrSent { .. } => 14,
            Event::RnrReceived { .. } => 15,
            Event::NakSent { .. } => 16,
            Event::NakReceived { .. } => 17,
            Event::HelloSent { .. } => 18,
            Event::Connected { .. } => 19,
            Event::QpFailed { .. } => 20,
            Event::PathNarrowed { .. } => 21,
            Event::PathWidened { .. } => 22,
        }
    }
}

/// Is told what happens, as it happens.
pub trait Observer {
    /// `event` happened at `now`.
    fn event(&mut self, now: Now, event: Event);
}

/// Nobody watches; every call compiles away.
impl Observer for () {
    #[inline(always)]
    fn event(&mut self, _now: Now, _event: Event) {}
}

impl<O: Observer + ?Sized> Observer for &mut O {
    #[inline]
    fn event(&mut self, now: Now, event: Event) {
        (**self).event(now, event);
    }
}
