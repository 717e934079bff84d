//! Modelled media: how long an operation that arrives now takes, including its wait. Random numbers and time are passed
//! in.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use iotax_proto::Instant;

use crate::seeded::SeededRng;

const MILLION: u64 = 1_000_000;
/// Consecutive bytes on one disk before the next disk follows.
pub const STRIPE_BYTES: u64 = 64 << 10;
/// A cache whose disk is this far behind accepts no more writes.
const BEHIND_MAX: Duration = Duration::from_secs(1);

/// How media behave: servers that share one queue in order of arrival; or rotating disks or flash, whose servers have a
/// queue each.
#[derive(Clone, Debug)]
pub struct MediaModel {
    /// Mean service time; of `Shape::Even` the shortest.
    pub service: Duration,
    /// Maximum time that is added to `service`, uniformly distributed. Only for `Shape::Even`.
    pub spread: Duration,
    pub shape: Shape,
    /// Number of operations per 1000 that take `slow` in addition.
    pub slow_chance: u64,
    pub slow: Duration,
    /// Number of operations served at once, while others wait; 0: unlimited.
    pub servers: usize,
    /// The servers are rotating disks.
    pub spindles: Option<Spindles>,
    /// The servers are parts of a flash drive; each stores its own stripes.
    pub collecting: Option<Collecting>,
}

/// How service times are distributed.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Uniform from `service` to `service + spread`.
    Even,
    Exponential,
    /// Lognormal, with this standard deviation of the logarithm.
    Lognormal(f64),
    /// One of these values, ns, all equally likely. Must not be empty: an operation would take no time.
    Drawn(Arc<[u64]>),
}

/// How the parts of a flash drive stop to collect garbage. I/Os on that part wait meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collecting {
    /// Bytes written to a part between two collections.
    pub every_bytes: u64,
    pub pause: Duration,
}

/// Rotating disks behind a controller with caches. An operation goes to the disk that stores its offset, and takes a
/// seek and part of a revolution in place of `service`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spindles {
    /// Mean over random places.
    pub seek: Duration,
    pub turn: Duration,
    /// Number of reads per million that a cache answers.
    pub read_hits: u64,
    /// A cache answers writes before they are on disk. The value is what each write then costs its disk, in millionths
    /// of an operation. `None`: writes wait for their disk.
    pub destage: Option<u64>,
    pub parity: Option<Parity>,
}

/// RAID with parity that rotates from stripe to stripe. A write reads the data block and the parity blocks, and writes
/// them a revolution later (Chen et al., RAID: High-Performance, Reliable Secondary Storage, 1994, §3.2: a small
/// write).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity {
    /// Disks of a group, parity included; the last group has the remaining disks.
    pub group: usize,
    /// Parity disks in each stripe of a group, fewer than its disks.
    pub disks: usize,
}

impl Parity {
    /// The other disks that a write on `disk` at `offset` uses, of `all` disks.
    fn beside(self, disk: usize, offset: u64, all: usize) -> impl Iterator<Item = usize> {
        let first = disk - disk % self.group.max(1);
        let group = self.group.min(all - first);
        let others = group.saturating_sub(1);
        let row = (offset / STRIPE_BYTES) as usize / all;
        (0..self.disks.min(others)).map(move |parity| first + (disk - first + 1 + (row + parity) % others) % group)
    }
}

/// An access to media; offsets are bytes from their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read(u64),
    /// Offset and number of bytes.
    Write(u64, u64),
    Flush,
}

/// What the media were given to do, and when they will have done it.
#[derive(Debug)]
pub struct MediaQueue {
    /// When each server will have finished its work; the earliest first.
    free_at: BinaryHeap<Reverse<Instant>>,
    /// The same for servers that store their own stripes, and the bytes written to each since it last collected
    /// garbage.
    each_free_at: Vec<Instant>,
    written_bytes: Vec<u64>,
    /// Busy time of all servers together, including work not done yet.
    busy_ns: u64,
}

impl MediaQueue {
    pub fn new(model: &MediaModel) -> Self {
        let apart = model.spindles.is_some() || model.collecting.is_some();
        let servers = if apart { model.servers.max(1) } else { 0 };
        let (each_free_at, written_bytes) = (vec![Instant(0); servers], vec![0; servers]);
        Self { free_at: BinaryHeap::new(), each_free_at, written_bytes, busy_ns: 0 }
    }

    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Accepts an operation and returns how long it takes, including its wait. Between operations, `model` may change
    /// except for its disks.
    pub fn take(&mut self, model: &MediaModel, now: Instant, access: Access, random: &mut SeededRng) -> Duration {
        match (model.spindles, model.collecting) {
            (Some(spindles), _) => self.turn_to(now, access, spindles, random),
            (None, Some(collecting)) => self.collect(model, now, access, collecting, random),
            (None, None) => self.serve(model, now, random),
        }
    }

