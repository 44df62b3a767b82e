//! What a network can hold of one flow, for windows that are larger.

use srdma_fabric::{Cable, End, Graph};

use crate::reader::{FileError, Table};

/// Bytes of one flow that can be under way between two hosts without loss, at most: what is on the wires in a round trip
/// of the longest way, and every queue on it full.
pub(crate) fn held_bytes(graph: &Graph) -> u64 {
    let tier = |end: End| match end {
        End::Host(_) => 0,
        End::Switch(switch) => graph.switches.get(switch as usize).map_or(0, |switch| switch.tier),
    };
    let highest = graph.switches.iter().map(|switch| switch.tier).max().unwrap_or(1);
    // Up to each tier and down again, each way.
    let delay_ps: u64 = (1..=highest)
        .map(|upper| {
            let there = graph.cables.iter().filter(|cable| tier(cable.from).max(tier(cable.to)) == upper);
            there.map(|cable| cable.delay.0).max().unwrap_or(0)
        })
        .sum();
    let of_host = |cable: &&Cable| matches!(cable.from, End::Host(0));
    let (ports, bits): (u64, u64) = graph
        .cables
        .iter()
        .filter(of_host)
        .fold((0, 0), |(ports, bits), cable| (ports + 1, bits + cable.rate.bits_per_second()));
    let wires = u128::from(bits) * u128::from(4 * delay_ps) / 8_000_000_000_000;
    let queue = graph.cables.iter().map(|cable| cable.queue.bytes).max().unwrap_or(0);
    let queues = ports.saturating_mul(2 * u64::from(highest) - 1).saturating_mul(queue);
    queues.saturating_add(u64::try_from(wires).unwrap_or(u64::MAX))
}

/// Refuses windows that are written and can only be filled with losses.
pub(crate) fn check_windows(table: &Table<'_>, graph: &Graph) -> Result<(), FileError> {
    let held = held_bytes(graph);
    for key in ["window_initial_kib", "window_max_kib"] {
        let Some(kib) = table.whole(key, 1..=1 << 30)? else { continue };
        if kib << 10 > held {
            let most = held >> 10;
            let problem =
                format!("{kib} KiB are more than the longest way holds, queues and wires: {most} KiB");
            return Err(table.error_on(key, &problem));
        }
    }
    Ok(())
}
