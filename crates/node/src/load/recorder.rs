//! Measures exactly one window, by completion: latencies, a series of intervals, outstanding I/Os over time.

use iotax_proto::Instant;

use super::{
    gaps::{GapTimer, Gaps},
    histogram::{Histogram, Sparse},
    pacing::{Arrived, Schedule},
    stream::{Direction, StreamConfig},
    verify::Tally,
};

/// All reads or all writes of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectionResult {
    pub ios: u64,
    pub bytes: u64,
    pub errors: u64,
    pub latency_sum_ns: u64,
    pub latency_min_ns: u64,
    pub latency_max_ns: u64,
    pub latency: Sparse,
    /// Latency from submission; `None` in a closed loop, where it equals the response time.
    pub service: Option<Latency>,
}

/// The durations of many events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    pub count: u64,
    pub sum_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub histogram: Sparse,
}

/// The instants of one I/O.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Index of its stream in the load.
    pub stream: usize,
    pub direction: Direction,
    pub bytes: u32,
    pub intended: Instant,
    /// The instant from which the generator could have submitted it.
    pub possible: Instant,
    pub submitted: Instant,
    pub completed: Instant,
}

/// One interval, in the warm-up or in the window.
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

/// The measurements of one thread's recorder. Those of all threads of a run can be merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    pub read: DirectionResult,
    pub write: DirectionResult,
    /// Flushes of a load that flushes; not counted as I/Os of the load.
    pub flush: DirectionResult,
    /// The same by stream, at least one.
    pub streams: Vec<StreamResult>,
    /// How late the generator itself submitted; `None` in a closed loop.
    pub lateness: Option<Latency>,
    pub series: Vec<Sample>,
    pub mean_outstanding: f64,
    /// Gaps without a completed read or write.
    pub gaps: Gaps,
    /// I/Os completed in each interval of `Schedule::count` in the window, without a shorter interval at its end.
    pub counts: Vec<u64>,
    pub verify: Tally,
    /// I/Os that failed outside the window.
    pub errors_outside: u64,
    /// Only for a load of transactions, each of which counts as a read above.
    pub oltp: Option<OltpCounts>,
}

/// I/Os of a database on the unit in the window; its transactions are counted as I/Os are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OltpCounts {
    /// Size without the log.
    pub size_bytes: u64,
    pub memory_bytes: u64,
    pub reads: u64,
    pub read_bytes: u64,
    /// Writes of pages and of the log.
    pub writes: u64,
    pub write_bytes: u64,
    pub log_writes: u64,
    pub log_write_bytes: u64,
    pub flushes: u64,
    /// Checkpoints that ended in the window.
    pub checkpoints: u64,
}

/// The results of one stream of the load.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamResult {
    pub config: StreamConfig,
    /// Number of its workers on all threads.
    pub workers: u32,
    pub read: DirectionResult,
    pub write: DirectionResult,
    /// `None` in a closed loop.
    pub arrived: Option<Arrived>,
}

#[derive(Debug)]
pub struct Recorder {
    schedule: Schedule,
    streams: Vec<StreamRecorder>,
    flush: Accumulator,
    lateness: Option<Timer>,
    both: Histogram,
    interval_start: Instant,
    interval_end: Instant,
    /// The earlier of `interval_end` and `count_end`.
    edge: Instant,
    count_end: Instant,
    counted: u64,
    counts: Vec<u64>,
    series: Vec<Sample>,
    errors_outside: u64,
    completed: u64,
    /// How many of them `gaps` has recorded.
    seen: u64,
    gaps: GapTimer,
    outstanding: Outstanding,
}

/// One of the load's streams.
#[derive(Debug)]
struct StreamRecorder {
    config: StreamConfig,
    workers: u32,
    read: Accumulator,
    write: Accumulator,
}

/// One direction: the current interval, and the window so far.
#[derive(Debug)]
struct Accumulator {
    response: Timer,
    /// Only in an open loop.
    service: Option<Timer>,
    interval_bytes: u64,
    interval_errors: u64,
    bytes: u64,
    errors: u64,
}

