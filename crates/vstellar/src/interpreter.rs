//! The commands: who may ask what, what it takes, what is done, what is answered.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;

use srdma_abi::command::{
    self, Attached, Attributes, Command, CqCreated, Denial, DevicePage, DeviceRow, DeviceShown, Exposed,
    Header, Lifecycle, Name, Nothing, Number, QpCreated, Quota, Refused, UndefineDevice, MESSAGE_BYTES_MAX,
};

use crate::host::{Change, Host};
use crate::program::Program;
use crate::quota::Kind;
use crate::refusal::{Denials, Refusal};
use crate::registry::{Definition, DeviceId, Registry};
use crate::session::{Held, SessionId};

/// Who speaks at a door. The door knows: by the socket that was connected to, and who connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A program at the door of a device.
    Program(DeviceId),
    /// Whoever may define and remove devices.
    Manager,
}

#[derive(Debug)]
enum Session {
    /// At the door of a device, which it may look at.
    Visitor(DeviceId),
    Attached(Held),
    Manager,
}

/// Where an answer is written.
type Message = [u8; MESSAGE_BYTES_MAX];

/// Takes commands, decides, answers. One for all devices and all doors of a daemon.
#[derive(Debug)]
pub struct Interpreter {
    registry: Registry,
    sessions: BTreeMap<SessionId, Session>,
    last_session: u64,
    denials: Denials,
}

impl Interpreter {
    /// No device is defined; `host` is what all of them may have together.
    pub fn new(host: Quota) -> Interpreter {
        Interpreter {
            registry: Registry::new(host),
            sessions: BTreeMap::new(),
            last_session: 0,
            denials: Denials::default(),
        }
    }

    /// The devices.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Refusals so far.
    pub fn denials(&self) -> &Denials {
        &self.denials
    }

    /// Programs attached now, to all devices.
    pub fn attached(&self) -> usize {
        self.sessions.values().filter(|session| matches!(session, Session::Attached(_))).count()
    }

    /// Defines a device without being asked at a door: one that was defined before a restart.
    pub fn define(&mut self, definition: &Definition) -> Result<DeviceId, Refusal> {
        self.registry.define(definition)
    }

    /// Limits a tenant without being asked at a door: as before a restart.
    pub fn limit_tenant(&mut self, name: &Name, quota: &Quota) -> Result<(), Refusal> {
        self.registry.limit_tenant(name, quota).map(drop)
    }

    /// Somebody has come.
    pub fn connect(&mut self, who: Who) -> SessionId {
        self.last_session += 1;
        let session = match who {
            Who::Program(device) => Session::Visitor(device),
            Who::Manager => Session::Manager,
        };
        self.sessions.insert(SessionId(self.last_session), session);
        SessionId(self.last_session)
    }

    /// Somebody has left: all that it made is removed.
    pub fn disconnect(&mut self, session: SessionId, host: &mut impl Host) {
        let Some(Session::Attached(held)) = self.sessions.remove(&session) else { return };
        let device = held.device;
        let mut parts = held.end(session, host);
        host.detach(session);
        parts.push((Kind::Sessions, 1));
        self.registry.give_back(device, &parts);
        let drained =
            self.registry.device(device).is_some_and(|found| found.lifecycle == Lifecycle::Draining)
                && self.registry.row(device).is_some_and(|row| row.used.sessions == 0);
        if drained {
            self.registry.remove(device);
        }
    }

    /// Carries out one message of `session`; the answer is in `out`, so many bytes. Whatever the message is, there is an
    /// answer.
    pub fn execute(
        &mut self,
        session: SessionId,
        message: &[u8],
        host: &mut impl Host,
        out: &mut Message,
    ) -> usize {
        let (header, done) = match command::decode(message) {
            Ok((header, command)) => (header, self.carry_out(session, &command, host, &header, out)),
            Err(malformed) => {
                // An answer to a message whose header makes sense names it.
                let header = command::header(message).map_or(Header::default(), |(header, _)| header);
                (header, Err(malformed.into()))
            }
        };
        done.unwrap_or_else(|refusal| {
            self.denials.count(refusal.denial);
            let refused = Refused::new(refusal.denial, &refusal.text);
            command::encode(header.code, header.sequence, refusal.errno, &refused, out)
        })
    }

