//! Whether the paths of a flow lead over different links, which depends on how switches hash.

use std::collections::BTreeSet;

use serde_json::{json, Value};
use srdma_fabric::{Fabric, FlowId, Ground, LinkId};
use srdma_seams::PathId;

/// Flows that are looked at, at most: every so many-th of a crowd.
const FLOWS_MAX: usize = 256;
/// Share of the ways below which hashing is said to be at fault. Chance alone leaves 63 % of as many ways as paths.
const SHARE_MIN: f64 = 0.5;

/// Ways of a flow, means over flows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ways {
    /// Different ways that the paths of a flow take.
    pub distinct: f64,
    /// Ways that there are.
    pub possible: f64,
    /// Distinct ones as a share of those that so many paths could have.
    pub share: f64,
}

impl Ways {
    pub(crate) fn of<G: Ground>(
        fabric: &Fabric<G>,
        flows: impl ExactSizeIterator<Item = FlowId>,
        paths: u16,
    ) -> Ways {
        let step = flows.len().div_ceil(FLOWS_MAX).max(1);
        let (mut sum, mut count) = (Ways::default(), 0.0);
        for flow in flows.step_by(step) {
            let possible = fabric.ways(flow).unwrap_or(0);
            let ways: BTreeSet<Vec<LinkId>> =
                (0..paths).filter_map(|path| fabric.way(flow, PathId(path))).collect();
            sum.distinct += ways.len() as f64;
            sum.possible += possible as f64;
            sum.share += ways.len() as f64 / possible.min(paths.into()).max(1) as f64;
            count += 1.0;
        }
        match count > 0.0 {
            true => Ways {
                distinct: sum.distinct / count,
                possible: sum.possible / count,
                share: sum.share / count,
            },
            false => Ways::default(),
        }
    }

    /// What to say if switches hash badly.
    pub fn warning(&self) -> Option<String> {
        (self.share > 0.0 && self.share < SHARE_MIN).then(|| {
            format!(
                "The paths of a flow take {:.1} of {:.1} ways: switches hash alike (polarised), or what they hash differs little",
                self.distinct, self.possible
            )
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "distinct": self.distinct, "possible": self.possible, "share": self.share, "warning": self.warning() })
    }
}
