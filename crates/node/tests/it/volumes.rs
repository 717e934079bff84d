//! Operations on volumes: memory, disk and null return the same results.

use std::{cell::RefCell, rc::Rc};

use crate::support::{Heap, perform};
use iotax_node::{
    ConnId, DiskId,
    volume::{Buffers, Disks, Media, Operations, VolumeSpec, Volumes, unit_of},
};
use iotax_proto::{Ending, Endings, Instant, Payload, Region as _, Started, UnitError, UnitOp};

const SIZE: u64 = 64 << 10;
const NOW: Instant = Instant(5);

/// One connection on one volume, and the disk below it.
struct Bench {
    operations: Operations,
    disks: Rc<RefCell<Disks>>,
    disk: Rc<Heap>,
}

impl Bench {
    fn new(media: Media, tune: impl Fn(&mut VolumeSpec)) -> Self {
        let mut spec = VolumeSpec::new("v", SIZE, media);
        tune(&mut spec);
        let disk = Heap::new(SIZE as usize);
        let region: Rc<dyn iotax_proto::Region> = disk.clone();
        let volumes = Volumes::new(&[spec], &mut |_| Rc::clone(&region), None);
        let disks = Rc::new(RefCell::new(Disks::new(Buffers::new(Box::new(|len| Some(Heap::new(len)))))));
        let operations = Operations::new(ConnId(3), Rc::new(volumes), Rc::clone(&disks));
        Self { operations, disks, disk }
    }

    fn all() -> [Self; 3] {
        [Self::new(Media::Memory, |_| {}), Self::on_disk(512), Self::on_disk(4096)]
    }

    fn on_disk(block_size: u32) -> Self {
        Self::new(Media::Disk { disk: DiskId(0), block_size }, |_| {})
    }

    /// Runs an operation to its end; its data arrive in pieces, the last one first.
    fn run(&mut self, op: UnitOp, data: &[u8]) -> Result<Vec<u8>, UnitError> {
        let mut started = self.operations.start(NOW, 0, unit_of(0, false), op);
        if matches!(started, Started::NeedData) {
            for at in (0..data.len()).step_by(100).rev() {
                self.operations.place(0, at as u32, &data[at..data.len().min(at + 100)]);
            }
            started = self.operations.finish(NOW, 0);
        }
        let result = match started {
            Started::Done(result) => result,
            Started::NeedData => panic!("data are there"),
            Started::Queued => self.work().expect("an end"),
        };
        result.map(|payload| payload.map_or(Vec::new(), |payload: Payload| payload.to_vec()))
    }

    /// Executes disk operations and turns of long work until an operation ends.
    fn work(&mut self) -> Option<Result<Option<Payload>, UnitError>> {
        loop {
            let turn = self.disks.borrow_mut().next_turn();
            if let Some((_, id)) = turn {
                if let Some(done) = self.operations.take_turn(NOW, id) {
                    return Some(done);
                }
                continue;
            }
            let request = self.disks.borrow_mut().poll()?;
            let result = perform(&self.disk, &request.op);
            let waiting = self.disks.borrow_mut().done(request.token);
            if let Some((conn, id)) = waiting {
                assert_eq!(conn, ConnId(3));
                if let Some(done) = self.operations.disk_done(NOW, id, result) {
                    return Some(done);
                }
            }
        }
    }

    fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        self.run(UnitOp::Read { offset, len, durable: false }, &[]).expect("read")
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let op = UnitOp::Write { offset, len: data.len() as u32, durable: true };
        self.run(op, data).expect("written");
    }
}

#[test]
fn reads_give_what_was_written_at_any_alignment() {
    for mut bench in Bench::all() {
        let data: Vec<u8> = (0..=250).cycle().take(9000).collect();
        for (offset, len) in [(0, 4096), (512, 512), (8192, 8192), (777, 1), (1000, 5000), (60_000, 5_536)] {
            bench.write(offset, &data[..len]);
            assert_eq!(bench.read(offset, len as u32), &data[..len], "{offset}+{len}");
        }
        assert_eq!(
            bench.read(776, 3),
            [data[776 - 512], data[0], data[778 - 512]],
            "what surrounds a write is left alone"
        );
    }
}

#[test]
fn compare_says_where_data_first_differ() {
    for mut bench in Bench::all() {
        bench.write(4096, &[7; 1024]);
        let compare = UnitOp::Compare { offset: 4096, len: 1024, durable: false };
        assert_eq!(bench.run(compare.clone(), &[7; 1024]), Ok(vec![]));
        let mut data = [7; 1024];
        data[900] = 1;
        data[333] = 1;
        assert_eq!(bench.run(compare, &data), Err(UnitError::Miscompare(333)));
    }
}

