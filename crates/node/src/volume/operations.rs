//! The operations of one connection on volumes.

use std::{cell::RefCell, cmp::Reverse, collections::BinaryHeap, rc::Rc, time::Duration};

use iotax_proto::{Allocation, Ending, Geometry, Instant, IoId, Payload, Started, UnitError, UnitId, UnitOp};

use super::{
    Disks, MAX_IO_BYTES, Media, Volumes,
    claims::Claim,
    disk::{self, After, DiskTask, Work},
    disks::Place,
    long::Long,
    memory,
    model::Access,
    state::{
        Barred, DiskState, Finished, InMemory, OnDisk, OperationState, Staged, halves, is_due, perform_in_memory,
        replace_plain,
    },
    units::Store,
};
use crate::node::{ConnId, DiskOp};

/// Bytes of memory that one command without data for each byte may change at once. A packet can bring thousands of such
/// commands.
const AT_ONCE_BYTES: u64 = 16 << 10;
/// How long an operation in memory waits for blocks that others have claimed: a write keeps its blocks until its
/// initiator has sent all data. On a disk, no blocks wait for an initiator.
const CLAIM_PATIENCE: Duration = Duration::from_secs(5);

/// A number that no entry of `delayed` has.
const NEVER_DUE: u64 = 0;

pub struct Operations {
    conn: ConnId,
    volumes: Rc<Volumes>,
    disks: Rc<RefCell<Disks>>,
    slots: Vec<OperationState>,
    /// Operations that are done but delayed, by the time when they may complete, and barred ones, by the time when they
    /// give up.
    delayed: BinaryHeap<Reverse<(Instant, u64, IoId)>>,
    delays: u64,
}

impl Operations {
    pub fn new(conn: ConnId, volumes: Rc<Volumes>, disks: Rc<RefCell<Disks>>) -> Self {
        Self { conn, volumes, disks, slots: Vec::new(), delayed: BinaryHeap::new(), delays: 0 }
    }

