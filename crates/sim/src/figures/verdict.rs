//! Whether an order is the published one.

/// A value that was published, and ours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    pub name: String,
    pub published: f64,
    pub here: f64,
}

/// What came of comparing all pairs of some values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Pairs that differ in the publication by more than the margin.
    pub judged: usize,
    /// Those of them that are the other way round here, or equal, in words.
    pub broken: Vec<String>,
}

impl Verdict {
    /// Something was compared, and nothing is the other way round.
    pub fn is_reproduced(&self) -> bool {
        self.judged > 0 && self.broken.is_empty()
    }

    /// In words.
    pub fn words(&self) -> String {
        match (self.judged, self.broken.len()) {
            (0, _) => "nothing to judge: no two published values differ clearly".to_owned(),
            (judged, 0) => format!("yes, all {judged} pairs"),
            (judged, broken) => format!("no, {broken} of {judged} pairs are not"),
        }
    }

    pub(crate) fn and(mut self, other: Verdict) -> Verdict {
        self.judged += other.judged;
        self.broken.extend(other.broken);
        self
    }

    /// A single comparison: of `larger`, more is wanted than of `smaller`.
    pub(crate) fn of(larger: (&str, f64), smaller: (&str, f64)) -> Verdict {
        let holds = larger.1 > smaller.1;
        let said = || format!("{} ({:.3}) is not above {} ({:.3})", larger.0, larger.1, smaller.0, smaller.1);
        Verdict { judged: 1, broken: if holds { Vec::new() } else { vec![said()] } }
    }
}

/// Every two values of which the publication has one at least `margin` times the other (1.1 is 10 % more) must be in that order
/// here. Values that are closer than that count as equal, and say nothing.
pub(crate) fn judge(values: &[Pair], margin: f64) -> Verdict {
    let mut verdict = Verdict::default();
    for larger in values {
        for smaller in values {
            if larger.published > smaller.published && larger.published >= margin * smaller.published {
                verdict =
                    verdict.and(Verdict::of((&larger.name, larger.here), (&smaller.name, smaller.here)));
            }
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, published: f64, here: f64) -> Pair {
        Pair { name: name.to_owned(), published, here }
    }

    #[test]
    fn only_clear_differences_are_judged_and_each_must_hold() {
        let values = [pair("single", 2000.0, 9.0), pair("rr", 42.0, 3.0), pair("random", 43.0, 2.0)];
        let verdict = judge(&values, 1.25);
        assert!(verdict.judged == 2 && verdict.is_reproduced(), "{verdict:?}");
        let verdict = judge(&[pair("a", 2.0, 1.0), pair("b", 1.0, 1.0), pair("c", 0.5, 3.0)], 1.25);
        assert!(!verdict.is_reproduced());
        let wanted = [
            "a (1.000) is not above b (1.000)",
            "a (1.000) is not above c (3.000)",
            "b (1.000) is not above c (3.000)",
        ];
        assert_eq!(verdict.broken, wanted);
        assert!(!judge(&[pair("a", 1.0, 1.0)], 1.25).is_reproduced(), "nothing to compare is no success");
    }
}
