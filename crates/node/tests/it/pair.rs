//! A load generator with a server, over every protocol, without sockets and in virtual time.

use std::time::Duration;

use crate::support::{
    RUN, World, load,
    server::{Bench, PROTOCOLS, SIZE, group},
};
use iotax_node::{
    DiskId, FailureKind, TaskConfig,
    load::{Arrivals, Content, Open, Pacing, RunConfig, TaskOutcome},
    server::Protocol,
    volume::Media,
};
use iotax_proto::{Instant, Region};

#[test]
fn run_over_every_protocol_reads_what_was_written() {
    for protocol in PROTOCOLS {
        for (workers, piece_max) in [(1, 65_536), (3, 2_000)] {
            let mut bench = Bench::new();
            bench.fill();
            bench.world.piece_max = piece_max;
            let measured =
                bench.run(protocol, RUN, workers).unwrap_or_else(|failure| panic!("{protocol:?}: {failure}"));
            assert!(measured.read.ios > 100 && measured.write.ios > 100, "{protocol:?}: {measured:?}");
            assert_eq!((measured.read.errors, measured.write.errors), (0, 0), "{protocol:?}");
            assert!(measured.verify.checked_blocks >= measured.read.ios * 8, "{protocol:?}");
            assert_eq!((measured.verify.wrong_blocks, measured.verify.never_written_blocks), (0, 0), "{protocol:?}");
            let per_worker = measured.mean_outstanding / f64::from(workers);
            assert!((7.9..8.001).contains(&per_worker), "{protocol:?}: {per_worker} outstanding");
            assert_eq!(bench.node.connections(), 0, "{protocol:?}: every connection is closed");
        }
    }
}

#[test]
fn written_blocks_are_read_back_over_every_protocol() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new();
        bench.fill();
        let config = RunConfig { read_percent: 0.0, read_back: true, filled: true, ..RUN };
        let measured = bench.run(protocol, config, 2).unwrap_or_else(|failure| panic!("{protocol:?}: {failure}"));
        let verify = measured.verify;
        assert!(verify.read_back_blocks > 8 * 100 && verify.read_back_blocks <= SIZE as u64 / 512, "{protocol:?}");
        assert_eq!((verify.checked_blocks, verify.wrong_blocks), (verify.read_back_blocks, 0), "{protocol:?}");
        assert!(measured.write.ios * 8 >= verify.read_back_blocks, "{protocol:?}");
        assert_eq!(bench.node.connections(), 0, "{protocol:?}: every connection is closed");
    }
}

#[test]
fn every_block_size_in_pieces_of_every_size() {
    for protocol in [Protocol::Iscsi, Protocol::NvmeTcp, Protocol::Fcp, Protocol::FcNvme] {
        run_in_pieces(protocol, &[(512, 1), (8192, 100), (65_536, 10_000), (262_144, 100_000)]);
    }
    for protocol in [Protocol::Nfs3, Protocol::Nfs41] {
        run_in_pieces(protocol, &[(512, 1), (8192, 100), (65_536, 10_000)]);
    }
}

#[test]
fn large_nfs_pieces_after_a_split_head() {
    for protocol in [Protocol::Nfs3, Protocol::Nfs41] {
        run_in_pieces(protocol, &[(262_144, 100_000)]);
    }
}

