//! What a point comes to: a line of JSON while a sweep runs, a line of the table in the end.

use serde_json::{json, Map, Value};

use super::{Point, Sweep};
use crate::report::RunReport;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    key: String,
    /// Column and value, in the order of the table.
    cells: Map<String, Value>,
}

impl Row {
    pub(super) fn new(point: &Point, outcome: Result<RunReport, String>) -> Row {
        let mut cells = Map::new();
        for (key, value) in &point.settings {
            // Texts were written in quotes.
            cells.insert(key.clone(), json!(value.trim_matches('"')));
        }
        cells.insert("variant".to_owned(), json!(point.variant));
        cells.insert("seed".to_owned(), json!(point.seed));
        match outcome {
            Ok(report) => cells.extend(measures(&report)),
            Err(problem) => {
                cells.insert("error".to_owned(), json!(problem));
            }
        }
        Row { key: point.key().to_owned(), cells }
    }

    /// The key of its point.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Why there are no numbers.
    pub fn error(&self) -> Option<&str> {
        self.cells.get("error").and_then(Value::as_str)
    }

    /// Everything was received.
    pub fn is_finished(&self) -> bool {
        self.cells.get("finished") == Some(&Value::Bool(true))
    }

    /// As a line of a file.
    pub fn json(&self) -> Value {
        json!({ "key": self.key, "row": self.cells })
    }

    /// From a line of a file; `None` if it is cut short or not such a line.
    pub fn read(line: &str) -> Option<Row> {
        let value: Value = serde_json::from_str(line).ok()?;
        let (key, cells) = (value["key"].as_str()?, value["row"].as_object()?);
        Some(Row { key: key.to_owned(), cells: cells.clone() })
    }
}

fn measures(report: &RunReport) -> Map<String, Value> {
    let (up, down) = (report.queues.first(), report.queues.last());
    let values = json!({
        "finished": report.finished,
        "took_us": report.took_us, "ideal_us": report.ideal_us,
        "messages_received": report.messages[0], "messages_failed": report.messages[1],
        "messages_planned": report.messages[2],
        "goodput_min_gbps": report.goodput.min, "goodput_mean_gbps": report.goodput.mean,
        "completion_mean_us": report.completion.mean, "completion_p99_us": report.completion.p99,
        "bus_gbps": report.bus_gbps,
        "up_queue_mean_bytes": up.map(|queue| queue.mean_bytes), "up_queue_p99_bytes": up.map(|queue| queue.p99_bytes),
        "up_queue_max_bytes": up.map(|queue| queue.max_bytes),
        "host_queue_mean_bytes": down.map(|queue| queue.mean_bytes),
        "host_queue_max_bytes": down.map(|queue| queue.max_bytes),
        "spine_imbalance": report.imbalance(), "uplink_imbalance": report.uplink_imbalance,
        "packets": report.packets, "sent_again": report.retransmitted.iter().sum::<u64>(),
        "losses_undone": report.undone, "timeouts": report.timeouts, "paths_suspected": report.suspected,
        "marked": report.marked, "overflowed": report.overflowed, "lost": report.lost, "corrupt": report.corrupted, "cut": report.cut,
        "window_mean_bytes": report.window.mean,
        "events": report.events, "trace": format!("{:016x}", report.trace_hash),
    });
    match values {
        Value::Object(values) => values,
        _ => Map::new(),
    }
}

/// The table of all points of `sweep` that `rows` has, in the sweep's order, with a line of names before them (RFC 4180). Which
/// points are missing.
pub fn csv<'a>(sweep: &'a Sweep, rows: &[Row]) -> (String, Vec<&'a Point>) {
    let known: std::collections::HashMap<&str, &Row> = rows.iter().map(|row| (row.key(), row)).collect();
    let mut columns: Vec<String> = sweep.keys().map(str::to_owned).collect();
    columns.extend(["variant".to_owned(), "seed".to_owned()]);
    columns.extend(measures(&RunReport::default()).keys().cloned());
    columns.push("error".to_owned());
    let mut text = joined(columns.iter().map(|name| quoted(name)));
    let mut missing = Vec::new();
    for point in sweep.points() {
        match known.get(point.key()) {
            None => missing.push(point),
            Some(row) => text += &joined(columns.iter().map(|name| cell(row.cells.get(name)))),
        }
    }
    (text, missing)
}

fn joined(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(",") + "\n"
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => quoted(text),
        Some(Value::Number(number)) if number.is_f64() => written(number.as_f64().unwrap_or_default()),
        Some(other) => other.to_string(),
    }
}

/// Twelve digits: what a number loses on its way through a file does not show.
fn written(value: f64) -> String {
    let rounded: f64 = format!("{value:.11e}").parse().unwrap_or(value);
    format!("{rounded}")
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        assert_eq!(quoted("plain 4"), "plain 4");
        assert_eq!(quoted("in turn, \"4\""), "\"in turn, \"\"4\"\"\"");
    }

    #[test]
    fn numbers_are_the_same_whether_or_not_they_went_through_a_file() {
        for (value, text) in
            [(7.8216600000000005, "7.82166"), (1.5446210268948657, "1.54462102689"), (0.0, "0")]
        {
            assert_eq!(cell(Some(&json!(value))), text);
        }
    }

    #[test]
    fn lines_cut_short_are_no_rows() {
        let row = Row { key: "k".to_owned(), cells: Map::new() };
        let line = row.json().to_string();
        assert_eq!(Row::read(&line), Some(row));
        assert_eq!(Row::read(&line[..line.len() - 1]), None);
        assert_eq!(Row::read("{}"), None);
    }
}
