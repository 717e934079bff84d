//! When the next I/O starts.
//!
//! Pacing determines the intended start of each I/O (`intended`). A worker submits the I/O once it has a free slot and
//! the target's credit allows. In a closed loop, an I/O is intended to start when a slot is free, so both instants are
//! equal. An open loop determines its own instants, whatever the target does: an I/O that cannot be submitted yet waits
//! in a backlog, and an I/O that finds the backlog full is dropped and counted.

use std::{collections::VecDeque, time::Duration};

use iotax_proto::Instant;

use crate::{failure::Failure, seeded::SeededRng};

/// More than any machine can submit; a higher rate is a typing error.
const RATE_MAX_IOPS: f64 = 1e8;
/// 32 MiB of instants.
const BACKLOG_MAX: u32 = 1 << 22;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// Each completion starts the next I/O.
    Closed,
    Open(Open),
}

/// A rate that the load keeps whatever the target does. Rate and backlog are the totals of all workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Open {
    /// 0: the connections stay open without I/O.
    pub rate_iops: f64,
    pub arrivals: Arrivals,
    /// I/Os that may wait for a slot.
    pub backlog_max: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly spaced; workers take turns.
    Constant,
    /// Exponential gaps, independent in each worker: together they are a Poisson process of the whole rate.
    Poisson,
}

/// Arrivals inside the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// I/Os that were due.
    pub offered: u64,
    /// How many of these found the backlog full and were never submitted.
    pub dropped: u64,
    /// Maximum number that waited at once; merged over workers, the sum of their maxima.
    pub backlog_peak: u64,
    /// I/Os that still waited when the window ended.
    pub backlog_end: u64,
}

/// One worker's part of an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Its part of the rate and of the backlog, 0 to 1.
    pub part: f64,
    /// Position of its first arrival within the gap, 0 to 1, so that workers do not submit at the same instants.
    pub phase: f64,
}

/// The pacing of one worker.
#[derive(Debug)]
pub struct Pacer {
    open: Option<OpenPacer>,
}

#[derive(Debug)]
struct OpenPacer {
    arrivals: Arrivals,
    /// Mean time between arrivals; 0: none ever arrives.
    gap_ns: f64,
    phase: f64,
    random: SeededRng,
    /// The next arrival: its number, and its time since the start. Constant arrivals are computed from the number, so
    /// that their spacing does not drift.
    count: u64,
    elapsed_ns: f64,
    next: Option<Instant>,
    backlog: VecDeque<Instant>,
    backlog_max: usize,
    schedule: Option<Schedule>,
    arrived: Arrived,
}

impl Pacer {
    #[allow(clippy::cast_sign_loss)] // a share of a count
    pub fn new(pacing: Pacing, share: Share, outstanding: u32, seed: u64, worker: u32) -> Self {
        let Pacing::Open(open) = pacing else { return Self { open: None } };
        let rate_iops = open.rate_iops * share.part;
        let backlog_max = (f64::from(open.backlog_max) * share.part).ceil() as usize;
        Self {
            open: Some(OpenPacer {
                arrivals: open.arrivals,
                gap_ns: if rate_iops > 0.0 { 1e9 / rate_iops } else { 0.0 },
                phase: share.phase,
                random: SeededRng::new(seed, "arrivals", u64::from(worker)),
                count: 0,
                elapsed_ns: 0.0,
                next: None,
                backlog: VecDeque::with_capacity(backlog_max + outstanding as usize),
                backlog_max,
                schedule: None,
                arrived: Arrived::default(),
            }),
        }
    }

    /// Begins a run: arrivals start with its warm-up.
    pub fn begin(&mut self, schedule: Schedule) {
        let Some(open) = &mut self.open else { return };
        open.schedule = Some(schedule);
        // A slice takes over nothing from the previous one.
        open.backlog.clear();
        (open.count, open.next, open.arrived) = (0, None, Arrived::default());
        if open.gap_ns > 0.0 {
            open.elapsed_ns = match open.arrivals {
                Arrivals::Constant => open.phase * open.gap_ns,
                Arrivals::Poisson => open.random.exponential() * open.gap_ns,
            };
            open.next = Some(open.at(schedule.warmup_start));
        }
    }