fn run_in_pieces(protocol: Protocol, sizes: &[(u32, u64)]) {
    for (block_size_bytes, piece_max) in sizes.iter().copied() {
        let mut bench = Bench::new();
        bench.world = World { piece_max, step: Duration::from_nanos(200), ..World::default() };
        let (warmup, runtime) = (Duration::from_micros(500), Duration::from_millis(3));
        let config = RunConfig { block_size_bytes, outstanding: 3, warmup, runtime, ..RUN };
        let measured = bench.run(protocol, config, 2).unwrap_or_else(|failure| panic!("{protocol:?}: {failure}"));
        assert!(measured.read.ios + measured.write.ios > 3, "{protocol:?} {block_size_bytes}: {measured:?}");
        assert_eq!((measured.verify.wrong_blocks, measured.read.errors + measured.write.errors), (0, 0));
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    for protocol in PROTOCOLS {
        let measure = |seed, world_seed| {
            let mut bench = Bench::new();
            bench.world.seed = world_seed;
            bench.run(protocol, RunConfig { seed, ..RUN }, 2).expect("right data")
        };
        let first = measure(3, 1);
        assert_eq!(first, measure(3, 1), "{protocol:?}");
        assert_ne!(first, measure(4, 1), "{protocol:?}");
        assert_ne!(first, measure(3, 2), "{protocol:?}");
    }
}

#[test]
fn protocols_see_one_volume() {
    let mut bench = Bench::new();
    let filled = bench.task(Protocol::Iscsi, TaskConfig::Fill { destroy: false }).expect("filled");
    assert_eq!(filled, TaskOutcome::Filled { bytes: SIZE as u64 });
    for protocol in PROTOCOLS {
        let checked = bench.task(protocol, TaskConfig::Check { look_bytes: None }).expect("checked");
        assert_eq!(checked, TaskOutcome::Checked { content: Content::Pattern, scanned_bytes: SIZE as u64 });
    }
    for protocol in PROTOCOLS {
        let measured = bench.run(protocol, RUN, 1).expect("right data");
        assert_eq!(measured.verify.never_written_blocks, 0, "{protocol:?}");
    }
}

#[test]
fn wrong_data_in_the_volume_end_the_run_and_are_named() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new();
        bench.fill();
        bench.memory.copy_in(1_234_567, &[0x55, 0xaa, 0x55]);
        let failure = bench.run(protocol, RunConfig { read_percent: 100.0, outstanding: 32, ..RUN }, 1);
        let failure = failure.expect_err("wrong data");
        assert_eq!(failure.kind, FailureKind::Verify, "{failure}");
        assert!(failure.message.contains(&(1_234_567 / 512 * 512).to_string()), "{failure}");
    }
}

#[test]
fn lost_write_is_found() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new();
        bench.fill();
        let before = bench.memory.bytes().clone();
        let endpoint = bench.endpoint(protocol);
        let load = bench.load(&endpoint, load(TaskConfig::Run(RUN), 1)).expect("config");
        let memory = bench.memory.clone();
        let mut steps = 0;
        let outcome = bench.drive(load, |_, _| {
            steps += 1;
            if steps == 3_000 {
                memory.copy_in(0, &before);
            }
        });
        let failure = outcome.expect_err("the volume went back in time");
        assert_eq!(failure.kind, FailureKind::Verify, "{failure}");
    }
}

#[test]
fn only_members_of_a_group_come_in() {
    let port = "naa.30100000004d0001";
    let names = ["iqn.2026-11.io.iotax:load", "nqn.2026-11.io.iotax:load", port, "10.0.0.0/8"];
    for protocol in PROTOCOLS {
        let mut bench = Bench::with(|_| {}, |export| export.groups = Some(group(&names)));
        let by_name = bench.task(protocol, TaskConfig::Check { look_bytes: None });
        if matches!(protocol, Protocol::Nfs3 | Protocol::Nfs41) {
            assert_eq!(by_name.expect_err("NFS has no names").kind, FailureKind::Denied);
        } else if protocol == Protocol::Fcp {
            by_name.expect("let in by name");
            let mut others = Bench::with(|_| {}, |export| export.groups = Some(group(&["naa.30100000004d0002"])));
            let failure = others.task(protocol, TaskConfig::Check { look_bytes: None }).expect_err("a stranger");
            assert_eq!(failure.kind, FailureKind::Denied, "{failure}");
        } else {
            by_name.expect("let in by name");
            let endpoint = bench.endpoint(protocol);
            let prefix = if protocol == Protocol::Iscsi { "iqn" } else { "nqn" };
            let stranger = format!("{prefix}.2026-11.org.example:stranger");
            let load = bench.load_as(&endpoint, load(TaskConfig::Check { look_bytes: None }, 1), |connection| {
                connection.settings.initiator = Some(stranger.clone());
            });
            let failure = bench.drive(load.expect("config"), |_, _| {}).expect_err("a stranger");
            assert_eq!(failure.kind, FailureKind::Denied, "{failure}");
        }
        bench.peer = "10.1.2.3:700".parse().expect("an address");
        bench.task(protocol, TaskConfig::Check { look_bytes: None }).expect("let in by address");
    }
}

