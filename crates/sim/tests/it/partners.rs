//! Paths through a controller's partner, and a partner that has taken over: compared with what their parameters imply.
#![allow(clippy::cast_precision_loss)] // figures of a run, far below 2^53

use std::time::Duration;

use crate::support::{lab, reads};
use iotax_node::{
    RunConfig,
    load::{Arrivals, Open, Pacing},
    server::Protocol,
    volume::MediaModel,
};
use iotax_sim::{
    Frames, Link, Media, PROTOCOLS, Switches,
    lab::{Interconnect, Lab, PathPolicy, Paths, Simulated, Towards},
};

const WINDOW: Duration = Duration::from_millis(200);
/// NVMe over TCP: a command, and a read of 4 KiB with its headers.
const COMMAND_BYTES: f64 = 72.0;
const ANSWER_BYTES: f64 = 4096.0 + 24.0;

/// Two controllers with one port each, and clients with one port each.
fn two_controllers() -> Paths {
    Paths { controllers: 2, ..Paths::default() }
}

fn pair(protocol: Protocol, paths: Paths) -> Lab {
    let link = Link { latency: Duration::from_micros(5), ..Link::default() };
    Lab { machines: 2, paths, ..lab(protocol, link) }
}

fn simulate(lab: &Lab, run: &RunConfig, workers: u32) -> Simulated {
    lab.run(run, workers, None, Ok, |_| {}).expect("a run")
}

fn by_partner(rate_bytes_per_s: Option<u64>, latency: Duration) -> Paths {
    Paths {
        to: Towards::Partner,
        interconnect: Interconnect { rate_bytes_per_s, latency, message_ns: 0 },
        ..two_controllers()
    }
}

fn open(rate_iops: f64, arrivals: Arrivals) -> RunConfig {
    let pacing = Pacing::Open(Open { rate_iops, arrivals, backlog_max: 65_536 });
    RunConfig { pacing, ..reads(128, WINDOW) }
}

fn latency_ns(simulated: &Simulated) -> f64 {
    simulated.measured.read.latency_sum_ns as f64 / simulated.measured.read.ios as f64
}

fn rate_iops(simulated: &Simulated) -> f64 {
    simulated.measured.read.ios as f64 / WINDOW.as_secs_f64()
}

fn is_near(value: f64, expected: f64, within: f64, what: &str) {
    assert!((value / expected - 1.0).abs() < within, "{what}: {value}, not {expected}");
}

/// A single I/O crosses the interconnect twice: its command, then its data.
#[test]
fn interconnect_adds_its_latency_and_what_bytes_take() {
    let direct = latency_ns(&simulate(&pair(Protocol::NvmeTcp, two_controllers()), &reads(1, WINDOW), 1));
    let paths = by_partner(Some(100_000_000), Duration::from_micros(7));
    let forwarded = simulate(&pair(Protocol::NvmeTcp, paths), &reads(1, WINDOW), 1);
    let expected_ns = direct + 2.0 * 7_000.0 + (COMMAND_BYTES + ANSWER_BYTES) * 10.0;
    is_near(latency_ns(&forwarded), expected_ns, 0.005, "latency");
    for (target, other) in forwarded.targets.iter().zip(forwarded.targets.iter().rev()) {
        let ios = forwarded.measured.read.ios as f64 / 2.0;
        is_near(target.forwarded_bytes as f64, ios * (COMMAND_BYTES + ANSWER_BYTES), 0.005, "bytes");
        // Each sends commands for the other's volume and replies for its own.
        let sent_ns = ios * (COMMAND_BYTES + ANSWER_BYTES) * 10.0;
        is_near(target.interconnect_ns as f64, sent_ns, 0.005, "interconnect");
        assert!(target.interconnect_ns.abs_diff(other.interconnect_ns) < 100_000);
    }
}

/// Replies of equal size on an interconnect that is their only queue: M/D/1 (Pollaczek-Khinchine; Kleinrock, Queueing
/// Systems I, §5.6).
#[test]
fn what_waits_for_the_interconnect_waits_as_long_as_theory_says() {
    let rate = 100_000_000;
    let answer_ns = ANSWER_BYTES * 1e9 / rate as f64;
    for utilisation in [0.5, 0.7] {
        let paths = by_partner(Some(rate), Duration::ZERO);
        let lab = Lab { machines: 1, ..pair(Protocol::NvmeTcp, paths) };
        let run =
            RunConfig { runtime: Duration::from_secs(4), ..open(utilisation * 1e9 / answer_ns, Arrivals::Poisson) };
        let simulated = simulate(&lab, &run, 1);
        let wait_ns = answer_ns * utilisation / (2.0 * (1.0 - utilisation));
        let expected_ns = 10_000.0 + COMMAND_BYTES * 1e9 / rate as f64 + answer_ns + wait_ns;
        is_near(latency_ns(&simulated), expected_ns, 0.02, &format!("{utilisation}"));
    }
}

