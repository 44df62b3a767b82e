//! One local address: a claimed slot to receive on, and path sockets to send from.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use srdma_seams::{FaultPlan, Now, PathId, Slot};
use srdma_wire::{emit, Data, Packet, HEADER_BYTES_MAX};

use crate::capture::Capture;
use crate::counters::Counters;
use crate::error::{OpenError, PushError, SendError};
use crate::faulty::Faulty;
use crate::notice;
use crate::outbox::{Outbox, Outcome, DATAGRAM_BYTES_MAX};
use crate::receive::{ReceiveBatch, Tally};
use crate::scatter::{Cut, Glance};
use crate::sockets::{claim_slot, PathSockets};
use crate::sys::{self, Identity, RawSlice};

/// ECN-capable transport, codepoint ECT(0) (RFC 3168, section 5).
const ECT_0: u8 = 2;
/// The ECN bits of a traffic class byte.
const ECN_MASK: u8 = 3;

/// How an endpoint is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Slots to try, in order.
    pub slots: RangeInclusive<u8>,
    /// Receive buffer wanted, bytes.
    pub receive_buffer_bytes: u32,
    /// Send buffer wanted for each path socket, bytes.
    pub send_buffer_bytes: u32,
    /// Let the kernel or device cut bursts into packets.
    pub gso: bool,
    /// Let the kernel join packets of a burst.
    pub gro: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            slots: 0..=255,
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 1 << 20,
            gso: true,
            gro: true,
        }
    }
}

impl Options {
    /// Whether the options make sense.
    pub fn validate(&self) -> Result<(), OpenError> {
        if self.slots.is_empty() {
            return Err(OpenError::Options("the range of slots is empty"));
        }
        if self.receive_buffer_bytes < 1 << 16 || self.send_buffer_bytes < 1 << 16 {
            return Err(OpenError::Options("socket buffers must hold at least 65536 bytes"));
        }
        Ok(())
    }
}

/// What stands between an endpoint and its sockets when faults or a capture are wanted.
#[derive(Default)]
struct Taps {
    faulty: Option<Faulty>,
    capture: Option<Capture>,
    refuse_gso_errno: Option<i32>,
}

/// Where a burst goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) path: PathId,
    pub(crate) to: SocketAddr,
    pub(crate) class: u8,
}

/// The slot's socket by its number, for whoever cannot look into the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHandle {
    fd: RawFd,
    file: Identity,
    address: SocketAddr,
}

impl SlotHandle {
    /// In a child after fork: gives the slot's socket up, unless the number names another file by now. For a child
    /// that cannot use [`Endpoint::close_descriptors_in_child`], because a thread that does not exist there was using
    /// the endpoint. Path sockets hold no slot. Async-signal-safe.
    pub fn close_in_child(self) {
        sys::give_up(std::iter::once((self.fd, self.file)));
    }

    /// Wakes whoever sleeps on the slot's socket, whatever has become of its number; nothing more comes of the socket.
    /// While it still is ours, it is shut down. Otherwise it lives for as long as somebody sleeps on it, and so does
    /// its port: an empty datagram is sent there. Does nothing if the system has no socket left for that.
    pub fn rouse(self) {
        if Identity::of(self.fd) == Some(self.file) {
            // SAFETY: no pointers. An unconnected socket answers ENOTCONN, and wakes its sleepers all the same.
            unsafe { libc::shutdown(self.fd, libc::SHUT_RDWR) };
            return;
        }
        let unbound = SocketAddr::new(self.address.ip(), 0);
        // If it cannot be sent, nobody is left who could be told.
        let _ = UdpSocket::bind(unbound).and_then(|socket| socket.send_to(&[], self.address));
    }
}

/// One local IP address with a claimed slot.
pub struct Endpoint {
    local: IpAddr,
    slot: Slot,
    slot_fd: OwnedFd,
    slot_file: Identity,
    paths: PathSockets,
    outbox: Outbox,
    control: Vec<u8>,
    gso: bool,
    now: Now,
    drops_seen: u32,
    counters: Counters,
    refusal: Option<Refusal>,
    taps: Option<Box<Taps>>,
}

/// The last refusal of the kernel.
struct Refusal {
    errno: i32,
    to: SocketAddr,
    text: String,
}

