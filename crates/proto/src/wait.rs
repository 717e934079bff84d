//! Answers that wait until commands which they aborted have ended: on disks, and in connections on other threads.

use core::time::Duration;

use crate::{Endings, Instant};

/// How long an answer waits; then it says that the function failed. open-iscsi gives it 15 s.
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
    /// How often a connection looks whether it may answer.
    pub const POLL: Duration = Duration::from_millis(1);

    /// `notify` has the other connections look at what was done to them.
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
