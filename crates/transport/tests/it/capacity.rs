//! Goodput over rate-limited links, in simulated time.

use srdma_seams::Rng;
use srdma_transport::{Config, SelectorKind};

use crate::link::{Link, Queues, Span};
use crate::sim::Sim;

pub const MS: u64 = 1_000_000;
pub const SPINE_BYTES_PER_S: u64 = 25_000_000;

/// `count` equal queues behind 128 paths; which path uses which queue is a hash of its number.
pub fn spines(seed: u64, count: u64, bytes_per_s: u64) -> Link {
    let mut rng = Rng::stream(seed, "hash", 0);
    let mut link = Link::new(seed, vec![50_000; 128]);
    link.queues = Some(Queues {
        bytes_per_s,
        of_path: (0..128).map(|_| rng.below(count) as usize).collect(),
        limit_bytes: 4 << 20,
        mark_bytes: u64::MAX,
        free_at: vec![0; count as usize],
        busy_bytes: vec![0; count as usize],
    });
    link
}

pub fn flooded(seed: u64, selector: SelectorKind, datagram_bytes: u16, link: Link) -> Sim {
    flooded_with(seed, &Config { selector, ..Config::default() }, datagram_bytes, link)
}

pub fn flooded_with(seed: u64, config: &Config, datagram_bytes: u16, link: Link) -> Sim {
    let mut sim = Sim::new(seed, config, datagram_bytes, link);
    sim.remember = false;
    sim.feed = Some((16, 1 << 20));
    sim.start_both();
    sim
}

/// Payload bytes per second that arrive between `from` and `until` (milliseconds).
pub fn goodput(sim: &mut Sim, from: u64, until: u64) -> f64 {
    sim.run_until(from * MS).unwrap();
    let before = sim.ends[1].responders[0].bytes;
    sim.run_until(until * MS).unwrap();
    (sim.ends[1].responders[0].bytes - before) as f64 * 1000.0 / (until - from) as f64
}

fn share(sim: &mut Sim, from: u64, until: u64, bytes_per_s: u64) -> f64 {
    goodput(sim, from, until) / bytes_per_s as f64
}

#[test]
fn four_bottlenecks_are_filled_by_128_paths_and_a_quarter_of_them_by_one() {
    for seed in 0..4 {
        let payload = 1400.0 / 1472.0; // of the bytes on the wire
        let all = 4 * SPINE_BYTES_PER_S;
        let mut many = flooded(seed, SelectorKind::Adaptive, 1472, spines(seed, 4, SPINE_BYTES_PER_S));
        many.sleep_ns = if seed % 2 == 0 { 0 } else { 1_000_000 };
        many.run_until(300 * MS).unwrap();
        let busy_before = many.link.queues.as_ref().unwrap().busy_bytes.clone();
        let filled = share(&mut many, 300, 900, all) / payload;
        assert!(filled >= 0.90, "seed {seed}: {filled:.3} of four spines, {:?}", many.ends[0].snapshot());
        let busy = &many.link.queues.as_ref().unwrap().busy_bytes;
        let busy: Vec<u64> = busy.iter().zip(&busy_before).map(|(now, before)| now - before).collect();
        let mean = busy.iter().sum::<u64>() / 4;
        assert!(busy.iter().all(|b| b.abs_diff(mean) * 100 <= mean * 15), "seed {seed}: uneven {busy:?}");

        let mut one = flooded(seed, SelectorKind::Single, 1472, spines(seed, 4, SPINE_BYTES_PER_S));
        let filled = share(&mut one, 300, 900, all) / payload;
        assert!((0.22..0.26).contains(&filled), "seed {seed}: {filled:.3} with a single path");
    }
}

#[test]
fn a_fast_link_is_filled_within_a_few_milliseconds() {
    for gbit in [10, 30] {
        let rate = gbit * 125_000_000;
        let mut sim = flooded(1, SelectorKind::Adaptive, 8972, spines(1, 1, rate));
        let filled = share(&mut sim, 20, 70, rate);
        assert!(filled >= 0.90, "{gbit} Gbit/s: {filled:.3}, {:?}", sim.ends[0].snapshot());
    }
}

