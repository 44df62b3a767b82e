#![allow(clippy::unwrap_used)]

use alloc::collections::BTreeSet;

use srdma_seams::TenantId;

use super::*;
use crate::AddressSpace;

const ASKER: Asker = Asker { tenant: TenantId(1), pd: PdId(2) };
const ALL: Rights = Rights(0x0f);

fn region(iova: u64, length: u64, base: u64) -> Region {
    Region { tenant: ASKER.tenant, pd: ASKER.pd, iova, length, rights: ALL, space: AddressSpace::Host, base }
}

fn occupied(table: &Table) -> usize {
    table.slots.iter().flatten().count()
}

/// Slots read to find `key`, or to find that it is not there.
fn probes(table: &Table, key: u32) -> usize {
    let mask = table.slots.len() - 1;
    let mut at = key as usize & mask;
    let mut steps = 1;
    while table.slots[at].is_some_and(|slot| slot.key != key) {
        at = (at + 1) & mask;
        steps += 1;
    }
    steps
}

#[test]
fn accesses_are_kept_inside_their_region() {
    const TOP: u64 = u64::MAX - 1;
    // (iova, length of region), (address, length of access), allowed
    let cases = [
        ((0x1000, 0x100), (0x1000, 0x100), true),
        ((0x1000, 0x100), (0x1000, 0x101), false),
        ((0x1000, 0x100), (0x0fff, 1), false),
        ((0x1000, 0x100), (0x10ff, 1), true),
        ((0x1000, 0x100), (0x1100, 1), false),
        ((0x1000, 0x100), (0x10ff, 2), false),
        ((0x1000, 0x100), (0, u32::MAX), false),
        ((0x1000, 0x100), (u64::MAX, 1), false),
        ((0x1000, 0x100), (u64::MAX, u32::MAX), false),
        // Zero bytes: allowed from the first byte to one past the last.
        ((0x1000, 0x100), (0x0fff, 0), false),
        ((0x1000, 0x100), (0x1000, 0), true),
        ((0x1000, 0x100), (0x1100, 0), true),
        ((0x1000, 0x100), (0x1101, 0), false),
        // A region of zero bytes.
        ((0x1000, 0), (0x1000, 0), true),
        ((0x1000, 0), (0x1000, 1), false),
        ((0x1000, 0), (0x1001, 0), false),
        ((0, 0), (0, 0), true),
        // At the top of the address space, where sums wrap.
        ((TOP, 1), (TOP, 1), true),
        ((TOP, 1), (TOP, 2), false),
        ((TOP, 1), (u64::MAX, 0), true),
        ((TOP, 1), (u64::MAX, 1), false),
        ((TOP, 1), (TOP, u32::MAX), false),
        ((TOP, 1), (0, 0), false),
        // The whole address space.
        ((0, u64::MAX), (u64::MAX - 4, 4), true),
        ((0, u64::MAX), (u64::MAX - 4, 5), false),
    ];
    for ((iova, region_length), (address, length), allowed) in cases {
        let mut table = Table::new(7, 10);
        let key = table.register(region(iova, region_length, iova)).unwrap();
        let got = table.resolve(ASKER, key, address, length, Rights::NONE);
        if allowed {
            let segment = Segment { space: AddressSpace::Host, address, length };
            assert_eq!(got, Ok(Translation { segment, rights: ALL }));
        } else {
            assert_eq!(got, Err(Refused::Bounds), "{iova:#x}+{region_length} {address:#x}+{length}");
        }
    }
}

#[test]
fn the_iova_is_translated_to_the_base_in_its_space() {
    let mut table = Table::new(7, 10);
    let gpu = Region { space: AddressSpace::Gpu(3), ..region(0, 4096, 0xdead_0000) };
    let key = table.register(gpu).unwrap();
    let segment = Segment { space: AddressSpace::Gpu(3), address: 0xdead_0010, length: 32 };
    let got = table.resolve(ASKER, key, 16, 32, Rights::REMOTE_READ);
    assert_eq!(got, Ok(Translation { segment, rights: ALL }));
}

#[test]
fn ranges_that_wrap_are_not_registered() {
    let cases = [
        (0, u64::MAX, 0, true),
        (0, u64::MAX, 1, false),
        (1, u64::MAX, 0, false),
        (u64::MAX, 0, u64::MAX, true),
        (u64::MAX, 1, 0, false),
        (0, 1, u64::MAX, false),
    ];
    for (iova, length, base, ok) in cases {
        let mut table = Table::new(7, 10);
        let got = table.register(region(iova, length, base));
        match got {
            Ok(_) => assert!(ok, "{iova} {length} {base}"),
            Err(error) => {
                let start = if base.checked_add(length).is_none() { base } else { iova };
                assert_eq!(error, RegisterError::Overflow { start, length });
                assert!(!ok && table.is_empty());
            }
        }
    }
}

