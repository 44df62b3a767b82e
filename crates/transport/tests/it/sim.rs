//! The two ends, the clock and the queue of events.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use srdma_seams::{ids, ConnectionId, Duration, Now, PathId, Qpn, Rng};
use srdma_transport::{Config, Connection, Failure, Fragment, Identity, Snapshot, Trunk, Unit};
use srdma_wire::{Ack, Data, Hello, Message, Op, Part, Space, UnitTag, FEATURE_PARTS};

use crate::counts::Counts;
use crate::link::{Kind, Link};
use crate::responder::{Responder, Truth};

#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)]
enum Wire {
    Hello(Hello),
    Data(Data, Truth, bool),
    Ack(Ack),
    Rnr(u64, u64),
}

/// One end.
pub struct End {
    pub conn: Connection,
    pub trunk: Trunk,
    pub counts: Counts,
    pub responders: [Responder; 2],
    /// Lengths of the messages submitted here, from `first_msn` on.
    pub lengths: [Vec<u32>; 2],
    fragments: [HashMap<u64, Fragment>; 2],
    landed_seen: [u64; 2],
    /// Which packets sent here the peer has acknowledged, from the first on.
    acked: [Vec<bool>; 2],
    first_seq: [u64; 2],
    inbox: Vec<Wire>,
    armed: u64,
    pub failed: Option<(Failure, u64)>,
    pub pauses: u64,
    pub started: bool,
    pub sent_max: [u64; 2],
    /// Acknowledgements answer on this path only.
    pub ack_path: Option<u16>,
}

/// Both ends and the network.
pub struct Sim {
    pub now: u64,
    pub ends: [End; 2],
    pub link: Link,
    pub first_msn: u64,
    /// Chance that a message is answered with one in the response space.
    pub response_ppm: u32,
    /// Chance that the socket refuses a unit.
    pub refuse_ppm: u32,
    /// ACKs may wait for a unit to travel with.
    pub hold_acks: bool,
    /// ACKs that did.
    pub acks_with_units: u64,
    /// Longest time that an end sleeps before it looks at what has arrived.
    pub sleep_ns: u64,
    pub free_bytes: u32,
    /// Keep this many messages of that length waiting at end 0.
    pub feed: Option<(u64, u32)>,
    /// Data packets, by their order of sending, that vanish.
    pub drop_nth: Vec<u64>,
    /// Packet number of end 0's requests that is always lost until `now` passes the time.
    pub hold_back: Option<(u64, u64)>,
    /// Check that a packet number always means the same (costs memory).
    pub remember: bool,
    data_sent: u64,
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    flying: HashMap<u64, Wire>,
    tie: u64,
    rng: Rng,
    violation: Option<String>,
}

pub fn identity(local: u32, remote: u32, datagram_bytes_max: u16) -> Identity {
    Identity {
        local_qpn: Qpn(local),
        remote_qpn: Qpn(remote),
        connection: ConnectionId(u64::from(local) << 32 | 7),
        address: [0; 16],
        datagram_bytes_max,
        features: FEATURE_PARTS,
    }
}

impl Sim {
    pub fn new(seed: u64, config: &Config, datagram_bytes_max: u16, link: Link) -> Sim {
        let end = |local, remote, id| {
            let rng = Rng::stream(seed, "end", id);
            let conn =
                Connection::new(config.clone(), identity(local, remote, datagram_bytes_max), rng, Now(0))
                    .unwrap();
            let responder =
                |space, first| Responder::new(space, first, config.first_msn, config.window_packets);
            let mut trunk = Trunk::new(config);
            trunk.join();
            End {
                conn,
                trunk,
                counts: Counts::default(),
                responders: [responder(Space::Request, config.first_psn), responder(Space::Response, 0)],
                lengths: [Vec::new(), Vec::new()],
                fragments: [HashMap::new(), HashMap::new()],
                landed_seen: [config.first_msn; 2],
                acked: [Vec::new(), Vec::new()],
                first_seq: [config.first_psn, 0],
                inbox: Vec::new(),
                armed: u64::MAX,
                failed: None,
                pauses: 0,
                started: false,
                sent_max: [0; 2],
                ack_path: None,
            }
        };
        Sim {
            now: 1_000_000,
            ends: [end(17, 18, 0), end(18, 17, 1)],
            link,
            first_msn: config.first_msn,
            response_ppm: 0,
            refuse_ppm: 0,
            hold_acks: false,
            acks_with_units: 0,
            sleep_ns: 0,
            free_bytes: 16 << 20,
            feed: None,
            drop_nth: Vec::new(),
            hold_back: None,
            remember: true,
            data_sent: 0,
            heap: BinaryHeap::new(),
            flying: HashMap::new(),
            tie: 0,
            rng: Rng::stream(seed, "sim", 0),
            violation: None,
        }
    }