/// Durations of the current interval, and of the window so far.
#[derive(Debug)]
struct Timer {
    interval: Histogram,
    interval_sum_ns: u64,
    interval_min_ns: u64,
    interval_max_ns: u64,
    window: Histogram,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Recorder {
    /// `streams`: those of the load, with the number of workers of each. In an open loop, service time and lateness are
    /// recorded, too.
    pub fn new(schedule: Schedule, streams: impl IntoIterator<Item = (StreamConfig, u32)>, open: bool) -> Self {
        let stream = |(config, workers)| {
            let (read, write) = (Accumulator::new(open), Accumulator::new(open));
            StreamRecorder { config, workers, read, write }
        };
        let mut recorder = Self {
            schedule,
            streams: streams.into_iter().map(stream).collect(),
            flush: Accumulator::new(false),
            lateness: open.then(Timer::new),
            both: Histogram::default(),
            interval_start: schedule.warmup_start,
            interval_end: schedule.warmup_start,
            edge: schedule.warmup_start,
            count_end: Instant(u64::MAX),
            counted: 0,
            counts: Vec::new(),
            series: Vec::new(),
            errors_outside: 0,
            completed: 0,
            seen: 0,
            gaps: GapTimer::new(),
            outstanding: Outstanding { schedule, count: 0, since: Instant(0), integral: 0 },
        };
        recorder.interval_end = recorder.end_after(schedule.warmup_start);
        if schedule.start == schedule.warmup_start {
            recorder.start_window();
        }
        recorder.edge = recorder.interval_end.min(recorder.count_end);
        recorder
    }

    /// Closes the intervals that ended by `now`. To be called before the events at `now` are recorded.
    pub fn advance(&mut self, now: Instant) {
        while now >= self.edge && self.interval_start < self.schedule.end {
            if self.edge == self.count_end {
                self.close_count();
            } else {
                self.close_interval();
            }
            self.edge = self.interval_end.min(self.count_end);
        }
    }

    pub fn complete(&mut self, io: Completion) {
        self.completed += 1;
        let since = |instant| io.completed.since(instant).as_nanos() as u64;
        let side = self.side(io.stream, io.direction);
        side.interval_bytes += u64::from(io.bytes);
        side.response.record(since(io.intended));
        if let Some(service) = &mut side.service {
            service.record(since(io.submitted));
        }
        if let Some(lateness) = &mut self.lateness {
            lateness.record(io.submitted.since(io.possible).as_nanos() as u64);
        }
    }

    pub fn flushed(&mut self, submitted: Instant, completed: Instant) {
        self.flush.response.record(completed.since(submitted).as_nanos() as u64);
    }

    /// I/Os so far, including those outside the window.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    pub fn error(&mut self, stream: usize, direction: Direction) {
        let side = if direction == Direction::Flush { &mut self.flush } else { self.side(stream, direction) };
        side.interval_errors += 1;
    }

    /// `count` I/Os are outstanding from `now` on. To be called once all events at `now` are recorded.
    pub fn outstanding(&mut self, now: Instant, count: u32) {
        self.end_turn(now);
        self.outstanding.set(now, count);
    }

    /// Called once for all I/Os that completed at `now`.
    fn end_turn(&mut self, now: Instant) {
        if self.completed != self.seen {
            self.seen = self.completed;
            self.gaps.complete(now);
        }
    }

    /// When the next interval ends; `None` after the window.
    pub fn next_edge(&self) -> Option<Instant> {
        (self.interval_start < self.schedule.end).then_some(self.interval_end)
    }

    /// Intervals from number `from` on: a driver reports them as they are completed.
    pub fn samples(&self, from: usize) -> &[Sample] {
        self.series.get(from..).unwrap_or_default()
    }

    /// The results of the window. Later records are not included.
    #[allow(clippy::cast_precision_loss)] // nanoseconds of a run, far below 2^53
    pub fn measured(&self, verify: Tally) -> Measured {
        let window_ns = self.schedule.end.since(self.schedule.start).as_nanos().max(1);
        let of = |stream: &StreamRecorder| StreamResult {
            config: stream.config.clone(),
            workers: stream.workers,
            read: stream.read.result(),
            write: stream.write.result(),
            arrived: None,
        };
        let streams: Vec<StreamResult> = self.streams.iter().map(of).collect();
        let (mut read, mut write) = (DirectionResult::default(), DirectionResult::default());
        for side in &streams {
            read.merge(&side.read);
            write.merge(&side.write);
        }
        Measured {
            read,
            write,
            flush: self.flush.result(),
            streams,
            lateness: self.lateness.as_ref().map(Timer::result),
            series: self.series.clone(),
            mean_outstanding: self.outstanding.until(self.schedule.end) as f64 / window_ns as f64,
            gaps: self.gaps.gaps(),
            counts: self.counts.clone(),
            verify,
            errors_outside: self.errors_outside + self.interval_errors(),
            oltp: None,
        }
    }

    /// The accumulator of reads or of writes.
    fn side(&mut self, stream: usize, direction: Direction) -> &mut Accumulator {
        let stream = &mut self.streams[stream];
        match direction {
            Direction::Read => &mut stream.read,
            Direction::Write | Direction::Flush => &mut stream.write,
        }
    }