#[test]
fn a_stranger_learns_no_more_than_that_the_key_is_unknown() {
    let mut table = Table::new(7, 10);
    let key = table.register(region(0, 100, 0)).unwrap();
    for (tenant, pd, ok) in [(1, 2, true), (1, 3, false), (2, 2, false), (2, 3, false)] {
        let asker = Asker { tenant: TenantId(tenant), pd: PdId(pd) };
        // Out of bounds and beyond its rights: still only "unknown".
        let got = table.resolve(asker, key, 1000, 1, Rights::RELAXED_ORDERING);
        assert_eq!(got == Err(Refused::Key(key)), !ok, "{tenant} {pd}");
    }
    for unknown in [0, key.0 ^ 1, key.0.wrapping_add(1), u32::MAX] {
        let got = table.resolve(ASKER, MrKey(unknown), 0, 1, Rights::NONE);
        assert_eq!(got, Err(Refused::Key(MrKey(unknown))));
        assert_eq!(table.deregister(MrKey(unknown)), Err(UnknownKey(MrKey(unknown))));
    }
}

#[test]
fn an_empty_table_refuses_every_key() {
    let table = Table::new(7, 10);
    let got = table.resolve(ASKER, MrKey(0), 0, 0, Rights::NONE);
    assert_eq!(got, Err(Refused::Key(MrKey(0))));
}

#[test]
fn exactly_the_rights_of_the_region_are_given() {
    let bits = [
        Rights::LOCAL_WRITE,
        Rights::REMOTE_WRITE,
        Rights::REMOTE_READ,
        Rights::REMOTE_ATOMIC,
        Rights::RELAXED_ORDERING,
    ];
    let set = |choice: usize| {
        let chosen = bits.iter().enumerate().filter(|(i, _)| choice >> i & 1 == 1);
        Rights(chosen.fold(0, |sum, (_, bit)| sum | bit.0))
    };
    for have in (0..32).map(set) {
        let mut table = Table::new(7, 10);
        let key = table.register(Region { rights: have, ..region(0, 100, 0) });
        let needs_local = have.0 & (Rights::REMOTE_WRITE.0 | Rights::REMOTE_ATOMIC.0) != 0;
        if needs_local && !have.contains(Rights::LOCAL_WRITE) {
            assert_eq!(key, Err(RegisterError::Rights));
            continue;
        }
        for needs in (0..32).map(set) {
            let got = table.resolve(ASKER, key.unwrap(), 0, 100, needs);
            match needs.0 & !have.0 {
                0 => assert_eq!(got.unwrap().rights, have),
                _ => assert_eq!(got, Err(Refused::Rights), "{have:?} {needs:?}"),
            }
        }
    }
}

#[test]
fn a_stale_key_of_any_age_meets_nothing() {
    let mut table = Table::new(7, 100);
    let lasting = table.register(region(0, 100, 0)).unwrap();
    let mut sample = BTreeSet::new();
    let mut previous = MrKey(0);
    for round in 0..1_000_000u32 {
        let key = table.register(region(0, 100, 0)).unwrap();
        assert!(key.0 != 0 && !sample.contains(&key), "key {key} came back in round {round}");
        let stale = table.resolve(ASKER, previous, 0, 1, Rights::NONE);
        assert_eq!(stale, Err(Refused::Key(previous)));
        if round % 1_000 == 0 {
            sample.insert(key);
        }
        if round % 10_000 == 0 {
            for &old in sample.iter().filter(|&&old| old != key) {
                let got = table.resolve(ASKER, old, 0, 1, Rights::NONE);
                assert_eq!(got, Err(Refused::Key(old)), "round {round}");
            }
        }
        table.deregister(key).unwrap();
        previous = key;
    }
    assert!(table.resolve(ASKER, lasting, 0, 100, ALL).is_ok());
    assert_eq!((table.len(), table.slots.len()), (1, FIRST_SLOTS));
}

#[test]
fn keys_still_live_are_skipped_when_the_counter_wraps() {
    let mut table = Table::new(7, 100);
    let first = table.register(region(0, 1, 0)).unwrap();
    let second = table.register(region(0, 2, 0)).unwrap();
    table.deregister(second).unwrap();
    table.counter = u32::MAX;
    // Counter 0 comes first after the wrap, then 1 (still live, skipped), then 2.
    let keys = [(); 2].map(|()| table.register(region(0, 3, 0)).unwrap());
    assert!(!keys.contains(&first));
    assert!(keys.contains(&second));
    assert_eq!(table.region(first).unwrap().length, 1);
}

