//! A disk with a volatile write cache: after a crash, a random selection of the sectors of unflushed writes survives.

use std::{collections::BTreeMap, time::Duration};

use iotax_node::{
    DiskOp, DiskToken,
    seeded::SeededRng,
    volume::{Access, MediaModel, MediaQueue, Shape},
};
use iotax_proto::Instant;

pub const SECTOR: usize = 512;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// How a disk behaves. Chances are per 1000 operations.
#[derive(Clone, Debug)]
pub struct Media {
    /// How long its operations take.
    pub model: MediaModel,
    /// Reads, writes and flushes that fail. A failed write may have changed any of its sectors.
    pub errors: u64,
    /// Writes that fail because there is no space.
    pub full: u64,
    /// There is no volatile cache.
    pub write_through: bool,
}

impl Default for Media {
    /// Executes all operations concurrently, in 20 to 120 µs each.
    fn default() -> Self {
        let model = MediaModel {
            service: Duration::from_micros(20),
            spread: Duration::from_micros(100),
            shape: Shape::Even,
            slow_chance: 0,
            slow: Duration::ZERO,
            servers: 0,
            spindles: None,
            collecting: None,
        };
        Self { model, errors: 0, full: 0, write_through: false }
    }
}

#[derive(Debug)]
pub struct Disk {
    pub media: Media,
    random: SeededRng,
    /// The contents of the medium.
    durable: Vec<u8>,
    /// The contents that reads return.
    current: Vec<u8>,
    /// Changes that are only in the cache, oldest first.
    unflushed: Vec<Change>,
    changes: u64,
    /// Operations under way.
    pending: BTreeMap<u64, Pending>,
    begun: u64,
    queue: MediaQueue,
    /// Errors returned so far, of each kind.
    pub errors_given: u64,
    pub full_given: u64,
}

#[derive(Debug)]
struct Change {
    number: u64,
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Pending {
    token: DiskToken,
    op: DiskOp,
    fails: Option<i32>,
    /// Number of changes before it began, which is what a flush makes durable.
    changes: u64,
}

impl Disk {
    pub fn new(size_bytes: usize, media: Media, seed: u64) -> Self {
        Self {
            queue: MediaQueue::new(&media.model),
            media,
            random: SeededRng::new(seed, "disk", 0),
            durable: vec![0; size_bytes],
            current: vec![0; size_bytes],
            unflushed: Vec::new(),
            changes: 0,
            pending: BTreeMap::new(),
            begun: 0,
            errors_given: 0,
            full_given: 0,
        }
    }

    /// Its initial contents.
    pub fn image_mut(&mut self) -> &mut [u8] {
        &mut self.current
    }

    /// Accepts an operation. Returns its number, and how long it takes, including its wait.
    pub(crate) fn begin(&mut self, now: Instant, token: DiskToken, op: DiskOp) -> (u64, Duration) {
        let writes = !matches!(op, DiskOp::Read { .. } | DiskOp::Sync);
        let fails = if self.random.below(1000) < self.media.errors {
            Some(EIO)
        } else if writes && self.random.below(1000) < self.media.full {
            Some(ENOSPC)
        } else {
            None
        };
        let takes = self.queue.take(&self.media.model, now, access(&op), &mut self.random);
        self.begun += 1;
        self.pending.insert(self.begun, Pending { token, op, fails, changes: self.changes });
        (self.begun, takes)
    }

    /// Busy time of all its servers together, including work not done yet.
    pub fn busy_ns(&self) -> u64 {
        self.queue.busy_ns()
    }

    /// The maximum time of an operation, without its wait.
    pub fn longest(&self) -> Duration {
        let model = &self.media.model;
        model.service + model.spread + model.slow
    }

