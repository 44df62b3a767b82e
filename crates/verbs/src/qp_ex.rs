//! The builder of send requests: `ibv_wr_start`, one call per operation, `ibv_wr_complete`.

use crate::abi_c::objects::{Qp, QpEx};
use crate::abi_c::work::{DataBuf, Sge as CSge};
use crate::border::{positive, Errno};
use crate::post::{guarded, post_errno, send_flags};
use crate::qp::QpObject;
use libc::{c_int, c_void};
use srdma_client::abi::{Opcode, SendEntry, SendFlags, Sge};
use std::cell::UnsafeCell;
use std::slice;

/// `send_ops_flags` that are supported: WRITE, WRITE_IMM, SEND, SEND_IMM, READ and both atomics.
pub(crate) const OPERATIONS: u64 = 0x7f;

/// One request being built.
struct Request {
    entry: SendEntry,
    /// Copied at once: the program may reuse the memory after the setter returns.
    inline: Vec<u8>,
}

/// Requests between start and complete, and the lock that is held meanwhile.
pub(crate) struct Builder {
    /// A lock that one call takes and another releases, which a guard cannot express.
    lock: UnsafeCell<libc::pthread_mutex_t>,
    batch: UnsafeCell<Batch>,
}

#[derive(Default)]
struct Batch {
    requests: Vec<Request>,
    /// First mistake; reported by `ibv_wr_complete`, which then posts nothing.
    error: Option<Errno>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder { lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), batch: UnsafeCell::default() }
    }
}

impl Builder {
    fn lock(&self) {
        // SAFETY: initialised, and its queue pair does not move while it lives.
        unsafe { libc::pthread_mutex_lock(self.lock.get()) };
    }

    fn unlock(&self) {
        // SAFETY: as above; the caller holds it.
        unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
    }
}

/// Runs `step` on the batch being built; a mistake or panic is kept for the end.
///
/// # Safety
/// `qp` is live, made with send operations, and between start and complete.
unsafe fn step(qp: *mut QpEx, step: impl FnOnce(&QpObject, &mut Batch) -> Result<(), Errno>) {
    let qp: *mut Qp = qp.cast();
    // SAFETY: the caller's promise; the builder's lock is held, so the batch is ours alone.
    unsafe {
        let Ok(object) = QpObject::find(qp) else { return };
        let Some(builder) = &object.builder else { return };
        let result = guarded(qp, || step(object, &mut *builder.batch.get()));
        if let Err(errno) = result {
            (*builder.batch.get()).error.get_or_insert(errno);
        }
    }
}

/// Begins a request with the `wr_id` and `wr_flags` that the program has set.
///
/// # Safety
/// As [`step`].
unsafe fn begin(qp: *mut QpEx, opcode: Opcode, set: impl FnOnce(&mut SendEntry)) {
    // SAFETY: passed on to the caller; the program does not change the fields meanwhile.
    unsafe {
        let (wr_id, flags) = ((*qp).wr_id, (*qp).wr_flags);
        step(qp, |_, batch| {
            // Whether data is inline is said by the setter, not by a flag.
            let flags = send_flags(flags & !crate::abi_c::constants::SEND_INLINE, opcode)?;
            let mut entry = SendEntry { opcode, flags, wr_id, ..SendEntry::default() };
            set(&mut entry);
            batch.requests.push(Request { entry, inline: Vec::new() });
            Ok(())
        });
    }
}

/// Gives the request begun last its elements.
///
/// # Safety
/// As [`step`].
unsafe fn set_elements(qp: *mut QpEx, sges: &[CSge]) {
    let put = |object: &QpObject, batch: &mut Batch| {
        let request = batch.requests.last_mut().ok_or(Errno::EINVAL)?;
        if sges.len() > object.init.max_send_sge as usize {
            return Err(Errno::EINVAL);
        }
        request.entry.sge_count = 0;
        let used = sges.iter().filter(|sge| sge.length != 0);
        for (sge, place) in used.zip(request.entry.sges.iter_mut()) {
            *place = Sge { address: sge.addr, length: sge.length, lkey: sge.lkey };
            request.entry.sge_count += 1;
        }
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { step(qp, put) };
}

/// Gives the request begun last its inline data.
///
/// # Safety
/// As [`step`]; each piece is readable.
unsafe fn set_inline(qp: *mut QpEx, pieces: &[DataBuf]) {
    let put = |object: &QpObject, batch: &mut Batch| {
        let request = batch.requests.last_mut().ok_or(Errno::EINVAL)?;
        if request.entry.opcode.is_read_or_atomic() {
            return Err(Errno::EINVAL);
        }
        let total = pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.length));
        if total.is_none_or(|total| total > object.init.max_inline_data as usize) {
            return Err(Errno::EINVAL);
        }
        request.inline.clear();
        for piece in pieces.iter().filter(|piece| piece.length != 0) {
            // SAFETY: the program's readable memory, at most `max_inline_data` bytes of it.
            request.inline.extend(unsafe { slice::from_raw_parts(piece.addr.cast::<u8>(), piece.length) });
        }
        request.entry.flags = request.entry.flags.with(SendFlags::INLINE);
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { step(qp, put) };
}

