//! The settings of [`Options`] as text: a variable's name, what it may hold, and what that means. Whoever reads an
//! environment (a library inside a program, a command) takes names and rules from here, so that all agree.

use std::fmt;
use std::path::PathBuf;

use srdma_rnic::Order;
use srdma_seams::Faults;
use srdma_transport::SelectorKind;

use crate::options::Options;

/// A setting by the name of its environment variable.
pub struct Variable {
    /// Name, `SRDMA_…`.
    pub name: &'static str,
    /// What it may hold, in words that follow "must be".
    pub allowed: &'static str,
    set: fn(&mut Options, &str) -> Option<()>,
}

const FAULT: &str = "SRDMA_FAULT";

/// Every variable that is a setting of a device.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "SRDMA_PATHS",
        allowed: "a whole number from 1 to 256",
        set: |options, text| text.parse().ok().filter(|n| (1..=256).contains(n)).map(|n| options.paths = n),
    },
    Variable {
        name: "SRDMA_SELECTOR",
        allowed: SelectorKind::ONE_OF,
        set: |options, text| SelectorKind::named(text).map(|kind| options.selector = kind),
    },
    Variable {
        name: FAULT,
        allowed: "a fault script such as \"drop 1%\", or the file it is in",
        set: |options, text| srdma_script::load(text).ok().map(|faults| options.faults = faults),
    },
    Variable {
        name: "SRDMA_LOSS",
        allowed: "a percentage from 0 to 100 such as 1, 1% or 0.5, in steps of 0.0001",
        set: |options, text| {
            let ppm = ppm_of_percent(text)?;
            options.faults.packets.extend(Faults::loss(ppm).packets.into_iter().filter(|_| ppm > 0));
            Some(())
        },
    },
    Variable {
        name: "SRDMA_SEED",
        allowed: "a whole number of at most 64 bits, decimal or 0x…",
        set: |options, text| seed(text).map(|seed| options.seed = Some(seed)),
    },
    Variable {
        name: "SRDMA_ORDER",
        allowed: "strict, default or relaxed",
        set: |options, text| {
            options.order = match text {
                "strict" => Order::Strict,
                "default" => Order::Default,
                "relaxed" => Order::Relaxed,
                _ => return None,
            };
            Some(())
        },
    },
    Variable {
        name: "SRDMA_STATS",
        allowed: "a file name",
        set: |options, text| {
            options.stats = Some(PathBuf::from(text));
            Some(())
        },
    },
    Variable {
        name: "SRDMA_TRACE",
        allowed: "a file name",
        set: |options, text| {
            options.trace = Some(PathBuf::from(text));
            Some(())
        },
    },
    Variable {
        name: "SRDMA_STATS_SOCKET",
        allowed: "off, or the absolute path of a directory",
        set: |options, text| {
            options.watch = match text {
                "off" => None,
                _ if text.starts_with('/') => Some(PathBuf::from(text)),
                _ => return None,
            };
            Some(())
        },
    },
    Variable {
        name: "SRDMA_NO_GSO",
        allowed: "0 or 1",
        set: |options, text| {
            options.no_gso = match text {
                "0" => false,
                "1" => true,
                _ => return None,
            };
            Some(())
        },
    },
    Variable {
        name: "SRDMA_SOCKET_BUFFER",
        allowed: "a whole number of bytes from 65536 to 1073741824",
        set: |options, text| {
            let bytes = text.parse().ok().filter(|bytes| (1 << 16..=1 << 30).contains(bytes));
            bytes.map(|bytes| options.socket_buffer_bytes_max = bytes)
        },
    },
];

/// A variable that holds what it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub value: String,
    /// What it may hold.
    pub allowed: &'static str,
    /// What exactly is wrong, where `allowed` does not say it.
    pub detail: Option<String>,
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadValue { name, value, allowed, detail } = self;
        match detail {
            Some(detail) => write!(f, "{name} in the environment is refused: {detail}; correct or unset it"),
            None => {
                write!(
                    f,
                    "{name}={value} in the environment is refused: it must be {allowed}; correct or unset it"
                )
            }
        }
    }
}

impl std::error::Error for BadValue {}

