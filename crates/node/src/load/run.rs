//! The measured task of one worker: it draws I/Os from mix and addresses, times and checks them, and starts the next.

use std::{ops::Range, rc::Rc};

use iotax_proto::{Geometry, Instant, Io, IoError, Payload, Tag};

use super::{
    addresses::{Addresses, Zone},
    config::RunConfig,
    ledger::{Ledger, Wrong, remembered},
    pacing::{Arrived, Pacer, Schedule, Share},
    recorder::{Completion, Recorder},
    stream::{Direction, Mix, StreamConfig},
    verify::{ReadCheck, Tally},
};
use crate::pattern::{BLOCK_BYTES, Pool};

/// A worker's writes have different bodies over at least this many bytes: storage that compresses neighbouring data
/// together, in records of 128 KiB as in file systems, finds no equal ones.
const VARIED_BYTES: u32 = 128 << 10;
/// The same for all workers of a thread together: with more than 128 workers, each varies less.
const ALL_VARIED_BYTES: u32 = 16 << 20;

#[derive(Debug)]
pub(super) struct RunTask {
    /// Index of its stream in the load.
    stream: usize,
    block_size: u32,
    verify: bool,
    durable: bool,
    pool: Rc<Pool>,
    addresses: Addresses,
    mix: Mix,
    pacer: Pacer,
    pub(super) arrived: Option<Arrived>,
    ledger: Ledger,
    /// Data of the copies, by number; empty if no writes are copies.
    copies: Vec<Payload>,
    slots: Vec<RunningIo>,
    /// Buffers without a write under way, and the index of the one that is used next.
    spare: Vec<Buffer>,
    turn: usize,
    pub(super) tally: Tally,
    pub(super) wrong: Option<Wrong>,
    /// The first failed I/O and its offset, for the message.
    pub(super) first_error: Option<(IoError, u64)>,
}

/// The I/O of one tag.
#[derive(Debug)]
struct RunningIo {
    direction: Direction,
    offset: u64,
    intended: Instant,
    /// When it could have been submitted: the intended instant, or when a slot became free, if that is later.
    possible: Instant,
    submitted: Instant,
    sequence: u64,
    check: ReadCheck,
    /// `None` if the load only reads.
    buffer: Option<Buffer>,
}

/// Data of writes: the bodies stay, the headers are written for each write.
#[derive(Debug)]
struct Buffer {
    number: u64,
    data: Payload,
}

impl RunningIo {
    fn new(buffer: Option<Buffer>) -> Self {
        Self {
            direction: Direction::Read,
            offset: 0,
            intended: Instant(0),
            possible: Instant(0),
            submitted: Instant(0),
            sequence: 0,
            check: ReadCheck::default(),
            buffer,
        }
    }
}

/// What differs between the workers of a run.
#[derive(Debug)]
pub(super) struct Part {
    /// Its number over all threads.
    pub(super) worker: u32,
    /// Index of its stream in the load.
    pub(super) stream: usize,
    pub(super) access: StreamConfig,
    pub(super) zone: Zone,
    /// Its part of an open loop's arrivals.
    pub(super) share: Share,
}

impl RunTask {
    /// `buffers` holds as many buffers as `buffers_of` returns, of the stream's block size; none for a load that only
    /// reads.
    pub(super) fn new(
        config: &RunConfig,
        run: u64,
        part: Part,
        pool: Rc<Pool>,
        buffers: Vec<Payload>,
        copies: Vec<Payload>,
    ) -> Self {
        let Part { worker, stream, access, zone, share } = part;
        let (size, outstanding, seed) = (access.block_size_bytes, config.outstanding, config.seed);
        // In a shared stream, a worker does not know what the others wrote: only form, place and counts are checked.
        let is_known = config.verify && access.shared.is_none();
        let known_blocks = if is_known { remembered(zone.blocks, config.read_back) } else { 0 };
        let mut bytes = vec![0; size as usize];
        let mut buffers = (0..).zip(buffers).map(|(at, data)| {
            let number = buffer_number(worker, at);
            pool.prepare(&mut bytes, number);
            data.copy_in(0, &bytes);
            Buffer { number, data }
        });
        let slots = (0..outstanding).map(|_| RunningIo::new(buffers.next())).collect();
        let spare = buffers.collect();
        Self {
            stream,
            block_size: size,
            verify: config.verify,
            durable: config.durable,
            addresses: Addresses::new(zone, size, access.random_percent, outstanding, seed, worker)
                .shared(access.shared.clone()),
            mix: Mix::new(access.read_percent, seed, worker).flushing(config.flush_after),
            pacer: Pacer::new(config.pacing, share, outstanding, seed, worker),
            arrived: None,
            ledger: Ledger::new(run, worker + 1, zone.offset, known_blocks, u64::from(size))
                .reduced(pool.reduction())
                .filled(config.filled),
            pool,
            copies,
            slots,
            spare,
            turn: 0,
            tally: Tally::default(),
            wrong: None,
            first_error: None,
        }
    }

