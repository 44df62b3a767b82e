//! Queue pairs: making, changing, querying and removing them.

use crate::abi_c::attributes::{AhAttr, QpAttr, QpCap, QpInitAttr, QpInitAttrEx};
use crate::abi_c::constants as c;
use crate::abi_c::context::Context;
use crate::abi_c::objects::{Pd, Qp, QpEx};
use crate::abi_c::Plain;
use crate::border::{caught, export, invalid, object, pointer, refused, say, store, unsupported, Errno};
use crate::context::ContextObject;
use crate::cq::CqObject;
use crate::events::Acks;
use crate::handles::{self, Handle, Ref};
use crate::qp_ex::{self, Builder};
use libc::{c_int, c_void};
use srdma_client::abi::{Access, DeviceLimits, QpAttributes, QpInit, QpMask, QpState};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A queue pair. The C part, always in its extended form, comes first, our own behind it.
#[repr(C)]
pub(crate) struct QpObject {
    pub(crate) c: UnsafeCell<QpEx>,
    /// `wr_flush` of the C struct since v50; not supported.
    wr_flush: *mut c_void,
    pub(crate) inner: srdma_client::Qp,
    /// It was removed; only programs that use a handle after that see it.
    gone: AtomicBool,
    pub(crate) acks: Arc<Acks>,
    /// What it got, which may be more than was asked for.
    pub(crate) init: QpInit,
    /// State of `ibv_wr_start` … `ibv_wr_complete`; `None` unless asked for.
    pub(crate) builder: Option<Builder>,
}

impl Handle for QpObject {
    fn retire(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.inner.ring_bytes()
    }
}

impl QpObject {
    /// The live queue pair behind a handle.
    pub(crate) fn known(qp: *mut Qp) -> Result<Ref<QpObject>, Errno> {
        handles::find(qp.cast_const().cast())
    }

    /// The queue pair behind a handle that an inline function of the header has followed already: EINVAL for one
    /// that was removed. For the data path: it costs one load.
    ///
    /// # Safety
    /// A non-null `qp` is live, or in its grave.
    pub(crate) unsafe fn find<'a>(qp: *mut Qp) -> Result<&'a QpObject, Errno> {
        // SAFETY: the caller's promise; all queue pairs are `QpObject`s.
        let found = unsafe { object(qp.cast::<QpObject>())? };
        if found.gone.load(Ordering::Relaxed) {
            return Err(Errno::EINVAL);
        }
        Ok(found)
    }

    /// After a fault of ours: nothing more is to be expected of this queue pair.
    pub(crate) fn fail(&self) {
        let error = QpAttributes { state: QpState::Err, ..QpAttributes::default() };
        let _ = caught(|| self.inner.modify(&error, QpMask::STATE).map_err(refused("post")));
    }
}

fn check_limits(call: &str, cap: &QpCap, limits: &DeviceLimits) -> Result<(), Errno> {
    let rows = [
        ("max_send_wr", cap.max_send_wr, limits.max_qp_wr),
        ("max_recv_wr", cap.max_recv_wr, limits.max_qp_wr),
        ("max_send_sge", cap.max_send_sge, limits.max_sge),
        ("max_recv_sge", cap.max_recv_sge, limits.max_sge),
        ("max_inline_data", cap.max_inline_data, limits.max_inline_data),
    ];
    for (name, wanted, max) in rows {
        if wanted > max {
            return Err(invalid(call, &format!("{name} is {wanted}, at most {max} allowed")));
        }
    }
    Ok(())
}

fn capacity(init: &QpInit) -> QpCap {
    QpCap {
        max_send_wr: init.max_send_wr,
        max_recv_wr: init.max_recv_wr,
        max_send_sge: init.max_send_sge,
        max_recv_sge: init.max_recv_sge,
        max_inline_data: init.max_inline_data,
    }
}

