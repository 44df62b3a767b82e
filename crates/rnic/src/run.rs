//! Packets of one message that came together and whose payloads lie where they belong already, taken as one.
//!
//! A burst of bulk traffic is dozens of packets that say the same but for a number and an offset. Where the world has
//! put their payloads in place on the word of [`Nic::foresee`](crate::Nic::foresee), nothing is left to do for each of
//! them: that word is asked for once more, now that all headers were read, and if it still is the same, the
//! whole run is received, acknowledged and counted in one step. In every other case its packets are taken one by one.

use srdma_seams::event::DropCause;
use srdma_seams::{Event, Observer};
use srdma_wire::{Data, Op, Space};

use crate::batch::{Arrived, Run, Says};
use crate::cx::Cx;
use crate::foresight::Waiting;
use crate::ordering::Kind;
use crate::qp::Qp;
use crate::world::World;

impl Qp {
    /// A packet or a run for this queue pair came.
    pub(crate) fn take<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, arrived: &Arrived<'_>) {
        match arrived.says {
            Says::Run(first, run) if self.on_run(cx, arrived, first, run) => {}
            Says::Run(first, run) => {
                for (header, payload) in arrived.packets(first, run) {
                    self.on_packet(cx, &arrived.with(&header, payload));
                }
            }
            _ => self.on_packet(cx, arrived),
        }
    }

    /// Takes a whole run. False: nothing has happened, its packets are to be taken one by one.
    pub(crate) fn on_run<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        arrived: &Arrived<'_>,
        first: &Data,
        run: Run,
    ) -> bool {
        let payload_bytes = arrived.payload.length;
        let (Some(bytes), packets) = (payload_bytes.checked_mul(run.packets), run.packets) else {
            return false;
        };
        let waiting = Waiting { from: arrived.from, first, payload_bytes, packets, behind_others: false };
        let place = match self.packets_to_come(&waiting) {
            Some(new) if new == packets => self.place_to_come(cx, &waiting, bytes),
            _ => None,
        };
        if place.is_none_or(|place| (place.address, place.length) != (run.address, bytes)) {
            return false;
        }
        let Some(conn) = &mut self.conn else { return false };
        let Some((seq, msn)) = conn.arrival_run(cx.now, first, packets, arrived.ce) else { return false };
        self.hear_landed(cx, first);
        self.notice_established(cx);
        match first.op {
            Op::ReadResponse { request } => self.requester.answer_came(request, bytes),
            _ => self.accept_requests(cx, first, (msn, bytes), run.address),
        }
        let (qpn, path) = (self.qpn, first.unit.path);
        let ahead = self.ahead(first.op.space(), seq, packets);
        cx.event(Event::Received { qpn, path, packets, bytes, ahead });
        true
    }

    /// Notes bytes of a WRITE or SEND as placed.
    fn accept_requests<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        first: &Data,
        (msn, bytes): (u64, u32),
        address: u64,
    ) {
        let kind = self.kind_of(first);
        // It was found, or could be made, when the place was asked for.
        let Ok(message) = self.responder.tracker.open(msn) else { return };
        message.kind = Some(kind);
        message.length = first.message.length;
        message.solicited |= first.solicited;
        if matches!(kind, Kind::Write { .. }) {
            self.note_written(cx, msn, (address, address + u64::from(bytes)));
        }
        self.mark(msn, bytes, false);
        self.advance(cx);
    }

    /// What the packet says of our requests.
    pub(crate) fn hear_landed<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, data: &Data) {
        let (Some(landed), Some(conn)) = (data.op.landed(), &mut self.conn) else { return };
        if conn.on_landed(cx.now, landed, cx.shared.peers.trunk(self.peer_index), cx.obs).is_err() {
            cx.dropped(self.qpn, DropCause::BogusAck);
        }
    }

    /// Packets from `seq` on, `packets` of them, have been accepted: how many lie between the first and the first one
    /// that is missing. Transport moves its count only with an ACK, so runs within a batch are followed here.
    pub(crate) fn ahead(&mut self, space: Space, seq: u64, packets: u32) -> u32 {
        let acked = self.conn.as_ref().map_or(0, |conn| conn.received_before(space));
        let next = &mut self.next_seq[space as usize];
        *next = (*next).max(acked);
        let ahead = seq.saturating_sub(*next);
        if ahead == 0 {
            *next = seq + u64::from(packets);
        }
        ahead.min(u64::from(u32::MAX)) as u32
    }
}
