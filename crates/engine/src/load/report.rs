//! Turns measurements into events. Intervals of several threads are reported once every thread has completed them.

use std::collections::{BTreeMap, VecDeque};

use iotax_node::load::{
    Arrived, DirectionResult, Gaps, Latency, Measured, OltpCounts, PathPolicy, PathReport, Sample, Sparse, StreamResult,
};
use iotax_proto::Instant;
use iotax_runtime::cpu::{EventCounts, MachineTimes};

use super::{
    threads::{Plan, Unit},
    window::{CpuPoint, ProcessUsage, Span, Usage},
};
use crate::{
    document::{
        self, ArrivedReport, Checks, ConnectedEvent, CoreCpu, CountsReport, CpuEvents, CpuReport, DatabaseReport,
        DirectionReport, GapsReport, Histogram, LoadDocument, MachineCpu, OpenReport, Outstanding, PacingSpec,
        PathWork, PathsReport, ProcessCpu, ResultEvent, SampleEvent, SeriesPoint, StreamReport, VerifyReport,
        VmThreadsCpu, Window,
    },
    version::VERSION,
};

/// Enough to find the gaps that several machines have in common.
const GAPS_TOLD_MAX: usize = 64;

pub(crate) fn connected(endpoint: &str, driver: &'static str, unit: &Unit) -> ConnectedEvent {
    ConnectedEvent {
        id: None,
        driver,
        endpoint: endpoint.to_owned(),
        size_bytes: unit.geometry.size_bytes,
        block_size_bytes: unit.geometry.block_size,
        max_io_bytes: unit.geometry.max_io_bytes,
        identity: words(&unit.facts.identity),
        negotiated: words(&unit.facts.negotiated),
    }
}

