//! The whole: hosts on a network, flows between them, work, faults, time.

use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use srdma_abi::control::LIMITS;
use srdma_abi::{Access, QpAttributes, QpInit, QpMask, QpState};
use srdma_memory::Rights;
use srdma_rnic::{ControlError, Nic, NicConfig, Order};
use srdma_seams::{ConnectionId, Cqn, Faults, MrKey, PathId, PdId, Rng};
use srdma_transport::{Config, ConfigError, Snapshot};

use crate::buffer::Buffers;
use crate::change::Change;
use crate::ground::Ground;
use crate::host::{address, folded_of, qpn, tuple_of, Desk, Host, Work};
use crate::link::{Link, LinkId, QueueLimits};
use crate::network::{Audit, Event, Imbalance, Network};
use crate::ports::Ports;
use crate::routes::Routes;
use crate::time::Time;
use crate::topology::{End, Graph, TopologyError};
use crate::watch::{FlowCounts, Watch};

/// Settings of a simulation.
#[derive(Clone, Debug)]
pub struct FabricConfig {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Bytes on the wire around each UDP payload: 66 for Ethernet (preamble, header, check, gap), IPv4 and UDP.
    pub framing_bytes: u32,
    /// UDP payload bytes of a full packet.
    pub datagram_bytes_max: u16,
    /// Of every connection.
    pub transport: Config,
    /// Of every host.
    pub order: Order,
    /// Payloads that a host can hold back.
    pub holds_max: usize,
    /// Events between two audits, or as many as there are packets if that is more; 0 for none.
    pub audit_every: u64,
    /// Every switch hashes alike, as identical ones do when nobody seeds them.
    pub polarised: bool,
    /// Switches cut the payload off what they have no room for, and send the header on.
    pub trims: bool,
    /// A bug to commit on purpose, so that tests can show that they would notice it.
    #[doc(hidden)]
    pub planted: Option<Planted>,
}

/// Bugs that can be planted.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Dropped packets are not counted.
    ForgetDrops,
    /// Now and then a packet brings the bytes of its neighbour.
    Misplace,
    /// No bug, but a network that has it in for some bytes: packets that bring any from this range of a sender's memory are
    /// lost, first and later ones, until a time.
    Swallow {
        /// First byte of the range.
        first: u64,
        /// One past the last.
        end: u64,
        /// When it is over.
        until: Time,
    },
}

impl Default for FabricConfig {
    fn default() -> Self {
        FabricConfig {
            seed: 1,
            framing_bytes: 66,
            datagram_bytes_max: 4096 + srdma_wire::DATA_HEADER_BYTES as u16,
            transport: Config::default(),
            order: Order::Default,
            holds_max: 4096,
            audit_every: 1 << 16,
            polarised: false,
            trims: false,
            planted: None,
        }
    }
}

/// Why there is no simulation, or no such flow or message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// The network is not as it should be.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The transport's settings are not.
    #[error(transparent)]
    Transport(#[from] ConfigError),
    /// An RNIC refused.
    #[error("Host {host}: {why}")]
    Control {
        /// Which.
        host: u32,
        /// Why.
        why: ControlError,
    },
    /// No such host, or a flow from a host to itself.
    #[error("There can be no flow from host {from} to host {to}")]
    Hosts {
        /// Sender.
        from: u32,
        /// Receiver.
        to: u32,
    },
    /// A message is larger than a work request may be.
    #[error("A message has at most {max} bytes, not {bytes}", max = LIMITS.max_msg_bytes)]
    Message {
        /// Its size.
        bytes: u32,
    },
}

/// Position of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// A connected pair of queue pairs; messages go one way.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    from_qp: u32,
    to_qp: u32,
    lkey: MrKey,
    rkey: MrKey,
}

