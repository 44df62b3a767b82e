//! Life cycle, handles, quotas.

use srdma_abi::command::*;
use srdma_vstellar::host::Change;
use srdma_vstellar::Who;

use crate::model::{name, Ground};

fn number(number: u32) -> Number {
    Number { number, reserved: 0 }
}

#[test]
fn what_a_program_makes_is_counted_and_goes_when_it_goes() {
    let mut ground = Ground::new();
    let device = ground.define("a", "t", Quota::default());
    let session = ground.attach(device);
    let made = ground.make(session);
    let used = ground.row("a").used;
    let expected = Quota {
        pds: 1,
        mrs: 1,
        cqs: 1,
        qps: 1,
        channels: 1,
        sessions: 1,
        memory_bytes: 4096,
        ring_bytes: 8 * 64 + 4 * 64,
    };
    assert_eq!(used, expected);
    ground.ask(session, EndQp(number(made.qp))).unwrap();
    ground.leave(session);
    assert_eq!(ground.row("a").used, Quota::default());
    assert_eq!(ground.interpreter.registry().used(), Quota::default());
    assert!(ground.model.objects.is_empty());
    // It hangs up once; a second time changes nothing.
    ground.leave(session);
    assert_eq!(ground.refused(session, AskPd::default()).0, Denial::NotHere as u32);
}

#[test]
fn objects_are_removed_one_by_one_in_any_order_that_their_use_allows() {
    let mut ground = Ground::new();
    let device = ground.define("a", "t", Quota::default());
    let session = ground.attach(device);
    let made = ground.make(session);
    assert_eq!(
        ground.refused(session, EndChannel(number(made.channel))),
        (Denial::Busy as u32, format!("1 completion queues use channel {}", made.channel))
    );
    ground.ask(session, EndMemory(number(made.key))).unwrap();
    ground.ask(session, EndQp(number(made.qp))).unwrap();
    ground.ask(session, EndCq(number(made.cq))).unwrap();
    ground.ask(session, EndChannel(number(made.channel))).unwrap();
    ground.ask(session, EndPd(number(made.pd))).unwrap();
    assert_eq!(ground.row("a").used, Quota { sessions: 1, ..Quota::default() });
}

/// Another tenant's, the same tenant's on another device, another program's on the same device: all the same.
#[test]
fn nobody_names_what_another_program_made() {
    let mut ground = Ground::new();
    let [ours, same_tenant, other_tenant] = [("a", "t"), ("b", "t"), ("c", "u")]
        .map(|(device, tenant)| ground.define(device, tenant, Quota::default()));
    let victim = ground.attach(ours);
    let theirs = ground.make(victim);
    for device in [ours, same_tenant, other_tenant] {
        let thief = ground.attach(device);
        let own = ground.make(thief);
        let handle = Denial::Handle as u32;
        let region = RegisterMemory { pd: theirs.pd, length: 1, ..RegisterMemory::default() };
        let queue = CreateCq { entries: 1, channel: theirs.channel, cookie: 0 };
        let pair = |pd, send_cq, recv_cq| CreateQp { pd, send_cq, recv_cq, ..CreateQp::default() };
        let change = ModifyQp { number: theirs.qp, ..ModifyQp::default() };
        assert_eq!(ground.refused(thief, EndPd(number(theirs.pd))).0, handle);
        assert_eq!(ground.refused(thief, AskMemory(region)).0, handle);
        assert_eq!(ground.refused(thief, EndMemory(number(theirs.key))).0, handle);
        assert_eq!(ground.refused(thief, EndChannel(number(theirs.channel))).0, handle);
        assert_eq!(ground.refused(thief, AskCq(queue)).0, handle);
        assert_eq!(ground.refused(thief, EndCq(number(theirs.cq))).0, handle);
        assert_eq!(ground.refused(thief, TellCq(number(theirs.cq))).0, handle);
        assert_eq!(ground.refused(thief, AskQp(pair(theirs.pd, own.cq, own.cq))).0, handle);
        assert_eq!(ground.refused(thief, AskQp(pair(own.pd, theirs.cq, own.cq))).0, handle);
        assert_eq!(ground.refused(thief, AskQp(pair(own.pd, own.cq, theirs.cq))).0, handle);
        assert_eq!(ground.refused(thief, ChangeQp(change)).0, handle);
        assert_eq!(ground.refused(thief, ShowQp(number(theirs.qp))).0, handle);
        assert_eq!(ground.refused(thief, EndQp(number(theirs.qp))).0, handle);
        ground.leave(thief);
    }
    assert_eq!(ground.interpreter.denials().of(Denial::Handle), 39);
    assert_eq!(ground.row("a").used.qps, 1);
}

