//! Fabrics with switches, and zones: compared with what their parameters imply.
#![allow(clippy::cast_precision_loss)] // figures of a run, far below 2^53

use std::time::Duration;

use crate::support::{lab, reads};
use iotax_node::{RunConfig, server::Protocol};
use iotax_sim::{
    Frames, Link, Loss, Switches, Trunk,
    lab::{Lab, PathFailure, PathPolicy, Paths, Simulated, Zone},
};

const WINDOW: Duration = Duration::from_millis(100);
const SWITCHED: [Switches; 2] = [Switches::One, Switches::Two(NO_TRUNK_OF_ITS_OWN)];
const NO_TRUNK_OF_ITS_OWN: Trunk = Trunk { rate_bytes_per_s: None, credits: None };

fn run(outstanding: u32, block_size_bytes: u32, read_percent: f64) -> RunConfig {
    RunConfig { block_size_bytes, read_percent, ..reads(outstanding, WINDOW) }
}

fn simulate(lab: &Lab, run: &RunConfig) -> Simulated {
    let simulated = lab.run(run, 1, None, Ok, |_| {}).expect("a run");
    let measured = &simulated.measured;
    assert_eq!((measured.read.errors, measured.write.errors, measured.verify.wrong_blocks), (0, 0, 0));
    simulated
}

fn fibre_channel(rate_bytes_per_s: u64, latency: Duration, credits: Option<u32>) -> Link {
    let frames = Some(Frames::FIBRE_CHANNEL);
    Link { latency, rate_bytes_per_s: Some(rate_bytes_per_s), frames, credits, ..Link::default() }
}

fn ethernet(rate_bytes_per_s: u64, loss: Option<Loss>) -> Link {
    let frames = Some(Frames::ethernet(1500));
    Link {
        latency: Duration::from_micros(5),
        rate_bytes_per_s: Some(rate_bytes_per_s),
        frames,
        loss,
        ..Link::default()
    }
}

fn switched(switches: Switches) -> Paths {
    Paths { switches, ..Paths::default() }
}

fn latency_ns(simulated: &Simulated) -> f64 {
    let reads = &simulated.measured.read;
    reads.latency_sum_ns as f64 / reads.ios as f64
}

/// For each client's port, the time it was sending, as a share of the window.
fn sent_shares(simulated: &Simulated) -> Vec<f64> {
    let window_ns = WINDOW.as_nanos() as f64;
    simulated.initiators.iter().map(|machine| machine.carried.sent_ns as f64 / window_ns).collect()
}

/// A command, its data and its status, one frame each: every switch sends each of them again.
#[test]
fn each_switch_adds_a_serialisation_and_a_delay_to_each_way() {
    for protocol in [Protocol::Fcp, Protocol::FcNvme] {
        let delay = Duration::from_micros(3);
        let latency = |switches| {
            let lab = Lab { paths: switched(switches), ..lab(protocol, fibre_channel(100_000_000, delay, None)) };
            let simulated = simulate(&lab, &run(1, 512, 100.0));
            let ios = simulated.measured.read.ios as f64;
            let [sent, answered] =
                [&simulated.initiators, &simulated.targets].map(|each| each[0].carried.sent_ns as f64);
            (latency_ns(&simulated), (sent + answered) / ios)
        };
        let (direct, wire) = latency(Switches::None);
        for (switches, more) in SWITCHED.into_iter().zip([1.0, 2.0]) {
            let (through, _) = latency(switches);
            let expected = direct + more * (wire + 2.0 * 3000.0);
            assert!(
                (through / expected - 1.0).abs() < 0.01,
                "{protocol:?}: {through} ns, not {expected}, {direct} direct"
            );
        }
    }
}

#[test]
fn thin_trunk_carries_its_rate_whatever_number_of_clients_share_it() {
    let trunk = Trunk { rate_bytes_per_s: Some(50_000_000), credits: None };
    for (protocol, link, payload) in [
        (Protocol::Fcp, fibre_channel(400_000_000, Duration::from_micros(2), Some(16)), 0.96),
        (Protocol::NvmeTcp, ethernet(400_000_000, None), 0.93),
    ] {
        for machines in [1, 2, 6] {
            let paths = Paths { target_ports: machines, ..switched(Switches::Two(trunk)) };
            let lab = Lab { machines, paths, ..lab(protocol, link.clone()) };
            let runtime = 5 * WINDOW;
            let simulated = simulate(&lab, &RunConfig { block_size_bytes: 16 << 10, ..reads(8, runtime) });
            let [_, back] = simulated.trunks.expect("a trunk");
            let busy = back.busy_ns as f64 / runtime.as_nanos() as f64;
            let rate = simulated.measured.read.bytes as f64 / runtime.as_secs_f64() / 50e6;
            assert!(busy > 0.99, "{protocol:?}, {machines}: {busy}");
            assert!((payload - 0.02..payload + 0.02).contains(&rate), "{protocol:?}, {machines}: {rate} of the rate");
        }
    }
}

