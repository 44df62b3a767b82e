//! Protection domains and memory regions.

use crate::abi_c::constants as c;
use crate::abi_c::context::Context;
use crate::abi_c::objects::{Mr, Pd};
use crate::border::{export, invalid, refused, store, unsupported, Errno};
use crate::context::ContextObject;
use crate::handles::{self, Handle, Ref};
use libc::{c_int, c_void};
use std::cell::Cell;

/// Access that regions may have; hints are masked before.
const KNOWN_ACCESS: u32 = c::ACCESS_LOCAL_WRITE
    | c::ACCESS_REMOTE_WRITE
    | c::ACCESS_REMOTE_READ
    | c::ACCESS_REMOTE_ATOMIC
    | c::ACCESS_RELAXED_ORDERING;

/// Access of a region without the hints that change nothing here; the second value says whether its
/// addresses start at 0.
fn checked_access(access: u32) -> Result<(u32, bool), Errno> {
    // Optional bits other than relaxed ordering are hints; huge pages matter only to pinning.
    let hints = (c::ACCESS_OPTIONAL_RANGE & !c::ACCESS_RELAXED_ORDERING) | c::ACCESS_HUGETLB;
    let zero_based = access & c::ACCESS_ZERO_BASED != 0;
    let access = access & !hints & !c::ACCESS_ZERO_BASED;
    if access & !KNOWN_ACCESS != 0 {
        let text = format!("access flags {:#x}", access & !KNOWN_ACCESS);
        return Err(unsupported("ibv_reg_mr", &text));
    }
    // IBTA 10.6.3: remote writes and atomics need local write.
    let remote_change = c::ACCESS_REMOTE_WRITE | c::ACCESS_REMOTE_ATOMIC;
    if access & remote_change != 0 && access & c::ACCESS_LOCAL_WRITE == 0 {
        return Err(invalid("ibv_reg_mr", "remote write or atomic access needs IBV_ACCESS_LOCAL_WRITE"));
    }
    Ok((access, zero_based))
}

impl Handle for Pd {}

impl Handle for Mr {}

impl Handle for Buf {}

/// The live protection domain behind a handle.
fn domain(pd: *mut Pd) -> Result<Ref<Pd>, Errno> {
    handles::find(pd.cast_const().cast())
}

fn register(pd: *mut Pd, addr: *mut c_void, length: usize, iova: u64, access: u32) -> Result<*mut Mr, Errno> {
    let known = domain(pd)?;
    let (number, context) = (known.handle, ContextObject::find(known.context)?);
    let (access, zero_based) = checked_access(access)?;
    let iova = if zero_based { 0 } else { iova };
    let key = context
        .device
        .register(number, addr as u64, length as u64, iova, access)
        .map_err(refused("ibv_reg_mr"))?;
    context.live().keys.insert(key);
    let mr = Mr { context: context.handle(), pd, addr, length, handle: key, lkey: key, rkey: key };
    handles::publish(mr, context.handle().addr())
}

