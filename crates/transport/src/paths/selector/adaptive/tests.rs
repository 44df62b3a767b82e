use alloc::vec;
use alloc::vec::Vec;

use super::*;

const MICROS: u64 = 10;

fn policy(paths: u16, seed: u64) -> (Adaptive, Rng) {
    let mut rng = Rng::new(seed);
    (Adaptive::new(&Config { paths, grain: Duration::from_micros(2), ..Config::default() }, &mut rng), rng)
}

/// Units by path of `count` that leave; each is answered as `answer` says of its path, or lost.
fn sent(
    policy: &mut Adaptive,
    rng: &mut Rng,
    count: u32,
    answer: impl Fn(PathId) -> Option<(u64, Feedback)>,
) -> Vec<u32> {
    let mut sent = vec![0; usize::from(policy.turns.count())];
    for _ in 0..count {
        let path = policy.next(rng);
        sent[usize::from(path.0)] += 1;
        match answer(path) {
            Some((micros, feedback)) => {
                policy.measured(path, Duration::ZERO, Duration::from_micros(micros));
                policy.feedback(path, feedback);
            }
            None => policy.feedback(path, Feedback::Lost),
        }
    }
    sent
}

#[test]
fn all_that_it_knows_fits_into_64_bytes() {
    let bytes = |policy: Adaptive| size_of::<Adaptive>() + policy.states.bytes();
    assert_eq!(bytes(policy(128, 1).0), 64);
}

#[test]
fn while_all_is_well_each_cycle_is_a_fresh_permutation() {
    for paths in [1, 2, 3, 60, 128, 251, 256] {
        let (mut policy, mut rng) = policy(paths, 7);
        let mut cycle = || -> Vec<u16> { (0..paths).map(|_| policy.next(&mut rng).0).collect() };
        let (first, second) = (cycle(), cycle());
        for order in [&first, &second] {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..paths).collect::<Vec<_>>());
        }
        assert!(paths < 10 || first != second);
    }
}

#[test]
fn paths_with_longer_queues_or_marks_are_used_less_and_in_full_when_they_are_as_others() {
    let slow = |path: PathId| path.0 < 16;
    for (what, micros, mark) in [("delay", 60, Feedback::Good), ("marks", MICROS, Feedback::Ecn)] {
        let (mut policy, mut rng) = policy(128, 1);
        let answer = |path| Some(if slow(path) { (micros, mark) } else { (MICROS, Feedback::Good) });
        sent(&mut policy, &mut rng, 12_800, answer);
        let shares = sent(&mut policy, &mut rng, 12_800, answer);
        let (few, many): (u32, u32) = (shares[..16].iter().sum(), shares[16..].iter().sum());
        assert!(few * 112 < many * 16 * 8 / 10, "{what}: {few} on 16, {many} on 112");
        sent(&mut policy, &mut rng, 25_600, |_| Some((MICROS, Feedback::Good)));
        let shares = sent(&mut policy, &mut rng, 12_800, |_| Some((MICROS, Feedback::Good)));
        assert!(shares.iter().all(|share| (99..=101).contains(share)), "{what}: {shares:?}");
    }
}

#[test]
fn what_all_paths_have_in_common_changes_nothing() {
    for answer in [(200, Feedback::Good), (MICROS, Feedback::Ecn), (200, Feedback::Ecn)] {
        let (mut policy, mut rng) = policy(128, 1);
        sent(&mut policy, &mut rng, 25_600, |_| Some(answer));
        let shares = sent(&mut policy, &mut rng, 12_800, |_| Some(answer));
        assert!(shares.iter().all(|share| (80..=120).contains(share)), "{answer:?}: {shares:?}");
    }
}

#[test]
fn a_path_that_loses_gets_copies_ever_more_rarely_and_is_used_again_when_one_comes_back() {
    let (mut policy, mut rng) = policy(128, 1);
    let fine = Some((MICROS, Feedback::Good));
    let black = |path: PathId| if path.0 == 5 { None } else { fine };
    let copies = sent(&mut policy, &mut rng, 1_000, black)[5];
    assert!(policy.is_dead(PathId(5)) && (3..8).contains(&copies), "{copies} copies");
    let copies = sent(&mut policy, &mut rng, 51_200, black)[5];
    assert!((95..105).contains(&copies), "one unit in 512 is a copy: {copies}");
    sent(&mut policy, &mut rng, 512, |_| fine);
    assert!(!policy.is_dead(PathId(5)));
    assert!(sent(&mut policy, &mut rng, 1_280, |_| fine)[5] >= 9);
}

#[test]
fn every_dead_path_is_tried_and_one_that_comes_back_lets_the_others_be_tried_soon() {
    let (mut policy, mut rng) = policy(128, 1);
    let fine = Some((MICROS, Feedback::Good));
    let dead = |policy: &Adaptive| (0..128).filter(|&path| policy.is_dead(PathId(path))).count();
    sent(&mut policy, &mut rng, 20_000, |path| if path.0 % 4 == 0 { None } else { fine });
    assert_eq!(dead(&policy), 32);
    sent(&mut policy, &mut rng, 512 + 32 * 5, |_| fine);
    assert_eq!(dead(&policy), 0, "a spine is back");
}

#[test]
fn never_are_more_than_three_quarters_dead_and_neither_silence_nor_one_loss_kills_any() {
    for paths in [1, 2, 3, 128, 256] {
        let (mut policy, mut rng) = policy(paths, 1);
        (0..paths).for_each(|path| policy.feedback(PathId(path), Feedback::Timeout));
        assert!((0..paths).all(|path| !policy.is_dead(PathId(path))));
        (0..paths).for_each(|path| policy.feedback(PathId(path), Feedback::Lost));
        assert!((0..paths).all(|path| !policy.is_dead(PathId(path))), "a loss may be chance");
        (0..paths).for_each(|path| policy.feedback(PathId(path), Feedback::Lost));
        let alive = (0..paths).filter(|&path| !policy.is_dead(PathId(path))).count();
        assert!(alive >= usize::from(paths / 4).max(1), "{alive} of {paths}");
        let next: Vec<PathId> = (0..10).map(|_| policy.next(&mut rng)).collect();
        assert!(next.iter().any(|&path| !policy.is_dead(path)), "{next:?}");
    }
}
