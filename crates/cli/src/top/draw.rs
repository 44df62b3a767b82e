//! The screen: totals, a line for each queue pair, and the selected one with its paths.

use super::state::{Row, Sort, State};
use crate::stats::amount::{amount, bits, bytes, count, time};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline, Table, TableState};
use ratatui::Frame;

/// Lines for the text about the selected queue pair.
const TEXT_LINES: u16 = 4;
/// Highest a row of bars gets.
const BARS_MAX: u16 = 6;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let bars = bar_rows(state, frame.area());
    let below = TEXT_LINES + bars.iter().map(|row| row.height).sum::<u16>();
    let [top, list, selected, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(below),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(totals(state)), top);
    if state.rows.is_empty() {
        frame.render_widget(Paragraph::new(nothing(state)), list);
    } else {
        table(frame, state, list);
    }
    if let Some(row) = state.rows.get(state.selected) {
        let mut lines: Vec<Line<'_>> = row.lines.iter().map(|line| Line::from(line.as_str())).collect();
        if let Some(title) = crate::stats::text::paths(&row.paths, 0).into_iter().next() {
            lines.push(Line::from(title));
        }
        let [text, mut rest] =
            Layout::vertical([Constraint::Length(TEXT_LINES), Constraint::Min(0)]).areas(selected);
        frame.render_widget(Paragraph::new(lines), text);
        for bars in &bars {
            let [here, after] =
                Layout::vertical([Constraint::Length(bars.height), Constraint::Min(0)]).areas(rest);
            frame.render_widget(Sparkline::default().data(bars.heights.as_slice()).max(bars.most), here);
            rest = after;
        }
    }
    frame.render_widget(Paragraph::new(help(state)).style(Style::new().add_modifier(Modifier::DIM)), keys);
}

fn totals(state: &State) -> String {
    let processes: std::collections::BTreeSet<u32> = state.rows.iter().map(|row| row.pid).collect();
    let mut line = format!(
        "srdma: {} processes, {} queue pairs; send {}, receive {}, resend {}/s",
        processes.len(),
        state.rows.iter().filter(|row| row.qpn.is_some()).count(),
        bits(state.total.sent_bytes),
        bits(state.total.received_bytes),
        amount(state.total.resent_packets.round(), ""),
    );
    if state.paused {
        line.push_str("   PAUSED");
    }
    for silent in &state.silent {
        line.push_str("; ");
        line.push_str(silent);
    }
    line
}

fn nothing(state: &State) -> String {
    match state.has_looked {
        false => String::new(),
        true => format!("\n  {}", crate::stats::nobody(&[])),
    }
}

fn table(frame: &mut Frame<'_>, state: &State, area: Rect) {
    const HEAD: [(&str, Option<Sort>); 11] = [
        ("PID", Some(Sort::Process)),
        ("PROGRAM", None),
        ("QP", None),
        ("PEER", None),
        ("STATE", None),
        ("SEND", Some(Sort::Sent)),
        ("RECEIVE", Some(Sort::Received)),
        ("RESENT/s", Some(Sort::Resent)),
        ("ROUND TRIP", Some(Sort::RoundTrip)),
        ("WINDOW", None),
        ("AHEAD", None),
    ];
    let widths = [7, 16, 8, 22, 5, 12, 12, 8, 10, 8, 6].map(Constraint::Length);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let heads = HEAD.map(|(name, sort)| match sort == Some(state.sort) {
        true => format!("{name}▼"),
        false => name.to_owned(),
    });
    let rows = state.rows.iter().map(|row| ratatui::widgets::Row::new(cells(row)));
    let table = Table::new(rows, widths)
        .header(ratatui::widgets::Row::new(heads).style(bold))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut selection = TableState::new().with_selected(state.selected);
    frame.render_stateful_widget(table, area, &mut selection);
}

fn cells(row: &Row) -> [String; 11] {
    [
        row.pid.to_string(),
        row.program.clone(),
        row.qpn.map_or("-".into(), |qpn| format!("{qpn:#08x}")),
        row.peer.clone(),
        row.state.clone(),
        bits(row.rate.sent_bytes),
        bits(row.rate.received_bytes),
        amount(row.rate.resent_packets.round(), ""),
        if row.rtt_ns == 0 { "-".into() } else { time(row.rtt_ns) },
        bytes(row.window_bytes),
        count(row.ahead_packets),
    ]
}

/// A row of bars, one column for each path.
struct Bars {
    heights: Vec<u64>,
    most: u64,
    height: u16,
}

