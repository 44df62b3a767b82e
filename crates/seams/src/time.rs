//! Monotonic time as the sans-IO rooms see it: nanoseconds since an arbitrary start, passed in.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};

/// A moment: nanoseconds since a start that the driver chose. Never goes backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Now(pub u64);

/// A span of time in nanoseconds. Arithmetic saturates: a wrapped timer would fire at once or never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub u64);

impl Now {
    /// Time since `earlier`, or zero if `earlier` lies ahead.
    pub fn since(self, earlier: Now) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);
    /// Longer than any timer.
    pub const MAX: Duration = Duration(u64::MAX);

    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Duration {
        Duration(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Duration {
        Duration(ms.saturating_mul(1_000_000))
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Duration {
        Duration(s.saturating_mul(1_000_000_000))
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in whole microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
}

impl Add<Duration> for Now {
    type Output = Now;
    fn add(self, span: Duration) -> Now {
        Now(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Now {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl Sub for Duration {
    type Output = Duration;
    fn sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Duration {
    type Output = Duration;
    fn mul(self, times: u64) -> Duration {
        Duration(self.0.saturating_mul(times))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..=9_999 => write!(f, "{} ns", self.0),
            10_000..=9_999_999 => write!(f, "{} µs", self.0 / 1_000),
            _ => write!(f, "{} ms", self.0 / 1_000_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_before_is_no_time_ago() {
        assert_eq!(Now(5).since(Now(9)), Duration::ZERO);
        assert_eq!(Now(9).since(Now(5)), Duration(4));
    }

    #[test]
    fn an_endless_span_never_wraps_into_the_past() {
        assert_eq!(Now(7) + Duration::MAX, Now(u64::MAX));
        assert_eq!(Duration::MAX * 3, Duration::MAX);
    }
}
