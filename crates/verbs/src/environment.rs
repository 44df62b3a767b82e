//! The settings that `srdma run` puts into a program's environment.
//!
//! A library inside somebody's process has no command line. A value that makes no sense is named on
//! stderr and ignored: the program must still run.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;

use srdma_client::{Options, Order, SelectorKind};

use crate::border::say;

/// What the environment asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    /// `SRDMA_ADDR`: the only address to offer as a device.
    pub(crate) address: Option<IpAddr>,
    /// Settings of the device.
    pub(crate) options: Options,
}

/// The settings, read once.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        parse(&get, &mut |complaint| say(complaint))
    })
}

fn number<T: FromStr>(
    name: &str,
    range: &str,
    get: &dyn Fn(&str) -> Option<String>,
    allowed: impl Fn(&T) -> bool,
    complain: &mut dyn FnMut(&str),
) -> Option<T> {
    let text = get(name)?;
    let value = text.parse().ok().filter(allowed);
    if value.is_none() {
        complain(&format!("{name}={text} is ignored: it must be {range}"));
    }
    value
}

fn parse(get: &dyn Fn(&str) -> Option<String>, complain: &mut dyn FnMut(&str)) -> Settings {
    let mut options = Options::default();
    if let Some(paths) = number("SRDMA_PATHS", "1 to 256", get, |p| (1..=256).contains(p), complain) {
        options.paths = paths;
    }
    if let Some(ppm) = number("SRDMA_LOSS_PPM", "0 to 1000000", get, |p| *p <= 1_000_000, complain) {
        options.loss_ppm = ppm;
    }
    options.seed = number("SRDMA_SEED", "a number", get, |_| true, complain);
    match get("SRDMA_SELECTOR").as_deref() {
        None | Some("oblivious") => {}
        Some("single") => options.selector = SelectorKind::Single,
        Some("rr") => options.selector = SelectorKind::RoundRobin,
        Some(other) => complain(&format!("SRDMA_SELECTOR={other} is ignored: single, rr or oblivious")),
    }
    match get("SRDMA_ORDER").as_deref() {
        None | Some("default") => {}
        Some("strict") => options.order = Order::Strict,
        Some("relaxed") => options.order = Order::Relaxed,
        Some(other) => complain(&format!("SRDMA_ORDER={other} is ignored: strict, default or relaxed")),
    }
    options.stats = get("SRDMA_STATS").map(PathBuf::from);
    options.trace = get("SRDMA_TRACE").map(PathBuf::from);
    options.no_gso = get("SRDMA_NO_GSO").is_some_and(|value| value != "0");
    let address = number("SRDMA_ADDR", "an IP address", get, |_| true, complain);
    Settings { address, options }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pairs: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let get = |name: &str| pairs.iter().find(|p| p.0 == name).map(|p| p.1.to_owned());
        let mut complaints = Vec::new();
        let settings = parse(&get, &mut |c| complaints.push(c.to_owned()));
        (settings, complaints)
    }

    #[test]
    fn every_variable_reaches_its_setting() {
        let (settings, complaints) = parsed(&[
            ("SRDMA_PATHS", "7"),
            ("SRDMA_SELECTOR", "rr"),
            ("SRDMA_LOSS_PPM", "10000"),
            ("SRDMA_SEED", "42"),
            ("SRDMA_ORDER", "strict"),
            ("SRDMA_STATS", "/tmp/s"),
            ("SRDMA_TRACE", "/tmp/t"),
            ("SRDMA_NO_GSO", "1"),
            ("SRDMA_ADDR", "127.0.0.1"),
        ]);
        let expected = Options {
            paths: 7,
            selector: SelectorKind::RoundRobin,
            order: Order::Strict,
            seed: Some(42),
            loss_ppm: 10_000,
            stats: Some("/tmp/s".into()),
            trace: Some("/tmp/t".into()),
            no_gso: true,
            ..Options::default()
        };
        assert_eq!(settings.options, expected);
        assert_eq!(settings.address, Some(IpAddr::from([127, 0, 0, 1])));
        assert!(complaints.is_empty(), "{complaints:?}");
    }

    #[test]
    fn nonsense_is_named_and_ignored() {
        for (name, value) in [
            ("SRDMA_PATHS", "0"),
            ("SRDMA_PATHS", "257"),
            ("SRDMA_PATHS", "many"),
            ("SRDMA_LOSS_PPM", "-1"),
            ("SRDMA_SELECTOR", "best"),
            ("SRDMA_ORDER", "loose"),
            ("SRDMA_ADDR", "localhost"),
            ("SRDMA_SEED", "x"),
        ] {
            let (settings, complaints) = parsed(&[(name, value)]);
            assert_eq!(settings, Settings::default(), "{name}={value}");
            assert!(complaints.len() == 1 && complaints[0].contains(name), "{complaints:?}");
        }
    }
}
