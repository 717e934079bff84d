//! The run's clock: `CLOCK_MONOTONIC`, counted from the run's start.

use iotax_proto::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Gives `Instant`s of one run. Copies agree: threads of a run share one start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// `CLOCK_MONOTONIC` at the run's start.
    start_ns: u64,
    /// `CLOCK_REALTIME` at the run's start, for labels only: it may be stepped.
    start_unix_ns: u64,
}

impl Clock {
    /// A clock whose `Instant(0)` is now.
    pub fn start() -> Self {
        Self { start_ns: read_ns(ClockId::Monotonic), start_unix_ns: read_ns(ClockId::Realtime) }
    }

    #[inline]
    pub fn now(&self) -> Instant {
        Instant(read_ns(ClockId::Monotonic) - self.start_ns)
    }

    /// Nanoseconds since 1970 at an instant of this run, as the wall clock stood at the run's start.
    pub fn unix_ns(&self, at: Instant) -> u64 {
        self.start_unix_ns + at.0
    }

    /// `CLOCK_MONOTONIC` at an instant of this run: comparable between processes of one machine.
    pub fn monotonic_ns(&self, at: Instant) -> u64 {
        self.start_ns + at.0
    }

    /// The instant of this run at a `CLOCK_MONOTONIC` time, which must not lie before the run's start.
    pub fn at_monotonic_ns(&self, monotonic_ns: u64) -> Instant {
        Instant(monotonic_ns.saturating_sub(self.start_ns))
    }
}

#[inline]
pub(crate) fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both clocks count from times that have passed: neither field is negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_count_from_the_start_and_never_go_back() {
        let clock = Clock::start();
        let mut last = clock.now();
        assert!(last.0 < 1_000_000_000, "an instant counts from the clock's start");
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert_eq!(clock.at_monotonic_ns(clock.monotonic_ns(last)), last);
        assert!(clock.unix_ns(last) > 1_700_000_000_000_000_000);
    }
}
