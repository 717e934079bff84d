//! What is measured: latencies, a series by interval, I/Os outstanding over time; exactly over a window, by completion.

use std::time::Duration;

use hdrhistogram::Histogram;
use iotax_proto::Instant;

use super::{histogram::Sparse, mix::Direction, verify::Tally};

/// Latencies above this count as this. With 3 significant digits a histogram takes 220 KiB.
const LATENCY_MAX_NS: u64 = 100_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// All reads or all writes of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamResult {
    pub ios: u64,
    pub bytes: u64,
    pub errors: u64,
    pub latency_sum_ns: u64,
    pub latency_min_ns: u64,
    pub latency_max_ns: u64,
    pub latency: Sparse,
}

/// One interval, in warm-up or in the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// End of the interval, from the start of the warm-up.
    pub at_ns: u64,
    pub in_window: bool,
    pub duration_ns: u64,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    /// Reads and writes together.
    pub latency: Sparse,
    pub latency_max_ns: u64,
}

/// What one thread's recorder measured; threads' results of one run merge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    pub read: StreamResult,
    pub write: StreamResult,
    pub series: Vec<Sample>,
    pub mean_outstanding: f64,
    pub verify: Tally,
    /// I/Os that failed outside the window.
    pub errors_outside: u64,
}

/// When a run warms up, measures and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub warmup_start: Instant,
    pub start: Instant,
    pub end: Instant,
    pub sample: Duration,
}

impl Schedule {
    pub fn new(at: Instant, warmup: Duration, runtime: Duration, sample: Duration) -> Self {
        let start = at + warmup;
        Self { warmup_start: at, start, end: start + runtime, sample: sample.max(Duration::from_millis(1)) }
    }
}

#[derive(Debug)]
pub struct Recorder {
    schedule: Schedule,
    read: Accumulator,
    write: Accumulator,
    both: Histogram<u64>,
    interval_start: Instant,
    interval_end: Instant,
    series: Vec<Sample>,
    errors_outside: u64,
    outstanding: Outstanding,
}

/// One direction: the interval under way, and the window so far.
#[derive(Debug)]
struct Accumulator {
    interval: Histogram<u64>,
    interval_bytes: u64,
    interval_sum_ns: u64,
    interval_min_ns: u64,
    interval_max_ns: u64,
    interval_errors: u64,
    window: Histogram<u64>,
    total: StreamResult,
}

impl Recorder {
    pub fn new(schedule: Schedule) -> Self {
        let mut recorder = Self {
            schedule,
            read: Accumulator::new(),
            write: Accumulator::new(),
            both: histogram(),
            interval_start: schedule.warmup_start,
            interval_end: schedule.warmup_start,
            series: Vec::new(),
            errors_outside: 0,
            outstanding: Outstanding { schedule, count: 0, since: Instant(0), integral: 0 },
        };
        recorder.interval_end = recorder.end_after(schedule.warmup_start);
        recorder
    }

    /// Time has come to `now`: intervals that ended are closed. To be called before what happened at `now` is recorded.
    pub fn advance(&mut self, now: Instant) {
        while now >= self.interval_end && self.interval_start < self.schedule.end {
            self.close_interval();
        }
    }

    pub fn complete(&mut self, direction: Direction, bytes: u32, latency: Duration) {
        let latency_ns = latency.as_nanos() as u64;
        self.side(direction).record(bytes, latency_ns);
    }

    pub fn error(&mut self, direction: Direction) {
        self.side(direction).interval_errors += 1;
    }

    /// `count` I/Os are outstanding from `now` on.
    pub fn outstanding(&mut self, now: Instant, count: u32) {
        self.outstanding.set(now, count);
    }

    /// When an interval ends next; `None` after the window.
    pub fn next_edge(&self) -> Option<Instant> {
        (self.interval_start < self.schedule.end).then_some(self.interval_end)
    }

    /// Intervals closed since the last call's `from`: a driver shows them as they come.
    pub fn samples(&self, from: usize) -> &[Sample] {
        self.series.get(from..).unwrap_or_default()
    }

