//! Training workloads of SimAI (written by its AICB), as they are.
//!
//! ```text
//! HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 8 ga: 1 all_gpus: 32 checkpoints: 0 checkpoint_initiates: 0
//! 2
//! grad_param_comm  -1 1      NONE      0        1 NONE 0 1      REDUCESCATTER 12582912 100
//! attention_column -1 556000 ALLGATHER 16777216 1 NONE 0 875420 NONE          0        100
//! ```
//!
//! After what the whole is, and how many layers follow, a line for each layer: its name, -1, and three times a time to compute in
//! nanoseconds, a collective and its bytes (forward, gradients of the input, gradients of the weights), at last the
//! time of an update. The first two are done by those that share layers, the third by replicas, unless `_EP` or `_DP_EP` says
//! otherwise. The layers are those of one stage of the pipeline.

use srdma_workload::{Among, Layer, Layered, Phase, Servers, Together};

use crate::reader::{FileError, Source};

const KINDS: [&str; 2] = ["HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER"];
const COLLECTIVES: [(&str, Together); 4] = [
    ("ALLREDUCE", Together::AllReduce),
    ("ALLGATHER", Together::AllGather),
    ("REDUCESCATTER", Together::ReduceScatter),
    ("ALLTOALL", Together::AllToAll),
];
/// What a layer says, in its order.
const WORDS: [&str; 12] = [
    "name",
    "dependency",
    "forward compute time",
    "forward collective",
    "forward bytes",
    "input-gradient compute time",
    "input-gradient collective",
    "input-gradient bytes",
    "weight-gradient compute time",
    "weight-gradient collective",
    "weight-gradient bytes",
    "update time",
];

/// Reads the workload `text`; `file` is what errors call it. It says nothing of servers and rings: those of [`Layered`] are
/// usual ones, and may be changed.
pub fn read_simai(file: &str, text: &str) -> Result<Layered, FileError> {
    let source = Source { file, text };
    let start = text.as_ptr() as usize;
    let mut lines = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (!words.is_empty()).then_some((line.as_ptr() as usize - start, words))
    });
    let Some((at, words)) = lines.next() else { return Err(source.error(0, "the file is empty")) };
    let mut layered = read_head(source, at, &words)?;
    let Some((count_at, words)) = lines.next() else {
        return Err(source.error(at, "the number of layers is missing, on the next line"));
    };
    let count = whole(source, count_at, "number of layers", words[0], 1_000_000)?;
    if words.len() > 1 {
        return Err(source
            .error(count_at, format!("number of layers: one number, and no more, not \"{}\"", words[1])));
    }
    for (at, words) in lines {
        layered.layers.push(read_layer(source, at, &words)?);
    }
    let found = layered.layers.len() as u64;
    if count != found {
        return Err(source.error(count_at, format!("{count} layers are announced, but {found} follow")));
    }
    layered.validate().map_err(|error| source.error(at, error.to_string()))?;
    Ok(layered)
}

fn whole(source: Source<'_>, at: usize, key: &str, word: &str, most: u64) -> Result<u64, FileError> {
    match word.parse::<u64>() {
        Ok(number) if number <= most => Ok(number),
        Ok(number) => Err(source.error(at, format!("{key}: must be 0 to {most}, not {number}"))),
        Err(_) => Err(source.error(at, format!("{key}: must be a whole number, not \"{word}\""))),
    }
}

