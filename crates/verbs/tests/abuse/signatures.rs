//! What each real function takes and how it fails.

/// Objects that programs have handles of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Device,
    Context,
    Pd,
    Mr,
    Channel,
    Cq,
    Qp,
    Buf,
}

/// All of them.
pub const KINDS: [Kind; 8] =
    [Kind::Device, Kind::Context, Kind::Pd, Kind::Mr, Kind::Channel, Kind::Cq, Kind::Qp, Kind::Buf];

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A handle.
    Of(Kind),
    /// A number of any size, or an address that is only remembered.
    Number,
    /// A struct that is read, or a place for a result; null, or good for 4 KiB.
    Struct,
    /// Bytes that a result may take: no more than there are.
    Size,
    /// A struct whose pointers are plain: null, or all zero.
    Zeros,
}

/// How a function says that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// A positive errno.
    Errno,
    /// -1, and errno.
    MinusOne,
    /// Null, and errno.
    Null,
    /// A negative errno.
    NegativeErrno,
    /// 0, which is no value of its.
    Zero,
    Nothing,
    /// It cannot fail.
    Anything,
}

/// One function.
pub struct Signature {
    pub name: &'static str,
    pub returns: Returns,
    pub takes: &'static [Argument],
    /// What it makes, if it succeeds.
    pub makes: Option<Kind>,
}

use Argument::{Number, Of, Size, Struct, Zeros};
use Kind::{Buf, Channel, Context, Cq, Device, Mr, Pd, Qp};
use Returns::{Anything, Errno, MinusOne, NegativeErrno, Nothing, Null, Zero};

const fn make(name: &'static str, takes: &'static [Argument], kind: Kind) -> Signature {
    Signature { name, returns: Null, takes, makes: Some(kind) }
}

const fn does(name: &'static str, returns: Returns, takes: &'static [Argument]) -> Signature {
    Signature { name, returns, takes, makes: None }
}

pub const ALL: &[Signature] = &[
    make("ibv_open_device", &[Of(Device)], Context),
    make("ibv_create_comp_channel", &[Of(Context)], Channel),
    make("ibv_alloc_pd", &[Of(Context)], Pd),
    make("ibv_create_cq", &[Of(Context), Number, Number, Of(Channel), Number], Cq),
    make("ibv_create_qp", &[Of(Pd), Struct], Qp),
    make("ibv_reg_mr", &[Of(Pd), Number, Number, Number], Mr),
    make("ibv_reg_mr_iova", &[Of(Pd), Number, Number, Number, Number], Mr),
    make("ibv_reg_mr_iova2", &[Of(Pd), Number, Number, Number, Number], Mr),
    make("ibv_reg_buf_mr", &[Of(Pd), Of(Buf), Number, Number, Number], Mr),
    does("ibv_alloc_buf", Null, &[Of(Pd), Number, Struct]),
    does("ibv_close_device", Errno, &[Of(Context)]),
    does("ibv_destroy_comp_channel", Errno, &[Of(Channel)]),
    does("ibv_dealloc_pd", Errno, &[Of(Pd)]),
    does("ibv_dereg_mr", Errno, &[Of(Mr)]),
    does("ibv_destroy_cq", Errno, &[Of(Cq)]),
    does("ibv_destroy_qp", Errno, &[Of(Qp)]),
    does("ibv_free_buf", Nothing, &[Of(Buf)]),
    does("ibv_modify_qp", Errno, &[Of(Qp), Struct, Number]),
    does("ibv_query_qp", Errno, &[Of(Qp), Struct, Number, Struct]),
    does("ibv_qp_to_qp_ex", Null, &[Of(Qp)]),
    does("ibv_query_qp_data_in_order", Anything, &[Of(Qp), Number, Number]),
    // Not supported, so the region is not looked at: IBV_REREG_MR_ERR_INPUT.
    does("ibv_rereg_mr", Anything, &[Of(Mr), Number, Of(Pd), Number, Number, Number]),
    does("ibv_get_cq_event", MinusOne, &[Of(Channel), Struct, Struct]),
    does("ibv_ack_cq_events", Nothing, &[Of(Cq), Number]),
    does("ibv_get_async_event", MinusOne, &[Of(Context), Struct]),
    does("ibv_ack_async_event", Nothing, &[Struct]),
    does("ibv_query_device", Errno, &[Of(Context), Struct]),
    does("ibv_query_port", Errno, &[Of(Context), Number, Struct]),
    does("ibv_query_port_speed", Errno, &[Of(Context), Number, Struct]),
    does("ibv_query_gid", MinusOne, &[Of(Context), Number, Number, Struct]),
    does("_ibv_query_gid_ex", Errno, &[Of(Context), Number, Number, Struct, Number, Size]),
    does("_ibv_query_gid_table", NegativeErrno, &[Of(Context), Struct, Number, Number, Size]),
    does("ibv_query_gid_type", MinusOne, &[Of(Context), Number, Number, Struct]),
    does("ibv_query_pkey", MinusOne, &[Of(Context), Number, Number, Struct]),
    does("ibv_get_pkey_index", MinusOne, &[Of(Context), Number, Number]),
    does("ibv_get_device_list", Anything, &[Struct]),
    does("ibv_free_device_list", Nothing, &[Zeros]),
    does("ibv_get_device_name", Null, &[Of(Device)]),
    does("ibv_get_device_guid", Zero, &[Of(Device)]),
    does("ibv_get_device_index", MinusOne, &[Of(Device)]),
    does("ibv_read_sysfs_file", MinusOne, &[Struct, Struct, Struct, Size]),
    does("ibv_get_sysfs_path", Anything, &[]),
    does("ibv_fork_init", Anything, &[]),
    does("ibv_is_fork_initialized", Anything, &[]),
    does("ibv_dontfork_range", Anything, &[Number, Number]),
    does("ibv_dofork_range", Anything, &[Number, Number]),
    does("ibv_wc_status_str", Anything, &[Number]),
    does("ibv_event_type_str", Anything, &[Number]),
    does("ibv_port_state_str", Anything, &[Number]),
    does("ibv_node_type_str", Anything, &[Number]),
    does("ibv_wr_opcode_str", Anything, &[Number]),
    does("ibv_rate_to_mult", Anything, &[Number]),
    does("mult_to_ibv_rate", Anything, &[Number]),
    does("ibv_rate_to_mbps", Anything, &[Number]),
    does("mbps_to_ibv_rate", Anything, &[Number]),
];

/// The function of that name.
pub fn signature(name: &str) -> Option<&'static Signature> {
    ALL.iter().find(|signature| signature.name == name)
}
