//! A disk with a volatile write cache: what a crash leaves of writes that no flush followed is drawn, sector by sector.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use iotax_node::{DiskOp, DiskToken, seeded::SeededRng};
use iotax_proto::Instant;

pub const SECTOR: usize = 512;

const MILLION: u64 = 1_000_000;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// How a disk behaves. Chances are of 1000 operations.
#[derive(Clone, Debug)]
pub struct Media {
    /// The shortest service time, and what is drawn beyond it at most.
    pub service: Duration,
    pub spread: Duration,
    /// Reads, writes and flushes that fail; a write that fails may have changed any of its sectors.
    pub errors: u64,
    /// Operations that take `slow` in addition.
    pub slow_chance: u64,
    pub slow: Duration,
    /// Writes that find no space.
    pub full: u64,
    /// Operations that it works on at once, the others waiting in the order of their coming; 0: on all.
    pub servers: usize,
    /// The service time is exponential, with `service` as its mean; else it is uniform from `service` on.
    pub exponential: bool,
    /// Without a volatile cache.
    pub write_through: bool,
    /// Its servers are disks that turn.
    pub spindles: Option<Spindles>,
}

/// Disks that turn, behind a controller with caches: an operation is that of the disk where its place lies, and takes a seek and a
/// part of a turn, in place of `service`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spindles {
    /// The mean over places that are equally likely.
    pub seek: Duration,
    pub turn: Duration,
    /// Of a million reads, those that a cache answers.
    pub read_hits: u64,
    /// A cache answers writes before they are on disk. What each then costs its disk, in millionths of an operation. `None`: writes
    /// wait for their disk.
    pub destage: Option<u64>,
}

/// What lies on one disk before the next one's turn.
const STRIPE_BYTES: u64 = 64 << 10;
/// A cache whose disk is that far behind takes no more writes.
const BEHIND_MAX: Duration = Duration::from_secs(1);

impl Default for Media {
    fn default() -> Self {
        Self {
            service: Duration::from_micros(20),
            spread: Duration::from_micros(100),
            errors: 0,
            slow_chance: 0,
            slow: Duration::ZERO,
            full: 0,
            servers: 0,
            exponential: false,
            write_through: false,
            spindles: None,
        }
    }
}

#[derive(Debug)]
pub struct Disk {
    pub media: Media,
    random: SeededRng,
    /// What is on the medium.
    durable: Vec<u8>,
    /// What reads give.
    current: Vec<u8>,
    /// Changes that are in the cache alone, oldest first.
    unflushed: Vec<Change>,
    changes: u64,
    /// Operations under way.
    pending: BTreeMap<u64, Pending>,
    begun: u64,
    /// Of each server, when it will have done what it was given; the earliest first.
    free_at: BinaryHeap<Reverse<Instant>>,
    /// The same of disks that turn, each at its place.
    each_free_at: Vec<Instant>,
    /// Errors given so far, of each kind.
    pub errors_given: u64,
    pub full_given: u64,
    /// Of all its servers together, with what they were given and have not done yet.
    pub busy_ns: u64,
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
    /// Changes made before it began: what a flush is about.
    changes: u64,
}

impl Disk {
    pub fn new(size_bytes: usize, media: Media, seed: u64) -> Self {
        let disks = if media.spindles.is_some() { media.servers.max(1) } else { 0 };
        Self {
            media,
            random: SeededRng::new(seed, "disk", 0),
            durable: vec![0; size_bytes],
            current: vec![0; size_bytes],
            unflushed: Vec::new(),
            changes: 0,
            pending: BTreeMap::new(),
            begun: 0,
            free_at: BinaryHeap::new(),
            each_free_at: vec![Instant(0); disks],
            errors_given: 0,
            full_given: 0,
            busy_ns: 0,
        }
    }

    /// What it holds from the beginning.
    pub fn image_mut(&mut self) -> &mut [u8] {
        &mut self.current
    }

