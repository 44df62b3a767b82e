//! The jobs of a run: their courses, their flows, the messages that they have under way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use srdma_fabric::{Fabric, FlowId, Nothing, Notice, Post, Time};
use srdma_workload::{Course, Span, Told, Wish};

use crate::job::Job;
use crate::report::{micros, JobReport};
use crate::run::RunError;
use crate::scenario::{Scenario, Settings};
use crate::tally::Spread;
use crate::why::Posted;
use crate::work::place;

/// A pair of hosts that talk in a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub job: u32,
    pub from: u32,
    pub to: u32,
    pub id: FlowId,
    /// Messages that will still be received; endless for work without end.
    pub left: u64,
    /// Messages posted and not received, and packets that those posted so far need.
    pub open: u32,
    pub packets: u64,
    pub bytes: u64,
    pub first_post: Time,
    pub last: Time,
}

impl Flow {
    fn new(job: u32, from: u32, to: u32) -> Flow {
        let (id, first_post, last) = (FlowId(u32::MAX), Time::MAX, Time(0));
        Flow { job, from, to, id, left: 0, open: 0, packets: 0, bytes: 0, first_post, last }
    }
}

/// A message under way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    flow: u32,
    bytes: u32,
    token: u32,
    posted: Time,
    /// Of received and landed, what has not been told.
    untold: u8,
}

/// A job under way.
struct Running<'a> {
    job: &'a Job,
    course: Box<dyn Course>,
    /// By member; none before a queued job is placed.
    hosts: Vec<u32>,
    /// Its hosts are free again.
    has_left: bool,
    /// Flow of each pair of members.
    flows: BTreeMap<(u32, u32), u32>,
    begin: Time,
    /// Time of a round on a network that takes none.
    unhindered: Option<Time>,
    messages: u64,
    bytes: u64,
    last: Time,
}

/// When, the how manieth of all, which job is told, and what.
type Alarm = (Time, u64, u32, Call);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    /// It begins, or queues.
    Begin,
    /// Hosts may have become free.
    Queue,
    /// It wanted to be woken.
    Woken(u32),
}

/// What was received.
pub(crate) struct Received {
    /// On which flow.
    pub flow: u32,
    /// How long it took.
    pub took: Time,
    /// Its bytes.
    pub bytes: u32,
    /// It is no background.
    pub counts: bool,
}

/// Messages and bytes of the jobs that a run waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planned {
    pub messages: u64,
    pub bytes: u64,
}

/// See the module.
pub(crate) struct Duty<'a> {
    scenario: &'a Scenario,
    /// Jobs that wait for hosts.
    queue: VecDeque<u32>,
    jobs: Vec<Running<'a>>,
    pub flows: Vec<Flow>,
    pub planned: Planned,
    /// Messages under way, by the number that the fabric is told; free numbers.
    flights: Vec<Flight>,
    free: Vec<u32>,
    alarms: BinaryHeap<Reverse<Alarm>>,
    alarms_made: u64,
    begin: Time,
    wishes: Vec<Wish>,
    /// Of a full packet.
    payload_bytes: u64,
}

