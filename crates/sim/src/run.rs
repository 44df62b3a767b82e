//! One variant of a scenario, from begin to end.

use std::collections::BTreeMap;

use serde_json::{json, Value};
use srdma_fabric::{
    Change, End, Fabric, FabricError, Imbalance, LinkCounts, LinkId, Nothing, Notice, Stop, Time,
};
use srdma_transport::SelectorKind;
use srdma_workload::PlanError;

use crate::duty::{Duty, Flow};
use crate::fault::Fault;
use crate::report::{micros, FlowReport, JobReport, QueueReport, RunReport};
use crate::scenario::{Scenario, ScenarioError, Variant};
use crate::tally::{Spread, Tally};
use crate::totals::Totals;
use crate::ways::Ways;
use crate::why::{self, Notes, Ran, Seen, DOINGS};

/// Time within which connections must stand.
const CONNECT_LIMIT: Time = Time::from_nanos(100_000_000);
/// Steps in which that is waited for.
const CONNECT_STEP: Time = Time::from_nanos(20_000);

/// Where results go while a run lasts.
pub trait Sink {
    /// A record is complete. It should be safe before the next comes.
    fn record(&mut self, record: &Value) -> Result<(), std::io::Error>;
    /// This far it has come.
    fn progress(&mut self, status: &Status);
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Simulated time since the first message.
    pub simulated: Time,
    /// Bytes received, of all.
    pub received_bytes: u64,
    /// See `received_bytes`.
    pub planned_bytes: u64,
    /// Events simulated.
    pub events: u64,
}

/// A look at the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Microseconds since the first message.
    pub at_us: f64,
    /// Longest and mean queue of the lowest switches, upwards. Bytes.
    pub up_max: u64,
    /// See `up_max`.
    pub up_mean: f64,
    /// Bytes received since the last look, as Gbit/s.
    pub goodput_gbps: f64,
}

/// Why a run did not end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The network or a flow is not as it should be.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A workload is not as it should be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The scenario is not.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// An error of the simulator.
    #[error(transparent)]
    Imbalance(#[from] Imbalance),
    /// Results cannot be kept.
    #[error("Cannot write results: {0}")]
    Sink(#[from] std::io::Error),
    /// The handshake of some flows did not get through before the first message.
    #[error("{0} flows are not connected after {CONNECT_LIMIT}")]
    Unconnected(usize),
}

/// A kind of links in switches.
struct Kind {
    name: String,
    links: Vec<LinkId>,
    tally: Tally,
    before: Vec<LinkCounts>,
}

struct Run<'a> {
    scenario: &'a Scenario,
    variant: &'a Variant,
    fabric: Fabric<Nothing>,
    duty: Duty<'a>,
    kinds: Vec<Kind>,
    begin: Time,
    completion: Vec<f64>,
    /// Of the jobs that the run waits for, and of all.
    received: u64,
    received_bytes: u64,
    carried_bytes: u64,
    failed: u64,
    last_received: Time,
    /// As they were until everything was received; what comes later are acknowledgements.
    queues: Option<Vec<QueueReport>>,
    sampled_bytes: u64,
    moments: Vec<Moment>,
    notes: Notes,
    totals: Totals,
}