impl Endpoint {
    /// Claims the first free slot of `local`.
    pub fn open(local: IpAddr, options: &Options) -> Result<Endpoint, OpenError> {
        options.validate()?;
        let local = local.to_canonical();
        let (slot, slot_fd) = claim_slot(local, options)?;
        let slot_file = Identity::of(slot_fd.as_raw_fd()).ok_or(OpenError::Io {
            what: "looking at the slot socket",
            address: local,
            source: io::Error::from_raw_os_error(libc::EBADF),
        })?;
        Ok(Endpoint {
            local,
            slot,
            slot_fd,
            slot_file,
            paths: PathSockets::new(local, options.send_buffer_bytes),
            outbox: Outbox::new(),
            control: Vec::new(),
            gso: options.gso,
            now: Now(0),
            drops_seen: 0,
            counters: Counters::default(),
            refusal: None,
            taps: None,
        })
    }

    /// Local address.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// The claimed slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Where peers send to.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.local, self.slot.port())
    }

    /// The slot socket, to wait on with poll(2); readable when a datagram waits.
    pub fn readable_fd(&self) -> BorrowedFd<'_> {
        self.slot_fd.as_fd()
    }

    /// UDP source port of `path`; `None` before the path was first used.
    pub fn path_port(&self, path: PathId) -> Option<u16> {
        self.paths.port(path)
    }

    /// In a child after fork: gives the sockets up, so that the slot is the parent's alone; sending and
    /// receiving fail from then on. The descriptors stay open on something harmless, so that no other file
    /// can take their numbers while the endpoint still thinks them its own. Async-signal-safe: eventfd(2),
    /// dup(2) and close(2) only.
    pub fn close_descriptors_in_child(&self) {
        let slot = (self.slot_fd.as_raw_fd(), self.slot_file);
        sys::give_up(std::iter::once(slot).chain(self.paths.descriptors()));
    }

    /// See [`SlotHandle`].
    pub fn slot_handle(&self) -> SlotHandle {
        SlotHandle { fd: self.slot_fd.as_raw_fd(), file: self.slot_file, address: self.address() }
    }

    /// Whether the sockets still are what was opened, and not closed or replaced by the program. Two system calls: for
    /// the slot's socket, and for one path socket, each in turn.
    pub fn is_intact(&mut self) -> bool {
        Identity::of(self.slot_fd.as_raw_fd()) == Some(self.slot_file) && self.paths.next_is_intact()
    }

    /// Lets go of sockets that are not intact without closing anything: the numbers may be the program's.
    pub fn abandon(self) {
        std::mem::forget(self);
    }

    /// Whether bursts leave as one message for the kernel or device to cut.
    pub fn gso(&self) -> bool {
        self.gso
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        Counters {
            path_sockets: self.paths.open_count() as u64,
            path_shared: self.paths.shared,
            captured_packets: self
                .taps
                .as_ref()
                .and_then(|taps| taps.capture.as_ref())
                .map_or(0, Capture::packets),
            ..self.counters
        }
    }

    /// Bytes of UDP payload received so far.
    pub fn received_bytes(&self) -> u64 {
        self.counters.received_bytes
    }

    /// What the kernel said when it last refused a destination.
    pub fn last_refusal(&self) -> Option<&str> {
        self.refusal.as_ref().map(|refusal| refusal.text.as_str())
    }

    /// Bytes of packets that the receive buffer still has room for. The kernel charges packets their
    /// overhead too and grants twice what is asked for on that account (socket(7)), so half of the
    /// uncharged bytes are counted. One system call.
    pub fn free_bytes(&mut self) -> u32 {
        match sys::mem_info(self.slot_fd.as_fd()) {
            Ok(info) => {
                self.note_drops(info.drops);
                info.receive_limit.saturating_sub(info.receive_used) / 2
            }
            Err(_) => 0,
        }
    }

    fn note_drops(&mut self, drops: u32) {
        // What a datagram says is as old as the datagram; the count goes round at 2³².
        let more = drops.wrapping_sub(self.drops_seen);
        if more < 1 << 31 {
            self.counters.kernel_drops += u64::from(more);
            self.drops_seen = drops;
        }
    }

    /// Interposes faults on everything sent and received from now on.
    pub fn set_faults(&mut self, plan: FaultPlan) {
        self.taps.get_or_insert_default().faulty = Some(Faulty::new(plan));
    }

    /// The plan of faults, if there is one.
    pub fn faults(&self) -> Option<&FaultPlan> {
        self.taps.as_ref()?.faulty.as_ref().map(Faulty::plan)
    }

    /// Records everything sent and received from now on.
    pub fn set_capture(&mut self, capture: Capture) {
        self.taps.get_or_insert_default().capture = Some(capture);
    }

    /// Writes what the capture still buffers; also done when the endpoint is dropped.
    pub fn flush_capture(&mut self) -> io::Result<()> {
        match self.taps.as_mut().and_then(|taps| taps.capture.as_mut()) {
            Some(capture) => capture.flush(),
            None => Ok(()),
        }
    }

    /// Makes messages that need segmentation fail with `errno`, as some devices do; for tests of what
    /// must then happen.
    pub fn refuse_gso(&mut self, errno: Option<i32>) {
        self.taps.get_or_insert_default().refuse_gso_errno = errno;
    }

    /// Tells the time to the fault plan. If the plan wants the device to stand still now: until when. What is sent
    /// until then leaves only afterwards.
    pub fn stand_still(&mut self, now: Now) -> Option<Now> {
        let faulty = self.taps.as_mut()?.faulty.as_mut()?;
        self.now = now;
        faulty.stand_still(now)
    }

    /// Tells the time to the fault plan and sends delayed packets that are due; says when the next one is.
    pub fn advance(&mut self, now: Now) -> Option<Now> {
        self.now = now;
        let mut taps = self.taps.take()?;
        while let Some(delayed) = taps.faulty.as_mut().and_then(|faulty| faulty.take_due(now)) {
            self.outbox.clear();
            if self.outbox.push_encoded(&[], &[RawSlice::from(&delayed.bytes[..])]).is_ok() {
                // Like a network's queue, nobody hears of what it loses.
                let _ = self.transmit(delayed.way, &mut taps);
            }
        }
        let next = taps.faulty.as_ref().and_then(Faulty::next_due);
        self.outbox.clear();
        self.taps = Some(taps);
        next
    }

    /// Begins a burst of packets that leave together on `path` for `to`. The ECN bits of `traffic_class`
    /// are replaced by ECT(0).
    pub fn burst(&mut self, path: PathId, to: SocketAddr, traffic_class: u8) -> Burst<'_> {
        self.outbox.clear();
        let class = traffic_class & !ECN_MASK | ECT_0;
        Burst { endpoint: self, route: Route { path, to, class } }
    }

    /// Sends one packet without payload, padded with zeros to at least `pad_bytes` of UDP payload.
    pub fn send_control(
        &mut self,
        path: PathId,
        to: SocketAddr,
        traffic_class: u8,
        packet: &Packet,
        pad_bytes: u16,
    ) -> Result<(), SendError> {
        let mut control = std::mem::take(&mut self.control);
        let room = HEADER_BYTES_MAX.max(pad_bytes.into()).min(DATAGRAM_BYTES_MAX);
        if control.len() < room {
            control.resize(room, 0);
        }
        let result = match emit(packet, &mut control) {
            Ok(header_bytes) => {
                let bytes = header_bytes.max(pad_bytes.into()).min(control.len());
                control[header_bytes..bytes].fill(0);
                self.send_bytes(path, to, traffic_class, &control[..bytes])
            }
            Err(_) => Err(SendError::TooBig),
        };
        self.control = control;
        result
    }

    /// Sends one datagram of these bytes.
    pub fn send_bytes(
        &mut self,
        path: PathId,
        to: SocketAddr,
        traffic_class: u8,
        bytes: &[u8],
    ) -> Result<(), SendError> {
        let mut burst = self.burst(path, to, traffic_class);
        burst.push_encoded(&[], &[RawSlice::from(bytes)]).map_err(|_| SendError::TooBig)?;
        burst.send()
    }

    /// Looks at the next datagram without taking it.
    pub fn glance(&mut self, batch: &mut ReceiveBatch) -> io::Result<Option<Glance>> {
        self.counters.receive_calls += 1;
        let glance = batch.glance(self.slot_fd.as_fd())?;
        self.counters.receive_empty += u64::from(glance.is_none());
        Ok(glance)
    }

    /// Takes the datagram that [`Endpoint::glance`] showed into the batch: the payloads of its first packets go to
    /// `places`, one after the other, as many whole ones as fit; headers and the rest go to the batch, where they would be
    /// otherwise. How many packets that were: 0 if the datagram is lost.
    ///
    /// # Safety
    /// What lies at `places`, if anything, may be overwritten. It need not be there: then this fails with EFAULT.
    pub unsafe fn take_apart(
        &mut self,
        batch: &mut ReceiveBatch,
        glance: &Glance,
        cut: Cut,
        places: RawSlice,
    ) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        let tally = unsafe { batch.take_apart(self.slot_fd.as_fd(), glance, cut, places) };
        self.counters.receive_calls += 1;
        let tally = tally?;
        self.count(&tally);
        Ok(tally.packets as usize)
    }

    /// Whether payloads may be put elsewhere than into the batch: not while something between the socket and the
    /// caller wants to see them.
    pub fn may_take_apart(&self) -> bool {
        let strikes = |taps: &Taps| taps.faulty.as_ref().is_some_and(Faulty::strikes_received);
        self.taps.as_ref().is_none_or(|taps| taps.capture.is_none() && !strikes(taps))
    }

    fn count(&mut self, tally: &Tally) {
        let counters = &mut self.counters;
        counters.received_datagrams += tally.datagrams;
        counters.received_packets += tally.packets;
        counters.received_bytes += tally.bytes;
        counters.received_ce += tally.ce;
        counters.received_unusable += tally.unusable;
        if let Some(drops) = tally.drops {
            self.note_drops(drops);
        }
    }

    /// Takes what waits, without blocking, in one system call; how many packets that were. Arrivals that a plan of
    /// faults has delayed come before, in a batch of their own.
    pub fn receive(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        if let Some(faulty) = self.taps.as_mut().and_then(|taps| taps.faulty.as_mut()) {
            match faulty.release(self.now, batch) {
                0 => {}
                released => return Ok(released),
            }
        }
        let tally = batch.fill(self.slot_fd.as_fd())?;
        self.counters.receive_calls += 1;
        self.counters.receive_empty += u64::from(tally.datagrams == 0);
        self.count(&tally);
        Ok(self.tap_received(batch).unwrap_or(tally.packets as usize))
    }

    /// Captures what arrived, then lets faults befall it; how many packets are left, if any plan had its say.
    fn tap_received(&mut self, batch: &mut ReceiveBatch) -> Option<usize> {
        let to = self.address();
        let taps = self.taps.as_mut()?;
        if let Some(capture) = taps.capture.as_mut() {
            for segment in batch.segments() {
                let (from, class, ttl) = (segment.from, segment.traffic_class, segment.ttl);
                capture.received(from, to, class, ttl, batch.packet(&segment));
            }
        }
        taps.faulty.as_mut()?.strike_received(self.now, batch, &mut self.counters)
    }

    fn send_outbox(&mut self, route: Route) -> Result<(), SendError> {
        let result = match self.taps.take() {
            None => self.transmit_plain(route, None),
            Some(mut taps) => {
                let result = self.send_tapped(route, &mut taps);
                self.taps = Some(taps);
                result
            }
        };
        match result {
            Ok(()) => {}
            Err(SendError::Busy) => self.counters.send_busy += 1,
            Err(SendError::Fault { .. }) => self.counters.send_faults += 1,
            Err(SendError::Unreachable) => self.counters.send_unreachable += 1,
            Err(SendError::TooBig) => self.counters.send_too_big += 1,
        }
        result
    }

    fn send_tapped(&mut self, route: Route, taps: &mut Taps) -> Result<(), SendError> {
        if let Some(faulty) = taps.faulty.as_mut() {
            faulty.strike(self.now, route, &mut self.outbox, &mut self.counters)?;
        }
        self.transmit(route, taps)
    }

    /// Sends what is left of the outbox after faults, and captures it.
    fn transmit(&mut self, route: Route, taps: &mut Taps) -> Result<(), SendError> {
        self.transmit_plain(route, taps.refuse_gso_errno)?;
        if let Some(capture) = taps.capture.as_mut() {
            let port = self.paths.port(route.path).unwrap_or(0);
            let from = SocketAddr::new(self.local, port);
            for packet in &self.outbox.packets {
                capture.sent(from, route.to, route.class, packet.slices(&self.outbox.slices));
            }
        }
        Ok(())
    }

    fn transmit_plain(&mut self, route: Route, refuse_gso_errno: Option<i32>) -> Result<(), SendError> {
        let to = SocketAddr::new(route.to.ip().to_canonical(), route.to.port());
        if to.is_ipv4() != self.local.is_ipv4() {
            return Err(self.refused(libc::EAFNOSUPPORT, to));
        }
        // A scope id survives only in the original.
        let to = if route.to.is_ipv6() && to.is_ipv6() { route.to } else { to };
        let fd = match self.paths.get(route.path, route.class) {
            Ok(fd) => fd,
            Err(e) => return Err(self.refused(e.raw_os_error().unwrap_or(0), to)),
        };
        let mut gso = self.gso;
        let outcome = self.outbox.transmit(fd, to, &mut gso, refuse_gso_errno, &mut self.counters);
        if gso != self.gso {
            self.give_up_gso();
        }
        match outcome {
            Outcome::Sent => Ok(()),
            Outcome::Refused(error) => Err(error),
            Outcome::Errno(errno) => Err(self.refused(errno, to)),
        }
    }

    fn give_up_gso(&mut self) {
        static NAMED: AtomicBool = AtomicBool::new(false);
        self.gso = false;
        self.counters.gso_fallbacks += 1;
        if !NAMED.swap(true, Ordering::Relaxed) {
            notice::tell(&format!(
                "the device of {} refuses UDP segmentation offload; sending packet by packet, which is slower",
                self.local
            ));
        }
    }

    /// Keeps the kernel's words. Formats only when they change: a dead route is tried again and again.
    fn refused(&mut self, errno: i32, to: SocketAddr) -> SendError {
        let same = self.refusal.as_ref().is_some_and(|last| last.errno == errno && last.to == to);
        if !same {
            let text = format!("{} to {to}: {}", self.local, io::Error::from_raw_os_error(errno));
            self.refusal = Some(Refusal { errno, to, text });
        }
        SendError::Unreachable
    }
}