    /// A flush takes no time: all completed writes are on the media.
    fn collect(
        &mut self,
        model: &MediaModel,
        now: Instant,
        access: Access,
        Collecting { every_bytes, pause }: Collecting,
        random: &mut SeededRng,
    ) -> Duration {
        let (offset, written) = match access {
            Access::Read(offset) => (offset, 0),
            Access::Write(offset, len) => (offset, len),
            Access::Flush => return Duration::ZERO,
        };
        let takes = service_time(model, random);
        let part = (offset / STRIPE_BYTES) as usize % self.each_free_at.len();
        let ends = now.max(self.each_free_at[part]) + takes;
        self.each_free_at[part] = ends;
        self.busy_ns += takes.as_nanos() as u64;
        self.written_bytes[part] += written;
        if self.written_bytes[part] >= every_bytes {
            self.written_bytes[part] %= every_bytes.max(1);
            self.each_free_at[part] = ends + pause;
            self.busy_ns += pause.as_nanos() as u64;
        }
        ends.since(now)
    }

    fn serve(&mut self, model: &MediaModel, now: Instant, random: &mut SeededRng) -> Duration {
        let mut takes = service_time(model, random);
        if random.below(1000) < model.slow_chance {
            takes += model.slow;
        }
        self.busy_ns += takes.as_nanos() as u64;
        if model.servers > 0 {
            let free = if self.free_at.len() < model.servers { None } else { self.free_at.pop() };
            let begins = free.map_or(now, |Reverse(free)| free.max(now));
            self.free_at.push(Reverse(begins + takes));
            takes += begins.since(now);
        }
        takes
    }

    /// A flush takes no time: all completed writes are on disk or in a non-volatile cache.
    fn turn_to(&mut self, now: Instant, access: Access, spindles: Spindles, random: &mut SeededRng) -> Duration {
        let (offset, reads) = match access {
            Access::Read(offset) => (offset, true),
            Access::Write(offset, _) => (offset, false),
            Access::Flush => return Duration::ZERO,
        };
        if reads && random.below(MILLION) < spindles.read_hits {
            return Duration::ZERO;
        }
        let destaged = spindles.destage.filter(|_| !reads);
        let all = self.each_free_at.len();
        let disk = (offset / STRIPE_BYTES) as usize % all;
        let parity = spindles.parity.filter(|_| !reads);
        let again = parity.map_or(Duration::ZERO, |_| spindles.turn);
        let beside = parity.into_iter().flat_map(|parity| parity.beside(disk, offset, all));
        let mut takes = Duration::ZERO;
        for disk in std::iter::once(disk).chain(beside) {
            let seek_ns = seek_ns(spindles.seek, random);
            let turned_ns = random.below(spindles.turn.as_nanos() as u64 + 1) + again.as_nanos() as u64;
            let service_ns = seek_ns + turned_ns;
            let works_ns = destaged.map_or(service_ns, |destage| service_ns * destage / MILLION);
            self.busy_ns += works_ns;
            let free_at = &mut self.each_free_at[disk];
            let begins = now.max(*free_at);
            *free_at = Instant(begins.0 + works_ns);
            let own =
                if destaged.is_none() { free_at.since(now) } else { begins.since(now).saturating_sub(BEHIND_MAX) };
            takes = takes.max(own);
        }
        takes
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // nanoseconds of an operation
fn service_time(model: &MediaModel, random: &mut SeededRng) -> Duration {
    let mean_ns = model.service.as_nanos() as f64;
    let drawn_ns = match &model.shape {
        Shape::Even => return model.service + Duration::from_nanos(random.below(model.spread.as_nanos() as u64 + 1)),
        Shape::Exponential => mean_ns * random.exponential(),
        Shape::Lognormal(sigma) => mean_ns * (sigma * random.normal() - sigma * sigma / 2.0).exp(),
        Shape::Drawn(times_ns) => {
            let drawn = times_ns.get(random.below(times_ns.len() as u64) as usize);
            return Duration::from_nanos(drawn.copied().unwrap_or(0));
        }
    };
    Duration::from_nanos(drawn_ns.round() as u64)
}

/// Time of a seek between two random places. The distance has the density 2(1 − x), and a seek takes as long as its
/// square root (Ruemmler and Wilkes, An Introduction to Disk Drive Modeling, 1994, of short seeks), whose mean is 8/15.
#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // 53 random bits; nanoseconds of a seek
fn seek_ns(mean: Duration, random: &mut SeededRng) -> u64 {
    let drawn = random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
    let distance = 1.0 - (1.0 - drawn).sqrt();
    (mean.as_nanos() as f64 * distance.sqrt() * 15.0 / 8.0).round() as u64
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss)] // figures far below 2^53
mod tests {
    use super::*;

