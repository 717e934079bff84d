//! The operations of one connection on volumes.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use iotax_proto::{Allocation, Ending, Geometry, Instant, IoId, Payload, Started, UnitError, UnitId, UnitOp};

use super::{
    Buffers, MAX_IO_BYTES, Media, Volumes,
    disk::{self, After, DiskTask},
    memory,
    units::Store,
};
use crate::node::{ConnId, DiskId, DiskOp, DiskToken};

/// How far `allocation` looks.
const ALLOCATION_BYTES_MAX: u64 = 16 << 20;

type Finished = Result<Option<Payload>, UnitError>;

/// What a thread's connections share of their disk operations.
#[derive(Debug)]
pub struct DiskRequest {
    pub token: DiskToken,
    pub disk: DiskId,
    pub op: DiskOp,
}

/// Disk operations that a thread's connections ask for and wait for, and the memory that they go through.
#[derive(Debug)]
pub struct Disks {
    buffers: Buffers,
    requests: VecDeque<DiskRequest>,
    /// Who waits, by token; `None` where nobody does any more.
    waiting: Vec<Entry>,
    free: Vec<usize>,
}

#[derive(Debug)]
enum Entry {
    Free,
    Waits(ConnId, IoId),
    /// The operation was aborted; the disk still works on it, which somebody may wait for.
    Abandoned {
        _ending: Option<Ending>,
    },
}

impl Disks {
    pub fn new(buffers: Buffers) -> Self {
        Self { buffers, requests: VecDeque::new(), waiting: Vec::new(), free: Vec::new() }
    }

    pub fn poll(&mut self) -> Option<DiskRequest> {
        self.requests.pop_front()
    }

    /// Whose operation ended, if somebody still waits for it.
    pub fn done(&mut self, token: DiskToken) -> Option<(ConnId, IoId)> {
        let index = token.0 as usize;
        let entry = std::mem::replace(self.waiting.get_mut(index)?, Entry::Free);
        self.free.push(index);
        match entry {
            Entry::Waits(conn, id) => Some((conn, id)),
            Entry::Abandoned { .. } | Entry::Free => None,
        }
    }

    fn ask(&mut self, conn: ConnId, id: IoId, disk: DiskId, op: DiskOp) -> DiskToken {
        let index = self.free.pop().unwrap_or_else(|| {
            self.waiting.push(Entry::Free);
            self.waiting.len() - 1
        });
        self.waiting[index] = Entry::Waits(conn, id);
        let token = DiskToken(index as u64);
        self.requests.push_back(DiskRequest { token, disk, op });
        token
    }

    fn abandon(&mut self, token: DiskToken, ending: Option<Ending>) {
        if let Some(entry) = self.waiting.get_mut(token.0 as usize) {
            *entry = Entry::Abandoned { _ending: ending };
        }
    }
}

pub struct Operations {
    conn: ConnId,
    volumes: Rc<Volumes>,
    disks: Rc<RefCell<Disks>>,
    slots: Vec<Slot>,
    /// Operations that are done and made to wait, by the time when they may be told.
    delayed: BinaryHeap<Reverse<(Instant, u64, IoId)>>,
    delays: u64,
}

/// Where an operation stands, by its `IoId`.
#[derive(Debug)]
enum Slot {
    Idle,
    /// Data go straight to their place in memory.
    Place {
        volume: usize,
        offset: usize,
    },
    /// Data vanish.
    Discard {
        volume: usize,
    },
    /// Data are compared as they come; where they first differ.
    Compare {
        volume: usize,
        offset: usize,
        differs: Option<u32>,
    },
    /// Data are collected first.
    Stage {
        volume: usize,
        staged: Staged,
        buffer: Payload,
    },
    Disk {
        volume: usize,
        token: DiskToken,
        task: Box<DiskTask>,
        exclusive: bool,
    },
    /// Done, told later: entry of `delayed` with this number.
    Delayed {
        number: u64,
        result: Finished,
    },
}

/// What happens to staged data.
#[derive(Clone, Copy, Debug)]
enum Staged {
    Write { offset: u64, durable: bool },
    Compare { offset: u64 },
    CompareAndWrite { offset: u64, len: u32 },
    OrWrite { offset: u64, durable: bool },
    WriteSame { offset: u64, len: u64 },
}

impl Operations {
    pub fn new(conn: ConnId, volumes: Rc<Volumes>, disks: Rc<RefCell<Disks>>) -> Self {
        Self { conn, volumes, disks, slots: Vec::new(), delayed: BinaryHeap::new(), delays: 0 }
    }