#[test]
fn the_permutation_never_gives_a_number_twice() {
    for seed in 0..8 {
        let permutation = Permutation::new(seed);
        let numbers = (0..20_000).chain(u32::MAX - 20_000..=u32::MAX);
        let images: BTreeSet<u32> = numbers.map(|n| permutation.of(n)).collect();
        assert_eq!(images.len(), 40_001, "seed {seed}");
        let next_door = images.iter().filter(|&&n| images.contains(&n.wrapping_add(1))).count();
        assert!(next_door < 10, "seed {seed}: {next_door} keys are neighbours");
    }
}

#[test]
fn the_size_of_a_region_costs_no_work() {
    let mut table = Table::new(7, 10);
    let small = table.register(region(0, 4096, 0)).unwrap();
    let large = table.register(region(0, 1 << 40, 1 << 40)).unwrap();
    assert_eq!((occupied(&table), table.slots.len()), (2, FIRST_SLOTS));
    assert!(probes(&table, small.0) <= 2 && probes(&table, large.0) <= 2);
    assert!(table.resolve(ASKER, large, (1 << 40) - 1, 1, Rights::NONE).is_ok());
}

#[test]
fn look_ups_stay_short_in_a_full_table() {
    let mut table = Table::new(7, 1 << 16);
    // One below a doubling: half full.
    let keys: alloc::vec::Vec<MrKey> =
        (0..1 << 16).map(|_| table.register(region(0, 1, 0)).unwrap()).collect();
    assert_eq!(table.slots.len(), 1 << 17);
    let mean = |keys: &mut dyn Iterator<Item = u32>| {
        let (mut sum, mut count) = (0, 0);
        for key in keys {
            sum += probes(&table, key);
            count += 1;
        }
        sum as f64 / count as f64
    };
    let hits = mean(&mut keys.iter().map(|key| key.0));
    let misses = mean(&mut (0..1 << 16));
    // Knuth: 1.5 and 2.5 slots at half load.
    assert!(hits < 1.7 && misses < 3.0, "{hits} {misses}");
}

#[test]
fn the_limit_is_named_and_a_place_freed_is_a_place_again() {
    let mut table = Table::new(7, 3);
    let keys = [(); 3].map(|()| table.register(region(0, 1, 0)).unwrap());
    assert_eq!(table.register(region(0, 1, 0)), Err(RegisterError::Limit { limit: 3 }));
    table.deregister(keys[1]).unwrap();
    assert_eq!(table.deregister(keys[1]), Err(UnknownKey(keys[1])));
    assert!(table.register(region(0, 1, 0)).is_ok());
}

#[test]
fn regions_are_counted_by_protection_domain() {
    let mut table = Table::new(7, 10);
    let one = table.register(Region { pd: PdId(1), ..region(0, 1, 0) }).unwrap();
    let two = table.register(Region { pd: PdId(2), ..region(0, 1, 0) }).unwrap();
    table.register(Region { pd: PdId(2), ..region(0, 1, 0) }).unwrap();
    assert_eq!([1, 2, 3].map(|pd| table.regions_in(PdId(pd))), [1, 2, 0]);
    table.deregister(one).unwrap();
    table.deregister(two).unwrap();
    assert_eq!([1, 2, 3].map(|pd| table.regions_in(PdId(pd))), [0, 1, 0]);
}

#[test]
fn any_sequence_agrees_with_a_plain_map() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut table = Table::new(seed, 200);
        let mut model = BTreeMap::new();
        for step in 0..5_000u64 {
            if rng.below(100) < 55 {
                match table.register(region(0, step, 0)) {
                    Ok(key) => assert!(model.insert(key, step).is_none(), "seed {seed} step {step}"),
                    Err(error) => {
                        assert_eq!(error, RegisterError::Limit { limit: 200 });
                        assert_eq!(model.len(), 200, "seed {seed} step {step}");
                    }
                }
            } else if let Some(&key) = model.keys().nth(rng.below(model.len() as u64) as usize) {
                table.deregister(key).unwrap();
                model.remove(&key);
            }
            if step % 50 == 0 {
                for (&key, &length) in &model {
                    assert_eq!(table.region(key).unwrap().length, length, "seed {seed} step {step}");
                }
                assert_eq!(occupied(&table), model.len());
            }
        }
    }
}
