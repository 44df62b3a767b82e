//! Groups that do collectives together, within servers and between them.

use alloc::vec::Vec;

use crate::pattern::{Exchange, Pattern};
use crate::plan::{within, PlanError};
use crate::program::{GroupsId, OpId, Program, What};

/// Servers of several GPUs, one member each; members of a server follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Servers {
    /// GPUs of each.
    pub gpus: u32,
    /// Bytes per second of a GPU to the others of its server, each way.
    pub bytes_per_second: u64,
}

impl Default for Servers {
    /// Eight GPUs with 400 GB/s each.
    fn default() -> Self {
        Servers { gpus: 8, bytes_per_second: 400_000_000_000 }
    }
}

/// What members do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// Everybody gets the sum.
    AllReduce,
    /// Everybody gets a part of the sum.
    ReduceScatter,
    /// Everybody gets all parts.
    AllGather,
    /// Everybody gets a part of everybody.
    AllToAll,
}

/// How collectives are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ways {
    pub servers: Servers,
    /// Chains of each ring over the network.
    pub slices: u32,
    /// Bytes and times are divided by this.
    pub scale: u32,
}

/// Messages of an AllToAll that a member has on their way at once.
const ALL_TO_ALL_PARALLEL: u32 = 4;
const PICOSECONDS: u128 = 1_000_000_000_000;

impl Ways {
    pub fn validate(&self) -> Result<(), PlanError> {
        within("server_gpus", "1 to 65536", self.servers.gpus.into(), 1, 1 << 16)?;
        within("server_gbps", "at least 1", self.servers.bytes_per_second / 125_000_000, 1, 1 << 20)?;
        within("slices", "1 to 1024", self.slices.into(), 1, 1024)?;
        within("scale", "1 to 1000000", self.scale.into(), 1, 1_000_000)
    }

    /// Time for so many bytes within a server.
    fn server_ps(&self, bytes: u64) -> u64 {
        let scaled = u128::from(self.servers.bytes_per_second) * u128::from(self.scale);
        (u128::from(bytes) * PICOSECONDS / scaled) as u64
    }

    pub fn scaled(&self, bytes: u64) -> u64 {
        (bytes / u64::from(self.scale)).max(1)
    }
}

/// Groups of equal size that do collectives, each by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Team {
    members: GroupsId,
    size: u32,
    /// Members of a group in one server.
    per_server: u32,
    /// Rings between servers, one for each member of a group in a server; none if groups do not leave their server.
    rings: Option<GroupsId>,
}

impl Team {
    /// None if a group is one member.
    pub fn new(ways: &Ways, program: &mut Program, groups: &[Vec<u32>]) -> Option<Team> {
        let first = groups.first().filter(|group| group.len() > 1)?;
        let size = first.len() as u32;
        let server = |rank: u32| rank / ways.servers.gpus.max(1);
        let per_server = first.iter().take_while(|&&rank| server(rank) == server(first[0])).count();
        let together = |chunk: &[u32]| chunk.iter().all(|&rank| server(rank) == server(chunk[0]));
        let is_even = |group: &Vec<u32>| {
            group.len().is_multiple_of(per_server) && group.chunks(per_server).all(together)
        };
        // Servers that have unequally many of a group leave everything to the network.
        let per_server = if groups.iter().all(is_even) { per_server as u32 } else { 1 };
        let ring_size = size / per_server;
        let rings = (ring_size > 1).then(|| {
            let mut members = Vec::new();
            for group in groups {
                for lane in 0..per_server as usize {
                    members.extend(group.iter().skip(lane).step_by(per_server as usize));
                }
            }
            program.groups(ring_size, members)
        });
        let members = program.groups(size, groups.concat());
        Some(Team { members, size, per_server, rings })
    }

    /// A collective of so many bytes ([`Exchange::bytes`]), unscaled, after `after`.
    pub fn collective(
        self,
        ways: &Ways,
        program: &mut Program,
        what: Together,
        bytes: u64,
        after: OpId,
    ) -> OpId {
        let inside = u64::from(self.per_server);
        let half_ps = ways.server_ps(bytes * (inside - 1) / inside);
        let ring = |pattern| {
            let rings = self.rings?;
            Some((Exchange { pattern, bytes: ways.scaled(bytes / inside), slices: ways.slices }, rings))
        };
        let (before, exchange, behind) = match what {
            Together::AllReduce => (half_ps, ring(Pattern::AllReduceRing), half_ps),
            Together::ReduceScatter => (half_ps, ring(Pattern::ReduceScatterRing), 0),
            Together::AllGather => (0, ring(Pattern::AllGatherRing), half_ps),
            Together::AllToAll if self.rings.is_none() => {
                (ways.server_ps(bytes / u64::from(self.size) * (u64::from(self.size) - 1)), None, 0)
            }
            Together::AllToAll => {
                let pattern = Pattern::AllToAll { parallel: ALL_TO_ALL_PARALLEL };
                (0, Some((Exchange { pattern, bytes: ways.scaled(bytes), slices: 1 }, self.members)), 0)
            }
        };
        let mut op = after;
        if before > 0 {
            op = program.push(What::Compute(before), self.members, &[op]);
        }
        if let Some((exchange, groups)) = exchange {
            op = program.push(What::Exchange(exchange), groups, &[op]);
        }
        if behind > 0 {
            op = program.push(What::Compute(behind), self.members, &[op]);
        }
        op
    }
}

/// Members numbered by lane, then replica, then stage, as Megatron does it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranks {
    pub tensor: u32,
    pub data: u32,
    pub expert: u32,
    pub stage: u32,
}

impl Ranks {
    fn rank(self, lane: u32, replica: u32) -> u32 {
        lane + self.tensor * (replica + self.data * self.stage)
    }

    /// First member of the stage, and how many it has.
    pub fn own(self) -> (u32, u32) {
        (self.rank(0, 0), self.tensor * self.data)
    }

    /// Those that share layers.
    pub fn of_tensor(self) -> Vec<Vec<u32>> {
        (0..self.data)
            .map(|replica| (0..self.tensor).map(|lane| self.rank(lane, replica)).collect())
            .collect()
    }

    /// Those that have the same.
    pub fn of_data(self) -> Vec<Vec<u32>> {
        (0..self.tensor)
            .map(|lane| (0..self.data).map(|replica| self.rank(lane, replica)).collect())
            .collect()
    }

    /// Those that share the experts of layers.
    pub fn of_experts(self) -> Vec<Vec<u32>> {
        let group =
            |lane, team| (team * self.expert..(team + 1) * self.expert).map(move |own| self.rank(lane, own));
        let of_lane = |lane| (0..self.data / self.expert).map(move |team| group(lane, team).collect());
        (0..self.tensor).flat_map(of_lane).collect()
    }

    /// Those that have the same experts.
    pub fn of_same_experts(self) -> Vec<Vec<u32>> {
        let group = |lane, own| {
            (0..self.data / self.expert).map(move |team| self.rank(lane, team * self.expert + own))
        };
        let of_lane = |lane| (0..self.expert).map(move |own| group(lane, own).collect());
        (0..self.tensor).flat_map(of_lane).collect()
    }

    /// Pairs with the next stage: forward, and backward.
    pub fn pairs(self) -> (Vec<u32>, Vec<u32>) {
        let (first, own) = self.own();
        let ranks = || first..first + own;
        let forth = ranks().flat_map(|rank| [rank, rank + own]).collect();
        (forth, ranks().flat_map(|rank| [rank + own, rank]).collect())
    }
}
