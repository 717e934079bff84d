//! The streams of a load: the I/Os of each, and which workers run it.

use super::addresses::Cursor;
use crate::{
    failure::Failure,
    pattern::BLOCK_BYTES,
    seeded::{Chance, SeededRng},
};

/// Maximum number of streams of one load: each takes up to 2 MiB of histograms in every thread.
const STREAMS_MAX: usize = 16;

/// More than any target accepts at once. A load has memory for each outstanding I/O.
const BLOCK_SIZE_MAX_BYTES: u32 = 16 << 20;

/// One stream of a load: Iometer calls it an access specification, vdbench a workload definition, fio a job.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamConfig {
    pub name: String,
    /// Its weight among the load's streams: it determines its workers and its part of an open loop's arrivals.
    pub share: f64,
    pub block_size_bytes: u32,
    pub read_percent: f64,
    pub random_percent: f64,
    /// The shared position of a sequential stream that its workers share.
    pub shared: Option<Cursor>,
}

impl StreamConfig {
    fn check(&self, field: &str) -> Result<(), Failure> {
        let whole_blocks = self.block_size_bytes > 0 && (self.block_size_bytes as usize).is_multiple_of(BLOCK_BYTES);
        for (holds, message, name) in [
            (whole_blocks, "must be a multiple of 512", "block_size_bytes"),
            (self.block_size_bytes <= BLOCK_SIZE_MAX_BYTES, "must be at most 16777216", "block_size_bytes"),
            ((0.0..=100.0).contains(&self.read_percent), "must be 0 to 100", "read_percent"),
            ((0.0..=100.0).contains(&self.random_percent), "must be 0 to 100", "random_percent"),
            (self.shared.is_none() || self.random_percent <= 0.0, "must be 0 where it is shared", "random_percent"),
            (self.share > 0.0 && self.share.is_finite(), "must be more than 0", "share"),
        ] {
            if !holds {
                return Err(Failure::usage(message, format!("{field}{name}")));
            }
        }
        Ok(())
    }
}

/// Checks the streams of a load; `listed` if the document lists them one by one.
pub(super) fn check(streams: &[StreamConfig], listed: bool) -> Result<(), Failure> {
    if streams.len() > STREAMS_MAX {
        return Err(Failure::usage(format!("must be at most {STREAMS_MAX}"), "streams"));
    }
    for (index, stream) in streams.iter().enumerate() {
        stream.check(&if listed { format!("streams[{index}].") } else { String::new() })?;
    }
    Ok(())
}

/// Assigns each worker a stream. Every stream has at least one worker; the rest are distributed by share. Streams take
/// turns, so that each thread, which drives neighbouring workers, drives all of them.
#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // workers are far below 2^52
pub(super) fn assign(streams: &[StreamConfig], workers: u32) -> Result<Vec<usize>, Failure> {
    let spare = (workers as usize).checked_sub(streams.len()).ok_or_else(|| {
        let message = format!("{} streams need a worker each; there are {workers}", streams.len());
        Failure::usage(message, "workers")
    })?;
    let whole: f64 = streams.iter().map(|stream| stream.share).sum();
    let mut counts = vec![1_usize; streams.len()];
    // The next worker goes to the stream that lacks most, so that the counts are as close to the shares as whole
    // workers can be.
    for _ in 0..spare {
        let lack = |index: usize| f64::from(workers) * streams[index].share / whole - counts[index] as f64;
        let next = (0..streams.len()).fold(0, |most, index| if lack(index) > lack(most) { index } else { most });
        counts[next] += 1;
    }
    let mut assigned = vec![0_usize; streams.len()];
    let turns = (0..workers).map(|_| {
        let turn = |index: usize| (assigned[index] as f64 + 0.5) / counts[index] as f64;
        let next = (0..streams.len()).fold(0, |least, index| if turn(index) < turn(least) { index } else { least });
        assigned[next] += 1;
        next
    });
    Ok(turns.collect())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
    /// Of earlier writes. Not an I/O of the mix.
    Flush,
}

#[derive(Debug)]
pub(super) struct Mix {
    reads: Chance,
    random: SeededRng,
    /// Number of writes before a flush; `u64::MAX`: no flushes.
    flush_after: u64,
    /// Completed writes for which no flush has been drawn yet.
    unflushed: u64,
}

impl Mix {
    pub(super) fn new(read_percent: f64, seed: u64, worker: u32) -> Self {
        let random = SeededRng::new(seed, "mix", u64::from(worker));
        Self { reads: Chance::percent(read_percent), random, flush_after: u64::MAX, unflushed: 0 }
    }

    /// Adds a flush after every `after` writes; 0: none.
    #[must_use]
    pub(super) fn flushing(self, after: u32) -> Self {
        Self { flush_after: if after == 0 { u64::MAX } else { u64::from(after) }, ..self }
    }

    /// A flush if one is due; otherwise a read or a write at random.
    pub(super) fn draw(&mut self) -> Direction {
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
    pub(super) fn written(&mut self) {
        self.unflushed += 1;
    }

    /// Forgets the writes so far: they need no flush.
    pub(super) fn forget(&mut self) {
        self.unflushed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(shares: &[f64]) -> Vec<StreamConfig> {
        let stream = |share: &f64| StreamConfig {
            name: String::new(),
            share: *share,
            block_size_bytes: 4096,
            read_percent: 50.0,
            random_percent: 100.0,
            shared: None,
        };
        shares.iter().map(stream).collect()
    }

    #[test]
    fn workers_are_dealt_by_share_and_streams_take_turns() {
        assert_eq!(assign(&streams(&[1.0]), 3).unwrap(), [0, 0, 0]);
        assert_eq!(assign(&streams(&[50.0, 50.0]), 4).unwrap(), [0, 1, 0, 1]);
        assert_eq!(assign(&streams(&[3.0, 1.0]), 4).unwrap(), [0, 0, 1, 0]);
    }

    #[test]
    fn every_stream_has_a_worker_or_the_load_is_refused() {
        let assigned = assign(&streams(&[98.0, 1.0, 1.0]), 5).unwrap();
        assert_eq!([0, 1, 2].map(|stream| assigned.iter().filter(|each| **each == stream).count()), [3, 1, 1]);
        assert_eq!(assign(&streams(&[1.0, 1.0]), 1).unwrap_err().place, "workers");
    }
}