/// Packets that leave together on one path, all or nothing as the caller sees it. Dropped unsent, it
/// leaves no trace.
pub struct Burst<'a> {
    endpoint: &'a mut Endpoint,
    route: Route,
}

impl Burst<'_> {
    /// Adds a packet. The header is encoded now; the payload is read by the kernel in [`Burst::send`],
    /// straight from where it lies.
    pub fn push(&mut self, packet: &Packet, payload: &[RawSlice]) -> Result<(), PushError> {
        self.endpoint.outbox.push(packet, payload)
    }

    /// As [`Burst::push`], for `packets` data packets that carry `payload` between them, one part after the
    /// other: each has `payload_each` bytes of it, the last what is left. Headers continue that of `first`
    /// ([`srdma_wire::emit_run`]).
    pub fn push_run(
        &mut self,
        first: &Data,
        packets: u8,
        payload_each: u32,
        payload: &[RawSlice],
    ) -> Result<(), PushError> {
        self.endpoint.outbox.push_run(first, packets, payload_each, payload)
    }

    /// Adds a packet whose header is encoded already.
    pub fn push_encoded(&mut self, header: &[u8], payload: &[RawSlice]) -> Result<(), PushError> {
        self.endpoint.outbox.push_encoded(header, payload)
    }

    /// Packets so far.
    pub fn len(&self) -> usize {
        self.endpoint.outbox.packets.len()
    }

    /// Whether nothing was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends the packets, in one system call. Packets of equal size are one message, of which all or
    /// nothing leaves. Where the kernel takes the first messages and is full at the next, the burst counts as
    /// sent and the rest as lost on the way; where a later one is refused for good, the burst counts as
    /// not sent although its first packets may arrive.
    pub fn send(self) -> Result<(), SendError> {
        self.endpoint.send_outbox(self.route)
    }
}
