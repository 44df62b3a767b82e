//! The figures at their smallest: every case is carried out, read, judged, drawn and written down.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use srdma_sim::figures::{markdown, Drawn, Figure, Scale, FIGURES};

fn carried_out(figure: &'static Figure) -> Drawn {
    let cases = figure.cases(Scale::Smallest);
    let mut outcomes: Vec<_> = cases.iter().map(|_| None).collect();
    let result = srdma_sim::across(
        2,
        cases.len(),
        |index| cases[index].carry_out().unwrap(),
        |index, outcome| {
            assert!(
                outcome.is_finished() && outcome.packets() > 100,
                "{} {}",
                figure.id,
                cases[index].name()
            );
            outcomes[index] = Some(outcome);
            Ok::<(), ()>(())
        },
    );
    result.unwrap();
    figure.read(&outcomes.into_iter().flatten().collect::<Vec<_>>())
}

/// All values of a figure, by group and series.
fn values(drawn: &Drawn, panel: usize) -> Vec<(String, String, f64)> {
    let json = drawn.json();
    let groups = json["panels"][panel]["groups"].as_array().unwrap().clone();
    let each = groups.iter().flat_map(|group| {
        let name = group["group"].as_str().unwrap().to_owned();
        let values = group["values"].as_object().unwrap().clone().into_iter();
        values.filter_map(move |(series, value)| Some((name.clone(), series, value.as_f64()?)))
    });
    each.collect()
}

fn value(drawn: &Drawn, panel: usize, group: &str, series: &str) -> f64 {
    let found = values(drawn, panel).into_iter().find(|(name, kind, _)| name == group && kind == series);
    found.unwrap_or_else(|| panic!("{} has no {group}, {series}", drawn.id())).2
}

#[test]
fn every_figure_is_carried_out_judged_and_written_down() {
    let drawn: Vec<Drawn> = FIGURES.iter().map(carried_out).collect();
    let page = markdown("srdma sim figures", &drawn, |figure| format!("{}.svg", figure.id()));
    for (figure, drawn) in FIGURES.iter().zip(&drawn) {
        let json = drawn.json();
        let panels = json["panels"].as_array().unwrap().len();
        for panel in 0..panels {
            for (group, series, value) in values(drawn, panel) {
                assert!(
                    value.is_finite() && (value > 0.0 || series.contains("here")),
                    "{group}, {series}: {value}"
                );
            }
        }
        assert!(drawn.verdict().judged > 0, "{} judges nothing", figure.id);
        assert_eq!(json["order_reproduced"], Value::Bool(drawn.verdict().is_reproduced()));
        assert!(
            page.contains(&format!("## {}", figure.title)) && page.contains(&format!("({}.svg)", figure.id))
        );
        let svg = drawn.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.len() < 100_000, "{}: {} bytes", figure.id, svg.len());
    }
    let by_id = |id: &str| drawn.iter().find(|drawn| drawn.id() == id).unwrap();
    // What must come out however small: these tell a figure that reads the wrong runs.
    let queues = by_id("fig9");
    let mean = |group| value(queues, 1, group, "mean, here");
    assert!(mean("single path") > 2.0 * mean("OBS"), "{} and {}", mean("single path"), mean("OBS"));
    assert_eq!(value(queues, 1, "OBS", "longest, published"), 53.0);
    let imbalance = by_id("fig12");
    let obs = |paths| value(imbalance, 0, paths, "OBS, here");
    assert!(obs("4 paths") > 2.0 * obs("128 paths"), "{} and {}", obs("4 paths"), obs("128 paths"));
    let loss = by_id("fig11");
    let bus = |series| value(loss, 0, "OBS", series);
    assert_ne!(bus("no loss, here"), bus("3 %, here"), "nothing was lost");
}