/// Makes a queue pair; `send_ops` are the operations that the program will build with `ibv_wr_start`.
///
/// # Safety
/// `pd` and the handles in `attr` are null or live.
unsafe fn create(
    call: &str,
    pd: *mut Pd,
    attr: &QpInitAttr,
    send_ops: Option<u64>,
) -> Result<*mut QpObject, Errno> {
    let domain = handles::find::<Pd>(pd.cast_const().cast())?;
    let (number, context) = (domain.handle, ContextObject::find(domain.context)?);
    if attr.qp_type != c::QPT_RC {
        return Err(unsupported(call, &format!("queue pair type {}; only RC", attr.qp_type)));
    }
    if !attr.srq.is_null() {
        return Err(unsupported(call, "shared receive queues"));
    }
    let (send_cq, recv_cq) = (CqObject::known(attr.send_cq)?, CqObject::known(attr.recv_cq)?);
    // SAFETY: both are live.
    let contexts = unsafe { [(*attr.send_cq).context, (*attr.recv_cq).context] };
    if contexts.iter().any(|other| *other != context.handle()) {
        return Err(invalid(call, "a completion queue is of another context"));
    }
    check_limits(call, &attr.cap, &context.device.limits())?;
    let init = QpInit {
        pd: number,
        send_cq: send_cq.inner.number(),
        recv_cq: recv_cq.inner.number(),
        max_send_wr: attr.cap.max_send_wr,
        max_recv_wr: attr.cap.max_recv_wr,
        max_send_sge: attr.cap.max_send_sge,
        max_recv_sge: attr.cap.max_recv_sge,
        max_inline_data: attr.cap.max_inline_data,
        sq_sig_all: attr.sq_sig_all != 0,
    };
    let inner = context.device.create_qp(&init).map_err(refused(call))?;
    let mut c = QpEx::zeroed();
    if send_ops.is_some() {
        qp_ex::fill(&mut c);
    }
    let base = &mut c.qp_base;
    base.context = context.handle();
    base.qp_context = attr.qp_context;
    base.pd = pd;
    base.send_cq = attr.send_cq;
    base.recv_cq = attr.recv_cq;
    base.qp_num = inner.number();
    base.handle = base.qp_num;
    base.qp_type = attr.qp_type;
    base.state = QpState::Reset as u32;
    let number = base.qp_num;
    let qp = QpObject {
        c: UnsafeCell::new(c),
        wr_flush: std::ptr::null_mut(),
        init: inner.init(),
        inner,
        gone: AtomicBool::new(false),
        acks: Arc::default(),
        builder: send_ops.map(|_| Builder::default()),
    };
    let qp = handles::publish(qp, context.handle().addr())?;
    context.live().qps.insert(number, qp);
    Ok(qp)
}

/// # Safety
/// `context` and `attr` are null or live.
unsafe fn create_ex(context: *mut Context, attr: *mut QpInitAttrEx) -> Result<*mut Qp, Errno> {
    const CALL: &str = "ibv_create_qp_ex";
    const MASK: u32 = c::QP_INIT_ATTR_PD | c::QP_INIT_ATTR_CREATE_FLAGS | c::QP_INIT_ATTR_SEND_OPS_FLAGS;
    // SAFETY: the caller's handles.
    let (context, given) = unsafe { (ContextObject::find(context)?, object(attr)?) };
    if given.comp_mask & !MASK != 0 {
        return Err(unsupported(CALL, &format!("comp_mask {:#x}", given.comp_mask & !MASK)));
    }
    if given.comp_mask & c::QP_INIT_ATTR_PD == 0 {
        return Err(invalid(CALL, "comp_mask lacks IBV_QP_INIT_ATTR_PD"));
    }
    if given.comp_mask & c::QP_INIT_ATTR_CREATE_FLAGS != 0 && given.create_flags != 0 {
        return Err(unsupported(CALL, &format!("create_flags {:#x}", given.create_flags)));
    }
    let send_ops = (given.comp_mask & c::QP_INIT_ATTR_SEND_OPS_FLAGS != 0).then_some(given.send_ops_flags);
    if send_ops.is_some_and(|ops| ops & !qp_ex::OPERATIONS != 0) {
        return Err(unsupported(CALL, &format!("send_ops_flags {:#x}", given.send_ops_flags)));
    }
    if handles::find::<Pd>(given.pd.cast_const().cast())?.context != context.handle() {
        return Err(invalid(CALL, "the protection domain is of another context"));
    }
    let basic = QpInitAttr {
        qp_context: given.qp_context,
        send_cq: given.send_cq,
        recv_cq: given.recv_cq,
        srq: given.srq,
        cap: given.cap,
        qp_type: given.qp_type,
        sq_sig_all: given.sq_sig_all,
    };
    // SAFETY: the caller's handles; the attributes are writable.
    unsafe {
        let qp = create(CALL, given.pd, &basic, send_ops)?;
        (*attr).cap = capacity(&(*qp).init);
        Ok(qp.cast())
    }
}

