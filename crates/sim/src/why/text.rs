//! An explanation in words and numbers.

use serde_json::Value;

use super::explain::Told;

/// Lines that the story of a flow has at most.
const CHAPTERS: usize = 6;
/// Width of what stands before the facts.
const LABEL: usize = 15;

/// All that is known of a run.
pub(super) fn words(run: &Told) -> String {
    let mut page = Page(format!("{}\n", headline(run)));
    for sentence in conclusions(run) {
        page.line("", &sentence);
    }
    if let Some(why) = &run.why {
        page.line("flows were", &doing(&why["doing"]));
        let waits = list(&why["waits"])
            .map(|wait| format!("{} {:.1} µs", text(&wait["links"]), number(&wait["wait_us"])));
        page.line("a byte waited", &joined(waits));
    }
    let queue = |(name, bytes, at): &(String, f64, f64)| format!("{name} {} at {at:.0} µs", kb(*bytes));
    page.line("longest queues", &joined(run.longest.iter().map(queue)));
    if let Some(why) = &run.why {
        for link in list(&why["links"]["waited"]).take(3) {
            page.line("busy link", &busy(link));
        }
        hashing(&mut page, &why["hashing"]);
    }
    if let Some(report) = &run.report {
        losses(&mut page, run, report);
    }
    for flow in run.slowest.iter().take(3) {
        let line = format!(
            "host{} to host{}: {} in {:.1} µs, {:.1} Gbit/s, {} sent again",
            flow["from"],
            flow["to"],
            kb(number(&flow["bytes"])),
            number(&flow["took_us"]),
            number(&flow["goodput_gbps"]),
            flow["retransmitted"]
        );
        page.line("slow flow", &line);
    }
    for failed in run.failed.iter().take(3) {
        let line = format!(
            "message {} at {:.1} µs, code {} (srdma explain {})",
            failed["message"],
            number(&failed["at_us"]),
            failed["cause"],
            failed["cause"]
        );
        page.line("failed", &line);
    }
    if let Some(flow) = run.why.as_ref().map(|why| &why["last_flow"]).filter(|flow| !flow.is_null()) {
        story(&mut page, flow);
    }
    page.0
}

struct Page(String);

impl Page {
    fn line(&mut self, label: &str, facts: &str) {
        if !facts.is_empty() {
            self.0 += &format!("  {label:LABEL$} {facts}\n");
        }
    }
}

fn headline(run: &Told) -> String {
    let seed = &run.opening["seed"];
    match &run.report {
        Some(report) if report["finished"] == true => {
            let (took, ideal) = (number(&report["took_us"]), number(&report["ideal_us"]));
            format!("{} (seed {seed}): took {took:.1} µs; at least {ideal:.1} µs were needed", run.name())
        }
        Some(report) => {
            let messages = &report["messages"];
            let (received, planned) = (&messages["received"], &messages["planned"]);
            format!("{} (seed {seed}): unfinished, {received} of {planned} messages received", run.name())
        }
        None => {
            let share = run.received_bytes as f64 * 100.0 / number(&run.opening["bytes"]).max(1.0);
            let until = run.seen_until_us;
            format!(
                "{} (seed {seed}): ended before its time at {until:.1} µs, {share:.0} % received",
                run.name()
            )
        }
    }
}

/// What mattered most, in sentences.
pub(super) fn conclusions(run: &Told) -> Vec<String> {
    let mut said = Vec::new();
    let Some(why) = &run.why else { return said };
    let share = |name: &str| number(&why["doing"][name]);
    if share("waiting") > 0.5 {
        said.push("Flows mostly waited for messages of others to come first.".to_owned());
    }
    if share("window_full") > 0.25 {
        said.push(format!(
            "Full windows held flows back for {:.0} % of their time.",
            share("window_full") * 100.0
        ));
    }
    if let Some(report) = &run.report {
        let (took, ideal) = (number(&report["took_us"]), number(&report["ideal_us"]));
        if report["finished"] == true && took < 1.1 * ideal {
            said.push(format!(
                "The hosts' own links were the limit: {:.0} % of them was used.",
                ideal / took.max(1e-9) * 100.0
            ));
        }
        let (again, all) = (sum(&report["retransmitted"]), number(&report["packets"]));
        if again > 0.002 * all {
            let share = again * 100.0 / all.max(1.0);
            said.push(format!(
                "{share:.1} % of the packets were sent again, most for {}.",
                largest(&report["retransmitted"])
            ));
        }
    }
    let hashing = &why["hashing"];
    // Of few flows, one alone is far above the mean.
    if number(&hashing["planned_max_to_mean"]) > 1.5 && number(&hashing["worst_flows"]) > 1.0 {
        said.push(format!(
            "Hashing alone put {:.1} times the mean on {}: {} flows share it.",
            number(&hashing["planned_max_to_mean"]),
            text(&hashing["worst"]),
            hashing["worst_flows"]
        ));
    }
    said.extend(shared_way(&why["last_flow"]));
    said
}

/// Who shares the way of a flow that has one path.
fn shared_way(flow: &Value) -> Option<String> {
    let worst = list(&flow["way"]).max_by(|a, b| number(&a["wait_us"]).total_cmp(&number(&b["wait_us"])))?;
    let others = number(&worst["other_flows"]);
    (others > 0.0).then(|| {
        format!(
            "The last flow shared {} with {others} other{}; a byte waited {:.1} µs there.",
            text(&worst["link"]),
            if others == 1.0 { "" } else { "s" },
            number(&worst["wait_us"])
        )
    })
}

