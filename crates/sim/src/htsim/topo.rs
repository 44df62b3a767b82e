//! Topology files: a few numbers about the whole, then a section for each tier of switches.

use srdma_fabric::{FatTree, Graph, QueueLimits, Rate, Tier, Time};

use super::{lines, number};
use crate::reader::{FileError, Source};

/// A tier as far as it has been read; `None` where nothing was said.
#[derive(Clone, Copy, Default)]
struct Half {
    radix_down: Option<u32>,
    radix_up: Option<u32>,
    gbps: Option<u64>,
    delay_ns: Option<u64>,
    switch_delay_ns: u64,
    bundle: Option<u32>,
    oversubscribed: Option<u64>,
    at: usize,
}

/// Reads the topology `text`; `file` is what errors call it. The format says nothing of queues: `queue` is all switches'.
pub fn read_topology(file: &str, text: &str, queue: QueueLimits) -> Result<Graph, FileError> {
    let source = Source { file, text };
    let (mut hosts, mut pod_hosts, mut tiers) = (None, None, None);
    let mut halves: Vec<Half> = Vec::new();
    for (at, words) in lines(source) {
        let value = number(source, at, words[0], words.get(1))?;
        if words.len() > 2 {
            return Err(
                source.error(at, format!("{}: one number, and no more, not \"{}\"", words[0], words[2]))
            );
        }
        let small =
            u32::try_from(value).map_err(|_| source.error(at, format!("{}: {value} is too large", words[0])));
        let key = words[0].to_ascii_lowercase();
        match key.as_str() {
            "nodes" => hosts = Some(small?),
            "podsize" => pod_hosts = Some(small?),
            "tiers" => tiers = Some(value),
            "tier" if value == halves.len() as u64 => halves.push(Half { at, ..Half::default() }),
            "tier" => {
                return Err(source.error(at, format!("Tier {value} comes before tier {}", halves.len())))
            }
            _ => match halves.last_mut() {
                Some(half) => read_tier(half, &key, small?).ok_or_else(|| unknown(source, at, words[0]))?,
                None => return Err(unknown(source, at, words[0])),
            },
        }
    }
    let missing = |key: &str| source.error(0, format!("{key} is missing"));
    let (hosts, wanted) = (hosts.ok_or_else(|| missing("Nodes"))?, tiers.ok_or_else(|| missing("Tiers"))?);
    if wanted != halves.len() as u64 {
        return Err(source.error(0, format!("Tiers says {wanted}, but {} are described", halves.len())));
    }
    let tiers = halves.iter().enumerate().map(|(index, half)| whole(source, half, index, halves.len()));
    let tree = FatTree {
        hosts,
        pod_hosts: pod_hosts.unwrap_or(hosts),
        tiers: tiers.collect::<Result<_, _>>()?,
        queue,
    };
    check_oversubscription(source, &tree, &halves)?;
    tree.graph().map_err(|error| source.error(0, error.to_string()))
}

fn unknown(source: Source<'_>, at: usize, key: &str) -> FileError {
    let known =
        "Nodes, Podsize, Tiers, Tier, Radix_Down, Radix_Up, Downlink_speed_Gbps, Downlink_Latency_ns, \
                 Switch_Latency_ns, Bundle, Oversubscribed";
    source.error(at, format!("{key} is not known here; known are {known}"))
}

fn read_tier(half: &mut Half, key: &str, value: u32) -> Option<()> {
    match key {
        "radix_down" => half.radix_down = Some(value),
        "radix_up" => half.radix_up = Some(value),
        "downlink_speed_gbps" => half.gbps = Some(value.into()),
        "downlink_latency_ns" => half.delay_ns = Some(value.into()),
        "switch_latency_ns" => half.switch_delay_ns = value.into(),
        "bundle" => half.bundle = Some(value),
        "oversubscribed" => half.oversubscribed = Some(value.into()),
        _ => return None,
    }
    Some(())
}

fn whole(source: Source<'_>, half: &Half, index: usize, tiers: usize) -> Result<Tier, FileError> {
    let missing = |key: &str| source.error(half.at, format!("{key} of tier {index} is missing"));
    let highest = index + 1 == tiers;
    let gbps = half.gbps.ok_or_else(|| missing("Downlink_speed_Gbps"))?;
    let rate = Rate::from_bits_per_second(gbps.saturating_mul(1_000_000_000));
    Ok(Tier {
        radix_down: half.radix_down.ok_or_else(|| missing("Radix_Down"))?,
        radix_up: match half.radix_up {
            Some(radix) => radix,
            None if highest => 0,
            None => return Err(missing("Radix_Up")),
        },
        bundle: half.bundle.unwrap_or(1),
        rate: rate.ok_or_else(|| {
            source
                .error(half.at, format!("Downlink_speed_Gbps of tier {index}: must be 1 to 8000, not {gbps}"))
        })?,
        delay: Time::from_nanos(half.delay_ns.ok_or_else(|| missing("Downlink_Latency_ns"))?),
        switch_delay: Time::from_nanos(half.switch_delay_ns),
    })
}

/// What the file says about it must be what its radixes and speeds make of it.
fn check_oversubscription(source: Source<'_>, tree: &FatTree, halves: &[Half]) -> Result<(), FileError> {
    for (index, half) in halves.iter().enumerate() {
        let (Some(said), Some(above)) = (half.oversubscribed, tree.tiers.get(index + 1)) else { continue };
        let tier = &tree.tiers[index];
        let down = u64::from(tier.radix_down) * tier.rate.bits_per_second();
        let up = u64::from(tier.radix_up) * above.rate.bits_per_second();
        if down != up.saturating_mul(said) {
            let problem = format!(
                "tier {index} is said to be oversubscribed {said}:1, but its ports make it {down}:{up}"
            );
            return Err(source.error(half.at, problem));
        }
    }
    Ok(())
}
