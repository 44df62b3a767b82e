//! Names of enumeration values, as programs print and people search for them; and rates.

use libc::{c_char, c_int};
use std::ffi::CStr;

fn name(table: &[&'static CStr], index: i64) -> *const c_char {
    usize::try_from(index).ok().and_then(|i| table.get(i)).copied().unwrap_or(c"unknown").as_ptr()
}

const WC_STATUS: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const EVENT_TYPE: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const PORT_STATE: [&CStr; 6] =
    [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

const NODE_TYPE: [&CStr; 8] = [
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const WR_OPCODE: [&CStr; 16] = [
    c"RDMA_WRITE",
    c"RDMA_WRITE_WITH_IMM",
    c"SEND",
    c"SEND_WITH_IMM",
    c"RDMA_READ",
    c"ATOMIC_CMP_AND_SWP",
    c"ATOMIC_FETCH_AND_ADD",
    c"LOCAL_INV",
    c"BIND_MW",
    c"SEND_WITH_INV",
    c"TSO",
    c"DRIVER1",
    c"unknown",
    c"unknown",
    c"FLUSH",
    c"ATOMIC_WRITE",
];

/// Name of a completion status.
#[no_mangle]
pub extern "C" fn ibv_wc_status_str(status: u32) -> *const c_char {
    name(&WC_STATUS, status.into())
}

/// Name of an asynchronous event.
#[no_mangle]
pub extern "C" fn ibv_event_type_str(event: u32) -> *const c_char {
    name(&EVENT_TYPE, event.into())
}

/// Name of a port state.
#[no_mangle]
pub extern "C" fn ibv_port_state_str(state: u32) -> *const c_char {
    name(&PORT_STATE, state.into())
}

/// Name of a node type.
#[no_mangle]
pub extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    name(&NODE_TYPE, node_type.into())
}

/// Name of a send opcode.
#[no_mangle]
pub extern "C" fn ibv_wr_opcode_str(opcode: u32) -> *const c_char {
    name(&WR_OPCODE, opcode.into())
}

/// (`enum ibv_rate`, multiple of 2.5 Gbit/s or 0 if it has none, Mbit/s); IBTA table of static rates.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 0, 14_062),
    (12, 0, 56_250),
    (13, 0, 112_500),
    (14, 0, 168_750),
    (15, 0, 25_781),
    (16, 0, 103_125),
    (17, 0, 206_250),
    (18, 0, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// Multiple of 2.5 Gbit/s of a rate; −1 if it is none.
#[no_mangle]
pub extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|r| r.0 == rate && r.1 != 0).map_or(-1, |r| r.1)
}

/// Rate of a multiple of 2.5 Gbit/s; `IBV_RATE_MAX` (0) if there is none.
#[no_mangle]
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    RATES.iter().find(|r| mult != 0 && r.1 == mult).map_or(0, |r| r.0)
}

/// Mbit/s of a rate; −1 if it is none.
#[no_mangle]
pub extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|r| r.0 == rate).map_or(-1, |r| r.2)
}

/// Rate of a speed in Mbit/s; `IBV_RATE_MAX` (0) if there is none.
#[no_mangle]
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|r| r.2 == mbps).map_or(0, |r| r.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pointer: *const c_char) -> String {
        // SAFETY: the functions under test return constant C strings.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    }

    #[test]
    fn values_outside_an_enumeration_are_unknown() {
        assert_eq!(text(ibv_wc_status_str(12)), "transport retry counter exceeded");
        assert_eq!(text(ibv_wc_status_str(24)), "unknown");
        assert_eq!(text(ibv_wc_status_str(u32::MAX)), "unknown");
        assert_eq!(text(ibv_event_type_str(18)), "GID table change");
        assert_eq!(text(ibv_event_type_str(99)), "unknown");
        assert_eq!(text(ibv_port_state_str(4)), "active");
        assert_eq!(text(ibv_node_type_str(-1)), "unknown");
        assert_eq!(text(ibv_node_type_str(1)), "InfiniBand channel adapter");
    }

    #[test]
    fn each_rate_survives_the_way_through_mbps_and_back() {
        for (rate, mult, mbps) in RATES {
            assert_eq!(ibv_rate_to_mbps(rate), mbps);
            assert_eq!(mbps_to_ibv_rate(mbps), rate);
            if mult != 0 {
                assert_eq!(mult_to_ibv_rate(ibv_rate_to_mult(rate)), rate);
            } else {
                assert_eq!(ibv_rate_to_mult(rate), -1);
            }
        }
        assert_eq!((ibv_rate_to_mbps(99), mult_to_ibv_rate(0), mult_to_ibv_rate(3)), (-1, 0, 0));
    }
}
