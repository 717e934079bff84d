//! Open loops in virtual time: the generator with a server whose replies are timed by the test.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use crate::support::{RUN, allocate, load};
use iotax_node::{
    DiskId, DiskOp, DiskToken, FailureKind, Input, LoadNode, Node, Output, RunConfig, TaskConfig,
    load::{Arrivals, Arrived, Endpoint, LocalUnit, Measured, Open, Pacing, StreamConfig, TaskOutcome},
};
use iotax_proto::{Geometry, Instant};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Returns when the server replies to a request that arrives at an instant and has this length.
type Server<'a> = dyn FnMut(u64, usize) -> u64 + 'a;

fn node(config: RunConfig, workers: u32) -> Result<LoadNode, iotax_node::Failure> {
    let geometry = Geometry { size_bytes: 1 << 24, block_size: 512, max_io_bytes: 1 << 20, read_only: false };
    let endpoint = Endpoint::parse("local:/unit").expect("endpoint");
    let unit = LocalUnit::Disk { disk: DiskId(0), geometry };
    LoadNode::local(load(TaskConfig::Run(config), workers), &endpoint, &unit, &mut allocate)
}

/// Runs from instant 0 on; the driver handles a timer `late_ns` after it was due.
fn run(config: RunConfig, workers: u32, late_ns: u64, server: &mut Server<'_>) -> Measured {
    let mut node = node(config, workers).expect("config");
    let mut answers: BinaryHeap<Reverse<(u64, u64, u32)>> = BinaryHeap::new();
    let mut now = 0;
    while !node.is_finished() {
        if node.is_ready() {
            node.begin(Instant(0));
        }
        while let Some(output) = node.poll_output() {
            let Output::Disk { token, op, .. } = output else { panic!("a local load asked for {output:?}") };
            let len = match op {
                DiskOp::Read { into, .. } => into.len(),
                DiskOp::Write { from, .. } => from.len(),
                _ => 0,
            };
            answers.push(Reverse((server(now, len), token.0, len as u32)));
        }
        let timer = node.poll_timeout().map_or(u64::MAX, |at| if at.0 > now { at.0 + late_ns } else { now });
        match answers.peek() {
            Some(Reverse((at, token, len))) if *at <= timer => {
                let (at, token, len) = (*at, *token, *len);
                answers.pop();
                now = now.max(at);
                node.handle(Instant(now), Input::DiskDone { token: DiskToken(token), result: Ok(len) });
            }
            _ => {
                assert_ne!(timer, u64::MAX, "nobody waits for anything");
                now = timer;
                node.handle(Instant(now), Input::Timer);
            }
        }
    }
    match node.outcome().expect("finished").clone().expect("a run") {
        TaskOutcome::Run(measured) => *measured,
        other => panic!("a run gave {other:?}"),
    }
}

fn open(rate_iops: f64, arrivals: Arrivals, backlog_max: u32, seconds: u64) -> RunConfig {
    RunConfig {
        outstanding: 1,
        read_percent: 100.0,
        pacing: Pacing::Open(Open { rate_iops, arrivals, backlog_max }),
        warmup: Duration::ZERO,
        runtime: Duration::from_secs(seconds),
        sample: Duration::from_secs(10),
        verify: false,
        ..RUN
    }
}

fn close_to(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-3
}

#[allow(clippy::cast_precision_loss)] // far below 2^53
fn mean_s(sum_ns: u64, count: u64) -> f64 {
    sum_ns as f64 / 1e9 / count as f64
}

#[allow(clippy::cast_precision_loss)] // far below 2^53
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// 10,000 operations of 1 ms, one due every 10 ms, then a stall of 100 s, after which all waiting requests complete at
/// once.
fn stall(now: u64, _: usize) -> u64 {
    if now < 100 * S { now + MS } else { now.max(200 * S - 1) }
}