/// Only bytes have a cost: the forwarder receives and sends each of them, and so does its partner. The pair is then a
/// closed loop with a bottleneck.
#[test]
fn partner_spends_processor_time_on_what_it_forwards() {
    let work_ns = (COMMAND_BYTES + ANSWER_BYTES) * 10_000.0 / 1024.0;
    let priced = |machines, paths| {
        let mut lab = Lab { machines, ..pair(Protocol::NvmeTcp, paths) };
        (lab.target.costs.kib_ns, lab.target.costs.kib_sent_ns) = (10_000, 10_000);
        lab
    };
    let paths = || by_partner(None, Duration::from_micros(1));
    // One volume: the forwarder does twice the owner's work and is the bottleneck.
    let one = simulate(&priced(1, paths()), &reads(32, WINDOW), 1);
    is_near(rate_iops(&one), 1e9 / (2.0 * work_ns), 0.02, "rate of one");
    let busy = |simulated: &Simulated, at: usize| simulated.targets[at].work.spent_ns as f64 / WINDOW.as_nanos() as f64;
    is_near(busy(&one, 0), 0.5, 0.03, "owner");
    is_near(busy(&one, 1), 1.0, 0.02, "forwarder");
    // Two volumes: each controller does its own work and forwards the other's.
    let two = simulate(&priced(2, paths()), &reads(32, WINDOW), 1);
    is_near(rate_iops(&two), 2.0 * 1e9 / (3.0 * work_ns), 0.02, "rate of two");
    // Nothing is forwarded if paths lead to owners.
    let direct = simulate(&priced(2, two_controllers()), &reads(32, WINDOW), 1);
    is_near(rate_iops(&direct), 2.0 * 1e9 / work_ns, 0.02, "direct");
    assert!(direct.targets.iter().all(|target| target.forwarded_bytes == 0 && target.interconnect_ns == 0));
}

/// A single read is two messages over the interconnect, and each controller handles both: several at once would save
/// nothing.
#[test]
fn each_controller_spends_its_time_on_every_message_over_the_interconnect() {
    let message_ns = 8_000;
    for (switches, ports) in [(Switches::None, 1), (Switches::One, 1)] {
        let of = |message_ns| {
            let interconnect = Interconnect { rate_bytes_per_s: None, latency: Duration::ZERO, message_ns };
            let paths =
                Paths { to: Towards::Partner, interconnect, switches, target_ports: ports, ..two_controllers() };
            let mut lab = Lab { machines: 1, ..pair(Protocol::NvmeTcp, paths) };
            lab.target.io_ns = 5_000;
            simulate(&lab, &reads(1, WINDOW), 1)
        };
        let (free, priced) = (of(0), of(message_ns));
        is_near(latency_ns(&priced), latency_ns(&free) + 4.0 * message_ns as f64, 0.005, "latency");
        let per_io_ns = |target: usize| priced.targets[target].work.spent_ns as f64 / priced.measured.read.ios as f64;
        is_near(per_io_ns(0), 5_000.0 + 2.0 * message_ns as f64, 0.005, "owner");
        is_near(per_io_ns(1), 2.0 * message_ns as f64, 0.005, "forwarder");
    }
}

#[test]
fn paths_to_both_carry_half_each_and_are_as_fast_as_both_on_average() {
    let interconnect = Interconnect { rate_bytes_per_s: None, latency: Duration::from_micros(40), message_ns: 0 };
    for (ports, outstanding) in [(1, 1), (1, 16), (2, 16)] {
        let paths = |to| Paths {
            to,
            ports,
            target_ports: ports,
            interconnect,
            policy: PathPolicy::RoundRobin,
            ..two_controllers()
        };
        let of = |to| simulate(&pair(Protocol::Fcp, paths(to)), &reads(outstanding, WINDOW), 1);
        let [owner, partner, both] = [Towards::Owner, Towards::Partner, Towards::Both].map(of);
        assert!(latency_ns(&partner) > latency_ns(&owner) + 79_000.0);
        let context = format!("{ports} ports, {outstanding} outstanding");
        // Turns of a thousand: the window may end within one.
        is_near(latency_ns(&both), f64::midpoint(latency_ns(&owner), latency_ns(&partner)), 0.03, &context);
        let bytes =
            |simulated: &Simulated| simulated.targets.iter().map(|each| each.forwarded_bytes).sum::<u64>() as f64;
        let share = bytes(&both) / both.measured.read.ios as f64 / (bytes(&partner) / partner.measured.read.ios as f64);
        is_near(share, 0.5, 0.05, &context);
        assert!(owner.targets.iter().all(|target| target.forwarded_bytes == 0));
    }
}

fn taken_over(lost: u32) -> Paths {
    Paths { takeover: Some(lost), ..two_controllers() }
}

