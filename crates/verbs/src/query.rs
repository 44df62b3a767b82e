//! Queries of the device, its one port, its one GID and its one partition key.

use crate::abi_c::attributes::{
    DeviceAttr, DeviceAttrEx, GidEntry, PortAttr, PortAttrEx, ValuesEx, COMPAT_PORT_ATTR_BYTES,
};
use crate::abi_c::constants as c;
use crate::abi_c::context::Context;
use crate::abi_c::Plain;
use crate::border::{caught, export, invalid, object, positive, store, unsupported, Errno};
use crate::context::ContextObject;
use libc::{c_char, c_int, c_void};
use std::ptr;

/// The only port.
pub(crate) const PORT: u32 = 1;
/// The default partition, full membership (IBTA 10.9.1.2), in network order.
const PKEY: u16 = 0xffff;
/// Bytes of IPv6, UDP and our own headers, rounded up: what an interface MTU must hold beside payload.
const HEADER_BYTES: u32 = 128;
/// Assumed when the interface does not say: a virtual interface is at least this fast.
const DEFAULT_SPEED_MBPS: u32 = 10_000;
/// `4.096 µs × 2^15`, the IBTA bound that a software responder can promise.
const ACK_DELAY_CODE: u8 = 15;
/// `hca_core_clock` in kHz: completion timestamps count nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;

fn int(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}

/// Fails unless `port` exists.
pub(crate) fn check_port(call: &str, port: u32) -> Result<(), Errno> {
    if port == PORT {
        Ok(())
    } else {
        Err(invalid(call, &format!("port {port}: the device has only port 1")))
    }
}

fn device_attributes(context: &ContextObject) -> DeviceAttr {
    let limits = context.device.limits();
    let mut attr = DeviceAttr::zeroed();
    for (to, from) in attr.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from as c_char;
    }
    attr.node_guid = context.listed.info.guid;
    attr.sys_image_guid = context.listed.info.guid;
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = 0xffff_ffff_ffff_f000;
    // 0 is no vendor's number: a known one would send programs down that vendor's path.
    (attr.vendor_id, attr.vendor_part_id, attr.hw_ver) = (0, 0, 0);
    attr.device_cap_flags = c::DEVICE_CAP_SYS_IMAGE_GUID | c::DEVICE_CAP_RC_RNR_NAK_GEN;
    attr.max_qp = int(limits.max_qp);
    attr.max_qp_wr = int(limits.max_qp_wr);
    attr.max_sge = int(limits.max_sge);
    attr.max_sge_rd = int(limits.max_sge);
    attr.max_cq = int(limits.max_cq);
    attr.max_cqe = int(limits.max_cqe);
    attr.max_mr = int(limits.max_mr);
    attr.max_pd = int(limits.max_pd);
    attr.max_qp_rd_atom = int(limits.max_rd_atomic);
    attr.max_qp_init_rd_atom = int(limits.max_rd_atomic);
    attr.max_res_rd_atom = int(u64::from(limits.max_rd_atomic) * u64::from(limits.max_qp));
    attr.atomic_cap = c::ATOMIC_HCA;
    attr.max_pkeys = 1;
    attr.local_ca_ack_delay = ACK_DELAY_CODE;
    attr.phys_port_cnt = 1;
    attr
}

/// Largest IB MTU code (1 = 256 … 5 = 4096 bytes) whose packets fit the interface.
fn mtu_code(mtu_bytes: u32) -> u32 {
    let payload = mtu_bytes.saturating_sub(HEADER_BYTES);
    (1..=c::MTU_4096).rev().find(|code| payload >= 128 << code).unwrap_or(1)
}

/// Width and speed codes (IBTA PortInfo) for the highest listed rate that `mbps` reaches, as the kernel
/// gives them for Ethernet.
fn width_and_speed(mbps: u32) -> (u8, u8) {
    const CODES: [(u32, u8, u8); 9] = [
        (400_000, 2, 128),
        (200_000, 2, 64),
        (100_000, 2, 32),
        (50_000, 1, 64),
        (40_000, 2, 4),
        (25_000, 1, 32),
        (10_000, 1, 4),
        (5_000, 1, 2),
        (0, 1, 1),
    ];
    CODES.iter().find(|row| mbps >= row.0).map_or((1, 1), |row| (row.1, row.2))
}

fn speed_mbps(context: &ContextObject) -> u32 {
    match context.device.port().speed_mbps {
        0 => DEFAULT_SPEED_MBPS,
        known => known,
    }
}

