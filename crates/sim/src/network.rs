//! `[topology]`: a table becomes a network.

use srdma_fabric::{FatTree, Graph, Hpn, LeafSpine, QueueLimits, Rate, SharedBuffer, Tier, Time};

use crate::cables::cables;
use crate::file::{rate, span};
use crate::reader::{FileError, Table};

/// Of every queue of a switch, unless a scenario says otherwise.
pub const DEFAULT_QUEUE: QueueLimits =
    QueueLimits { bytes: 8192 << 10, ecn_min_bytes: 200 << 10, ecn_max_bytes: 800 << 10 };
/// Propagation on every cable likewise.
const DEFAULT_DELAY: Time = Time::from_nanos(500);

/// What is read of each kind of network.
type Read = fn(&Table<'_>) -> Result<Graph, FileError>;
const KINDS: [(&str, Read); 4] =
    [("leaf-spine", leaf_spine), ("fat-tree", fat_tree), ("hpn", hpn), ("cables", cables)];

/// A network, and what all its switches have in common.
pub(crate) struct Network {
    pub graph: Graph,
    /// They hash alike.
    pub polarised: bool,
    /// They cut off payloads that they have no room for.
    pub trims: bool,
}

pub(crate) fn read_network(table: &Table<'_>) -> Result<Network, FileError> {
    let read = table.choice("kind", &KINDS)?.map_or(leaf_spine as Read, |found| found.value);
    let polarised = table.truth("polarised")?.unwrap_or(false);
    let trims = table.truth("trim")?.unwrap_or(false);
    let buffer = shared_buffer(table)?;
    let mut graph = read(table)?;
    graph.switches.iter_mut().for_each(|switch| switch.buffer = buffer);
    Ok(Network { graph, polarised, trims })
}

fn leaf_spine(table: &Table<'_>) -> Result<Graph, FileError> {
    let host_rate = table.required("host_gbps", rate(table, "host_gbps")?)?;
    let network = LeafSpine {
        leaves: needed(table, "leaves")?,
        hosts_per_leaf: needed(table, "hosts_per_leaf")?,
        spines: needed(table, "spines")?,
        host_rate,
        spine_rate: rate(table, "spine_gbps")?.unwrap_or(host_rate),
        host_delay: delay(table, "host_delay_ns")?,
        spine_delay: delay(table, "spine_delay_ns")?,
        queue: queue(table)?,
    };
    table.finish()?;
    network.graph().map_err(|error| table.error(&error.to_string()))
}

/// The number of switches above a tier follows from how much less bandwidth leads up than down.
fn fat_tree(table: &Table<'_>) -> Result<Graph, FileError> {
    let (pods, tors) = (needed(table, "pods")?, needed(table, "tors_per_pod")?);
    let hosts = needed(table, "hosts_per_tor")?;
    let host_rate = table.required("host_gbps", rate(table, "host_gbps")?)?;
    let agg_rate = rate(table, "agg_gbps")?.unwrap_or(host_rate);
    let core_rate = rate(table, "core_gbps")?.unwrap_or(agg_rate);
    let tor_up = uplinks(table, "tor_oversubscription", (hosts, host_rate), agg_rate)?;
    let agg_up = uplinks(table, "agg_oversubscription", (tors, agg_rate), core_rate)?;
    let tier = |radix_down, radix_up, rate, delay| {
        let (bundle, switch_delay) = (1, Time(0));
        Tier { radix_down, radix_up, bundle, rate, delay, switch_delay }
    };
    let network = FatTree {
        hosts: count(table, pods, &[tors, hosts])?,
        pod_hosts: count(table, tors, &[hosts])?,
        tiers: vec![
            tier(hosts, tor_up, host_rate, delay(table, "host_delay_ns")?),
            tier(tors, agg_up, agg_rate, delay(table, "agg_delay_ns")?),
            tier(pods, 0, core_rate, delay(table, "core_delay_ns")?),
        ],
        queue: queue(table)?,
    };
    table.finish()?;
    network.graph().map_err(|error| table.error(&error.to_string()))
}

/// Ports upwards of a switch with `down` ports, each of that rate, so that `key` to one is what leads down to what leads up.
fn uplinks(table: &Table<'_>, key: &'static str, down: (u32, Rate), up: Rate) -> Result<u32, FileError> {
    let times = table.number(key, 0.01..=100.0)?.unwrap_or(1.0);
    let below = f64::from(down.0) * down.1.bits_per_second() as f64;
    let count = below / (up.bits_per_second() as f64 * times);
    let whole = count.round();
    if whole < 1.0 || (count - whole).abs() > 1e-6 * count {
        let problem =
            format!("{key} = {times} makes {count:.3} ports upwards of a switch, which is no whole number");
        return Err(table.error(&problem));
    }
    Ok(whole as u32)
}

/// Two ports of a NIC lead into two planes.
fn hpn(table: &Table<'_>) -> Result<Graph, FileError> {
    let or = |key, default| Ok::<_, FileError>(some(table, key)?.unwrap_or(default));
    let pods = or("pods", 1)?;
    let joined = if pods > 1 { 8 } else { 0 };
    let port_rate = rate(table, "port_gbps")?.or(Rate::from_bits_per_second(200_000_000_000));
    let uplink_rate = rate(table, "uplink_gbps")?.or(Rate::from_bits_per_second(400_000_000_000));
    let network = Hpn {
        pods,
        segments: needed(table, "segments")?,
        servers: needed(table, "servers_per_segment")?,
        nics: or("nics_per_server", 8)?,
        planes: or("planes", 2)?,
        aggs: or("aggs_per_plane", 60)?,
        agg_uplinks: or("agg_uplinks", joined)?,
        cores: match some(table, "cores_per_plane")? {
            Some(cores) => cores,
            None if pods > 1 => return Err(table.error("cores_per_plane is missing: there are several pods")),
            None => 0,
        },
        port_rate: table.required("port_gbps", port_rate)?,
        uplink_rate: table.required("uplink_gbps", uplink_rate)?,
        port_delay: delay(table, "port_delay_ns")?,
        uplink_delay: delay(table, "uplink_delay_ns")?,
        queue: queue(table)?,
    };
    table.finish()?;
    network.graph().map_err(|error| table.error(&error.to_string()))
}

fn some(table: &Table<'_>, key: &'static str) -> Result<Option<u32>, FileError> {
    Ok(table.whole(key, 1..=4096)?.map(|count| count as u32))
}

pub(crate) fn needed(table: &Table<'_>, key: &'static str) -> Result<u32, FileError> {
    table.required(key, some(table, key)?)
}

pub(crate) fn delay(table: &Table<'_>, key: &'static str) -> Result<Time, FileError> {
    Ok(span(table, key, 1e3, 1e9)?.unwrap_or(DEFAULT_DELAY))
}

/// A product that must remain a number of hosts.
fn count(table: &Table<'_>, first: u32, others: &[u32]) -> Result<u32, FileError> {
    let product = others.iter().try_fold(first, |product, &other| product.checked_mul(other));
    product.ok_or_else(|| table.error("that many hosts cannot be numbered"))
}

/// What all queues of a switch share.
fn shared_buffer(table: &Table<'_>) -> Result<Option<SharedBuffer>, FileError> {
    let alpha = table.number("alpha", 0.0078125..=64.0)?;
    let Some(kib) = table.whole("buffer_kib", 1..=1 << 30)? else {
        return match alpha {
            Some(_) => Err(table.error("buffer_kib is missing: alpha says what a queue may have of it")),
            None => Ok(None),
        };
    };
    let alpha_128ths = (alpha.unwrap_or(1.0) * 128.0).round() as u32;
    Ok(Some(SharedBuffer { bytes: kib << 10, alpha_128ths }))
}

pub(crate) fn queue(table: &Table<'_>) -> Result<QueueLimits, FileError> {
    let kib =
        |key, default| Ok::<_, FileError>(table.whole(key, 1..=1 << 30)?.map_or(default, |kib| kib << 10));
    // The whole of a shared buffer, where there is one and nothing else is said.
    let bytes = kib("queue_kib", kib("buffer_kib", DEFAULT_QUEUE.bytes)?)?;
    if table.whole("buffer_kib", 1..=1 << 30)?.is_some_and(|buffer| buffer << 10 < bytes) {
        return Err(table.error("queue_kib is more than buffer_kib"));
    }
    Ok(QueueLimits {
        bytes,
        ecn_min_bytes: kib("ecn_min_kib", DEFAULT_QUEUE.ecn_min_bytes)?,
        ecn_max_bytes: kib("ecn_max_kib", DEFAULT_QUEUE.ecn_max_bytes)?,
    })
}
