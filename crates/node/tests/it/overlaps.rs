//! Overlapping writes, on a disk that accepts only whole blocks, and in memory: no acknowledged write is lost when
//! others read, change and write back the blocks around it, and no block is torn.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::support::{Heap, perform};
use iotax_node::{
    ConnId, DiskId, DiskOp, DiskToken,
    volume::{Buffers, Disks, Media, Operations, VolumeSpec, Volumes, unit_of},
};
use iotax_proto::{Instant, Payload, Region, Started, UnitError, UnitOp};

const NOW: Instant = Instant(5);
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 6;

type Finished = Result<Option<Payload>, UnitError>;

/// A thread of a server with one connection.
struct Thread {
    volumes: Rc<Volumes>,
    disks: Rc<RefCell<Disks>>,
    operations: Operations,
}

/// Threads that share one disk. Reads are executed when requested, and writes when they end, which is the worst
/// possible order.
struct World {
    threads: Vec<Thread>,
    disk: Rc<Heap>,
    asked: Vec<(usize, DiskToken, DiskOp)>,
    done: VecDeque<(usize, u32, Finished)>,
    woken: Arc<AtomicBool>,
}

impl World {
    fn new(threads: usize) -> Self {
        Self::of(threads, Media::Disk { disk: DiskId(0), block_size: BLOCK as u32 })
    }

    /// With a memory volume, `disk` is that memory.
    fn of(threads: usize, media: Media) -> Self {
        let spec = VolumeSpec::new("v", BLOCKS * BLOCK, media);
        let disk = Heap::new((BLOCKS * BLOCK) as usize);
        let thread = |_| {
            let region = || Rc::clone(&disk) as Rc<dyn Region>;
            let volumes = Rc::new(Volumes::new(std::slice::from_ref(&spec), &mut |_| region(), None));
            let disks = Rc::new(RefCell::new(Disks::new(Buffers::new(Box::new(|len| Some(Heap::new(len)))))));
            let operations = Operations::new(ConnId(0), Rc::clone(&volumes), Rc::clone(&disks));
            Thread { volumes, disks, operations }
        };
        let threads = (0..threads).map(thread).collect();
        Self { threads, disk, asked: Vec::new(), done: VecDeque::new(), woken: Arc::default() }
    }

    fn start(&mut self, thread: usize, id: u32, op: UnitOp, data: &[u8]) {
        let operations = &mut self.threads[thread].operations;
        let mut started = operations.start(NOW, id, unit_of(0, false), op);
        if matches!(started, Started::NeedData) {
            operations.place(id, 0, data);
            started = operations.finish(NOW, id);
        }
        if let Started::Done(result) = started {
            self.done.push_back((thread, id, result));
        }
        self.settle();
    }

    /// Ends the `at`-th requested disk operation.
    fn end(&mut self, at: usize) {
        let (thread, token, op) = self.asked.remove(at);
        let result = match &op {
            DiskOp::Read { into, .. } => Ok(into.len() as u32),
            op => perform(&self.disk, op),
        };
        let waiting = self.threads[thread].disks.borrow_mut().done(token);
        if let Some((_, id)) = waiting
            && let Some(done) = self.threads[thread].operations.disk_done(NOW, id, result)
        {
            self.done.push_back((thread, id, done));
        }
        self.settle();
    }

    fn settle(&mut self) {
        for (index, thread) in self.threads.iter_mut().enumerate() {
            while thread.volumes.take_granted() {
                let barred = thread.disks.borrow_mut().take_barred();
                for (_, id) in barred {
                    if let Some(done) = thread.operations.look_at_claim(NOW, id) {
                        self.done.push_back((index, id, done));
                    }
                }
            }
            loop {
                let turn = thread.disks.borrow_mut().next_turn();
                let Some((_, id)) = turn else { break };
                if let Some(done) = thread.operations.take_turn(NOW, id) {
                    self.done.push_back((index, id, done));
                }
            }
            loop {
                let request = thread.disks.borrow_mut().poll();
                let Some(request) = request else { break };
                if matches!(request.op, DiskOp::Read { .. }) {
                    perform(&self.disk, &request.op).expect("a read");
                }
                self.asked.push((index, request.token, request.op));
            }
        }
        self.woken.store(false, Ordering::Relaxed);
    }
}

/// A write of one value to a range, and when it was under way.
struct Write {
    range: std::ops::Range<u64>,
    value: u8,
    began: usize,
    ended: Option<usize>,
}

/// Whether a byte may have a value after all writes: that of any write after whose end no other write of the byte
/// began.
fn is_possible(writes: &[Write], at: u64, value: u8) -> bool {
    let mut covering = writes.iter().filter(|write| write.range.contains(&at)).peekable();
    if covering.peek().is_none() {
        return value == 0;
    }
    covering.any(|write| {
        let ended = write.ended.expect("all have ended");
        write.value == value && !writes.iter().any(|later| later.range.contains(&at) && later.began > ended)
    })
}