#[test]
fn compare_and_write_writes_only_what_compares() {
    for mut bench in Bench::all() {
        let op = UnitOp::CompareAndWrite { offset: 8192, len: 512, durable: false };
        let both = |first: u8, second: u8| [[first; 512], [second; 512]].concat();
        assert_eq!(bench.run(op.clone(), &both(0, 9)), Ok(vec![]));
        assert_eq!(bench.run(op.clone(), &both(0, 5)), Err(UnitError::Miscompare(0)));
        assert_eq!(bench.read(8192, 512), [9; 512]);
        assert_eq!(bench.run(op, &both(9, 1)), Ok(vec![]), "the volume is free again after a miscompare");
    }
}

#[test]
fn or_write_sets_bits_and_clears_none() {
    for mut bench in Bench::all() {
        bench.write(8192, &[0xa0; 8192]);
        let op = UnitOp::OrWrite { offset: 8192, len: 8192, durable: true };
        assert_eq!(bench.run(op.clone(), &[0x05; 8192]), Ok(vec![]));
        assert_eq!(bench.run(op, &[0x20; 8192]), Ok(vec![]), "the volume is free again");
        assert_eq!(bench.read(8192, 8192), [0xa5; 8192]);
    }
}

#[test]
fn write_same_zeroes_and_unmap_change_their_range_alone() {
    for mut bench in Bench::all() {
        bench.write(0, &[1; 16384]);
        let same = UnitOp::WriteSame { offset: 4096, len: 4096, pattern_len: 512, durable: false };
        assert_eq!(bench.run(same, &[2; 512]), Ok(vec![]));
        let zeroes = UnitOp::WriteZeroes { offset: 8192, len: 512, durable: false };
        assert_eq!(bench.run(zeroes, &[]), Ok(vec![]));
        let unmap = UnitOp::Unmap { ranges: vec![(12288, 512), (0, 512), (512, 0)], durable: false };
        assert_eq!(bench.run(unmap, &[]), Ok(vec![]));
        assert_eq!(bench.run(UnitOp::Flush, &[]), Ok(vec![]));
        let expected: Vec<u8> = (0..16384)
            .map(|at| match at {
                4096..8192 => 2,
                8192..8704 | 12288..12800 | 0..512 => 0,
                _ => 1,
            })
            .collect();
        assert_eq!(bench.read(0, 16384), expected);
    }
}

