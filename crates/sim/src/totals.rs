//! What waits at a switch in all: the sum over its ports of a kind.

use std::collections::BTreeMap;

use srdma_fabric::{End, Fabric, LinkId, Nothing, Time};

use crate::report::QueueReport;
use crate::tally::Tally;

/// Sums over ports, by switch, at every look.
#[derive(Debug)]
pub(crate) struct Totals {
    name: String,
    links: Vec<LinkId>,
    /// The switch of each link, by position in `sums`.
    owners: Vec<usize>,
    sums: Vec<u64>,
    tally: Tally,
    sum: f64,
    most: u64,
    looks: u64,
}

impl Totals {
    /// Of the switches that `links` come from.
    pub fn new(fabric: &Fabric<Nothing>, name: &str, links: &[LinkId]) -> Totals {
        let mut known: BTreeMap<u32, usize> = BTreeMap::new();
        let (mut kept, mut owners) = (Vec::new(), Vec::new());
        for &link in links {
            let (End::Switch(switch), End::Switch(_)) = fabric.ends(link) else { continue };
            let next = known.len();
            owners.push(*known.entry(switch).or_insert(next));
            kept.push(link);
        }
        let sums = vec![0; known.len()];
        Totals {
            name: name.to_owned(),
            links: kept,
            owners,
            sums,
            tally: Tally::new(),
            sum: 0.0,
            most: 0,
            looks: 0,
        }
    }

    /// Looks at all of them.
    pub fn look(&mut self, fabric: &Fabric<Nothing>, now: Time) {
        self.sums.fill(0);
        for (link, &owner) in self.links.iter().zip(&self.owners) {
            self.sums[owner] += fabric.links()[link.0 as usize].queue_bytes(now);
        }
        for &bytes in &self.sums {
            self.tally.add(bytes);
            self.sum += bytes as f64;
            self.most = self.most.max(bytes);
        }
        self.looks += self.sums.len() as u64;
    }

    /// What was seen; zeros if there are no such switches or nobody looked.
    pub fn report(&self) -> QueueReport {
        QueueReport {
            links: self.name.clone(),
            count: self.sums.len() as u64,
            mean_bytes: self.sum / self.looks.max(1) as f64,
            p99_bytes: self.tally.percentile(0.99),
            max_bytes: self.most,
        }
    }
}
