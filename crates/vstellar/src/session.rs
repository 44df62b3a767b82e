//! What an attached program has made. A handle names only what is in here.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use srdma_abi::command::{Denial, NO_CHANNEL};

use crate::host::Host;
use crate::quota::{Kind, Part};
use crate::refusal::Refusal;
use crate::registry::DeviceId;

/// Number of a conversation at a door; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A completion queue of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldCq {
    pub(crate) bytes: u64,
    pub(crate) channel: u32,
}

/// A program that is attached to a device, and its objects by number, each with what it takes.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) device: DeviceId,
    pub(crate) pds: BTreeMap<u32, ()>,
    /// Bytes registered.
    pub(crate) keys: BTreeMap<u32, u64>,
    /// Queues that report to it.
    pub(crate) channels: BTreeMap<u32, u32>,
    pub(crate) cqs: BTreeMap<u32, HeldCq>,
    /// Bytes of rings.
    pub(crate) qps: BTreeMap<u32, u64>,
}

/// The entry of a handle, if this program made it.
pub(crate) fn own<'a, T>(
    map: &'a mut BTreeMap<u32, T>,
    number: u32,
    what: &str,
) -> Result<&'a mut T, Refusal> {
    let text = || format!("this program has made no {what} {number}");
    map.get_mut(&number).ok_or_else(|| Refusal::new(Denial::Handle, text()))
}

impl Held {
    pub(crate) fn new(device: DeviceId) -> Held {
        Held {
            device,
            pds: BTreeMap::new(),
            keys: BTreeMap::new(),
            channels: BTreeMap::new(),
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
        }
    }

    /// A queue reports to a channel, or does no longer.
    pub(crate) fn count_channel(&mut self, channel: u32, more: bool) {
        if let Some(queues) = self.channels.get_mut(&channel).filter(|_| channel != NO_CHANNEL) {
            *queues = if more { *queues + 1 } else { queues.saturating_sub(1) };
        }
    }

    /// Removes everything, users before what they use; what it had taken.
    pub(crate) fn end(self, session: SessionId, host: &mut impl Host) -> Vec<Part> {
        let mut parts = Vec::new();
        // The host refuses nothing that is removed in this order; if it did, there would be nobody to tell.
        for (number, bytes) in self.qps {
            let _ = host.destroy_qp(session, number);
            parts.extend([(Kind::Qps, 1), (Kind::RingBytes, bytes)]);
        }
        for (key, bytes) in self.keys {
            let _ = host.deregister(key);
            parts.extend([(Kind::Mrs, 1), (Kind::MemoryBytes, bytes)]);
        }
        for (number, cq) in self.cqs {
            let _ = host.destroy_cq(number);
            parts.extend([(Kind::Cqs, 1), (Kind::RingBytes, cq.bytes)]);
        }
        for number in self.channels.into_keys() {
            host.destroy_channel(session, number);
            parts.push((Kind::Channels, 1));
        }
        for number in self.pds.into_keys() {
            let _ = host.dealloc_pd(number);
            parts.push((Kind::Pds, 1));
        }
        parts
    }
}
