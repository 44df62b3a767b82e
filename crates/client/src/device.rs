//! Devices, and the objects made on them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use srdma_abi::control::LIMITS;
use srdma_abi::{DeviceLimits, PortInfo, QpInit};
use srdma_doors::inproc::{self, CqEvents, Device as Door, Options};
use srdma_ring::{
    units_for, CompletionConsumer, CompletionProducer, Layout, RingMemory, WorkConsumer, WorkProducer,
};

use crate::qp::{recv_units, send_units};
use crate::{ControlError, Cq, OpenError, Qp};

/// One usable address of this host, seen as an RDMA device with one port and one GID.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// `stellar0`, `stellar1`, …; 0 is the source address of the default route.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Network interface that has it.
    pub interface: String,
    /// Kernel's index of that interface.
    pub interface_index: u32,
    /// Interface MTU in bytes.
    pub mtu_bytes: u32,
    /// EUI-64 made from the interface's MAC address and the address, in network order.
    pub guid: [u8; 8],
}

/// The usable addresses of this host, best first. Opens no socket that stays, claims nothing. `only` restricts
/// the list to that address, loopback allowed.
pub fn devices(only: Option<IpAddr>) -> Result<Vec<DeviceInfo>, OpenError> {
    let addresses = inproc::addresses(only)?;
    let devices = addresses.into_iter().enumerate().map(|(index, found)| DeviceInfo {
        name: format!("stellar{index}"),
        guid: guid(found.mac, found.address),
        address: found.address,
        interface: found.interface,
        interface_index: found.interface_index,
        mtu_bytes: found.mtu_bytes,
    });
    Ok(devices.collect())
}

/// EUI-64 (IEEE, modified as in RFC 4291 appendix A) of the MAC address, its middle bytes replaced by the end of the
/// address so that several addresses of one interface differ.
fn guid(mac: [u8; 6], address: IpAddr) -> [u8; 8] {
    let end = match address {
        IpAddr::V4(v4) => [v4.octets()[2], v4.octets()[3]],
        IpAddr::V6(v6) => [v6.octets()[14], v6.octets()[15]],
    };
    [mac[0] ^ 2, mac[1], mac[2], end[0], end[1], mac[3], mac[4], mac[5]]
}

/// An open device. Opening claims nothing: the slot and its port are bound, and the background thread
/// started, when the first queue pair is made. Several opens in one process share one slot.
pub struct Device {
    door: Arc<Door>,
    async_fd: RawFd,
    closed: AtomicBool,
    /// Completion rings by number, so that a queue pair's leftovers can be taken out when it goes.
    cqs: Mutex<HashMap<u32, Weak<Mutex<CompletionConsumer>>>>,
}

impl Device {
    /// Opens `info`. Asynchronous events of this open's objects are written to `async_fd` (a non-blocking
    /// write end, owned by the caller, that outlives the device) as records of eight bytes: kind and object of
    /// `abi::AsyncEvent`, two native-order `u32`. The first open of an address in a process decides its `options`.
    pub fn open(info: &DeviceInfo, options: &Options, async_fd: RawFd) -> Result<Device, OpenError> {
        let door = inproc::device(info.address, options)?;
        door.opened(async_fd);
        Ok(Device { door, async_fd, closed: AtomicBool::new(false), cqs: Mutex::default() })
    }

    /// Ends this open: nothing is written to its `async_fd` any more. Dropping it does the same.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.door.closed(self.async_fd);
        }
    }

    /// Limits to report.
    pub fn limits(&self) -> DeviceLimits {
        LIMITS
    }

    /// State of the port now.
    pub fn port(&self) -> PortInfo {
        self.door.port()
    }

    /// The one GID (index 0): the address, IPv4 as IPv4-mapped IPv6.
    pub fn gid(&self) -> [u8; 16] {
        match self.door.address() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }

    /// Every counter of the device, and of all queue pairs on it, as JSON: what `--stats` writes at exit.
    pub fn report(&self) -> Result<String, ControlError> {
        Ok(self.door.report()?)
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Result<u32, ControlError> {
        Ok(self.door.alloc_pd()?)
    }

    /// Removes it (EBUSY while in use).
    pub fn dealloc_pd(&self, pd: u32) -> Result<(), ControlError> {
        Ok(self.door.dealloc_pd(pd)?)
    }

    /// Registers memory; costs no page work. Returns the key, lkey and rkey in one. `access` are `ibv_access_flags`.
    pub fn register(
        &self,
        pd: u32,
        base: u64,
        length: u64,
        iova: u64,
        access: u32,
    ) -> Result<u32, ControlError> {
        Ok(self.door.register(pd, base, length, iova, access)?)
    }

    /// When this returns, no access through the key can follow.
    pub fn deregister(&self, key: u32) -> Result<(), ControlError> {
        Ok(self.door.deregister(key)?)
    }

    /// Makes a completion queue that holds at least `entries`.
    pub fn create_cq(&self, entries: u32, events: Option<CqEvents>) -> Result<Cq, ControlError> {
        if entries == 0 || entries > LIMITS.max_cqe {
            return Err(ControlError::invalid(format!(
                "A completion queue holds 1 to {} completions, not {entries}",
                LIMITS.max_cqe
            )));
        }
        let capacity = entries.next_power_of_two();
        let memory = Layout::new(capacity).and_then(RingMemory::heap).map_err(no_memory)?;
        let producer = CompletionProducer::new(memory.clone());
        let consumer = Arc::new(Mutex::new(CompletionConsumer::new(memory)));
        let number = self.door.create_cq(producer, events, self.async_fd)?;
        self.cqs().insert(number.0, Arc::downgrade(&consumer));
        Ok(Cq::new(Arc::clone(&self.door), number, capacity, events, consumer))
    }

    /// Makes an RC queue pair. The device claims its slot now if it has none.
    pub fn create_qp(&self, init: &QpInit) -> Result<Qp, ControlError> {
        init.check().map_err(|out_of_range| ControlError::invalid(out_of_range.to_string()))?;
        let (send_memory, send_producer) =
            work_ring(init.max_send_wr, send_units(init.max_send_sge, init.max_inline_data))?;
        let (recv_memory, recv_producer) = work_ring(init.max_recv_wr, recv_units(init.max_recv_sge))?;
        let consumers = (WorkConsumer::new(send_memory), WorkConsumer::new(recv_memory));
        let number = self.door.create_qp(init, consumers.0, consumers.1, self.async_fd)?;
        let cqs = [init.send_cq, init.recv_cq].map(|cq| self.cqs().get(&cq).and_then(Weak::upgrade));
        Ok(Qp::new(Arc::clone(&self.door), number, *init, send_producer, recv_producer, cqs))
    }

    fn cqs(&self) -> MutexGuard<'_, HashMap<u32, Weak<Mutex<CompletionConsumer>>>> {
        self.cqs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.close();
    }
}

fn work_ring(requests: u32, units_per_entry: usize) -> Result<(RingMemory, WorkProducer), ControlError> {
    let units = units_for(requests.max(1), units_per_entry)
        .ok_or_else(|| ControlError::invalid("The queue asked for is too large"))?;
    let memory = Layout::new(units).and_then(RingMemory::heap).map_err(no_memory)?;
    Ok((memory.clone(), WorkProducer::new(memory)))
}

fn no_memory(error: impl std::fmt::Display) -> ControlError {
    ControlError { errno: libc::ENOMEM, text: error.to_string(), cannot_start: false }
}