#[test]
fn wrong_names_are_not_found_and_closed_ports_refuse() {
    let bench = Bench::new();
    let endpoints = PROTOCOLS.map(|protocol| bench.endpoint(protocol).text);
    for endpoint in endpoints {
        // A WWPN is derived from the volume's name and begins with 3.
        let wrong = endpoint.replace("v0", "v9").replace("/3", "/2");
        let mut bench = Bench::new();
        let parsed = iotax_node::load::Endpoint::parse(&wrong).expect("an endpoint");
        let load = bench.load(&parsed, load(TaskConfig::Check { look_bytes: None }, 1)).expect("config");
        assert_eq!(bench.drive(load, |_, _| {}).expect_err("no such unit").kind, FailureKind::NotFound, "{wrong}");
        let closed = endpoint.replace(":4000", ":4001");
        let parsed = iotax_node::load::Endpoint::parse(&closed).expect("an endpoint");
        let load =
            bench.load(&parsed, crate::support::load(TaskConfig::Check { look_bytes: None }, 1)).expect("config");
        assert_eq!(bench.drive(load, |_, _| {}).expect_err("closed").kind, FailureKind::Refused, "{closed}");
    }
}

#[test]
fn read_only_export_is_read_and_not_written() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::with(|_| {}, |export| export.read_only = true);
        bench.fill();
        let before = bench.memory.bytes().clone();
        bench.run(protocol, RunConfig { read_percent: 100.0, ..RUN }, 1).expect("reads");
        let failure = bench.run(protocol, RUN, 1).expect_err("writes");
        assert_eq!(failure.kind, FailureKind::ReadOnly, "{protocol:?}: {failure}");
        assert_eq!(*bench.memory.bytes(), before);
    }
}

#[test]
fn guard_refuses_foreign_data_over_every_protocol() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new();
        bench.memory.copy_in(0, b"XFSB");
        let before = bench.memory.bytes().clone();
        let failure = bench.task(protocol, TaskConfig::Fill { destroy: false }).expect_err("foreign");
        assert_eq!(failure.kind, FailureKind::ForeignData);
        assert!(failure.message.contains("XFS file system"), "{failure}");
        assert_eq!(*bench.memory.bytes(), before, "{protocol:?}");
    }
}

#[test]
fn stall_shows_up_in_latency() {
    const STALL: Duration = Duration::from_millis(3);
    for protocol in PROTOCOLS {
        let mut bench = Bench::new();
        let from = Instant(12_000_000);
        bench.world.stall = Some((from, from + STALL));
        let measured = bench.run(protocol, RUN, 1).expect("right data");
        let longest = Duration::from_nanos(measured.read.latency_max_ns.max(measured.write.latency_max_ns));
        assert!(longest >= STALL && longest < STALL * 2, "{protocol:?}: {longest:?}");
        let sum = measured.read.latency_sum_ns + measured.write.latency_sum_ns;
        assert!(sum >= 7 * STALL.as_nanos() as u64, "{protocol:?}: every I/O under way waited");
    }
}

#[test]
fn known_tax_is_measured() {
    for protocol in PROTOCOLS {
        let quick = Bench::new().run(protocol, RunConfig { outstanding: 1, ..RUN }, 1).expect("right data");
        let mut bench = Bench::with(
            |volume| {
                volume.delay_ns = 500_000;
                volume.burn_ns = 7;
            },
            |_| {},
        );
        let slow = bench.run(protocol, RunConfig { outstanding: 1, ..RUN }, 1).expect("right data");
        let median = |measured: &iotax_node::load::Measured| measured.read.latency.quantile_ns(0.5);
        let tax = median(&slow) - median(&quick);
        assert!((480_000..530_000).contains(&tax), "{protocol:?}: {tax} ns");
        let ios = slow.read.ios + slow.write.ios;
        assert!(bench.burnt_ns.get() >= 7 * ios, "{protocol:?}");
    }
}

