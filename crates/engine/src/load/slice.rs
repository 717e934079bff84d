//! A slice of a session's time.

use std::time::Duration;

use iotax_proto::Instant;

/// When and how long a load works next.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    /// From 1; 0 of a lead-in, whose place is 0, too.
    pub(super) round: usize,
    pub(super) place: usize,
    pub(super) begin_at: Instant,
    pub(super) settle: Duration,
    pub(super) runtime: Duration,
    /// Names its writes.
    pub(super) run: u64,
}

impl Slice {
    pub(super) fn start(&self) -> Instant {
        self.begin_at + self.settle
    }

    /// With its load from then on, where that is later than was meant: it settles for less time. `None` where it would be measured
    /// by then.
    pub(super) fn from(self, earliest: Instant) -> Option<Self> {
        let start = self.start();
        let begin_at = self.begin_at.max(earliest);
        (begin_at <= start).then(|| Self { begin_at, settle: start.since(begin_at), ..self })
    }

    pub(super) fn end(&self) -> Instant {
        self.start() + self.runtime
    }
}
