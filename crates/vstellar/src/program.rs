//! Commands of an attached program, one by one: is the handle its own, is there room, then the host, then the books.
//!
//! What the host refuses is given back, so that a refused command changes nothing.

use alloc::format;

use srdma_abi::command::{
    Attributes, CqCreated, CreateCq, CreateQp, Denial, ModifyQp, QpCreated, RegisterMemory, NO_CHANNEL,
};
use srdma_abi::control::LIMITS;
use srdma_abi::{QpInit, QpMask};

use crate::host::Host;
use crate::interpreter::Reply;
use crate::quota::{Kind, Part};
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::session::{own, Held, HeldCq, SessionId};

/// An attached program while one of its commands is carried out.
pub(crate) struct Program<'a, H: Host> {
    pub(crate) session: SessionId,
    pub(crate) held: &'a mut Held,
    pub(crate) registry: &'a mut Registry,
    pub(crate) host: &'a mut H,
}

impl<H: Host> Program<'_, H> {
    /// Has the host make something that takes `parts`.
    fn make<T>(
        &mut self,
        parts: &[Part],
        make: impl FnOnce(&mut H, &mut Held) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.registry.take(self.held.device, parts)?;
        let made = make(self.host, self.held);
        if made.is_err() {
            self.registry.give_back(self.held.device, parts);
        }
        made
    }

    fn give_back(&mut self, parts: &[Part]) -> Reply {
        self.registry.give_back(self.held.device, parts);
        Reply::Nothing
    }

    pub(crate) fn alloc_pd(&mut self) -> Result<u32, Refusal> {
        let tenant = self.registry.device(self.held.device).map(|device| device.tenant);
        let tenant = tenant.ok_or_else(|| Refusal::new(Denial::Unknown, "the device was removed"))?;
        self.make(&[(Kind::Pds, 1)], |host, held| {
            let pd = host.alloc_pd(tenant)?;
            held.pds.insert(pd, ());
            Ok(pd)
        })
    }

    pub(crate) fn dealloc_pd(&mut self, pd: u32) -> Result<Reply, Refusal> {
        own(&mut self.held.pds, pd, "protection domain")?;
        self.host.dealloc_pd(pd)?;
        self.held.pds.remove(&pd);
        Ok(self.give_back(&[(Kind::Pds, 1)]))
    }

    pub(crate) fn register(&mut self, asked: &RegisterMemory) -> Result<u32, Refusal> {
        own(&mut self.held.pds, asked.pd, "protection domain")?;
        let session = self.session;
        self.make(&[(Kind::Mrs, 1), (Kind::MemoryBytes, asked.length)], |host, held| {
            let key = host.register(session, asked)?;
            held.keys.insert(key, asked.length);
            Ok(key)
        })
    }

    pub(crate) fn deregister(&mut self, key: u32) -> Result<Reply, Refusal> {
        let bytes = *own(&mut self.held.keys, key, "memory region")?;
        self.host.deregister(key)?;
        self.held.keys.remove(&key);
        Ok(self.give_back(&[(Kind::Mrs, 1), (Kind::MemoryBytes, bytes)]))
    }

    pub(crate) fn create_channel(&mut self) -> Result<u32, Refusal> {
        let session = self.session;
        self.make(&[(Kind::Channels, 1)], |host, held| {
            let channel = host.create_channel(session)?;
            held.channels.insert(channel, 0);
            Ok(channel)
        })
    }

    pub(crate) fn destroy_channel(&mut self, channel: u32) -> Result<Reply, Refusal> {
        let queues = *own(&mut self.held.channels, channel, "completion channel")?;
        if queues > 0 {
            let text = format!("{queues} completion queues use channel {channel}");
            return Err(Refusal::new(Denial::Busy, text));
        }
        self.host.destroy_channel(self.session, channel);
        self.held.channels.remove(&channel);
        Ok(self.give_back(&[(Kind::Channels, 1)]))
    }

    pub(crate) fn create_cq(&mut self, asked: &CreateCq) -> Result<CqCreated, Refusal> {
        if asked.entries == 0 || asked.entries > LIMITS.max_cqe {
            let (given, most) = (asked.entries, LIMITS.max_cqe);
            let text = format!("a completion queue holds 1 to {most} completions, not {given}");
            return Err(Refusal::new(Denial::Value, text));
        }
        if asked.channel != NO_CHANNEL {
            own(&mut self.held.channels, asked.channel, "completion channel")?;
        }
        let (session, bytes) = (self.session, self.host.cq_bytes(asked)?);
        self.make(&[(Kind::Cqs, 1), (Kind::RingBytes, bytes)], |host, held| {
            let created = host.create_cq(session, asked)?;
            held.cqs.insert(created.number, HeldCq { bytes, channel: asked.channel });
            held.count_channel(asked.channel, true);
            Ok(created)
        })
    }

    pub(crate) fn destroy_cq(&mut self, cq: u32) -> Result<Reply, Refusal> {
        let HeldCq { bytes, channel } = *own(&mut self.held.cqs, cq, "completion queue")?;
        self.host.destroy_cq(cq)?;
        self.held.cqs.remove(&cq);
        self.held.count_channel(channel, false);
        Ok(self.give_back(&[(Kind::Cqs, 1), (Kind::RingBytes, bytes)]))
    }

    pub(crate) fn signal_cq(&mut self, cq: u32) -> Result<Reply, Refusal> {
        own(&mut self.held.cqs, cq, "completion queue")?;
        self.host.signal_cq(cq);
        Ok(Reply::Nothing)
    }

    pub(crate) fn create_qp(&mut self, asked: &CreateQp) -> Result<QpCreated, Refusal> {
        QpInit::from(asked)
            .check()
            .map_err(|out_of_range| Refusal::new(Denial::Value, format!("{out_of_range}")))?;
        own(&mut self.held.pds, asked.pd, "protection domain")?;
        for cq in [asked.send_cq, asked.recv_cq] {
            own(&mut self.held.cqs, cq, "completion queue")?;
        }
        let (session, bytes) = (self.session, self.host.qp_bytes(asked)?);
        self.make(&[(Kind::Qps, 1), (Kind::RingBytes, bytes)], |host, held| {
            let created = host.create_qp(session, asked)?;
            held.qps.insert(created.number, bytes);
            Ok(created)
        })
    }

    pub(crate) fn modify_qp(&mut self, asked: &ModifyQp) -> Result<Reply, Refusal> {
        own(&mut self.held.qps, asked.number, "queue pair")?;
        let attributes = asked.attributes.checked();
        let attributes = attributes.ok_or_else(|| Refusal::new(Denial::Value, "no such state"))?;
        self.host.modify_qp(asked.number, &attributes, QpMask(asked.mask))?;
        Ok(Reply::Nothing)
    }

    pub(crate) fn query_qp(&mut self, qp: u32) -> Result<Attributes, Refusal> {
        own(&mut self.held.qps, qp, "queue pair")?;
        Ok((&self.host.query_qp(qp)?).into())
    }

    pub(crate) fn destroy_qp(&mut self, qp: u32) -> Result<Reply, Refusal> {
        let bytes = *own(&mut self.held.qps, qp, "queue pair")?;
        self.host.destroy_qp(self.session, qp)?;
        self.held.qps.remove(&qp);
        Ok(self.give_back(&[(Kind::Qps, 1), (Kind::RingBytes, bytes)]))
    }
}
