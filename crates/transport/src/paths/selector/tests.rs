//! What holds for every policy.

use alloc::collections::BTreeSet;

use super::*;

#[test]
fn names_are_unique_and_lead_back_to_their_policies() {
    let names: BTreeSet<&str> = SelectorKind::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), SelectorKind::ALL.len());
    for &(name, kind) in SelectorKind::ALL {
        assert_eq!((kind.name(), SelectorKind::named(name)), (name, Some(kind)));
        assert!(SelectorKind::ONE_OF.contains(name));
        assert!(!kind.summary().is_empty() && !kind.summary().ends_with('.'), "{name}");
    }
    assert_eq!(SelectorKind::named("best"), None);
}

/// Any number of paths, any feedback about any of them: every choice is a path, and no policy but the single one forgets
/// one for ever.
#[test]
fn every_policy_stays_within_its_paths_whatever_it_is_told() {
    for &(name, kind) in SelectorKind::ALL {
        for paths in [1, 2, 3, 5, 127, 128, 255, 256] {
            let seed = u64::from(paths);
            let mut rng = Rng::stream(seed, name, 0);
            let mut chaos = Rng::stream(seed, "chaos", 0);
            let mut policy = Selector::new(&Config { selector: kind, paths, ..Config::default() }, &mut rng);
            let mut used = BTreeSet::new();
            for _ in 0..20_000 {
                let path = policy.next(&mut rng);
                assert!(path.0 < paths, "{name} over {paths}: {path:?}");
                used.insert(path);
                let told = if chaos.below(20) == 0 { PathId(chaos.below(paths.into()) as u16) } else { path };
                let feedback = [Feedback::Good, Feedback::Ecn, Feedback::Lost, Feedback::Timeout];
                if chaos.below(2) == 0 {
                    let rtt = Duration(chaos.next_u64() >> chaos.below(64));
                    policy.measured(told, rtt, Duration(chaos.below(rtt.0)));
                }
                policy.feedback(told, feedback[chaos.below(4) as usize]);
            }
            let wanted = if kind == SelectorKind::Single { 1 } else { usize::from(paths) };
            assert_eq!(used.len(), wanted, "{name} over {paths}");
        }
    }
}
