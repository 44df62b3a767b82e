//! What was published, read off the figures, and how the cases here are called.

use super::Scale;

/// A way to choose paths: what the paper calls it, and which of ours stands for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub name: &'static str,
    /// As in a scenario's `selector`.
    pub selector: &'static str,
}

const fn of_the_paper(name: &'static str, selector: &'static str) -> Chosen {
    Chosen { name, selector }
}

/// What a plain RNIC does.
pub(crate) const SINGLE: Chosen = of_the_paper("single path", "single");
/// The paper's choice: blind, at random.
pub(crate) const OBS: Chosen = of_the_paper("OBS", "random");
/// Round-robin.
pub(crate) const RR: Chosen = of_the_paper("RR", "rr");
/// The paper's policies that are simulated.
pub(crate) const POLICIES: &[Chosen] = &[
    SINGLE,
    of_the_paper("BestRTT", "best-rtt"),
    of_the_paper("MP-RDMA", "mp-rdma"),
    of_the_paper("DWRR", "dwrr"),
    RR,
    OBS,
];
/// What this project does if nobody says otherwise.
pub(crate) const OURS: Chosen = Chosen { name: "default here", selector: "adaptive" };

impl Chosen {
    /// What it is among: the single path is one, however many the others have.
    pub fn paths(self, paths: u16) -> u16 {
        if self.selector == "single" {
            1
        } else {
            paths
        }
    }

    /// What a case with it is called.
    pub fn case(self, paths: u16) -> String {
        format!("{} {}", self.name, self.paths(paths))
    }

    /// `[transport]` of a scenario.
    pub fn transport(self, paths: u16, more: &str) -> String {
        let selector = self.selector;
        let paths = self.paths(paths);
        format!("[transport]\npaths = {paths}\nselector = \"{selector}\"\n{more}\n")
    }
}

/// All policies and ours.
pub(crate) fn all() -> impl Iterator<Item = Chosen> {
    POLICIES.iter().copied().chain([OURS])
}

/// What was published of `chosen`, in a list by the paper's names.
pub(crate) fn of<T: Copy>(published: &[(&str, T)], chosen: Chosen) -> Option<T> {
    published.iter().find(|(name, _)| *name == chosen.name).map(|&(_, value)| value)
}

/// One of three values.
pub(crate) fn at<T>(scale: Scale, full: T, quick: T, smallest: T) -> T {
    match scale {
        Scale::Full => full,
        Scale::Quick => quick,
        Scale::Smallest => smallest,
    }
}

#[cfg(test)]
mod tests {
    use crate::figures::{Scale, FIGURES};

    #[test]
    fn every_case_of_every_figure_is_a_scenario() {
        for figure in FIGURES {
            for scale in [Scale::Full, Scale::Quick, Scale::Smallest] {
                for case in figure.cases(scale) {
                    let scenario = case.scenario();
                    assert!(scenario.is_ok(), "{} {}: {scenario:?}\n{}", figure.id, case.name(), case.text());
                }
            }
        }
    }
}
