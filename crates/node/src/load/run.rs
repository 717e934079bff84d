//! The measured task of one worker: I/Os by mix and addresses, timed, checked, each followed by the next.

use std::rc::Rc;

use iotax_proto::{Geometry, Instant, Io, IoError, Payload, Tag};

use super::{
    addresses::{Addresses, Zone},
    config::RunConfig,
    ledger::Ledger,
    mix::{Direction, Mix},
    pacing::Pacer,
    pattern::{Pool, headers},
    recorder::Recorder,
    verify::{ReadCheck, Tally, Wrong},
};

#[derive(Debug)]
pub(super) struct RunTask {
    block_size: u32,
    verify: bool,
    pool: Rc<Pool>,
    worker: u32,
    addresses: Addresses,
    mix: Mix,
    pacer: Pacer,
    ledger: Ledger,
    slots: Vec<Slot>,
    pub(super) tally: Tally,
    pub(super) wrong: Option<Wrong>,
    /// The first I/O that the target refused, for the message.
    pub(super) first_error: Option<(IoError, u64)>,
}

/// What is under way with one tag.
#[derive(Debug)]
struct Slot {
    direction: Direction,
    offset: u64,
    intended: Instant,
    sequence: u64,
    check: ReadCheck,
    /// Data of writes: bodies are there, headers are stamped anew; `None` where the load only reads.
    buffer: Option<Payload>,
}

impl RunTask {
    /// `worker` counts over all threads; `buffers` holds one for each tag, or none for a load that only reads.
    pub(super) fn new(
        config: &RunConfig,
        run: u64,
        worker: u32,
        zone: Zone,
        pool: Rc<Pool>,
        buffers: Vec<Payload>,
    ) -> Self {
        let (size, outstanding) = (config.block_size_bytes, config.outstanding);
        let mut bytes = vec![0; size as usize];
        for (tag, buffer) in buffers.iter().enumerate() {
            pool.prepare(&mut bytes, buffer_number(worker, tag as Tag));
            buffer.copy_in(0, &bytes);
        }
        let mut buffers = buffers.into_iter();
        let slot = |_| Slot {
            direction: Direction::Read,
            offset: 0,
            intended: Instant(0),
            sequence: 0,
            check: ReadCheck::default(),
            buffer: buffers.next(),
        };
        Self {
            block_size: size,
            verify: config.verify,
            pool,
            worker,
            addresses: Addresses::new(zone, size, config.random_percent, outstanding, config.seed, worker),
            mix: Mix::new(config.read_percent, config.seed, worker),
            pacer: Pacer::new(config.pacing),
            ledger: if config.verify {
                Ledger::new(run, worker + 1, zone.offset, zone.blocks, u64::from(size))
            } else {
                Ledger::new(run, worker + 1, zone.offset, 0, u64::from(size))
            },
            slots: (0..outstanding).map(slot).collect(),
            tally: Tally::default(),
            wrong: None,
            first_error: None,
        }
    }

    pub(super) fn next(&mut self, now: Instant, tag: Tag) -> Option<Io> {
        let intended = self.pacer.take(now)?;
        let slot = &mut self.slots[tag as usize];
        slot.intended = intended;
        slot.direction = self.mix.draw();
        slot.offset = self.addresses.take();
        Some(match slot.direction {
            Direction::Read => {
                slot.check.begin(slot.offset, self.block_size);
                Io::Read { offset: slot.offset, len: self.block_size }
            }
            Direction::Write => {
                let buffer = slot.buffer.as_ref().expect("a load that writes has a buffer for each tag");
                let stamp = self.ledger.issue();
                slot.sequence = stamp.sequence;
                let number = buffer_number(self.worker, tag);
                for (at, header) in headers(number, self.block_size as usize, slot.offset, stamp) {
                    buffer.copy_in(at, &header);
                }
                Io::Write { offset: slot.offset, data: buffer.clone() }
            }
        })
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.pacer.next_due()
    }

    pub(super) fn data(&mut self, tag: Tag, at: u32, bytes: &[u8]) {
        if !self.verify {
            return;
        }
        let Some(slot) = self.slots.get_mut(tag as usize) else { return };
        if let Err(wrong) = slot.check.feed(&self.pool, &self.ledger, &mut self.tally, at, bytes) {
            self.found_wrong(wrong);
        }
    }

    pub(super) fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>, recorder: &mut Recorder) {
        let slot = &self.slots[tag as usize];
        let (direction, offset) = (slot.direction, slot.offset);
        self.addresses.release(offset);
        match result {
            Ok(()) => {
                recorder.complete(direction, self.block_size, now.since(slot.intended));
                match direction {
                    Direction::Write => self.ledger.written(offset, slot.sequence),
                    Direction::Read if self.verify => {
                        if let Err(wrong) = slot.check.finish() {
                            self.found_wrong(wrong);
                        }
                    }
                    Direction::Read => {}
                }
            }
            Err(error) => {
                recorder.error(direction);
                if direction == Direction::Write {
                    self.ledger.failed(offset);
                }
                self.first_error.get_or_insert((error, offset));
            }
        }
    }

    #[cold]
    fn found_wrong(&mut self, wrong: Wrong) {
        self.tally.wrong_blocks += 1;
        self.wrong.get_or_insert(wrong);
    }
}

/// The zone of a worker in the unit, or how large the working set would have to be.
pub(super) fn zone(
    config: &super::config::LoadConfig,
    run: &RunConfig,
    worker: u32,
    geometry: &Geometry,
) -> Result<Zone, u64> {
    let size = u64::from(run.block_size_bytes);
    let rest = geometry.size_bytes.saturating_sub(config.working_set_offset_bytes);
    let blocks = config.working_set_bytes.unwrap_or(rest) / size;
    let zone = Zone::of(worker, config.workers, config.working_set_offset_bytes, blocks, run.block_size_bytes);
    let needed = u64::from(run.outstanding);
    if zone.blocks < needed { Err(needed * u64::from(config.workers) * size) } else { Ok(zone) }
}

/// Tells the buffers of a run from each other, so that no two carry the same bodies.
fn buffer_number(worker: u32, tag: Tag) -> u64 {
    u64::from(worker) << 32 | u64::from(tag)
}
