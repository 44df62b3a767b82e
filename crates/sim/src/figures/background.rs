//! Figure 10: an AllReduce beside others, which are there all the time (a) or come and go (b).

use super::chart::{Panel, Series};
use super::paper::{all, at, of, Chosen, OBS, OURS, POLICIES, RR};
use super::verdict::{judge, Pair, Verdict};
use super::{named, Case, Figure, Outcome, Reading, Scale};

pub(super) const STATIC: Figure = Figure {
    id: "fig10a",
    title: "Figure 10a: AllReduce beside two others",
    paper: "two AllReduces of 512 GPUs in the background, a third of 512 is measured.",
    differs: "How the ranks of the paper's jobs lie is not published. Here every step of every ring crosses, so a single path \
              collides at each step, and the whole ring waits for the slowest; the paper's rings cross less.",
    cases: static_cases,
    read: static_read,
};

pub(super) const BURSTY: Figure = Figure {
    id: "fig10b",
    title: "Figure 10b: AllReduce beside one that comes and goes",
    paper: "an AllReduce that is on for 5 s and off for 5 s in the background, another of 512 GPUs is measured, with messages \
            of 4 GB and of 8 GB.",
    differs: "The paper's round-robin falls behind random choice by a quarter, which it puts down to its interplay with \
              congestion control, without saying how. Here round-robin begins at a path drawn for each connection and each \
              host sends to one other, so that nothing keeps connections in step; what is left is that four paths collide \
              and 128 do not, whichever way they are chosen.",
    cases: bursty_cases,
    read: bursty_read,
};

/// Bus bandwidth at 4 paths and at 128, GB/s; the largest possible is 50. The single path was measured twice.
const STATIC_PUBLISHED: [(&str, [f64; 2]); 6] = [
    ("single path", [35.6, 29.3]),
    ("BestRTT", [33.9, 37.2]),
    ("MP-RDMA", [40.1, 49.2]),
    ("DWRR", [40.1, 44.9]),
    ("RR", [42.4, 49.2]),
    ("OBS", [40.0, 49.2]),
];
const PATHS: [u16; 2] = [4, 128];
/// Values that are closer than a tenth count as equal.
const MARGIN: f64 = 1.1;

const STATIC_SERIES: [Series; 4] = [
    Series { name: "4 paths, published", published: true, colour: 0 },
    Series { name: "4 paths, here", published: false, colour: 0 },
    Series { name: "128 paths, published", published: true, colour: 1 },
    Series { name: "128 paths, here", published: false, colour: 1 },
];

/// NICs of a server, of which figure 10b adds up the bandwidth.
const NICS: f64 = 4.0;
/// Policy, paths, and bus bandwidth with the smaller and the larger message, GB/s.
const BURSTY_PUBLISHED: [(Chosen, u16, [f64; 2]); 4] = [
    (RR, 4, [127.0, 141.0]),
    (RR, 128, [143.0, 146.0]),
    (OBS, 4, [171.0, 174.0]),
    (OBS, 128, [178.0, 181.0]),
];
const SIZES: [&str; 2] = ["smaller messages", "larger messages"];

const BURSTY_SERIES: [Series; 4] = [
    Series { name: "4 GB, published", published: true, colour: 0 },
    Series { name: "smaller, here", published: false, colour: 0 },
    Series { name: "8 GB, published", published: true, colour: 1 },
    Series { name: "larger, here", published: false, colour: 1 },
];

/// Two leaves, an uplink twice as fast as a host as in HPN, and half of the uplinks' bandwidth to spare. Hosts of each leaf,
/// and spines.
fn network(scale: Scale) -> (u32, u32) {
    at(scale, (192, 192), (24, 24), (6, 6))
}

fn job(name: &str, scale: Scale, kib: u32, more: &str) -> String {
    let (hosts, _) = network(scale);
    let members = hosts * 2 / 3;
    // Half of the members at each leaf; a stride of one more than that takes each step to the other leaf.
    format!(
        "[[job]]\nname = \"{name}\"\nkind = \"allreduce-ring\"\nkib = {kib}\nhosts = {members}\nslices = 2\nsegments = \
         2\nsegment_hosts = {hosts}\nplacement = \"stride\"\nstride = {}\n{more}\n",
        members / 2 + 1
    )
}

/// `spare`: uplinks have twice the bandwidth that hosts have, otherwise the same.
fn case(name: String, scale: Scale, chosen: Chosen, paths: u16, jobs: &str, spare: bool) -> Case {
    let (hosts, spines) = network(scale);
    let spines = if spare { spines } else { spines / 2 };
    let network = format!(
        "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nhosts_per_leaf = {hosts}\nspines = {spines}\nhost_gbps = \
         400\nspine_gbps = 800\n[run]\nlimit_ms = 1000\nsample_us = 100\n"
    );
    Case { name, text: chosen.transport(paths, "") + &network + jobs, workload: None, endless: false }
}

fn static_cases(scale: Scale) -> Vec<Case> {
    let kib = at(scale, 262_144, 8_192, 256);
    let background: String =
        ["one", "two"].iter().map(|name| job(name, scale, kib, "background = true")).collect();
    let jobs = background + &job("measured", scale, kib, "start_us = 20");
    let mut cases: Vec<Case> = Vec::new();
    for paths in PATHS {
        for chosen in all() {
            let name = chosen.case(paths);
            if cases.iter().all(|case| case.name != name) {
                cases.push(case(name, scale, chosen, paths, &jobs, true));
            }
        }
    }
    cases
}