fn port_attributes(context: &ContextObject) -> PortAttrEx {
    let port = context.device.port();
    let mut attr = PortAttr::zeroed();
    (attr.state, attr.phys_state) = if port.active {
        (c::PORT_ACTIVE, c::PHYS_STATE_LINK_UP)
    } else {
        (c::PORT_DOWN, c::PHYS_STATE_DISABLED)
    };
    attr.max_mtu = c::MTU_4096;
    attr.active_mtu = mtu_code(port.mtu_bytes);
    attr.gid_tbl_len = 1;
    attr.pkey_tbl_len = 1;
    attr.port_cap_flags = c::PORT_CAP_IP_BASED_GIDS;
    attr.max_msg_sz = context.device.limits().max_msg_bytes;
    attr.max_vl_num = 1;
    (attr.active_width, attr.active_speed) = width_and_speed(speed_mbps(context));
    attr.link_layer = c::LINK_LAYER_ETHERNET;
    PortAttrEx { base: attr, active_speed_ex: attr.active_speed.into() }
}

/// Copies the first `bytes` of `value` to `place`, zeros where `value` is shorter.
///
/// # Safety
/// `place` is writable for `bytes` bytes.
unsafe fn store_bytes<T: Copy>(place: *mut c_void, value: &T, bytes: usize) {
    let have = bytes.min(size_of::<T>());
    // SAFETY: `have` bytes are readable in `value`, `bytes` writable at `place`.
    unsafe {
        ptr::write_bytes(place.cast::<u8>(), 0, bytes);
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), place.cast::<u8>(), have);
    }
}

/// The GID as the C union, eight-byte aligned.
fn gid_words(gid: [u8; 16]) -> [u64; 2] {
    let value = u128::from_ne_bytes(gid);
    if cfg!(target_endian = "little") {
        [value as u64, (value >> 64) as u64]
    } else {
        [(value >> 64) as u64, value as u64]
    }
}

fn gid_entry(context: &ContextObject) -> GidEntry {
    GidEntry {
        gid: gid_words(context.device.gid()),
        gid_index: 0,
        port_num: PORT,
        gid_type: c::GID_TYPE_ROCE_V2,
        ndev_ifindex: context.listed.info.interface_index,
    }
}

fn check_gid_index(call: &str, index: u32) -> Result<(), Errno> {
    if index == 0 {
        Ok(())
    } else {
        Err(invalid(call, &format!("GID index {index}: the table has only index 0")))
    }
}

export! {
    /// Attributes of the device.
    errno fn ibv_query_device(context: *mut Context, attr: *mut DeviceAttr) {
        object(attr)?;
        let context = ContextObject::find(context)?;
        store(attr, device_attributes(&context));
        Ok(())
    }

    /// Attributes of the port as old programs know them: [`COMPAT_PORT_ATTR_BYTES`] bytes, no more.
    errno fn ibv_query_port(context: *mut Context, port: u8, attr: *mut c_void) {
        let context = ContextObject::find(context)?;
        check_port("ibv_query_port", port.into())?;
        object(attr.cast::<u8>())?;
        store_bytes(attr, &port_attributes(&context), COMPAT_PORT_ATTR_BYTES);
        Ok(())
    }

    /// Effective speed of the port in units of 100 Mbit/s.
    errno fn ibv_query_port_speed(context: *mut Context, port: u32, speed: *mut u64) {
        let context = ContextObject::find(context)?;
        check_port("ibv_query_port_speed", port)?;
        object(speed)?;
        store(speed, u64::from(speed_mbps(&context)) / 100);
        Ok(())
    }

    /// The GID at an index; there is only index 0.
    minus_one fn ibv_query_gid(context: *mut Context, port: u8, index: c_int, gid: *mut [u8; 16]) {
        let context = ContextObject::find(context)?;
        check_port("ibv_query_gid", port.into())?;
        check_gid_index("ibv_query_gid", index as u32)?;
        object(gid)?;
        store(gid, context.device.gid());
        Ok(0)
    }

    /// The entry at an index, `entry_size` bytes of it.
    errno fn _ibv_query_gid_ex(
        context: *mut Context, port: u32, index: u32, entry: *mut GidEntry, flags: u32, entry_size: usize
    ) {
        let context = ContextObject::find(context)?;
        if flags != 0 {
            return Err(unsupported("ibv_query_gid_ex", "flags"));
        }
        check_port("ibv_query_gid_ex", port)?;
        check_gid_index("ibv_query_gid_ex", index)?;
        object(entry)?;
        store_bytes(entry.cast(), &gid_entry(&context), entry_size);
        Ok(())
    }

    /// Type of the GID in the numbering of sysfs, which only this private call uses.
    minus_one fn ibv_query_gid_type(context: *mut Context, port: u8, index: u32, gid_type: *mut u32) {
        ContextObject::find(context)?;
        check_port("ibv_query_gid_type", port.into())?;
        check_gid_index("ibv_query_gid_type", index)?;
        store(gid_type, c::GID_TYPE_SYSFS_ROCE_V2);
        Ok(0)
    }

    /// The partition key at an index; there is only index 0.
    minus_one fn ibv_query_pkey(context: *mut Context, port: u8, index: c_int, pkey: *mut u16) {
        ContextObject::find(context)?;
        check_port("ibv_query_pkey", port.into())?;
        if index != 0 {
            return Err(invalid("ibv_query_pkey", "the table has only index 0"));
        }
        store(pkey, PKEY);
        Ok(0)
    }

    /// Index of a partition key.
    minus_one fn ibv_get_pkey_index(context: *mut Context, port: u8, pkey: u16) {
        ContextObject::find(context)?;
        check_port("ibv_get_pkey_index", port.into())?;
        if pkey == PKEY { Ok(0) } else { Err(Errno::EINVAL) }
    }
}

