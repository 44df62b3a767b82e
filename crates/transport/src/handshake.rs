//! Getting to know the peer: its connection id, its limits, the packet size that reaches it.
//!
//! Each side sends a HELLO when it starts and repeats it only while messages wait, so that an idle
//! queue pair without a peer wakes nobody. A side may send data once a HELLO has echoed its own fresh
//! connection id: that peer is alive and means this connection. Until then an id is only learned
//! provisionally (good enough to answer with), and a newer one replaces it; afterwards never.
//!
//! The packet size of a direction is what its receiver says has arrived: HELLOs are padded to the
//! size they probe.

use core::net::{IpAddr, SocketAddr};

use srdma_seams::{ConnectionId, Duration, Now};
use srdma_wire::{Hello, VERSION};

use crate::config::{Config, Identity};
use crate::path_mtu::raise::Raise;
use crate::path_mtu::Search;
use crate::HelloOutcome;

/// UDP payloads tried when the interface's own size does not get through: Ethernet's 1500 with IPv4,
/// IPv6's minimum less headers and a tunnel, and the least that is worth connecting with.
pub(crate) const SIZES: [u16; 3] = [1472, 1252, 512];
/// Time to the first repetition; doubles up to [`REPEAT_MAX`].
const REPEAT_MIN: Duration = Duration::from_millis(10);
/// See [`REPEAT_MIN`].
const REPEAT_MAX: Duration = Duration::from_millis(100);
/// Tries of larger sizes, once the peer is known to be there, before a smaller one is settled for: full,
/// then each usual size.
const SETTLE_TRIES: u8 = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct Handshake {
    identity: Identity,
    pub(crate) remote: ConnectionId,
    pub(crate) confirmed: bool,
    /// The peer has shown that it knows our connection id.
    peer_knows_us: bool,
    /// Largest HELLO of ours that the peer has received.
    proven_bytes: u16,
    /// Largest HELLO of the peer's that we have received.
    heard_bytes: u16,
    observed: Option<SocketAddr>,
    pub(crate) connected: bool,
    pub(crate) started: bool,
    /// When the next HELLO is due, if messages wait, and the gap after it.
    repeat_at: Now,
    repeat_gap: Duration,
    pub(crate) attempts: u32,
    settle_tries: u8,
    settle_until: Option<Now>,
    /// A HELLO of this size is due at once. Kept apart from answers: an answer of a size that gets
    /// through must not be merged into a larger probe that does not.
    probe_due: Option<u16>,
    /// An answer of at most this size is due at once.
    answer_due: Option<u16>,
    /// The peer measures, and a probe of this size came.
    measured: Option<u16>,
    pub(crate) search: Search,
    raise: Raise,
    last_sent: Option<Now>,
    /// Most data that the peer takes.
    pub(crate) peer_window_packets: u32,
    pub(crate) peer_free_bytes: u32,
    pub(crate) peer_first_psn: Option<u32>,
    pub(crate) features: u32,
}

/// What a HELLO changed.
pub(crate) struct Learned {
    pub(crate) outcome: HelloOutcome,
    /// Round-trip time, if it answered ours.
    pub(crate) rtt: Option<Duration>,
    /// It came from this very connection's peer.
    pub(crate) answered: bool,
}

impl Learned {
    fn nothing(outcome: HelloOutcome) -> Learned {
        Learned { outcome, rtt: None, answered: false }
    }
}

impl Handshake {
    pub(crate) fn new(identity: Identity, now: Now) -> Handshake {
        Handshake {
            identity,
            remote: ConnectionId(0),
            confirmed: false,
            peer_knows_us: false,
            proven_bytes: 0,
            heard_bytes: 0,
            observed: None,
            connected: false,
            started: false,
            repeat_at: now,
            repeat_gap: REPEAT_MIN,
            attempts: 0,
            settle_tries: 0,
            settle_until: None,
            probe_due: None,
            answer_due: None,
            measured: None,
            search: Search::default(),
            raise: Raise::default(),
            last_sent: None,
            peer_window_packets: 0,
            peer_free_bytes: 0,
            peer_first_psn: None,
            features: 0,
        }
    }

