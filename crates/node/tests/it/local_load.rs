//! The load generator on local units, in virtual time.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc};

use crate::support::{Heap, Lab, RUN, allocate, load};
use iotax_node::{
    DiskId, FailureKind, LoadNode, TaskConfig,
    load::{Arrivals, Content, Cursor, Endpoint, LocalUnit, Measured, Open, Pacing, RunConfig, TaskOutcome},
    pattern::{self, Pool, Reduction},
};
use iotax_proto::{Geometry, Instant, Region};

const SIZE: usize = 1 << 20;
const LIMIT: Instant = Instant(60_000_000_000);

fn node(task: TaskConfig, workers: u32, unit: &LocalUnit) -> LoadNode {
    let endpoint = Endpoint::parse("local:/unit").expect("endpoint");
    LoadNode::local(load(task, workers), &endpoint, unit, &mut allocate).expect("config")
}

fn finish(mut node: LoadNode, disk: Option<Rc<Heap>>) -> Result<TaskOutcome, iotax_node::Failure> {
    let mut lab = Lab::new(&mut node, None, &[]);
    if let Some(disk) = disk {
        lab = lab.disk(disk);
    }
    lab.run_until(LIMIT, |node, now| {
        node.begin(now);
        false
    });
    node.outcome().expect("finished").clone()
}

fn run(
    config: RunConfig,
    workers: u32,
    unit: &LocalUnit,
    disk: Option<Rc<Heap>>,
) -> Result<Measured, iotax_node::Failure> {
    let node = node(TaskConfig::Run(config), workers, unit);
    match finish(node, disk)? {
        TaskOutcome::Run(measured) => Ok(*measured),
        other => panic!("a run gave {other:?}"),
    }
}

fn memory() -> (Rc<Heap>, LocalUnit) {
    let heap = Heap::new(SIZE);
    let region: Rc<dyn Region> = heap.clone();
    (heap, LocalUnit::Memory(region))
}

fn disk() -> (Rc<Heap>, LocalUnit) {
    let geometry = Geometry { size_bytes: SIZE as u64, block_size: 512, max_io_bytes: 1 << 20, read_only: false };
    (Heap::new(SIZE), LocalUnit::Disk { disk: DiskId(0), geometry })
}

#[test]
fn run_on_memory_reads_what_it_wrote() {
    for workers in [1, 3] {
        let (_, unit) = memory();
        let measured = run(RUN, workers, &unit, None).expect("right data");
        assert!(measured.read.ios > 1000 && measured.write.ios > 1000, "{measured:?}");
        assert_eq!(measured.verify.wrong_blocks, 0);
        assert!(measured.verify.checked_blocks >= measured.read.ios * 8);
        assert!((measured.mean_outstanding - 8.0 * f64::from(workers)).abs() < 0.1, "{}", measured.mean_outstanding);
        assert_eq!(measured.series.iter().filter(|sample| sample.in_window).count(), 4);
    }
}

#[test]
fn workers_share_a_sequential_stream_and_verify_what_they_read() {
    let (heap, unit) = disk();
    let shared = Some(Cursor::default());
    let config = RunConfig { outstanding: 2, random_percent: 0.0, shared, ..RUN };
    let measured = run(config, 3, &unit, Some(heap)).expect("right data");
    assert!(measured.read.ios > 256 && measured.write.ios > 256, "{measured:?}");
    assert_eq!(measured.verify.wrong_blocks, 0);
    let refused = RunConfig { shared: Some(Cursor::default()), ..RUN }.check().expect_err("random");
    assert_eq!(refused.place, "random_percent");
}

/// Number of pattern blocks that a unit contains, and how many of them are different.
fn distinct(heap: &Heap) -> (usize, usize) {
    let mut bytes = vec![0; SIZE];
    heap.copy_out(0, &mut bytes);
    let (blocks, _) = bytes.as_chunks::<4096>();
    (blocks.len(), blocks.iter().collect::<BTreeSet<_>>().len())
}

#[test]
fn writes_repeat_as_the_ratio_says_and_are_verified() {
    let reduction = Reduction::new(2.0, 4.0, 4096).expect("ratios");
    for on_disk in [false, true] {
        let (heap, unit) = if on_disk { disk() } else { memory() };
        let endpoint = Endpoint::parse("local:/unit").expect("endpoint");
        let config = iotax_node::LoadConfig { reduction, ..load(TaskConfig::Run(RUN), 2) };
        let node = LoadNode::local(config, &endpoint, &unit, &mut allocate).expect("config");
        let outcome = finish(node, on_disk.then(|| heap.clone())).expect("right data");
        let TaskOutcome::Run(measured) = outcome else { panic!("a run gave {outcome:?}") };
        assert!(measured.write.ios > 1000 && measured.verify.checked_blocks > 1000, "{measured:?}");
        assert_eq!(measured.verify.wrong_blocks, 0);
        // A quarter of 256 blocks are unique; the rest are some of 32 copies.
        let (all, distinct) = distinct(&heap);
        assert!((256 / 4 - 20 + 28..=256 / 4 + 20 + 32).contains(&distinct), "{distinct} of {all}");
    }
}

