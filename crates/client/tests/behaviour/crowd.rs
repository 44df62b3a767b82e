//! Many queue pairs between two processes all get on, and thousands get equal shares. `SRDMA_CROWD=N` takes that many,
//! with 64 messages each (`NxM`: with M), and looks at the shares.

use serde_json::Value;
use srdma_abi::{Completion, Opcode, QpInit};
use srdma_client::{Options, Qp};

use crate::ground::part::{hear, part, say, this_test, Part};
use crate::ground::*;

const BYTES: u32 = 64 << 10;
/// Jain's index of equal shares is 1, of one that has all 1/n.
const JAIN_MIN: f64 = 0.95;

/// Queue pairs, and messages that each sends.
fn size() -> (usize, usize) {
    let Ok(text) = std::env::var("SRDMA_CROWD") else { return (100, 16) };
    let (count, messages) = text.split_once('x').unwrap_or((&text, "64"));
    (count.parse().unwrap(), messages.parse().unwrap())
}

fn crowd(host: &'static Host, (count, messages): (usize, usize)) -> (srdma_client::Cq, Vec<Qp>) {
    let cq = host.device.create_cq((count * messages) as u32, None).unwrap();
    let init = QpInit {
        pd: host.pd,
        send_cq: cq.number(),
        recv_cq: cq.number(),
        max_send_wr: messages as u32,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
        sq_sig_all: true,
    };
    let qps = (0..count).map(|_| host.device.create_qp(&init).unwrap()).collect();
    (cq, qps)
}

/// (Σx)² / (n Σx²), R. Jain, D.-M. Chiu, W. Hawe, DEC-TR-301.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

/// What a device counted, over all its queue pairs.
fn counts(host: &Host, cpu_ms: u64) -> Vec<(&'static str, u64)> {
    let report = host.report();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let queue_pairs = report["qps"].as_array().unwrap();
    let of_all = ["packets_sent", "units_sent", "acks_sent", "tail_probes", "rtos", "undone"];
    let sums = of_all.map(|name| (name, queue_pairs.iter().map(|qp| number(&qp[name])).sum()));
    let of_socket =
        ["kernel_drops", "send_calls", "receive_calls"].map(|name| (name, number(&report["socket"][name])));
    [&sums[..], &of_socket[..], &[("cpu_ms", cpu_ms)]].concat()
}

/// Processor time of this process so far.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    [11, 12].iter().map(|&field: &usize| fields[field].parse::<u64>().unwrap() * 10).sum()
}

fn shipped() -> Options {
    Options { seed: Some(1), ..Options::default() }
}

fn target(words: &[String]) {
    let host = Host::open(words[1].parse().unwrap(), &shipped());
    let peer = words[2].parse().unwrap();
    let (memory, rkey) = host.region(BYTES.into());
    let (_cq, qps) = crowd(host, size());
    say(format!("{} {rkey}", memory.address()));
    for qp in &qps {
        say(qp.number());
        init(qp, &attributes());
        let qpn = hear().parse().unwrap();
        start(qp, Name { address: peer, qpn }, &attributes());
    }
    let begun_ms = cpu_ms();
    say("ready");
    hear();
    let counts = counts(host, cpu_ms() - begun_ms);
    say(format!("{} {counts:?}", counts[2].1));
}

#[test]
fn many_queue_pairs_all_finish() {
    if let Some(words) = part() {
        return target(&words);
    }
    let (count, messages) = size();
    let [here, there] = addresses();
    let host = Host::open(here, &shipped());
    let mut peer = Part::start(this_test!(), &format!("target {there} {here}"));
    let text = peer.hear();
    let (address, rkey) = text.split_once(' ').unwrap();
    let (address, rkey) = (address.parse::<u64>().unwrap(), rkey.parse::<u32>().unwrap());
    let (cq, qps) = crowd(host, (count, messages));
    for qp in &qps {
        let qpn = peer.hear().parse().unwrap();
        peer.say(qp.number());
        init(qp, &attributes());
        start(qp, Name { address: there, qpn }, &attributes());
    }
    assert_eq!(peer.hear(), "ready");

    let begun_ms = cpu_ms();
    let (memory, lkey) = host.region(BYTES.into());
    for _ in 0..messages {
        for (number, qp) in qps.iter().enumerate() {
            let write = entry(Opcode::Write, number as u64, &[sge(&memory, 0, BYTES, lkey)]);
            // SAFETY: nothing is inline.
            unsafe { qp.post_sends().push(&mut to_remote(write, address, rkey), &[]) }.unwrap();
        }
    }
    let mut completed = vec![0usize; count];
    let mut at_half_time = Vec::new();
    let mut finished_at = vec![0usize; count];
    let mut total = 0;
    let mut out = [Completion::default(); 64];
    while total < count * messages {
        // Whatever is still under way moves on within this time, or it never will.
        let got = wait("a completion", &[host], || Some(cq.poll(&mut out).unwrap()).filter(|&got| got > 0));
        for completion in &out[..got] {
            assert_eq!((completion.status, completion.vendor_err), (0, 0), "{completion:?}");
            let number = completion.wr_id as usize;
            completed[number] += 1;
            total += 1;
            finished_at[number] = total;
            if total == count * messages / 2 {
                at_half_time = completed.iter().map(|&done| done as f64).collect();
            }
        }
    }
    let rates: Vec<f64> = finished_at.iter().map(|&at| 1.0 / at as f64).collect();
    let (half, end) = (jain(&at_half_time), jain(&rates));
    let here = counts(host, cpu_ms() - begun_ms);
    peer.say("done");
    let told = peer.hear();
    let (acks, there) = told.split_once(' ').unwrap();
    println!("here {here:?}\nthere {there}");
    println!("{count} queue pairs: Jain {half:.3} at half time, {end:.3} by the order of finishing");
    let (packets, acks) = (here[0].1, acks.parse::<u64>().unwrap());
    assert!(acks * 2 < packets, "{acks} acknowledgements of {packets} packets");
    let is_long = std::env::var_os("SRDMA_CROWD").is_some();
    assert!(!is_long || (half >= JAIN_MIN && end >= JAIN_MIN), "{half:.3} {end:.3}");
}