    fn interval_errors(&self) -> u64 {
        let of_ios: u64 =
            self.streams.iter().map(|stream| stream.read.interval_errors + stream.write.interval_errors).sum();
        of_ios + self.flush.interval_errors
    }

    /// Intervals are cut at the window's edges, so that each is completely inside or outside.
    fn end_after(&self, at: Instant) -> Instant {
        let edge = if at < self.schedule.start { self.schedule.start } else { self.schedule.end };
        (at + self.schedule.sample).min(edge)
    }

    fn start_window(&mut self) {
        self.gaps.start(self.schedule.start);
        self.counted = self.completed;
        self.count_end = self.count_end_after(self.schedule.start);
    }

    fn count_end_after(&self, at: Instant) -> Instant {
        let end = self.schedule.count.map(|count| at + count);
        end.filter(|end| *end <= self.schedule.end).unwrap_or(Instant(u64::MAX))
    }

    fn close_count(&mut self) {
        self.counts.push(self.completed - self.counted);
        self.counted = self.completed;
        self.count_end = self.count_end_after(self.count_end);
    }

    fn close_interval(&mut self) {
        let in_window = self.interval_start >= self.schedule.start;
        self.both.reset();
        let mut sample = Sample {
            at_ns: self.interval_end.since(self.schedule.warmup_start).as_nanos() as u64,
            in_window,
            duration_ns: self.interval_end.since(self.interval_start).as_nanos() as u64,
            reads: 0,
            writes: 0,
            read_bytes: 0,
            write_bytes: 0,
            latency: Sparse::default(),
            latency_max_ns: 0,
        };
        for StreamRecorder { read, write, .. } in &self.streams {
            for side in [read, write] {
                self.both.add(&side.response.interval);
                sample.latency_max_ns = sample.latency_max_ns.max(side.response.interval_max_ns);
            }
            sample.reads += read.response.interval.count();
            sample.writes += write.response.interval.count();
            sample.read_bytes += read.interval_bytes;
            sample.write_bytes += write.interval_bytes;
        }
        sample.latency = Sparse::of(&self.both);
        self.series.push(sample);
        if !in_window {
            self.errors_outside += self.interval_errors();
        }
        for stream in &mut self.streams {
            stream.read.close_interval(in_window);
            stream.write.close_interval(in_window);
        }
        self.flush.close_interval(in_window);
        if let Some(lateness) = &mut self.lateness {
            lateness.close_interval(in_window);
        }
        self.interval_start = self.interval_end;
        if self.interval_start == self.schedule.start {
            self.start_window();
        } else if self.interval_start == self.schedule.end {
            self.gaps.end(self.schedule.end);
        }
        self.interval_end = self.end_after(self.interval_start);
    }
}

impl Accumulator {
    fn new(open: bool) -> Self {
        Self {
            response: Timer::new(),
            service: open.then(Timer::new),
            interval_bytes: 0,
            interval_errors: 0,
            bytes: 0,
            errors: 0,
        }
    }

    fn close_interval(&mut self, in_window: bool) {
        if in_window {
            self.bytes += self.interval_bytes;
            self.errors += self.interval_errors;
        }
        self.interval_bytes = 0;
        self.interval_errors = 0;
        self.response.close_interval(in_window);
        if let Some(service) = &mut self.service {
            service.close_interval(in_window);
        }
    }

    fn result(&self) -> DirectionResult {
        let response = self.response.result();
        DirectionResult {
            ios: response.count,
            bytes: self.bytes,
            errors: self.errors,
            latency_sum_ns: response.sum_ns,
            latency_min_ns: response.min_ns,
            latency_max_ns: response.max_ns,
            latency: response.histogram,
            service: self.service.as_ref().map(Timer::result),
        }
    }
}

impl Timer {
    fn new() -> Self {
        Self {
            interval: Histogram::default(),
            interval_sum_ns: 0,
            interval_min_ns: u64::MAX,
            interval_max_ns: 0,
            window: Histogram::default(),
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    fn record(&mut self, duration_ns: u64) {
        self.interval.record(duration_ns);
        self.interval_sum_ns += duration_ns;
        self.interval_min_ns = self.interval_min_ns.min(duration_ns);
        self.interval_max_ns = self.interval_max_ns.max(duration_ns);
    }

    fn close_interval(&mut self, in_window: bool) {
        if in_window {
            self.window.add(&self.interval);
            self.sum_ns += self.interval_sum_ns;
            self.min_ns = self.min_ns.min(self.interval_min_ns);
            self.max_ns = self.max_ns.max(self.interval_max_ns);
        }
        self.interval.reset();
        self.interval_sum_ns = 0;
        self.interval_min_ns = u64::MAX;
        self.interval_max_ns = 0;
    }

    fn result(&self) -> Latency {
        let count = self.window.count();
        Latency {
            count,
            sum_ns: self.sum_ns,
            min_ns: if count == 0 { 0 } else { self.min_ns },
            max_ns: self.max_ns,
            histogram: Sparse::of(&self.window),
        }
    }
}

/// Outstanding I/Os, integrated over the window.
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
        if count == self.count {
            return;
        }
        self.integral = self.until(now);
        self.since = now;
        self.count = count;
    }