/// Carries out one variant; returns what came of it and how its queues were meanwhile.
pub fn run(
    scenario: &Scenario,
    variant: &Variant,
    sink: &mut dyn Sink,
) -> Result<(RunReport, Vec<Moment>), RunError> {
    let mut run = Run::new(scenario, variant)?;
    sink.record(&run.opening())?;
    run.connect()?;
    run.schedule_faults();
    run.carry_out(sink)?;
    let report = run.report()?;
    sink.record(&run.why())?;
    sink.record(&json!({ "kind": "end", "report": report.json() }))?;
    Ok((report, run.moments))
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, variant: &'a Variant) -> Result<Run<'a>, RunError> {
        let fabric = Fabric::new(scenario.config(&variant.settings), scenario.graph.clone(), |_| Nothing)?;
        let kinds = kinds(&fabric);
        let (name, links) = kinds.first().map_or(("", &[][..]), |kind| (&kind.name, &kind.links[..]));
        let totals = Totals::new(&fabric, name, links);
        Ok(Run {
            scenario,
            variant,
            duty: Duty::new(scenario, &variant.settings)?,
            completion: Vec::new(),
            fabric,
            kinds,
            begin: Time(0),
            received: 0,
            received_bytes: 0,
            carried_bytes: 0,
            failed: 0,
            last_received: Time(0),
            queues: None,
            sampled_bytes: 0,
            moments: Vec::new(),
            notes: Notes::default(),
            totals,
        })
    }

    fn opening(&self) -> Value {
        let settings = &self.variant.settings;
        json!({
            "kind": "run", "scenario": self.scenario.name, "variant": self.variant.name, "seed": self.scenario.seed,
            "hosts": self.fabric.graph().hosts, "messages": self.duty.planned.messages, "bytes": self.duty.planned.bytes,
            "jobs": self.scenario.jobs.iter().map(|job| &job.name).collect::<Vec<_>>(),
            "paths": settings.paths, "selector": settings.selector.name(), "settings": format!("{settings:?}"),
        })
    }

    /// A flow for every pair of hosts that talk, all connected before the first message.
    fn connect(&mut self) -> Result<(), RunError> {
        self.duty.connect(&mut self.fabric)?;
        loop {
            let until = self.fabric.now().after(CONNECT_STEP);
            while self.fabric.run_until(until)? != Stop::Limit {
                self.fabric.take_notices(&mut Vec::new());
            }
            let connected = |flow: &Flow| {
                self.fabric.counts(flow.id).is_some_and(|(a, b)| a.is_connected && b.is_connected)
            };
            let waiting = self.duty.flows.iter().filter(|flow| !connected(flow)).count();
            if waiting == 0 {
                break;
            }
            if until > CONNECT_LIMIT {
                return Err(RunError::Unconnected(waiting));
            }
        }
        self.begin = self.fabric.now();
        self.last_received = self.begin;
        self.duty.begin(self.begin);
        for kind in &mut self.kinds {
            let links = self.fabric.links();
            kind.before = kind.links.iter().map(|link| *links[link.0 as usize].counts()).collect();
        }
        Ok(())
    }

    fn schedule_faults(&mut self) {
        let scenario = self.scenario;
        for fault in &scenario.faults {
            let links = fault.links(self.fabric.graph());
            let undone = |link: &LinkId| fault.change.undone(&self.fabric.links()[link.0 as usize]);
            let healed: Vec<Change> = links.iter().map(undone).collect();
            for (at, until) in fault.times(scenario.limit) {
                self.change(fault, at, links.clone(), fault.change);
                let Some(until) = until else { continue };
                // Links that become alike again do so together.
                for all in links.iter().zip(&healed).collect::<Vec<_>>().chunk_by(|a, b| a.1 == b.1) {
                    self.change(fault, until, all.iter().map(|(&link, _)| link).collect(), *all[0].1);
                }
            }
        }
    }

    /// At `at` from the first message on, and routing notices when the fault says.
    fn change(&mut self, fault: &Fault, at: Time, links: Vec<LinkId>, change: Change) {
        let at = self.begin.after(at);
        self.fabric.change_at(at, links, change);
        if let Some(wait) = fault.reroute_after {
            self.fabric.change_at(at.after(wait), Vec::new(), Change::Reroute);
        }
    }

    fn carry_out(&mut self, sink: &mut dyn Sink) -> Result<(), RunError> {
        let (mut notices, mut has_settled) = (Vec::new(), true);
        let mut look_at = self.begin.after(self.scenario.sample_every);
        let end = self.begin.after(self.scenario.limit);
        while !self.duty.is_done() && self.fabric.now() < end {
            self.duty.ring(&mut self.fabric, has_settled)?;
            let next = self.duty.next_alarm().max(self.fabric.now());
            let stop = self.fabric.run_until(look_at.min(end).min(next))?;
            has_settled = stop == Stop::Limit;
            match stop {
                Stop::Notices => {
                    self.fabric.take_notices(&mut notices);
                    for notice in notices.drain(..) {
                        self.notice(notice, sink)?;
                    }
                }
                Stop::Limit if next <= self.fabric.now() => {}
                Stop::Limit => {
                    self.look(sink)?;
                    look_at = look_at.after(self.scenario.sample_every);
                }
            }
        }
        Ok(())
    }

    fn notice(&mut self, notice: Notice, sink: &mut dyn Sink) -> Result<(), RunError> {
        let received = self.duty.notice(notice, &mut self.fabric)?;
        match notice {
            Notice::Sent { .. } => {}
            Notice::Received { at, .. } => {
                let Some(received) = received else { return Ok(()) };
                self.carried_bytes += u64::from(received.bytes);
                if !received.counts {
                    return Ok(());
                }
                self.received += 1;
                self.received_bytes += u64::from(received.bytes);
                self.last_received = self.last_received.max(at);
                self.completion.push(micros(received.took));
                if self.received == self.duty.planned.messages {
                    self.queues = Some(self.queue_reports());
                }
                let flow = &self.duty.flows[received.flow as usize];
                if flow.left == 0 {
                    sink.record(&flow_record(&self.flow_report(flow)))?;
                }
            }
            Notice::Failed { at, host, message, cause } => {
                self.failed += 1;
                let at_us = micros(at.since(self.begin));
                sink.record(&json!({
                    "kind": "failed", "at_us": at_us, "host": host, "job": self.duty.name_of(message), "cause": cause,
                }))?;
            }
        }
        Ok(())
    }

    /// A sample of the queues.
    fn look(&mut self, sink: &mut dyn Sink) -> Result<(), RunError> {
        let now = self.fabric.now();
        let mut moment = Moment { at_us: micros(now.since(self.begin)), ..Moment::default() };
        let mut queues = serde_json::Map::new();
        for (index, kind) in self.kinds.iter_mut().enumerate() {
            let (mut most, mut sum) = (0, 0);
            for link in &kind.links {
                let bytes = self.fabric.links()[link.0 as usize].queue_bytes(now);
                kind.tally.add(bytes);
                most = bytes.max(most);
                sum += bytes;
            }
            let mean = sum as f64 / kind.links.len().max(1) as f64;
            queues.insert(kind.name.clone(), json!({ "mean": mean, "max": most }));
            if index == 0 {
                (moment.up_max, moment.up_mean) = (most, mean);
            }
        }
        if now.since(self.begin) >= self.scenario.warm_up {
            self.totals.look(&self.fabric, now);
        }
        let since = self.carried_bytes - self.sampled_bytes;
        moment.goodput_gbps = since as f64 * 8_000.0 / self.scenario.sample_every.0 as f64;
        self.sampled_bytes = self.carried_bytes;
        let mut sample = json!({
            "kind": "sample", "at_us": moment.at_us, "queues_bytes": queues,
            "received_bytes": self.carried_bytes, "events": self.fabric.events(),
        });
        let flows = self.duty.flows.iter().map(|flow| self.duty.posted(flow));
        if let Some(doings) = self.notes.look(&self.fabric, self.begin, flows) {
            let counts: Vec<(&str, u64)> = DOINGS.into_iter().zip(doings).collect();
            sample["flows"] = counts.into_iter().collect();
        }
        sink.record(&sample)?;
        self.moments.push(moment);
        sink.progress(&Status {
            simulated: now.since(self.begin),
            received_bytes: self.received_bytes,
            planned_bytes: self.duty.planned.bytes,
            events: self.fabric.events(),
        });
        Ok(())
    }

    /// What it will be explained from.
    fn why(&self) -> Value {
        let settings = &self.variant.settings;
        let before =
            self.kinds.iter().flat_map(|kind| kind.links.iter().copied().zip(kind.before.iter().copied()));
        let ran = |flow: &Flow| {
            let Flow { id, from, to, left, bytes, first_post, last, .. } = *flow;
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            Ran { id, from, to, bytes, left, first_post, last }
        };
        // None where there is but one switch.
        let leads_up = |kind: &&Kind| {
            kind.links.first().is_some_and(|&link| matches!(self.fabric.ends(link).1, End::Switch(_)))
        };
        why::record(&Seen {
            fabric: &self.fabric,
            notes: &self.notes,
            begin: self.begin,
            paths: if settings.selector == SelectorKind::Single { 1 } else { settings.paths },
            before: before.collect(),
            uplinks: self.kinds.first().filter(leads_up).map_or(&[], |kind| &kind.links),
            waits: self.kinds.iter().map(|kind| (kind.name.clone(), self.wait_us(kind))).collect(),
            flows: self.counted().map(ran).collect(),
        })
    }

    /// Mean time of a byte in queues of this kind.
    fn wait_us(&self, kind: &Kind) -> f64 {
        let (mut byte_ps, mut bytes) = (0, 0);
        for (link, before) in kind.links.iter().zip(&kind.before) {
            let counts = self.fabric.links()[link.0 as usize].counts();
            byte_ps += counts.byte_ps - before.byte_ps;
            bytes += counts.bytes - before.bytes;
        }
        why::wait_us(byte_ps, bytes)
    }

    fn flow_report(&self, flow: &Flow) -> FlowReport {
        let took = flow.last.since(flow.first_post);
        let counts = self.fabric.counts(flow.id).map(|(sender, _)| *sender).unwrap_or_default();
        FlowReport {
            from: flow.from,
            to: flow.to,
            bytes: flow.bytes,
            took_us: micros(took),
            goodput_gbps: flow.bytes as f64 * 8_000.0 / took.0.max(1) as f64,
            retransmitted: counts.retransmitted.iter().sum(),
            timeouts: counts.timeouts,
        }
    }

    fn report(&self) -> Result<RunReport, RunError> {
        self.fabric.audit()?;
        let took = self.last_received.since(self.begin);
        let jobs = self.duty.reports(self.fabric.now());
        let mut report = RunReport {
            scenario: self.scenario.name.clone(),
            variant: self.variant.name.clone(),
            seed: self.scenario.seed,
            finished: self.duty.is_done(),
            messages: [self.received, self.failed, self.duty.planned.messages],
            took_us: micros(took),
            ideal_us: self.ideal_us()?,
            flows: self.counted().map(|flow| self.flow_report(flow)).collect(),
            completion: Spread::of(self.completion.clone()),
            bus_gbps: self.bus_gbps(&jobs),
            jobs,
            queues: self.queues.clone().unwrap_or_else(|| self.queue_reports()),
            switch_queue: self.totals.report(),
            spine_bytes: self.spine_bytes(),
            ways: Ways::of(
                &self.fabric,
                self.duty.flows.iter().map(|flow| flow.id),
                self.variant.settings.paths,
            ),
            uplink_imbalance: self.uplink_imbalance(took),
            unroutable: self.fabric.unroutable(),
            events: self.fabric.events(),
            trace_hash: self.fabric.trace_hash(),
            ..RunReport::default()
        };
        report.goodput = Spread::of(report.flows.iter().map(|flow| flow.goodput_gbps).collect());
        self.add_counts(&mut report);
        Ok(report)
    }

    /// Flows of the jobs that the run waits for.
    fn counted(&self) -> impl Iterator<Item = &Flow> {
        self.duty.flows.iter().filter(|flow| self.duty.counts(flow))
    }

    fn add_counts(&self, report: &mut RunReport) {
        let mut windows = Vec::new();
        for flow in &self.duty.flows {
            let Some((sender, _)) = self.fabric.counts(flow.id) else { continue };
            report.packets += sender.packets;
            report.undone += sender.undone;
            report.timeouts += sender.timeouts;
            report.suspected += sender.suspected;
            for (sum, count) in report.retransmitted.iter_mut().zip(sender.retransmitted) {
                *sum += count;
            }
            windows.push(sender.window as f64);
        }
        report.window = Spread::of(windows);
        for link in self.fabric.links() {
            let counts = link.counts();
            report.marked += counts.marked;
            report.overflowed += counts.overflowed;
            report.trimmed += counts.trimmed;
            report.lost += counts.lost;
            report.corrupted += counts.corrupted;
            report.cut += counts.cut;
        }
    }

    /// Time that the busiest sender or receiver needs for its bytes on its own link, headers included.
    fn ideal_us(&self) -> Result<f64, RunError> {
        let hosts = self.fabric.graph().hosts as usize;
        let (mut out, mut into) = (vec![0u64; hosts], vec![0u64; hosts]);
        let config = self.scenario.config(&self.variant.settings);
        let payload = u64::from(self.variant.settings.payload_bytes);
        let around = u64::from(config.datagram_bytes_max) - payload + u64::from(config.framing_bytes);
        self.duty.traffic(|from, to, bytes, count| {
            let bytes = u64::from(bytes);
            let wire = (bytes + bytes.div_ceil(payload).max(1) * around) * count;
            out[from as usize] += wire;
            into[to as usize] += wire;
        })?;
        let mut rates = vec![0.0; hosts];
        for cable in &self.scenario.graph.cables {
            if let End::Host(host) = cable.from {
                rates[host as usize] += cable.rate.bits_per_second() as f64;
            }
        }
        let most = out.into_iter().zip(into).map(|(out, into)| out.max(into) as f64);
        Ok(most.zip(rates).map(|(bytes, rate)| bytes * 8e6 / rate).fold(0.0, f64::max))
    }

    /// Of the first job that the run waits for and that has one.
    fn bus_gbps(&self, jobs: &[JobReport]) -> Option<f64> {
        jobs.iter().filter(|job| !job.background && job.finished).find_map(|job| job.bus_gbps)
    }

    fn queue_reports(&self) -> Vec<QueueReport> {
        self.kinds.iter().map(|kind| self.queue_report(kind)).collect()
    }

    fn queue_report(&self, kind: &Kind) -> QueueReport {
        let links = self.fabric.links();
        let (mut byte_ps, mut most) = (0u128, 0);
        for (link, before) in kind.links.iter().zip(&kind.before) {
            let counts = links[link.0 as usize].counts();
            byte_ps += counts.byte_ps - before.byte_ps;
            most = counts.queue_max_bytes.max(most);
        }
        let span = self.fabric.now().since(self.begin).0.max(1) as f64;
        QueueReport {
            links: kind.name.clone(),
            count: kind.links.len() as u64,
            mean_bytes: byte_ps as f64 / span / kind.links.len().max(1) as f64,
            p99_bytes: kind.tally.percentile(0.99),
            max_bytes: most,
        }
    }

    fn uplink_imbalance(&self, took: Time) -> f64 {
        let mut loads: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        let uplinks = self.kinds.first().into_iter().flat_map(|kind| kind.links.iter().zip(&kind.before));
        for (&id, before) in uplinks {
            let (End::Switch(switch), End::Switch(_)) = self.fabric.ends(id) else { continue };
            let link = &self.fabric.links()[id.0 as usize];
            let busy = link.rate().serialisation(link.counts().bytes - before.bytes);
            let load = busy.0 as f64 / took.0.max(1) as f64;
            let (least, most) = loads.entry(switch).or_insert((load, load));
            (*least, *most) = (least.min(load), most.max(load));
        }
        loads.values().map(|(least, most)| most - least).fold(0.0, f64::max)
    }

    fn spine_bytes(&self) -> Vec<(String, u64)> {
        let graph = self.fabric.graph();
        let highest = graph.switches.iter().map(|switch| switch.tier).max();
        let spines = graph.switches.iter().enumerate().filter(|(_, switch)| Some(switch.tier) == highest);
        let bytes_of = |index: usize| {
            let end = End::Switch(index as u32);
            let out = self.fabric.links_at(end).into_iter().filter(|&link| self.fabric.ends(link).0 == end);
            out.map(|link| self.fabric.links()[link.0 as usize].counts().bytes).sum()
        };
        spines.map(|(index, switch)| (switch.name.clone(), bytes_of(index))).collect()
    }
}

