//! Reads packets that arrive one after the other: one that continues the last is known at sight.
//!
//! The receiver's half of `run`: what the next header of a run must be, check included, follows from the
//! last one, so comparing it with what came says as much as computing its check and reading its fields.
//! Whatever differs in any bit is read in full.

use super::data::{self, DATA_HEADER_BYTES};
use super::error::ParseError;
use super::run::{self, Header, Moving};
use crate::packet::{Data, Packet};

/// Parses like [`parse`](super::parse), cheaper where packets continue one another; reused from batch to batch.
/// What it remembers is only ever a packet whose check was right: nobody can plant a wrong expectation.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    last: Option<Last>,
}

/// A data packet without extensions.
#[derive(Clone, Debug)]
struct Last {
    header: Header,
    data: Data,
    payload_bytes: u32,
}

impl Follower {
    /// Nothing came yet.
    pub fn new() -> Follower {
        Follower::default()
    }

    /// As [`parse`](super::parse), with the same outcome.
    #[inline]
    pub fn parse(&mut self, datagram: &[u8]) -> Result<(Packet, usize), ParseError> {
        if let Some(data) = self.last.as_mut().and_then(|last| last.follow(datagram)) {
            return Ok((Packet::Data(data), DATA_HEADER_BYTES));
        }
        let first = super::open(datagram)?;
        if !super::is_data(first[0]) {
            // Straight through: an ACK is large.
            return super::parse(datagram);
        }
        let (data, offset) = data::parse(datagram, first)?;
        if let (DATA_HEADER_BYTES, Some((header, payload))) = (offset, datagram.split_first_chunk()) {
            let payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            self.last = Some(Last { header: *header, data, payload_bytes });
        }
        Ok((Packet::Data(data), offset))
    }
}

impl Follower {
    /// How many packets of a burst continue its first one, which was parsed last: `burst` holds packets of `stride`
    /// bytes each, of which only the headers need be there, and `packets` of them are asked about. The first counts;
    /// it is the only one if its header has extensions.
    #[inline]
    pub fn continues(&mut self, burst: &[u8], stride: usize, packets: u32) -> u32 {
        let Some(last) = self.last.as_mut().filter(|last| burst.first_chunk() == Some(&last.header)) else {
            return 1;
        };
        let stride = stride.max(DATA_HEADER_BYTES);
        let headers = burst.chunks_exact(stride).filter_map(|packet| packet.first_chunk());
        let mut count =
            run::continuing(last.payload_bytes, &last.data.op, headers.clone().take(packets as usize));
        // Those between cannot be out of range if neither end is. Only a sender who means ill makes one that is.
        while count > 0 {
            if let (Some(data), Some(header)) = (last.allows(count), headers.clone().nth(count.into())) {
                (last.header, last.data) = (*header, data);
                break;
            }
            count = count.saturating_sub(1);
        }
        u32::from(count).saturating_add(1)
    }
}

impl Last {
    /// The packet so many steps on, if it can be one that carries as much.
    fn allows(&self, steps: u8) -> Option<Data> {
        let data = self.data.continued(steps, self.payload_bytes)?;
        data::validate_received(&data, self.payload_bytes as usize, DATA_HEADER_BYTES).ok()?;
        Some(data)
    }

    /// What `datagram` says, if its header is the one that was to come.
    #[inline]
    fn follow(&mut self, datagram: &[u8]) -> Option<Data> {
        let (header, payload) = datagram.split_first_chunk::<DATA_HEADER_BYTES>()?;
        let expected = Moving::next_header(&self.header, self.payload_bytes, &self.data.op);
        if *header != expected {
            return None;
        }
        let data = self.data.continued(1, self.payload_bytes)?;
        data::validate_received(&data, payload.len(), DATA_HEADER_BYTES).ok()?;
        self.header = expected;
        self.data = data;
        self.payload_bytes = u32::try_from(payload.len()).ok()?;
        Some(data)
    }
}
