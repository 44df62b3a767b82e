//! Figures 15 and 16: how much faster models train than over single paths.

use super::chart::{Panel, Series};
use super::paper::{at, Chosen, OBS, SINGLE};
use super::verdict::{judge, Pair, Verdict};
use super::{named, Case, Figure, Outcome, Reading, Scale};

pub(super) const FIGURE: Figure = Figure {
    id: "fig15",
    title: "Figures 15 and 16: training steps, re-ranked and at random, against a single path",
    paper: "five models on 1,024 GPUs, half in each of two segments of HPN 7.0, against the network cards and the single path \
            that were there before; ranks placed by the network (figure 15) or at random (figure 16).",
    differs: "Batches, sequence lengths and what hides behind computing are not published; here they are usual ones on fewer \
              GPUs, with fewer stages for the two largest models and steps shortened in proportion. So the gains of \
              re-ranked ranks, whose rings hardly cross, are nothing instead of a percent, and those at random are larger where \
              a step here computes less between its reductions (GPT-7B, MoE).",
    cases,
    read,
};

/// The model as a scenario names it, stages that fit so few GPUs, what the paper calls it, and its speed-up re-ranked and at
/// random, %.
const PUBLISHED: [(&str, u32, &str, [f64; 2]); 5] = [
    ("gpt-7b", 1, "GPT-7B", [0.23, 2.2]),
    ("gpt-13b", 1, "GPT-13B", [0.92, 14.0]),
    ("gpt-65b", 2, "GPT-65B", [1.20, 11.8]),
    ("gpt-175b", 2, "GPT-175B", [1.07, 3.0]),
    ("moe", 1, "MoE", [0.20, 1.3]),
];
const PLACEMENTS: [(&str, &str); 2] = [("consecutive", "re-ranked"), ("random", "at random")];
/// Values that are closer than a quarter count as equal.
const MARGIN: f64 = 1.25;

const SERIES: [Series; 2] = [
    Series { name: "published", published: true, colour: 0 },
    Series { name: "OBS 128, here", published: false, colour: 0 },
];

fn name(model: &str, placement: &str, chosen: Chosen) -> String {
    format!("{model}, {placement}, {}", chosen.case(128))
}

fn cases(scale: Scale) -> Vec<Case> {
    // Hosts of a leaf, spines; how much shorter steps are.
    let (hosts, spines, shorter) = at(scale, (128, 128, 500), (32, 32, 1_000), (32, 32, 100_000));
    let mut cases = Vec::new();
    for (model, stages, _, _) in PUBLISHED {
        for (placement, _) in PLACEMENTS {
            for chosen in [SINGLE, OBS] {
                let network = format!(
                    "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nhosts_per_leaf = {hosts}\nspines = {spines}\nhost_gbps = \
                     400\nspine_gbps = 800\n[[job]]\nkind = \"training\"\nmodel = \"{model}\"\nplacement = \
                     \"{placement}\"\npipeline = {stages}\nscale = {shorter}\n[run]\nlimit_ms = 1000\nsample_us = 500\n"
                );
                let text = chosen.transport(128, "") + &network;
                cases.push(Case {
                    name: name(model, placement, chosen),
                    text,
                    workload: None,
                    endless: false,
                });
            }
        }
    }
    cases
}

fn read(outcomes: &[Outcome]) -> Reading {
    let step_us = |model, placement, chosen| {
        let report = named(outcomes, &name(model, placement, chosen));
        report.and_then(|report| report.jobs.first()).map_or(0.0, |job| job.round_us.mean)
    };
    // How much longer a step takes with a single path, %.
    let faster = |model, placement| {
        (step_us(model, placement, SINGLE) / step_us(model, placement, OBS).max(1e-9) - 1.0) * 100.0
    };
    let mut verdict = Verdict::default();
    let mut panels = Vec::new();
    for (column, (placement, said)) in PLACEMENTS.into_iter().enumerate() {
        let mut groups = Vec::new();
        let mut pairs = Vec::new();
        for (model, _, title, published) in PUBLISHED {
            let here = faster(model, placement);
            groups.push((title.to_owned(), vec![Some(published[column]), Some(here)]));
            let name = format!("speed-up of {title} {said}");
            pairs.push(Pair { name, published: published[column], here });
        }
        verdict = verdict.and(judge(&pairs, MARGIN));
        let caption = format!("speed-up of a training step, {said}");
        panels.push(Panel { caption, unit: "%", logarithmic: false, from: 0.0, groups });
    }
    for (model, _, title, _) in PUBLISHED {
        let [ranked, random] = PLACEMENTS.map(|(placement, _)| faster(model, placement));
        let name = |said| format!("speed-up of {title} {said}");
        verdict = verdict.and(Verdict::of((&name("at random"), random), (&name("re-ranked"), ranked)));
    }
    let members =
        outcomes.first().and_then(|outcome| outcome.report.jobs.first()).map_or(0, |job| job.members);
    Reading {
        here: format!(
            "a step of each model on {members} GPUs, each with 400 Gbit/s, half at each of two leaves, uplinks of 800 Gbit/s \
             with as much again to spare; servers of eight GPUs, placed in order or at random. Pairs are judged if they \
             differ by a quarter or more, and at random must gain more than re-ranked for each model."
        ),
        series: SERIES.to_vec(),
        panels,
        verdict,
        remarks: Vec::new(),
    }
}
