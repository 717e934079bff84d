//! Writes pages back for the clients: checkpoints, spread over time, and pages that the clock sweep reaches next.

use std::time::Duration;

use iotax_proto::{Instant, Io, IoError, Payload, Tag};

use super::{Database, Fault, WRITER_BUFFERS, client::Wait, page_buffers::Take};

/// Share of the time between checkpoints over which one's pages are written (PostgreSQL's
/// `checkpoint_completion_target`).
const SPREAD: f64 = 0.9;

#[derive(Debug)]
pub(super) struct Writer {
    period: Duration,
    slots: Vec<Slot>,
    /// Number of checkpoints since the database was created, plus 1; identifies the first change of a page since a
    /// checkpoint.
    number: u32,
    checkpoint: Option<Checkpoint>,
    next_at: Instant,
}

#[derive(Debug)]
struct Slot {
    buffer: Payload,
    /// `None`: the checkpoint's flush.
    writes: Option<Write>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    page: u64,
    sequence: u64,
    of_checkpoint: bool,
}

#[derive(Debug)]
struct Checkpoint {
    began_at: Instant,
    pages: Vec<u32>,
    at: usize,
    /// Number of its page writes under way.
    under_way: u32,
    /// The change of its next page is not durable, or the page is under way.
    is_held: bool,
    flushing: bool,
}

impl Writer {
    pub(super) fn new(period: Duration) -> Self {
        Self { period, slots: Vec::new(), number: 1, checkpoint: None, next_at: Instant(0) }
    }

    pub(super) fn give(&mut self, buffers: Vec<Payload>) {
        self.slots = buffers.into_iter().map(|buffer| Slot { buffer, writes: None }).collect();
    }

    /// The first checkpoint comes one period after `at`.
    pub(super) fn begin(&mut self, at: Instant) {
        self.checkpoint = None;
        self.next_at = at + self.period;
    }

    pub(super) fn checkpoint(&self) -> u32 {
        self.number
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        match &self.checkpoint {
            None => Some(self.next_at),
            Some(checkpoint) if checkpoint.is_held => None,
            Some(checkpoint) => checkpoint.due(checkpoint.at, self.period),
        }
    }
}

impl Checkpoint {
    /// When its page number `at` is to be written; `None` after the last.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // pages of a database, nanoseconds of a period
    fn due(&self, at: usize, period: Duration) -> Option<Instant> {
        let part = at as f64 / self.pages.len() as f64;
        (at < self.pages.len()).then(|| self.began_at + period.mul_f64(SPREAD * part))
    }
}

impl Database {
    /// The writer's next I/O, if one is due.
    pub(super) fn write_back(&mut self, now: Instant, tag: Tag) -> Option<Io> {
        if self.writer.checkpoint.is_none() && now >= self.writer.next_at {
            self.writer.number += 1;
            let pages = self.buffers.dirty();
            let checkpoint = Checkpoint { began_at: now, pages, at: 0, under_way: 0, is_held: false, flushing: false };
            self.writer.checkpoint = Some(checkpoint);
        }
        if let Some(page) = self.due_page(now) {
            return Some(self.write_page(tag, page, true));
        }
        if self.may_flush() {
            return Some(self.flush_checkpoint(tag));
        }
        let page = self.buffers.soon_to_go(self.log.flushed())?;
        let begun = self.buffers.take(page, self.log.flushed()) == Take::Begun;
        begun.then(|| self.write_page(tag, page, false))
    }

    fn may_flush(&self) -> bool {
        self.writer.checkpoint.as_ref().is_some_and(|checkpoint| {
            checkpoint.at == checkpoint.pages.len() && checkpoint.under_way == 0 && !checkpoint.flushing
        })
    }

    fn flush_checkpoint(&mut self, tag: Tag) -> Io {
        if let Some(checkpoint) = &mut self.writer.checkpoint {
            checkpoint.flushing = true;
        }
        self.writer.slots[tag as usize].writes = None;
        Io::Flush
    }

    /// The checkpoint's next page, if its time has come.
    fn due_page(&mut self, now: Instant) -> Option<u64> {
        let checkpoint = self.writer.checkpoint.as_mut()?;
        checkpoint.is_held = false;
        while checkpoint.due(checkpoint.at, self.writer.period)? <= now {
            let page = u64::from(checkpoint.pages[checkpoint.at]);
            match self.buffers.take(page, self.log.flushed()) {
                Take::NotYet => {
                    checkpoint.is_held = true;
                    return None;
                }
                Take::Begun => {
                    checkpoint.at += 1;
                    checkpoint.under_way += 1;
                    return Some(page);
                }
                Take::Needless => checkpoint.at += 1,
            }
        }
        None
    }

    fn write_page(&mut self, tag: Tag, page: u64, of_checkpoint: bool) -> Io {
        let offset = self.offset(page);
        let data = self.writer.slots[tag as usize].buffer.slice(0, self.page_bytes as usize);
        let sequence = self.stamp(&data, WRITER_BUFFERS + u64::from(tag), offset);
        self.writer.slots[tag as usize].writes = Some(Write { page, sequence, of_checkpoint });
        Io::Write { offset, data, durable: false }
    }

    pub(super) fn wrote_back(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>) -> Result<(), Fault> {
        let (counts, page_bytes) = (self.in_window(now), u64::from(self.page_bytes));
        match (self.writer.slots[tag as usize].writes.take(), result) {
            (Some(write), Err(error)) => Err(Fault::Failed(error, Some(self.offset(write.page)))),
            (Some(Write { page, sequence, of_checkpoint }), Ok(())) => {
                if let Some(checkpoint) = self.writer.checkpoint.as_mut().filter(|_| of_checkpoint) {
                    checkpoint.under_way -= 1;
                }
                self.ledger.written(self.offset(page), sequence);
                self.buffers.loaded(page);
                self.counts.writes += u64::from(counts);
                self.counts.write_bytes += if counts { page_bytes } else { 0 };
                self.wake_waiting(Wait::Frame);
                Ok(())
            }
            // A target without a write cache may not have a flush command.
            (None, Ok(()) | Err(IoError::Unsupported)) => {
                self.counts.flushes += u64::from(counts);
                self.counts.checkpoints += u64::from(counts);
                if let Some(checkpoint) = self.writer.checkpoint.take() {
                    self.writer.next_at = (checkpoint.began_at + self.writer.period).max(now);
                }
                Ok(())
            }
            (None, Err(error)) => Err(Fault::Failed(error, None)),
        }
    }
}
