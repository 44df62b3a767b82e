//! The software RNIC's settings for this process: the options, and where one is not given, the variable
//! that it would set (the table in [`crate::options`]).

use super::failure::Failure;
use crate::options::NicOptions;
use srdma_client::{watching, DeviceInfo, Options};
use std::net::{IpAddr, UdpSocket};

/// MTU assumed for an address that no interface lists, such as 127.0.0.2.
const UNLISTED_MTU_BYTES: u32 = 1500;

/// The settings; `inherited` gives the present value of a variable. `srdma stats` sees this process, too.
pub fn options(nic: &NicOptions, inherited: &dyn Fn(&str) -> Option<String>) -> Result<Options, Failure> {
    let settings = nic.settings(inherited).map_err(|error| Failure::Setting(error.to_string()))?;
    Ok(Options { watch: watching::directory(inherited), ..settings })
}

/// The address that is asked for, by option or environment.
pub fn address(
    nic: &NicOptions,
    inherited: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<IpAddr>, Failure> {
    match (nic.addr, inherited("SRDMA_ADDR").filter(|text| !text.is_empty())) {
        (Some(address), _) => Ok(Some(address)),
        (None, None) => Ok(None),
        (None, Some(text)) => match text.parse() {
            Ok(address) => Ok(Some(address)),
            Err(_) => {
                Err(Failure::Setting(format!("SRDMA_ADDR={text} is no IP address; correct or unset it")))
            }
        },
    }
}

/// The device at `address`. Every address that a socket can be bound to will do: the kernel takes all of
/// 127.0.0.0/8 for its own and lists only one of them.
pub fn device_at(address: IpAddr) -> Result<DeviceInfo, Failure> {
    let listed = srdma_client::devices(Some(address))?;
    if let Some(info) = listed.into_iter().next() {
        return Ok(info);
    }
    UdpSocket::bind((address, 0))
        .map_err(|error| Failure::Setting(format!("{address} cannot be used here: {error}")))?;
    Ok(DeviceInfo {
        name: "stellar0".into(),
        address,
        interface: String::new(),
        interface_index: 0,
        mtu_bytes: UNLISTED_MTU_BYTES,
        guid: [0; 8],
        socket: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use srdma_client::{Faults, Order};

    #[test]
    fn an_option_wins_over_its_variable() {
        let nic = NicOptions { paths: Some(7), loss: Some(10_000), ..NicOptions::default() };
        let inherited = |name: &str| match name {
            "SRDMA_PATHS" => Some("9".to_owned()),
            "SRDMA_ORDER" => Some("strict".to_owned()),
            "SRDMA_SELECTOR" => Some(String::new()),
            "SRDMA_STATS_SOCKET" => Some("off".to_owned()),
            _ => None,
        };
        let wanted =
            Options { paths: 7, faults: Faults::loss(10_000), order: Order::Strict, ..Options::default() };
        assert_eq!(options(&nic, &inherited).unwrap(), wanted);
    }

    #[test]
    fn a_variable_that_makes_no_sense_is_named() {
        for (name, value) in
            [("SRDMA_FAULT", "drop all"), ("SRDMA_PATHS", "0"), ("SRDMA_ORDER", "loose"), ("SRDMA_SEED", "-")]
        {
            let inherited = |asked: &str| (asked == name).then(|| value.to_owned());
            let error = options(&NicOptions::default(), &inherited).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn any_loopback_address_is_a_device_and_a_foreign_one_is_not() {
        for address in ["127.0.0.1", "127.0.0.2", "::1"] {
            assert_eq!(device_at(address.parse().unwrap()).unwrap().address.to_string(), address);
        }
        assert!(device_at("203.0.113.5".parse().unwrap()).is_err());
    }
}
