//! The sending half: what to send next, what an acknowledgement means, when to give up waiting.

mod time;
mod windows;

use srdma_seams::event::RetransmitCause;
use srdma_seams::{Duration, Event, Now, Observer, PathId, Qpn, TransmitId};
use srdma_wire::{Ack, Space};

use crate::config::{Config, Planted};
use crate::congestion::{Congestion, PathWindows, Sample};
use crate::connection::DATAGRAM_BYTES_MIN;
use crate::loss::rtt::ConnectionRtt;
use crate::loss::Detector;
use crate::paths::{Health, PathSet};
use crate::report::Snapshot;
use crate::sendspace::{Run, SendSpace, UnitLimit};
use crate::trunk::Trunk;
use crate::units::{UnitRecord, Units, NONE};
use crate::{BogusAck, Unit};

/// A unit is at most this fraction of the window, so that a small window still covers many paths …
const UNITS_PER_WINDOW: u64 = 32;
/// … and this one of what the peer's socket has room for, where that is less than half of what the network would take:
/// then a burst costs more than it helps to spread it.
const UNITS_PER_SOCKET: u64 = 4;
/// Tail probes before the retransmission time-out is waited for.
const PROBES_MAX: u8 = 2;
/// Packets lost, none as large acknowledged in between, from which on their size is suspected.
const LARGE_LOST_MAX: u8 = 8;
/// Time after which a refused unit is offered again.
const REFUSED_WAIT: Duration = Duration::from_micros(100);

/// See the module.
pub(crate) struct Sender {
    qpn: Qpn,
    pub(crate) spaces: [SendSpace; 2],
    units: Units,
    paths: PathSet,
    pub(crate) rtt: ConnectionRtt,
    detector: Detector,
    /// Windows of the paths, where not the trunk's is what counts.
    path_windows: Option<PathWindows>,
    pub(crate) payload_bytes: Option<u32>,
    header_bytes: u32,
    peer_window_packets: u32,
    /// Bytes in flight that the trunk knows of.
    counted_bytes: u64,
    has_left: bool,
    /// Other connections use the trunk too, as of the last call.
    is_shared: bool,
    /// The trunk's window had no room for the next unit.
    waits: bool,
    newest_acked: Option<u64>,
    /// Space whose turn it is.
    turn: usize,
    paused_until: Option<Now>,
    refused_at: Option<Now>,
    /// Last progress, or begin of waiting.
    progress_at: Now,
    /// What the retransmission time-out counts from, and how often it fired without progress.
    rto_from: Now,
    timeouts: u8,
    /// Another connection's time-out has been waited out since the last progress.
    deferred: bool,
    /// Last unit sent or progress made.
    activity_at: Now,
    probes: u8,
    probe_due: bool,
    loss_deadline: Option<Now>,
    told_window: u64,
    /// Window bytes of a packet as large as they get.
    full_charge: u64,
    /// Window bytes of the largest packet that passes on any path that is searched for.
    small_charge: u64,
    large_lost: LargeLost,
    full_came: bool,
}

/// Packets lost since one as large as the smallest of them was acknowledged.
#[derive(Debug, Default)]
struct LargeLost {
    packets: u8,
    least_charge: u64,
}

impl Sender {
    pub(crate) fn new(config: &Config, qpn: Qpn, mut rng: srdma_seams::Rng, now: Now) -> Sender {
        let first_transmit = u64::from(rng.next_u32());
        Sender {
            qpn,
            spaces: [
                SendSpace::new(Space::Request, config.first_psn, config.first_msn),
                SendSpace::new(Space::Response, 0, config.first_msn),
            ],
            units: Units::new(first_transmit),
            paths: PathSet::new(config, rng),
            rtt: ConnectionRtt::new(config.grain),
            detector: Detector::new(config.grain),
            path_windows: None,
            payload_bytes: None,
            header_bytes: 0,
            peer_window_packets: 1,
            counted_bytes: 0,
            has_left: false,
            is_shared: false,
            waits: false,
            newest_acked: None,
            turn: 0,
            paused_until: None,
            refused_at: None,
            progress_at: now,
            rto_from: now,
            timeouts: 0,
            deferred: false,
            activity_at: now,
            probes: 0,
            probe_due: false,
            loss_deadline: None,
            told_window: 0,
            full_charge: u64::MAX,
            small_charge: u64::MAX,
            large_lost: LargeLost::default(),
            full_came: false,
        }
    }