#[test]
fn protection_domains_belong_to_the_tenant_of_the_device() {
    let mut ground = Ground::new();
    let [a, b, c] = [("a", "t"), ("b", "t"), ("c", "u")]
        .map(|(device, tenant)| ground.define(device, tenant, Quota::default()));
    let pds = [a, b, c].map(|device| {
        let session = ground.attach(device);
        ground.make(session).pd
    });
    let tenants = pds.map(|pd| ground.model.tenants[&pd]);
    assert_eq!(tenants[0], tenants[1]);
    assert_ne!(tenants[0], tenants[2]);
    assert_eq!(ground.row("c").tenant_id, tenants[2].0);
}

#[test]
fn what_exceeds_a_quota_or_fails_at_the_host_leaves_no_trace() {
    let mut ground = Ground::new();
    let device = ground.define("a", "t", Quota { qps: 1, ring_bytes: 2_000, ..Quota::default() });
    let session = ground.attach(device);
    let made = ground.make(session);
    let before = (ground.row("a").used, ground.model.objects.clone());
    let pair = |wr| CreateQp {
        pd: made.pd,
        send_cq: made.cq,
        recv_cq: made.cq,
        max_send_wr: wr,
        ..CreateQp::default()
    };
    assert_eq!(
        ground.refused(session, AskQp(pair(1))),
        (Denial::Quota as u32, "device a: 1 of 1 queue pairs are in use".into())
    );
    let large = CreateCq { entries: 1 << 10, channel: NO_CHANNEL, cookie: 0 };
    assert!(ground
        .refused(session, AskCq(large))
        .1
        .contains("768 of 2000 bytes of rings are in use, 65536 more"));
    assert_eq!(ground.refused(session, AskQp(pair(1 << 20))).0, Denial::Value as u32);
    let none = CreateCq { entries: 0, ..large };
    assert_eq!(ground.refused(session, AskCq(none)).0, Denial::Value as u32);
    ground.model.fail_every = 1;
    assert_eq!(ground.refused(session, AskPd::default()).0, Denial::Host as u32);
    let region = RegisterMemory { pd: made.pd, length: 1, ..RegisterMemory::default() };
    assert_eq!(ground.refused(session, AskMemory(region)).0, Denial::Host as u32);
    let newcomer = ground.interpreter.connect(Who::Program(device));
    assert_eq!(ground.refused(newcomer, AskAttach::default()).0, Denial::Host as u32);
    ground.model.fail_every = 0;
    assert_eq!((ground.row("a").used, ground.model.objects.clone()), before);
}