    const MICROSECOND: u64 = 1_000;

    fn us(count: u64) -> Duration {
        Duration::from_nanos(count * MICROSECOND)
    }

    fn model(service: Duration, servers: usize) -> MediaModel {
        MediaModel {
            service,
            spread: Duration::ZERO,
            shape: Shape::Even,
            slow_chance: 0,
            slow: Duration::ZERO,
            servers,
            spindles: None,
            collecting: None,
        }
    }

    fn disks(servers: usize, read_hits: u64, destage: Option<u64>) -> MediaModel {
        let spindles = Spindles { seek: us(3400), turn: us(4000), read_hits, destage, parity: None };
        MediaModel { spindles: Some(spindles), ..model(Duration::ZERO, servers) }
    }

    struct Media {
        model: MediaModel,
        queue: MediaQueue,
        random: SeededRng,
    }

    impl Media {
        fn new(model: MediaModel) -> Self {
            Self { queue: MediaQueue::new(&model), model, random: SeededRng::new(5, "disk", 0) }
        }

        fn take(&mut self, at_ns: u64, access: Access) -> u64 {
            self.queue.take(&self.model, Instant(at_ns), access, &mut self.random).as_nanos() as u64
        }
    }

    #[test]
    fn operations_wait_for_the_first_server_that_is_free() {
        let mut media = Media::new(model(Duration::from_nanos(100), 2));
        let taken = [0, 10, 20, 30, 500].map(|at| media.take(at, Access::Flush));
        assert_eq!(taken, [100, 100, 180, 180, 100]);
        assert_eq!(media.queue.busy_ns(), 500);
    }

    #[test]
    fn service_times_have_the_mean_and_the_scatter_of_their_distribution() {
        let uniform = MediaModel { spread: us(200), ..model(Duration::ZERO, 0) };
        let shaped = |shape| MediaModel { shape, ..model(us(100), 0) };
        let two: Arc<[u64]> = Arc::new([50_000, 150_000]);
        // Standard deviation / mean: 1/√3 of a uniform distribution from 0, 1 of an exponential, √(e^σ² − 1) of a
        // lognormal one.
        for (model, scatter) in [
            (model(us(100), 0), 0.0),
            (uniform, 0.577),
            (shaped(Shape::Exponential), 1.0),
            (shaped(Shape::Lognormal(0.5)), 0.533),
            (shaped(Shape::Drawn(two)), 0.5),
        ] {
            let mut media = Media::new(model);
            let taken: Vec<f64> = (0..40_000).map(|at| media.take(at, Access::Read(0)) as f64 / 1e5).collect();
            let mean = taken.iter().sum::<f64>() / taken.len() as f64;
            let variance = taken.iter().map(|each| (each - mean).powi(2)).sum::<f64>() / taken.len() as f64;
            assert!((mean - 1.0).abs() < 0.02, "{mean}");
            assert!((variance.sqrt() - scatter).abs() < 0.02, "{variance}");
        }
    }

    #[test]
    fn disks_that_turn_take_a_mean_seek_and_half_a_turn_each_for_its_own_places() {
        let mut media = Media::new(disks(2, 0, Some(250_000)));
        let mut at_ns = 0;
        for _ in 0..2000 {
            at_ns += media.take(at_ns, Access::Read(0));
        }
        assert!((at_ns / 2000).abs_diff(5_400_000) < 108_000, "{} ns a read", at_ns / 2000);
        let busy_ns = media.queue.busy_ns();
        // The other disk is free. A write is in the cache at once, and keeps its disk busy for a quarter of the time.
        assert_eq!(media.take(0, Access::Write(STRIPE_BYTES, 4096)), 0);
        assert!(media.take(0, Access::Read(0)) > at_ns);
        assert!(media.take(0, Access::Write(0, 4096)) > 9_000_000_000);
        assert!(media.queue.busy_ns() > busy_ns);
    }

