//! Gaps: the times of a window between one completed I/O and the next.

use iotax_proto::Instant;

/// Maximum number of gaps that are kept: 64 KiB. Beyond it, the shortest are dropped and `listed_from_ns` rises.
const KEPT_MAX: usize = 4096;
/// Shorter gaps are not listed, because they cannot be merged over threads.
const LISTED_FROM_NS: u64 = 1_000_000;

/// A time without a completed I/O, wholly inside the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub start: Instant,
    pub end: Instant,
}

/// The gaps of a window, including those from its start to the first completion and from the last one to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Length of the longest gap.
    pub longest_ns: u64,
    /// `longest_ns` is an upper bound: it is that of several threads together, and none of their common gaps is listed.
    pub is_bound: bool,
    /// All gaps of this length or longer are in `list`.
    pub listed_from_ns: u64,
    /// In order of time.
    pub list: Vec<Gap>,
}

/// Finds gaps, at the cost of one subtraction and one comparison per turn in which I/Os completed.
#[derive(Debug)]
pub(super) struct GapTimer {
    last: Instant,
    /// Gaps of this length or shorter are ignored.
    floor_ns: u64,
    gaps: Gaps,
}

impl Gap {
    pub fn duration_ns(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }
}

impl GapTimer {
    /// Finds no gaps before `start`.
    pub(super) fn new() -> Self {
        let gaps = Gaps { listed_from_ns: LISTED_FROM_NS, ..Gaps::default() };
        Self { last: Instant(0), floor_ns: u64::MAX, gaps }
    }

    /// Starts the window.
    pub(super) fn start(&mut self, at: Instant) {
        self.last = at;
        self.floor_ns = 0;
    }

    /// Ends the window. Later completions are ignored.
    pub(super) fn end(&mut self, at: Instant) {
        self.complete(at);
        self.floor_ns = u64::MAX;
    }

    #[inline]
    pub(super) fn complete(&mut self, now: Instant) {
        if now.0.saturating_sub(self.last.0) > self.floor_ns {
            self.note(now);
        }
        self.last = now;
    }

    #[cold]
    #[inline(never)]
    fn note(&mut self, now: Instant) {
        self.gaps.add(Gap { start: self.last, end: now });
        self.floor_ns = self.gaps.longest_ns.min(self.gaps.listed_from_ns - 1);
    }

    pub(super) fn gaps(&self) -> Gaps {
        self.gaps.clone()
    }
}

impl Gaps {
    fn add(&mut self, gap: Gap) {
        self.longest_ns = self.longest_ns.max(gap.duration_ns());
        if gap.duration_ns() >= self.listed_from_ns {
            self.list.push(gap);
            self.bound();
        }
    }

    fn bound(&mut self) {
        while self.list.len() > KEPT_MAX {
            self.listed_from_ns *= 2;
            self.list.retain(|gap| gap.duration_ns() >= self.listed_from_ns);
        }
    }

    /// Merges the gaps of another thread in the same window: a common gap is where both have one.
    pub(super) fn merge(&mut self, other: &Self) {
        self.listed_from_ns = self.listed_from_ns.max(other.listed_from_ns);
        let mut both = Vec::new();
        let (mut ours, mut theirs) = (self.list.iter().peekable(), other.list.iter().peekable());
        while let (Some(one), Some(another)) = (ours.peek(), theirs.peek()) {
            let gap = Gap { start: one.start.max(another.start), end: one.end.min(another.end) };
            if gap.duration_ns() >= self.listed_from_ns {
                both.push(gap);
            }
            if one.end <= another.end {
                ours.next();
            } else {
                theirs.next();
            }
        }
        let longest = both.iter().map(|gap| gap.duration_ns()).max();
        let below = self.longest_ns.min(other.longest_ns).min(self.listed_from_ns - 1);
        self.longest_ns = longest.unwrap_or(below);
        self.is_bound = both.is_empty();
        self.list = both;
        self.bound();
    }

    /// Adds the gaps of a later window. The time between the windows does not count.
    pub(super) fn append(&mut self, later: &Self) {
        if later.longest_ns > self.longest_ns {
            (self.longest_ns, self.is_bound) = (later.longest_ns, later.is_bound);
        }
        self.listed_from_ns = self.listed_from_ns.max(later.listed_from_ns);
        self.list.extend(&later.list);
        self.list.retain(|gap| gap.duration_ns() >= self.listed_from_ns);
        self.bound();
    }

