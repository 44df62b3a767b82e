//! What flies: headers as values, and where the payload came from. Places are used again.

use alloc::boxed::Box;
use alloc::vec::Vec;

use srdma_wire::{Data, Packet};

/// Payload of a packet as its origin: bytes of a host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Whose memory.
    pub host: u32,
    /// First byte.
    pub address: u64,
}

/// A header. Nearly all are data; an ACK with all its blocks is eight times as large.
#[derive(Clone, Debug)]
pub(crate) enum Header {
    Data(Data),
    Other(Box<Packet>),
    /// The place is free.
    None,
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Flying {
    pub header: Header,
    pub from: u32,
    pub to: u32,
    pub source_port: u16,
    /// Payload bytes, and where they come from.
    pub payload_bytes: u32,
    pub address: u64,
    /// Bytes on the wire, framing included.
    pub bytes: u32,
    /// What switches hash.
    pub tuple: u64,
    /// A congestion mark.
    pub ce: bool,
    /// The link it is on, when it joined, and whether it will be lost there.
    pub link: u32,
    pub epoch: u16,
    pub lost: bool,
}

/// All packets on their way.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    places: Vec<Flying>,
    free: Vec<u32>,
    /// Boxes of control packets that arrived, to be used again. Their number is bounded by the most that ever flew.
    #[allow(clippy::vec_box)] // the box is what is kept
    boxes: Vec<Box<Packet>>,
}

impl Packets {
    pub fn insert(&mut self, packet: Flying) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = packet;
                place
            }
            None => {
                self.places.push(packet);
                self.places.len() as u32 - 1
            }
        }
    }

    /// A copy of `packet` in a box, a used one if there is one.
    pub fn boxed(&mut self, packet: &Packet) -> Box<Packet> {
        match self.boxes.pop() {
            Some(mut place) => {
                *place = *packet;
                place
            }
            None => Box::new(*packet),
        }
    }

    pub fn get_mut(&mut self, place: u32) -> &mut Flying {
        &mut self.places[place as usize]
    }

    /// The packet's way is over.
    pub fn remove(&mut self, place: u32) {
        let header = core::mem::replace(&mut self.places[place as usize].header, Header::None);
        if let Header::Other(packet) = header {
            self.boxes.push(packet);
        }
        self.free.push(place);
    }

    /// Packets and bytes on their way, counted one by one.
    pub fn count(&self) -> (u64, u64) {
        let flying = self.places.iter().filter(|packet| !matches!(packet.header, Header::None));
        flying.fold((0, 0), |(packets, bytes), packet| (packets + 1, bytes + u64::from(packet.bytes)))
    }
}
