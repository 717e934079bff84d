//! A slice of a session's time.

use std::time::Duration;

use iotax_proto::Instant;

/// Maximum lateness of a slice's readings, as the fraction 1/`LATE_PART` of its time.
const LATE_PART: u64 = 10;

/// When and how long a load works next.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    /// From 1; 0 for a lead-in, whose place is also 0.
    pub(super) round: usize,
    pub(super) place: usize,
    pub(super) begin_at: Instant,
    pub(super) settle: Duration,
    pub(super) runtime: Duration,
    /// Identifies its writes.
    pub(super) run: u64,
}

impl Slice {
    pub(super) fn start(&self) -> Instant {
        self.begin_at + self.settle
    }

    /// Starts the load at `earliest` if that is later than planned, with less time to settle. `None` if the measured
    /// part would already have started.
    pub(super) fn from(self, earliest: Instant) -> Option<Self> {
        let start = self.start();
        let begin_at = self.begin_at.max(earliest);
        (begin_at <= start).then(|| Self { begin_at, settle: start.since(begin_at), ..self })
    }

    pub(super) fn end(&self) -> Instant {
        self.start() + self.runtime
    }

    /// Whether its clocks were read close enough to its edges. If the machine slept over one of them, as an emulated
    /// machine may do beside other work, it measured another time than the slice.
    pub(super) fn is_whole(&self, read_ns: u64) -> bool {
        let wanted_ns = self.runtime.as_nanos() as u64;
        read_ns.abs_diff(wanted_ns) <= wanted_ns / LATE_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_whose_clocks_were_read_late_is_not_whole() {
        let slice = Slice {
            round: 1,
            place: 1,
            begin_at: Instant(0),
            settle: Duration::ZERO,
            runtime: Duration::from_millis(250),
            run: 0,
        };
        let whole = [225, 250, 275].map(|read_ms| slice.is_whole(read_ms * 1_000_000));
        let cut = [0, 6, 224, 276, 500].map(|read_ms| slice.is_whole(read_ms * 1_000_000));
        assert_eq!((whole, cut), ([true; 3], [false; 5]));
    }
}