    /// Keeps only the longest `count` of the listed gaps.
    #[must_use]
    pub fn longest(mut self, count: usize) -> Self {
        if self.list.len() > count {
            let mut lengths: Vec<u64> = self.list.iter().map(|gap| gap.duration_ns()).collect();
            lengths.sort_unstable_by(|one, another| another.cmp(one));
            self.listed_from_ns = lengths[count] + 1;
            self.list.retain(|gap| gap.duration_ns() >= self.listed_from_ns);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The gaps of a window from 0 to 100 ms in which I/Os complete at these times.
    fn gaps(completions_ns: impl IntoIterator<Item = u64>) -> Gaps {
        let mut timer = GapTimer::new();
        timer.complete(Instant(0));
        timer.start(Instant(0));
        completions_ns.into_iter().for_each(|at| timer.complete(Instant(at)));
        timer.end(Instant(100 * MS));
        timer.complete(Instant(900 * MS));
        timer.gaps()
    }

    fn listed(gaps: &Gaps) -> Vec<(u64, u64)> {
        gaps.list.iter().map(|gap| (gap.start.0 / MS, gap.end.0 / MS)).collect()
    }

    #[test]
    fn the_ends_of_the_window_bound_its_gaps() {
        assert_eq!(gaps([40 * MS, 50 * MS]).longest_ns, 50 * MS);
        assert_eq!(gaps([70 * MS]).longest_ns, 70 * MS);
        let none = gaps([]);
        assert_eq!((none.longest_ns, listed(&none)), (100 * MS, vec![(0, 100)]));
    }

    #[test]
    fn gaps_below_a_millisecond_are_measured_and_not_listed() {
        let often = gaps((1..1000).map(|at| at * MS / 10));
        assert_eq!((often.longest_ns, often.list.len()), (MS / 10, 0));
        let once = gaps((1..1000).filter(|at| *at != 500).map(|at| at * MS / 10));
        assert_eq!(once.longest_ns, MS / 5);
    }

    #[test]
    fn threads_together_have_the_gaps_that_all_of_them_have() {
        let mut together = gaps([10 * MS, 60 * MS]);
        together.merge(&gaps([5 * MS, 30 * MS, 90 * MS]));
        assert_eq!(listed(&together), [(0, 5), (5, 10), (10, 30), (30, 60), (60, 90), (90, 100)]);
        assert_eq!((together.longest_ns, together.is_bound), (30 * MS, false));
        let by_one = gaps([5 * MS, 10 * MS, 30 * MS, 60 * MS, 90 * MS]);
        assert_eq!(together, by_one);
    }

    #[test]
    fn a_gap_of_threads_that_is_too_short_to_be_listed_has_a_bound() {
        let often = |start: u64| gaps((0..500).map(move |at| start + at * MS / 5));
        let mut together = often(MS / 10);
        assert_eq!((together.longest_ns, together.is_bound), (MS / 5, false));
        together.merge(&often(0));
        assert_eq!((together.longest_ns, together.is_bound), (MS / 5, true));
        together.append(&gaps([50 * MS]));
        assert_eq!((together.longest_ns, together.is_bound), (50 * MS, false));
    }

    #[test]
    fn a_list_that_is_full_keeps_the_longest() {
        let mut timer = GapTimer::new();
        timer.start(Instant(0));
        let mut now = 0;
        for gap in 0..10_000_u64 {
            now += MS + gap % 7 * MS / 2;
            timer.complete(Instant(now));
        }
        timer.complete(Instant(now + 50 * MS));
        let gaps = timer.gaps();
        assert!(gaps.list.len() <= KEPT_MAX && gaps.list.len() > KEPT_MAX / 10, "{}", gaps.list.len());
        assert!(gaps.list.iter().all(|gap| gap.duration_ns() >= gaps.listed_from_ns));
        let few = gaps.longest(5);
        assert_eq!((few.longest_ns, listed(&few)), (50 * MS, vec![(now / MS, now / MS + 50)]));
        assert_eq!(few.listed_from_ns, 4 * MS + 1);
    }

    #[test]
    fn what_lies_between_two_windows_is_no_gap() {
        let mut both = gaps([20 * MS]);
        let mut timer = GapTimer::new();
        timer.start(Instant(500 * MS));
        timer.end(Instant(530 * MS));
        both.append(&timer.gaps());
        assert_eq!(listed(&both), [(0, 20), (20, 100), (500, 530)]);
        assert_eq!(both.longest_ns, 80 * MS);
    }
}