/// All entries of the GID table: their number, or a negative errno.
///
/// # Safety
/// `entries` is writable for `max_entries` entries of `entry_size` bytes.
#[no_mangle]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut Context,
    entries: *mut GidEntry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let result = caught(|| {
        let context = ContextObject::find(context)?;
        if flags != 0 {
            return Err(unsupported("ibv_query_gid_table", "flags"));
        }
        if max_entries == 0 || entries.is_null() {
            return Err(invalid("ibv_query_gid_table", "no room for the one entry"));
        }
        // SAFETY: the caller has room for at least one entry of that size.
        unsafe { store_bytes(entries.cast(), &gid_entry(&context), entry_size) };
        Ok(1)
    });
    result.unwrap_or_else(|errno| -(errno.0 as isize))
}

/// `query_port` of the extended context: writes `length` bytes, whatever version the caller has.
///
/// # Safety
/// As `ibv_query_port`; `attr` is writable for `length` bytes.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut Context,
    port: u8,
    attr: *mut PortAttr,
    length: usize,
) -> c_int {
    // SAFETY: the caller's handles.
    positive(caught(|| unsafe {
        let context = ContextObject::find(context)?;
        check_port("ibv_query_port", port.into())?;
        object(attr.cast::<u8>())?;
        store_bytes(attr.cast(), &port_attributes(&context), length);
        Ok(())
    }))
}

/// `query_device_ex` of the extended context: writes `length` bytes.
///
/// # Safety
/// As `ibv_query_device_ex`; `attr` is writable for `length` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut Context,
    input: *const u32,
    attr: *mut DeviceAttrEx,
    length: usize,
) -> c_int {
    // SAFETY: the caller's handles; `input` is null or points to a `comp_mask`.
    positive(caught(|| unsafe {
        let context = ContextObject::find(context)?;
        if input.as_ref().is_some_and(|comp_mask| *comp_mask != 0) {
            return Err(invalid("ibv_query_device_ex", "comp_mask"));
        }
        object(attr.cast::<u8>())?;
        let mut all = DeviceAttrEx::zeroed();
        all.orig_attr = device_attributes(&context);
        all.device_cap_flags_ex = all.orig_attr.device_cap_flags.into();
        all.completion_timestamp_mask = u64::MAX;
        all.hca_core_clock = CLOCK_KHZ;
        all.phys_port_cnt_ex = 1;
        store_bytes(attr.cast(), &all, length);
        Ok(())
    }))
}

/// Nanoseconds of a clock.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable; both clocks that are asked for always exist.
    unsafe { libc::clock_gettime(clock, &mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// `query_rt_values` of the extended context: the clock that completion timestamps count, as ticks in
/// `tv_nsec`.
///
/// # Safety
/// As `ibv_query_rt_values_ex`.
pub(crate) unsafe extern "C" fn query_rt_values(context: *mut Context, values: *mut ValuesEx) -> c_int {
    // SAFETY: the caller's handles.
    positive(caught(|| unsafe {
        ContextObject::find(context)?;
        let wanted = object(values)?.comp_mask;
        let mut found = ValuesEx::zeroed();
        if wanted & c::VALUES_MASK_RAW_CLOCK != 0 {
            found.comp_mask = c::VALUES_MASK_RAW_CLOCK;
            found.raw_clock.tv_nsec = clock_ns(libc::CLOCK_MONOTONIC) as libc::c_long;
        }
        store(values, found);
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_mtu_leaves_room_for_headers() {
        for (interface, code) in [(0, 1), (576, 1), (1280, 3), (1500, 3), (4096, 4), (4224, 5), (65_536, 5)] {
            assert_eq!(mtu_code(interface), code, "interface MTU {interface}");
        }
    }

    #[test]
    fn width_and_speed_follow_the_interface() {
        for (mbps, codes) in
            [(0, (1, 1)), (1_000, (1, 1)), (10_000, (1, 4)), (25_000, (1, 32)), (400_000, (2, 128))]
        {
            assert_eq!(width_and_speed(mbps), codes, "{mbps} Mbit/s");
        }
    }

    #[test]
    fn a_gid_keeps_its_byte_order_in_memory() {
        let gid: [u8; 16] = std::array::from_fn(|i| i as u8);
        let words = gid_words(gid);
        assert_eq!([words[0].to_ne_bytes(), words[1].to_ne_bytes()].concat(), gid);
    }
}
