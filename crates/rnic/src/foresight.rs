//! Where payloads will go, asked before their packets have been taken out of the socket.
//!
//! A world that can receive straight into memory looks at the first header of a burst and asks here. The answer is
//! binding on nobody: the packets are still classified, checked and accepted one by one when they have come, and a
//! world must be able to bring a payload back that belongs elsewhere after all. But bytes are written before that
//! check, so the answer is "nowhere" unless every one of the following holds, and then whatever the packets turn out to
//! be, only bytes of a message change that are still to arrive and that the peer may write:
//!
//! * all of the packets would be new: none was received, all lie in the window;
//! * connection, address and state of the queue pair are right, the message is open and nothing before it is refused;
//! * key, bounds and rights allow the whole message, and the bytes lie in one piece of host memory;
//! * the packets may be placed out of order: never the last one of a WRITE, never under `Order::Strict`;
//! * no later WRITE that came earlier has written there;
//! * no held packet may be released by what was taken before and is not yet seen: its bytes would be copied later than
//!   these, although they may belong to an earlier message.

use core::net::SocketAddr;

use srdma_abi::control::LIMITS;
use srdma_memory::{AddressSpace, Rights, Segment};
use srdma_seams::{ids::extend, Now, Observer};
use srdma_wire::{Data, Op, Space};

use crate::authz::{self, Target};
use crate::cx::{Cx, Shared};
use crate::nic::Nic;
use crate::ordering::Kind;
use crate::qp::Qp;
use crate::scatter::SgeList;
use crate::world::World;
use crate::Order;

/// A burst that waits: packets of equal length that were sent together, of which only the first was looked at.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// Sender.
    pub from: SocketAddr,
    /// Header of the first packet.
    pub first: &'a Data,
    /// Payload bytes of each packet.
    pub payload_bytes: u32,
    /// Packets of just that length.
    pub packets: u32,
    /// Other datagrams were taken before it whose packets `rnic` has not seen yet.
    pub behind_others: bool,
}

/// One piece of memory, or less than a packet's worth of one.
pub(crate) type Place = Option<Segment>;

impl Nic {
    /// The host memory where the payloads of the first packets of a burst belong, one after the other: a
    /// whole number of them, at most `burst.packets`. `None`: the packets must be looked at first.
    ///
    /// A SEND's receive may be taken from its ring by this, as its first packet would do.
    pub fn foresee(
        &mut self,
        now: Now,
        burst: &Waiting<'_>,
        world: &mut impl World,
        obs: &mut impl Observer,
    ) -> Option<(u64, u32)> {
        let qp = self.qps.find_mut(burst.first.dest_qpn)?;
        let packets = qp.packets_to_come(burst)?;
        let fit = |bytes: u32| bytes - bytes % burst.payload_bytes;
        let bytes = burst.payload_bytes.checked_mul(packets)?;
        let cx = &mut Cx { now, world, obs, shared: &mut self.shared };
        let place = qp.place_to_come(cx, burst, bytes)?;
        (place.space == AddressSpace::Host && fit(place.length) > 0)
            .then(|| (place.address, fit(place.length)))
    }
}

