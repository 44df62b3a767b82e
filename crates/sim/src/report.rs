//! What came of a run: numbers, as JSON and as a table.

use serde_json::{json, Map, Value};
use srdma_fabric::{Time, RETRANSMIT_CAUSES};

use crate::tally::Spread;
use crate::ways::Ways;

/// What came of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowReport {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Bytes of messages received.
    pub bytes: u64,
    /// Microseconds from its first message being posted to its last being received.
    pub took_us: f64,
    /// Gbit/s of payload in that time.
    pub goodput_gbps: f64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Time-outs.
    pub timeouts: u64,
}

/// Queues of one kind of links, in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueReport {
    /// Which links.
    pub links: String,
    /// How many.
    pub count: u64,
    /// Mean over time and links: exact.
    pub mean_bytes: f64,
    /// What 99 % of the samples of all links do not exceed.
    pub p99_bytes: u64,
    /// Most that any packet met: exact.
    pub max_bytes: u64,
}

/// What came of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobReport {
    /// Its name.
    pub name: String,
    /// What it sends.
    pub kind: &'static str,
    /// Its members.
    pub members: u32,
    /// The run did not wait for it.
    pub background: bool,
    /// It is through.
    pub finished: bool,
    /// Rounds that are through.
    pub rounds: u64,
    /// Messages and bytes received.
    pub messages: u64,
    /// See `messages`.
    pub bytes: u64,
    /// Microseconds that it waited for hosts.
    pub waited_us: f64,
    /// Microseconds from its begin to its last message received, or to the end of the run if it is not through.
    pub took_us: f64,
    /// Microseconds of a round, from the first member's begin to the last one's end.
    pub round_us: Spread,
    /// The same if the network took no time, for work that computes: the rest of a round is communication that nothing hides.
    pub unhindered_us: Option<f64>,
    /// Gbit/s of payload in that time, all members together.
    pub goodput_gbps: f64,
    /// Of a collective, bytes of a member's buffer per time that rounds were under way, Gbit/s; and the same as bus
    /// bandwidth (`srdma_workload::Pattern::bus_share`).
    pub algorithm_gbps: Option<f64>,
    /// See `algorithm_gbps`.
    pub bus_gbps: Option<f64>,
}

/// What came of a run. Messages, flows and times are those of the jobs that it waited for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunReport {
    /// Scenario.
    pub scenario: String,
    /// Variant.
    pub variant: String,
    /// Seed.
    pub seed: u64,
    /// Everything was received.
    pub finished: bool,
    /// Messages received, failed, and planned.
    pub messages: [u64; 3],
    /// Microseconds from the first post to the last message received.
    pub took_us: f64,
    /// The same if every sender had its link to itself all the time.
    pub ideal_us: f64,
    /// Each job, background included.
    pub jobs: Vec<JobReport>,
    /// Each flow.
    pub flows: Vec<FlowReport>,
    /// Goodput of flows, Gbit/s.
    pub goodput: Spread,
    /// Time that messages took, µs.
    pub completion: Spread,
    /// Bus bandwidth of an AllReduce, Gbit/s.
    pub bus_gbps: Option<f64>,
    /// Queues in switches, by kind of link.
    pub queues: Vec<QueueReport>,
    /// What waits upwards at a lowest switch in all its ports, over the looks after the warm-up.
    pub switch_queue: QueueReport,
    /// Bytes that left each switch of the highest tier.
    pub spine_bytes: Vec<(String, u64)>,
    /// Largest less smallest load of an uplink of a lowest switch, as a share of its bandwidth: of the switch where it is largest.
    pub uplink_imbalance: f64,
    /// Data packets sent, those of them sent again by cause, and losses that were none.
    pub packets: u64,
    /// See `packets`.
    pub retransmitted: [u64; RETRANSMIT_CAUSES.len()],
    /// See `packets`.
    pub undone: u64,
    /// Time-outs, and paths held dead.
    pub timeouts: u64,
    /// See `timeouts`.
    pub suspected: u64,
    /// Packets marked, overflowed, cut down to their headers, lost on the wire, spoilt on it, cut off, without a way.
    pub marked: u64,
    /// See `marked`.
    pub overflowed: u64,
    /// See `marked`.
    pub trimmed: u64,
    /// See `marked`.
    pub lost: u64,
    /// See `marked`.
    pub corrupted: u64,
    /// See `marked`.
    pub cut: u64,
    /// See `marked`.
    pub unroutable: u64,
    /// Ways that the paths of flows took, as switches hashed at the end.
    pub ways: Ways,
    /// Congestion windows of flows at the end, bytes.
    pub window: Spread,
    /// Events simulated.
    pub events: u64,
    /// Equal for equal runs.
    pub trace_hash: u64,
}

impl RunReport {
    /// What makes a run that failed happen again, event for event.
    pub fn again(&self) -> Option<String> {
        let problem = match (self.finished, self.messages[1]) {
            (true, 0) => return None,
            (false, 0) => "unfinished".to_owned(),
            (_, failed) => format!("{failed} messages failed"),
        };
        let (seed, trace) = (self.seed, self.trace_hash);
        Some(format!(
            "{problem}; `srdma sim run` of this scenario with --seed {seed} repeats it: trace {trace:016x}"
        ))
    }

