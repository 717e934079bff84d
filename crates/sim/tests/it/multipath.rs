//! A load over several paths: it survives their loss, and no write that was sent again undoes a newer one.

use std::{cell::RefCell, net::IpAddr, rc::Rc, time::Duration};

use crate::support::reads;
use iotax_node::{
    Access, Failure, LoadConfig, LoadNode, RunConfig, TaskConfig,
    load::{Arrivals, Measured, Open, Pacing, PathPolicy, PathReport, TaskOutcome, connector::ConnectionConfig},
    pattern::Reduction,
    protocols::iscsi::{self, PortalGroups},
    seeded::SeededRng,
    server::{ExportOptions, Protocol},
};
use iotax_proto::Instant;
use iotax_sim::{
    Disk, Exporter, HostId, Link, Media, PipeId, Side, Store, Volume, Ways, World, add_load, connection_config,
};

const PROTOCOLS: [Protocol; 2] = [Protocol::NvmeTcp, Protocol::Iscsi];
/// With and without portals that report their access.
const EXPORTS: [(Protocol, bool); 4] =
    [(Protocol::NvmeTcp, true), (Protocol::Iscsi, false), (Protocol::Iscsi, true), (Protocol::Nfs41, false)];
/// Seeds per protocol in every test run; `make sim-test` runs more.
const SEEDS: u64 = 60;
/// Too early a retry must be found within this many seeds.
const CANARY_SEEDS: u64 = 300;
const SIZE: u64 = 256 << 10;
const PATHS: u8 = 2;
const WORKERS: u32 = 2;
/// I/Os of each worker.
const OUTSTANDING: u32 = 2;
/// After this time the load knows of a change, and what was under way before has ended.
const SETTLED: Duration = Duration::from_millis(1_200);
const STARTED_UNIX_NS: u64 = 1_795_000_000_000_000_000;
/// Virtual time of the load, and until which everything must have ended.
const RUNTIME: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(200);
/// Long enough for a newer write to complete before a login ends the lost session.
const LATENCY: Duration = Duration::from_millis(10);
/// Few, so that most of the time passes without work.
const RATE_IOPS: f64 = 400.0;

struct Paths {
    world: World,
    host: HostId,
    load: Rc<RefCell<LoadNode>>,
    /// It owns the server's nodes.
    server: Exporter,
}

impl Paths {
    /// The server's portals report their access if they can.
    fn new(protocol: Protocol, seed: u64, run: RunConfig, adapt: impl FnOnce(&mut ConnectionConfig)) -> Self {
        Self::with_options(protocol, each_portal_group(), seed, run, adapt)
    }

    fn with_options(
        protocol: Protocol,
        options: ExportOptions,
        seed: u64,
        run: RunConfig,
        adapt: impl FnOnce(&mut ConnectionConfig),
    ) -> Self {
        let options = if protocol == Protocol::Iscsi { options } else { ExportOptions::default() };
        let mut world = World::new(seed);
        let link = Link { latency: LATENCY, ..Link::default() };
        let links = [world.add_link(link.clone()), world.add_link(link)];
        // What a slow disk has begun may go on for long after its connection is lost.
        let store = if seed & 1 == 0 { Store::Memory } else { slow_disk(&mut world, seed) };
        let volume = Volume { size_bytes: SIZE, store, delay_ns: 0, burn_ns: 0 };
        let addresses: Vec<_> = (0..PATHS).map(portal).collect();
        let described = [(addresses, volume)];
        let threads = 1 + (seed >> 1 & 1) as usize;
        let export = (protocol, options);
        let server = Exporter::start_at(&mut world, &described, links[1], export, threads, STARTED_UNIX_NS);
        let endpoint = server.endpoint(0);
        let mut connection = connection_config(&endpoint, 1).expect("addresses");
        connection.policy = PathPolicy::RoundRobin;
        connection.settings.keep_alive = Some(Duration::from_secs(1));
        adapt(&mut connection);
        let config = LoadConfig {
            task: TaskConfig::Run(run),
            workers: WORKERS,
            first_worker: 0,
            own_workers: WORKERS,
            working_set_bytes: None,
            working_set_offset_bytes: 0,
            reduction: Reduction::default(),
            run: 1,
        };
        let (host, load) =
            add_load(&mut world, links[0], Ways::default(), &endpoint, config, &connection).expect("a load");
        Self { world, host, load, server }
    }