/// The first line. Keys are followed by their values, with a colon or without one.
fn read_head(source: Source<'_>, at: usize, words: &[&str]) -> Result<Layered, FileError> {
    if !KINDS.contains(&words[0]) {
        let problem = format!("must begin with one of {}, not \"{}\"", KINDS.join(", "), words[0]);
        return Err(source.error(at, problem));
    }
    let keys = [
        "model_parallel_NPU_group",
        "ep",
        "pp",
        "vpp",
        "ga",
        "all_gpus",
        "checkpoints",
        "checkpoint_initiates",
        "pp_comm",
    ];
    let mut found = [None; 9];
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        let key = word.trim_end_matches(':');
        let Some(place) = keys.iter().position(|known| *known == key) else {
            return Err(
                source.error(at, format!("\"{word}\" is not known here; known are {}", keys.join(", ")))
            );
        };
        let Some(value) = rest.next() else {
            return Err(source.error(at, format!("{key}: a number is missing")));
        };
        // AICB writes a fraction where bytes are divided among GPUs.
        let value = value.strip_suffix(".0").unwrap_or(value);
        found[place] = Some(whole(source, at, key, value, 1 << 40)?);
    }
    let [tensor, expert, pipeline, _, passes, gpus, checkpoints, initiates, pass_bytes] = found;
    let need = |key: &str, value: Option<u64>| {
        let value = value.ok_or_else(|| source.error(at, format!("{key} is missing")))?;
        match value {
            1..=65_536 => Ok(value as u32),
            _ => Err(source.error(at, format!("{key}: must be 1 to 65536, not {value}"))),
        }
    };
    for (key, value) in [("checkpoints", checkpoints), ("checkpoint_initiates", initiates)] {
        if value.is_some_and(|count| count > 0) {
            return Err(source.error(at, format!("{key}: must be 0: recomputing is not simulated here")));
        }
    }
    let (tensor, gpus) = (need("model_parallel_NPU_group", tensor)?, need("all_gpus", gpus)?);
    let (expert, pipeline) = (need("ep", expert.or(Some(1)))?, need("pp", pipeline.or(Some(1)))?);
    let share = tensor.saturating_mul(pipeline);
    if gpus % share != 0 {
        let problem = format!("all_gpus: {gpus} cannot be divided by model_parallel_NPU_group × pp, {share}");
        return Err(source.error(at, problem));
    }
    Ok(Layered {
        layers: Vec::new(),
        degrees: [tensor, pipeline, gpus / share, expert],
        micro_batches: need("ga", passes.or(Some(1)))?,
        pass_bytes: pass_bytes.unwrap_or(0),
        servers: Servers::default(),
        slices: 2,
        scale: 1,
    })
}

fn read_layer(source: Source<'_>, at: usize, words: &[&str]) -> Result<Layer, FileError> {
    if let Some(missing) = WORDS.get(words.len()) {
        return Err(source.error(at, format!("a layer has {} words; its {missing} is missing", WORDS.len())));
    }
    if let Some(more) = words.get(WORDS.len()) {
        return Err(
            source.error(at, format!("a layer has {} words; \"{more}\" is one too many", WORDS.len()))
        );
    }
    if words[1].parse::<i64>().is_err() {
        return Err(source.error(at, format!("{}: must be a whole number, not \"{}\"", WORDS[1], words[1])));
    }
    // An hour at most, in nanoseconds.
    let time =
        |place: usize| whole(source, at, WORDS[place], words[place], 3_600_000_000_000).map(|ns| ns * 1000);
    let phase = |place: usize, usual: Among| {
        let collective = read_collective(source, at, WORDS[place + 1], words[place + 1], usual)?;
        let bytes = whole(source, at, WORDS[place + 2], words[place + 2], 1 << 40)?;
        let collective = collective.map(|(what, among)| (what, among, bytes));
        Ok::<_, FileError>(Phase { compute_ps: time(place)?, collective })
    };
    Ok(Layer {
        forward: phase(2, Among::Tensor)?,
        input: phase(5, Among::Tensor)?,
        weights: phase(8, Among::Data)?,
        update_ps: time(11)?,
    })
}

fn read_collective(
    source: Source<'_>,
    at: usize,
    key: &str,
    word: &str,
    usual: Among,
) -> Result<Option<(Together, Among)>, FileError> {
    if word == "NONE" {
        return Ok(None);
    }
    let (name, among) = match (word.strip_suffix("_DP_EP"), word.strip_suffix("_EP")) {
        (Some(name), _) => (name, Among::SameExperts),
        (None, Some(name)) => (name, Among::Experts),
        (None, None) => (word, usual),
    };
    match COLLECTIVES.iter().find(|(known, _)| *known == name) {
        Some(&(_, what)) => Ok(Some((what, among))),
        None => {
            let known: Vec<&str> = COLLECTIVES.iter().map(|(known, _)| *known).collect();
            let problem = format!(
                "{key}: must be NONE or one of {}, with _EP or _DP_EP or without, not \"{word}\"",
                known.join(", ")
            );
            Err(source.error(at, problem))
        }
    }
}
