//! The device list, and opening a device.

use crate::abi_c::constants as c;
use crate::abi_c::context as abi;
use crate::abi_c::Plain;
use crate::border::{caught, export, invalid, say, store, unsupported, Errno};
use crate::context::ContextObject;
use crate::environment::settings;
use crate::handles;
use libc::{c_char, c_int, c_void};
use srdma_client::{DeviceInfo, OpenError};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// What follows `ibv_device` in ours. Vendor libraries that happen to be loaded look for their own
/// structure there: a pointer to an operations table, none of which is theirs, and zeros.
static NO_OPERATIONS: [u64; 64] = [0; 64];

/// A device in the list. Never freed: contexts and programs keep pointers to it.
#[repr(C)]
pub(crate) struct DeviceObject {
    c: abi::Device,
    operations: &'static [u64; 64],
    tail: [u64; 40],
    pub(crate) info: DeviceInfo,
}

/// All devices that were ever listed.
static DEVICES: Mutex<Vec<&'static DeviceObject>> = Mutex::new(Vec::new());

fn put_name(place: &mut [c_char], name: &str) {
    let room = place.len() - 1;
    for (to, from) in place.iter_mut().zip(name.bytes().take(room)) {
        *to = from as c_char;
    }
}

impl DeviceObject {
    fn new(info: DeviceInfo, index: usize) -> DeviceObject {
        let mut c = abi::Device::zeroed();
        c.node_type = c::NODE_CA;
        c.transport_type = c::TRANSPORT_IB;
        put_name(&mut c.name, &info.name);
        put_name(&mut c.dev_name, &format!("uverbs{index}"));
        put_name(&mut c.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{index}"));
        put_name(&mut c.ibdev_path, &format!("/sys/class/infiniband/{}", info.name));
        DeviceObject { c, operations: &NO_OPERATIONS, tail: [0; 40], info }
    }

    pub(crate) fn handle(&self) -> *mut abi::Device {
        ptr::from_ref(&self.c).cast_mut()
    }

    /// The device behind a handle, if we ever listed it.
    fn find(handle: *const abi::Device) -> Result<&'static DeviceObject, Errno> {
        let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let found = devices.iter().find(|d| ptr::eq(d.handle(), handle)).copied();
        found.ok_or_else(|| invalid("device", "the handle is not from ibv_get_device_list"))
    }

    /// Position in the list of all devices, from 0.
    fn index(&self) -> c_int {
        let digits = self.info.name.trim_start_matches(|ch: char| !ch.is_ascii_digit());
        digits.parse().unwrap_or(-1)
    }
}

/// The device for `info`: the one listed before, or a new one.
fn listed(info: DeviceInfo, index: usize) -> &'static DeviceObject {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |d: &&&DeviceObject| {
        d.info.name == info.name
            && d.info.address == info.address
            && d.info.interface_index == info.interface_index
            && d.info.socket == info.socket
    };
    if let Some(known) = devices.iter().find(same) {
        return known;
    }
    let new: &'static DeviceObject = Box::leak(Box::new(DeviceObject::new(info, index)));
    devices.push(new);
    new
}

fn current() -> Result<Vec<&'static DeviceObject>, Errno> {
    let settings = settings()?;
    if let Some(path) = &settings.socket {
        let info = srdma_client::virtual_device(path).map_err(|error| cannot_open(&error))?;
        return Ok(vec![listed(info, 0)]);
    }
    let asked = settings.address;
    match srdma_client::devices(asked) {
        Ok(infos) if infos.is_empty() => {
            say(&match asked {
                Some(address) => {
                    format!("no device: no interface of this host that is up has SRDMA_ADDR={address}")
                }
                None => "no device: this host has no usable address; SRDMA_ADDR can name another, \
                         also of loopback"
                    .to_owned(),
            });
            Ok(Vec::new())
        }
        Ok(infos) => Ok(infos.into_iter().enumerate().map(|(i, info)| listed(info, i)).collect()),
        Err(error) => Err(cannot_open(&error)),
    }
}

fn cannot_open(error: &OpenError) -> Errno {
    say(&error.to_string());
    Errno(error.errno)
}

