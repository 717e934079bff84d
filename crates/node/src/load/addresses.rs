//! Chooses the offset of the next I/O.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::seeded::{Chance, SeededRng};

/// Position of a sequential stream that workers of any thread share: each takes the next block.
#[derive(Clone, Debug, Default)]
pub struct Cursor(Arc<AtomicU64>);

impl Cursor {
    fn next(&self, blocks: u64) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) % blocks
    }
}

/// Equal if both are the same stream.
impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The share of the working set that belongs to one worker, in blocks of the load's block size.
///
/// Workers have zones of their own, so that no two write the same block. All zones are equally large, so random I/O is
/// spread evenly over the whole working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Offset of the zone in the unit, bytes.
    pub offset: u64,
    pub blocks: u64,
}

impl Zone {
    /// The zone of worker `index` of `workers` in a working set of `blocks` that begins at `offset`.
    pub fn of(index: u32, workers: u32, offset: u64, blocks: u64, block_size: u64) -> Self {
        let edge = |index: u32| (u128::from(blocks) * u128::from(index) / u128::from(workers.max(1))) as u64;
        let (begin, end) = (edge(index), edge(index + 1));
        Self { offset: offset + begin * block_size, blocks: end - begin }
    }

    /// The zone from the start of `self` to the end of `last`, in blocks of this size.
    #[must_use]
    pub fn through(self, last: Self, block_size: u64) -> Self {
        Self { offset: self.offset, blocks: (last.offset - self.offset) / block_size + last.blocks }
    }
}

/// Chooses blocks of a zone that have no I/O under way: the result of a read of a block while it is written is
/// undefined, and so is the result of two writes at once.
#[derive(Debug)]
pub struct Addresses {
    zone: Zone,
    block_size: u64,
    randoms: Chance,
    random: SeededRng,
    next_sequential: u64,
    /// Replaces the worker's own position if the stream is shared.
    cursor: Option<Cursor>,
    busy: Busy,
}

impl Addresses {
    /// `zone` must have at least `outstanding` blocks.
    pub fn new(zone: Zone, block_size: u32, random_percent: f64, outstanding: u32, seed: u64, worker: u32) -> Self {
        assert!(zone.blocks >= u64::from(outstanding), "a zone of {} blocks for {outstanding} I/Os", zone.blocks);
        Self {
            zone,
            block_size: u64::from(block_size),
            randoms: Chance::percent(random_percent),
            random: SeededRng::new(seed, "addresses", u64::from(worker)),
            next_sequential: 0,
            cursor: None,
            busy: Busy::new(outstanding),
        }
    }

    /// Uses a stream that the worker shares with others.
    #[must_use]
    pub fn shared(self, cursor: Option<Cursor>) -> Self {
        Self { cursor, ..self }
    }

    /// Offset in the unit of the next I/O, bytes. The block is busy until `release`d.
    pub fn take(&mut self) -> u64 {
        let random = self.randoms.is_always() || (!self.randoms.is_never() && self.random.chance(self.randoms));
        if !random && let Some(cursor) = &self.cursor {
            let mut block = cursor.next(self.zone.blocks);
            while !self.busy.take(block) {
                block = cursor.next(self.zone.blocks);
            }
            return self.zone.offset + block * self.block_size;
        }
        let mut block = if random { self.random.below(self.zone.blocks) } else { self.next_sequential };
        while !self.busy.take(block) {
            block = self.after(block);
        }
        if !random {
            self.next_sequential = self.after(block);
        }
        self.zone.offset + block * self.block_size
    }

    pub fn release(&mut self, offset: u64) {
        self.busy.release((offset - self.zone.offset) / self.block_size);
    }

    fn after(&self, block: u64) -> u64 {
        if block + 1 == self.zone.blocks { 0 } else { block + 1 }
    }
}

/// Blocks with I/O under way, by block number modulo the table's size: a few percent of the idle blocks are skipped,
/// too.
#[derive(Debug)]
struct Busy {
    words: Vec<u64>,
    mask: u64,
}

impl Busy {
    const SPARSENESS: u32 = 64;

    fn new(outstanding: u32) -> Self {
        let bits = u64::from(outstanding.max(1) * Self::SPARSENESS).next_power_of_two();
        Self { words: vec![0; (bits / 64) as usize], mask: bits - 1 }
    }

    fn take(&mut self, block: u64) -> bool {
        let (word, bit) = self.place(block);
        let free = self.words[word] & bit == 0;
        self.words[word] |= bit;
        free
    }

    fn release(&mut self, block: u64) {
        let (word, bit) = self.place(block);
        self.words[word] &= !bit;
    }

    fn place(&self, block: u64) -> (usize, u64) {
        let at = block & self.mask;
        ((at / 64) as usize, 1 << (at % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    #[test]
    fn zones_tile_the_working_set() {
        for workers in 1..9 {
            let zones: Vec<_> = (0..workers).map(|index| Zone::of(index, workers, 4096, 1001, 512)).collect();
            let mut end = 4096;
            for zone in &zones {
                assert_eq!(zone.offset, end);
                end += zone.blocks * 512;
            }
            assert_eq!(end, 4096 + 1001 * 512);
        }
    }

    #[test]
    fn no_block_is_taken_twice_at_once() {
        for (blocks, random_percent) in [(8, 100.0), (9, 0.0), (1000, 50.0), (100_000, 100.0)] {
            let mut addresses = Addresses::new(Zone { offset: 512, blocks }, 512, random_percent, 8, 3, 1);
            let mut under_way = VecDeque::new();
            for _ in 0..20_000 {
                let offset = addresses.take();
                assert!(!under_way.contains(&offset) && offset >= 512 && offset < 512 + blocks * 512);
                under_way.push_back(offset);
                if under_way.len() == 8 {
                    addresses.release(under_way.pop_front().expect("eight"));
                }
            }
        }
    }

    #[test]
    fn sequential_covers_the_zone_in_order() {
        let mut addresses = Addresses::new(Zone { offset: 0, blocks: 100 }, 4096, 0.0, 4, 1, 0);
        for round in 0..3 {
            for block in 0..100 {
                let offset = addresses.take();
                assert_eq!(offset, block * 4096, "round {round}");
                addresses.release(offset);
            }
        }
    }

    #[test]
    fn workers_of_a_shared_stream_go_through_it_once_together() {
        let cursor = Cursor::default();
        let worker = |index| {
            let zone = Zone { offset: 0, blocks: 100 };
            Addresses::new(zone, 4096, 0.0, 4, 1, index).shared(Some(cursor.clone()))
        };
        let mut workers = [worker(0), worker(1), worker(2)];
        for block in 0..200 {
            let of = &mut workers[[0, 2, 2, 1, 0][block as usize % 5]];
            let offset = of.take();
            assert_eq!(offset, block % 100 * 4096);
            of.release(offset);
        }
    }

    #[test]
    fn random_reaches_every_block_evenly() {
        let mut addresses = Addresses::new(Zone { offset: 0, blocks: 64 }, 512, 100.0, 1, 9, 0);
        let mut counts = [0_u32; 64];
        for _ in 0..64_000 {
            let offset = addresses.take();
            counts[(offset / 512) as usize] += 1;
            addresses.release(offset);
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn workers_draw_differently() {
        let draw = |worker| {
            let mut addresses = Addresses::new(Zone { offset: 0, blocks: 1 << 40 }, 512, 100.0, 64, 1, worker);
            (0..64).map(|_| addresses.take()).collect::<HashSet<_>>()
        };
        assert_ne!(draw(0), draw(1));
        assert_eq!(draw(0), draw(0));
    }
}
