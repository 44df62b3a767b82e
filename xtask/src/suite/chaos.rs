//! Chaos: real programs under random scripts of faults that end in mid-run.
//!
//! A run either goes on as if nothing had been, or its queue pair has failed with the status that the script asked for;
//! nothing in between. Bytes are checked by `srdma verify` and the pattern program; goodput after the faults, where
//! it is looked at (soak, on an idle machine), by the kernel's counters of the host's interface. That goodput comes
//! back is tested in simulated time, too: `crates/transport/tests/it/chaos.rs`.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};

use super::{data, Setting, Step};
use crate::fabric::{Fabric, Spec};
use crate::process::Running;
use crate::programs::{verify, Done, Launcher, Pair};
use crate::report;

/// Set in `vendor_err` of a failure that was injected.
const INJECTED: u64 = 0x8000;
/// Variable that names the only round to run.
const SEED: &str = "SRDMA_CHAOS_SEED";
/// Faults begin and end, counted from the program's first queue pair.
const FAULTS_MS: (u64, u64) = (2_000, 4_000);
/// Seconds that a program runs.
const RUN_SECONDS: u64 = 7;
/// When goodput is looked at before and after, from the client's start.
const BEFORE_MS: (u64, u64) = (1_000, 1_900);
const AFTER_MS: (u64, u64) = (5_200, 6_100);
/// What must be left of it.
const GOODPUT_LEFT: f64 = 0.90;

/// All of them.
pub fn steps() -> Vec<Step> {
    vec![Step::new("chaos/scripts", |setting: &Setting<'_>| {
        let span = Duration::from_secs(if setting.soak { 300 } else { 40 });
        chaos(setting.launcher()?, span, setting.soak)
    })]
}

