//! Which transitions an RC queue pair knows, and which attributes each takes.
//!
//! The table is that of ibv_modify_qp(3) and IBTA 10.3.1 for reliable connections. A transition with
//! an attribute that it does not take, or without one that it needs, changes nothing.

use srdma_abi::control::LIMITS;
use srdma_abi::{QpAttributes, QpMask, QpState};
use srdma_seams::Qpn;

use crate::ControlError;

/// One row: from where to where, with what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transition {
    /// State before.
    pub from: QpState,
    /// State after.
    pub to: QpState,
    /// Attributes that must be given, besides the state.
    pub required: QpMask,
    /// Attributes that may be given.
    pub optional: QpMask,
}

const fn mask(bits: &[QpMask]) -> QpMask {
    let mut all = 0;
    let mut i = 0;
    while i < bits.len() {
        all |= bits[i].0;
        i += 1;
    }
    QpMask(all)
}

const NONE: QpMask = QpMask(0);
const TO_INIT: QpMask = mask(&[QpMask::PKEY_INDEX, QpMask::PORT, QpMask::ACCESS_FLAGS]);
const TO_RTR: QpMask = mask(&[
    QpMask::AV,
    QpMask::PATH_MTU,
    QpMask::DEST_QPN,
    QpMask::RQ_PSN,
    QpMask::MAX_DEST_RD_ATOMIC,
    QpMask::MIN_RNR_TIMER,
]);
const TO_RTR_MAY: QpMask = mask(&[QpMask::PKEY_INDEX, QpMask::ACCESS_FLAGS, QpMask::ALT_PATH]);
const TO_RTS: QpMask =
    mask(&[QpMask::SQ_PSN, QpMask::TIMEOUT, QpMask::RETRY_CNT, QpMask::RNR_RETRY, QpMask::MAX_QP_RD_ATOMIC]);
const RUNNING_MAY: QpMask = mask(&[
    QpMask::CUR_STATE,
    QpMask::ACCESS_FLAGS,
    QpMask::MIN_RNR_TIMER,
    QpMask::ALT_PATH,
    QpMask::PATH_MIG_STATE,
]);
const DRAINED_MAY: QpMask = mask(&[
    QpMask::PKEY_INDEX,
    QpMask::PORT,
    QpMask::ACCESS_FLAGS,
    QpMask::AV,
    QpMask::MAX_QP_RD_ATOMIC,
    QpMask::MAX_DEST_RD_ATOMIC,
    QpMask::MIN_RNR_TIMER,
    QpMask::ALT_PATH,
    QpMask::TIMEOUT,
    QpMask::RETRY_CNT,
    QpMask::RNR_RETRY,
    QpMask::PATH_MIG_STATE,
]);

/// Every transition but those to RESET and ERR, which all states allow with no attributes.
pub(crate) const TABLE: &[Transition] = &[
    row(QpState::Reset, QpState::Init, TO_INIT, NONE),
    row(QpState::Init, QpState::Init, NONE, TO_INIT),
    row(QpState::Init, QpState::Rtr, TO_RTR, TO_RTR_MAY),
    row(QpState::Rtr, QpState::Rts, TO_RTS, RUNNING_MAY),
    row(QpState::Rts, QpState::Rts, NONE, RUNNING_MAY),
    row(QpState::Rts, QpState::Sqd, NONE, QpMask::EN_SQD_ASYNC_NOTIFY),
    row(QpState::Sqd, QpState::Sqd, NONE, DRAINED_MAY),
    row(QpState::Sqd, QpState::Rts, NONE, RUNNING_MAY),
];

const fn row(from: QpState, to: QpState, required: QpMask, optional: QpMask) -> Transition {
    Transition { from, to, required, optional }
}

/// The state to go to, if the transition exists and `given` fits it.
pub(crate) fn check(
    from: QpState,
    attributes: &QpAttributes,
    given: QpMask,
) -> Result<QpState, ControlError> {
    let to = if given.contains(QpMask::STATE) { attributes.state } else { from };
    let refuse = |why| Err(ControlError::Transition { from, to, why });
    if given.contains(QpMask::CUR_STATE) && attributes.cur_state != from {
        return refuse("the queue pair is not in cur_qp_state");
    }
    let given = given.0 & !QpMask::STATE.0;
    if matches!(to, QpState::Reset | QpState::Err) {
        return match given & !QpMask::CUR_STATE.0 {
            0 => Ok(to),
            _ => refuse("this transition takes no attributes"),
        };
    }
    let Some(row) = TABLE.iter().find(|row| row.from == from && row.to == to) else {
        return refuse("there is no such transition");
    };
    if row.required.0 & !given != 0 {
        return refuse(missing(row.required.0 & !given));
    }
    if given & !(row.required.0 | row.optional.0) != 0 {
        return refuse("the mask has attributes that this transition does not take");
    }
    Ok(to)
}

