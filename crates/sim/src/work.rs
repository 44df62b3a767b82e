//! `[workload]` and `[[job]]` of a scenario become jobs.

use std::collections::BTreeSet;

use srdma_fabric::{Graph, Time};
use srdma_seams::Rng;
use srdma_workload::{
    Collective, Exchange, ExpertLayers, KvTransfer, Model, Order, Pattern, Permutation, Placement, Preset,
    Repeat, Servers, Training, PRESETS,
};

use crate::job::{Job, Workload};
use crate::reader::{FileError, Table};
use crate::simai::read_simai;

/// Collectives by name, one message at a time where that is a setting.
pub(crate) const COLLECTIVES: [(&str, Pattern); 7] = [
    ("allreduce-ring", Pattern::AllReduceRing),
    ("allreduce-halving", Pattern::AllReduceHalving),
    ("reduce-scatter", Pattern::ReduceScatterRing),
    ("all-gather", Pattern::AllGatherRing),
    ("all-to-all", Pattern::AllToAll { parallel: 1 }),
    ("incast", Pattern::Incast),
    ("outcast", Pattern::Outcast { parallel: u32::MAX }),
];

/// What a workload is, before its numbers are read.
#[derive(Clone, Copy)]
enum Kind {
    Permutation,
    Collective(Pattern),
    Training,
    Simai,
    Experts,
    KvCache,
}

fn kinds() -> Vec<(&'static str, Kind)> {
    let mut kinds = vec![("permutation", Kind::Permutation)];
    kinds.extend(COLLECTIVES.map(|(name, pattern)| (name, Kind::Collective(pattern))));
    kinds.extend([
        ("training", Kind::Training),
        ("simai", Kind::Simai),
        ("experts", Kind::Experts),
        ("kv-cache", Kind::KvCache),
    ]);
    kinds
}

/// The jobs of a scenario: that of `[workload]`, or those of `[[job]]`.
pub(crate) fn read_jobs(root: &Table<'_>, graph: &Graph, seed: u64) -> Result<Vec<Job>, FileError> {
    let (alone, several) = (root.table("workload")?, root.tables("job")?);
    let tables = match (alone, several.is_empty()) {
        (Some(table), true) => vec![table],
        (None, false) => several,
        (Some(table), false) => return Err(table.error("there are [[job]]s beside it: make it one of them")),
        (None, true) => return Err(root.error("[workload] is missing, or [[job]]s")),
    };
    let (mut jobs, mut taken): (Vec<Job>, _) = (Vec::new(), BTreeSet::new());
    for (number, table) in tables.iter().enumerate() {
        let job = read_job(table, graph, seed, number)?;
        let arrivals = read_arrivals(table, &job, seed, number)?;
        table.finish()?;
        if jobs
            .iter()
            .any(|other| other.name == job.name || arrivals.iter().any(|same| same.name == other.name))
        {
            return Err(table.error(&format!("name: \"{}\" is that of another job", job.name)));
        }
        let nobody = BTreeSet::new();
        let others = if arrivals.is_empty() { &taken } else { &nobody };
        let hosts = place(&job, graph.hosts, others, seed, jobs.len());
        let hosts = hosts.map_err(|error| table.error(&error.to_string()))?;
        if arrivals.is_empty() {
            taken.extend(hosts);
            jobs.push(job);
        } else {
            jobs.extend(arrivals);
        }
    }
    if jobs.iter().all(|job| job.background) {
        return Err(tables[0].error("background: a run needs a job that is none"));
    }
    Ok(jobs)
}

/// The hosts of a job.
pub(crate) fn place(
    job: &Job,
    hosts: u32,
    taken: &BTreeSet<u32>,
    seed: u64,
    number: usize,
) -> Result<Vec<u32>, srdma_workload::PlacementError> {
    let mut rng = Rng::stream(seed, "placement", number as u64);
    job.placement.place(job.workload.members(), hosts, taken, &mut rng)
}

