//! What commands and their answers carry.

use super::layout::layout;
use super::Name;
use crate::control::{Access, QpAttributes, QpInit, QpState};

/// Text of a refusal: bytes of UTF-8, the rest zeros.
pub const TEXT_BYTES: usize = 240;
/// In [`CreateCq::channel`]: the queue wakes nobody.
pub const NO_CHANNEL: u32 = u32::MAX;
/// In [`DefineDevice::owner`]: nobody but the daemon's own user and root opens it.
pub const NO_OWNER: u32 = u32::MAX;
/// Devices of one [`DevicePage`].
pub const PAGE_ROWS: usize = 8;

layout! {
    /// Nothing to say.
    pub struct Nothing {}

    /// The number of an object.
    pub struct Number {
        /// As the device gave it.
        pub number: u32,
        /// Zero.
        pub reserved: u32,
    }

    /// What a device, or a tenant, may have at most. 0: as much as the host has.
    pub struct Quota {
        /// Protection domains.
        pub pds: u32,
        /// Memory regions.
        pub mrs: u32,
        /// Completion queues.
        pub cqs: u32,
        /// Queue pairs.
        pub qps: u32,
        /// Completion channels.
        pub channels: u32,
        /// Programs attached.
        pub sessions: u32,
        /// Bytes of registered memory; a byte registered twice counts twice.
        pub memory_bytes: u64,
        /// Bytes of rings.
        pub ring_bytes: u64,
    }

    /// A device as whoever may open it sees it.
    pub struct DeviceShown {
        /// Its number; never used again while the daemon lives.
        pub id: u32,
        /// Index of the network interface that has the address.
        pub interface_index: u32,
        /// MTU of that interface, bytes.
        pub mtu_bytes: u32,
        /// Speed in Mbit/s; 0 if unknown.
        pub speed_mbps: u32,
        /// 1 if the interface is up with carrier.
        pub port_active: u32,
        /// Zero.
        pub reserved: u32,
        /// The one GID.
        pub gid: [u8; 16],
        /// EUI-64, network order.
        pub guid: [u8; 8],
        /// Its name.
        pub name: Name,
        /// What it may have.
        pub quota: Quota,
    }

    /// Attaches a program: from here on it has a doorbell page.
    pub struct Attach {
        /// Zero.
        pub reserved: u64,
    }

    /// Descriptors beside it: the doorbell page, the event counter that wakes the daemon, the end of a pipe where
    /// records of asynchronous events are read. When the last can be read to its end, the daemon has gone.
    pub struct Attached {
        /// Bits of the doorbell page.
        pub bells: u32,
        /// Zero.
        pub reserved: u32,
    }

    /// Registers memory of the program that is attached.
    pub struct RegisterMemory {
        /// Protection domain.
        pub pd: u32,
        /// `ibv_access_flags`.
        pub access: u32,
        /// First byte.
        pub base: u64,
        /// Bytes.
        pub length: u64,
        /// First byte as users of the key name it.
        pub iova: u64,
    }

    /// Makes a completion queue.
    pub struct CreateCq {
        /// Completions it must hold.
        pub entries: u32,
        /// Where its events are told, or [`NO_CHANNEL`].
        pub channel: u32,
        /// What is told.
        pub cookie: u64,
    }

    /// The descriptor beside it is the ring's memory.
    pub struct CqCreated {
        /// Its number.
        pub number: u32,
        /// Units of the ring: completions that it holds.
        pub units: u32,
    }

    /// Makes a queue pair.
    pub struct CreateQp {
        /// Protection domain.
        pub pd: u32,
        /// Completion queue of sends.
        pub send_cq: u32,
        /// Completion queue of receives.
        pub recv_cq: u32,
        /// Work requests of the send queue.
        pub max_send_wr: u32,
        /// Work requests of the receive queue.
        pub max_recv_wr: u32,
        /// Elements per send.
        pub max_send_sge: u32,
        /// Elements per receive.
        pub max_recv_sge: u32,
        /// Inline bytes per send.
        pub max_inline_data: u32,
        /// 1 if every send is signalled.
        pub sq_sig_all: u32,
        /// Zero.
        pub reserved: u32,
    }

    /// The descriptor beside it is the memory of both rings, the receive ring behind the send ring.
    pub struct QpCreated {
        /// Its number.
        pub number: u32,
        /// Bit of the doorbell page for posted sends.
        pub send_bell: u32,
        /// Bit for posted receives.
        pub recv_bell: u32,
        /// Units of the send ring.
        pub send_units: u32,
        /// Units of the receive ring.
        pub recv_units: u32,
        /// Where the receive ring begins, bytes.
        pub recv_offset: u32,
    }

    /// Attributes of a queue pair; see [`QpAttributes`].
    pub struct Attributes {
        /// [`QpState`] as a number.
        pub state: u32,
        /// The same.
        pub cur_state: u32,
        /// `ibv_access_flags`.
        pub access: u32,
        /// Peer's queue pair.
        pub dest_qpn: u32,
        /// First PSN sent.
        pub sq_psn: u32,
        /// First PSN expected.
        pub rq_psn: u32,
        /// Peer's GID.
        pub dest_gid: [u8; 16],
        /// Always 0.
        pub pkey_index: u16,
        /// Always 1.
        pub port: u8,
        /// 1 if there is a GID.
        pub has_gid: u8,
        /// Must be 0.
        pub sgid_index: u8,
        /// DSCP and ECN byte.
        pub traffic_class: u8,
        /// Time to live.
        pub hop_limit: u8,
        /// Service level.
        pub sl: u8,
        /// Path MTU code.
        pub path_mtu: u8,
        /// Local ACK timeout code.
        pub timeout: u8,
        /// Time-outs without progress.
        pub retry_cnt: u8,
        /// RNR NAKs.
        pub rnr_retry: u8,
        /// RNR timer code.
        pub min_rnr_timer: u8,
        /// READs and atomics outstanding.
        pub max_rd_atomic: u8,
        /// The same of the peer.
        pub max_dest_rd_atomic: u8,
        /// Zero.
        pub reserved: u8,
    }

    /// Changes a queue pair.
    pub struct ModifyQp {
        /// Which.
        pub number: u32,
        /// `ibv_qp_attr_mask`.
        pub mask: u32,
        /// The new values; only those that the mask names count.
        pub attributes: Attributes,
    }

    /// Defines a device: a name and limits, nothing else.
    pub struct DefineDevice {
        /// Its name, unique on the host.
        pub name: Name,
        /// Whose it is.
        pub tenant: Name,
        /// What it may have.
        pub quota: Quota,
        /// User who may open it beside the daemon's own and root, or [`NO_OWNER`].
        pub owner: u32,
        /// Zero.
        pub reserved: u32,
    }

    /// Limits what all devices of a tenant may have together.
    pub struct LimitTenant {
        /// Whose.
        pub tenant: Name,
        /// What they may have.
        pub quota: Quota,
    }

    /// Names a device.
    pub struct DeviceNamed {
        /// Which.
        pub name: Name,
    }

    /// Removes a device.
    pub struct UndefineDevice {
        /// Which.
        pub name: Name,
        /// 1: once the last program has left; nobody new is let in. 0: refused while somebody is attached.
        pub drain: u32,
        /// Zero.
        pub reserved: u32,
    }

    /// Asks for devices.
    pub struct ListDevices {
        /// Those whose name comes after this one; all zeros for the first page.
        pub after: Name,
    }

    /// A device as whoever manages it sees it.
    pub struct DeviceRow {
        /// Its number.
        pub id: u32,
        /// Number of its tenant.
        pub tenant_id: u32,
        /// [`Lifecycle`] as a number.
        pub lifecycle: u32,
        /// User who may open it, or [`NO_OWNER`].
        pub owner: u32,
        /// Its name.
        pub name: Name,
        /// Name of its tenant.
        pub tenant: Name,
        /// What it may have.
        pub quota: Quota,
        /// What it has.
        pub used: Quota,
    }

    /// Some devices, by name.
    pub struct DevicePage {
        /// Rows that mean something.
        pub count: u32,
        /// 1 if there are more behind them.
        pub more: u32,
        /// The rows.
        pub rows: Rows,
    }

    /// Where a device can be opened.
    pub struct Exposed {
        /// Path of a socket; zeros after it.
        pub path: Path,
    }

    /// Why a command was not carried out.
    pub struct Refused {
        /// [`Denial`] as a number.
        pub denial: u32,
        /// Bytes of the text.
        pub text_bytes: u32,
        /// What is wrong, naming the object or the limit.
        pub text: Text,
    }
}

