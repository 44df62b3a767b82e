//! What carries out the commands that were allowed: the engine, and the memory and descriptors of each program.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use srdma_abi::command::{
    Attached, CqCreated, CreateCq, CreateQp, Denial, Path, QpCreated, RegisterMemory, NO_CHANNEL,
};
use srdma_abi::{QpAttributes, QpInit, QpMask};
use srdma_engine::{CqEvents, DeviceError, Hosted};
use srdma_ring::{CompletionProducer, DoorbellPage, Layout, RingMemory, WorkConsumer};
use srdma_seams::{Cqn, Qpn, TenantId};
use srdma_vstellar::host::Change;
use srdma_vstellar::{Definition, DeviceId, Host, Port, Refusal, SessionId};

use super::memory::{event_counter, event_pipe, sealed, Mapping};
use super::peer::Peer;
use super::server::{Exposures, Keeper, Waiting};
use crate::shape;

/// Bytes of a doorbell page.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A program that is attached.
struct Program {
    /// Its number in the engine.
    number: u32,
    /// What it adds to when the engine must look.
    bell: OwnedFd,
    /// Where its asynchronous events are written: the engine has the number.
    #[allow(dead_code)]
    events: OwnedFd,
    /// The same of its completion channels.
    channels: HashMap<u32, OwnedFd>,
    last_channel: u32,
}

/// The host of the interpreter.
pub(crate) struct Rnic {
    pub(crate) engine: Hosted,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) exposures: Exposures,
    /// Whoever is at the door, attached or not.
    pub(crate) peers: HashMap<SessionId, Peer>,
    programs: HashMap<SessionId, Program>,
    /// Descriptors that belong beside the answer that is being made.
    pub(crate) beside: Vec<OwnedFd>,
    /// What does not change of the port.
    pub(crate) fixed: Port,
    keeper: Option<Box<dyn Keeper>>,
}

fn cannot(what: &str, error: &io::Error) -> Refusal {
    let mut refusal = Refusal::new(Denial::Host, format!("{what}: {error}"));
    refusal.errno = error.raw_os_error().map_or(refusal.errno, |errno| errno as u32);
    refusal
}

fn refused(error: DeviceError) -> Refusal {
    let denial = match error.errno() {
        libc::EBUSY => Denial::Busy,
        libc::EINVAL => Denial::Value,
        _ => Denial::Host,
    };
    let mut refusal = Refusal::new(denial, error.to_string());
    refusal.errno = error.errno() as u32;
    refusal
}

/// The rings of a queue pair in one piece of memory.
fn qp_layout(asked: &CreateQp) -> Result<shape::QpRings, Refusal> {
    let rings = shape::qp_rings(&QpInit::from(asked));
    rings.map_err(|error| Refusal::new(Denial::Value, error.to_string()))
}

fn cq_layout(entries: u32) -> Result<Layout, Refusal> {
    let layout = shape::cq_ring(entries);
    layout.map_err(|error| Refusal::new(Denial::Value, error.to_string()))
}

impl Rnic {
    pub(crate) fn new(
        engine: Hosted,
        waiting: Arc<Waiting>,
        exposures: Exposures,
        fixed: Port,
        keeper: Option<Box<dyn Keeper>>,
    ) -> Rnic {
        let (peers, programs, beside) = (HashMap::new(), HashMap::new(), Vec::new());
        Rnic { engine, waiting, exposures, peers, programs, beside, fixed, keeper }
    }

    fn program(&mut self, session: SessionId) -> Result<&mut Program, Refusal> {
        let gone = || Refusal::new(Denial::NotHere, "the program is not attached");
        self.programs.get_mut(&session).ok_or_else(gone)
    }

    /// The bell of a program has rung.
    pub(crate) fn rouse(&mut self, session: SessionId) {
        // The counter is not read: it is watched for changes, and a program could make a reader wait.
        if let Some(program) = self.programs.get(&session) {
            self.engine.rouse(program.number);
        }
    }