fn read_job(table: &Table<'_>, graph: &Graph, seed: u64, number: usize) -> Result<Job, FileError> {
    let kinds = kinds();
    let kind = table.choice("kind", &kinds)?;
    let kind = table.required("kind", kind)?;
    let name =
        table.text("name")?.map_or_else(|| format!("job {}", number + 1), |name| name.value.to_owned());
    let mut placement = read_placement(table)?;
    let micros =
        |key, low| Ok::<_, FileError>(table.number(key, low..=1e9)?.map(|us: f64| Time((us * 1e6) as u64)));
    let start = micros("start_us", 0.0)?.unwrap_or(Time(0));
    let background = table.truth("background")?.unwrap_or(false);
    let bursts = match (micros("on_us", 0.001)?, micros("off_us", 0.0)?) {
        (None, None) => None,
        (Some(on), Some(off)) => Some((on.0, off.0)),
        _ => return Err(table.error("on_us and off_us are given together or not at all")),
    };
    let rounds = table.whole("rounds", 1..=1_000_000)?.map(|rounds| rounds as u32);
    let times = if background { rounds } else { Some(rounds.unwrap_or(1)) };
    let workload = match kind.value {
        Kind::Permutation => read_permutation(table, graph, seed)?,
        Kind::Collective(pattern) => read_collective(table, graph, pattern)?,
        Kind::Training => Workload::Training(read_training(table, graph)?),
        Kind::Simai => read_layered(table)?,
        Kind::Experts => read_experts(table, graph)?,
        Kind::KvCache => read_kv_cache(table, seed)?,
    };
    if let Some(servers) = workload.servers().filter(|_| placement.block == 1) {
        let is_whole = workload.members().is_multiple_of(servers.gpus.max(1));
        placement.block = if is_whole { servers.gpus } else { 1 };
    }
    workload.validate().map_err(|error| table.error(&error.to_string()))?;
    Ok(Job { name, workload, placement, start, repeat: Repeat { times, bursts }, background, queued: false })
}

/// The same job, coming again and again: each is placed when it comes.
fn read_arrivals(table: &Table<'_>, job: &Job, seed: u64, number: usize) -> Result<Vec<Job>, FileError> {
    let count = table.whole("arrivals", 1..=1000)?;
    let every = table.number("every_us", 0.0..=1e9)?.map(|us| (us * 1e6) as u64);
    let (count, every) = match (count, every) {
        (None, None) => return Ok(Vec::new()),
        (Some(count), Some(every)) => (count, every),
        _ => return Err(table.error("arrivals and every_us are given together or not at all")),
    };
    if job.background || job.placement.first.is_some() {
        return Err(table.error("arrivals: jobs that come are no background, and have no first host"));
    }
    let mut rng = Rng::stream(seed, "arrivals", number as u64);
    let mut start = job.start;
    let one = |index: u64| {
        let this = Job { name: format!("{} {}", job.name, index + 1), start, queued: true, ..job.clone() };
        start = start.after(Time(rng.below(2 * every + 1)));
        this
    };
    Ok((0..count).map(one).collect())
}

fn read_placement(table: &Table<'_>) -> Result<Placement, FileError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Word {
        Consecutive,
        Random,
        Stride,
    }
    let words = [("consecutive", Word::Consecutive), ("random", Word::Random), ("stride", Word::Stride)];
    let word = table.choice("placement", &words)?.map(|found| found.value);
    let stride = table.whole("stride", 1..=1 << 20)?.map(|stride| stride as u32);
    let order = match (word, stride) {
        (None | Some(Word::Stride), Some(stride)) => Order::Stride(stride),
        (Some(Word::Stride), None) => return Err(table.error("stride is missing")),
        (Some(_), Some(_)) => return Err(table.error("stride is for placement = \"stride\" only")),
        (Some(Word::Random), None) => Order::Random,
        (None | Some(Word::Consecutive), None) => Order::Consecutive,
    };
    let count = |key| Ok::<_, FileError>(table.whole(key, 1..=1 << 20)?.map(|count| count as u32));
    let first = table.whole("first", 0..=1 << 20)?.map(|first| first as u32);
    let (segments, segment_hosts) = (count("segments")?.unwrap_or(1), count("segment_hosts")?);
    if segments > 1 && segment_hosts.is_none() {
        return Err(table.error("segment_hosts is missing: how many hosts has one of the segments"));
    }
    let block = count("block")?.unwrap_or(1);
    Ok(Placement { first, segments, segment_hosts: segment_hosts.unwrap_or(0), block, order })
}

