//! Completion channels: where the events of completion queues are read.

use crate::abi_c::context::Context;
use crate::abi_c::objects::{CompChannel, Cq};
use crate::border::{export, refused, store, Errno};
use crate::context::ContextObject;
use crate::cq::CqObject;
use crate::events::Pipe;
use crate::handles::{self, Handle, Ref};
use libc::{c_uint, c_void};
use srdma_client::CqEvents;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// A channel. The C part comes first, our own behind it.
#[repr(C)]
pub(crate) struct ChannelObject {
    c: UnsafeCell<CompChannel>,
    pipe: Pipe,
    /// The device's number for it, where the device writes to a pipe of its own.
    number: Option<RawFd>,
    members: Mutex<Members>,
}

/// Queues that report here, by the cookie in their events. Cookies are never used again, so an event of
/// a queue that is gone finds nobody.
#[derive(Default)]
struct Members {
    last_cookie: u64,
    queues: HashMap<u64, *mut CqObject>,
    /// Queues attached, including one still being made.
    attached: i32,
}

impl Handle for ChannelObject {
    fn retire(&self) {
        self.pipe.close();
    }
}

impl ChannelObject {
    /// The live channel behind a handle.
    pub(crate) fn find(channel: *mut CompChannel) -> Result<Ref<ChannelObject>, Errno> {
        handles::find(channel.cast_const().cast())
    }

    /// Shows the number of attached queues, which old programs look at.
    fn show(&self, attached: i32) {
        // SAFETY: the members' lock is held, and only we write the field.
        unsafe { (*self.c.get()).refcnt = attached };
    }

    /// Takes a place for a queue about to be made.
    pub(crate) fn attach(&self) -> CqEvents {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.last_cookie += 1;
        members.attached += 1;
        self.show(members.attached);
        CqEvents { fd: self.number.unwrap_or(self.pipe.write_fd()), cookie: members.last_cookie }
    }

    /// The queue that `attach` made the place for exists now.
    pub(crate) fn announce(&self, cookie: u64, queue: *mut CqObject) {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).queues.insert(cookie, queue);
    }

    /// Gives the place back; events with this cookie are dropped from now on.
    pub(crate) fn detach(&self, cookie: u64) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.queues.remove(&cookie);
        members.attached -= 1;
        self.show(members.attached);
    }

    /// The queue of an event, which is counted as delivered; `None` if it is gone.
    fn delivered(&self, cookie: u64) -> Option<*mut CqObject> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = *members.queues.get(&cookie)?;
        // SAFETY: a queue is detached, under this lock, before it is freed.
        unsafe { &(*queue).comp_acks }.deliver();
        Some(queue)
    }
}

export! {
    /// Makes a channel.
    pointer fn ibv_create_comp_channel(context: *mut Context) -> CompChannel {
        let context = ContextObject::find(context)?;
        let pipe = Pipe::new()?;
        let made = context.device.create_channel().map_err(refused("ibv_create_comp_channel"))?;
        let number = made.map(|(number, read)| {
            pipe.adopt(read);
            number
        });
        let c = CompChannel { context: context.handle(), fd: pipe.read_fd(), refcnt: 0 };
        let channel = ChannelObject { c: UnsafeCell::new(c), pipe, number, members: Mutex::default() };
        Ok(handles::publish(channel, context.handle().addr())?.cast())
    }

    /// Removes it; EBUSY while a queue reports to it.
    errno fn ibv_destroy_comp_channel(channel: *mut CompChannel) {
        let claim = handles::claim::<ChannelObject>(channel.cast_const().cast())?;
        if claim.object.members.lock().unwrap_or_else(PoisonError::into_inner).attached > 0 {
            return Err(Errno::EBUSY);
        }
        if let Some(number) = claim.object.number {
            ContextObject::find((*claim.object.c.get()).context)?.device.destroy_channel(number);
        }
        claim.bury();
        Ok(())
    }

    /// Next completion event; each must be acknowledged.
    minus_one fn ibv_get_cq_event(
        channel: *mut CompChannel, cq: *mut *mut Cq, cq_context: *mut *mut c_void
    ) {
        let channel = ChannelObject::find(channel)?;
        loop {
            let cookie = u64::from_ne_bytes(channel.pipe.next()?);
            if let Some(queue) = channel.delivered(cookie) {
                let handle: *mut Cq = queue.cast();
                store(cq, handle);
                store(cq_context, (*handle).cq_context);
                return Ok(0);
            }
        }
    }

    /// Acknowledges completion events.
    nothing fn ibv_ack_cq_events(cq: *mut Cq, events: c_uint) {
        // A clone: with the last acknowledgement another thread may free the queue.
        let acks = Arc::clone(&CqObject::known(cq)?.comp_acks);
        acks.acknowledge(events);
        Ok(())
    }
}

/// The channel of a queue as the C struct wants it.
pub(crate) fn handle(channel: Option<&ChannelObject>) -> *mut CompChannel {
    channel.map_or(ptr::null_mut(), |channel| channel.c.get())
}
