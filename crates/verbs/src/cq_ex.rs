//! The extended completion queue: `ibv_create_cq_ex` and the iterator over completions.

use crate::abi_c::attributes::CqInitAttrEx;
use crate::abi_c::constants as c;
use crate::abi_c::context::Context;
use crate::abi_c::objects::CqEx;
use crate::border::{caught, invalid, object, pointer, positive, unsupported, Errno};
use crate::context::ContextObject;
use crate::cq::{wc_flags, wc_opcode, CqObject, CqRequest};
use crate::query::clock_ns;
use libc::c_int;
use srdma_client::abi::Completion;
use std::cell::{Cell, UnsafeCell};

/// The completion that the iterator is at, and the lock that is held from `start_poll` to `end_poll`.
pub(crate) struct Iterator {
    /// A lock that one call takes and another releases, which a guard cannot express.
    lock: UnsafeCell<libc::pthread_mutex_t>,
    single_threaded: bool,
    at: Cell<Completion>,
}

impl Iterator {
    pub(crate) fn new(single_threaded: bool) -> Iterator {
        Iterator {
            lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            single_threaded,
            at: Cell::default(),
        }
    }

    fn lock(&self) {
        if !self.single_threaded {
            // SAFETY: initialised, and its queue does not move while it lives.
            unsafe { libc::pthread_mutex_lock(self.lock.get()) };
        }
    }

    fn unlock(&self) {
        if !self.single_threaded {
            // SAFETY: as above; the caller holds it.
            unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
        }
    }
}

/// Takes one completion into the iterator: ENOENT if there is none, EIO after an overrun.
///
/// # Safety
/// `cq` is live, and the iterator's lock is held.
unsafe fn advance(cq: *mut CqEx) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let queue = unsafe { CqObject::find(cq.cast())? };
    let mut one = [Completion::default()];
    match queue.inner.poll(&mut one) {
        None => Err(Errno::EIO),
        Some(0) => Err(Errno::ENOENT),
        Some(_) => {
            // SAFETY: the C part is in a cell, and the lock keeps other iterators out.
            unsafe {
                (*queue.c.get()).status = one[0].status.into();
                (*queue.c.get()).wr_id = one[0].wr_id;
            }
            queue.iterator.at.set(one[0]);
            Ok(())
        }
    }
}

/// The result of an iterator call: ENOENT is the usual end, which must not disturb errno.
fn outcome(result: Result<(), Errno>) -> c_int {
    match result {
        Err(Errno::ENOENT) => libc::ENOENT,
        other => positive(other),
    }
}

unsafe extern "C" fn start_poll(cq: *mut CqEx, comp_mask: *mut u32) -> c_int {
    // SAFETY: the caller's handle; the attributes are null or point to a `comp_mask`.
    outcome(caught(|| unsafe {
        let queue = CqObject::find(cq.cast())?;
        if comp_mask.as_ref().is_some_and(|mask| *mask != 0) {
            return Err(invalid("ibv_start_poll", "comp_mask"));
        }
        queue.iterator.lock();
        let result = caught(|| advance(cq));
        if result.is_err() {
            queue.iterator.unlock(); // without a start there is no end
        }
        result
    }))
}

unsafe extern "C" fn next_poll(cq: *mut CqEx) -> c_int {
    // SAFETY: the caller's handle. The lock stays held, whatever the result: `end_poll` follows.
    outcome(caught(|| unsafe { advance(cq) }))
}

unsafe extern "C" fn end_poll(cq: *mut CqEx) {
    let _ = caught(|| {
        // SAFETY: the caller's handle.
        unsafe { CqObject::find(cq.cast())? }.iterator.unlock();
        Ok(())
    });
}

/// The completion that the iterator is at.
///
/// # Safety
/// `cq` is a completion queue that this library made and has not destroyed, or null.
unsafe fn at(cq: *mut CqEx) -> Completion {
    // SAFETY: called between start and end, on a live queue.
    unsafe { CqObject::find(cq.cast()) }.map_or_else(|_| Completion::default(), |q| q.iterator.at.get())
}