#[test]
fn ranges_units_and_rights_are_checked_before_data() {
    let mut bench = Bench::new(Media::Memory, |_| {});
    let write = UnitOp::Write { offset: SIZE - 512, len: 1024, durable: false };
    let error = |started| match started {
        Started::Done(Err(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(error(bench.operations.start(NOW, 0, unit_of(0, false), write)), UnitError::OutOfRange);
    let far = UnitOp::Read { offset: u64::MAX, len: 512, durable: false };
    assert_eq!(error(bench.operations.start(NOW, 0, unit_of(0, false), far.clone())), UnitError::OutOfRange);
    assert_eq!(error(bench.operations.start(NOW, 0, unit_of(1, false), far)), UnitError::NoUnit);
    let zero = UnitOp::WriteZeroes { offset: 0, len: 512, durable: false };
    assert_eq!(error(bench.operations.start(NOW, 0, unit_of(0, true), zero)), UnitError::ReadOnly);
    assert!(bench.operations.geometry(unit_of(0, true)).expect("there").read_only);
    let endless = UnitOp::WriteSame { offset: 0, len: 512, pattern_len: 0, durable: false };
    assert_eq!(error(bench.operations.start(NOW, 0, unit_of(0, false), endless)), UnitError::OutOfRange);
}

#[test]
fn delay_is_waited_and_an_aborted_operation_is_never_told() {
    let mut bench = Bench::new(Media::Memory, |spec| spec.delay_ns = 1000);
    for id in 0..3 {
        let started = bench.operations.start(Instant(id * 10), id as u32, unit_of(0, false), UnitOp::Flush);
        assert!(matches!(started, Started::Queued));
    }
    assert_eq!(bench.operations.next_due(), Some(Instant(1000)));
    assert!(bench.operations.take_due(Instant(999)).is_none());
    bench.operations.abort(1, None);
    let told: Vec<_> = std::iter::from_fn(|| bench.operations.take_due(Instant(1020))).map(|(id, _)| id).collect();
    assert_eq!(told, [0, 2]);
}

#[test]
fn operation_aborted_on_the_disk_is_forgotten_and_its_id_used_again() {
    let mut bench = Bench::on_disk(512);
    bench.write(512, &[4; 512]);
    let read = |offset| UnitOp::Read { offset, len: 512, durable: false };
    assert!(matches!(bench.operations.start(NOW, 0, unit_of(0, false), read(0)), Started::Queued));
    let (ending, mut endings) = (Ending::default(), Endings::default());
    endings.add(&ending);
    bench.operations.abort(0, Some(ending));
    assert!(matches!(bench.operations.start(NOW, 0, unit_of(0, false), read(512)), Started::Queued));
    assert!(!endings.are_over(), "the disk still works on it");
    let result = bench.work().expect("an end").expect("read").expect("data");
    assert_eq!(result.to_vec(), [4; 512]);
    assert!(endings.are_over());
}

#[test]
fn long_work_on_memory_lets_others_have_their_turn_in_between() {
    const LARGE: u64 = 8 << 20;
    let whole = vec![(0, LARGE); 256];
    for (op, data, end) in [
        (UnitOp::Unmap { ranges: whole, durable: false }, vec![], 0),
        (UnitOp::WriteZeroes { offset: 0, len: LARGE, durable: true }, vec![], 0),
        (UnitOp::WriteSame { offset: 0, len: LARGE, pattern_len: 512, durable: false }, vec![3; 512], 3),
    ] {
        let memory = Heap::new(LARGE as usize);
        memory.copy_in(0, &vec![9; LARGE as usize]);
        let region: Rc<dyn iotax_proto::Region> = memory.clone();
        let volumes = Volumes::new(&[VolumeSpec::new("v", LARGE, Media::Memory)], &mut |_| Rc::clone(&region), None);
        let disks = Rc::new(RefCell::new(Disks::new(Buffers::new(Box::new(|len| Some(Heap::new(len)))))));
        let mut operations = Operations::new(ConnId(3), Rc::new(volumes), Rc::clone(&disks));
        let mut started = operations.start(NOW, 0, unit_of(0, false), op);
        if matches!(started, Started::NeedData) {
            operations.place(0, 0, &data);
            started = operations.finish(NOW, 0);
        }
        assert!(matches!(started, Started::Queued));
        let (mut turns, mut changed) = (0, 0);
        loop {
            let (_, id) = disks.borrow_mut().next_turn().expect("a turn");
            let done = operations.take_turn(NOW, id);
            let before =
                std::mem::replace(&mut changed, memory.bytes().iter().map(|byte| usize::from(*byte == end)).sum());
            assert!(changed - before <= 1 << 20, "{} bytes in one turn", changed - before);
            turns += 1;
            if let Some(done) = done {
                assert!(done.is_ok());
                break;
            }
            let read =
                operations.start(NOW, 1, unit_of(0, false), UnitOp::Read { offset: 0, len: 512, durable: false });
            assert!(matches!(read, Started::Done(Ok(Some(_)))), "others are served meanwhile");
        }
        assert_eq!((changed as u64, turns), (LARGE, 8));
        assert!(!disks.borrow().has_turn());
    }
}

#[test]
fn long_work_that_was_aborted_goes_no_further() {
    for mut bench in Bench::all() {
        bench.write(0, &[1; 1024]);
        let zeroes = UnitOp::WriteZeroes { offset: 0, len: SIZE, durable: false };
        let started = bench.operations.start(NOW, 0, unit_of(0, false), zeroes);
        assert!(matches!(started, Started::Queued));
        bench.operations.abort(0, None);
        assert!(bench.work().is_none());
        assert_eq!(bench.read(0, 1024), [1; 1024]);
    }
}

#[test]
fn an_erased_volume_is_told_at_once_and_many_who_ask_at_once_share_the_search() {
    const LARGE: u64 = 16 << 20;
    let spec = VolumeSpec::new("v", LARGE, Media::Memory);
    let memory = Heap::new(LARGE as usize);
    let volumes = Volumes::new(&[spec], &mut |_| memory.clone(), None);
    let disks = Rc::new(RefCell::new(Disks::new(Buffers::new(Box::new(|len| Some(Heap::new(len)))))));
    let operations = Operations::new(ConnId(3), Rc::new(volumes), disks);
    let run_at = |now: u64| {
        let run = operations.allocation(Instant(now), unit_of(0, false), 0).expect("memory can tell");
        assert!(!run.is_mapped);
        run.len
    };
    assert_eq!(run_at(5), LARGE, "all of it");
    for now in 5..1005 {
        assert_eq!(run_at(now), 16 << 10, "the thread has others to serve");
    }
    let second = 1_000_000_000;
    let half = run_at(5 + second / 2);
    assert!((LARGE / 3..=LARGE / 2).contains(&half), "{half}: a part of it, as time goes by");
    assert_eq!(run_at(5 + 3 * second), LARGE);
}

#[test]
fn null_volume_reads_zeros_and_forgets() {
    let mut bench = Bench::new(Media::Null, |_| {});
    bench.write(0, &[9; 512]);
    assert_eq!(bench.read(0, 512), [0; 512]);
}
