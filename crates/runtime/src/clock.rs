//! The run's clock: `CLOCK_MONOTONIC`, counted from the run's start.

use std::time::Duration;

use iotax_proto::Instant;
use rustix::time::{ClockId, clock_getres, clock_gettime};

/// Returns `Instant`s of one run. All copies share one start, so threads of a run agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// `CLOCK_MONOTONIC` at the run's start.
    start_ns: u64,
    /// `CLOCK_REALTIME` at the run's start, for labels only: the wall clock may be stepped.
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

    /// Nanoseconds since 1970 at an instant of this run, by the wall clock as set at the run's start.
    pub fn unix_ns(&self, at: Instant) -> u64 {
        self.start_unix_ns + at.0
    }

    /// The instant of this run at which the wall clock, as it is set now, will show `unix_ns`; `None` if that time has
    /// passed.
    pub fn at_unix_ns(&self, unix_ns: u64) -> Option<Instant> {
        let (now, wall_ns) = (self.now(), read_ns(ClockId::Realtime));
        unix_ns.checked_sub(wall_ns).map(|left_ns| Instant(now.0 + left_ns))
    }

    /// The same instants, labelled by the wall clock as it is set now.
    #[must_use]
    pub fn with_wall_of_now(self) -> Self {
        let now = self.now();
        Self { start_unix_ns: read_ns(ClockId::Realtime).saturating_sub(now.0), ..self }
    }

    /// Length of the clock's steps: 1 ns, or several milliseconds if the kernel found no clock but its timer interrupt.
    pub fn step() -> Duration {
        let time = clock_getres(ClockId::Monotonic);
        Duration::from_secs(time.tv_sec.cast_unsigned()) + Duration::from_nanos(time.tv_nsec.cast_unsigned())
    }

    /// `CLOCK_MONOTONIC` at an instant of this run: comparable between processes of one machine.
    pub fn monotonic_ns(&self, at: Instant) -> u64 {
        self.start_ns + at.0
    }
}

/// The wall clock, and the kernel's estimate of its maximum error (`adjtimex(2)`).
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    pub unix_ns: u64,
    /// `None` if the clock is not synchronized.
    pub error_ns: Option<u64>,
}

impl WallClock {
    pub fn read() -> Self {
        // SAFETY: `timex` is plain numbers; all zeros is a valid value and requests no change.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the call reads and writes the one `timex` that it is given.
        let state = unsafe { libc::adjtimex(&raw mut timex) };
        let in_step = state >= 0 && state != libc::TIME_ERROR;
        let error_ns = in_step.then(|| u64::try_from(timex.maxerror).unwrap_or(0).saturating_mul(1000));
        Self { unix_ns: read_ns(ClockId::Realtime), error_ns }
    }
}

/// Rate of the processor's time stamp counter, in Hz; `None` if the processor has none. Takes 100 ms.
#[must_use]
pub fn counter_rate_hz() -> Option<u64> {
    let first = Reading::take()?;
    std::thread::sleep(std::time::Duration::from_millis(100));
    let last = Reading::take()?;
    let ticks = u128::from(last.ticks.checked_sub(first.ticks)?);
    u64::try_from(ticks * 1_000_000_000 / u128::from(last.raw_ns.checked_sub(first.raw_ns)?)).ok()
}

/// The time stamp counter and `CLOCK_MONOTONIC_RAW` at one instant.
struct Reading {
    ticks: u64,
    raw_ns: u64,
}

impl Reading {
    /// The pair of readings closest in time: on a busy machine a thread may be interrupted between the two.
    fn take() -> Option<Self> {
        let mut closest = (u64::MAX, None);
        for _ in 0..1000 {
            let before_ns = read_ns(ClockId::MonotonicRaw);
            let ticks = ticks()?;
            let apart_ns = read_ns(ClockId::MonotonicRaw) - before_ns;
            if apart_ns < closest.0 {
                closest = (apart_ns, Some(Self { ticks, raw_ns: before_ns + apart_ns / 2 }));
            }
        }
        closest.1
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(clippy::unnecessary_wraps)] // other processors have none
fn ticks() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> Option<u64> {
    None
}

#[inline]
pub(crate) fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both clocks count from times in the past, so neither field is negative.
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
        assert!(clock.unix_ns(last) > 1_700_000_000_000_000_000);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_counters_rate_is_the_same_each_time() {
        let rates_hz = [counter_rate_hz().unwrap(), counter_rate_hz().unwrap()];
        let apart_hz = rates_hz[0].abs_diff(rates_hz[1]);
        assert!(apart_hz < rates_hz[0] / 1000, "{rates_hz:?}");
    }

    #[test]
    fn a_wall_time_is_an_instant_until_it_has_passed() {
        let clock = Clock::start().with_wall_of_now();
        let wall = WallClock::read();
        let at = clock.at_unix_ns(wall.unix_ns + 60_000_000_000).unwrap();
        let left_ns = at.0 - clock.now().0;
        assert!((50_000_000_000..=60_000_000_000).contains(&left_ns), "{left_ns}");
        assert!(clock.unix_ns(at).abs_diff(wall.unix_ns + 60_000_000_000) < 5_000_000_000);
        assert_eq!(clock.at_unix_ns(wall.unix_ns - 1_000_000_000), None);
    }
}
