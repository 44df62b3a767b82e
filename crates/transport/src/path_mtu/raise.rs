//! Finding out that larger packets get through again: the raise timer and the probes of RFC 8899, sections 5.1.1 and 5.3.
//!
//! A path whose route was mended would stay narrow for the connection's life. So a connection that uses less than its
//! interface allows tries more from time to time, while it has traffic anyway: one that rests wakes nobody. Probes
//! are HELLOs outside the window: losing one says nothing of the network's load.

use srdma_seams::{Duration, Now};

use super::ROUND_MIN;
use crate::handshake::SIZES;

/// Time from one attempt, or from when the path was found narrow, to the next (PMTU_RAISE_TIMER).
const EVERY: Duration = Duration::from_secs(600);
/// Probes of a size, one after the other on different paths, that come before it is used: one narrow path among many
/// should show itself.
const CONFIRMATIONS: u8 = 8;
/// Probes of a size that are lost before it is given up (MAX_PROBES).
const LOSSES: u8 = 3;

/// The wait for the next attempt to use larger packets, or the attempt. Nothing of both while packets are as large as
/// the interface allows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Raise {
    due: Option<Now>,
    attempt: Option<Attempt>,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    size: u16,
    /// How long an answer is waited for.
    gap: Duration,
    /// Until when, if a probe is out.
    waits_until: Option<Now>,
    confirmed: u8,
    lost: u8,
}

impl Attempt {
    fn new(size: u16, gap: Duration) -> Attempt {
        Attempt { size, gap, waits_until: None, confirmed: 0, lost: 0 }
    }
}

impl Raise {
    /// `size` is in use from now on, of at most `most`. Ends an attempt.
    pub(crate) fn rest(&mut self, now: Now, size: u16, most: u16) {
        *self = Raise { due: (size < most).then(|| now + EVERY), attempt: None };
    }

    /// There is traffic: begins an attempt if one is due, with the largest size. An answer takes `gap`.
    pub(crate) fn start(&mut self, now: Now, most: u16, gap: Duration) {
        if self.attempt.is_none() && self.due.is_some_and(|due| now >= due) {
            self.attempt = Some(Attempt::new(most, gap.max(ROUND_MIN)));
        }
    }

    /// Size of a probe that is due now.
    pub(crate) fn poll(&mut self, now: Now) -> Option<u16> {
        let attempt = self.attempt.as_mut().filter(|attempt| !attempt.is_done())?;
        if attempt.waits_until.is_some() {
            return None;
        }
        attempt.waits_until = Some(now + attempt.gap);
        Some(attempt.size)
    }

    /// The peer says that a probe of `bytes` came.
    pub(crate) fn answered(&mut self, bytes: u16) {
        let waiting = |attempt: &&mut Attempt| attempt.waits_until.is_some() && bytes >= attempt.size;
        if let Some(attempt) = self.attempt.as_mut().filter(waiting) {
            attempt.confirmed += 1;
            attempt.waits_until = None;
        }
    }

    /// When to look again.
    pub(crate) fn next_timeout(&self) -> Option<Now> {
        self.attempt.map(|attempt| attempt.waits_until.unwrap_or(Now(0)))
    }

    /// The larger size that has turned out to get through, in place of `size`.
    pub(crate) fn on_timeout(&mut self, now: Now, size: u16, most: u16) -> Option<u16> {
        let attempt = self.attempt.as_mut()?;
        if attempt.is_done() {
            let found = attempt.size;
            self.rest(now, found, most);
            return Some(found);
        }
        if attempt.waits_until.is_some_and(|until| now >= until) {
            attempt.waits_until = None;
            attempt.lost += 1;
        }
        if attempt.lost == LOSSES {
            let smaller = SIZES.into_iter().filter(|&other| other > size && other < attempt.size).max();
            match smaller {
                Some(smaller) => *attempt = Attempt::new(smaller, attempt.gap),
                None => self.rest(now, size, most),
            }
        }
        None
    }
}

impl Attempt {
    fn is_done(&self) -> bool {
        self.confirmed == CONFIRMATIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u16 = 8972;
    const GAP: Duration = Duration::from_millis(20);

    /// An attempt over a path that passes probes up to `mtu`, but not each `unlucky`-th; the size that it ends with,
    /// and how many probes that took.
    fn attempt(size: u16, mtu: u16, unlucky: usize) -> (u16, usize) {
        let (mut raise, mut now) = (Raise::default(), Now(1_000_000));
        raise.rest(now, size, MOST);
        now += EVERY;
        raise.start(now, MOST, GAP);
        let mut probes = 0;
        while let Some(at) = raise.next_timeout() {
            now = now.max(at);
            if let Some(found) = raise.on_timeout(now, size, MOST) {
                return (found, probes);
            }
            let Some(probe) = raise.poll(now) else { continue };
            probes += 1;
            if probe <= mtu && (unlucky == 0 || probes % unlucky != 0) {
                raise.answered(probe);
            }
        }
        (size, probes)
    }

    #[test]
    fn the_largest_size_that_gets_through_is_found() {
        for (size, mtu, unlucky, found) in [
            (1472, 9000, 0, (8972, 8)),
            (1472, 9000, 5, (8972, 9)),
            (1472, 9000, 2, (1472, 6)),
            (1472, 8000, 0, (1472, 3)),
            (512, 8000, 0, (1472, 3 + 8)),
            (512, 1300, 0, (1252, 3 + 3 + 8)),
            (512, 600, 0, (512, 3 + 3 + 3)),
        ] {
            assert_eq!(attempt(size, mtu, unlucky), found, "{size} {mtu} {unlucky}");
        }
    }

    #[test]
    fn nothing_is_tried_before_its_time_nor_without_traffic_nor_beyond_the_interface() {
        let now = Now(1_000_000);
        let mut raise = Raise::default();
        raise.rest(now, 1472, MOST);
        raise.start(now + Duration::from_secs(599), MOST, GAP);
        assert_eq!((raise.next_timeout(), raise.poll(now)), (None, None), "not yet, and no timer");
        raise.rest(now, MOST, MOST);
        raise.start(now + EVERY * 2, MOST, GAP);
        assert_eq!(raise.next_timeout(), None, "nothing to gain");
        raise.rest(now, 1472, MOST);
        raise.start(now + EVERY, MOST, GAP);
        assert_eq!(raise.poll(now + EVERY), Some(MOST));
        raise.rest(now + EVERY, 1472, MOST);
        raise.answered(MOST);
        assert_eq!(raise.next_timeout(), None, "an attempt can be ended");
    }
}
