//! What the number of paths does to a network.

use srdma_fabric::{End, Fabric, FlowId, Pattern};

use crate::net::{across, config};

/// Bytes that leave each spine.
fn spine_bytes(fabric: &Fabric<Pattern>) -> Vec<u64> {
    let spine = |name: u32| fabric.graph().switch_named(&format!("spine{name}")).unwrap();
    let bytes = |index: u32| {
        let end = End::Switch(spine(index));
        let links = fabric.links_at(end).into_iter().filter(|&link| fabric.ends(link).0 == end);
        // Data and no acknowledgements: the receivers' leaf is the second.
        let down = links.filter(|&link| fabric.ends(link).1 == End::Switch(1));
        down.map(|link| fabric.links()[link.0 as usize].counts().bytes).sum()
    };
    (0..4).map(bytes).collect()
}

fn check(fabric: &Fabric<Pattern>, flows: &[FlowId], bytes: u64) {
    for flow in flows {
        let flow = fabric.flow(*flow).unwrap();
        let origin = srdma_fabric::Origin { host: flow.from, address: 0 };
        fabric.ground(flow.to).unwrap().check(bytes, bytes, origin).unwrap();
    }
}

#[test]
fn many_paths_use_all_spines_alike_and_one_uses_one() {
    for seed in 1..4 {
        let (fabric, flows, notices) = across(config(128, seed), 1, 8 << 20, |_| {});
        assert_eq!(notices.len(), 2, "seed {seed}");
        check(&fabric, &flows, 8 << 20);
        let spines = spine_bytes(&fabric);
        let mean = spines.iter().sum::<u64>() as f64 / 4.0;
        // 128 hashes into 4 spines are uneven by themselves: a standard deviation of 15 %. What counts is that the
        // share of the load is that of the paths.
        let paths = paths_by_spine(&fabric, flows[0]);
        for (spine, &bytes) in spines.iter().enumerate() {
            let wanted = paths[spine] as f64 / 32.0;
            let share = bytes as f64 / mean;
            assert!((share / wanted - 1.0).abs() < 0.05, "seed {seed}: {spines:?}, paths {paths:?}");
        }
        let (fabric, flows, _) = across(config(1, seed), 1, 1 << 20, |_| {});
        check(&fabric, &flows, 1 << 20);
        let used = spine_bytes(&fabric).into_iter().filter(|&bytes| bytes > 100_000).count();
        assert_eq!(used, 1, "seed {seed}: {:?}", spine_bytes(&fabric));
    }
}

#[test]
fn over_several_connections_the_spines_are_within_fifteen_percent() {
    for seed in 1..4 {
        let (fabric, flows, _) = across(config(128, seed), 8, 1 << 20, |_| {});
        check(&fabric, &flows, 1 << 20);
        let spines = spine_bytes(&fabric);
        let mean = spines.iter().sum::<u64>() as f64 / 4.0;
        let worst = spines.iter().map(|&bytes| (bytes as f64 / mean - 1.0).abs()).fold(0.0, f64::max);
        assert!(worst < 0.15, "seed {seed}: {spines:?}");
    }
}

/// How many of a flow's 128 paths lead over each spine.
fn paths_by_spine(fabric: &Fabric<Pattern>, flow: FlowId) -> [u32; 4] {
    let mut counts = [0; 4];
    for path in 0..128 {
        let way = fabric.way(flow, srdma_seams::PathId(path)).unwrap();
        let spine = way.iter().find_map(|&link| match fabric.ends(link).1 {
            End::Switch(switch) => switch.checked_sub(2),
            End::Host(_) => None,
        });
        counts[spine.unwrap() as usize] += 1;
    }
    counts
}