    /// Records the arrivals up to `now`, while `slots` more I/Os could have been submitted. To be called in each turn
    /// before any `take`. A late call does not matter: nothing leaves the backlog in between.
    pub fn collect(&mut self, now: Instant, slots: usize) {
        if let Some(open) = &mut self.open {
            open.collect(now, slots);
        }
    }

    /// The intended start of the next I/O, if that is not later than `now`; each call takes one.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        match &mut self.open {
            None => Some(now),
            // I/Os that wait when the run ends were not served in it, and are counted as waiting.
            Some(open) if open.schedule.is_some_and(|schedule| now < schedule.end) => open.backlog.pop_front(),
            Some(_) => None,
        }
    }

    /// Returns the I/O that was taken last, so that the next call takes it again.
    pub fn give_back(&mut self, intended: Instant) {
        if let Some(open) = &mut self.open {
            open.backlog.push_front(intended);
        }
    }

    /// When to call again; `None` if only a completion can start the next I/O.
    pub fn next_due(&self) -> Option<Instant> {
        let open = self.open.as_ref()?;
        open.next.filter(|at| open.schedule.is_some_and(|schedule| *at < schedule.end))
    }

    /// The arrivals inside the window, once it is over; `None` for a closed loop. `slots` as in `collect`.
    pub fn finish(&mut self, slots: usize) -> Option<Arrived> {
        let open = self.open.as_mut()?;
        open.collect(Instant(u64::MAX), slots);
        open.arrived.backlog_end = open.backlog.len() as u64;
        Some(open.arrived)
    }
}

impl OpenPacer {
    fn collect(&mut self, now: Instant, slots: usize) {
        let Some(schedule) = self.schedule else { return };
        while let Some(at) = self.next.filter(|at| *at <= now && *at < schedule.end) {
            let in_window = at >= schedule.start;
            self.arrived.offered += u64::from(in_window);
            if self.backlog.len() < self.backlog_max + slots {
                self.backlog.push_back(at);
            } else {
                self.arrived.dropped += u64::from(in_window);
            }
            self.advance(schedule.warmup_start);
        }
        if now >= schedule.start {
            let waiting = self.backlog.len().saturating_sub(slots) as u64;
            self.arrived.backlog_peak = self.arrived.backlog_peak.max(waiting);
        }
    }

    #[allow(clippy::cast_precision_loss)] // arrivals of a run, far below 2^53
    fn advance(&mut self, begin: Instant) {
        self.count += 1;
        self.elapsed_ns = match self.arrivals {
            Arrivals::Constant => (self.count as f64 + self.phase) * self.gap_ns,
            Arrivals::Poisson => self.elapsed_ns + self.random.exponential() * self.gap_ns,
        };
        self.next = Some(self.at(begin));
    }

    #[allow(clippy::cast_sign_loss)] // time from the beginning
    fn at(&self, begin: Instant) -> Instant {
        Instant(begin.0.saturating_add(self.elapsed_ns.round() as u64))
    }
}

impl Arrived {
    pub fn merge(&mut self, other: Self) {
        self.offered += other.offered;
        self.dropped += other.dropped;
        self.backlog_peak += other.backlog_peak;
        self.backlog_end += other.backlog_end;
    }
}

impl Open {
    pub(super) fn check(&self) -> Result<(), Failure> {
        for (holds, message, field) in [
            ((0.0..=RATE_MAX_IOPS).contains(&self.rate_iops), "must be 0 to 100 million", "pacing.rate_iops"),
            (self.backlog_max <= BACKLOG_MAX, "must be at most 4194304", "pacing.backlog_max"),
        ] {
            if !holds {
                return Err(Failure::usage(message, field));
            }
        }
        Ok(())
    }
}

/// When a run warms up, measures and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub warmup_start: Instant,
    pub start: Instant,
    pub end: Instant,
    pub sample: Duration,
    /// I/Os of the window are also counted in intervals of this length.
    pub count: Option<Duration>,
}

