//! Work requests and completions.

use super::c_struct;
use libc::{c_int, c_uint, c_void};

c_struct! {
    /// Scatter-gather element.
    struct Sge = "ibv_sge" [16] {
        addr: u64,
        length: u32,
        lkey: u32,
    }
}

c_struct! {
    /// Piece of inline data.
    struct DataBuf = "ibv_data_buf" [16] {
        addr: *mut c_void,
        length: usize,
    }
}

/// The `wr` union seen as its largest member, `atomic`; `rdma` is `remote_addr` with `rkey` in the
/// low half of `compare_add`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union WrUnion {
    pub(crate) rdma: Rdma,
    pub(crate) atomic: Atomic,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Rdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Atomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

c_struct! {
    /// Send request. The tail (XRC, memory windows, TSO) belongs to operations that we lack.
    struct SendWr = "ibv_send_wr" [128] {
        wr_id: u64,
        next: *mut SendWr,
        sg_list: *mut Sge,
        num_sge: c_int,
        opcode: u32,
        send_flags: c_uint,
        imm_data: u32,
        wr: WrUnion,
        qp_type: u32,
        bind_mw: [u64; 6],
    }
}

c_struct! {
    /// Receive request.
    struct RecvWr = "ibv_recv_wr" [32] {
        wr_id: u64,
        next: *mut RecvWr,
        sg_list: *mut Sge,
        num_sge: c_int,
    }
}

c_struct! {
    /// Completion.
    struct Wc = "ibv_wc" [48] {
        wr_id: u64,
        status: u32,
        opcode: u32,
        vendor_err: u32,
        byte_len: u32,
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(SendWr, wr) == 40 && offset_of!(SendWr, qp_type) == 72);
    assert!(offset_of!(SendWr, bind_mw) == 80);
    assert!(offset_of!(Atomic, rkey) == 24 && offset_of!(Rdma, rkey) == 8);
};