    pub fn start(&mut self, side: usize) {
        self.ends[side].started = true;
        self.ends[side].conn.start(Now(self.now));
        self.wake(side, self.now);
    }

    pub fn start_both(&mut self) {
        self.start(0);
        self.start(1);
    }

    pub fn submit(&mut self, side: usize, space: Space, length: u32) -> u64 {
        let end = &mut self.ends[side];
        let msn = end.conn.submit(Now(self.now), space, length, u64::from(length) ^ 0xabcd);
        let lengths = &mut end.lengths[space as usize];
        lengths.push(length);
        assert_eq!(msn, self.first_msn + lengths.len() as u64 - 1);
        self.wake(side, self.now);
        msn
    }

    /// `side` waits for an answer from now on.
    pub fn expect_answer(&mut self, side: usize) {
        self.ends[side].conn.expect_answer(Now(self.now), true);
        self.wake(side, self.now);
    }

    /// Every message has landed and both senders know it.
    pub fn is_done(&self) -> bool {
        let flat = |end: &End| {
            [Space::Request, Space::Response].iter().all(|&space| {
                end.conn.peer_landed(space) == self.first_msn + end.lengths[space as usize].len() as u64
            })
        };
        self.ends.iter().all(flat)
    }

    /// Runs until everything is done, an end fails, or `until`.
    pub fn run_until_done(&mut self, until: u64) -> Result<(), String> {
        while self.now < until && !self.is_done() && self.ends.iter().all(|end| end.failed.is_none()) {
            if !self.step(until)? {
                break;
            }
        }
        if self.is_done() && self.ends.iter().any(|end| end.snapshot().inflight_bytes != 0) {
            // Units superseded by others may still await their loss; bytes may not.
            return Err("bytes in flight after everything has landed".into());
        }
        Ok(())
    }

    pub fn run_until(&mut self, until: u64) -> Result<(), String> {
        while self.now < until {
            if !self.step(until)? {
                break;
            }
        }
        self.now = self.now.max(until);
        Ok(())
    }

    fn step(&mut self, until: u64) -> Result<bool, String> {
        let Some(&Reverse((at, id, target))) = self.heap.peek() else { return Ok(false) };
        if at > until {
            self.now = until;
            return Ok(false);
        }
        self.heap.pop();
        self.now = self.now.max(at);
        if let Some(wire) = self.flying.remove(&id) {
            self.ends[target].inbox.push(wire);
            let sleep = if self.sleep_ns > 0 { self.rng.below(self.sleep_ns) } else { 0 };
            // Most wake-ups are prompt; some are as late as a busy machine makes them.
            let late = if self.rng.below(8) == 0 { sleep } else { sleep / 64 };
            self.wake(target, self.now + late);
        } else if self.ends[target].armed == at {
            self.ends[target].armed = u64::MAX;
            self.turn(target);
        }
        match self.violation.take() {
            Some(what) => Err(format!("at {} µs: {what}", self.now / 1000)),
            None => Ok(true),
        }
    }

    fn wake(&mut self, side: usize, at: u64) {
        if at < self.ends[side].armed {
            self.ends[side].armed = at;
            self.tie += 1;
            self.heap.push(Reverse((at, self.tie, side)));
        }
    }

    fn fly(&mut self, to: usize, at: u64, wire: Wire) {
        self.tie += 1;
        self.flying.insert(self.tie, wire);
        self.heap.push(Reverse((at, self.tie, to)));
    }

    /// The driver of one end does its round.
    fn turn(&mut self, side: usize) {
        if !self.ends[side].started || self.ends[side].failed.is_some() {
            self.ends[side].inbox.clear();
            return;
        }
        if let Some(until) = self.link.frozen_until(self.now).filter(|_| side == 0) {
            return self.wake(0, until);
        }
        let now = Now(self.now);
        for wire in std::mem::take(&mut self.ends[side].inbox) {
            if let Err(what) = self.receive(side, wire) {
                self.violation.get_or_insert(what);
            }
        }
        let end = &mut self.ends[side];
        if end.conn.next_timeout().is_some_and(|at| at <= now) {
            if let Err(failure) = end.conn.on_timeout(now, &mut end.trunk, &mut end.counts) {
                end.failed = Some((failure, self.now));
                return;
            }
        }
        if let Some((backlog, length)) = self.feed.filter(|_| side == 0) {
            while self.ends[0].snapshot().messages_waiting < backlog {
                self.submit(0, Space::Request, length);
            }
        }
        self.send_all(side);
        let end = &mut self.ends[side];
        if let Some(what) = end.counts.nonsense.take() {
            self.violation.get_or_insert(what);
        }
        if end.counts.suspects_max > 0 && end.counts.suspects_max >= self.link.delay_ns.len() {
            self.violation.get_or_insert("every path is suspected".into());
        }
        for space in [Space::Request, Space::Response] {
            let landed = self.ends[side].conn.peer_landed(space);
            let really = self.ends[1 - side].responders[space as usize].landed;
            let before = std::mem::replace(&mut self.ends[side].landed_seen[space as usize], landed);
            if landed < before || (space == Space::Request && landed > really) {
                self.violation.get_or_insert(format!("landed {landed} after {before}, really {really}"));
            }
        }
        if let Some(at) = self.ends[side].conn.next_timeout() {
            if at <= now {
                self.violation.get_or_insert(format!("a time-out at {} stays due", at.0));
            }
            self.wake(side, at.0);
        }
    }

