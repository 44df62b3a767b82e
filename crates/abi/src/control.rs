//! Control: the attributes a program sets and reads, and the events that reach it outside a queue.

/// Access bits of regions and queue pairs; the values of `enum ibv_access_flags` (verbs.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Access(pub u32);

impl Access {
    /// The device may write for local operations.
    pub const LOCAL_WRITE: Access = Access(1);
    /// The peer may WRITE.
    pub const REMOTE_WRITE: Access = Access(2);
    /// The peer may READ.
    pub const REMOTE_READ: Access = Access(4);
    /// The peer may do atomics.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// The program waives the ordering of the last bytes of a WRITE.
    pub const RELAXED_ORDERING: Access = Access(1 << 20);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    pub const fn with(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// States of a queue pair; the values of `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpState {
    /// Created; nothing may be posted.
    #[default]
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained: sends wait.
    Sqd = 4,
    /// Send queue error (not entered by RC).
    Sqe = 5,
    /// Everything is flushed.
    Err = 6,
}

impl QpState {
    /// The state with this number.
    pub const fn from_code(code: u32) -> Option<QpState> {
        Some(match code {
            0 => QpState::Reset,
            1 => QpState::Init,
            2 => QpState::Rtr,
            3 => QpState::Rts,
            4 => QpState::Sqd,
            5 => QpState::Sqe,
            6 => QpState::Err,
            _ => return None,
        })
    }
}

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpInit {
    /// Protection domain.
    pub pd: u32,
    /// Completion queue of sends.
    pub send_cq: u32,
    /// Completion queue of receives.
    pub recv_cq: u32,
    /// Work requests that the send queue must hold.
    pub max_send_wr: u32,
    /// Work requests that the receive queue must hold.
    pub max_recv_wr: u32,
    /// Elements per send.
    pub max_send_sge: u32,
    /// Elements per receive.
    pub max_recv_sge: u32,
    /// Inline bytes per send.
    pub max_inline_data: u32,
    /// Whether every send is signalled.
    pub sq_sig_all: bool,
}

/// A size that no device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given} {what} asked for, {max} allowed")]
pub struct OutOfRange {
    /// Of what.
    pub what: &'static str,
    /// How many were asked for.
    pub given: u32,
    /// The most there can be.
    pub max: u32,
}

impl QpInit {
    /// Whether queues of these sizes can be had of any device.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let sizes = [
            ("send requests", self.max_send_wr, LIMITS.max_qp_wr),
            ("send elements", self.max_send_sge, LIMITS.max_sge),
            ("receive requests", self.max_recv_wr, LIMITS.max_qp_wr),
            ("receive elements", self.max_recv_sge, LIMITS.max_sge),
            ("inline bytes", self.max_inline_data, LIMITS.max_inline_data),
        ];
        match sizes.into_iter().find(|(_, given, max)| given > max) {
            Some((what, given, max)) => Err(OutOfRange { what, given, max }),
            None => Ok(()),
        }
    }
}

/// Which fields of [`QpAttributes`] a modify means; the values of `enum ibv_qp_attr_mask`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct QpMask(pub u32);

#[allow(missing_docs)] // the names say which field
impl QpMask {
    pub const STATE: QpMask = QpMask(1);
    pub const CUR_STATE: QpMask = QpMask(1 << 1);
    pub const EN_SQD_ASYNC_NOTIFY: QpMask = QpMask(1 << 2);
    pub const ACCESS_FLAGS: QpMask = QpMask(1 << 3);
    pub const PKEY_INDEX: QpMask = QpMask(1 << 4);
    pub const PORT: QpMask = QpMask(1 << 5);
    pub const QKEY: QpMask = QpMask(1 << 6);
    pub const AV: QpMask = QpMask(1 << 7);
    pub const PATH_MTU: QpMask = QpMask(1 << 8);
    pub const TIMEOUT: QpMask = QpMask(1 << 9);
    pub const RETRY_CNT: QpMask = QpMask(1 << 10);
    pub const RNR_RETRY: QpMask = QpMask(1 << 11);
    pub const RQ_PSN: QpMask = QpMask(1 << 12);
    pub const MAX_QP_RD_ATOMIC: QpMask = QpMask(1 << 13);
    pub const ALT_PATH: QpMask = QpMask(1 << 14);
    pub const MIN_RNR_TIMER: QpMask = QpMask(1 << 15);
    pub const SQ_PSN: QpMask = QpMask(1 << 16);
    pub const MAX_DEST_RD_ATOMIC: QpMask = QpMask(1 << 17);
    pub const PATH_MIG_STATE: QpMask = QpMask(1 << 18);
    pub const CAP: QpMask = QpMask(1 << 19);
    pub const DEST_QPN: QpMask = QpMask(1 << 20);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: QpMask) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    pub const fn with(self, other: QpMask) -> QpMask {
        QpMask(self.0 | other.0)
    }
}

