//! Control calls: objects made, changed, shown and removed.

use alloc::boxed::Box;

use srdma_abi::control::LIMITS;
use srdma_abi::{QpAttributes, QpInit, QpMask, QpState};
use srdma_memory::table::RegisterError;
use srdma_memory::{AddressSpace, Asker, Region, Rights};
use srdma_seams::{ConnectionId, Cqn, MrKey, Now, Observer, PdId, Qpn, TenantId};
use srdma_transport::Snapshot;

use crate::cx::Cx;
use crate::doom::Doom;
use crate::nic::Nic;
use crate::qp::Qp;
use crate::world::World;
use crate::ControlError;

/// The one tenant of a device that has only one.
const TENANT: TenantId = TenantId(0);

impl Nic {
    /// Makes a protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId, ControlError> {
        self.alloc_pd_of(TENANT)
    }

    /// Makes one for a tenant: regions and queue pairs made with it are the tenant's.
    pub fn alloc_pd_of(&mut self, tenant: TenantId) -> Result<PdId, ControlError> {
        limit("protection domains (max_pd)", self.pds.live(), LIMITS.max_pd)?;
        Ok(self.pds.insert(tenant))
    }

    /// Removes it; busy while regions or queue pairs use it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), ControlError> {
        let users = self.pds.users(pd).ok_or(ControlError::Unknown("protection domain"))?;
        if users > 0 || self.shared.memory.regions_in(pd) > 0 {
            return Err(ControlError::Busy("protection domain"));
        }
        self.pds.remove(pd);
        Ok(())
    }

    /// Registers `length` bytes at virtual address `base`, named `iova` by users of the key.
    pub fn register(
        &mut self,
        pd: PdId,
        base: u64,
        length: u64,
        iova: u64,
        rights: Rights,
    ) -> Result<MrKey, ControlError> {
        self.register_in(AddressSpace::Host, pd, base, length, iova, rights)
    }

    /// As [`Nic::register`], for memory of any address space.
    pub fn register_in(
        &mut self,
        space: AddressSpace,
        pd: PdId,
        base: u64,
        length: u64,
        iova: u64,
        rights: Rights,
    ) -> Result<MrKey, ControlError> {
        let tenant = self.pds.tenant(pd).ok_or(ControlError::Unknown("protection domain"))?;
        let region = Region { tenant, pd, iova, length, rights, space, base };
        self.shared.memory.register(region).map_err(|error| match error {
            RegisterError::Overflow { .. } => {
                ControlError::Invalid("the region reaches past the end of the address space")
            }
            RegisterError::Rights => {
                ControlError::Invalid("IBV_ACCESS_REMOTE_WRITE and REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE")
            }
            RegisterError::Limit { limit } => {
                ControlError::Limit { what: "memory regions (max_mr)", limit: u64::from(limit) }
            }
        })
    }

    /// After this returns no access through the key can follow: every access asks the table anew,
    /// within a call to the device.
    pub fn deregister(&mut self, key: MrKey) -> Result<(), ControlError> {
        self.shared.memory.deregister(key).map_err(|_| ControlError::Unknown("memory region"))
    }

    /// Makes a completion queue; its ring is the world's.
    pub fn create_cq(&mut self) -> Result<Cqn, ControlError> {
        limit("completion queues (max_cq)", self.shared.cqs.live(), LIMITS.max_cq)?;
        Ok(self.shared.cqs.insert())
    }

    /// Removes it; busy while queue pairs use it.
    pub fn destroy_cq(&mut self, cq: Cqn) -> Result<(), ControlError> {
        match self.shared.cqs.users(cq) {
            None => Err(ControlError::Unknown("completion queue")),
            Some(0) => {
                self.shared.cqs.remove(cq);
                Ok(())
            }
            Some(_) => Err(ControlError::Busy("completion queue")),
        }
    }

    /// Makes an RC queue pair with the number `qpn`, which the engine chose and keeps in quarantine
    /// after use; `connection` is 64 random bits from the operating system.
    pub fn create_qp(
        &mut self,
        qpn: Qpn,
        init: &QpInit,
        connection: ConnectionId,
    ) -> Result<(), ControlError> {
        limit("queue pairs (max_qp)", self.qps.live(), LIMITS.max_qp)?;
        if !qpn.is_usable() {
            return Err(ControlError::Invalid("no queue pair can have that number"));
        }
        if self.qps.position(qpn).is_some() {
            return Err(ControlError::Invalid("that queue-pair number is in use"));
        }
        check_capabilities(init)?;
        let pd = PdId(init.pd);
        let tenant = self.pds.tenant(pd).ok_or(ControlError::Unknown("protection domain"))?;
        for cq in [init.send_cq, init.recv_cq] {
            self.shared.cqs.users(Cqn(cq)).ok_or(ControlError::Unknown("completion queue"))?;
        }
        self.pds.add_user(pd);
        self.shared.cqs.add_user(Cqn(init.send_cq));
        self.shared.cqs.add_user(Cqn(init.recv_cq));
        self.serial = self.serial.wrapping_add(1);
        let doom = Doom::new(&self.shared.config.faults, self.serial);
        let qp = Qp::new(qpn, *init, Asker { tenant, pd }, connection, doom);
        self.qps.insert(qpn, Box::new(qp), self.serial);
        Ok(())
    }

    /// Changes attributes and state, as ibv_modify_qp(3). On the way to RTR the peer's address and
    /// slot port are resolved and the handshake starts; to ERR, everything is flushed. `connection`
    /// is a fresh random id, used if the transition starts a new connection (RESET → … → RTR).
    ///
    /// A call that is refused changes nothing.
    pub fn modify_qp(
        &mut self,
        now: Now,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: QpMask,
        connection: ConnectionId,
        world: &mut impl World,
        obs: &mut impl Observer,
    ) -> Result<(), ControlError> {
        let cx = &mut Cx { now, world, obs, shared: &mut self.shared };
        let qp = self.qps.find_mut(qpn).ok_or(ControlError::Unknown("queue pair"))?;
        qp.modify(cx, attributes, mask, connection)?;
        qp.settle(cx);
        self.spread_overruns(now, world, obs);
        Ok(())
    }

    /// Shows attributes and how it was made.
    pub fn query_qp(&self, qpn: Qpn) -> Result<(QpAttributes, QpInit), ControlError> {
        let qp = self.qps.find(qpn).ok_or(ControlError::Unknown("queue pair"))?;
        Ok((QpAttributes { cur_state: qp.attributes.state, ..qp.attributes }, qp.init))
    }

    /// State of a queue pair for whoever watches, and that of its connection if it has one.
    pub fn watch_qp(&self, qpn: Qpn) -> Option<(QpState, Option<Snapshot>)> {
        let qp = self.qps.find(qpn)?;
        Some((
            qp.attributes.state,
            qp.conn.as_ref().map(|conn| conn.snapshot(self.shared.peers.trunk_of(qp.peer_index))),
        ))
    }

    /// Removes it: tells the peer (CLOSE), delivers no completion afterwards, releases held payloads.
    pub fn destroy_qp(
        &mut self,
        now: Now,
        qpn: Qpn,
        world: &mut impl World,
        obs: &mut impl Observer,
    ) -> Result<(), ControlError> {
        let mut qp = self.qps.remove(qpn).ok_or(ControlError::Unknown("queue pair"))?;
        let cx = &mut Cx { now, world, obs, shared: &mut self.shared };
        if qp.attributes.state != QpState::Reset {
            qp.say_goodbye(cx);
        }
        qp.release_pieces(cx);
        qp.part(cx.shared);
        self.pds.remove_user(PdId(qp.init.pd));
        self.shared.cqs.remove_user(Cqn(qp.init.send_cq));
        self.shared.cqs.remove_user(Cqn(qp.init.recv_cq));
        Ok(())
    }
}

fn limit(what: &'static str, live: u32, limit: u32) -> Result<(), ControlError> {
    match live < limit {
        true => Ok(()),
        false => Err(ControlError::Limit { what, limit: u64::from(limit) }),
    }
}

fn check_capabilities(init: &QpInit) -> Result<(), ControlError> {
    let rules = [
        (init.max_send_wr <= LIMITS.max_qp_wr, "max_send_wr exceeds the device's max_qp_wr"),
        (init.max_recv_wr <= LIMITS.max_qp_wr, "max_recv_wr exceeds the device's max_qp_wr"),
        (init.max_send_sge <= LIMITS.max_sge, "max_send_sge exceeds the device's max_sge"),
        (init.max_recv_sge <= LIMITS.max_sge, "max_recv_sge exceeds the device's max_sge"),
        (init.max_inline_data <= LIMITS.max_inline_data, "max_inline_data exceeds what the device takes"),
    ];
    match rules.iter().find(|(fine, _)| !fine) {
        Some((_, why)) => Err(ControlError::Invalid(why)),
        None => Ok(()),
    }
}