    fn run_until(&mut self, limit: Instant, done: impl Fn(&LoadNode) -> bool) -> bool {
        let load = Rc::clone(&self.load);
        self.world.run_until(limit, |_| done(&load.borrow()))
    }

    fn wait(&mut self, time: Duration) {
        let until = self.world.now() + time;
        self.run_until(until, |load| load.outcome().is_some());
    }

    fn begin(&mut self) {
        assert!(self.run_until(Instant(10_000_000_000), LoadNode::is_ready), "{:?}", self.load.borrow().outcome());
        self.load.borrow_mut().begin(self.world.now());
        self.world.settle(self.host);
    }

    fn end(mut self, limit: Duration) -> (Result<Measured, Failure>, Vec<PathReport>) {
        let limit = self.world.now() + limit;
        assert!(self.run_until(limit, |load| load.outcome().is_some()), "the load does not end");
        let load = self.load.borrow();
        let outcome = match load.outcome().expect("ended").clone() {
            Ok(TaskOutcome::Run(measured)) => Ok(*measured),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => Err(failure),
        };
        (outcome, load.path_reports())
    }
}

fn slow_disk(world: &mut World, seed: u64) -> Store {
    let mut media = Media::default();
    (media.model.slow_chance, media.model.slow) = (20, Duration::from_secs(3));
    Store::Disk { disk: world.add_disk(Disk::new(SIZE as usize, media, seed)), block_size: 512 }
}

fn each_portal_group() -> ExportOptions {
    let iscsi = iscsi::ExportOptions { portal_groups: Some(PortalGroups::Each) };
    ExportOptions { iscsi, ..ExportOptions::default() }
}

fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS)
}

fn portal(index: u8) -> IpAddr {
    IpAddr::from([10, 0, index, 1])
}

fn mixed(runtime: Duration, seed: u64) -> RunConfig {
    let pacing = Pacing::Open(Open { rate_iops: RATE_IOPS, arrivals: Arrivals::Poisson, backlog_max: 10_000 });
    RunConfig { read_percent: 50.0, verify: true, seed, pacing, ..reads(OUTSTANDING, runtime) }
}

/// Loses random connections for the whole run: the client learns of it at once, the server perhaps much later, and
/// bytes in flight may arrive in the meantime. Portals that report their access also change it.
fn flapping(
    (protocol, reports_access): (Protocol, bool),
    seed: u64,
    retries_at_once: bool,
) -> (Result<Measured, Failure>, Vec<PathReport>) {
    let options = if reports_access { each_portal_group() } else { ExportOptions::default() };
    let mut paths = Paths::with_options(protocol, options, seed, mixed(RUNTIME, seed), |connection| {
        connection.retries_at_once = retries_at_once;
    });
    paths.begin();
    let mut random = SeededRng::new(seed, "flaps", 0);
    let mut accesses = SeededRng::new(seed, "access", 0);
    let changes_access = reports_access && !retries_at_once;
    let mut now = [Access::Optimized; PATHS as usize];
    let end = paths.world.now() + RUNTIME;
    while paths.world.now() < end && paths.load.borrow().outcome().is_none() {
        if changes_access && accesses.below(2) == 0 {
            let path = accesses.below(PATHS.into()) as usize;
            now[path] = any_access(&mut accesses);
            // One path stays, or the load could stand still for nearly the whole run.
            if now.iter().all(|access| *access == Access::Inaccessible) {
                now[path] = Access::NonOptimized;
            }
            paths.server.set_access(portal(path as u8), now[path]);
        }
        paths.wait(Duration::from_millis(random.below(4_000)));
        let of = |addresses: &[IpAddr]| addresses.iter().flat_map(|to| paths.world.connections_to(*to)).collect();
        let path = portal(random.below(PATHS.into()) as u8);
        let connections: Vec<PipeId> = match random.below(4) {
            // A frozen target: no path delivers anything for a while.
            0 => of(&(0..PATHS).map(portal).collect::<Vec<_>>()),
            _ => of(&[path]),
        };
        let late = Duration::from_micros(random.below(6_000_000));
        let [to_server, to_client] = [(); 2].map(|()| random.below(3) > 0);
        for pipe in &connections {
            for (side, stalls) in Side::BOTH.into_iter().zip([to_server, to_client]) {
                if stalls {
                    paths.world.stall(*pipe, side, late);
                }
            }
        }
        paths.wait(Duration::from_micros(random.below(100_000)));
        // The client learns of the end at once, and the server after everything that it can still receive.
        if random.below(2) == 0 {
            for pipe in connections {
                paths.world.reset(pipe, [Duration::from_micros(random.below(2_000)), late]);
            }
        }
    }
    paths.world.heal();
    if changes_access {
        (0..PATHS).for_each(|path| paths.server.set_access(portal(path), Access::Optimized));
    }
    paths.end(LIMIT)
}

