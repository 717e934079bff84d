//! Transactions on a server, over every protocol, in virtual time.

use std::{cell::RefCell, rc::Rc, time::Duration};

use crate::support::{
    Heap, Lab, RUN, allocate, load,
    server::{Bench, PROTOCOLS},
};
use iotax_node::{
    FailureKind, LoadNode, TaskConfig,
    load::{Arrivals, Endpoint, LocalUnit, Measured, OltpConfig, OltpCounts, Open, Pacing, RunConfig, TaskOutcome},
};
use iotax_proto::{Instant, Region};

const PAGE: u64 = 4096;
const OLTP: OltpConfig = OltpConfig { memory_bytes: 64 * PAGE, checkpoint: Duration::from_millis(4) };

fn database() -> RunConfig {
    RunConfig { oltp: Some(OLTP), ..RUN }
}

fn counts(measured: &Measured) -> OltpCounts {
    measured.oltp.expect("a database's counts")
}

/// Number of workers for `count` clients: one more is the writer.
fn clients(count: u32) -> u32 {
    count + 1
}

#[test]
fn transactions_read_verified_pages_and_write_log_and_pages_over_every_protocol() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new();
        bench.fill();
        let measured =
            bench.run(protocol, database(), clients(4)).unwrap_or_else(|failure| panic!("{protocol:?}: {failure}"));
        let found = counts(&measured);
        assert!(measured.read.ios > 20 && found.reads > 20, "{protocol:?}: {measured:?}");
        assert_eq!(found.read_bytes, found.reads * PAGE, "{protocol:?}");
        assert!(
            found.checkpoints > 0 && found.log_writes > 0 && found.writes > found.log_writes,
            "{protocol:?}: {found:?}"
        );
        assert_eq!((measured.verify.wrong_blocks, measured.verify.never_written_blocks), (0, 0), "{protocol:?}");
        assert!(measured.verify.checked_blocks >= found.reads * 8, "{protocol:?}");
        assert!(measured.mean_outstanding <= 4.0, "{protocol:?}: {}", measured.mean_outstanding);
    }
}

#[test]
fn client_alone_flushes_for_each_transaction_and_several_share_flushes() {
    let of = |count| {
        let (heap, unit) = memory();
        // Small pages, so that there are enough branches: the holder of a branch's row commits alone.
        let config = RunConfig { block_size_bytes: 512, ..database() };
        let measured = run(config, clients(count), &unit, heap).expect("right data");
        (measured.read.ios, counts(&measured).flushes - counts(&measured).checkpoints)
    };
    let (transactions, flushes) = of(1);
    assert!(
        transactions > 100 && transactions.abs_diff(flushes) <= 1,
        "{transactions} transactions, {flushes} flushes"
    );
    let (transactions, flushes) = of(8);
    assert!(flushes * 3 < transactions * 2, "{transactions} transactions, {flushes} flushes");
}

#[test]
fn transactions_of_an_open_loop_count_from_when_they_were_due() {
    let pacing = Pacing::Open(Open { rate_iops: 2_000.0, arrivals: Arrivals::Constant, backlog_max: 64 });
    let (heap, unit) = memory();
    let measured = run(RunConfig { pacing, ..database() }, clients(2), &unit, heap).expect("right data");
    let arrived = measured.streams[0].arrived.expect("an open loop");
    assert_eq!((arrived.offered, arrived.dropped), (40, 0));
    assert!(measured.read.ios.abs_diff(40) <= 2, "{}", measured.read.ios);
    assert!(measured.lateness.is_some() && measured.read.service.is_some());
}

#[test]
fn page_that_is_not_what_was_written_ends_the_run() {
    let mut bench = Bench::new();
    bench.fill();
    for at in (0..bench.memory.len()).step_by(PAGE as usize) {
        bench.memory.copy_in(at + 100, &[0x55]);
    }
    let failure = bench.run(PROTOCOLS[0], database(), clients(2)).expect_err("wrong data");
    assert_eq!(failure.kind, FailureKind::Verify, "{failure}");
}

/// A volume that loses all writes of pages after some number of them.
struct Loses {
    heap: Rc<Heap>,
    left: RefCell<u32>,
}

impl Region for Loses {
    fn len(&self) -> usize {
        self.heap.len()
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        let mut left = self.left.borrow_mut();
        if *left > 0 {
            *left -= 1;
            self.heap.copy_in(at, bytes);
        }
    }

    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.heap.copy_out(at, bytes);
    }

    fn address(&self, offset: usize) -> Option<*const u8> {
        self.heap.address(offset)
    }
}

#[test]
fn page_whose_write_was_lost_is_found_when_it_comes_back() {
    let heap = Heap::new(2 << 20);
    let region: Rc<dyn Region> = Rc::new(Loses { heap: Rc::clone(&heap), left: RefCell::new(40) });
    let failure = run(database(), clients(4), &LocalUnit::Memory(region), heap).expect_err("a lost write");
    assert_eq!(failure.kind, FailureKind::Verify, "{failure}");
}

#[test]
fn database_that_is_too_small_is_refused_with_what_it_takes() {
    let heap = Heap::new(1 << 20);
    let region: Rc<dyn Region> = heap.clone();
    let failure = run(database(), clients(1), &LocalUnit::Memory(region), heap).expect_err("too small");
    assert_eq!(failure.kind, FailureKind::TooSmall);
    assert!(failure.message.contains("2097152"), "{failure}");
}

fn memory() -> (Rc<Heap>, LocalUnit) {
    let heap = Heap::new(16 << 20);
    let region: Rc<dyn Region> = heap.clone();
    (heap, LocalUnit::Memory(region))
}

fn run(config: RunConfig, workers: u32, unit: &LocalUnit, heap: Rc<Heap>) -> Result<Measured, iotax_node::Failure> {
    let endpoint = Endpoint::parse("local:/unit").expect("endpoint");
    let mut node = LoadNode::local(load(TaskConfig::Run(config), workers), &endpoint, unit, &mut allocate)?;
    let mut lab = Lab::new(&mut node, None, &[]).disk(heap);
    lab.run_until(Instant(60_000_000_000), |node, now| {
        node.begin(now);
        false
    });
    match node.outcome().expect("finished").clone()? {
        TaskOutcome::Run(measured) => Ok(*measured),
        other => panic!("a run gave {other:?}"),
    }
}
