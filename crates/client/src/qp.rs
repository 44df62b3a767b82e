//! A queue pair as its program holds it: the producing ends of two rings, and a doorbell.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use srdma_abi::{QpAttributes, QpInit, QpMask, QpState, RecvEntry, SendEntry, SendFlags, UNIT_BYTES};
use srdma_doors::door::Bells;
use srdma_doors::shape::{recv_units, send_units};
use srdma_doors::{Door, QpMade};
use srdma_ring::{CompletionConsumer, WorkProducer};
use srdma_seams::Qpn;

use crate::{ControlError, PostError};

/// A queue pair. Methods may be called from any thread.
pub struct Qp {
    door: Door,
    number: Qpn,
    bells: Bells,
    init: QpInit,
    /// State after the last modify: enough to refuse posts that come too early. Errors that the device
    /// met on its own need not be known here: posts are accepted then, and flushed.
    state: AtomicU8,
    send: Mutex<WorkProducer>,
    recv: Mutex<WorkProducer>,
    /// Rings of its send and receive completion queues.
    cqs: [Option<Arc<Mutex<CompletionConsumer>>>; 2],
}

impl Qp {
    pub(crate) fn new(
        door: Door,
        init: QpInit,
        made: QpMade,
        cqs: [Option<Arc<Mutex<CompletionConsumer>>>; 2],
    ) -> Qp {
        Qp {
            cqs,
            door,
            number: made.number,
            bells: made.bells(),
            init,
            state: AtomicU8::new(QpState::Reset as u8),
            send: Mutex::new(made.send),
            recv: Mutex::new(made.recv),
        }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number.0
    }

    /// What was asked for, rounded up to what it got.
    pub fn init(&self) -> QpInit {
        self.init
    }

    /// Bytes of its two rings.
    pub fn ring_bytes(&self) -> usize {
        let send =
            self.init.max_send_wr as usize * send_units(self.init.max_send_sge, self.init.max_inline_data);
        let recv = self.init.max_recv_wr as usize * recv_units(self.init.max_recv_sge);
        (send + recv) * UNIT_BYTES
    }

    /// Changes attributes and state; `mask` as `ibv_qp_attr_mask`.
    pub fn modify(&self, attributes: &QpAttributes, mask: QpMask) -> Result<(), ControlError> {
        self.door.modify_qp(self.number, attributes, mask)?;
        if mask.contains(QpMask::STATE) {
            self.state.store(attributes.state as u8, Ordering::Release);
        }
        Ok(())
    }

    /// Shows them, as the device sees them now.
    pub fn query(&self) -> Result<QpAttributes, ControlError> {
        Ok(self.door.query_qp(self.number)?)
    }

    /// Removes it. None of its completions is delivered afterwards.
    pub fn destroy(&self) -> Result<(), ControlError> {
        self.door.destroy_qp(self.number)?;
        for ring in self.cqs.iter().flatten() {
            ring.lock().unwrap_or_else(PoisonError::into_inner).forget(self.number.0);
        }
        Ok(())
    }

    /// Locks the send queue for a list of posts; dropping the guard rings the doorbell once.
    pub fn post_sends(&self) -> SendPosts<'_> {
        SendPosts { qp: self, ring: self.lock(&self.send) }
    }

    /// Locks the receive queue for a list of posts.
    pub fn post_recvs(&self) -> RecvPosts<'_> {
        RecvPosts { qp: self, ring: self.lock(&self.recv) }
    }

    /// `None` when the device is gone: in a child after fork a thread that does not exist may hold the lock.
    fn lock<'a>(&self, ring: &'a Mutex<WorkProducer>) -> Option<MutexGuard<'a, WorkProducer>> {
        (!self.door.is_over()).then(|| ring.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }
}

/// The locked send queue.
pub struct SendPosts<'a> {
    qp: &'a Qp,
    ring: Option<MutexGuard<'a, WorkProducer>>,
}

impl SendPosts<'_> {
    /// Appends a request. With `SendFlags::INLINE`, `inline` are the pieces of data;
    /// `entry.inline_len` is set here to their sum.
    ///
    /// # Safety
    /// Each piece of `inline` is `(address, length)` of memory that the caller may read.
    pub unsafe fn push(&mut self, entry: &mut SendEntry, inline: &[(u64, u32)]) -> Result<(), PostError> {
        let Some(ring) = &mut self.ring else { return Err(PostError::Gone) };
        if self.qp.state() < QpState::Rts as u8 {
            return Err(PostError::State);
        }
        if entry.flags.contains(SendFlags::INLINE) {
            let given = inline.iter().map(|piece| u64::from(piece.1)).sum::<u64>();
            let max = self.qp.init.max_inline_data;
            if given > u64::from(max) {
                return Err(PostError::Inline { given, max });
            }
            entry.inline_len = given as u16;
            entry.sge_count = 0;
        } else if u32::from(entry.sge_count) > self.qp.init.max_send_sge {
            let (given, max) = (u32::from(entry.sge_count), self.qp.init.max_send_sge);
            return Err(PostError::Elements { given, max });
        }
        // SAFETY: the caller vouches for the pieces, and no program has a pointer into a ring.
        match unsafe { ring.push_send_gather(entry, inline) } {
            true => Ok(()),
            false => Err(PostError::Full),
        }
    }
}

impl Drop for SendPosts<'_> {
    fn drop(&mut self) {
        if self.ring.as_mut().is_some_and(|ring| ring.publish()) {
            self.qp.door.ring_send(self.qp.bells);
        }
    }
}

/// The locked receive queue.
pub struct RecvPosts<'a> {
    qp: &'a Qp,
    ring: Option<MutexGuard<'a, WorkProducer>>,
}

impl RecvPosts<'_> {
    /// Appends a receive.
    pub fn push(&mut self, entry: &RecvEntry) -> Result<(), PostError> {
        let Some(ring) = &mut self.ring else { return Err(PostError::Gone) };
        if self.qp.state() == QpState::Reset as u8 {
            return Err(PostError::State);
        }
        let (given, max) = (u32::from(entry.sge_count), self.qp.init.max_recv_sge);
        if given > max {
            return Err(PostError::Elements { given, max });
        }
        match ring.push_recv(entry) {
            true => Ok(()),
            false => Err(PostError::Full),
        }
    }
}

impl Drop for RecvPosts<'_> {
    fn drop(&mut self) {
        if self.ring.as_mut().is_some_and(|ring| ring.publish()) {
            self.qp.door.ring_recv(self.qp.bells);
        }
    }
}
