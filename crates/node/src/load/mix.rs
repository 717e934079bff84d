//! Chooses reads or writes, and inserts flushes after writes.

use crate::seeded::{Chance, SeededRng};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
    /// Of earlier writes. Not an I/O of the mix.
    Flush,
}

#[derive(Debug)]
pub struct Mix {
    reads: Chance,
    random: SeededRng,
    /// Number of writes before a flush; `u64::MAX`: no flushes.
    flush_after: u64,
    /// Completed writes for which no flush has been drawn yet.
    unflushed: u64,
}

impl Mix {
    pub fn new(read_percent: f64, seed: u64, worker: u32) -> Self {
        let random = SeededRng::new(seed, "mix", u64::from(worker));
        Self { reads: Chance::percent(read_percent), random, flush_after: u64::MAX, unflushed: 0 }
    }

    /// Adds a flush after every `after` writes; 0: none.
    #[must_use]
    pub fn flushing(self, after: u32) -> Self {
        Self { flush_after: if after == 0 { u64::MAX } else { u64::from(after) }, ..self }
    }

    /// A flush if one is due; otherwise a read or a write at random.
    pub fn draw(&mut self) -> Direction {
        if self.reads.is_always() {
            return Direction::Read;
        }
        if self.unflushed >= self.flush_after {
            self.unflushed -= self.flush_after;
            Direction::Flush
        } else if self.reads.is_never() || !self.random.chance(self.reads) {
            Direction::Write
        } else {
            Direction::Read
        }
    }

    /// A write completed.
    pub fn written(&mut self) {
        self.unflushed += 1;
    }

    /// Forgets the writes so far: they need no flush.
    pub fn forget(&mut self) {
        self.unflushed = 0;
    }
}
