use std::time::Duration;

use iotax_proto::Instant;

/// When a run warms up, measures and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub warmup_start: Instant,
    pub start: Instant,
    pub end: Instant,
    pub sample: Duration,
    /// I/Os of the window are also counted in intervals of this length.
    pub count: Option<Duration>,
}

impl Schedule {
    pub fn new(at: Instant, warmup: Duration, runtime: Duration, sample: Duration) -> Self {
        let start = at + warmup;
        Self {
            warmup_start: at,
            start,
            end: start + runtime,
            sample: sample.max(Duration::from_millis(1)),
            count: None,
        }
    }
}
