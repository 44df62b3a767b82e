//! Which messages of the peer are open, which have landed, and which payloads wait for others.
//!
//! Three message numbers move through the request space: `landed` (everything before it is delivered
//! to the program), `head` (everything before it has been handed to the mover; the copies may still
//! wait in the batch), and the highest message of which a packet has come. Between `landed` and the
//! last there is one [`Message`] each.
//!
//! # Ordering
//!
//! | order | a packet that is not the very next in order is |
//! |---|---|
//! | strict | held |
//! | default | placed, unless it is the last of a WRITE to a region without RELAXED_ORDERING: held |
//! | relaxed | placed |
//!
//! A held packet is released when it is the very next: its message is the oldest open one and every
//! other byte of it before this packet is placed. Completions, READs and atomics always wait for
//! `head`.
//!
//! What is *not* promised is what IBTA 10.8.3.3 leaves to fences: a READ or atomic may see, and an
//! atomic may be mixed with, bytes of a *later* WRITE to the same place that is not fenced and not its
//! message's last packet. And a receive that ends flushed may have been written to.

use alloc::collections::{BTreeMap, VecDeque};

use srdma_wire::NakCode;

use crate::world::{AtomicOp, HoldSlot};

/// Messages ahead of the last landed one that may be open.
pub(crate) const OPEN_MAX: u64 = 32_768;

/// What a message of the peer does; the same for all its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// WRITE; with immediate it consumes a receive.
    Write {
        /// First byte of the whole message.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Immediate and number of the receive.
        imm: Option<(u32, u64)>,
    },
    /// SEND into receive number `receive`.
    Send {
        /// Counted from 0 for each connection, 64 bits.
        receive: u64,
        /// Immediate.
        imm: Option<u32>,
    },
    /// READ request.
    Read {
        /// First byte.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Bytes.
        length: u32,
    },
    /// Atomic request.
    Atomic {
        /// First byte.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// What to do.
        op: AtomicOp,
    },
}

impl Kind {
    /// The receive that the message consumes.
    pub fn receive(&self) -> Option<u64> {
        match *self {
            Kind::Write { imm, .. } => imm.map(|(_, receive)| receive),
            Kind::Send { receive, .. } => Some(receive),
            _ => None,
        }
    }

    /// Whether the message is carried out when its turn comes, not when it arrives.
    pub fn is_executed(&self) -> bool {
        matches!(self, Kind::Read { .. } | Kind::Atomic { .. })
    }
}

/// A message of the peer that is not yet delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Message {
    /// What it does, once a packet of it has come.
    pub kind: Option<Kind>,
    /// Bytes as transported.
    pub length: u32,
    /// Bytes accepted: placed or held.
    pub accepted: u32,
    /// Bytes placed, or queued for the mover.
    pub placed: u32,
    /// At least one packet was accepted.
    pub arrived: bool,
    /// Raise a solicited event.
    pub solicited: bool,
    /// Packet number of the (only) packet of a READ or atomic request.
    pub seq: u64,
    /// It met no posted receive.
    pub starved: bool,
    /// It is to be refused when its turn comes.
    pub error: Option<NakCode>,
    /// Why its receive fails locally, if that is the reason.
    pub local: Option<srdma_abi::Cause>,
}

impl Message {
    /// Whether every byte is placed and nothing speaks against it.
    fn is_placed(&self) -> bool {
        self.arrived && self.placed == self.length && self.error.is_none()
    }
}

/// A held packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Its message.
    pub msn: u64,
    /// Offset of its payload.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
    /// Where the world keeps them.
    pub slot: HoldSlot,
}

/// All open messages of one peer.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    landed: u64,
    head: u64,
    open: VecDeque<Message>,
    /// By packet number and offset: a packet may come in parts.
    pieces: BTreeMap<(u64, u32), Piece>,
    first_error: Option<u64>,
}

/// Why there is no such open message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOpen {
    /// It has landed.
    Landed,
    /// It is more than [`OPEN_MAX`] ahead.
    Beyond,
    /// It is, or comes after, a message that will be refused.
    Refused,
}

impl Tracker {
    /// Nothing has come; the first message is number `first_msn`.
    pub fn new(first_msn: u64) -> Tracker {
        Tracker { landed: first_msn, head: first_msn, ..Tracker::default() }
    }

    /// Every message before this one is delivered.
    pub fn landed(&self) -> u64 {
        self.landed
    }

    /// Bytes of memory of the list of open messages.
    pub fn bytes(&self) -> usize {
        self.open.capacity() * size_of::<Message>()
    }

    /// Gives memory back that the open messages do not need.
    pub fn fit(&mut self) {
        self.open.shrink_to_fit();
    }

    /// Every message before this one is in the mover's hands.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The entry of message `msn`, made if need be.
    pub fn open(&mut self, msn: u64) -> Result<&mut Message, NotOpen> {
        if self.first_error.is_some_and(|first| msn >= first) {
            return Err(NotOpen::Refused);
        }
        if msn < self.head {
            return Err(NotOpen::Landed);
        }
        let position = msn - self.landed;
        if position >= OPEN_MAX {
            return Err(NotOpen::Beyond);
        }
        let position = position as usize;
        while self.open.len() <= position {
            self.open.push_back(Message::default());
        }
        Ok(&mut self.open[position])
    }

    /// The entry of message `msn`, if it is open or might be opened.
    pub fn look_up(&self, msn: u64) -> Result<Option<&Message>, NotOpen> {
        if self.first_error.is_some_and(|first| msn >= first) {
            return Err(NotOpen::Refused);
        }
        if msn < self.head {
            return Err(NotOpen::Landed);
        }
        match msn - self.landed {
            position if position >= OPEN_MAX => Err(NotOpen::Beyond),
            position => Ok(self.open.get(position as usize)),
        }
    }

