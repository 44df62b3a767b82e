//! Simulated time and rates.
//!
//! A 4 KiB packet takes 83.2 ns at 400 Gbit/s: nanoseconds would be wrong by a percent. Hence picoseconds; the RNIC sees
//! whole nanoseconds.

use core::fmt;

use srdma_seams::{Duration, Now};

/// A moment, or a span: picoseconds since the start. 2⁶⁴ of them are 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Never.
    pub const MAX: Time = Time(u64::MAX);

    /// `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Time {
        Time(ns.saturating_mul(1_000))
    }

    /// As the RNIC is told: whole nanoseconds, rounded down.
    pub const fn now(self) -> Now {
        Now(self.0 / 1_000)
    }

    /// The first moment at which [`Time::now`] is `at`.
    pub const fn at(at: Now) -> Time {
        Time::from_nanos(at.0)
    }

    /// A span as the RNIC counts it.
    pub const fn span(span: Duration) -> Time {
        Time::from_nanos(span.0)
    }

    /// This much later; never wraps.
    pub const fn after(self, span: Time) -> Time {
        Time(self.0.saturating_add(span.0))
    }

    /// Span since `earlier`; zero if that lies ahead.
    pub const fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..=9_999_999 => write!(f, "{}.{:03} ns", self.0 / 1_000, self.0 % 1_000),
            10_000_000..=9_999_999_999 => {
                write!(f, "{}.{:03} µs", self.0 / 1_000_000, self.0 / 1_000 % 1_000)
            }
            _ => write!(f, "{}.{:03} ms", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1_000),
        }
    }
}

/// How fast a link is. Kept as femtoseconds per byte, which is exact for every rate that Ethernet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    fs_per_byte: u64,
}

impl Rate {
    /// `bps` bits per second; `None` below 1 Mbit/s and above 8 Tbit/s.
    pub const fn from_bits_per_second(bps: u64) -> Option<Rate> {
        if bps < 1_000_000 || bps > 8_000_000_000_000 {
            return None;
        }
        Some(Rate { fs_per_byte: 8_000_000_000_000_000 / bps })
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        8_000_000_000_000_000 / self.fs_per_byte
    }

    /// Time to put `bytes` on the wire, rounded up to a picosecond.
    pub const fn serialisation(self, bytes: u64) -> Time {
        Time(bytes.saturating_mul(self.fs_per_byte).saturating_add(999) / 1_000)
    }

    /// How long this rate takes for what `old` takes `span` for.
    pub const fn instead_of(self, old: Rate, span: Time) -> Time {
        let ps = span.0 as u128 * self.fs_per_byte as u128 / old.fs_per_byte as u128;
        Time(if ps > u64::MAX as u128 { u64::MAX } else { ps as u64 })
    }

    /// Bytes put on the wire in `span`.
    pub const fn bytes_in(self, span: Time) -> u64 {
        (span.0 as u128 * 1_000 / self.fs_per_byte as u128) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialisation_is_exact_for_the_rates_of_ethernet() {
        for (gbps, bytes, ps) in
            [(400, 4160, 83_200), (100, 1500, 120_000), (800, 64, 640), (25, 1, 320), (1600, 1000, 5_000)]
        {
            let rate = Rate::from_bits_per_second(gbps * 1_000_000_000).expect("in range");
            assert_eq!(rate.serialisation(bytes), Time(ps), "{bytes} bytes at {gbps} Gbit/s");
            assert_eq!(rate.bytes_in(Time(ps)), bytes);
            assert_eq!(rate.bits_per_second(), gbps * 1_000_000_000);
        }
        assert_eq!(Rate::from_bits_per_second(0), None);
    }
}