    /// The window's figures. What is recorded after its end is not in them.
    #[allow(clippy::cast_precision_loss)] // nanoseconds of a run, far below 2^53
    pub fn measured(&self, verify: Tally) -> Measured {
        let window_ns = self.schedule.end.since(self.schedule.start).as_nanos().max(1);
        Measured {
            read: self.read.result(),
            write: self.write.result(),
            series: self.series.clone(),
            mean_outstanding: self.outstanding.until(self.schedule.end) as f64 / window_ns as f64,
            verify,
            errors_outside: self.errors_outside + self.read.interval_errors + self.write.interval_errors,
        }
    }

    fn side(&mut self, direction: Direction) -> &mut Accumulator {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }

    /// Intervals are cut at the window's edges, so that each is wholly inside or outside.
    fn end_after(&self, at: Instant) -> Instant {
        let edge = if at < self.schedule.start { self.schedule.start } else { self.schedule.end };
        (at + self.schedule.sample).min(edge)
    }

    fn close_interval(&mut self) {
        let in_window = self.interval_start >= self.schedule.start;
        self.both.reset();
        for side in [&self.read, &self.write] {
            self.both.add(&side.interval).expect("histograms of equal bounds");
        }
        self.series.push(Sample {
            at_ns: self.interval_end.since(self.schedule.warmup_start).as_nanos() as u64,
            in_window,
            duration_ns: self.interval_end.since(self.interval_start).as_nanos() as u64,
            reads: self.read.interval.len(),
            writes: self.write.interval.len(),
            read_bytes: self.read.interval_bytes,
            write_bytes: self.write.interval_bytes,
            latency: Sparse::of(&self.both),
            latency_max_ns: self.read.interval_max_ns.max(self.write.interval_max_ns),
        });
        if !in_window {
            self.errors_outside += self.read.interval_errors + self.write.interval_errors;
        }
        self.read.close_interval(in_window);
        self.write.close_interval(in_window);
        self.interval_start = self.interval_end;
        self.interval_end = self.end_after(self.interval_start);
    }
}

impl Accumulator {
    fn new() -> Self {
        Self {
            interval: histogram(),
            interval_bytes: 0,
            interval_sum_ns: 0,
            interval_min_ns: u64::MAX,
            interval_max_ns: 0,
            interval_errors: 0,
            window: histogram(),
            total: StreamResult { latency_min_ns: u64::MAX, ..StreamResult::default() },
        }
    }

    fn record(&mut self, bytes: u32, latency_ns: u64) {
        self.interval.saturating_record(latency_ns);
        self.interval_bytes += u64::from(bytes);
        self.interval_sum_ns += latency_ns;
        self.interval_min_ns = self.interval_min_ns.min(latency_ns);
        self.interval_max_ns = self.interval_max_ns.max(latency_ns);
    }

    fn close_interval(&mut self, in_window: bool) {
        if in_window {
            self.window.add(&self.interval).expect("histograms of equal bounds");
            self.total.ios += self.interval.len();
            self.total.bytes += self.interval_bytes;
            self.total.errors += self.interval_errors;
            self.total.latency_sum_ns += self.interval_sum_ns;
            self.total.latency_min_ns = self.total.latency_min_ns.min(self.interval_min_ns);
            self.total.latency_max_ns = self.total.latency_max_ns.max(self.interval_max_ns);
        }
        self.interval.reset();
        self.interval_bytes = 0;
        self.interval_sum_ns = 0;
        self.interval_min_ns = u64::MAX;
        self.interval_max_ns = 0;
        self.interval_errors = 0;
    }

    fn result(&self) -> StreamResult {
        let latency_min_ns = if self.total.ios == 0 { 0 } else { self.total.latency_min_ns };
        StreamResult { latency: Sparse::of(&self.window), latency_min_ns, ..self.total.clone() }
    }
}

/// I/Os outstanding, summed over the window's time.
#[derive(Debug)]
struct Outstanding {
    schedule: Schedule,
    count: u32,
    since: Instant,
    /// I/Os × ns
    integral: u128,
}

impl Outstanding {
    fn set(&mut self, now: Instant, count: u32) {
        self.integral = self.until(now);
        self.since = now;
        self.count = count;
    }

    fn until(&self, now: Instant) -> u128 {
        let (from, to) = (self.since.max(self.schedule.start), now.min(self.schedule.end));
        self.integral + u128::from(self.count) * to.since(from).as_nanos()
    }
}

