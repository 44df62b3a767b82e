//! Which queues have been posted to since the worker last looked.

use srdma_ring::DoorbellPage;

/// Where the worker finds that out. Queues are named by the position of their queue pair's number in the slot.
pub(crate) trait Bells {
    /// Calls `work` for each send queue rung.
    fn sends(&self, work: impl FnMut(u16));
    /// And for each receive queue.
    fn recvs(&self, work: impl FnMut(u16));
}

/// The two pages of a device in its program's own process: one bit for each number of the slot.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'a> {
    pub(crate) sends: &'a DoorbellPage,
    pub(crate) recvs: &'a DoorbellPage,
}

impl Bells for Pages<'_> {
    fn sends(&self, mut work: impl FnMut(u16)) {
        self.sends.take(|index| work(index as u16));
    }

    fn recvs(&self, mut work: impl FnMut(u16)) {
        self.recvs.take(|index| work(index as u16));
    }
}

/// Bells of many programs, collected beforehand.
#[derive(Clone, Copy)]
pub(crate) struct Collected<'a> {
    pub(crate) sends: &'a [u16],
    pub(crate) recvs: &'a [u16],
}

impl Bells for Collected<'_> {
    fn sends(&self, work: impl FnMut(u16)) {
        self.sends.iter().copied().for_each(work);
    }

    fn recvs(&self, work: impl FnMut(u16)) {
        self.recvs.iter().copied().for_each(work);
    }
}