fn missing(bits: u32) -> &'static str {
    const NAMES: &[(QpMask, &str)] = &[
        (QpMask::PKEY_INDEX, "IBV_QP_PKEY_INDEX is missing"),
        (QpMask::PORT, "IBV_QP_PORT is missing"),
        (QpMask::ACCESS_FLAGS, "IBV_QP_ACCESS_FLAGS is missing"),
        (QpMask::AV, "IBV_QP_AV is missing"),
        (QpMask::PATH_MTU, "IBV_QP_PATH_MTU is missing"),
        (QpMask::DEST_QPN, "IBV_QP_DEST_QPN is missing"),
        (QpMask::RQ_PSN, "IBV_QP_RQ_PSN is missing"),
        (QpMask::MAX_DEST_RD_ATOMIC, "IBV_QP_MAX_DEST_RD_ATOMIC is missing"),
        (QpMask::MIN_RNR_TIMER, "IBV_QP_MIN_RNR_TIMER is missing"),
        (QpMask::SQ_PSN, "IBV_QP_SQ_PSN is missing"),
        (QpMask::TIMEOUT, "IBV_QP_TIMEOUT is missing"),
        (QpMask::RETRY_CNT, "IBV_QP_RETRY_CNT is missing"),
        (QpMask::RNR_RETRY, "IBV_QP_RNR_RETRY is missing"),
        (QpMask::MAX_QP_RD_ATOMIC, "IBV_QP_MAX_QP_RD_ATOMIC is missing"),
    ];
    NAMES.iter().find(|(bit, _)| bits & bit.0 != 0).map_or("an attribute is missing", |(_, name)| name)
}