    /// Prepares for another slice: its writes have another run number, and data that others wrote since are not a loss.
    pub(super) fn renew(&mut self, run: u64) {
        self.ledger.renew(run);
        self.tally = Tally::default();
        self.arrived = None;
        self.wrong = None;
        self.first_error = None;
        self.mix.forget();
    }

    pub(super) fn begin(&mut self, schedule: Schedule) {
        self.pacer.begin(schedule);
    }

    /// See `Pacer::collect`.
    pub(super) fn collect(&mut self, now: Instant, slots: usize) {
        self.pacer.collect(now, slots);
    }

    /// The next I/O, if one is due. The worker has been able to submit since `able_since`.
    #[inline]
    pub(super) fn next(&mut self, now: Instant, tag: Tag, able_since: Instant) -> Option<Io> {
        let intended = self.pacer.take(now)?;
        let slot = &mut self.slots[tag as usize];
        slot.intended = intended;
        slot.possible = intended.max(able_since);
        slot.submitted = now;
        slot.direction = self.mix.draw();
        Some(match slot.direction {
            Direction::Read => {
                slot.offset = self.addresses.take();
                slot.check.begin(slot.offset, self.block_size);
                Io::Read { offset: slot.offset, len: self.block_size }
            }
            Direction::Write => self.write(tag),
            Direction::Flush => self.flush(intended),
        })
    }

    /// A flush is not an arrival: the arrival that was taken waits for the next slot.
    #[cold]
    fn flush(&mut self, intended: Instant) -> Io {
        self.pacer.give_back(intended);
        Io::Flush
    }

    /// Separate, so that the code of reads stays short.
    #[inline(never)]
    fn write(&mut self, tag: Tag) -> Io {
        let slot = &mut self.slots[tag as usize];
        slot.offset = self.addresses.take();
        let buffer = slot.buffer.as_mut().expect("a load that writes has a buffer for each tag");
        let stamp = self.ledger.issue();
        slot.sequence = stamp.sequence;
        if !self.copies.is_empty()
            && let Some(copy) = self.ledger.copy(stamp.sequence)
        {
            return Io::Write { offset: slot.offset, data: self.copies[copy as usize].clone(), durable: self.durable };
        }
        if let Some(next) = self.spare.get_mut(self.turn) {
            std::mem::swap(buffer, next);
            self.turn = if self.turn + 1 < self.spare.len() { self.turn + 1 } else { 0 };
        }
        for (at, header) in self.pool.headers(buffer.number, self.block_size as usize, slot.offset, stamp) {
            buffer.data.copy_in(at, &header);
        }
        Io::Write { offset: slot.offset, data: buffer.data.clone(), durable: self.durable }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.pacer.next_due()
    }

    /// Completes the count of arrivals, once.
    pub(super) fn finish(&mut self, slots: usize) {
        if self.arrived.is_none() {
            self.arrived = self.pacer.finish(slots);
        }
    }

    pub(super) fn data(&mut self, tag: Tag, at: u32, bytes: &[u8]) {
        if !self.verify {
            return;
        }
        let slot = &mut self.slots[tag as usize];
        if let Err(wrong) = slot.check.feed(&self.pool, &self.ledger, &mut self.tally, at, bytes) {
            self.found_wrong(wrong);
        }
    }

    /// Begins to read the first block at or after byte `from` whose write was acknowledged. Returns the read, and where
    /// to go on.
    #[cold]
    pub(super) fn read_back(&mut self, tag: Tag, from: u64) -> Option<(Io, u64)> {
        let (offset, after) = self.ledger.written_from(from)?;
        let slot = &mut self.slots[tag as usize];
        slot.offset = offset;
        slot.check.begin(offset, self.block_size);
        Some((Io::Read { offset, len: self.block_size }, after))
    }

