//! The packet buffer of a switch, shared by its ports.
//!
//! A queue may have α times what is free at the moment (Choudhury and Hahne, 1998: *dynamic thresholds*): few busy ports
//! get much each, many get little, and something is always kept for the next one. Beside it the limit of each queue
//! holds. Space is given back when the last byte of a packet has left, which nobody announces: departures are kept by
//! time, and the past ones booked when the next packet comes.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::time::Time;

/// A buffer for all queues of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedBuffer {
    /// Its size.
    pub bytes: u64,
    /// α in parts of 128; 128 lets one queue have half of the buffer.
    pub alpha_128ths: u32,
}

/// A link that uses no shared buffer.
const NONE: u32 = u32::MAX;

/// The shared buffers of a network.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pools: Vec<Pool>,
    /// Pool of each link; empty if there are no pools at all.
    of_link: Vec<u32>,
}

#[derive(Debug)]
struct Pool {
    limits: SharedBuffer,
    used: u64,
    /// When how much of it comes free, and by which link.
    departures: BinaryHeap<Reverse<(Time, u32, u32)>>,
}

impl Buffers {
    /// For links that start at the switches given (`None`: at a host), and the buffer of each switch that has one.
    pub fn new(starts: impl Iterator<Item = Option<u32>>, of_switch: &[Option<SharedBuffer>]) -> Buffers {
        let mut buffers = Buffers::default();
        if of_switch.iter().all(Option::is_none) {
            return buffers;
        }
        let mut places = Vec::new();
        for limits in of_switch {
            places.push(limits.map_or(NONE, |_| buffers.pools.len() as u32));
            let pool = |limits| Pool { limits, used: 0, departures: BinaryHeap::new() };
            buffers.pools.extend(limits.map(pool));
        }
        let place = |start: Option<u32>| start.map_or(NONE, |switch| places[switch as usize]);
        buffers.of_link = starts.map(place).collect();
        buffers
    }

    /// Whether no switch has one.
    pub fn is_none(&self) -> bool {
        self.pools.is_empty()
    }

    fn pool(&mut self, link: u32) -> Option<&mut Pool> {
        let place = *self.of_link.get(link as usize)?;
        self.pools.get_mut(place as usize)
    }

    /// Whether a packet of `bytes` may join the queue of `link`, in which `waiting` bytes are.
    pub fn admits(&mut self, link: u32, now: Time, waiting: u64, bytes: u32) -> bool {
        let Some(pool) = self.pool(link) else { return true };
        pool.release(now);
        let free = pool.limits.bytes.saturating_sub(pool.used);
        let most = (free.saturating_mul(pool.limits.alpha_128ths.into()) / 128).min(waiting + free);
        waiting + u64::from(bytes) <= most
    }

    /// Whether `bytes` more fit at all, be it fair or not.
    pub fn has_room(&mut self, link: u32, bytes: u32) -> bool {
        self.pool(link).is_none_or(|pool| pool.used + u64::from(bytes) <= pool.limits.bytes)
    }

    /// A packet joined the queue of `link` and will have left at `departs`.
    pub fn take(&mut self, link: u32, departs: Time, bytes: u32) {
        let Some(pool) = self.pool(link) else { return };
        pool.used += u64::from(bytes);
        pool.departures.push(Reverse((departs, link, bytes)));
    }

    /// What waited for `link` is gone.
    pub fn cut(&mut self, link: u32) {
        let Some(pool) = self.pool(link) else { return };
        let gone = |Reverse((_, of, bytes)): &Reverse<(Time, u32, u32)>| {
            if *of == link {
                u64::from(*bytes)
            } else {
                0
            }
        };
        pool.used -= pool.departures.iter().map(gone).sum::<u64>();
        pool.departures.retain(|Reverse((_, of, _))| *of != link);
    }

    /// What waits for `link` leaves at other times.
    pub fn retime(&mut self, link: u32, at: impl Fn(Time) -> Time) {
        let Some(pool) = self.pool(link) else { return };
        let changed = |Reverse((time, of, bytes))| match of == link {
            true => Reverse((at(time), of, bytes)),
            false => Reverse((time, of, bytes)),
        };
        pool.departures = pool.departures.drain().map(changed).collect();
    }
}

impl Pool {
    fn release(&mut self, now: Time) {
        while let Some(Reverse((departs, _, bytes))) = self.departures.peek() {
            if *departs > now {
                return;
            }
            self.used -= u64::from(*bytes);
            self.departures.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn buffers(alpha_128ths: u32) -> Buffers {
        let limits = SharedBuffer { bytes: 12_000, alpha_128ths };
        // Two switches; links 0 to 2 start at the first, 3 at the second, 4 at a host.
        let starts = [Some(0), Some(0), Some(0), Some(1), None];
        Buffers::new(starts.into_iter(), &[Some(limits), None])
    }

    /// Packets of 1,000 bytes that get in, one after the other at time 0, leaving far in the future.
    fn fill(buffers: &mut Buffers, link: u32) -> u64 {
        let mut count = 0;
        while count < 100 && buffers.admits(link, Time(0), count * 1_000, 1_000) {
            buffers.take(link, Time(1_000 + count), 1_000);
            count += 1;
        }
        count
    }

    #[test]
    fn a_queue_has_its_share_of_what_is_free() {
        for (alpha, counts) in [(128, [6, 3, 2]), (64, [4, 3, 2]), (1024, [11, 1, 0])] {
            let mut buffers = buffers(alpha);
            let found = [0, 1, 2].map(|link| fill(&mut buffers, link));
            assert_eq!(found, counts, "α = {alpha} / 128");
            assert_eq!(
                [fill(&mut buffers, 3), fill(&mut buffers, 4)],
                [100, 100],
                "others are not concerned"
            );
        }
    }

    #[test]
    fn what_left_or_was_cut_off_makes_room() {
        let mut buffers = buffers(128);
        assert_eq!((fill(&mut buffers, 0), fill(&mut buffers, 1)), (6, 3));
        assert!(!buffers.admits(2, Time(0), 1_000, 2_001) && buffers.admits(2, Time(0), 0, 2_001));
        // The first three of link 0 and of link 1 have left.
        assert!(
            buffers.admits(2, Time(1_002), 8_000, 1_000) && !buffers.admits(2, Time(1_002), 8_001, 1_000)
        );
        buffers.cut(0);
        assert!(buffers.admits(2, Time(1_002), 11_000, 1_000), "the buffer is empty");
        assert!(!buffers.admits(2, Time(1_002), 11_001, 1_000));
        let limits = vec![None, None];
        assert!(Buffers::new([Some(0), Some(1)].into_iter(), &limits).admits(0, Time(0), u64::MAX / 2, 1));
    }
}
