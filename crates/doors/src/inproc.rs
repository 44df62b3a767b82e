//! The device in the client's own process: control calls are function calls, rings are plain memory.
//!
//! One device per address, shared by everything in the process that opens that address, because a
//! slot (a UDP port) can be bound only once. It is made on first use and lives until the process ends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use srdma_engine::claims;
pub use srdma_engine::{
    for_this_process, ppm_of_percent, seed, BadValue, CqEvents, Device, DeviceError, Faults, Options, Order,
    OtherEnd, SelectorKind, StartError, VARIABLES,
};
use srdma_net::interfaces;

static DEVICES: Mutex<Option<HashMap<IpAddr, Arc<Device>>>> = Mutex::new(None);
static HOOKS: Once = Once::new();
/// Set in a child after fork: it shares descriptors and memory with its parent and may use neither.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The device for `address`, made now if this process has none yet. Its slot is claimed later.
pub fn device(address: IpAddr, options: &Options) -> Result<Arc<Device>, StartError> {
    if FORKED.load(Ordering::Acquire) {
        return Err(StartError::Forked);
    }
    HOOKS.call_once(install_hooks);
    // A child that comes into being must find the list whole and unlocked.
    let _claiming = claims::claiming();
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_with(HashMap::new);
    if let Some(device) = devices.get(&address) {
        return Ok(Arc::clone(device));
    }
    let device = Device::new(address, options.clone())?;
    devices.insert(address, Arc::clone(&device));
    Ok(device)
}

fn install_hooks() {
    // SAFETY: both hooks are plain functions that stay mapped (the library is linked with -z nodelete);
    // failure to register leaves the process as it would be without them.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child));
        libc::atexit(at_exit);
    }
}

/// Waits until no thread is inside [`device`] or claims a slot.
extern "C" fn before_fork() {
    // A panic must not cross into the C library's fork.
    let _ = std::panic::catch_unwind(claims::before_fork);
}

extern "C" fn after_fork_in_parent() {
    let _ = std::panic::catch_unwind(claims::after_fork);
}

/// Runs in the child between fork and its next step. Only async-signal-safe work: a flag, and closing
/// the descriptors that would otherwise keep the parent's slot claimed.
extern "C" fn after_fork_in_child() {
    FORKED.store(true, Ordering::Release);
    let _ = std::panic::catch_unwind(claims::after_fork);
    // Nobody else is inside `device`: free, unless it is the thread that forks that is.
    if let Ok(devices) = DEVICES.try_lock() {
        for device in devices.iter().flat_map(HashMap::values) {
            device.abandon_in_child();
        }
    }
}

/// Says goodbye to all peers and writes the reports.
extern "C" fn at_exit() {
    if FORKED.load(Ordering::Acquire) {
        return;
    }
    let devices: Vec<Arc<Device>> = {
        let _claiming = claims::claiming();
        match DEVICES.try_lock() {
            Ok(devices) => devices.iter().flat_map(HashMap::values).cloned().collect(),
            Err(_) => return,
        }
    };
    for device in devices {
        // A panic must not cross into the C library's exit.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.shut_down()));
    }
}

/// A usable address of this host.
#[derive(Clone, Debug)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// Interface that has it.
    pub interface: String,
    /// Kernel's index of that interface.
    pub interface_index: u32,
    /// Interface MTU in bytes.
    pub mtu_bytes: u32,
    /// MAC address of the interface.
    pub mac: [u8; 6],
}

/// EUI-64 (IEEE, modified as in RFC 4291 appendix A) of the MAC address, its middle bytes replaced by the end of the
/// address so that several addresses of one interface differ.
pub fn guid(mac: [u8; 6], address: IpAddr) -> [u8; 8] {
    let end = match address {
        IpAddr::V4(v4) => [v4.octets()[2], v4.octets()[3]],
        IpAddr::V6(v6) => [v6.octets()[14], v6.octets()[15]],
    };
    [mac[0] ^ 2, mac[1], mac[2], end[0], end[1], mac[3], mac[4], mac[5]]
}

/// The usable addresses of this host, best first; with `only`, that one, loopback allowed.
pub fn addresses(only: Option<IpAddr>) -> Result<Vec<Address>, StartError> {
    let found = interfaces::usable_addresses(only.is_some())
        .map_err(|source| StartError::System { what: "Listing the addresses of this host", source })?;
    Ok(found
        .into_iter()
        .filter(|found| only.is_none_or(|only| found.ip == only))
        .map(|found| Address {
            address: found.ip,
            interface: found.interface.name,
            interface_index: found.interface.index,
            mtu_bytes: found.interface.mtu_bytes,
            mac: found.interface.mac,
        })
        .collect())
}
