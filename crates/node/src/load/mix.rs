//! Read or write.

use super::streams::Stream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

#[derive(Debug)]
pub struct Mix {
    read_percent: u8,
    random: Stream,
}

impl Mix {
    pub fn new(read_percent: u8, seed: u64, worker: u32) -> Self {
        Self { read_percent, random: Stream::new(seed, "mix", u64::from(worker)) }
    }

    pub fn draw(&mut self) -> Direction {
        let read = match self.read_percent {
            0 => false,
            100.. => true,
            percent => self.random.percent(percent),
        };
        if read { Direction::Read } else { Direction::Write }
    }
}
