//! One turn of work: doorbells, arriving packets, timers, sending.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use srdma_net::Segment;
use srdma_rnic::world::PayloadRef;
use srdma_rnic::{Batch, Nic};
use srdma_seams::event::DropCause;
use srdma_seams::{Duration, Now, PathId, Qpn, Slot};
use srdma_wire::{Echo, Follower, Packet, ParseError};

use crate::announce;
use crate::bells::Bells;
use crate::clock;
use crate::counters::Counters;
use crate::numbers::Numbers;
use crate::owed::{Owed, Owing};
use crate::straight::Filled;
use crate::wake::Pillow;
use crate::world::Ground;

/// Bursts sent per turn before arriving packets are looked at again: ACKs open windows, so looking is worth it.
const BURSTS_PER_TURN: usize = 16;
/// Batches received per turn before sending is looked at again.
const BATCHES_PER_TURN: usize = 4;
/// How long packets that lie unread hold timers up: the answer that one waits for may be among them. No longer, so that
/// nobody who sends without end stops the clock.
const HOLD_TIMERS_MAX: Duration = Duration::from_millis(10);
/// How soon a full socket is tried again.
const BUSY_RETRY: Duration = Duration::from_micros(100);
/// How often it is looked whether our descriptors still are ours. Until a program that closes them all opens others
/// under their numbers, every use of one is an error; so this is how long such a file would be at risk.
const LOOK_AFTER: Duration = Duration::from_millis(5);
/// Echo answers per second, at most: enough for anybody who checks the way here.
const ECHOES_PER_SECOND: u32 = 2_000;

/// Everything behind the worker's lock.
pub(crate) struct Worker {
    pub(crate) nic: Nic,
    pub(crate) world: Ground,
    pub(crate) counters: Counters,
    pub(crate) numbers: Option<Numbers>,
    pub(crate) received: Batch,
    /// More could be sent at once.
    pub(crate) more: bool,
    /// The last look at the socket left nothing in it.
    pub(crate) is_drained: bool,
    /// When a turn last looked at the clock.
    pub(crate) latest: Now,
    delayed_until: Option<Now>,
    /// Since when the socket has not been seen empty.
    unread_since: Option<Now>,
    looked_after: Now,
    /// Descriptors are no longer ours.
    pub(crate) is_lost: bool,
    /// A plan of faults has us stand still until then.
    pub(crate) frozen_until: Option<Now>,
    pub(crate) freezes: u64,
    echo_second: u64,
    echoes: u32,
    pub(crate) questions: Vec<(SocketAddr, Echo)>,
    pub(crate) follower: Follower,
    owed: Arc<Owed>,
    pillow: Arc<Pillow>,
    owing: Owing,
    /// Queue pairs whose send doorbells rang this time.
    rung: Vec<Qpn>,
}

impl Worker {
    pub(crate) fn new(nic: Nic, owed: Arc<Owed>, pillow: Arc<Pillow>) -> Worker {
        Worker {
            owed,
            pillow,
            owing: Owing::default(),
            rung: Vec::new(),
            nic,
            world: Ground::new(),
            counters: Counters::default(),
            numbers: None,
            received: Batch::new(),
            more: false,
            is_drained: false,
            latest: Now(0),
            delayed_until: None,
            unread_since: None,
            looked_after: Now(0),
            is_lost: false,
            frozen_until: None,
            freezes: 0,
            echo_second: 0,
            echoes: 0,
            questions: Vec::new(),
            follower: Follower::new(),
        }
    }

    /// Address of the claimed slot.
    pub(crate) fn slot(&self) -> Option<(IpAddr, Slot)> {
        self.world.endpoint.as_ref().map(|endpoint| (endpoint.local(), endpoint.slot()))
    }

    /// One turn. Returns whether packets had arrived.
    pub(crate) fn turn(&mut self, bells: impl Bells) -> bool {
        let Some(mut now) = self.send_posted(bells) else { return false };
        // What was just posted left first; the packets that wait have waited already.
        let had_packets = self.receive_some(now);
        if had_packets {
            // Looking at the clock takes a tenth of a look for nothing at the socket.
            now = clock::now();
            self.latest = now;
        }
        if self.unread_since.is_none_or(|since| now.since(since) >= HOLD_TIMERS_MAX) {
            self.timers(now);
        }
        if (had_packets || self.more) && self.frozen_until.is_none() {
            let Worker { nic, world, counters, .. } = self;
            self.more = nic.pump(now, BURSTS_PER_TURN, world, counters);
        }
        had_packets
    }

