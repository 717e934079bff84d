//! Lost segments, and TCP that retransmits them: compared with what its windows imply.
#![allow(clippy::cast_precision_loss)] // figures of a run, far below 2^53

use std::time::Duration;

use crate::support::{lab, reads};
use iotax_node::{RunConfig, server::Protocol};
use iotax_sim::{
    Frames, Link, Loss, Wake,
    lab::{Lab, PathFailure, PathPolicy, Simulated},
};

/// Payload of a frame of 1500 bytes with TCP time stamps.
const SEGMENT_BYTES: f64 = 1448.0;

fn run(outstanding: u32, block_size_bytes: u32, read_percent: f64, runtime: Duration) -> RunConfig {
    let reads = reads(outstanding, runtime);
    RunConfig { block_size_bytes, read_percent, warmup: Duration::ZERO, sample: runtime, verify: true, ..reads }
}

fn simulate(protocol: Protocol, link: Link, machines: u32, run: &RunConfig) -> Simulated {
    let lab = Lab { machines, size_bytes: 16 << 20, filled: true, ..lab(protocol, link) };
    let simulated = lab.run(run, 1, None, Ok, |_| {}).expect("a run");
    let measured = &simulated.measured;
    assert_eq!((measured.read.errors, measured.write.errors, measured.verify.wrong_blocks), (0, 0, 0), "{protocol:?}");
    simulated
}

fn ethernet(rate_bytes_per_s: u64, latency: Duration, loss: Option<Loss>) -> Link {
    Link {
        latency,
        rate_bytes_per_s: Some(rate_bytes_per_s),
        frames: Some(Frames::ethernet(1500)),
        loss,
        ..Link::default()
    }
}

fn drawn(per_million: u32) -> Loss {
    Loss { per_million, buffer_bytes: None }
}

/// 182 segments are sent in windows of 10, 20, 40, 80 and the rest, one round trip each (RFC 6928, RFC 5681 §3.1).
#[test]
fn first_data_of_a_connection_take_the_round_trips_of_slow_start_and_later_ones_do_not() {
    let latency = Duration::from_millis(5);
    let read = run(1, 256 << 10, 100.0, Duration::from_secs(1));
    let reads = simulate(Protocol::NvmeTcp, ethernet(1_250_000_000, latency, Some(drawn(0))), 1, &read).measured.read;
    assert!((50_000_000..51_000_000).contains(&reads.latency_max_ns), "{} ns", reads.latency_max_ns);
    assert!((10_000_000..11_000_000).contains(&reads.latency_min_ns), "{} ns", reads.latency_min_ns);
    let reads = simulate(Protocol::NvmeTcp, ethernet(1_250_000_000, latency, None), 1, &read).measured.read;
    assert!(reads.latency_max_ns < 11_000_000, "{} ns where nothing can be lost", reads.latency_max_ns);
}

/// Mathis, Semke, Mahdavi and Ott 1997: segment / round trip × √(3/2) / √loss.
#[test]
fn stream_that_loses_at_random_is_as_fast_as_the_square_root_law_says() {
    for (per_million, seconds) in [(1000, 60), (4000, 30)] {
        let link = ethernet(1_250_000_000, Duration::from_millis(5), Some(drawn(per_million)));
        let read = run(32, 64 << 10, 100.0, Duration::from_secs(seconds));
        let simulated = simulate(Protocol::NvmeTcp, link, 1, &read);
        let rate = simulated.measured.read.bytes as f64 / seconds as f64;
        let expected = SEGMENT_BYTES / 0.01 * (1.5e6 / f64::from(per_million)).sqrt();
        assert!((rate / expected - 1.0).abs() < 0.15, "{per_million}: {rate} bytes/s, not {expected}");
        assert!(simulated.targets[0].carried.lost > 200);
    }
}

/// Sixteen machines write to one port at once, with and without room for all their outstanding data.
#[test]
fn port_without_room_for_all_that_is_sent_to_it_loses_and_some_wait_for_timeouts() {
    let write = run(1, 64 << 10, 0.0, Duration::from_secs(2));
    let to = |buffer_bytes| {
        let port = Loss { per_million: 0, buffer_bytes: Some(buffer_bytes) };
        let link = ethernet(125_000_000, Duration::from_micros(20), Some(port));
        let simulated = simulate(Protocol::Nfs3, link, 16, &write);
        let lost: u64 = simulated.initiators.iter().map(|machine| machine.carried.lost).sum();
        let timeouts: u64 = simulated.initiators.iter().map(|machine| machine.carried.timeouts).sum();
        let write = simulated.measured.write;
        (write.bytes as f64 / 250e6, lost, timeouts, Duration::from_nanos(write.latency_max_ns))
    };
    let (room_share, lost, timeouts, longest) = to(2 << 20);
    assert!(room_share > 0.9 && longest < Duration::from_millis(20), "{room_share} {longest:?}");
    assert_eq!((lost, timeouts), (0, 0));
    let (share, lost, timeouts, longest) = to(32 << 10);
    assert!(lost > 0 && timeouts > 0, "{lost} {timeouts}");
    assert!(share < 0.95 * room_share && longest >= Duration::from_millis(200), "{share} {longest:?}");
}

