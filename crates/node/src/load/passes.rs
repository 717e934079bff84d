//! Tasks that pass over a unit once: a check reads it and determines whose data it holds, a fill writes the pattern as
//! writer 0 and makes it durable, and after a run with `read_back` every block whose write was acknowledged is read.

use std::rc::Rc;

use iotax_proto::{Io, IoError, Payload, Tag};

use super::{
    ledger::Wrong,
    run::RunTask,
    verify::{Content, classify},
};
use crate::pattern::{Pool, Stamp};

#[derive(Debug)]
pub(super) struct ScanTask {
    pool: Rc<Pool>,
    next: u64,
    end: u64,
    io_bytes: u32,
    slots: Vec<ScanRead>,
    pub(super) scanned_bytes: u64,
    pub(super) total_bytes: u64,
    content: Content,
}

#[derive(Debug, Default)]
struct ScanRead {
    offset: u64,
    len: usize,
    bytes: Vec<u8>,
}

impl ScanTask {
    pub(super) fn new(pool: Rc<Pool>, end: u64, io_bytes: u32, outstanding: u32) -> Self {
        let slots =
            (0..outstanding).map(|_| ScanRead { bytes: vec![0; io_bytes as usize], ..ScanRead::default() }).collect();
        Self { pool, next: 0, end, io_bytes, slots, scanned_bytes: 0, total_bytes: end, content: Content::Zeros }
    }

    pub(super) fn next(&mut self, tag: Tag) -> Option<Io> {
        if self.is_over() {
            return None;
        }
        let len = u64::from(self.io_bytes).min(self.end - self.next) as u32;
        let slot = &mut self.slots[tag as usize];
        slot.offset = self.next;
        slot.len = len as usize;
        self.next += u64::from(len);
        Some(Io::Read { offset: slot.offset, len })
    }

    pub(super) fn data(&mut self, tag: Tag, at: u32, bytes: &[u8]) {
        let slot = &mut self.slots[tag as usize];
        let begin = at as usize;
        if let Some(to) = begin.checked_add(bytes.len()).and_then(|end| slot.bytes.get_mut(begin..end)) {
            to.copy_from_slice(bytes);
        }
    }

    pub(super) fn complete(&mut self, tag: Tag) {
        let slot = &self.slots[tag as usize];
        let found = classify(&self.pool, &slot.bytes[..slot.len], slot.offset);
        self.scanned_bytes += slot.len as u64;
        self.content = match (&self.content, found) {
            (Content::Foreign { at, .. }, Content::Foreign { at: found, what }) if found < *at => {
                Content::Foreign { at: found, what }
            }
            (known, found) => known.clone().and(found),
        };
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    /// Whether everything was asked for that is needed.
    pub(super) fn is_over(&self) -> bool {
        self.next >= self.end || matches!(self.content, Content::Foreign { .. })
    }
}

#[derive(Debug)]
pub(super) struct FillTask {
    pool: Rc<Pool>,
    run: u64,
    next: u64,
    end: u64,
    buffers: Vec<Payload>,
    /// Bytes under way, by tag.
    under_way: Vec<u64>,
    staging: Vec<u8>,
    pub(super) done_bytes: u64,
    pub(super) total_bytes: u64,
    flush: Flush,
}

#[derive(Debug, PartialEq, Eq)]
enum Flush {
    Waiting,
    UnderWay,
}

impl FillTask {
    pub(super) fn new(pool: Rc<Pool>, run: u64, begin: u64, end: u64, buffers: Vec<Payload>) -> Self {
        let io_bytes = buffers.first().map_or(0, Payload::len);
        let under_way = vec![0; buffers.len()];
        let staging = vec![0; io_bytes];
        let total_bytes = end.saturating_sub(begin);
        let flush = Flush::Waiting;
        Self { pool, run, next: begin, end, buffers, under_way, staging, done_bytes: 0, total_bytes, flush }
    }

    pub(super) fn next(&mut self, tag: Tag) -> Option<Io> {
        if self.next >= self.end {
            return self.flush();
        }
        let len = (self.staging.len() as u64).min(self.end - self.next);
        let offset = self.next;
        let bytes = &mut self.staging[..len as usize];
        self.pool.fill(bytes, offset, Stamp { run: self.run, writer: 0, sequence: 0 });
        let buffer = &self.buffers[tag as usize];
        buffer.copy_in(0, bytes);
        self.next += len;
        self.under_way[tag as usize] = len;
        Some(Io::Write { offset, data: buffer.slice(0, len as usize), durable: false })
    }

    pub(super) fn complete(&mut self, tag: Tag) {
        self.done_bytes += std::mem::take(&mut self.under_way[tag as usize]);
    }

    /// Whether the flush, which comes last, was asked for.
    pub(super) fn is_over(&self) -> bool {
        self.flush == Flush::UnderWay
    }

    /// Returns one flush, when all writes are done.
    fn flush(&mut self) -> Option<Io> {
        if self.flush == Flush::UnderWay || self.under_way.iter().any(|bytes| *bytes > 0) {
            return None;
        }
        self.flush = Flush::UnderWay;
        Some(Io::Flush)
    }
}

#[derive(Debug)]
pub(super) struct ReadBackTask {
    run: Box<RunTask>,
    /// Byte in the unit from which to look for the next written block; none: all are found.
    next: Option<u64>,
    /// Blocks read so far, in the load's own size.
    pub(super) done: u64,
}

impl ReadBackTask {
    pub(super) fn new(run: Box<RunTask>) -> Self {
        Self { next: Some(0), run, done: 0 }
    }

    pub(super) fn next(&mut self, tag: Tag) -> Option<Io> {
        let found = self.next.and_then(|from| self.run.read_back(tag, from));
        self.next = found.as_ref().map(|(_, after)| *after);
        Some(found?.0)
    }

    /// Whether every block was asked for.
    pub(super) fn is_over(&self) -> bool {
        self.next.is_none()
    }

    pub(super) fn data(&mut self, tag: Tag, at: u32, bytes: &[u8]) {
        self.run.data(tag, at, bytes);
    }

    pub(super) fn begin_again(&mut self, tag: Tag) {
        self.run.begin_again(tag);
    }

    /// The first wrong block, if there is one.
    pub(super) fn complete(&mut self, tag: Tag, result: Result<(), IoError>) -> Result<(), Fault> {
        let offset = self.run.has_read_back(tag);
        result.map_err(|error| Fault::Failed(error, offset))?;
        self.done += 1;
        self.run.wrong.clone().map_or(Ok(()), |wrong| Err(Fault::Wrong(wrong)))
    }

    /// The run, whose count of blocks is then complete.
    pub(super) fn into_run(self) -> Box<RunTask> {
        self.run
    }
}

#[derive(Debug)]
pub(super) enum Fault {
    Failed(IoError, u64),
    Wrong(Wrong),
}