#[test]
fn commands_are_for_their_doors() {
    let mut ground = Ground::new();
    let device = ground.define("a", "t", Quota::default());
    let visitor = ground.interpreter.connect(Who::Program(device));
    assert_eq!(ground.ask(visitor, AskDevice::default()).unwrap().name, name("a"));
    let not_here = Denial::NotHere as u32;
    assert_eq!(ground.refused(visitor, AskPd::default()).0, not_here);
    assert_eq!(ground.refused(visitor, List::default()).0, not_here);
    let program = ground.attach(device);
    for session in [visitor, program] {
        let more = DefineDevice { name: name("b"), ..DefineDevice::default() };
        assert_eq!(ground.refused(session, Define(more)).0, not_here);
        assert_eq!(ground.refused(session, Expose(DeviceNamed { name: name("a") })).0, not_here);
        assert_eq!(ground.refused(session, Limit::default()).0, not_here);
    }
    assert_eq!(ground.refused(program, AskAttach::default()).0, not_here, "once is enough");
    assert_eq!(ground.refused(ground.manager, AskPd::default()).0, not_here);
    assert_eq!(ground.refused(ground.manager, AskAttach::default()).0, not_here);
}

#[test]
fn a_device_is_defined_exposed_drained_and_gone() {
    let mut ground = Ground::new();
    let named = DeviceNamed { name: name("a") };
    let undefine = |drain| Undefine(UndefineDevice { name: name("a"), drain, reserved: 0 });
    assert_eq!(
        ground.refused(ground.manager, Expose(named)),
        (Denial::Unknown as u32, "there is no device a".into())
    );
    let device = ground.define("a", "t", Quota::default());
    assert_eq!(ground.row("a").lifecycle, Lifecycle::Defined as u32);
    ground.ask(ground.manager, Expose(named)).unwrap();
    assert_eq!(ground.row("a").lifecycle, Lifecycle::Exposed as u32);
    let [first, second] = [0; 2].map(|_| ground.attach(device));
    let busy = ground.refused(ground.manager, undefine(0));
    assert_eq!(
        busy,
        (Denial::Busy as u32, "2 programs are attached to device a; --drain waits for them".into())
    );
    ground.ask(ground.manager, undefine(1)).unwrap();
    assert!(ground.model.exposed.is_empty());
    assert_eq!(ground.row("a").lifecycle, Lifecycle::Draining as u32);
    // Who is there works on; nobody else comes in.
    ground.make(first);
    let newcomer = ground.interpreter.connect(Who::Program(device));
    assert_eq!(ground.refused(newcomer, AskAttach::default()).0, Denial::Busy as u32);
    assert_eq!(ground.refused(ground.manager, Expose(named)).0, Denial::Busy as u32);
    ground.leave(first);
    assert_eq!(ground.interpreter.registry().len(), 1);
    ground.leave(second);
    assert!(ground.interpreter.registry().is_empty());
    assert_eq!(ground.refused(newcomer, AskDevice::default()).0, Denial::Unknown as u32);
    assert_eq!(ground.refused(newcomer, AskAttach::default()).0, Denial::Unknown as u32);
}

#[test]
fn what_cannot_be_kept_is_not_made_and_what_was_made_is_kept() {
    let mut ground = Ground::new();
    let device = ground.define("a", "t", Quota::default());
    assert!(matches!(ground.model.kept[..], [Change::Device(kept)] if kept.name == name("a")));
    let limit = LimitTenant { tenant: name("t"), quota: Quota { qps: 5, ..Quota::default() } };
    ground.model.disk_is_full = true;
    let more = DefineDevice { name: name("b"), ..DefineDevice::default() };
    let end = Undefine(UndefineDevice { name: name("a"), drain: 1, reserved: 0 });
    for (denial, text) in [
        ground.refused(ground.manager, Define(more)),
        ground.refused(ground.manager, end),
        ground.refused(ground.manager, Limit(limit)),
    ] {
        assert_eq!((denial, text.as_str()), (Denial::Host as u32, "no space left on device"));
    }
    assert_eq!(ground.interpreter.registry().len(), 1);
    // It goes on as it was: exposed, attached, unlimited.
    ground.attach(device);
    ground.model.disk_is_full = false;
    ground.ask(ground.manager, Limit(limit)).unwrap();
    ground.ask(ground.manager, end).unwrap();
    assert_eq!(ground.model.kept[1..], [Change::Tenant(limit), Change::NoDevice(name("a"))]);
}