    fn memory(&self, bytes: usize) -> Result<(OwnedFd, Arc<Mapping>), Refusal> {
        let made = sealed(bytes).and_then(|memory| {
            let mapping = Mapping::new(memory.as_raw_fd(), bytes)?;
            Ok((memory, mapping))
        });
        made.map_err(|error| cannot("memory for a ring", &error))
    }
}

/// A ring at `offset` of shared memory.
fn ring(mapping: &Arc<Mapping>, offset: usize, layout: Layout) -> Result<RingMemory, Refusal> {
    let (start, bytes) = (mapping.at(offset), mapping.bytes_from(offset));
    // SAFETY: mapped until the keeper goes, sealed against shrinking, and in this process reached by this ring alone.
    let ring = unsafe { RingMemory::from_raw(layout, start, bytes, mapping.keeper()) };
    ring.map_err(|error| Refusal::new(Denial::Host, error.to_string()))
}

impl Host for Rnic {
    fn keep(&mut self, change: &Change) -> Result<(), Refusal> {
        match &mut self.keeper {
            Some(keeper) => keeper.keep(change).map_err(|text| Refusal::new(Denial::Host, text)),
            None => Ok(()),
        }
    }

    fn port(&mut self) -> Port {
        let now = self.engine.port();
        Port { mtu_bytes: now.mtu_bytes, speed_mbps: now.speed_mbps, active: now.active, ..self.fixed }
    }

    fn attach(&mut self, session: SessionId, _tenant: TenantId) -> Result<Attached, Refusal> {
        let gone = || Refusal::new(Denial::NotHere, "the program has gone");
        let peer = self.peers.get(&session).ok_or_else(gone)?;
        let memory = peer.memory().map_err(|error| {
            cannot(&format!("the daemon cannot reach the memory of process {}", peer.pid), &error)
        })?;
        let (page_memory, mapping) = self.memory(PAGE_BYTES)?;
        let bells = DoorbellPage::queues_in(PAGE_BYTES);
        // SAFETY: as for rings.
        let page = unsafe { DoorbellPage::from_raw(bells, mapping.at(0), PAGE_BYTES, mapping.keeper()) };
        let page = page.map_err(|error| Refusal::new(Denial::Host, error.to_string()))?;
        let made = || -> io::Result<_> {
            let (bell, (read, write)) = (event_counter()?, event_pipe()?);
            self.waiting.bell(session, bell.as_raw_fd())?;
            Ok((bell.try_clone()?, bell, read, write))
        };
        let (theirs, bell, read, events) =
            made().map_err(|error| cannot("descriptors of a program", &error))?;
        let number = self.engine.attach(memory, page, events.as_raw_fd());
        self.beside.extend([page_memory, theirs, read]);
        let program = Program { number, bell, events, channels: HashMap::new(), last_channel: 0 };
        self.programs.insert(session, program);
        Ok(Attached { bells, reserved: 0 })
    }

    fn detach(&mut self, session: SessionId) {
        if let Some(program) = self.programs.remove(&session) {
            self.engine.detach(program.number);
            // Closed elsewhere it would still be watched.
            self.waiting.forget(program.bell.as_raw_fd());
        }
    }

    fn alloc_pd(&mut self, tenant: TenantId) -> Result<u32, Refusal> {
        self.engine.alloc_pd(tenant).map_err(refused)
    }

    fn dealloc_pd(&mut self, pd: u32) -> Result<(), Refusal> {
        self.engine.dealloc_pd(pd).map_err(refused)
    }

    fn register(&mut self, session: SessionId, region: &RegisterMemory) -> Result<u32, Refusal> {
        let number = self.program(session)?.number;
        let RegisterMemory { pd, access, base, length, iova } = *region;
        self.engine.register(number, pd, base, length, iova, access).map_err(refused)
    }