/// A message to send: a WRITE with immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    /// On which flow.
    pub flow: FlowId,
    /// The caller's number, told in notices.
    pub message: u32,
    /// Bytes.
    pub bytes: u32,
    /// Where they lie at the sender.
    pub local: u64,
    /// Where they go at the receiver.
    pub remote: u64,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The sender knows that all of it has landed.
    Sent {
        /// When.
        at: Time,
        /// Which.
        message: u32,
    },
    /// The receiver's program has been told of it, and of all before it on its flow.
    Received {
        /// When.
        at: Time,
        /// Which.
        message: u32,
    },
    /// It failed.
    Failed {
        /// When.
        at: Time,
        /// Where.
        host: u32,
        /// Which.
        message: u32,
        /// Code of the error table (`srdma explain`).
        cause: u32,
    },
}

/// Why [`Fabric::run_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// There are notices to take.
    Notices,
    /// The time is up.
    Limit,
}

/// See the module.
pub struct Fabric<G> {
    config: FabricConfig,
    graph: Graph,
    network: Network,
    hosts: Vec<Host<G>>,
    keys: Vec<(PdId, Cqn, MrKey)>,
    flows: Vec<Flow>,
    changes: Vec<(Vec<LinkId>, Change)>,
    /// When which of the changes happens.
    timeline: BinaryHeap<Reverse<(Time, usize)>>,
    notices: Vec<Notice>,
    rng: Rng,
    audit_at: u64,
}

fn control(host: u32) -> impl Fn(ControlError) -> FabricError {
    move |why| FabricError::Control { host, why }
}

impl<G: Ground> Fabric<G> {
    /// A network at rest. `ground` makes the memory of each host.
    pub fn new(
        config: FabricConfig,
        graph: Graph,
        ground: impl Fn(u32) -> G,
    ) -> Result<Fabric<G>, FabricError> {
        graph.validate()?;
        config.transport.validate()?;
        let (links, hops, ports) = lay_cables(&config, &graph);
        let routes = Routes::find(&graph, &hops, |_| true);
        routes.check(&graph)?;
        let seed_of = |switch: u64| if config.polarised { 0 } else { switch + 1 };
        let switch_seeds: Vec<u64> = (0..graph.switches.len() as u64)
            .map(|switch| Rng::stream(config.seed, "ecmp", seed_of(switch)).next_u64())
            .collect();
        let mut network = Network::new(links, hops, routes, switch_seeds, graph.hosts, config.planted);
        network.buffers = buffers(&graph, &network.hops);
        network.trims = config.trims;
        let mut hosts = Vec::new();
        let mut keys = Vec::new();
        for host in 0..graph.hosts {
            let mut made = new_host(&config, host, ports[host as usize], ground(host));
            keys.push(set_up(&mut made.nic).map_err(control(host))?);
            hosts.push(made);
        }
        let rng = Rng::stream(config.seed, "connections", 0);
        let audit_at = config.audit_every;
        Ok(Fabric {
            config,
            graph,
            network,
            hosts,
            keys,
            flows: Vec::new(),
            changes: Vec::new(),
            timeline: BinaryHeap::new(),
            notices: Vec::new(),
            rng,
            audit_at,
        })
    }

    // --- flows and work -----------------------------------------------------------------------

    /// Connects two hosts: a queue pair on each side, brought up as a program would. The handshake takes place over the
    /// network, in simulated time.
    pub fn connect(&mut self, from: u32, to: u32) -> Result<FlowId, FabricError> {
        if from == to || from.max(to) >= self.graph.hosts {
            return Err(FabricError::Hosts { from, to });
        }
        let ends = [(from, to), (to, from)];
        let positions = [from, to].map(|host| self.hosts[host as usize].desk.sends.len() as u32);
        for (side, (host, _)) in ends.into_iter().enumerate() {
            self.make_qp(host, positions[side])?;
        }
        for (side, (host, peer)) in ends.into_iter().enumerate() {
            self.bring_up(host, positions[side], peer, positions[1 - side])?;
        }
        let (lkey, rkey) = (self.keys[from as usize].2, self.keys[to as usize].2);
        self.flows.push(Flow { from, to, from_qp: positions[0], to_qp: positions[1], lkey, rkey });
        Ok(FlowId(self.flows.len() as u32 - 1))
    }