/// Attributes of a queue pair, as set by modify and shown by query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttributes {
    /// State (to go to).
    pub state: QpState,
    /// State it is assumed to be in.
    pub cur_state: QpState,
    /// Remote operations the peer may do on this QP.
    pub access: Access,
    /// Always 0.
    pub pkey_index: u16,
    /// Always 1.
    pub port: u8,
    /// Peer's address: an IPv6 or IPv4-mapped GID.
    pub dest_gid: [u8; 16],
    /// Whether the address vector has a GID (`is_global`); without it there is no peer.
    pub has_gid: bool,
    /// Index of our own GID; must be 0.
    pub sgid_index: u8,
    /// Traffic class (DSCP and ECN byte) of our packets.
    pub traffic_class: u8,
    /// Time to live; 0 means the default.
    pub hop_limit: u8,
    /// Service level; kept for query.
    pub sl: u8,
    /// Peer's queue-pair number.
    pub dest_qpn: u32,
    /// Path MTU code (1 = 256 … 5 = 4096); kept for query, the wire finds its own.
    pub path_mtu: u8,
    /// Local ACK timeout code: 4.096 µs × 2^timeout; 0 means never.
    pub timeout: u8,
    /// Time-outs without progress before RETRY_EXC (0–7).
    pub retry_cnt: u8,
    /// RNR NAKs before RNR_RETRY_EXC (0–6), 7 = no limit.
    pub rnr_retry: u8,
    /// RNR timer code that we ask the peer to wait (IBTA table 45).
    pub min_rnr_timer: u8,
    /// First PSN we send (24 bits).
    pub sq_psn: u32,
    /// First PSN we expect (24 bits).
    pub rq_psn: u32,
    /// READs and atomics we may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
}

impl Default for QpAttributes {
    fn default() -> Self {
        QpAttributes {
            state: QpState::Reset,
            cur_state: QpState::Reset,
            access: Access(0),
            pkey_index: 0,
            port: 1,
            dest_gid: [0; 16],
            has_gid: false,
            sgid_index: 0,
            traffic_class: 0,
            hop_limit: 0,
            sl: 0,
            dest_qpn: 0,
            path_mtu: 5,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            min_rnr_timer: 0,
            sq_psn: 0,
            rq_psn: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
        }
    }
}

/// What a device can do.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLimits {
    /// Work requests per queue.
    pub max_qp_wr: u32,
    /// Elements per work request.
    pub max_sge: u32,
    /// Inline bytes.
    pub max_inline_data: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Completions per queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics outstanding per QP, each way.
    pub max_rd_atomic: u8,
    /// Bytes per message.
    pub max_msg_bytes: u32,
}

/// The limits of the in-process device.
pub const LIMITS: DeviceLimits = DeviceLimits {
    max_qp_wr: 16_384,
    max_sge: 32,
    max_inline_data: 928,
    max_qp: 60_000,
    max_cq: 65_536,
    max_cqe: 1 << 20,
    max_mr: 1 << 20,
    max_pd: 65_536,
    max_rd_atomic: 16,
    max_msg_bytes: 1 << 30,
};

/// The one port of a device.
#[derive(Clone, Copy, Debug)]
pub struct PortInfo {
    /// Whether the interface is up with carrier.
    pub active: bool,
    /// Interface MTU in bytes.
    pub mtu_bytes: u32,
    /// Speed in Mbit/s as the interface reports it; 0 if unknown.
    pub speed_mbps: u32,
}

/// Kind of an [`AsyncEvent`]; the values of `enum ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // named as in verbs.h
pub enum AsyncKind {
    CqErr = 0,
    QpFatal = 1,
    QpReqErr = 2,
    QpAccessErr = 3,
    CommEst = 4,
    SqDrained = 5,
    DeviceFatal = 8,
    PortActive = 9,
    PortErr = 10,
}

/// Something that happened outside any queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What.
    pub kind: AsyncKind,
    /// The QP or CQ it is about; 0 for the device or port.
    pub object: u32,
}