    /// The entry of message `msn`, if a packet of it or of a later message has come.
    pub fn get_mut(&mut self, msn: u64) -> Option<&mut Message> {
        let position = msn.checked_sub(self.landed)?;
        self.open.get_mut(usize::try_from(position).ok()?)
    }

    /// The oldest message that is not in the mover's hands, if a packet of it or of a later one came.
    pub fn head_message(&mut self) -> Option<&mut Message> {
        self.get_mut(self.head)
    }

    /// Whether bytes at `offset` of `msn` are the very next in order.
    pub fn is_next(&self, msn: u64, offset: u32) -> bool {
        let position = (self.head - self.landed) as usize;
        msn == self.head && self.open.get(position).is_some_and(|message| message.placed == offset)
    }

    /// Keeps a packet for later.
    pub fn hold(&mut self, seq: u64, piece: Piece) {
        self.pieces.insert((seq, piece.offset), piece);
    }

    /// The held packet that is the very next in order, if there is one.
    pub fn release(&mut self) -> Option<(u64, Piece)> {
        let (&(seq, offset), &piece) = self.pieces.first_key_value()?;
        if self.first_error == Some(self.head) || !self.is_next(piece.msn, piece.offset) {
            return None;
        }
        self.pieces.remove(&(seq, offset));
        Some((seq, piece))
    }

    /// Whether any packet is held.
    pub fn holds_any(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Any held packet, when all are to be given back.
    pub fn pop_piece(&mut self) -> Option<Piece> {
        self.pieces.pop_first().map(|(_, piece)| piece)
    }

    /// Moves `head` past the oldest open message if it is wholly placed and needs no carrying out.
    pub fn advance(&mut self) -> bool {
        let Some(message) = self.head_message() else { return false };
        if !message.is_placed() || message.kind.is_none_or(|kind| kind.is_executed()) {
            return false;
        }
        self.head += 1;
        true
    }

    /// Takes the oldest message that is in the mover's hands but not yet delivered.
    pub fn deliver(&mut self) -> Option<Message> {
        if self.landed == self.head {
            return None;
        }
        let message = self.open.pop_front()?;
        self.landed += 1;
        Some(message)
    }

    /// The oldest open message, a READ or atomic, was carried out.
    pub fn executed(&mut self) {
        debug_assert_eq!(self.head, self.landed);
        if self.open.pop_front().is_some() {
            self.head += 1;
            self.landed += 1;
        }
    }

    /// Message `msn` will be refused with `code` when its turn comes; nothing of it or after it is
    /// taken from here on. `local` is why its own receive fails, if that is the reason.
    pub fn refuse(&mut self, msn: u64, code: NakCode, local: Option<srdma_abi::Cause>) {
        let Some(message) = self.get_mut(msn) else { return };
        if message.error.is_none() {
            message.error = Some(code);
            message.local = local;
        }
        self.head = self.head.min(msn);
        self.first_error = Some(self.first_error.map_or(msn, |first| first.min(msn)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(tracker: &mut Tracker, msn: u64, length: u32, placed: u32) {
        let message = tracker.open(msn).expect("open");
        message.kind = Some(Kind::Write { address: 0, rkey: 0, imm: None });
        message.length = length;
        message.arrived = true;
        message.placed += placed;
    }

    #[test]
    fn messages_are_delivered_in_order_only() {
        let mut tracker = Tracker::new(7);
        write(&mut tracker, 8, 4, 4);
        assert!(!tracker.advance());
        write(&mut tracker, 7, 8, 4);
        assert!(!tracker.advance(), "half a message is none");
        write(&mut tracker, 7, 8, 4);
        assert!(tracker.advance() && tracker.advance() && !tracker.advance());
        assert!(tracker.deliver().is_some() && tracker.deliver().is_some());
        assert!(tracker.deliver().is_none());
        assert_eq!((tracker.landed(), tracker.head()), (9, 9));
    }

    #[test]
    fn a_held_packet_comes_out_when_it_is_the_very_next() {
        let mut tracker = Tracker::new(0);
        write(&mut tracker, 1, 8, 0);
        tracker.hold(11, Piece { msn: 1, offset: 4, length: 4, slot: HoldSlot(1) });
        assert!(tracker.release().is_none());
        write(&mut tracker, 0, 0, 0);
        assert!(tracker.advance());
        assert!(tracker.release().is_none(), "its message lacks bytes before it");
        write(&mut tracker, 1, 8, 4);
        assert_eq!(tracker.release().map(|(seq, piece)| (seq, piece.slot)), Some((11, HoldSlot(1))));
    }

    #[test]
    fn nothing_after_a_refused_message_opens_and_a_fault_takes_the_head_back() {
        let mut tracker = Tracker::new(0);
        for msn in 0..3 {
            write(&mut tracker, msn, 1, 1);
            assert!(tracker.advance());
        }
        tracker.refuse(1, NakCode::Fault, None);
        assert_eq!(tracker.head(), 1);
        assert!(tracker.deliver().is_some() && tracker.deliver().is_none());
        assert!(!tracker.advance(), "a refused message never lands");
        assert_eq!(tracker.open(2).err(), Some(NotOpen::Refused));
        assert_eq!(tracker.head_message().and_then(|message| message.error), Some(NakCode::Fault));
    }

    #[test]
    fn the_number_of_open_messages_is_bounded() {
        let mut tracker = Tracker::new(5);
        assert!(tracker.open(5 + OPEN_MAX - 1).is_ok());
        assert_eq!(tracker.open(5 + OPEN_MAX).err(), Some(NotOpen::Beyond));
        assert_eq!(tracker.open(4).err(), Some(NotOpen::Landed));
    }
}