    fn carry_out(
        &mut self,
        session: SessionId,
        command: &Command,
        host: &mut impl Host,
        header: &Header,
        out: &mut Message,
    ) -> Result<usize, Refusal> {
        let reply = match self.sessions.get(&session) {
            Some(Session::Manager) => self.manage(command, host)?,
            Some(&Session::Visitor(device)) => self.visit(session, device, command, host)?,
            Some(Session::Attached(_)) => self.serve(session, command, host)?,
            None => return Err(Refusal::new(Denial::NotHere, "the conversation is over")),
        };
        Ok(reply.write(header, out))
    }

    /// What a manager may ask.
    fn manage(&mut self, command: &Command, host: &mut impl Host) -> Result<Reply, Refusal> {
        Ok(match command {
            Command::DefineDevice(asked) => {
                let id = self.registry.define(&asked.into())?;
                let defined = self.registry.device(id).map_or(*asked, |device| (&device.definition).into());
                if let Err(refusal) = host.keep(&Change::Device(defined)) {
                    self.registry.remove(id);
                    return Err(refusal);
                }
                Reply::Number(id.0)
            }
            Command::UndefineDevice(asked) => self.undefine(asked, host)?,
            Command::ListDevices(asked) => Reply::Page(self.registry.page(&asked.after).into()),
            Command::ShowDevice(asked) => {
                let id = self.registry.find(&asked.name)?;
                Reply::Row(self.registry.row(id).unwrap_or_default().into())
            }
            Command::ExposeDevice(asked) => self.expose(&asked.name, host)?,
            Command::LimitTenant(asked) => {
                self.registry.check_tenant(&asked.tenant, &asked.quota)?;
                host.keep(&Change::Tenant(*asked))?;
                Reply::Number(self.registry.limit_tenant(&asked.tenant, &asked.quota)?.0)
            }
            other => return Err(not_here(other, "at the daemon's own socket")),
        })
    }

    fn undefine(&mut self, asked: &UndefineDevice, host: &mut impl Host) -> Result<Reply, Refusal> {
        let id = self.registry.find(&asked.name)?;
        let attached = self.registry.row(id).map_or(0, |row| row.used.sessions);
        if attached > 0 && asked.drain == 0 {
            let text =
                format!("{attached} programs are attached to device {}; --drain waits for them", asked.name);
            return Err(Refusal::new(Denial::Busy, text));
        }
        host.keep(&Change::NoDevice(asked.name))?;
        host.conceal(id);
        if attached == 0 {
            self.registry.remove(id);
        } else if let Some(device) = self.registry.device_mut(id) {
            device.lifecycle = Lifecycle::Draining;
        }
        Ok(Reply::Nothing)
    }

    fn expose(&mut self, name: &Name, host: &mut impl Host) -> Result<Reply, Refusal> {
        let id = self.registry.find(name)?;
        let device = self.registry.device_mut(id).filter(|device| device.lifecycle != Lifecycle::Draining);
        let Some(device) = device else { return Err(going(name)) };
        let path = host.expose(id, &device.definition)?;
        device.lifecycle = Lifecycle::Exposed;
        Ok(Reply::Exposed(Exposed { path }.into()))
    }

    /// What a program may ask that is not attached yet.
    fn visit(
        &mut self,
        session: SessionId,
        device: DeviceId,
        command: &Command,
        host: &mut impl Host,
    ) -> Result<Reply, Refusal> {
        match command {
            Command::QueryDevice(_) => self.show(device, host),
            Command::Attach(_) => self.attach(session, device, host),
            other => Err(not_here(other, "before a program is attached")),
        }
    }

    fn show(&self, id: DeviceId, host: &mut impl Host) -> Result<Reply, Refusal> {
        let Some(row) = self.registry.row(id) else {
            return Err(Refusal::new(Denial::Unknown, "the device was removed"));
        };
        let port = host.port();
        let mut guid = port.guid;
        // Devices of one host differ.
        guid.iter_mut().rev().zip(id.0.to_le_bytes()).for_each(|(byte, number)| *byte ^= number);
        let shown = DeviceShown {
            id: id.0,
            interface_index: port.interface_index,
            mtu_bytes: port.mtu_bytes,
            speed_mbps: port.speed_mbps,
            port_active: port.active.into(),
            reserved: 0,
            gid: port.gid,
            guid,
            name: row.name,
            quota: row.quota,
        };
        Ok(Reply::Shown(shown.into()))
    }

