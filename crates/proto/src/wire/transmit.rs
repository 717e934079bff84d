//! The send queue of one connection: headers are stored inline, payloads by reference, in order.

use alloc::{collections::VecDeque, vec::Vec};

use super::Payload;

/// A queue of bytes to send. A state machine appends to it. A driver reads the chunks, sends them in one vectored
/// write, and advances the queue.
#[derive(Debug)]
pub struct Transmit {
    /// The bytes of all `Segment::Inline`s, in order. The first `inline_sent` bytes have been sent.
    inline: Vec<u8>,
    inline_sent: usize,
    segments: VecDeque<Segment>,
    len: usize,
    /// Number of bytes ever sent.
    sent: u64,
    room: usize,
    /// Work left in the turn; unlimited before the first `begin_turn`.
    left: usize,
}

/// Maximum sent inline bytes that are kept in front of unsent ones. Without a limit, a queue that never becomes empty
/// would grow with everything that it ever sent.
const SENT_MAX: usize = 64 << 10;

/// Size of the pieces in which payloads are copied: small enough for the fastest cache.
const PIECE_BYTES: usize = 1024;

/// Maximum memory that an empty queue keeps, in inline bytes.
const KEPT_BYTES: usize = 1 << 20;
/// Maximum memory that an empty queue keeps, in segments.
const KEPT_SEGMENTS: usize = 16 << 10;

#[derive(Debug)]
enum Segment {
    Inline(usize),
    Payload(Payload),
}

