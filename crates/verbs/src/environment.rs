//! The settings that `srdma run` puts into a program's environment.
//!
//! A library inside somebody's process has no command line: a value that makes no sense is named on stderr, and no
//! device starts, because a program that ran with another setting than asked for would show something else than
//! what was to be seen.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::OnceLock;

use srdma_client::{watching, BadValue, Options};

use crate::border::{log_wanted, say, Errno};

/// What the environment asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    /// `SRDMA_ADDR`: the only address to offer as a device.
    pub(crate) address: Option<IpAddr>,
    /// `SRDMA_VDEV`: the socket of the virtual device to offer instead.
    pub(crate) socket: Option<PathBuf>,
    /// Settings of the device.
    pub(crate) options: Options,
}

/// The settings, read once; EINVAL, said on stderr once, if one of them makes no sense.
pub(crate) fn settings() -> Result<&'static Settings, Errno> {
    static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
    let read = || {
        let get = |name: &str| std::env::var(name).ok();
        let parsed = parse(&get).map(|mut settings| {
            settings.options.watch = watching::directory(&get);
            settings.options.log = log_wanted();
            settings
        });
        parsed.map_err(|bad| say(&format!("no device: {bad}"))).ok()
    };
    SETTINGS.get_or_init(read).as_ref().ok_or(Errno::EINVAL)
}

fn parse(value: &dyn Fn(&str) -> Option<String>) -> Result<Settings, BadValue> {
    let options = Options::from_variables(value)?;
    let address = match value("SRDMA_ADDR").filter(|text| !text.is_empty()) {
        Some(text) => Some(text.parse().map_err(|_| BadValue {
            name: "SRDMA_ADDR",
            value: text,
            allowed: "an IP address of this host",
            detail: None,
        })?),
        None => None,
    };
    let socket = match value("SRDMA_VDEV").filter(|text| !text.is_empty()) {
        Some(text) if text.starts_with('/') => Some(text.into()),
        Some(text) => {
            let allowed = "the path of a virtual device's socket, from the root";
            return Err(BadValue { name: "SRDMA_VDEV", value: text, allowed, detail: None });
        }
        None => None,
    };
    Ok(Settings { address, socket, options })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(pairs: &[(&str, &str)]) -> Result<Settings, BadValue> {
        parse(&|name| pairs.iter().find(|p| p.0 == name).map(|p| p.1.to_owned()))
    }

    #[test]
    fn variables_reach_the_device_and_its_address() {
        let settings = parsed(&[("SRDMA_PATHS", "7"), ("SRDMA_ADDR", "127.0.0.1")]).unwrap();
        assert_eq!((settings.options.paths, settings.address), (7, Some(IpAddr::from([127, 0, 0, 1]))));
        assert_eq!(parsed(&[("SRDMA_PATHS", ""), ("SRDMA_ADDR", "")]).unwrap(), Settings::default());
        let settings = parsed(&[("SRDMA_VDEV", "/run/x/vdev-a")]).unwrap();
        assert_eq!(settings.socket, Some("/run/x/vdev-a".into()));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (name, value) in [("SRDMA_PATHS", "0"), ("SRDMA_ADDR", "localhost"), ("SRDMA_VDEV", "a")] {
            let said = parsed(&[(name, value)]).unwrap_err().to_string();
            assert!(said.contains(&format!("{name}={value}")), "{said}");
        }
    }
}
