//! The batch of copies that a batch of packets leads to, and whose they are.

use alloc::vec::Vec;

use srdma_seams::Qpn;

use crate::world::{Copy, CopyFault, HoldSlot, Mover};

/// Which half of a queue pair asked for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// READ data and atomic results; `msn` is that of the request.
    Requester,
    /// WRITEs and SENDs of the peer.
    Responder,
}

/// Whose copy it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Queue pair.
    pub qpn: Qpn,
    /// Half of it.
    pub side: Side,
    /// Message in the request space.
    pub msn: u64,
}

impl Owner {
    /// Whether a copy of `self` must not be done once one of `failed` has faulted: nothing of a
    /// failed message, and nothing of the peer's later ones, is placed.
    fn falls_with(&self, failed: &Owner) -> bool {
        self.qpn == failed.qpn
            && self.side == failed.side
            && match self.side {
                Side::Responder => self.msn >= failed.msn,
                Side::Requester => self.msn == failed.msn,
            }
    }
}

/// Copies collected from many packets, carried out together.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    copies: Vec<Copy>,
    owners: Vec<Owner>,
    releases: Vec<HoldSlot>,
    faults: Vec<Owner>,
}

/// Copies after which a batch is carried out even if more packets wait.
pub(crate) const BATCH_COPIES: usize = 256;

impl Placement {
    /// Adds a copy.
    pub fn push(&mut self, owner: Owner, copy: Copy) {
        self.copies.push(copy);
        self.owners.push(owner);
    }

    /// Gives a held payload back once the copies before have been done.
    pub fn release_after(&mut self, slot: HoldSlot) {
        self.releases.push(slot);
    }

    /// Whether it is time to carry the batch out.
    pub fn is_full(&self) -> bool {
        self.copies.len() >= BATCH_COPIES
    }

    /// Copies collected so far; see [`Placement::truncate`].
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Takes back every copy after the first `len`: the packet they belong to is refused.
    pub fn truncate(&mut self, len: usize) {
        self.copies.truncate(len);
        self.owners.truncate(len);
    }

    /// Does all copies in order. Those that fault are reported by [`Placement::take_fault`].
    pub fn execute(&mut self, world: &mut impl Mover) {
        let mut start = 0;
        while start < self.copies.len() {
            let Err(CopyFault { index }) = world.copy(&self.copies[start..]) else { break };
            let Some(&failed) = self.owners.get(start + index) else { break };
            self.faults.push(failed);
            start += index + 1;
            self.drop_fallen(start, &failed);
        }
        self.copies.clear();
        self.owners.clear();
        for slot in self.releases.drain(..) {
            world.release(slot);
        }
    }

    fn drop_fallen(&mut self, start: usize, failed: &Owner) {
        let mut kept = start;
        for i in start..self.copies.len() {
            if !self.owners[i].falls_with(failed) {
                self.copies[kept] = self.copies[i];
                self.owners[kept] = self.owners[i];
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// The next message whose memory turned out not to be there.
    pub fn take_fault(&mut self) -> Option<Owner> {
        self.faults.pop()
    }
}