    fn send_all(&mut self, side: usize) {
        let (now, free) = (Now(self.now), self.free_bytes);
        while let Some(hello) = {
            let end = &mut self.ends[side];
            end.conn.poll_hello(now, free, &mut end.counts)
        } {
            self.launch(side, 0, Kind::Hello, u64::from(hello.probe_bytes), Wire::Hello(hello));
        }
        if !(self.hold_acks && self.ends[side].conn.holds_ack(now, true)) {
            self.send_acks(side);
        }
        loop {
            let end = &mut self.ends[side];
            let (before, probes) = (end.snapshot(), end.counts.tail_probes);
            let Some(unit) = end.conn.poll_unit(now, &mut end.trunk, &mut end.counts) else { break };
            let after = end.snapshot();
            let window = after.window_bytes.min(u64::from(after.peer_free_bytes));
            let probe = end.counts.tail_probes > probes;
            if before.inflight_bytes > 0 && after.inflight_bytes > window && !probe {
                self.violation.get_or_insert(format!("{} in flight, window {window}", after.inflight_bytes));
            }
            if after.inflight_bytes > 1 << 40 {
                self.violation.get_or_insert("in flight below zero".into());
            }
            if self.rng.chance_ppm(self.refuse_ppm) {
                end.conn.unit_refused(now, &unit, &mut end.trunk, &mut end.counts);
                continue;
            }
            let held = end.conn.is_ack_held();
            self.send_unit(side, &unit, probe);
            if held {
                self.acks_with_units += 1;
                self.send_acks(side);
            }
        }
    }

    fn send_acks(&mut self, side: usize) {
        let (now, free) = (Now(self.now), self.free_bytes);
        let mut acks = 0;
        while let Some(mut ack) = {
            let end = &mut self.ends[side];
            end.conn.poll_ack(now, free, &mut end.counts)
        } {
            acks += 1;
            if acks > 10_000 {
                self.violation.get_or_insert("endless acknowledgements".into());
                break;
            }
            ack.path = PathId(self.ends[side].ack_path.unwrap_or(ack.path.0));
            let bytes = 60 + 8 * u64::from(ack.block_count) + 11 * u64::from(ack.unit_count);
            self.launch(side, ack.path.0, Kind::Ack, bytes, Wire::Ack(ack));
        }
    }

    fn send_unit(&mut self, side: usize, unit: &Unit, probe: bool) {
        let vanishes = self.link.loses_burst(self.now, side, unit.path.0);
        let mut datagrams = 0;
        for index in 0..unit.packets {
            let seq = unit.first + u64::from(index);
            let end = &mut self.ends[side];
            let Some(fragment) = end.conn.fragment(unit.space, seq) else {
                self.violation.get_or_insert(format!("packet {seq} of {unit:?} means nothing"));
                return;
            };
            end.sent_max[unit.space as usize] = end.sent_max[unit.space as usize].max(seq);
            let nth = (seq - end.first_seq[unit.space as usize]) as usize;
            if !probe && end.acked[unit.space as usize].get(nth) == Some(&true) {
                self.violation.get_or_insert(format!("packet {seq} sent again although acknowledged"));
            }
            if self.remember {
                let known = end.fragments[unit.space as usize].entry(seq).or_insert(fragment);
                if *known != fragment {
                    self.violation.get_or_insert(format!("{known:?} became {fragment:?}"));
                }
            }
            let remote = end.conn.remote_connection();
            let (parts, each) = end.conn.parts(unit.space, &fragment);
            datagrams += u32::from(parts);
            if (parts > 1 && unit.packets > 1) || datagrams > 64 {
                self.violation.get_or_insert(format!("{unit:?} does not fit a burst"));
            }
            for part in 0..parts {
                let piece = piece_of(&fragment, part, parts, each);
                let mut data = packet(remote, unit, index, &piece);
                data.part = (parts > 1).then_some(Part { index: part, count: parts });
                let truth = Truth { seq, msn: fragment.msn, payload: piece.length };
                self.data_sent += 1;
                let held =
                    self.hold_back.is_some_and(|(held, until)| side == 0 && held == seq && self.now < until);
                if vanishes || held || self.drop_nth.contains(&self.data_sent) {
                    continue;
                }
                let bytes = u64::from(piece.length) + 72;
                self.launch(side, unit.path.0, Kind::Data, bytes, Wire::Data(data, truth, false));
            }
        }
    }