#[test]
fn every_written_block_is_read_back_after_the_run() {
    for on_disk in [false, true] {
        for workers in [1, 3] {
            let (heap, unit) = if on_disk { disk() } else { memory() };
            let pacing = Pacing::Open(Open { rate_iops: 4000.0, arrivals: Arrivals::Constant, backlog_max: 64 });
            let config = RunConfig { read_percent: 0.0, read_back: true, pacing, ..RUN };
            let measured = run(config, workers, &unit, on_disk.then(|| heap.clone())).expect("right data");
            let mut bytes = vec![0; SIZE];
            heap.copy_out(0, &mut bytes);
            let written = bytes.as_chunks::<4096>().0.iter().filter(|block| **block != [0; 4096]).count() as u64;
            assert!((20..250).contains(&written), "{written}");
            assert_eq!(measured.verify.read_back_blocks, 8 * written);
            assert_eq!(measured.verify.checked_blocks, 8 * written);
            assert_eq!((measured.read.ios, measured.verify.wrong_blocks), (0, 0), "not counted as load");
        }
    }
}

#[test]
fn write_that_is_lost_after_its_last_read_is_found() {
    let (heap, unit) = memory();
    let config = RunConfig { read_percent: 0.0, read_back: true, outstanding: 1, ..RUN };
    let mut node = node(TaskConfig::Run(config), 1, &unit);
    let mut lab = Lab::new(&mut node, None, &[]);
    let mut began = None;
    lab.run_until(LIMIT, |node, now| {
        node.begin(now);
        if now >= *began.get_or_insert(now) + RUN.warmup + RUN.runtime {
            heap.copy_in(SIZE - 4096, &[0; 4096]);
        }
        false
    });
    let failure = node.outcome().expect("finished").clone().expect_err("wrong data");
    assert_eq!(failure.kind, FailureKind::Verify);
    assert!(failure.message.contains("zeros: the write was lost"), "{failure}");
}

#[test]
fn what_nobody_can_check_is_not_read_back() {
    for config in [
        RunConfig { read_back: true, verify: false, ..RUN },
        RunConfig { read_back: true, random_percent: 0.0, shared: Some(Cursor::default()), ..RUN },
    ] {
        assert_eq!(config.check().expect_err("refused").place, "read_back");
    }
}

#[test]
fn lost_write_of_data_that_repeat_is_found() {
    let reduction = Reduction::new(1.0, 20.0, 4096).expect("a ratio");
    let (heap, unit) = memory();
    let endpoint = Endpoint::parse("local:/unit").expect("endpoint");
    let run = RunConfig { random_percent: 0.0, ..RUN };
    let config = iotax_node::LoadConfig { reduction, ..load(TaskConfig::Run(run), 1) };
    let mut node = LoadNode::local(config, &endpoint, &unit, &mut allocate).expect("config");
    let mut lab = Lab::new(&mut node, None, &[]);
    let mut at = None;
    lab.run_until(LIMIT, |node, now| {
        node.begin(now);
        // After half a pass over the volume, one copy replaces another.
        if now > *at.get_or_insert(now) + std::time::Duration::from_millis(10) {
            let mut other = vec![0; SIZE];
            heap.copy_out(4096, &mut other[..SIZE - 4096]);
            heap.copy_in(0, &other);
        }
        false
    });
    let failure = node.outcome().expect("finished").clone().expect_err("wrong data");
    assert_eq!(failure.kind, FailureKind::Verify);
    assert!(failure.message.contains("copy "), "{failure}");
}

#[test]
fn fill_repeats_and_compresses_and_is_ours() {
    let reduction = Reduction::new(2.0, 4.0, 8192).expect("ratios");
    let (heap, unit) = memory();
    let endpoint = Endpoint::parse("local:/unit").expect("endpoint");
    let config = iotax_node::LoadConfig { reduction, ..load(TaskConfig::Fill { destroy: false }, 1) };
    let node = LoadNode::local(config, &endpoint, &unit, &mut allocate).expect("config");
    finish(node, None).expect("filled");
    let (all, distinct) = distinct(&heap);
    assert!((256 / 4..256 / 4 + 64 + 30).contains(&distinct), "{distinct} of {all}");
    let checked = finish(self::node(TaskConfig::Check { look_bytes: None }, 1, &unit), None).expect("ours");
    assert_eq!(checked, TaskOutcome::Checked { content: Content::Pattern, scanned_bytes: SIZE as u64 });
}

/// A volume that records the offsets within a page to which its bytes were copied.
struct Watched {
    heap: Rc<Heap>,
    places: RefCell<BTreeSet<usize>>,
}

impl Region for Watched {
    fn len(&self) -> usize {
        self.heap.len()
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.places.borrow_mut().insert(into.as_ptr() as usize % 4096);
        self.heap.copy_out(offset, into);
    }

    fn copy_in(&self, offset: usize, from: &[u8]) {
        self.heap.copy_in(offset, from);
    }

    fn address(&self, offset: usize) -> Option<*const u8> {
        self.heap.address(offset)
    }
}