    /// Takes an operation up: its number, and how long it takes, its wait included.
    pub(crate) fn begin(&mut self, now: Instant, token: DiskToken, op: DiskOp) -> (u64, Duration) {
        let writes = !matches!(op, DiskOp::Read { .. } | DiskOp::Sync);
        let fails = if self.random.below(1000) < self.media.errors {
            Some(EIO)
        } else if writes && self.random.below(1000) < self.media.full {
            Some(ENOSPC)
        } else {
            None
        };
        if let Some(spindles) = self.media.spindles {
            let takes = self.turn_to(now, &op, spindles);
            return (self.take_up(token, op, fails), takes);
        }
        let mut takes = self.service_time();
        if self.random.below(1000) < self.media.slow_chance {
            takes += self.media.slow;
        }
        self.busy_ns += takes.as_nanos() as u64;
        if self.media.servers > 0 {
            let free = if self.free_at.len() < self.media.servers { None } else { self.free_at.pop() };
            let begins = free.map_or(now, |Reverse(free)| free.max(now));
            self.free_at.push(Reverse(begins + takes));
            takes += begins.since(now);
        }
        (self.take_up(token, op, fails), takes)
    }

    fn take_up(&mut self, token: DiskToken, op: DiskOp, fails: Option<i32>) -> u64 {
        self.begun += 1;
        self.pending.insert(self.begun, Pending { token, op, fails, changes: self.changes });
        self.begun
    }

    /// How long an operation of disks that turn takes, its wait included. Flushes find all writes in a cache that lasts.
    fn turn_to(&mut self, now: Instant, op: &DiskOp, spindles: Spindles) -> Duration {
        let (offset, reads) = match op {
            DiskOp::Read { offset, .. } => (*offset, true),
            DiskOp::Write { offset, .. } | DiskOp::WriteZeroes { offset, .. } | DiskOp::Unmap { offset, .. } => {
                (*offset, false)
            }
            DiskOp::Sync => return Duration::ZERO,
        };
        if reads && self.random.below(MILLION) < spindles.read_hits {
            return Duration::ZERO;
        }
        let service_ns = self.seek_ns(spindles.seek) + self.random.below(spindles.turn.as_nanos() as u64 + 1);
        let destaged = spindles.destage.filter(|_| !reads);
        let works_ns = destaged.map_or(service_ns, |destage| service_ns * destage / MILLION);
        self.busy_ns += works_ns;
        let disk = (offset / STRIPE_BYTES) as usize % self.each_free_at.len();
        let free_at = &mut self.each_free_at[disk];
        let begins = now.max(*free_at);
        *free_at = Instant(begins.0 + works_ns);
        if destaged.is_none() { free_at.since(now) } else { begins.since(now).saturating_sub(BEHIND_MAX) }
    }