/// `create_qp_ex` of the extended context.
///
/// # Safety
/// As `ibv_create_qp_ex`.
pub(crate) unsafe extern "C" fn create_qp_ex(context: *mut Context, attr: *mut QpInitAttrEx) -> *mut Qp {
    // SAFETY: what the manual page asks of callers.
    pointer(caught(|| unsafe { create_ex(context, attr) }))
}

/// Says once what programs written for InfiniBand need here.
fn hint_at_gid() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        say("the peer's address has no GID; this device needs one (try the program's option -g 0, or -x 0)");
    }
}

fn gid_bytes(words: [u64; 2]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&words[0].to_ne_bytes());
    gid[8..].copy_from_slice(&words[1].to_ne_bytes());
    gid
}

fn gid_words(gid: [u8; 16]) -> [u64; 2] {
    let [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7] = gid;
    [
        u64::from_ne_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
        u64::from_ne_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
    ]
}

/// Bits of `enum ibv_qp_attr_mask` that mean something here; path migration and rate limits do not.
const KNOWN_MASK: u32 = ((1 << 21) - 1) & !(QpMask::ALT_PATH.0 | QpMask::PATH_MIG_STATE.0 | QpMask::CAP.0);

/// Packet sequence numbers have 24 bits; more are cut off, as devices do.
const PSN_MASK: u32 = 0x00ff_ffff;

/// The attributes that `mask` names. Fields it does not name may hold anything, so they are not read.
fn attributes(attr: &QpAttr, mask: u32) -> Result<QpAttributes, Errno> {
    const CALL: &str = "ibv_modify_qp";
    if mask & !KNOWN_MASK != 0 {
        return Err(unsupported(CALL, &format!("attribute mask {:#x}", mask & !KNOWN_MASK)));
    }
    let has = |bit: QpMask| mask & bit.0 != 0;
    let state = |code| QpState::from_code(code).ok_or_else(|| invalid(CALL, "no such state"));
    let mut out = QpAttributes::default();
    if has(QpMask::STATE) {
        out.state = state(attr.qp_state)?;
    }
    if has(QpMask::CUR_STATE) {
        out.cur_state = state(attr.cur_qp_state)?;
    }
    if has(QpMask::ACCESS_FLAGS) {
        out.access = Access(attr.qp_access_flags);
    }
    if has(QpMask::PKEY_INDEX) {
        out.pkey_index = attr.pkey_index;
    }
    if has(QpMask::PORT) {
        out.port = attr.port_num;
    }
    if has(QpMask::AV) {
        address_vector(&attr.ah_attr, &mut out)?;
    }
    if has(QpMask::PATH_MTU) {
        out.path_mtu = u8::try_from(attr.path_mtu).map_err(|_| invalid(CALL, "no such MTU"))?;
    }
    (out.sq_psn, out.rq_psn) = (attr.sq_psn & PSN_MASK, attr.rq_psn & PSN_MASK);
    out.dest_qpn = attr.dest_qp_num;
    out.timeout = attr.timeout;
    out.retry_cnt = attr.retry_cnt;
    out.rnr_retry = attr.rnr_retry;
    out.min_rnr_timer = attr.min_rnr_timer;
    out.max_rd_atomic = attr.max_rd_atomic;
    out.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    Ok(out)
}

fn address_vector(ah: &AhAttr, out: &mut QpAttributes) -> Result<(), Errno> {
    if ah.is_global == 0 {
        hint_at_gid();
        return Err(Errno::EINVAL);
    }
    out.has_gid = true;
    out.dest_gid = gid_bytes(ah.grh.dgid);
    out.sgid_index = ah.grh.sgid_index;
    out.traffic_class = ah.grh.traffic_class;
    out.hop_limit = ah.grh.hop_limit;
    out.sl = ah.sl;
    Ok(())
}

