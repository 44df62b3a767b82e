//! What flies: headers as values, and where the payload came from. Places are used again.

use alloc::boxed::Box;
use alloc::vec::Vec;

use srdma_wire::{Data, Packet};

use crate::loss::Fate;

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
    /// Of a data packet that a switch has cut the payload off.
    Trimmed(Data),
    /// The place is free.
    None,
}

/// What hosts know of a packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Cargo {
    pub header: Header,
    pub source_port: u16,
    /// Payload bytes, and where they come from.
    pub payload_bytes: u32,
    pub address: u64,
}

/// What links and switches know of it: little, for it is looked at on every hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub from: u32,
    pub to: u32,
    /// What switches hash.
    pub tuple: u64,
    /// Bytes on the wire, framing included; 0 for a place that is free.
    pub bytes: u32,
    /// When it joined the link that it is on, and what will become of it there.
    pub epoch: u16,
    pub fate: Fate,
    /// A congestion mark.
    pub ce: bool,
}

/// All packets on their way.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    hops: Vec<Hop>,
    cargoes: Vec<Cargo>,
    free: Vec<u32>,
    /// Boxes of control packets that arrived, to be used again. Their number is bounded by the most that ever flew.
    #[allow(clippy::vec_box)] // the box is what is kept
    boxes: Vec<Box<Packet>>,
}

impl Packets {
    pub fn insert(&mut self, hop: Hop, cargo: Cargo) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.hops[place as usize] = hop;
                self.cargoes[place as usize] = cargo;
                place
            }
            None => {
                self.hops.push(hop);
                self.cargoes.push(cargo);
                self.hops.len() as u32 - 1
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

    pub fn hop_mut(&mut self, place: u32) -> &mut Hop {
        &mut self.hops[place as usize]
    }

    pub fn get(&self, place: u32) -> (&Hop, &Cargo) {
        (&self.hops[place as usize], &self.cargoes[place as usize])
    }

    /// Cuts the payload off a data packet; the bytes that are gone, if it had any.
    pub fn trim(&mut self, place: u32) -> Option<u32> {
        let (hop, cargo) = (&mut self.hops[place as usize], &mut self.cargoes[place as usize]);
        let Header::Data(data) = cargo.header else { return None };
        let gone = core::mem::take(&mut cargo.payload_bytes);
        cargo.header = Header::Trimmed(data);
        hop.bytes -= gone;
        Some(gone).filter(|&gone| gone > 0)
    }

    /// The packet's way is over.
    pub fn remove(&mut self, place: u32) {
        self.hops[place as usize].bytes = 0;
        let header = core::mem::replace(&mut self.cargoes[place as usize].header, Header::None);
        if let Header::Other(packet) = header {
            self.boxes.push(packet);
        }
        self.free.push(place);
    }

    /// Packets and bytes on their way, counted one by one.
    pub fn count(&self) -> (u64, u64) {
        let flying = self.hops.iter().filter(|hop| hop.bytes > 0);
        flying.fold((0, 0), |(packets, bytes), hop| (packets + 1, bytes + u64::from(hop.bytes)))
    }
}