#[test]
fn rare_loss_costs_little() {
    for (name, loss_ppm, burst_loss_ppm) in
        [("packets", 30_000, 0), ("packets", 10_000, 0), ("bursts", 0, 10_000)]
    {
        let clean = {
            let mut sim = flooded(3, SelectorKind::Adaptive, 1472, spines(3, 4, SPINE_BYTES_PER_S));
            goodput(&mut sim, 300, 1000)
        };
        let mut link = spines(3, 4, SPINE_BYTES_PER_S);
        (link.loss_ppm, link.burst_loss_ppm) = (loss_ppm, burst_loss_ppm);
        let mut sim = flooded(3, SelectorKind::Adaptive, 1472, link);
        let lossy = goodput(&mut sim, 300, 1000);
        // What is lost after the queue has used the link's time anyway.
        let lost = f64::from(loss_ppm + burst_loss_ppm) / 1e6;
        assert!(lossy >= clean * (0.95 - lost), "{name} {loss_ppm} {burst_loss_ppm}: {:.3}", lossy / clean);
        let again = sim.ends[0].counts.packets_again() as f64 / sim.ends[0].counts.packets as f64;
        assert!(again < lost * 1.3 + 0.002, "{name}: {again:.4} sent again, {lost:.4} lost");
    }
}

/// One of four spines swallows its packets silently: its paths are found dead and skipped.
#[test]
fn a_silently_swallowing_spine_costs_its_share_and_no_more() {
    for seed in 0..4 {
        let mut link = spines(seed, 4, SPINE_BYTES_PER_S);
        let of_path = link.queues.as_ref().unwrap().of_path.clone();
        link.black = (0..128).filter(|&path| of_path[usize::from(path)] == 0).collect();
        link.black_span = Span(500 * MS, 2500 * MS);
        let mut sim = flooded(seed, SelectorKind::Adaptive, 1472, link);
        let before = goodput(&mut sim, 300, 500);
        let at_once = goodput(&mut sim, 500, 700);
        let during = goodput(&mut sim, 1000, 2500);
        assert!(at_once >= before * 0.30, "seed {seed}: {:.3} at once", at_once / before);
        assert!(during >= before * 0.65, "seed {seed}: {:.3} later", during / before);
        let after = goodput(&mut sim, 5500, 6000);
        assert!(after >= before * 0.90, "seed {seed}: {:.3} after it heals", after / before);
        assert_eq!(sim.ends[0].failed, None);
        assert!(sim.ends[0].counts.suspects.is_empty(), "{:?}", sim.ends[0].counts.suspects);
    }
}

/// MP12: back-off never reset after loss ("death spiral"), seen in several transports.
#[test]
fn goodput_returns_after_heavy_loss_ends() {
    for (loss_ppm, end) in [(10_000, 2_500), (50_000, 2_500), (300_000, 10_500)] {
        let mut link = spines(5, 4, SPINE_BYTES_PER_S);
        link.loss_ppm = loss_ppm;
        link.ack_loss_ppm = loss_ppm;
        link.loss_span = Span(500 * MS, end * MS);
        let mut sim = flooded(5, SelectorKind::Adaptive, 1472, link);
        let before = goodput(&mut sim, 300, 500);
        sim.run_until(end * MS).unwrap();
        let after = goodput(&mut sim, end + 500, end + 1_000);
        assert_eq!(sim.ends[0].failed, None, "{loss_ppm}");
        assert!(after >= before * 0.90, "{loss_ppm} ppm: {:.3} after", after / before);
    }
}

/// MP3: a ceiling on waiting that is lower than the queueing delay makes everything a retransmission.
#[test]
fn a_queue_that_grows_tenfold_is_not_loss() {
    let mut link = Link::new(2, vec![300_000; 128]);
    link.slow = Span(300 * MS, 1300 * MS);
    link.slow_by = 10;
    let config = Config { window_max_bytes: 1 << 20, ..Config::default() };
    let mut sim = Sim::new(2, &config, 8972, link);
    sim.remember = false;
    sim.feed = Some((16, 1 << 20));
    sim.start_both();
    sim.run_until(1500 * MS).unwrap();
    let counts = &sim.ends[0].counts;
    assert!(counts.packets_again() * 50 < counts.packets, "{} of {}", counts.packets_again(), counts.packets);
}