impl<'a> Duty<'a> {
    /// Nothing is under way.
    pub fn new(scenario: &'a Scenario, settings: &Settings) -> Result<Duty<'a>, RunError> {
        let placements = scenario.placements()?;
        let mut planned = Planned::default();
        let mut jobs = Vec::new();
        for (job, hosts) in scenario.jobs.iter().zip(placements) {
            let hosts = if job.queued { Vec::new() } else { hosts };
            if !job.background {
                let rounds = u64::from(job.repeat.times.unwrap_or(1));
                job.workload.traffic(|traffic| {
                    planned.messages += traffic.count * rounds;
                    planned.bytes += u64::from(traffic.bytes) * traffic.count * rounds;
                })?;
            }
            jobs.push(Running {
                job,
                course: job.workload.course(job.repeat)?,
                hosts,
                has_left: false,
                flows: BTreeMap::new(),
                begin: Time(0),
                unhindered: job.workload.unhindered()?,
                messages: 0,
                bytes: 0,
                last: Time(0),
            });
        }
        Ok(Duty {
            scenario,
            queue: VecDeque::new(),
            jobs,
            flows: Vec::new(),
            planned,
            flights: Vec::new(),
            free: Vec::new(),
            alarms: BinaryHeap::new(),
            alarms_made: 0,
            begin: Time(0),
            wishes: Vec::new(),
            payload_bytes: settings.payload_bytes.into(),
        })
    }

    /// The flows of every job that is placed.
    pub fn connect(&mut self, fabric: &mut Fabric<Nothing>) -> Result<(), RunError> {
        let placed = (0..self.jobs.len() as u32).filter(|&job| !self.scenario.jobs[job as usize].queued);
        placed.collect::<Vec<_>>().into_iter().try_for_each(|job| self.connect_job(job, fabric))
    }

    /// A flow for every pair of members that talk.
    fn connect_job(&mut self, number: u32, fabric: &mut Fabric<Nothing>) -> Result<(), RunError> {
        let first = self.flows.len();
        let (flows, running) = (&mut self.flows, &mut self.jobs[number as usize]);
        let rounds = running.job.repeat.times.map(u64::from);
        running.job.workload.traffic(|traffic| {
            let next = flows.len() as u32;
            let index = *running.flows.entry((traffic.from, traffic.to)).or_insert(next);
            if index == next {
                let [from, to] = [traffic.from, traffic.to].map(|member| running.hosts[member as usize]);
                flows.push(Flow::new(number, from, to));
            }
            let flow = &mut flows[index as usize];
            flow.left = match rounds {
                Some(rounds) => flow.left.saturating_add(traffic.count.saturating_mul(rounds)),
                None => u64::MAX,
            };
        })?;
        for flow in &mut flows[first..] {
            flow.id = fabric.connect(flow.from, flow.to)?;
        }
        Ok(())
    }

    /// Now is the begin of all times of jobs.
    pub fn begin(&mut self, begin: Time) {
        self.begin = begin;
        for number in 0..self.jobs.len() as u32 {
            let running = &mut self.jobs[number as usize];
            running.begin = begin.after(running.job.start);
            running.last = running.begin;
            let at = running.begin;
            self.alarm(at, number, Call::Begin);
        }
    }

    fn alarm(&mut self, at: Time, job: u32, call: Call) {
        self.alarms.push(Reverse((at, self.alarms_made, job, call)));
        self.alarms_made += 1;
    }

    /// When the next job wants to be told.
    pub fn next_alarm(&self) -> Time {
        self.alarms.peek().map_or(Time::MAX, |Reverse((at, ..))| *at)
    }

    /// Tells all jobs that want to be told by now. Those that queue are admitted only if the network `has_settled`: everything
    /// until now has happened at every host, so that connections can be made.
    pub fn ring(&mut self, fabric: &mut Fabric<Nothing>, has_settled: bool) -> Result<(), RunError> {
        while let Some(&Reverse((at, _, job, call))) = self.alarms.peek() {
            let queues = call == Call::Queue || (call == Call::Begin && self.jobs[job as usize].job.queued);
            if at > fabric.now() || (queues && !has_settled) {
                break;
            }
            self.alarms.pop();
            match call {
                Call::Woken(token) => {
                    self.tell(job, at, Told::Woken(token));
                    self.fulfil(job, fabric)?;
                }
                Call::Begin if queues => {
                    self.queue.push_back(job);
                    self.admit(fabric)?;
                }
                Call::Begin => self.start(job, fabric)?,
                Call::Queue => self.admit(fabric)?,
            }
        }
        Ok(())
    }

    fn start(&mut self, job: u32, fabric: &mut Fabric<Nothing>) -> Result<(), RunError> {
        let mut wishes = std::mem::take(&mut self.wishes);
        self.jobs[job as usize].course.begin(&mut wishes);
        self.wishes = wishes;
        self.fulfil(job, fabric)
    }

    /// Places jobs of the queue, as long as the first of them finds hosts.
    fn admit(&mut self, fabric: &mut Fabric<Nothing>) -> Result<(), RunError> {
        while let Some(&job) = self.queue.front() {
            let here = self.jobs.iter().filter(|running| !running.has_left);
            let taken: BTreeSet<u32> = here.flat_map(|running| running.hosts.iter().copied()).collect();
            let Scenario { jobs, graph, seed, .. } = self.scenario;
            let Ok(hosts) = place(&jobs[job as usize], graph.hosts, &taken, *seed, job as usize) else {
                break;
            };
            self.queue.pop_front();
            let running = &mut self.jobs[job as usize];
            (running.hosts, running.begin, running.last) = (hosts, fabric.now(), fabric.now());
            self.connect_job(job, fabric)?;
            self.start(job, fabric)?;
        }
        Ok(())
    }

    fn tell(&mut self, job: u32, at: Time, told: Told) {
        let running = &mut self.jobs[job as usize];
        running.course.told(at.since(running.begin).0, told, &mut self.wishes);
    }

    /// Does what a job wishes.
    fn fulfil(&mut self, job: u32, fabric: &mut Fabric<Nothing>) -> Result<(), RunError> {
        let mut wishes = std::mem::take(&mut self.wishes);
        for wish in wishes.drain(..) {
            match wish {
                Wish::Wake { token, at_ps } => {
                    let at = self.jobs[job as usize].begin.after(Time(at_ps));
                    self.alarm(at, job, Call::Woken(token));
                }
                Wish::Send { token, from, to, bytes } => {
                    let Some(&flow) = self.jobs[job as usize].flows.get(&(from, to)) else { continue };
                    self.post(flow, token, bytes, fabric)?;
                }
            }
        }
        self.wishes = wishes;
        Ok(())
    }

    fn post(
        &mut self,
        flow: u32,
        token: u32,
        bytes: u32,
        fabric: &mut Fabric<Nothing>,
    ) -> Result<(), RunError> {
        let posted = fabric.now();
        let flight = Flight { flow, bytes, token, posted, untold: 2 };
        let number = self.free.pop().unwrap_or_else(|| {
            self.flights.push(flight);
            self.flights.len() as u32 - 1
        });
        self.flights[number as usize] = flight;
        let of_flow = &mut self.flows[flow as usize];
        of_flow.first_post = of_flow.first_post.min(posted);
        of_flow.open += 1;
        of_flow.packets += u64::from(bytes).div_ceil(self.payload_bytes).max(1);
        Ok(fabric.post(Post { flow: of_flow.id, message: number, bytes, local: 0, remote: 0 })?)
    }

    /// A message was received, or is known to have landed. Its job posts what had waited for that.
    pub fn notice(
        &mut self,
        notice: Notice,
        fabric: &mut Fabric<Nothing>,
    ) -> Result<Option<Received>, RunError> {
        let (at, message, is_receipt) = match notice {
            Notice::Received { at, message } => (at, message, true),
            Notice::Sent { at, message } => (at, message, false),
            Notice::Failed { .. } => return Ok(None),
        };
        let Some(flight) = self.flights.get_mut(message as usize) else { return Ok(None) };
        flight.untold -= 1;
        let flight = *flight;
        if flight.untold == 0 {
            self.free.push(message);
        }
        let job = self.flows[flight.flow as usize].job;
        let received = is_receipt.then(|| self.count(at, &flight));
        let told = if is_receipt { Told::Received(flight.token) } else { Told::Sent(flight.token) };
        self.tell(job, at, told);
        self.fulfil(job, fabric)?;
        let running = &mut self.jobs[job as usize];
        if !running.has_left && running.course.is_done() {
            running.has_left = true;
            if !self.queue.is_empty() {
                self.alarm(fabric.now(), job, Call::Queue);
            }
        }
        Ok(received)
    }

    fn count(&mut self, at: Time, flight: &Flight) -> Received {
        let flow = &mut self.flows[flight.flow as usize];
        flow.left = flow.left.saturating_sub(1);
        flow.open -= 1;
        flow.bytes += u64::from(flight.bytes);
        flow.last = at;
        let running = &mut self.jobs[flow.job as usize];
        running.messages += 1;
        running.bytes += u64::from(flight.bytes);
        running.last = running.last.max(at);
        let counts = !running.job.background;
        Received { flow: flight.flow, took: at.since(flight.posted), bytes: flight.bytes, counts }
    }

    /// Name of the job that has a message under way.
    pub fn name_of(&self, message: u32) -> &str {
        let flow = self.flights.get(message as usize).and_then(|flight| self.flows.get(flight.flow as usize));
        flow.map_or("", |flow| &self.jobs[flow.job as usize].job.name)
    }

    /// All jobs that the run waits for are through.
    pub fn is_done(&self) -> bool {
        self.jobs.iter().all(|running| running.job.background || running.course.is_done())
    }

    /// Whether the run waits for the flow's job.
    pub fn counts(&self, flow: &Flow) -> bool {
        !self.jobs[flow.job as usize].job.background
    }

    /// What a flow is asked for its part in what the run took; that of background plays none.
    pub fn posted(&self, flow: &Flow) -> Posted {
        let is_done = flow.left == 0 || !self.counts(flow);
        Posted { id: flow.id, packets: flow.packets, open: flow.open, is_done }
    }

    /// Bytes and messages that each host sends and receives in the jobs that the run waits for, by `each(from, to, bytes,
    /// count)`.
    pub fn traffic(&self, mut each: impl FnMut(u32, u32, u32, u64)) -> Result<(), RunError> {
        let counts = |running: &&Running<'_>| !running.job.background && !running.hosts.is_empty();
        for running in self.jobs.iter().filter(counts) {
            let rounds = u64::from(running.job.repeat.times.unwrap_or(1));
            running.job.workload.traffic(|traffic| {
                let [from, to] = [traffic.from, traffic.to].map(|member| running.hosts[member as usize]);
                each(from, to, traffic.bytes, traffic.count * rounds);
            })?;
        }
        Ok(())
    }

    /// What came of each job, with the run over `now`.
    pub fn reports(&self, now: Time) -> Vec<JobReport> {
        self.jobs.iter().map(|running| running.report(self.begin, now)).collect()
    }
}

impl Running<'_> {
    fn report(&self, run_begin: Time, now: Time) -> JobReport {
        let spans = self.course.rounds();
        let finished = self.course.is_done();
        let is_placed = !self.hosts.is_empty();
        let came = run_begin.after(self.job.start);
        let waited = if is_placed { self.begin } else { now }.since(came);
        let took = if finished { self.last } else { now }.since(self.begin);
        let took = if is_placed { took } else { Time(0) };
        // Of a job that goes on and on, rounds in part count by their bytes.
        let busy_ps = busy(spans);
        let algorithm = self.job.workload.bus().filter(|_| busy_ps > 0);
        let gbps = |bytes: f64, span_ps: u64| bytes * 8_000.0 / span_ps.max(1) as f64;
        let buffers = |bytes: u64| gbps(bytes as f64 * spans.len() as f64, busy_ps);
        JobReport {
            name: self.job.name.clone(),
            kind: self.job.workload.kind(),
            members: self.job.workload.members(),
            background: self.job.background,
            finished,
            rounds: spans.len() as u64,
            messages: self.messages,
            bytes: self.bytes,
            waited_us: micros(waited),
            took_us: micros(took),
            unhindered_us: self.unhindered.map(micros),
            round_us: Spread::of(spans.iter().map(|span| micros(Time(span.to_ps - span.from_ps))).collect()),
            goodput_gbps: gbps(self.bytes as f64, took.0),
            algorithm_gbps: algorithm.map(|(bytes, _)| buffers(bytes)),
            bus_gbps: algorithm.map(|(bytes, share)| buffers(bytes) * share),
        }
    }
}

/// Time in which at least one round was under way.
fn busy(spans: &[Span]) -> u64 {
    let (mut busy, mut until) = (0, 0);
    for span in spans {
        busy += span.to_ps.saturating_sub(span.from_ps.max(until));
        until = span.to_ps.max(until);
    }
    busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_overlap_count_once() {
        let spans = [(0, 10), (8, 15), (20, 25)].map(|(from_ps, to_ps)| Span { from_ps, to_ps });
        assert_eq!((busy(&spans), busy(&[])), (20, 0));
    }
}
