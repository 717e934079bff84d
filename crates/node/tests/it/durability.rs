//! Data on stable storage when a durable operation completes, judged by the requested disk operations: every operation
//! that changes a volume, on every medium.

use std::{cell::RefCell, rc::Rc};

use crate::support::{Heap, perform};
use iotax_node::{
    ConnId, DiskId, DiskOp,
    volume::{Buffers, Disks, Media, Operations, VolumeSpec, Volumes, unit_of},
};
use iotax_proto::{Instant, Payload, Started, UnitError, UnitOp};

const NOW: Instant = Instant(5);
const SIZE: u64 = 64 << 20;

fn disk(block_size: u32) -> Media {
    Media::Disk { disk: DiskId(0), block_size }
}

/// Every operation that changes a volume, and the data that it takes.
fn operations(durable: bool) -> Vec<(UnitOp, Vec<u8>)> {
    let write = |offset, len: u32| (UnitOp::Write { offset, len, durable }, vec![1; len as usize]);
    let same =
        |pattern: u8, len| (UnitOp::WriteSame { offset: 4096, len, pattern_len: 4096, durable }, vec![pattern; 4096]);
    vec![
        write(0, 4096),
        write(8192, 1 << 20),
        write(777, 1000),
        (UnitOp::OrWrite { offset: 4096, len: 8192, durable }, vec![2; 8192]),
        (UnitOp::CompareAndWrite { offset: 1 << 20, len: 4096, durable }, [[0; 4096], [7; 4096]].concat()),
        same(5, 3 << 20),
        same(0, 3 << 20),
        (UnitOp::WriteZeroes { offset: 0, len: 40 << 20, durable }, Vec::new()),
        (UnitOp::Unmap { ranges: vec![(4096, 4096), (20 << 20, 40 << 20)], durable }, Vec::new()),
    ]
}

/// The disk operations requested for an operation until it completed.
#[derive(Debug, Default)]
struct Seen {
    /// Changed bytes that a crash could undo.
    volatile: u64,
    flushes: usize,
    pieces: Vec<u64>,
    changed: u64,
    reads: usize,
    reads_before_flush: usize,
}

fn carry_out(media: Media, op: UnitOp, data: &[u8]) -> Seen {
    let name = format!("{op:?} on {media:?}");
    let (seen, result) = carry_out_with(media, op, data, None);
    result.expect(&name);
    seen
}

/// Executes an operation on a disk whose flushes fail with an error number, or not.
fn carry_out_with(
    media: Media,
    op: UnitOp,
    data: &[u8],
    flushes_fail: Option<i32>,
) -> (Seen, Result<Option<Payload>, UnitError>) {
    let disk = Heap::new(SIZE as usize);
    let region: Rc<dyn iotax_proto::Region> = disk.clone();
    let spec = VolumeSpec::new("v", SIZE, media);
    let volumes = Volumes::new(&[spec], &mut |_| Rc::clone(&region), None);
    let disks = Rc::new(RefCell::new(Disks::new(Buffers::new(Box::new(|len| Some(Heap::new(len)))))));
    let mut operations = Operations::new(ConnId(0), Rc::new(volumes), Rc::clone(&disks));
    let (name, mut seen) = (format!("{op:?} on {media:?}"), Seen::default());
    let mut started = operations.start(NOW, 0, unit_of(0, false), op);
    if matches!(started, Started::NeedData) {
        operations.place(0, 0, data);
        started = operations.finish(NOW, 0);
    }
    if let Started::Done(result) = started {
        return (seen, result);
    }
    loop {
        let turn = disks.borrow_mut().next_turn();
        let request = disks.borrow_mut().poll();
        let done = match (turn, request) {
            (Some((_, id)), _) => operations.take_turn(NOW, id),
            (None, Some(request)) => {
                let result = match (&request.op, flushes_fail) {
                    (DiskOp::Sync, Some(errno)) => Err(errno),
                    (op, _) => perform(&disk, op),
                };
                match &request.op {
                    DiskOp::Write { from, durable, .. } => {
                        seen.changed += from.len() as u64;
                        seen.volatile += if *durable { 0 } else { from.len() as u64 };
                    }
                    DiskOp::WriteZeroes { len, .. } | DiskOp::Unmap { len, .. } => {
                        seen.pieces.push(*len);
                        seen.changed += *len;
                        seen.volatile += *len;
                    }
                    DiskOp::Sync => {
                        seen.volatile = 0;
                        seen.flushes += 1;
                    }
                    DiskOp::Allocate { len, .. } => seen.pieces.push(*len),
                    DiskOp::Read { .. } => {
                        seen.reads += 1;
                        seen.reads_before_flush += usize::from(seen.flushes == 0);
                    }
                }
                let (_, id) = disks.borrow_mut().done(request.token).expect("somebody waits");
                operations.disk_done(NOW, id, result)
            }
            (None, None) => panic!("{name} is never answered"),
        };
        if let Some(result) = done {
            return (seen, result);
        }
    }
}

