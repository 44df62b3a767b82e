//! The report of all figures, as Markdown.

use super::chart::Panel;
use super::{Drawn, Reading};

/// The report: `command` is what made it, `picture` says where the picture of a figure is.
pub fn markdown(command: &str, figures: &[Drawn], picture: impl Fn(&Drawn) -> String) -> String {
    let mut text = format!(
        "# The paper's evaluation, simulated\n\nMade by `{command}`. Published values are those of Lin et al., *Alibaba \
         Stellar*, SIGCOMM 2025, read off its figures. An order counts as reproduced if of every two values that clearly \
         differ in the paper (the margin is given with each figure) the larger one is the larger one here.\n\n\
         | Figure | Order reproduced |\n|---|---|\n"
    );
    for drawn in figures {
        text +=
            &format!("| [{}](#{}) | {} |\n", drawn.figure.title, drawn.figure.id, drawn.verdict().words());
    }
    for drawn in figures {
        text += &section(drawn, &picture(drawn));
    }
    text
}

fn section(drawn: &Drawn, picture: &str) -> String {
    let Reading { here, panels, series, verdict: judged, remarks } = &drawn.reading;
    let figure = drawn.figure;
    let mut text =
        format!("\n<a id=\"{}\"></a>\n## {}\n\n![{}]({picture})\n\n", figure.id, figure.title, figure.title);
    text += &format!("*The paper:* {}\n\n*Here:* {here}\n\n", figure.paper);
    for panel in panels {
        text += &table(panel, &series.iter().map(|series| series.name).collect::<Vec<_>>());
    }
    text += &format!("Order reproduced: **{}**\n", drawn.verdict().words());
    for broken in &judged.broken {
        text += &format!("- {broken}\n");
    }
    text += &format!("\n*What differs, and why:* {}", figure.differs);
    for remark in remarks {
        text += &format!(" {remark}");
    }
    text + "\n"
}

fn table(panel: &Panel, series: &[&str]) -> String {
    let mut text = format!(
        "| {} ({}) | {} |\n|---|{}\n",
        panel.caption,
        panel.unit,
        series.join(" | "),
        "---:|".repeat(series.len())
    );
    for (name, values) in &panel.groups {
        let cells: Vec<String> = values.iter().map(|value| value.map_or(String::new(), number)).collect();
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    text + "\n"
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
