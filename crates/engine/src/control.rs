//! Control calls, carried out by whoever owns the worker: the holder of a lock, or the thread that it belongs to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use srdma_abi::{QpAttributes, QpInit, QpMask, QpState};
use srdma_net::{Capture, Endpoint, ReceiveBatch};
use srdma_ring::{CompletionProducer, WorkConsumer};
use srdma_seams::{ConnectionId, Cqn, FaultPlan, Qpn};

use crate::clock;
use crate::device::{DeviceError, StartError};
use crate::numbers::Numbers;
use crate::options::{for_this_process, Options};
use crate::queues::CqEvents;
use crate::worker::Worker;

/// Receive buffers of 64 KiB: what one system call may bring.
const RECEIVE_BUFFERS: usize = 32;

/// Binds a slot's port, as the options want it. Whoever calls holds `claims::claiming`.
pub(crate) fn open_endpoint(
    address: IpAddr,
    options: &Options,
) -> Result<(Endpoint, ReceiveBatch), StartError> {
    let defaults = srdma_net::Options::default();
    let most_bytes = options.socket_buffer_bytes_max;
    let wanted = srdma_net::Options {
        receive_buffer_bytes: options.receive_buffer_bytes.min(most_bytes),
        send_buffer_bytes: defaults.send_buffer_bytes.min(most_bytes),
        gso: !options.no_gso,
        ..defaults
    };
    let mut endpoint = Endpoint::open(address, &wanted)?;
    if !options.faults.is_empty() {
        let seed = options.seed.unwrap_or_else(clock::entropy);
        endpoint.set_faults(FaultPlan::new(seed, options.faults.clone()).starting(clock::now()));
    }
    if let Some(path) = &options.trace {
        let path = for_this_process(path);
        match Capture::create(&path) {
            Ok(capture) => endpoint.set_capture(capture),
            Err(source) => return Err(StartError::File { path, source }),
        }
    }
    let system = |source| StartError::System { what: "Reserving receive buffers", source };
    let batch = ReceiveBatch::new(RECEIVE_BUFFERS).map_err(system)?;
    Ok((endpoint, batch))
}

/// Asks the kernel for a route to the peer that `attributes` name. Addresses that make no sense are refused with
/// better words by whoever reads the attributes.
pub(crate) fn check_route(local: IpAddr, attributes: &QpAttributes) -> Result<(), DeviceError> {
    let peer = Ipv6Addr::from(attributes.dest_gid).to_canonical();
    let senseless = peer.is_unspecified() || peer.is_multicast() || peer.is_ipv4() != local.is_ipv4();
    if !attributes.has_gid || senseless {
        return Ok(());
    }
    match srdma_net::route::payload_bytes_max(local, peer) {
        // From a loopback address to the outside, Linux says EINVAL; to a broadcast address, EACCES.
        Err(source)
            if matches!(
                source.raw_os_error(),
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EACCES)
            ) =>
        {
            Err(DeviceError::NoRoute { local, peer, source })
        }
        // Whatever else is wrong (no file descriptor is free) says nothing about the route.
        _ => Ok(()),
    }
}

impl Worker {
    /// From here on it has a slot.
    pub(crate) fn adopt(&mut self, endpoint: Endpoint, batch: ReceiveBatch) {
        let mut endpoint = endpoint;
        self.world.free_bytes = endpoint.free_bytes();
        self.numbers = Some(Numbers::new(endpoint.slot(), clock::entropy() as u16));
        self.world.batch = Some(batch);
        self.world.endpoint = Some(endpoint);
    }

    pub(crate) fn create_cq(
        &mut self,
        ring: CompletionProducer,
        events: Option<CqEvents>,
        async_fd: i32,
    ) -> Result<Cqn, DeviceError> {
        let cq = self.nic.create_cq()?;
        self.world.rings.add_cq(cq, ring, events, async_fd);
        Ok(cq)
    }

    pub(crate) fn destroy_cq(&mut self, cq: Cqn) -> Result<(), DeviceError> {
        self.nic.destroy_cq(cq)?;
        self.world.rings.remove_cq(cq);
        Ok(())
    }

    /// Makes an RC queue pair on two rings. There is a slot.
    pub(crate) fn create_qp(
        &mut self,
        init: &QpInit,
        send: WorkConsumer,
        recv: WorkConsumer,
        async_fd: i32,
    ) -> Result<Qpn, DeviceError> {
        let now = clock::now();
        let numbers = self.numbers.as_mut().ok_or(DeviceError::Numbers)?;
        let qpn = numbers.take(now).map_err(|_| DeviceError::Numbers)?;
        if let Err(error) = self.nic.create_qp(qpn, init, ConnectionId(clock::entropy())) {
            numbers.give_back(now, qpn);
            return Err(error.into());
        }
        self.world.rings.add_qp(qpn, send, recv, async_fd);
        self.counters.qp(qpn);
        Ok(qpn)
    }

    /// Changes attributes and state; the route has been checked.
    pub(crate) fn modify_qp(
        &mut self,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: QpMask,
    ) -> Result<(), DeviceError> {
        let (now, connection) = (clock::now(), ConnectionId(clock::entropy()));
        let Worker { nic, world, counters, .. } = self;
        nic.modify_qp(now, qpn, attributes, mask, connection, world, counters)?;
        if mask.contains(QpMask::STATE) && attributes.state == QpState::Reset {
            world.rings.discard(qpn);
        }
        counters.failures += u64::from(mask.contains(QpMask::STATE) && attributes.state == QpState::Err);
        if mask.contains(QpMask::AV.with(QpMask::DEST_QPN)) {
            let qp = counters.qp(qpn);
            let address = Ipv6Addr::from(attributes.dest_gid).to_canonical();
            qp.peer = Some(SocketAddr::new(address, Qpn(attributes.dest_qpn).slot().port()));
            qp.peer_qpn = attributes.dest_qpn;
        }
        Ok(())
    }

    /// Removes a queue pair; its number goes into quarantine.
    pub(crate) fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError> {
        let now = clock::now();
        let Worker { nic, world, counters, numbers, .. } = self;
        nic.destroy_qp(now, qpn, world, counters)?;
        world.rings.remove_qp(qpn);
        counters.retire(qpn);
        if let Some(numbers) = numbers {
            numbers.give_back(now, qpn);
        }
        Ok(())
    }
}
