//! Finding out that large packets no longer get through: packetization-layer path MTU discovery, as in
//! RFC 8899, but asked for by trouble instead of by a timer.
//!
//! When full packets are lost again and again, or the kernel refuses their size, HELLOs of several sizes are
//! sent, smallest included. The peer answers each with a small one that says what came. If small ones
//! arrive and full ones do not, several rounds long, the path has become narrower: a black hole for large
//! packets. If full ones arrive, or nothing does, the trouble is another. The way back is in [`raise`].

pub(crate) mod raise;

use srdma_seams::{Duration, Now};
use srdma_wire::HELLO_BYTES;

use crate::handshake::SIZES;

/// Rounds with answers, but none for a full probe, before that is believed. A queue of few bytes that
/// overflows swallows large packets rather than small ones, but not each and every one.
const ROUNDS: usize = 4;
/// Rounds without any answer after which nobody is there to answer.
const SILENT_ROUNDS: u8 = 3;
/// Least time that a round waits for answers.
const ROUND_MIN: Duration = Duration::from_millis(10);
/// Time after a search that found nothing wrong before the next; doubles up to [`REST_MAX`].
const REST_MIN: Duration = Duration::from_millis(500);
/// See [`REST_MIN`].
const REST_MAX: Duration = Duration::from_secs(10);
/// Probes of full size in a round, ahead of all others.
const FULL_PROBES: usize = 3;
/// Probes of a round: those, the usual sizes, the smallest HELLO.
const PROBES: usize = FULL_PROBES + SIZES.len() + 1;

/// A search for the packet size, or none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Search {
    round: Option<Round>,
    /// No search before this.
    rest_until: Now,
    /// Searches in a row that found nothing wrong.
    fruitless: u32,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    /// Size in use.
    full: u16,
    gap: Duration,
    ends: Now,
    /// Probes of this round already sent.
    sent: usize,
    /// Largest probe of this round that came, if one did.
    best: Option<u16>,
    /// The same of earlier rounds with answers.
    bests: [u16; ROUNDS],
    answered: usize,
    silent: u8,
}

impl Search {
    /// Starts one, unless one is under way or (if not `urgent`) the last was only just. `full` is the size
    /// in use; a round takes `gap`.
    pub(crate) fn start(&mut self, now: Now, full: u16, gap: Duration, urgent: bool) {
        if self.round.is_none() && (urgent || now >= self.rest_until) {
            let gap = gap.max(ROUND_MIN);
            let (ends, bests) = (now + gap, [0; ROUNDS]);
            self.round = Some(Round { full, gap, ends, sent: 0, best: None, bests, answered: 0, silent: 0 });
        }
    }

    /// Whether one is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    /// Size of a probe that is due now.
    pub(crate) fn poll(&mut self) -> Option<u16> {
        let round = self.round.as_mut().filter(|round| round.sent < PROBES)?;
        let size = match round.sent {
            sent if sent < FULL_PROBES => round.full,
            sent => SIZES.get(sent - FULL_PROBES).copied().unwrap_or(HELLO_BYTES as u16).min(round.full),
        };
        round.sent += 1;
        Some(size)
    }

    /// A full packet got through: its size is not to blame.
    pub(crate) fn full_came(&mut self, now: Now) {
        if self.round.is_some() {
            self.end(now, true);
        }
    }

    /// The peer says that a probe of `bytes` came.
    pub(crate) fn answered(&mut self, now: Now, bytes: u16) {
        let Some(round) = &mut self.round else { return };
        if bytes >= round.full {
            return self.full_came(now);
        }
        round.best = round.best.max(Some(bytes));
    }

    /// When to look again.
    pub(crate) fn next_timeout(&self) -> Option<Now> {
        self.round.map(|round| if round.sent < PROBES { Now(0) } else { round.ends })
    }

    /// The size that gets through, if it has turned out to be less than the one in use: what came in all
    /// rounds but one, since anything may be lost once.
    pub(crate) fn on_timeout(&mut self, now: Now) -> Option<u16> {
        let round = self.round.as_mut().filter(|round| round.sent == PROBES && now >= round.ends)?;
        match round.best.take() {
            Some(best) => {
                round.bests[round.answered] = best;
                round.answered += 1;
            }
            None => round.silent += 1,
        }
        if round.answered == ROUNDS {
            let mut bests = round.bests;
            bests.sort_unstable();
            self.end(now, false);
            return Some(bests[1]);
        }
        if round.silent == SILENT_ROUNDS {
            self.end(now, true);
            return None;
        }
        (round.sent, round.ends) = (0, now + round.gap);
        None
    }

    fn end(&mut self, now: Now, fruitless: bool) {
        self.round = None;
        self.fruitless = if fruitless { self.fruitless + 1 } else { 0 };
        self.rest_until = now + (REST_MIN * (1 << self.fruitless.min(8))).min(REST_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u16 = 8972;

    /// Runs a search over a path that passes datagrams up to `mtu`, with the answers to the first `deaf`
    /// rounds missing.
    fn search(mtu: u16, deaf: usize) -> Option<u16> {
        let (mut search, mut now) = (Search::default(), Now(1_000_000));
        search.start(now, FULL, Duration::ZERO, false);
        for round in 0..10 {
            while let Some(size) = search.poll() {
                if size <= mtu && round >= deaf {
                    search.answered(now, size);
                }
            }
            let Some(at) = search.next_timeout() else { break };
            now = at;
            if let Some(found) = search.on_timeout(now) {
                return Some(found);
            }
        }
        assert!(search.next_timeout().is_none(), "it ends");
        None
    }

    #[test]
    fn only_a_path_that_passes_small_and_not_full_packets_is_narrow() {
        for (mtu, deaf, found) in [
            (9000, 0, None),
            (1472, 0, Some(1472)),
            (1471, 0, Some(1252)),
            (600, 0, Some(512)),
            (100, 0, Some(96)),
            (50, 0, None),
            (1472, 1, Some(1472)),
            (1472, 2, Some(1472)),
            (1472, 9, None),
            (9000, 2, None),
        ] {
            assert_eq!(search(mtu, deaf), found, "{mtu} {deaf}");
        }
    }

    #[test]
    fn it_rests_unless_it_is_urgent() {
        let (mut search, now) = (Search::default(), Now(1_000_000));
        search.start(now, FULL, Duration::ZERO, false);
        search.answered(now, FULL);
        search.start(now + Duration::from_millis(1), FULL, Duration::ZERO, false);
        assert_eq!(search.poll(), None);
        search.start(now + Duration::from_millis(1), FULL, Duration::ZERO, true);
        assert_eq!(search.poll(), Some(FULL));
    }
}
