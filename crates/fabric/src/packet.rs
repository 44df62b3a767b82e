//! What flies: headers as values, and where the payload came from. Places are used again.

use alloc::boxed::Box;
use alloc::vec::Vec;

use srdma_wire::{Ack, Data, Packet};

use crate::acks::{AckPlace, Acks};

use crate::loss::Fate;

/// Payload of a packet as its origin: bytes of a host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Whose memory.
    pub host: u32,
    /// First byte.
    pub address: u64,
}

/// A header. Nearly all are data and ACKs.
#[derive(Clone, Debug)]
pub(crate) enum Header {
    Data(Data),
    Ack(AckPlace),
    Other(Box<Packet>),
    /// Of a data packet that a switch has cut the payload off.
    Trimmed(Data),
    /// The place is free.
    None,
}

/// What hosts know of a packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Cargo {
    pub header: Header,
    pub from: u32,
    pub source_port: u16,
    /// Payload bytes, and where they come from.
    pub payload_bytes: u32,
    pub address: u64,
}

/// What links and switches know of it: little, for it goes with every event, from hop to hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    /// What switches hash.
    pub tuple: u64,
    pub to: u32,
    /// Bytes on the wire, framing included.
    pub bytes: u32,
    /// When it joined the link that it is on, and what will become of it there.
    pub epoch: u16,
    pub fate: Fate,
    /// A congestion mark.
    pub ce: bool,
}

impl Hop {
    /// Of an event that is no packet's.
    pub const NONE: Hop = Hop { tuple: 0, to: 0, bytes: 0, epoch: 0, fate: Fate::Comes, ce: false };
}

/// All packets on their way.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    cargoes: Vec<Cargo>,
    /// Bytes on the wire of each; 0 for a place that is free.
    bytes: Vec<u32>,
    free: Vec<u32>,
    acks: Acks,
}

impl Packets {
    pub fn insert(&mut self, bytes: u32, cargo: Cargo) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.cargoes[place as usize] = cargo;
                self.bytes[place as usize] = bytes;
                place
            }
            None => {
                self.cargoes.push(cargo);
                self.bytes.push(bytes);
                self.bytes.len() as u32 - 1
            }
        }
    }

    /// A control packet as it is kept on its way.
    pub fn header_of(&mut self, packet: &Packet) -> Header {
        match packet {
            Packet::Ack(ack) => Header::Ack(self.acks.keep(ack)),
            other => Header::Other(Box::new(*other)),
        }
    }

    /// Looks at an ACK for the last time.
    pub fn take_ack(&mut self, at: AckPlace, into: &mut Ack) {
        self.acks.take(at, into);
    }

    /// Cuts the payload off a data packet; the bytes that are gone, if it had any.
    pub fn trim(&mut self, place: u32) -> Option<u32> {
        let cargo = &mut self.cargoes[place as usize];
        let Header::Data(data) = cargo.header else { return None };
        let gone = core::mem::take(&mut cargo.payload_bytes);
        cargo.header = Header::Trimmed(data);
        self.bytes[place as usize] -= gone;
        Some(gone).filter(|&gone| gone > 0)
    }

    /// The packet's way is over. Its ACK, if it is one, is still to be taken.
    pub fn remove(&mut self, place: u32) -> Cargo {
        self.bytes[place as usize] = 0;
        self.free.push(place);
        let cargo = &mut self.cargoes[place as usize];
        let header = core::mem::replace(&mut cargo.header, Header::None);
        Cargo { header, ..*cargo }
    }

    /// The packet is lost.
    pub fn drop(&mut self, place: u32) {
        if let Header::Ack(at) = self.remove(place).header {
            self.acks.free(at);
        }
    }

    /// Packets and bytes on their way, counted one by one.
    pub fn count(&self) -> (u64, u64) {
        let flying = self.bytes.iter().filter(|&&bytes| bytes > 0);
        flying.fold((0, 0), |(packets, sum), &bytes| (packets + 1, sum + u64::from(bytes)))
    }

    /// Places that there are.
    pub fn places(&self) -> u64 {
        self.bytes.len() as u64
    }
}
