//! Time as an argument, and responses that wait until aborted commands have ended, on disks and in connections on other
//! threads.

use core::{ops::Add, time::Duration};

use crate::Endings;

/// Nanoseconds since the start of the run. Always passed as an argument: nothing in this crate reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// How long a response may wait. After that the function fails. open-iscsi allows 15 s.
const WAIT_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Wait {
    endings: Endings,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    Waits,
    Ended,
    TooLong,
}

impl Wait {
    /// How often a connection checks whether a waiting response is due.
    pub const POLL: Duration = Duration::from_millis(1);

    /// Starts to wait. `notify` makes other connections check what they must end.
    pub fn begin(now: Instant, mut endings: Endings, notify: impl FnOnce()) -> Self {
        if !endings.are_over() {
            notify();
        }
        Self { endings, until: now + WAIT_MAX }
    }

    pub fn outcome(&mut self, now: Instant) -> WaitOutcome {
        if self.endings.are_over() {
            WaitOutcome::Ended
        } else if now >= self.until {
            WaitOutcome::TooLong
        } else {
            WaitOutcome::Waits
        }
    }
}