    pub(crate) fn start(&mut self, now: Now) {
        if !self.started {
            self.started = true;
            self.attempts = 1;
            self.probe_due = Some(self.identity.datagram_bytes_max);
            self.repeat_at = now + REPEAT_MIN;
        }
    }

    /// When HELLO is due next; `waiting` says whether messages wait for the handshake.
    pub(crate) fn next_timeout(&self, waiting: bool) -> Option<Now> {
        if !self.started {
            return None;
        }
        if self.probe_due.is_some() || self.answer_due.is_some() || self.measured.is_some() {
            return Some(Now(0));
        }
        if self.connected {
            return self.search.next_timeout().into_iter().chain(self.raise.next_timeout()).min();
        }
        let repeat = waiting.then_some(self.repeat_at);
        match (repeat, self.settle_until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// A HELLO outside the handshake, to see whether the peer is still there.
    pub(crate) fn ask(&mut self) {
        self.answer_due = self.answer_due.max(Some(0));
    }

    pub(crate) fn poll(
        &mut self,
        now: Now,
        waiting: bool,
        asking: bool,
        free_bytes: u32,
        config: &Config,
    ) -> Option<Hello> {
        if !self.started {
            return None;
        }
        let full = self.identity.datagram_bytes_max;
        if let Some(proven_bytes) = self.measured.take() {
            let hello = self.hello(0, false, free_bytes, config);
            return Some(Hello { measuring: true, reply_wanted: false, proven_bytes, ..hello });
        }
        if let Some(size) = self.search.poll().or_else(|| self.raise.poll(now)) {
            let hello = self.hello(size, false, free_bytes, config);
            return Some(Hello { measuring: true, reply_wanted: true, ..hello });
        }
        let size = match self.answer_due.take().or_else(|| self.probe_due.take()) {
            Some(size) => size.min(full),
            None if !self.connected && waiting && now >= self.repeat_at => self.repeat(now, config),
            None => return None,
        };
        self.last_sent = self.last_sent.or(Some(now));
        Some(self.hello(size, asking, free_bytes, config))
    }

    fn repeat(&mut self, now: Now, config: &Config) -> u16 {
        let full = self.identity.datagram_bytes_max;
        let try_index = self.attempts % (2 + SIZES.len() as u32);
        self.attempts += 1;
        self.repeat_at = now + self.repeat_gap;
        let gap_max = match config.ack_timeout {
            Duration::ZERO => REPEAT_MAX,
            timeout => timeout.clamp(REPEAT_MIN, REPEAT_MAX),
        };
        self.repeat_gap = (self.repeat_gap * 2).min(gap_max);
        match try_index {
            0 | 1 => full,
            index => full.min(SIZES[index as usize - 2]),
        }
    }

    fn hello(&self, probe_bytes: u16, asking: bool, free_bytes: u32, config: &Config) -> Hello {
        let (observed_address, observed_port) = match self.observed {
            Some(from) => (mapped(from.ip()), from.port()),
            None => ([0; 16], 0),
        };
        Hello {
            dest_qpn: self.identity.remote_qpn,
            src_qpn: self.identity.local_qpn,
            version: VERSION,
            connection: self.identity.connection,
            echo: self.remote,
            reply_wanted: !self.connected || asking,
            measuring: false,
            claimed_address: self.identity.address,
            observed_address,
            observed_port,
            probe_bytes,
            proven_bytes: self.heard_bytes,
            paths: config.paths,
            window_packets: config.window_packets,
            free_bytes,
            features: self.identity.features,
            first_psn: config.first_psn as u32,
        }
    }

    /// Learns from a HELLO.
    pub(crate) fn on_hello(&mut self, now: Now, hello: &Hello, from: SocketAddr, smallest: u16) -> Learned {
        if hello.version != VERSION {
            return Learned::nothing(HelloOutcome::VersionMismatch(hello.version));
        }
        let knows_us = hello.echo == self.identity.connection;
        let stranger = hello.src_qpn != self.identity.remote_qpn
            || hello.connection.0 == 0
            || (hello.connection == self.identity.connection && !self.is_own(from))
            || (hello.echo.0 != 0 && !knows_us)
            || (self.confirmed && hello.connection != self.remote);
        if stranger {
            return Learned::nothing(HelloOutcome::Foreign);
        }
        if hello.connection != self.remote {
            self.heard_bytes = 0;
            self.proven_bytes = 0;
            self.peer_knows_us = false;
        }
        if hello.measuring && knows_us && self.confirmed {
            match hello.reply_wanted {
                true => self.measured = self.measured.max(Some(hello.probe_bytes)),
                false => {
                    self.search.answered(now, hello.proven_bytes);
                    self.raise.answered(hello.proven_bytes);
                }
            }
            self.peer_free_bytes = hello.free_bytes;
            return Learned { answered: true, ..Learned::nothing(HelloOutcome::Known) };
        }
        self.remote = hello.connection;
        self.confirmed |= knows_us;
        self.peer_knows_us |= knows_us;
        self.observed = Some(from);
        self.heard_bytes = self.heard_bytes.max(hello.probe_bytes);
        self.peer_window_packets = hello.window_packets.clamp(1, 1 << 17);
        self.peer_free_bytes = hello.free_bytes;
        self.peer_first_psn = Some(hello.first_psn);
        self.features = self.identity.features & hello.features;
        if knows_us {
            self.proven_bytes =
                self.proven_bytes.max(hello.proven_bytes.min(self.identity.datagram_bytes_max));
        }
        if self.started && (hello.reply_wanted || !knows_us) {
            self.answer_due = self.answer_due.max(Some(hello.probe_bytes));
        }
        let rtt = if knows_us { self.last_sent.take().map(|sent| now.since(sent)) } else { None };
        let outcome =
            if self.try_connect(now, smallest) { HelloOutcome::Connected } else { HelloOutcome::Known };
        Learned { outcome, rtt, answered: knows_us }
    }

    /// Whether the queue pair is connected to itself and this came from there. Anything else with our own id is
    /// our own HELLO, sent back to us.
    fn is_own(&self, from: SocketAddr) -> bool {
        self.identity.remote_qpn == self.identity.local_qpn && mapped(from.ip()) == self.identity.address
    }

    /// The peer has used our connection id, so it knows it.
    pub(crate) fn peer_knows_us(&mut self) {
        self.peer_knows_us = true;
    }

    /// Whether the handshake is complete now, and was not before.
    pub(crate) fn try_connect(&mut self, now: Now, smallest: u16) -> bool {
        if self.connected || !self.started || !self.confirmed || self.proven_bytes < smallest {
            return false;
        }
        let full = self.identity.datagram_bytes_max;
        let settled = match self.settle_until {
            Some(until) => now >= until && self.settle_tries >= SETTLE_TRIES,
            None => false,
        };
        if self.proven_bytes < full && !settled {
            // The full size may have been tried only while the peer was not there yet.
            let waiting = self.settle_until.is_some_and(|until| now < until);
            if !waiting && self.settle_tries < SETTLE_TRIES {
                let usual = self.settle_tries.checked_sub(1).map(|tries| SIZES[usize::from(tries)].min(full));
                self.settle_tries += 1;
                self.settle_until = Some(now + REPEAT_MIN);
                self.probe_due = Some(usual.filter(|&size| size > self.proven_bytes).unwrap_or(full));
            }
            return false;
        }
        self.settle_until = None;
        self.connected = true;
        true
    }

    /// Bytes of a UDP payload that reach the peer.
    pub(crate) fn datagram_bytes(&self) -> u16 {
        self.proven_bytes
    }

    /// No more than `bytes` reach the peer any longer, or so many again.
    pub(crate) fn resize(&mut self, now: Now, bytes: u16) {
        self.proven_bytes = bytes;
        self.rest_small(now);
    }

    /// The size in use, if less than the interface's, is kept for a while.
    pub(crate) fn rest_small(&mut self, now: Now) {
        self.raise.rest(now, self.proven_bytes, self.identity.datagram_bytes_max);
    }

    /// There is traffic: it may be time to try larger packets. An answer takes `gap`.
    pub(crate) fn try_larger(&mut self, now: Now, gap: Duration) {
        if !self.search.is_under_way() {
            self.raise.start(now, self.identity.datagram_bytes_max, gap);
        }
    }

    /// Bytes of a UDP payload that have turned out to reach the peer, if more than in use.
    pub(crate) fn found_larger(&mut self, now: Now) -> Option<u16> {
        self.raise.on_timeout(now, self.proven_bytes, self.identity.datagram_bytes_max)
    }
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
