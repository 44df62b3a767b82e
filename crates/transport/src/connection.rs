//! Both directions of one connection: the halves, the handshake and the timers, put together.

use core::net::SocketAddr;

use srdma_seams::{ids, ConnectionId, Duration, Event, Now, Observer, PathId, Rng, TransmitId};
use srdma_wire::{
    Ack, AckBlock, AckUnit, Data, Hello, Part, Space, ACK_BLOCKS_MAX, ACK_UNITS_MAX, FEATURE_PARTS,
};

use crate::config::{Config, ConfigError, Identity, Planted};
use crate::dialogue::Dialogue;
use crate::handshake::Handshake;
use crate::receiver::Receiver;
use crate::report::Snapshot;
use crate::sender::Sender;
use crate::trunk::Trunk;
use crate::{Arrival, BogusAck, Failure, Fragment, HelloOutcome, Stretch, Unit};

/// Smallest UDP payload that a connection can work with.
pub(crate) const DATAGRAM_BYTES_MIN: u16 = 512;

/// Longest ACK, and unit reports with which it fits the smallest UDP payload.
const ACK_BYTES_MAX: u16 = 936;
const NARROW_ACK_UNITS: usize = 20;

/// Waiting for something that the peer owes us although all we sent is acknowledged.
#[derive(Clone, Copy, Debug)]
struct Expecting {
    /// When the peer was last heard, and how often it was asked since.
    heard_at: Now,
    asked: u32,
    /// When anything of an answer last came. A peer that lives but whose answers do not get through
    /// is as good as silent.
    progress_at: Now,
}

/// Both directions of one connection. See the crate's head for the order of calls.
pub struct Connection {
    config: Config,
    identity: Identity,
    handshake: Handshake,
    sender: Sender,
    receivers: [Receiver; 2],
    dialogue: Dialogue,
    /// Since when messages have been waiting for the handshake.
    waiting_since: Option<Now>,
    expecting: Option<Expecting>,
    /// Only packets too small to go on with get through.
    too_narrow: bool,
}

impl Connection {
    /// A connection that has said nothing yet. `rng` decides the spraying.
    pub fn new(config: Config, identity: Identity, rng: Rng, now: Now) -> Result<Connection, ConfigError> {
        config.validate()?;
        let sender = Sender::new(&config, identity.local_qpn, rng, now);
        let receiver = |first| Receiver::new(first, config.first_msn, config.window_packets);
        Ok(Connection {
            receivers: [receiver(0), receiver(0)],
            dialogue: Dialogue::default(),
            handshake: Handshake::new(identity, now),
            sender,
            identity,
            waiting_since: None,
            expecting: None,
            too_narrow: false,
            config,
        })
    }

    /// Changes the local ACK timeout and the count of retries, which a queue pair learns only on its
    /// way to RTS. A timeout of zero means never to give up.
    pub fn set_retry(&mut self, ack_timeout: Duration, retry_count: u8) {
        self.config.ack_timeout = ack_timeout;
        self.config.retry_count = retry_count;
    }

    // --- handshake ---------------------------------------------------------------------------

    /// Starts the handshake: a HELLO is due. It is repeated only while something waits to be sent.
    pub fn start(&mut self, now: Now) {
        self.handshake.start(now);
        self.waiting_since = self.waiting_since.map(|_| now);
    }

    /// The next HELLO to send, if one is due. Send it padded to `probe_bytes`.
    pub fn poll_hello(&mut self, now: Now, free_bytes: u32, obs: &mut impl Observer) -> Option<Hello> {
        let (waiting, asking) = (self.waiting_since.is_some(), self.expecting.is_some_and(|e| e.asked > 0));
        let hello = self.handshake.poll(now, waiting, asking, free_bytes, &self.config)?;
        obs.event(now, Event::HelloSent { qpn: self.identity.local_qpn });
        Some(hello)
    }

