//! Media as a model: how long an operation that comes now takes, its wait included. Random numbers and time are passed in.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use iotax_proto::Instant;

use crate::seeded::SeededRng;

const MILLION: u64 = 1_000_000;
/// What lies on one disk before the next one's turn.
pub const STRIPE_BYTES: u64 = 64 << 10;
/// A cache whose disk is that far behind takes no more writes.
const BEHIND_MAX: Duration = Duration::from_secs(1);

/// How media behave: servers that work on one queue in the order of its coming, or disks that turn, each with a queue.
#[derive(Clone, Debug)]
pub struct MediaModel {
    /// The shortest service time, and what is drawn beyond it at most, evenly.
    pub service: Duration,
    pub spread: Duration,
    /// The service time is exponential, with `service` as its mean.
    pub exponential: bool,
    /// Of 1000 operations, those that take `slow` in addition.
    pub slow_chance: u64,
    pub slow: Duration,
    /// Operations that it works on at once, the others waiting; 0: on all.
    pub servers: usize,
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

/// What an operation does to media; places are bytes from their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read(u64),
    Write(u64),
    Flush,
}

/// What media were given and when they will have done it.
#[derive(Debug)]
pub struct MediaQueue {
    /// Of each server, when it will have done what it was given; the earliest first.
    free_at: BinaryHeap<Reverse<Instant>>,
    /// The same of disks that turn, each at its place.
    each_free_at: Vec<Instant>,
    /// Of all servers together, with what they were given and have not done yet.
    busy_ns: u64,
}

impl MediaQueue {
    pub fn new(model: &MediaModel) -> Self {
        let disks = if model.spindles.is_some() { model.servers.max(1) } else { 0 };
        Self { free_at: BinaryHeap::new(), each_free_at: vec![Instant(0); disks], busy_ns: 0 }
    }

    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Takes an operation up: how long it takes, its wait included. `model` may change between operations, but for its disks.
    pub fn take(&mut self, model: &MediaModel, now: Instant, access: Access, random: &mut SeededRng) -> Duration {
        match model.spindles {
            Some(spindles) => self.turn_to(now, access, spindles, random),
            None => self.serve(model, now, random),
        }
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

    /// Flushes find all writes in a cache that lasts.
    fn turn_to(&mut self, now: Instant, access: Access, spindles: Spindles, random: &mut SeededRng) -> Duration {
        let (offset, reads) = match access {
            Access::Read(offset) => (offset, true),
            Access::Write(offset) => (offset, false),
            Access::Flush => return Duration::ZERO,
        };
        if reads && random.below(MILLION) < spindles.read_hits {
            return Duration::ZERO;
        }
        let service_ns = seek_ns(spindles.seek, random) + random.below(spindles.turn.as_nanos() as u64 + 1);
        let destaged = spindles.destage.filter(|_| !reads);
        let works_ns = destaged.map_or(service_ns, |destage| service_ns * destage / MILLION);
        self.busy_ns += works_ns;
        let disk = (offset / STRIPE_BYTES) as usize % self.each_free_at.len();
        let free_at = &mut self.each_free_at[disk];
        let begins = now.max(*free_at);
        *free_at = Instant(begins.0 + works_ns);
        if destaged.is_none() { free_at.since(now) } else { begins.since(now).saturating_sub(BEHIND_MAX) }
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // nanoseconds of an operation
fn service_time(model: &MediaModel, random: &mut SeededRng) -> Duration {
    if model.exponential {
        let mean_ns = model.service.as_nanos() as f64;
        return Duration::from_nanos((mean_ns * random.exponential()).round() as u64);
    }
    let spread_ns = model.spread.as_nanos() as u64;
    model.service + Duration::from_nanos(random.below(spread_ns + 1))
}

/// Between two places that are equally likely: the distance has the density 2(1 − x), and a seek takes as its root (Ruemmler and
/// Wilkes, An Introduction to Disk Drive Modeling, 1994, of short seeks), whose mean is 8/15.
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
            exponential: false,
            slow_chance: 0,
            slow: Duration::ZERO,
            servers,
            spindles: None,
        }
    }

    fn disks(servers: usize, read_hits: u64, destage: Option<u64>) -> MediaModel {
        let spindles = Spindles { seek: us(3400), turn: us(4000), read_hits, destage };
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
        let exponential = MediaModel { exponential: true, ..model(us(100), 0) };
        // The standard deviation over the mean: 1/√3 of a uniform one from 0, 1 of an exponential one.
        for (model, scatter) in [(model(us(100), 0), 0.0), (uniform, 0.577), (exponential, 1.0)] {
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
        // The other disk is free; a write is in the cache at once, and keeps its disk a quarter as long.
        assert_eq!(media.take(0, Access::Write(STRIPE_BYTES)), 0);
        assert!(media.take(0, Access::Read(0)) > at_ns);
        assert!(media.take(0, Access::Write(0)) > 9_000_000_000);
        assert!(media.queue.busy_ns() > busy_ns);
    }

    #[test]
    fn cache_of_disks_that_turn_answers_its_share_of_reads() {
        let mut media = Media::new(disks(1, 250_000, None));
        let hits = (0..4000).filter(|_| media.take(0, Access::Read(0)) == 0).count();
        assert!(hits.abs_diff(1000) < 100, "{hits}");
    }

    /// What a seed draws is part of what a simulated study's seed means: it may not change between versions.
    #[test]
    fn what_a_seed_draws_is_fixed() {
        let of = |model: MediaModel| {
            let mut media = Media::new(model);
            [0, 1, 2, 3].map(|number: u64| media.take(number * 20 * MICROSECOND, Access::Read(number * 70_000)))
        };
        let slow = MediaModel { slow_chance: 300, slow: us(1000), spread: us(100), ..model(us(100), 0) };
        assert_eq!(of(model(us(100), 2)), [100_000, 100_000, 160_000, 160_000]);
        assert_eq!(of(MediaModel { spread: us(200), ..model(us(0), 2) }), [178_955, 130_106, 209_109, 136_910]);
        assert_eq!(of(MediaModel { exponential: true, ..model(us(100), 1) }), [11_119, 42_997, 93_314, 314_358]);
        assert_eq!(of(slow), [1_189_477, 1_165_053, 149_502, 108_977]);
        assert_eq!(of(disks(3, 250_000, None)), [4_688_121, 4_644_592, 0, 12_244_281]);
    }
}