    /// Largest less smallest load of a spine, as a share of the mean.
    pub fn imbalance(&self) -> f64 {
        let spread = Spread::of(self.spine_bytes.iter().map(|&(_, bytes)| bytes as f64).collect());
        if spread.mean > 0.0 {
            (spread.max - spread.min) / spread.mean
        } else {
            0.0
        }
    }

    /// Payload of a member while its job ran, mean over members and time, of the jobs that the run waited for. Gbit/s.
    pub fn member_gbps(&self) -> f64 {
        let counted = || self.jobs.iter().filter(|job| !job.background);
        let bits: f64 = counted().map(|job| job.bytes as f64 * 8.0).sum();
        let member_us: f64 = counted().map(|job| job.took_us * f64::from(job.members)).sum();
        bits / 1e3 / member_us.max(1e-9)
    }

    /// Everything but the flows, which have records of their own.
    pub fn json(&self) -> Value {
        let causes = RETRANSMIT_CAUSES.iter().zip(self.retransmitted);
        let retransmitted: Map<String, Value> =
            causes.map(|((name, _), count)| ((*name).to_owned(), json!(count))).collect();
        let spines: Map<String, Value> =
            self.spine_bytes.iter().map(|(name, bytes)| (name.clone(), json!(bytes))).collect();
        json!({
            "scenario": self.scenario, "variant": self.variant, "seed": self.seed, "finished": self.finished,
            "messages": { "received": self.messages[0], "failed": self.messages[1], "planned": self.messages[2] },
            "took_us": self.took_us, "ideal_us": self.ideal_us,
            "goodput_gbps": spread(&self.goodput), "completion_us": spread(&self.completion),
            "bus_gbps": self.bus_gbps, "member_gbps": self.member_gbps(), "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
            "queues_bytes": self.queues.iter().map(queue).collect::<Vec<_>>(),
            "switch_queue_bytes": queue(&self.switch_queue), "spine_bytes": spines,
            "spine_imbalance": self.imbalance(), "uplink_imbalance": self.uplink_imbalance, "ways": self.ways.json(),
            "packets": self.packets, "retransmitted": retransmitted, "losses_undone": self.undone,
            "timeouts": self.timeouts, "paths_suspected": self.suspected,
            "marked": self.marked, "trimmed": self.trimmed,
            "dropped": { "overflow": self.overflowed, "lost": self.lost, "corrupt": self.corrupted, "cut": self.cut, "no_way": self.unroutable },
            "window_bytes": spread(&self.window),
            "events": self.events, "trace_hash": format!("{:016x}", self.trace_hash),
        })
    }
}

fn spread(spread: &Spread) -> Value {
    let Spread { min, p1, mean, p99, max } = spread;
    json!({ "min": min, "p1": p1, "mean": mean, "p99": p99, "max": max })
}

fn job(job: &JobReport) -> Value {
    json!({
        "name": job.name, "workload": job.kind, "members": job.members, "background": job.background,
        "finished": job.finished, "rounds": job.rounds, "messages": job.messages, "bytes": job.bytes,
        "waited_us": job.waited_us, "took_us": job.took_us, "round_us": spread(&job.round_us), "unhindered_us": job.unhindered_us, "goodput_gbps": job.goodput_gbps,
        "algorithm_gbps": job.algorithm_gbps, "bus_gbps": job.bus_gbps,
    })
}

fn queue(queue: &QueueReport) -> Value {
    json!({
        "links": queue.links, "count": queue.count, "mean": queue.mean_bytes, "p99": queue.p99_bytes,
        "max": queue.max_bytes,
    })
}

