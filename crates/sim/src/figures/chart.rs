//! Bars in groups, published values beside ours. On white whatever the page is, so that labels can be read on a dark one too.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::plot::PlotError;

const WIDTH: u32 = 960;
const PANEL_HEIGHT: u32 = 300;
const LEGEND_HEIGHT: u32 = 34;
/// Smallest value that a logarithmic axis shows, as a share of the largest.
const LOG_SHARE: f64 = 1e-4;

/// A row of bars of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub name: &'static str,
    /// Published values are pale with a frame, ours are full.
    pub published: bool,
    /// Which colour: 0 to 3.
    pub colour: usize,
}

/// One diagram.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Panel {
    pub caption: String,
    pub unit: &'static str,
    pub logarithmic: bool,
    /// Where the axis begins, if not at 0: for values that differ little.
    pub from: f64,
    /// Name, and a value for each series, if there is one.
    pub groups: Vec<(String, Vec<Option<f64>>)>,
}

const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(217, 95, 2), RGBColor(44, 140, 70), RGBColor(120, 80, 160)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// An SVG with the panels below each other and one legend.
pub(crate) fn bars(series: &[Series], panels: &[Panel]) -> Result<String, PlotError> {
    let mut text = String::new();
    draw(&mut text, series, panels).map_err(|error| PlotError(error.to_string()))?;
    Ok(text)
}

fn draw(text: &mut String, series: &[Series], panels: &[Panel]) -> Result<(), Box<dyn std::error::Error>> {
    let height = LEGEND_HEIGHT + PANEL_HEIGHT * panels.len() as u32;
    let root = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    legend(&root, series)?;
    let (_, below) = root.split_vertically(LEGEND_HEIGHT);
    for (area, panel) in below.split_evenly((panels.len(), 1)).iter().zip(panels) {
        draw_panel(area, series, panel)?;
    }
    root.present()?;
    Ok(())
}

fn legend(root: &Area<'_>, series: &[Series]) -> Result<(), Box<dyn std::error::Error>> {
    let style = ("sans-serif", 15).into_text_style(root).pos(Pos::new(HPos::Left, VPos::Center));
    let mut x = 80;
    for each in series {
        let corner = [(x, 11), (x + 18, 25)];
        fill(root, corner, each)?;
        root.draw(&Text::new(each.name, (x + 26, 18), style.clone()))?;
        x += 50 + each.name.chars().count() as i32 * 8;
    }
    Ok(())
}

/// A bar in the colour of its series.
fn fill(
    root: &Area<'_>,
    corners: [(i32, i32); 2],
    series: &Series,
) -> Result<(), Box<dyn std::error::Error>> {
    let colour = COLOURS[series.colour % COLOURS.len()];
    // Mixed with white here: what lies behind does not shine through.
    let pale = |part: u8| 255 - (255 - part) / 4;
    let inside =
        if series.published { RGBColor(pale(colour.0), pale(colour.1), pale(colour.2)) } else { colour };
    root.draw(&Rectangle::new(corners, inside.filled()))?;
    if series.published {
        root.draw(&Rectangle::new(corners, colour.stroke_width(1)))?;
    }
    Ok(())
}

/// Where values are in the pixels of a panel.
struct Frame {
    x: (i32, i32),
    y: (i32, i32),
    groups: f64,
    bottom: f64,
    top: f64,
    logarithmic: bool,
}

impl Frame {
    fn place(&self, x: f64, y: f64) -> (i32, i32) {
        let share = match self.logarithmic {
            true => (y.max(self.bottom) / self.bottom).log10() / (self.top / self.bottom).log10(),
            false => (y.max(self.bottom) - self.bottom) / (self.top - self.bottom),
        };
        let along =
            |(begin, end): (i32, i32), share: f64| begin + (f64::from(end - begin) * share).round() as i32;
        (along(self.x, x / self.groups), along((self.y.1, self.y.0), share))
    }
}