fn words(pairs: &[(&'static str, String)]) -> BTreeMap<&'static str, String> {
    pairs.iter().cloned().collect()
}

pub(crate) fn sample(sample: &Sample) -> SampleEvent {
    SampleEvent {
        id: None,
        round: None,
        at_ns: sample.at_ns,
        phase: if sample.in_window { "run" } else { "warmup" },
        iops: per_second(sample.reads + sample.writes, sample.duration_ns),
        read_bytes: sample.read_bytes,
        write_bytes: sample.write_bytes,
        latency_p50_ns: sample.latency.quantile_ns(0.5),
        latency_p99_ns: sample.latency.quantile_ns(0.99),
    }
}

pub(super) fn result(
    document: &LoadDocument,
    plan: &Plan,
    driver: &'static str,
    span: Span,
    measured: &Measured,
    usage: &Usage,
) -> ResultEvent {
    let window = Window {
        start_unix_ns: plan.clock.unix_ns(span.start),
        start_ns: span.start.0,
        duration_ns: span.measured.as_nanos() as u64,
    };
    let found = figures(document, &plan.endpoint.text, window, measured, cpu(usage), usage.duration_ns);
    let checks = Checks { start_skew_ns: span.start_skew_ns, ..found.checks };
    let cpu_series = usage.series.iter().map(|point| cpu_point(point, "initiator")).collect();
    ResultEvent { driver, cpu_series, checks, ..found }
}

/// The results of a load on any clock. `cpu` was read over `cpu_window_ns`.
pub(crate) fn figures(
    document: &LoadDocument,
    endpoint: &str,
    window: Window,
    measured: &Measured,
    cpu: CpuReport,
    cpu_window_ns: u64,
) -> ResultEvent {
    let waits = std::iter::once(&cpu.initiator).chain(&cpu.target).map(|process| process.run_queue_wait_ns);
    let run_queue_wait = ratio(waits.sum(), cpu_window_ns);
    let window_start = Instant(window.start_ns);
    ResultEvent {
        id: None,
        engine_version: VERSION,
        driver: "",
        endpoint: endpoint.to_owned(),
        window,
        read: direction(&measured.read),
        write: direction(&measured.write),
        sync: (document.fsync > 0).then(|| direction(&measured.flush)),
        streams: streams(document, measured),
        open: open(document, measured),
        database: measured.oltp.as_ref().map(database),
        cpu,
        series: series(&measured.series),
        cpu_series: Vec::new(),
        outstanding: Outstanding {
            workers: document.workers,
            // A client has one transaction at a time.
            per_worker: if document.oltp.is_some() { 1 } else { document.outstanding },
            mean: measured.mean_outstanding,
        },
        gaps: gaps(&measured.gaps, window_start),
        counted: document.count_ns.map(|interval_ns| CountsReport { interval_ns, ios: measured.counts.clone() }),
        verify: VerifyReport {
            checked_blocks: measured.verify.checked_blocks,
            never_written_blocks: measured.verify.never_written_blocks,
            wrong_blocks: measured.verify.wrong_blocks,
            read_back_blocks: measured.verify.read_back_blocks,
        },
        checks: Checks {
            errors: measured.read.errors + measured.write.errors + measured.flush.errors + measured.errors_outside,
            start_skew_ns: 0,
            cpu_window_ns,
            run_queue_wait,
            clock: "CLOCK_MONOTONIC",
        },
        paths: None,
        simulated: None,
        slices: Vec::new(),
    }
}

/// `None` if the endpoint has one portal.
pub(super) fn paths(plan: &Plan, reports: &[PathReport]) -> Option<PathsReport> {
    paths_under(plan.connection.as_ref()?.policy, reports)
}

/// `None` without reports.
pub(crate) fn paths_under(policy: PathPolicy, reports: &[PathReport]) -> Option<PathsReport> {
    let work = |report: &PathReport| PathWork {
        name: report.portal.clone(),
        ios: report.counts.completed,
        bytes: report.counts.bytes,
        losses: report.losses,
        lost: report.counts.lost,
        down_ns: report.down.as_nanos() as u64,
        refused: report.counts.refused,
    };
    let even = policy == PathPolicy::RoundRobin;
    (!reports.is_empty()).then(|| PathsReport { policy: policy.into(), even, used: reports.iter().map(work).collect() })
}

fn gaps(gaps: &Gaps, window_start: Instant) -> GapsReport {
    let told = gaps.clone().longest(GAPS_TOLD_MAX);
    let listed = told.list.iter().map(|gap| (gap.start.since(window_start).as_nanos() as u64, gap.duration_ns()));
    let Gaps { longest_ns, is_bound, listed_from_ns, .. } = told;
    GapsReport { longest_ns, is_bound, listed_from_ns, listed: listed.collect() }
}

/// `own` is the role of this process.
pub(super) fn cpu_point(point: &CpuPoint, own: &str) -> document::CpuPoint {
    let mut busy_ns = point.watched_ns.clone();
    busy_ns.insert("machine".to_owned(), point.machine_ns);
    busy_ns.insert(own.to_owned(), point.initiator_ns);
    document::CpuPoint {
        at_ns: point.at_ns,
        duration_ns: point.duration_ns,
        busy_ns,
        guest_ns: point.guest_ns,
        initiators: None,
        ios: None,
    }
}

/// The machine's CPU over a window without load, in the form of a result.
pub(super) fn cpu(usage: &Usage) -> CpuReport {
    CpuReport {
        initiator: process(&usage.initiator),
        target: usage.watched.get("target").map(process),
        machine: machine(&usage.machine),
    }
}

fn direction(result: &DirectionResult) -> DirectionReport {
    DirectionReport {
        ios: result.ios,
        bytes: result.bytes,
        errors: result.errors,
        latency_sum_ns: result.latency_sum_ns,
        latency_min_ns: result.latency_min_ns,
        latency_max_ns: result.latency_max_ns,
        histogram: histogram(&result.latency),
        service: result.service.as_ref().map(latency),
    }
}

fn latency(latency: &Latency) -> document::Latency {
    document::Latency {
        latency_sum_ns: latency.sum_ns,
        latency_min_ns: latency.min_ns,
        latency_max_ns: latency.max_ns,
        histogram: histogram(&latency.histogram),
    }
}

/// The streams of a load that has several. The results of a single stream are those of the load.
fn streams(document: &LoadDocument, measured: &Measured) -> Vec<StreamReport> {
    let whole: f64 = measured.streams.iter().map(|stream| stream.config.share).sum();
    let report = |stream: &StreamResult| StreamReport {
        name: stream.config.name.clone(),
        workers: stream.workers,
        block_size_bytes: stream.config.block_size_bytes,
        read_percent: stream.config.read_percent,
        random_percent: stream.config.random_percent,
        rate_iops: match document.pacing {
            PacingSpec::Closed => None,
            PacingSpec::Open { rate_iops, .. } => Some(rate_iops * stream.config.share / whole),
        },
        read: direction(&stream.read),
        write: direction(&stream.write),
        arrived: stream.arrived.map(arrived),
    };
    if document.streams.is_empty() { Vec::new() } else { measured.streams.iter().map(report).collect() }
}

fn database(counts: &OltpCounts) -> DatabaseReport {
    DatabaseReport {
        size_bytes: counts.size_bytes,
        memory_bytes: counts.memory_bytes,
        reads: counts.reads,
        read_bytes: counts.read_bytes,
        writes: counts.writes,
        write_bytes: counts.write_bytes,
        log_writes: counts.log_writes,
        log_write_bytes: counts.log_write_bytes,
        flushes: counts.flushes,
        checkpoints: counts.checkpoints,
    }
}

fn open(document: &LoadDocument, measured: &Measured) -> Option<OpenReport> {
    let PacingSpec::Open { rate_iops, arrivals, backlog_max } = document.pacing else { return None };
    let mut together = Arrived::default();
    measured.streams.iter().filter_map(|stream| stream.arrived).for_each(|theirs| together.merge(theirs));
    let done = measured.read.ios + measured.write.ios;
    Some(OpenReport {
        rate_iops,
        arrivals,
        backlog_max,
        achieved: if together.offered == 0 { 1.0 } else { ratio(done, together.offered) },
        arrived: arrived(together),
        lateness: latency(measured.lateness.as_ref()?),
    })
}

fn arrived(arrived: Arrived) -> ArrivedReport {
    let Arrived { offered, dropped, backlog_peak, backlog_end } = arrived;
    ArrivedReport { offered, dropped, backlog_peak, backlog_end }
}

fn histogram(sparse: &Sparse) -> Histogram {
    Histogram { counts: sparse.0.clone(), ..Histogram::default() }
}

fn series(samples: &[Sample]) -> Vec<SeriesPoint> {
    let mut at_ns = 0;
    let points = samples.iter().filter(|sample| sample.in_window).map(|sample| {
        let point = SeriesPoint {
            at_ns,
            duration_ns: sample.duration_ns,
            reads: sample.reads,
            writes: sample.writes,
            read_bytes: sample.read_bytes,
            write_bytes: sample.write_bytes,
            latency_p50_ns: sample.latency.quantile_ns(0.5),
            latency_p99_ns: sample.latency.quantile_ns(0.99),
            latency_max_ns: sample.latency_max_ns,
        };
        at_ns += sample.duration_ns;
        point
    });
    points.collect()
}

/// Total by the precise clock; split into user and system as in the tick-based accounting.
pub(super) fn process(usage: &ProcessUsage) -> ProcessCpu {
    let times = &usage.times;
    let split_ns = u128::from(times.user_ns + times.system_ns).max(1);
    let user_ns = (u128::from(times.total_ns) * u128::from(times.user_ns) / split_ns) as u64;
    ProcessCpu {
        pid: usage.pid,
        total_ns: times.total_ns,
        user_ns,
        system_ns: times.total_ns - user_ns.min(times.total_ns),
        guest_ns: times.guest_ns,
        run_queue_wait_ns: times.run_queue_wait_ns,
        max_rss_bytes: times.max_rss_bytes,
        threads: usage.threads.map(|threads| {
            Box::new(VmThreadsCpu {
                processors_ns: threads.processors_ns,
                io_ns: threads.io_ns,
                vhost_ns: threads.vhost_ns,
                vhost_apart_ns: threads.vhost_apart_ns,
            })
        }),
        events: usage.events.as_ref().ok().map(events),
        no_events: usage.events.as_ref().err().map(ToString::to_string),
    }
}

fn events(counts: &EventCounts) -> CpuEvents {
    CpuEvents {
        user_instructions: counts.user_instructions,
        kernel_instructions: counts.kernel_instructions,
        user_cycles: counts.user_cycles,
        kernel_cycles: counts.kernel_cycles,
    }
}

pub(super) fn machine(times: &MachineTimes) -> MachineCpu {
    let cores = times.cores.iter().map(|core| CoreCpu {
        cpu: core.cpu,
        user_ns: core.user_ns,
        nice_ns: core.nice_ns,
        system_ns: core.system_ns,
        irq_ns: core.irq_ns,
        softirq_ns: core.softirq_ns,
        steal_ns: core.steal_ns,
        idle_ns: core.idle_ns,
        iowait_ns: core.iowait_ns,
        guest_ns: core.guest_ns,
    });
    MachineCpu { cores: cores.collect(), busy_ns: times.busy_ns(), resolution_ns: times.exact_ns.map(|_| 0) }
}

fn per_second(count: u64, duration_ns: u64) -> f64 {
    ratio(count, duration_ns) * 1e9
}

#[allow(clippy::cast_precision_loss)] // counts and nanoseconds of a run, far below 2^53
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How often threads are polled for completed intervals.
pub(super) const SAMPLES_PERIOD: std::time::Duration = std::time::Duration::from_millis(200);

pub(super) struct Samples {
    /// For each thread, the intervals that are not passed on yet.
    waiting: Vec<VecDeque<Sample>>,
}

impl Samples {
    pub(super) fn of(threads: usize) -> Self {
        Self { waiting: vec![VecDeque::new(); threads] }
    }

    pub(super) fn add(&mut self, thread: usize, samples: Vec<Sample>) {
        self.waiting[thread].extend(samples);
    }

    /// The next interval that all threads have completed, merged.
    pub(super) fn next(&mut self) -> Option<Sample> {
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        let mut whole: Option<Sample> = None;
        for sample in self.waiting.iter_mut().filter_map(VecDeque::pop_front) {
            match &mut whole {
                Some(whole) => whole.merge(&sample),
                None => whole = Some(sample),
            }
        }
        whole
    }
}
