//! Histograms of latencies: dense in a recorder, sparse in results, where they merge over threads and trials.

/// Bins per octave, for 3 significant digits. Below 2048 ns each value has a bin of its own.
const OCTAVE_BINS: usize = 1024;
const OCTAVE_BITS: u32 = OCTAVE_BINS.ilog2();
/// Durations of 2^42 ns (73 minutes) and more are counted as just less. This is enough for over an hour in an open
/// loop's backlog.
const LATENCY_BITS: u32 = 42;
pub(super) const LATENCY_MAX_NS: u64 = (1 << LATENCY_BITS) - 1;
/// The first octave holds the values below 1024.
const OCTAVES: usize = (LATENCY_BITS - OCTAVE_BITS) as usize + 1;

type Octave = [u64; OCTAVE_BINS];

/// Counts durations in HdrHistogram's bins. An octave has memory (8 KiB) only once it has a duration: all octaves, for
/// each stream, direction and interval of hundreds of loads, would exceed a processor's cache.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    octaves: [Option<Box<Octave>>; OCTAVES],
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { octaves: [const { None }; OCTAVES], count: 0 }
    }
}

impl Histogram {
    #[inline]
    pub(super) fn record(&mut self, duration_ns: u64) {
        let duration_ns = duration_ns.min(LATENCY_MAX_NS);
        let shift = (duration_ns | (2 * OCTAVE_BINS as u64 - 1)).ilog2() - OCTAVE_BITS;
        let bin = ((shift as usize) << OCTAVE_BITS) + (duration_ns >> shift) as usize;
        let octave = self.octaves[bin / OCTAVE_BINS].get_or_insert_with(empty);
        octave[bin % OCTAVE_BINS] += 1;
        self.count += 1;
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (ours, theirs) in self.octaves.iter_mut().zip(&other.octaves) {
            let Some(theirs) = theirs else { continue };
            for (ours, theirs) in ours.get_or_insert_with(empty).iter_mut().zip(theirs.iter()) {
                *ours += theirs;
            }
        }
        self.count += other.count;
    }

    /// Sets all counts to 0 and keeps the memory.
    pub(super) fn reset(&mut self) {
        if self.count > 0 {
            self.octaves.iter_mut().flatten().for_each(|octave| octave.fill(0));
            self.count = 0;
        }
    }
}

#[cold]
fn empty() -> Box<Octave> {
    Box::new([0; OCTAVE_BINS])
}

/// The highest value that is counted in a bin.
fn highest_of(octave: usize, bin: usize) -> u64 {
    let shift = octave.saturating_sub(1);
    let first = if octave == 0 { 0 } else { OCTAVE_BINS };
    (((first + bin + 1) as u64) << shift) - 1
}

/// `(highest value equivalent of the bin in ns, count)`, by rising value, without bins of count 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sparse(pub Vec<(u64, u64)>);

impl Sparse {
    pub(super) fn of(histogram: &Histogram) -> Self {
        let octaves = histogram.octaves.iter().enumerate();
        let octaves = octaves.filter_map(|(number, octave)| octave.as_ref().map(|octave| (number, octave)));
        let bins = octaves.flat_map(|(number, octave)| {
            octave.iter().enumerate().map(move |(bin, count)| (highest_of(number, bin), *count))
        });
        Self(bins.filter(|(_, count)| *count > 0).collect())
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

    /// The lowest bin at or below which at least the share `quantile` of all values lies, ns; 0 if there are no values.
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

    fn histogram(values: impl Iterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        values.for_each(|value| histogram.record(value));
        histogram
    }

    #[test]
    fn bins_are_those_of_hdr_histogram() {
        let edges = (0..64).flat_map(|bit| [-2_i64, -1, 0, 1, 2].map(|off| (1_u64 << bit).saturating_add_signed(off)));
        let spread = (0..20_000_u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 60));
        let values: Vec<u64> = (0..5_000).chain(edges).chain(spread).collect();
        let mut theirs = hdrhistogram::Histogram::<u64>::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("bounds");
        for value in &values {
            theirs.saturating_record(*value);
        }
        let theirs = theirs.iter_recorded().map(|bin| (bin.value_iterated_to(), bin.count_at_value())).collect();
        assert_eq!(Sparse::of(&histogram(values.into_iter())), Sparse(theirs));
    }

    #[test]
    fn histogram_adds_and_begins_anew() {
        let values = |from: u64| (from..from + 4_000).map(|at| at * at);
        let mut sum = histogram(values(0));
        sum.add(&histogram(values(4_000)));
        assert_eq!((sum.count(), Sparse::of(&sum)), (8_000, Sparse::of(&histogram((0..8_000).map(|at| at * at)))));
        sum.reset();
        assert_eq!((sum.count(), Sparse::of(&sum)), (0, Sparse::default()));
        sum.record(7);
        assert_eq!(Sparse::of(&sum), Sparse(vec![(7, 1)]));
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
