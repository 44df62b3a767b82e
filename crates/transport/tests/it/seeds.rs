//! Random networks, random traffic: everything arrives once, or the connection says that it failed.

use srdma_seams::event::RetransmitCause;
use srdma_seams::{Duration, Rng};
use srdma_transport::config::Planted;
use srdma_transport::{Config, SelectorKind};
use srdma_wire::Space;

use crate::link::{Link, Span};
use crate::sim::Sim;

const MESSAGES: u64 = 200;

/// What the seeds have really exercised.
#[derive(Default, Debug)]
pub struct Coverage {
    tail_probe: u64,
    rto: u64,
    undo: u64,
    suspected: u64,
    restored: u64,
    wrap_24: u64,
    wrap_32: u64,
    pause: u64,
    black_hole: u64,
    burst_loss: u64,
    ack_loss: u64,
    handshake_retry: u64,
    path_order: u64,
    age: u64,
    refused: u64,
    response: u64,
    duplicate: u64,
    small_window: u64,
    outage: u64,
    ack_with_unit: u64,
}

impl Coverage {
    pub fn add(&mut self, sim: &Sim, config: &Config) {
        for end in &sim.ends {
            let counts = &end.counts;
            self.tail_probe += counts.tail_probes;
            self.rto += counts.timeouts;
            self.undo += counts.undone;
            self.suspected += counts.suspected;
            self.restored += counts.restored;
            self.pause += end.pauses;
            self.handshake_retry += u64::from(counts.hellos > 2);
            self.path_order += counts.lost[RetransmitCause::PathOrder as usize];
            self.age += counts.lost[RetransmitCause::Age as usize];
            self.refused += counts.lost[RetransmitCause::Local as usize];
            self.response += end.lengths[1].len() as u64;
        }
        self.ack_with_unit += sim.acks_with_units;
        let crosses = |bits: u32| {
            let wrap = 1u64 << bits;
            u64::from(config.first_psn < wrap && sim.ends[0].sent_max[0] > wrap)
        };
        self.wrap_24 += crosses(24);
        self.wrap_32 += crosses(32);
        self.black_hole += u64::from(!sim.link.black.is_empty());
        self.burst_loss += u64::from(sim.link.burst_loss_ppm > 0);
        self.ack_loss += u64::from(sim.link.ack_loss_ppm > 0);
        self.duplicate += u64::from(sim.link.duplicate_ppm > 0);
        self.small_window += u64::from(config.window_packets < 256);
        self.outage += u64::from(sim.link.outage.1 > 0);
    }