/// If the buffers are shifted by 16 bytes, as a large allocation is, and the volume's pages are aligned, reads took
/// four times as long.
#[test]
fn reads_of_memory_are_copied_to_the_same_place_in_a_page() {
    for outstanding in [1, 32] {
        let watched = Rc::new(Watched { heap: Heap::new(SIZE), places: RefCell::default() });
        let unit = LocalUnit::Memory(Rc::<Watched>::clone(&watched));
        run(RunConfig { outstanding, verify: false, ..RUN }, 1, &unit, None).expect("reads");
        assert_eq!(*watched.places.borrow(), BTreeSet::from([0]), "{outstanding} outstanding");
    }
}

#[test]
fn run_on_a_disk_reads_what_it_wrote() {
    let (heap, unit) = disk();
    let measured = run(RUN, 2, &unit, Some(heap)).expect("right data");
    assert!(measured.read.ios > 1000 && measured.verify.checked_blocks > 0, "{measured:?}");
    assert_eq!((measured.read.errors, measured.verify.wrong_blocks), (0, 0));
}

#[test]
fn every_io_of_a_closed_loop_is_counted_once() {
    let (_, unit) = memory();
    let measured = run(RunConfig { read_percent: 75.0, ..RUN }, 1, &unit, None).expect("right data");
    let ios = measured.read.ios + measured.write.ios;
    let in_series: u64 =
        measured.series.iter().filter(|sample| sample.in_window).map(|sample| sample.reads + sample.writes).sum();
    assert_eq!(ios, in_series);
    assert_eq!(measured.read.bytes, measured.read.ios * 4096);
    assert_eq!(measured.read.latency.count(), measured.read.ios);
    // Little's law: outstanding = rate × latency.
    let latency_sum = measured.read.latency_sum_ns + measured.write.latency_sum_ns;
    assert!(latency_sum.abs_diff(8 * 20_000_000) < 8 * 200_000, "{latency_sum}");
}

#[test]
fn corrupted_byte_is_found_and_named() {
    let (heap, unit) = memory();
    let pool = Pool::default();
    let mut bytes = vec![0; SIZE];
    pool.fill(&mut bytes, 0, pattern::Stamp { run: 1, writer: 0, sequence: 0 });
    bytes[777_777] ^= 0x40;
    iotax_proto::Region::copy_in(&*heap, 0, &bytes);
    let failure = run(RunConfig { read_percent: 100.0, ..RUN }, 1, &unit, None).expect_err("wrong data");
    assert_eq!(failure.kind, FailureKind::Verify);
    assert!(failure.message.contains(&format!("byte {}", 777_777 / 512 * 512)), "{failure}");
}

#[test]
fn fill_then_check_finds_the_pattern() {
    for (heap, unit, on_disk) in [(memory().0, None, false), (disk().0, Some(disk().1), true)] {
        let unit = unit.unwrap_or_else(|| LocalUnit::Memory(heap.clone()));
        let attached = on_disk.then(|| heap.clone());
        let check =
            || finish(node(TaskConfig::Check { look_bytes: None }, 1, &unit), attached.clone()).expect("checked");
        let expect = |content| TaskOutcome::Checked { content, scanned_bytes: SIZE as u64 };
        assert_eq!(check(), expect(Content::Zeros));
        let filled = finish(node(TaskConfig::Fill { destroy: false }, 1, &unit), attached.clone()).expect("filled");
        assert_eq!(filled, TaskOutcome::Filled { bytes: SIZE as u64 });
        assert_eq!(check(), expect(Content::Pattern));
    }
}

#[test]
fn fill_refuses_foreign_data_and_writes_nothing_unless_told_to_destroy() {
    let (heap, unit) = memory();
    iotax_proto::Region::copy_in(&*heap, 0x438, b"\x53\xef");
    let before = heap.bytes().clone();
    let failure = finish(node(TaskConfig::Fill { destroy: false }, 1, &unit), None).expect_err("refused");
    assert_eq!(failure.kind, FailureKind::ForeignData);
    assert!(failure.message.contains("ext2/3/4 file system"), "{failure}");
    assert_eq!(*heap.bytes(), before);
    let filled = finish(node(TaskConfig::Fill { destroy: true }, 1, &unit), None).expect("filled");
    assert_eq!(filled, TaskOutcome::Filled { bytes: SIZE as u64 });
}

#[test]
fn working_set_larger_than_the_unit_is_too_small() {
    let (_, unit) = memory();
    let endpoint = Endpoint::parse("local:/unit").expect("endpoint");
    let config =
        iotax_node::LoadConfig { working_set_bytes: Some(2 << 20), ..load(TaskConfig::Check { look_bytes: None }, 1) };
    let node = LoadNode::local(config, &endpoint, &unit, &mut allocate).expect("config");
    assert_eq!(finish(node, None).expect_err("too small").kind, FailureKind::TooSmall);
}

#[test]
fn same_seed_gives_the_same_run() {
    let measure = |seed| {
        let (_, unit) = memory();
        run(RunConfig { seed, ..RUN }, 2, &unit, None).expect("right data")
    };
    assert_eq!(measure(3), measure(3));
    assert_ne!(measure(3), measure(4));
}
