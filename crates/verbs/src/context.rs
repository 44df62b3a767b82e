//! An open device: the C context, the device behind it, and the objects made through it.

use crate::abi_c::context as abi;
use crate::abi_c::objects::{AsyncEvent, Cq, Qp};
use crate::abi_c::Plain;
use crate::border::{export, object, store, Errno};
use crate::cq::CqObject;
use crate::device::{self, DeviceObject};
use crate::environment::settings;
use crate::events::{Acks, Pipe};
use crate::handles::{self, Claim, Handle, Ref};
use crate::qp::QpObject;
use crate::{cq, cq_ex, post, qp, query};
use libc::c_void;
use srdma_client::abi::AsyncKind;
use srdma_client::{Device, OpenError};
use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects of a context by number: where events find them, and what closing it must end.
#[derive(Default)]
pub(crate) struct Live {
    pub(crate) qps: HashMap<u32, *mut QpObject>,
    pub(crate) cqs: HashMap<u32, *mut CqObject>,
    pub(crate) keys: HashSet<u32>,
    pub(crate) pds: HashSet<u32>,
}

/// A context. The C part comes first, our own behind it.
#[repr(C)]
pub(crate) struct ContextObject {
    verbs: abi::VerbsContext,
    /// Dropped before `events`, to whose write end it writes.
    pub(crate) device: Device,
    events: Pipe,
    live: Mutex<Live>,
    pub(crate) listed: &'static DeviceObject,
    /// The program was told that the device has gone.
    told_of_end: AtomicBool,
}

fn operations() -> abi::Ops {
    let mut ops = abi::Ops::zeroed();
    ops._compat_query_device = Some(query::ibv_query_device);
    ops._compat_query_port = Some(query::ibv_query_port);
    ops.bind_mw = Some(device::no_bind_mw);
    ops.dealloc_mw = Some(device::no_dealloc_mw);
    ops.poll_cq = Some(cq::poll_cq);
    ops.req_notify_cq = Some(cq::req_notify_cq);
    ops.post_srq_recv = Some(device::no_post_srq_recv);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    ops
}

impl Handle for ContextObject {
    const OFFSET: usize = offset_of!(abi::VerbsContext, context);

    fn retire(&self) {
        // In this order: the device writes to the pipe.
        self.device.close();
        self.events.close();
    }
}

impl ContextObject {
    /// Opens `listed`; `failed` turns the reason of a failure into an errno.
    pub(crate) fn open(
        listed: &'static DeviceObject,
        failed: impl Fn(OpenError) -> Errno,
    ) -> Result<*mut abi::Context, Errno> {
        let events = Pipe::new()?;
        let device = Device::open(&listed.info, &settings()?.options, events.write_fd()).map_err(failed)?;
        if let Some(read) = device.take_events() {
            events.adopt(read);
        }
        let mut verbs = abi::VerbsContext::zeroed();
        verbs.query_port = Some(query::query_port);
        verbs.query_rt_values = Some(query::query_rt_values);
        verbs.create_cq_ex = Some(cq_ex::create_cq_ex);
        verbs.query_device_ex = Some(query::query_device_ex);
        verbs.create_qp_ex = Some(qp::create_qp_ex);
        verbs.close_xrcd = Some(device::no_close_xrcd);
        verbs.sz = size_of::<abi::VerbsContext>();
        let context = &mut verbs.context;
        context.device = listed.handle();
        context.ops = operations();
        // Programs only ever set flags on it; there is no command channel.
        context.cmd_fd = if events.write_fd() < 0 { events.read_fd() } else { events.write_fd() };
        context.async_fd = events.read_fd();
        context.num_comp_vectors = 1;
        context.abi_compat = abi::ABI_IS_EXTENDED;
        let told_of_end = AtomicBool::new(false);
        let object = ContextObject { verbs, device, events, live: Mutex::default(), listed, told_of_end };
        let object = handles::publish(object, 0)?;
        Ok(object.cast::<u8>().wrapping_add(Self::OFFSET).cast())
    }

    /// The open context behind a handle.
    pub(crate) fn find(context: *mut abi::Context) -> Result<Ref<ContextObject>, Errno> {
        handles::find(context.cast_const().cast())
    }

