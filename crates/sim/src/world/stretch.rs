//! Random variation of the time of a turn around its cost, as on a real machine.

use iotax_node::seeded::SeededRng;

/// The variation of one thread's turns. A fraction of each turn's time is exponentially distributed, and the rest is
/// constant. On average a turn takes its cost, and the fraction is its coefficient of variation.
#[derive(Debug)]
pub(super) struct Stretch {
    random: SeededRng,
    cv: f64,
    times: f64,
}

impl Stretch {
    /// `number` distinguishes threads of one seed. `cv_percent` is 0 (all turns take their cost) to 100.
    pub(super) fn new(seed: u64, number: usize, cv_percent: u32) -> Self {
        let cv = f64::from(cv_percent.min(100)) / 100.0;
        Self { random: SeededRng::new(seed, "turns", number as u64), cv, times: 1.0 }
    }

    /// Draws for the next turn.
    pub(super) fn begin(&mut self) {
        if self.cv > 0.0 {
            self.times = 1.0 + self.cv * (self.random.exponential() - 1.0);
        }
    }

    /// The time that work takes in this turn.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // a turn's time is far below 2^53 ns, and not below 0
    pub(super) fn of(&self, cost_ns: u64) -> u64 {
        if self.cv > 0.0 { (cost_ns as f64 * self.times) as u64 } else { cost_ns }
    }
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss)] // small counts
mod tests {
    use super::*;

    const COST_NS: u64 = 1_000_000;

    fn turns(seed: u64, cv_percent: u32) -> Vec<u64> {
        let mut stretch = Stretch::new(seed, 3, cv_percent);
        let turn = |_| {
            stretch.begin();
            stretch.of(COST_NS)
        };
        (0..100_000).map(turn).collect()
    }

    #[test]
    fn turns_take_what_they_cost_on_average_and_vary_as_asked() {
        for cv_percent in [10, 70, 100] {
            let times: Vec<f64> = turns(1, cv_percent).iter().map(|turn| *turn as f64 / COST_NS as f64).collect();
            let count = times.len() as f64;
            let mean = times.iter().sum::<f64>() / count;
            let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count;
            assert!((mean - 1.0).abs() < 0.02, "{mean}");
            assert!((variance.sqrt() - f64::from(cv_percent) / 100.0).abs() < 0.02, "{variance}");
        }
    }

    #[test]
    fn turns_that_do_not_vary_take_exactly_what_they_cost() {
        assert!(turns(1, 0).iter().all(|turn| *turn == COST_NS));
    }

    #[test]
    fn turns_are_of_their_seed() {
        assert_eq!(turns(1, 70), turns(1, 70));
        assert_ne!(turns(1, 70), turns(2, 70));
    }
}
