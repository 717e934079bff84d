//! Read or write; flushes follow writes.

use crate::seeded::{Chance, SeededRng};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
    /// Of what was written before. No I/O of the mix.
    Flush,
}

#[derive(Debug)]
pub struct Mix {
    reads: Chance,
    random: SeededRng,
}

impl Mix {
    pub fn new(read_percent: f64, seed: u64, worker: u32) -> Self {
        Self { reads: Chance::percent(read_percent), random: SeededRng::new(seed, "mix", u64::from(worker)) }
    }

    pub fn draw(&mut self) -> Direction {
        let read = self.reads.is_always() || (!self.reads.is_never() && self.random.chance(self.reads));
        if read { Direction::Read } else { Direction::Write }
    }
}