    /// Ends an operation. Returns its token and its result.
    pub(crate) fn end(&mut self, number: u64) -> Option<(DiskToken, Result<u32, i32>)> {
        let Pending { token, op, fails, changes } = self.pending.remove(&number)?;
        if let Some(errno) = fails {
            if errno == ENOSPC {
                self.full_given += 1;
            } else {
                self.errors_given += 1;
                self.change_some(&op);
            }
            return Some((token, Err(errno)));
        }
        let len = self.current.len();
        let result = match op {
            DiskOp::Read { offset, into } => {
                let begin = (offset as usize).min(len);
                let moved = into.len().min(len - begin);
                into.copy_in(0, &self.current[begin..begin + moved]);
                Ok(moved as u32)
            }
            DiskOp::Write { offset, from, durable } => {
                let moved = from.len() as u32;
                self.change(offset as usize, from.to_vec(), durable).map(|()| moved)
            }
            DiskOp::WriteZeroes { offset, len } | DiskOp::Unmap { offset, len } => {
                self.change(offset as usize, vec![0; len as usize], false).map(|()| 0)
            }
            DiskOp::Sync => {
                self.flush(changes);
                Ok(0)
            }
            // A simulated disk has space for all of itself.
            DiskOp::Allocate { .. } => Ok(0),
        };
        Some((token, result))
    }

    /// Lets two reads under way each complete with the other's data: a canary.
    pub(crate) fn swap_reads(&mut self, number: u64) {
        let is_read = |pending: &Pending| matches!(pending.op, DiskOp::Read { .. });
        let Some(one) = self.pending.get(&number).filter(|pending| is_read(pending)).map(|pending| pending.token)
        else {
            return;
        };
        let other = self.pending.iter_mut().find(|(other, pending)| **other != number && is_read(pending));
        if let Some((_, other)) = other {
            let token = std::mem::replace(&mut other.token, one);
            if let Some(pending) = self.pending.get_mut(&number) {
                pending.token = token;
            }
        }
    }

    /// The server behind the disk crashes with its operations under way, each of which may be done in part. With a
    /// power loss, random sectors of the cache and of these operations reach the medium.
    pub fn crash(&mut self, power: bool) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            self.change_some(&pending.op);
        }
        if !power {
            return;
        }
        // Either all sectors, none, or each with a certain chance.
        let kept = [0, 1000, 500, 900, 100][self.random.below(5) as usize];
        for change in std::mem::take(&mut self.unflushed) {
            for (index, sector) in change.bytes.chunks(SECTOR).enumerate() {
                if self.random.below(1000) < kept {
                    put(&mut self.durable, change.offset + index * SECTOR, sector);
                }
            }
        }
        self.current.clone_from(&self.durable);
    }

    /// Changes a random selection of the sectors that an operation would change.
    fn change_some(&mut self, op: &DiskOp) {
        let (offset, bytes) = match op {
            DiskOp::Write { offset, from, .. } => (*offset, from.to_vec()),
            DiskOp::WriteZeroes { offset, len } | DiskOp::Unmap { offset, len } => (*offset, vec![0; *len as usize]),
            DiskOp::Read { .. } | DiskOp::Sync | DiskOp::Allocate { .. } => return,
        };
        for (index, sector) in bytes.chunks(SECTOR).enumerate() {
            if self.random.below(2) == 0 {
                let _ = self.change(offset as usize + index * SECTOR, sector.to_vec(), false);
            }
        }
    }

    fn change(&mut self, offset: usize, bytes: Vec<u8>, durable: bool) -> Result<(), i32> {
        if offset.checked_add(bytes.len()).is_none_or(|end| end > self.current.len()) {
            return Err(EIO);
        }
        put(&mut self.current, offset, &bytes);
        if self.media.write_through {
            put(&mut self.durable, offset, &bytes);
            return Ok(());
        }
        if durable {
            // Older cached data of these sectors must not overwrite it later.
            for old in &mut self.unflushed {
                let (from, to) = (offset.max(old.offset), (offset + bytes.len()).min(old.offset + old.bytes.len()));
                if from < to {
                    let (into, of) = (from - old.offset..to - old.offset, from - offset..to - offset);
                    old.bytes[into].copy_from_slice(&bytes[of]);
                }
            }
            put(&mut self.durable, offset, &bytes);
        } else {
            self.changes += 1;
            self.unflushed.push(Change { number: self.changes, offset, bytes });
        }
        Ok(())
    }

    /// Writes the cache's changes up to a number to the medium.
    fn flush(&mut self, up_to: u64) {
        let left = self.unflushed.iter().position(|change| change.number > up_to).unwrap_or(self.unflushed.len());
        for change in self.unflushed.drain(..left) {
            put(&mut self.durable, change.offset, &change.bytes);
        }
    }
}