    /// The sending half of a turn: who has just posted need not look for packets, it will poll. `None` before a
    /// slot is claimed.
    pub(crate) fn send_posted(&mut self, bells: impl Bells) -> Option<Now> {
        let now = clock::now();
        self.latest = now;
        let (_, slot) = self.slot()?;
        if !self.look_after(now) || self.stands_still(now) {
            return None;
        }
        self.world.busy = false;
        self.delayed_until = self.world.endpoint.as_mut().and_then(|endpoint| endpoint.advance(now));
        let Worker { nic, world, counters, rung, owed, owing, .. } = self;
        bells.sends(|index| {
            let qpn = Qpn::new(slot, index);
            nic.doorbell_send(now, qpn, world, counters);
            rung.push(qpn);
        });
        bells.recvs(|index| nic.doorbell_recv(now, Qpn::new(slot, index), world, counters));
        self.more = nic.pump(now, BURSTS_PER_TURN, world, counters);
        for qpn in rung.drain(..).filter(|&qpn| nic.is_owed(qpn)) {
            owing.sent(qpn, owed);
        }
        Some(now)
    }

    /// Posts wait no longer where nothing is owed any more. To be followed by a look at the doorbells.
    pub(crate) fn review_owed(&mut self) {
        let Worker { nic, owed, owing, .. } = self;
        owing.review(owed, |qpn| nic.is_owed(qpn));
    }

    /// Looks, now and then, whether our descriptors still are ours.
    pub(crate) fn look_after(&mut self, now: Now) -> bool {
        if now.since(self.looked_after) >= LOOK_AFTER && !self.is_lost {
            self.looked_after = now;
            self.is_lost = !(self.world.is_intact() && self.pillow.is_intact());
            self.world.rings.wary |= self.is_lost;
        }
        !self.is_lost
    }

    /// Flushes what was posted to a device that has failed.
    pub(crate) fn flush_posted(&mut self, bells: impl Bells) {
        let now = clock::now();
        let Some(slot) = self.numbers.as_ref().map(Numbers::slot) else { return };
        let Worker { nic, world, counters, .. } = self;
        bells.sends(|index| nic.doorbell_send(now, Qpn::new(slot, index), world, counters));
        bells.recvs(|index| nic.doorbell_recv(now, Qpn::new(slot, index), world, counters));
    }

    /// Whether a plan of faults wants no progress now. Whatever may send is to ask before, so that it does not.
    pub(crate) fn stands_still(&mut self, now: Now) -> bool {
        let until = self.world.endpoint.as_mut().and_then(|endpoint| endpoint.stand_still(now));
        self.freezes += u64::from(until.is_some() && self.frozen_until.is_none());
        self.frozen_until = until;
        until.is_some()
    }

    /// Whether a timer is due.
    pub(crate) fn is_due(&mut self, now: Now) -> bool {
        self.nic.next_timeout().is_some_and(|due| due <= now)
    }

    /// Fires what is due.
    pub(crate) fn timers(&mut self, now: Now) {
        if self.stands_still(now) {
            return;
        }
        if self.is_due(now) {
            self.nic.on_time(now, &mut self.world, &mut self.counters);
            self.more |= self.nic.pump(now, BURSTS_PER_TURN, &mut self.world, &mut self.counters);
        }
    }

    fn receive_some(&mut self, now: Now) -> bool {
        let mut any = false;
        for _ in 0..BATCHES_PER_TURN {
            let mut filled = self.receive_straight(now).unwrap_or_else(|_| self.trouble());
            if matches!(filled, Filled::NotForeseen) {
                filled = self.receive_batch();
            }
            let drained = matches!(filled, Filled::Drained);
            self.is_drained = drained;
            self.answer_echoes(now);
            let Worker { nic, world, counters, received, .. } = self;
            if received.is_empty() && drained {
                self.unread_since = None;
                return any;
            }
            any = true;
            nic.receive(now, received, world, counters);
            if drained {
                self.unread_since = None;
                return true;
            }
            if let Some(endpoint) = &mut self.world.endpoint {
                self.world.free_bytes = endpoint.free_bytes();
            }
        }
        self.unread_since.get_or_insert(now);
        any
    }

