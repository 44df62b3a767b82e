//! Completion queues: making, polling, arming and removing them.

use crate::abi_c::constants as c;
use crate::abi_c::context::Context;
use crate::abi_c::objects::{CompChannel, Cq, CqEx};
use crate::abi_c::work::Wc;
use crate::abi_c::Plain;
use crate::border::{caught, export, invalid, object, positive, refused, Errno};
use crate::channel::{self, ChannelObject};
use crate::context::ContextObject;
use crate::cq_ex::Iterator;
use crate::events::Acks;
use crate::handles::{self, Handle, Ref};
use libc::{c_int, c_void};
use srdma_client::abi::{Completion, WcFlags, WcOpcode};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Completions taken from the device at once, to keep them on the stack.
const POLL_BATCH: usize = 16;

/// A completion queue. The C part, always in its extended form, comes first, our own behind it.
#[repr(C)]
pub(crate) struct CqObject {
    pub(crate) c: UnsafeCell<CqEx>,
    pub(crate) inner: srdma_client::Cq,
    /// It was removed; only programs that use a handle after that see it.
    gone: AtomicBool,
    /// Channel and cookie.
    events: Option<(*mut CompChannel, u64)>,
    pub(crate) comp_acks: Arc<Acks>,
    pub(crate) async_acks: Arc<Acks>,
    /// State of `ibv_start_poll` … `ibv_end_poll`.
    pub(crate) iterator: Iterator,
}

/// What a queue is made with.
pub(crate) struct CqRequest {
    pub(crate) entries: i64,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut CompChannel,
    pub(crate) comp_vector: i64,
    /// The polling program promises one thread at a time.
    pub(crate) single_threaded: bool,
}

impl Handle for CqObject {
    fn retire(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.inner.capacity() as usize * srdma_client::abi::UNIT_BYTES
    }
}

impl CqObject {
    /// The live queue behind a handle.
    pub(crate) fn known(cq: *mut Cq) -> Result<Ref<CqObject>, Errno> {
        handles::find(cq.cast_const().cast())
    }

    /// The queue behind a handle that an inline function of the header has followed already: EINVAL for one that was
    /// removed. For the data path: it costs one load.
    ///
    /// # Safety
    /// A non-null `cq` is live, or in its grave.
    pub(crate) unsafe fn find<'a>(cq: *mut Cq) -> Result<&'a CqObject, Errno> {
        // SAFETY: the caller's promise; all queues are `CqObject`s.
        let found = unsafe { object(cq.cast::<CqObject>())? };
        if found.gone.load(Ordering::Relaxed) {
            return Err(Errno::EINVAL);
        }
        Ok(found)
    }

    /// Makes a queue.
    pub(crate) fn create(
        call: &str,
        context: &ContextObject,
        request: &CqRequest,
    ) -> Result<*mut CqObject, Errno> {
        let max = context.device.limits().max_cqe;
        let entries = match u32::try_from(request.entries) {
            Ok(entries) if (1..=max).contains(&entries) => entries,
            _ => return Err(invalid(call, &format!("{} entries, 1 to {max} allowed", request.entries))),
        };
        if request.comp_vector != 0 {
            return Err(invalid(call, "the device has only completion vector 0"));
        }
        let channel = match request.channel.is_null() {
            true => None,
            false => Some(ChannelObject::find(request.channel)?),
        };
        let channel = channel.as_deref();
        let events = channel.map(ChannelObject::attach);
        let inner = match context.device.create_cq(entries, events) {
            Ok(inner) => inner,
            Err(error) => {
                if let (Some(channel), Some(events)) = (channel, events) {
                    channel.detach(events.cookie);
                }
                return Err(refused(call)(error));
            }
        };
        let number = inner.number();
        let mut c = CqEx::zeroed();
        c.context = context.handle();
        c.channel = channel::handle(channel);
        c.cq_context = request.cq_context;
        c.handle = number;
        c.cqe = c_int::try_from(inner.capacity()).unwrap_or(c_int::MAX);
        let queue = CqObject {
            c: UnsafeCell::new(c),
            inner,
            gone: AtomicBool::new(false),
            events: events.map(|events| (request.channel, events.cookie)),
            comp_acks: Arc::default(),
            async_acks: Arc::default(),
            iterator: Iterator::new(request.single_threaded),
        };
        let queue = handles::publish(queue, context.handle().addr())?;
        context.live().cqs.insert(number, queue);
        if let (Some(channel), Some(events)) = (channel, events) {
            channel.announce(events.cookie, queue);
        }
        Ok(queue)
    }
}

/// `enum ibv_wc_opcode` of a completion.
pub(crate) fn wc_opcode(opcode: u8) -> u32 {
    const RECV: u8 = WcOpcode::Recv as u8;
    const RECV_WRITE_IMM: u8 = WcOpcode::RecvWriteImm as u8;
    match opcode {
        RECV => c::WC_RECV,
        RECV_WRITE_IMM => c::WC_RECV_RDMA_WITH_IMM,
        // SEND, WRITE, READ and the atomics have the same numbers in both.
        same => same.into(),
    }
}

