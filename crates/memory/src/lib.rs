//! Keys, and the typed translation table (eMTT) behind them: tables only.
//!
//! An entry says which address space the bytes live in (this process, a GPU, a send ring), so that
//! whoever moves bytes can route each the right way. This room never touches a byte of what it
//! describes, never pins and never maps; it answers "may this key do that, and where are the bytes?".
//! It must not know queue pairs, packets or who drives it.
//!
//! The values are here; [`table`] holds the regions and says how keys are made.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod table;

pub use table::{RegisterError, Table, Translation, UnknownKey};

use srdma_seams::{MrKey, PdId, Qpn, TenantId};

/// Where bytes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// Virtual memory of the program that owns the device.
    Host,
    /// Virtual memory of a program that is attached to the device, by the number that whoever drives the device gave it.
    Program(u32),
    /// Memory of the GPU with this index (a model, until the issue that brings real ones).
    Gpu(u16),
    /// The send ring of a queue pair: inline data. `address` counts bytes from the ring's first entry.
    SendRing(Qpn),
}

/// `length` bytes at `address` of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which space.
    pub space: AddressSpace,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// What a region allows; same bit values as `ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(pub u32);

impl Rights {
    /// No right is needed: local reads.
    pub const NONE: Rights = Rights(0);
    /// Local writes by the device.
    pub const LOCAL_WRITE: Rights = Rights(1);
    /// Remote WRITE.
    pub const REMOTE_WRITE: Rights = Rights(2);
    /// Remote READ.
    pub const REMOTE_READ: Rights = Rights(4);
    /// Remote atomics.
    pub const REMOTE_ATOMIC: Rights = Rights(8);
    /// Bytes of a WRITE may become visible in any order.
    pub const RELAXED_ORDERING: Rights = Rights(1 << 20);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What is registered.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Owner.
    pub tenant: TenantId,
    /// Protection domain.
    pub pd: PdId,
    /// First address as the keys' users name it.
    pub iova: u64,
    /// Bytes.
    pub length: u64,
    /// What is allowed.
    pub rights: Rights,
    /// Where the bytes live.
    pub space: AddressSpace,
    /// First byte within `space`.
    pub base: u64,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Tenant of the queue pair.
    pub tenant: TenantId,
    /// Protection domain of the queue pair.
    pub pd: PdId,
}

/// Why a key may not do that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Unknown, stale, or of another tenant or protection domain.
    #[error("Key {0} is unknown here")]
    Key(MrKey),
    /// Outside the region.
    #[error("Range reaches outside the region")]
    Bounds,
    /// The region does not allow it.
    #[error("Region does not allow this access")]
    Rights,
}