    /// Between two places that are equally likely: the distance has the density 2(1 − x), and a seek takes as its root (Ruemmler and
    /// Wilkes, An Introduction to Disk Drive Modeling, 1994, of short seeks), whose mean is 8/15.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // 53 random bits; nanoseconds of a seek
    fn seek_ns(&mut self, mean: Duration) -> u64 {
        let drawn = self.random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        let distance = 1.0 - (1.0 - drawn).sqrt();
        (mean.as_nanos() as f64 * distance.sqrt() * 15.0 / 8.0).round() as u64
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // nanoseconds of an operation
    fn service_time(&mut self) -> Duration {
        if self.media.exponential {
            let mean_ns = self.media.service.as_nanos() as f64;
            return Duration::from_nanos((mean_ns * self.random.exponential()).round() as u64);
        }
        let spread_ns = self.media.spread.as_nanos() as u64;
        self.media.service + Duration::from_nanos(self.random.below(spread_ns + 1))
    }

    /// The longest that an operation takes.
    pub fn longest(&self) -> Duration {
        self.media.service + self.media.spread + self.media.slow
    }

    /// An operation is over: whose it was, and its result.
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
        };
        Some((token, result))
    }

    /// Has two reads under way answered each with the other's end: a canary.
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

    /// The server behind it is gone with its operations under way. With the power, sectors of the cache and of what was under way
    /// reach the medium or not, as drawn; else what was under way is done or not.
    pub fn crash(&mut self, power: bool) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            self.change_some(&pending.op);
        }
        if !power {
            return;
        }
        // All, none, or each sector by itself.
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

    /// Some of the sectors that an operation would change.
    fn change_some(&mut self, op: &DiskOp) {
        let (offset, bytes) = match op {
            DiskOp::Write { offset, from, .. } => (*offset, from.to_vec()),
            DiskOp::WriteZeroes { offset, len } | DiskOp::Unmap { offset, len } => (*offset, vec![0; *len as usize]),
            DiskOp::Read { .. } | DiskOp::Sync => return,
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
            return Ok(());
        }
        if durable {
            // What the cache has of these sectors must not undo it later.
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

    /// Brings the cache's changes up to a number to the medium.
    fn flush(&mut self, up_to: u64) {
        let left = self.unflushed.iter().position(|change| change.number > up_to).unwrap_or(self.unflushed.len());
        for change in self.unflushed.drain(..left) {
            put(&mut self.durable, change.offset, &change.bytes);
        }
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
    fn operations_wait_for_the_first_server_that_is_free() {
        let service = Duration::from_nanos(100);
        let media = Media { service, spread: Duration::ZERO, servers: 2, ..Media::default() };
        let mut disk = Disk::new(SECTOR, media, 1);
        let mut takes = |at| disk.begin(Instant(at), DiskToken(1), DiskOp::Sync).1.as_nanos();
        assert_eq!([takes(0), takes(10), takes(20), takes(30), takes(500)], [100, 100, 180, 180, 100]);
    }

    #[test]
    fn disks_that_turn_take_a_mean_seek_and_half_a_turn_each_for_its_own_places() {
        let spindles = Spindles {
            seek: Duration::from_micros(3400),
            turn: Duration::from_millis(4),
            read_hits: 0,
            destage: Some(250_000),
        };
        let media = Media { servers: 2, spindles: Some(spindles), write_through: true, ..Media::default() };
        let mut disk = Disk::new(2 * STRIPE_BYTES as usize, media, 1);
        let read = |offset| DiskOp::Read { offset, into: Payload::from_vec(vec![0; SECTOR]) };
        let mut at = Instant(0);
        for _ in 0..2000 {
            at = at + disk.begin(at, DiskToken(1), read(0)).1;
        }
        assert!((at.0 / 2000).abs_diff(5_400_000) < 108_000, "{} ns a read", at.0 / 2000);
        let busy_ns = disk.busy_ns;
        // The other disk is free; a write is in the cache at once, and keeps its disk a quarter as long.
        assert_eq!(disk.begin(Instant(0), DiskToken(1), write(STRIPE_BYTES, &[1; SECTOR], false)).1, Duration::ZERO);
        assert!(disk.begin(Instant(0), DiskToken(1), read(0)).1 > at.since(Instant(0)));
        assert!(disk.begin(Instant(0), DiskToken(1), write(0, &[1; SECTOR], false)).1 > Duration::from_secs(9));
        assert!(disk.busy_ns > busy_ns);
    }

    #[test]
    fn cache_of_disks_that_turn_answers_its_share_of_reads() {
        let spindles = Spindles {
            seek: Duration::from_micros(3400),
            turn: Duration::from_millis(4),
            read_hits: 250_000,
            destage: None,
        };
        let media = Media { servers: 1, spindles: Some(spindles), ..Media::default() };
        let mut disk = Disk::new(SECTOR, media, 1);
        let read = || DiskOp::Read { offset: 0, into: Payload::from_vec(vec![0; SECTOR]) };
        let hits = (0..4000).filter(|_| disk.begin(Instant(0), DiskToken(1), read()).1.is_zero()).count();
        assert!(hits.abs_diff(1000) < 100, "{hits}");
    }

    #[test]
    fn what_dies_without_the_power_keeps_the_cache() {
        let mut disk = disk(1);
        carry_out(&mut disk, write(0, &[1; SECTOR], false)).expect("written");
        disk.crash(false);
        assert_eq!(sectors(&mut disk)[0], 1);
    }
}