/// `enum ibv_wc_flags` of a completion.
pub(crate) fn wc_flags(completion: &Completion) -> u32 {
    if completion.flags.contains(WcFlags::IMM) {
        c::WC_WITH_IMM
    } else {
        0
    }
}

fn work_completion(from: &Completion) -> Wc {
    Wc {
        wr_id: from.wr_id,
        status: from.status.into(),
        opcode: wc_opcode(from.opcode),
        vendor_err: from.vendor_err,
        byte_len: from.byte_len,
        imm_data: from.imm,
        qp_num: from.qpn,
        src_qp: from.src_qpn,
        wc_flags: wc_flags(from),
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// # Safety
/// `cq` is null or live, `wc` writable for `wanted` completions.
unsafe fn poll(cq: *mut Cq, wanted: c_int, wc: *mut Wc) -> Result<c_int, Errno> {
    // SAFETY: the caller's handle.
    let queue = unsafe { CqObject::find(cq)? };
    let wanted = usize::try_from(wanted).map_err(|_| Errno::EINVAL)?;
    if wc.is_null() && wanted > 0 {
        return Err(Errno::EINVAL);
    }
    let mut batch = [Completion::default(); POLL_BATCH];
    let mut taken = 0;
    while taken < wanted {
        let room = (wanted - taken).min(POLL_BATCH);
        let Some(found) = queue.inner.poll(&mut batch[..room]) else {
            // Overrun: what was already taken still counts; the next call reports it.
            return if taken > 0 { Ok(taken as c_int) } else { Err(Errno::EIO) };
        };
        for completion in &batch[..found] {
            // SAFETY: `taken < wanted`, and the caller has room for `wanted`.
            unsafe { wc.add(taken).write(work_completion(completion)) };
            taken += 1;
        }
        if found < room {
            break;
        }
    }
    Ok(taken as c_int)
}

/// `ibv_poll_cq`: the number of completions taken, or a negative errno.
///
/// # Safety
/// As `ibv_poll_cq`.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut Cq, wanted: c_int, wc: *mut Wc) -> c_int {
    // SAFETY: what the manual page asks of callers.
    caught(|| unsafe { poll(cq, wanted, wc) }).unwrap_or_else(|errno| -errno.set())
}

/// `ibv_req_notify_cq`.
///
/// # Safety
/// As `ibv_req_notify_cq`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut Cq, solicited_only: c_int) -> c_int {
    positive(caught(|| {
        // SAFETY: what the manual page asks of callers.
        unsafe { CqObject::find(cq)? }.inner.arm(solicited_only != 0);
        Ok(())
    }))
}

export! {
    /// Makes a completion queue of at least `entries`.
    pointer fn ibv_create_cq(
        context: *mut Context, entries: c_int, cq_context: *mut c_void, channel: *mut CompChannel, comp_vector: c_int
    ) -> Cq {
        let context = ContextObject::find(context)?;
        let request = CqRequest {
            entries: entries.into(),
            cq_context,
            channel,
            comp_vector: comp_vector.into(),
            single_threaded: false,
        };
        Ok(CqObject::create("ibv_create_cq", &context, &request)?.cast())
    }

    /// Removes it, when all its events are acknowledged; EBUSY while queue pairs use it.
    errno fn ibv_destroy_cq(cq: *mut Cq) {
        let claim = handles::claim::<CqObject>(cq.cast_const().cast())?;
        let queue = &claim.object;
        let context = ContextObject::find((*cq).context)?;
        let number = queue.inner.number();
        queue.inner.destroy().map_err(refused("ibv_destroy_cq"))?;
        // From here no event of it is handed out, so those to wait for are counted.
        let mut live = context.live();
        if live.cqs.get(&number).is_some_and(|known| std::ptr::eq(*known, &raw const **queue)) {
            live.cqs.remove(&number);
        }
        drop(live);
        if let Some((channel, cookie)) = queue.events {
            ChannelObject::find(channel)?.detach(cookie);
        }
        queue.comp_acks.wait();
        queue.async_acks.wait();
        claim.bury();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_keep_every_field_and_get_the_numbers_of_verbs_h() {
        let opcodes = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 128), (6, 129)];
        for (ours, theirs) in opcodes {
            let from = Completion {
                wr_id: u64::MAX - 1,
                qpn: 7,
                src_qpn: 8,
                status: 12,
                opcode: ours,
                flags: WcFlags::IMM,
                vendor_err: 40,
                byte_len: 9,
                imm: 0x0102_0304,
                ..Completion::default()
            };
            let wc = work_completion(&from);
            assert_eq!(wc.opcode, theirs);
            assert_eq!((wc.wr_id, wc.qp_num, wc.src_qp, wc.status), (u64::MAX - 1, 7, 8, 12));
            assert_eq!((wc.vendor_err, wc.byte_len, wc.imm_data), (40, 9, 0x0102_0304));
            assert_eq!(wc.wc_flags, 2);
        }
        assert_eq!(work_completion(&Completion::default()).wc_flags, 0);
    }
}
