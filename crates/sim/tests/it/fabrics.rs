//! Queues of hosts, credits of links, paths that fail: compared with what their parameters imply.
#![allow(clippy::cast_precision_loss)] // figures of a run, far below 2^53

use std::time::Duration;

use crate::support::{lab, reads};
use iotax_node::{
    RunConfig,
    load::{Arrivals, Open, Pacing, queue::Depths},
    server::Protocol,
    volume::MediaModel,
};
use iotax_sim::{
    Frames, Link, Media, Wake,
    lab::{Lab, PathFailure, PathPolicy, Paths, Simulated},
};

const SERVICE: Duration = Duration::from_micros(100);
const WINDOW: Duration = Duration::from_millis(200);

fn run(outstanding: u32, read_percent: f64) -> RunConfig {
    RunConfig { read_percent, ..reads(outstanding, WINDOW) }
}

fn simulate(lab: &Lab, run: &RunConfig, workers: u32) -> Simulated {
    lab.run(run, workers, None, Ok, |_| {}).expect("a run")
}

fn fibre_channel(rate_bytes_per_s: u64, latency: Duration, credits: Option<u32>) -> Link {
    let frames = Some(Frames::FIBRE_CHANNEL);
    Link { latency, rate_bytes_per_s: Some(rate_bytes_per_s), frames, credits, ..Link::default() }
}

/// A closed loop of 64 I/Os on media that serve all at once: as many as the queues permit are outstanding, each for the
/// service time.
#[test]
fn queues_of_luns_and_adapters_bound_the_rate_and_what_waits_counts_as_latency() {
    let service = MediaModel { service: SERVICE, spread: Duration::ZERO, servers: 1000, ..Media::default().model };
    let media = Media { model: service, write_through: true, ..Media::default() };
    let link = Link { latency: Duration::ZERO, ..Link::default() };
    for (queues, at_once) in [
        (Depths::default(), 64.0),
        (Depths { luns: 1, of_lun: Some(8), of_adapter: None }, 8.0),
        (Depths { luns: 4, of_lun: Some(8), of_adapter: None }, 32.0),
        (Depths { luns: 4, of_lun: Some(8), of_adapter: Some(20) }, 20.0),
    ] {
        // Two loads of two threads share them.
        let lab = Lab { queues, loads: 2, threads: 2, media: Some(media.clone()), ..lab(Protocol::Fcp, link.clone()) };
        let simulated = simulate(&lab, &run(4, 100.0), 8);
        let reads = &simulated.measured.read;
        let expected = at_once * WINDOW.as_secs_f64() / SERVICE.as_secs_f64();
        assert!((reads.ios as f64 / expected - 1.0).abs() < 0.01, "{queues:?}: {} I/Os, not {expected}", reads.ios);
        let mean_us = reads.latency_sum_ns as f64 / reads.ios as f64 / 1e3;
        let expected_us = 64.0 / at_once * 100.0;
        assert!((mean_us / expected_us - 1.0).abs() < 0.02, "{queues:?}: {mean_us} µs, not {expected_us}");
        if let Some(used) = simulated.queues {
            let used = used.adapter_ns as f64 / WINDOW.as_nanos() as f64;
            assert!((used / at_once - 1.0).abs() < 0.01, "{used} commands at the adapter on average");
        }
    }
}

