//! The questions asked of the way to a host, in order: does a port answer, how fast, does something
//! rewrite addresses, how large a packet passes, over how many paths.

use crate::address;
use crate::hops::{sweep, Bounds};
use crate::listen::unmapped;
use crate::paths::{discover, Discovery};
use crate::prober::{collect, Answer, Prober, FULL_LIFE, SMALL_BYTES};
use crate::socket::Icmp;
use srdma_seams::Slot;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Longest wait for one answer before the probe counts as lost.
const PATIENCE: Duration = Duration::from_millis(400);
/// Times that a port is asked before its silence is believed.
const TRIES: usize = 3;
/// Times that a silent port is asked again where others are refused.
const SLOW_TRIES: usize = 3;
/// Between those: Linux sends one refusal a second to a host, after six at once (`icmp_ratelimit`).
const REFUSAL_INTERVAL: Duration = Duration::from_millis(1100);
/// Longest time for all round-trip probes together.
const RTT_BUDGET: Duration = Duration::from_secs(8);
/// Longest time for all hop probes together.
const HOPS_BUDGET: Duration = Duration::from_secs(12);
/// Source ports that look where probes get lost, when nothing answers.
const TRACING_PORTS: u16 = 8;

/// What to ask.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The host.
    pub peer: IpAddr,
    /// Our address; `None` lets the route decide.
    pub source: Option<IpAddr>,
    /// UDP ports to ask.
    pub ports: Vec<u16>,
    /// Source ports to find paths with; 0 leaves them out.
    pub paths: u16,
    /// Round trips to measure.
    pub count: u16,
    /// Farthest hop.
    pub hops_max: u8,
}

/// How one port of the peer answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortState {
    /// It echoes.
    Answers {
        /// Protocol version of the peer.
        version: u8,
        /// Routers that the probe passed, if it left with the usual 64.
        hops: Option<u8>,
        /// Where it saw the probe come from.
        observed: Option<SocketAddr>,
    },
    /// The host says that nothing has the port.
    Closed,
    /// Somebody refuses on purpose.
    Prohibited(Option<IpAddr>),
    /// Somebody has no way there.
    Unreachable(Option<IpAddr>),
    /// Nothing at all came back.
    Silent,
    /// Nothing came back, but other ports are refused. Hosts limit how many refusals they send, so this is no
    /// proof of a firewall.
    Unsure,
}

/// A port and how it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// UDP port.
    pub port: u16,
    /// The slot it is, if it is one.
    pub slot: Option<Slot>,
    /// How it answers.
    pub state: PortState,
    /// Our address and port in asking.
    pub local: SocketAddr,
}

/// Round trips, measured one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// Probes sent.
    pub sent: usize,
    /// Probes answered.
    pub answered: usize,
    /// Shortest, middle and longest; `None` if none was answered.
    pub min_median_max: Option<[Duration; 3]>,
}

/// Sizes of whole IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// MTU of our interface, if it could be read.
    pub interface_bytes: Option<u32>,
    /// Largest that came back unfragmented.
    pub passes_bytes: Option<u32>,
    /// Smallest larger one that did not.
    pub fails_bytes: Option<u32>,
    /// The limit that a router named, and who.
    pub named: Option<(u32, Option<IpAddr>)>,
}

/// Everything found out.
#[derive(Clone, Debug)]
pub struct Report {
    /// The host.
    pub peer: IpAddr,
    /// Our address.
    pub source: IpAddr,
    /// Port by port.
    pub ports: Vec<Port>,
    /// The port that the rest was asked of.
    pub asked: Option<u16>,
    /// Present when a port answers.
    pub round_trips: Option<RoundTrips>,
    /// Present when a port answers.
    pub sizes: Option<Sizes>,
    /// Of the port that answers; otherwise of the first one asked, to see where probes get lost.
    pub discovery: Option<Discovery>,
}

/// Why nothing could be asked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The kernel knows no way.
    #[error("no route to {0} ({1}); see `ip route get {0}`")]
    NoRoute(IpAddr, io::Error),
    /// Our address cannot be used.
    #[error("cannot send from {0} to {1}: {2}")]
    Socket(IpAddr, IpAddr, io::Error),
}

impl Report {
    /// The first port that answers.
    pub fn answering(&self) -> Option<&Port> {
        self.ports.iter().find(|port| matches!(port.state, PortState::Answers { .. }))
    }

    /// Our address and port as the peer sees them, where that is not what they are.
    pub fn translated(&self) -> Option<(SocketAddr, SocketAddr)> {
        let port = self.answering()?;
        match port.state {
            PortState::Answers { observed: Some(observed), .. } if observed != port.local => {
                Some((port.local, observed))
            }
            _ => None,
        }
    }
}

