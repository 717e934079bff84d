//! Latencies as they leave a recorder: sparse, mergeable over threads and trials.

use hdrhistogram::Histogram;

/// `(highest value equivalent of the bin in ns, count)`, by rising value, none with count 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sparse(pub Vec<(u64, u64)>);

impl Sparse {
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self(histogram.iter_recorded().map(|bin| (bin.value_iterated_to(), bin.count_at_value())).collect())
    }

    pub fn merge(&mut self, other: &Self) {
        let mut merged = Vec::with_capacity(self.0.len() + other.0.len());
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            let next = match (ours.peek(), theirs.peek()) {
                (Some(a), Some(b)) if a.0 == b.0 => Some((a.0, a.1 + b.1, true, true)),
                (Some(a), Some(b)) if a.0 > b.0 => Some((b.0, b.1, false, true)),
                (Some(a), _) => Some((a.0, a.1, true, false)),
                (None, Some(b)) => Some((b.0, b.1, false, true)),
                (None, None) => None,
            };
            let Some((value, count, from_ours, from_theirs)) = next else { break };
            merged.push((value, count));
            if from_ours {
                ours.next();
            }
            if from_theirs {
                theirs.next();
            }
        }
        self.0 = merged;
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The smallest bin that at least the share `quantile` of all values reaches, ns; 0 where there is none.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // counts of I/Os, far below 2^53
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let rank = (quantile * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (value, count) in &self.0 {
            seen += count;
            if seen >= rank {
                return *value;
            }
        }
        0
    }

    pub fn max_ns(&self) -> u64 {
        self.0.last().map_or(0, |(value, _)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl Iterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("bounds");
        values.for_each(|value| histogram.saturating_record(value));
        histogram
    }

    #[test]
    fn merged_parts_equal_the_whole() {
        let mut merged = Sparse::of(&histogram((0..10_000).map(|at| at * 37 % 5_000)));
        merged.merge(&Sparse::of(&histogram((0..7_000).map(|at| at * 977))));
        let whole = histogram((0..10_000).map(|at| at * 37 % 5_000).chain((0..7_000).map(|at| at * 977)));
        assert_eq!(merged, Sparse::of(&whole));
    }

    #[test]
    #[allow(clippy::cast_precision_loss)] // small numbers
    fn quantiles_are_within_a_thousandth() {
        let sparse = Sparse::of(&histogram((1..=100_000).map(|at| at * 1_000)));
        for (quantile, exact) in
            [(0.5, 50_000_000_f64), (0.99, 99_000_000.0), (0.999, 99_900_000.0), (1.0, 100_000_000.0)]
        {
            let error = (sparse.quantile_ns(quantile) as f64 - exact).abs() / exact;
            assert!(error < 0.001, "{quantile}: {error}");
        }
    }
}