    fn make_qp(&mut self, host: u32, position: u32) -> Result<(), FabricError> {
        let (pd, cq, _) = self.keys[host as usize];
        let init = QpInit {
            pd: pd.0,
            send_cq: cq.0,
            recv_cq: cq.0,
            max_send_sge: 1,
            sq_sig_all: true,
            ..QpInit::default()
        };
        let connection = ConnectionId(self.rng.next_u64() | 1);
        let host_ref = &mut self.hosts[host as usize];
        host_ref.nic.create_qp(qpn(position), &init, connection).map_err(control(host))?;
        host_ref.desk.sends.push(VecDeque::new());
        host_ref.watch.flows.push(FlowCounts::default());
        Ok(())
    }

    fn bring_up(&mut self, host: u32, position: u32, peer: u32, peer_qp: u32) -> Result<(), FabricError> {
        let peer_address = match address(peer) {
            core::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            core::net::IpAddr::V6(v6) => v6,
        };
        let mut attributes = QpAttributes {
            access: Access(0xf),
            has_gid: true,
            dest_gid: peer_address.octets(),
            dest_qpn: qpn(peer_qp).0,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            ..QpAttributes::default()
        };
        let m = |bits: &[u32]| QpMask(bits.iter().fold(0, |mask, bit| mask | 1 << bit));
        let steps = [
            (QpState::Init, m(&[0, 3, 4, 5])),
            (QpState::Rtr, m(&[0, 7, 8, 12, 15, 17, 20])),
            (QpState::Rts, m(&[0, 9, 10, 11, 13, 16])),
        ];
        let now = self.network.now.now();
        for (state, mask) in steps {
            attributes.state = state;
            let mut result = Ok(());
            self.hosts[host as usize].call(&mut self.network, &mut self.notices, |nic, world, watch| {
                result = nic.modify_qp(now, qpn(position), &attributes, mask, ConnectionId(0), world, watch);
            });
            result.map_err(control(host))?;
        }
        Ok(())
    }

    /// Posts a message, now. Messages of one flow go in order of posting. After a notice of another host, *now* is as
    /// soon as both have come equally far: at most the time that the shortest link takes later.
    pub fn post(&mut self, post: Post) -> Result<(), FabricError> {
        let Some(flow) = self.flows.get(post.flow.0 as usize).copied() else {
            return Err(FabricError::Hosts { from: u32::MAX, to: u32::MAX });
        };
        if u64::from(post.bytes) > u64::from(LIMITS.max_msg_bytes) {
            return Err(FabricError::Message { bytes: post.bytes });
        }
        let Post { message, bytes, local, remote, .. } = post;
        let work = Work { message, bytes, local, remote, lkey: flow.lkey.0, rkey: flow.rkey.0 };
        let Fabric { network, hosts, notices, .. } = self;
        let host = &mut hosts[flow.from as usize];
        match network.may_act(flow.from) {
            Ok(()) => host.post(network, notices, flow.from_qp, work),
            Err(from) => {
                host.desk.to_post.push_back((flow.from_qp, work));
                network.schedule(from, flow.from, Event::Doorbell(flow.from));
            }
        }
        Ok(())
    }

    // --- time ---------------------------------------------------------------------------------

    /// Lets things happen until there are notices, or until `limit`. Everything until then has happened when it returns
    /// [`Stop::Limit`].
    pub fn run_until(&mut self, limit: Time) -> Result<Stop, Imbalance> {
        loop {
            if !self.notices.is_empty() {
                return Ok(Stop::Notices);
            }
            let change = self.timeline.peek().map(|Reverse((at, _))| *at).filter(|&at| at <= limit);
            // What happens at the moment of a change happens after it.
            let until = change.map_or(limit, |at| Time(at.0.saturating_sub(1)));
            let Some(event) = self.network.next_event(until) else {
                self.network.now = self.network.now.max(change.unwrap_or(limit));
                match change {
                    Some(_) => self.carry_out(),
                    None => return Ok(Stop::Limit),
                }
                continue;
            };
            let Fabric { network, hosts, notices, .. } = self;
            match event {
                Event::Arrive { link, place, hop } => {
                    if let Some(host) = network.arrive(link, place, hop) {
                        hosts[host as usize].arrive(network, notices, place, hop.ce);
                    }
                }
                Event::Egress(host) => hosts[host as usize].egress(network, notices),
                Event::Timer(host) => hosts[host as usize].timer(network, notices),
                Event::Doorbell(host) => hosts[host as usize].doorbell(network, notices),
            }
            if self.audit_at > 0 && self.network.events_done >= self.audit_at {
                // Counting all packets should not cost more than moving them.
                let every = self.config.audit_every.max(self.network.packets.places());
                self.audit_at = self.network.events_done + every;
                self.audit()?;
            }
        }
    }

