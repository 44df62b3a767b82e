//! Device and context, with the tables of functions that inlined verbs call.

use super::attributes::{CqInitAttrEx, DeviceAttr, DeviceAttrEx, PortAttr, QpInitAttrEx, ValuesEx};
use super::c_struct;
use super::objects::{Cq, CqEx, Qp};
use super::work::{RecvWr, SendWr, Wc};
use libc::{c_char, c_int, c_void, pthread_mutex_t};

c_struct! {
    /// A device in the list.
    struct Device = "ibv_device" [664] {
        _ops: [usize; 2],
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }
}

/// A slot that stays null: the verb is not supported, or the slot is unused.
pub(crate) type Unused = *mut c_void;

c_struct! {
    /// Functions that inlined verbs call without looking; only those named here are ever read.
    struct Ops = "ibv_context_ops" [256] {
        _compat_query_device: Option<unsafe extern "C" fn(*mut Context, *mut DeviceAttr) -> c_int>,
        _compat_query_port: Option<unsafe extern "C" fn(*mut Context, u8, *mut c_void) -> c_int>,
        _compat_alloc_pd: Unused,
        _compat_dealloc_pd: Unused,
        _compat_reg_mr: Unused,
        _compat_rereg_mr: Unused,
        _compat_dereg_mr: Unused,
        alloc_mw: Unused,
        bind_mw: Option<unsafe extern "C" fn(*mut Qp, *mut c_void, *mut c_void) -> c_int>,
        dealloc_mw: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
        _compat_create_cq: Unused,
        poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
        _compat_cq_event: Unused,
        _compat_resize_cq: Unused,
        _compat_destroy_cq: Unused,
        _compat_create_srq: Unused,
        _compat_modify_srq: Unused,
        _compat_query_srq: Unused,
        _compat_destroy_srq: Unused,
        post_srq_recv: Option<unsafe extern "C" fn(*mut c_void, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
        _compat_create_qp: Unused,
        _compat_query_qp: Unused,
        _compat_modify_qp: Unused,
        _compat_destroy_qp: Unused,
        post_send: Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
        post_recv: Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
        _compat_create_ah: Unused,
        _compat_destroy_ah: Unused,
        _compat_attach_mcast: Unused,
        _compat_detach_mcast: Unused,
        _compat_async_event: Unused,
    }
}

c_struct! {
    /// An open device.
    struct Context = "ibv_context" [328] {
        device: *mut Device,
        ops: Ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: pthread_mutex_t,
        abi_compat: *mut c_void,
    }
}

c_struct! {
    #[allow(non_snake_case)] // the header's names
    /// The extended context. Newer verbs are added at its head, and callers count from its end, so the
    /// newest layout serves programs built against any.
    struct VerbsContext = "verbs_context" [696] {
        free_buf: Unused,
        alloc_buf: Unused,
        dm_export_dmabuf_fd: Unused,
        reg_mr_ex: Unused,
        dealloc_dmah: Unused,
        alloc_dmah: Unused,
        query_port: Option<unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, usize) -> c_int>,
        advise_mr: Unused,
        alloc_null_mr: Unused,
        read_counters: Unused,
        attach_counters_point_flow: Unused,
        create_counters: Unused,
        destroy_counters: Unused,
        reg_dm_mr: Unused,
        alloc_dm: Unused,
        free_dm: Unused,
        modify_flow_action_esp: Unused,
        destroy_flow_action: Unused,
        create_flow_action_esp: Unused,
        modify_qp_rate_limit: Unused,
        alloc_parent_domain: Unused,
        dealloc_td: Unused,
        alloc_td: Unused,
        modify_cq: Unused,
        post_srq_ops: Unused,
        destroy_rwq_ind_table: Unused,
        create_rwq_ind_table: Unused,
        destroy_wq: Unused,
        modify_wq: Unused,
        create_wq: Unused,
        query_rt_values: Option<unsafe extern "C" fn(*mut Context, *mut ValuesEx) -> c_int>,
        create_cq_ex: Option<unsafe extern "C" fn(*mut Context, *mut CqInitAttrEx) -> *mut CqEx>,
        priv_: Unused,
        query_device_ex:
            Option<unsafe extern "C" fn(*mut Context, *const u32, *mut DeviceAttrEx, usize) -> c_int>,
        ibv_destroy_flow: Unused,
        ABI_placeholder2: Unused,
        ibv_create_flow: Unused,
        ABI_placeholder1: Unused,
        open_qp: Unused,
        create_qp_ex: Option<unsafe extern "C" fn(*mut Context, *mut QpInitAttrEx) -> *mut Qp>,
        get_srq_num: Unused,
        create_srq_ex: Unused,
        open_xrcd: Unused,
        close_xrcd: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
        _ABI_placeholder3: u64,
        sz: usize,
        context: Context,
    }
}

/// `abi_compat` of a context that has a [`VerbsContext`] around it.
pub(crate) const ABI_IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

#[cfg(target_arch = "x86_64")]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(VerbsContext, sz) == 360 && offset_of!(VerbsContext, context) == 368);
    assert!(offset_of!(Ops, alloc_mw) == 56 && offset_of!(Ops, poll_cq) == 88);
    assert!(offset_of!(Ops, req_notify_cq) == 96 && offset_of!(Ops, post_srq_recv) == 160);
    assert!(offset_of!(Ops, post_send) == 200 && offset_of!(Ops, post_recv) == 208);
    assert!(offset_of!(Context, cmd_fd) == 264 && offset_of!(Context, async_fd) == 268);
    assert!(offset_of!(Context, num_comp_vectors) == 272 && offset_of!(Context, abi_compat) == 320);
    assert!(offset_of!(Device, name) == 24 && offset_of!(Device, ibdev_path) == 408);
};
