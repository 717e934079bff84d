//! What TCP does where segments are lost: how much of a stream may be on its way, and when what was lost is sent again (RFC 5681, RFC
//! 6298, RFC 6928, RFC 8985, and of RFC 6675 that each hole is known by what was acknowledged behind it). In bytes; no byte is looked at.

use std::{collections::VecDeque, time::Duration};

use iotax_proto::Instant;

/// RFC 6928 §2.
const FIRST_WINDOW_SEGMENTS: usize = 10;
/// Segments acknowledged behind a lost one until it is sent again (RFC 5681 §3.2).
const DUPLICATES: u32 = 3;
/// Linux's; RFC 6298 §2.4 has 1 s.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
/// Two ticks of Linux at 250 Hz, which it waits beyond two round trips until it sends the last again (RFC 8985 §7.2). Where one segment is
/// on its way alone it waits for `TIMEOUT_MIN` besides, so that there the timeout comes first.
const PROBE_MIN: Duration = Duration::from_millis(8);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Before a round trip was measured (RFC 6298 §2.1).
const TIMEOUT_FIRST: Duration = Duration::from_secs(1);

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Tcp {
    segment_bytes: usize,
    window_bytes: usize,
    threshold_bytes: usize,
    /// Acknowledged since the window grew last, beyond the threshold.
    grown_bytes: usize,
    /// The window kept something from being sent.
    is_limited: bool,
    /// Of the stream, so far.
    sent: u64,
    /// Not known to have arrived.
    flight_bytes: usize,
    holes: VecDeque<Hole>,
    /// What was lost before it belongs to the loss that the window was cut for.
    cut_at: u64,
    /// Smoothed, and its variation, ns.
    round_trip: Option<(u64, u64)>,
    backoff: u32,
    /// When something was last sent or acknowledged.
    active_at: Instant,
}

/// A part of what was sent at once is lost. It is known by where that ends.
#[derive(Debug)]
struct Hole {
    end: u64,
    bytes: usize,
    /// Segments acknowledged that were sent after it.
    behind: u32,
    /// When the first of these was.
    passed_at: Option<Instant>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody knows yet.
    Lost,
    /// Sent again, and lost again: only time tells.
    LostAgain,
    /// It will arrive.
    Sent,
}

/// Whether a hole is taken for lost before its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// It was sent again, or came.
    Over,
    /// Not before.
    Later(Instant),
    /// This one is to be sent again, and its bytes.
    Send(u64, usize),
}

/// What arrived of what was sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) end: u64,
    pub(crate) bytes: usize,
    /// Segments of it that were sent after the first lost one.
    pub(crate) behind: u32,
    pub(crate) sent_at: Instant,
}

impl Tcp {
    pub(crate) fn new(segment_bytes: usize) -> Self {
        Self {
            segment_bytes,
            window_bytes: FIRST_WINDOW_SEGMENTS * segment_bytes,
            threshold_bytes: usize::MAX,
            grown_bytes: 0,
            is_limited: false,
            sent: 0,
            flight_bytes: 0,
            holes: VecDeque::new(),
            cut_at: 0,
            round_trip: None,
            backoff: 0,
            active_at: Instant(0),
        }
    }

    /// How much of `wanted` bytes may be sent now: whole segments, but for the last of all.
    pub(crate) fn room(&mut self, wanted: usize) -> usize {
        let room = self.window_bytes.saturating_sub(self.flight_bytes);
        let whole = room / self.segment_bytes * self.segment_bytes;
        let room = if self.flight_bytes == 0 { whole.max(self.segment_bytes) } else { whole };
        self.is_limited |= room < wanted;
        room.min(wanted)
    }

    /// So many bytes are sent at once: where they end.
    pub(crate) fn send(&mut self, now: Instant, bytes: usize) -> u64 {
        self.active_at = self.active_at.max(now);
        self.sent += bytes as u64;
        self.flight_bytes += bytes;
        self.sent
    }

    /// Of the last that was sent, or of one before it, so many bytes do not arrive.
    pub(crate) fn lose(&mut self, end: u64, bytes: usize) {
        self.holes.push_back(Hole { end, bytes, behind: 0, passed_at: None, state: State::Lost });
    }

    /// When to ask `missed` of a hole that was just made; `None` where its timeout comes first.
    pub(crate) fn asks_at(&self) -> Option<Instant> {
        let (smoothed_ns, _) = self.round_trip?;
        let is_alone = self.flight_bytes <= self.segment_bytes;
        (!is_alone).then(|| self.active_at + Duration::from_nanos(2 * smoothed_ns) + PROBE_MIN)
    }