    fn deregister(&mut self, key: u32) -> Result<(), Refusal> {
        self.engine.deregister(key).map_err(refused)
    }

    fn create_channel(&mut self, session: SessionId) -> Result<u32, Refusal> {
        let (read, write) = event_pipe().map_err(|error| cannot("a completion channel", &error))?;
        let program = self.program(session)?;
        program.last_channel += 1;
        let number = program.last_channel;
        program.channels.insert(number, write);
        self.beside.push(read);
        Ok(number)
    }

    fn destroy_channel(&mut self, session: SessionId, channel: u32) {
        if let Ok(program) = self.program(session) {
            program.channels.remove(&channel);
        }
    }

    fn cq_bytes(&mut self, asked: &CreateCq) -> Result<u64, Refusal> {
        Ok(cq_layout(asked.entries)?.bytes() as u64)
    }

    fn create_cq(&mut self, session: SessionId, asked: &CreateCq) -> Result<CqCreated, Refusal> {
        let layout = cq_layout(asked.entries)?;
        let (memory, mapping) = self.memory(layout.bytes())?;
        let producer = CompletionProducer::new(ring(&mapping, 0, layout)?);
        let program = self.program(session)?;
        let events = match asked.channel {
            NO_CHANNEL => None,
            channel => {
                let fd: RawFd = program.channels.get(&channel).map_or(-1, AsRawFd::as_raw_fd);
                Some(CqEvents { fd, cookie: asked.cookie })
            }
        };
        let number = program.number;
        let cq = self.engine.create_cq(number, producer, events).map_err(refused)?;
        self.beside.push(memory);
        Ok(CqCreated { number: cq.0, units: layout.units() })
    }

    fn destroy_cq(&mut self, cq: u32) -> Result<(), Refusal> {
        self.engine.destroy_cq(Cqn(cq)).map_err(refused)
    }

    fn signal_cq(&mut self, cq: u32) {
        self.engine.signal(Cqn(cq));
    }

    fn qp_bytes(&mut self, asked: &CreateQp) -> Result<u64, Refusal> {
        Ok(qp_layout(asked)?.bytes() as u64)
    }

    fn create_qp(&mut self, session: SessionId, asked: &CreateQp) -> Result<QpCreated, Refusal> {
        let rings = qp_layout(asked)?;
        let number = self.program(session)?.number;
        let (memory, mapping) = self.memory(rings.bytes())?;
        let send = WorkConsumer::new(ring(&mapping, 0, rings.send)?);
        let recv = WorkConsumer::new(ring(&mapping, rings.recv_offset(), rings.recv)?);
        let made = self.engine.create_qp(number, &QpInit::from(asked), send, recv);
        let (qpn, bells) = made.map_err(refused)?;
        self.beside.push(memory);
        Ok(QpCreated {
            number: qpn.0,
            send_bell: bells.send,
            recv_bell: bells.recv,
            send_units: rings.send.units(),
            recv_units: rings.recv.units(),
            recv_offset: rings.recv_offset() as u32,
        })
    }

    fn modify_qp(&mut self, qp: u32, attributes: &QpAttributes, mask: QpMask) -> Result<(), Refusal> {
        self.engine.modify_qp(Qpn(qp), attributes, mask).map_err(refused)
    }

    fn query_qp(&mut self, qp: u32) -> Result<QpAttributes, Refusal> {
        self.engine.query_qp(Qpn(qp)).map_err(refused)
    }

    fn destroy_qp(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal> {
        let number = self.program(session)?.number;
        self.engine.destroy_qp(number, Qpn(qp)).map_err(refused)
    }

    fn expose(&mut self, device: DeviceId, definition: &Definition) -> Result<Path, Refusal> {
        let place = self.exposures.open(device, definition, &self.waiting);
        place.map_err(|error| cannot("the device's socket", &error))
    }

    fn conceal(&mut self, device: DeviceId) {
        self.exposures.close(device, &self.waiting);
    }
}