/// Links out of switches, by where they lead; those from leaves upwards come first.
fn kinds(fabric: &Fabric<Nothing>) -> Vec<Kind> {
    let graph = fabric.graph();
    // What the switches of a tier are called, without their numbers; hosts are tier 0.
    let tier = |end: End| match end {
        End::Host(_) => (0, "host"),
        End::Switch(switch) => {
            let switch = &graph.switches[switch as usize];
            (switch.tier, switch.name.trim_end_matches(|c: char| c.is_ascii_digit()))
        }
    };
    let mut kinds: BTreeMap<(bool, u8, u8), Kind> = BTreeMap::new();
    for link in (0..fabric.links().len() as u32).map(LinkId) {
        let (from, to) = fabric.ends(link);
        let ((low, from_name), (high, to_name)) = (tier(from), tier(to));
        if low == 0 {
            continue;
        }
        let name = || format!("{from_name} to {to_name}");
        let new = || Kind { name: name(), links: Vec::new(), tally: Tally::new(), before: Vec::new() };
        kinds.entry((low > high, low, high)).or_insert_with(new).links.push(link);
    }
    kinds.into_values().collect()
}

fn flow_record(flow: &FlowReport) -> Value {
    json!({
        "kind": "flow", "from": flow.from, "to": flow.to, "bytes": flow.bytes, "took_us": flow.took_us,
        "goodput_gbps": flow.goodput_gbps, "retransmitted": flow.retransmitted, "timeouts": flow.timeouts,
    })
}
