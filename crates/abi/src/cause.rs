//! The one table that says what each internal cause of failure looks like from outside.
//!
//! Every failure of a queue pair has a [`Cause`]. The table gives the work-completion status the
//! program sees, the `vendor_err` it can look up, what happened and what to do. `srdma explain CODE`
//! prints a row; a test reaches each one.

/// Work-completion status; the numbers are those of `enum ibv_wc_status` (verbs.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WcStatus {
    /// Done.
    Success = 0,
    /// A local buffer was too small for the message.
    LocLenErr = 1,
    /// The device could not carry out the request as posted.
    LocQpOpErr = 2,
    /// A local key, bound or permission is wrong.
    LocProtErr = 4,
    /// The QP was in the error state before this request started.
    WrFlushErr = 5,
    /// The responder refused the request as malformed or unsupported.
    RemInvReqErr = 9,
    /// The responder refused the key, bounds, access or protection domain.
    RemAccessErr = 10,
    /// The responder failed while carrying it out.
    RemOpErr = 11,
    /// No answer after `retry_cnt` time-outs.
    RetryExcErr = 12,
    /// The responder had no receive posted for `rnr_retry` attempts.
    RnrRetryExcErr = 13,
    /// The device itself failed.
    FatalErr = 19,
    /// Anything else.
    GeneralErr = 21,
}

/// Why something failed. The numbers are stable: programs see them as `vendor_err`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Cause {
    /// The program moved the QP to ERR, or destroyed it; outstanding requests are flushed.
    Flushed = 1,
    /// Local key unknown, stale, or of another protection domain.
    LocalKey = 2,
    /// Local address range outside its region.
    LocalBounds = 3,
    /// Local region lacks the access the operation needs (LOCAL_WRITE for READ results and receives).
    LocalAccess = 4,
    /// Local memory is no longer mapped, or protected.
    LocalFault = 5,
    /// The entry in the send ring is none: opcode, element count or length.
    BadEntry = 6,
    /// The message is longer than the receive it met.
    ReceiveTooSmall = 7,
    /// The local message is longer than `max_msg_sz`.
    MessageTooLong = 8,
    /// Atomic with a local buffer that is not 8 bytes, or remote address not 8-byte aligned.
    AtomicShape = 9,
    /// The peer refused: remote key unknown, stale, or of another protection domain.
    RemoteKey = 20,
    /// The peer refused: range outside the remote region.
    RemoteBounds = 21,
    /// The peer refused: remote region or QP lacks the access.
    RemoteAccess = 22,
    /// The peer refused: malformed or unsupported request.
    RemoteInvalid = 23,
    /// The peer failed while carrying it out: its memory is no longer mapped, or protected.
    RemoteFault = 24,
    /// The peer's receive was too small.
    RemoteReceiveTooSmall = 25,
    /// More READs and atomics at once than the responder allows.
    RemoteTooManyReads = 26,
    /// `retry_cnt` time-outs without any progress, after the handshake.
    NoAnswer = 40,
    /// The peer never answered the handshake.
    NoHandshake = 41,
    /// The peer said it is going away.
    PeerClosed = 42,
    /// The kernel has no route to the peer, or refuses to send.
    Unreachable = 43,
    /// The peer speaks another protocol version.
    Version = 44,
    /// `rnr_retry` attempts met no posted receive.
    RnrExceeded = 45,
    /// Packets of the connection's size no longer reach the peer, while smaller ones do.
    PathMtu = 46,
    /// The completion queue was full.
    CqOverrun = 60,
    /// Our own code failed; a bug worth reporting.
    Internal = 61,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The cause.
    pub cause: Cause,
    /// Status in the completion of the request that met it, at the side named by `side`.
    pub status: WcStatus,
    /// What happened, one sentence.
    pub what: &'static str,
    /// What to do, one sentence.
    pub remedy: &'static str,
}

macro_rules! rows {
    ($($cause:ident => $status:ident, $what:literal, $remedy:literal;)*) => {
        /// The whole table, in order of code.
        pub const TABLE: &[Row] = &[$(Row {
            cause: Cause::$cause,
            status: WcStatus::$status,
            what: $what,
            remedy: $remedy,
        }),*];
    };
}