/// The next piece to send.
#[derive(Debug)]
pub enum Chunk<'a> {
    Bytes(&'a [u8]),
    Payload(&'a Payload),
}

impl Default for Transmit {
    fn default() -> Self {
        Self {
            inline: Vec::new(),
            inline_sent: 0,
            segments: VecDeque::new(),
            len: 0,
            sent: 0,
            room: Self::ROOM,
            left: usize::MAX,
        }
    }
}

impl Transmit {
    /// Default maximum of queued bytes. Beyond it a target accepts no further PDU, because the peer sends requests
    /// faster than it reads the answers.
    pub const ROOM: usize = 16 << 20;

    /// Work for a peer in one turn, after which other peers have their turn (see `charge`): about 0.1 ms.
    pub const TURN: usize = 256 << 10;

    /// The minimum work that any request other than an I/O counts for.
    pub const REQUEST: usize = 2 << 10;

    /// Whether the queue has reached its limit, or the peer's turn is over. A full buffer still accepts data; only new
    /// requests are refused.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len >= self.room
    }

    /// Starts a turn. `room` limits the queued bytes.
    #[inline]
    pub fn begin_turn(&mut self, room: usize) {
        self.room = room;
        self.left = Self::TURN;
    }

    /// Counts work for the peer other than moving data of I/Os. It is measured by the time that copying `bytes`
    /// uncached bytes takes. One packet can contain thousands of small requests; when the turn is used up, no further
    /// PDU is accepted in it.
    pub fn charge(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        if self.left == 0 {
            self.room = 0;
        }
    }

    /// Whether the peer's turn is over.
    #[inline]
    pub fn is_turn_over(&self) -> bool {
        self.left == 0
    }

    /// Number of queued bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of bytes ever sent. What is queued now has been sent when this reaches the current sum of it and `len`.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Queues bytes inline. For a header of constant length the copy is only a few moves.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.inline.extend_from_slice(bytes);
        self.grow_inline(bytes.len());
    }

    /// Queues zeros for padding. Usually `count` is 0.
    #[inline]
    pub fn zeros(&mut self, count: usize) {
        if count > 0 {
            self.inline.resize(self.inline.len() + count, 0);
            self.grow_inline(count);
        }
    }

    pub fn payload(&mut self, payload: Payload) {
        if !payload.is_empty() {
            self.len += payload.len();
            self.segments.push_back(Segment::Payload(payload));
        }
    }

    /// Queues a copy of a payload's bytes, and passes each piece to `digest`. A copy is needed because others may write
    /// to a volume's memory before the driver has sent it, and the digest must match what is sent.
    pub fn copy(&mut self, payload: &Payload, mut digest: impl FnMut(&[u8])) {
        let mut done = 0;
        while done < payload.len() {
            let len = PIECE_BYTES.min(payload.len() - done);
            let at = self.inline.len();
            self.inline.resize(at + len, 0);
            let piece = &mut self.inline[at..];
            payload.copy_out(done, piece);
            digest(piece);
            done += len;
        }
        self.grow_inline(done);
    }

    /// Moves all queued bytes to `into` without a copy; the queue keeps the memory that `into` had. Returns false and
    /// changes nothing if the queue has payloads by reference, or if the first bytes of its memory have been sent.
    pub fn move_all(&mut self, into: &mut Vec<u8>) -> bool {
        let is_all = matches!(self.segments.front(), Some(Segment::Inline(len)) if *len == self.inline.len());
        if !is_all || self.segments.len() > 1 {
            return false;
        }
        core::mem::swap(&mut self.inline, into);
        self.advance(self.len);
        true
    }

    /// The last `count` inline bytes, for a digest over a header or a length that is known late. They must have been
    /// queued after the last payload.
    pub fn tail_mut(&mut self, count: usize) -> &mut [u8] {
        let at = self.inline.len() - count;
        &mut self.inline[at..]
    }

    pub fn chunks(&self) -> impl Iterator<Item = Chunk<'_>> {
        let mut at = self.inline_sent;
        self.segments.iter().map(move |segment| match segment {
            Segment::Inline(len) => {
                at += len;
                Chunk::Bytes(&self.inline[at - len..at])
            }
            Segment::Payload(payload) => Chunk::Payload(payload),
        })
    }

    /// Removes `count` bytes from the front, which have been sent.
    pub fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "more sent than queued");
        self.len -= count;
        self.sent += count as u64;
        if self.len == 0 {
            return self.clear();
        }
        while count > 0 {
            let front = self.segments.front_mut().expect("what is queued stands in segments");
            match front {
                Segment::Inline(len) => {
                    let taken = count.min(*len);
                    *len -= taken;
                    self.inline_sent += taken;
                    count -= taken;
                    if *len > 0 {
                        break;
                    }
                }
                Segment::Payload(payload) => {
                    if count < payload.len() {
                        *payload = payload.slice(count, payload.len() - count);
                        break;
                    }
                    count -= payload.len();
                }
            }
            self.segments.pop_front();
        }
        if self.inline_sent >= SENT_MAX && self.inline_sent * 2 >= self.inline.len() {
            self.forget_sent();
        }
    }

    /// Clears the queue but keeps its memory, unless it is large.
    pub fn clear(&mut self) {
        self.inline.clear();
        self.inline_sent = 0;
        self.segments.clear();
        self.len = 0;
        if self.inline.capacity() > KEPT_BYTES || self.segments.capacity() > KEPT_SEGMENTS {
            self.give_back();
        }
    }

    #[cold]
    fn forget_sent(&mut self) {
        self.inline.drain(..self.inline_sent);
        self.inline_sent = 0;
    }

    #[cold]
    fn give_back(&mut self) {
        self.inline.shrink_to(KEPT_BYTES);
        self.segments.shrink_to(KEPT_SEGMENTS);
    }

    /// Bytes of memory that the queue holds, without payloads.
    pub fn held_bytes(&self) -> usize {
        self.inline.capacity() + self.segments.capacity() * size_of::<Segment>()
    }

    /// Takes all queued bytes as one vector. For tests.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        for chunk in self.chunks() {
            match chunk {
                Chunk::Bytes(inline) => bytes.extend_from_slice(inline),
                Chunk::Payload(payload) => bytes.extend_from_slice(&payload.to_vec()),
            }
        }
        self.clear();
        bytes
    }

    fn grow_inline(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.len += count;
        if let Some(Segment::Inline(len)) = self.segments.back_mut() {
            *len += count;
        } else {
            self.segments.push_back(Segment::Inline(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn chunks_come_back_in_order_whatever_is_sent_at_a_time() {
        for step in 1..12 {
            let mut transmit = Transmit::default();
            transmit.put(b"abc");
            transmit.put(b"de");
            transmit.payload(Payload::from_vec(vec![b'x'; 4]));
            transmit.put(b"fg");
            let mut seen = Vec::new();
            while !transmit.is_empty() {
                let mut all = Vec::new();
                for chunk in transmit.chunks() {
                    match chunk {
                        Chunk::Bytes(bytes) => all.extend_from_slice(bytes),
                        Chunk::Payload(payload) => all.extend(payload.to_vec()),
                    }
                }
                assert_eq!(all.len(), transmit.len());
                let count = step.min(all.len());
                seen.extend_from_slice(&all[..count]);
                transmit.advance(count);
            }
            assert_eq!(seen, b"abcdexxxxfg");
        }
    }

    #[test]
    fn bytes_are_moved_only_if_they_are_all_that_the_queue_holds() {
        let mut transmit = Transmit::default();
        let mut into = vec![9; 10];
        assert!(!transmit.move_all(&mut into));
        transmit.put(b"ab");
        transmit.put(b"cd");
        assert!(transmit.move_all(&mut into));
        assert_eq!((&into[..], transmit.len(), transmit.sent()), (&b"abcd"[..], 0, 4));
        transmit.put(b"ef");
        transmit.advance(1);
        assert!(!transmit.move_all(&mut into), "a part was sent");
        transmit.advance(1);
        transmit.put(b"g");
        transmit.payload(Payload::from_vec(b"h".to_vec()));
        assert!(!transmit.move_all(&mut into), "a payload is elsewhere");
        transmit.advance(1);
        assert!(!transmit.move_all(&mut into), "only a payload is left, as long as what was sent");
        assert_eq!((&into[..], transmit.take_bytes()), (&b"abcd"[..], b"h".to_vec()));
    }

    #[test]
    fn a_queue_that_never_empties_keeps_only_what_is_not_sent() {
        let mut transmit = Transmit::default();
        transmit.put(&[1; 1000]);
        for _ in 0..10_000 {
            transmit.put(&[2; 1000]);
            transmit.payload(Payload::from_vec(vec![3; 10]));
            transmit.advance(1010);
        }
        assert_eq!(transmit.len(), 1000);
        assert!(transmit.held_bytes() < 512 << 10, "{} bytes for 1000", transmit.held_bytes());
        let kept: Vec<u8> = transmit.take_bytes();
        assert_eq!(kept.len(), 1000);
    }

    #[test]
    fn a_burst_gives_its_memory_back() {
        let mut transmit = Transmit::default();
        transmit.zeros(Transmit::ROOM - 1);
        assert!(!transmit.is_full());
        transmit.zeros(1);
        assert!(transmit.is_full());
        transmit.advance(Transmit::ROOM);
        assert!(transmit.is_empty() && transmit.held_bytes() <= 2 << 20);
    }

    #[test]
    fn a_turn_is_over_when_its_work_is_done_and_the_next_has_room_again() {
        let mut transmit = Transmit::default();
        transmit.charge(2 * Transmit::TURN);
        assert!(!transmit.is_full() && !transmit.is_turn_over(), "nobody counts turns");
        transmit.begin_turn(Transmit::ROOM);
        transmit.charge(Transmit::TURN - 1);
        assert!(!transmit.is_full() && !transmit.is_turn_over());
        transmit.charge(2 * Transmit::TURN);
        assert!(transmit.is_full() && transmit.is_turn_over());
        transmit.begin_turn(10);
        assert!(!transmit.is_full() && !transmit.is_turn_over());
        transmit.zeros(10);
        assert!(transmit.is_full() && !transmit.is_turn_over());
    }
}
