//! Records of a folder of results, read back and put together by run.

use serde_json::{json, Value};

/// Slowest flows that are listed.
const SLOWEST: usize = 5;

/// The records are not what a run writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A line that is no record.
    #[error("{file}:{line}: {problem}")]
    Line {
        /// Which file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// No run has begun.
    #[error("{0}: no run has begun in it")]
    Empty(String),
}

/// What is known of the runs of one file of results.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub(super) runs: Vec<Told>,
}

/// What is known of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    pub opening: Value,
    /// The record that was written for this, and the report; a run that was killed has none.
    pub why: Option<Value>,
    pub report: Option<Value>,
    /// Moments at which queues were looked at; the last of them, µs.
    pub samples: u64,
    pub seen_until_us: f64,
    pub received_bytes: u64,
    /// By kind of link: name, longest queue of the samples, when.
    pub longest: Vec<(String, f64, f64)>,
    pub flows: u64,
    pub slowest: Vec<Value>,
    pub failed: Vec<Value>,
}

/// Reads the records in `text`; `file` is what errors call them. The last line may be cut short: whoever wrote it was killed.
pub fn explain(file: &str, text: &str) -> Result<Explanation, RecordError> {
    let mut runs: Vec<Told> = Vec::new();
    let count = text.lines().count();
    for (index, line) in text.lines().enumerate() {
        let wrong = |problem: String| RecordError::Line { file: file.to_owned(), line: index + 1, problem };
        let record: Value = match serde_json::from_str(line) {
            Ok(record) => record,
            Err(_) if index + 1 == count && !text.ends_with('\n') => break,
            Err(error) => return Err(wrong(error.to_string())),
        };
        let kind = record["kind"].as_str().ok_or_else(|| wrong("a record without kind".to_owned()))?;
        if kind == "run" {
            runs.push(Told { opening: record, ..Told::default() });
            continue;
        }
        let run = runs.last_mut().ok_or_else(|| wrong(format!("a record \"{kind}\" before any run")))?;
        match kind {
            "sample" => run.sample(&record),
            "flow" => run.flow(record),
            "failed" => run.failed.push(record),
            "why" => run.why = Some(record),
            "end" => run.report = Some(record["report"].clone()),
            _ => {}
        }
    }
    match runs.is_empty() {
        true => Err(RecordError::Empty(file.to_owned())),
        false => Ok(Explanation { runs }),
    }
}

impl Told {
    fn sample(&mut self, record: &Value) {
        self.samples += 1;
        self.seen_until_us = record["at_us"].as_f64().unwrap_or_default();
        self.received_bytes = record["received_bytes"].as_u64().unwrap_or_default();
        for (name, queue) in record["queues_bytes"].as_object().into_iter().flatten() {
            let most = queue["max"].as_f64().unwrap_or_default();
            match self.longest.iter_mut().find(|(known, ..)| known == name) {
                None => self.longest.push((name.clone(), most, self.seen_until_us)),
                Some(longest) if longest.1 < most => (longest.1, longest.2) = (most, self.seen_until_us),
                Some(_) => {}
            }
        }
    }

    fn flow(&mut self, record: Value) {
        self.flows += 1;
        let goodput = |flow: &Value| flow["goodput_gbps"].as_f64().unwrap_or_default();
        let place = self.slowest.partition_point(|other| goodput(other) <= goodput(&record));
        self.slowest.insert(place, record);
        self.slowest.truncate(SLOWEST);
    }

    /// What a variant is called.
    pub fn name(&self) -> &str {
        self.opening["variant"].as_str().unwrap_or("?")
    }

    fn json(&self, words: &[String]) -> Value {
        let why = |key: &str| self.why.as_ref().map_or(Value::Null, |why| why[key].clone());
        let report = |key: &str| self.report.as_ref().map_or(Value::Null, |report| report[key].clone());
        let longest: Vec<Value> = self
            .longest
            .iter()
            .map(|(links, bytes, at_us)| json!({ "links": links, "longest_bytes": bytes, "at_us": at_us }))
            .collect();
        json!({
            "variant": self.name(), "seed": self.opening["seed"], "ended": self.report.is_some(),
            "finished": report("finished"), "took_us": report("took_us"), "ideal_us": report("ideal_us"),
            "seen_until_us": self.seen_until_us, "received_bytes": self.received_bytes,
            "doing": why("doing"), "waits": why("waits"), "queues": longest, "links": why("links"),
            "hashing": why("hashing"), "spine_bytes": report("spine_bytes"),
            "spine_imbalance": report("spine_imbalance"), "packets": report("packets"),
            "retransmitted": report("retransmitted"), "losses_undone": report("losses_undone"),
            "timeouts": report("timeouts"), "dropped": report("dropped"), "failed": self.failed,
            "slowest_flows": self.slowest, "last_flow": why("last_flow"), "words": words,
        })
    }
}

impl Explanation {
    /// Everything, for a program; `words` says the same as the table.
    pub fn json(&self) -> Value {
        let runs: Vec<Value> = self.runs.iter().map(|run| run.json(&super::text::conclusions(run))).collect();
        json!({ "runs": runs })
    }

    /// Everything, for a person.
    pub fn text(&self) -> String {
        let runs: Vec<String> = self.runs.iter().map(super::text::words).collect();
        runs.join("\n")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const KILLED: &str = r#"{"kind":"run","variant":"a","seed":1,"bytes":100}
{"kind":"sample","at_us":10.0,"queues_bytes":{"leaf to spine":{"mean":1.0,"max":7000}},"received_bytes":10}
{"kind":"sample","at_us":20.0,"queues_bytes":{"leaf to spine":{"mean":1.0,"max":5000}},"received_bytes":30}
{"kind":"flow","from":1,"to":2,"bytes":10,"took_us":9.0,"goodput_gbps":8.0,"retransmitted":0,"timeouts":0}
{"kind":"flow","from":2,"to":1,"bytes":10,"took_us":19.0,"goodput_gbps":4.0,"retransmitted":0,"timeouts":0}
{"kind":"sam"#;

    #[test]
    fn what_a_killed_run_left_is_explained_as_far_as_it_goes() {
        let explained = explain("results.jsonl", KILLED).unwrap();
        let value = explained.json();
        let run = &value["runs"][0];
        assert_eq!((&run["ended"], &run["seen_until_us"]), (&json!(false), &json!(20.0)));
        assert_eq!(
            run["queues"][0],
            json!({"links": "leaf to spine", "longest_bytes": 7000.0, "at_us": 10.0})
        );
        assert_eq!(run["slowest_flows"][0]["from"], 2);
        let text = explained.text();
        assert!(text.contains("ended before its time at 20.0 µs") && text.contains("30 %"), "{text}");
    }

    #[test]
    fn what_is_no_record_is_named_by_line() {
        for (text, said) in [
            ("", "results.jsonl: no run has begun"),
            ("{\"kind\":\"end\"}\n", "results.jsonl:1: a record \"end\" before any run"),
            ("{\"kind\":\"run\"}\n{}\n", "results.jsonl:2: a record without kind"),
            ("{\"kind\":\"run\"}\nrubbish\n", "results.jsonl:2: expected value"),
        ] {
            let error = explain("results.jsonl", text).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