fn draw_panel(area: &Area<'_>, series: &[Series], panel: &Panel) -> Result<(), Box<dyn std::error::Error>> {
    let frame = axes(area, panel)?;
    let name = ("sans-serif", 14).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
    let number = ("sans-serif", 11).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Bottom));
    let width = 0.84 / series.len().max(1) as f64;
    for (group, (label, values)) in panel.groups.iter().enumerate() {
        let (middle, base) = frame.place(group as f64 + 0.5, frame.bottom);
        area.draw(&Text::new(label.as_str(), (middle, base + 7), name.clone()))?;
        for (index, (value, each)) in values.iter().zip(series).enumerate() {
            let Some(value) = *value else { continue };
            let left = group as f64 + 0.08 + index as f64 * width;
            let corners = [frame.place(left, value), frame.place(left + width * 0.92, frame.bottom)];
            fill(area, corners, each)?;
            let middle = (corners[0].0 + corners[1].0) / 2;
            area.draw(&Text::new(short(value), (middle, corners[0].1 - 2), number.clone()))?;
        }
    }
    Ok(())
}

/// Caption and axes.
fn axes(area: &Area<'_>, panel: &Panel) -> Result<Frame, Box<dyn std::error::Error>> {
    let values = panel.groups.iter().flat_map(|(_, values)| values.iter().flatten());
    let most = values.clone().copied().fold(panel.from, f64::max).max(1e-9);
    let least = values.copied().filter(|&value| value > 0.0).fold(most, f64::min).max(most * LOG_SHARE);
    let logarithmic = panel.logarithmic;
    let bottom = if logarithmic { 10f64.powf(least.log10().floor()) } else { panel.from };
    let top = if logarithmic { most * 2.5 } else { panel.from + (most - panel.from) * 1.15 };
    let groups = panel.groups.len().max(1) as f64;
    let mut builder = ChartBuilder::on(area);
    builder.caption(&panel.caption, ("sans-serif", 17)).margin_right(16).margin_left(8);
    builder.x_label_area_size(30).y_label_area_size(64);
    // Without what adding up leaves behind the sixth digit.
    let tick = |value: &f64| format!("{}", (value * 1e6).round() / 1e6);
    // The two kinds of axis are different types.
    let (x, y) = if logarithmic {
        let mut chart = builder.build_cartesian_2d(0.0..groups, (bottom..top).log_scale())?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().disable_x_axis().light_line_style(WHITE).y_label_formatter(&tick);
        mesh.y_desc(panel.unit).label_style(("sans-serif", 13)).draw()?;
        chart.plotting_area().get_pixel_range()
    } else {
        let mut chart = builder.build_cartesian_2d(0.0..groups, bottom..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().disable_x_axis().light_line_style(WHITE).y_label_formatter(&tick);
        mesh.y_desc(panel.unit).label_style(("sans-serif", 13)).draw()?;
        chart.plotting_area().get_pixel_range()
    };
    let base = area.get_base_pixel();
    let (x, y) = ((x.start - base.0, x.end - base.0), (y.start - base.1, y.end - base.1));
    Ok(Frame { x, y, groups, bottom, top, logarithmic })
}

/// A number over a bar: three digits or so.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_value_and_name_is_drawn() {
        let series = [
            Series { name: "published", published: true, colour: 0 },
            Series { name: "here", published: false, colour: 0 },
        ];
        for logarithmic in [false, true] {
            let panel = Panel {
                caption: "queues".to_owned(),
                unit: "KB",
                logarithmic,
                from: 0.0,
                groups: vec![
                    ("single".to_owned(), vec![Some(4669.0), Some(1200.0)]),
                    ("random".to_owned(), vec![Some(0.0), None]),
                ],
            };
            let svg = bars(&series, &[panel.clone(), panel]).unwrap();
            for part in
                ["queues", "single", "random", "4669", "1200", "0.00", "published", "here", "KB", "</svg>"]
            {
                assert!(svg.contains(part), "{part}: {svg}");
            }
        }
    }
}
