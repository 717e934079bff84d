//! Answers that wait until commands which they aborted have ended: on disks, and in sessions on other threads.

use core::time::Duration;

use super::IscsiBackend;
use crate::{Endings, Instant, iscsi::pdu::TaskTag};

/// How long an answer waits; then it says that the function failed. open-iscsi gives it 15 s.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// How often a connection looks whether it may answer.
pub(super) const WAIT_POLL: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Wait {
    endings: Endings,
    until: Instant,
}

/// A task management function that is done but for what it waits for.
#[derive(Debug)]
pub(super) struct Managed {
    pub(super) wait: Wait,
    pub(super) itt: TaskTag,
    /// RFC 7143 §11.5.1: TARGET COLD RESET closes every connection to the target, this one too.
    pub(super) closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    Waits,
    Ended,
    TooLong,
}

impl Wait {
    pub(super) fn begin<B: IscsiBackend>(now: Instant, mut endings: Endings, backend: &mut B) -> Self {
        if !endings.are_over() {
            backend.notify_others();
        }
        Self { endings, until: now + WAIT_MAX }
    }

    pub(super) fn outcome(&mut self, now: Instant) -> WaitOutcome {
        if self.endings.are_over() {
            WaitOutcome::Ended
        } else if now >= self.until {
            WaitOutcome::TooLong
        } else {
            WaitOutcome::Waits
        }
    }
}