    /// Fills the batch with whole datagrams, in one system call.
    fn receive_batch(&mut self) -> Filled {
        self.received.clear();
        let (Some(endpoint), Some(batch)) = (&mut self.world.endpoint, &mut self.world.batch) else {
            return Filled::Drained;
        };
        if self.world.straight.is_on() {
            // One that was looked at for nothing; the next may be worth it.
            batch.ask_for_one();
        }
        let received = endpoint.receive(batch);
        if received.is_err() {
            return self.trouble();
        }
        self.world.straight.none(batch.mean_datagram_bytes());
        for segment in batch.segments() {
            let read = self.follower.parse(batch.packet(&segment));
            sort(&mut self.received, &mut self.questions, &mut self.counters, &segment, &read);
        }
        if batch.is_full() {
            Filled::Some
        } else {
            Filled::Drained
        }
    }

    /// The socket cannot be read.
    fn trouble(&mut self) -> Filled {
        // Perhaps it is not our socket any more; otherwise its state is found out by the peers' silence.
        self.looked_after = Now(0);
        Filled::Drained
    }

    fn answer_echoes(&mut self, now: Now) {
        while let Some((from, echo)) = self.questions.pop() {
            self.echo(now, from, &echo);
        }
    }

    fn echo(&mut self, now: Now, from: SocketAddr, echo: &Echo) {
        let second = now.0 / 1_000_000_000;
        if second != self.echo_second {
            (self.echo_second, self.echoes) = (second, 0);
        }
        self.echoes += 1;
        if self.echoes > ECHOES_PER_SECOND {
            return self.counters.drop_foreign(DropCause::Unsolicited);
        }
        if let Some(endpoint) = &mut self.world.endpoint {
            let path = PathId(echo.path.0 & 0xff);
            // An answer that cannot be sent is as good as one lost on the way.
            let _ = endpoint.send_control(path, from, 0, &Packet::Echo(*echo), echo.probe_bytes);
        }
    }

    /// Tells of connections that were lost, if there are any.
    pub(crate) fn announce(&mut self) {
        if self.counters.unannounced.is_empty() && self.counters.narrowed.is_empty() {
            return;
        }
        let Some((local, _)) = self.slot() else { return };
        for (qpn, code) in std::mem::take(&mut self.counters.unannounced) {
            let Some(qp) = self.counters.live(qpn) else { continue };
            let faults = self.world.endpoint.as_ref().is_some_and(|endpoint| endpoint.faults().is_some());
            announce::lost(qpn, local, qp.peer, qp.peer_qpn, code, faults);
        }
        for (qpn, mtu_bytes) in std::mem::take(&mut self.counters.narrowed) {
            let Some(peer) = self.counters.live(qpn).and_then(|qp| qp.peer) else { continue };
            announce::narrowed(qpn, local, peer, mtu_bytes);
        }
    }

    /// When the next turn is due although nothing happens.
    pub(crate) fn deadline(&mut self, now: Now) -> Option<Now> {
        self.announce();
        if self.frozen_until.is_some() {
            return self.frozen_until;
        }
        if self.more {
            return Some(now);
        }
        let busy = self.world.busy.then_some(now + BUSY_RETRY);
        [self.nic.next_timeout(), self.delayed_until, busy].into_iter().flatten().min()
    }
}

/// Puts a packet where it is looked at: echoes apart, what is left is for queue pairs.
pub(crate) fn sort(
    received: &mut Batch,
    questions: &mut Vec<(SocketAddr, Echo)>,
    counters: &mut Counters,
    segment: &Segment,
    read: &Result<(Packet, usize), ParseError>,
) {
    match read {
        Ok((Packet::Echo(echo), _)) if !echo.reply => questions.push((segment.from, answer(echo, segment))),
        Ok((Packet::Echo(_), _)) => counters.drop_foreign(DropCause::Unsolicited),
        Ok((packet, header_bytes)) => {
            let payload = PayloadRef {
                buffer: segment.buffer,
                offset: segment.offset + *header_bytes as u32,
                length: segment.length - *header_bytes as u32,
            };
            received.push(segment.from, packet, payload, segment.ce);
        }
        Err(error) => counters.drop_foreign(error.cause()),
    }
}

/// The answer to an echo that arrived as `segment`: never longer than the question.
fn answer(echo: &Echo, segment: &Segment) -> Echo {
    let observed = match segment.from.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    Echo {
        reply: true,
        version: srdma_wire::VERSION,
        observed_ttl: segment.ttl,
        observed_address: observed,
        observed_port: segment.from.port(),
        probe_bytes: echo.probe_bytes.min(segment.length as u16),
        ..*echo
    }
}
