//! A text becomes a scenario. Numbers carry their units in their keys; every key has a default unless said otherwise.

use srdma_fabric::{Graph, Rate, Time};
use srdma_rnic::Order;
use srdma_seams::Duration;
use srdma_transport::{CongestionKind, SelectorKind};
use toml::de::{DeTable, DeValue};
use toml::Spanned;

use crate::capacity::check_windows;
use crate::fault::read_fault;
use crate::job::{Job, Workload};
use crate::network::{read_network, Network};
use crate::reader::{FileError, Source, Table};
use crate::scenario::{Scenario, Settings, Variant};
use crate::scenario::{DEFAULT_LIMIT, DEFAULT_SAMPLE};
use crate::work::read_jobs;

/// Whether paths have windows of their own.
const WINDOWS: [(&str, bool); 2] = [("shared", false), ("per-path", true)];

const ORDERS: [(&str, Order); 3] =
    [("strict", Order::Strict), ("default", Order::Default), ("relaxed", Order::Relaxed)];

/// Reads the scenario `text`; `file` is what errors call it. A network or workload that is given goes before what the
/// text says.
pub fn parse(
    file: &str,
    text: &str,
    graph: Option<Graph>,
    workload: Option<Workload>,
) -> Result<Scenario, FileError> {
    parse_with(file, text, graph, workload, &[])
}

/// The same with some values put in: keys with dots (`fault.0.percent` is of the first fault), values as TOML has them.
pub(crate) fn parse_with(
    file: &str,
    text: &str,
    graph: Option<Graph>,
    workload: Option<Workload>,
    settings: &[(String, String)],
) -> Result<Scenario, FileError> {
    let source = Source { file, text };
    let mut parsed = DeTable::parse(text).map_err(|error| {
        source.error(error.span().map_or(0, |span| span.start), error.message().replace('\n', "; "))
    })?;
    for (key, value) in settings {
        put(parsed.get_mut(), key, value)
            .ok_or_else(|| source.error(0, format!("{key}: {value} cannot stand there")))?;
    }
    let root = Table::new(source, "", parsed.get_ref(), parsed.span());
    let name = root.text("name")?.map_or("scenario", |found| found.value).to_owned();
    let seed = root.whole("seed", 0..=u64::MAX)?.unwrap_or(1);
    let topology = root.table("topology")?;
    let Network { graph, polarised, trims } = match graph {
        Some(graph) => Network { graph, polarised: false, trims: false },
        None => read_network(&root.required("[topology]", topology)?)?,
    };
    let base = match root.table("transport")? {
        Some(table) => {
            let settings = read_settings(&table, &Settings::default())?;
            check_windows(&table, &graph)?;
            table.finish()?;
            settings
        }
        None => Settings::default(),
    };
    let jobs = match workload {
        Some(workload) => {
            root.ignore(&["workload", "job"]);
            vec![Job::plain("job 1", workload)]
        }
        None => read_jobs(&root, &graph, seed)?,
    };
    let faults =
        root.tables("fault")?.iter().map(|table| read_fault(table, &graph)).collect::<Result<_, _>>()?;
    let (limit, sample_every, warm_up) = read_run(root.table("run")?)?;
    let variants = read_variants(&root, &base, &graph)?;
    root.finish()?;
    let scenario = Scenario {
        name,
        seed,
        graph,
        polarised,
        trims,
        jobs,
        faults,
        limit,
        warm_up,
        sample_every,
        variants,
    };
    scenario.validate().map_err(|error| root.error(&error.to_string()))?;
    Ok(scenario)
}