/// The slot whose port this is.
pub fn slot_of(port: u16) -> Option<Slot> {
    (0..=u8::MAX).map(Slot).find(|slot| slot.port() == port)
}

/// Asks everything. Takes under half a minute, whatever answers.
pub fn check(plan: &Plan) -> Result<Report, CheckError> {
    let source = match plan.source {
        Some(source) => source,
        None => address::source_for(plan.peer).map_err(|error| CheckError::NoRoute(plan.peer, error))?,
    };
    let failed = |error| CheckError::Socket(source, plan.peer, error);
    let ports = ask_ports(plan, source).map_err(failed)?;
    let mut report = Report {
        peer: plan.peer,
        source,
        ports,
        asked: None,
        round_trips: None,
        sizes: None,
        discovery: None,
    };
    let answering = report.answering().map(|port| port.port);
    report.asked = answering;
    let mut patience = PATIENCE / 2;
    if let Some(port) = answering {
        let peer = SocketAddr::new(plan.peer, port);
        let trips = round_trips(source, peer, plan.count).map_err(failed)?;
        if let Some([_, median, _]) = trips.min_median_max {
            patience = (median * 4).clamp(patience, Duration::from_secs(1));
        }
        report.round_trips = Some(trips);
        report.sizes = Some(sizes(source, peer, patience).map_err(failed)?);
    }
    let port = answering.or(plan.ports.first().copied());
    let paths = if answering.is_some() { plan.paths } else { plan.paths.min(TRACING_PORTS) };
    if let (Some(port), 1..) = (port, paths) {
        let peer = SocketAddr::new(plan.peer, port);
        let mut probers = probers(paths, source, peer).map_err(failed)?;
        let bounds = Bounds { hops_max: plan.hops_max, patience, budget: HOPS_BUDGET };
        report.discovery = Some(discover(&sweep(&mut probers, plan.peer, bounds)));
    }
    Ok(report)
}

fn probers(paths: u16, source: IpAddr, peer: SocketAddr) -> io::Result<Vec<Prober>> {
    (0..paths).map(|path| Prober::new(path, source, peer)).collect()
}

fn ask_ports(plan: &Plan, source: IpAddr) -> io::Result<Vec<Port>> {
    let to = |port: &u16| Prober::new(0, source, SocketAddr::new(plan.peer, *port));
    let mut probers: Vec<Prober> = plan.ports.iter().map(to).collect::<io::Result<_>>()?;
    let mut states = vec![PortState::Silent; probers.len()];
    for _ in 0..TRIES {
        let mut open = 0;
        for (prober, state) in probers.iter_mut().zip(&states) {
            if *state == PortState::Silent {
                // What cannot be sent is as good as lost; the errors that matter come as answers.
                let _ = prober.send(FULL_LIFE, SMALL_BYTES);
                open += 1;
            }
        }
        if open == 0 {
            break;
        }
        collect(&mut probers, PATIENCE, |index, answer| {
            if let Some(state) = port_state(plan.peer, answer) {
                open -= usize::from(states[index] == PortState::Silent);
                states[index] = state;
            }
            open == 0
        });
    }
    if states.iter().any(is_refusal) {
        ask_slowly(plan.peer, &mut probers, &mut states);
    }
    let port = |((port, prober), state): ((&u16, &Prober), PortState)| {
        Ok(Port { port: *port, slot: slot_of(*port), state, local: prober.local()? })
    };
    plan.ports.iter().zip(&probers).zip(states).map(port).collect()
}

fn is_refusal(state: &PortState) -> bool {
    matches!(state, PortState::Closed | PortState::Prohibited(_) | PortState::Unreachable(_))
}

/// Asks silent ports again, one at a time, no faster than a host that limits its refusals sends them. What stays
/// silent is not told apart from such a limit.
fn ask_slowly(peer: IpAddr, probers: &mut [Prober], states: &mut [PortState]) {
    for _ in 0..SLOW_TRIES {
        let Some(open) = states.iter().position(|state| *state == PortState::Silent) else { return };
        let _ = probers[open].send(FULL_LIFE, SMALL_BYTES);
        collect(probers, REFUSAL_INTERVAL, |index, answer| {
            if let Some(state) = port_state(peer, answer) {
                states[index] = state;
            }
            false
        });
    }
    for state in states.iter_mut().filter(|state| **state == PortState::Silent) {
        *state = PortState::Unsure;
    }
}