    pub fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        self.volumes.geometry(unit)
    }

    /// Memory that holds zeros counts as unmapped, because unmapped memory reads as zeros.
    pub fn allocation(&self, now: Instant, unit: UnitId, offset: u64) -> Option<Allocation> {
        let index = self.volumes.find(unit, offset, 0, false).ok()?;
        let left = self.volumes.geometry(unit)?.size_bytes - offset;
        match &self.volumes.all[index].store {
            Store::Memory(region) => {
                let run = memory::allocation(region.as_ref(), offset, left.min(self.volumes.may_look(now)));
                self.volumes.looked(run.len);
                Some(run)
            }
            Store::Null(_) | Store::Disk => None,
        }
    }

    pub fn start(&mut self, now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Started {
        match self.try_start(now, id, unit, op) {
            Ok(started) => started,
            Err(error) => Started::Done(Err(error)),
        }
    }

    pub fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        let Some(slot) = self.slots.get_mut(id as usize) else {
            debug_assert!(false, "data of an operation in its slot");
            return;
        };
        match slot {
            OperationState::Place { volume, offset: begin, len } => {
                let bytes = within(*len as usize, offset, bytes);
                if let Store::Memory(region) = &self.volumes.all[*volume].store {
                    region.copy_in(*begin + offset as usize, bytes);
                }
            }
            OperationState::Compare { volume, offset: begin, len, differs } => {
                let bytes = within(*len as usize, offset, bytes);
                if let Store::Memory(region) = &self.volumes.all[*volume].store
                    && let Some(at) = memory::first_difference(region.as_ref(), *begin + offset as usize, bytes)
                {
                    let at = offset + at as u32;
                    *differs = Some(differs.map_or(at, |known| known.min(at)));
                }
            }
            OperationState::Stage { buffer, .. } => {
                buffer.copy_in((offset as usize).min(buffer.len()), within(buffer.len(), offset, bytes));
            }
            OperationState::Idle
            | OperationState::Discard { .. }
            | OperationState::Barred { .. }
            | OperationState::Disk { .. }
            | OperationState::Long { .. }
            | OperationState::Delayed { .. } => {}
        }
    }

    /// The memory in which data can be placed directly.
    pub fn memory(&self, id: IoId, offset: u32, len: u32) -> Option<Payload> {
        match self.slots.get(id as usize)? {
            OperationState::Place { len: whole, .. } if u64::from(offset) + u64::from(len) > u64::from(*whole) => None,
            OperationState::Stage { buffer, .. } if offset as usize + len as usize > buffer.len() => None,
            OperationState::Place { volume, offset: begin, .. } => match &self.volumes.all[*volume].store {
                Store::Memory(region) => Some(Payload::new(Rc::clone(region), *begin + offset as usize, len as usize)),
                Store::Null(_) | Store::Disk => None,
            },
            OperationState::Stage { buffer, .. } => Some(buffer.slice(offset as usize, len as usize)),
            _ => None,
        }
    }

    pub fn finish(&mut self, now: Instant, id: IoId) -> Started {
        let Some(slot) = self.slots.get_mut(id as usize) else { return Started::Done(Err(UnitError::Aborted)) };
        // First, because this state holds nothing to be dropped.
        if let OperationState::Place { volume, offset, len } = *slot {
            replace_plain(slot, OperationState::Idle);
            self.volumes.all[volume].claimant.write_ends(offset as u64, u64::from(len));
            return self.end(now, id, volume, Some(Access::Write(offset as u64, u64::from(len))), Ok(None));
        }
        match std::mem::replace(slot, OperationState::Idle) {
            OperationState::Place { .. } => unreachable!("it was looked at first"),
            OperationState::Discard { volume } => self.end(now, id, volume, None, Ok(None)),
            OperationState::Compare { volume, offset, differs, .. } => {
                let result = differs.map_or(Ok(None), |at| Err(UnitError::Miscompare(at)));
                self.end(now, id, volume, Some(Access::Read(offset as u64)), result)
            }
            OperationState::Stage { volume, staged, buffer } => match self.admit(now, id, volume, staged, buffer) {
                Ok(started) => started,
                Err(error) => self.end(now, id, volume, None, Err(error)),
            },
            OperationState::Idle
            | OperationState::Barred { .. }
            | OperationState::Disk { .. }
            | OperationState::Long { .. }
            | OperationState::Delayed { .. } => Started::Done(Err(UnitError::Aborted)),
        }
    }

    /// Forgets an operation. A disk operation under way for it keeps `ending` and the claim on its blocks.
    pub fn abort(&mut self, id: IoId, ending: Option<Ending>) {
        let Some(slot) = self.slots.get_mut(id as usize) else { return };
        match std::mem::replace(slot, OperationState::Idle) {
            OperationState::Disk { state: DiskState::Disk(token), work, .. } => {
                self.disks.borrow_mut().abandon(token, ending, work.claim);
            }
            OperationState::Barred { .. }
            | OperationState::Disk { state: DiskState::Claim, .. }
            | OperationState::Long { .. } => {
                self.disks.borrow_mut().forget_claim(self.conn, id);
            }
            OperationState::Place { volume, offset, len } => {
                self.volumes.all[volume].claimant.write_ends(offset as u64, u64::from(len));
            }
            _ => {}
        }
    }

    /// Aborts all operations: the connection is gone.
    pub fn abort_all(&mut self) {
        for id in 0..self.slots.len() {
            self.abort(id as IoId, None);
        }
        self.delayed.clear();
    }

    /// A disk operation of `id` ended. Returns the operation's result if it is complete.
    pub fn disk_done(&mut self, now: Instant, id: IoId, result: Result<u32, i32>) -> Option<Finished> {
        let Some(OperationState::Disk { volume, work, .. }) = self.slots.get_mut(id as usize) else { return None };
        let volume = *volume;
        let after = match work.after_flush.take() {
            Some(op) if result.is_ok() => After::Next(op),
            _ => work.task.done(result),
        };
        match after {
            After::Next(op) => {
                self.ask(id, op);
                None
            }
            After::Turn => {
                work.claim = None;
                self.wait_for_turn(id);
                None
            }
            After::Done(result) => {
                self.slots[id as usize] = OperationState::Idle;
                finished(self.end(now, id, volume, None, result))
            }
        }
    }

    /// Does the next part of long work. Returns the operation's result if it is complete.
    pub fn take_turn(&mut self, now: Instant, id: IoId) -> Option<Finished> {
        match self.slots.get_mut(id as usize)? {
            OperationState::Long { volume, work } => {
                let volume = *volume;
                let result = match work.piece(&self.volumes.all[volume]) {
                    Ok(true) if work.left.is_over() => Ok(None),
                    Ok(true) => {
                        self.disks.borrow_mut().wait_for_turn(Place::Memory, self.conn, id);
                        return None;
                    }
                    Ok(false) => {
                        self.disks.borrow_mut().wait_for_claim(self.conn, id);
                        return None;
                    }
                    Err(error) => Err(error),
                };
                let access = Some(work.access);
                self.slots[id as usize] = OperationState::Idle;
                finished(self.end(now, id, volume, access, result))
            }
            OperationState::Disk { volume, state: DiskState::Turn, .. } => {
                let volume = *volume;
                match self.start_piece(id, volume) {
                    Ok(()) => None,
                    Err(error) => {
                        self.slots[id as usize] = OperationState::Idle;
                        finished(self.end(now, id, volume, None, Err(error)))
                    }
                }
            }
            // It was aborted, and another operation may have its number by now.
            _ => None,
        }
    }

    /// Continues an operation whose claim may have been granted. Returns its result if it is complete.
    pub fn look_at_claim(&mut self, now: Instant, id: IoId) -> Option<Finished> {
        match self.slots.get_mut(id as usize)? {
            slot @ OperationState::Barred { .. } => {
                if !matches!(slot, OperationState::Barred { waiting, .. } if waiting.claim.is_granted()) {
                    self.disks.borrow_mut().wait_for_claim(self.conn, id);
                    return None;
                }
                let OperationState::Barred { waiting, .. } = std::mem::replace(slot, OperationState::Idle) else {
                    unreachable!("it was barred a line ago")
                };
                let Barred { volume, staged, buffer, claim } = *waiting;
                let done = self.perform(now, id, volume, staged, buffer, Some(claim));
                finished(done.unwrap_or_else(|error| self.end(now, id, volume, None, Err(error))))
            }
            OperationState::Disk { state: DiskState::Claim, work, .. } => {
                if work.claim.as_ref().is_some_and(Claim::is_granted) {
                    self.wait_for_turn(id);
                } else {
                    self.disks.borrow_mut().wait_for_claim(self.conn, id);
                }
                None
            }
            OperationState::Long { work, .. } => {
                if work.claim.as_ref().is_some_and(Claim::is_granted) {
                    self.disks.borrow_mut().wait_for_turn(Place::Memory, self.conn, id);
                } else {
                    self.disks.borrow_mut().wait_for_claim(self.conn, id);
                }
                None
            }
            // Aborted, as above.
            _ => None,
        }
    }

    /// When the next delayed operation may complete, or the next barred one gives up.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next operation that may complete.
    pub fn take_due(&mut self, now: Instant) -> Option<(IoId, Finished)> {
        while self.next_due().is_some_and(|at| at <= now) {
            let Reverse((at, due, id)) = self.delayed.pop()?;
            if !is_due(&self.slots, due, id) {
                continue;
            }
            match std::mem::replace(&mut self.slots[id as usize], OperationState::Idle) {
                OperationState::Delayed { volume, result, .. } => {
                    if let Some(media) = &self.volumes.all[volume].spec.model {
                        media.told(now.since(at));
                    }
                    return Some((id, result));
                }
                OperationState::Barred { .. } => {
                    self.disks.borrow_mut().forget_claim(self.conn, id);
                    return Some((id, Err(UnitError::Busy)));
                }
                _ => unreachable!("only these are due"),
            }
        }
        None
    }

    // --------------------------------------------------------------------------------------------------------- helpers

    fn try_start(&mut self, now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Result<Started, UnitError> {
        if op.data_len() > 2 * MAX_IO_BYTES {
            return Err(UnitError::OutOfRange);
        }
        if let UnitOp::WriteSame { len, pattern_len, .. } = op
            && (pattern_len == 0 || !len.is_multiple_of(u64::from(pattern_len)))
        {
            return Err(UnitError::OutOfRange);
        }
        let (offset, len, writes) = match &op {
            UnitOp::Read { offset, len, .. } | UnitOp::Compare { offset, len, .. } => (*offset, u64::from(*len), false),
            UnitOp::Write { offset, len, .. }
            | UnitOp::OrWrite { offset, len, .. }
            | UnitOp::CompareAndWrite { offset, len, .. } => (*offset, u64::from(*len), true),
            UnitOp::WriteZeroes { offset, len, .. }
            | UnitOp::WriteSame { offset, len, .. }
            | UnitOp::Allocate { offset, len } => (*offset, *len, true),
            UnitOp::Flush => (0, 0, false),
            UnitOp::Unmap { ranges, .. } => {
                for (offset, len) in ranges {
                    self.volumes.find(unit, *offset, *len, true)?;
                }
                (0, 0, true)
            }
        };
        let index = self.volumes.find(unit, offset, len, writes)?;
        self.volumes.burn(index);
        let volumes = Rc::clone(&self.volumes);
        match &volumes.all[index].store {
            Store::Memory(region) => self.start_memory(now, id, index, region, op),
            Store::Null(zeros) => Ok(match op {
                UnitOp::Read { len, .. } if len <= MAX_IO_BYTES => {
                    let zeros = Payload::new(Rc::clone(zeros), 0, len as usize);
                    self.end(now, id, index, None, Ok(Some(zeros)))
                }
                UnitOp::Read { .. } => return Err(UnitError::OutOfRange),
                op if op.data_len() > 0 => self.hold(id, OperationState::Discard { volume: index }),
                _ => self.end(now, id, index, None, Ok(None)),
            }),
            Store::Disk => self.start_disk(now, id, index, op),
        }
    }

    #[inline]
    fn start_memory(
        &mut self,
        now: Instant,
        id: IoId,
        index: usize,
        region: &Rc<dyn iotax_proto::Region>,
        op: UnitOp,
    ) -> Result<Started, UnitError> {
        Ok(match op {
            UnitOp::Read { offset, len, .. } => {
                let payload = Payload::new(Rc::clone(region), offset as usize, len as usize);
                self.end(now, id, index, Some(Access::Read(offset)), Ok(Some(payload)))
            }
            // Memory is allocated from the start.
            UnitOp::Write { len: 0, .. } | UnitOp::Allocate { .. } => self.end(now, id, index, None, Ok(None)),
            UnitOp::Flush => self.end(now, id, index, Some(Access::Flush), Ok(None)),
            UnitOp::Write { offset, len, .. } if self.volumes.all[index].claimant.write_begins(offset, len.into()) => {
                self.hold(id, OperationState::Place { volume: index, offset: offset as usize, len })
            }
            UnitOp::Write { offset, len, durable } => self.stage(id, index, Staged::Write { offset, durable }, len)?,
            UnitOp::Compare { offset, len, .. } => {
                self.hold(id, OperationState::Compare { volume: index, offset: offset as usize, len, differs: None })
            }
            UnitOp::WriteZeroes { offset, len, .. } => self.fill(now, id, index, vec![(offset, len)], None),
            UnitOp::Unmap { ranges, .. } => self.fill(now, id, index, ranges, None),
            UnitOp::CompareAndWrite { offset, len, durable } => {
                self.stage(id, index, Staged::CompareAndWrite { offset, len, durable }, 2 * len)?
            }
            UnitOp::OrWrite { offset, len, durable } => {
                self.stage(id, index, Staged::OrWrite { offset, durable }, len)?
            }
            UnitOp::WriteSame { offset, len, pattern_len, durable } => {
                self.stage(id, index, Staged::WriteSame { offset, len, durable }, pattern_len)?
            }
        })
    }

    fn start_disk(&mut self, now: Instant, id: IoId, index: usize, op: UnitOp) -> Result<Started, UnitError> {
        let block_size = self.volumes.all[index].disk_block_size();
        let (task, op) = match op {
            UnitOp::Read { offset, len, durable } => {
                let (task, op) = disk::read(&mut self.disks.borrow_mut().buffers, self.conn, block_size, offset, len)?;
                return Ok(if durable {
                    self.begin_flushed(id, index, task, op)
                } else {
                    self.begin(id, index, task, op, None)
                });
            }
            UnitOp::Flush => disk::flush(),
            UnitOp::WriteZeroes { offset, len, durable } => {
                let task = disk::long(Work::Zeroes, vec![(offset, len)], durable);
                return Ok(self.begin_long(now, id, index, task));
            }
            UnitOp::Allocate { offset, len } => {
                let task = disk::long(Work::Allocate, vec![(offset, len)], true);
                return Ok(self.begin_long(now, id, index, task));
            }
            UnitOp::Unmap { ranges, durable } => {
                let task = disk::long(Work::Unmap, ranges, durable);
                return Ok(self.begin_long(now, id, index, task));
            }
            UnitOp::Write { len: 0, .. } => return Ok(self.end(now, id, index, None, Ok(None))),
            UnitOp::Write { offset, len, durable } => {
                return self.stage(id, index, Staged::Write { offset, durable }, len);
            }
            UnitOp::Compare { offset, len, durable } => {
                return self.stage(id, index, Staged::Compare { offset, durable }, len);
            }
            UnitOp::CompareAndWrite { offset, len, durable } => {
                return self.stage(id, index, Staged::CompareAndWrite { offset, len, durable }, 2 * len);
            }
            UnitOp::OrWrite { offset, len, durable } => {
                return self.stage(id, index, Staged::OrWrite { offset, durable }, len);
            }
            UnitOp::WriteSame { offset, len, pattern_len, durable } => {
                return self.stage(id, index, Staged::WriteSame { offset, len, durable }, pattern_len);
            }
        };
        Ok(self.begin(id, index, task, op, None))
    }

    /// All staged data have arrived: claims the blocks that they change.
    fn admit(
        &mut self,
        now: Instant,
        id: IoId,
        index: usize,
        staged: Staged,
        buffer: Payload,
    ) -> Result<Started, UnitError> {
        let volume = &self.volumes.all[index];
        let claim = match staged {
            Staged::Write { offset, .. } => {
                let (begin, len, is_whole) = disk::changed_blocks(volume.disk_block_size(), offset, buffer.len());
                Some(if is_whole { volume.claimant.share(begin, len) } else { volume.claimant.exclude(begin, len) }?)
            }
            Staged::CompareAndWrite { offset, len, .. } => Some(volume.claimant.exclude(offset, len.into())?),
            Staged::OrWrite { offset, .. } => Some(volume.claimant.exclude(offset, buffer.len() as u64)?),
            // A compare changes nothing; the pieces of a write-same make their own claims.
            Staged::Compare { .. } | Staged::WriteSame { .. } => None,
        };
        match claim {
            Some(claim) if !claim.is_granted() => {
                let is_memory = matches!(self.volumes.all[index].store, Store::Memory(_));
                let number = if is_memory { self.due_at(now + CLAIM_PATIENCE, id) } else { NEVER_DUE };
                let waiting = Box::new(Barred { volume: index, staged, buffer, claim });
                *self.slot(id) = OperationState::Barred { number, waiting };
                self.disks.borrow_mut().wait_for_claim(self.conn, id);
                Ok(Started::Queued)
            }
            claim => self.perform(now, id, index, staged, buffer, claim),
        }
    }

    fn perform(
        &mut self,
        now: Instant,
        id: IoId,
        index: usize,
        staged: Staged,
        buffer: Payload,
        claim: Option<Claim>,
    ) -> Result<Started, UnitError> {
        let volumes = Rc::clone(&self.volumes);
        if let Store::Memory(region) = &volumes.all[index].store {
            if let Staged::WriteSame { offset, len, .. } = staged {
                return Ok(self.fill(now, id, index, vec![(offset, len)], Some(buffer)));
            }
            let result = perform_in_memory(region.as_ref(), staged, &buffer).map(|()| None);
            return Ok(self.end(now, id, index, Some(staged.access(buffer.len())), result));
        }
        let block_size = volumes.all[index].disk_block_size();
        let disks = Rc::clone(&self.disks);
        let (mut disks, conn) = (disks.borrow_mut(), self.conn);
        let buffers = &mut disks.buffers;
        let (task, op) = match staged {
            Staged::Write { offset, durable } => disk::write(buffers, conn, block_size, offset, buffer, durable)?,
            Staged::Compare { offset, durable } => {
                let (task, op) = disk::compare(buffers, conn, offset, buffer, None, false)?;
                if durable {
                    drop(disks);
                    return Ok(self.begin_flushed(id, index, task, op));
                }
                (task, op)
            }
            Staged::CompareAndWrite { offset, len, durable } => {
                let (sent, replacement) = halves(&buffer, len);
                disk::compare(buffers, conn, offset, sent, Some(replacement), durable)?
            }
            Staged::OrWrite { offset, durable } => disk::or_write(buffers, conn, offset, buffer, durable)?,
            Staged::WriteSame { offset, len, durable } => {
                let work = disk::same(buffers, conn, len, &buffer)?;
                drop(disks);
                return Ok(self.begin_long(now, id, index, disk::long(work, vec![(offset, len)], durable)));
            }
        };
        drop(disks);
        Ok(self.begin(id, index, task, op, claim))
    }

    /// Writes zeros or a pattern over ranges of memory: a few bytes at once, more in turns.
    fn fill(
        &mut self,
        now: Instant,
        id: IoId,
        index: usize,
        ranges: Vec<(u64, u64)>,
        pattern: Option<Payload>,
    ) -> Started {
        let changed = ranges.iter().map(|(_, len)| len).sum();
        let access = Access::Write(ranges.first().map_or(0, |(offset, _)| *offset), changed);
        let mut work = InMemory { left: Long::new(ranges), pattern, access, claim: None };
        if work.left.total_bytes() <= AT_ONCE_BYTES {
            let volume = &self.volumes.all[index];
            while !work.left.is_over() && work.claim.is_none() {
                if let Err(error) = work.piece(volume) {
                    return Started::Done(Err(error));
                }
            }
            if work.left.is_over() {
                return self.end(now, id, index, Some(access), Ok(None));
            }
        }
        if work.claim.is_some() {
            self.disks.borrow_mut().wait_for_claim(self.conn, id);
        } else {
            self.disks.borrow_mut().wait_for_turn(Place::Memory, self.conn, id);
        }
        *self.slot(id) = OperationState::Long { volume: index, work: Box::new(work) };
        Started::Queued
    }

    /// Completes an operation, now or when the volume's media and its delay allow it. `access` is the work left for
    /// modelled media.
    #[inline]
    fn end(&mut self, now: Instant, id: IoId, volume: usize, access: Option<Access>, result: Finished) -> Started {
        if self.volumes.all[volume].tells_later {
            self.tell_later(now, id, volume, access, result)
        } else {
            Started::Done(result)
        }
    }

    #[cold]
    fn tell_later(
        &mut self,
        now: Instant,
        id: IoId,
        volume: usize,
        access: Option<Access>,
        result: Finished,
    ) -> Started {
        let spec = &self.volumes.all[volume].spec;
        let worked = access.zip(spec.model.as_ref()).map(|(access, media)| media.take(now, access));
        let wait = worked.unwrap_or_default() + Duration::from_nanos(spec.delay_ns);
        if wait.is_zero() {
            return Started::Done(result);
        }
        let number = self.due_at(now + wait, id);
        *self.slot(id) = OperationState::Delayed { volume, number, result };
        Started::Queued
    }

    /// Adds an entry to `delayed` and returns its number.
    fn due_at(&mut self, at: Instant, id: IoId) -> u64 {
        // Operations that were aborted, or have continued, leave their entries behind.
        if self.delayed.len() > 2 * self.slots.len() {
            let slots = &self.slots;
            self.delayed.retain(|Reverse((_, due, id))| is_due(slots, *due, *id));
        }
        self.delays += 1;
        self.delayed.push(Reverse((at, self.delays, id)));
        self.delays
    }

    #[inline]
    fn hold(&mut self, id: IoId, slot: OperationState) -> Started {
        replace_plain(self.slot(id), slot);
        Started::NeedData
    }

    fn stage(&mut self, id: IoId, volume: usize, staged: Staged, len: u32) -> Result<Started, UnitError> {
        let buffer = self.disks.borrow_mut().buffers.take(self.conn, len as usize).ok_or(UnitError::Busy)?;
        Ok(self.hold(id, OperationState::Stage { volume, staged, buffer }))
    }

    fn begin(&mut self, id: IoId, volume: usize, task: DiskTask, op: DiskOp, claim: Option<Claim>) -> Started {
        let work = Box::new(OnDisk { task, claim, after_flush: None });
        *self.slot(id) = OperationState::Disk { volume, state: DiskState::Turn, work };
        self.ask(id, op);
        Started::Queued
    }

    /// Flushes first, so that the operation reads what is on stable storage.
    fn begin_flushed(&mut self, id: IoId, volume: usize, task: DiskTask, op: DiskOp) -> Started {
        let work = Box::new(OnDisk { task, claim: None, after_flush: Some(op) });
        *self.slot(id) = OperationState::Disk { volume, state: DiskState::Turn, work };
        self.ask(id, DiskOp::Sync);
        Started::Queued
    }

    fn begin_long(&mut self, now: Instant, id: IoId, volume: usize, task: DiskTask) -> Started {
        if matches!(&task, DiskTask::Long { left, .. } if left.is_over()) {
            return self.end(now, id, volume, None, Ok(None));
        }
        let work = Box::new(OnDisk { task, claim: None, after_flush: None });
        *self.slot(id) = OperationState::Disk { volume, state: DiskState::Turn, work };
        self.wait_for_turn(id);
        Started::Queued
    }

    fn wait_for_turn(&mut self, id: IoId) {
        if let Some(OperationState::Disk { state, .. }) = self.slots.get_mut(id as usize) {
            *state = DiskState::Turn;
            self.disks.borrow_mut().wait_for_turn(Place::Disk, self.conn, id);
        }
    }

    /// Starts the next piece of long work on the disk, or waits for its blocks.
    fn start_piece(&mut self, id: IoId, volume: usize) -> Result<(), UnitError> {
        let Some(OperationState::Disk { state, work, .. }) = self.slots.get_mut(id as usize) else {
            unreachable!("long work on a disk in its slot")
        };
        let (offset, len) = work.task.next_piece().expect("long work that has its turn has a piece left");
        let claim = match work.claim.take() {
            Some(claim) => claim,
            None => self.volumes.all[volume].claimant.share(offset, len)?,
        };
        if !claim.is_granted() {
            (*state, work.claim) = (DiskState::Claim, Some(claim));
            self.disks.borrow_mut().wait_for_claim(self.conn, id);
            return Ok(());
        }
        work.claim = Some(claim);
        let op = work.task.piece_op().expect("the piece that was just laid out");
        self.ask(id, op);
        Ok(())
    }

    /// Requests the next disk operation of the operation in its slot.
    fn ask(&mut self, id: IoId, op: DiskOp) {
        let Some(OperationState::Disk { volume, state, work }) = self.slots.get_mut(id as usize) else {
            unreachable!("an operation on a disk in its slot")
        };
        if let Media::Disk { disk, .. } = self.volumes.all[*volume].spec.media {
            let is_piece = matches!(work.task, DiskTask::Long { .. });
            *state = DiskState::Disk(self.disks.borrow_mut().ask(self.conn, id, disk, op, is_piece));
        }
    }

    fn slot(&mut self, id: IoId) -> &mut OperationState {
        let index = id as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || OperationState::Idle);
        }
        &mut self.slots[index]
    }
}

/// The part of `bytes` that is within an operation of `len` bytes. Protocols check this already; here it is checked
/// last.
#[inline]
fn within(len: usize, offset: u32, bytes: &[u8]) -> &[u8] {
    let fits = len.saturating_sub(offset as usize).min(bytes.len());
    debug_assert!(fits == bytes.len(), "data beyond their operation");
    &bytes[..fits]
}

fn finished(started: Started) -> Option<Finished> {
    match started {
        Started::Done(result) => Some(result),
        Started::NeedData | Started::Queued => None,
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Operations({:?}, {} slots)", self.conn, self.slots.len())
    }
}