    /// Whether a hole is taken for lost by now: a quarter of a round trip after something behind it was acknowledged (RFC 8985 §6.2),
    /// or where nothing was for so long that the last is sent again to find out (§7).
    pub(crate) fn missed(&mut self, now: Instant, end: u64) -> Missed {
        let is_lost = |hole: &&Hole| hole.state == State::Lost;
        let Some(hole) = self.holes.iter().find(|hole| hole.end == end).filter(is_lost) else { return Missed::Over };
        let (due, missed) = match (hole.passed_at, self.asks_at()) {
            (Some(passed_at), _) => (passed_at + self.reordering(), end),
            (None, Some(due)) => (due, self.holes.iter().filter(is_lost).map(|hole| hole.end).max().unwrap_or(end)),
            (None, None) => return Missed::Over,
        };
        if now < due {
            return Missed::Later(due);
        }
        self.active_at = now;
        self.resend(missed).map_or(Missed::Over, |bytes| Missed::Send(missed, bytes))
    }

    /// A hole that stands before one that was filled, and is not sent again yet: what was sent after it has come.
    pub(crate) fn passed_by(&mut self, filled: u64) -> Option<(u64, usize)> {
        let end = self.holes.iter().find(|hole| hole.end < filled && hole.state == State::Lost)?.end;
        self.resend(end).map(|bytes| (end, bytes))
    }

    fn reordering(&self) -> Duration {
        Duration::from_nanos(self.round_trip.map_or(0, |(smoothed_ns, _)| smoothed_ns / 4))
    }

    fn resend(&mut self, end: u64) -> Option<usize> {
        let hole = self.holes.iter_mut().find(|hole| hole.end == end)?;
        hole.state = State::LostAgain;
        let bytes = hole.bytes;
        self.cut(end, false);
        Some(bytes)
    }

    /// How long after it was sent a hole is taken for lost, whatever is acknowledged.
    pub(crate) fn timeout(&self) -> Duration {
        let known = self.round_trip.map(|(smoothed, variation)| Duration::from_nanos(smoothed + 4 * variation));
        let once = known.map_or(TIMEOUT_FIRST, |known| known.max(TIMEOUT_MIN));
        once.saturating_mul(1 << self.backoff.min(16)).min(TIMEOUT_MAX)
    }

    /// An acknowledgement came: a hole that is to be sent again for it, and its bytes. Another may be the first time that something behind
    /// a hole is acknowledged: see `suspected`.
    pub(crate) fn acknowledged(&mut self, now: Instant, what: Acknowledged) -> Option<(u64, usize)> {
        self.flight_bytes -= what.bytes;
        self.active_at = now;
        self.measure(now.since(what.sent_at));
        let segments = what.bytes.div_ceil(self.segment_bytes) as u32;
        for hole in &mut self.holes {
            if hole.end < what.end {
                hole.behind += segments;
            } else if hole.end == what.end {
                hole.behind += what.behind;
            }
            if hole.behind > 0 {
                hole.passed_at.get_or_insert(now);
            }
        }
        if self.holes.is_empty() {
            self.grow(what.bytes);
        }
        let known = |hole: &&Hole| hole.state == State::Lost && hole.behind >= DUPLICATES;
        let end = self.holes.iter().find(known)?.end;
        self.resend(end).map(|bytes| (end, bytes))
    }

    /// Holes that something behind was acknowledged of just now for the first time, and when to ask `missed` of them.
    pub(crate) fn suspected(&self, now: Instant) -> impl Iterator<Item = (u64, Instant)> {
        let due = now + self.reordering();
        let suspected = move |hole: &&Hole| hole.state == State::Lost && hole.passed_at == Some(now);
        self.holes.iter().filter(suspected).map(move |hole| (hole.end, due))
    }

    /// Its time is over: the bytes of a hole that is to be sent again for it.
    pub(crate) fn timed_out(&mut self, end: u64) -> Option<usize> {
        let hole = self.holes.iter_mut().find(|hole| hole.end == end && hole.state != State::Sent)?;
        hole.state = State::LostAgain;
        let bytes = hole.bytes;
        self.backoff += 1;
        self.cut(end, true);
        Some(bytes)
    }