    /// A HELLO for this queue pair came from `from`.
    pub fn on_hello(
        &mut self,
        now: Now,
        hello: &Hello,
        from: SocketAddr,
        trunk: &mut Trunk,
        obs: &mut impl Observer,
    ) -> HelloOutcome {
        let learned = self.handshake.on_hello(now, hello, from, DATAGRAM_BYTES_MIN);
        if let Some(rtt) = learned.rtt {
            self.sender.rtt.guess(rtt);
        }
        if let Some(first) = self.handshake.peer_first_psn {
            self.receivers[Space::Request as usize].set_first(u64::from(first));
        }
        if learned.answered {
            self.heard(now);
        }
        if learned.outcome == HelloOutcome::Connected {
            self.connected(now, trunk, obs);
        }
        learned.outcome
    }

    fn connected(&mut self, now: Now, trunk: &mut Trunk, obs: &mut impl Observer) {
        let mtu_bytes = self.handshake.datagram_bytes();
        let header_bytes = srdma_wire::data_header_bytes(self.handshake.features) as u16;
        let payload_bytes = self.payload_of(mtu_bytes).unwrap_or(8);
        let (window, free) = (self.handshake.peer_window_packets, self.handshake.peer_free_bytes);
        self.sender.connect(&self.config, payload_bytes, u32::from(header_bytes), window, free, trunk);
        self.waiting_since = None;
        self.handshake.rest_small(now);
        obs.event(now, Event::Connected { qpn: self.identity.local_qpn, mtu_bytes });
    }

    /// Whether data may be sent.
    pub fn is_connected(&self) -> bool {
        self.handshake.connected
    }

    /// Connection id that packets to the peer carry (0 before the handshake).
    pub fn remote_connection(&self) -> ConnectionId {
        self.handshake.remote
    }

    /// Payload bytes of a full packet, once connected; 0 before.
    pub fn payload_bytes(&self) -> u32 {
        self.sender.payload_bytes.unwrap_or(0)
    }

    /// Feature bits that both sides offer.
    pub fn features(&self) -> u32 {
        self.handshake.features
    }

    /// The kernel refused a packet for its size: find out what size gets through, if the peer helps.
    pub fn too_big(&mut self, now: Now) {
        self.search_size(now, true);
    }

    fn search_size(&mut self, now: Now, urgent: bool) {
        if self.handshake.connected && self.handshake.features & FEATURE_PARTS != 0 {
            let gap = self.sender.rtt.max() * 2;
            self.handshake.search.start(now, self.handshake.datagram_bytes(), gap, urgent);
            if self.handshake.search.is_under_way() {
                self.handshake.rest_small(now);
            }
        }
    }

    /// Something came of what was sent: it may be time to see whether larger packets get through too.
    fn try_larger(&mut self, now: Now) {
        if self.handshake.features & FEATURE_PARTS != 0 {
            self.handshake.try_larger(now, self.sender.rtt.max() * 2);
        }
    }

    /// A search for the packet size may be due, or done.
    fn watch_size(&mut self, now: Now, obs: &mut impl Observer) {
        if let Some(mtu_bytes) = self.handshake.found_larger(now) {
            if let Some(payload_bytes) = self.payload_of(mtu_bytes) {
                self.sender.resize(payload_bytes, &self.config);
                self.handshake.resize(now, mtu_bytes);
                obs.event(now, Event::PathWidened { qpn: self.identity.local_qpn, mtu_bytes });
            }
        }
        if let Some(mtu_bytes) = self.handshake.search.on_timeout(now) {
            let payload_bytes = self.payload_of(mtu_bytes).filter(|_| mtu_bytes >= DATAGRAM_BYTES_MIN);
            let shrunk = payload_bytes.is_some_and(|bytes| self.sender.shrink(bytes, &self.config));
            self.too_narrow = !shrunk;
            if shrunk {
                self.handshake.resize(now, mtu_bytes);
                obs.event(now, Event::PathNarrowed { qpn: self.identity.local_qpn, mtu_bytes });
            }
        }
        if self.sender.suspects_size() {
            self.search_size(now, false);
        }
    }

    /// What a failure for lack of answers is called.
    fn no_answer(&self) -> Failure {
        if self.too_narrow {
            Failure::PathMtu
        } else {
            Failure::NoAnswer
        }
    }