/// Three clients write to one port, with three times its capacity; a fourth writes to another port over the same trunk.
fn slow_drain(trunk_credits: u32) -> Simulated {
    let zones = vec![Zone { machines: vec![0, 1, 2], ports: vec![0] }, Zone { machines: vec![3], ports: vec![1] }];
    let trunk = Trunk { rate_bytes_per_s: Some(800_000_000), credits: Some(trunk_credits) };
    let paths = Paths { target_ports: 2, zones, ..switched(Switches::Two(trunk)) };
    let link = fibre_channel(200_000_000, Duration::from_micros(1), Some(16));
    simulate(&Lab { machines: 4, paths, ..lab(Protocol::Fcp, link) }, &run(16, 16 << 10, 0.0))
}

#[test]
fn clients_of_a_port_that_is_asked_too_much_slow_others_by_the_buffers_that_they_hold() {
    let (few, many) = (slow_drain(16), slow_drain(1024));
    let (few_sent, many_sent) = (sent_shares(&few), sent_shares(&many));
    assert!(few_sent[3] < 0.6, "the fourth sends {few_sent:?} with 16 credits");
    assert!(many_sent[3] > 0.9, "the fourth sends {many_sent:?} with 1024 credits");
    let starved =
        |simulated: &Simulated| simulated.trunks.expect("a trunk")[0].credits_ns as f64 / WINDOW.as_nanos() as f64;
    assert!(starved(&few) > 0.3 && starved(&many) < 0.01, "{} {}", starved(&few), starved(&many));
    let ports = |simulated: &Simulated| simulated.targets[0].carried.received_ns as f64 / WINDOW.as_nanos() as f64;
    assert!(ports(&many) > 1.9 && ports(&few) < 1.7, "of two ports' time {} and {}", ports(&few), ports(&many));
    assert_eq!(few, slow_drain(16), "the same to the bit");
}

/// A port's buffers are the switch's: with few of them its own link is idle, as without a switch.
#[test]
fn few_credits_of_a_port_leave_its_link_idle_for_want_of_them() {
    for switches in SWITCHED {
        let link = fibre_channel(400_000_000, Duration::from_micros(250), Some(10));
        let lab = Lab { paths: switched(switches), ..lab(Protocol::Fcp, link) };
        let sent = simulate(&lab, &run(32, 64 << 10, 100.0)).targets[0].carried;
        let window_ns = WINDOW.as_nanos() as f64;
        let (busy, waited) = (sent.sent_ns as f64 / window_ns, sent.credits_ns as f64 / window_ns);
        // A frame takes 5.5 µs to the switch and leaves it in the same time; its buffer is returned after the link's
        // delay.
        let expected = 10.0 * 5.5 / 511.0;
        assert!(
            (busy / expected - 1.0).abs() < 0.15 && (busy + waited - 1.0).abs() < 0.05,
            "{busy}, {waited}; {expected}"
        );
    }
}

#[test]
fn zones_lead_clients_to_the_ports_that_they_name() {
    let paths = |zones| Paths { target_ports: 2, zones, ..switched(Switches::One) };
    let rate = |zones| {
        let link = fibre_channel(100_000_000, Duration::from_micros(2), None);
        let lab = Lab { machines: 2, paths: paths(zones), ..lab(Protocol::Fcp, link) };
        simulate(&lab, &run(16, 16 << 10, 100.0)).measured.read.bytes as f64 / WINDOW.as_secs_f64() / 100e6
    };
    let (own, one) = (rate(Vec::new()), rate(vec![Zone { machines: vec![0, 1], ports: vec![1] }]));
    assert!((1.9..2.0).contains(&own) && (0.95..1.0).contains(&one), "{own} and {one} of a port");
    let lab = Lab {
        machines: 2,
        paths: paths(vec![Zone { machines: vec![0], ports: vec![0] }]),
        ..lab(Protocol::Fcp, Link::default())
    };
    let refused = lab.run(&run(1, 4096, 100.0), 1, None, Ok, |_| {}).expect_err("the second client reaches nothing");
    assert_eq!(refused.place, "paths.zones");
}

