//! Faults on purpose: what a plan of faults does to a device, and that nobody can take it for the real thing.

use srdma_abi::cause::INJECTED;
use srdma_abi::{Cause, Opcode, QpState};
use srdma_client::Options;

use crate::ground::*;
use crate::operations::Stage;

const SEED: u64 = 0xfa;

fn scripted(script: &str) -> Options {
    Options { faults: srdma_script::parse(script).unwrap(), seed: Some(SEED), ..options() }
}

#[test]
fn every_operation_through_faults_of_every_kind_both_ways_and_while_the_device_stands_still() {
    let packets = "drop 2%; duplicate 2%; corrupt 2%; delay 3ms 4%; drop 10% burst on 1mod4; \
                   drop 2% receive; duplicate 2% receive; corrupt 2% receive; delay 3ms 4% ack receive";
    let pair = Pair::with(&scripted(&format!("{packets}; freeze for 10ms every 60ms")));
    Stage::new(&pair.a, &pair.b).run_all();
    for host in [pair.a.host, pair.b.host] {
        let faults = &host.report()["faults"];
        assert_eq!(faults["seed"], SEED);
        for kind in ["drops", "duplicates", "corruptions", "delays", "freezes"] {
            assert!(faults[kind].as_u64().unwrap() > 0, "no {kind}: {faults:#}");
        }
        assert_eq!(faults["failures"], 0);
    }
}

#[test]
fn a_work_request_that_fails_on_purpose_says_so() {
    let pair = Pair::with(&scripted("fail send 2 of qp 1 with RemoteKey"));
    let ((here, lkey), (there, rkey)) = (pair.a.host.region(4096), pair.b.host.region(4096));
    for number in 1..=3 {
        let write = entry(Opcode::Write, number, &[sge(&here, 0, 8, lkey)]);
        pair.a.post(to_remote(write, there.address(), rkey));
    }
    let injected = Cause::RemoteKey as u32 | u32::from(INJECTED);
    let struck = (2, Cause::RemoteKey.status() as u8, injected);
    assert_eq!(outcomes(&pair.a.sent(3)), [done(1), struck, failed(3, Cause::Flushed)]);
    assert_eq!(pair.a.state(), QpState::Err);
    assert_eq!(pair.a.counters()["failure"], injected);
    assert_eq!(pair.a.host.report()["faults"]["failures"], 1);
}

#[test]
fn a_device_without_a_plan_reports_none() {
    assert!(Pair::new().a.host.report()["faults"].is_null());
}
