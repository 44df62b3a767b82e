//! Work-queue entries: 1 to 16 consecutive units of 64 bytes.
//!
//! A send entry's first unit holds the operation and one scatter-gather element; each further unit
//! holds four more. Inline data takes the place of the elements. A receive entry's first unit holds
//! three elements, each further unit four.

/// One unit of a work queue in bytes: a cache line.
pub const UNIT_BYTES: usize = 64;
/// Most units of one entry.
pub const UNITS_MAX: usize = 16;
/// Most scatter-gather elements of a send entry: 1 + 15 × 4.
pub const SEND_SGE_MAX: usize = 1 + (UNITS_MAX - 1) * 4;
/// Most scatter-gather elements of a receive entry: 3 + 15 × 4.
pub const RECV_SGE_MAX: usize = 3 + (UNITS_MAX - 1) * 4;
/// Most inline bytes of a send entry: 16 in the first unit and 64 in each further one.
pub const INLINE_MAX: usize = 16 + (UNITS_MAX - 1) * UNIT_BYTES;
/// Offset, within a send entry, of its elements or its inline data.
pub const SEND_BODY_OFFSET: usize = 48;
/// Offset, within a receive entry, of its elements.
pub const RECV_BODY_OFFSET: usize = 16;

/// Operation of a send entry. Codes are ours; `verbs` maps `ibv_wr_opcode` onto them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA WRITE.
    Write = 1,
    /// RDMA WRITE that also consumes a receive and delivers an immediate.
    WriteImm = 2,
    /// SEND.
    Send = 3,
    /// SEND with an immediate.
    SendImm = 4,
    /// RDMA READ.
    Read = 5,
    /// 64-bit compare and swap.
    CompareSwap = 6,
    /// 64-bit fetch and add.
    FetchAdd = 7,
}

impl Opcode {
    /// The operation with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<Opcode> {
        Some(match code {
            1 => Opcode::Write,
            2 => Opcode::WriteImm,
            3 => Opcode::Send,
            4 => Opcode::SendImm,
            5 => Opcode::Read,
            6 => Opcode::CompareSwap,
            7 => Opcode::FetchAdd,
            _ => return None,
        })
    }

    /// Whether the operation consumes one of the peer's receives.
    pub const fn consumes_receive(self) -> bool {
        matches!(self, Opcode::WriteImm | Opcode::Send | Opcode::SendImm)
    }

    /// Whether the peer answers with data, so that `max_rd_atomic` counts it.
    pub const fn is_read_or_atomic(self) -> bool {
        matches!(self, Opcode::Read | Opcode::CompareSwap | Opcode::FetchAdd)
    }
}

/// Bits of [`SendEntry::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct SendFlags(pub u8);

impl SendFlags {
    /// Deliver a completion when done (errors always do).
    pub const SIGNALED: SendFlags = SendFlags(1);
    /// Start only when all earlier READs and atomics of this queue are complete (IBTA 10.8.3.3).
    pub const FENCE: SendFlags = SendFlags(2);
    /// Raise a solicited event at the receiver.
    pub const SOLICITED: SendFlags = SendFlags(4);
    /// The body is `inline_len` bytes of data, not elements.
    pub const INLINE: SendFlags = SendFlags(8);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: SendFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    pub const fn with(self, other: SendFlags) -> SendFlags {
        SendFlags(self.0 | other.0)
    }
}

/// Scatter-gather element: `length` bytes at `address` under `lkey`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// First byte, an address in the memory region's I/O virtual address space.
    pub address: u64,
    /// Bytes; 0 means 0 here (the verbs door has already turned its 2³¹ rule around).
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// A send entry as a value, read from (or about to be written to) 1–16 units.
///
/// [`SendEntry::decode`] copies and validates: an entry that decodes has a known opcode, and lengths
/// that fit its units. Keys and addresses are still anybody's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendEntry {
    /// The operation.
    pub opcode: Opcode,
    /// See [`SendFlags`].
    pub flags: SendFlags,
    /// The program's tag, returned in the completion.
    pub wr_id: u64,
    /// Immediate, as the program gave it (network order bytes in a `u32`), for the Imm operations.
    pub imm: u32,
    /// First remote byte for WRITE, READ and atomics.
    pub remote_address: u64,
    /// Remote key.
    pub rkey: u32,
    /// Compare value of CompareSwap, addend of FetchAdd.
    pub compare_add: u64,
    /// Swap value of CompareSwap.
    pub swap: u64,
    /// Elements in use in `sges`; 0 when inline.
    pub sge_count: u8,
    /// Inline bytes in the entry's body; 0 unless [`SendFlags::INLINE`].
    pub inline_len: u16,
    /// Elements; only the first `sge_count` mean anything.
    pub sges: [Sge; SEND_SGE_MAX],
}