/// Replies of 46 segments, one at a time. If one of the last three is lost, too few segments follow for a detection by
/// three of them (RFC 8985 §6.2). The very last is then alone in flight, and waits for its timeout.
#[test]
fn of_lost_ends_of_answers_only_the_very_last_segment_waits_for_its_timeout() {
    let read = run(1, 64 << 10, 100.0, Duration::from_secs(10));
    let link = ethernet(1_250_000_000, Duration::from_micros(50), Some(drawn(200)));
    let simulated = simulate(Protocol::NvmeTcp, link, 1, &read);
    let answers = simulated.targets[0].carried;
    assert!(answers.lost > 100, "{} lost", answers.lost);
    let share = answers.timeouts as f64 / answers.lost as f64;
    assert!((0.5 / 46.0..2.0 / 46.0).contains(&share), "{} of {} lost", answers.timeouts, answers.lost);
}

#[test]
fn what_is_lost_arrives_and_a_seed_loses_the_same_again() {
    for protocol in [Protocol::NvmeTcp, Protocol::Iscsi, Protocol::Nfs3] {
        let link = ethernet(125_000_000, Duration::from_micros(100), Some(drawn(10_000)));
        let mixed = run(8, 16 << 10, 50.0, Duration::from_secs(1));
        let simulated = simulate(protocol, link.clone(), 2, &mixed);
        assert!(simulated.measured.verify.checked_blocks > 0 && simulated.targets[0].carried.lost > 0, "{protocol:?}");
        assert_eq!(simulated, simulate(protocol, link, 2, &mixed), "{protocol:?}");
    }
}

/// Threads take arrived data some time after their arrival. By then, data lost before may be the next ones.
#[test]
fn what_is_lost_behind_what_a_thread_has_not_taken_yet_is_waited_for() {
    for seed in 1..4 {
        let loses = Loss { buffer_bytes: Some(64 << 10), ..drawn(1000) };
        let mut lab = lab(Protocol::NvmeTcp, ethernet(200_000_000, Duration::from_micros(10), Some(loses)));
        (lab.machines, lab.loads, lab.threads, lab.seed) = (5, 2, 2, seed);
        lab.paths.target_ports = 3;
        (lab.initiator.costs.kib_ns, lab.target.costs.segment_ns) = (100, 50);
        lab.target.costs.wake = Wake::always(1000);
        let reads = reads(4, Duration::from_millis(50));
        let mixed = RunConfig { block_size_bytes: 16 << 10, read_percent: 50.0, ..reads };
        let simulated = lab.run(&mixed, 2, None, Ok, |_| {});
        assert!(simulated.is_ok(), "seed {seed}: {simulated:?}");
    }
}

#[test]
fn stream_over_two_paths_goes_on_whatever_either_loses_and_after_one_has_failed() {
    let failure = PathFailure { path: 0, at: Duration::from_millis(20), back: Some(Duration::from_millis(60)) };
    for protocol in [Protocol::NvmeTcp, Protocol::Iscsi] {
        for policy in [PathPolicy::Fixed, PathPolicy::RoundRobin] {
            for (per_million, failures) in [(1000, vec![]), (0, vec![failure]), (100, vec![failure])] {
                let link = ethernet(125_000_000, Duration::from_micros(10), Some(drawn(per_million)));
                let mut lab = Lab { filled: true, ..lab(protocol, link) };
                let had_failed = !failures.is_empty();
                (lab.paths.ports, lab.paths.target_ports, lab.paths.policy) = (2, 2, policy);
                (lab.paths.failures, lab.paths.noticed) = (failures, Duration::from_millis(10));
                let run = run(16, 16 << 10, 50.0, Duration::from_millis(100));
                let run = RunConfig { sample: Duration::from_millis(10), ..run };
                let simulated = lab.run(&run, 1, None, Ok, |_| {}).expect("a run");
                let measured = &simulated.measured;
                let ios: Vec<_> = measured.series.iter().map(|sample| sample.reads + sample.writes).collect();
                let context = format!("{protocol:?}, {policy:?}, {per_million}: {ios:?}");
                assert_eq!(measured.verify.wrong_blocks, 0, "{context}");
                assert!(ios[8] as f64 > 0.5 * ios[1] as f64 && (ios[2] == 0) == had_failed, "{context}");
            }
        }
    }
}
