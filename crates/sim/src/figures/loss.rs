//! Figure 11: an AllReduce over a link that loses packets.

use super::chart::{Panel, Series};
use super::paper::{all, at, of, Chosen, OBS, OURS, POLICIES, SINGLE};
use super::verdict::{judge, Pair, Verdict};
use super::{named, Case, Figure, Outcome, Reading, Scale};

pub(super) const FIGURE: Figure = Figure {
    id: "fig11",
    title: "Figure 11: AllReduce over a link that loses 1 % and 3 % of its packets",
    paper: "an AllReduce of 960 GPUs while one link drops packets at random; the same numbers with 1 % and with 3 %.",
    differs: "The paper does not say which link it was, nor why DWRR alone falls behind; its single path is as good as \
              any other, so the loss cannot have met much. With neighbours at the same leaf only the two steps that cross can meet \
              it here. The second diagram is the harder case that the paper leaves out: every step crosses, and a loss \
              holds up all that wait for it.",
    cases,
    read,
};

/// Bus bandwidth, GB/s; the largest possible is 50.
const PUBLISHED: [(&str, f64); 6] = [
    ("single path", 49.9),
    ("BestRTT", 49.9),
    ("MP-RDMA", 49.9),
    ("DWRR", 46.5),
    ("RR", 49.9),
    ("OBS", 49.9),
];
const LOSSES: [f64; 3] = [0.0, 1.0, 3.0];
/// Values that are closer than 5 % count as equal.
const MARGIN: f64 = 1.05;

const SERIES: [Series; 4] = [
    Series { name: "1 % and 3 %, published", published: true, colour: 1 },
    Series { name: "no loss, here", published: false, colour: 0 },
    Series { name: "1 %, here", published: false, colour: 1 },
    Series { name: "3 %, here", published: false, colour: 3 },
];

/// Which steps of the ring go from leaf to leaf.
#[derive(Clone, Copy, PartialEq)]
enum Crossing {
    Two,
    All,
}

/// Who is shown where every step crosses.
fn crossing_all() -> [Chosen; 3] {
    [SINGLE, OBS, OURS]
}

fn name(chosen: Chosen, loss: f64, crossing: Crossing) -> String {
    let steps = if crossing == Crossing::All { ", all cross" } else { "" };
    format!("{}, {loss} % lost{steps}", chosen.case(128))
}

fn cases(scale: Scale) -> Vec<Case> {
    let two = all().map(|chosen| (chosen, Crossing::Two));
    let each = two.chain(crossing_all().map(|chosen| (chosen, Crossing::All)));
    each.flat_map(|(chosen, crossing)| LOSSES.map(|loss| case(scale, chosen, loss, crossing))).collect()
}

fn case(scale: Scale, chosen: Chosen, loss: f64, crossing: Crossing) -> Case {
    let (hosts, spines) = at(scale, (60, 60), (8, 8), (4, 4));
    let kib = at(scale, 262_144, 16_384, 512);
    let stride = if crossing == Crossing::All { hosts + 1 } else { 1 };
    let network = format!(
        "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nhosts_per_leaf = {hosts}\nspines = {spines}\nhost_gbps = \
         400\n[workload]\nkind = \"allreduce-ring\"\nkib = {kib}\nslices = 2\nstride = {stride}\n[[fault]]\non = \
         \"leaf0-spine1\"\nwhat = \"loss\"\npercent = {loss}\n[run]\nlimit_ms = 500\nsample_us = 100\n"
    );
    let text = chosen.transport(128, "") + &network;
    Case { name: name(chosen, loss, crossing), text, workload: None, endless: false }
}

fn read(outcomes: &[Outcome]) -> Reading {
    let gbytes = |chosen, loss, crossing| {
        let report = named(outcomes, &name(chosen, loss, crossing));
        report.and_then(|report| report.bus_gbps).unwrap_or_default() / 8.0
    };
    let bars = |chosen: Chosen, published: Option<f64>, crossing| {
        let here = LOSSES.map(|loss| gbytes(chosen, loss, crossing));
        (chosen.name.to_owned(), vec![published, Some(here[0]), Some(here[1]), Some(here[2])])
    };
    let two = all().map(|chosen| bars(chosen, of(&PUBLISHED, chosen), Crossing::Two));
    let every = crossing_all().map(|chosen| bars(chosen, None, Crossing::All));
    let mut verdict = Verdict::default();
    for loss in [1.0, 3.0] {
        let pair = |&chosen: &Chosen| {
            let name = format!("bus bandwidth of {} with {loss} % lost", chosen.name);
            Some(Pair { name, published: of(&PUBLISHED, chosen)?, here: gbytes(chosen, loss, Crossing::Two) })
        };
        let pairs: Vec<Pair> = POLICIES.iter().filter_map(pair).collect();
        verdict = verdict.and(judge(&pairs, MARGIN));
    }
    let panel = |caption: &str, groups| Panel {
        caption: format!("bus bandwidth, 128 paths, {caption}"),
        unit: "GB/s",
        logarithmic: false,
        from: 0.0,
        groups,
    };
    let members = outcomes.first().map_or(0, |outcome| outcome.report.flows.len());
    let kept =
        |chosen, crossing| gbytes(chosen, 3.0, crossing) / gbytes(chosen, 0.0, crossing).max(1e-9) * 100.0;
    let said = |crossing| {
        let kept = crossing_all().map(|chosen| kept(chosen, crossing));
        format!(
            "a single path keeps {:.1} % of what it had, OBS {:.1} %, the default here {:.1} %",
            kept[0], kept[1], kept[2]
        )
    };
    Reading {
        here: format!(
            "a ring AllReduce of {members} hosts with 400 Gbit/s each at two leaves; one uplink of the first leaf loses \
             packets in both directions. Pairs are judged if they differ by 5 % or more."
        ),
        series: SERIES.to_vec(),
        panels: vec![
            panel("two steps of the ring cross", two.collect()),
            panel("every step crosses", every.to_vec()),
        ],
        verdict,
        remarks: vec![format!(
            "With 3 % lost {}; where every step crosses, {}.",
            said(Crossing::Two),
            said(Crossing::All)
        )],
    }
}
