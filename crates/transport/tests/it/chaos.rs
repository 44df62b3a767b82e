//! Random scripts of faults that end in mid-run: goodput is back within a second of simulated time.

use srdma_seams::fault::{Class, Direction, Fault, FaultKind, Paths, Window, ALWAYS_PPM};
use srdma_seams::{Duration, FaultPlan, Faults, Rng};
use srdma_transport::{Config, SelectorKind};

use crate::capacity::{flooded, flooded_with, goodput, spines, MS, SPINE_BYTES_PER_S};
use crate::link::Span;

const BEGIN_MS: u64 = 500;
const RECOVERY_MS: u64 = 1_000;
const SEEDS: u64 = 12;

/// One to four clauses that act between `BEGIN_MS` and `end`, none of them so long or so heavy that giving up would be
/// right.
fn script(rng: &mut Rng, end: u64) -> Faults {
    let mut faults = Faults::default();
    for _ in 0..1 + rng.below(4) {
        let from = BEGIN_MS + rng.below((end - BEGIN_MS) / 2);
        let mut when = Window::once(Duration(from * MS), Duration(end * MS));
        if rng.below(2) == 0 {
            let every = 100 + rng.below(400);
            (when.lasts, when.every) = (Duration((10 + rng.below(every / 2)) * MS), Duration(every * MS));
        }
        if rng.below(5) == 0 {
            let until = (from + 20 + rng.below(280)).min(end);
            faults.freezes.push(Window::once(Duration(from * MS), Duration(until * MS)));
            continue;
        }
        faults.packets.push(clause(rng, when));
    }
    faults
}

fn clause(rng: &mut Rng, when: Window) -> Fault {
    let kinds = [
        FaultKind::Drop,
        FaultKind::Drop,
        FaultKind::Corrupt,
        FaultKind::Duplicate,
        FaultKind::Delay(Duration((1 + rng.below(80)) * MS)),
    ];
    let kind = kinds[rng.below(5) as usize];
    let paths = match rng.below(4) {
        0 => vec![Paths { first: rng.below(4) as u16, last: 255, step: 4 }],
        1 => vec![Paths { first: 0, last: 31 + rng.below(64) as u16, step: 1 }],
        _ => vec![],
    };
    // Some paths may go dark; all of them only now and then.
    let dark = !paths.is_empty() && rng.below(2) == 0;
    Fault {
        kind,
        chance_ppm: if dark { ALWAYS_PPM } else { 5_000 + rng.below(400_000) as u32 },
        whole_burst: kind == FaultKind::Drop && rng.below(3) == 0,
        direction: if rng.below(2) == 0 { Direction::Send } else { Direction::Receive },
        class: if rng.below(4) == 0 { Some(Class::Ack) } else { None },
        paths,
        when,
    }
}

fn random(seed: u64) -> (Faults, u64) {
    let mut rng = Rng::stream(seed, "chaos", 0);
    let end = BEGIN_MS + 300 + rng.below(2_000);
    (script(&mut rng, end), end)
}

/// Runs `faults` and looks a second after `end`; how many packets were sent again.
fn run(seed: u64, faults: Faults, end: u64) -> Result<u64, String> {
    let told = |what: String| format!("seed {seed}: {what}, after \"{faults}\"");
    let mut link = spines(seed, 4, SPINE_BYTES_PER_S);
    link.faults = Some(FaultPlan::new(seed, faults.clone()));
    let mut sim = flooded(seed, SelectorKind::Adaptive, 1472, link);
    let before = goodput(&mut sim, 300, BEGIN_MS);
    sim.run_until(end * MS).map_err(&told)?;
    let after = goodput(&mut sim, end + RECOVERY_MS, end + RECOVERY_MS + 200);
    match sim.ends.iter().find_map(|end| end.failed) {
        Some((failure, at)) => Err(told(format!("{failure:?} at {} ms", at / MS))),
        None if after < before * 0.90 => Err(told(format!("{:.3} of before", after / before))),
        None => Ok(sim.ends[0].counts.packets_again()),
    }
}

#[test]
fn goodput_is_back_within_a_second_of_any_script_of_faults() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, end) = match number("SRDMA_SEED") {
        Some(seed) => (seed, seed + 1),
        None => (0, number("SRDMA_SEEDS").map_or(SEEDS, |seeds| seeds.div_ceil(160))),
    };
    let runs = (first..end).map(|seed| {
        let (faults, end) = random(seed);
        run(seed, faults, end)
    });
    let (well, failed): (Vec<_>, Vec<_>) = runs.partition(Result::is_ok);
    let failed: Vec<String> = failed.into_iter().filter_map(Result::err).collect();
    assert!(
        failed.is_empty(),
        "{}\nreplay: SRDMA_SEED=n cargo test -p srdma-transport --test it goodput_is_back",
        failed.join("\n")
    );
    let struck = well.iter().filter(|again| again.as_ref().is_ok_and(|again| *again > 0)).count();
    assert!(struck * 4 >= well.len() * 3, "only {struck} of {} runs sent anything again", well.len());
}

#[test]
fn faults_that_go_on_are_noticed() {
    let when = Window::once(Duration(BEGIN_MS * MS), Duration::MAX);
    let lasting = Fault { chance_ppm: 500_000, when, ..Fault::always(FaultKind::Drop) };
    let faults = Faults { packets: vec![lasting], ..Faults::default() };
    assert!(run(1, faults, BEGIN_MS + 500).is_err());
}

/// What was dark for longer than any back-off takes to reach its longest is used in full within a second, too: a queue with
/// all its paths, and everything, of a connection that would wait long for an answer.
#[test]
fn goodput_is_back_within_a_second_of_a_long_black_hole() {
    for (seed, dark_ms) in [(1, 1_300), (3, 2_600), (5, 5_000)] {
        for everything in [false, true] {
            let mut link = spines(seed, 4, SPINE_BYTES_PER_S / 5);
            let (from, until) = (BEGIN_MS, BEGIN_MS + dark_ms);
            let dark = Span(from * MS, until * MS);
            match everything {
                true => link.outage = dark,
                false => {
                    let of_path = link.queues.iter().flat_map(|queues| queues.of_path.iter().enumerate());
                    link.black =
                        of_path.filter(|(_, queue)| **queue == 0).map(|(path, _)| path as u16).collect();
                    link.black_span = dark;
                }
            }
            let config = Config { ack_timeout: Duration::from_secs(4), ..Config::default() };
            let mut sim = flooded_with(seed, &config, 1472, link);
            let before = goodput(&mut sim, 300, from);
            let during = goodput(&mut sim, until - 200, until) / before;
            let after = goodput(&mut sim, until + 700, until + RECOVERY_MS) / before;
            let name = format!("seed {seed}, {dark_ms} ms of darkness, everything {everything}");
            assert!(during < 0.80, "{name}: {during:.2} during it");
            assert!(after >= 0.90, "{name}: {after:.2} after it");
        }
    }
}