#[test]
fn durable_operation_leaves_nothing_volatile_on_any_disk() {
    for media in [disk(1), disk(512), disk(4096)] {
        for (op, data) in operations(true) {
            let seen = carry_out(media, op.clone(), &data);
            assert!(seen.changed > 0, "{op:?} on {media:?}");
            assert_eq!(seen.volatile, 0, "{op:?} on {media:?}: {seen:?}");
        }
    }
}

#[test]
fn operation_that_need_not_be_durable_costs_no_flush() {
    for media in [disk(1), disk(512), disk(4096)] {
        for (op, data) in operations(false) {
            let seen = carry_out(media, op.clone(), &data);
            assert_eq!((seen.volatile, seen.flushes), (seen.changed, 0), "{op:?} on {media:?}");
        }
    }
}

/// Every operation that reads a volume, and the data that it takes.
fn reads(durable: bool) -> Vec<(UnitOp, Vec<u8>)> {
    vec![
        (UnitOp::Read { offset: 0, len: 4096, durable }, Vec::new()),
        (UnitOp::Read { offset: 777, len: 1000, durable }, Vec::new()),
        (UnitOp::Compare { offset: 4096, len: 4096, durable }, vec![0; 4096]),
    ]
}

#[test]
fn durable_read_flushes_before_it_reads() {
    for media in [disk(1), disk(512), disk(4096)] {
        for durable in [false, true] {
            for (op, data) in reads(durable) {
                let seen = carry_out(media, op.clone(), &data);
                assert_eq!(seen.flushes, usize::from(durable), "{op:?} on {media:?}");
                assert_eq!((seen.reads, seen.reads_before_flush), (1, usize::from(!durable)), "{op:?} on {media:?}");
            }
        }
    }
}

#[test]
fn durable_read_fails_with_its_flush() {
    for (op, data) in reads(true) {
        let failed = carry_out_with(disk(512), op.clone(), &data, Some(5)).1;
        assert_eq!(failed.err(), Some(UnitError::Medium), "{op:?}");
    }
}

#[test]
fn memory_and_null_have_nothing_to_flush() {
    for media in [Media::Memory, Media::Null] {
        for (op, data) in operations(true).into_iter().chain(reads(true)) {
            let seen = carry_out(media, op, &data);
            assert_eq!((seen.changed, seen.flushes), (0, 0));
        }
    }
}

#[test]
fn flush_is_a_flush_of_the_disk() {
    for media in [disk(1), disk(512), disk(4096)] {
        assert_eq!(carry_out(media, UnitOp::Flush, &[]).flushes, 1);
    }
}

#[test]
fn disk_is_never_kept_busy_with_much_at_a_time() {
    let whole = vec![(0, SIZE); 256];
    for op in
        [UnitOp::Unmap { ranges: whole, durable: false }, UnitOp::WriteZeroes { offset: 0, len: SIZE, durable: false }]
    {
        let seen = carry_out(disk(512), op, &[]);
        assert!(seen.pieces.iter().all(|len| *len <= 16 << 20), "{:?}", seen.pieces);
        assert_eq!(seen.changed, SIZE, "each block once, however often it is named");
    }
    let seen = carry_out(disk(512), UnitOp::Allocate { offset: 0, len: SIZE }, &[]);
    assert!(seen.pieces.iter().all(|len| *len <= 16 << 20), "{:?}", seen.pieces);
    assert_eq!((seen.pieces.iter().sum::<u64>(), seen.changed, seen.flushes), (SIZE, 0, 1));
}