/// As many rows as the width asks for, as high as leaves the list its place.
fn bar_rows(state: &State, area: Rect) -> Vec<Bars> {
    let Some(row) = state.rows.get(state.selected) else { return Vec::new() };
    let end = row.paths.iter().map(|path| path.path as usize & 0xff).max().map_or(0, |last| last + 1);
    let mut heights = vec![0; end];
    row.paths.iter().for_each(|path| heights[path.path as usize & 0xff] = path.bytes);
    let Some(&most) = heights.iter().max().filter(|most| **most > 0) else { return Vec::new() };
    let width = usize::from(area.width).max(1);
    let rows = end.div_ceil(width) as u16;
    let room = (area.height / 2).saturating_sub(TEXT_LINES);
    let height = (room / rows.max(1)).min(BARS_MAX);
    if height == 0 {
        return Vec::new();
    }
    heights.chunks(width).map(|heights| Bars { heights: heights.to_vec(), most, height }).collect()
}

fn help(state: &State) -> String {
    let sorts: Vec<String> = Sort::ALL.iter().map(|(_, key, name)| format!("{key} {name}")).collect();
    format!(
        "sort: {}   ↑↓ select   space pause   + − every {:.2} s   q quit",
        sorts.join(", "),
        state.interval.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::state::Answer;
    use super::*;
    use crate::stats::sample::{Device, Path1, Qp, Rate, Sample};
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use ratatui::Terminal;
    use serde_json::json;
    use std::time::Duration;

    fn device(pid: u32, program: &str, rates: &[f64]) -> Device {
        let head = json!({"program": program, "device": {"address": "10.0.0.1", "port": 4791}});
        let qp = |(index, &sent_bytes): (usize, &f64)| Qp {
            value: json!({
                "qpn": 100 * u64::from(pid) + index as u64, "live": true, "state": "rts", "peer": "10.0.0.2:4791",
                "rtt_ns": {"smoothed": 1000 * pid}, "window_bytes": 65536,
            }),
            rate: Rate { sent_bytes, ..Rate::default() },
            paths: (0..128).map(|path| Path1 { path, bytes: 10 + path, lost: 0 }).collect(),
        };
        let rate = Rate { sent_bytes: rates.iter().sum(), ..Rate::default() };
        Device { pid, head, seconds: 1.0, rate, qps: rates.iter().enumerate().map(qp).collect() }
    }

    fn sample() -> Sample {
        Sample {
            devices: vec![device(1, "/bin/slow", &[1e3, 2e3]), device(2, "/bin/fast", &[1e9])],
            silent: vec![],
        }
    }

    fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(line).collect()
    }

    fn press(state: &mut State, code: KeyCode) -> Answer {
        state.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn the_fastest_is_on_top_and_selected_with_a_bar_for_each_path() {
        let mut state = State::new(Duration::from_secs(1));
        state.show(&sample());
        let lines = screen(&state, 140, 30);
        assert!(lines[0].contains("2 processes, 3 queue pairs; send 8.00 Gbit/s"), "{}", lines[0]);
        assert!(lines[2].contains("fast") && lines[3].contains("slow"), "{lines:#?}");
        assert!(lines[2].contains("10.0.0.2:4791") && lines[2].contains("RTS"), "{}", lines[2]);
        let all = lines.join("\n");
        assert!(all.contains("QP 0x0000c8 to 10.0.0.2:4791") && all.contains("128 paths"), "{all}");
        let bars = lines.iter().find(|line| line.chars().filter(|c| "▁▂▃▄▅▆▇█".contains(*c)).count() == 128);
        assert!(bars.is_some(), "{all}");
    }

    #[test]
    fn keys_sort_select_and_quit_and_the_selection_stays_with_its_queue_pair() {
        let mut state = State::new(Duration::from_secs(1));
        state.show(&sample());
        assert_eq!(state.selection(), Some((2, 200)));
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selection(), Some((1, 101)));
        press(&mut state, KeyCode::Char('p'));
        assert_eq!((state.selection(), state.selected), (Some((1, 101)), 1));
        press(&mut state, KeyCode::End);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selection(), Some((2, 200)));
        press(&mut state, KeyCode::Char('s'));
        assert_eq!((state.selection(), state.selected), (Some((2, 200)), 0));
        press(&mut state, KeyCode::Char(' '));
        state.show(&Sample::default());
        assert_eq!(state.rows.len(), 3, "paused");
        press(&mut state, KeyCode::Char(' '));
        state.show(&Sample::default());
        assert_eq!((state.rows.len(), state.selected), (0, 0));
        assert!(screen(&state, 100, 12).join("\n").contains("srdma run"));
        assert_eq!(press(&mut state, KeyCode::Char('q')), Answer::Quit);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.press(control_c), Answer::Quit);
    }

    #[test]
    fn any_size_of_terminal_is_drawn() {
        let mut state = State::new(Duration::from_secs(1));
        for sample in [Sample::default(), sample()] {
            state.show(&sample);
            for (width, height) in [(1, 1), (20, 3), (40, 10), (80, 24), (300, 100)] {
                screen(&state, width, height);
            }
        }
    }
}