/// The published test case of coordinated omission.
#[test]
fn stall_is_seen_by_every_io_that_was_meant_to_start_in_it() {
    let measured = run(open(100.0, Arrivals::Constant, 10_000, 200), 1, 0, &mut stall);
    let read = &measured.read;
    assert_eq!(read.ios, 20_000);
    assert!(close_to(mean_s(read.latency_sum_ns, read.ios), 25.003), "{}", read.latency_sum_ns);
    assert!(close_to(seconds(read.latency.quantile_ns(0.75)), 50.004));
    assert!(close_to(seconds(read.latency.quantile_ns(0.9999)), 100.008));
    let expected = Arrived { offered: 20_000, dropped: 0, backlog_peak: 9_999, backlog_end: 0 };
    assert_eq!(measured.streams[0].arrived, Some(expected));
    // The generator was never late: the whole wait is the server's.
    assert_eq!(measured.lateness.expect("open").max_ns, 0);
}

/// What a generator that waits for replies would report for the same stall. There is no backlog; the drops are counted.
#[test]
fn without_a_backlog_the_stall_is_one_io_and_the_rest_is_counted_as_dropped() {
    let measured = run(open(100.0, Arrivals::Constant, 0, 200), 1, 0, &mut stall);
    let service = measured.read.service.as_ref().expect("open");
    assert_eq!(service.count, 10_001);
    assert!(close_to(mean_s(service.sum_ns, service.count), 0.010_996), "{}", service.sum_ns);
    assert!(close_to(seconds(service.histogram.quantile_ns(0.9999)), 0.001));
    let arrived = measured.streams[0].arrived.expect("open");
    assert_eq!((arrived.offered, arrived.dropped, arrived.backlog_peak), (20_000, 9_999, 0));
}

#[test]
fn response_counts_the_wait_and_service_does_not() {
    // One at a time, 8 ms each, and one due every 10 ms on average: with random arrivals and 1 slot, the wait shows.
    let mut busy_until = 0;
    let mut one_at_a_time = |now: u64, _: usize| {
        busy_until = busy_until.max(now) + 8 * MS;
        busy_until
    };
    let measured = run(open(100.0, Arrivals::Poisson, 1_000, 100), 1, 0, &mut one_at_a_time);
    let read = &measured.read;
    let service = read.service.as_ref().expect("open");
    assert_eq!((service.count, service.min_ns, service.max_ns), (read.ios, 8 * MS, 8 * MS));
    // M/D/1 at 80 %: Wq = ρS/(2(1 − ρ)) = 16 ms, R = 24 ms; with 10,000 arrivals the results vary by a tenth.
    let response_ms = mean_s(read.latency_sum_ns, read.ios) * 1e3;
    assert!((20.0..29.0).contains(&response_ms), "{response_ms}");
}

#[test]
fn overload_is_told_by_what_was_offered_and_what_was_done() {
    let measured = run(open(1_000.0, Arrivals::Constant, 500, 100), 1, 0, &mut |now, _| now + 2 * MS);
    let arrived = measured.streams[0].arrived.expect("open");
    assert_eq!(arrived.offered, 100_000);
    assert!((49_990..=50_000).contains(&measured.read.ios), "{}", measured.read.ios);
    assert_eq!((arrived.backlog_peak, arrived.backlog_end), (500, 500));
    // Each offered I/O was done, was dropped, waits, or is under way.
    let accounted = measured.read.ios + arrived.dropped + arrived.backlog_end;
    assert!(accounted.abs_diff(arrived.offered) <= 1, "{accounted}");
}

#[test]
fn late_timer_is_the_generators_own_and_a_late_answer_is_not() {
    let measured = run(open(100.0, Arrivals::Constant, 10, 100), 1, 30 * US, &mut |now, _| now + MS);
    let lateness = measured.lateness.expect("open");
    // The first arrival is due at the start, when no timer is needed.
    assert_eq!((lateness.count, lateness.max_ns), (measured.read.ios, 30 * US));
    assert_eq!(lateness.sum_ns, 30 * US * (lateness.count - 1));
    assert_eq!(measured.read.latency_max_ns, MS + 30 * US);
    assert_eq!(measured.read.service.expect("open").max_ns, MS);

    // Every reply takes longer than the gap, until the backlog is full: this is not lateness.
    let slow = run(open(100.0, Arrivals::Constant, 10, 100), 1, 0, &mut |now, _| now + 15 * MS);
    assert_eq!(slow.lateness.expect("open").max_ns, 0);
}

