//! What comes back from a queue pair: one 64-byte completion per finished work request.

/// Operation that a completion reports, for sends and receives alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WcOpcode {
    /// A SEND finished.
    Send = 0,
    /// A WRITE finished.
    Write = 1,
    /// A READ finished.
    Read = 2,
    /// A compare-and-swap finished.
    CompareSwap = 3,
    /// A fetch-and-add finished.
    FetchAdd = 4,
    /// A receive was filled by a SEND.
    Recv = 5,
    /// A receive was consumed by a WRITE with immediate.
    RecvWriteImm = 6,
}

/// Bits of [`Completion::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct WcFlags(pub u8);

impl WcFlags {
    /// `imm` is valid.
    pub const IMM: WcFlags = WcFlags(1);
    /// The sender asked for a solicited event.
    pub const SOLICITED: WcFlags = WcFlags(2);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: WcFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One completion, as it lies in a completion ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Completion {
    /// The program's tag of the work request.
    pub wr_id: u64,
    /// QP whose work request this is.
    pub qpn: u32,
    /// Sender's QP, for receives.
    pub src_qpn: u32,
    /// [`crate::WcStatus`] as a number (the values of `ibv_wc_status`).
    pub status: u8,
    /// [`WcOpcode`] as a number; filled on errors too.
    pub opcode: u8,
    /// See [`WcFlags`].
    pub flags: WcFlags,
    /// Zero.
    pub reserved: u8,
    /// [`crate::Cause`] as a number: our reason, shown by `srdma explain`; 0 on success.
    pub vendor_err: u32,
    /// Bytes received, or read, or 8 for atomics.
    pub byte_len: u32,
    /// Immediate as the sender gave it.
    pub imm: u32,
    /// Monotonic nanoseconds when the completion was made.
    pub timestamp_ns: u64,
    /// Zero; pads the completion to a cache line.
    pub padding: [u64; 3],
}

/// Bytes of a completion in a ring.
pub const COMPLETION_BYTES: usize = 64;
const _: () = assert!(core::mem::size_of::<Completion>() == COMPLETION_BYTES);