/// An array whose length has no `Default` of its own.
macro_rules! array {
    ($($(#[$meta:meta])* $name:ident([$kind:ty; $count:expr]);)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub [$kind; $count]);

        impl Default for $name {
            fn default() -> $name {
                $name([<$kind>::default(); $count])
            }
        }

        impl super::Layout for $name {
            const BYTES: usize = <$kind as super::Layout>::BYTES * $count;
            fn put(&self, out: &mut super::Out<'_>) {
                self.0.iter().for_each(|each| super::Layout::put(each, out));
            }
            fn get(from: &mut super::In<'_>) -> $name {
                $name(core::array::from_fn(|_| super::Layout::get(from)))
            }
        }
    )*};
}

array! {
    /// Rows of a [`DevicePage`].
    Rows([DeviceRow; PAGE_ROWS]);
    /// A path, as long as a socket's may be (unix(7)).
    Path([u8; 108]);
    /// Text of a [`Refused`].
    Text([u8; TEXT_BYTES]);
}

/// Where a device is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Lifecycle {
    /// A name and limits; nothing of it exists.
    Defined = 0,
    /// It has a socket where programs may come.
    Exposed = 1,
    /// Those who are there may stay; with the last it goes.
    Draining = 2,
}

/// Kinds of refusals, each counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Denial {
    /// The bytes are no command.
    Malformed = 1,
    /// Another version of the commands.
    Version = 2,
    /// Not a command for this door, or not before one is attached.
    NotHere = 3,
    /// The handle names nothing that this program has made.
    Handle = 4,
    /// A limit of the device or its tenant.
    Quota = 5,
    /// A value out of range.
    Value = 6,
    /// Something uses it.
    Busy = 7,
    /// The name is taken.
    Exists = 8,
    /// No such name.
    Unknown = 9,
    /// The host cannot: no descriptor, no memory, no queue-pair number, no route.
    Host = 10,
}