rows! {
    Flushed => WrFlushErr, "The queue pair was in the error state, so the request was not carried out.",
        "Look at the first completion with another status: it names the cause.";
    LocalKey => LocProtErr, "A local key is unknown, was deregistered, or belongs to another protection domain.",
        "Use the lkey of a live region of the QP's own protection domain.";
    LocalBounds => LocProtErr, "A scatter-gather element reaches outside its memory region.",
        "Compare address and length with what was registered.";
    LocalAccess => LocProtErr, "The local region does not allow local writes.",
        "Register it with IBV_ACCESS_LOCAL_WRITE.";
    LocalFault => LocProtErr, "Registered local memory was unmapped or protected while in use.",
        "Deregister a region before unmapping it.";
    BadEntry => LocQpOpErr, "The posted entry is malformed.",
        "Check opcode, number of elements and inline length.";
    ReceiveTooSmall => LocLenErr, "A message arrived that is longer than the posted receive.",
        "Post larger receives or send smaller messages.";
    MessageTooLong => LocLenErr, "The message is longer than max_msg_sz.",
        "Split it; ibv_query_port names the limit.";
    AtomicShape => LocLenErr, "The local buffer of an atomic is not exactly 8 bytes.",
        "Give one element of 8 bytes.";
    RemoteKey => RemAccessErr, "The peer knows no such remote key in the QP's protection domain.",
        "Exchange the rkey again; it changes with every registration.";
    RemoteBounds => RemAccessErr, "The remote range reaches outside the peer's region.",
        "Compare address and length with what the peer registered.";
    RemoteAccess => RemAccessErr, "The peer's region or queue pair does not allow this operation.",
        "Register with, and set qp_access_flags to, the REMOTE access needed.";
    RemoteInvalid => RemInvReqErr, "The peer refused the request as malformed.",
        "An atomic needs an 8-byte aligned remote address; otherwise report a bug.";
    RemoteFault => RemOpErr, "The peer's registered memory was unmapped or protected.",
        "The peer must deregister before it unmaps.";
    RemoteReceiveTooSmall => RemInvReqErr, "The peer's posted receive was too small for the message.",
        "Agree on a message size with the peer.";
    RemoteTooManyReads => RemInvReqErr, "More READs and atomics were outstanding than the peer allows.",
        "Set max_rd_atomic no higher than the peer's max_dest_rd_atomic.";
    NoAnswer => RetryExcErr, "The peer stopped answering.",
        "See whether it still runs; `srdma check HOST` tests the way there.";
    NoHandshake => RetryExcErr, "The peer never answered at its address and port.",
        "Try `srdma check HOST`; look for a firewall, NAT, or a peer that has exited.";
    PeerClosed => RetryExcErr, "The peer's queue pair was destroyed or its process ended.",
        "Restart the peer and connect anew.";
    Unreachable => RetryExcErr, "The kernel cannot send to the peer's address.",
        "Check routes with `ip route get ADDRESS`.";
    Version => RetryExcErr, "The peer speaks another version of the Stellar protocol.",
        "Install the same release on both sides.";
    RnrExceeded => RnrRetryExcErr, "The peer had no receive posted for rnr_retry attempts.",
        "Post receives earlier, or set rnr_retry to 7 (no limit).";
    PathMtu => RetryExcErr, "Full-size packets no longer reach the peer while small ones do: the path's MTU became too small.",
        "Compare the MTUs along the path (`ip link`); `srdma check HOST` measures what gets through.";
    CqOverrun => GeneralErr, "A completion queue was full when a completion was due.",
        "Create it larger, or poll it more often.";
    Internal => FatalErr, "The software RNIC itself failed.",
        "Report it, with the output of --stats and --trace.";
}

/// Set in `vendor_err` and in events beside the code of a cause that did not happen but was injected by a plan of
/// faults: nobody shall take the one for the other.
pub const INJECTED: u16 = 0x8000;