    /// Payload bytes of a packet with `datagram_bytes`: a multiple of 8.
    fn payload_of(&self, datagram_bytes: u16) -> Option<u32> {
        let header_bytes = srdma_wire::data_header_bytes(self.handshake.features) as u16;
        Some(u32::from(datagram_bytes.checked_sub(header_bytes)?) & !7)
    }

    // --- sending -----------------------------------------------------------------------------

    /// Appends a message of `length` bytes; returns its message number (64-bit, counted from
    /// `first_msn`). Allowed before the handshake is complete.
    pub fn submit(&mut self, now: Now, space: Space, length: u32, token: u64) -> u64 {
        if !self.is_connected() && self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
        self.sender.spaces[space as usize].submit(length, token)
    }

    /// The next unit to send now, if window and state allow one. Counted as sent.
    pub fn poll_unit(&mut self, now: Now, trunk: &mut Trunk, obs: &mut impl Observer) -> Option<Unit> {
        let unit = self.sender.poll_unit(now, &self.config, trunk, obs)?;
        if !unit.retransmission {
            self.dialogue.answered(now);
        }
        Some(unit)
    }

    /// Whether the last [`Connection::poll_unit`] had a unit for which the trunk's window had no room. It has when
    /// something of any connection of the trunk is answered or held lost.
    pub fn waits_for_window(&self) -> bool {
        self.sender.waits_for_window()
    }

    /// Whether something must be sent that no other connection of the trunk may keep waiting: a probe, or what is
    /// sent again after silence.
    pub fn is_urgent(&self) -> bool {
        self.sender.is_urgent()
    }

    /// Whether [`Connection::poll_unit`] might return something, now or when the window allows.
    pub fn may_send(&self) -> bool {
        self.sender.may_send()
    }

    /// Nothing more will be sent: the trunk forgets what the connection has in flight.
    pub fn leave(&mut self, trunk: &mut Trunk) {
        self.sender.leave(trunk);
    }

    /// What packet number `seq` of `space` stands for, while its message is not finished.
    pub fn fragment(&self, space: Space, seq: u64) -> Option<Fragment> {
        self.sender.spaces[space as usize].fragment(seq)
    }

    /// What the packets of `space` from `seq` on stand for, `packets` at most, as far as they belong to one
    /// message that is not finished.
    pub fn stretch(&self, space: Space, seq: u64, packets: u8) -> Option<Stretch> {
        self.sender.spaces[space as usize].stretch(seq, packets)
    }

    /// How a packet with `fragment` travels: in how many datagrams, and payload bytes of each but the last.
    /// One, unless it was cut when the path still passed larger ones; see [`srdma_wire::Part`].
    pub fn parts(&self, space: Space, fragment: &Fragment) -> (u8, u32) {
        self.sender.spaces[space as usize].parts(fragment.seq, fragment.length)
    }

    /// The unit could not be sent (socket full): take it back; it is offered again later.
    pub fn unit_refused(&mut self, now: Now, unit: &Unit, trunk: &mut Trunk, obs: &mut impl Observer) {
        self.sender.unit_refused(now, unit, &self.config, trunk, obs);
    }

    /// An ACK for this connection (its connection id already checked).
    pub fn on_ack(
        &mut self,
        now: Now,
        ack: &Ack,
        trunk: &mut Trunk,
        obs: &mut impl Observer,
    ) -> Result<(), BogusAck> {
        self.sender.on_ack(now, ack, &self.config, trunk, obs)?;
        self.heard(now);
        self.try_larger(now);
        if self.sender.take_full_came() {
            self.too_narrow = false;
            self.handshake.search.full_came(now);
        } else if self.sender.suspects_size() {
            self.search_size(now, false);
        }
        Ok(())
    }

