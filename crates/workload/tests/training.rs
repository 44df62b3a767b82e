//! Training steps: what they send, how long they compute, that they end.
#![allow(clippy::unwrap_used)]

use srdma_workload::{unhindered_ps, Model, Program, Servers, Training, PRESETS};

fn bytes_out(program: &Program) -> Vec<u64> {
    let mut out = vec![0; program.members() as usize];
    program.traffic(|traffic| out[traffic.from as usize] += u64::from(traffic.bytes) * traffic.count);
    out
}

fn servers(gpus: u32) -> Servers {
    Servers { gpus, ..Servers::default() }
}

fn small() -> Training {
    let model = Model { layers: 8, hidden: 1024, experts: 0, experts_per_token: 1 };
    Training { servers: servers(4), slices: 1, ..Training::of(model, [2, 2, 4, 1]) }
}

/// The five models, on fewer replicas: every one ends, and computes as long as its operations take.
#[test]
fn the_five_models_compute_as_long_as_their_operations_take() {
    for preset in PRESETS {
        let [tensor, pipeline, _, expert] = preset.degrees;
        let data = 64 / (tensor * pipeline).min(32);
        let training =
            Training { scale: 1000, ..Training::of(preset.model, [tensor, pipeline, data, expert]) };
        let program = training.program().unwrap();
        let took = unhindered_ps(&program) as f64 * 1e-12 * f64::from(training.scale);
        let tokens = f64::from(training.sequence * training.micro_batch);
        let flops = 3.0 * preset.model.flops_per_token(training.sequence) as f64 * tokens;
        let one = flops / f64::from(tensor * pipeline) / training.gpu_flops as f64;
        // As many micro-batches as there are, and those that fill and empty the pipeline.
        let slots = f64::from(training.micro_batches + pipeline - 1);
        assert!(took >= one * slots * 0.999, "{}: {took} s, computing {}", preset.name, one * slots);
        assert!(took < one * slots * 1.6, "{}: {took} s, computing {}", preset.name, one * slots);
    }
}

/// Per step and GPU: gradients by a ring among servers, and activations to the next stage and back.
#[test]
fn a_step_sends_what_its_degrees_make_it_send() {
    let training = small();
    let program = training.program().unwrap();
    let gradients = training.model.shared_parameters() * 2 / 4;
    // Two replicas of a GPU's lane are in each server, so rings of two servers carry half of the gradients each.
    let ring = 2 * (gradients / 2).div_ceil(2);
    let activation = u64::from(training.sequence) * 1024 * 2 / 2;
    let passes = u64::from(training.micro_batches) * activation;
    for (rank, out) in bytes_out(&program).into_iter().enumerate() {
        assert_eq!(out, ring + passes, "rank {rank}");
    }
}

/// On servers of one GPU everything is on the network: also what GPUs that share layers tell each other.
#[test]
fn what_leaves_a_server_is_on_the_network() {
    let inside = bytes_out(&small().program().unwrap());
    let outside = bytes_out(&Training { servers: servers(1), ..small() }.program().unwrap());
    let training = small();
    let layers = u64::from(training.model.layers / training.pipeline);
    let activation = u64::from(training.sequence) * 1024 * 2;
    // Of n = 2, a ring AllReduce sends 2 (n − 1) / n of the buffer; four a layer and micro-batch.
    let shared = 4 * layers * u64::from(training.micro_batches) * activation;
    for (inside, outside) in inside.into_iter().zip(outside) {
        // A ring of four replicas sends 3 / 2 of the gradients, where it sent 1 / 2 of them.
        let gradients = training.model.shared_parameters() * 2 / 4;
        let wanted = inside + shared + gradients;
        assert!(outside.abs_diff(wanted) < wanted / 1000, "{outside}, wanted {wanted}");
    }
}

#[test]
fn experts_exchange_tokens_and_reduce_their_own_gradients() {
    let model = Model { layers: 4, hidden: 512, experts: 4, experts_per_token: 2 };
    let training = Training { servers: servers(1), slices: 1, ..Training::of(model, [1, 1, 8, 4]) };
    let out = bytes_out(&training.program().unwrap());
    let tokens = 4 * 4 * u64::from(training.sequence) * 512 * 2 * 2 * 3 / 4;
    let shared = model.shared_parameters() * 2 * 2 * 7 / 8;
    let experts = model.expert_parameters() * 2 / 4 * 2 / 2;
    for out in out {
        let wanted = tokens + shared + experts;
        assert!(out.abs_diff(wanted) < wanted / 1000, "{out}, wanted {wanted}");
    }
}

#[test]
fn a_smaller_scale_keeps_proportions() {
    let (whole, small) = (small(), Training { scale: 16, ..small() });
    let (all, part) = (whole.program().unwrap(), small.program().unwrap());
    let ratio = unhindered_ps(&all) as f64 / unhindered_ps(&part) as f64;
    assert!((ratio / 16.0 - 1.0).abs() < 0.001, "{ratio}");
    let ratio = bytes_out(&all)[0] as f64 / bytes_out(&part)[0] as f64;
    assert!((ratio / 16.0 - 1.0).abs() < 0.001, "{ratio}");
}

#[test]
fn nonsense_is_refused_by_name() {
    let with = |change: &dyn Fn(&mut Training)| {
        let mut training = small();
        change(&mut training);
        training.program().expect_err("nonsense").to_string()
    };
    assert_eq!(with(&|t| t.expert = 2), "expert of a model without experts must be 1, not 2");
    assert_eq!(with(&|t| t.buckets = 9), "buckets must be 1 to parts, not 9");
    assert_eq!(with(&|t| t.tensor = 0), "tensor must be 1 to 65536, not 0");
    assert_eq!(with(&|t| t.scale = 0), "scale must be 1 to 1000000, not 0");
    assert_eq!(with(&|t| t.data = 1 << 15), "tensor × pipeline × data must be 1 to 65536, not 131072");
    let moe = |t: &mut Training| (t.model.experts, t.expert) = (8, 3);
    assert_eq!(with(&moe), "data divided by expert leaves must be nothing, not 1");
}