/// Declares functions that read a field of the current completion.
macro_rules! readers {
    ($($name:ident($one:ident) -> $ty:ty = $value:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut CqEx) -> $ty {
            // SAFETY: programs call it between start and end.
            let $one = unsafe { at(cq) };
            $value
        }
    )*};
}

readers! {
    read_opcode(one) -> u32 = wc_opcode(one.opcode);
    read_vendor_err(one) -> u32 = one.vendor_err;
    read_byte_len(one) -> u32 = one.byte_len;
    read_imm_data(one) -> u32 = one.imm;
    read_qp_num(one) -> u32 = one.qpn;
    read_src_qp(one) -> u32 = one.src_qpn;
    read_wc_flags(one) -> u32 = wc_flags(&one);
    read_slid(_one) -> u32 = 0;
    read_sl(_one) -> u8 = 0;
    read_dlid_path_bits(_one) -> u8 = 0;
    read_completion_ts(one) -> u64 = one.timestamp_ns;
    read_completion_wallclock_ns(one) -> u64 =
        clock_ns(libc::CLOCK_REALTIME)
            .wrapping_sub(clock_ns(libc::CLOCK_MONOTONIC))
            .wrapping_add(one.timestamp_ns);
}

fn fill(cq: &mut CqEx, wc_flags: u64) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_slid = Some(read_slid);
    cq.read_sl = Some(read_sl);
    cq.read_dlid_path_bits = Some(read_dlid_path_bits);
    // Only those asked for: reading another is a mistake of the program.
    if wc_flags & c::WC_EX_WITH_COMPLETION_TIMESTAMP != 0 {
        cq.read_completion_ts = Some(read_completion_ts);
    }
    if wc_flags & c::WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK != 0 {
        cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    }
}

/// # Safety
/// `context` and `attr` are null or live.
unsafe fn create(context: *mut Context, attr: *const CqInitAttrEx) -> Result<*mut CqEx, Errno> {
    const CALL: &str = "ibv_create_cq_ex";
    const FIELDS: u64 = c::WC_STANDARD_FLAGS
        | c::WC_EX_WITH_COMPLETION_TIMESTAMP
        | c::WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    const FLAGS: u32 = c::CREATE_CQ_ATTR_SINGLE_THREADED | c::CREATE_CQ_ATTR_IGNORE_OVERRUN;
    // SAFETY: the caller's handles.
    let (context, attr) = unsafe { (ContextObject::find(context)?, object(attr)?) };
    if attr.comp_mask & !c::CQ_INIT_ATTR_MASK_FLAGS != 0 {
        return Err(unsupported(CALL, &format!("comp_mask {:#x}", attr.comp_mask)));
    }
    if attr.wc_flags & !FIELDS != 0 {
        return Err(unsupported(CALL, &format!("wc_flags {:#x}", attr.wc_flags & !FIELDS)));
    }
    let flags = if attr.comp_mask & c::CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
    if flags & !FLAGS != 0 {
        return Err(unsupported(CALL, &format!("flags {:#x}", flags & !FLAGS)));
    }
    let request = CqRequest {
        entries: attr.cqe.into(),
        cq_context: attr.cq_context,
        channel: attr.channel,
        comp_vector: attr.comp_vector.into(),
        single_threaded: flags & c::CREATE_CQ_ATTR_SINGLE_THREADED != 0,
    };
    let queue = CqObject::create(CALL, &context, &request)?;
    // SAFETY: new, and not yet known to the program.
    fill(unsafe { &mut *(*queue).c.get() }, attr.wc_flags);
    Ok(queue.cast())
}

/// `create_cq_ex` of the extended context.
///
/// # Safety
/// As `ibv_create_cq_ex`.
pub(crate) unsafe extern "C" fn create_cq_ex(context: *mut Context, attr: *mut CqInitAttrEx) -> *mut CqEx {
    // SAFETY: what the manual page asks of callers.
    pointer(caught(|| unsafe { create(context, attr) }))
}