impl Default for SendEntry {
    fn default() -> Self {
        SendEntry {
            opcode: Opcode::Send,
            flags: SendFlags(0),
            wr_id: 0,
            imm: 0,
            remote_address: 0,
            rkey: 0,
            compare_add: 0,
            swap: 0,
            sge_count: 0,
            inline_len: 0,
            sges: [Sge::default(); SEND_SGE_MAX],
        }
    }
}

/// A receive entry as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecvEntry {
    /// The program's tag.
    pub wr_id: u64,
    /// Elements in use.
    pub sge_count: u8,
    /// Elements; only the first `sge_count` mean anything.
    pub sges: [Sge; RECV_SGE_MAX],
}

impl Default for RecvEntry {
    fn default() -> Self {
        RecvEntry { wr_id: 0, sge_count: 0, sges: [Sge::default(); RECV_SGE_MAX] }
    }
}

/// Why bytes in a ring are not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The opcode byte is none of ours.
    #[error("Unknown opcode {0}")]
    Opcode(u8),
    /// Elements or inline bytes do not fit the units that the entry says it has.
    #[error("Entry of {units} units cannot hold {wanted} bytes of body")]
    Body {
        /// Units the entry claims.
        units: u8,
        /// Body bytes it claims.
        wanted: u32,
    },
    /// Zero units, or more than 16, or more than the ring holds.
    #[error("Entry claims {0} units")]
    Units(u8),
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(slot) = out.get_mut(at..at + N) {
        slot.copy_from_slice(&bytes);
    }
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(slot) = bytes.get(at..at + N) {
        out.copy_from_slice(slot);
    }
    out
}

fn units_for(body_offset: usize, body_bytes: usize) -> usize {
    (body_offset + body_bytes).div_ceil(UNIT_BYTES)
}

fn put_sges(out: &mut [u8], offset: usize, sges: &[Sge]) {
    for (i, sge) in sges.iter().enumerate() {
        let at = offset + i * 16;
        put(out, at, sge.address.to_le_bytes());
        put(out, at + 8, sge.length.to_le_bytes());
        put(out, at + 12, sge.lkey.to_le_bytes());
    }
}

fn get_sges(bytes: &[u8], offset: usize, sges: &mut [Sge]) {
    for (i, sge) in sges.iter_mut().enumerate() {
        let at = offset + i * 16;
        *sge = Sge {
            address: u64::from_le_bytes(get(bytes, at)),
            length: u32::from_le_bytes(get(bytes, at + 8)),
            lkey: u32::from_le_bytes(get(bytes, at + 12)),
        };
    }
}

impl SendEntry {
    /// Units that this entry takes in a ring.
    pub fn units(&self) -> usize {
        let body = if self.flags.contains(SendFlags::INLINE) {
            usize::from(self.inline_len)
        } else {
            usize::from(self.sge_count) * 16
        };
        units_for(SEND_BODY_OFFSET, body)
    }

    /// Writes the entry into `out` (`units() * 64` bytes). Inline data is appended by the caller at
    /// [`SEND_BODY_OFFSET`].
    pub fn encode(&self, out: &mut [u8]) {
        put(out, 0, [self.opcode as u8, self.flags.0, self.units() as u8, self.sge_count]);
        put(out, 4, self.imm.to_le_bytes());
        put(out, 8, self.wr_id.to_le_bytes());
        put(out, 16, self.remote_address.to_le_bytes());
        put(out, 24, self.rkey.to_le_bytes());
        put(out, 28, u32::from(self.inline_len).to_le_bytes());
        put(out, 32, self.compare_add.to_le_bytes());
        put(out, 40, self.swap.to_le_bytes());
        if !self.flags.contains(SendFlags::INLINE) {
            let count = usize::from(self.sge_count).min(SEND_SGE_MAX);
            put_sges(out, SEND_BODY_OFFSET, &self.sges[..count]);
        }
    }

    /// Units that the entry starting with `first_unit` claims, if that is 1–16.
    pub fn claimed_units(first_unit: &[u8]) -> Result<usize, EntryError> {
        let units = get::<1>(first_unit, 2)[0];
        if units == 0 || usize::from(units) > UNITS_MAX {
            return Err(EntryError::Units(units));
        }
        Ok(usize::from(units))
    }

    /// Reads and validates an entry from a private copy of its units.
    pub fn decode(bytes: &[u8], entry: &mut SendEntry) -> Result<(), EntryError> {
        let [code, flags, units, sge_count] = get::<4>(bytes, 0);
        let opcode = Opcode::from_code(code).ok_or(EntryError::Opcode(code))?;
        let flags = SendFlags(flags & 0x0f);
        let inline_len = u32::from_le_bytes(get(bytes, 28));
        let inline = flags.contains(SendFlags::INLINE);
        let wanted = if inline { inline_len } else { u32::from(sge_count) * 16 };
        let capacity = bytes.len().saturating_sub(SEND_BODY_OFFSET);
        if wanted as usize > capacity || wanted as usize > INLINE_MAX {
            return Err(EntryError::Body { units, wanted });
        }
        entry.opcode = opcode;
        entry.flags = flags;
        entry.imm = u32::from_le_bytes(get(bytes, 4));
        entry.wr_id = u64::from_le_bytes(get(bytes, 8));
        entry.remote_address = u64::from_le_bytes(get(bytes, 16));
        entry.rkey = u32::from_le_bytes(get(bytes, 24));
        entry.compare_add = u64::from_le_bytes(get(bytes, 32));
        entry.swap = u64::from_le_bytes(get(bytes, 40));
        entry.inline_len = if inline { inline_len as u16 } else { 0 };
        entry.sge_count = if inline { 0 } else { sge_count };
        let count = usize::from(entry.sge_count);
        get_sges(bytes, SEND_BODY_OFFSET, &mut entry.sges[..count]);
        Ok(())
    }
}

