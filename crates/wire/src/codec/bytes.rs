//! Cursors over bytes that cannot run past the end. All integers are in network byte order.

use super::error::{EmitError, ParseError};

/// Reads a header from front to back.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    #[inline(always)]
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(ParseError::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    #[inline(always)]
    pub(super) fn u8(&mut self) -> Result<u8, ParseError> {
        self.take::<1>().map(u8::from_be_bytes)
    }

    #[inline(always)]
    pub(super) fn u16(&mut self) -> Result<u16, ParseError> {
        self.take().map(u16::from_be_bytes)
    }

    #[inline(always)]
    pub(super) fn u32(&mut self) -> Result<u32, ParseError> {
        self.take().map(u32::from_be_bytes)
    }

    #[inline(always)]
    pub(super) fn u64(&mut self) -> Result<u64, ParseError> {
        self.take().map(u64::from_be_bytes)
    }

    /// Passes over `N` reserved bytes.
    #[inline(always)]
    pub(super) fn skip<const N: usize>(&mut self) -> Result<(), ParseError> {
        self.take::<N>().map(|_| ())
    }
}

/// Writes a header from front to back.
pub(super) struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Writer<'a> {
        Writer { rest: bytes }
    }

    #[inline(always)]
    pub(super) fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), EmitError> {
        let rest = core::mem::take(&mut self.rest);
        let (place, rest) = rest.split_first_chunk_mut::<N>().ok_or(EmitError::NoRoom)?;
        *place = bytes;
        self.rest = rest;
        Ok(())
    }

    #[inline(always)]
    pub(super) fn u8(&mut self, value: u8) -> Result<(), EmitError> {
        self.put([value])
    }

    #[inline(always)]
    pub(super) fn u16(&mut self, value: u16) -> Result<(), EmitError> {
        self.put(value.to_be_bytes())
    }

    #[inline(always)]
    pub(super) fn u32(&mut self, value: u32) -> Result<(), EmitError> {
        self.put(value.to_be_bytes())
    }

    #[inline(always)]
    pub(super) fn u64(&mut self, value: u64) -> Result<(), EmitError> {
        self.put(value.to_be_bytes())
    }

    /// Writes `N` reserved bytes.
    #[inline(always)]
    pub(super) fn zeros<const N: usize>(&mut self) -> Result<(), EmitError> {
        self.put([0; N])
    }
}
