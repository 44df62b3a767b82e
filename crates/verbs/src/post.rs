//! Posting: from lists of C work requests to entries of the device's queues.

use crate::abi_c::constants as c;
use crate::abi_c::objects::Qp;
use crate::abi_c::work::{RecvWr, SendWr, Sge as CSge};
use crate::border::{object, positive, store, warn, Errno};
use crate::qp::QpObject;
use libc::c_int;
use srdma_client::abi::entry::{RECV_SGE_MAX, SEND_SGE_MAX};
use srdma_client::abi::{Opcode, RecvEntry, SendEntry, SendFlags, Sge};
use srdma_client::PostError;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

/// The errno of a request that was not accepted, as the manual pages have them.
pub(crate) fn post_errno(call: &str, error: PostError) -> Errno {
    warn(call, &error.to_string());
    Errno(match error {
        PostError::Full => libc::ENOMEM,
        PostError::Elements { .. } | PostError::Inline { .. } | PostError::State => libc::EINVAL,
        PostError::Gone => libc::EIO,
    })
}

/// Our operation of a send opcode. Operations of the header that we lack: EOPNOTSUPP.
pub(crate) fn opcode(code: u32) -> Result<Opcode, Errno> {
    Ok(match code {
        c::WR_RDMA_WRITE => Opcode::Write,
        c::WR_RDMA_WRITE_WITH_IMM => Opcode::WriteImm,
        c::WR_SEND => Opcode::Send,
        c::WR_SEND_WITH_IMM => Opcode::SendImm,
        c::WR_RDMA_READ => Opcode::Read,
        c::WR_ATOMIC_CMP_AND_SWP => Opcode::CompareSwap,
        c::WR_ATOMIC_FETCH_AND_ADD => Opcode::FetchAdd,
        7..=11 | 14 | 15 => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    })
}

/// Our flags of a send request; data may be inline only where data is sent.
pub(crate) fn send_flags(flags: u32, opcode: Opcode) -> Result<SendFlags, Errno> {
    const PAIRS: [(u32, SendFlags); 4] = [
        (c::SEND_SIGNALED, SendFlags::SIGNALED),
        (c::SEND_FENCE, SendFlags::FENCE),
        (c::SEND_SOLICITED, SendFlags::SOLICITED),
        (c::SEND_INLINE, SendFlags::INLINE),
    ];
    const KNOWN: u32 = c::SEND_SIGNALED | c::SEND_FENCE | c::SEND_SOLICITED | c::SEND_INLINE;
    if flags & !KNOWN != 0 || (flags & c::SEND_INLINE != 0 && opcode.is_read_or_atomic()) {
        return Err(Errno::EINVAL);
    }
    let mut out = SendFlags(0);
    for (theirs, ours) in PAIRS {
        if flags & theirs != 0 {
            out = out.with(ours);
        }
    }
    Ok(out)
}

/// The elements of a request; EINVAL unless 0 to `max`.
///
/// # Safety
/// A non-null `list` is readable for `count` elements.
unsafe fn elements<'a>(list: *const CSge, count: c_int, max: u32) -> Result<&'a [CSge], Errno> {
    let count = u32::try_from(count).map_err(|_| Errno::EINVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    if count > max || list.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { slice::from_raw_parts(list, count as usize) })
}

/// Copies elements; those of length 0 mean no bytes, need no key, and are left out. (IBTA lets 0 stand
/// for 2³¹ bytes, which no program for libibverbs uses and larger messages than ours would need.)
fn put_elements(from: &[CSge], to: &mut [Sge]) -> u8 {
    let mut count = 0u8;
    let used = from.iter().filter(|sge| sge.length != 0);
    for (sge, place) in used.zip(to.iter_mut()) {
        *place = Sge { address: sge.addr, length: sge.length, lkey: sge.lkey };
        count += 1;
    }
    count
}

/// Pieces of inline data on the stack.
struct Pieces {
    list: [(u64, u32); SEND_SGE_MAX],
    count: usize,
}

impl Pieces {
    fn put(&mut self, from: &[CSge]) {
        self.count = 0;
        let used = from.iter().filter(|sge| sge.length != 0);
        for (sge, place) in used.zip(self.list.iter_mut()) {
            *place = (sge.addr, sge.length);
            self.count += 1;
        }
    }
}