fn hosts(table: &Table<'_>, graph: &Graph) -> Result<u32, FileError> {
    Ok(table.whole("hosts", 2..=graph.hosts.into())?.map_or(graph.hosts, |hosts| hosts as u32))
}

fn bytes(table: &Table<'_>) -> Result<u64, FileError> {
    let kib = table.required("kib", table.number("kib", 0.001..=1e9)?)?;
    Ok((kib * 1024.0) as u64)
}

fn read_permutation(table: &Table<'_>, graph: &Graph, seed: u64) -> Result<Workload, FileError> {
    let (hosts, bytes) = (hosts(table, graph)?, bytes(table)?);
    let message_bytes = table.whole("message_kib", 1..=1 << 20)?.map_or(bytes.min(1 << 30), |kib| kib << 10);
    let seed = table.whole("seed", 0..=u64::MAX)?.unwrap_or(seed);
    Ok(Workload::Permutation(Permutation { hosts, bytes, message_bytes, seed }))
}

fn read_collective(table: &Table<'_>, graph: &Graph, pattern: Pattern) -> Result<Workload, FileError> {
    let (members, bytes) = (hosts(table, graph)?, bytes(table)?);
    let slices = table.whole("slices", 1..=1024)?.unwrap_or(1) as u32;
    let parallel = |default: u32| {
        let found = table.whole("parallel", 1..=1 << 20)?;
        Ok::<_, FileError>(found.map_or(default, |parallel| parallel as u32))
    };
    let pattern = match pattern {
        Pattern::AllToAll { parallel: one } => Pattern::AllToAll { parallel: parallel(one)? },
        Pattern::Outcast { parallel: all } => Pattern::Outcast { parallel: parallel(all)? },
        other => other,
    };
    Ok(Workload::Collective(Collective { members, exchange: Exchange { pattern, bytes, slices } }))
}

/// Where members sit, for workloads that compute; slices and scale.
fn read_servers(table: &Table<'_>, usual: Servers) -> Result<(Servers, u32, u32), FileError> {
    let gpus = table.whole("server_gpus", 1..=1 << 16)?.map_or(usual.gpus, |gpus| gpus as u32);
    let gbps = table.number("server_gbps", 1.0..=1e6)?;
    let bytes_per_second = gbps.map_or(usual.bytes_per_second, |gbps| (gbps * 125e6) as u64);
    let slices = table.whole("slices", 1..=1024)?.map_or(2, |slices| slices as u32);
    let scale = table.whole("scale", 1..=1_000_000)?.map_or(1, |scale| scale as u32);
    Ok((Servers { gpus, bytes_per_second }, slices, scale))
}

