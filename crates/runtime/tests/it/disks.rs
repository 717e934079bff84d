//! Guarantees of both drivers for disks: bytes are written to their offsets from memory of any alignment, and every end
//! is reported once.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::{collections::VecDeque, path::PathBuf, sync::Arc};

use crate::support::{config, run, stream_bytes};
use iotax_node::{ConnId, DiskId, DiskOp, DiskToken, Input, Node, Output};
use iotax_proto::{Instant, Payload, Transmit};
use iotax_runtime::{
    DriverChoice,
    disk::{Candidate, Disk, DiskOptions},
    memory::SharedRegion,
};

for_both_drivers!(
    bytes_written_are_read_back,
    a_file_in_memory_answers_alike,
    timers_pass_while_a_file_in_memory_is_read_without_end,
    memory_that_is_not_aligned_will_do,
    zeroed_and_unmapped_ranges_read_as_zeros,
    allocated_ranges_take_room_and_keep_their_bytes,
    many_operations_are_under_way_at_once,
    a_read_past_the_end_is_short,
    errors_come_back_as_the_systems_numbers,
);

const SIZE: u64 = 4 << 20;

/// A file that is deleted with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, choice: DriverChoice) -> Self {
        // Beside the program, because the directory for temporary files is often in memory, which does not support
        // direct I/O.
        let mut path = std::env::current_exe().unwrap();
        path.set_file_name(format!("disk-{name}-{choice:?}-{}", std::process::id()));
        Self(path)
    }

    /// A file on a file system in memory.
    fn in_memory(name: &str, choice: DriverChoice) -> Self {
        Self(format!("/dev/shm/iotax-disk-{name}-{choice:?}-{}", std::process::id()).into())
    }

    fn open(&self, direct: bool) -> Arc<Disk> {
        let options = DiskOptions { direct, ..DiskOptions::default() };
        let made = Disk::make(&self.0, options);
        let mut disk = made.or_else(|_| Disk::of(Candidate::open(&self.0)?, options)).unwrap();
        disk.grow(SIZE).unwrap();
        disk.take_growth().unwrap().keep();
        Arc::new(disk)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Executes operations all at once, and records their results.
struct Operations {
    outputs: VecDeque<Output>,
    results: Vec<Option<Result<u32, i32>>>,
}

impl Operations {
    fn run(choice: DriverChoice, disk: &Arc<Disk>, ops: Vec<DiskOp>) -> Vec<Result<u32, i32>> {
        let results = vec![None; ops.len()];
        let outputs =
            ops.into_iter().zip(0..).map(|(op, token)| Output::Disk { token: DiskToken(token), disk: DiskId(0), op });
        let mut node = Self { outputs: outputs.collect(), results };
        let mut config = config(choice);
        config.disks.push(Arc::clone(disk));
        run(config, &mut node);
        node.results.into_iter().map(Option::unwrap).collect()
    }
}

impl Node for Operations {
    fn handle(&mut self, _now: Instant, input: Input<'_>) {
        if matches!(input, Input::Woken) {
            return;
        }
        let Input::DiskDone { token, result } = input else { panic!("unexpected {input:?}") };
        let before = self.results[usize::try_from(token.0).unwrap()].replace(result);
        assert_eq!(before, None, "an end is told once");
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        None
    }

    fn transmit(&mut self, _conn: ConnId) -> Option<&mut Transmit> {
        None
    }

    fn wants_receive(&self, _conn: ConnId) -> bool {
        false
    }

    fn is_finished(&self) -> bool {
        self.results.iter().all(Option::is_some)
    }
}

/// A payload in page-aligned memory, filled with a stream.
fn aligned(stream: u32, len: usize) -> Payload {
    let region = SharedRegion::anonymous(len, false).unwrap().region();
    region.copy_in(0, &stream_bytes(stream, 0, len));
    Payload::new(region, 0, len)
}

fn read(choice: DriverChoice, disk: &Arc<Disk>, offset: u64, len: usize) -> Vec<u8> {
    let into = aligned(99, len);
    assert_eq!(Operations::run(choice, disk, vec![DiskOp::Read { offset, into: into.clone() }]), [Ok(len as u32)]);
    into.to_vec()
}

fn bytes_written_are_read_back(choice: DriverChoice) {
    expect_back(choice, &Scratch::new("back", choice));
}

/// Its operations are executed when requested; their results are the same.
fn a_file_in_memory_answers_alike(choice: DriverChoice) {
    let scratch = Scratch::in_memory("back", choice);
    expect_back(choice, &scratch);
    let disk = scratch.open(false);
    let (into, beyond) = (aligned(1, 8192), u64::MAX);
    let ops = vec![
        DiskOp::Read { offset: SIZE - 4096, into: into.clone() },
        DiskOp::Read { offset: beyond, into },
        DiskOp::WriteZeroes { offset: 8192, len: 4096 },
    ];
    assert_eq!(Operations::run(choice, &disk, ops), [Ok(4096), Err(libc::EINVAL), Ok(4096)]);
    assert!(read(choice, &disk, 8192, 4096) == [0; 4096]);
}

fn expect_back(choice: DriverChoice, scratch: &Scratch) {
    for direct in [true, false] {
        let disk = scratch.open(direct);
        for durable in [false, true] {
            let stream = u32::from(direct) * 2 + u32::from(durable);
            let from = aligned(stream, 65536);
            let done = Operations::run(choice, &disk, vec![DiskOp::Write { offset: 8192, from, durable }]);
            assert_eq!(done, [Ok(65536)]);
            assert_eq!(Operations::run(choice, &disk, vec![DiskOp::Sync]), [Ok(0)]);
            assert!(read(choice, &disk, 8192, 65536) == stream_bytes(stream, 0, 65536));
        }
    }
}

/// Reads one block after another until its time is over.
struct Load {
    next: Option<Output>,
    until: Option<Instant>,
    finished: bool,
}

impl Load {
    fn read() -> Output {
        let op = DiskOp::Read { offset: 0, into: aligned(1, 4096) };
        Output::Disk { token: DiskToken(0), disk: DiskId(0), op }
    }
}

impl Node for Load {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        let until = *self.until.get_or_insert(now + std::time::Duration::from_millis(5));
        match input {
            Input::DiskDone { .. } if !self.finished => self.next = Some(Self::read()),
            Input::Timer => self.finished = now >= until,
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.next.take()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        None
    }

    fn transmit(&mut self, _conn: ConnId) -> Option<&mut Transmit> {
        None
    }

    fn wants_receive(&self, _conn: ConnId) -> bool {
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.until.filter(|_| !self.finished)
    }

    fn is_finished(&self) -> bool {
        self.finished
    }
}

fn timers_pass_while_a_file_in_memory_is_read_without_end(choice: DriverChoice) {
    let mut config = config(choice);
    config.disks.push(Scratch::in_memory("load", choice).open(false));
    run(config, &mut Load { next: Some(Load::read()), until: None, finished: false });
}

fn memory_that_is_not_aligned_will_do(choice: DriverChoice) {
    let scratch = Scratch::new("unaligned", choice);
    let disk = scratch.open(true);
    let bytes = stream_bytes(5, 0, 4096 + 3);
    let from = Payload::from_vec(bytes.clone()).slice(3, 4096);
    assert_eq!(Operations::run(choice, &disk, vec![DiskOp::Write { offset: 4096, from, durable: false }]), [Ok(4096)]);
    let into = Payload::from_vec(vec![0; 4096 + 1]).slice(1, 4096);
    assert_eq!(Operations::run(choice, &disk, vec![DiskOp::Read { offset: 4096, into: into.clone() }]), [Ok(4096)]);
    assert!(into.to_vec() == bytes[3..]);
}

fn zeroed_and_unmapped_ranges_read_as_zeros(choice: DriverChoice) {
    let scratch = Scratch::new("zeros", choice);
    let disk = scratch.open(true);
    let write = DiskOp::Write { offset: 0, from: aligned(6, 65536), durable: false };
    assert_eq!(Operations::run(choice, &disk, vec![write]), [Ok(65536)]);
    let ops = vec![DiskOp::WriteZeroes { offset: 4096, len: 8192 }, DiskOp::Unmap { offset: 32768, len: 16384 }];
    assert_eq!(Operations::run(choice, &disk, ops), [Ok(8192), Ok(16384)]);
    let mut expected = stream_bytes(6, 0, 65536);
    expected[4096..12288].fill(0);
    expected[32768..49152].fill(0);
    assert!(read(choice, &disk, 0, 65536) == expected);
    assert_eq!(scratch.0.metadata().unwrap().len(), SIZE, "the size stays");
}

fn allocated_ranges_take_room_and_keep_their_bytes(choice: DriverChoice) {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new("room", choice);
    let disk = scratch.open(true);
    let write = DiskOp::Write { offset: 4096, from: aligned(7, 4096), durable: false };
    let allocate = DiskOp::Allocate { offset: 0, len: 65536 };
    assert_eq!(Operations::run(choice, &disk, vec![write, DiskOp::Sync]), [Ok(4096), Ok(0)]);
    assert_eq!(Operations::run(choice, &disk, vec![allocate]), [Ok(65536)]);
    assert!(scratch.0.metadata().unwrap().blocks() * 512 >= 65536);
    assert!(read(choice, &disk, 4096, 4096) == stream_bytes(7, 0, 4096));
    assert_eq!(scratch.0.metadata().unwrap().len(), SIZE, "the size stays");
}

fn many_operations_are_under_way_at_once(choice: DriverChoice) {
    let scratch = Scratch::new("many", choice);
    let disk = scratch.open(true);
    let writes = (0..500_u32).map(|block| DiskOp::Write {
        offset: u64::from(block) * 4096,
        from: aligned(block, 4096),
        durable: false,
    });
    assert_eq!(Operations::run(choice, &disk, writes.collect()), vec![Ok(4096); 500]);
    let places: Vec<_> = (0..500).map(|_| aligned(1000, 4096)).collect();
    let reads = places.iter().zip(0..).map(|(into, block)| DiskOp::Read { offset: block * 4096, into: into.clone() });
    assert_eq!(Operations::run(choice, &disk, reads.collect()), vec![Ok(4096); 500]);
    for (block, place) in (0..).zip(&places) {
        assert!(place.to_vec() == stream_bytes(block, 0, 4096), "block {block}");
    }
}

fn a_read_past_the_end_is_short(choice: DriverChoice) {
    let scratch = Scratch::new("end", choice);
    let disk = scratch.open(false);
    let read = |offset| DiskOp::Read { offset, into: aligned(1, 8192) };
    assert_eq!(Operations::run(choice, &disk, vec![read(SIZE - 4096), read(SIZE)]), [Ok(4096), Ok(0)]);
}

fn errors_come_back_as_the_systems_numbers(choice: DriverChoice) {
    let scratch = Scratch::new("errors", choice);
    drop(scratch.open(false));
    let options = DiskOptions { read_only: true, direct: false, claim: false };
    let disk = Arc::new(Disk::of(Candidate::open(&scratch.0).unwrap(), options).unwrap());
    let ops = vec![
        DiskOp::Write { offset: 0, from: aligned(1, 4096), durable: false },
        DiskOp::Read { offset: u64::MAX, into: aligned(1, 4096) },
        DiskOp::WriteZeroes { offset: 0, len: 4096 },
    ];
    assert_eq!(Operations::run(choice, &disk, ops), [Err(libc::EBADF), Err(libc::EINVAL), Err(libc::EBADF)]);
}
