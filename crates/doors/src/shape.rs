//! How large rings are: the same at both sides of every door.

use srdma_abi::entry::{INLINE_MAX, RECV_SGE_MAX, SEND_SGE_MAX};
use srdma_abi::{QpInit, RecvEntry, SendEntry, SendFlags};
use srdma_ring::memory::ALIGNMENT;
use srdma_ring::{units_for, Layout, MemoryError};

/// There is no ring of that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// More entries than a ring may have.
    #[error("The queue asked for is too large")]
    TooLarge,
    /// What the ring says.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// The two rings of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpRings {
    /// Send ring.
    pub send: Layout,
    /// Receive ring.
    pub recv: Layout,
}

impl QpRings {
    /// Where the receive ring begins if both share one piece of memory, bytes.
    pub fn recv_offset(&self) -> usize {
        self.send.bytes().next_multiple_of(ALIGNMENT)
    }

    /// Bytes of both.
    pub fn bytes(&self) -> usize {
        self.recv_offset() + self.recv.bytes()
    }
}

/// The rings that `init` asks for.
pub fn qp_rings(init: &QpInit) -> Result<QpRings, ShapeError> {
    let ring = |requests: u32, units_per_entry| -> Result<Layout, ShapeError> {
        let units = units_for(requests.max(1), units_per_entry).ok_or(ShapeError::TooLarge)?;
        Ok(Layout::new(units)?)
    };
    Ok(QpRings {
        send: ring(init.max_send_wr, send_units(init.max_send_sge, init.max_inline_data))?,
        recv: ring(init.max_recv_wr, recv_units(init.max_recv_sge))?,
    })
}

/// The ring of a completion queue that holds at least so many.
pub fn cq_ring(entries: u32) -> Result<Layout, ShapeError> {
    let units = entries.checked_next_power_of_two().ok_or(ShapeError::TooLarge)?;
    Ok(Layout::new(units)?)
}

/// Units of the largest entry that `sges` elements or `inline` bytes can make.
pub fn send_units(sges: u32, inline: u32) -> usize {
    let by_sges = SendEntry { sge_count: sges.min(SEND_SGE_MAX as u32) as u8, ..SendEntry::default() };
    let by_inline = SendEntry {
        flags: SendFlags::INLINE,
        inline_len: inline.min(INLINE_MAX as u32) as u16,
        ..SendEntry::default()
    };
    by_sges.units().max(by_inline.units())
}

/// The same for receives.
pub fn recv_units(sges: u32) -> usize {
    RecvEntry { sge_count: sges.min(RECV_SGE_MAX as u32) as u8, ..RecvEntry::default() }.units()
}