impl StreamResult {
    fn merge(&mut self, other: &Self) {
        self.latency_min_ns = match (self.ios, other.ios) {
            (_, 0) => self.latency_min_ns,
            (0, _) => other.latency_min_ns,
            _ => self.latency_min_ns.min(other.latency_min_ns),
        };
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency_sum_ns += other.latency_sum_ns;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
        self.latency.merge(&other.latency);
    }
}

impl Sample {
    /// Adds another thread's sample of the same interval.
    pub fn merge(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
        self.latency.merge(&other.latency);
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
    }
}

impl Measured {
    /// Adds another thread's figures of the same window.
    pub fn merge(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        for (ours, theirs) in self.series.iter_mut().zip(&other.series) {
            ours.merge(theirs);
        }
        self.mean_outstanding += other.mean_outstanding;
        self.verify.merge(other.verify);
        self.errors_outside += other.errors_outside;
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, SIGNIFICANT_DIGITS).expect("bounds that a histogram takes")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn schedule() -> Schedule {
        let duration = Duration::from_millis;
        Schedule::new(Instant(10 * MS), duration(25), duration(100), duration(10))
    }

    fn record(recorder: &mut Recorder, at: u64, direction: Direction) {
        recorder.advance(Instant(at));
        recorder.complete(direction, 4096, Duration::from_micros(50));
    }

    #[test]
    fn window_counts_what_completes_inside_it() {
        let mut recorder = Recorder::new(schedule());
        for at in [34 * MS, 35 * MS - 1, 35 * MS, 100 * MS, 135 * MS - 1, 135 * MS, 200 * MS] {
            record(&mut recorder, at, Direction::Read);
        }
        let measured = recorder.measured(Tally::default());
        assert_eq!((measured.read.ios, measured.read.bytes, measured.write.ios), (3, 3 * 4096, 0));
        assert_eq!(measured.read.latency.count(), 3);
        assert_eq!(measured.read.latency_sum_ns, 150_000);
    }

    #[test]
    fn series_covers_warmup_and_window_without_crossing_the_edge() {
        let mut recorder = Recorder::new(schedule());
        (10..150).for_each(|ms| record(&mut recorder, ms * MS, Direction::Write));
        let measured = recorder.measured(Tally::default());
        let (warmup, window): (Vec<_>, Vec<_>) = measured.series.iter().partition(|sample| !sample.in_window);
        assert_eq!(warmup.iter().map(|sample| sample.duration_ns / MS).collect::<Vec<_>>(), [10, 10, 5]);
        assert_eq!(window.iter().map(|sample| sample.writes).collect::<Vec<_>>(), [10; 10]);
        assert_eq!(measured.write.ios, 100);
    }

    #[test]
    fn mean_outstanding_is_weighted_by_time_within_the_window() {
        let mut recorder = Recorder::new(schedule());
        recorder.outstanding(Instant(10 * MS), 8);
        recorder.outstanding(Instant(60 * MS), 4);
        recorder.outstanding(Instant(110 * MS), 0);
        recorder.outstanding(Instant(300 * MS), 0);
        let mean = recorder.measured(Tally::default()).mean_outstanding;
        assert!((mean - (8.0 * 25.0 + 4.0 * 50.0) / 100.0).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn threads_merge_to_the_whole() {
        let (mut first, mut second, mut whole) =
            (Recorder::new(schedule()), Recorder::new(schedule()), Recorder::new(schedule()));
        for ms in 10..150 {
            let part = if ms % 3 == 0 { &mut first } else { &mut second };
            let direction = if ms % 2 == 0 { Direction::Read } else { Direction::Write };
            record(part, ms * MS, direction);
            record(&mut whole, ms * MS, direction);
        }
        first.advance(Instant(200 * MS));
        second.advance(Instant(200 * MS));
        let mut merged = first.measured(Tally::default());
        merged.merge(&second.measured(Tally::default()));
        assert_eq!(merged, whole.measured(Tally::default()));
    }

    #[test]
    fn latency_beyond_the_histogram_saturates_and_keeps_its_maximum() {
        let mut recorder = Recorder::new(schedule());
        recorder.advance(Instant(40 * MS));
        recorder.complete(Direction::Read, 512, Duration::from_secs(500));
        recorder.advance(Instant(200 * MS));
        let read = recorder.measured(Tally::default()).read;
        assert_eq!((read.ios, read.latency_max_ns), (1, 500_000_000_000));
        assert!(read.latency.max_ns() >= LATENCY_MAX_NS);
    }
}
