//! Training: SimAI's files, what is refused and where; steps that are carried out, and what is said of them.
#![allow(clippy::unwrap_used)]

use srdma_sim::{parse, read_simai, run, RunReport, Sink, Status};

const LAYERS: &str = "\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 2 vpp: 8 ga: 1 all_gpus: 16 checkpoints: 0 checkpoint_initiates: 0 pp_comm: 65536
3
grad_param_comm\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tREDUCESCATTER\t262144\t100

attention_column -1 5000 ALLGATHER 65536 2500 REDUCESCATTER 65536 2500 NONE 0 100
mlp_moelayer -1 5000 ALLTOALL_EP 65536 2500 ALLTOALL_EP 65536 2500 ALLREDUCE_DP_EP 65536 100
";

const BASE: &str = "
seed = 1
[topology]
kind = \"leaf-spine\"
leaves = 2
hosts_per_leaf = 8
spines = 4
host_gbps = 200
";

struct Nowhere;

impl Sink for Nowhere {
    fn record(&mut self, _record: &serde_json::Value) -> Result<(), std::io::Error> {
        Ok(())
    }
    fn progress(&mut self, _status: &Status) {}
}

fn carried_out(text: &str) -> RunReport {
    let scenario = parse("training.toml", text, None, None).unwrap();
    run(&scenario, &scenario.variants[0], &mut Nowhere).unwrap().0
}

#[test]
fn workloads_are_refused_by_line() {
    let cases = [
        (
            "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
            "DATA",
            "w.txt:1: must begin with one of HYBRID_TRANSFORMER_FWD_IN_BCKWD",
        ),
        ("ep: 2", "ep:", "w.txt:1: ep: must be a whole number, not \"pp:\""),
        ("ep: 2", "zp: 2", "w.txt:1: \"zp:\" is not known here; known are model_parallel_NPU_group, ep"),
        ("ep: 2", "ep: 3", "w.txt:1: data divided by expert leaves must be nothing, not 1"),
        ("ep: 2", "ep: 0", "w.txt:1: ep: must be 1 to 65536, not 0"),
        ("pp_comm: 65536", "pp_comm:", "w.txt:1: pp_comm: a number is missing"),
        ("all_gpus: 16", "", "w.txt:1: all_gpus is missing"),
        (
            "all_gpus: 16",
            "all_gpus: 18",
            "w.txt:1: all_gpus: 18 cannot be divided by model_parallel_NPU_group × pp, 4",
        ),
        ("checkpoints: 0", "checkpoints: 1", "w.txt:1: checkpoints: must be 0: recomputing is not simulated"),
        ("\n3\n", "\n4\n", "w.txt:2: 4 layers are announced, but 3 follow"),
        ("\n3\n", "\nthree\n", "w.txt:2: number of layers: must be a whole number, not \"three\""),
        ("\n3\n", "\n3 4\n", "w.txt:2: number of layers: one number, and no more, not \"4\""),
        ("2500 NONE 0 100", "2500 NONE 0", "w.txt:5: a layer has 12 words; its update time is missing"),
        ("2500 NONE 0 100", "2500 NONE 0 100 9", "w.txt:5: a layer has 12 words; \"9\" is one too many"),
        (
            "5000 ALLGATHER",
            "-5 ALLGATHER",
            "w.txt:5: forward compute time: must be a whole number, not \"-5\"",
        ),
        (
            "ALLTOALL_EP",
            "ALLTONONE_EP",
            "w.txt:6: forward collective: must be NONE or one of ALLREDUCE, ALLGATHER",
        ),
        (
            "ALLREDUCE_DP_EP 65536",
            "ALLREDUCE_DP_EP 6e5",
            "w.txt:6: weight-gradient bytes: must be a whole number",
        ),
        (
            "ALLREDUCE_DP_EP 65536",
            "ALLREDUCE_DP_EP 99999999999999",
            "weight-gradient bytes: must be 0 to 1099511627776",
        ),
    ];
    read_simai("w.txt", LAYERS).unwrap();
    for (from, to, said) in cases {
        let text = LAYERS.replacen(from, to, 1);
        assert_ne!(text, LAYERS, "{from}");
        let error = read_simai("w.txt", &text).expect_err(said).to_string();
        assert!(error.contains(said) && error.starts_with("w.txt:"), "{error}\nwanted: {said}");
    }
    for (text, said) in [("", "w.txt:1: the file is empty"), ("\n\n", "w.txt:1: the file is empty")] {
        assert_eq!(read_simai("w.txt", text).expect_err(said).to_string(), said);
    }
    let head = LAYERS.lines().next().unwrap();
    let error = read_simai("w.txt", head).expect_err("no layers").to_string();
    assert_eq!(error, "w.txt:1: the number of layers is missing, on the next line");
}

