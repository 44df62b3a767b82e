//! What the screen shows, and what keys change about it. No terminal here.

use crate::stats::sample::{number, sum, text, Path1, Qp, Rate, Sample};
use crate::stats::text::{connection, details};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;
use std::time::Duration;

/// Shortest and longest time between two samples.
const INTERVALS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(60)];
/// Lines that a page key moves.
const PAGE: usize = 10;

/// What to sort by, most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Bytes per second, both directions.
    Rate,
    /// Bytes sent per second.
    Sent,
    /// Bytes received per second.
    Received,
    /// Packets sent again per second, then in all.
    Resent,
    /// Round trip.
    RoundTrip,
    /// Process, lowest first.
    Process,
}

impl Sort {
    /// Every way, with its key and its name.
    pub const ALL: [(Sort, char, &'static str); 6] = [
        (Sort::Rate, 'b', "bandwidth"),
        (Sort::Sent, 's', "sent"),
        (Sort::Received, 'r', "received"),
        (Sort::Resent, 'l', "resent"),
        (Sort::RoundTrip, 't', "round trip"),
        (Sort::Process, 'p', "process"),
    ];
}

/// One line: a queue pair, or a device that has none.
#[derive(Clone, Debug)]
pub struct Row {
    /// Process.
    pub pid: u32,
    /// Program.
    pub program: String,
    /// Local address and port.
    pub local: String,
    /// Queue pair.
    pub qpn: Option<u64>,
    /// Where to.
    pub peer: String,
    /// State.
    pub state: String,
    /// Since the last sample.
    pub rate: Rate,
    /// Packets sent again in all.
    pub resent: u64,
    /// Smoothed, nanoseconds; 0 if unknown.
    pub rtt_ns: u64,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// Packets ahead of the first one missing.
    pub ahead_packets: u64,
    /// What is told of it when it is selected.
    pub lines: Vec<String>,
    /// Its paths, if they are known.
    pub paths: Vec<Path1>,
}

impl Row {
    fn key(&self) -> (u32, String, Option<u64>) {
        (self.pid, self.local.clone(), self.qpn)
    }

    fn of(device: &crate::stats::sample::Device, qp: &Qp) -> Row {
        let v = &qp.value;
        let mut lines = vec![connection(qp)];
        lines.extend(details(qp));
        Row {
            qpn: Some(qp.qpn()),
            peer: if v["peer"].is_string() { text(v, "/peer").into_owned() } else { "-".into() },
            state: text(v, "/state").to_uppercase(),
            rate: qp.rate,
            resent: sum(v, "/retransmitted"),
            rtt_ns: number(v, "/rtt_ns/smoothed"),
            window_bytes: number(v, "/now/window_bytes").max(number(v, "/window_bytes")),
            ahead_packets: number(v, "/now/out_of_order_packets"),
            lines,
            paths: qp.paths.clone(),
            ..Row::idle(device)
        }
    }

    fn idle(device: &crate::stats::sample::Device) -> Row {
        let head = &device.head;
        Row {
            pid: device.pid,
            program: device.program(),
            local: format!("{}:{}", text(head, "/device/address"), number(head, "/device/port")),
            qpn: None,
            peer: "-".into(),
            state: "-".into(),
            rate: Rate::default(),
            resent: 0,
            rtt_ns: 0,
            window_bytes: 0,
            ahead_packets: 0,
            lines: vec!["no queue pair now".into()],
            paths: Vec::new(),
        }
    }
}

/// What a key asks the caller for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Draw again.
    Draw,
    /// End.
    Quit,
}

/// The whole screen.
#[derive(Debug)]
pub struct State {
    /// The lines, sorted.
    pub rows: Vec<Row>,
    /// How.
    pub sort: Sort,
    /// Which line is selected.
    pub selected: usize,
    /// Samples are thrown away.
    pub paused: bool,
    /// Between two samples.
    pub interval: Duration,
    /// All devices together.
    pub total: Rate,
    /// Processes that do not answer.
    pub silent: Vec<String>,
    /// Whether a sample has come at all.
    pub has_looked: bool,
}

impl State {
    /// Nothing was seen yet.
    pub fn new(interval: Duration) -> State {
        State {
            rows: Vec::new(),
            sort: Sort::Rate,
            selected: 0,
            paused: false,
            interval,
            total: Rate::default(),
            silent: Vec::new(),
            has_looked: false,
        }
    }

    /// Process and queue pair of the selected line.
    pub fn selection(&self) -> Option<(u32, u64)> {
        self.rows.get(self.selected).and_then(|row| Some((row.pid, row.qpn?)))
    }

    /// Takes a sample.
    pub fn show(&mut self, sample: &Sample) {
        if self.paused {
            return;
        }
        self.has_looked = true;
        let key = self.rows.get(self.selected).map(Row::key);
        self.total = Rate::default();
        self.rows.clear();
        for device in &sample.devices {
            self.total.sent_bytes += device.rate.sent_bytes;
            self.total.sent_packets += device.rate.sent_packets;
            self.total.received_bytes += device.rate.received_bytes;
            self.total.received_packets += device.rate.received_packets;
            self.total.resent_packets += device.rate.resent_packets;
            match device.qps.is_empty() {
                true => self.rows.push(Row::idle(device)),
                false => self.rows.extend(device.qps.iter().map(|qp| Row::of(device, qp))),
            }
        }
        self.silent = sample.silent.iter().map(|(pid, why)| format!("process {pid}: {why}")).collect();
        self.arrange(key);
    }

    /// Sorts; what was selected stays selected.
    fn arrange(&mut self, key: Option<(u32, String, Option<u64>)>) {
        let sort = self.sort;
        self.rows.sort_by(|a, b| compare(sort, a, b));
        let found = key.and_then(|key| self.rows.iter().position(|row| row.key() == key));
        self.selected = found.unwrap_or(self.selected).min(self.rows.len().saturating_sub(1));
    }

    /// A key was pressed.
    pub fn press(&mut self, key: KeyEvent) -> Answer {
        let last = self.rows.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Answer::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return Answer::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::PageDown => self.selected = (self.selected + PAGE).min(last),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('+') => self.interval = (self.interval / 2).max(INTERVALS[0]),
            KeyCode::Char('-') => self.interval = (self.interval * 2).min(INTERVALS[1]),
            KeyCode::Char(letter) => {
                if let Some((sort, ..)) = Sort::ALL.iter().find(|(_, known, _)| *known == letter) {
                    self.sort = *sort;
                    let key = self.rows.get(self.selected).map(Row::key);
                    self.arrange(key);
                }
            }
            _ => {}
        }
        Answer::Draw
    }
}

fn compare(sort: Sort, a: &Row, b: &Row) -> Ordering {
    let most = |value: fn(&Row) -> f64| value(b).total_cmp(&value(a));
    let first = match sort {
        Sort::Rate => most(|row| row.rate.bytes()),
        Sort::Sent => most(|row| row.rate.sent_bytes),
        Sort::Received => most(|row| row.rate.received_bytes),
        Sort::Resent => most(|row| row.rate.resent_packets).then(b.resent.cmp(&a.resent)),
        Sort::RoundTrip => b.rtt_ns.cmp(&a.rtt_ns),
        Sort::Process => Ordering::Equal,
    };
    first.then_with(|| (a.pid, a.qpn).cmp(&(b.pid, b.qpn)))
}
