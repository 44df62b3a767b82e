//! Identities as newtypes, so that a PSN is never added to an MSN.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(/// Queue-pair number, 24 bits. Its upper 8 bits are the [`Slot`] that owns it.
    Qpn(u32));
id!(/// Completion-queue number, local to one device.
    Cqn(u32));
id!(/// Protection domain, local to one device.
    PdId(u32));
id!(/// Owner of a device's objects. Objects of different tenants never meet.
    TenantId(u32));
id!(/// An lkey or rkey of a memory region: a keyed permutation of its serial number, see the `memory` room.
    MrKey(u32));
id!(/// 64 random bits chosen by the receiver of packets; a packet without the right one is dropped.
    ConnectionId(u64));
id!(/// One of the up to 256 paths of a connection; the UDP source port is its entropy.
    PathId(u16));
id!(/// Number of one transmission of a spray unit, never reused while it could be acknowledged.
    TransmitId(u32));
id!(/// Packet sequence number as carried on the wire (low 32 bits of a 64-bit count).
    Psn(u32));
id!(/// Message sequence number as carried on the wire (low 32 bits of a 64-bit count).
    Msn(u32));
id!(/// Claim on 65,536 queue-pair numbers of an address: the UDP port that a process has bound.
    Slot(u8));

impl Slot {
    /// UDP port of slot 0, the port of RoCEv2 (IBTA Annex A17).
    pub const FIRST_PORT: u16 = 4791;
    /// Slot *n* > 0 is UDP port `BASE_PORT + n`.
    pub const BASE_PORT: u16 = 61000;

    /// The UDP port on which packets for this slot's queue pairs arrive.
    pub const fn port(self) -> u16 {
        match self.0 {
            0 => Slot::FIRST_PORT,
            n => Slot::BASE_PORT + n as u16,
        }
    }
}

impl Qpn {
    /// The slot, hence the UDP port, that owns this number.
    pub const fn slot(self) -> Slot {
        Slot((self.0 >> 16) as u8)
    }

    /// Position within the slot.
    pub const fn index(self) -> u16 {
        self.0 as u16
    }

    /// The number at `index` of `slot`.
    pub const fn new(slot: Slot, index: u16) -> Qpn {
        Qpn(((slot.0 as u32) << 16) | index as u32)
    }

    /// QPNs 0 and 1 are special in the IBTA and 0xFFFFFF means multicast: never handed out.
    pub const fn is_usable(self) -> bool {
        self.0 > 1 && self.0 < 0xff_ffff
    }
}

/// The 64-bit number nearest to `reference` whose low 32 bits are `low`.
///
/// Counts are 64 bits inside and 32 bits on the wire; half the number space (2³¹) is far more than
/// any window (2¹⁷), so the nearest candidate is the right one, wraps included.
pub const fn extend(reference: u64, low: u32) -> u64 {
    let delta = low.wrapping_sub(reference as u32) as i32;
    reference.wrapping_add(delta as i64 as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_ports_follow_the_table() {
        assert_eq!(Slot(0).port(), 4791);
        assert_eq!(Slot(1).port(), 61001);
        assert_eq!(Slot(255).port(), 61255);
        let qpn = Qpn::new(Slot(3), 0x1234);
        assert_eq!((qpn.0, qpn.slot(), qpn.index()), (0x03_1234, Slot(3), 0x1234));
    }

    #[test]
    fn reserved_numbers_are_not_usable() {
        for (qpn, usable) in [(0, false), (1, false), (2, true), (0xff_fffe, true), (0xff_ffff, false)] {
            assert_eq!(Qpn(qpn).is_usable(), usable, "{qpn:#x}");
        }
    }

    #[test]
    fn numbers_extend_to_the_nearest_across_every_wrap() {
        for base in [1u64 << 31, (1 << 32) - 3, 1 << 32, (1 << 33) + 5] {
            for distance in [-100_000i64, -1, 0, 1, 100_000] {
                let true_number = base.wrapping_add(distance as u64);
                assert_eq!(extend(base, true_number as u32), true_number);
            }
        }
    }
}