fn doing(shares: &Value) -> String {
    let told = shares.as_object().into_iter().flatten();
    joined(told.map(|(name, share)| format!("{} {:.0} %", name.replace('_', " "), number(share) * 100.0)))
}

fn busy(link: &Value) -> String {
    format!(
        "{}: {:.0} % busy, a byte waited {:.1} µs, queue up to {}, {} marked, {} overflowed",
        text(&link["link"]),
        number(&link["busy"]) * 100.0,
        number(&link["wait_us"]),
        kb(number(&link["queue_max_bytes"])),
        link["marked"],
        link["overflowed"]
    )
}

fn hashing(page: &mut Page, hashing: &Value) {
    if hashing.is_null() {
        return;
    }
    page.line(
        "hashing",
        &format!(
            "a flow's paths ({}) reach {:.1} uplinks; of {} uplinks {} get nothing, the most loaded {:.2} × the mean \
             by hashing and {:.2} × as it went",
            hashing["paths"], number(&hashing["uplinks_per_flow"]), hashing["uplinks"], hashing["unused"],
            number(&hashing["planned_max_to_mean"]), number(&hashing["carried_max_to_mean"])
        ),
    );
}

fn losses(page: &mut Page, run: &Told, report: &Value) {
    page.line("highest tier", &format!("load spread {:.1} %", number(&report["spine_imbalance"]) * 100.0));
    let causes = |counts: &Value| {
        let told = counts.as_object().into_iter().flatten().filter(|(_, count)| number(count) > 0.0);
        joined(told.map(|(name, count)| format!("{} {count}", name.replace('_', " "))))
    };
    let again = causes(&report["retransmitted"]);
    let undone = match number(&report["losses_undone"]) {
        0.0 => String::new(),
        undone => format!("; {undone} had arrived after all"),
    };
    let none = |facts: String| if facts.is_empty() { "nothing".to_owned() } else { facts };
    page.line("sent again", &format!("{}{undone}", none(again)));
    page.line("time-outs", &format!("{}; paths held dead {}", report["timeouts"], report["paths_suspected"]));
    page.line("dropped", &none(causes(&report["dropped"])));
    let Some(why) = &run.why else { return };
    for link in list(&why["links"]["dropped"]).take(3) {
        let counts =
            [("overflowed", "overflowed"), ("lost", "lost"), ("spoilt", "corrupt"), ("cut off", "cut")];
        let told = counts.iter().filter(|(_, key)| number(&link[*key]) > 0.0);
        let told = joined(told.map(|(name, key)| format!("{} {name}", link[*key])));
        page.line("", &format!("{}: {told}", text(&link["link"])));
    }
}

fn story(page: &mut Page, flow: &Value) {
    let (from, until) = (number(&flow["posted_us"]), number(&flow["last_us"]));
    let end = match number(&flow["messages_left"]) {
        0.0 => format!("received {until:.1} µs"),
        left => format!("{left} messages never received"),
    };
    let line = format!(
        "host{} to host{}: {}, posted {from:.1} µs, {end}; {} packets, {:.0} sent again, {} time-outs",
        flow["from"],
        flow["to"],
        kb(number(&flow["bytes"])),
        flow["packets"],
        sum(&flow["retransmitted"]),
        flow["timeouts"]
    );
    page.line("last flow", &line);
    page.line("", &doing(&flow["doing"]));
    for link in list(&flow["way"]) {
        let line = format!(
            "by {}: {} other flows, a byte waited {:.1} µs",
            text(&link["link"]),
            link["other_flows"],
            number(&link["wait_us"])
        );
        page.line("", &line);
    }
    let timeline: Vec<&Value> = list(&flow["timeline"]).collect();
    let mut before: Option<&Value> = None;
    for moments in timeline.chunks(timeline.len().div_ceil(CHAPTERS).max(1)) {
        if let Some(line) = chapter(before, moments) {
            page.line("", &line);
        }
        before = moments.last().copied();
    }
}

/// What happened from one moment to the last of some others.
fn chapter(before: Option<&Value>, moments: &[&Value]) -> Option<String> {
    let last = moments.last()?;
    let grown = |key: &str| number(&last[key]) - before.map_or(0.0, |before| number(&before[key]));
    let mut facts = vec![mostly(moments), format!("{:.0} packets", grown("packets"))];
    for (key, name) in [("marked", "marked"), ("retransmitted", "sent again"), ("timeouts", "time-outs")] {
        if grown(key) > 0.0 {
            facts.push(format!("{:.0} {name}", grown(key)));
        }
    }
    facts.push(format!("window {}", kb(number(&last["window_bytes"]))));
    facts.push(format!("round trip {:.1} µs", number(&last["rtt_us"])));
    if number(&last["dead_paths"]) > 0.0 {
        facts.push(format!("{} paths held dead", last["dead_paths"]));
    }
    Some(format!("until {:.0} µs: {}", number(&last["at_us"]), facts.join(", ")))
}

fn mostly(moments: &[&Value]) -> String {
    let named = |name: &str| moments.iter().filter(|moment| text(&moment["doing"]) == name).count();
    let most = super::DOINGS.iter().rev().max_by_key(|name| named(name));
    most.map_or(String::new(), |name| name.replace('_', " "))
}

fn largest(counts: &Value) -> String {
    let most = counts.as_object().into_iter().flatten().max_by(|a, b| number(a.1).total_cmp(&number(b.1)));
    most.map_or(String::new(), |(name, _)| name.replace('_', " "))
}

fn sum(counts: &Value) -> f64 {
    counts.as_object().into_iter().flatten().map(|(_, count)| number(count)).sum()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn kb(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e7 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.0} KB", bytes / 1e3),
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}
