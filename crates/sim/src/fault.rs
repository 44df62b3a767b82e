//! `[[fault]]`: a table becomes something that breaks, and a fault becomes changes on the timeline.

use srdma_fabric::{Change, Graph, LinkId, Time};

use crate::file::{rate, span};
use crate::reader::{FileError, Table};
use crate::target::{links_of, TARGETS};

/// Something that breaks.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When.
    pub at: Time,
    /// When it is over, if it ever is.
    pub until: Option<Time>,
    /// From when on it happens again, and how often in all.
    pub repeat: Option<(Time, u32)>,
    /// What: a switch, a host, `a-b` for the cable between two, `a>b` for one direction of it, a group of switches.
    pub on: String,
    /// How.
    pub change: Change,
    /// Time after which routing notices, if it does.
    pub reroute_after: Option<Time>,
}

/// Times that a fault may happen.
const TIMES_MAX: u32 = 10_000;

impl Fault {
    /// Its links, and when what happens to them until `end`. The last is what ends the fault, once for each time.
    pub(crate) fn times(&self, end: Time) -> impl Iterator<Item = (Time, Option<Time>)> {
        let (at, until) = (self.at, self.until);
        let (every, times) = self.repeat.unwrap_or((Time(0), 1));
        let starts = (0..u64::from(times)).map(move |number| Time(every.0.saturating_mul(number)));
        let whole = starts.map(move |later| (at.after(later), until.map(|until| until.after(later))));
        whole.take_while(move |&(at, _)| at <= end)
    }

    /// What it is on.
    pub(crate) fn links(&self, graph: &Graph) -> Vec<LinkId> {
        links_of(graph, &self.on).unwrap_or_default()
    }
}

/// What a fault does, before its numbers are read.
#[derive(Clone, Copy)]
enum Kind {
    Down,
    Loss,
    Corrupt,
    Bleach,
    Delay,
    Rate,
}

const KINDS: [(&str, Kind); 6] = [
    ("down", Kind::Down),
    ("loss", Kind::Loss),
    ("corrupt", Kind::Corrupt),
    ("bleach", Kind::Bleach),
    ("delay", Kind::Delay),
    ("rate", Kind::Rate),
];

pub(crate) fn read_fault(table: &Table<'_>, graph: &Graph) -> Result<Fault, FileError> {
    let at = span(table, "at_us", 1e6, 1e9)?.unwrap_or(Time(0));
    let until = span(table, "until_us", 1e6, 1e9)?;
    if until.is_some_and(|until| until <= at) {
        return Err(table.error("until_us must be later than at_us"));
    }
    let repeat = read_repeat(table, at, until)?;
    let on = table.text("on")?;
    let on = table.required("on", on)?;
    if links_of(graph, on.value).is_none() {
        let problem = format!("there is no \"{}\": name {TARGETS}", on.value);
        return Err(table.error_at(on.at, "on", &problem));
    }
    let what = table.choice("what", &KINDS)?;
    let change = read_change(table, table.required("what", what)?.value)?;
    let reroute_after = span(table, "reroute_after_us", 1e6, 1e9)?;
    table.finish()?;
    Ok(Fault { at, until, repeat, on: on.value.to_owned(), change, reroute_after })
}

/// A flap: over before it comes again.
fn read_repeat(table: &Table<'_>, at: Time, until: Option<Time>) -> Result<Option<(Time, u32)>, FileError> {
    let times = table.whole("times", 1..=TIMES_MAX.into())?.map(|times| times as u32);
    let Some(every) = span(table, "every_us", 1e6, 1e9)? else {
        return match times {
            Some(_) => Err(table.error("every_us is missing: times says how often")),
            None => Ok(None),
        };
    };
    let Some(until) = until else {
        return Err(table.error("until_us is missing: what comes every_us must be over before"));
    };
    if every <= until.since(at) {
        return Err(table.error("every_us must be more than until_us − at_us"));
    }
    Ok(Some((every, times.unwrap_or(TIMES_MAX))))
}

fn read_change(table: &Table<'_>, kind: Kind) -> Result<Change, FileError> {
    let ppm = || {
        let percent = table.number("percent", 0.0..=100.0)?;
        Ok::<_, FileError>((table.required("percent", percent)? * 10_000.0).round() as u32)
    };
    Ok(match kind {
        Kind::Down => Change::Down,
        Kind::Loss => match table.whole("burst_packets", 1..=1_000_000)? {
            Some(packets) => Change::Bursts { loss_ppm: ppm()?, packets: packets as u32 },
            None => Change::Loss(ppm()?),
        },
        Kind::Corrupt => Change::Corrupt(ppm()?),
        Kind::Bleach => Change::Bleach(true),
        Kind::Delay => Change::Delay(table.required("delay_us", span(table, "delay_us", 1e6, 1e6)?)?),
        Kind::Rate => Change::Rate(table.required("gbps", rate(table, "gbps")?)?),
    })
}
