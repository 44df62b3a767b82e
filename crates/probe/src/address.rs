//! The addresses of this host that a peer can reach, and which of them faces a given peer. What counts as
//! usable is the sockets room's to say: a device must stand on the same list that is checked here.

use srdma_net::interfaces::{usable_addresses, LocalAddress};
use std::io;
use std::net::IpAddr;

/// The usable addresses of this host, best first, loopback left out.
pub fn usable() -> io::Result<Vec<LocalAddress>> {
    usable_addresses(false)
}

/// The address that this host sends from to reach `peer`; an error is the kernel's word that it has no
/// route. Nothing is sent.
pub fn source_for(peer: IpAddr) -> io::Result<IpAddr> {
    srdma_net::route::source_for(peer)
}

/// MTU in bytes of the interface that has `address`; `None` if none has it, or it is not known.
pub fn mtu_of(address: IpAddr) -> Option<u32> {
    // All of 127.0.0.0/8 is this host's, but only what was configured is listed.
    let same = |own: &LocalAddress| match address.is_loopback() {
        true => own.interface.is_loopback(),
        false => own.ip == address,
    };
    let own = usable_addresses(true).ok()?.into_iter().find(same)?;
    (own.interface.mtu_bytes > 0).then_some(own.interface.mtu_bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn loopback_is_its_own_source_and_never_usable() {
        for loopback in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            assert_eq!(source_for(loopback).unwrap(), loopback);
            assert!(usable().unwrap().iter().all(|own| own.ip != loopback));
            assert!(mtu_of(loopback).unwrap() >= 1280);
        }
        assert!(mtu_of(IpAddr::from([127, 9, 9, 9])).is_some());
        assert_eq!(mtu_of(IpAddr::from([203, 0, 113, 9])), None);
    }
}