#[test]
fn rate_is_that_of_all_workers_together_and_evenly_spaced() {
    let config = RunConfig { outstanding: 4, ..open(1_000.0, Arrivals::Constant, 64, 10) };
    let mut submitted = Vec::new();
    let measured = run(config, 4, 0, &mut |now, _| {
        submitted.push(now);
        now + MS
    });
    assert!(submitted.windows(2).all(|pair| pair[1] - pair[0] == MS), "{:?}", &submitted[..9]);
    assert_eq!(measured.streams[0].arrived.expect("open").offered, 10_000);
    assert!((measured.mean_outstanding - 1.0).abs() < 1e-3, "{}", measured.mean_outstanding);
}

#[test]
fn rate_zero_holds_the_connections_and_asks_nothing() {
    let measured = run(open(0.0, Arrivals::Constant, 64, 10), 2, 0, &mut |_, _| panic!("nothing is asked"));
    assert_eq!((measured.read.ios, measured.streams[0].arrived), (0, Some(Arrived::default())));
    assert_eq!(measured.series.len(), 1);
}

fn streams() -> Vec<StreamConfig> {
    let stream = |name: &str, share, block_size_bytes, read_percent, random_percent| StreamConfig {
        name: name.to_owned(),
        share,
        block_size_bytes,
        read_percent,
        random_percent,
        shared: None,
    };
    vec![stream("small", 75.0, 4096, 100.0, 100.0), stream("large", 25.0, 65536, 0.0, 0.0)]
}

#[test]
fn streams_share_the_arrivals_and_keep_their_own_pattern() {
    let config = RunConfig { outstanding: 8, streams: streams(), ..open(1_000.0, Arrivals::Poisson, 64, 10) };
    let measured = run(config, 4, 0, &mut |now, _| now + MS);
    let [small, large] = &measured.streams[..] else { panic!("two streams") };
    assert_eq!((small.write.ios, large.read.ios), (0, 0));
    assert_eq!((small.read.bytes, large.write.bytes), (small.read.ios * 4096, large.write.ios * 65536));
    let offered = |side: &iotax_node::load::StreamResult| side.arrived.expect("open").offered;
    assert!((7_200..7_800).contains(&offered(small)), "{}", offered(small));
    assert!((2_250..2_750).contains(&offered(large)), "{}", offered(large));
    // The sum of both streams.
    assert_eq!((measured.read.ios, measured.write.ios), (small.read.ios, large.write.ios));
    assert_eq!(measured.write.latency, large.write.latency);
}

#[test]
fn streams_share_the_workers_of_a_closed_loop() {
    let config = RunConfig {
        outstanding: 2,
        pacing: Pacing::Closed,
        streams: streams(),
        ..open(0.0, Arrivals::Constant, 0, 10)
    };
    let mut under_way = [0_u64; 2];
    let measured = run(config, 4, 0, &mut |now, len| {
        under_way[usize::from(len > 4096)] += 1;
        now + MS
    });
    // Three workers with two I/Os each, and one such worker: 6,000 and 2,000 per second.
    assert_eq!((measured.streams[0].read.ios, measured.streams[1].write.ios), (59_994, 19_998));
    assert_eq!(measured.read.service, None);
    assert!(under_way[0] > 59_994 && under_way[1] > 19_998);
}

#[test]
fn more_streams_than_workers_are_refused() {
    let config = RunConfig { streams: streams(), ..open(1.0, Arrivals::Constant, 0, 1) };
    let failure = node(config, 1).expect_err("refused");
    assert_eq!((failure.kind, failure.place.as_str()), (FailureKind::Usage, "workers"));
}
