//! A device with its queue pairs, and how they are connected.

use super::failure::Failure;
use super::ground::Ground;
use super::message::End;
use super::plan::{ELEMENTS_MAX, INLINE_MAX};
use srdma_abi::{Access, AsyncKind, QpAttributes, QpInit, QpMask, QpState};
use srdma_client::{Cq, Device, DeviceInfo, Options, Qp};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Requests that each queue holds; no round posts more at once.
pub const QUEUE_MAX: u32 = 256;
/// Asynchronous events that end a run.
const TROUBLES: [AsyncKind; 6] = [
    AsyncKind::CqErr,
    AsyncKind::QpFatal,
    AsyncKind::QpReqErr,
    AsyncKind::QpAccessErr,
    AsyncKind::DeviceFatal,
    AsyncKind::PortErr,
];

/// Index of the completion queue of sends.
pub const SENDS: usize = 0;
/// Index of the completion queue of receives.
pub const RECVS: usize = 1;

/// An open device with everything that a run needs. Undone in the right order on drop.
pub struct Nic {
    device: Device,
    pd: u32,
    key: Option<u32>,
    /// Completions of sends, of receives.
    pub cqs: Vec<Cq>,
    /// In the order in which both sides count them.
    pub qps: Vec<Qp>,
    events: std::fs::File,
    // After `device`, which writes to it.
    _events_in: OwnedFd,
}

impl Nic {
    /// Opens the device and makes `qps` queue pairs.
    pub fn open(info: &DeviceInfo, options: &Options, qps: usize) -> Result<Nic, Failure> {
        let (events, events_in) = pipe()?;
        let device = Device::open(info, options, events_in.as_raw_fd())?;
        let pd = device.alloc_pd()?;
        let mut nic = Nic {
            device,
            pd,
            key: None,
            cqs: Vec::new(),
            qps: Vec::new(),
            events: events.into(),
            _events_in: events_in,
        };
        let entries = QUEUE_MAX * qps as u32;
        for _ in 0..2 {
            nic.cqs.push(nic.device.create_cq(entries, None)?);
        }
        let init = QpInit {
            pd,
            send_cq: nic.cqs[SENDS].number(),
            recv_cq: nic.cqs[RECVS].number(),
            max_send_wr: QUEUE_MAX,
            max_recv_wr: QUEUE_MAX,
            max_send_sge: ELEMENTS_MAX as u32,
            max_recv_sge: ELEMENTS_MAX as u32,
            max_inline_data: INLINE_MAX,
            sq_sig_all: false,
        };
        for _ in 0..qps {
            nic.qps.push(nic.device.create_qp(&init)?);
        }
        Ok(nic)
    }

    /// Registers the whole region, once.
    pub fn register(&mut self, ground: &Ground) -> Result<u32, Failure> {
        let (base, bytes) = (ground.region().address(), ground.region().bytes());
        let key = self.device.register(self.pd, base, bytes, base, all_access().0)?;
        self.key = Some(key);
        Ok(key)
    }

    /// Numbers of the queue pairs.
    pub fn qpns(&self) -> impl Iterator<Item = u32> + '_ {
        self.qps.iter().map(Qp::number)
    }

    /// Brings every queue pair to RTS, each with its counterpart.
    pub fn connect(&self, ours: &End, theirs: &End) -> Result<(), Failure> {
        for ((qp, &(_, our_psn)), &(their_qpn, their_psn)) in self.qps.iter().zip(&ours.qps).zip(&theirs.qps)
        {
            connect(qp, our_psn, theirs.gid(), their_qpn, their_psn)?;
        }
        Ok(())
    }

    /// An asynchronous event that means trouble, if one came: its name and its object.
    pub fn trouble(&mut self) -> Option<String> {
        let mut record = [0u8; 8];
        self.events.read_exact(&mut record).ok()?;
        let part = |at: usize| record[at..at + 4].try_into().map(u32::from_ne_bytes).unwrap_or(0);
        let harmless = [AsyncKind::CommEst, AsyncKind::SqDrained, AsyncKind::PortActive];
        if harmless.iter().any(|kind| *kind as u32 == part(0)) {
            return None;
        }
        let name = TROUBLES.iter().find(|kind| **kind as u32 == part(0)).map(|kind| format!("{kind:?}"));
        Some(format!("{} (object {:#x})", name.unwrap_or_else(|| part(0).to_string()), part(4)))
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        // Best effort: at worst the process ends with these objects alive.
        for qp in &self.qps {
            let _ = qp.destroy();
        }
        for cq in &self.cqs {
            let _ = cq.destroy();
        }
        if let Some(key) = self.key {
            let _ = self.device.deregister(key);
        }
        let _ = self.device.dealloc_pd(self.pd);
    }
}

fn all_access() -> Access {
    Access::LOCAL_WRITE.with(Access::REMOTE_WRITE).with(Access::REMOTE_READ).with(Access::REMOTE_ATOMIC)
}

/// A non-blocking pipe: reading end, writing end.
fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for the two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: pipe2 has just opened both, and nobody else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

fn connect(qp: &Qp, our_psn: u32, gid: [u8; 16], their_qpn: u32, their_psn: u32) -> Result<(), Failure> {
    let attributes = QpAttributes {
        state: QpState::Init,
        access: all_access(),
        port: 1,
        dest_gid: gid,
        has_gid: true,
        dest_qpn: their_qpn,
        path_mtu: 5,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        sq_psn: our_psn,
        rq_psn: their_psn,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        ..QpAttributes::default()
    };
    let init = QpMask::STATE.with(QpMask::PKEY_INDEX).with(QpMask::PORT).with(QpMask::ACCESS_FLAGS);
    qp.modify(&attributes, init)?;
    let rtr = QpMask::STATE
        .with(QpMask::AV)
        .with(QpMask::PATH_MTU)
        .with(QpMask::DEST_QPN)
        .with(QpMask::RQ_PSN)
        .with(QpMask::MAX_DEST_RD_ATOMIC)
        .with(QpMask::MIN_RNR_TIMER);
    qp.modify(&QpAttributes { state: QpState::Rtr, ..attributes }, rtr)?;
    let rts = QpMask::STATE
        .with(QpMask::SQ_PSN)
        .with(QpMask::TIMEOUT)
        .with(QpMask::RETRY_CNT)
        .with(QpMask::RNR_RETRY)
        .with(QpMask::MAX_QP_RD_ATOMIC);
    qp.modify(&QpAttributes { state: QpState::Rts, ..attributes }, rts)?;
    Ok(())
}