#[test]
fn lost_connection_ends_the_run_as_lost() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new();
        let endpoint = bench.endpoint(protocol);
        let mut load = bench.load(&endpoint, load(TaskConfig::Run(RUN), 2)).expect("config");
        let addresses: Vec<_> = bench.server.config().portals.iter().map(|portal| portal.address).collect();
        let mut lab = crate::support::Lab::new(&mut load, Some(&mut bench.node), &addresses);
        let mut started = Instant(u64::MAX);
        lab.run_until(Instant(60_000_000_000), |load, now| {
            if load.is_ready() {
                load.begin(now);
                started = now;
            }
            now > Instant(started.0.saturating_add(1_000_000))
        });
        lab.cut();
        drop(lab);
        let failure = load.outcome().expect("ended").clone().expect_err("lost");
        assert_eq!(failure.kind, FailureKind::Lost, "{protocol:?}: {failure}");
        assert_eq!(bench.node.connections(), 0);
    }
}

/// A bench on a file, as the server sees it.
fn on_a_disk() -> Bench {
    let bench = Bench::with(|volume| volume.media = Media::Disk { disk: DiskId(0), block_size: 512 }, |_| {});
    bench.fill();
    bench
}

#[test]
fn durable_writes_reach_the_disk_as_durable_over_every_protocol() {
    for protocol in PROTOCOLS {
        for durable in [false, true] {
            let mut bench = on_a_disk();
            let measured = bench.run(protocol, RunConfig { durable, ..RUN }, 2).expect("right data");
            let (durably, volatile) = (bench.asked.durable_writes, bench.asked.writes);
            let (all, none) = if durable { (durably, volatile) } else { (volatile, durably) };
            assert!(all >= measured.write.ios && measured.write.ios > 50, "{protocol:?}: {:?}", bench.asked);
            assert_eq!((none, bench.asked.flushes, measured.flush.ios), (0, 0, 0), "{protocol:?}");
        }
    }
}

#[test]
fn a_worker_flushes_after_so_many_writes_over_every_protocol() {
    for protocol in PROTOCOLS {
        let open = Pacing::Open(Open { rate_iops: 20_000.0, arrivals: Arrivals::Poisson, backlog_max: 64 });
        for (pacing, flush_after) in [(Pacing::Closed, 1), (Pacing::Closed, 7), (open, 4)] {
            let mut bench = on_a_disk();
            let config = RunConfig { flush_after, pacing, outstanding: 4, ..RUN };
            let measured = bench.run(protocol, config, 2).expect("right data");
            let (writes, flushes) = (measured.write.ios, measured.flush.ios);
            // Some are under way at both edges of the window, and each worker's last writes have no flush yet.
            let wanted = writes / u64::from(flush_after);
            assert!(flushes > 10 && flushes.abs_diff(wanted) <= 2 * 8, "{protocol:?}: {flushes}, not {wanted}");
            assert!(bench.asked.flushes >= flushes, "{protocol:?}: {:?}", bench.asked);
            assert!(measured.flush.latency_sum_ns > 0 && measured.flush.bytes == 0, "{protocol:?}");
            let counted: u64 = measured.series.iter().filter(|each| each.in_window).map(|each| each.writes).sum();
            assert_eq!((counted, measured.verify.wrong_blocks), (writes, 0), "{protocol:?}: flushes are not writes");
        }
    }
}

#[test]
fn what_makes_nothing_durable_is_refused() {
    let refused = |config: RunConfig| config.check().expect_err("refused").to_string();
    assert!(refused(RunConfig { durable: true, read_percent: 100.0, ..RUN }).contains("makes nothing durable"));
    assert!(refused(RunConfig { flush_after: 1, read_percent: 100.0, ..RUN }).contains("makes nothing durable"));
}