    fn until(&self, now: Instant) -> u128 {
        let (from, to) = (self.since.max(self.schedule.start), now.min(self.schedule.end));
        self.integral + u128::from(self.count) * to.since(from).as_nanos()
    }
}

impl DirectionResult {
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
        merge_latency(&mut self.service, other.service.as_ref());
    }
}

impl Latency {
    fn merge(&mut self, other: &Self) {
        self.min_ns = match (self.count, other.count) {
            (_, 0) => self.min_ns,
            (0, _) => other.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.histogram.merge(&other.histogram);
    }
}

fn merge_latency(ours: &mut Option<Latency>, theirs: Option<&Latency>) {
    if let Some(theirs) = theirs {
        ours.get_or_insert_default().merge(theirs);
    }
}

impl StreamResult {
    fn merge(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        if let Some(theirs) = other.arrived {
            self.arrived.get_or_insert_default().merge(theirs);
        }
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
    /// Adds another thread's results of the same window.
    pub fn merge(&mut self, other: &Self) {
        self.add(other);
        for (ours, theirs) in self.series.iter_mut().zip(&other.series) {
            ours.merge(theirs);
        }
        self.mean_outstanding += other.mean_outstanding;
        self.gaps.merge(&other.gaps);
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *ours += theirs;
        }
    }

    /// Adds the results of a later slice, as long as each of the `slices` already included.
    pub fn append(&mut self, later: &Self, slices: u32) {
        let peak = |of: &StreamResult| of.arrived.map_or(0, |arrived| arrived.backlog_peak);
        let peaks: Vec<u64> =
            self.streams.iter().zip(&later.streams).map(|(ours, theirs)| peak(ours).max(peak(theirs))).collect();
        self.add(later);
        for (stream, peak) in self.streams.iter_mut().zip(peaks) {
            if let Some(arrived) = &mut stream.arrived {
                arrived.backlog_peak = peak;
            }
        }
        self.series.extend(later.series.iter().cloned());
        self.gaps.append(&later.gaps);
        self.counts.extend(&later.counts);
        let before = f64::from(slices);
        self.mean_outstanding = (self.mean_outstanding * before + later.mean_outstanding) / (before + 1.0);
    }

