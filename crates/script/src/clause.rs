//! One clause: its words, one after the other.

use std::str::FromStr;

use srdma_abi::cause::TABLE;
use srdma_seams::fault::{Class, Direction, Failure, Fault, FaultKind, Faults, Paths, Window, ALWAYS_PPM};
use srdma_seams::Duration;

const VERBS: &str = "a clause begins with drop, duplicate, corrupt, damage, delay, freeze or fail";
const OF_PACKETS: &str =
    "a chance such as 1%, burst, data, ack, control, send, receive, on PATHS, from, to, for and every TIME";
const OF_FREEZES: &str = "from, to, for and every TIME";
const SPAN: &str = "a time such as 300ms (ns, us, ms, s)";
const PATHS: &str = "paths such as 5, 0-31, 1mod4, or several with commas, from 0 to 255";

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Adds what `clause` says to `faults`.
pub(crate) fn parse(clause: &str, faults: &mut Faults) -> Result<(), String> {
    let mut words = clause.split_whitespace().peekable();
    match words.next().unwrap_or("") {
        "drop" => faults.packets.push(packets(FaultKind::Drop, &mut words)?),
        "duplicate" => faults.packets.push(packets(FaultKind::Duplicate, &mut words)?),
        "corrupt" => faults.packets.push(packets(FaultKind::Corrupt, &mut words)?),
        "damage" => faults.packets.push(packets(FaultKind::Damage, &mut words)?),
        "delay" => {
            let span = operand(&mut words, "delay", SPAN, span)?;
            faults.packets.push(packets(FaultKind::Delay(span), &mut words)?);
        }
        "freeze" => faults.freezes.push(freeze(&mut words)?),
        "fail" => faults.failures.push(failure(&mut words)?),
        other => return Err(format!("\"{other}\" is not understood; {VERBS}")),
    }
    Ok(())
}

/// The word after `name`, read by `read`.
fn operand<T>(
    words: &mut Words<'_>,
    name: &str,
    wanted: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, String> {
    match words.next() {
        None => Err(format!("after {name} is missing {wanted}")),
        Some(word) => read(word).ok_or_else(|| format!("after {name}, \"{word}\" must be {wanted}")),
    }
}

fn packets(kind: FaultKind, words: &mut Words<'_>) -> Result<Fault, String> {
    let mut fault = Fault::always(kind);
    let mut times = Times::default();
    while let Some(word) = words.next() {
        match word {
            "burst" => fault.whole_burst = true,
            "data" => fault.class = Some(Class::Data),
            "ack" => fault.class = Some(Class::Ack),
            "control" => fault.class = Some(Class::Control),
            "send" => fault.direction = Direction::Send,
            "receive" => fault.direction = Direction::Receive,
            "on" => fault.paths = operand(words, "on", PATHS, paths)?,
            _ if word.ends_with('%') => {
                fault.chance_ppm = chance(word)
                    .ok_or_else(|| format!("\"{word}\" must be a chance from 0.0001% to 100%"))?;
            }
            _ if times.take(word, words)? => {}
            _ => return Err(format!("\"{word}\" is not understood; here may stand {OF_PACKETS}")),
        }
    }
    fault.when = times.window()?;
    Ok(fault)
}

fn freeze(words: &mut Words<'_>) -> Result<Window, String> {
    let mut times = Times::default();
    while let Some(word) = words.next() {
        if !times.take(word, words)? {
            return Err(format!("\"{word}\" is not understood; here may stand {OF_FREEZES}"));
        }
    }
    times.window()
}

fn failure(words: &mut Words<'_>) -> Result<Failure, String> {
    const QUEUE: &str = "send or receive, and the number of the work request";
    const CAUSE: &str = "a name or code that `srdma explain list` shows";
    let queue = operand(words, "fail", QUEUE, |word| match word {
        "send" => Some(Direction::Send),
        "receive" => Some(Direction::Receive),
        _ => None,
    })?;
    let number = operand(words, "the queue", "the number of the work request, from 1", number)?;
    let (mut qp, mut cause) = (None, None);
    while let Some(word) = words.next() {
        match word {
            "of" if words.next_if_eq(&"qp").is_some() => {
                qp = Some(operand(words, "of qp", "its number in order of creation, from 1", number_of)?);
            }
            "with" => cause = Some(operand(words, "with", CAUSE, code)?),
            _ => {
                return Err(format!(
                    "\"{word}\" is not understood; here may stand of qp NUMBER, and with CAUSE"
                ))
            }
        }
    }
    let cause = cause.ok_or_else(|| format!("with is missing: with what it fails, {CAUSE}"))?;
    Ok(Failure { queue, number, qp, cause })
}

/// What a clause says about time.
#[derive(Default)]
struct Times {
    from: Option<Duration>,
    to: Option<Duration>,
    lasts: Option<Duration>,
    every: Option<Duration>,
}

impl Times {
    /// Whether `word` is about time; if so its operand is taken too.
    fn take(&mut self, word: &str, words: &mut Words<'_>) -> Result<bool, String> {
        let place = match word {
            "from" => &mut self.from,
            "to" => &mut self.to,
            "for" => &mut self.lasts,
            "every" => &mut self.every,
            _ => return Ok(false),
        };
        *place = Some(operand(words, word, SPAN, span)?);
        Ok(true)
    }

    fn window(&self) -> Result<Window, String> {
        let from = self.from.unwrap_or(Duration::ZERO);
        let until = self.to.unwrap_or(Duration::MAX);
        match (self.lasts, self.every) {
            (None, None) => Ok(Window::once(from, until)),
            (Some(lasts), None) => Ok(Window::once(from, until.min(from + lasts))),
            (Some(lasts), Some(every)) => Ok(Window { from, until, lasts, every }),
            (None, Some(_)) => Err(format!("every needs for: how long of each period, {SPAN}")),
        }
    }
}

fn number(word: &str) -> Option<u64> {
    number_of(word)
}

/// A whole number from 1.
fn number_of<T: FromStr + PartialOrd + From<u8>>(word: &str) -> Option<T> {
    word.parse().ok().filter(|number| *number >= T::from(1))
}

fn span(word: &str) -> Option<Duration> {
    let digits = word.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = word.split_at(digits);
    let unit_ns = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let ns = number.parse::<f64>().ok()? * unit_ns;
    // Beyond this, nanoseconds are no longer exact; it is 104 days.
    (ns < 9.0e15).then_some(Duration(ns.round() as u64))
}

fn chance(word: &str) -> Option<u32> {
    let percent: f64 = word.strip_suffix('%')?.parse().ok()?;
    let ppm = (percent * 10_000.0).round();
    (1.0..=f64::from(ALWAYS_PPM)).contains(&ppm).then_some(ppm as u32)
}

fn paths(word: &str) -> Option<Vec<Paths>> {
    word.split(',').map(some_paths).collect()
}

fn some_paths(word: &str) -> Option<Paths> {
    if let Some((first, step)) = word.split_once("mod") {
        return Some(Paths { first: first.parse().ok()?, last: 255, step: step.parse().ok()? });
    }
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(Paths { first: first.parse().ok()?, last: last.parse().ok()?, step: 1 })
}

fn code(word: &str) -> Option<u16> {
    let by_code = |code: u16| TABLE.iter().any(|row| row.cause as u16 == code).then_some(code);
    match word.parse() {
        Ok(code) => by_code(code),
        Err(_) => {
            let named = |row: &&srdma_abi::cause::Row| format!("{:?}", row.cause).eq_ignore_ascii_case(word);
            TABLE.iter().find(named).map(|row| row.cause as u16)
        }
    }
}
