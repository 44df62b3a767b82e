//! One line on stderr when a connection dies for a reason outside the program: which ends, which
//! ports, what to try.
//!
//! A completion status of 12 says "no answer" and nothing else. What a person needs next is the
//! peer's address and port, so it is printed where the program runs. At most a few lines per process.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use srdma_abi::Cause;
use srdma_seams::{Qpn, Slot};

/// A job with thousands of queue pairs loses them all at once; the first few say it.
const LINES_MAX: u32 = 8;
static LINES: AtomicU32 = AtomicU32::new(0);

/// Whether the network or the peer is to blame, so that addresses help.
fn is_worth_telling(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::NoAnswer | Cause::NoHandshake | Cause::Unreachable | Cause::Version | Cause::PathMtu
    )
}

/// The line, if this cause deserves one. `faults`: a plan of faults is at work here, so nothing can be taken for real.
fn line(
    qpn: Qpn,
    local: IpAddr,
    peer: Option<SocketAddr>,
    peer_qpn: u32,
    code: u16,
    faults: bool,
) -> Option<String> {
    let (cause, injected) = Cause::from_vendor_err(u32::from(code))?;
    if injected {
        return Some(format!(
            "srdma: QP {:#08x} ({local}) fails on purpose, as --fault or SRDMA_FAULT asks: {cause:?}",
            qpn.0
        ));
    }
    let peer = Some(cause).filter(|cause| is_worth_telling(*cause)).and(peer)?;
    let caveat = if faults { " Faults are being injected here (--fault, --loss)." } else { "" };
    let (here, there): (Slot, Slot) = (qpn.slot(), Qpn(peer_qpn).slot());
    Some(format!(
        "srdma: QP {:#08x} ({local}, slot {here}, UDP port {}) lost QP {peer_qpn:#08x} ({}, slot {there}, UDP \
         port {}): {}{caveat} Try: srdma check {}",
        qpn.0,
        here.port(),
        peer.ip(),
        there.port(),
        cause.row().what,
        peer.ip(),
    ))
}

/// Prints the line, if this cause deserves one and not too many were printed.
pub(crate) fn lost(
    qpn: Qpn,
    local: IpAddr,
    peer: Option<SocketAddr>,
    peer_qpn: u32,
    code: u16,
    faults: bool,
) {
    if let Some(line) = line(qpn, local, peer, peer_qpn, code, faults) {
        print(&line);
    }
}

/// Says that only packets of `mtu_bytes` UDP payload still reach the peer: the connection goes on, slower.
pub(crate) fn narrowed(qpn: Qpn, local: IpAddr, peer: SocketAddr, mtu_bytes: u16) {
    print(&narrowed_line(qpn, local, peer, mtu_bytes));
}

fn narrowed_line(qpn: Qpn, local: IpAddr, peer: SocketAddr, mtu_bytes: u16) -> String {
    let mtu = u32::from(mtu_bytes) + if peer.is_ipv4() { 28 } else { 48 };
    format!(
        "srdma: QP {:#08x} ({local}): larger packets no longer reach {}: the path passes an MTU of {mtu}, which is \
         less than when it connected. It goes on with smaller packets if it can. Try: srdma check {}",
        qpn.0,
        peer.ip(),
        peer.ip(),
    )
}

fn print(line: &str) {
    use std::io::Write;
    match LINES.fetch_add(1, Ordering::Relaxed) {
        // A closed stderr is not worth a panic.
        before if before < LINES_MAX => drop(writeln!(std::io::stderr(), "{line}")),
        LINES_MAX => drop(writeln!(std::io::stderr(), "srdma: more connections were lost; see --stats")),
        _ => {}
    }
}

/// Says that the program has taken our descriptors away, once per device.
pub(crate) fn descriptors_lost(slot: Option<(IpAddr, Slot)>) {
    use std::io::Write;
    let device =
        slot.map_or("a device".into(), |(local, slot)| format!("{local} (UDP port {})", slot.port()));
    let text = format!(
        "srdma: this program has closed descriptors that are not its own, those of {device} among them; its queue \
         pairs fail. Descriptors must be closed by number, or all of them before the first RDMA call."
    );
    // A closed stderr is not worth a panic.
    drop(writeln!(std::io::stderr(), "{text}"));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use srdma_abi::cause::INJECTED;

    #[test]
    fn a_silent_peer_is_named_with_address_slot_and_port_on_both_sides() {
        let peer = Some(SocketAddr::from(([10, 0, 0, 2], 61001)));
        let local = IpAddr::from([10, 0, 0, 1]);
        let told = line(Qpn(0x1234), local, peer, 0x01_0007, Cause::NoHandshake as u16, false).unwrap();
        for part in [
            "0x001234",
            "10.0.0.1",
            "slot 0",
            "4791",
            "0x010007",
            "10.0.0.2",
            "slot 1",
            "61001",
            "srdma check 10.0.0.2",
        ] {
            assert!(told.contains(part), "{part} is missing in: {told}");
        }
        assert!(!told.contains("injected"), "{told}");
    }

    #[test]
    fn what_faults_on_purpose_may_have_caused_is_said_to_be_so() {
        let (peer, local) = (Some(SocketAddr::from(([10, 0, 0, 2], 61001))), IpAddr::from([10, 0, 0, 1]));
        let told = line(Qpn(2), local, peer, 3, Cause::NoAnswer as u16, true).unwrap();
        assert!(told.contains("Faults are being injected here"), "{told}");
        let told = line(Qpn(2), local, peer, 3, Cause::LocalKey as u16 | INJECTED, true).unwrap();
        assert!(told.contains("fails on purpose") && told.contains("LocalKey"), "{told}");
    }

    #[test]
    fn a_narrowed_path_is_named_with_the_mtu_that_is_left() {
        for (peer, mtu) in [("10.0.0.2:4791", "1500"), ("[fd00::2]:4791", "1520")] {
            let told = narrowed_line(Qpn(9), IpAddr::from([10, 0, 0, 1]), peer.parse().unwrap(), 1472);
            assert!(told.contains(&format!("MTU of {mtu}")) && told.contains("srdma check"), "{told}");
        }
    }

    #[test]
    fn failures_that_the_program_caused_itself_are_its_own_business() {
        let peer = Some(SocketAddr::from(([10, 0, 0, 2], 61001)));
        for cause in [Cause::Flushed, Cause::RemoteKey, Cause::PeerClosed, Cause::LocalKey] {
            assert_eq!(line(Qpn(2), IpAddr::from([10, 0, 0, 1]), peer, 3, cause as u16, true), None);
        }
    }
}