#[test]
fn no_acknowledged_write_is_lost_in_any_order_of_the_disk() {
    arbtest::arbtest(|u| {
        let mut world = World::new(2);
        let mut writes: Vec<Write> = Vec::new();
        let mut clock = 0;
        let mut under_way = Vec::new();
        for id in 0..u.int_in_range(2..=24_u32)? {
            let kind = u.int_in_range(0..=5)?;
            let (offset, len) = if kind < 3 {
                let offset = u.int_in_range(0..=BLOCKS * BLOCK - 1)?;
                (offset, u.int_in_range(1..=(2 * BLOCK).min(BLOCKS * BLOCK - offset))?)
            } else {
                let first = u.int_in_range(0..=BLOCKS - 1)?;
                (first * BLOCK, u.int_in_range(1..=BLOCKS - first)? * BLOCK)
            };
            let value = if kind == 4 { 0 } else { u.int_in_range(1..=255)? };
            let op = match kind {
                4 => UnitOp::WriteZeroes { offset, len, durable: false },
                5 => UnitOp::WriteSame { offset, len, pattern_len: 512, durable: true },
                _ => UnitOp::Write { offset, len: len as u32, durable: u.arbitrary()? },
            };
            let thread = u.int_in_range(0..=1)?;
            clock += 1;
            writes.push(Write { range: offset..offset + len, value, began: clock, ended: None });
            under_way.push((thread, id));
            let data = vec![value; op.data_len() as usize];
            world.start(thread, id, op, &data);
            while !world.asked.is_empty() && u.ratio(2, 3)? {
                let at = u.choose_index(world.asked.len())?;
                world.end(at);
            }
            clock = note_ends(&mut world, &mut writes, &under_way, clock);
        }
        while !world.asked.is_empty() {
            let at = u.choose_index(world.asked.len()).unwrap_or(0);
            world.end(at);
            clock = note_ends(&mut world, &mut writes, &under_way, clock);
        }
        assert!(writes.iter().all(|write| write.ended.is_some()), "all have ended");
        for (at, value) in world.disk.bytes().iter().enumerate() {
            assert!(is_possible(&writes, at as u64, *value), "byte {at} is {value}");
        }
        Ok(())
    })
    .budget_ms(3000);
}

fn note_ends(world: &mut World, writes: &mut [Write], under_way: &[(usize, u32)], mut clock: usize) -> usize {
    while let Some((thread, id, result)) = world.done.pop_front() {
        result.expect("written");
        clock += 1;
        let index = under_way.iter().position(|known| *known == (thread, id)).expect("it was started");
        writes[index].ended = Some(clock);
    }
    clock
}

#[test]
fn compare_and_writes_of_all_threads_count_every_one_beside_plain_writes() {
    for seed in 0..200_usize {
        let mut world = World::new(2);
        let (mut count, mut tries) = (0_u8, 0_usize);
        let op = UnitOp::CompareAndWrite { offset: 0, len: 512, durable: false };
        let both = |count: u8| [[count; 512], [count + 1; 512]].concat();
        world.start(0, 0, op.clone(), &both(0));
        world.start(1, 0, op.clone(), &both(0));
        // A neighbour in the same block of the disk, at an unaligned offset.
        world.start(0, 1, UnitOp::Write { offset: 1000, len: 100, durable: true }, &[0xee; 100]);
        while !world.asked.is_empty() {
            tries += 1;
            assert!(tries < 10_000, "one of them never ends");
            world.end((seed + tries * 7) % world.asked.len());
            while let Some((thread, id, result)) = world.done.pop_front() {
                match result {
                    Ok(_) if id == 0 => count += 1,
                    Err(UnitError::Miscompare(_)) => {}
                    other => assert!(other.is_ok(), "{other:?}"),
                }
                if id == 0 && count < 10 {
                    world.start(thread, 0, op.clone(), &both(count));
                }
            }
        }
        let bytes = world.disk.bytes();
        assert_eq!((count, bytes[0], bytes[511]), (10, 10, 10));
        assert_eq!(bytes[1000..1100], [0xee; 100]);
    }
}

#[test]
fn whole_block_writes_wait_for_nothing_where_nobody_changes_a_part_of_a_block() {
    let mut world = World::new(2);
    for thread in 0..2 {
        for id in 0..8 {
            let op = UnitOp::Write { offset: u64::from(id % 2) * BLOCK, len: BLOCK as u32, durable: false };
            world.start(thread, id, op, &[7; BLOCK as usize]);
        }
    }
    assert_eq!(world.asked.len(), 16, "all are with the disk, those over the same block too");
}