    #[test]
    fn parity_has_a_write_read_and_written_on_each_disk_that_it_touches() {
        for (group, parity_disks) in [(4, 1), (4, 2), (8, 2), (5, 1)] {
            let parity = Some(Parity { group, disks: parity_disks });
            let with = |model: MediaModel| MediaModel {
                spindles: model.spindles.map(|of| Spindles { parity, ..of }),
                ..model
            };
            let mut media = Media::new(with(disks(8, 0, None)));
            let mut taken_ns = 0;
            // Far apart in time, so that no write waits for another; over all disks and many stripes.
            for write in 0..4000_u64 {
                let taken = media.take(write * 1_000_000_000, Access::Write(write * STRIPE_BYTES, 4096));
                assert!(taken > 4_000_000, "a turn at least between reading and writing: {taken}");
                taken_ns += taken;
            }
            // A seek, half a revolution and a revolution, on the disk of the data and on each parity disk; the slowest
            // determines the time.
            let busy_ns = media.queue.busy_ns() / 4000;
            let expected_ns = (1 + parity_disks as u64) * 9_400_000;
            assert!(busy_ns.abs_diff(expected_ns) < expected_ns / 50, "{busy_ns} ns of {expected_ns}");
            assert!(taken_ns / 4000 > 9_400_000);
            // Reads and the cache behave as before; destaging costs a share on all these disks.
            let mut cached = Media::new(with(disks(8, 0, Some(500_000))));
            assert_eq!(cached.take(0, Access::Write(0, 4096)), 0);
            let written_ns = cached.queue.busy_ns();
            assert!(written_ns > (1 + parity_disks as u64) * 2_000_000, "{written_ns}");
            cached.take(100_000_000, Access::Read(0));
            assert!(cached.queue.busy_ns() - written_ns < 11_000_000);
        }
    }

    #[test]
    fn parity_lies_on_other_disks_of_the_group_and_on_each_alike() {
        for (group, parity_disks) in [(4, 1), (4, 2), (5, 2)] {
            let parity = Parity { group, disks: parity_disks };
            let mut found = [0_usize; 10];
            for stripe in 0..10_000_u64 {
                let disk = (stripe % 10) as usize;
                let beside: Vec<_> = parity.beside(disk, stripe * STRIPE_BYTES, 10).collect();
                let here = |other: &usize| *other != disk && other / group == disk / group;
                assert!(beside.iter().all(here), "{disk}: {beside:?}");
                assert_ne!(beside.first(), beside.get(1));
                for other in &beside {
                    found[*other] += 1;
                }
            }
            assert!(found[..group].iter().all(|count| found[0].abs_diff(*count) <= found[0] / 50), "{found:?}");
        }
    }

    #[test]
    fn cache_of_disks_that_turn_answers_its_share_of_reads() {
        let mut media = Media::new(disks(1, 250_000, None));
        let hits = (0..4000).filter(|_| media.take(0, Access::Read(0)) == 0).count();
        assert!(hits.abs_diff(1000) < 100, "{hits}");
    }

    #[test]
    fn part_that_collects_garbage_keeps_its_own_operations_waiting() {
        let collecting = Some(Collecting { every_bytes: 8192, pause: us(1000) });
        let mut media = Media::new(MediaModel { collecting, ..model(us(100), 2) });
        let write = |at_ns, media: &mut Media| media.take(at_ns, Access::Write(0, 4096));
        assert_eq!([0, 100_000].map(|at_ns| write(at_ns, &mut media)), [100_000, 100_000]);
        // It collects from 200 to 1,200 µs; the other part has nothing to collect.
        assert_eq!(media.take(300_000, Access::Read(4096)), 1_000_000);
        assert_eq!(media.take(300_000, Access::Read(STRIPE_BYTES)), 100_000);
        assert_eq!(media.take(300_000, Access::Flush), 0);
        assert_eq!(media.queue.busy_ns(), 1_400_000);
    }

    /// The values drawn from a seed determine the results of a simulated study, so they may not change between
    /// versions.
    #[test]
    fn what_a_seed_draws_is_fixed() {
        let of = |model: MediaModel| {
            let mut media = Media::new(model);
            [0, 1, 2, 3].map(|number: u64| media.take(number * 20 * MICROSECOND, Access::Read(number * 70_000)))
        };
        let slow = MediaModel { slow_chance: 300, slow: us(1000), spread: us(100), ..model(us(100), 0) };
        assert_eq!(of(model(us(100), 2)), [100_000, 100_000, 160_000, 160_000]);
        assert_eq!(of(MediaModel { spread: us(200), ..model(us(0), 2) }), [178_955, 130_106, 209_109, 136_910]);
        assert_eq!(
            of(MediaModel { shape: Shape::Exponential, ..model(us(100), 1) }),
            [11_119, 42_997, 93_314, 314_358]
        );
        assert_eq!(of(slow), [1_189_477, 1_165_053, 149_502, 108_977]);
        assert_eq!(of(disks(3, 250_000, None)), [4_688_121, 4_644_592, 0, 12_244_281]);
    }
}
