//! Devices, and the objects made on them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use srdma_abi::control::LIMITS;
use srdma_abi::{DeviceLimits, PortInfo, QpInit};
use srdma_doors::inproc::{self, CqEvents, Options};
use srdma_doors::{door, socket, Door};
use srdma_ring::CompletionConsumer;

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
    /// Socket of the daemon that has it; `None` if it lives in this process.
    pub socket: Option<PathBuf>,
}

/// The usable addresses of this host, best first. Opens no socket that stays, claims nothing. `only` restricts
/// the list to that address, loopback allowed.
pub fn devices(only: Option<IpAddr>) -> Result<Vec<DeviceInfo>, OpenError> {
    let addresses = inproc::addresses(only)?;
    let devices = addresses.into_iter().enumerate().map(|(index, found)| DeviceInfo {
        name: format!("stellar{index}"),
        guid: inproc::guid(found.mac, found.address),
        socket: None,
        address: found.address,
        interface: found.interface,
        interface_index: found.interface_index,
        mtu_bytes: found.mtu_bytes,
    });
    Ok(devices.collect())
}

/// The virtual device that a daemon offers at `path`, as the only one that a program sees.
pub fn virtual_device(path: &Path) -> Result<DeviceInfo, OpenError> {
    let shown = socket::client::look(path)?;
    Ok(DeviceInfo {
        name: "stellar0".into(),
        address: IpAddr::from(shown.gid).to_canonical(),
        interface: interface_name(shown.interface_index),
        interface_index: shown.interface_index,
        mtu_bytes: shown.mtu_bytes,
        guid: shown.guid,
        socket: Some(path.to_owned()),
    })
}

/// Name of a network interface, if this program's namespace has it.
fn interface_name(index: u32) -> String {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: room for a name.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    match found.is_null() {
        true => String::new(),
        false => name.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect(),
    }
}

/// An open device. Opening claims nothing: the slot and its port are bound, and the background thread
/// started, when the first queue pair is made. Several opens in one process share one slot.
pub struct Device {
    door: Door,
    async_fd: RawFd,
    /// Where asynchronous events are read instead, until the caller takes it.
    events: Mutex<Option<OwnedFd>>,
    closed: AtomicBool,
    /// Completion rings by number, so that a queue pair's leftovers can be taken out when it goes.
    cqs: Mutex<HashMap<u32, Weak<Mutex<CompletionConsumer>>>>,
}

impl Device {
    /// Opens `info`. Asynchronous events of this open's objects are written to `async_fd` (a non-blocking
    /// write end, owned by the caller, that outlives the device) as records of eight bytes: kind and object of
    /// `abi::AsyncEvent`, two native-order `u32`. The first open of an address in a process decides its `options`.
    pub fn open(info: &DeviceInfo, options: &Options, async_fd: RawFd) -> Result<Device, OpenError> {
        let door = match &info.socket {
            None => door::in_process(info.address, options)?,
            Some(path) => Door::Socket(socket::Device::attach(path)?),
        };
        let events = Mutex::new(door.opened(async_fd));
        Ok(Device { door, async_fd, events, closed: AtomicBool::new(false), cqs: Mutex::default() })
    }

    /// The reading end of a pipe where asynchronous events come *instead* of at the `async_fd` that was given, if this
    /// device makes its own; once. Its end means that the device is gone ([`abi::AsyncKind::DeviceFatal`](srdma_abi::AsyncKind)).
    pub fn take_events(&self) -> Option<OwnedFd> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A completion channel of the device's own, if it makes them: what to give as [`CqEvents::fd`], and the end where
    /// records are read. `None`: the caller makes a pipe, and gives its writing end.
    pub fn create_channel(&self) -> Result<Option<(RawFd, OwnedFd)>, ControlError> {
        Ok(self.door.create_channel()?)
    }

    /// Removes one that the device made.
    pub fn destroy_channel(&self, number: RawFd) {
        self.door.destroy_channel(number);
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
        let (number, ring, capacity) = self.door.create_cq(entries, events, self.async_fd)?;
        let ring = Arc::new(Mutex::new(ring));
        self.cqs().insert(number.0, Arc::downgrade(&ring));
        Ok(Cq::new(self.door.clone(), number, capacity, events, ring))
    }

    /// Makes an RC queue pair. The device claims its slot now if it has none.
    pub fn create_qp(&self, init: &QpInit) -> Result<Qp, ControlError> {
        init.check().map_err(|out_of_range| ControlError::invalid(out_of_range.to_string()))?;
        let made = self.door.create_qp(init, self.async_fd)?;
        let cqs = [init.send_cq, init.recv_cq].map(|cq| self.cqs().get(&cq).and_then(Weak::upgrade));
        Ok(Qp::new(self.door.clone(), *init, made, cqs))
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