    /// The handshake is complete.
    pub(crate) fn connect(
        &mut self,
        config: &Config,
        payload_bytes: u32,
        header_bytes: u32,
        window_packets: u32,
        free_bytes: u32,
        trunk: &mut Trunk,
    ) {
        self.header_bytes = header_bytes;
        self.set_payload(payload_bytes, config);
        self.peer_window_packets = window_packets;
        trunk.connected(config, self.full_charge, free_bytes);
        self.open_path_windows(config, self.full_charge);
        let part_bytes = (u32::from(DATAGRAM_BYTES_MIN) - header_bytes) & !7;
        for space in &mut self.spaces {
            space.part_bytes_min = part_bytes;
            space.set_payload(payload_bytes);
        }
    }

    /// Only packets with `payload_bytes` get through any longer. False if what is in flight cannot be cut to
    /// that; see [`SendSpace::can_shrink`].
    pub(crate) fn shrink(&mut self, payload_bytes: u32, config: &Config) -> bool {
        if !self.spaces.iter().all(|space| space.can_shrink(payload_bytes)) {
            return false;
        }
        self.resize(payload_bytes, config);
        true
    }

    /// What was not sent yet is cut to packets with `payload_bytes`.
    pub(crate) fn resize(&mut self, payload_bytes: u32, config: &Config) {
        self.set_payload(payload_bytes, config);
        for space in &mut self.spaces {
            space.set_payload(payload_bytes);
        }
    }

    fn set_payload(&mut self, bytes: u32, config: &Config) {
        self.payload_bytes = Some(bytes);
        self.large_lost = LargeLost::default();
        self.full_charge = u64::from(bytes + self.header_bytes + config.packet_overhead_bytes);
        self.small_charge = u64::from(u32::from(DATAGRAM_BYTES_MIN) + config.packet_overhead_bytes);
    }

    /// Whether it looks as if large packets do not get through.
    pub(crate) fn suspects_size(&self) -> bool {
        let lost = self.large_lost.packets;
        lost >= LARGE_LOST_MAX || (self.timeouts >= 2 && lost > 0)
    }

    /// Whether a full packet was acknowledged since the last call.
    pub(crate) fn take_full_came(&mut self) -> bool {
        core::mem::take(&mut self.full_came)
    }

    fn is_awaiting(&self) -> bool {
        self.spaces.iter().any(SendSpace::is_awaiting)
    }

    /// Tells the trunk what is in flight now. What was sent again after silence while others were answered does not
    /// count: a peer's queue pair that is gone must not take the window from those that are not.
    fn account(&mut self, trunk: &mut Trunk) {
        self.is_shared = trunk.is_shared();
        let counts = if self.has_left || self.is_apart(trunk) { 0 } else { self.units.inflight_bytes() };
        trunk.inflight_bytes = (trunk.inflight_bytes + counts).saturating_sub(self.counted_bytes);
        self.counted_bytes = counts;
    }

    /// Whether silence has set it apart from the others of the trunk: one packet at a time, whatever the window.
    fn is_apart(&self, trunk: &Trunk) -> bool {
        self.timeouts > 0 && trunk.is_shared()
    }

    pub(crate) fn leave(&mut self, trunk: &mut Trunk) {
        if !core::mem::replace(&mut self.has_left, true) {
            self.account(trunk);
            trunk.leave();
        }
    }

    pub(crate) fn waits_for_window(&self) -> bool {
        self.waits
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.probe_due || self.timeouts > 0
    }

