//! Writes the pattern over the working set, in order, as writer 0, and makes it durable.

use crate::pattern::{Pool, Stamp};
use std::rc::Rc;

use iotax_proto::{Io, Payload, Tag};

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

    /// Returns one flush, when all writes are done.
    fn flush(&mut self) -> Option<Io> {
        if self.flush == Flush::UnderWay || self.under_way.iter().any(|bytes| *bytes > 0) {
            return None;
        }
        self.flush = Flush::UnderWay;
        Some(Io::Flush)
    }
}