    fn add(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        self.flush.merge(&other.flush);
        for (ours, theirs) in self.streams.iter_mut().zip(&other.streams) {
            ours.merge(theirs);
        }
        merge_latency(&mut self.lateness, other.lateness.as_ref());
        self.verify.merge(other.verify);
        self.errors_outside += other.errors_outside;
        if let (Some(ours), Some(theirs)) = (&mut self.oltp, &other.oltp) {
            ours.add(theirs);
        }
    }
}

impl OltpCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
        self.log_writes += other.log_writes;
        self.log_write_bytes += other.log_write_bytes;
        self.flushes += other.flushes;
        self.checkpoints += other.checkpoints;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::histogram::LATENCY_MAX_NS, *};

    const MS: u64 = 1_000_000;

    fn schedule() -> Schedule {
        let duration = Duration::from_millis;
        Schedule::new(Instant(10 * MS), duration(25), duration(100), duration(10))
    }

    fn recorder(schedule: Schedule) -> Recorder {
        let config = StreamConfig {
            name: String::new(),
            share: 1.0,
            block_size_bytes: 4096,
            read_percent: 50.0,
            random_percent: 100.0,
            shared: None,
        };
        Recorder::new(schedule, [(config, 1)], false)
    }

    fn record(recorder: &mut Recorder, at: u64, direction: Direction) {
        recorder.advance(Instant(at));
        let completed = Instant(at);
        let start = Instant(at - 50_000);
        recorder.complete(Completion {
            stream: 0,
            direction,
            bytes: 4096,
            intended: start,
            possible: start,
            submitted: start,
            completed,
        });
        recorder.end_turn(completed);
    }

    #[test]
    fn window_counts_what_completes_inside_it() {
        let mut recorder = recorder(schedule());
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
        let mut recorder = recorder(schedule());
        (10..150).for_each(|ms| record(&mut recorder, ms * MS, Direction::Write));
        let measured = recorder.measured(Tally::default());
        let (warmup, window): (Vec<_>, Vec<_>) = measured.series.iter().partition(|sample| !sample.in_window);
        assert_eq!(warmup.iter().map(|sample| sample.duration_ns / MS).collect::<Vec<_>>(), [10, 10, 5]);
        assert_eq!(window.iter().map(|sample| sample.writes).collect::<Vec<_>>(), [10; 10]);
        assert_eq!(measured.write.ios, 100);
    }

    #[test]
    fn mean_outstanding_is_weighted_by_time_within_the_window() {
        let mut recorder = recorder(schedule());
        recorder.outstanding(Instant(10 * MS), 8);
        recorder.outstanding(Instant(60 * MS), 4);
        recorder.outstanding(Instant(110 * MS), 0);
        recorder.outstanding(Instant(300 * MS), 0);
        let mean = recorder.measured(Tally::default()).mean_outstanding;
        assert!((mean - (8.0 * 25.0 + 4.0 * 50.0) / 100.0).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn threads_merge_to_the_whole() {
        let (mut first, mut second, mut whole) = (recorder(schedule()), recorder(schedule()), recorder(schedule()));
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
    fn gaps_are_those_of_the_window() {
        let mut warm = recorder(schedule());
        for at in [11 * MS, 34 * MS, 60 * MS, 62 * MS, 90 * MS, 140 * MS, 200 * MS] {
            record(&mut warm, at, Direction::Read);
        }
        assert_eq!(warm.measured(Tally::default()).gaps.longest_ns, 45 * MS);
        let duration = Duration::from_millis;
        let mut cold = recorder(Schedule::new(Instant(10 * MS), Duration::ZERO, duration(100), duration(10)));
        record(&mut cold, 60 * MS, Direction::Read);
        record(&mut cold, 200 * MS, Direction::Read);
        assert_eq!(cold.measured(Tally::default()).gaps.longest_ns, 50 * MS);
    }

    #[test]
    fn short_intervals_are_counted_in_the_window_alone() {
        let count = Some(Duration::from_millis(7));
        let mut recorder = recorder(Schedule { count, ..schedule() });
        (10..150).for_each(|ms| record(&mut recorder, ms * MS, Direction::Read));
        let measured = recorder.measured(Tally::default());
        // The last 2 of the 100 ms are not a whole interval.
        assert_eq!(measured.counts, [7; 14]);
        let window: Vec<_> = measured.series.iter().filter(|sample| sample.in_window).map(|each| each.reads).collect();
        assert_eq!(window, [10; 10]);
        let mut once = self::recorder(Schedule { count: Some(Duration::from_millis(50)), ..schedule() });
        record(&mut once, 90 * MS, Direction::Read);
        once.advance(Instant(200 * MS));
        assert_eq!(once.measured(Tally::default()).counts, [0, 1]);
    }

    #[test]
    fn latency_beyond_the_histogram_saturates_and_keeps_its_maximum() {
        let hours = |count: u64| Instant(count * 3_600_000_000_000);
        let second = Duration::from_secs(1);
        let mut recorder = recorder(Schedule::new(hours(2), second, second * 10, second));
        recorder.advance(hours(2) + second * 5);
        recorder.complete(Completion {
            stream: 0,
            direction: Direction::Read,
            bytes: 512,
            intended: Instant(0),
            possible: Instant(0),
            submitted: Instant(0),
            completed: hours(2),
        });
        recorder.advance(hours(3));
        let read = recorder.measured(Tally::default()).read;
        assert_eq!((read.ios, read.latency_max_ns), (1, hours(2).0));
        assert!(read.latency.max_ns() >= LATENCY_MAX_NS);
    }

    #[test]
    fn backlog_of_several_slices_is_as_long_as_the_longest_and_that_of_threads_their_sum() {
        let slice = |backlog_peak| {
            let mut measured = recorder(schedule()).measured(Tally::default());
            let arrived = Arrived { offered: 10, dropped: 1, backlog_peak, backlog_end: 2 };
            measured.streams[0].arrived = Some(arrived);
            measured
        };
        let mut all = slice(5);
        all.append(&slice(7), 1);
        all.append(&slice(3), 2);
        let expected = Arrived { offered: 30, dropped: 3, backlog_peak: 7, backlog_end: 6 };
        assert_eq!(all.streams[0].arrived, Some(expected));
        all.merge(&slice(3));
        assert_eq!(all.streams[0].arrived.map(|arrived| arrived.backlog_peak), Some(10));
    }
}
