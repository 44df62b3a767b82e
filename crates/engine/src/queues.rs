//! The device's ends of all rings, and where their events go.

use std::collections::HashMap;
use std::os::fd::RawFd;

use srdma_abi::{AsyncEvent, AsyncKind, Completion, RecvEntry, SendEntry};
use srdma_net::Identity;
use srdma_ring::{CompletionProducer, Next, WorkConsumer, ENTRY_BYTES_MAX};
use srdma_rnic::world::{CqFull, Queues, Taken};
use srdma_seams::{Cqn, Qpn};

/// Where an armed completion queue's events go: `cookie` is written to `fd`.
#[derive(Clone, Copy, Debug)]
pub struct CqEvents {
    /// Non-blocking write end, owned by the client.
    pub fd: RawFd,
    /// Eight bytes, written as they are.
    pub cookie: u64,
}

struct QpRings {
    send: WorkConsumer,
    recv: WorkConsumer,
    async_fd: RawFd,
}

struct CqRing {
    ring: CompletionProducer,
    events: Option<CqEvents>,
    async_fd: RawFd,
}

/// All rings of a device, by number.
#[derive(Default)]
pub(crate) struct RingTable {
    qps: HashMap<u32, Box<QpRings>>,
    cqs: HashMap<u32, Box<CqRing>>,
    scratch: Option<Box<[u8; ENTRY_BYTES_MAX]>>,
    /// Event descriptors of every open of the device, for events about the device itself.
    pub(crate) opens: Vec<RawFd>,
    /// What each event descriptor named when the client handed it over.
    files: HashMap<RawFd, Identity>,
    /// The program closes descriptors that are not its own: each is looked at before it is written to.
    pub(crate) wary: bool,
}

impl RingTable {
    pub(crate) fn add_qp(&mut self, qpn: Qpn, send: WorkConsumer, recv: WorkConsumer, async_fd: RawFd) {
        self.scratch.get_or_insert_with(|| Box::new([0; ENTRY_BYTES_MAX]));
        self.learn(async_fd);
        self.qps.insert(qpn.0, Box::new(QpRings { send, recv, async_fd }));
    }

    /// A descriptor that events are written to: what its number names now.
    pub(crate) fn learn(&mut self, fd: RawFd) {
        if let Some(file) = Identity::of(fd) {
            self.files.insert(fd, file);
        }
    }

    /// Writes an event. One that does not fit its pipe is lost, as with a program that never reads: 64 KiB of them lie
    /// there.
    pub(crate) fn tell(&self, fd: RawFd, bytes: [u8; 8]) {
        if self.wary && Identity::of(fd) != self.files.get(&fd).copied() {
            return;
        }
        // SAFETY: eight readable bytes; the descriptor is the client's and may at worst be closed (EBADF).
        unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    }

    pub(crate) fn remove_qp(&mut self, qpn: Qpn) {
        self.qps.remove(&qpn.0);
    }

    pub(crate) fn queue_pairs(&self) -> Vec<Qpn> {
        self.qps.keys().map(|number| Qpn(*number)).collect()
    }

    /// The queue pair went back to RESET: what lies in its rings is void.
    pub(crate) fn discard(&mut self, qpn: Qpn) {
        if let Some(qp) = self.qps.get_mut(&qpn.0) {
            qp.send.discard();
            qp.recv.discard();
        }
    }

    pub(crate) fn add_cq(
        &mut self,
        cq: Cqn,
        ring: CompletionProducer,
        events: Option<CqEvents>,
        async_fd: RawFd,
    ) {
        self.learn(async_fd);
        events.into_iter().for_each(|events| self.learn(events.fd));
        self.cqs.insert(cq.0, Box::new(CqRing { ring, events, async_fd }));
    }

    /// Writes an event although nothing was completed just now: the program asked for one and was too late.
    pub(crate) fn signal(&self, cq: Cqn) {
        if let Some(events) = self.cqs.get(&cq.0).and_then(|queue| queue.events) {
            self.tell(events.fd, events.cookie.to_ne_bytes());
        }
    }

    pub(crate) fn remove_cq(&mut self, cq: Cqn) {
        self.cqs.remove(&cq.0);
    }

    /// Address of inline data in a send ring.
    pub(crate) fn inline_address(&self, qpn: Qpn, offset: u64, length: u32) -> Option<*const u8> {
        self.qps.get(&qpn.0)?.send.entry_address(offset, length)
    }
}

fn taken(next: Next) -> Result<(usize, u32, u32), Taken> {
    match next {
        Next::Empty => Err(Taken::Empty),
        Next::Bad(bad) => Err(Taken::Bad(bad.into())),
        Next::Entry { bytes, offset, units } => Ok((bytes, offset, units)),
    }
}

pub(crate) fn async_record(event: AsyncEvent) -> [u8; 8] {
    let mut record = [0; 8];
    record[..4].copy_from_slice(&(event.kind as u32).to_ne_bytes());
    record[4..].copy_from_slice(&event.object.to_ne_bytes());
    record
}

impl Queues for RingTable {
    fn take_send(&mut self, qpn: Qpn, entry: &mut SendEntry) -> Taken {
        let (Some(qp), Some(scratch)) = (self.qps.get_mut(&qpn.0), &mut self.scratch) else {
            return Taken::Empty;
        };
        let (bytes, offset, units) = match taken(qp.send.next(scratch)) {
            Ok(found) => found,
            Err(none) => return none,
        };
        match SendEntry::decode(&scratch[..bytes], entry) {
            Ok(()) => Taken::Entry { offset, units },
            Err(error) => Taken::Bad(error),
        }
    }

    fn retire_send(&mut self, qpn: Qpn, units: u32) {
        if let Some(qp) = self.qps.get_mut(&qpn.0) {
            qp.send.release(units);
        }
    }

    fn take_recv(&mut self, qpn: Qpn, entry: &mut RecvEntry) -> Taken {
        let (Some(qp), Some(scratch)) = (self.qps.get_mut(&qpn.0), &mut self.scratch) else {
            return Taken::Empty;
        };
        let (bytes, offset, units) = match taken(qp.recv.next(scratch)) {
            Ok(found) => found,
            Err(none) => return none,
        };
        match RecvEntry::decode(&scratch[..bytes], entry) {
            Ok(()) => Taken::Entry { offset, units },
            Err(error) => Taken::Bad(error),
        }
    }

    fn retire_recv(&mut self, qpn: Qpn, units: u32) {
        if let Some(qp) = self.qps.get_mut(&qpn.0) {
            qp.recv.release(units);
        }
    }

    fn complete(&mut self, cq: Cqn, completion: &Completion, solicited: bool) -> Result<(), CqFull> {
        let Some(queue) = self.cqs.get_mut(&cq.0) else {
            return Err(CqFull);
        };
        queue.ring.push(completion).map_err(|_| CqFull)?;
        if let Some(events) = queue.events {
            if queue.ring.take_arm(solicited) {
                self.tell(events.fd, events.cookie.to_ne_bytes());
            }
        }
        Ok(())
    }

    fn raise(&mut self, event: AsyncEvent) {
        let fd = match event.kind {
            AsyncKind::CqErr => self.cqs.get(&event.object).map(|cq| cq.async_fd),
            AsyncKind::DeviceFatal | AsyncKind::PortActive | AsyncKind::PortErr => {
                for fd in &self.opens {
                    self.tell(*fd, async_record(event));
                }
                None
            }
            _ => self.qps.get(&event.object).map(|qp| qp.async_fd),
        };
        if let Some(fd) = fd {
            self.tell(fd, async_record(event));
        }
    }
}