/// The runs side by side, one column each.
pub fn table(runs: &[RunReport]) -> String {
    let mut rows: Vec<Vec<String>> = vec![vec![String::new()]];
    rows[0].extend(runs.iter().map(|run| run.variant.clone()));
    let mut row = |label: &str, cell: &dyn Fn(&RunReport) -> String| {
        let mut cells = vec![label.to_owned()];
        cells.extend(runs.iter().map(cell));
        rows.push(cells);
    };
    row("messages received", &|run| format!("{} of {}", run.messages[0], run.messages[2]));
    row("all took (µs)", &|run| match run.finished {
        true => format!("{:.1}", run.took_us),
        false => format!("unfinished at {:.1}", run.took_us),
    });
    row("at least (µs)", &|run| format!("{:.1}", run.ideal_us));
    row("goodput of flows, least / mean (Gbit/s)", &|run| {
        format!("{:.1} / {:.1}", run.goodput.min, run.goodput.mean)
    });
    row("messages took, mean / p99 (µs)", &|run| {
        format!("{:.1} / {:.1}", run.completion.mean, run.completion.p99)
    });
    if runs.iter().any(|run| run.bus_gbps.is_some()) {
        row("bus bandwidth (Gbit/s)", &|run| run.bus_gbps.map_or(String::new(), |gbps| format!("{gbps:.1}")));
    }
    if runs.iter().any(|run| run.jobs.iter().any(|job| job.waited_us > 0.0)) {
        row("jobs waited for hosts, mean (µs)", &|run| {
            let waited: f64 = run.jobs.iter().map(|job| job.waited_us).sum();
            format!("{:.1}", waited / run.jobs.len().max(1) as f64)
        });
    }
    let jobs = runs.first().map_or(&[][..], |run| &run.jobs[..]);
    if jobs.len() > 1 {
        row("goodput of a member while its job runs (Gbit/s)", &|run| format!("{:.1}", run.member_gbps()));
    }
    for (number, job) in
        jobs.iter().enumerate().filter(|(_, job)| jobs.len() > 1 || job.unhindered_us.is_some())
    {
        row(&job_label(job), &|run| run.jobs.get(number).map_or(String::new(), job_cell));
    }
    let kinds = runs.first().map_or(0, |run| run.queues.len());
    for kind in 0..kinds {
        let links = runs[0].queues[kind].links.clone();
        row(&format!("queue {links}, mean / p99 / max (KB)"), &|run| queue_cell(&run.queues[kind]));
    }
    if runs.iter().any(|run| run.switch_queue.count > 0) {
        row("the same of a whole lowest switch upwards (KB)", &|run| queue_cell(&run.switch_queue));
    }
    row("load of the highest switches, (max − min) / mean", &|run| {
        format!("{:.1} %", run.imbalance() * 100.0)
    });
    row("ways of a flow's paths, of those there are", &|run| {
        format!("{:.1} of {:.1}", run.ways.distinct, run.ways.possible)
    });
    row("data packets", &|run| run.packets.to_string());
    row("sent again", &|run| again(run));
    row("time-outs / paths held dead", &|run| format!("{} / {}", run.timeouts, run.suspected));
    row("congestion marks", &|run| run.marked.to_string());
    if runs.iter().any(|run| run.trimmed > 0) {
        row("cut down to their headers", &|run| run.trimmed.to_string());
    }
    row("dropped: overflow / lost / corrupt / cut / no way", &|run| {
        format!("{} / {} / {} / {} / {}", run.overflowed, run.lost, run.corrupted, run.cut, run.unroutable)
    });
    row("window at the end, mean (KB)", &|run| format!("{:.0}", run.window.mean / 1e3));
    row("events", &|run| run.events.to_string());
    row("trace", &|run| format!("{:016x}", run.trace_hash));
    let mut text = aligned(&rows);
    for run in runs {
        let warning = run.ways.warning();
        text.extend(warning.map(|warning| format!("warning: {}: {warning}\n", run.variant)));
        text.extend(run.again().map(|again| format!("{}: {again}\n", run.variant)));
    }
    text
}

fn job_label(job: &JobReport) -> String {
    let unit = match (job.bus_gbps, job.unhindered_us) {
        (Some(_), _) => "bus Gbit/s",
        (None, Some(_)) => "of it exposed communication",
        (None, None) => "Gbit/s of all",
    };
    match job.background {
        true => format!("{} in the background: rounds, {unit}", job.name),
        false => format!("{}: rounds, µs of each, {unit}", job.name),
    }
}

fn job_cell(job: &JobReport) -> String {
    if let Some(unhindered_us) = job.unhindered_us.filter(|_| job.rounds > 0) {
        let share = 100.0 * (1.0 - unhindered_us / job.round_us.mean.max(1e-9));
        return format!("{}, {:.1}, {share:.1} %", job.rounds, job.round_us.mean);
    }
    let gbps = job.bus_gbps.unwrap_or(job.goodput_gbps);
    match job.background {
        true => format!("{}, {gbps:.1}", job.rounds),
        false => format!("{}, {:.1}, {gbps:.1}", job.rounds, job.round_us.mean),
    }
}

fn queue_cell(queue: &QueueReport) -> String {
    let kb = |bytes: f64| bytes / 1e3;
    let (p99, max) = (queue.p99_bytes as f64, queue.max_bytes as f64);
    format!("{:.1} / {:.0} / {:.0}", kb(queue.mean_bytes), kb(p99), kb(max))
}

fn again(run: &RunReport) -> String {
    let causes: Vec<String> = RETRANSMIT_CAUSES
        .iter()
        .zip(run.retransmitted)
        .filter(|(_, count)| *count > 0)
        .map(|((name, _), count)| format!("{name} {count}"))
        .collect();
    match causes.is_empty() {
        true => "0".to_owned(),
        false => causes.join(", "),
    }
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let gap = widths[column] - cell.chars().count();
            match column {
                0 => line += &format!("{cell}{}", " ".repeat(gap)),
                _ => line += &format!("  {}{cell}", " ".repeat(gap)),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A span in microseconds.
pub(crate) fn micros(span: Time) -> f64 {
    span.0 as f64 / 1e6
}