    fn attach(&mut self, session: SessionId, id: DeviceId, host: &mut impl Host) -> Result<Reply, Refusal> {
        let Some(device) = self.registry.device(id) else {
            return Err(Refusal::new(Denial::Unknown, "the device was removed"));
        };
        if device.lifecycle == Lifecycle::Draining {
            return Err(going(&device.definition.name));
        }
        let tenant = device.tenant;
        let one = [(Kind::Sessions, 1)];
        self.registry.take(id, &one)?;
        match host.attach(session, tenant) {
            Ok(attached) => {
                self.sessions.insert(session, Session::Attached(Held::new(id)));
                Ok(Reply::Attached(attached))
            }
            Err(refusal) => {
                self.registry.give_back(id, &one);
                Err(refusal)
            }
        }
    }

    /// What an attached program may ask.
    fn serve(
        &mut self,
        session: SessionId,
        command: &Command,
        host: &mut impl Host,
    ) -> Result<Reply, Refusal> {
        let Interpreter { registry, sessions, .. } = self;
        let Some(Session::Attached(held)) = sessions.get_mut(&session) else {
            return Err(not_here(command, "before a program is attached"));
        };
        if let Command::QueryDevice(_) = command {
            let device = held.device;
            return self.show(device, host);
        }
        let mut program = Program { session, held, registry, host };
        Ok(match command {
            Command::AllocPd(_) => Reply::Number(program.alloc_pd()?),
            Command::DeallocPd(asked) => program.dealloc_pd(asked.number)?,
            Command::RegisterMemory(asked) => Reply::Number(program.register(asked)?),
            Command::DeregisterMemory(asked) => program.deregister(asked.number)?,
            Command::CreateChannel(_) => Reply::Number(program.create_channel()?),
            Command::DestroyChannel(asked) => program.destroy_channel(asked.number)?,
            Command::CreateCq(asked) => Reply::Cq(program.create_cq(asked)?),
            Command::DestroyCq(asked) => program.destroy_cq(asked.number)?,
            Command::SignalCq(asked) => program.signal_cq(asked.number)?,
            Command::CreateQp(asked) => Reply::Qp(program.create_qp(asked)?),
            Command::ModifyQp(asked) => program.modify_qp(asked)?,
            Command::QueryQp(asked) => Reply::Attributes(program.query_qp(asked.number)?),
            Command::DestroyQp(asked) => program.destroy_qp(asked.number)?,
            other => return Err(not_here(other, "at the socket of a device")),
        })
    }
}

fn not_here(command: &Command, place: &str) -> Refusal {
    Refusal::new(Denial::NotHere, format!("{} is no command {place}", command.row().name))
}

fn going(name: &Name) -> Refusal {
    Refusal::new(Denial::Busy, format!("device {name} is being removed"))
}

/// What a command is answered with.
pub(crate) enum Reply {
    Nothing,
    Number(u32),
    Shown(Box<DeviceShown>),
    Attached(Attached),
    Cq(CqCreated),
    Qp(QpCreated),
    Attributes(Attributes),
    Row(Box<DeviceRow>),
    Page(Box<DevicePage>),
    Exposed(Box<Exposed>),
}

impl Reply {
    /// Writes the answer to the question with `header`; its bytes.
    fn write(&self, header: &Header, out: &mut Message) -> usize {
        let (code, sequence) = (header.code, header.sequence);
        match self {
            Reply::Nothing => command::encode(code, sequence, 0, &Nothing {}, out),
            Reply::Number(number) => {
                command::encode(code, sequence, 0, &Number { number: *number, reserved: 0 }, out)
            }
            Reply::Shown(shown) => command::encode(code, sequence, 0, &**shown, out),
            Reply::Attached(attached) => command::encode(code, sequence, 0, attached, out),
            Reply::Cq(created) => command::encode(code, sequence, 0, created, out),
            Reply::Qp(created) => command::encode(code, sequence, 0, created, out),
            Reply::Attributes(attributes) => command::encode(code, sequence, 0, attributes, out),
            Reply::Row(row) => command::encode(code, sequence, 0, &**row, out),
            Reply::Page(page) => command::encode(code, sequence, 0, &**page, out),
            Reply::Exposed(exposed) => command::encode(code, sequence, 0, &**exposed, out),
        }
    }
}
