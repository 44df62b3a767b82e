//! Round-trip times: of each path and of the connection.

use srdma_seams::{Duration, Now};

/// How long a minimum or maximum is remembered, at least.
const BASE_WINDOW: Duration = Duration::from_secs(10);
/// Paths of one fabric differ in base round-trip time by less than this factor. A path first
/// measured with a full queue must not take that queue for its base.
const BASE_SPREAD: u64 = 8;

/// Smallest value of late. When the window passes without it being seen again, the floor rises by
/// at most an eighth per window: a queue that is never empty must not become the base quickly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Floor {
    value: Option<Duration>,
    recent: Option<Duration>,
    since: Now,
}

impl Floor {
    /// The smallest value, if there was one; zero before.
    pub(crate) fn value(&self) -> Duration {
        self.value.unwrap_or(Duration::ZERO)
    }

    fn sample(&mut self, now: Now, rtt: Duration) {
        self.value = Some(self.value.map_or(rtt, |value| value.min(rtt)));
        self.recent = Some(self.recent.map_or(rtt, |recent| recent.min(rtt)));
        if now.since(self.since) >= BASE_WINDOW {
            if let (Some(value), Some(recent)) = (self.value, self.recent) {
                self.value = Some(recent.min(Duration(value.0 + value.0 / 8)));
            }
            self.recent = None;
            self.since = now;
        }
    }
}

/// Round-trip times of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathRtt {
    /// Newest sample, if there ever was one.
    pub(crate) latest: Option<Duration>,
    floor: Floor,
}

/// Round-trip times of the connection. RFC 6298 for the mean and its variation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionRtt {
    smoothed: Option<Duration>,
    variation: Duration,
    /// Largest sample of this window and of the one before.
    max: [Duration; 2],
    /// Begin of this window; none before the first sample.
    max_since: Option<Now>,
    /// How long a maximum is remembered, at least.
    max_window_min: Duration,
    /// Paths with at least one sample.
    measured_paths: u16,
}

impl ConnectionRtt {
    /// Nothing measured. A maximum is remembered for 200 grains ([`crate::Config::grain`]) or 16 round trips.
    pub(crate) fn new(grain: Duration) -> ConnectionRtt {
        ConnectionRtt { max_window_min: grain * 200, ..ConnectionRtt::default() }
    }

    /// A unit sent on `path` took `rtt` there and back; `common` is the floor of everything sent to that peer.
    /// Returns the queueing delay in it.
    pub(crate) fn sample(
        &mut self,
        now: Now,
        path: &mut PathRtt,
        common: &mut Floor,
        rtt: Duration,
    ) -> Duration {
        common.sample(now, rtt);
        path.floor.sample(now, rtt);
        self.measured_paths += u16::from(path.latest.replace(rtt).is_none());
        match self.smoothed {
            Some(smoothed) if self.max_since.is_some() => {
                let error = smoothed.0.abs_diff(rtt.0);
                self.variation = Duration((self.variation.0 * 3 + error) / 4);
                self.smoothed = Some(Duration((smoothed.0 * 7 + rtt.0) / 8));
            }
            _ => self.start(rtt),
        }
        let window = self.max_window_min.max(self.smoothed() * 16);
        if self.max_since.is_none_or(|since| now.since(since) >= window) {
            self.max = [Duration::ZERO, self.max[0]];
            self.max_since = Some(now);
        }
        self.max[0] = self.max[0].max(rtt);
        let own = path.floor.value.unwrap_or(rtt);
        let common = common.value.unwrap_or(rtt);
        rtt - own.min(common * BASE_SPREAD)
    }

    /// The handshake's round trip: a first guess, until there is a sample.
    pub(crate) fn guess(&mut self, rtt: Duration) {
        if self.max_since.is_none() {
            self.start(rtt);
        }
    }

    fn start(&mut self, rtt: Duration) {
        self.smoothed = Some(rtt);
        self.variation = Duration(rtt.0 / 2);
    }

    pub(crate) fn is_measured(&self) -> bool {
        self.smoothed.is_some()
    }

    /// Smoothed round-trip time; zero before the first sample.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(Duration::ZERO)
    }

    /// Whether at least half of `paths` paths have a sample: then the slowest of these says how slow the others may be.
    pub(crate) fn knows_most(&self, paths: u16) -> bool {
        self.measured_paths >= paths.div_ceil(2)
    }

    pub(crate) fn variation(&self) -> Duration {
        self.variation
    }

    /// Largest round-trip time of late, over all paths.
    pub(crate) fn max(&self) -> Duration {
        self.max[0].max(self.max[1])
    }
}
