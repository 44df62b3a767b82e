//! Objects handed to programs. We allocate them, with fields of our own behind.

use super::c_struct;
use super::context::Context;
use super::work::{DataBuf, Sge};
use libc::{c_int, c_uint, c_void, pthread_cond_t, pthread_mutex_t};

c_struct! {
    /// Protection domain.
    struct Pd = "ibv_pd" [16] {
        context: *mut Context,
        handle: u32,
    }
}

c_struct! {
    /// Memory region.
    struct Mr = "ibv_mr" [48] {
        context: *mut Context,
        pd: *mut Pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }
}

c_struct! {
    /// Completion channel; programs poll `fd`.
    struct CompChannel = "ibv_comp_channel" [16] {
        context: *mut Context,
        fd: c_int,
        refcnt: c_int,
    }
}

c_struct! {
    /// Completion queue. The pthread members are unused: waiting is done in our own part.
    struct Cq = "ibv_cq" [128] {
        context: *mut Context,
        channel: *mut CompChannel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }
}

type CqRead<T> = Option<unsafe extern "C" fn(*mut CqEx) -> T>;

c_struct! {
    /// Completion queue with the iterator of `ibv_start_poll`; begins like [`Cq`].
    struct CqEx = "ibv_cq_ex" [288] {
        context: *mut Context,
        channel: *mut CompChannel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: u32,
        wr_id: u64,
        start_poll: Option<unsafe extern "C" fn(*mut CqEx, *mut u32) -> c_int>,
        next_poll: CqRead<c_int>,
        end_poll: Option<unsafe extern "C" fn(*mut CqEx)>,
        read_opcode: CqRead<u32>,
        read_vendor_err: CqRead<u32>,
        read_byte_len: CqRead<u32>,
        read_imm_data: CqRead<u32>,
        read_qp_num: CqRead<u32>,
        read_src_qp: CqRead<u32>,
        read_wc_flags: CqRead<c_uint>,
        read_slid: CqRead<u32>,
        read_sl: CqRead<u8>,
        read_dlid_path_bits: CqRead<u8>,
        read_completion_ts: CqRead<u64>,
        read_cvlan: CqRead<u16>,
        read_flow_tag: CqRead<u32>,
        read_tm_info: Option<unsafe extern "C" fn(*mut CqEx, *mut c_void)>,
        read_completion_wallclock_ns: CqRead<u64>,
    }
}

c_struct! {
    /// Queue pair. The pthread members are unused: waiting is done in our own part.
    struct Qp = "ibv_qp" [160] {
        context: *mut Context,
        qp_context: *mut c_void,
        pd: *mut Pd,
        send_cq: *mut Cq,
        recv_cq: *mut Cq,
        srq: *mut c_void,
        handle: u32,
        qp_num: u32,
        state: u32,
        qp_type: u32,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }
}

type Wr = Option<unsafe extern "C" fn(*mut QpEx)>;
type WrRemote = Option<unsafe extern "C" fn(*mut QpEx, u32, u64)>;

c_struct! {
    /// Queue pair with the builder of `ibv_wr_start`, up to v49; `wr_flush` follows it since v50.
    struct QpEx = "ibv_qp_ex" [352] {
        qp_base: Qp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: c_uint,
        wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64)>,
        wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64)>,
        wr_bind_mw: Option<unsafe extern "C" fn(*mut QpEx, *mut c_void, u32, *const c_void)>,
        wr_local_inv: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
        wr_rdma_read: WrRemote,
        wr_rdma_write: WrRemote,
        wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
        wr_send: Wr,
        wr_send_imm: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
        wr_send_inv: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
        wr_send_tso: Option<unsafe extern "C" fn(*mut QpEx, *mut c_void, u16, u16)>,
        wr_set_ud_addr: Option<unsafe extern "C" fn(*mut QpEx, *mut c_void, u32, u32)>,
        wr_set_xrc_srqn: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
        wr_set_inline_data: Option<unsafe extern "C" fn(*mut QpEx, *mut c_void, usize)>,
        wr_set_inline_data_list: Option<unsafe extern "C" fn(*mut QpEx, usize, *const DataBuf)>,
        wr_set_sge: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
        wr_set_sge_list: Option<unsafe extern "C" fn(*mut QpEx, usize, *const Sge)>,
        wr_start: Wr,
        wr_complete: Option<unsafe extern "C" fn(*mut QpEx) -> c_int>,
        wr_abort: Wr,
        wr_atomic_write: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, *const c_void)>,
    }
}

c_struct! {
    /// Asynchronous event; `element` is a pointer to the object, or the port number.
    struct AsyncEvent = "ibv_async_event" [16] {
        element: *mut c_void,
        event_type: u32,
    }
}

#[cfg(target_arch = "x86_64")]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Qp, handle) == 48 && offset_of!(Qp, qp_num) == 52);
    assert!(offset_of!(Qp, state) == 56 && offset_of!(Qp, qp_type) == 60);
    assert!(offset_of!(CqEx, comp_mask) == 128 && offset_of!(CqEx, wr_id) == 136);
    assert!(offset_of!(QpEx, comp_mask) == 160 && offset_of!(QpEx, wr_flags) == 176);
};