    /// Moves what has been noticed to the end of `into`.
    pub fn take_notices(&mut self, into: &mut Vec<Notice>) {
        into.append(&mut self.notices);
    }

    /// Simulated time: of the last event, or the limit that was reached. While there are notices, other hosts may have
    /// come a little further or less far, by less than the shortest link takes.
    pub fn now(&self) -> Time {
        self.network.now
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.network.events_done
    }

    /// Equal for equal runs, and only for those.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace_hash()
    }

    /// Where all packets are; an error of the simulator if that does not add up.
    pub fn audit(&self) -> Result<Audit, Imbalance> {
        self.network.audit().check()
    }

    // --- faults -------------------------------------------------------------------------------

    /// Something will happen to `links` at `at`, before anything else at that moment.
    pub fn change_at(&mut self, at: Time, links: Vec<LinkId>, change: Change) {
        self.timeline.push(Reverse((at.max(self.network.now), self.changes.len())));
        self.changes.push((links, change));
    }

    /// The next change of the timeline.
    fn carry_out(&mut self) {
        let Some(Reverse((_, index))) = self.timeline.pop() else { return };
        let (links, change) = &self.changes[index];
        self.network.change(links, *change);
        if *change == Change::Reroute {
            let links = &self.network.links;
            self.network.routes = Routes::find(&self.graph, &self.network.hops, |link| links[link].is_up());
        }
    }

    // --- looking ------------------------------------------------------------------------------

    /// The network.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// All links, in both directions: cable *n* has links 2*n* (from, to) and 2*n* + 1.
    pub fn links(&self) -> &[Link] {
        &self.network.links
    }

    /// Where a link leads from and to.
    pub fn ends(&self, link: LinkId) -> (End, End) {
        self.network.hops[link.0 as usize]
    }

    /// Links from or to `end`, both directions.
    pub fn links_at(&self, end: End) -> Vec<LinkId> {
        self.links_where(|(from, to)| from == end || to == end)
    }

    /// Links between `a` and `b`, both directions.
    pub fn links_between(&self, a: End, b: End) -> Vec<LinkId> {
        self.links_where(|hop| hop == (a, b) || hop == (b, a))
    }

    fn links_where(&self, wanted: impl Fn((End, End)) -> bool) -> Vec<LinkId> {
        let all = self.network.hops.iter().enumerate();
        all.filter(|(_, &hop)| wanted(hop)).map(|(index, _)| LinkId(index as u32)).collect()
    }

    /// A flow.
    pub fn flow(&self, flow: FlowId) -> Option<&Flow> {
        self.flows.get(flow.0 as usize)
    }

    /// The links that a packet of `flow` on `path` takes now; they end early where no way leads on.
    pub fn way(&self, flow: FlowId, path: PathId) -> Option<Vec<LinkId>> {
        let Flow { from, to, .. } = *self.flow(flow)?;
        let ports = &self.hosts.get(from as usize)?.desk.ports;
        let mut link = ports.choose(&self.network.links, folded_of(from, to, path));
        let tuple = tuple_of(from, to, path);
        let mut way = alloc::vec![LinkId(link)];
        while let End::Switch(switch) = self.network.hops[link as usize].1 {
            let Some(next) = self.network.next_link(switch, to, tuple) else { break };
            link = next;
            way.push(LinkId(link));
        }
        Some(way)
    }

    /// How many ways there are for packets of `flow` now, over all ports of its sender.
    pub fn ways(&self, flow: FlowId) -> Option<u64> {
        let Flow { from, to, .. } = *self.flow(flow)?;
        let mut known = BTreeMap::new();
        let ports = self.hosts.get(from as usize)?.desk.ports;
        Some(ports.all().iter().map(|&link| self.ways_behind(link, to, &mut known)).sum())
    }

    fn ways_behind(&self, link: u32, to: u32, known: &mut BTreeMap<u32, u64>) -> u64 {
        let End::Switch(switch) = self.network.hops[link as usize].1 else { return 1 };
        if let Some(&ways) = known.get(&switch) {
            return ways;
        }
        let links = self.network.routes.all(switch, to);
        let ways =
            links.iter().fold(0u64, |sum, &link| sum.saturating_add(self.ways_behind(link, to, known)));
        known.insert(switch, ways);
        ways
    }

    /// What the sending end of a flow has done, and the receiving end.
    pub fn counts(&self, flow: FlowId) -> Option<(&FlowCounts, &FlowCounts)> {
        let flow = self.flow(flow)?;
        let at = |host: u32, qp: u32| self.hosts[host as usize].watch.flows.get(qp as usize);
        Some((at(flow.from, flow.from_qp)?, at(flow.to, flow.to_qp)?))
    }

    /// State of the sending end's connection.
    pub fn snapshot(&self, flow: FlowId) -> Option<Snapshot> {
        let flow = self.flow(flow)?;
        self.hosts.get(flow.from as usize)?.nic.watch_qp(qpn(flow.from_qp))?.1
    }

    /// Packets that found no way.
    pub fn unroutable(&self) -> u64 {
        self.network.unroutable
    }

    /// The memory of a host.
    pub fn ground(&self, host: u32) -> Option<&G> {
        self.hosts.get(host as usize).map(|host| &host.ground)
    }
}

