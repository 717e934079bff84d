//! The load generator with the server, over links with latency and rate.

use std::{cell::RefCell, rc::Rc, time::Duration};

use iotax_node::{
    LoadConfig, LoadNode, RunConfig, TaskConfig,
    load::{Measured, TaskOutcome},
    pattern::Reduction,
    server::Protocol,
};
use iotax_proto::Instant;
use iotax_sim::{
    Disk, Exporter, HostId, Link, Media, PROTOCOLS, Store, Volume, Ways, World, add_load, connection_config, lab::Lab,
};

const SIZE: u64 = 4 << 20;
const LIMIT: Instant = Instant(60_000_000_000);

fn run(outstanding: u32) -> RunConfig {
    RunConfig { seed: 3, verify: true, ..crate::support::reads(outstanding, Duration::from_millis(100)) }
}

fn config(run: RunConfig) -> LoadConfig {
    LoadConfig {
        task: TaskConfig::Run(run),
        workers: 1,
        first_worker: 0,
        own_workers: 1,
        working_set_bytes: None,
        working_set_offset_bytes: 0,
        reduction: Reduction::default(),
        run: 9,
    }
}

/// Begins a load once it is ready, and drives it to its end.
fn measure(world: &mut World, host: HostId, load: &Rc<RefCell<LoadNode>>) -> Measured {
    assert!(world.run_until(LIMIT, |_| load.borrow().is_ready()), "{load:?}");
    load.borrow_mut().begin(world.now());
    world.settle(host);
    assert!(world.run_until(LIMIT, |_| load.borrow().outcome().is_some()), "{load:?}");
    let outcome = load.borrow().outcome().expect("it ended").clone();
    match outcome.expect("right data") {
        TaskOutcome::Run(measured) => *measured,
        other => panic!("{other:?}"),
    }
}

fn over(link: &Link, protocol: Protocol, run: RunConfig, on_disk: bool, seed: u64) -> (Measured, u64) {
    let mut world = World::new(seed);
    let (near, far) = (world.add_link(link.clone()), world.add_link(link.clone()));
    let store = if on_disk {
        let mut media = Media::default();
        (media.model.service, media.model.spread) = (Duration::from_micros(200), Duration::ZERO);
        Store::Disk { disk: world.add_disk(Disk::new(SIZE as usize, media, seed)), block_size: 512 }
    } else {
        Store::Memory
    };
    let server = Exporter::start(
        &mut world,
        far,
        protocol,
        Volume { size_bytes: SIZE, store, delay_ns: 0, burn_ns: 0 },
        1,
        1_700_000_000_000_000_000,
    );
    let connection = connection_config(&server.endpoint(0), 1).expect("an address");
    let (host, load) =
        add_load(&mut world, near, Ways::default(), &server.endpoint(0), config(run), &connection).expect("a load");
    let measured = measure(&mut world, host, &load);
    assert!(world.run_until(LIMIT, |_| server.nodes()[0].borrow().connections() == 0), "{protocol:?} stays open");
    (measured, world.trace.hash())
}

#[test]
#[allow(clippy::cast_precision_loss)]
fn one_io_at_a_time_takes_two_latencies_and_the_medium() {
    for (protocol, _) in PROTOCOLS {
        for (on_disk, expected_ns) in [(false, 200_000), (true, 400_000)] {
            let link = Link { latency: Duration::from_micros(100), ..Link::default() };
            let (measured, _) = over(&link, protocol, run(1), on_disk, 1);
            let expected = 100_000_000 / expected_ns;
            assert!(measured.read.ios.abs_diff(expected) <= 1, "{protocol:?}: {} I/Os, {expected}", measured.read.ios);
            assert_eq!(measured.read.errors, 0, "{protocol:?}");
        }
    }
}

#[test]
#[allow(clippy::cast_precision_loss)]
fn many_ios_at_a_time_take_what_the_link_carries() {
    for (protocol, _) in PROTOCOLS {
        let link = Link { rate_bytes_per_s: Some(100_000_000), ..Link::default() };
        let (measured, _) = over(&link, protocol, run(32), false, 1);
        let data = measured.read.ios as f64 * 4096.0 / 0.1 / 100e6;
        assert!((0.93..1.0).contains(&data), "{protocol:?}: data are {data} of the link");
    }
}

#[test]
fn same_seed_is_the_same_run_and_another_is_not() {
    for (protocol, _) in PROTOCOLS {
        let link = Link { splits: true, piece_bytes: 3000, ..Link::default() };
        let mixed = || RunConfig { read_percent: 50.0, ..run(4) };
        let first = over(&link, protocol, mixed(), true, 5);
        assert_eq!(first, over(&link, protocol, mixed(), true, 5), "{protocol:?}");
        assert_ne!(first.1, over(&link, protocol, mixed(), true, 6).1, "{protocol:?}");
        assert_eq!((first.0.verify.wrong_blocks, first.0.write.errors), (0, 0), "{protocol:?}");
    }
}

#[test]
fn load_that_looks_at_no_data_measures_the_same_without_any() {
    let link = Link { latency: Duration::from_micros(50), rate_bytes_per_s: Some(1_000_000_000), ..Link::default() };
    for (protocol, name) in PROTOCOLS {
        let measured = |verify| {
            let run = RunConfig { verify, filled: true, read_percent: 50.0, ..run(8) };
            let lab = Lab { filled: true, ..crate::support::lab(protocol, link.clone()) };
            lab.run(&run, 2, None, Ok, |_| {}).expect("a simulation").measured
        };
        let (looks, blank) = (measured(true), measured(false));
        assert!(looks.verify.checked_blocks > 0 && blank.verify.checked_blocks == 0, "{name}");
        assert_eq!((&looks.read, &looks.write), (&blank.read, &blank.write), "{name}");
    }
}