    pub(crate) fn may_send(&self) -> bool {
        self.probe_due || self.spaces.iter().any(SendSpace::has_more)
    }

    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.units.inflight_bytes() > 0
    }

    /// Whether the peer owes an answer. It does not if nothing is in flight and more is to be sent: then it is our turn
    /// that is waited for.
    fn is_owed(&self) -> bool {
        let waits_for_turn = self.is_shared && self.timeouts == 0 && self.units.inflight_bytes() == 0;
        let window = self.peer_window_packets;
        self.is_awaiting() && !(waits_for_turn && self.spaces.iter().any(|space| space.has_to_send(window)))
    }

    pub(crate) fn snapshot(&self, config: &Config, trunk: &Trunk) -> Snapshot {
        Snapshot {
            inflight_bytes: self.units.inflight_bytes(),
            window_bytes: trunk.congestion.window_bytes(),
            peer_free_bytes: trunk.free_bytes,
            rtt: self.rtt.smoothed(),
            rtt_min: trunk.rtt_floor.value(),
            queueing_delay: trunk.delay(),
            rto: self.detector.rto(&self.rtt, config),
            paths_suspected: self.paths.suspected(),
            messages_waiting: self.spaces.iter().map(SendSpace::message_count).sum(),
            ahead_packets: 0,
        }
    }

    pub(crate) fn ack_path(&mut self) -> PathId {
        self.paths.next_for_ack()
    }

    // --- sending -----------------------------------------------------------------------------

    pub(crate) fn poll_unit(
        &mut self,
        now: Now,
        config: &Config,
        trunk: &mut Trunk,
        obs: &mut impl Observer,
    ) -> Option<Unit> {
        self.waits = false;
        let unit = self.next_unit(now, config, trunk, obs);
        self.account(trunk);
        unit
    }

    fn next_unit(
        &mut self,
        now: Now,
        config: &Config,
        trunk: &Trunk,
        obs: &mut impl Observer,
    ) -> Option<Unit> {
        let payload_bytes = self.payload_bytes?;
        self.end_pause(now);
        if self.refused_at.is_some_and(|at| now <= at) || !self.units.has_room() {
            return None;
        }
        self.refused_at = None;
        if self.probe_due {
            self.probe_due = false;
            if let Some(unit) = self.send_probe(now, config, obs) {
                return Some(unit);
            }
        }
        let (space, first, again) = self.choose()?;
        let packet_cost = self.header_bytes + config.packet_overhead_bytes;
        let apart = self.is_apart(trunk);
        let limit = UnitLimit {
            packets: if apart { 1 } else { config.unit_packets_max },
            wire_bytes: u64::from(config.unit_bytes_max),
            header_bytes: self.header_bytes,
            window_bytes: unit_bytes(trunk).max(u64::from(payload_bytes + packet_cost)),
            packet_cost,
            window_packets: self.peer_window_packets,
        };
        let mut run = self.spaces[space].run_from(first, again, &limit)?;
        let charge = u64::from(run.payload_bytes) + u64::from(run.datagrams()) * u64::from(packet_cost);
        self.waits = !apart && self.path_windows.is_none() && !trunk.fits(charge);
        if self.waits || (apart && self.units.inflight_bytes() > 0) {
            return None;
        }
        let (path, probing) = self.next_path(now, run.lost_on, charge, config)?;
        if probing {
            run.cut_to_one();
            return Some(self.send_path_probe(now, space, &run, path, config, obs));
        }
        self.turn = 1 - space;
        let all = u64::MAX >> (64 - u32::from(run.packets));
        Some(self.send(now, space, &run, path, all, 0, config, obs))
    }

    /// Space and first packet of the next unit, and whether it is sent again: what was lost goes
    /// first, then new packets; the spaces take turns.
    fn choose(&mut self) -> Option<(usize, u64, bool)> {
        let order = [self.turn, 1 - self.turn];
        for space in order {
            if let Some(seq) = self.spaces[space].next_lost() {
                return Some((space, seq, true));
            }
        }
        let window = self.peer_window_packets;
        order.into_iter().find_map(|space| Some((space, self.spaces[space].next_new(window)?, false)))
    }

    /// Sends a packet on a path that is held dead, to see, and holds it lost at once: its true transmission, on another
    /// path, comes next. Nobody waits for what a dead path was given.
    fn send_path_probe(
        &mut self,
        now: Now,
        space: usize,
        run: &Run,
        path: PathId,
        config: &Config,
        obs: &mut impl Observer,
    ) -> Unit {
        let unit = self.send(now, space, run, path, 0, 1, config, obs);
        let transmit = self.units.extend(unit.transmit.0);
        self.spaces[space].mark_lost(run.first, transmit, Some(path), RetransmitCause::PathProbe);
        unit
    }

    fn send_probe(&mut self, now: Now, config: &Config, obs: &mut impl Observer) -> Option<Unit> {
        let (space, seq) =
            [0, 1].into_iter().filter_map(|s| Some((s, self.spaces[s].probe_candidate()?))).min_by_key(
                |&(space, seq)| self.spaces[space].is_acked(seq), // rather one that is still unanswered
            )?;
        let run = self.spaces[space].probe_run(seq)?;
        let mut avoid = None;
        if let Some(low) = self.spaces[space].transmit_of(seq) {
            let transmit = self.units.extend(low);
            self.units.settle(transmit, seq);
            if let Some(record) = self.units.get_mut(transmit) {
                record.probed |= 1 << (seq - record.first);
                avoid = Some(record.path);
            }
        }
        let path = self.paths.next_alive(now, avoid);
        let acked = self.spaces[space].is_acked(seq);
        obs.event(now, Event::TailProbe { qpn: self.qpn });
        Some(self.send(now, space, &run, path, u64::from(!acked), u64::from(acked), config, obs))
    }

    fn send(
        &mut self,
        now: Now,
        space: usize,
        run: &Run,
        path: PathId,
        remaining: u64,
        probed: u64,
        config: &Config,
        obs: &mut impl Observer,
    ) -> Unit {
        if !self.is_awaiting() {
            self.progress(now, config);
        } else if self.units.inflight_bytes() == 0 {
            self.rto_from = now;
        }
        self.activity_at = now;
        let packet_cost = self.header_bytes + config.packet_overhead_bytes;
        let which = if space == 0 { Space::Request } else { Space::Response };
        let transmit = self.units.push(UnitRecord {
            space: which,
            path,
            first: run.first,
            packets: run.packets,
            in_parts: run.parts > 1,
            sent: now,
            remaining,
            probed,
            lost_at: None,
            reported: false,
            charge_each: run.each + packet_cost * u32::from(run.parts),
            charge_last: run.last + packet_cost * u32::from(run.parts),
            path_next: NONE,
        });
        self.paths.chain(&mut self.units, path, transmit);
        self.spaces[space].mark_sent(run, transmit);
        let bytes = run.payload_bytes + run.datagrams() * self.header_bytes;
        let (qpn, packets) = (self.qpn, run.packets);
        obs.event(now, Event::UnitSent { qpn, path, packets, bytes, retransmission: run.cause });
        Unit {
            space: which,
            transmit: TransmitId(transmit as u32),
            path,
            first: run.first,
            packets: run.packets,
            retransmission: run.cause.is_some(),
        }
    }

    pub(crate) fn unit_refused(
        &mut self,
        now: Now,
        unit: &Unit,
        config: &Config,
        trunk: &mut Trunk,
        obs: &mut impl Observer,
    ) {
        self.take_back(now, unit, config, obs);
        self.account(trunk);
    }

    fn take_back(&mut self, now: Now, unit: &Unit, config: &Config, obs: &mut impl Observer) {
        self.refused_at = Some(now);
        if config.planted == Some(Planted::LeakRefused) {
            return;
        }
        let transmit = self.units.extend(unit.transmit.0);
        let (mask, _) = self.units.settle_all(transmit);
        let space = &mut self.spaces[unit.space as usize];
        if !unit.retransmission && space.unsend(unit.first, unit.packets) {
            return;
        }
        let mut packets = 0;
        for position in Positions(mask) {
            space.mark_lost(unit.first + position, transmit, None, RetransmitCause::Local);
            packets += 1;
        }
        if packets > 0 {
            let cause = RetransmitCause::Local;
            obs.event(now, Event::UnitLost { qpn: self.qpn, path: unit.path, packets, cause });
        }
    }

    // --- acknowledgements --------------------------------------------------------------------

    pub(crate) fn on_ack(
        &mut self,
        now: Now,
        ack: &Ack,
        config: &Config,
        trunk: &mut Trunk,
        obs: &mut impl Observer,
    ) -> Result<(), BogusAck> {
        let space = ack.space as usize;
        self.spaces[space].check(ack)?;
        if ack.units().iter().any(|unit| self.units.extend(unit.transmit.0) >= self.units.next()) {
            return Err(BogusAck);
        }
        trunk.free_bytes = ack.free_bytes;
        let limited = trunk.inflight_bytes * 2 >= trunk.congestion.window_bytes();
        let skip = usize::from(config.planted == Some(Planted::IgnoreBlock));
        let blocks = ack.blocks().get(skip..).unwrap_or(&[]);
        let sent_before = Now(now.0.saturating_sub(trunk.rtt_floor.value().0));
        let newly =
            self.spaces[space].acknowledge(ack, blocks, sent_before, &mut self.units, &mut self.paths);
        self.newest_acked = self.newest_acked.max(newly.newest);
        self.full_came |= newly.largest >= self.full_charge;
        if newly.largest >= self.large_lost.least_charge {
            self.large_lost = LargeLost::default();
        }
        let mut progress = newly.packets > 0 || newly.landed;
        let mut sample =
            Sample { acked_bytes: newly.bytes, newest_delay: trunk.delay(), limited, ..Sample::default() };
        for report in ack.units() {
            progress |= self.on_report(now, report, ack.path, config, &mut sample, trunk, obs);
        }
        if let Some(transmit) = newly.unlost {
            self.undo(now, transmit, config, trunk, obs);
        }
        if progress {
            self.progress(now, config);
            trunk.progress_at = now;
        }
        if let Some(newest) = self.newest_acked.and_then(|newest| self.units.get(newest)) {
            trunk.answered_sent = trunk.answered_sent.max(newest.sent);
        }
        sample.delay = trunk.delay();
        sample.rtt = self.rtt.smoothed();
        trunk.congestion.on_ack(now, &sample);
        self.detect(now, config, trunk, obs);
        self.forget(now, config);
        self.account(trunk);
        self.tell_window(now, trunk, obs);
        Ok(())
    }

    /// Something was answered: whatever waited for an answer starts anew.
    pub(crate) fn progress(&mut self, now: Now, config: &Config) {
        self.progress_at = now;
        self.rto_from = now;
        self.activity_at = now;
        if config.planted != Some(Planted::KeepBackoff) {
            self.timeouts = 0;
        }
        self.probes = 0;
        self.probe_due = false;
        self.deferred = false;
    }

    /// One unit as the peer received it. Returns whether that was news.
    fn on_report(
        &mut self,
        now: Now,
        report: &srdma_wire::AckUnit,
        ack_path: PathId,
        config: &Config,
        sample: &mut Sample,
        trunk: &mut Trunk,
        obs: &mut impl Observer,
    ) -> bool {
        let transmit = self.units.extend(report.transmit.0);
        let Some(record) = self.units.get_mut(transmit) else { return false };
        if record.path != report.path {
            return false;
        }
        let first_report = !core::mem::replace(&mut record.reported, true);
        record.probed = 0;
        let record = *record;
        let packets = report.packets.min(record.packets);
        let ce = report.ce.min(packets);
        let trip = now.since(record.sent + Duration::from_micros(u64::from(report.delay_us)));
        self.newest_acked = self.newest_acked.max(Some(transmit));
        self.paths.note_acked(&self.units, transmit);
        let Some(path) = self.paths.get_mut(record.path) else { return false };
        if first_report {
            let delay = self.rtt.sample(now, &mut path.rtt, &mut trunk.rtt_floor, trip);
            trunk.delayed(delay);
            if sample.packets == 0 {
                sample.newest_delay = delay;
            }
            self.hear_path(now, &record, (packets, ce), trip, delay);
            let credited = if config.planted == Some(Planted::EcnToAckPath) { ack_path } else { record.path };
            let health = self.paths.delivered(credited, ce, delay);
            self.tell_health(now, credited, health, obs);
        }
        sample.packets += u32::from(packets);
        sample.ce += u32::from(ce);
        obs.event(now, Event::UnitAcked { qpn: self.qpn, path: record.path, packets, ce, rtt: trip });
        if record.lost_at.is_some() {
            self.undo(now, transmit, config, trunk, obs);
        }
        // One part of a packet that came says little: others may never come through.
        first_report && !record.in_parts && u64::from(record.charge_each) <= self.full_charge
    }

    /// Packets of `transmit` were held lost and arrived after all.
    fn undo(&mut self, now: Now, transmit: u64, config: &Config, trunk: &mut Trunk, obs: &mut impl Observer) {
        let Some(record) = self.units.get_mut(transmit) else { return };
        if record.lost_at.take().is_none() || config.planted == Some(Planted::NoUndo) {
            return;
        }
        let path = record.path;
        self.detector.undone();
        trunk.congestion.undo(now);
        if let Some(windows) = &mut self.path_windows {
            windows.undo(now, path);
        }
        obs.event(now, Event::LossUndone { qpn: self.qpn, path });
        let health = self.paths.answered(path);
        self.tell_health(now, path, health, obs);
    }

    // --- loss --------------------------------------------------------------------------------

    /// Finds what is lost by now, and when to look again. Between deadlines only paths of which
    /// something was acknowledged can have changed.
    fn detect(&mut self, now: Now, config: &Config, trunk: &mut Trunk, obs: &mut impl Observer) {
        if self.loss_deadline.is_some_and(|at| now >= at) {
            self.loss_deadline = None;
            for index in 0..config.paths {
                self.detect_by_path_order(now, PathId(index), trunk, obs);
            }
        }
        while let Some(path) = self.paths.take_touched() {
            self.detect_by_path_order(now, path, trunk, obs);
        }
        self.detect_by_age(now, config, trunk, obs);
    }

    fn detect_by_path_order(&mut self, now: Now, id: PathId, trunk: &mut Trunk, obs: &mut impl Observer) {
        while let Some(path) = self.paths.get_mut(id) {
            let head = path.head;
            let Some(record) = self.units.get(head) else {
                path.head = NONE;
                return;
            };
            if !record.is_live() {
                path.head = record.path_next;
                continue;
            }
            if path.newest_acked < Some(head) {
                return;
            }
            let deadline = self.detector.path_order_deadline(record, &path.rtt, &self.rtt);
            if now < deadline {
                self.look_again(deadline);
                return;
            }
            self.declare_lost(now, head, RetransmitCause::PathOrder, trunk, obs);
        }
    }

    fn detect_by_age(&mut self, now: Now, config: &Config, trunk: &mut Trunk, obs: &mut impl Observer) {
        let Some(newest) = self.newest_acked else { return };
        let mut from = 0;
        while let Some(transmit) = self.units.next_live(from).filter(|&transmit| transmit < newest) {
            from = transmit + 1;
            let Some(record) = self.units.get(transmit) else { return };
            let Some(path) = self.paths.get(record.path) else { return };
            let deadline = self.detector.age_deadline(record, &path.rtt, &self.rtt, config);
            if now >= deadline {
                self.declare_lost(now, transmit, RetransmitCause::Age, trunk, obs);
                continue;
            }
            let measured = path.rtt.latest.is_some();
            self.look_again(deadline);
            if measured {
                // Later ones were sent later, and none has a shorter time than a measured path.
                return;
            }
        }
    }

    fn look_again(&mut self, deadline: Now) {
        self.loss_deadline = Some(self.loss_deadline.map_or(deadline, |at| at.min(deadline)));
    }

    fn declare_lost(
        &mut self,
        now: Now,
        transmit: u64,
        cause: RetransmitCause,
        trunk: &mut Trunk,
        obs: &mut impl Observer,
    ) {
        let Some(record) = self.units.get_mut(transmit) else { return };
        record.lost_at = Some(now);
        let record = *record;
        let (mask, _) = self.units.settle_all(transmit);
        for position in Positions(mask) {
            let seq = record.first + position;
            self.spaces[record.space as usize].mark_lost(seq, transmit, Some(record.path), cause);
        }
        let packets = mask.count_ones() as u8;
        self.note_large_lost(&record, (mask | record.probed).count_ones() as u8);
        let all = u64::MAX >> (64 - u32::from(record.packets));
        if packets > 0 {
            obs.event(now, Event::UnitLost { qpn: self.qpn, path: record.path, packets, cause });
            if cause != RetransmitCause::Rto {
                trunk.congestion.on_loss(now, u32::from(packets));
                if let Some(windows) = &mut self.path_windows {
                    windows.on_loss(now, record.path, packets.into());
                }
                self.detector.lost();
            }
        }
        if !record.reported && (mask | record.probed) == all {
            // Silence of everything says nothing about one path.
            let silence = self.newest_acked.is_none_or(|newest| newest < transmit);
            let health = self.paths.lost(now, record.path, silence);
            self.tell_health(now, record.path, health, obs);
        }
    }

    fn note_large_lost(&mut self, record: &UnitRecord, packets: u8) {
        let charge = u64::from(record.charge_each);
        if charge > self.small_charge && packets > 0 && !record.in_parts {
            let lost = &mut self.large_lost;
            lost.least_charge = if lost.packets == 0 { charge } else { lost.least_charge.min(charge) };
            lost.packets = lost.packets.saturating_add(packets);
        }
    }

    fn tell_health(&self, now: Now, path: PathId, health: Health, obs: &mut impl Observer) {
        match health {
            Health::Same => {}
            Health::Suspected => obs.event(now, Event::PathSuspected { qpn: self.qpn, path }),
            Health::Restored => obs.event(now, Event::PathRestored { qpn: self.qpn, path }),
        }
    }

    fn tell_window(&mut self, now: Now, trunk: &Trunk, obs: &mut impl Observer) {
        let shared = || trunk.congestion.window_bytes();
        let bytes = self.path_windows.as_ref().map_or_else(shared, PathWindows::sum);
        if bytes.abs_diff(self.told_window) > self.told_window / 16 {
            self.told_window = bytes;
            obs.event(now, Event::Window { qpn: self.qpn, bytes });
        }
    }

    /// Bytes of memory that grow with what is in flight.
    pub(crate) fn bytes(&self) -> usize {
        let windows = self.path_windows.as_ref().map_or(0, PathWindows::bytes);
        self.units.bytes() + windows + self.spaces.iter().map(SendSpace::bytes).sum::<usize>()
    }

    /// Gives memory back that what is in flight does not need.
    pub(crate) fn fit(&mut self, now: Now, config: &Config) {
        match self.units.oldest_live() {
            Some(_) => self.forget(now, config),
            // All is settled, and what is late by now will not come.
            None => self.forget_before(now),
        }
        self.units.fit();
        self.spaces.iter_mut().for_each(SendSpace::fit);
    }

    /// Drops records that no late report can need any more.
    fn forget(&mut self, now: Now, config: &Config) {
        let keep = self.detector.rto(&self.rtt, config) * 4;
        self.forget_before(Now(now.0.saturating_sub(keep.0)));
    }

    fn forget_before(&mut self, long_ago: Now) {
        while let Some((transmit, record)) = self.units.oldest_forgettable(long_ago) {
            self.paths.unchain(record.path, transmit, record.path_next);
            self.units.forget_oldest();
        }
    }

    // --- receiver not ready ------------------------------------------------------------------

    pub(crate) fn pause(
        &mut self,
        now: Now,
        msn: u32,
        wait: Duration,
        config: &Config,
        trunk: &mut Trunk,
    ) -> bool {
        let was_sent = self.spaces[0].hold(msn, &mut self.units);
        if self.spaces[0].hold_from != u64::MAX {
            self.paused_until = self.paused_until.max(Some(now + wait));
        }
        if was_sent {
            self.progress(now, config);
        }
        self.account(trunk);
        was_sent
    }

    fn end_pause(&mut self, now: Now) {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            self.spaces[0].hold_from = u64::MAX;
            self.progress_at = now;
            self.rto_from = now;
            self.activity_at = now;
        }
    }
}

/// Window bytes of the largest unit.
fn unit_bytes(trunk: &Trunk) -> u64 {
    let (network, socket) = (trunk.congestion.window_bytes(), u64::from(trunk.free_bytes));
    if socket < network / 2 {
        socket / UNITS_PER_SOCKET
    } else {
        network.min(socket) / UNITS_PER_WINDOW
    }
}

/// Positions of the ones in a mask.
struct Positions(u64);

impl Iterator for Positions {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        (self.0 != 0).then(|| {
            let position = self.0.trailing_zeros();
            self.0 &= self.0 - 1;
            u64::from(position)
        })
    }
}