    fn require_all(&self) {
        let text = format!("{self:?}");
        assert!(!text.contains(": 0"), "a branch was never taken: {text}");
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

fn config(rng: &mut Rng) -> Config {
    let anywhere = rng.next_u64() >> 32;
    Config {
        paths: pick(rng, &[1, 2, 4, 16, 64, 128, 128, 256]),
        selector: pick(rng, SelectorKind::ALL).1,
        unit_packets_max: pick(rng, &[1, 4, 64, 64]),
        window_packets: pick(rng, &[64, 128, 1 << 12, 1 << 17]),
        window_initial_bytes: pick(rng, &[1 << 14, 1 << 16, 1 << 18]),
        first_psn: pick(rng, &[0, (1 << 24) - 3, (1 << 32) - 3, (1 << 32) - 300, anywhere]),
        first_msn: pick(rng, &[0, (1 << 24) - 3, (1 << 32) - 3, 5]),
        ack_timeout: Duration::from_millis(500),
        ..Config::default()
    }
}

/// At least two kinds of fault.
fn link(rng: &mut Rng, seed: u64, paths: u16) -> Link {
    let base = 20_000 + rng.below(400_000);
    let spread = pick(rng, &[0, base / 2, base * 4]);
    let delays = (0..paths).map(|_| base + rng.below(spread + 1)).collect();
    let mut link = Link::new(seed, delays);
    let mut faults = 0;
    while faults < 2 {
        let scale = pick(rng, &[1_000, 10_000, 30_000, 100_000]);
        for fault in 0..11 {
            if rng.below(4) != 0 {
                continue;
            }
            faults += 1;
            match fault {
                0 => link.loss_ppm = scale,
                1 => link.burst_loss_ppm = scale,
                2 => link.ack_loss_ppm = scale * 2,
                3 => link.duplicate_ppm = scale,
                4 => (link.reorder_ppm, link.reorder_ns) = (scale, 100_000 + rng.below(5_000_000)),
                5 => link.corrupt_ppm = scale,
                6 => link.mark_ppm = scale * 3,
                7 => link.hello_loss_ppm = 300_000,
                8 if paths > 1 => {
                    let count = 1 + rng.below(u64::from(paths) / 2);
                    link.black = (0..count).map(|_| rng.below(u64::from(paths)) as u16).collect();
                    let from = rng.below(10_000_000);
                    link.black_span = Span(from, from + rng.below(200_000_000));
                }
                9 => {
                    let from = 2_000_000 + rng.below(20_000_000);
                    link.outage = Span(from, from + rng.below(100_000_000));
                }
                10 => {
                    link.jitter_ns = base / 4;
                    let from = rng.below(20_000_000);
                    (link.slow, link.slow_by) = (Span(from, from + 50_000_000), 2 + rng.below(20));
                }
                _ => faults -= 1,
            }
        }
    }
    link
}

pub fn run_seed(seed: u64, planted: Option<Planted>, coverage: &mut Coverage) -> Result<(), String> {
    let mut rng = Rng::stream(seed, "scenario", 0);
    let config = Config { planted, ..config(&mut rng) };
    let link = link(&mut rng, seed, config.paths);
    let size = pick(&mut rng, &[1252, 1472, 4096, 8972]);
    let mut sim = Sim::new(seed, &config, size, link);
    sim.link.mtu_bytes = pick(&mut rng, &[u16::MAX, u16::MAX, size, 1472]);
    sim.response_ppm = pick(&mut rng, &[0, 200_000, 1_000_000]);
    sim.refuse_ppm = pick(&mut rng, &[0, 0, 50_000]);
    sim.hold_acks = seed % 4 == 2;
    sim.sleep_ns = pick(&mut rng, &[0, 50_000, 5_000_000]);
    sim.free_bytes = pick(&mut rng, &[0, 100_000, 16 << 20]);
    let rnr_ppm = pick(&mut rng, &[0, 0, 30_000]);
    for end in &mut sim.ends {
        end.responders[0].rnr_ppm = rnr_ppm;
    }
    let largest = pick(&mut rng, &[100, 5_000, 20_000]);
    let length = |rng: &mut Rng| if rng.below(8) == 0 { 0 } else { rng.below(largest) as u32 };
    sim.start(0);
    let both = rng.below(2) == 0;
    let mut left = MESSAGES;
    let mut other_started = false;
    while left > 0 {
        if sim.hold_acks && rng.below(2) == 0 {
            for turn in 0..12.min(left) {
                sim.submit((turn % 2) as usize, Space::Request, length(&mut rng));
                left -= 1;
                sim.run_until(sim.now + 150_000)?;
            }
            continue;
        }
        for _ in 0..(1 + rng.below(60)).min(left) {
            let side = usize::from(both && rng.below(2) == 0);
            let length = length(&mut rng);
            sim.submit(side, Space::Request, length);
            left -= 1;
        }
        let pause = rng.below(4_000_000);
        sim.run_until(sim.now + pause)?;
        if !other_started {
            other_started = true;
            sim.start(1);
        }
    }
    sim.run_until_done(sim.now + 60_000_000_000)?;
    coverage.add(&sim, &config);
    if std::env::var("SRDMA_SEED").is_ok() {
        println!("{config:?}\n{:?}", sim.link);
        for end in &sim.ends {
            println!("{:?} landed {:?}", end.snapshot(), end.responders.each_ref().map(|r| r.landed));
            println!("{:?} sent {:?} {:?}", end.lengths.each_ref().map(Vec::len), end.sent_max, end.counts);
        }
    }
    if let Some((failure, at)) = sim.ends.iter().find_map(|end| end.failed) {
        return Err(format!("{failure:?} at {} µs although the network recovered", at / 1000));
    }
    if !sim.is_done() {
        let left = sim.ends.each_ref().map(|end| end.snapshot());
        return Err(format!("not done after 60 s: {left:?}"));
    }
    Ok(())
}

/// Seeds that once failed. 83527: a receiver without room keeps one unit in flight; at 28 % round-trip loss nine
/// attempts in the whole patience were too few, and the peer was taken for dead.
#[test]
fn networks_that_once_defeated_it_no_longer_do() {
    for seed in [83_527] {
        if let Err(what) = run_seed(seed, None, &mut Coverage::default()) {
            panic!("seed {seed}: {what}");
        }
    }
}

#[test]
fn everything_arrives_once_whatever_the_network_does() {
    let mut coverage = Coverage::default();
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, end) = match number("SRDMA_SEED") {
        Some(seed) => (seed, seed + 1),
        None => (0, number("SRDMA_SEEDS").unwrap_or(2_000)),
    };
    for seed in first..end {
        if let Err(what) = run_seed(seed, None, &mut coverage) {
            panic!(
                "seed {seed}: {what}\nreplay: SRDMA_SEED={seed} cargo test -p srdma-transport --test it \
                 everything_arrives_once"
            );
        }
    }
    println!("{coverage:?}");
    if end - first >= 1_000 {
        coverage.require_all();
    }
}