export! {
    /// Makes a protection domain.
    pointer fn ibv_alloc_pd(context: *mut Context) -> Pd {
        let context = ContextObject::find(context)?;
        let handle = context.device.alloc_pd().map_err(refused("ibv_alloc_pd"))?;
        context.live().pds.insert(handle);
        handles::publish(Pd { context: context.handle(), handle }, context.handle().addr())
    }

    /// Removes it; EBUSY while something uses it.
    errno fn ibv_dealloc_pd(pd: *mut Pd) {
        let claim = handles::claim::<Pd>(pd.cast_const().cast())?;
        let number = claim.object.handle;
        let context = ContextObject::find(claim.object.context)?;
        context.device.dealloc_pd(number).map_err(refused("ibv_dealloc_pd"))?;
        context.live().pds.remove(&number);
        claim.bury();
        Ok(())
    }

    /// Registers memory; costs no page work.
    pointer fn ibv_reg_mr(pd: *mut Pd, addr: *mut c_void, length: usize, access: c_int) -> Mr {
        register(pd, addr, length, addr as u64, access as u32)
    }

    /// Registers memory that is known remotely by addresses from `iova`.
    pointer fn ibv_reg_mr_iova(
        pd: *mut Pd, addr: *mut c_void, length: usize, iova: u64, access: c_int
    ) -> Mr {
        register(pd, addr, length, iova, access as u32)
    }

    /// As `ibv_reg_mr_iova`, with access hints, which are dropped where they mean nothing here.
    pointer fn ibv_reg_mr_iova2(
        pd: *mut Pd, addr: *mut c_void, length: usize, iova: u64, access: u32
    ) -> Mr {
        register(pd, addr, length, iova, access)
    }

    /// Not supported; the region stays as it was (`IBV_REREG_MR_ERR_INPUT`).
    minus_one fn ibv_rereg_mr(
        _mr: *mut Mr, _flags: c_int, _pd: *mut Pd, _addr: *mut c_void, _length: usize, _access: c_int
    ) {
        const _: () = assert!(c::REREG_MR_ERR_INPUT == -1);
        Err(unsupported("ibv_rereg_mr", "changing a region"))
    }

    /// Ends a region: no access through its keys follows.
    errno fn ibv_dereg_mr(mr: *mut Mr) {
        let claim = handles::claim::<Mr>(mr.cast_const().cast())?;
        let key = claim.object.handle;
        let context = ContextObject::find(claim.object.context)?;
        context.live().keys.remove(&key);
        if let Err(error) = context.device.deregister(key) {
            context.live().keys.insert(key);
            return Err(refused("ibv_dereg_mr")(error));
        }
        claim.bury();
        Ok(())
    }

    /// Allocates memory fit for registration: here, whole pages. `buf` names it to the calls below.
    pointer fn ibv_alloc_buf(pd: *mut Pd, size: usize, buf: *mut *mut Buf) -> c_void {
        let context = ContextObject::find(domain(pd)?.context)?;
        store(buf, std::ptr::null_mut());
        if size == 0 || buf.is_null() {
            return Err(Errno::EINVAL);
        }
        let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096);
        let mut memory = std::ptr::null_mut();
        let errno = libc::posix_memalign(&mut memory, page, size);
        if errno != 0 {
            return Err(Errno(errno));
        }
        let made = Buf { memory: Cell::new(memory) };
        buf.write(handles::publish(made, context.handle().addr())?);
        Ok(memory)
    }

    /// Frees it.
    nothing fn ibv_free_buf(buf: *mut Buf) {
        let claim = handles::claim::<Buf>(buf.cast_const().cast())?;
        libc::free(claim.object.memory.replace(std::ptr::null_mut()));
        claim.bury();
        Ok(())
    }

    /// Registers a part of it.
    pointer fn ibv_reg_buf_mr(
        pd: *mut Pd, buf: *mut Buf, addr: *mut c_void, length: usize, access: c_int
    ) -> Mr {
        handles::find::<Buf>(buf.cast_const().cast())?;
        register(pd, addr, length, addr as u64, access as u32)
    }
}

/// Memory of `ibv_alloc_buf`; opaque to programs.
pub struct Buf {
    memory: Cell<*mut c_void>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_flags_are_kept_dropped_or_refused() {
        let relaxed = c::ACCESS_RELAXED_ORDERING;
        let cases = [
            (0, Ok((0, false))),
            (0xf, Ok((0xf, false))),
            (1 | relaxed, Ok((1 | relaxed, false))),
            (1 | 1 << 21 | 1 << 29, Ok((1, false))), // hints
            (1 | c::ACCESS_HUGETLB, Ok((1, false))),
            (1 | c::ACCESS_ZERO_BASED, Ok((1, true))),
            (c::ACCESS_REMOTE_WRITE, Err(Errno::EINVAL)),
            (c::ACCESS_REMOTE_ATOMIC, Err(Errno::EINVAL)),
            (c::ACCESS_REMOTE_READ, Ok((c::ACCESS_REMOTE_READ, false))),
            (1 | 1 << 6, Err(Errno::EOPNOTSUPP)),  // on demand
            (1 | 1 << 4, Err(Errno::EOPNOTSUPP)),  // window binding
            (1 | 1 << 30, Err(Errno::EOPNOTSUPP)), // not optional
        ];
        for (access, expected) in cases {
            assert_eq!(checked_access(access), expected, "{access:#x}");
        }
    }
}