/// Declares the functions of the table; their bodies run under the contract of `ibv_wr_start`.
macro_rules! calls {
    ($(fn $name:ident($qp:ident $(, $arg:ident: $ty:ty)*) $body:block)*) => {$(
        unsafe extern "C" fn $name($qp: *mut QpEx $(, $arg: $ty)*) {
            // SAFETY: programs call it between start and complete, with what the manual page asks.
            unsafe { $body }
        }
    )*};
}

calls! {
    fn wr_rdma_write(qp, rkey: u32, address: u64) {
        begin(qp, Opcode::Write, |e| (e.rkey, e.remote_address) = (rkey, address));
    }
    fn wr_rdma_write_imm(qp, rkey: u32, address: u64, imm: u32) {
        begin(qp, Opcode::WriteImm, |e| (e.rkey, e.remote_address, e.imm) = (rkey, address, imm));
    }
    fn wr_rdma_read(qp, rkey: u32, address: u64) {
        begin(qp, Opcode::Read, |e| (e.rkey, e.remote_address) = (rkey, address));
    }
    fn wr_send(qp) {
        begin(qp, Opcode::Send, |_| ());
    }
    fn wr_send_imm(qp, imm: u32) {
        begin(qp, Opcode::SendImm, |e| e.imm = imm);
    }
    fn wr_atomic_cmp_swp(qp, rkey: u32, address: u64, compare: u64, swap: u64) {
        begin(qp, Opcode::CompareSwap, |e| {
            (e.rkey, e.remote_address, e.compare_add, e.swap) = (rkey, address, compare, swap);
        });
    }
    fn wr_atomic_fetch_add(qp, rkey: u32, address: u64, add: u64) {
        begin(qp, Opcode::FetchAdd, |e| (e.rkey, e.remote_address, e.compare_add) = (rkey, address, add));
    }
    fn wr_set_sge(qp, lkey: u32, addr: u64, length: u32) {
        set_elements(qp, &[CSge { addr, length, lkey }]);
    }
    fn wr_set_sge_list(qp, count: usize, list: *const CSge) {
        match list_of(count, list) {
            Some(list) => set_elements(qp, list),
            None => step(qp, |_, _| Err(Errno::EINVAL)),
        }
    }
    fn wr_set_inline_data(qp, addr: *mut c_void, length: usize) {
        set_inline(qp, &[DataBuf { addr, length }]);
    }
    fn wr_set_inline_data_list(qp, count: usize, list: *const DataBuf) {
        match list_of(count, list) {
            Some(list) => set_inline(qp, list),
            None => step(qp, |_, _| Err(Errno::EINVAL)),
        }
    }
    fn wr_start(qp) {
        if let Ok(QpObject { builder: Some(builder), .. }) = QpObject::find(qp.cast()) {
            builder.lock();
            *builder.batch.get() = Batch::default();
        }
    }
    fn wr_abort(qp) {
        if let Ok(QpObject { builder: Some(builder), .. }) = QpObject::find(qp.cast()) {
            *builder.batch.get() = Batch::default();
            builder.unlock();
        }
    }
}

/// A program's list; `None` for a null one that should have elements, or a count beyond reason.
///
/// # Safety
/// A non-null `list` is readable for `count` elements.
unsafe fn list_of<'a, T>(count: usize, list: *const T) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    if list.is_null() || count > 4096 {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { slice::from_raw_parts(list, count) })
}

/// Posts what was built; on a mistake, nothing. (If the queue fills up on the way, requests before that
/// stay posted: leave room, as with every device.)
fn complete(object: &QpObject, batch: &mut Batch) -> Result<(), Errno> {
    if let Some(errno) = batch.error {
        return Err(errno);
    }
    let mut posts = object.inner.post_sends();
    for request in &mut batch.requests {
        let piece = [(request.inline.as_ptr() as u64, request.inline.len() as u32)];
        let inline = if request.inline.is_empty() { &[] } else { &piece[..] };
        // SAFETY: the piece is our own copy, which lives until the push returns.
        unsafe { posts.push(&mut request.entry, inline) }
            .map_err(|error| post_errno("ibv_wr_complete", error))?;
    }
    Ok(())
}

unsafe extern "C" fn wr_complete(qp: *mut QpEx) -> c_int {
    // SAFETY: programs call it after start, which took the lock.
    unsafe {
        let Ok(QpObject { builder: Some(builder), .. }) = QpObject::find(qp.cast()) else {
            return positive(Err(Errno::EINVAL));
        };
        let result = guarded(qp.cast(), || complete(QpObject::find(qp.cast())?, &mut *builder.batch.get()));
        builder.unlock();
        positive(result)
    }
}

/// Puts the functions into the C struct; those of operations that we lack stay null.
pub(crate) fn fill(c: &mut QpEx) {
    c.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    c.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    c.wr_rdma_read = Some(wr_rdma_read);
    c.wr_rdma_write = Some(wr_rdma_write);
    c.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    c.wr_send = Some(wr_send);
    c.wr_send_imm = Some(wr_send_imm);
    c.wr_set_inline_data = Some(wr_set_inline_data);
    c.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    c.wr_set_sge = Some(wr_set_sge);
    c.wr_set_sge_list = Some(wr_set_sge_list);
    c.wr_start = Some(wr_start);
    c.wr_complete = Some(wr_complete);
    c.wr_abort = Some(wr_abort);
}