impl RecvEntry {
    /// Units that this entry takes in a ring.
    pub fn units(&self) -> usize {
        units_for(RECV_BODY_OFFSET, usize::from(self.sge_count) * 16)
    }

    /// Writes the entry into `out` (`units() * 64` bytes).
    pub fn encode(&self, out: &mut [u8]) {
        put(out, 0, [0, 0, self.units() as u8, self.sge_count]);
        put(out, 8, self.wr_id.to_le_bytes());
        let count = usize::from(self.sge_count).min(RECV_SGE_MAX);
        put_sges(out, RECV_BODY_OFFSET, &self.sges[..count]);
    }

    /// Reads and validates an entry from a private copy of its units.
    pub fn decode(bytes: &[u8], entry: &mut RecvEntry) -> Result<(), EntryError> {
        let [_, _, units, sge_count] = get::<4>(bytes, 0);
        let wanted = u32::from(sge_count) * 16;
        let capacity = bytes.len().saturating_sub(RECV_BODY_OFFSET);
        if wanted as usize > capacity || usize::from(sge_count) > RECV_SGE_MAX {
            return Err(EntryError::Body { units, wanted });
        }
        entry.wr_id = u64::from_le_bytes(get(bytes, 8));
        entry.sge_count = sge_count;
        get_sges(bytes, RECV_BODY_OFFSET, &mut entry.sges[..usize::from(sge_count)]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(entry: &SendEntry) -> SendEntry {
        let mut bytes = [0u8; UNITS_MAX * UNIT_BYTES];
        let len = entry.units() * UNIT_BYTES;
        entry.encode(&mut bytes[..len]);
        assert_eq!(SendEntry::claimed_units(&bytes), Ok(entry.units()));
        let mut out = SendEntry::default();
        SendEntry::decode(&bytes[..len], &mut out).expect("what we encode decodes");
        out
    }

    #[test]
    fn a_send_entry_survives_the_ring_with_any_number_of_elements() {
        for sge_count in [0u8, 1, 2, 5, 6, 61] {
            let mut entry = SendEntry {
                opcode: Opcode::CompareSwap,
                flags: SendFlags::SIGNALED.with(SendFlags::FENCE),
                wr_id: 0x1122_3344_5566_7788,
                imm: 7,
                remote_address: u64::MAX - 3,
                rkey: 0xabcd,
                compare_add: 1,
                swap: 2,
                sge_count,
                ..SendEntry::default()
            };
            for (i, sge) in entry.sges.iter_mut().take(usize::from(sge_count)).enumerate() {
                *sge = Sge { address: i as u64, length: 10 + i as u32, lkey: 99 };
            }
            assert_eq!(round_trip(&entry), entry);
        }
    }

    #[test]
    fn inline_lengths_take_the_units_they_need() {
        for (len, units) in [(0u16, 1), (16, 1), (17, 2), (80, 2), (81, 3), (976, 16)] {
            let entry = SendEntry { flags: SendFlags::INLINE, inline_len: len, ..SendEntry::default() };
            assert_eq!(entry.units(), units, "{len}");
            assert_eq!(round_trip(&entry).inline_len, len);
        }
    }

    #[test]
    fn hostile_entries_are_refused() {
        let mut bytes = [0u8; 64];
        let mut out = SendEntry::default();
        for (units, ok) in [(0u8, false), (1, true), (16, true), (17, false), (255, false)] {
            bytes[2] = units;
            assert_eq!(SendEntry::claimed_units(&bytes).is_ok(), ok, "{units}");
        }
        bytes[2] = 1;
        bytes[0] = 200;
        assert_eq!(SendEntry::decode(&bytes, &mut out), Err(EntryError::Opcode(200)));
        bytes[0] = Opcode::Send as u8;
        bytes[3] = 2;
        assert!(matches!(SendEntry::decode(&bytes, &mut out), Err(EntryError::Body { .. })));
        bytes[1] = SendFlags::INLINE.0;
        bytes[28..32].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(SendEntry::decode(&bytes, &mut out), Err(EntryError::Body { .. })));
        bytes[3] = 255;
        assert!(RecvEntry::decode(&bytes, &mut RecvEntry::default()).is_err());
    }
}