impl Cause {
    /// How it is met and what the peer sees of it, one or two sentences.
    pub const fn met(self) -> &'static str {
        match self {
            Cause::Flushed => {
                "After ibv_modify_qp to ERR, or behind another failure; in order of posting. The peer is told nothing."
            }
            Cause::LocalKey | Cause::LocalBounds | Cause::LocalAccess => {
                "When the request was taken from its queue, or a message met the receive; no byte was moved. The sender \
                 of a message that met such a receive sees RemoteFault; otherwise the peer is told nothing."
            }
            Cause::LocalFault => {
                "When the kernel was asked to read or write the memory. What the message had already placed stays placed."
            }
            Cause::BadEntry | Cause::MessageTooLong | Cause::AtomicShape => {
                "When the request was taken from the send queue; nothing was sent. The peer is told nothing."
            }
            Cause::ReceiveTooSmall => "By the receive, at the responder. The sender sees RemoteReceiveTooSmall.",
            Cause::RemoteKey | Cause::RemoteBounds | Cause::RemoteAccess => {
                "The peer looked at its table when the first packet came, before a byte was moved, and sent a NAK. Its queue \
                 pair is in the error state, with the event IBV_EVENT_QP_ACCESS_ERR."
            }
            Cause::RemoteInvalid | Cause::RemoteTooManyReads => {
                "The peer judged the request before it carried it out, and sent a NAK. Its queue pair is in the error state, \
                 with the event IBV_EVENT_QP_REQ_ERR."
            }
            Cause::RemoteFault => {
                "When the peer's kernel was asked to read or write the memory; part of the message may be placed. The peer's \
                 queue pair is in the error state."
            }
            Cause::RemoteReceiveTooSmall => "The peer's receive completed with ReceiveTooSmall, and a NAK was sent.",
            Cause::NoAnswer => {
                "Every packet was sent again, on other paths too, for retry_cnt times the timeout, without any progress. \
                 The peer, if it lives, sees nothing."
            }
            Cause::NoHandshake => {
                "The handshake was repeated, in several sizes, for retry_cnt times the timeout; not one answer came."
            }
            Cause::PeerClosed => "The peer said goodbye (CLOSE) while requests were outstanding, or before they were posted.",
            Cause::Unreachable => "The kernel refused to send: no route, or an interface that is down.",
            Cause::Version => "The peer answered the handshake with another version number.",
            Cause::RnrExceeded => {
                "The peer refused the same message rnr_retry + 1 times, its RNR timer apart. The peer is told nothing."
            }
            Cause::PathMtu => "Probes of every size down to the least failed on paths that still carry small packets.",
            Cause::CqOverrun => {
                "When a completion was to be written: the queue pairs that use the queue fail, with the event \
                 IBV_EVENT_CQ_ERR. Peers whose messages could not be completed see NoAnswer."
            }
            Cause::Internal => "A panic was caught in our own code: all queue pairs of the device fail, with IBV_EVENT_QP_FATAL.",
        }
    }

    /// The row of this cause.
    pub fn row(self) -> &'static Row {
        let mut i = 0;
        while i + 1 < TABLE.len() && TABLE[i].cause as u16 != self as u16 {
            i += 1;
        }
        &TABLE[i]
    }

    /// Status that the program sees.
    pub fn status(self) -> WcStatus {
        self.row().status
    }

    /// The cause with this stable number, and whether it was injected (see [`INJECTED`]).
    pub fn from_vendor_err(vendor_err: u32) -> Option<(Cause, bool)> {
        let injected = u32::from(INJECTED);
        Cause::from_code(vendor_err & !injected).map(|cause| (cause, vendor_err & injected != 0))
    }

    /// The cause with this stable number.
    pub fn from_code(code: u32) -> Option<Cause> {
        TABLE.iter().map(|row| row.cause).find(|cause| *cause as u32 == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_finds_its_own_row_by_code() {
        for row in TABLE {
            assert_eq!(Cause::from_code(row.cause as u32), Some(row.cause));
            assert_eq!(row.cause.row().what, row.what);
            assert!(row.cause.met().ends_with('.') && !row.cause.met().contains("  "), "{}", row.cause.met());
        }
        assert_eq!(Cause::from_code(0), None);
    }

    #[test]
    fn an_injected_cause_is_told_from_one_that_happened() {
        for row in TABLE {
            let code = row.cause as u16;
            assert!(code & INJECTED == 0, "{code}");
            assert_eq!(Cause::from_vendor_err(u32::from(code)), Some((row.cause, false)));
            assert_eq!(Cause::from_vendor_err(u32::from(code | INJECTED)), Some((row.cause, true)));
        }
        assert_eq!(Cause::from_vendor_err(u32::from(INJECTED)), None);
    }

    #[test]
    fn codes_rise_and_never_repeat() {
        assert!(TABLE.windows(2).all(|w| (w[0].cause as u16) < w[1].cause as u16));
    }
}
