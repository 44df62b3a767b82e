//! The evaluation of the Stellar paper (Lin et al., SIGCOMM 2025), simulated: each figure with the published values beside ours.
//!
//! A figure is a list of runs and a reading of what came of them. `verdict` says whether the published order came out, `chart`
//! draws, `page` writes it all down. A figure more is a file and a line in [`FIGURES`].

mod background;
mod chart;
mod imbalance;
mod loss;
mod page;
mod paper;
mod queues;
mod training;
mod verdict;

use serde_json::{json, Value};

use crate::file::parse;
use crate::job::Workload;
use crate::plot::PlotError;
use crate::reader::FileError;
use crate::report::RunReport;
use crate::run::{run, RunError, Sink, Status};
use crate::scenario::Scenario;
use chart::{Panel, Series};

pub use page::markdown;
pub use verdict::Verdict;

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As large as the paper's test-bed where one machine can.
    Full,
    /// All figures within minutes.
    Quick,
    /// A figure within a second: for tests.
    Smallest,
}

/// A figure of the paper.
pub struct Figure {
    /// What it is called on the command line and in file names.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the paper did.
    pub paper: &'static str,
    /// Why ours differs.
    pub differs: &'static str,
    cases: fn(Scale) -> Vec<Case>,
    read: fn(&[Outcome]) -> Reading,
}

/// All of them, in the order of the paper.
pub const FIGURES: &[Figure] = &[
    queues::FIGURE,
    background::STATIC,
    background::BURSTY,
    loss::FIGURE,
    imbalance::FIGURE,
    training::FIGURE,
];

/// One run of a figure: a scenario with one variant.
pub struct Case {
    name: String,
    text: String,
    /// What cannot be said in the text.
    workload: Option<Workload>,
    /// Its limit is its end: what is looked at is how things are while everybody sends.
    endless: bool,
}

/// A case could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// Its scenario cannot be read.
    #[error(transparent)]
    Scenario(#[from] FileError),
    /// Its run did not end.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// What came of a case.
pub struct Outcome {
    name: String,
    endless: bool,
    report: RunReport,
}

/// What the runs of a figure say.
struct Reading {
    /// What was simulated, in words.
    here: String,
    series: Vec<Series>,
    panels: Vec<Panel>,
    verdict: Verdict,
    /// What else is worth saying, computed.
    remarks: Vec<String>,
}

/// A figure that was carried out.
pub struct Drawn {
    figure: &'static Figure,
    reading: Reading,
}

impl Figure {
    /// Its runs.
    pub fn cases(&self, scale: Scale) -> Vec<Case> {
        (self.cases)(scale)
    }

    /// Reads the outcomes of all its cases, in their order.
    pub fn read(&'static self, outcomes: &[Outcome]) -> Drawn {
        Drawn { figure: self, reading: (self.read)(outcomes) }
    }
}

impl Case {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its scenario, as a file could have it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same, read.
    pub fn scenario(&self) -> Result<Scenario, FileError> {
        parse(&self.name, &self.text, None, self.workload.clone())
    }

    /// Carries it out.
    pub fn carry_out(&self) -> Result<Outcome, FigureError> {
        let scenario = self.scenario()?;
        let (report, _) = run(&scenario, &scenario.variants[0], &mut Nowhere)?;
        Ok(Outcome { name: self.name.clone(), endless: self.endless, report })
    }
}

/// The outcome of the case called `name`.
fn named<'a>(outcomes: &'a [Outcome], name: &str) -> Option<&'a RunReport> {
    outcomes.iter().find(|outcome| outcome.name == name).map(|outcome| &outcome.report)
}

impl Outcome {
    /// Everything was received that should have been.
    pub fn is_finished(&self) -> bool {
        self.report.finished || self.endless
    }

    /// Simulated data packets.
    pub fn packets(&self) -> u64 {
        self.report.packets
    }
}

impl Drawn {
    /// Which figure.
    pub fn id(&self) -> &'static str {
        self.figure.id
    }

    /// Whether the published order came out.
    pub fn verdict(&self) -> &Verdict {
        &self.reading.verdict
    }

    /// The picture.
    pub fn svg(&self) -> Result<String, PlotError> {
        chart::bars(&self.reading.series, &self.reading.panels)
    }

    /// All values, for a program.
    pub fn json(&self) -> Value {
        let Reading { here, series, panels, verdict, remarks } = &self.reading;
        let names: Vec<&str> = series.iter().map(|series| series.name).collect();
        let panels: Vec<Value> = panels
            .iter()
            .map(|panel| {
                let groups = panel.groups.iter().map(|(name, values)| {
                    let values: serde_json::Map<String, Value> = names
                        .iter()
                        .zip(values)
                        .map(|(name, value)| ((*name).to_owned(), json!(value)))
                        .collect();
                    json!({ "group": name, "values": values })
                });
                json!({ "caption": panel.caption, "unit": panel.unit, "groups": groups.collect::<Vec<_>>() })
            })
            .collect();
        json!({
            "figure": self.figure.id, "title": self.figure.title, "here": here,
            "order_reproduced": verdict.is_reproduced(), "orders_judged": verdict.judged, "orders_broken": verdict.broken,
            "panels": panels, "remarks": remarks,
        })
    }
}

struct Nowhere;

impl Sink for Nowhere {
    fn record(&mut self, _record: &Value) -> Result<(), std::io::Error> {
        Ok(())
    }

    fn progress(&mut self, _status: &Status) {}
}