impl Denial {
    /// How many kinds there are, plus one for their numbers begin with 1.
    pub const COUNT: usize = 11;
}

impl From<&QpAttributes> for Attributes {
    fn from(from: &QpAttributes) -> Attributes {
        Attributes {
            state: from.state as u32,
            cur_state: from.cur_state as u32,
            access: from.access.0,
            dest_qpn: from.dest_qpn,
            sq_psn: from.sq_psn,
            rq_psn: from.rq_psn,
            dest_gid: from.dest_gid,
            pkey_index: from.pkey_index,
            port: from.port,
            has_gid: from.has_gid.into(),
            sgid_index: from.sgid_index,
            traffic_class: from.traffic_class,
            hop_limit: from.hop_limit,
            sl: from.sl,
            path_mtu: from.path_mtu,
            timeout: from.timeout,
            retry_cnt: from.retry_cnt,
            rnr_retry: from.rnr_retry,
            min_rnr_timer: from.min_rnr_timer,
            max_rd_atomic: from.max_rd_atomic,
            max_dest_rd_atomic: from.max_dest_rd_atomic,
            reserved: 0,
        }
    }
}

impl Attributes {
    /// As the device takes them; `None` if a state is none.
    pub fn checked(&self) -> Option<QpAttributes> {
        Some(QpAttributes {
            state: QpState::from_code(self.state)?,
            cur_state: QpState::from_code(self.cur_state)?,
            access: Access(self.access),
            pkey_index: self.pkey_index,
            port: self.port,
            dest_gid: self.dest_gid,
            has_gid: self.has_gid != 0,
            sgid_index: self.sgid_index,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            sl: self.sl,
            dest_qpn: self.dest_qpn,
            path_mtu: self.path_mtu,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            min_rnr_timer: self.min_rnr_timer,
            sq_psn: self.sq_psn,
            rq_psn: self.rq_psn,
            max_rd_atomic: self.max_rd_atomic,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
        })
    }
}

impl From<&QpInit> for CreateQp {
    fn from(from: &QpInit) -> CreateQp {
        CreateQp {
            pd: from.pd,
            send_cq: from.send_cq,
            recv_cq: from.recv_cq,
            max_send_wr: from.max_send_wr,
            max_recv_wr: from.max_recv_wr,
            max_send_sge: from.max_send_sge,
            max_recv_sge: from.max_recv_sge,
            max_inline_data: from.max_inline_data,
            sq_sig_all: from.sq_sig_all.into(),
            reserved: 0,
        }
    }
}

impl From<&CreateQp> for QpInit {
    fn from(from: &CreateQp) -> QpInit {
        QpInit {
            pd: from.pd,
            send_cq: from.send_cq,
            recv_cq: from.recv_cq,
            max_send_wr: from.max_send_wr,
            max_recv_wr: from.max_recv_wr,
            max_send_sge: from.max_send_sge,
            max_recv_sge: from.max_recv_sge,
            max_inline_data: from.max_inline_data,
            sq_sig_all: from.sq_sig_all != 0,
        }
    }
}

impl Refused {
    /// A refusal; a text that is too long is cut.
    pub fn new(denial: Denial, text: &str) -> Refused {
        let mut end = text.len().min(TEXT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut refused = Refused { denial: denial as u32, text_bytes: end as u32, text: Text::default() };
        refused.text.0[..end].copy_from_slice(&text.as_bytes()[..end]);
        refused
    }

    /// The text, as far as it is one.
    pub fn text(&self) -> &str {
        let bytes = self.text.0.get(..self.text_bytes as usize).unwrap_or(&[]);
        core::str::from_utf8(bytes).unwrap_or("")
    }
}