/// Puts a value where `key` leads; tables on the way are made. It is taken to stand where the old one stood.
fn put<'a>(root: &mut DeTable<'a>, key: &'a str, value: &'a str) -> Option<()> {
    let value = DeValue::parse(value).ok()?.into_inner();
    let new = || Spanned::new(0..0, DeValue::Table(DeTable::new()));
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let mut place = root.entry(Spanned::new(0..0, first.into())).or_insert_with(new);
    for part in rest.into_iter().flat_map(|rest| rest.split('.')) {
        place = match place.get_mut() {
            DeValue::Table(table) => table.entry(Spanned::new(0..0, part.into())).or_insert_with(new),
            DeValue::Array(list) => list.get_mut(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    *place = Spanned::new(place.span(), value);
    Some(())
}

pub(crate) fn rate(table: &Table<'_>, key: &'static str) -> Result<Option<Rate>, FileError> {
    let gbps = table.number(key, 0.001..=8000.0)?;
    Ok(gbps.and_then(|gbps| Rate::from_bits_per_second((gbps * 1e9) as u64)))
}

pub(crate) fn span(
    table: &Table<'_>,
    key: &'static str,
    unit_ps: f64,
    most: f64,
) -> Result<Option<Time>, FileError> {
    Ok(table.number(key, 0.0..=most)?.map(|number| Time((number * unit_ps) as u64)))
}

/// Settings as `table` changes those of `base`. The caller finishes the table.
fn read_settings(table: &Table<'_>, base: &Settings) -> Result<Settings, FileError> {
    let micros = |key, default| {
        let number = table.number(key, 0.001..=10_000_000.0)?;
        Ok::<_, FileError>(number.map_or(default, |us: f64| Duration((us * 1e3) as u64)))
    };
    let kib = |key, default| {
        let number = table.whole(key, 1..=1 << 30)?;
        Ok::<_, FileError>(number.map_or(default, |kib| kib << 10))
    };
    let settings = Settings {
        paths: table.whole("paths", 1..=256)?.map_or(base.paths, |paths| paths as u16),
        selector: table.choice("selector", SelectorKind::ALL)?.map_or(base.selector, |found| found.value),
        order: table.choice("order", &ORDERS)?.map_or(base.order, |found| found.value),
        payload_bytes: read_payload(table)?.unwrap_or(base.payload_bytes),
        unit_packets: table.whole("unit_packets", 1..=64)?.map_or(base.unit_packets, |count| count as u8),
        congestion: table
            .choice("congestion", CongestionKind::ALL)?
            .map_or(base.congestion, |found| found.value),
        path_windows: table.choice("windows", &WINDOWS)?.map_or(base.path_windows, |found| found.value),
        window_initial_bytes: kib("window_initial_kib", base.window_initial_bytes)?,
        window_max_bytes: kib("window_max_kib", base.window_max_bytes)?,
        target_delay: micros("target_delay_us", base.target_delay)?,
        rto_min: micros("rto_min_us", base.rto_min)?,
        grain: micros("grain_us", base.grain)?,
    };
    if settings.window_initial_bytes > settings.window_max_bytes {
        return Err(table.error("window_initial_kib is larger than window_max_kib"));
    }
    Ok(settings)
}

/// Packets carry multiples of 8 bytes, as the wire wants it.
fn read_payload(table: &Table<'_>) -> Result<Option<u16>, FileError> {
    let Some(bytes) = table.whole("payload_bytes", 440..=61_440)? else { return Ok(None) };
    if bytes % 8 != 0 {
        return Err(table.error(&format!("payload_bytes must be a multiple of 8, not {bytes}")));
    }
    Ok(Some(bytes as u16))
}

fn read_variants(root: &Table<'_>, base: &Settings, graph: &Graph) -> Result<Vec<Variant>, FileError> {
    let mut variants: Vec<Variant> = Vec::new();
    for table in root.tables("variant")? {
        let name = table.text("name")?;
        let name = table.required("name", name)?;
        if variants.iter().any(|other| other.name == name.value) {
            return Err(table.error_at(name.at, "name", "must differ from that of every other variant"));
        }
        let settings = read_settings(&table, base)?;
        check_windows(&table, graph)?;
        table.finish()?;
        variants.push(Variant { name: name.value.to_owned(), settings });
    }
    if variants.is_empty() {
        variants.push(Variant { name: base.name(), settings: base.clone() });
    }
    Ok(variants)
}

fn read_run(table: Option<Table<'_>>) -> Result<(Time, Time, Time), FileError> {
    let (limit, sample) = (DEFAULT_LIMIT, DEFAULT_SAMPLE);
    let Some(table) = table else { return Ok((limit, sample, Time(0))) };
    let read = (
        span(&table, "limit_ms", 1e9, 1e6)?.unwrap_or(limit),
        span(&table, "sample_us", 1e6, 1e6)?.unwrap_or(sample),
        span(&table, "warm_up_us", 1e6, 1e9)?.unwrap_or_default(),
    );
    if read.1 == Time(0) {
        return Err(table.error("sample_us must be more than 0"));
    }
    table.finish()?;
    Ok(read)
}
