//! A device behind any door.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use srdma_abi::{PortInfo, QpAttributes, QpInit, QpMask};
use srdma_engine::{CqEvents, DeviceError, StartError};
use srdma_ring::{
    CompletionConsumer, CompletionProducer, MemoryError, RingMemory, WorkConsumer, WorkProducer,
};
use srdma_seams::{Cqn, Qpn};

use crate::shape::{self, ShapeError};
use crate::socket::DialError;
use crate::{inproc, socket};

/// Why a call was refused.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// By the device in our own process.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// By the daemon, or on the way there.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// There is no such ring.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

impl From<MemoryError> for DoorError {
    fn from(error: MemoryError) -> DoorError {
        DoorError::Shape(error.into())
    }
}

impl DoorError {
    /// Positive errno for the C caller.
    pub fn errno(&self) -> i32 {
        match self {
            DoorError::Device(error) => error.errno(),
            DoorError::Dial(error) => error.errno(),
            DoorError::Shape(ShapeError::TooLarge) => libc::EINVAL,
            DoorError::Shape(ShapeError::Memory(_)) => libc::ENOMEM,
        }
    }

    /// Whether the device itself could not start.
    pub fn cannot_start(&self) -> bool {
        matches!(self, DoorError::Device(DeviceError::Start(_)))
    }
}

/// A queue pair that was made: our halves of its rings, and what to ring.
pub struct QpMade {
    /// Its number.
    pub number: Qpn,
    /// Send ring.
    pub send: WorkProducer,
    /// Receive ring.
    pub recv: WorkProducer,
    /// Bells of sends and receives, where the door has any.
    bells: (u32, u32),
}

/// The bells of a queue pair, kept by whoever posts.
#[derive(Clone, Copy, Debug)]
pub struct Bells {
    number: Qpn,
    send: u32,
    recv: u32,
}

impl QpMade {
    /// What to give to [`Door::ring_send`] and [`Door::ring_recv`].
    pub fn bells(&self) -> Bells {
        Bells { number: self.number, send: self.bells.0, recv: self.bells.1 }
    }
}

/// A device.
#[derive(Clone)]
pub enum Door {
    /// In this process.
    InProcess(Arc<inproc::Device>),
    /// In a daemon.
    Socket(Arc<socket::Device>),
}

impl Door {
    /// Its address.
    pub fn address(&self) -> IpAddr {
        match self {
            Door::InProcess(device) => device.address(),
            Door::Socket(device) => Ipv6Addr::from(device.shown().gid).to_canonical(),
        }
    }

    /// Whether nothing of it may be touched any more, not even its queues.
    pub fn is_gone(&self) -> bool {
        match self {
            Door::InProcess(device) => device.is_gone(),
            Door::Socket(device) => device.is_gone(),
        }
    }

    /// Whether it takes no more work.
    pub fn is_over(&self) -> bool {
        match self {
            Door::InProcess(device) => device.is_over(),
            Door::Socket(device) => device.is_gone(),
        }
    }

    /// State of the port now.
    pub fn port(&self) -> PortInfo {
        match self {
            Door::InProcess(device) => device.port(),
            Door::Socket(device) => device.port(),
        }
    }

    /// A program wants asynchronous events at `async_fd`. A door that has a pipe of its own for them answers with its
    /// reading end instead.
    pub fn opened(&self, async_fd: RawFd) -> Option<OwnedFd> {
        match self {
            Door::InProcess(device) => {
                device.opened(async_fd);
                None
            }
            Door::Socket(device) => device.take_events(),
        }
    }

    /// It wants no more.
    pub fn closed(&self, async_fd: RawFd) {
        if let Door::InProcess(device) = self {
            device.closed(async_fd);
        }
    }

