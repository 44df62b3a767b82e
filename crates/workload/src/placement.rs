//! Which host each member of a job is.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use srdma_seams::Rng;

/// In which order members sit on the hosts of their job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By host number, which is by leaf and segment: what a re-ranked job looks like.
    Consecutive,
    /// Any free hosts, in any order.
    Random,
    /// The next member is so many hosts further, around; where that would meet a host that is taken, one more.
    Stride(u32),
}

/// Where a job is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The first host that may be used. Given, hosts may be shared with other jobs; otherwise those are taken that no
    /// earlier job has.
    pub first: Option<u32>,
    /// Hosts are taken from so many segments, equally many of each …
    pub segments: u32,
    /// … which have so many hosts each; all hosts are one segment if 0.
    pub segment_hosts: u32,
    /// So many consecutive members stay together and in order, as those of a server do: hosts 0 to `block`, and so on.
    pub block: u32,
    /// See [`Order`].
    pub order: Order,
}

impl Default for Placement {
    fn default() -> Self {
        Placement { first: None, segments: 1, segment_hosts: 0, block: 1, order: Order::Consecutive }
    }
}

/// Why a job cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Too few hosts are free.
    #[error("{wanted} hosts are wanted of segment {segment}, but {free} are free")]
    Hosts {
        /// From 0.
        segment: u32,
        /// How many.
        wanted: u32,
        /// How many there are.
        free: u32,
    },
    /// A number of members cannot be divided.
    #[error("{members} members cannot be divided by {what}, {by}")]
    Division {
        /// Members of the job.
        members: u32,
        /// Name of the setting.
        what: &'static str,
        /// Its value.
        by: u32,
    },
}

impl Placement {
    /// The host of each of `members`, of hosts 0 to `hosts` less those `taken`. `rng` decides a random order.
    pub fn place(
        &self,
        members: u32,
        hosts: u32,
        taken: &BTreeSet<u32>,
        rng: &mut Rng,
    ) -> Result<Vec<u32>, PlacementError> {
        let segments = self.segments.max(1);
        for (what, by) in [("segments", segments), ("block", self.block.max(1))] {
            if !members.is_multiple_of(by) {
                return Err(PlacementError::Division { members, what, by });
            }
        }
        let each = members / segments;
        let size = if self.segment_hosts == 0 { hosts } else { self.segment_hosts };
        let first = self.first.unwrap_or(0);
        let mut chosen = Vec::with_capacity(members as usize);
        for segment in 0..segments {
            let from = segment.saturating_mul(size);
            let range = from.saturating_add(first)..from.saturating_add(size).min(hosts);
            let is_free = |host: &u32| self.first.is_some() || !taken.contains(host);
            let free: Vec<u32> = match self.order {
                Order::Random => self.draw(range.filter(is_free).collect(), each, rng),
                _ => range.filter(is_free).take(each as usize).collect(),
            };
            if (free.len() as u32) < each {
                return Err(PlacementError::Hosts { segment, wanted: each, free: free.len() as u32 });
            }
            chosen.extend(free);
        }
        self.arrange(chosen, rng)
    }

    /// Some whole blocks of the free hosts, by chance.
    fn draw(&self, free: Vec<u32>, count: u32, rng: &mut Rng) -> Vec<u32> {
        let block = self.block.max(1);
        let same = |a: &u32, b: &u32| a / block == b / block;
        let mut blocks: Vec<&[u32]> =
            free.chunk_by(same).filter(|hosts| hosts.len() as u32 == block).collect();
        shuffle(&mut blocks, rng);
        blocks.truncate((count / block) as usize);
        blocks.concat()
    }

    /// Puts blocks of hosts into their order.
    fn arrange(&self, chosen: Vec<u32>, rng: &mut Rng) -> Result<Vec<u32>, PlacementError> {
        let block = self.block.max(1) as usize;
        let mut blocks: Vec<&[u32]> = chosen.chunks(block).collect();
        match self.order {
            Order::Consecutive => {}
            Order::Random => shuffle(&mut blocks, rng),
            Order::Stride(stride) => {
                let (stride, count) = (u64::from(stride), blocks.len() as u64);
                let cycle = count / gcd(stride, count).max(1);
                let at =
                    |member: u64| blocks[((member * stride + member / cycle.max(1)) % count.max(1)) as usize];
                blocks = (0..count).map(at).collect();
            }
        }
        Ok(blocks.concat())
    }
}

/// Fisher and Yates.
fn shuffle<T>(values: &mut [T], rng: &mut Rng) {
    for last in (1..values.len()).rev() {
        values.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn place(placement: Placement, members: u32, taken: &[u32]) -> Result<Vec<u32>, PlacementError> {
        placement.place(members, 16, &taken.iter().copied().collect(), &mut Rng::new(7))
    }

    #[test]
    fn members_sit_where_the_placement_says() {
        let plain = Placement::default();
        let halves = Placement { segments: 2, segment_hosts: 8, ..plain };
        for (placement, taken, wanted) in [
            (plain, vec![], vec![0, 1, 2, 3]),
            (plain, vec![0, 2], vec![1, 3, 4, 5]),
            (Placement { first: Some(2), ..plain }, vec![2, 3], vec![2, 3, 4, 5]),
            (Placement { order: Order::Stride(2), ..plain }, vec![], vec![0, 2, 1, 3]),
            (Placement { order: Order::Stride(3), ..plain }, vec![], vec![0, 3, 2, 1]),
            (halves, vec![0], vec![1, 2, 8, 9]),
            (Placement { block: 2, order: Order::Stride(2), ..plain }, vec![], vec![0, 1, 2, 3]),
        ] {
            assert_eq!(place(placement, 4, &taken), Ok(wanted), "{placement:?}");
        }
        assert_eq!(
            place(Placement { order: Order::Stride(2), ..halves }, 4, &[]),
            Ok(vec![0, 8, 1, 9]),
            "a ring that changes the segment at every step"
        );
    }

    #[test]
    fn random_orders_keep_blocks_together_and_use_every_host_once() {
        let placement = Placement { block: 4, order: Order::Random, ..Placement::default() };
        let hosts = place(placement, 16, &[]).expect("placed");
        assert_ne!(hosts, (0..16).collect::<Vec<u32>>());
        for block in hosts.chunks(4) {
            assert!(block[0] % 4 == 0 && block.windows(2).all(|pair| pair[1] == pair[0] + 1), "{hosts:?}");
        }
        let all: BTreeSet<u32> = hosts.into_iter().collect();
        assert_eq!(all.len(), 16);
        let some = place(Placement { block: 2, ..placement }, 4, &[0, 5, 6, 8]).expect("placed");
        assert!(
            some.iter().all(|host| ![0, 1, 4, 5, 6, 7, 8, 9].contains(host)),
            "whole free servers: {some:?}"
        );
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let plain = Placement::default();
        for (placement, members, said) in [
            (plain, 17, "17 hosts are wanted of segment 0, but 16 are free"),
            (Placement { segments: 3, ..plain }, 4, "4 members cannot be divided by segments, 3"),
            (Placement { block: 3, ..plain }, 4, "4 members cannot be divided by block, 3"),
            (
                Placement { segments: 3, segment_hosts: 8, ..plain },
                6,
                "2 hosts are wanted of segment 2, but 0 are free",
            ),
        ] {
            let error = place(placement, members, &[]).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
