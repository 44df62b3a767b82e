//! A host without a machine, and a program that asks.

use std::collections::BTreeMap;

use srdma_abi::command::*;
use srdma_abi::{QpAttributes, QpMask};
use srdma_seams::TenantId;
use srdma_vstellar::host::Change;
use srdma_vstellar::{Definition, DeviceId, Host, Interpreter, Port, Refusal, SessionId, Who};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Attached,
    Pd,
    Mr,
    Channel,
    Cq,
    Qp,
}

/// Every object with its session, as the host made them.
#[derive(Default)]
pub struct Model {
    pub objects: BTreeMap<(Kind, u64), SessionId>,
    /// Session whose command is being carried out.
    pub speaks: Option<SessionId>,
    pub tenants: BTreeMap<u32, TenantId>,
    pub exposed: BTreeMap<u32, Name>,
    /// Every so many calls that make something fail; 0: none.
    pub fail_every: u32,
    pub disk_is_full: bool,
    pub kept: Vec<Change>,
    calls: u32,
    /// The number made last.
    pub next: u32,
}

impl Model {
    fn can(&mut self) -> Result<(), Refusal> {
        self.calls += 1;
        if self.calls.checked_rem(self.fail_every) == Some(0) {
            return Err(Refusal::new(Denial::Host, "no descriptor is free"));
        }
        Ok(())
    }

    fn make(&mut self, kind: Kind) -> Result<u32, Refusal> {
        self.can()?;
        self.next += 1;
        self.objects.insert((kind, self.next.into()), self.speaks.unwrap());
        Ok(self.next)
    }

    /// It must be there, and be of whoever speaks.
    fn check(&self, kind: Kind, number: u32) {
        let owner = self.objects.get(&(kind, number.into()));
        assert_eq!(owner, self.speaks.as_ref(), "{kind:?} {number}");
    }

    fn end(&mut self, kind: Kind, number: u32) -> Result<(), Refusal> {
        self.check(kind, number);
        self.objects.remove(&(kind, number.into()));
        Ok(())
    }
}

impl Host for Model {
    fn keep(&mut self, change: &Change) -> Result<(), Refusal> {
        if self.disk_is_full {
            return Err(Refusal::new(Denial::Host, "no space left on device"));
        }
        self.kept.push(*change);
        Ok(())
    }
    fn port(&mut self) -> Port {
        Port { gid: [9; 16], mtu_bytes: 1500, ..Port::default() }
    }
    fn attach(&mut self, session: SessionId, _tenant: TenantId) -> Result<Attached, Refusal> {
        self.can()?;
        self.objects.insert((Kind::Attached, session.0), session);
        Ok(Attached { bells: 64, reserved: 0 })
    }
    fn detach(&mut self, session: SessionId) {
        assert!(self.objects.remove(&(Kind::Attached, session.0)).is_some());
        assert!(self.objects.values().all(|owner| *owner != session), "something is left of {session:?}");
    }
    fn alloc_pd(&mut self, tenant: TenantId) -> Result<u32, Refusal> {
        let pd = self.make(Kind::Pd)?;
        self.tenants.insert(pd, tenant);
        Ok(pd)
    }
    fn dealloc_pd(&mut self, pd: u32) -> Result<(), Refusal> {
        self.end(Kind::Pd, pd)
    }
    fn register(&mut self, session: SessionId, region: &RegisterMemory) -> Result<u32, Refusal> {
        assert_eq!(Some(session), self.speaks);
        self.check(Kind::Pd, region.pd);
        self.make(Kind::Mr)
    }
    fn deregister(&mut self, key: u32) -> Result<(), Refusal> {
        self.end(Kind::Mr, key)
    }
    fn create_channel(&mut self, _session: SessionId) -> Result<u32, Refusal> {
        self.make(Kind::Channel)
    }
    fn destroy_channel(&mut self, _session: SessionId, channel: u32) {
        self.end(Kind::Channel, channel).unwrap();
    }
    fn cq_bytes(&mut self, asked: &CreateCq) -> Result<u64, Refusal> {
        Ok(u64::from(asked.entries) * 64)
    }
    fn create_cq(&mut self, _session: SessionId, asked: &CreateCq) -> Result<CqCreated, Refusal> {
        if asked.channel != NO_CHANNEL {
            self.check(Kind::Channel, asked.channel);
        }
        Ok(CqCreated { number: self.make(Kind::Cq)?, units: asked.entries })
    }
    fn destroy_cq(&mut self, cq: u32) -> Result<(), Refusal> {
        self.end(Kind::Cq, cq)
    }
    fn signal_cq(&mut self, cq: u32) {
        self.check(Kind::Cq, cq);
    }
    fn qp_bytes(&mut self, asked: &CreateQp) -> Result<u64, Refusal> {
        Ok(u64::from(asked.max_send_wr) * 64)
    }
    fn create_qp(&mut self, session: SessionId, asked: &CreateQp) -> Result<QpCreated, Refusal> {
        assert_eq!(Some(session), self.speaks);
        self.check(Kind::Pd, asked.pd);
        [asked.send_cq, asked.recv_cq].into_iter().for_each(|cq| self.check(Kind::Cq, cq));
        Ok(QpCreated { number: self.make(Kind::Qp)?, ..QpCreated::default() })
    }
    fn modify_qp(&mut self, qp: u32, _: &QpAttributes, _: QpMask) -> Result<(), Refusal> {
        self.check(Kind::Qp, qp);
        Ok(())
    }
    fn query_qp(&mut self, qp: u32) -> Result<QpAttributes, Refusal> {
        self.check(Kind::Qp, qp);
        Ok(QpAttributes::default())
    }
    fn destroy_qp(&mut self, _session: SessionId, qp: u32) -> Result<(), Refusal> {
        self.end(Kind::Qp, qp)
    }
    fn expose(&mut self, device: DeviceId, definition: &Definition) -> Result<Path, Refusal> {
        self.exposed.insert(device.0, definition.name);
        Ok(Path::default())
    }
    fn conceal(&mut self, device: DeviceId) {
        self.exposed.remove(&device.0);
    }
}