fn port_state(peer: IpAddr, answer: Answer) -> Option<PortState> {
    match answer {
        Answer::Reply { echo, .. } => Some(PortState::Answers {
            version: echo.version,
            hops: (echo.observed_ttl > 0).then(|| FULL_LIFE.saturating_sub(echo.observed_ttl)),
            observed: unmapped(echo.observed_address).map(|ip| SocketAddr::new(ip, echo.observed_port)),
        }),
        Answer::Refused { refusal, .. } => match refusal.icmp {
            // A firewall's "reject" says this too, in its own name.
            Icmp::PortUnreachable if refusal.by == Some(peer) => Some(PortState::Closed),
            Icmp::PortUnreachable => Some(PortState::Prohibited(refusal.by)),
            Icmp::Prohibited => Some(PortState::Prohibited(refusal.by)),
            Icmp::Unreachable | Icmp::TimeExceeded => Some(PortState::Unreachable(refusal.by)),
            Icmp::TooBig(_) | Icmp::Other(..) => None,
        },
    }
}

fn round_trips(source: IpAddr, peer: SocketAddr, count: u16) -> io::Result<RoundTrips> {
    let end = Instant::now() + RTT_BUDGET;
    let mut trips = Vec::new();
    let mut sent = 0;
    for path in 0..count {
        if Instant::now() >= end {
            break;
        }
        // A new source port each time, so that all paths have their say.
        let mut prober = [Prober::new(path, source, peer)?];
        if prober[0].send(FULL_LIFE, SMALL_BYTES).is_err() {
            continue;
        }
        sent += 1;
        collect(&mut prober, PATIENCE * 2, |_, answer| match answer {
            Answer::Reply { rtt, .. } => {
                trips.push(rtt);
                true
            }
            Answer::Refused { .. } => true,
        });
    }
    trips.sort();
    let min_median_max = match (trips.first(), trips.last()) {
        (Some(min), Some(max)) => Some([*min, trips[trips.len() / 2], *max]),
        _ => None,
    };
    Ok(RoundTrips { sent, answered: trips.len(), min_median_max })
}

/// IP packet sizes that occur as limits: the least of IPv6, tunnels, PPPoE, Ethernet, the InfiniBand
/// MTUs with our headers, jumbo frames. The interface's own is added.
const SIZES_BYTES: [u32; 10] = [1280, 1400, 1420, 1450, 1492, 1500, 2200, 4200, 8900, 9000];
/// An IP packet's length field has 16 bits.
const PACKET_BYTES_MAX: u32 = 65_535;

/// Bytes of the IP and UDP headers.
fn header_bytes(peer: IpAddr) -> u32 {
    8 + if peer.is_ipv4() { 20 } else { 40 }
}

fn sizes(source: IpAddr, peer: SocketAddr, patience: Duration) -> io::Result<Sizes> {
    let interface_bytes = address::mtu_of(source);
    let limit = interface_bytes.unwrap_or(1500).min(PACKET_BYTES_MAX);
    let mut tried: Vec<u32> = SIZES_BYTES.into_iter().filter(|size| *size < limit).collect();
    tried.push(limit);
    let header = header_bytes(peer.ip());
    let mut passed: Vec<u32> = Vec::new();
    let mut named = None;
    let mut prober = [Prober::new(0, source, peer)?];
    for _ in 0..2 {
        let mut open: Vec<u32> = tried.iter().filter(|size| !passed.contains(size)).copied().collect();
        if open.is_empty() {
            break;
        }
        for size in &open {
            // Refused here and now (EMSGSIZE) is an answer too: it does not pass.
            let _ = prober[0].send(FULL_LIFE, u16::try_from(size - header).unwrap_or(u16::MAX));
        }
        collect(&mut prober, patience, |_, answer| {
            match answer {
                Answer::Reply { sent, .. } => {
                    let size = u32::from(sent.bytes) + header;
                    open.retain(|other| *other != size);
                    passed.push(size);
                }
                Answer::Refused { refusal, .. } => {
                    if let (Icmp::TooBig(bytes @ 1..), by) = (refusal.icmp, refusal.by) {
                        named = Some((bytes, by));
                    }
                }
            }
            open.is_empty()
        });
        if let Some((bytes, _)) = named.filter(|(bytes, _)| *bytes > header && *bytes < limit) {
            if !tried.contains(&bytes) {
                tried.push(bytes);
            }
        }
    }
    let passes_bytes = passed.iter().max().copied();
    let larger = |size: &&u32| !passed.contains(size) && passes_bytes.is_none_or(|most| **size > most);
    let fails_bytes = tried.iter().filter(larger).min().copied();
    Ok(Sizes { interface_bytes, passes_bytes, fails_bytes, named })
}