fn access(op: &DiskOp) -> Access {
    match op {
        DiskOp::Read { offset, .. } => Access::Read(*offset),
        DiskOp::Write { offset, from, .. } => Access::Write(*offset, from.len() as u64),
        DiskOp::WriteZeroes { offset, len } | DiskOp::Unmap { offset, len } => Access::Write(*offset, *len),
        DiskOp::Sync | DiskOp::Allocate { .. } => Access::Flush,
    }
}

fn put(image: &mut [u8], offset: usize, bytes: &[u8]) {
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use iotax_proto::Payload;

    use super::*;

    fn write(offset: u64, bytes: &[u8], durable: bool) -> DiskOp {
        DiskOp::Write { offset, from: Payload::from_vec(bytes.to_vec()), durable }
    }

    fn disk(seed: u64) -> Disk {
        Disk::new(8 * SECTOR, Media::default(), seed)
    }

    fn carry_out(disk: &mut Disk, op: DiskOp) -> Result<u32, i32> {
        let (number, _) = disk.begin(Instant(0), DiskToken(1), op);
        disk.end(number).expect("under way").1
    }

    fn sectors(disk: &mut Disk) -> Vec<u8> {
        disk.current.chunks(SECTOR).map(|sector| sector[0]).collect()
    }

    #[test]
    fn flushed_writes_survive_every_crash_and_others_some() {
        let mut lost = 0;
        for seed in 0..100 {
            let mut disk = disk(seed);
            carry_out(&mut disk, write(0, &[1; 2 * SECTOR], false)).expect("written");
            carry_out(&mut disk, DiskOp::Sync).expect("flushed");
            carry_out(&mut disk, write(SECTOR as u64, &[2; 2 * SECTOR], false)).expect("written");
            carry_out(&mut disk, write(4 * SECTOR as u64, &[3; SECTOR], true)).expect("written");
            disk.crash(true);
            let left = sectors(&mut disk);
            assert_eq!((left[0], left[4]), (1, 3), "seed {seed}");
            assert!([1, 2].contains(&left[1]) && [0, 2].contains(&left[2]), "seed {seed}: {left:?}");
            lost += usize::from(left[1] == 1);
        }
        assert!((20..80).contains(&lost), "{lost}");
    }

    #[test]
    fn flush_is_about_what_was_written_before_it_began() {
        let mut survived = 0;
        for seed in 0..100 {
            let mut disk = disk(seed);
            let (flush, _) = disk.begin(Instant(0), DiskToken(1), DiskOp::Sync);
            carry_out(&mut disk, write(0, &[1; SECTOR], false)).expect("written");
            disk.end(flush);
            disk.crash(true);
            survived += usize::from(sectors(&mut disk)[0] == 1);
        }
        assert!((10..90).contains(&survived), "{survived}");
    }

    #[test]
    fn durable_write_is_not_undone_by_an_older_one_in_the_cache() {
        for seed in 0..50 {
            let mut disk = disk(seed);
            carry_out(&mut disk, write(0, &[1; SECTOR], false)).expect("written");
            carry_out(&mut disk, write(0, &[2; SECTOR], true)).expect("written");
            disk.crash(true);
            assert_eq!(sectors(&mut disk)[0], 2, "seed {seed}");
        }
    }

    #[test]
    fn what_dies_without_the_power_keeps_the_cache() {
        let mut disk = disk(1);
        carry_out(&mut disk, write(0, &[1; SECTOR], false)).expect("written");
        disk.crash(false);
        assert_eq!(sectors(&mut disk)[0], 1);
    }
}