    /// What was sent again will arrive.
    pub(crate) fn will_arrive(&mut self, end: u64) {
        if let Some(hole) = self.holes.iter_mut().find(|hole| hole.end == end) {
            hole.state = State::Sent;
        }
    }

    /// It will not: only time tells.
    pub(crate) fn lost_again(&mut self, end: u64) {
        if let Some(hole) = self.holes.iter_mut().find(|hole| hole.end == end) {
            hole.state = State::LostAgain;
        }
    }

    /// It has, and that is known.
    pub(crate) fn filled(&mut self, end: u64) {
        let filled = self.holes.iter().position(|hole| hole.end == end).and_then(|at| self.holes.remove(at));
        self.flight_bytes -= filled.map_or(0, |hole| hole.bytes);
        self.backoff = 0;
    }

    /// Half of the window, once for all that was sent before (RFC 5681 §3.1, §3.2; of the window rather than of what is on its way, as in
    /// Linux, for it grows only while it is used).
    fn cut(&mut self, end: u64, timed_out: bool) {
        if end > self.cut_at {
            self.threshold_bytes = (self.window_bytes / 2).max(2 * self.segment_bytes);
            self.window_bytes = self.threshold_bytes;
            self.cut_at = self.sent;
        }
        if timed_out {
            self.window_bytes = self.segment_bytes;
        }
        self.grown_bytes = 0;
    }

    /// RFC 5681 §3.1; a window that kept nothing from being sent stays as it is (RFC 7661).
    fn grow(&mut self, bytes: usize) {
        if !std::mem::take(&mut self.is_limited) {
            return;
        }
        if self.window_bytes < self.threshold_bytes {
            self.window_bytes += bytes;
            return;
        }
        self.grown_bytes += bytes;
        if self.grown_bytes >= self.window_bytes {
            self.grown_bytes -= self.window_bytes;
            self.window_bytes += self.segment_bytes;
        }
    }