fn any_access(random: &mut SeededRng) -> Access {
    [Access::Optimized, Access::NonOptimized, Access::Inaccessible][random.below(3) as usize]
}

/// The result of a load during whose run the access over its paths changes at random, its paths, and how often the access
/// over a path ended.
fn changing(protocol: Protocol, seed: u64, ignores_access: bool) -> (Result<Measured, Failure>, Vec<PathReport>, u64) {
    let mut paths = Paths::new(protocol, seed, mixed(RUNTIME, seed), |connection| {
        connection.ignores_access = ignores_access;
    });
    paths.begin();
    let mut random = SeededRng::new(seed, "access", 0);
    let (mut now, mut ends) = ([Access::Optimized; PATHS as usize], 0);
    let end = paths.world.now() + RUNTIME;
    while paths.world.now() < end && paths.load.borrow().outcome().is_none() {
        paths.wait(Duration::from_micros(random.below(1_000_000)));
        let (path, access) = (random.below(PATHS.into()) as u8, any_access(&mut random));
        paths.server.set_access(portal(path), access);
        let before = std::mem::replace(&mut now[usize::from(path)], access);
        ends += u64::from(access == Access::Inaccessible && before != access);
    }
    (0..PATHS).for_each(|path| paths.server.set_access(portal(path), Access::Optimized));
    let (outcome, reports) = paths.end(LIMIT);
    (outcome, reports, ends)
}

/// Whether I/Os were refused that were not yet under way when the access ended: an inaccessible path was used.
fn uses_inaccessible_path(reports: &[PathReport], ends: u64) -> bool {
    reports.iter().map(|report| report.counts.refused).sum::<u64>() > ends * u64::from(WORKERS * OUTSTANDING)
}

#[test]
fn no_read_or_write_fails_and_no_inaccessible_path_is_used_while_the_access_changes() {
    for protocol in PROTOCOLS {
        let (mut refused, mut seen) = (0, 0);
        let seeds = seeds();
        for seed in 0..seeds {
            let (outcome, reports, ends) = changing(protocol, seed, false);
            let at = format!("{protocol:?} seed {seed}");
            let measured = outcome.unwrap_or_else(|failure| panic!("{at}: {failure}"));
            assert_eq!((measured.read.errors, measured.write.errors), (0, 0), "{at}");
            assert!(measured.read.ios > 100 && measured.write.ios > 100, "{at}");
            assert!(!uses_inaccessible_path(&reports, ends), "{at}: {reports:?}, {ends} times without access");
            assert!(reports.iter().all(|report| report.losses == 0 && report.counts.completed > 0), "{at}");
            refused += reports.iter().map(|report| report.counts.refused).sum::<u64>();
            seen += ends;
        }
        assert!(seen > 3 * seeds && refused > seeds, "{protocol:?}: {seen} times without access, {refused} refusals");
    }
}