impl Options {
    /// The defaults, changed by each variable for which `value` gives a text that is not empty.
    ///
    /// # Errors
    /// The first variable that holds what it must not.
    pub fn from_variables(value: &dyn Fn(&str) -> Option<String>) -> Result<Options, BadValue> {
        let mut options = Options::default();
        for Variable { name, allowed, set } in VARIABLES {
            let Some(text) = value(name).filter(|text| !text.is_empty()) else { continue };
            if set(&mut options, &text).is_none() {
                let script = || srdma_script::load(&text).err().map(|error| error.to_string());
                let detail = if *name == FAULT { script() } else { None };
                return Err(BadValue { name, value: text, allowed, detail });
            }
        }
        Ok(options)
    }
}

/// Percent, with or without the sign, as parts per million. What rounds to nothing is refused unless it is 0.
pub fn ppm_of_percent(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let percent: f64 = number.parse().ok().filter(|percent| (0.0..=100.0).contains(percent))?;
    let ppm = (percent * 10_000.0).round() as u32;
    (ppm > 0 || percent == 0.0).then_some(ppm)
}

/// A seed, decimal or `0x…`.
pub fn seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Options, BadValue> {
        Options::from_variables(&|name| {
            pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
        })
    }

    #[test]
    fn every_variable_reaches_its_setting_and_an_empty_one_sets_nothing() {
        let given = of(&[
            ("SRDMA_PATHS", "7"),
            ("SRDMA_SELECTOR", "rr"),
            ("SRDMA_LOSS", "0.5%"),
            ("SRDMA_FAULT", "duplicate 2%"),
            ("SRDMA_SEED", "0x2a"),
            ("SRDMA_ORDER", "strict"),
            ("SRDMA_STATS", "/tmp/s"),
            ("SRDMA_TRACE", "/tmp/t"),
            ("SRDMA_STATS_SOCKET", "/tmp/w"),
            ("SRDMA_NO_GSO", "1"),
            ("SRDMA_SOCKET_BUFFER", "212992"),
        ]);
        let expected = Options {
            paths: 7,
            selector: SelectorKind::RoundRobin,
            order: Order::Strict,
            seed: Some(42),
            faults: srdma_script::parse("duplicate 2%; drop 0.5%").unwrap(),
            stats: Some("/tmp/s".into()),
            trace: Some("/tmp/t".into()),
            watch: Some("/tmp/w".into()),
            no_gso: true,
            socket_buffer_bytes_max: 212_992,
            ..Options::default()
        };
        assert_eq!(given.unwrap(), expected);
        let empty: Vec<(&str, &str)> = VARIABLES.iter().map(|variable| (variable.name, "")).collect();
        assert_eq!(of(&empty).unwrap(), Options::default());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_name_value_and_range() {
        for (name, value, range) in [
            ("SRDMA_PATHS", "0", "1 to 256"),
            ("SRDMA_PATHS", "257", "1 to 256"),
            ("SRDMA_PATHS", "many", "1 to 256"),
            ("SRDMA_SELECTOR", "best", "one of single, rr, oblivious, "),
            ("SRDMA_LOSS", "-1", "0 to 100"),
            ("SRDMA_LOSS", "101", "0 to 100"),
            ("SRDMA_LOSS", "NaN", "0 to 100"),
            ("SRDMA_LOSS", "0.00001", "0.0001"),
            ("SRDMA_SEED", "0xg", "64 bits"),
            ("SRDMA_ORDER", "loose", "strict, default or relaxed"),
            ("SRDMA_STATS_SOCKET", "here", "absolute path"),
            ("SRDMA_NO_GSO", "yes", "0 or 1"),
            ("SRDMA_SOCKET_BUFFER", "65535", "from 65536"),
            ("SRDMA_SOCKET_BUFFER", "1M", "whole number of bytes"),
        ] {
            let said = of(&[(name, value)]).unwrap_err().to_string();
            assert!(said.contains(&format!("{name}={value} ")) && said.contains(range), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
        let said = of(&[("SRDMA_FAULT", "drop\ndrop 1% sideways")]).unwrap_err().to_string();
        assert!(
            said.contains("SRDMA_FAULT") && said.contains("line 2") && said.contains("sideways"),
            "{said}"
        );
    }
}