    /// A packet of the peer's own messages said what has landed of our requests (low 32 bits): news that its
    /// ACK may not have brought yet. Only from a packet that is [`Arrival::New`].
    pub fn on_landed(
        &mut self,
        now: Now,
        landed: u32,
        trunk: &mut Trunk,
        obs: &mut impl Observer,
    ) -> Result<(), BogusAck> {
        let Some(cumulative) = self.sender.spaces[Space::Request as usize].end_of_landed(landed)? else {
            return Ok(());
        };
        let ack = Ack {
            dest_qpn: self.identity.local_qpn,
            connection: self.identity.connection,
            path: PathId(0),
            space: Space::Request,
            cumulative: cumulative as u32,
            landed,
            free_bytes: trunk.free_bytes,
            block_count: 0,
            blocks: [AckBlock::default(); ACK_BLOCKS_MAX],
            unit_count: 0,
            units: [AckUnit::default(); ACK_UNITS_MAX],
        };
        self.on_ack(now, &ack, trunk, obs)
    }

    /// Message number (64-bit) before which the peer says that every message of `space` has landed.
    pub fn peer_landed(&self, space: Space) -> u64 {
        self.sender.spaces[space as usize].peer_landed()
    }

    /// The peer refused request `msn` (low 32 bits) as not ready: pause requests from it on for
    /// `wait`, then send them again. Responses go on. A message that waits but was never sent is
    /// paused too; false then, and if there is no such message.
    pub fn pause(&mut self, now: Now, msn: u32, wait: Duration, trunk: &mut Trunk) -> bool {
        self.heard(now);
        self.sender.pause(now, msn, wait, &self.config, trunk)
    }

    /// Whether the program waits for something that the peer still owes it (a READ response) although
    /// its request has landed. While true, a silent peer is asked with HELLOs whether it is still there,
    /// and the connection fails as if requests were unanswered; it fails likewise when nothing new of
    /// the answers comes for that time, whatever else the peer says.
    pub fn expect_answer(&mut self, now: Now, expected: bool) {
        match (expected, self.expecting) {
            (true, None) => {
                self.expecting = Some(Expecting { heard_at: now, asked: 0, progress_at: now });
            }
            (false, Some(_)) => self.expecting = None,
            _ => {}
        }
    }

    // --- receiving ---------------------------------------------------------------------------

    /// A data packet for this connection (its connection id already checked).
    pub fn arrival(&mut self, now: Now, data: &Data, ce: bool) -> Arrival {
        if self.handshake.peer_first_psn.is_none() {
            // Without the peer's HELLO its numbers mean nothing yet.
            return Arrival::Beyond;
        }
        self.heard(now);
        let receiver = &mut self.receivers[data.op.space() as usize];
        let arrival = receiver.arrival(now, data, ce);
        if let (Arrival::New { .. }, Space::Response, Some(expecting)) =
            (arrival, data.op.space(), &mut self.expecting)
        {
            expecting.progress_at = now;
        }
        match self.config.planted {
            Some(planted) => receiver.plant(planted, data, arrival),
            None => arrival,
        }
    }

    /// The network cut the payload off a data packet for this connection (its connection id already checked): the next
    /// ACK reports its unit with nothing in it, and the peer need not wait any longer to hold it lost. That happens in
    /// simulated networks only; on the wire there is no such report.
    pub fn trimmed(&mut self, now: Now, data: &Data) {
        if self.handshake.peer_first_psn.is_some() {
            self.heard(now);
            self.receivers[data.op.space() as usize].trimmed(now, data);
        }
    }

    /// As [`Connection::arrival`], for `packets` data packets that continue one another, all of them new
    /// ([`Connection::new_run`]): number and message number of the first. `None`: they are to be taken one by one.
    pub fn arrival_run(&mut self, now: Now, first: &Data, packets: u32, ce: bool) -> Option<(u64, u64)> {
        let space = first.op.space();
        if self.config.planted.is_some() || self.new_run(space, first.psn, packets) != packets {
            return None;
        }
        let taken = self.receivers[space as usize].arrival_run(now, first, packets, ce)?;
        self.heard(now);
        if let (Space::Response, Some(expecting)) = (space, &mut self.expecting) {
            expecting.progress_at = now;
        }
        Some(taken)
    }

    /// How many of `count` packets from number `psn` (low 32 bits) on would be new if they came now.
    pub fn new_run(&self, space: Space, psn: u32, count: u32) -> u32 {
        match self.handshake.peer_first_psn {
            Some(_) => self.receivers[space as usize].new_run(psn, count),
            None => 0,
        }
    }

