//! Figure 12: how evenly uplinks are loaded, by the number of paths.

use srdma_workload::Plan;

use super::chart::{Panel, Series};
use super::paper::{at, Chosen, OBS, OURS};
use super::verdict::{judge, Pair};
use super::{named, Case, Figure, Outcome, Reading, Scale};
use crate::job::Workload;

pub(super) const FIGURE: Figure = Figure {
    id: "fig12",
    title: "Figure 12: imbalance of the uplinks against the number of paths",
    paper: "16 connections, 4 to 256 paths each; imbalance is the largest less the smallest load of a ToR switch's uplinks, as \
            a share of a port's bandwidth.",
    differs: "How many NICs were busy is not published; sixteen connections of one NIC alone would spread far worse with \
              few paths. Here a segment of them is busy, and the hash is an ideal one: what remains at 256 paths in the paper \
              (its 8.7 % are no less than the 8.5 % at 128) is what real switches hash worse.",
    cases,
    read,
};

const PUBLISHED: [(u16, f64); 6] = [(4, 50.0), (8, 29.0), (16, 20.0), (64, 11.0), (128, 8.5), (256, 8.7)];
/// Values that are closer than a quarter count as equal.
const MARGIN: f64 = 1.25;
/// The blind policy of the paper and ours.
const CHOSEN: [Chosen; 2] = [OBS, OURS];
const CONNECTIONS: u32 = 16;

const SERIES: [Series; 3] = [
    Series { name: "OBS, published", published: true, colour: 0 },
    Series { name: "OBS, here", published: false, colour: 0 },
    Series { name: "default here", published: false, colour: 2 },
];

fn cases(scale: Scale) -> Vec<Case> {
    let (hosts, spines) = at(scale, (128, 60), (64, 60), (16, 8));
    let kib = at(scale, 4_096, 512, 256);
    let connections = at(scale, CONNECTIONS, CONNECTIONS, 4);
    let mut plan = Plan::default();
    for from in 0..hosts {
        for step in 0..connections {
            // Each host of the one leaf to some of the other.
            plan.push(from, hosts + (from + step * (hosts / connections)) % hosts, kib << 10, &[]);
        }
    }
    let network = format!(
        "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nhosts_per_leaf = {hosts}\nspines = {spines}\nhost_gbps = \
         200\nspine_gbps = 400\n[run]\nlimit_ms = 500\nsample_us = 100\n"
    );
    let each = CHOSEN.into_iter().flat_map(|chosen| PUBLISHED.map(|(paths, _)| (chosen, paths)));
    each.map(|(chosen, paths)| Case {
        name: chosen.case(paths),
        text: chosen.transport(paths, "") + &network,
        workload: Some(Workload::Matrix(plan.clone())),
        endless: false,
    })
    .collect()
}

fn read(outcomes: &[Outcome]) -> Reading {
    let percent = |chosen: Chosen, paths| {
        named(outcomes, &chosen.case(paths)).map_or(0.0, |report| report.uplink_imbalance * 100.0)
    };
    let mut groups = Vec::new();
    let mut pairs = Vec::new();
    for (paths, published) in PUBLISHED {
        let (blind, ours) = (percent(CHOSEN[0], paths), percent(CHOSEN[1], paths));
        groups.push((format!("{paths} paths"), vec![Some(published), Some(blind), Some(ours)]));
        pairs.push(Pair { name: format!("imbalance at {paths} paths"), published, here: blind });
    }
    let flows = outcomes.first().map_or(0, |outcome| outcome.report.flows.len());
    let spines = outcomes.first().map_or(0, |outcome| outcome.report.spine_bytes.len());
    let share = percent(OURS, 128) / percent(CHOSEN[0], 128).max(1e-9);
    Reading {
        here: format!(
            "{flows} connections from the hosts of one leaf to those of another over {spines} uplinks of 400 Gbit/s; hosts \
             have 200. Pairs are judged if they differ by a quarter or more."
        ),
        series: SERIES.to_vec(),
        panels: vec![Panel {
            caption: "largest less smallest load of an uplink".to_owned(),
            unit: "% of its bandwidth",
            logarithmic: false,
            from: 0.0,
            groups,
        }],
        verdict: judge(&pairs, MARGIN),
        remarks: vec![format!("The default here has {share:.2} times the imbalance of OBS at 128 paths.")],
    }
}
