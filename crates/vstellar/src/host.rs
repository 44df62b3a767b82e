//! What carries out what was decided: the RNIC with its rings, sockets and descriptors.

use srdma_abi::command::{
    Attached, CqCreated, CreateCq, CreateQp, DefineDevice, LimitTenant, Name, Path, QpCreated, RegisterMemory,
};
use srdma_abi::{QpAttributes, QpMask};
use srdma_seams::TenantId;

use crate::refusal::Refusal;
use crate::registry::{Definition, DeviceId};
use crate::session::SessionId;

/// The port that all devices of a host share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// The one GID.
    pub gid: [u8; 16],
    /// EUI-64 of the host's own device.
    pub guid: [u8; 8],
    /// Index of the network interface.
    pub interface_index: u32,
    /// MTU of that interface, bytes.
    pub mtu_bytes: u32,
    /// Speed in Mbit/s; 0 if unknown.
    pub speed_mbps: u32,
    /// Up, with carrier.
    pub active: bool,
}

/// What is to outlive the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A device is defined, in this way from now on.
    Device(DefineDevice),
    /// It is no more.
    NoDevice(Name),
    /// A tenant is limited.
    Tenant(LimitTenant),
}

/// The host's side. Numbers that it gives out name one object until that is destroyed; it is asked only about
/// numbers that it gave to the same session. Descriptors that belong beside an answer are its business.
pub trait Host {
    /// Keeps a change beyond the daemon's end; only then is it made.
    fn keep(&mut self, change: &Change) -> Result<(), Refusal>;
    /// The port as it is now.
    fn port(&mut self) -> Port;
    /// Makes doorbell page and event pipe for a program.
    fn attach(&mut self, session: SessionId, tenant: TenantId) -> Result<Attached, Refusal>;
    /// Removes them; everything made for the session is gone already.
    fn detach(&mut self, session: SessionId);
    /// Makes a protection domain that belongs to the tenant, and so does what is made with it.
    fn alloc_pd(&mut self, tenant: TenantId) -> Result<u32, Refusal>;
    /// Removes it.
    fn dealloc_pd(&mut self, pd: u32) -> Result<(), Refusal>;
    /// Registers memory of the session's program; the key.
    fn register(&mut self, session: SessionId, region: &RegisterMemory) -> Result<u32, Refusal>;
    /// No access through the key follows.
    fn deregister(&mut self, key: u32) -> Result<(), Refusal>;
    /// Makes a completion channel.
    fn create_channel(&mut self, session: SessionId) -> Result<u32, Refusal>;
    /// Removes it; no queue uses it.
    fn destroy_channel(&mut self, session: SessionId, channel: u32);
    /// Bytes of ring that a completion queue takes, or why there can be none.
    fn cq_bytes(&mut self, asked: &CreateCq) -> Result<u64, Refusal>;
    /// Makes it.
    fn create_cq(&mut self, session: SessionId, asked: &CreateCq) -> Result<CqCreated, Refusal>;
    /// Removes it.
    fn destroy_cq(&mut self, cq: u32) -> Result<(), Refusal>;
    /// Writes an event of it on its channel, if it has one.
    fn signal_cq(&mut self, cq: u32);
    /// Bytes of rings that a queue pair takes, or why there can be none.
    fn qp_bytes(&mut self, asked: &CreateQp) -> Result<u64, Refusal>;
    /// Makes it.
    fn create_qp(&mut self, session: SessionId, asked: &CreateQp) -> Result<QpCreated, Refusal>;
    /// Changes it.
    fn modify_qp(&mut self, qp: u32, attributes: &QpAttributes, mask: QpMask) -> Result<(), Refusal>;
    /// Shows it.
    fn query_qp(&mut self, qp: u32) -> Result<QpAttributes, Refusal>;
    /// Removes it.
    fn destroy_qp(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal>;
    /// Where programs may open the device, made if there is no such place yet.
    fn expose(&mut self, device: DeviceId, definition: &Definition) -> Result<Path, Refusal>;
    /// Removes that place, if there is one.
    fn conceal(&mut self, device: DeviceId);
}
