//! Reads packets that arrive one after the other: one that continues the last is known at sight.
//!
//! The receiver's half of `run`: what the next header of a run must be, check included, follows from the
//! last one, so comparing it with what came says as much as computing its check and reading its fields.
//! Whatever differs in any bit is read in full.

use super::data::{self, DATA_HEADER_BYTES};
use super::error::ParseError;
use super::run::{Header, Moving};
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
        let parsed = super::parse(datagram)?;
        if let ((Packet::Data(data), DATA_HEADER_BYTES), Some((header, payload))) =
            (&parsed, datagram.split_first_chunk())
        {
            let payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            self.last = Some(Last { header: *header, data: *data, payload_bytes });
        }
        Ok(parsed)
    }
}

impl Last {
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
