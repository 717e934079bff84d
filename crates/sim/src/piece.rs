//! Bytes on their way, in memory that goes from one packet to the next.

use std::ops::Deref;

use iotax_proto::{Transmit, wire::Chunk};

/// A longer one comes from memory of its own, so that requests stay short while answers are long.
const SHORT_BYTES: usize = 512;

/// Bytes that were sent at once. Its memory is as long as it ever was, so that what is written over need not be cleared.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    memory: Vec<u8>,
    len: usize,
}

impl Piece {
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Takes bytes off the front of a queue.
    fn take_front(&mut self, transmit: &mut Transmit, count: usize) {
        if self.memory.len() < count {
            self.memory.resize(count, 0);
        }
        self.len = count;
        let mut left = &mut self.memory[..count];
        for chunk in transmit.chunks() {
            if left.is_empty() {
                break;
            }
            let len = match &chunk {
                Chunk::Bytes(bytes) => bytes.len(),
                Chunk::Payload(payload) => payload.len(),
            };
            let (now, later) = left.split_at_mut(len.min(left.len()));
            match chunk {
                Chunk::Bytes(bytes) => now.copy_from_slice(&bytes[..now.len()]),
                Chunk::Payload(payload) => payload.copy_out(0, now),
            }
            left = later;
        }
        transmit.advance(count);
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

/// Pieces that nobody needs now; the last one first, which caches still hold.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    short: Vec<Piece>,
    long: Vec<Piece>,
}

impl Spare {
    pub(crate) fn take_front(&mut self, transmit: &mut Transmit, count: usize) -> Piece {
        let mut piece = self.like(count).pop().unwrap_or_default();
        piece.take_front(transmit, count);
        piece
    }

    pub(crate) fn give_back(&mut self, piece: Piece) {
        self.like(piece.memory.len()).push(piece);
    }

    fn like(&mut self, bytes: usize) -> &mut Vec<Piece> {
        if bytes <= SHORT_BYTES { &mut self.short } else { &mut self.long }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_off_the_front_across_chunks() {
        let mut transmit = Transmit::default();
        transmit.put(b"abc");
        transmit.payload(iotax_proto::Payload::from_vec(b"defg".to_vec()));
        let mut spare = Spare::default();
        let first = spare.take_front(&mut transmit, 5);
        assert_eq!(&*first, b"abcde");
        spare.give_back(first);
        assert_eq!(&*spare.take_front(&mut transmit, 2), b"fg");
        assert!(transmit.is_empty());
    }

    #[test]
    fn long_memory_waits_for_long_pieces() {
        let (mut transmit, mut spare) = (Transmit::default(), Spare::default());
        transmit.put(&[7; SHORT_BYTES + 2]);
        let long = spare.take_front(&mut transmit, SHORT_BYTES + 1);
        spare.give_back(long);
        let short = spare.take_front(&mut transmit, 1);
        assert_eq!((short.memory.len(), spare.long.len()), (1, 1));
    }
}
