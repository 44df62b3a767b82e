#![allow(clippy::unwrap_used)]
use super::*;
use crate::quota::Kind;
use srdma_abi::command::NO_OWNER;

fn host() -> Quota {
    let many = 1_000_000;
    Quota {
        pds: many,
        mrs: many,
        cqs: many,
        qps: 10,
        channels: many,
        sessions: many,
        memory_bytes: u64::MAX,
        ring_bytes: u64::MAX,
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn definition(device: &str, tenant: &str, qps: u32) -> Definition {
    let tenant = if tenant.is_empty() { Name::default() } else { name(tenant) };
    Definition { name: name(device), tenant, quota: Quota { qps, ..Quota::default() }, owner: NO_OWNER }
}

const QP: &[Part] = &[(Kind::Qps, 1)];

#[test]
fn a_definition_that_makes_no_sense_leaves_nothing() {
    let mut registry = Registry::new(host());
    registry.define(&definition("a", "t", 3)).unwrap();
    for (wrong, denial, said) in [
        (definition("a", "other", 0), Denial::Exists, "there is a device a already"),
        (definition("b", "t", 11), Denial::Value, "11 queue pairs asked for; 1 to 10"),
        (
            Definition { name: Name::default(), ..definition("x", "", 0) },
            Denial::Value,
            "name: a name has 1 to 63",
        ),
    ] {
        let refused = registry.define(&wrong).unwrap_err();
        assert_eq!(refused.denial, denial);
        assert!(refused.text.contains(said), "{}", refused.text);
    }
    assert_eq!((registry.len(), registry.tenants.len()), (1, 1));
}

#[test]
fn numbers_of_devices_and_tenants_are_never_used_again() {
    let mut registry = Registry::new(host());
    let first = registry.define(&definition("a", "t", 0)).unwrap();
    let tenant = registry.row(first).unwrap().tenant_id;
    registry.remove(first);
    assert!(registry.tenants.is_empty(), "a tenant goes with its last device");
    let second = registry.define(&definition("a", "t", 0)).unwrap();
    assert_ne!(first, second);
    assert_ne!(registry.row(second).unwrap().tenant_id, tenant);
    assert!(registry.take(first, QP).is_err());
}

#[test]
fn device_tenant_and_host_each_have_their_say_and_a_refusal_takes_nothing() {
    let mut registry = Registry::new(host());
    let [a, b, c] = [("a", "t", 4), ("b", "t", 0), ("c", "", 0)]
        .map(|(device, tenant, qps)| registry.define(&definition(device, tenant, qps)).unwrap());
    registry.limit_tenant(&name("t"), &Quota { qps: 6, ..Quota::default() }).unwrap();
    let mut until_refused = |id| {
        let mut taken = 0;
        loop {
            let before = registry.used();
            match registry.take(id, QP) {
                Ok(()) => taken += 1,
                Err(refusal) => {
                    assert_eq!(registry.used(), before);
                    return (taken, refusal.text);
                }
            }
        }
    };
    assert_eq!(until_refused(a), (4, "device a: 4 of 4 queue pairs are in use".into()));
    assert_eq!(until_refused(b), (2, "tenant t: 6 of 6 queue pairs are in use".into()));
    assert_eq!(until_refused(c), (4, "this host: 10 of 10 queue pairs are in use".into()));
}

#[test]
fn pages_show_every_device_once_in_order() {
    let mut registry = Registry::new(host());
    for number in (0..21).rev() {
        registry.define(&definition(&format!("d{number:02}"), "", 0)).unwrap();
    }
    let (mut after, mut seen) = (Name::default(), alloc::vec::Vec::new());
    loop {
        let page = registry.page(&after);
        seen.extend(page.rows.0[..page.count as usize].iter().map(|row| row.name));
        if page.more == 0 {
            break;
        }
        after = *seen.last().unwrap();
    }
    let expected: alloc::vec::Vec<Name> = (0..21).map(|number| name(&format!("d{number:02}"))).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_host_has_so_many_devices_and_no_more() {
    let mut registry = Registry::new(host());
    for number in 0..DEVICES_MAX {
        registry.define(&definition(&format!("d{number}"), "", 0)).unwrap();
    }
    let refused = registry.define(&definition("more", "", 0)).unwrap_err();
    assert_eq!((refused.denial, registry.len()), (Denial::Quota, DEVICES_MAX));
    registry.remove(DeviceId(7));
    registry.define(&definition("more", "", 0)).unwrap();
}
