//! A device for programs in other processes: one worker, owned by one thread, that serves many of them.
//!
//! Nothing here is locked: whoever owns a [`Hosted`] owns its queue pairs, and control calls are method calls of the same thread.
//! A program that posts rings its own doorbell page. While the owner is awake it looks at the pages of the programs that
//! are; a page that was found quiet before a sleep is not looked at again until its program wakes the owner ([`Hosted::rouse`]),
//! so that programs that do nothing cost nothing.
//!
//! The owner's loop: [`Hosted::turn`] while it returns true; then [`Hosted::lie_down`], and if that gives a time, sleep until
//! then, a datagram at [`Hosted::readable_fd`], or a program's wake-up.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use srdma_abi::{PortInfo, QpAttributes, QpInit, QpMask};
use srdma_dma::ProcessMemory;
use srdma_memory::{AddressSpace, Rights};
use srdma_ring::{CompletionProducer, DoorbellPage, WorkConsumer};
use srdma_seams::{Cqn, MrKey, Now, PdId, Qpn, TenantId};

use crate::bells::Collected;
use crate::control::{check_route, open_endpoint};
use crate::device::{interface_of, new_nic, port, DeviceError, StartError};
use crate::options::Options;
use crate::owed::Owed;
use crate::queues::CqEvents;
use crate::wake::Pillow;
use crate::worker::Worker;
use crate::{background, claims, clock, stats};

/// In a program's table of bells: no queue pair.
const NOBODY: u32 = u32::MAX;

/// Bells of one queue pair on its program's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpBells {
    /// Rung when sends were posted.
    pub send: u32,
    /// Rung when receives were.
    pub recv: u32,
}

/// A program that is attached.
struct Program {
    page: DoorbellPage,
    async_fd: RawFd,
    /// Queue pairs by position on the page: two bells each.
    places: Vec<u32>,
    is_awake: bool,
}

impl Program {
    /// A free position, taken.
    fn take_place(&mut self, qpn: Qpn) -> Option<u32> {
        let place = match self.places.iter().position(|&number| number == NOBODY) {
            Some(free) => free,
            None if self.places.len() < self.page.queues() as usize / 2 => {
                self.places.push(NOBODY);
                self.places.len() - 1
            }
            None => return None,
        };
        self.places[place] = qpn.0;
        Some(place as u32)
    }
}

/// One address of this host as a software RNIC for other processes.
pub struct Hosted {
    address: IpAddr,
    options: Options,
    worker: Worker,
    programs: Vec<Option<Program>>,
    /// Programs whose pages are looked at.
    awake: Vec<u32>,
    sends: Vec<u16>,
    recvs: Vec<u16>,
}

impl Hosted {
    /// Claims a slot of `address`.
    pub fn open(address: IpAddr, options: Options) -> Result<Hosted, StartError> {
        let system = |what| move |source| StartError::System { what, source };
        let found = interface_of(address).map_err(system("Listing the addresses of this host"))?;
        let nic = new_nic(address, found.map_or(1_500, |found| found.mtu_bytes), &options)?;
        let pillow = Arc::new(Pillow::new().map_err(system("Making a timerfd"))?);
        let mut worker = Worker::new(nic, Arc::new(Owed::default()), pillow);
        worker.world.straight.is_impossible = true;
        let _claiming = claims::claiming();
        let (endpoint, batch) = open_endpoint(address, &options)?;
        worker.adopt(endpoint, batch);
        let (programs, awake) = (Vec::new(), Vec::new());
        Ok(Hosted { address, options, worker, programs, awake, sends: Vec::new(), recvs: Vec::new() })
    }

    /// Its address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// UDP port of its slot.
    pub fn slot_port(&self) -> Option<u16> {
        self.worker.slot().map(|(_, slot)| slot.port())
    }

    /// State of the port, as the interface is now.
    pub fn port(&self) -> PortInfo {
        port(self.address)
    }