/// The checker finds what it is for.
#[test]
fn use_of_an_inaccessible_path_is_found() {
    for protocol in PROTOCOLS {
        let is_found = |seed: &u64| {
            let (outcome, reports, ends) = changing(protocol, *seed, true);
            outcome.is_err() || uses_inaccessible_path(&reports, ends)
        };
        assert!((0..CANARY_SEEDS).any(|seed| is_found(&seed)), "{protocol:?}");
    }
}

#[test]
fn load_goes_over_the_paths_with_the_best_access_and_returns() {
    use Access::{Inaccessible, NonOptimized, Optimized};
    let policies = [PathPolicy::Fixed, PathPolicy::RoundRobin, PathPolicy::QueueDepth];
    for (protocol, policy) in PROTOCOLS.into_iter().flat_map(|protocol| policies.map(|policy| (protocol, policy))) {
        let mut paths = Paths::new(protocol, 2, mixed(RUNTIME, 2), |connection| connection.policy = policy);
        paths.begin();
        let both = policy != PathPolicy::Fixed;
        for (access, used) in [
            ([Optimized, Optimized], [true, both]),
            ([NonOptimized, Optimized], [false, true]),
            ([Inaccessible, NonOptimized], [false, true]),
            ([Inaccessible, Inaccessible], [false, false]),
            ([Optimized, Inaccessible], [true, false]),
            ([NonOptimized, NonOptimized], [true, both]),
            ([Optimized, NonOptimized], [true, false]),
        ] {
            for (path, access) in (0..).zip(access) {
                paths.server.set_access(portal(path), access);
            }
            let completed = |paths: &Paths| -> Vec<u64> {
                paths.load.borrow().path_reports().iter().map(|report| report.counts.completed).collect()
            };
            paths.wait(SETTLED);
            let before = completed(&paths);
            paths.wait(Duration::from_secs(1));
            let grown: Vec<bool> = completed(&paths).iter().zip(before).map(|(now, before)| *now > before).collect();
            assert_eq!(grown, used, "{protocol:?} {policy:?} {access:?}");
        }
        let (outcome, reports) = paths.end(LIMIT);
        assert!(outcome.is_ok_and(|measured| measured.read.errors + measured.write.errors == 0));
        assert!(reports.iter().all(|report| report.losses == 0));
    }
}

#[test]
fn no_read_or_write_fails_and_none_is_undone_while_paths_come_and_go() {
    for (protocol, reports_access) in EXPORTS {
        let seeds = seeds();
        let (mut lost, mut losses) = (0, 0);
        for seed in 0..seeds {
            let (outcome, reports) = flapping((protocol, reports_access), seed, false);
            let measured = outcome.unwrap_or_else(|failure| panic!("{protocol:?} seed {seed}: {failure}"));
            assert_eq!((measured.read.errors, measured.write.errors), (0, 0), "{protocol:?} seed {seed}");
            // A slow disk does fewer.
            assert!(measured.read.ios > 20 && measured.write.ios > 20, "{protocol:?} seed {seed}");
            lost += reports.iter().map(|report| report.counts.lost).sum::<u64>();
            losses += reports.iter().map(|report| report.losses).sum::<u64>();
        }
        assert!(losses > 5 * seeds && lost > seeds, "{protocol:?}: {losses} losses, {lost} I/Os");
    }
}

/// The checker finds what it is for: writes that are sent again at once are undone by their first copies.
#[test]
fn write_that_is_sent_again_too_early_is_found() {
    for export in EXPORTS {
        let undone = |seed: &u64| flapping(export, *seed, true).0.is_err();
        assert!((0..CANARY_SEEDS).any(|seed| undone(&seed)), "{export:?}");
    }
}