/// Fills `entry`, and `pieces` if the data is inline, from a request.
///
/// # Safety
/// The request's element list is readable.
unsafe fn send_entry(
    wr: &SendWr,
    qp: &QpObject,
    entry: &mut SendEntry,
    pieces: &mut Pieces,
) -> Result<(), Errno> {
    entry.opcode = opcode(wr.opcode)?;
    entry.flags = send_flags(wr.send_flags, entry.opcode)?;
    entry.wr_id = wr.wr_id;
    entry.imm = wr.imm_data;
    // SAFETY: all members of the union are plain integers at these offsets.
    unsafe {
        match entry.opcode {
            Opcode::CompareSwap | Opcode::FetchAdd => {
                entry.remote_address = wr.wr.atomic.remote_addr;
                entry.rkey = wr.wr.atomic.rkey;
                entry.compare_add = wr.wr.atomic.compare_add;
                entry.swap = wr.wr.atomic.swap;
            }
            _ => {
                entry.remote_address = wr.wr.rdma.remote_addr;
                entry.rkey = wr.wr.rdma.rkey;
            }
        }
    }
    // SAFETY: the caller's promise.
    let sges = unsafe { elements(wr.sg_list, wr.num_sge, qp.init.max_send_sge)? };
    pieces.count = 0;
    if entry.flags.contains(SendFlags::INLINE) {
        entry.sge_count = 0;
        pieces.put(sges);
    } else {
        entry.sge_count = put_elements(sges, &mut entry.sges);
    }
    Ok(())
}

/// Posts the list at `*at`, which is left at the request that failed.
///
/// # Safety
/// `qp` is null or live; the list is readable.
unsafe fn send_list(qp: *mut Qp, at: &mut *mut SendWr) -> Result<(), Errno> {
    // SAFETY: the caller's handle.
    let qp = unsafe { QpObject::find(qp)? };
    let mut entry = SendEntry::default();
    let mut pieces = Pieces { list: [(0, 0); SEND_SGE_MAX], count: 0 };
    let mut posts = qp.inner.post_sends();
    // SAFETY: the caller's list.
    while let Ok(wr) = unsafe { object(*at) } {
        // SAFETY: the caller's elements, and inline data that they name.
        unsafe {
            send_entry(wr, qp, &mut entry, &mut pieces)?;
            let inline = &pieces.list[..pieces.count];
            posts.push(&mut entry, inline).map_err(|error| post_errno("ibv_post_send", error))?;
        }
        *at = wr.next;
    }
    Ok(())
}

/// Posts the list at `*at`, which is left at the request that failed.
///
/// # Safety
/// `qp` is null or live; the list is readable.
unsafe fn recv_list(qp: *mut Qp, at: &mut *mut RecvWr) -> Result<(), Errno> {
    // SAFETY: the caller's handle.
    let qp = unsafe { QpObject::find(qp)? };
    let mut entry = RecvEntry { wr_id: 0, sge_count: 0, sges: [Sge::default(); RECV_SGE_MAX] };
    let mut posts = qp.inner.post_recvs();
    // SAFETY: the caller's list.
    while let Ok(wr) = unsafe { object(*at) } {
        // SAFETY: the caller's elements.
        let sges = unsafe { elements(wr.sg_list, wr.num_sge, qp.init.max_recv_sge)? };
        entry.wr_id = wr.wr_id;
        entry.sge_count = put_elements(sges, &mut entry.sges);
        posts.push(&entry).map_err(|error| post_errno("ibv_post_recv", error))?;
        *at = wr.next;
    }
    Ok(())
}

/// Runs `body`; a panic becomes EIO and an error of the queue pair.
///
/// # Safety
/// `qp` is null or live.
pub(crate) unsafe fn guarded<T>(qp: *mut Qp, body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        // SAFETY: the caller's handle.
        if let Ok(qp) = unsafe { QpObject::find(qp) } {
            qp.fail();
        }
        Err(Errno::EIO)
    })
}