/// Bus bandwidth of the job that is measured, GB/s.
fn gbytes(outcomes: &[Outcome], case: &str) -> f64 {
    let jobs = named(outcomes, case).map_or(&[][..], |report| &report.jobs[..]);
    let job = jobs.iter().find(|job| job.name == "measured");
    job.and_then(|job| job.bus_gbps).unwrap_or_default() / 8.0
}

fn members(outcomes: &[Outcome]) -> u32 {
    outcomes.first().and_then(|outcome| outcome.report.jobs.last()).map_or(0, |job| job.members)
}

fn static_read(outcomes: &[Outcome]) -> Reading {
    let here = |chosen: Chosen| PATHS.map(|paths| gbytes(outcomes, &chosen.case(paths)));
    let mut groups = Vec::new();
    let mut pairs: [Vec<Pair>; 2] = Default::default();
    for &chosen in POLICIES {
        let Some(published) = of(&STATIC_PUBLISHED, chosen) else { continue };
        let here = here(chosen);
        groups.push((
            chosen.name.to_owned(),
            [published[0], here[0], published[1], here[1]].map(Some).to_vec(),
        ));
        for (column, paths) in PATHS.into_iter().enumerate() {
            let name = format!("bus bandwidth of {} at {paths} paths", chosen.name);
            pairs[column].push(Pair { name, published: published[column], here: here[column] });
        }
    }
    let ours = here(OURS);
    groups.push((OURS.name.to_owned(), vec![None, Some(ours[0]), None, Some(ours[1])]));
    let verdict = pairs.iter().fold(Verdict::default(), |verdict, pairs| verdict.and(judge(pairs, MARGIN)));
    Reading {
        here: format!(
            "ring AllReduces of {} hosts with 400 Gbit/s each, half at each of two leaves, every step from leaf to leaf; \
             uplinks of 800 Gbit/s, twice as many as needed. Pairs with equally many paths are judged if they differ by a \
             tenth or more.",
            members(outcomes)
        ),
        series: STATIC_SERIES.to_vec(),
        panels: vec![measured(groups)],
        verdict,
        remarks: Vec::new(),
    }
}

/// What both figures show of the AllReduce that is measured.
fn measured(groups: Vec<(String, Vec<Option<f64>>)>) -> Panel {
    Panel {
        caption: "bus bandwidth of the AllReduce that is measured".to_owned(),
        unit: "GB/s",
        logarithmic: false,
        from: 0.0,
        groups,
    }
}

fn bursty_name(chosen: Chosen, paths: u16, size: usize) -> String {
    format!("{}, {}", chosen.case(paths), SIZES[size])
}

/// Policy and paths of each group of bars.
fn bursty_chosen() -> impl Iterator<Item = (Chosen, u16)> {
    BURSTY_PUBLISHED.into_iter().map(|(chosen, paths, _)| (chosen, paths)).chain([(OURS, 128)])
}

fn bursty_cases(scale: Scale) -> Vec<Case> {
    let kib = at(scale, [131_072, 262_144], [8_192, 16_384], [128, 256]);
    let (on, off) = at(scale, (4_000, 4_000), (300, 300), (20, 20));
    let burst = format!("background = true\non_us = {on}\noff_us = {off}");
    let mut cases = Vec::new();
    for (chosen, paths) in bursty_chosen() {
        for (size, kib) in kib.into_iter().enumerate() {
            let bursts = ["one", "two"].map(|name| job(name, scale, kib, &burst)).concat();
            let jobs = bursts + &job("measured", scale, kib, "");
            cases.push(case(bursty_name(chosen, paths, size), scale, chosen, paths, &jobs, false));
        }
    }
    cases
}

fn bursty_read(outcomes: &[Outcome]) -> Reading {
    let here = |chosen, paths| [0, 1].map(|size| NICS * gbytes(outcomes, &bursty_name(chosen, paths, size)));
    let mut groups = Vec::new();
    let mut pairs: [Vec<Pair>; 2] = Default::default();
    for (chosen, paths, published) in BURSTY_PUBLISHED {
        let here = here(chosen, paths);
        groups.push((chosen.case(paths), [published[0], here[0], published[1], here[1]].map(Some).to_vec()));
        for size in [0, 1] {
            let name = format!("bus bandwidth of {} with {}", chosen.case(paths), SIZES[size]);
            pairs[size].push(Pair { name, published: published[size], here: here[size] });
        }
    }
    let ours = here(OURS, 128);
    groups.push((OURS.case(128), vec![None, Some(ours[0]), None, Some(ours[1])]));
    let verdict = pairs.iter().fold(Verdict::default(), |verdict, pairs| verdict.and(judge(pairs, MARGIN)));
    Reading {
        here: format!(
            "ring AllReduces of {} hosts as in figure 10a, on half as many uplinks, two in the background in bursts with \
             equal pauses; times and sizes are scaled down together. Bandwidth of four NICs, as in the paper's servers. Pairs are \
             judged if they differ by a tenth or more.",
            members(outcomes)
        ),
        series: BURSTY_SERIES.to_vec(),
        panels: vec![measured(groups)],
        verdict,
        remarks: Vec::new(),
    }
}
