//! TCP's behaviour if segments are lost: how much of a stream may be in flight, and when lost bytes are sent again (RFC
//! 5681, RFC 6298, RFC 6928, RFC 8985; from RFC 6675, that each hole is detected by later bytes that were
//! acknowledged). Counts bytes without looking at their contents.

use std::{collections::VecDeque, time::Duration};

use iotax_proto::Instant;

/// RFC 6928 §2.
const FIRST_WINDOW_SEGMENTS: usize = 10;
/// Number of segments acknowledged behind a lost one before it is sent again (RFC 5681 §3.2).
const DUPLICATES: u32 = 3;
/// As in Linux; RFC 6298 §2.4 specifies 1 s.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
/// Two ticks of Linux at 250 Hz, which it waits in addition to two round trips before it sends the last segment again
/// (RFC 8985 §7.2). If a single segment is in flight, it also waits for `TIMEOUT_MIN`, so that the timeout comes first.
const PROBE_MIN: Duration = Duration::from_millis(8);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Timeout before a round trip was measured (RFC 6298 §2.1).
const TIMEOUT_FIRST: Duration = Duration::from_secs(1);

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Tcp {
    segment_bytes: usize,
    window_bytes: usize,
    threshold_bytes: usize,
    /// Bytes acknowledged since the window last grew, beyond the threshold.
    grown_bytes: usize,
    /// The window prevented bytes from being sent.
    is_limited: bool,
    /// Bytes of the stream sent so far.
    sent: u64,
    /// Bytes not known to have arrived.
    flight_bytes: usize,
    holes: VecDeque<Hole>,
    /// The window was cut for a loss when this much had been sent: earlier losses belong to the same one.
    cut_at: u64,
    /// Smoothed round trip and its variation, ns.
    round_trip: Option<(u64, u64)>,
    backoff: u32,
    /// When bytes were last sent or acknowledged.
    active_at: Instant,
}

/// A lost part of a send, identified by the end of that send in the stream.
#[derive(Debug)]
struct Hole {
    end: u64,
    bytes: usize,
    /// Number of acknowledged segments that were sent after it.
    behind: u32,
    /// When the first of these was acknowledged.
    passed_at: Option<Instant>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The loss is not detected yet.
    Lost,
    /// Sent again, and lost again: only a timeout detects it.
    LostAgain,
    /// It will arrive.
    Sent,
}

/// Whether a hole is considered lost before its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// It was already sent again, or has arrived.
    Over,
    /// Not before this instant.
    Later(Instant),
    /// The hole to be sent again, by its end, and its number of bytes.
    Send(u64, usize),
}

/// The part of a send that arrived.
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

    /// How many of `wanted` bytes may be sent now: whole segments, except the last of all.
    pub(crate) fn room(&mut self, wanted: usize) -> usize {
        let room = self.window_bytes.saturating_sub(self.flight_bytes);
        let whole = room / self.segment_bytes * self.segment_bytes;
        let room = if self.flight_bytes == 0 { whole.max(self.segment_bytes) } else { whole };
        self.is_limited |= room < wanted;
        room.min(wanted)
    }

    /// Sends bytes; returns their end in the stream.
    pub(crate) fn send(&mut self, now: Instant, bytes: usize) -> u64 {
        self.active_at = self.active_at.max(now);
        self.sent += bytes as u64;
        self.flight_bytes += bytes;
        self.sent
    }

    /// Records that `bytes` of the send that ends at `end` do not arrive.
    pub(crate) fn lose(&mut self, end: u64, bytes: usize) {
        self.holes.push_back(Hole { end, bytes, behind: 0, passed_at: None, state: State::Lost });
    }

    /// When to call `missed` for a new hole; `None` if its timeout comes first.
    pub(crate) fn asks_at(&self) -> Option<Instant> {
        let (smoothed_ns, _) = self.round_trip?;
        let is_alone = self.flight_bytes <= self.segment_bytes;
        (!is_alone).then(|| self.active_at + Duration::from_nanos(2 * smoothed_ns) + PROBE_MIN)
    }

    /// Whether a hole is now considered lost: a quarter of a round trip after later bytes were acknowledged (RFC 8985
    /// §6.2), or after so long without any that the last segment is sent again as a probe (§7).
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

    /// A hole before one that was filled, if it has not been sent again yet: later bytes have arrived.
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

    /// How long after its send a hole is considered lost, whatever is acknowledged.
    pub(crate) fn timeout(&self) -> Duration {
        let known = self.round_trip.map(|(smoothed, variation)| Duration::from_nanos(smoothed + 4 * variation));
        let once = known.map_or(TIMEOUT_FIRST, |known| known.max(TIMEOUT_MIN));
        once.saturating_mul(1 << self.backoff.min(16)).min(TIMEOUT_MAX)
    }

    /// Handles an acknowledgement. Returns a hole that must be sent again because of it, and its number of bytes. It
    /// may also be the first acknowledgement behind a hole: see `suspected`.
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

    /// Holes behind which bytes were just acknowledged for the first time, and when to call `missed` for them.
    pub(crate) fn suspected(&self, now: Instant) -> impl Iterator<Item = (u64, Instant)> {
        let due = now + self.reordering();
        let suspected = move |hole: &&Hole| hole.state == State::Lost && hole.passed_at == Some(now);
        self.holes.iter().filter(suspected).map(move |hole| (hole.end, due))
    }

    /// The timeout of a hole: returns its number of bytes if it must be sent again.
    pub(crate) fn timed_out(&mut self, end: u64) -> Option<usize> {
        let hole = self.holes.iter_mut().find(|hole| hole.end == end && hole.state != State::Sent)?;
        hole.state = State::LostAgain;
        let bytes = hole.bytes;
        self.backoff += 1;
        self.cut(end, true);
        Some(bytes)
    }

    /// The hole was sent again and will arrive.
    pub(crate) fn will_arrive(&mut self, end: u64) {
        if let Some(hole) = self.holes.iter_mut().find(|hole| hole.end == end) {
            hole.state = State::Sent;
        }
    }

    /// The hole was sent again and is lost again: only a timeout detects it.
    pub(crate) fn lost_again(&mut self, end: u64) {
        if let Some(hole) = self.holes.iter_mut().find(|hole| hole.end == end) {
            hole.state = State::LostAgain;
        }
    }

    /// The hole has arrived, and the sender knows it.
    pub(crate) fn filled(&mut self, end: u64) {
        let filled = self.holes.iter().position(|hole| hole.end == end).and_then(|at| self.holes.remove(at));
        self.flight_bytes -= filled.map_or(0, |hole| hole.bytes);
        self.backoff = 0;
    }

    /// Halves the window, once for everything sent before (RFC 5681 §3.1, §3.2). As in Linux, it halves the window and
    /// not the bytes in flight, because the window grows only while it is used.
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

    /// RFC 5681 §3.1. A window that did not limit sending stays the same (RFC 7661).
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

    /// Sends what may be sent, and acknowledges it. Returns the number of segments.
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
        // The first of 160 is lost.
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

    /// After a round trip of 1 ms, sends three segments, of which those in `lost` are lost. Returns their ends.
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
