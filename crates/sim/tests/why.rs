//! What a run leaves, and what is said of it afterwards.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use srdma_sim::{explain, run, Explanation, Sink, Status, Workload};
use srdma_workload::{After, Plan};

const SMALL: &str = r#"
seed = 4
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 8
spines = 8
host_gbps = 100
[workload]
kind = "permutation"
kib = 512
[run]
limit_ms = 20
sample_us = 5
"#;

#[derive(Default)]
struct Kept(String);

impl Sink for Kept {
    fn record(&mut self, record: &Value) -> Result<(), std::io::Error> {
        self.0 += &format!("{record}\n");
        Ok(())
    }

    fn progress(&mut self, _status: &Status) {}
}

/// The records of all runs of a scenario, and their explanation.
fn explained(text: &str) -> (String, Explanation) {
    explained_with(text, None)
}

fn explained_with(text: &str, workload: Option<Workload>) -> (String, Explanation) {
    let scenario = srdma_sim::parse("why.toml", text, None, workload).unwrap();
    let mut kept = Kept::default();
    for variant in &scenario.variants {
        run(&scenario, variant, &mut kept).unwrap();
    }
    let explanation = explain("results.jsonl", &kept.0).unwrap();
    (kept.0, explanation)
}

#[test]
fn one_path_is_explained_by_who_shares_it_and_many_by_their_hosts_links() {
    let variants =
        "[[variant]]\nname = \"one\"\nselector = \"single\"\npaths = 1\n[[variant]]\nname = \"many\"\n";
    let (records, explanation) = explained(&format!("{SMALL}{variants}"));
    let value = explanation.json();
    let (one, many) = (&value["runs"][0], &value["runs"][1]);
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!((&one["hashing"]["paths"], &one["hashing"]["uplinks_per_flow"]), (&1.into(), &1.0.into()));
    assert!(number(&one["hashing"]["planned_max_to_mean"]) > 1.5, "{one:#}");
    assert!(number(&many["hashing"]["planned_max_to_mean"]) < 1.3, "{many:#}");
    let way = one["last_flow"]["way"].as_array().unwrap();
    assert!(way.len() == 3 && way.iter().any(|link| number(&link["other_flows"]) >= 1.0), "{way:?}");
    assert!(many["last_flow"]["way"].is_null());
    let text = explanation.text();
    assert!(text.contains("The last flow shared leaf") && text.contains("Hashing alone put"), "{text}");
    for run in [one, many] {
        let doing = run["doing"].as_object().unwrap();
        assert!((doing.values().map(&number).sum::<f64>() - 1.0).abs() < 1e-9, "{doing:?}");
        let timeline = run["last_flow"]["timeline"].as_array().unwrap();
        assert!(timeline.len() > 3 && timeline.len() <= 32, "{timeline:?}");
        assert_eq!(run["last_flow"]["last_us"], run["took_us"], "the flow that was through last");
    }
    let why = records.lines().find(|line| line.contains("\"kind\":\"why\"")).unwrap();
    assert!(why.len() < 16_000, "{} bytes", why.len());
}

#[test]
fn losses_are_told_by_cause_and_link() {
    let fault = "[[fault]]\non = \"leaf0-spine2\"\nwhat = \"loss\"\npercent = 20\n[run]";
    let (_, explanation) = explained(&SMALL.replace("[run]", fault));
    let text = explanation.text();
    assert!(text.contains("packets were sent again, most for"), "{text}");
    let run = &explanation.json()["runs"][0];
    let dropping: Vec<&str> = run["links"]["dropped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|link| link["link"].as_str().unwrap())
        .collect();
    assert!(dropping.len() == 2 && dropping.contains(&"leaf0 to spine2"), "{dropping:?}");
}

#[test]
fn a_message_that_waits_for_another_shows_as_waiting() {
    let mut plan = Plan::default();
    let first = plan.push(0, 9, 1 << 20, &[]);
    plan.push(9, 0, 8, &[After::Received(first)]);
    let (_, explanation) = explained_with(SMALL, Some(Workload::Matrix(plan)));
    let run = &explanation.json()["runs"][0];
    let share = |of: &Value| of["doing"]["waiting"].as_f64().unwrap();
    assert!((0.4..0.6).contains(&share(run)), "{run:#}");
    assert!(run["last_flow"]["from"] == 9 && share(&run["last_flow"]) > 0.8, "{run:#}");
}