/// An interpreter with its host, and a manager.
pub struct Ground {
    pub interpreter: Interpreter,
    pub model: Model,
    pub manager: SessionId,
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

impl Ground {
    pub fn new() -> Ground {
        let many = 1 << 16;
        let quota = Quota {
            pds: many,
            mrs: many,
            cqs: many,
            qps: many,
            channels: many,
            sessions: many,
            memory_bytes: 1 << 40,
            ring_bytes: 1 << 30,
        };
        let mut interpreter = Interpreter::new(quota);
        let manager = interpreter.connect(Who::Manager);
        Ground { interpreter, model: Model::default(), manager }
    }

    /// One message and its answer.
    pub fn send(&mut self, session: SessionId, message: &[u8]) -> Vec<u8> {
        let mut out = [0; MESSAGE_BYTES_MAX];
        self.model.speaks = Some(session);
        let bytes = self.interpreter.execute(session, message, &mut self.model, &mut out);
        out[..bytes].to_vec()
    }

    pub fn ask<R: Request>(&mut self, session: SessionId, request: R) -> Result<R::Reply, (u32, Refused)> {
        let mut message = [0; MESSAGE_BYTES_MAX];
        let bytes = encode(R::CODE, 5, 0, &request, &mut message);
        let answer = self.send(session, &message[..bytes]);
        assert_eq!(header(&answer).unwrap().0.sequence, 5);
        decode_reply::<R>(&answer).unwrap()
    }

    /// The kind of refusal that `request` meets.
    pub fn refused<R: Request>(&mut self, session: SessionId, request: R) -> (u32, String)
    where
        R::Reply: std::fmt::Debug,
    {
        let (_, refused) = self.ask(session, request).unwrap_err();
        (refused.denial, refused.text().to_owned())
    }

    pub fn define(&mut self, device: &str, tenant: &str, quota: Quota) -> DeviceId {
        let definition =
            DefineDevice { name: name(device), tenant: name(tenant), quota, ..DefineDevice::default() };
        DeviceId(self.ask(self.manager, Define(definition)).unwrap().number)
    }

    /// A program that is attached.
    pub fn attach(&mut self, device: DeviceId) -> SessionId {
        let session = self.interpreter.connect(Who::Program(device));
        self.ask(session, AskAttach(Attach::default())).unwrap();
        session
    }

    pub fn leave(&mut self, session: SessionId) {
        self.model.speaks = Some(session);
        self.interpreter.disconnect(session, &mut self.model);
    }

    pub fn row(&mut self, device: &str) -> DeviceRow {
        self.ask(self.manager, Show(DeviceNamed { name: name(device) })).unwrap()
    }
}

/// What a program usually makes.
pub struct Made {
    pub pd: u32,
    pub key: u32,
    pub channel: u32,
    pub cq: u32,
    pub qp: u32,
}

impl Ground {
    pub fn make(&mut self, session: SessionId) -> Made {
        let pd = self.ask(session, AskPd::default()).unwrap().number;
        let region = RegisterMemory { pd, length: 4096, ..RegisterMemory::default() };
        let key = self.ask(session, AskMemory(region)).unwrap().number;
        let channel = self.ask(session, AskChannel::default()).unwrap().number;
        let cq = self.ask(session, AskCq(CreateCq { entries: 8, channel, cookie: 1 })).unwrap().number;
        let asked = CreateQp { pd, send_cq: cq, recv_cq: cq, max_send_wr: 4, ..CreateQp::default() };
        let qp = self.ask(session, AskQp(asked)).unwrap().number;
        Made { pd, key, channel, cq, qp }
    }
}
