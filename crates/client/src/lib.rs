//! A device behind any door: what the C ABI libraries (and any Rust program) call.
//!
//! placeholder for the head documentation

use std::net::IpAddr;
use std::os::fd::RawFd;

pub use srdma_abi as abi;
use srdma_abi::{Completion, DeviceLimits, PortInfo, QpAttributes, QpInit, QpMask, RecvEntry, SendEntry};

/// One usable address of this host, seen as an RDMA device with one port and one GID.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// `stellar0`, `stellar1`, …; 0 is the source address of the default route.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Network interface that has it.
    pub interface: String,
    /// Kernel's index of that interface.
    pub interface_index: u32,
    /// Interface MTU in bytes.
    pub mtu_bytes: u32,
    /// EUI-64 made from the interface's MAC address and the address, in network order.
    pub guid: [u8; 8],
}

/// Why no device is to be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused; the text says which call, on what, and what to do.
    #[error("{0}")]
    System(String, #[source] Option<std::io::Error>),
}

/// Why a control call was refused, with its errno.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct ControlError {
    /// Positive errno for the C caller.
    pub errno: i32,
    /// What is wrong, naming the limit or object.
    pub text: String,
}

/// Why a work request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full (ENOMEM).
    #[error("The queue is full")]
    Full,
    /// Too many elements for this queue (EINVAL).
    #[error("{given} elements given, {max} allowed")]
    Elements {
        /// Given.
        given: u32,
        /// Allowed.
        max: u32,
    },
    /// More inline data than this queue was made for (EINVAL).
    #[error("{given} inline bytes given, {max} allowed")]
    Inline {
        /// Given.
        given: u64,
        /// Allowed.
        max: u32,
    },
    /// The queue pair's state does not allow posting here (EINVAL).
    #[error("The queue pair's state does not allow posting")]
    State,
    /// The device is gone (EIO).
    #[error("The device is gone")]
    Gone,
}

/// Where a completion queue's events go: eight bytes (`cookie`, native order) are written to `fd`
/// each time an armed queue triggers.
#[derive(Clone, Copy, Debug)]
pub struct CqEvents {
    /// Non-blocking write end, owned by the caller, which outlives the queue.
    pub fd: RawFd,
    /// Written as it is.
    pub cookie: u64,
}

/// The usable addresses of this host, best first. Opens no socket that stays, claims nothing.
/// `SRDMA_ADDR` restricts the list to that address (loopback allowed).
pub fn devices() -> Result<Vec<DeviceInfo>, OpenError> {
    todo!()
}

/// An open device. Opening claims nothing: the slot and its port are bound, and the helper thread
/// started, when the first queue pair is made. Several opens in one process share one slot.
pub struct Device {}

#[allow(unused_variables)]
impl Device {
    /// Opens `info`. Asynchronous events of this open's objects are written to `async_fd` (a
    /// non-blocking write end, owned by the caller, that outlives the device) as records of eight
    /// bytes: kind and object of `abi::AsyncEvent`, two native-order `u32`.
    pub fn open(info: &DeviceInfo, async_fd: RawFd) -> Result<Device, OpenError> {
        todo!()
    }
    /// Limits to report.
    pub fn limits(&self) -> DeviceLimits {
        todo!()
    }
    /// State of the port now.
    pub fn port(&self) -> PortInfo {
        todo!()
    }
    /// The one GID (index 0): the address, IPv4 as IPv4-mapped IPv6.
    pub fn gid(&self) -> [u8; 16] {
        todo!()
    }
    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Result<u32, ControlError> {
        todo!()
    }
    /// Removes it (EBUSY while in use).
    pub fn dealloc_pd(&self, pd: u32) -> Result<(), ControlError> {
        todo!()
    }
    /// Registers memory; costs no page work. Returns the key, lkey and rkey in one. `access` are
    /// `ibv_access_flags`.
    pub fn register(
        &self,
        pd: u32,
        base: u64,
        length: u64,
        iova: u64,
        access: u32,
    ) -> Result<u32, ControlError> {
        todo!()
    }
    /// When this returns, no access through the key can follow.
    pub fn deregister(&self, key: u32) -> Result<(), ControlError> {
        todo!()
    }
    /// Makes a completion queue that holds at least `entries`.
    pub fn create_cq(&self, entries: u32, events: Option<CqEvents>) -> Result<Cq, ControlError> {
        todo!()
    }
    /// Makes an RC queue pair. The device claims its slot now if it has none.
    pub fn create_qp(&self, init: &QpInit) -> Result<Qp, ControlError> {
        todo!()
    }
}

/// A completion queue. Methods may be called from any thread.
pub struct Cq {}

#[allow(unused_variables)]
impl Cq {
    /// Number, as used in [`QpInit`].
    pub fn number(&self) -> u32 {
        todo!()
    }
    /// Completions it holds.
    pub fn capacity(&self) -> u32 {
        todo!()
    }
    /// Takes up to `out.len()` completions; makes progress on the device if there are none. `None`
    /// when the queue has overrun.
    pub fn poll(&self, out: &mut [Completion]) -> Option<usize> {
        todo!()
    }
    /// Asks for one event at the next completion (or the next solicited one). If a completion is
    /// already there, the event comes at once.
    pub fn arm(&self, solicited_only: bool) {
        todo!()
    }
    /// Removes it (EBUSY while queue pairs use it).
    pub fn destroy(&self) -> Result<(), ControlError> {
        todo!()
    }
}

/// A queue pair. Methods may be called from any thread.
pub struct Qp {}

#[allow(unused_variables)]
impl Qp {
    /// Its number.
    pub fn number(&self) -> u32 {
        todo!()
    }
    /// What was asked for, rounded up to what it got.
    pub fn init(&self) -> QpInit {
        todo!()
    }
    /// Changes attributes and state; `mask` as `ibv_qp_attr_mask`.
    pub fn modify(&self, attributes: &QpAttributes, mask: QpMask) -> Result<(), ControlError> {
        todo!()
    }
    /// Shows them.
    pub fn query(&self) -> Result<QpAttributes, ControlError> {
        todo!()
    }
    /// Locks the send queue for a list of posts; dropping the guard rings the doorbell once.
    pub fn post_sends(&self) -> SendPosts<'_> {
        todo!()
    }
    /// Locks the receive queue for a list of posts.
    pub fn post_recvs(&self) -> RecvPosts<'_> {
        todo!()
    }
    /// Removes it. None of its completions is delivered afterwards.
    pub fn destroy(&self) -> Result<(), ControlError> {
        todo!()
    }
}

/// The locked send queue.
pub struct SendPosts<'a> {
    _qp: &'a Qp,
}

#[allow(unused_variables)]
impl SendPosts<'_> {
    /// Appends a request. With `SendFlags::INLINE`, `inline` are the pieces of data (their lengths
    /// must be readable memory of the caller); `entry.inline_len` is set here from their sum.
    ///
    /// # Safety
    /// Each piece of `inline` is `(address, length)` of memory that the caller may read.
    pub unsafe fn push(&mut self, entry: &mut SendEntry, inline: &[(u64, u32)]) -> Result<(), PostError> {
        todo!()
    }
}

/// The locked receive queue.
pub struct RecvPosts<'a> {
    _qp: &'a Qp,
}

#[allow(unused_variables)]
impl RecvPosts<'_> {
    /// Appends a receive.
    pub fn push(&mut self, entry: &RecvEntry) -> Result<(), PostError> {
        todo!()
    }
}