impl Schedule {
    pub fn new(at: Instant, warmup: Duration, runtime: Duration, sample: Duration) -> Self {
        let start = at + warmup;
        Self {
            warmup_start: at,
            start,
            end: start + runtime,
            sample: sample.max(Duration::from_millis(1)),
            count: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WHOLE: Share = Share { part: 1.0, phase: 0.0 };
    const S: u64 = 1_000_000_000;

    fn pacer(rate_iops: f64, arrivals: Arrivals, backlog_max: u32, share: Share) -> Pacer {
        let mut pacer = Pacer::new(Pacing::Open(Open { rate_iops, arrivals, backlog_max }), share, 1, 5, 0);
        let second = Duration::from_secs(1);
        pacer.begin(Schedule::new(Instant(S), second, second * 10, second));
        pacer
    }

    /// All arrivals, with a slot always free.
    fn arrivals(mut pacer: Pacer) -> Vec<u64> {
        let mut found = Vec::new();
        while let Some(due) = pacer.next_due() {
            pacer.collect(due, 1);
            found.push(pacer.take(due).expect("due").0);
        }
        found
    }

    #[test]
    fn constant_arrivals_keep_their_spacing_over_the_whole_run() {
        let found = arrivals(pacer(3.0, Arrivals::Constant, 0, WHOLE));
        assert_eq!(found.len(), 33);
        for (count, at) in (0_u64..).zip(&found) {
            assert!(at.abs_diff(S + count * S / 3) <= 1, "{count}: {at}");
        }
    }

    #[test]
    fn workers_take_turns() {
        let half = |phase| arrivals(pacer(10.0, Arrivals::Constant, 0, Share { part: 0.5, phase }));
        assert_eq!(
            (half(0.0)[..2].to_vec(), half(0.5)[..2].to_vec()),
            (vec![S, S + S / 5], vec![S + S / 10, S + 3 * S / 10])
        );
    }

    #[test]
    #[allow(clippy::cast_precision_loss)] // small numbers
    fn poisson_gaps_have_the_mean_and_the_scatter_of_an_exponential() {
        let found = arrivals(pacer(10_000.0, Arrivals::Poisson, 0, WHOLE));
        let gaps: Vec<f64> = found.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e5).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let beyond = gaps.iter().filter(|gap| **gap > 1.0).count() as f64 / gaps.len() as f64;
        // 110,000 gaps: standard errors 0.003, 0.0085 and 0.0015.
        assert!((mean - 1.0).abs() < 0.012 && (variance - 1.0).abs() < 0.034, "{mean} {variance}");
        assert!((beyond - (-1.0_f64).exp()).abs() < 0.006, "{beyond}");
    }

    #[test]
    fn a_full_backlog_drops_and_counts() {
        let mut pacer = pacer(10.0, Arrivals::Constant, 3, WHOLE);
        // Blocked for half a second from the start of the window, at 2 s: due are 2.0, 2.1, 2.2, 2.3, 2.4 and 2.5.
        while pacer.next_due().is_some_and(|due| due < Instant(2 * S)) {
            pacer.collect(pacer.next_due().expect("due"), 1);
            pacer.take(Instant(S)).expect("a slot");
        }
        pacer.collect(Instant(2 * S + S / 2), 0);
        let took: Vec<_> = std::iter::from_fn(|| pacer.take(Instant(2 * S + S / 2))).map(|at| at.0 - 2 * S).collect();
        assert_eq!(took, [0, S / 10, S / 5]);
        let arrived = pacer.finish(0).expect("open");
        // 3 of the rest find room again.
        assert_eq!(arrived, Arrived { offered: 100, dropped: 94, backlog_peak: 3, backlog_end: 3 });
    }

    #[test]
    fn rate_zero_never_comes_due() {
        let mut pacer = pacer(0.0, Arrivals::Poisson, 8, WHOLE);
        assert_eq!((pacer.next_due(), pacer.take(Instant(3 * S))), (None, None));
        assert_eq!(pacer.finish(1), Some(Arrived::default()));
    }
}
