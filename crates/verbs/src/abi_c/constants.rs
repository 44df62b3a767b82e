//! Values of the enumerations in `<infiniband/verbs.h>`, under the header's names without `IBV_`.

pub(crate) const NODE_CA: i32 = 1;
pub(crate) const TRANSPORT_IB: i32 = 0;

pub(crate) const DEVICE_CAP_SYS_IMAGE_GUID: u32 = 1 << 11;
pub(crate) const DEVICE_CAP_RC_RNR_NAK_GEN: u32 = 1 << 12;
pub(crate) const ATOMIC_HCA: u32 = 1;

pub(crate) const PORT_DOWN: u32 = 1;
pub(crate) const PORT_ACTIVE: u32 = 4;
pub(crate) const PHYS_STATE_DISABLED: u8 = 3;
pub(crate) const PHYS_STATE_LINK_UP: u8 = 5;
pub(crate) const MTU_4096: u32 = 5;
pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;
pub(crate) const PORT_CAP_IP_BASED_GIDS: u32 = 1 << 26;

pub(crate) const GID_TYPE_ROCE_V2: u32 = 2;
/// Of the private `ibv_query_gid_type`, which counts otherwise.
pub(crate) const GID_TYPE_SYSFS_ROCE_V2: u32 = 1;
pub(crate) const FORK_UNNEEDED: i32 = 2;

pub(crate) const ACCESS_LOCAL_WRITE: u32 = 1;
pub(crate) const ACCESS_REMOTE_WRITE: u32 = 1 << 1;
pub(crate) const ACCESS_REMOTE_READ: u32 = 1 << 2;
pub(crate) const ACCESS_REMOTE_ATOMIC: u32 = 1 << 3;
pub(crate) const ACCESS_ZERO_BASED: u32 = 1 << 5;
pub(crate) const ACCESS_HUGETLB: u32 = 1 << 7;
pub(crate) const ACCESS_RELAXED_ORDERING: u32 = 1 << 20;
/// Bits 20–29: hints that a device may ignore.
pub(crate) const ACCESS_OPTIONAL_RANGE: u32 = ((1 << 30) - 1) & !((1 << 20) - 1);
pub(crate) const REREG_MR_ERR_INPUT: i32 = -1;

pub(crate) const QPT_RC: u32 = 2;
pub(crate) const QP_INIT_ATTR_PD: u32 = 1;
pub(crate) const QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
pub(crate) const QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;

pub(crate) const WR_RDMA_WRITE: u32 = 0;
pub(crate) const WR_RDMA_WRITE_WITH_IMM: u32 = 1;
pub(crate) const WR_SEND: u32 = 2;
pub(crate) const WR_SEND_WITH_IMM: u32 = 3;
pub(crate) const WR_RDMA_READ: u32 = 4;
pub(crate) const WR_ATOMIC_CMP_AND_SWP: u32 = 5;
pub(crate) const WR_ATOMIC_FETCH_AND_ADD: u32 = 6;

pub(crate) const SEND_FENCE: u32 = 1;
pub(crate) const SEND_SIGNALED: u32 = 1 << 1;
pub(crate) const SEND_SOLICITED: u32 = 1 << 2;
pub(crate) const SEND_INLINE: u32 = 1 << 3;

pub(crate) const WC_RECV: u32 = 1 << 7;
pub(crate) const WC_RECV_RDMA_WITH_IMM: u32 = (1 << 7) + 1;
pub(crate) const WC_WITH_IMM: u32 = 1 << 1;

pub(crate) const CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;
pub(crate) const CREATE_CQ_ATTR_SINGLE_THREADED: u32 = 1;
pub(crate) const CREATE_CQ_ATTR_IGNORE_OVERRUN: u32 = 1 << 1;
/// Byte length to path bits: fields that every completion has.
pub(crate) const WC_STANDARD_FLAGS: u64 = 0x7f;
pub(crate) const WC_EX_WITH_COMPLETION_TIMESTAMP: u64 = 1 << 7;
pub(crate) const WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: u64 = 1 << 11;
pub(crate) const VALUES_MASK_RAW_CLOCK: u32 = 1;