/// Checks the value of every attribute given.
pub(crate) fn check_values(attributes: &QpAttributes, given: QpMask) -> Result<(), ControlError> {
    let rules: &[(QpMask, bool, &'static str)] = &[
        (QpMask::PKEY_INDEX, attributes.pkey_index == 0, "pkey_index must be 0"),
        (QpMask::PORT, attributes.port == 1, "port_num must be 1"),
        (QpMask::AV, attributes.sgid_index == 0, "sgid_index must be 0: a device has one GID"),
        (QpMask::PATH_MTU, (1..=5).contains(&attributes.path_mtu), "path_mtu must be IBV_MTU_256 to 4096"),
        (QpMask::TIMEOUT, attributes.timeout <= 31, "timeout must be 0 to 31"),
        (QpMask::RETRY_CNT, attributes.retry_cnt <= 7, "retry_cnt must be 0 to 7"),
        (QpMask::RNR_RETRY, attributes.rnr_retry <= 7, "rnr_retry must be 0 to 7"),
        (QpMask::MIN_RNR_TIMER, attributes.min_rnr_timer <= 31, "min_rnr_timer must be 0 to 31"),
        (QpMask::ALT_PATH, false, "alternate paths are not supported: all paths are used all the time"),
        (
            QpMask::MAX_QP_RD_ATOMIC,
            attributes.max_rd_atomic <= LIMITS.max_rd_atomic,
            "max_rd_atomic exceeds the device's max_qp_init_rd_atom",
        ),
        (
            QpMask::MAX_DEST_RD_ATOMIC,
            attributes.max_dest_rd_atomic <= LIMITS.max_rd_atomic,
            "max_dest_rd_atomic exceeds the device's max_qp_rd_atom",
        ),
        (
            QpMask::DEST_QPN,
            Qpn(attributes.dest_qpn).is_usable(),
            "dest_qp_num is no number that a queue pair can have",
        ),
    ];
    match rules.iter().find(|(bit, fine, _)| given.contains(*bit) && !fine) {
        Some((_, _, why)) => Err(ControlError::Invalid(why)),
        None => Ok(()),
    }
}

/// Copies the attributes that `given` names.
pub(crate) fn apply(to: &mut QpAttributes, from: &QpAttributes, given: QpMask) {
    let has = |bit| given.contains(bit);
    if has(QpMask::ACCESS_FLAGS) {
        to.access = from.access;
    }
    if has(QpMask::PKEY_INDEX) {
        to.pkey_index = from.pkey_index;
    }
    if has(QpMask::PORT) {
        to.port = from.port;
    }
    if has(QpMask::AV) {
        to.dest_gid = from.dest_gid;
        to.has_gid = from.has_gid;
        to.sgid_index = from.sgid_index;
        to.traffic_class = from.traffic_class;
        to.hop_limit = from.hop_limit;
        to.sl = from.sl;
    }
    if has(QpMask::PATH_MTU) {
        to.path_mtu = from.path_mtu;
    }
    if has(QpMask::TIMEOUT) {
        to.timeout = from.timeout;
    }
    if has(QpMask::RETRY_CNT) {
        to.retry_cnt = from.retry_cnt;
    }
    if has(QpMask::RNR_RETRY) {
        to.rnr_retry = from.rnr_retry;
    }
    if has(QpMask::RQ_PSN) {
        to.rq_psn = from.rq_psn & 0xff_ffff;
    }
    if has(QpMask::SQ_PSN) {
        to.sq_psn = from.sq_psn & 0xff_ffff;
    }
    if has(QpMask::MAX_QP_RD_ATOMIC) {
        to.max_rd_atomic = from.max_rd_atomic;
    }
    if has(QpMask::MAX_DEST_RD_ATOMIC) {
        to.max_dest_rd_atomic = from.max_dest_rd_atomic;
    }
    if has(QpMask::MIN_RNR_TIMER) {
        to.min_rnr_timer = from.min_rnr_timer;
    }
    if has(QpMask::DEST_QPN) {
        to.dest_qpn = from.dest_qpn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [QpState; 7] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];
    const BITS: [u32; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];

    /// The table once more, as an independent list of bit numbers from the man page and verbs.h.
    fn expected(from: QpState, to: QpState) -> Option<(&'static [u32], &'static [u32])> {
        use QpState::*;
        Some(match (from, to) {
            (_, Reset) | (_, Err) => (&[], &[1]),
            (Reset, Init) => (&[3, 4, 5], &[]),
            (Init, Init) => (&[], &[3, 4, 5]),
            (Init, Rtr) => (&[7, 8, 12, 15, 17, 20], &[3, 4, 14]),
            (Rtr, Rts) => (&[9, 10, 11, 13, 16], &[1, 3, 14, 15, 18]),
            (Rts, Rts) => (&[], &[1, 3, 14, 15, 18]),
            (Rts, Sqd) => (&[], &[2]),
            (Sqd, Rts) => (&[], &[1, 3, 14, 15, 18]),
            (Sqd, Sqd) => (&[], &[3, 4, 5, 7, 9, 10, 11, 13, 14, 15, 17, 18]),
            _ => return None,
        })
    }

    fn bits(list: &[u32]) -> u32 {
        list.iter().map(|bit| 1 << bit).sum()
    }

    #[test]
    fn every_pair_of_states_with_every_mask_off_by_one_attribute() {
        for from in STATES {
            for to in STATES {
                let attributes = QpAttributes { state: to, cur_state: from, ..QpAttributes::default() };
                let try_mask = |mask: u32| check(from, &attributes, QpMask(mask | 1)).is_ok();
                let Some((required, optional)) = expected(from, to) else {
                    for mask in [0, bits(&[3, 4, 5]), (1 << 21) - 1] {
                        assert!(!try_mask(mask), "{from:?} {to:?} {mask:#x}");
                    }
                    continue;
                };
                let required_bits = bits(required);
                assert!(try_mask(required_bits), "{from:?} → {to:?} with what it needs");
                for bit in BITS {
                    let (needed, allowed) = (required.contains(&bit), optional.contains(&bit));
                    assert_eq!(
                        try_mask(required_bits ^ (1 << bit)),
                        allowed && !needed,
                        "{from:?} → {to:?} bit {bit}"
                    );
                }
                assert!(try_mask(required_bits | bits(optional)), "{from:?} → {to:?} with all it may have");
            }
        }
    }

    #[test]
    fn a_wrong_current_state_is_refused() {
        let attributes =
            QpAttributes { state: QpState::Rts, cur_state: QpState::Sqd, ..QpAttributes::default() };
        assert!(check(QpState::Rts, &attributes, QpMask::STATE.with(QpMask::CUR_STATE)).is_err());
        assert!(check(QpState::Sqd, &attributes, QpMask::STATE.with(QpMask::CUR_STATE)).is_ok());
    }

    #[test]
    fn without_a_state_attributes_change_in_place() {
        let attributes = QpAttributes::default();
        assert_eq!(check(QpState::Rts, &attributes, QpMask::ACCESS_FLAGS), Ok(QpState::Rts));
        assert!(check(QpState::Rtr, &attributes, QpMask::ACCESS_FLAGS).is_err());
    }

    #[test]
    fn values_out_of_range_are_refused_only_if_given() {
        let bad = QpAttributes {
            pkey_index: 1,
            port: 2,
            sgid_index: 1,
            path_mtu: 6,
            timeout: 32,
            retry_cnt: 8,
            rnr_retry: 8,
            min_rnr_timer: 32,
            max_rd_atomic: 17,
            max_dest_rd_atomic: 17,
            dest_qpn: 0xff_ffff,
            ..QpAttributes::default()
        };
        for bit in [4, 5, 7, 8, 9, 10, 11, 13, 14, 15, 17, 20] {
            assert!(check_values(&bad, QpMask(1 << bit)).is_err(), "bit {bit}");
        }
        assert!(check_values(&bad, QpMask::STATE.with(QpMask::ACCESS_FLAGS)).is_ok());
    }
}