export! {
    /// Lists the devices as a null-terminated array, to be freed by `ibv_free_device_list`.
    pointer fn ibv_get_device_list(num_devices: *mut c_int) -> *mut abi::Device {
        store(num_devices, 0);
        let devices = current()?;
        // The C allocator, so that the array is zeroed and a program that frees it itself may.
        let list: *mut *mut abi::Device =
            libc::calloc(devices.len() + 1, size_of::<*mut abi::Device>()).cast();
        if list.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        for (i, device) in devices.iter().enumerate() {
            list.add(i).write(device.handle());
        }
        store(num_devices, devices.len() as c_int);
        Ok(list)
    }

    /// Frees the array; the devices stay.
    nothing fn ibv_free_device_list(list: *mut *mut abi::Device) {
        libc::free(list.cast());
        Ok(())
    }

    /// Name of a device.
    pointer fn ibv_get_device_name(device: *mut abi::Device) -> c_char {
        Ok(DeviceObject::find(device)?.c.name.as_ptr().cast_mut())
    }

    /// Position of the device in the list, as there is no kernel index.
    minus_one fn ibv_get_device_index(device: *mut abi::Device) {
        Ok(DeviceObject::find(device)?.index())
    }

    /// Opens a device; claims nothing yet.
    pointer fn ibv_open_device(device: *mut abi::Device) -> abi::Context {
        let device = DeviceObject::find(device)?;
        ContextObject::open(device, |error| cannot_open(&error))
    }

    /// Closes it. Objects still alive end like those of a process that exits.
    errno fn ibv_close_device(context: *mut abi::Context) {
        ContextObject::close(handles::claim(context.cast_const().cast())?);
        Ok(())
    }

    /// There is no sysfs entry of this device: ENOENT.
    minus_one fn ibv_read_sysfs_file(_dir: *const c_char, _file: *const c_char, buf: *mut c_char, size: usize) {
        if size > 0 {
            store(buf, 0);
        }
        Err(Errno::ENOENT)
    }

    /// Nothing is pinned, so a fork needs no preparation.
    errno fn ibv_fork_init() { Ok(()) }

    /// See `ibv_fork_init`.
    minus_one fn ibv_is_fork_initialized() { Ok(c::FORK_UNNEEDED) }

    /// See `ibv_fork_init`.
    errno fn ibv_dontfork_range(_base: *mut c_void, _size: usize) { Ok(()) }

    /// See `ibv_fork_init`.
    errno fn ibv_dofork_range(_base: *mut c_void, _size: usize) { Ok(()) }
}

/// Node GUID, in network order.
///
/// # Safety
/// `device` is null or from `ibv_get_device_list`.
#[no_mangle]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut abi::Device) -> u64 {
    caught(|| Ok(u64::from_ne_bytes(DeviceObject::find(device)?.info.guid))).unwrap_or(0)
}

/// Where sysfs is mounted.
#[no_mangle]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Slot of memory windows in a context: there are none, so nothing to remove.
pub(crate) unsafe extern "C" fn no_dealloc_mw(_mw: *mut c_void) -> c_int {
    unsupported("ibv_dealloc_mw", "memory windows").set()
}

/// Slot of memory windows in a context.
pub(crate) unsafe extern "C" fn no_bind_mw(
    _qp: *mut crate::abi_c::objects::Qp,
    _mw: *mut c_void,
    _bind: *mut c_void,
) -> c_int {
    unsupported("ibv_bind_mw", "memory windows").set()
}

/// Slot of XRC domains in a context.
pub(crate) unsafe extern "C" fn no_close_xrcd(_xrcd: *mut c_void) -> c_int {
    unsupported("ibv_close_xrcd", "XRC").set()
}

/// Slot of shared receive queues in a context.
///
/// # Safety
/// `bad_wr` is null or writable.
pub(crate) unsafe extern "C" fn no_post_srq_recv(
    _srq: *mut c_void,
    wr: *mut crate::abi_c::work::RecvWr,
    bad_wr: *mut *mut crate::abi_c::work::RecvWr,
) -> c_int {
    // SAFETY: the caller's place for the request that failed.
    unsafe { store(bad_wr, wr) };
    unsupported("ibv_post_srq_recv", "shared receive queues").set()
}