    /// The message number that its low 32 bits are taken for in a packet that comes now.
    pub fn msn_of(&self, space: Space, low: u32) -> u64 {
        self.receivers[space as usize].msn_of(low)
    }

    /// Every packet of `space` before this one was received, as of the last ACK.
    pub fn received_before(&self, space: Space) -> u64 {
        self.receivers[space as usize].base()
    }

    /// The responder could not use packet `seq`, or `part` of it, after all: forget that it came. Only before
    /// the next [`Connection::poll_ack`]; afterwards the peer may rely on it.
    pub fn unreceive(&mut self, space: Space, seq: u64, part: Option<Part>) {
        self.receivers[space as usize].unreceive(seq, part);
    }

    /// The responder says: every message of `space` before `msn` (64-bit) has landed.
    pub fn set_landed(&mut self, space: Space, msn: u64) {
        self.receivers[space as usize].set_landed(msn);
    }

    /// What the responder last said with [`Connection::set_landed`].
    pub fn landed(&self, space: Space) -> u64 {
        self.receivers[space as usize].landed()
    }

    /// Whether the ACK that is due waits for the program's answer, to travel with it. To be asked before
    /// [`Connection::poll_ack`] after each batch of arrivals and time-out; not asking sends it at once. `allowed`: the
    /// caller will come back within [`ANSWER_WAIT`](crate::ANSWER_WAIT), or when [`Connection::next_timeout`] says.
    pub fn holds_ack(&mut self, now: Now, allowed: bool) -> bool {
        let mut due = self.receivers.iter().filter(|receiver| receiver.is_ack_due());
        let Some(first) = due.next() else { return false };
        let lone = first.has_lone_news() && due.next().is_none();
        self.dialogue.hold(now, lone, allowed)
    }

    /// Whether an ACK waits that may travel with what is sent now.
    pub fn is_ack_held(&self) -> bool {
        self.dialogue.held_until().is_some()
    }

    /// The ACK of `space` that was made last could not be sent: it is due again, at once.
    pub fn ack_again(&mut self, space: Space) {
        self.receivers[space as usize].ack_again();
    }

    /// The next ACK to send, if one is due now. Called after each batch of arrivals and on time-outs,
    /// until it returns `None`.
    pub fn poll_ack(&mut self, now: Now, free_bytes: u32, obs: &mut impl Observer) -> Option<Ack> {
        if self.handshake.remote == ConnectionId(0) {
            return None;
        }
        let space = [Space::Request, Space::Response]
            .into_iter()
            .find(|&space| self.receivers[space as usize].is_ack_due())?;
        self.dialogue.acknowledged();
        let mut ack = Ack {
            dest_qpn: self.identity.remote_qpn,
            connection: self.handshake.remote,
            path: self.sender.ack_path(),
            space,
            cumulative: 0,
            landed: 0,
            free_bytes,
            block_count: 0,
            blocks: [AckBlock::default(); ACK_BLOCKS_MAX],
            unit_count: 0,
            units: [AckUnit { transmit: TransmitId(0), path: PathId(0), packets: 0, ce: 0, delay_us: 0 };
                ACK_UNITS_MAX],
        };
        let narrow = self.handshake.datagram_bytes() < ACK_BYTES_MAX;
        let units_max = if narrow { NARROW_ACK_UNITS } else { ACK_UNITS_MAX };
        self.receivers[space as usize].fill(now, units_max, &mut ack);
        let (qpn, blocks, units) = (self.identity.local_qpn, ack.block_count, ack.unit_count);
        obs.event(now, Event::AckSent { qpn, blocks, units });
        Some(ack)
    }

    // --- time --------------------------------------------------------------------------------

    /// Whether anything is in flight: an acknowledgement or a time-out will come.
    pub fn has_unacknowledged(&self) -> bool {
        self.sender.has_unacknowledged()
    }

