//! Figure 9: how long queues get under a permutation, with few paths and with many.

use super::chart::{Panel, Series};
use super::paper::{all, at, of, Chosen, OBS, OURS, POLICIES, SINGLE};
use super::verdict::{judge, Pair, Verdict};
use super::{named, Case, Figure, Outcome, Reading, Scale};

pub(super) const FIGURE: Figure = Figure {
    id: "fig9",
    title: "Figure 9: queues of the lowest switches under a permutation",
    paper: "30 servers, 120 flows between two segments of HPN 7.0, each to a random target; queue length at the ToR \
            switches.",
    differs: "Which queues were added up is not published. Longest and mean are nearly equal in it, which one port's queue \
              never is, so the sum over a switch's uplinks is taken here, while all flows are under way; and its queues of 5 \
              to 7 MB at 400 Gbit/s say that its window bears 50 µs of queueing and more. With both, kilobytes agree better than \
              could be expected. At four paths MP-RDMA and DWRR do better here than there: they leave the fuller ones within \
              the time that is shown. BestRTT does worse with 128: it puts a whole window on one path before that path's \
              round trip can tell.",
    cases,
    read,
};

/// KB at four paths and at 128, longest and mean. The single path was measured twice.
const PUBLISHED: [(&str, [[f64; 2]; 2]); 6] = [
    ("single path", [[4669.0, 2220.0], [6958.0, 1892.0]]),
    ("BestRTT", [[2820.0, 2010.0], [793.0, 407.0]]),
    ("MP-RDMA", [[1140.0, 651.0], [50.0, 43.0]]),
    ("DWRR", [[629.0, 305.0], [50.0, 42.0]]),
    ("RR", [[503.0, 305.0], [50.0, 42.0]]),
    ("OBS", [[612.0, 342.0], [53.0, 42.0]]),
];
/// What the published queues of a single path say of the paper's window.
const WINDOW: &str = "target_delay_us = 50";
const PATHS: [u16; 2] = [4, 128];
/// Values that are closer than a quarter count as equal.
const MARGIN: f64 = 1.25;

const SERIES: [Series; 4] = [
    Series { name: "longest, published", published: true, colour: 0 },
    Series { name: "longest, here", published: false, colour: 0 },
    Series { name: "mean, published", published: true, colour: 1 },
    Series { name: "mean, here", published: false, colour: 1 },
];

fn cases(scale: Scale) -> Vec<Case> {
    let (leaves, hosts, spines) = at(scale, (4, 30, 30), (4, 30, 30), (4, 8, 4));
    // Long enough that nobody is through at the end; what waits in the first microseconds is the common start.
    let (limit_us, warm_up_us) = at(scale, (4_000, 1_000), (300, 100), (60, 20));
    let kib = limit_us * 26;
    let network = format!(
        "[topology]\nkind = \"leaf-spine\"\nleaves = {leaves}\nhosts_per_leaf = {hosts}\nspines = {spines}\nhost_gbps = \
         200\nspine_gbps = 400\nqueue_kib = 16384\necn_min_kib = 2048\necn_max_kib = 6144\n[workload]\nkind = \"permutation\"\nkib = {kib}\n[run]\nlimit_ms = {}\nwarm_up_us = \
         {warm_up_us}\nsample_us = 2\n",
        f64::from(limit_us) / 1e3
    );
    let mut cases: Vec<Case> = Vec::new();
    for paths in PATHS {
        for chosen in all() {
            let name = chosen.case(paths);
            if cases.iter().all(|case| case.name != name) {
                let text = chosen.transport(paths, WINDOW) + &network;
                cases.push(Case { name, text, workload: None, endless: true });
            }
        }
    }
    cases
}

/// Longest and mean queue of a whole leaf towards the spines, KB.
fn queues(outcomes: &[Outcome], chosen: Chosen, paths: u16) -> [f64; 2] {
    let queue = named(outcomes, &chosen.case(paths)).map(|report| &report.switch_queue);
    queue.map_or([0.0; 2], |queue| [queue.max_bytes as f64 / 1e3, queue.mean_bytes / 1e3])
}

fn read(outcomes: &[Outcome]) -> Reading {
    let mut verdict = Verdict::default();
    let mut panels = Vec::new();
    for (column, paths) in PATHS.into_iter().enumerate() {
        let mut groups = Vec::new();
        let mut pairs: [Vec<Pair>; 2] = Default::default();
        for &chosen in POLICIES {
            let Some(published) = of(&PUBLISHED, chosen) else { continue };
            let (published, here) = (published[column], queues(outcomes, chosen, paths));
            for (which, what) in ["longest", "mean"].into_iter().enumerate() {
                let name = format!("{what} queue of {} at {paths} paths", chosen.name);
                pairs[which].push(Pair { name, published: published[which], here: here[which] });
            }
            let values = [published[0], here[0], published[1], here[1]].map(Some).to_vec();
            groups.push((chosen.name.to_owned(), values));
        }
        let ours = queues(outcomes, OURS, paths);
        groups.push((OURS.name.to_owned(), vec![None, Some(ours[0]), None, Some(ours[1])]));
        for pairs in &pairs {
            verdict = verdict.and(judge(pairs, MARGIN));
        }
        let caption = format!("{paths} paths");
        panels.push(Panel { caption, unit: "KB", logarithmic: true, from: 0.0, groups });
    }
    for &chosen in &POLICIES[1..] {
        let mean = |paths| queues(outcomes, chosen, paths)[1];
        let name = |paths| format!("mean queue of {} at {paths} paths", chosen.name);
        verdict = verdict.and(Verdict::of((&name(4), mean(4)), (&name(128), mean(128))));
    }
    let share = queues(outcomes, OBS, 128)[1] / queues(outcomes, SINGLE, 128)[1].max(1e-9);
    let hosts = outcomes.first().map_or(0, |outcome| outcome.report.flows.len());
    Reading {
        here: format!(
            "a permutation of {hosts} hosts with 200 Gbit/s each on a leaf-spine network whose uplinks have \
             400 Gbit/s and are half busy; what waits in all uplinks of a leaf together, every 2 µs, all flows under way. \
             Pairs are judged if they differ by a quarter or more."
        ),
        series: SERIES.to_vec(),
        panels,
        verdict,
        remarks: vec![format!(
            "OBS with 128 paths has {:.1} % of the single path's mean queue here; the paper's has 2.2 %.",
            share * 100.0
        )],
    }
}