/// `ibv_post_send`.
///
/// # Safety
/// As `ibv_post_send`.
pub(crate) unsafe extern "C" fn post_send(qp: *mut Qp, wr: *mut SendWr, bad_wr: *mut *mut SendWr) -> c_int {
    let mut at = wr;
    // SAFETY: what the manual page asks of callers.
    let result = unsafe { guarded(qp, || send_list(qp, &mut at)) };
    if result.is_err() {
        // SAFETY: the caller's place.
        unsafe { store(bad_wr, at) };
    }
    positive(result)
}

/// `ibv_post_recv`.
///
/// # Safety
/// As `ibv_post_recv`.
pub(crate) unsafe extern "C" fn post_recv(qp: *mut Qp, wr: *mut RecvWr, bad_wr: *mut *mut RecvWr) -> c_int {
    let mut at = wr;
    // SAFETY: what the manual page asks of callers.
    let result = unsafe { guarded(qp, || recv_list(qp, &mut at)) };
    if result.is_err() {
        // SAFETY: the caller's place.
        unsafe { store(bad_wr, at) };
    }
    positive(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_ours_refused_or_unknown() {
        let ours = [
            Opcode::Write,
            Opcode::WriteImm,
            Opcode::Send,
            Opcode::SendImm,
            Opcode::Read,
            Opcode::CompareSwap,
            Opcode::FetchAdd,
        ];
        for (code, expected) in ours.into_iter().enumerate() {
            assert_eq!(opcode(code as u32), Ok(expected));
        }
        for code in [7, 8, 9, 10, 11, 14, 15] {
            assert_eq!(opcode(code), Err(Errno::EOPNOTSUPP), "{code}");
        }
        for code in [12, 13, 16, u32::MAX] {
            assert_eq!(opcode(code), Err(Errno::EINVAL), "{code}");
        }
    }

    #[test]
    fn inline_is_for_data_that_is_sent() {
        for (flags, opcode, ok) in [
            (0xf, Opcode::Send, true),
            (0xf, Opcode::WriteImm, true),
            (c::SEND_INLINE, Opcode::Read, false),
            (c::SEND_INLINE, Opcode::FetchAdd, false),
            (c::SEND_FENCE | c::SEND_SIGNALED, Opcode::Read, true),
            (1 << 4, Opcode::Send, false), // IP checksums
            (1 << 31, Opcode::Send, false),
        ] {
            assert_eq!(send_flags(flags, opcode).is_ok(), ok, "{flags:#x} {opcode:?}");
        }
        let all = send_flags(0xf, Opcode::Send);
        assert_eq!(all, Ok(SendFlags(0xf)));
    }

    #[test]
    fn element_counts_are_checked_and_empty_elements_left_out() {
        let list = [
            CSge { addr: 1, length: 0, lkey: 99 },
            CSge { addr: 2, length: 5, lkey: 3 },
            CSge { addr: 0, length: 0, lkey: 0 },
        ];
        // SAFETY: `list` holds as many elements as any accepted count.
        unsafe {
            assert_eq!(elements(list.as_ptr(), 3, 3).map(<[CSge]>::len), Ok(3));
            assert_eq!(elements(std::ptr::null(), 0, 3).map(<[CSge]>::len), Ok(0));
            for (pointer, count, max) in
                [(list.as_ptr(), 4, 3), (list.as_ptr(), -1, 3), (std::ptr::null(), 1, 3)]
            {
                assert_eq!(elements(pointer, count, max).map(<[CSge]>::len), Err(Errno::EINVAL));
            }
        }
        let mut out = [Sge::default(); 3];
        assert_eq!(put_elements(&list, &mut out), 1);
        assert_eq!(out[0], Sge { address: 2, length: 5, lkey: 3 });
    }

    #[test]
    fn each_refusal_has_its_errno() {
        for (error, errno) in [
            (PostError::Full, libc::ENOMEM),
            (PostError::Inline { given: 65, max: 64 }, libc::EINVAL),
            (PostError::Elements { given: 2, max: 1 }, libc::EINVAL),
            (PostError::State, libc::EINVAL),
            (PostError::Gone, libc::EIO),
        ] {
            assert_eq!(post_errno("test", error), Errno(errno));
        }
    }
}