/// A preset, or sizes; of either, what the file says else. Replicas fill the hosts, unless said otherwise.
fn read_training(table: &Table<'_>, graph: &Graph) -> Result<Training, FileError> {
    let presets = PRESETS.map(|preset| (preset.name, preset));
    let preset: Option<Preset> = table.choice("model", &presets)?.map(|found| found.value);
    let count =
        |key, low, most: u64| Ok::<_, FileError>(table.whole(key, low..=most)?.map(|count| count as u32));
    let model = match preset {
        Some(preset) => preset.model,
        None => Model {
            layers: table.required("model, or layers,", count("layers", 1, 1024)?)?,
            hidden: table.required("hidden", count("hidden", 64, 65_536)?)?,
            experts: count("experts", 0, 4096)?.unwrap_or(0),
            experts_per_token: count("experts_per_token", 1, 64)?.unwrap_or(2),
        },
    };
    let [tensor, pipeline, _, expert] = preset.map_or([1; 4], |preset| preset.degrees);
    let degree = |key, usual| Ok::<_, FileError>(count(key, 1, 1 << 16)?.unwrap_or(usual));
    let (tensor, pipeline) = (degree("tensor", tensor)?, degree("pipeline", pipeline)?);
    let share = tensor.saturating_mul(pipeline);
    let data = degree("data", (graph.hosts / share).max(1))?;
    let usual = Training::of(model, [tensor, pipeline, data, degree("expert", expert)?]);
    let (servers, slices, scale) = read_servers(table, usual.servers)?;
    let tflops = table.number("gpu_tflops", 1.0..=1e6)?;
    Ok(Training {
        sequence: count("sequence", 1, 1 << 20)?.unwrap_or(usual.sequence),
        micro_batch: count("micro_batch", 1, 1024)?.unwrap_or(usual.micro_batch),
        micro_batches: count("micro_batches", 1, 4096)?.unwrap_or(usual.micro_batches),
        gpu_flops: tflops.map_or(usual.gpu_flops, |tflops| (tflops * 1e12) as u64),
        parts: count("parts", 1, 1024)?.unwrap_or(usual.parts),
        buckets: count("buckets", 1, 1024)?.unwrap_or(usual.buckets),
        servers,
        slices,
        scale,
        ..usual
    })
}

/// A file of SimAI, found from where the scenario is.
fn read_layered(table: &Table<'_>) -> Result<Workload, FileError> {
    let file = table.text("file")?;
    let file = table.required("file", file)?;
    let path = table.beside(file.value);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        table.error_at(file.at, "file", &format!("cannot read {}: {error}", path.display()))
    })?;
    let mut layered = read_simai(&path.display().to_string(), &text)?;
    (layered.servers, layered.slices, layered.scale) = read_servers(table, layered.servers)?;
    Ok(Workload::Layered(layered))
}

fn read_experts(table: &Table<'_>, graph: &Graph) -> Result<Workload, FileError> {
    let count = |key, most, usual| {
        Ok::<_, FileError>(table.whole(key, 1..=most)?.map_or(usual, |count| count as u32))
    };
    Ok(Workload::Experts(ExpertLayers {
        members: hosts(table, graph)?,
        layers: count("layers", 10_000, 1)?,
        tokens: count("tokens", 1 << 24, 4096)?,
        token_bytes: count("token_bytes", 1 << 20, 8192)?,
        experts_per_token: count("experts_per_token", 64, 8)?,
        compute_ps: table.number("compute_us", 0.0..=1e9)?.map_or(0, |us| (us * 1e6) as u64),
        parallel: count("parallel", 1 << 20, 4)?,
    }))
}

fn read_kv_cache(table: &Table<'_>, seed: u64) -> Result<Workload, FileError> {
    let count = |key, most| Ok::<_, FileError>(table.whole(key, 1..=most)?.map(|count| count as u32));
    let micros = |key| Ok::<_, FileError>(table.number(key, 0.0..=1e9)?.map(|us| (us * 1e6) as u64));
    let tokens = table.required("tokens_max", count("tokens_max", 1 << 24)?)?;
    let token_bytes = table.number("token_kib", 0.001..=16_384.0)?.map(|kib| (kib * 1024.0) as u64);
    Ok(Workload::KvTransfer(KvTransfer {
        prefill: table.required("prefill", count("prefill", 1 << 16)?)?,
        decode: table.required("decode", count("decode", 1 << 16)?)?,
        requests: table.required("requests", count("requests", 1_000_000)?)?,
        every_ps: table.required("request_every_us", micros("request_every_us")?)?,
        tokens_min: count("tokens_min", 1 << 24)?.unwrap_or(tokens),
        tokens_max: tokens,
        token_bytes: table.required("token_kib", token_bytes)?,
        token_ps: micros("token_us")?.unwrap_or(0),
        pieces: count("pieces", 1024)?.unwrap_or(1),
        seed: table.whole("seed", 0..=u64::MAX)?.unwrap_or(seed),
    }))
}