    pub fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        self.volumes.geometry(unit)
    }

    /// Memory that holds zeros is as good as unmapped: that is what unmapped memory holds.
    pub fn allocation(&self, unit: UnitId, offset: u64) -> Option<Allocation> {
        let index = self.volumes.find(unit, offset, 0, false).ok()?;
        let left = self.volumes.geometry(unit)?.size_bytes - offset;
        match &self.volumes.volumes[index].store {
            Store::Memory(region) => Some(memory::allocation(region.as_ref(), offset, left.min(ALLOCATION_BYTES_MAX))),
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
        let Some(slot) = self.slots.get_mut(id as usize) else { return };
        match slot {
            Slot::Place { volume, offset: begin } => {
                if let Store::Memory(region) = &self.volumes.volumes[*volume].store {
                    region.copy_in(*begin + offset as usize, bytes);
                }
            }
            Slot::Compare { volume, offset: begin, differs } => {
                if let Store::Memory(region) = &self.volumes.volumes[*volume].store
                    && let Some(at) = memory::first_difference(region.as_ref(), *begin + offset as usize, bytes)
                {
                    let at = offset + at as u32;
                    *differs = Some(differs.map_or(at, |known| known.min(at)));
                }
            }
            Slot::Stage { buffer, .. } => buffer.copy_in(offset as usize, bytes),
            Slot::Idle | Slot::Discard { .. } | Slot::Disk { .. } | Slot::Delayed { .. } => {}
        }
    }

    pub fn finish(&mut self, now: Instant, id: IoId) -> Started {
        let Some(slot) = self.slots.get_mut(id as usize) else { return Started::Done(Err(UnitError::Aborted)) };
        match std::mem::replace(slot, Slot::Idle) {
            Slot::Place { volume, .. } | Slot::Discard { volume } => self.end(now, id, volume, Ok(None)),
            Slot::Compare { volume, differs, .. } => {
                self.end(now, id, volume, differs.map_or(Ok(None), |at| Err(UnitError::Miscompare(at))))
            }
            Slot::Stage { volume, staged, buffer } => match self.perform(now, id, volume, staged, buffer) {
                Ok(started) => started,
                Err(error) => self.end(now, id, volume, Err(error)),
            },
            Slot::Idle | Slot::Disk { .. } | Slot::Delayed { .. } => Started::Done(Err(UnitError::Aborted)),
        }
    }

    /// Forgets an operation. What a disk has under way of it keeps `ending`.
    pub fn abort(&mut self, id: IoId, ending: Option<Ending>) {
        if let Some(slot) = self.slots.get_mut(id as usize)
            && let Slot::Disk { token, volume, exclusive, .. } = std::mem::replace(slot, Slot::Idle)
        {
            self.disks.borrow_mut().abandon(token, ending);
            if exclusive {
                self.release(volume);
            }
        }
    }

    /// Gives up everything under way: the connection is gone.
    pub fn abort_all(&mut self) {
        for id in 0..self.slots.len() {
            self.abort(id as IoId, None);
        }
        self.delayed.clear();
    }

    /// A disk operation of `id` ended; its operation's result if that was its last.
    pub fn disk_done(&mut self, now: Instant, id: IoId, result: Result<u32, i32>) -> Option<Finished> {
        let Some(Slot::Disk { volume, token, task, exclusive }) = self.slots.get_mut(id as usize) else { return None };
        let (volume, exclusive) = (*volume, *exclusive);
        match task.done(result) {
            After::Next(op) => {
                let Media::Disk { disk, .. } = self.volumes.volumes[volume].spec.media else { return None };
                *token = self.disks.borrow_mut().ask(self.conn, id, disk, op);
                None
            }
            After::Done(result) => {
                if exclusive {
                    self.release(volume);
                }
                self.slots[id as usize] = Slot::Idle;
                match self.end(now, id, volume, result) {
                    Started::Done(result) => Some(result),
                    Started::NeedData | Started::Queued => None,
                }
            }
        }
    }

    /// When the next delayed operation may be told.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next operation whose delay is over.
    pub fn take_due(&mut self, now: Instant) -> Option<(IoId, Finished)> {
        while self.next_due().is_some_and(|at| at <= now) {
            let Reverse((_, due, id)) = self.delayed.pop()?;
            // An aborted operation leaves its entry behind.
            if let Some(slot) = self.slots.get_mut(id as usize)
                && matches!(slot, Slot::Delayed { number, .. } if *number == due)
                && let Slot::Delayed { result, .. } = std::mem::replace(slot, Slot::Idle)
            {
                return Some((id, result));
            }
        }
        None
    }

    // ------------------------------------------------------------------------------------------------------------- helpers

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
            UnitOp::Read { offset, len } | UnitOp::Compare { offset, len } => (*offset, u64::from(*len), false),
            UnitOp::Write { offset, len, .. }
            | UnitOp::OrWrite { offset, len, .. }
            | UnitOp::CompareAndWrite { offset, len } => (*offset, u64::from(*len), true),
            UnitOp::WriteZeroes { offset, len } | UnitOp::WriteSame { offset, len, .. } => (*offset, *len, true),
            UnitOp::Flush => (0, 0, false),
            UnitOp::Unmap { ranges } => {
                for (offset, len) in ranges {
                    self.volumes.find(unit, *offset, *len, true)?;
                }
                (0, 0, true)
            }
        };
        let index = self.volumes.find(unit, offset, len, writes)?;
        self.volumes.burn(index);
        let volumes = Rc::clone(&self.volumes);
        match &volumes.volumes[index].store {
            Store::Memory(region) => self.start_memory(now, id, index, region, op),
            Store::Null(zeros) => Ok(match op {
                UnitOp::Read { len, .. } if len <= MAX_IO_BYTES => {
                    let zeros = Payload::new(Rc::clone(zeros), 0, len as usize);
                    self.end(now, id, index, Ok(Some(zeros)))
                }
                UnitOp::Read { .. } => return Err(UnitError::OutOfRange),
                op if op.data_len() > 0 => self.hold(id, Slot::Discard { volume: index }),
                _ => self.end(now, id, index, Ok(None)),
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
            UnitOp::Read { offset, len } => {
                let payload = Payload::new(Rc::clone(region), offset as usize, len as usize);
                self.end(now, id, index, Ok(Some(payload)))
            }
            UnitOp::Write { len: 0, .. } | UnitOp::Flush => self.end(now, id, index, Ok(None)),
            UnitOp::Write { offset, .. } => self.hold(id, Slot::Place { volume: index, offset: offset as usize }),
            UnitOp::Compare { offset, .. } => {
                self.hold(id, Slot::Compare { volume: index, offset: offset as usize, differs: None })
            }
            UnitOp::WriteZeroes { offset, len } => {
                memory::write_zeroes(region.as_ref(), offset, len);
                self.end(now, id, index, Ok(None))
            }
            UnitOp::Unmap { ranges } => {
                for (offset, len) in ranges {
                    memory::write_zeroes(region.as_ref(), offset, len);
                }
                self.end(now, id, index, Ok(None))
            }
            UnitOp::CompareAndWrite { offset, len } => {
                self.stage(id, index, Staged::CompareAndWrite { offset, len }, 2 * len)?
            }
            UnitOp::OrWrite { offset, len, durable } => {
                self.stage(id, index, Staged::OrWrite { offset, durable }, len)?
            }
            UnitOp::WriteSame { offset, len, pattern_len } => {
                self.stage(id, index, Staged::WriteSame { offset, len }, pattern_len)?
            }
        })
    }

    fn start_disk(&mut self, now: Instant, id: IoId, index: usize, op: UnitOp) -> Result<Started, UnitError> {
        let block_size = self.volumes.volumes[index].disk_block_size();
        let begun = match op {
            UnitOp::Read { offset, len } => disk::read(&mut self.disks.borrow_mut().buffers, block_size, offset, len)?,
            UnitOp::Flush => disk::flush(),
            UnitOp::WriteZeroes { offset, len } => disk::write_zeroes(offset, len),
            UnitOp::Unmap { ranges } => match disk::unmap(ranges) {
                Some(begun) => begun,
                None => return Ok(self.end(now, id, index, Ok(None))),
            },
            UnitOp::Write { len: 0, .. } => return Ok(self.end(now, id, index, Ok(None))),
            UnitOp::Write { offset, len, durable } => {
                return self.stage(id, index, Staged::Write { offset, durable }, len);
            }
            UnitOp::Compare { offset, len } => return self.stage(id, index, Staged::Compare { offset }, len),
            UnitOp::CompareAndWrite { offset, len } => {
                return self.stage(id, index, Staged::CompareAndWrite { offset, len }, 2 * len);
            }
            UnitOp::OrWrite { offset, len, durable } => {
                return self.stage(id, index, Staged::OrWrite { offset, durable }, len);
            }
            UnitOp::WriteSame { offset, len, pattern_len } => {
                return self.stage(id, index, Staged::WriteSame { offset, len }, pattern_len);
            }
        };
        Ok(self.ask(id, index, begun, false))
    }

    /// All staged data are there.
    fn perform(
        &mut self,
        now: Instant,
        id: IoId,
        index: usize,
        staged: Staged,
        buffer: Payload,
    ) -> Result<Started, UnitError> {
        let volumes = Rc::clone(&self.volumes);
        if let Store::Memory(region) = &volumes.volumes[index].store {
            self.perform_in_memory(index, region.as_ref(), staged, &buffer)?;
            return Ok(self.end(now, id, index, Ok(None)));
        }
        let block_size = volumes.volumes[index].disk_block_size();
        let mut disks = self.disks.borrow_mut();
        let mut exclusive = false;
        let begun = match staged {
            Staged::Write { offset, durable } => disk::write(&mut disks.buffers, block_size, offset, buffer, durable)?,
            Staged::Compare { offset } => disk::compare(&mut disks.buffers, offset, buffer, None)?,
            Staged::WriteSame { offset, len } => disk::write_same(&mut disks.buffers, offset, len, &buffer)?,
            Staged::CompareAndWrite { offset, len } => {
                let (sent, replacement) = (buffer.slice(0, len as usize), buffer.slice(len as usize, len as usize));
                let begun = disk::compare(&mut disks.buffers, offset, sent, Some(replacement))?;
                self.acquire(index)?;
                exclusive = true;
                begun
            }
            Staged::OrWrite { offset, durable } => {
                let begun = disk::or_write(&mut disks.buffers, offset, buffer, durable)?;
                self.acquire(index)?;
                exclusive = true;
                begun
            }
        };
        drop(disks);
        Ok(self.ask(id, index, begun, exclusive))
    }

    fn perform_in_memory(
        &self,
        index: usize,
        region: &dyn iotax_proto::Region,
        staged: Staged,
        buffer: &Payload,
    ) -> Result<(), UnitError> {
        match staged {
            Staged::Write { offset, .. } => memory::copy_in(region, offset as usize, buffer),
            Staged::Compare { offset } => {
                if let Some(at) = memory::first_difference_of(region, offset as usize, buffer) {
                    return Err(UnitError::Miscompare(at as u32));
                }
            }
            Staged::CompareAndWrite { offset, len } => {
                let (sent, replacement) = (buffer.slice(0, len as usize), buffer.slice(len as usize, len as usize));
                self.acquire(index)?;
                let differs = memory::first_difference_of(region, offset as usize, &sent);
                if differs.is_none() {
                    memory::copy_in(region, offset as usize, &replacement);
                }
                self.release(index);
                if let Some(at) = differs {
                    return Err(UnitError::Miscompare(at as u32));
                }
            }
            Staged::OrWrite { offset, .. } => {
                self.acquire(index)?;
                memory::or_in(region, offset as usize, buffer);
                self.release(index);
            }
            Staged::WriteSame { offset, len } if memory::is_zero(buffer) => {
                memory::write_zeroes(region, offset, len);
            }
            Staged::WriteSame { offset, len } => {
                for at in (offset..offset + len).step_by(buffer.len()) {
                    memory::copy_in(region, at as usize, buffer);
                }
            }
        }
        Ok(())
    }

    /// Done, now or after the volume's delay.
    #[inline]
    fn end(&mut self, now: Instant, id: IoId, volume: usize, result: Finished) -> Started {
        let delay_ns = self.volumes.volumes[volume].spec.delay_ns;
        if delay_ns == 0 {
            return Started::Done(result);
        }
        self.delays += 1;
        let number = self.delays;
        self.delayed.push(Reverse((now + Duration::from_nanos(delay_ns), number, id)));
        *self.slot(id) = Slot::Delayed { number, result };
        Started::Queued
    }

    fn hold(&mut self, id: IoId, slot: Slot) -> Started {
        *self.slot(id) = slot;
        Started::NeedData
    }

    fn stage(&mut self, id: IoId, volume: usize, staged: Staged, len: u32) -> Result<Started, UnitError> {
        let buffer = self.disks.borrow_mut().buffers.take(len as usize).ok_or(UnitError::Busy)?;
        Ok(self.hold(id, Slot::Stage { volume, staged, buffer }))
    }

    fn ask(&mut self, id: IoId, volume: usize, (task, op): (DiskTask, DiskOp), exclusive: bool) -> Started {
        if let Media::Disk { disk, .. } = self.volumes.volumes[volume].spec.media {
            let token = self.disks.borrow_mut().ask(self.conn, id, disk, op);
            *self.slot(id) = Slot::Disk { volume, token, task: Box::new(task), exclusive };
        }
        Started::Queued
    }

    fn slot(&mut self, id: IoId) -> &mut Slot {
        let index = id as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || Slot::Idle);
        }
        &mut self.slots[index]
    }

    /// Only one compare-and-write or or-write works on a volume at a time; another is told to come again.
    fn acquire(&self, volume: usize) -> Result<(), UnitError> {
        if self.exclusive(volume).swap(true, Ordering::Acquire) { Err(UnitError::Busy) } else { Ok(()) }
    }

    fn release(&self, volume: usize) {
        self.exclusive(volume).store(false, Ordering::Release);
    }

    fn exclusive(&self, volume: usize) -> &AtomicBool {
        &self.volumes.volumes[volume].spec.exclusive
    }
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Operations({:?}, {} slots)", self.conn, self.slots.len())
    }
}
