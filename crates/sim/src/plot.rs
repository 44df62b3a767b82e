//! A picture: queues over time, and the goodput of every flow.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::report::RunReport;
use crate::run::Moment;

/// The picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("Cannot draw: {0}")]
pub struct PlotError(pub(crate) String);

type Panel<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// A line: its label and its points.
struct Line {
    label: String,
    points: Vec<(f64, f64)>,
}

/// An SVG of the runs of one scenario, side by side.
pub fn svg(title: &str, runs: &[(RunReport, Vec<Moment>)]) -> Result<String, PlotError> {
    let mut text = String::new();
    draw(&mut text, title, runs).map_err(|error| PlotError(error.to_string()))?;
    Ok(text)
}

fn draw(
    text: &mut String,
    title: &str,
    runs: &[(RunReport, Vec<Moment>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(text, (960, 720)).into_drawing_area();
    area.fill(&WHITE)?;
    let area = area.titled(title, ("sans-serif", 22))?;
    let (above, below) = area.split_vertically(350);
    let queue = |pick: fn(&Moment) -> f64| {
        move |(report, moments): &(RunReport, Vec<Moment>)| Line {
            label: report.variant.clone(),
            points: moments.iter().map(|moment| (moment.at_us, pick(moment) / 1e3)).collect(),
        }
    };
    let longest: Vec<Line> = runs.iter().map(queue(|moment| moment.up_max as f64)).collect();
    panel(&above, "longest queue upwards from the lowest switches", "µs", "KB", &longest)?;
    let goodput: Vec<Line> = runs.iter().map(|(report, _)| by_rank(report)).collect();
    panel(&below, "goodput of flows, slowest first", "flow", "Gbit/s", &goodput)?;
    area.present()?;
    Ok(())
}

fn by_rank(report: &RunReport) -> Line {
    let mut goodput: Vec<f64> = report.flows.iter().map(|flow| flow.goodput_gbps).collect();
    goodput.sort_by(f64::total_cmp);
    let points = goodput.into_iter().enumerate().map(|(rank, gbps)| ((rank + 1) as f64, gbps)).collect();
    Line { label: report.variant.clone(), points }
}

fn panel(
    area: &Area<'_>,
    caption: &str,
    x: &str,
    y: &str,
    lines: &[Line],
) -> Result<(), Box<dyn std::error::Error>> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let x_max = all().map(|point| point.0).fold(1.0, f64::max);
    let y_max = all().map(|point| point.1).fold(1.0, f64::max) * 1.05;
    let mut chart: Panel<'_, '_> = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
    chart.configure_mesh().x_desc(x).y_desc(y).light_line_style(WHITE).draw()?;
    for (index, line) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let series = LineSeries::new(line.points.iter().copied(), color.stroke_width(2));
        chart
            .draw_series(series)?
            .label(&line.label)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    Ok(())
}