impl Qp {
    /// Where `bytes` bytes of the packets belong, or as many of them as lie in one piece.
    pub(crate) fn place_to_come<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        burst: &Waiting<'_>,
        bytes: u32,
    ) -> Place {
        match burst.first.op {
            Op::Write { address, rkey } => self.write_to_come(cx.shared, burst, (address, rkey), bytes),
            Op::Send { receive, .. } => self.send_to_come(cx, burst, receive, bytes),
            Op::ReadResponse { request } => self.answer_to_come(cx.shared, burst, request, bytes),
            _ => None,
        }
    }

    /// How many of the packets would be new, if they are what the first one says.
    pub(crate) fn packets_to_come(&self, burst: &Waiting<'_>) -> Option<u32> {
        let Waiting { from, first, payload_bytes, packets, behind_others } = *burst;
        let expected = self.is_running()
            && !(behind_others && self.responder.tracker.holds_any())
            && payload_bytes > 0
            && first.connection == self.connection
            && first.payload_crc.is_none()
            && first.part.is_none()
            && self.peer.is_some_and(|peer| peer.ip() == from.ip());
        let conn = self.conn.as_ref().filter(|_| expected)?;
        Some(conn.new_run(first.op.space(), first.psn, packets)).filter(|&packets| packets > 0)
    }

    /// Bytes that a message still lacks from the packet's offset on, if the packet may belong to it.
    fn request_to_come(&self, burst: &Waiting<'_>, kind: Kind) -> Option<u32> {
        let (conn, wanted) = (self.conn.as_ref()?, burst.first.message);
        let msn = conn.msn_of(Space::Request, wanted.msn);
        let length = wanted.length;
        let lacks = match self.responder.tracker.look_up(msn).ok()? {
            Some(message) if message.arrived => {
                if message.kind != Some(kind) || message.length != length {
                    return None;
                }
                length.checked_sub(message.accepted)?
            }
            _ => length,
        };
        (length <= LIMITS.max_msg_bytes).then(|| length.saturating_sub(wanted.offset).min(lacks))
    }

    fn write_to_come(
        &self,
        shared: &Shared,
        burst: &Waiting<'_>,
        (address, rkey): (u64, u32),
        bytes: u32,
    ) -> Place {
        let offset = burst.first.message.offset;
        let start = address.wrapping_sub(u64::from(offset));
        let kind = Kind::Write { address: start, rkey, imm: None };
        // Less than all that is left: the last packet has to wait for those before it.
        let bytes = bytes.min(self.request_to_come(burst, kind)?.checked_sub(1)?);
        if shared.config.order == Order::Strict {
            return None;
        }
        let target = Target { rkey, address: start, length: burst.first.message.length };
        let access = self.attributes.access;
        let whole =
            authz::remote(&shared.memory, self.asker, access, &target, Rights::REMOTE_WRITE).ok()?.segment;
        let from = whole.address.checked_add(u64::from(offset))?;
        let range = (from, from + u64::from(bytes));
        let place = Segment { space: whole.space, address: from, length: bytes };
        self.responder.is_untouched(whole.space, range).then_some(place)
    }

    fn send_to_come<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        burst: &Waiting<'_>,
        receive: u32,
        bytes: u32,
    ) -> Place {
        let Op::Send { imm, .. } = burst.first.op else { return None };
        let receive = extend(self.responder.receives.next(), receive);
        let bytes = bytes.min(self.request_to_come(burst, Kind::Send { receive, imm })?);
        let room = self.bind(cx, receive).ok()?;
        if u64::from(burst.first.message.length) > room || cx.shared.config.order == Order::Strict {
            return None;
        }
        let recv = self.responder.receives.get(receive)?;
        self.scattered(cx.shared, &recv.sges, burst.first.message.offset, bytes)
    }

    fn answer_to_come(&self, shared: &Shared, burst: &Waiting<'_>, request: u32, bytes: u32) -> Place {
        let (offset, length) = (burst.first.message.offset, burst.first.message.length);
        let (sges, lacks) = self.requester.answer_to_come(request, length)?;
        let bytes = bytes.min(length.saturating_sub(offset)).min(lacks);
        self.scattered(shared, sges, offset, bytes)
    }

    /// The piece of memory that bytes of a message begin in.
    fn scattered(&self, shared: &Shared, sges: &SgeList, offset: u32, bytes: u32) -> Place {
        let part = sges.parts(offset, bytes).next()?;
        authz::local(&shared.memory, self.asker, &part, Rights::LOCAL_WRITE).ok()
    }
}

/// Whether `header` is that of the packet `index` places after `first` in one message whose packets carry
/// `payload_bytes` each: only then do its bytes belong where [`Nic::foresee`] said.
pub fn follows(first: &Data, header: &Data, index: u32, payload_bytes: u32) -> bool {
    let ahead = u64::from(index) * u64::from(payload_bytes);
    let is_next = match (header.op, first.op) {
        (Op::Write { address, rkey }, Op::Write { address: start, rkey: key }) => {
            (address, rkey) == (start.wrapping_add(ahead), key)
        }
        // SENDs may differ in what they say beside.
        (Op::Send { receive, imm, .. }, Op::Send { receive: first_receive, imm: first_imm, .. }) => {
            (receive, imm) == (first_receive, first_imm)
        }
        (op, first_op) => op == first_op,
    };
    let (message, start) = (&header.message, &first.message);
    is_next
        && header.psn == first.psn.wrapping_add(index)
        && header.connection == first.connection
        && header.dest_qpn == first.dest_qpn
        && (message.msn, message.length) == (start.msn, start.length)
        && u64::from(message.offset) == u64::from(start.offset) + ahead
        && header.payload_crc == first.payload_crc
        && header.part == first.part
}