/// A frame's buffer is returned one round trip later: credits × frame / round trip, if that is less than the rate.
#[test]
fn link_with_too_few_credits_is_idle_for_want_of_them() {
    let read = RunConfig { block_size_bytes: 64 << 10, ..run(32, 100.0) };
    let share = |credits| {
        let simulated =
            simulate(&lab(Protocol::Fcp, fibre_channel(400_000_000, Duration::from_micros(250), credits)), &read, 1);
        let sent = simulated.targets[0].carried;
        let window_ns = WINDOW.as_nanos() as f64;
        (sent.sent_ns as f64 / window_ns, sent.credits_ns as f64 / window_ns)
    };
    let (busy, waited) = share(None);
    assert!(busy > 0.95 && waited == 0.0, "{busy} {waited}");
    // A full frame takes 5.5 µs; with its buffer's way back, 505.5 µs.
    for credits in [10, 40] {
        let (busy, waited) = share(Some(credits));
        let expected = f64::from(credits) * 5.5 / 505.5;
        assert!((busy / expected - 1.0).abs() < 0.15, "{credits}: {busy}, not {expected}");
        assert!((busy + waited - 1.0).abs() < 0.05, "{credits}: {busy} + {waited}");
    }
    let (busy, _) = share(Some(200));
    assert!(busy > 0.95, "{busy}");
}

/// With coalescing, each end handles a message that much later, and many arrivals with one interrupt.
#[test]
fn coalesced_interrupts_add_to_latency_and_spare_threads_from_waking() {
    let simulated = |outstanding, coalesce| {
        let link = Link { latency: Duration::from_micros(5), coalesce, ..Link::default() };
        let mut lab = lab(Protocol::NvmeTcp, link);
        (lab.initiator.costs.wake, lab.target.costs.wake) = (Wake::always(1_000), Wake::always(1_000));
        simulate(&lab, &run(outstanding, 100.0), 1)
    };
    let latency_ns = |simulated: &Simulated| {
        let reads = &simulated.measured.read;
        (reads.latency_sum_ns as f64 / reads.ios as f64).round()
    };
    let wakes = |simulated: &Simulated| simulated.targets[0].work.wakes as f64 / simulated.measured.read.ios as f64;
    let (at_once, later) = (simulated(1, Duration::ZERO), simulated(1, Duration::from_micros(20)));
    // Latency ends when the initiator has the reply: both directions, and both threads woken.
    assert_eq!((latency_ns(&at_once), latency_ns(&later)), (12_000.0, 52_000.0));
    let poisson = |coalesce| {
        let link = Link { latency: Duration::from_micros(5), coalesce, ..Link::default() };
        let mut lab = lab(Protocol::NvmeTcp, link);
        lab.target.costs.wake = Wake::always(1_000);
        let pacing = Pacing::Open(Open { rate_iops: 100_000.0, arrivals: Arrivals::Poisson, backlog_max: 1000 });
        simulate(&lab, &RunConfig { pacing, ..run(64, 100.0) }, 1)
    };
    // Each interrupt handles the arrivals in the time since the first of them: 1 + rate × 20 µs.
    let share = wakes(&poisson(Duration::from_micros(20)));
    assert!((share * 3.0 - 1.0).abs() < 0.05, "{share} wakes an I/O");
    assert!(wakes(&poisson(Duration::ZERO)) > 0.85);
}

#[test]
fn what_is_sent_and_what_is_received_cost_each_side_its_own() {
    let target = |received_ns, sent_ns, read_percent| {
        let mut lab = lab(Protocol::NvmeTcp, Link::default());
        (lab.target.costs.kib_ns, lab.target.costs.kib_sent_ns) = (received_ns, sent_ns);
        let simulated = simulate(&lab, &run(1, read_percent), 1);
        let ios = simulated.measured.read.ios + simulated.measured.write.ios;
        let (work, carried) = (simulated.targets[0].work, simulated.targets[0].work.bytes / ios);
        (work.spent_ns / ios, work.sent_bytes / ios, carried)
    };
    // For a read, 4 KiB and a PDU header are sent and a command of 72 bytes is received; a write's data arrive with the
    // command.
    for (read_percent, out, into) in [(100.0, 4096 + 24, 72), (0.0, 24, 4096 + 72)] {
        let (cost_ns, sent, all) = target(0, 1024, read_percent);
        assert!(sent.abs_diff(out) <= 24 && all.abs_diff(out + into) <= 48, "{sent} of {all}");
        assert!(cost_ns.abs_diff(sent) <= 1, "{cost_ns}");
        let (cost_ns, sent, all) = target(1024, 0, read_percent);
        assert!(cost_ns.abs_diff(all - sent) <= 1, "{cost_ns}");
    }
}