#[test]
fn tag_of_a_vlan_takes_four_bytes_of_each_frame() {
    let rate = |frames| {
        let link = Link { frames: Some(frames), ..ethernet(100_000_000, None) };
        let lab = Lab { paths: switched(Switches::One), ..lab(Protocol::NvmeTcp, link) };
        simulate(&lab, &run(32, 16 << 10, 100.0)).measured.read.bytes as f64
    };
    let (plain, tagged) = (rate(Frames::ethernet(1500)), rate(Frames::ethernet(1500).tagged()));
    assert!((plain / tagged - 1542.0 / 1538.0).abs() < 0.001, "{plain} {tagged}");
}

#[test]
fn switch_without_room_loses_segments_that_tcp_sends_again() {
    let loses = Loss { per_million: 100, buffer_bytes: Some(32 << 10) };
    for switches in SWITCHED {
        for protocol in [Protocol::NvmeTcp, Protocol::Iscsi, Protocol::Nfs3] {
            let once = || {
                let lab = Lab {
                    machines: 8,
                    paths: switched(switches),
                    size_bytes: 16 << 20,
                    filled: true,
                    ..lab(protocol, ethernet(125_000_000, Some(loses)))
                };
                let mixed = RunConfig { verify: true, ..reads(2, Duration::from_secs(1)) };
                simulate(&lab, &RunConfig { block_size_bytes: 64 << 10, read_percent: 50.0, ..mixed })
            };
            let simulated = once();
            let lost: u64 = simulated.initiators.iter().map(|machine| machine.carried.lost).sum();
            assert!(lost > 0 && simulated.measured.verify.checked_blocks > 0, "{protocol:?}, {switches:?}");
            if switches != Switches::One {
                assert!(simulated.trunks.expect("a trunk")[0].lost > 0, "{protocol:?}");
            }
            assert_eq!(simulated, once(), "{protocol:?}, {switches:?}");
        }
    }
}

#[test]
fn fabric_that_fails_leaves_all_to_the_other_until_it_is_back() {
    let failure = PathFailure { path: 0, at: Duration::from_millis(30), back: Some(Duration::from_millis(65)) };
    for policy in [PathPolicy::Fixed, PathPolicy::RoundRobin, PathPolicy::QueueDepth, PathPolicy::Numa] {
        for (protocol, frames, loss) in [
            (Protocol::Fcp, Frames::FIBRE_CHANNEL, None),
            (Protocol::FcNvme, Frames::FIBRE_CHANNEL, None),
            (Protocol::Iscsi, Frames::ethernet(9000), None),
            (Protocol::NvmeTcp, Frames::ethernet(9000), Some(Loss::default())),
        ] {
            let paths = Paths {
                target_ports: 2,
                ports: 2,
                policy,
                failures: vec![failure],
                noticed: Duration::from_millis(10),
                ..switched(Switches::Two(NO_TRUNK_OF_ITS_OWN))
            };
            let link = Link { rate_bytes_per_s: Some(100_000_000), frames: Some(frames), loss, ..Link::default() };
            let lab = Lab { paths, threads: 2, filled: true, ..lab(protocol, link) };
            let mixed = RunConfig { verify: true, ..run(16, 4096, 50.0) };
            let simulated = lab.run(&mixed, 4, None, Ok, |_| {}).expect("a run");
            let in_window = simulated.measured.series.iter().filter(|sample| sample.in_window);
            let ios: Vec<_> = in_window.map(|sample| sample.reads + sample.writes).collect();
            let context = format!("{protocol:?}, {policy:?}: {ios:?}");
            let share = |at: usize| ios[at] as f64 / ios[1] as f64;
            assert!(if policy == PathPolicy::Numa { share(3) < 0.7 } else { share(3) < 0.15 }, "{context}");
            assert!(share(5) > 0.4 && (share(9) - 1.0).abs() < 0.25, "{context}");
            let measured = &simulated.measured;
            assert!(measured.verify.wrong_blocks == 0 && measured.verify.checked_blocks > 0, "{context}");
            assert_eq!((measured.read.errors, measured.write.errors), (0, 0), "{context}");
        }
    }
}