fn shown(from: &QpAttributes, init: &QpInit) -> QpAttr {
    let mut attr = QpAttr::zeroed();
    attr.qp_state = from.state as u32;
    attr.cur_qp_state = from.state as u32;
    attr.path_mtu = from.path_mtu.into();
    attr.rq_psn = from.rq_psn;
    attr.sq_psn = from.sq_psn;
    attr.dest_qp_num = from.dest_qpn;
    attr.qp_access_flags = from.access.0;
    attr.cap = capacity(init);
    attr.ah_attr.grh.dgid = gid_words(from.dest_gid);
    attr.ah_attr.grh.sgid_index = from.sgid_index;
    attr.ah_attr.grh.hop_limit = from.hop_limit;
    attr.ah_attr.grh.traffic_class = from.traffic_class;
    attr.ah_attr.sl = from.sl;
    attr.ah_attr.is_global = from.has_gid.into();
    attr.ah_attr.port_num = from.port;
    attr.pkey_index = from.pkey_index;
    attr.max_rd_atomic = from.max_rd_atomic;
    attr.max_dest_rd_atomic = from.max_dest_rd_atomic;
    attr.min_rnr_timer = from.min_rnr_timer;
    attr.port_num = from.port;
    attr.timeout = from.timeout;
    attr.retry_cnt = from.retry_cnt;
    attr.rnr_retry = from.rnr_retry;
    attr
}