type Cabling = (Vec<Link>, Vec<(End, End)>, Vec<Ports>);

/// Two links for each cable; those that each host sends on.
fn lay_cables(config: &FabricConfig, graph: &Graph) -> Cabling {
    let (mut links, mut hops) = (Vec::new(), Vec::new());
    let mut ports = alloc::vec![Ports::default(); graph.hosts as usize];
    for cable in &graph.cables {
        for (from, to) in [(cable.from, cable.to), (cable.to, cable.from)] {
            let limits = match from {
                End::Host(host) => {
                    ports[host as usize].add(links.len() as u32);
                    QueueLimits::UNLIMITED
                }
                End::Switch(_) => cable.queue,
            };
            let rng = Rng::stream(config.seed, "link", links.len() as u64);
            links.push(Link::new(cable.rate, cable.delay, limits, rng));
            hops.push((from, to));
        }
    }
    (links, hops, ports)
}

fn buffers(graph: &Graph, hops: &[(End, End)]) -> Buffers {
    let of_switch: Vec<_> = graph.switches.iter().map(|switch| switch.buffer).collect();
    let start = |(from, _): &(End, End)| match *from {
        End::Host(_) => None,
        End::Switch(switch) => Some(switch),
    };
    Buffers::new(hops.iter().map(start), &of_switch)
}

fn new_host<G>(config: &FabricConfig, host: u32, ports: Ports, ground: G) -> Host<G> {
    let nic = Nic::new(NicConfig {
        address: address(host),
        datagram_bytes_max: config.datagram_bytes_max,
        transport: config.transport.clone(),
        order: config.order,
        seed: Rng::stream(config.seed, "host", host.into()).next_u64(),
        faults: Faults::default(),
    });
    let desk = Desk {
        host,
        ports,
        framing_bytes: config.framing_bytes,
        sends: Vec::new(),
        to_post: VecDeque::new(),
        arrived: Default::default(),
        holds: Vec::new(),
        holds_free: Vec::new(),
        holds_max: config.holds_max,
        egress_due: false,
        timer_at: Time::MAX,
    };
    Host { nic, desk, ground, watch: Watch::default() }
}

/// The objects that every flow of a host shares: memory from address 0 on, as much as anybody may name.
fn set_up(nic: &mut Nic) -> Result<(PdId, Cqn, MrKey), ControlError> {
    let pd = nic.alloc_pd()?;
    let key = nic.register(pd, 0, 1 << 48, 0, Rights(0xf))?;
    Ok((pd, nic.create_cq()?, key))
}