/// Who runs under the faults.
#[derive(Clone, Copy, Debug)]
enum Load {
    Perftest(&'static str),
    Pattern,
    Verify,
}

const LOADS: [Load; 7] = [
    Load::Perftest("ib_write_bw"),
    Load::Pattern,
    Load::Perftest("ib_send_lat"),
    Load::Verify,
    Load::Perftest("ib_read_bw"),
    Load::Perftest("ib_send_bw"),
    Load::Perftest("ib_write_lat"),
];

fn chaos(launcher: &Launcher, span: Duration, timed: bool) -> Result<String> {
    let only = std::env::var(SEED).ok().map(|text| text.parse().context(SEED)).transpose()?;
    let first: u64 = match only {
        Some(seed) => seed,
        // The gate repeats itself; soak looks further each time.
        None if timed => std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_secs(),
        None => 0,
    };
    let begin = Instant::now();
    let (mut rounds, mut failed_on_purpose) = (0, 0);
    while rounds == 0 || (only.is_none() && begin.elapsed() < span) {
        let round = Round::new(first + rounds);
        report::say(&format!("    seed {}: {:?} under \"{}\"", round.seed, round.load, round.script));
        let on_purpose = round.run(launcher, timed).with_context(|| round.replay(timed))?;
        failed_on_purpose += u64::from(on_purpose);
        rounds += 1;
    }
    Ok(format!("{rounds} scripts, {failed_on_purpose} of them fatal as asked; seeds from {first}"))
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A script and who runs under it.
struct Round {
    seed: u64,
    load: Load,
    script: String,
    /// The script ends the connection with this code.
    fatal: Option<u64>,
}

impl Round {
    fn new(seed: u64) -> Round {
        let mut chance = Chance(seed);
        let load = LOADS[(seed % LOADS.len() as u64) as usize];
        let clauses: Vec<String> = (0..1 + chance.below(4)).map(|_| clause(&mut chance)).collect();
        let mut script = clauses.join("; ");
        // The pattern program and verify would call any end a failure.
        let fatal = matches!(load, Load::Perftest(_)) && seed % 5 == 2;
        let code = chance.one_of(&[2, 5, 20, 22, 40, 50]);
        if fatal {
            script.push_str(&format!("; fail send {} with {code}", 1 + chance.below(2_000)));
        }
        Round { seed, load, script, fatal: fatal.then_some(INJECTED | code) }
    }

    fn replay(&self, soak: bool) -> String {
        let command = if soak { "soak" } else { "test" };
        format!(
            "seed {}: {:?} under \"{}\"\nreplay: {SEED}={} cargo xtask {command} --only chaos\n",
            self.seed, self.load, self.script, self.seed
        )
    }

    /// Whether it failed as the script asked.
    fn run(&self, launcher: &Launcher, timed: bool) -> Result<bool> {
        let fabric = Fabric::build(Spec::spines(Some(200)))?;
        let seed = self.seed.to_string();
        let options = ["--fault", &self.script, "--seed", &seed];
        let mut pair = match self.load {
            Load::Verify => {
                verify::run(launcher, &fabric, RUN_SECONDS, &options)?;
                return Ok(false);
            }
            Load::Pattern => data::pair(launcher, RUN_SECONDS)?,
            Load::Perftest(program) => Pair::new(&format!("{program} -F -D {RUN_SECONDS}")).limit(60),
        };
        pair.options = options.map(str::to_owned).to_vec();
        let mut goodput = None;
        let looked_at = timed && matches!(self.load, Load::Perftest(name) if name.ends_with("_bw"));
        let done = pair.run_while(launcher, &fabric, |client| {
            if looked_at {
                goodput = before_and_after(&fabric, client)?;
            }
            Ok(())
        })?;
        match self.fatal {
            Some(code) => self.judge_failure(&done, code),
            None => {
                let done = done.success()?;
                let struck = done.client_stats()?.faults() + done.server_stats()?.faults();
                ensure!(struck > 0, "the script struck nothing");
                if let Some((before, after)) = goodput {
                    let left = after as f64 / before as f64;
                    ensure!(left >= GOODPUT_LEFT, "a second after the faults goodput is {left:.2} of before");
                }
                Ok(false)
            }
        }
    }

    /// Some side failed with the injected code, and neither hangs; a latency run that ends before its request number
    /// comes may also end well.
    fn judge_failure(&self, done: &Done, code: u64) -> Result<bool> {
        for side in [&done.client, &done.server] {
            ensure!(!side.timed_out, "a side hangs after a failure: {}", side.story());
        }
        let stats = [&done.client_stats, &done.server_stats];
        let codes: Vec<u64> =
            stats.iter().filter_map(|stats| stats.as_ref()).flat_map(|s| s.failures()).collect();
        let well = done.client.code == Some(0) && done.server.code == Some(0);
        if well && codes.is_empty() {
            return Ok(false);
        }
        if !codes.contains(&code) || done.client.code == Some(0) && done.server.code == Some(0) {
            bail!("failed with {codes:?}, not with {code}: {}\n{}", done.client.story(), done.server.story());
        }
        Ok(true)
    }
}

/// A clause that no connection may die of.
fn clause(chance: &mut Chance) -> String {
    let (begin, end) = FAULTS_MS;
    let from = begin + chance.below((end - begin) / 2);
    let (lasts, every) = (20 + chance.below(150), 300 + chance.below(500));
    let when = match chance.below(2) {
        0 => format!("from {from}ms to {end}ms"),
        _ => format!("from {from}ms to {end}ms for {lasts}ms every {every}ms"),
    };
    let way = chance.one_of(&["", " receive", " ack", " ack receive", " burst"]);
    let paths = chance.one_of(&["", "", " on 1mod4", " on 0-63", " on 3,5,90-120"]);
    let percent = 1 + chance.below(20);
    match chance.below(8) {
        0 | 1 => format!("drop {percent}%{way}{paths} {when}"),
        2 => format!("drop on {}mod4 {when}", chance.below(4)),
        3 => format!("delay {}ms {percent}%{way}{paths} {when}", 1 + chance.below(60)),
        4 => format!("duplicate {percent}%{way}{paths} {when}"),
        5 => format!("corrupt {percent}%{way}{paths} {when}"),
        6 => format!("freeze from {from}ms to {}ms", from + 20 + chance.below(300)),
        _ => format!("drop from {from}ms to {}ms", from + 20 + chance.below(180)),
    }
}

/// Bytes that crossed the host's interface before the faults and after them, in spans of equal length.
fn before_and_after(fabric: &Fabric, client: &mut Running) -> Result<Option<(u64, u64)>> {
    let start = Instant::now();
    let mut crossed = |at_ms: u64| -> Result<Option<u64>> {
        std::thread::sleep(Duration::from_millis(at_ms).saturating_sub(start.elapsed()));
        let count = fabric.host_count()?;
        Ok((!client.has_ended()).then_some(count.rx_bytes + count.tx_bytes))
    };
    let mut span = |(from, to): (u64, u64)| -> Result<Option<u64>> {
        let (first, second) = (crossed(from)?, crossed(to)?);
        Ok(first.zip(second).map(|(first, second)| second - first))
    };
    let (before, after) = (span(BEFORE_MS)?, span(AFTER_MS)?);
    Ok(before.zip(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_script_and_others_differ() {
        let script = |seed| Round::new(seed).script;
        assert_eq!(script(7), script(7));
        assert_ne!(script(7), script(14));
        let fatal = (0..70).filter(|seed| Round::new(*seed).fatal.is_some()).count();
        assert!((2..30).contains(&fatal), "{fatal} of 70 are fatal");
    }
}