    fn launch(&mut self, side: usize, path: u16, kind: Kind, bytes: u64, wire: Wire) {
        let fate = self.link.pass(self.now, side, path, kind, bytes);
        for arrival in fate.arrivals.into_iter().flatten() {
            let wire = match wire {
                Wire::Data(data, truth, _) => Wire::Data(data, truth, fate.ce),
                other => other,
            };
            self.fly(1 - side, arrival, wire);
        }
    }

    fn receive(&mut self, side: usize, wire: Wire) -> Result<(), String> {
        let now = Now(self.now);
        let from = "127.0.0.1:4791".parse().unwrap();
        let (left, right) = self.ends.split_at_mut(1);
        let (end, other) = if side == 0 { (&mut left[0], &right[0]) } else { (&mut right[0], &left[0]) };
        match wire {
            Wire::Hello(hello) => {
                end.conn.on_hello(now, &hello, from, &mut end.trunk, &mut end.counts);
            }
            Wire::Ack(ack) => {
                end.conn
                    .on_ack(now, &ack, &mut end.trunk, &mut end.counts)
                    .map_err(|_| format!("refused {ack:?}"))?;
                if self.remember {
                    end.note_acked(&ack);
                }
            }
            Wire::Rnr(msn, wait) => {
                end.pauses += u64::from(end.conn.pause(now, msn as u32, Duration(wait), &mut end.trunk));
            }
            Wire::Data(data, truth, ce) => {
                let space = data.op.space();
                let first = self.first_msn;
                let lengths = |msn: u64| {
                    let index = msn.checked_sub(first)?;
                    other.lengths[space as usize].get(index as usize).copied()
                };
                let responder = &mut end.responders[space as usize];
                let wish =
                    responder.on_data(self.now, &mut end.conn, &data, truth, ce, &lengths, &mut self.rng)?;
                if let Some((msn, wait)) = wish.rnr {
                    self.launch(side, 0, Kind::Ack, 64, Wire::Rnr(msn, wait));
                }
                for _ in wish.landed {
                    if space == Space::Request && self.rng.chance_ppm(self.response_ppm) {
                        let length = self.rng.below(20_000) as u32;
                        self.submit(side, Space::Response, length);
                    }
                }
            }
        }
        Ok(())
    }
}

impl End {
    pub fn snapshot(&self) -> Snapshot {
        self.conn.snapshot(&self.trunk)
    }

    fn note_acked(&mut self, ack: &Ack) {
        let space = ack.space as usize;
        let first = self.first_seq[space];
        let index = |low: u32| (ids::extend(first, low) - first) as usize;
        let ranges = ack.blocks().iter().map(|block| (index(block.first), index(block.end)));
        for (from, end) in ranges.chain([(index(ack.cumulative).saturating_sub(200), index(ack.cumulative))])
        {
            let acked = &mut self.acked[space];
            acked.resize(acked.len().max(end), false);
            acked[from..end].fill(true);
        }
    }
}

/// Part number `part` of a fragment that travels in `parts` of `each` bytes.
fn piece_of(fragment: &Fragment, part: u8, parts: u8, each: u32) -> Fragment {
    if parts == 1 {
        return *fragment;
    }
    let from = u32::from(part) * each;
    let length = (fragment.length - from).min(each);
    Fragment { offset: fragment.offset + from, length, ..*fragment }
}

fn packet(connection: ConnectionId, unit: &Unit, index: u8, fragment: &Fragment) -> Data {
    let op = match unit.space {
        Space::Request => Op::Write { address: 0, rkey: 0 },
        Space::Response => Op::ReadResponse { request: 0 },
    };
    Data {
        dest_qpn: Qpn(0),
        connection,
        psn: fragment.seq as u32,
        unit: UnitTag { transmit: unit.transmit, path: unit.path, index, packets: unit.packets },
        message: Message {
            msn: fragment.msn as u32,
            length: fragment.message_length,
            offset: fragment.offset,
        },
        solicited: false,
        part: None,
        payload_crc: None,
        tag: None,
        op,
    }
}