    /// RFC 6298 §2.
    fn measure(&mut self, took: Duration) {
        let took = took.as_nanos() as u64;
        self.round_trip = Some(match self.round_trip {
            None => (took, took / 2),
            Some((smoothed, variation)) => ((7 * smoothed + took) / 8, (3 * variation + smoothed.abs_diff(took)) / 4),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: usize = 1000;

    fn arrived(end: u64, bytes: usize) -> Acknowledged {
        Acknowledged { end, bytes, behind: 0, sent_at: Instant(0) }
    }

    /// Sends what may be sent, and has it acknowledged: its segments.
    fn round(tcp: &mut Tcp) -> usize {
        let mut ends = Vec::new();
        while tcp.room(SEGMENT) == SEGMENT {
            ends.push(tcp.send(Instant(0), SEGMENT));
        }
        for end in &ends {
            // There is always more to send.
            tcp.room(usize::MAX);
            assert_eq!(tcp.acknowledged(Instant(1_000_000), arrived(*end, SEGMENT)), None);
        }
        ends.len()
    }

    #[test]
    fn window_doubles_each_round_and_after_a_loss_grows_by_a_segment() {
        let mut tcp = Tcp::new(SEGMENT);
        assert_eq!([0; 4].map(|_| round(&mut tcp)), [10, 20, 40, 80]);
        // Of 160, the first is lost.
        let lost = tcp.send(Instant(0), SEGMENT);
        tcp.lose(lost, SEGMENT);
        while tcp.room(SEGMENT) == SEGMENT {
            tcp.send(Instant(0), SEGMENT);
        }
        let first = lost + SEGMENT as u64;
        assert_eq!(tcp.acknowledged(Instant(2), arrived(first, SEGMENT)), None);
        assert_eq!(tcp.acknowledged(Instant(2), arrived(first + 1000, SEGMENT)), None);
        assert_eq!(tcp.acknowledged(Instant(2), arrived(first + 2000, SEGMENT)), Some((lost, SEGMENT)));
        tcp.will_arrive(lost);
        for at in 3..159 {
            assert_eq!(tcp.acknowledged(Instant(2), arrived(first + at * 1000, SEGMENT)), None, "one cut for all");
        }
        tcp.filled(lost);
        assert_eq!(tcp.flight_bytes, 0);
        let rounds = [0; 3].map(|_| round(&mut tcp));
        assert_eq!(rounds[0], 80, "half of the window then");
        assert!(rounds[2] - rounds[0] <= 2, "{rounds:?}");
    }

    #[test]
    fn timeout_leaves_one_segment_and_waits_twice_as_long_the_next_time() {
        let mut tcp = Tcp::new(SEGMENT);
        round(&mut tcp);
        let before = tcp.timeout();
        let lost = tcp.send(Instant(0), 2 * SEGMENT);
        tcp.lose(lost, SEGMENT);
        assert_eq!(tcp.acknowledged(Instant(5), Acknowledged { behind: 1, ..arrived(lost, SEGMENT) }), None);
        assert_eq!(tcp.timed_out(lost), Some(SEGMENT));
        assert_eq!((tcp.window_bytes, tcp.timeout()), (SEGMENT, 2 * before));
        assert_eq!(tcp.timed_out(lost), Some(SEGMENT), "lost again");
        tcp.will_arrive(lost);
        assert_eq!(tcp.timed_out(lost), None);
        tcp.filled(lost);
        assert_eq!((tcp.flight_bytes, tcp.timeout()), (0, before));
    }

    #[test]
    fn window_that_kept_nothing_from_being_sent_stays() {
        let mut tcp = Tcp::new(SEGMENT);
        for _ in 0..100 {
            assert_eq!(tcp.room(SEGMENT), SEGMENT);
            let end = tcp.send(Instant(0), SEGMENT);
            tcp.acknowledged(Instant(1), arrived(end, SEGMENT));
        }
        assert_eq!(tcp.window_bytes, FIRST_WINDOW_SEGMENTS * SEGMENT);
    }

    /// After a round trip of 1 ms, sends three segments of which those numbered are lost: their ends.
    fn three_with(tcp: &mut Tcp, lost: &[usize]) -> Vec<u64> {
        let first = tcp.send(Instant(0), SEGMENT);
        tcp.acknowledged(Instant(1_000_000), arrived(first, SEGMENT));
        let ends: Vec<u64> = (0..3).map(|_| tcp.send(Instant(1_000_000), SEGMENT)).collect();
        for index in lost {
            tcp.lose(ends[*index], SEGMENT);
        }
        ends
    }

    #[test]
    fn hole_that_one_segment_passed_is_sent_again_a_quarter_of_a_round_trip_later() {
        let mut tcp = Tcp::new(SEGMENT);
        let ends = three_with(&mut tcp, &[0]);
        let now = Instant(2_000_000);
        let passed = Acknowledged { sent_at: Instant(1_000_000), ..arrived(ends[1], SEGMENT) };
        assert_eq!(tcp.acknowledged(now, passed), None);
        let due = now + Duration::from_micros(250);
        assert_eq!(tcp.suspected(now).collect::<Vec<_>>(), [(ends[0], due)]);
        assert_eq!(tcp.missed(now, ends[0]), Missed::Later(due));
        assert_eq!(tcp.missed(due, ends[0]), Missed::Send(ends[0], SEGMENT));
        assert_eq!(tcp.missed(due, ends[0]), Missed::Over);
        assert_eq!(tcp.window_bytes, 5 * SEGMENT, "half");
    }

    #[test]
    fn last_of_a_lost_tail_is_sent_again_after_two_round_trips_and_shows_what_else_is_lost() {
        let mut tcp = Tcp::new(SEGMENT);
        let ends = three_with(&mut tcp, &[0, 1, 2]);
        let due = Instant(1_000_000) + Duration::from_millis(2) + PROBE_MIN;
        assert_eq!(tcp.asks_at(), Some(due));
        assert_eq!(tcp.missed(due, ends[0]), Missed::Send(ends[2], SEGMENT));
        tcp.will_arrive(ends[2]);
        tcp.filled(ends[2]);
        assert_eq!(tcp.passed_by(ends[2]), Some((ends[0], SEGMENT)));
        assert_eq!(tcp.passed_by(ends[2]), Some((ends[1], SEGMENT)));
        assert_eq!(tcp.passed_by(ends[2]), None);
    }

    #[test]
    fn segment_that_is_alone_on_its_way_waits_for_its_timeout() {
        let mut tcp = Tcp::new(SEGMENT);
        let first = tcp.send(Instant(0), SEGMENT);
        tcp.acknowledged(Instant(1_000_000), arrived(first, SEGMENT));
        let lost = tcp.send(Instant(1_000_000), SEGMENT);
        tcp.lose(lost, SEGMENT);
        assert_eq!(tcp.asks_at(), None);
        assert_eq!(tcp.missed(Instant(100_000_000), lost), Missed::Over);
        assert_eq!(tcp.timed_out(lost), Some(SEGMENT));
    }
}
