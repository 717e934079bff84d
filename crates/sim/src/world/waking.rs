//! The cost and the delay of waking a thread.

use std::time::Duration;

/// Waking from a longer sleep costs no more. Among 10, 30 and 50 µs this value fits best the costs of threads that took
/// turns over loopback sockets (docs/guide/simulator.md).
const DEEP: Duration = Duration::from_micros(30);

/// Cost of waking a thread. Between no sleep and `DEEP`, it grows linearly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// CPU time after a sleep of `DEEP` or longer.
    pub deep_ns: u64,
    /// CPU time if the thread has just fallen asleep.
    pub short_ns: u64,
    /// Additional delay without CPU use after a sleep of `DEEP` or longer; 0 if it has just fallen asleep.
    pub delay_ns: u64,
}

/// The cost of one wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waking {
    pub(super) cost_ns: u64,
    pub(super) delay_ns: u64,
    /// How deep the thread slept.
    pub(super) deep_permille: u64,
}

impl Wake {
    /// The same cost after any sleep.
    #[must_use]
    pub fn always(cost_ns: u64) -> Self {
        Self { deep_ns: cost_ns, short_ns: cost_ns, delay_ns: 0 }
    }

    pub(super) fn after(&self, slept: Duration) -> Waking {
        let deep_permille = (slept.as_nanos() * 1000 / DEEP.as_nanos()).min(1000) as u64;
        let cost_ns = (self.short_ns * (1000 - deep_permille) + self.deep_ns * deep_permille) / 1000;
        Waking { cost_ns, delay_ns: self.delay_ns * deep_permille / 1000, deep_permille }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_costs_more_the_longer_a_thread_slept_up_to_a_point() {
        let wake = Wake { deep_ns: 20_000, short_ns: 8_000, delay_ns: 6_000 };
        let after = |slept| {
            let waking = wake.after(slept);
            (waking.cost_ns, waking.delay_ns, waking.deep_permille)
        };
        assert_eq!(after(Duration::ZERO), (8_000, 0, 0));
        assert_eq!(after(DEEP / 2), (14_000, 3_000, 500));
        assert_eq!(after(DEEP), (20_000, 6_000, 1000));
        assert_eq!(after(DEEP * 1000), after(DEEP));
    }
}
