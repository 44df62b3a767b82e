//! Means, percentiles, extremes.

/// Counts by size, within 3 % of it: 32 steps for each power of two. Small and of fixed size, whatever is counted.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    counts: Vec<u64>,
    total: u64,
}

const STEPS: u64 = 32;

impl Tally {
    pub fn new() -> Tally {
        Tally { counts: vec![0; (STEPS * 60) as usize], total: 0 }
    }

    fn place(value: u64) -> usize {
        if value < STEPS {
            return value as usize;
        }
        let power = u64::from(value.ilog2());
        let step = (value >> (power - 5)) & (STEPS - 1);
        ((power - 4) * STEPS + step) as usize
    }

    /// Smallest value of a place.
    fn value(place: usize) -> u64 {
        let (row, step) = (place as u64 / STEPS, place as u64 % STEPS);
        match row {
            0 => step,
            _ => (STEPS + step) << (row - 1),
        }
    }

    pub fn add(&mut self, value: u64) {
        let last = self.counts.len() - 1;
        self.counts[Tally::place(value).min(last)] += 1;
        self.total += 1;
    }

    /// The value that this share of all does not exceed; 0 if there are none.
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Tally::value(place);
            }
        }
        0
    }
}

/// Least, mean, most, and what 1 % do not exceed or do not reach.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// What 1 % of the values do not exceed.
    pub p1: f64,
    /// Mean.
    pub mean: f64,
    /// What 99 % do not exceed.
    pub p99: f64,
    /// Most.
    pub max: f64,
}

impl Spread {
    /// Of these values; zeros if there are none.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else { return Spread::default() };
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Spread { min, p1: at(0.01), mean, p99: at(0.99), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_three_percent() {
        let mut tally = Tally::new();
        assert_eq!(tally.percentile(0.99), 0);
        (1..=100_000).for_each(|value| tally.add(value));
        for (share, wanted) in [(0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0), (0.0001, 10.0)] {
            let found = tally.percentile(share) as f64;
            assert!((found / wanted - 1.0).abs() < 0.032, "{share}: {found} of {wanted}");
        }
        tally.add(u64::MAX);
        assert!(tally.percentile(1.0) > 1 << 60);
    }

    #[test]
    fn places_and_values_agree() {
        for value in (0..200).chain([1 << 20, 12_345_678, 1 << 40]) {
            let low = Tally::value(Tally::place(value));
            assert!(low <= value && (value - low) * 32 <= value, "{value}: {low}");
        }
    }
}