    /// Ends the read that `read_back` began, and returns its offset.
    #[cold]
    pub(super) fn has_read_back(&mut self, tag: Tag) -> u64 {
        let slot = &self.slots[tag as usize];
        let offset = slot.offset;
        self.tally.read_back_blocks += u64::from(self.block_size) / BLOCK_BYTES as u64;
        if let Err(wrong) = slot.check.finish() {
            self.found_wrong(wrong);
        }
        offset
    }

    /// The read of a tag is sent again: its data arrive from the start.
    pub(super) fn begin_again(&mut self, tag: Tag) {
        self.slots[tag as usize].check.begin_again();
    }

    #[inline]
    pub(super) fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>, recorder: &mut Recorder) {
        let slot = &self.slots[tag as usize];
        let (direction, offset) = (slot.direction, slot.offset);
        if direction == Direction::Flush {
            self.flushed(now, tag, result, recorder);
            return;
        }
        self.addresses.release(offset);
        match result {
            Ok(()) => {
                recorder.complete(Completion {
                    stream: self.stream,
                    direction,
                    bytes: self.block_size,
                    intended: slot.intended,
                    possible: slot.possible,
                    submitted: slot.submitted,
                    completed: now,
                });
                if direction == Direction::Write {
                    self.ledger.written(offset, slot.sequence);
                    self.mix.written();
                } else if self.verify
                    && let Err(wrong) = slot.check.finish()
                {
                    self.found_wrong(wrong);
                }
            }
            Err(error) => {
                recorder.error(self.stream, direction);
                if direction == Direction::Write {
                    self.ledger.failed(offset, slot.sequence);
                }
                self.first_error.get_or_insert((error, offset));
            }
        }
    }

    #[cold]
    fn flushed(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>, recorder: &mut Recorder) {
        let submitted = self.slots[tag as usize].submitted;
        match result {
            Ok(()) => recorder.flushed(submitted, now),
            Err(error) => {
                recorder.error(self.stream, Direction::Flush);
                self.first_error.get_or_insert((error, 0));
            }
        }
    }

    #[cold]
    fn found_wrong(&mut self, wrong: Wrong) {
        self.tally.wrong_blocks += 1;
        self.wrong.get_or_insert(wrong);
    }
}

/// The zone of a worker in the unit. The error is the working set size that would be needed. Zones begin and end on
/// block boundaries of every stream. `parts` is the worker's own part, or those of all workers of its shared stream.
pub(super) fn zone(
    config: &super::config::LoadConfig,
    run: &RunConfig,
    parts: Range<u32>,
    block_size_bytes: u32,
    geometry: &Geometry,
) -> Result<Zone, u64> {
    let size = u64::from(block_size_bytes);
    let unit =
        run.all_streams().iter().fold(1, |unit, access| common_multiple(unit, u64::from(access.block_size_bytes)));
    let rest = geometry.size_bytes.saturating_sub(config.working_set_offset_bytes);
    let units = config.working_set_bytes.unwrap_or(rest) / unit;
    let part = |index| Zone::of(index, config.workers, config.working_set_offset_bytes, units, unit);
    let needed = u64::from(run.outstanding);
    let each = (needed * size).checked_next_multiple_of(unit).unwrap_or(u64::MAX);
    let needed_bytes = each.saturating_mul(u64::from(config.workers));
    let last = part(parts.end - 1);
    let mut zone = part(parts.start).through(last, unit);
    zone.blocks *= unit / size;
    if last.blocks * (unit / size) < needed { Err(needed_bytes) } else { Ok(zone) }
}

pub(super) fn common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}

/// The number of a buffer. All buffers of a run have different numbers, so that no two have the same bodies.
fn buffer_number(worker: u32, at: u32) -> u64 {
    u64::from(worker) << 32 | u64::from(at)
}

/// Number of write buffers per worker, for a thread with `workers` workers and writes of `io_bytes`.
pub(super) fn buffers_of(workers: u32, outstanding: u32, io_bytes: u32) -> u32 {
    let varied_bytes = VARIED_BYTES.min(ALL_VARIED_BYTES / workers.max(1));
    outstanding.max(varied_bytes / io_bytes.max(1))
}