/// At a given rate the survivor does the work of both: all the work of its lost partner has moved, and nothing else.
#[test]
fn survivor_does_the_work_that_its_partner_lost() {
    for protocol in PROTOCOLS.map(|(protocol, _)| protocol) {
        let priced = |paths| {
            let mut lab = pair(protocol, paths);
            (lab.target.costs.kib_ns, lab.target.costs.kib_sent_ns, lab.target.costs.send_ns) = (500, 900, 1_000);
            lab.target.io_ns = 3_000;
            lab
        };
        let run = open(5_000.0, Arrivals::Constant);
        let before = simulate(&priced(two_controllers()), &run, 1);
        let lost: u64 = before.targets[1].work.spent_ns;
        let kept: u64 = before.targets[0].work.spent_ns;
        assert!(lost > 1_000_000 && lost.abs_diff(kept) < kept / 100, "{protocol:?}: {lost} and {kept}");
        for gone in [0, 1] {
            let after = simulate(&priced(taken_over(gone)), &run, 1);
            let context = format!("{protocol:?} without {gone}");
            assert_eq!(after.targets.len(), 1, "{context}");
            assert_eq!(after.measured.read.ios, before.measured.read.ios, "{context}");
            is_near(after.targets[0].work.spent_ns as f64, (kept + lost) as f64, 0.002, &context);
            let bytes = before.targets.iter().map(|target| target.work.bytes).sum::<u64>();
            is_near(after.targets[0].work.bytes as f64, bytes as f64, 0.002, &context);
        }
    }
}

#[test]
fn takeover_halves_processors_and_ports_but_keeps_both_volumes_media() {
    let rate = |lab: Lab| rate_iops(&simulate(&lab, &reads(32, WINDOW), 4));
    let ratio = |change: &dyn Fn(&mut Lab)| {
        let of = |paths| {
            let mut lab = pair(Protocol::Iscsi, paths);
            (lab.target_threads, lab.target.cores) = (2, 2);
            change(&mut lab);
            rate(lab)
        };
        of(taken_over(0)) / of(two_controllers())
    };
    // The server has the same number of threads, however many processors are idle.
    for cores in [2, 8] {
        let by_processors = ratio(&|lab| {
            lab.target.cores = cores;
            lab.target.io_ns = 20_000;
        });
        is_near(by_processors, 0.5, 0.02, "processors");
    }
    let by_ports = ratio(&|lab| {
        lab.link.rate_bytes_per_s = Some(100_000_000);
        lab.link.frames = Some(Frames::ethernet(9000));
    });
    is_near(by_ports, 0.5, 0.02, "ports");
    let by_media = ratio(&|lab| {
        let model = MediaModel {
            service: Duration::from_micros(100),
            spread: Duration::ZERO,
            servers: 2,
            ..Media::default().model
        };
        lab.media = Some(Media { model, write_through: true, ..Media::default() });
    });
    is_near(by_media, 1.0, 0.01, "media");
}

/// With any paths, data are correct, nothing is lost, and a run is always the same.
#[test]
fn forwarded_data_and_those_of_a_survivor_are_what_was_written() {
    let interconnect =
        Interconnect { rate_bytes_per_s: Some(200_000_000), latency: Duration::from_micros(20), message_ns: 1_000 };
    let run = RunConfig { verify: true, read_percent: 50.0, ..reads(16, Duration::from_millis(50)) };
    for (protocol, _) in PROTOCOLS {
        for switches in [Switches::None, Switches::One] {
            for (to, takeover, ports) in [
                (Towards::Partner, None, 1),
                (Towards::Partner, None, 2),
                (Towards::Both, None, 2),
                (Towards::Both, Some(1), 2),
                (Towards::Owner, Some(0), 2),
                (Towards::Partner, Some(1), 1),
            ] {
                let policy = PathPolicy::RoundRobin;
                let paths =
                    Paths { ports, target_ports: 2, switches, to, takeover, interconnect, policy, ..two_controllers() };
                let link = Link {
                    rate_bytes_per_s: Some(400_000_000),
                    frames: Some(Frames::ethernet(1500)),
                    ..Link::default()
                };
                // After its partner has gone, only machines with paths to the survivor can run.
                let machines = if to == Towards::Partner && takeover.is_some() { 1 } else { 2 };
                let lab = Lab { link, machines, filled: true, ..pair(protocol, paths) };
                let context = format!("{protocol:?}, {switches:?}, {to:?}, {takeover:?}, {ports}");
                if machines == 1 {
                    let refused = lab.run(&run, 2, None, Ok, |_| {}).expect_err(&context);
                    assert!(refused.message.contains("no path"), "{context}: {}", refused.message);
                    continue;
                }
                let simulated = simulate(&lab, &run, 2);
                let verify = &simulated.measured.verify;
                assert!(verify.wrong_blocks == 0 && verify.checked_blocks > 0, "{context}");
                assert_eq!((simulated.measured.read.errors, simulated.measured.write.errors), (0, 0), "{context}");
                assert!(simulated.measured.read.ios > 100, "{context}");
                assert_eq!(simulated, simulate(&lab, &run, 2), "{context}");
            }
        }
    }
}