    /// When [`Connection::on_timeout`] wants to be called next.
    pub fn next_timeout(&self) -> Option<Now> {
        let ack_due = self.receivers.iter().any(Receiver::is_ack_due) && self.handshake.remote.0 != 0;
        [
            self.handshake.next_timeout(self.waiting_since.is_some()),
            self.sender.next_timeout(&self.config),
            self.handshake_failure_at(),
            self.ask_at(),
            self.answers_failure_at(),
            ack_due.then(|| self.dialogue.held_until().unwrap_or(Now(0))),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Time has passed.
    pub fn on_timeout(
        &mut self,
        now: Now,
        trunk: &mut Trunk,
        obs: &mut impl Observer,
    ) -> Result<(), Failure> {
        if self.handshake.try_connect(now, DATAGRAM_BYTES_MIN) {
            self.connected(now, trunk, obs);
        }
        if self.handshake_failure_at().is_some_and(|at| now >= at) {
            return Err(Failure::NoHandshake);
        }
        if self.answers_failure_at().is_some_and(|at| now >= at) {
            return Err(self.no_answer());
        }
        if self.ask_at().is_some_and(|at| now >= at) {
            if let Some(expecting) = &mut self.expecting {
                expecting.asked += 1;
            }
            self.handshake.ask();
        }
        self.watch_size(now, obs);
        self.sender.on_timeout(now, &self.config, trunk, obs).map_err(|_| self.no_answer())
    }

    /// Bytes of the tables that grow with what is in flight.
    pub fn table_bytes(&self) -> usize {
        self.sender.bytes() + self.receivers.iter().map(Receiver::bytes).sum::<usize>()
    }

    /// Gives memory of tables back that what is in flight now does not need; for a connection that rests.
    pub fn fit(&mut self, now: Now) {
        self.sender.fit(now, &self.config);
        self.receivers.iter_mut().for_each(Receiver::fit);
    }

    /// State for statistics and tests.
    pub fn snapshot(&self, trunk: &Trunk) -> Snapshot {
        let ahead_packets = self.receivers.iter().map(Receiver::ahead).max().unwrap_or(0);
        Snapshot { ahead_packets, ..self.sender.snapshot(&self.config, trunk) }
    }

    /// The peer has shown that it lives and means this connection.
    fn heard(&mut self, now: Now) {
        self.handshake.peer_knows_us();
        if let Some(expecting) = &mut self.expecting {
            (expecting.heard_at, expecting.asked) = (now, 0);
        }
    }

    fn handshake_failure_at(&self) -> Option<Now> {
        let tries = u32::from(self.config.retry_count) + 1;
        let applies = self.handshake.started && !self.handshake.connected && self.handshake.attempts >= tries;
        let since = self.waiting_since.filter(|_| applies)?;
        Some(since + self.config.patience()?)
    }

    /// When the peer has owed us an answer for too long. Silence is a special case of no progress.
    fn answers_failure_at(&self) -> Option<Now> {
        let expecting = self.expecting.filter(|_| self.handshake.connected)?;
        Some(expecting.progress_at + self.config.patience()?)
    }

    fn ask_at(&self) -> Option<Now> {
        let expecting = self.expecting.filter(|_| self.handshake.connected)?;
        let often = self.config.ack_timeout > Duration::ZERO;
        let gap = if often { self.config.ack_timeout.max(self.config.rto_min) } else { self.config.rto_max };
        Some(expecting.heard_at + gap * (u64::from(expecting.asked) + 1))
    }
}

/// The planted bugs of the receiving side.
impl Receiver {
    fn plant(&mut self, planted: Planted, data: &Data, arrival: Arrival) -> Arrival {
        match (planted, arrival) {
            (Planted::DuplicateIsNew, Arrival::Duplicate) => {
                let seq = ids::extend(self.base(), data.psn);
                Arrival::New { seq, msn: ids::extend(self.newest_msn(), data.message.msn) }
            }
            (Planted::RefuseHead, Arrival::New { seq, .. }) if seq == self.base() && self.ahead() > 256 => {
                self.unreceive(seq, None);
                Arrival::Duplicate
            }
            (Planted::NarrowMsn, Arrival::New { seq, .. }) => {
                Arrival::New { seq, msn: u64::from(data.message.msn) }
            }
            _ => arrival,
        }
    }
}