#[test]
fn a_workload_of_simai_is_carried_out() {
    let folder = std::env::temp_dir().join(format!("srdma-sim-simai-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("w.txt"), LAYERS).unwrap();
    let name = folder.join("training.toml").display().to_string();
    let text =
        format!("{BASE}[workload]\nkind = \"simai\"\nfile = \"w.txt\"\nserver_gpus = 2\nserver_gbps = 800\n");
    let scenario = parse(&name, &text, None, None).unwrap();
    let (report, _) = run(&scenario, &scenario.variants[0], &mut Nowhere).unwrap();
    let job = &report.jobs[0];
    assert!(report.finished && job.rounds == 1 && job.kind == "simai", "{job:?}");
    // Forward 1, 5 and 5 µs, backward 1, 2.5 and 2.5, twice, and gathering and scattering in servers of 100 GB/s.
    let computing = 10.002 + 10.002 + 2.0 * 0.328;
    let unhindered = job.unhindered_us.unwrap();
    assert!(
        (computing..computing + 0.2).contains(&unhindered),
        "{unhindered} µs, computing takes {computing}"
    );
    assert!(job.round_us.mean > unhindered + 5.0, "{job:?}");
    for (from, to, said) in [
        ("w.txt", "x.txt", ":11: workload.file: cannot read"),
        ("server_gpus = 2", "server_gpus = 0", "workload.server_gpus: must be 1 to 65536, not 0"),
        ("file = \"w.txt\"\n", "", "[workload]: file is missing"),
    ] {
        let error = parse(&name, &text.replacen(from, to, 1), None, None).expect_err(said).to_string();
        assert!(error.contains(said), "{error}\nwanted: {said}");
    }
    std::fs::write(folder.join("w.txt"), LAYERS.replace("\n3\n", "\n4\n")).unwrap();
    let error = parse(&name, &text, None, None).expect_err("wrong").to_string();
    assert!(error.contains("w.txt:2: 4 layers are announced"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_step_says_what_it_computed_and_what_nothing_hid() {
    let text = format!(
        "{BASE}[workload]\nkind = \"training\"\nlayers = 8\nhidden = 1024\ntensor = 2\npipeline = 2\nserver_gpus = 4\n\
         scale = 100\nplacement = \"random\"\nrounds = 2\n"
    );
    let report = carried_out(&text);
    let job = &report.jobs[0];
    assert!(report.finished && job.rounds == 2 && job.members == 16, "{job:?}");
    let unhindered = job.unhindered_us.unwrap();
    assert!(unhindered > 10.0 && job.round_us.mean > unhindered, "{job:?}");
    let table = srdma_sim::table(&[report]);
    assert!(table.contains("job 1: rounds, µs of each, of it exposed communication"), "{table}");
    // Gradients in buckets hide behind the rest of the last micro-batch.
    let buckets = carried_out(&text.replace("rounds = 2", "rounds = 2\nbuckets = 4"));
    assert!(buckets.jobs[0].round_us.mean < job_mean(&text), "buckets hide something");
    for (from, to, said) in [
        ("layers = 8\n", "", "[workload]: model, or layers, is missing"),
        ("layers = 8", "model = \"gpt-13b\"\nlayers = 8", "workload.layers: unknown key"),
        (
            "layers = 8",
            "model = \"gpt-13\"",
            "workload.model: must be one of gpt-7b, gpt-13b, gpt-65b, gpt-175b, moe",
        ),
        ("tensor = 2", "tensor = 64", "128 hosts are wanted of segment 0, but 16 are free"),
        ("tensor = 2", "tensor = 2\nexpert = 2", "expert of a model without experts must be 1, not 2"),
    ] {
        let error =
            parse("training.toml", &text.replacen(from, to, 1), None, None).expect_err(said).to_string();
        assert!(error.contains(said), "{error}\nwanted: {said}");
    }
}

fn job_mean(text: &str) -> f64 {
    carried_out(text).jobs[0].round_us.mean
}

/// Whatever bytes a file has, it is read or refused, by its name and a line that it has.
#[test]
fn mutilated_files_are_refused_or_read() {
    let scenario = format!(
        "{BASE}[[job]]\nkind = \"training\"\nlayers = 8\nhidden = 128\ntensor = 2\nhosts = 8\n[[job]]\nname = \"b\"\n\
         kind = \"all-to-all\"\nkib = 8.5\nhosts = 4\nplacement = \"random\"\narrivals = 2\nevery_us = 3\n[[fault]]\n\
         on = \"spine1\"\nwhat = \"loss\"\npercent = 1\n[[variant]]\nname = \"a\"\npaths = 4\n"
    );
    parse("f", &scenario, None, None).unwrap_err();
    let scenario = scenario.replace("tensor = 2\nhosts = 8", "tensor = 2\ndata = 4");
    parse("f", &scenario, None, None).unwrap();
    let mut refused = [0; 2];
    for seed in 0..4_000 {
        let mut rng = srdma_seams::Rng::stream(seed, "mutilate", 1);
        for (which, text) in [scenario.as_str(), LAYERS].into_iter().enumerate() {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                match rng.below(3) {
                    0 => bytes[at] = b" 0123456789-=[]\"\n.\tT_"[rng.below(21) as usize],
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, bytes[rng.below(bytes.len() as u64) as usize]),
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            let error = match which {
                0 => parse("f", &text, None, None).err(),
                _ => read_simai("f", &text).err(),
            };
            let Some(error) = error else { continue };
            refused[which] += 1;
            let lines = text.matches('\n').count() + 1;
            assert!((1..=lines).contains(&error.line) && !error.problem.is_empty(), "seed {seed}: {error}");
        }
    }
    assert!(refused.iter().all(|&count| count > 1_000), "{refused:?}");
}