    pub(crate) fn handle(&self) -> *mut abi::Context {
        ptr::from_ref(&self.verbs.context).cast_mut()
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a context and all that was made through it. Objects that the program has not removed end as
    /// those of a process that exits, and their handles with them.
    pub(crate) fn close(claim: Claim<ContextObject>) {
        let context = &claim.object;
        let live = std::mem::take(&mut *context.live());
        for qp in live.qps.values() {
            // SAFETY: objects are removed from `live` before they are buried, and freed long after.
            let _ = unsafe { &**qp }.inner.destroy();
        }
        for key in live.keys {
            let _ = context.device.deregister(key);
        }
        for cq in live.cqs.values() {
            // SAFETY: as for the queue pairs.
            let _ = unsafe { &**cq }.inner.destroy();
        }
        for pd in live.pds {
            let _ = context.device.dealloc_pd(pd);
        }
        handles::bury_all_of(context.handle().addr());
    }

    /// The next record of an asynchronous event. Where the device writes it, the end of the pipe is the last one:
    /// whoever had the device has ended.
    fn next_record(&self) -> Result<[u8; 8], Errno> {
        match self.events.next() {
            Err(Errno(libc::EIO)) if !self.told_of_end.swap(true, Ordering::Relaxed) => {
                let mut record = [0; 8];
                record[..4].copy_from_slice(&(AsyncKind::DeviceFatal as u32).to_ne_bytes());
                Ok(record)
            }
            other => other,
        }
    }

    /// The event of a record, and the counter of its object; `None` if that is gone.
    fn event(&self, record: [u8; 8]) -> Option<(AsyncEvent, Option<Arc<Acks>>)> {
        let [k0, k1, k2, k3, o0, o1, o2, o3] = record;
        let kind = u32::from_ne_bytes([k0, k1, k2, k3]);
        let number = u32::from_ne_bytes([o0, o1, o2, o3]);
        let live = self.live();
        let mut event = AsyncEvent::zeroed();
        event.event_type = kind;
        let acks = match about(kind) {
            About::Cq => {
                let cq = *live.cqs.get(&number)?;
                event.element = cq.cast();
                // SAFETY: removed from `live`, under its lock, before it is freed.
                Some(Arc::clone(unsafe { &(*cq).async_acks }))
            }
            About::Qp => {
                let qp = *live.qps.get(&number)?;
                event.element = qp.cast();
                // SAFETY: as above.
                Some(Arc::clone(unsafe { &(*qp).acks }))
            }
            About::Port => {
                event.element = ptr::without_provenance_mut::<c_void>(1);
                None
            }
        };
        // Still under the lock: an object destroyed from now on waits for this event.
        if let Some(acks) = &acks {
            acks.deliver();
        }
        Some((event, acks))
    }
}

/// What an asynchronous event is about.
enum About {
    Cq,
    Qp,
    Port,
}

fn about(kind: u32) -> About {
    const CQ_ERR: u32 = AsyncKind::CqErr as u32;
    const QP_FATAL: u32 = AsyncKind::QpFatal as u32;
    const PATH_MIG_ERR: u32 = 7;
    const QP_LAST_WQE_REACHED: u32 = 16;
    match kind {
        CQ_ERR => About::Cq,
        QP_FATAL..=PATH_MIG_ERR | QP_LAST_WQE_REACHED => About::Qp,
        _ => About::Port,
    }
}

export! {
    /// Next asynchronous event; each must be acknowledged.
    minus_one fn ibv_get_async_event(context: *mut abi::Context, event: *mut AsyncEvent) {
        let context = ContextObject::find(context)?;
        loop {
            if let Some((found, _)) = context.event(context.next_record()?) {
                store(event, found);
                return Ok(0);
            }
        }
    }

    /// Acknowledges one.
    nothing fn ibv_ack_async_event(event: *mut AsyncEvent) {
        let event = object(event)?;
        let acks = match about(event.event_type) {
            About::Cq => Arc::clone(&CqObject::known(event.element.cast::<Cq>())?.async_acks),
            About::Qp => Arc::clone(&QpObject::known(event.element.cast::<Qp>())?.acks),
            About::Port => return Ok(()),
        };
        acks.acknowledge(1);
        Ok(())
    }
}