#[test]
fn blocks_of_an_aborted_write_are_free_when_the_disk_has_ended_it() {
    let mut world = World::new(2);
    world.start(0, 0, UnitOp::Write { offset: 10, len: 10, durable: true }, &[1; 10]);
    world.start(1, 0, UnitOp::Write { offset: 30, len: 10, durable: true }, &[2; 10]);
    world.end(0);
    let writes = |world: &World| world.asked.iter().filter(|(.., op)| matches!(op, DiskOp::Write { .. })).count();
    assert_eq!((world.asked.len(), writes(&world)), (1, 1), "the first writes, the second waits");
    world.threads[0].operations.abort(0, None);
    world.settle();
    assert_eq!(world.asked.len(), 1, "the disk still works on it");
    world.end(0);
    while !world.asked.is_empty() {
        world.end(0);
    }
    assert_eq!((world.disk.bytes()[10], world.disk.bytes()[30]), (1, 2));
}

// In memory, where a write's data are placed as they arrive.

/// Writes whose data arrive in two halves, one write at a time per block, beside operations that change whole blocks.
#[test]
fn no_block_of_memory_is_torn_in_any_order_of_the_data() {
    const UNIT: u64 = 512;
    arbtest::arbtest(|u| {
        let mut world = World::of(2, Media::Memory);
        let mut half_done: Vec<(usize, u32, u8)> = Vec::new();
        let mut writes: Vec<(usize, u32, u64)> = Vec::new();
        for id in 0..u.int_in_range(2..=40_u32)? {
            let (thread, offset) = (u.int_in_range(0..=1)?, u.int_in_range(0..=2_u64)? * UNIT);
            let value = u.int_in_range(0..=3)?;
            match u.int_in_range(0..=3)? {
                0 => world.start(thread, id, UnitOp::OrWrite { offset, len: 512, durable: false }, &[value << 4; 512]),
                1 => {
                    let data = [[value; 512], [value + 8; 512]].concat();
                    world.start(thread, id, UnitOp::CompareAndWrite { offset, len: 512, durable: false }, &data);
                }
                _ if writes.iter().any(|(.., known)| *known == offset) => {}
                _ => {
                    let operations = &mut world.threads[thread].operations;
                    let op = UnitOp::Write { offset, len: 512, durable: false };
                    assert!(matches!(operations.start(NOW, id, unit_of(0, false), op), Started::NeedData));
                    operations.place(id, 0, &[value; 256]);
                    half_done.push((thread, id, value));
                    writes.push((thread, id, offset));
                }
            }
            while !half_done.is_empty() && u.ratio(1, 2)? {
                let (thread, id, value) = half_done.swap_remove(u.choose_index(half_done.len())?);
                end_write(&mut world, thread, id, value);
            }
            let done = &world.done;
            writes.retain(|write| !done.iter().any(|(thread, id, _)| (*thread, *id) == (write.0, write.1)));
        }
        for (thread, id, value) in half_done {
            end_write(&mut world, thread, id, value);
        }
        for block in world.disk.bytes().chunks(512) {
            assert!(block.iter().all(|byte| *byte == block[0]), "{:?}", (block[0], block[511]));
        }
        let is_over = |(_, _, result): &(usize, u32, Finished)| matches!(result, Ok(_) | Err(UnitError::Miscompare(_)));
        assert!(world.done.iter().all(is_over));
        Ok(())
    })
    .budget_ms(2000);
}

/// Delivers the second half of a write's data and ends it.
fn end_write(world: &mut World, thread: usize, id: u32, value: u8) {
    let operations = &mut world.threads[thread].operations;
    operations.place(id, 256, &[value; 256]);
    if let Started::Done(result) = operations.finish(NOW, id) {
        world.done.push_back((thread, id, result));
    }
    world.settle();
}

#[test]
fn what_waits_for_an_initiator_that_sends_no_more_is_busy_in_the_end() {
    let mut world = World::of(2, Media::Memory);
    let write = UnitOp::Write { offset: 0, len: 512, durable: false };
    let op = UnitOp::CompareAndWrite { offset: 0, len: 512, durable: false };
    assert!(matches!(world.threads[0].operations.start(NOW, 0, unit_of(0, false), write.clone()), Started::NeedData));
    world.start(1, 0, op.clone(), &[[0; 512], [1; 512]].concat());
    world.start(1, 1, write, &[7; 512]);
    assert!(world.done.is_empty(), "both wait");
    let waiting = &mut world.threads[1].operations;
    let due = waiting.next_due().expect("a time to give up");
    assert!(waiting.take_due(Instant(due.0 - 1)).is_none());
    assert_eq!(waiting.take_due(due).map(|(id, result)| (id, result.err())), Some((0, Some(UnitError::Busy))));
    world.settle();
    assert_eq!(world.done.pop_front().map(|(thread, id, _)| (thread, id)), Some((1, 1)), "it waited for that only");
    assert_eq!(world.disk.bytes()[..512], [7; 512]);
    // The connection ends, which releases its blocks.
    world.threads[0].operations.abort_all();
    world.start(1, 2, op, &[[7; 512], [1; 512]].concat());
    assert_eq!(world.done.pop_front().map(|(_, id, result)| (id, result.is_ok())), Some((2, true)));
}
