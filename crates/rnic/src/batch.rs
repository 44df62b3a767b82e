//! Packets that arrived together, as small as they can be kept.
//!
//! Nearly all of them are data, whose header is a tenth of the largest packet's (an ACK with all its blocks
//! and unit reports). So data headers lie one after the other, and the few others apart.

use alloc::vec::Vec;
use core::net::SocketAddr;

use srdma_seams::Qpn;
use srdma_wire::{Data, Packet};

use crate::world::PayloadRef;

/// Header of an arrived packet.
#[derive(Clone, Copy, Debug)]
enum Header {
    Data(Data),
    /// Of the first packet, and position in `Batch::runs`.
    Run(Data, u32),
    /// Position in `Batch::others`.
    Other(u32),
}

/// Data packets that continue one another ([`Data::continued`]) and have equally much payload, which lies in
/// place: where [`Nic::foresee`](crate::Nic::foresee) said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many, 2–64.
    pub packets: u32,
    /// From the payload of one to that of the next, as a receive buffer would have them, bytes.
    pub stride: u32,
    /// Where the payload of the first lies in host memory; the others follow without a gap.
    pub address: u64,
}

#[derive(Clone, Copy, Debug)]
struct Received {
    from: SocketAddr,
    header: Header,
    payload: PayloadRef,
    ce: bool,
}

/// Packets in order of arrival, for [`Nic::receive`](crate::Nic::receive). Reused, it allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    received: Vec<Received>,
    others: Vec<Packet>,
    runs: Vec<Run>,
}

/// What an arrived packet says, by reference.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Says<'a> {
    Data(&'a Data),
    /// First header of several.
    Run(&'a Data, Run),
    Other(&'a Packet),
}

/// An arrived packet, by reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    pub from: SocketAddr,
    pub says: Says<'a>,
    pub payload: PayloadRef,
    pub ce: bool,
}

impl Batch {
    /// Nothing has arrived.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Forgets all packets, keeps the memory.
    pub fn clear(&mut self) {
        self.received.clear();
        self.others.clear();
        self.runs.clear();
    }

    /// Forgets all but the first `len` packets and runs.
    pub fn truncate(&mut self, len: usize) {
        self.received.truncate(len);
    }

    /// Packets and runs.
    pub fn len(&self) -> usize {
        self.received.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Appends a packet from `from`; `ce` says that it carried a congestion mark.
    pub fn push(&mut self, from: SocketAddr, packet: &Packet, payload: PayloadRef, ce: bool) {
        let header = match packet {
            Packet::Data(data) => Header::Data(*data),
            other => {
                self.others.push(*other);
                Header::Other(self.others.len() as u32 - 1)
            }
        };
        self.received.push(Received { from, header, payload, ce });
    }

    /// Appends a run that begins with `first`, whose payload is `payload`.
    pub fn push_run(&mut self, from: SocketAddr, first: &Data, run: Run, payload: PayloadRef, ce: bool) {
        let header = Header::Run(*first, self.runs.len() as u32);
        self.runs.push(run);
        self.received.push(Received { from, header, payload, ce });
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Arrived<'_>> {
        self.received.iter().filter_map(|received| {
            let says = match &received.header {
                Header::Data(data) => Says::Data(data),
                Header::Run(first, position) => Says::Run(first, *self.runs.get(*position as usize)?),
                Header::Other(position) => Says::Other(self.others.get(*position as usize)?),
            };
            Some(Arrived { from: received.from, says, payload: received.payload, ce: received.ce })
        })
    }
}

impl Arrived<'_> {
    /// Headers and payloads of the packets of a run.
    pub fn packets(&self, first: &Data, run: Run) -> impl Iterator<Item = (Data, PayloadRef)> {
        let (first, payload) = (*first, self.payload);
        (0..run.packets).map_while(move |index| {
            let header = first.continued(u8::try_from(index).ok()?, payload.length)?;
            let offset = payload.offset.checked_add(index.checked_mul(run.stride)?)?;
            Some((header, PayloadRef { offset, ..payload }))
        })
    }

    /// One of them.
    pub fn with<'b>(&self, data: &'b Data, payload: PayloadRef) -> Arrived<'b> {
        Arrived { from: self.from, says: Says::Data(data), payload, ce: self.ce }
    }

    /// The queue pair it is for.
    pub fn destination(&self) -> Option<Qpn> {
        match self.says {
            Says::Data(data) | Says::Run(data, _) => Some(data.dest_qpn),
            Says::Other(Packet::Hello(hello)) => Some(hello.dest_qpn),
            Says::Other(Packet::Ack(ack)) => Some(ack.dest_qpn),
            Says::Other(Packet::Nak(nak)) => Some(nak.dest_qpn),
            Says::Other(Packet::Close(close)) => Some(close.dest_qpn),
            Says::Other(Packet::Data(_) | Packet::Echo(_)) => None,
        }
    }
}