    /// Every counter as JSON, where the device is ours to ask.
    pub fn report(&self) -> Result<String, DoorError> {
        match self {
            Door::InProcess(device) => Ok(device.report()?),
            Door::Socket(_) => Ok("{}\n".into()),
        }
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Result<u32, DoorError> {
        Ok(match self {
            Door::InProcess(device) => device.alloc_pd()?,
            Door::Socket(device) => device.alloc_pd()?,
        })
    }

    /// Removes it.
    pub fn dealloc_pd(&self, pd: u32) -> Result<(), DoorError> {
        match self {
            Door::InProcess(device) => Ok(device.dealloc_pd(pd)?),
            Door::Socket(device) => Ok(device.dealloc_pd(pd)?),
        }
    }

    /// Registers memory of this process.
    pub fn register(
        &self,
        pd: u32,
        base: u64,
        length: u64,
        iova: u64,
        access: u32,
    ) -> Result<u32, DoorError> {
        Ok(match self {
            Door::InProcess(device) => device.register(pd, base, length, iova, access)?,
            Door::Socket(device) => device.register(pd, base, length, iova, access)?,
        })
    }

    /// When this returns, no access through the key can follow.
    pub fn deregister(&self, key: u32) -> Result<(), DoorError> {
        match self {
            Door::InProcess(device) => Ok(device.deregister(key)?),
            Door::Socket(device) => Ok(device.deregister(key)?),
        }
    }

    /// A completion channel of the device's own, where the door makes them: its number, for [`CqEvents::fd`], and the end
    /// where its records are read. `None`: the program makes a pipe and says where to write.
    pub fn create_channel(&self) -> Result<Option<(RawFd, OwnedFd)>, DoorError> {
        match self {
            Door::InProcess(_) => Ok(None),
            Door::Socket(device) => {
                let (number, read) = device.create_channel()?;
                Ok(Some((number as RawFd, read)))
            }
        }
    }

    /// Removes it.
    pub fn destroy_channel(&self, number: RawFd) {
        if let Door::Socket(device) = self {
            // Who is refused here has lost the daemon, and the channel with it.
            let _ = device.destroy_channel(number as u32);
        }
    }

    /// Makes a completion queue of at least `entries`: its number, our half of the ring, how many it holds.
    pub fn create_cq(
        &self,
        entries: u32,
        events: Option<CqEvents>,
        async_fd: RawFd,
    ) -> Result<(Cqn, CompletionConsumer, u32), DoorError> {
        match self {
            Door::InProcess(device) => {
                let layout = shape::cq_ring(entries)?;
                let memory = RingMemory::heap(layout)?;
                let producer = CompletionProducer::new(memory.clone());
                let number = device.create_cq(producer, events, async_fd)?;
                Ok((number, CompletionConsumer::new(memory), layout.units()))
            }
            Door::Socket(device) => {
                let events = events.map(|events| (events.fd as u32, events.cookie));
                let (number, ring, units) = device.create_cq(entries, events)?;
                Ok((Cqn(number), ring, units))
            }
        }
    }

    /// Removes it.
    pub fn destroy_cq(&self, cq: Cqn) -> Result<(), DoorError> {
        match self {
            Door::InProcess(device) => Ok(device.destroy_cq(cq)?),
            Door::Socket(device) => Ok(device.destroy_cq(cq.0)?),
        }
    }

    /// Has an event of the queue written: what was asked for is there already.
    pub fn signal(&self, cq: Cqn, events: CqEvents) {
        match self {
            Door::InProcess(device) => device.signal(events),
            Door::Socket(device) => device.signal(cq.0),
        }
    }

    /// Makes an RC queue pair.
    pub fn create_qp(&self, init: &QpInit, async_fd: RawFd) -> Result<QpMade, DoorError> {
        match self {
            Door::InProcess(device) => {
                let rings = shape::qp_rings(init)?;
                let (send, recv) = (RingMemory::heap(rings.send)?, RingMemory::heap(rings.recv)?);
                let consumers = (WorkConsumer::new(send.clone()), WorkConsumer::new(recv.clone()));
                let number = device.create_qp(init, consumers.0, consumers.1, async_fd)?;
                let (send, recv) = (WorkProducer::new(send), WorkProducer::new(recv));
                Ok(QpMade { number, send, recv, bells: (0, 0) })
            }
            Door::Socket(device) => {
                let made = device.create_qp(init)?;
                Ok(QpMade { number: Qpn(made.number), send: made.send, recv: made.recv, bells: made.bells })
            }
        }
    }

    /// Changes attributes and state.
    pub fn modify_qp(&self, qpn: Qpn, attributes: &QpAttributes, mask: QpMask) -> Result<(), DoorError> {
        match self {
            Door::InProcess(device) => Ok(device.modify_qp(qpn, attributes, mask)?),
            Door::Socket(device) => Ok(device.modify_qp(qpn.0, attributes, mask)?),
        }
    }

    /// Shows them.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpAttributes, DoorError> {
        Ok(match self {
            Door::InProcess(device) => device.query_qp(qpn)?,
            Door::Socket(device) => device.query_qp(qpn.0)?,
        })
    }

    /// Removes it.
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<(), DoorError> {
        match self {
            Door::InProcess(device) => Ok(device.destroy_qp(qpn)?),
            Door::Socket(device) => Ok(device.destroy_qp(qpn.0)?),
        }
    }

    /// Sends were posted.
    pub fn ring_send(&self, bells: Bells) {
        match self {
            Door::InProcess(device) => device.ring_send(bells.number),
            Door::Socket(device) => device.ring(bells.send),
        }
    }

    /// Receives were posted.
    pub fn ring_recv(&self, bells: Bells) {
        match self {
            Door::InProcess(device) => device.ring_recv(bells.number),
            Door::Socket(device) => device.ring(bells.recv),
        }
    }

    /// A completion queue was found empty.
    pub fn poll(&self) {
        match self {
            Door::InProcess(device) => device.poll(),
            Door::Socket(device) => device.poll(),
        }
    }
}

/// The device of an address in this process.
pub fn in_process(address: IpAddr, options: &inproc::Options) -> Result<Door, StartError> {
    Ok(Door::InProcess(inproc::device(address, options)?))
}