    /// A program has come: bytes of its regions are reached through `memory`, its posts are announced on `page`, events
    /// are written to `async_fd`, which stays open until it is detached. Its number, which names it in the other calls.
    pub fn attach(&mut self, memory: ProcessMemory, page: DoorbellPage, async_fd: RawFd) -> u32 {
        let number = self.programs.iter().position(Option::is_none).unwrap_or_else(|| {
            self.programs.push(None);
            self.programs.len() - 1
        });
        self.programs[number] = Some(Program { page, async_fd, places: Vec::new(), is_awake: true });
        self.awake.push(number as u32);
        self.worker.world.programs.set(number as u32, Some(memory));
        self.worker.world.rings.learn(async_fd);
        self.worker.world.rings.opens.push(async_fd);
        number as u32
    }

    /// It has gone; all that was made for it is destroyed already.
    pub fn detach(&mut self, program: u32) {
        let Some(gone) = self.programs.get_mut(program as usize).and_then(Option::take) else { return };
        self.awake.retain(|&awake| awake != program);
        self.worker.world.programs.set(program, None);
        self.worker.world.rings.opens.retain(|&fd| fd != gone.async_fd);
    }

    /// Programs attached.
    pub fn attached(&self) -> usize {
        self.programs.iter().flatten().count()
    }

    fn program(&mut self, number: u32) -> Result<&mut Program, DeviceError> {
        self.programs.get_mut(number as usize).and_then(Option::as_mut).ok_or(DeviceError::Gone)
    }

    /// Makes a protection domain of a tenant.
    pub fn alloc_pd(&mut self, tenant: TenantId) -> Result<u32, DeviceError> {
        Ok(self.worker.nic.alloc_pd_of(tenant)?.0)
    }

    /// Removes it.
    pub fn dealloc_pd(&mut self, pd: u32) -> Result<(), DeviceError> {
        Ok(self.worker.nic.dealloc_pd(PdId(pd))?)
    }

    /// Registers memory of a program.
    pub fn register(
        &mut self,
        program: u32,
        pd: u32,
        base: u64,
        length: u64,
        iova: u64,
        access: u32,
    ) -> Result<u32, DeviceError> {
        let space = AddressSpace::Program(program);
        Ok(self.worker.nic.register_in(space, PdId(pd), base, length, iova, Rights(access))?.0)
    }

    /// When this returns, no access through the key can follow.
    pub fn deregister(&mut self, key: u32) -> Result<(), DeviceError> {
        Ok(self.worker.nic.deregister(MrKey(key))?)
    }

    /// Makes a completion queue on `ring`; events are written to descriptors that stay open until it is destroyed.
    pub fn create_cq(
        &mut self,
        program: u32,
        ring: CompletionProducer,
        events: Option<CqEvents>,
    ) -> Result<Cqn, DeviceError> {
        let async_fd = self.program(program)?.async_fd;
        self.worker.create_cq(ring, events, async_fd)
    }

    /// Removes it.
    pub fn destroy_cq(&mut self, cq: Cqn) -> Result<(), DeviceError> {
        self.worker.destroy_cq(cq)
    }

    /// Writes an event of a completion queue on its program's behalf.
    pub fn signal(&mut self, cq: Cqn) {
        self.worker.world.rings.signal(cq);
    }

    /// Makes a queue pair on two rings.
    pub fn create_qp(
        &mut self,
        program: u32,
        init: &QpInit,
        send: WorkConsumer,
        recv: WorkConsumer,
    ) -> Result<(Qpn, QpBells), DeviceError> {
        let async_fd = self.program(program)?.async_fd;
        let qpn = self.worker.create_qp(init, send, recv, async_fd)?;
        match self.program(program)?.take_place(qpn) {
            Some(place) => Ok((qpn, QpBells { send: 2 * place, recv: 2 * place + 1 })),
            None => {
                self.worker.destroy_qp(qpn)?;
                Err(DeviceError::Numbers)
            }
        }
    }