fn completed(simulated: &Simulated) -> Vec<u64> {
    let in_window = simulated.measured.series.iter().filter(|sample| sample.in_window);
    in_window.map(|sample| sample.reads + sample.writes).collect()
}

#[test]
fn path_that_fails_holds_up_what_goes_by_it_until_it_is_noticed_and_is_used_again_once_it_is_back() {
    let failure = PathFailure { path: 0, at: Duration::from_millis(60), back: Some(Duration::from_millis(130)) };
    for (policy, both) in [
        (PathPolicy::Fixed, false),
        (PathPolicy::RoundRobin, true),
        (PathPolicy::QueueDepth, true),
        (PathPolicy::Numa, true),
    ] {
        for (protocol, frames) in [
            (Protocol::Fcp, Frames::FIBRE_CHANNEL),
            (Protocol::FcNvme, Frames::FIBRE_CHANNEL),
            (Protocol::Iscsi, Frames::ethernet(9000)),
            (Protocol::NvmeTcp, Frames::ethernet(9000)),
        ] {
            let link = Link { rate_bytes_per_s: Some(100_000_000), frames: Some(frames), ..Link::default() };
            let paths = Paths {
                target_ports: 2,
                ports: 2,
                policy,
                failures: vec![failure],
                noticed: Duration::from_millis(20),
                ..Paths::default()
            };
            let mut lab = Lab { paths, threads: 2, ..lab(protocol, link) };
            lab.filled = true;
            let run = RunConfig { verify: true, read_percent: 50.0, ..run(16, 50.0) };
            let simulated = simulate(&lab, &run, 4);
            let ios = completed(&simulated);
            let context = format!("{protocol:?}, {policy:?}: {ios:?}");
            assert_eq!(ios.len(), 10, "{context}");
            let before = ios[1] as f64;
            // Up to 40 ms after the failure nothing passes the failed path, and all outstanding I/Os wait for what it
            // lost.
            let hurt = ios[3] as f64 / before;
            assert!(if policy == PathPolicy::Numa { hurt < 0.6 } else { hurt < 0.1 }, "{context}");
            // Then one path carries everything, as fast as before if one path carried everything before. If two were in
            // use, they were not full: a stream waits for either.
            let share = ios[5] as f64 / before;
            assert!(if both { (0.45..0.75).contains(&share) } else { (0.9..1.1).contains(&share) }, "{context}");
            assert!((ios[9] as f64 / before - 1.0).abs() < 0.2, "{context}");
            // The reported gap: nothing completes from the time when all outstanding I/Os have used the failed path
            // until the failure is noticed.
            let gaps = &simulated.measured.gaps;
            let expected = if policy == PathPolicy::Numa { 0..5_000_000 } else { 15_000_000..25_000_000 };
            assert!(expected.contains(&gaps.longest_ns), "{context}: {gaps:?}");
            let verify = &simulated.measured.verify;
            assert!(verify.wrong_blocks == 0 && verify.checked_blocks > 0, "{context}");
            assert_eq!((simulated.measured.read.errors, simulated.measured.write.errors), (0, 0), "{context}");
        }
    }
}

#[test]
fn path_that_does_not_come_back_is_left_to_the_others() {
    let failures = vec![PathFailure { path: 1, at: Duration::from_millis(50), back: None }];
    let paths = Paths { ports: 2, policy: PathPolicy::RoundRobin, failures, ..Paths::default() };
    let lab = Lab { paths, ..lab(Protocol::Fcp, fibre_channel(100_000_000, Duration::from_micros(10), None)) };
    let simulated = simulate(&lab, &run(16, 100.0), 2);
    assert!(completed(&simulated).iter().all(|ios| *ios > 0));
    assert_eq!(simulated, simulate(&lab, &run(16, 100.0), 2));
}