export! {
    /// Makes an RC queue pair and tells what it got.
    pointer fn ibv_create_qp(pd: *mut Pd, attr: *mut QpInitAttr) -> Qp {
        let qp = create("ibv_create_qp", pd, object(attr)?, None)?;
        (*attr).cap = capacity(&(*qp).init);
        Ok(qp.cast())
    }

    /// Changes attributes and state.
    errno fn ibv_modify_qp(qp: *mut Qp, attr: *mut QpAttr, mask: c_int) {
        let object_of_qp = QpObject::known(qp)?;
        let mask = mask as u32;
        let wanted = attributes(object(attr)?, mask)?;
        object_of_qp.inner.modify(&wanted, QpMask(mask)).map_err(refused("ibv_modify_qp"))?;
        if mask & QpMask::STATE.0 != 0 {
            (*qp).state = wanted.state as u32;
        }
        Ok(())
    }

    /// Shows attributes; all are filled, whatever the mask asks for.
    errno fn ibv_query_qp(qp: *mut Qp, attr: *mut QpAttr, _mask: c_int, init_attr: *mut QpInitAttr) {
        let found = QpObject::known(qp)?;
        let now = found.inner.query().map_err(refused("ibv_query_qp"))?;
        (*qp).state = now.state as u32;
        store(attr, shown(&now, &found.init));
        store(init_attr, QpInitAttr {
            qp_context: (*qp).qp_context,
            send_cq: (*qp).send_cq,
            recv_cq: (*qp).recv_cq,
            srq: std::ptr::null_mut(),
            cap: capacity(&found.init),
            qp_type: (*qp).qp_type,
            sq_sig_all: found.init.sq_sig_all.into(),
        });
        Ok(())
    }

    /// Removes it, when all its events are acknowledged. None of its completions follows.
    errno fn ibv_destroy_qp(qp: *mut Qp) {
        let claim = handles::claim::<QpObject>(qp.cast_const().cast())?;
        let found = &claim.object;
        let context = ContextObject::find((*qp).context)?;
        found.inner.destroy().map_err(refused("ibv_destroy_qp"))?;
        let mut live = context.live();
        if live.qps.get(&(*qp).qp_num).is_some_and(|known| std::ptr::eq(*known, &raw const **found)) {
            live.qps.remove(&(*qp).qp_num);
        }
        drop(live);
        found.acks.wait();
        claim.bury();
        Ok(())
    }

    /// The queue pair as what `ibv_wr_start` takes; null unless made with send operations.
    pointer fn ibv_qp_to_qp_ex(qp: *mut Qp) -> QpEx {
        let found = QpObject::known(qp)?;
        if found.builder.is_none() {
            return Err(Errno::EINVAL);
        }
        Ok(qp.cast())
    }

    /// Whether data is guaranteed to be written in order: not unless asked for.
    errno fn ibv_query_qp_data_in_order(_qp: *mut Qp, _op: u32, _flags: u32) { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attributes_that_the_mask_names_are_read() {
        let mut attr = QpAttr::zeroed();
        // What an uninitialised struct may hold.
        (attr.qp_state, attr.cur_qp_state, attr.path_mtu) = (77, 88, 99_999);
        assert!(attributes(&attr, 0).is_ok());
        for (bit, ok) in [(QpMask::STATE, false), (QpMask::CUR_STATE, false), (QpMask::PATH_MTU, false)] {
            assert_eq!(attributes(&attr, bit.0).is_ok(), ok, "{bit:?}");
        }
        attr.qp_state = 2;
        assert_eq!(attributes(&attr, 1).map(|a| a.state), Ok(QpState::Rtr));
    }

    #[test]
    fn an_address_without_a_gid_is_refused_and_one_with_a_gid_kept() {
        let mut attr = QpAttr::zeroed();
        attr.ah_attr.dlid = 5;
        assert_eq!(attributes(&attr, QpMask::AV.0), Err(Errno::EINVAL));
        let gid: [u8; 16] = std::array::from_fn(|i| i as u8 + 1);
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid = gid_words(gid);
        attr.ah_attr.grh.traffic_class = 3;
        let out = attributes(&attr, QpMask::AV.0);
        assert!(out.is_ok_and(|a| a.dest_gid == gid && a.has_gid && a.traffic_class == 3));
    }

    #[test]
    fn path_migration_rate_limits_and_unknown_bits_are_not_supported() {
        for mask in [QpMask::ALT_PATH.0, QpMask::PATH_MIG_STATE.0, QpMask::CAP.0, 1 << 25, 1 << 31] {
            assert_eq!(attributes(&QpAttr::zeroed(), mask), Err(Errno::EOPNOTSUPP), "{mask:#x}");
        }
    }

    #[test]
    fn what_is_set_is_shown() {
        let from = QpAttributes {
            state: QpState::Rts,
            dest_gid: [9; 16],
            has_gid: true,
            dest_qpn: 0x0123_45ab,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 6,
            min_rnr_timer: 12,
            max_rd_atomic: 3,
            max_dest_rd_atomic: 4,
            path_mtu: 3,
            sq_psn: 1,
            rq_psn: 2,
            access: Access::REMOTE_WRITE,
            ..QpAttributes::default()
        };
        let attr = shown(&from, &QpInit { max_send_wr: 10, ..QpInit::default() });
        assert_eq!((attr.qp_state, attr.dest_qp_num, attr.cap.max_send_wr), (3, 0x0123_45ab, 10));
        assert_eq!((attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer), (14, 7, 6, 12));
        assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.path_mtu), (3, 4, 3));
        assert_eq!((attr.sq_psn, attr.rq_psn, attr.qp_access_flags), (1, 2, 2));
        assert_eq!(gid_bytes(attr.ah_attr.grh.dgid), [9; 16]);
        assert_eq!(attr.ah_attr.is_global, 1);
    }

    #[test]
    fn absurd_capacities_are_refused_by_name() {
        let limits = srdma_client::abi::control::LIMITS;
        let fields: [fn(&mut QpCap) -> &mut u32; 5] = [
            |cap| &mut cap.max_send_wr,
            |cap| &mut cap.max_recv_wr,
            |cap| &mut cap.max_send_sge,
            |cap| &mut cap.max_recv_sge,
            |cap| &mut cap.max_inline_data,
        ];
        assert_eq!(check_limits("t", &QpCap::zeroed(), &limits), Ok(()));
        for field in fields {
            for value in [1 << 31, u32::MAX] {
                let mut cap = QpCap::zeroed();
                *field(&mut cap) = value;
                assert_eq!(check_limits("t", &cap, &limits), Err(Errno::EINVAL));
            }
        }
    }
}