    /// Changes it.
    pub fn modify_qp(
        &mut self,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: QpMask,
    ) -> Result<(), DeviceError> {
        if mask.contains(QpMask::AV) {
            check_route(self.address, attributes)?;
        }
        self.worker.modify_qp(qpn, attributes, mask)
    }

    /// Shows it.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpAttributes, DeviceError> {
        Ok(self.worker.nic.query_qp(qpn)?.0)
    }

    /// Removes it; its number goes into quarantine.
    pub fn destroy_qp(&mut self, program: u32, qpn: Qpn) -> Result<(), DeviceError> {
        self.worker.destroy_qp(qpn)?;
        let program = self.program(program)?;
        program.places.iter_mut().filter(|number| **number == qpn.0).for_each(|number| *number = NOBODY);
        Ok(())
    }

    /// A program has posted while its page was not looked at.
    pub fn rouse(&mut self, number: u32) {
        let Some(program) = self.programs.get_mut(number as usize).and_then(Option::as_mut) else { return };
        if !std::mem::replace(&mut program.is_awake, true) {
            program.page.awake();
            self.awake.push(number);
        }
    }

    /// One turn of work. Whether there is more to do at once.
    pub fn turn(&mut self) -> bool {
        self.collect();
        let had_packets = self.worker.turn(Collected { sends: &self.sends, recvs: &self.recvs });
        had_packets || self.worker.more
    }

    /// Looks at the pages. What stands on them is anybody's: a bell that belongs to no queue pair rings for nobody.
    fn collect(&mut self) {
        let Hosted { programs, awake, sends, recvs, .. } = self;
        sends.clear();
        recvs.clear();
        for number in awake.iter() {
            let Some(Some(program)) = programs.get(*number as usize) else { continue };
            program.page.take(|bell| {
                let qpn = program.places.get(bell as usize / 2).copied().unwrap_or(NOBODY);
                if qpn != NOBODY {
                    let list = if bell % 2 == 0 { &mut *sends } else { &mut *recvs };
                    list.push(Qpn(qpn).index());
                }
            });
        }
    }

    /// About to sleep: until when it may, `None` inside for as long as nothing happens. `None`: there is work.
    pub fn lie_down(&mut self) -> Option<Option<Now>> {
        let now = clock::now();
        let deadline = self.worker.deadline(now);
        if deadline.is_some_and(|at| at <= now) {
            return None;
        }
        let programs = &mut self.programs;
        self.awake.retain(|&number| {
            let Some(Some(program)) = programs.get_mut(number as usize) else { return false };
            program.is_awake = !program.page.prepare_sleep();
            program.is_awake
        });
        self.awake.is_empty().then_some(deadline)
    }

    /// [`Hosted::lie_down`] as a span: 0 where there is work, `None` for as long as nothing happens.
    pub fn may_sleep_ns(&mut self) -> Option<u64> {
        match self.lie_down() {
            None => Some(0),
            Some(until) => {
                let span = until.map(|until| until.since(clock::now()));
                clock::expect_within(span);
                span.map(|span| span.0)
            }
        }
    }

    /// To be called after each sleep.
    pub fn woke(&self) {
        clock::awake();
    }

    /// To be called once by the thread that owns it: has it woken punctually, and let in at once when a packet comes.
    pub fn settle_in() {
        background::ask_for_short_turns();
    }

    /// What to sleep on beside the programs' wake-ups.
    pub fn readable_fd(&self) -> Option<RawFd> {
        self.worker.world.endpoint.as_ref().map(|endpoint| endpoint.readable_fd().as_raw_fd())
    }

    /// Every counter as JSON, as `--stats` writes it.
    pub fn report(&self) -> String {
        stats::report(self.address, &self.options, &self.worker)
    }

    /// Tells all peers that this is the end.
    pub fn shut_down(&mut self) {
        for qpn in self.worker.world.rings.queue_pairs() {
            // One that is already gone needs no farewell.
            let _ = self.worker.destroy_qp(qpn);
        }
        if let Some(endpoint) = &mut self.worker.world.endpoint {
            let _ = endpoint.flush_capture();
        }
    }
}
